//! The table of slots against a naive model under random operations, whatever the order of slots.

mod plain;

use plain::Plain;
use terrace_page::{Lsn, PageId};
use terrace_policy::replacement::ReplacementKind;
use terrace_policy::{
    AdmissionRule, Costs, Design, DirtyLeave, History, Invalidation, Replacement, Tick, designs,
};
use terrace_rt::Prng;
use terrace_tier::{
    After, AnyOrder, BaseRule, Changed, Claim, Cleaned, Count, Devices, Ended, Gauge, HasRead,
    Missed, Reading, Root, SlotRules, SlotState, SlotTable, UntilSync, VersionBits, Wanted,
};

const SLOTS: u32 = 12;
const PAGES: u64 = 40;

/// A slot as a plain record.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Slot {
    state: SlotState,
    page: Option<PageId>,
    newer: Option<Lsn>,
    is_read: bool,
    is_doomed: bool,
    is_damaged: bool,
    is_pinned: bool,
    /// Of an invalid slot: not a base, but to be written again in place.
    is_own: bool,
}

impl Slot {
    const FREE: Slot = Slot {
        state: SlotState::Free,
        page: None,
        newer: None,
        is_read: false,
        is_doomed: false,
        is_damaged: false,
        is_pinned: false,
        is_own: false,
    };

    fn is_valid(&self) -> bool {
        use SlotState::{Clean, Dirty, LazyCleaning};
        matches!(self.state, Clean | Dirty | LazyCleaning) && !self.is_doomed
    }

    fn is_cleanable(&self) -> bool {
        self.state == SlotState::Dirty && !self.is_read && !self.is_damaged
    }
}

/// What devices say.
#[derive(Clone, Copy)]
struct Dice {
    is_spared: bool,
    spills: bool,
}

impl Devices for Dice {
    fn is_flash_spared(&self) -> bool {
        self.is_spared
    }

    fn spills(&self) -> bool {
        self.spills
    }
}

struct Both {
    table: SlotTable<AnyOrder, Plain>,
    /// Reads under way, and what was written last, by slot.
    readings: Vec<Option<Reading>>,
    /// Cleanings under way, by slot.
    claims: Vec<Option<Claim>>,
    versions: Vec<Lsn>,
    shares: Plain,
    model: Vec<Slot>,
    keeps_dirty: bool,
    keeps_own: bool,
    /// Whether the order finds the oldest dirty slot; the others begin with the first in order.
    tells_oldest: bool,
    now: Tick,
}

impl Both {
    fn new(replacement: Replacement, keeps_dirty: bool, keeps_own: bool) -> Both {
        let shares = Plain::new();
        let design = Design {
            replacement,
            dirty_leave: if keeps_dirty { DirtyLeave::Flash } else { DirtyLeave::Home },
            invalidation: if keeps_own { Invalidation::Logical } else { Invalidation::Physical },
            admission: AdmissionRule::All,
            ..designs::find("lc").expect("a design")
        };
        let rules = SlotRules {
            versions: VersionBits::Full,
            ..SlotRules::of_cache(design, SLOTS, Costs::PUBLISHED)
        };
        let table =
            SlotTable::new(SLOTS, AnyOrder::new((SLOTS, 4), &rules, &shares), &rules, &shares);
        let model = vec![Slot::FREE; SLOTS as usize];
        Both {
            table,
            readings: (0..SLOTS).map(|_| None).collect(),
            claims: (0..SLOTS).map(|_| None).collect(),
            versions: vec![Lsn::ZERO; SLOTS as usize],
            shares,
            model,
            keeps_dirty,
            keeps_own,
            tells_oldest: matches!(replacement, Replacement::Benefit | Replacement::Recency),
            now: Tick(1),
        }
    }

    /// A page that has no slot.
    fn new_page(&self, prng: &mut Prng) -> PageId {
        loop {
            let page = PageId(prng.below(PAGES));
            if self.model.iter().all(|slot| slot.page != Some(page)) {
                return page;
            }
        }
    }

