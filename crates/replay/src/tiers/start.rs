//! Which flash tier a setup stands for, and replays of whole traces.

use super::appending::rules;
use super::core_tier::Begins;
use super::no_flash::NoFlash;
use super::opt_tier::OptTier;
use super::policy_tier::PolicyTier;
use super::ranking::{BandedSlots, ByExtents};
use super::run::Replay;
use super::shared::Shared;
use super::{Flash, FlashSetup, FlashTier, Memory, TierCounts, Traffic};
use crate::References;
use crate::places::Places;
use crate::timed::Asked;
use terrace_policy::{AgeOrder, CleanerOrder, Replacement, SlotAges, SlotHeat, SlotLru2};
use terrace_tier::{AgesOrder, AnyOrder, CHOICES, HeatOrder, LogSlots};

/// Work for whichever tier a setup stands for, compiled for each of them.
pub(super) trait TierVisitor<'a> {
    /// What the work gives.
    type Output;

    /// Does the work with `flash`, which is empty.
    fn visit<F: FlashTier + 'a>(self, flash: F) -> Self::Output;
}

/// Replays `references` through memory and the flash tier.
///
/// # Panics
///
/// If a tier has no pages; if slots go by a replacement policy: that is [`Flash::Policy`]; if OPT
/// is to have a memory above.
#[must_use]
pub fn replay(
    references: &References,
    places: &Places,
    memory: Memory,
    setup: &FlashSetup,
) -> TierCounts {
    All { references, places, memory, setup, marks: &[], keeps: false }.run().counts
}

/// What had happened before each of the references `marks`, which ascend, and at the end. Nothing
/// of it is left out: a stretch between two marks is the difference of their counts.
///
/// # Panics
///
/// As [`replay`].
#[must_use]
pub fn replay_marked(
    references: &References,
    places: &Places,
    memory: Memory,
    setup: &FlashSetup,
    marks: &[usize],
) -> Vec<TierCounts> {
    assert!(marks.is_sorted(), "marks ascend");
    let memory = Memory { counted_from: 0, ..memory };
    let ended = All { references, places, memory, setup, marks, keeps: false }.run();
    let mut marked = ended.marked;
    // A mark behind the last reference is the end.
    marked.resize(marks.len(), ended.counts);
    marked.push(ended.counts);
    marked
}

/// The same, and all requests that were counted, in their order: for
/// [`TimedDevices`](crate::TimedDevices).
///
/// # Panics
///
/// As [`replay`].
#[must_use]
pub fn replay_kept(
    references: &References,
    places: &Places,
    memory: Memory,
    setup: &FlashSetup,
) -> (TierCounts, Asked) {
    let ended = All { references, places, memory, setup, marks: &[], keeps: true }.run();
    (ended.counts, ended.asked)
}

/// Lets `visitor` work with the tier that `setup` stands for, of a trace of `count` pages.
pub(super) fn with_tier<'a, V: TierVisitor<'a>>(
    count: u32,
    places: &'a Places,
    memory: Memory,
    setup: &FlashSetup,
    visitor: V,
) -> V::Output {
    assert!(setup.slots > 0, "a flash tier has slots");
    let design = match setup.flash {
        Flash::Policy(row, mode) => return visitor.visit(PolicyTier::new(count, row, mode, setup)),
        Flash::Design(design) => design,
        Flash::Opt(_) => panic!("OPT wants to know the whole trace"),
    };
    let slots = setup.slots;
    let shared = Shared::new(design.replacement, places, setup);
    let (rules, appends) = rules(design, &memory, setup);
    let blocks = rules.log.blocks();
    let lends = shared.clone();
    let begins = Begins { pages_count: count, places, design, setup, rules, appends, shared };
    match design.replacement {
        Replacement::Nothing => visitor.visit(NoFlash),
        Replacement::Lru2 => {
            visitor.visit(begins.with(SlotLru2::new(slots, CleanerOrder::Lru2Age)))
        }
        Replacement::Temperature => match setup.bands {
            None => {
                let order = HeatOrder { slots: SlotHeat::new(slots), rule: setup.tac_rule };
                visitor.visit(begins.with(ByExtents { order, shared: lends }))
            }
            Some(bands) => {
                let order = BandedSlots::new(slots, bands, &lends);
                visitor.visit(begins.with(ByExtents { order, shared: lends }))
            }
        },
        Replacement::Recency | Replacement::Chosen => {
            let is_chosen = design.replacement == Replacement::Chosen;
            let order = if is_chosen { CHOICES[0].order } else { AgeOrder::Recency };
            let ages = SlotAges::new(slots, u64::from(slots));
            visitor.visit(begins.with(AgesOrder { ages, order }))
        }
        Replacement::Fifo | Replacement::Rotating | Replacement::FifoSecondChance => {
            let is_second = design.replacement == Replacement::FifoSecondChance;
            visitor.visit(begins.with(LogSlots::fifo(slots, is_second)))
        }
        Replacement::BlockWeight => visitor.visit(begins.with(LogSlots::blocks(slots, blocks))),
        // Whichever it is: the above are compiled by themselves for speed alone.
        _ => {
            let frames = memory.policy.map_or(0, |(_, frames)| frames);
            let order = AnyOrder::new((slots, frames), &begins.rules, &lends);
            visitor.visit(begins.with(order))
        }
    }
}