    /// A slot for a new page: a free one, or a victim.
    fn take(&mut self, prng: &mut Prng) {
        let page = self.new_page(prng);
        let has_free = self.model.iter().any(|slot| slot.state == SlotState::Free);
        let slot = match self.table.alloc(page, self.now) {
            Some(slot) => {
                assert_eq!(self.model[slot as usize], Slot::FREE, "slot {slot} is given away");
                slot
            }
            None => {
                assert!(!has_free, "a free slot is not given away");
                let Ok(slot) = self.table.victim(page, None) else { return };
                let victim = &self.model[slot as usize];
                assert_eq!(victim.state, SlotState::Clean, "slot {slot} is reused");
                assert!(!victim.is_read && !victim.is_pinned, "slot {slot} is reused");
                self.table.reuse(slot, page);
                slot
            }
        };
        self.model[slot as usize] =
            Slot { state: SlotState::Ready, page: Some(page), ..Slot::FREE };
    }

    /// The write into a slot ends.
    fn wrote(&mut self, slot: u32, prng: &mut Prng) {
        let (lsn, rec) = (Lsn(prng.below(1 << 40)), Lsn(prng.below(1 << 20) << 12));
        let history = History::once(self.now);
        self.versions[slot as usize] = lsn;
        let of = &mut self.model[slot as usize];
        match prng.below(3) {
            0 => {
                self.table.give_back(slot, self.keeps_own);
                match self.keeps_own {
                    true => (of.state, of.is_own) = (SlotState::Invalid, true),
                    false => *of = Slot::FREE,
                }
            }
            1 if self.keeps_dirty => {
                self.table.wrote_dirty(slot, history, lsn, rec);
                (of.state, of.newer) = (SlotState::Dirty, Some(rec));
                assert_eq!(self.table.version(slot), Some(lsn));
            }
            _ => {
                self.table.wrote_clean(slot, history, lsn);
                of.state = SlotState::Clean;
                assert!(self.table.may_be(slot, lsn));
                if prng.below(3) == 0 {
                    self.table.pin(slot);
                    of.is_pinned = true;
                }
            }
        }
    }

    /// A page is written home: one that the tier names, or one that its neighbour brings along.
    fn claim(&mut self, slot: u32, prng: &mut Prng) {
        // Of a page, a home write may be under way already.
        let held = PageId(prng.below(PAGES));
        let bound = Lsn(prng.below(1 << 20) << 12);
        let (root, at) = match prng.below(4) {
            0 => (Root::First, None),
            2 => (Root::Wanted, None),
            1 => (Root::Below(bound), None),
            _ => (Root::First, Some(slot)),
        };
        let may = |of: &Slot| of.is_cleanable() && of.page != Some(held);
        let claim = match at {
            Some(slot) => {
                let claim = self.table.claim(slot);
                assert_eq!(claim.is_some(), self.model[slot as usize].is_cleanable());
                claim
            }
            None => {
                let is_unwanted = root == Root::Wanted && !self.table.wants_cleaning();
                let named = self.table.root(root, |page| page != held);
                let has_lapsed = root == Root::Wanted && named.is_none();
                assert!(!has_lapsed || !self.table.wants_cleaning(), "a wish without a slot stays");
                let oldest = self.model.iter().filter(|of| may(of)).filter_map(|of| of.newer).min();
                let is_due = |rec: Lsn| root != Root::Below(bound) || rec < bound;
                match root {
                    Root::Below(_) if !self.tells_oldest => {}
                    Root::Wanted if is_unwanted => assert_eq!(named, None),
                    _ => assert_eq!(named.is_some(), oldest.is_some_and(is_due), "{root:?}"),
                }
                named.map(|(slot, _)| {
                    let of = &self.model[slot as usize];
                    assert!(may(of) && of.newer.is_some_and(is_due), "slot {slot}, {root:?}");
                    if root == Root::Below(bound) && self.tells_oldest {
                        assert_eq!(of.newer, oldest, "slot {slot} is not the oldest");
                    }
                    self.table.claim_root(slot)
                })
            }
        };
        let Some(claim) = claim else { return };
        let of = &mut self.model[claim.slot() as usize];
        assert_eq!((Some(claim.page()), Some(claim.rec_lsn())), (of.page, of.newer));
        of.state = SlotState::LazyCleaning;
        let at = claim.slot() as usize;
        self.claims[at] = Some(claim);
    }

    /// A group leaves, and takes a dirty slot along, damaged or not.
    fn claim_leaver(&mut self, slot: u32) {
        let claim = self.table.claim_leaver(slot);
        let of = &mut self.model[slot as usize];
        assert_eq!((Some(claim.page()), Some(claim.rec_lsn())), (of.page, of.newer));
        (of.state, of.is_damaged) = (SlotState::LazyCleaning, false);
        self.claims[slot as usize] = Some(claim);
    }

    fn cleaned(&mut self, slot: u32, prng: &mut Prng) {
        let how = [Cleaned::AtHome, Cleaned::NotYet, Cleaned::Damaged][prng.below(3) as usize];
        let until_sync = [UntilSync::Reusable, UntilSync::Pinned][prng.below(2) as usize];
        let claim = self.claims[slot as usize].take().expect("a slot that is being cleaned");
        let ended = self.table.cleaned(claim, how, until_sync);
        let of = &mut self.model[slot as usize];
        let expected = match (of.is_doomed, how) {
            (true, _) => Ended::Stale,
            (false, Cleaned::AtHome) => Ended::Clean,
            (false, _) => Ended::Dirty,
        };
        assert_eq!(ended, expected);
        match (of.is_doomed, how) {
            (true, _) if of.is_pinned => {
                *of = Slot { state: SlotState::Invalid, page: of.page, ..Slot::FREE };
                if of.page.is_none() {
                    of.state = SlotState::Retired;
                }
            }
            (true, _) if self.keeps_own => {
                *of = Slot { state: SlotState::Invalid, page: of.page, is_own: true, ..Slot::FREE }
            }
            (true, _) => *of = Slot::FREE,
            (false, Cleaned::AtHome) => {
                (of.state, of.newer) = (SlotState::Clean, None);
                of.is_pinned = until_sync == UntilSync::Pinned;
                assert_eq!(self.table.is_pinned(slot), of.is_pinned, "slot {slot}");
            }
            (false, Cleaned::NotYet) => of.state = SlotState::Dirty,
            (false, Cleaned::Damaged) => (of.state, of.is_damaged) = (SlotState::Dirty, true),
        }
    }

    /// Memory misses the page of a valid slot.
    fn miss(&mut self, slot: u32, prng: &mut Prng) {
        let devices = Dice { is_spared: prng.below(4) == 0, spills: prng.below(4) == 0 };
        let wanted = [Wanted::Copy, Wanted::OnlyNewer][prng.below(2) as usize];
        let of = &mut self.model[slot as usize];
        let missed = self.table.missed(slot, wanted, self.now, &devices);
        if of.newer.is_none() {
            let expected = match (wanted, devices) {
                (Wanted::OnlyNewer, _) => Some(Missed::Home),
                (_, Dice { is_spared: true, .. }) => Some(Missed::Spared),
                (_, Dice { spills: true, .. }) => Some(Missed::Spilled),
                _ => None,
            };
            if let Some(expected) = expected {
                assert_eq!(missed, expected);
                return;
            }
        }
        let Missed::Flash(reading) = missed else { panic!("flash serves slot {slot}") };
        assert_eq!((reading.slot(), reading.is_newer()), (slot, of.newer.is_some()));
        self.readings[slot as usize] = Some(reading);
        of.is_read = true;
    }

    /// The page of a valid slot changes.
    fn changes(&mut self, slot: u32, prng: &mut Prng) {
        let of = &mut self.model[slot as usize];
        let floor = Lsn(prng.below(1 << 20) << 12);
        // Designs that write through need no bases.
        let rules = [BaseRule::Never, BaseRule::ALL, BaseRule::Below(floor)];
        let rule = rules[if self.keeps_dirty { prng.below(3) as usize } else { 0 }];
        let keeps = match rule {
            BaseRule::Never => false,
            BaseRule::Below(floor) => of.newer.map_or(of.is_pinned, |rec| rec < floor),
        };
        assert_eq!(self.table.keeps(slot, rule), keeps);
        let is_bad = of.state == SlotState::Dirty && prng.below(3) == 0;
        let changed = match is_bad {
            true => self.table.spoiled(slot, rule),
            false => self.table.changes(slot, rule),
        };
        let expected = match (keeps, self.keeps_own && !is_bad) {
            (true, _) => After::Base,
            (false, true) => After::Own,
            (false, false) => After::Gone,
        };
        assert_eq!(changed, Changed { newer: of.newer, slot: expected });
        let of_page = Slot { state: SlotState::Invalid, page: of.page, ..Slot::FREE };
        match (of.state, expected) {
            (SlotState::LazyCleaning, After::Base) => (of.is_doomed, of.is_pinned) = (true, true),
            (SlotState::LazyCleaning, _) => of.is_doomed = true,
            (_, After::Base) => *of = of_page,
            (_, After::Own) => *of = Slot { is_own: true, ..of_page },
            (_, After::Gone) => *of = Slot::FREE,
        }
    }