/// All of a trace.
struct All<'a> {
    references: &'a References,
    places: &'a Places,
    memory: Memory,
    setup: &'a FlashSetup,
    /// References before which the counts are noted, ascending.
    marks: &'a [usize],
    /// Whether requests are kept.
    keeps: bool,
}

/// What a replay came to.
struct Ended {
    counts: TierCounts,
    /// The counts before each mark.
    marked: Vec<TierCounts>,
    asked: Asked,
}

impl All<'_> {
    fn run(self) -> Ended {
        let All { references, places, memory, setup, .. } = self;
        let ended = match setup.flash {
            Flash::Opt(bypass) => {
                assert!(memory.policy.is_none(), "what memory will miss is not known here");
                self.visit(OptTier::new(references, setup.slots, bypass))
            }
            _ => with_tier(references.pages_count(), places, memory, setup, self),
        };
        let marked = ended.marked.into_iter().map(|counts| counts.as_of(setup)).collect();
        Ended { counts: ended.counts.as_of(setup), marked, ..ended }
    }
}

impl<'a> TierVisitor<'a> for All<'a> {
    type Output = Ended;

    fn visit<F: FlashTier + 'a>(self, flash: F) -> Self::Output {
        let pages_count = self.references.pages_count();
        let mut replay = Replay::new(self.places, pages_count, self.memory, self.setup, flash);
        if self.keeps {
            replay.io = Traffic::kept(self.places);
        }
        let mut cuts = self.references.cuts().iter().map(|&cut| cut as usize).peekable();
        let mut marks = self.marks.iter().copied().peekable();
        let aheads = self.references.aheads().iter();
        let mut aheads = aheads.map(|&(at, page)| (at as usize, page)).peekable();
        let mut marked = Vec::with_capacity(self.marks.len());
        // Where the next cut, mark or announced read is: few references have one, and each asks.
        let first = |cut: Option<&usize>, mark: Option<&usize>, ahead: Option<&(usize, u32)>| {
            let all = cut.into_iter().chain(mark).chain(ahead.map(|(at, _)| at));
            all.min().copied().unwrap_or(usize::MAX)
        };
        let mut next = first(cuts.peek(), marks.peek(), aheads.peek());
        let mut at = 0;
        for (pages, [mut writes, mut waits]) in self.references.by_word() {
            for &page in pages {
                if next == at {
                    while marks.next_if_eq(&at).is_some() {
                        marked.push(replay.counts());
                    }
                    if cuts.next_if_eq(&at).is_some() {
                        replay.cut(page);
                        waits &= !1;
                    }
                    while let Some((_, page)) = aheads.next_if(|ahead| ahead.0 == at) {
                        replay.announce(page);
                    }
                    next = first(cuts.peek(), marks.peek(), aheads.peek());
                }
                if waits & 1 != 0 {
                    replay.wait(page);
                }
                replay.reference(page, writes & 1 != 0);
                (writes, waits, at) = (writes >> 1, waits >> 1, at + 1);
            }
        }
        let asked = replay.io.take_asked().unwrap_or_default();
        Ended { counts: replay.counts(), marked, asked }
    }
}