    /// An operation on `slot` that its state allows, if the dice find one.
    fn step_on(&mut self, slot: u32, prng: &mut Prng) {
        let of = self.model[slot as usize];
        let at = slot as usize;
        match of.state {
            SlotState::Free => {}
            SlotState::Ready => {
                self.table.issue(slot);
                self.model[at].state = SlotState::Writing;
            }
            SlotState::Writing => self.wrote(slot, prng),
            SlotState::Invalid if of.is_own => match prng.below(2) {
                0 => {
                    self.table.refresh(slot);
                    (self.model[at].state, self.model[at].is_own) = (SlotState::Ready, false);
                }
                _ => {
                    self.table.release_own(slot);
                    self.model[at] = Slot::FREE;
                }
            },
            SlotState::Invalid => match prng.below(2) {
                0 => {
                    self.table.retire(slot);
                    self.model[at] = Slot { state: SlotState::Retired, ..Slot::FREE };
                }
                _ => {
                    self.table.release_base(slot);
                    self.model[at] = Slot::FREE;
                }
            },
            SlotState::Retired => {
                self.table.release_retired(slot);
                self.model[at] = Slot::FREE;
            }
            SlotState::LazyCleaning if prng.below(2) == 0 && !of.is_read => {
                self.cleaned(slot, prng);
            }
            _ if of.is_read => {
                let reading = self.readings[at].take().expect("a read under way");
                let (was_newer, is_newer) = (reading.is_newer(), of.newer.is_some());
                let read = self.table.read_ended(reading, self.versions[at]);
                let expected = HasRead { is_version: true, is_newer: was_newer && is_newer };
                assert_eq!(read, expected);
                self.model[at].is_read = false;
            }
            _ if of.is_doomed => {}
            _ if prng.below(2) == 0 => {
                self.miss(slot, prng);
            }
            _ if of.is_pinned && prng.below(2) == 0 => {
                assert!(self.table.unpin(slot));
                self.model[at].is_pinned = false;
            }
            _ if of.state == SlotState::Dirty && of.is_damaged && prng.below(4) == 0 => {
                self.claim_leaver(slot);
            }
            _ if prng.below(2) == 0 => self.claim(slot, prng),
            _ => self.changes(slot, prng),
        }
    }

    fn check(&mut self, context: &str) {
        self.table.check();
        for (slot, of) in (0..).zip(&self.model) {
            assert_eq!(self.table.state(slot), of.state, "{context}, slot {slot}");
            assert_eq!(self.table.page(slot), of.page, "{context}, slot {slot}");
            assert_eq!(self.table.is_valid(slot), of.is_valid(), "{context}, slot {slot}");
            let newer = of.newer.filter(|_| !of.is_doomed);
            assert_eq!(self.table.newer(slot), newer, "{context}, slot {slot}");
            assert_eq!(self.table.is_cleanable(slot), of.is_cleanable(), "{context}, slot {slot}");
            assert_eq!(self.table.is_own(slot), of.is_own, "{context}, slot {slot}");
        }
        let oldest = self.model.iter().filter_map(|of| of.newer).min();
        assert_eq!(self.table.oldest_newer(), oldest, "{context}");
        let first = self.table.root(Root::First, |_| true);
        let cleanable = self.model.iter().any(Slot::is_cleanable);
        assert_eq!(first.is_some(), cleanable, "{context}");
        let count = |is: &dyn Fn(&Slot) -> bool| self.model.iter().filter(|of| is(of)).count();
        let counts = [
            (Gauge::Used, count(&|of| of.state != SlotState::Free)),
            (Gauge::Dirty, count(&|of| of.newer.is_some())),
            (Gauge::Unavailable, count(&|of| of.state == SlotState::LazyCleaning || of.is_damaged)),
            (Gauge::Invalid, count(&|of| of.state == SlotState::Invalid)),
        ];
        for (what, count) in counts {
            assert_eq!(self.table.gauge(what) as usize, count, "{context}: {what:?}");
            assert_eq!(self.shares.gauge(what), count, "{context}: {what:?}");
        }
    }
}

#[test]
fn table_agrees_with_its_model() {
    let designs = [
        (Replacement::Lru2, true, false),
        (Replacement::Lru2, false, true),
        (Replacement::Temperature, false, true),
        (Replacement::Benefit, true, true),
        (Replacement::Recency, true, false),
        (Replacement::Policy(ReplacementKind::S3Fifo), true, false),
        (Replacement::Policy(ReplacementKind::Lru), false, false),
    ];
    for (replacement, keeps_dirty, keeps_own) in designs {
        for seed in 0..40 {
            let mut prng = Prng::from_seed(seed);
            let mut both = Both::new(replacement, keeps_dirty, keeps_own);
            for step in 0..400 {
                both.now = Tick(both.now.0 + prng.below(3));
                match prng.below(4) {
                    0 => both.take(&mut prng),
                    _ => both.step_on(prng.below(u64::from(SLOTS)) as u32, &mut prng),
                }
                both.check(&format!("{replacement:?}, seed {seed}, step {step}"));
            }
        }
    }
}

/// The pool used to keep a wish that no slot could meet, and its cleaner took dirty slots for it
/// that came long after.
#[test]
fn a_wish_to_clean_lapses_where_nothing_can_be_cleaned() {
    let mut both = Both::new(Replacement::Benefit, true, true);
    for page in 0..u64::from(SLOTS) {
        let slot = both.table.alloc(PageId(page), Tick(1)).expect("a free slot");
        both.table.issue(slot);
        both.table.wrote_dirty(slot, History::once(Tick(1)), Lsn(100), Lsn(1 << 12));
    }
    let asked = PageId(PAGES);
    both.table.counted(asked, None, Count::Read);
    assert!(both.table.victim(asked, None).is_err() && both.table.wants_cleaning());
    assert_eq!(both.table.root(Root::Wanted, |_| false), None, "no page may go home");
    assert_eq!(both.table.root(Root::Wanted, |_| true), None, "no later slot is wanted for it");
    assert!(both.table.root(Root::First, |_| true).is_some());
    assert!(both.table.victim(asked, None).is_err());
    assert!(both.table.root(Root::Wanted, |_| true).is_some(), "it is wanted anew");
}

/// The bug: what lay dirty on a persistent tier while eight tebibytes of log were written counted
/// as a change to come, and the database as one that needs no flash.
#[test]
fn a_copy_that_home_lacks_stays_the_oldest_however_far_the_log_grows() {
    let mut both = Both::new(Replacement::Recency, true, false);
    let mut fill = |rec: Lsn| {
        let page = PageId(1 + both.model.iter().filter(|of| of.page.is_some()).count() as u64);
        let slot = both.table.alloc(page, Tick(1)).expect("a free slot");
        both.model[slot as usize].page = Some(page);
        both.table.issue(slot);
        both.table.wrote_dirty(slot, History::once(Tick(1)), Lsn(rec.0 + 100), rec);
        both.table.oldest_newer().expect("some are dirty")
    };
    const TEBIBYTE: u64 = 1 << 40;
    assert_eq!(fill(Lsn(9 << 20)), Lsn(9 << 20));
    assert_eq!(fill(Lsn(3 * TEBIBYTE)), Lsn(9 << 20));
    for at in [7, 9, 14, 20, 40] {
        assert!(fill(Lsn(at * TEBIBYTE)) <= Lsn(9 << 20), "at {at} TiB");
    }
    assert!(fill(Lsn(10 << 20)) <= Lsn(9 << 20), "a page of then leaves memory again");
    assert_eq!(both.table.newer(0), Some(Lsn::ZERO), "older than any log");
}
