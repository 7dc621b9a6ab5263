//! The slots of one partition: which page each holds, and in which state. Which slot is reused next
//! is decided by an order (`order`).
//!
//! ```text
//!            alloc, reuse          issue             wrote_clean
//! FREE|CLEAN|INVALID ---> READY ---------> WRITING ---------------> CLEAN
//!  ^                        |                 |      wrote_dirty
//!  |       give_back        |                 +--------------------> DIRTY
//!  +------------------------+-----------------+
//!
//! CLEAN|DIRTY --missed--> READING --read_ended--> back
//! DIRTY --claim--> LAZYCLEANING --cleaned--> CLEAN, or back
//! CLEAN|DIRTY --changes--> FREE, or INVALID and its page's OWN (TAC, CAC), or INVALID and a base
//!
//! INVALID --retire--> RETIRED --release_retired--> FREE
//! ```
//!
//! - S1: READING is a mark beside the state, so that a page may be read while it is being cleaned.
//! - S2: the mark NEWER says that the page is newer than at home; `rec` is then a lower bound of
//!   the LSN of the first change that home lacks. A DIRTY slot has it, and a LAZYCLEANING one until
//!   its home write has ended.
//! - S3: a slot that is invalidated while it is being cleaned is DOOMED: it serves no read. When
//!   its I/O ends it is FREE, or, where invalidation is logical, INVALID and still its page's OWN.
//! - S4: a slot that is read, written or cleaned is never reused.
//! - S5: restart methods that redo from flash keep bases: the copy on which a change was made
//!   stays, as INVALID, until a newer copy is durable at home or on flash; it is then RETIRED until
//!   the table on flash names the newer one. A CLEAN copy is PINNED while the home write that made
//!   it clean may still be lost. A slot that becomes a base while it is being cleaned is DOOMED and
//!   PINNED until the cleaning has ended.
//! - Cost, beside that of the order: 5 bytes per slot; 4 more if the design keeps dirty pages on
//!   flash; and 4 or 8 more for the version of the copy, if the restart method checks it.
//!
//! Sources: the SSD buffer table [S0 3.1], its states [S3 II-B1].

mod admission;
mod append;
mod bases;
mod changes;
mod cleaning;
mod counts;
mod leaving;
mod log;
mod reads;
mod rules;
mod versions;

pub use admission::{Admissions, Displaced, Refusal};
pub use append::{Appending, Front, Goes, Gone, Leaver, Moved, Run};
pub use changes::{After, BaseRule, Changed};
pub use cleaning::{Claim, Cleaned, Ended, Root, UntilSync};
pub use leaving::{Candidate, Filled, Outcome, Purpose, Version, Way, Writing, Written};
pub use reads::{Devices, HasRead, IdleDevices, Missed, Reading, Wanted};
pub use rules::SlotRules;
pub use versions::VersionBits;

use terrace_page::{LOG_BYTES_MAX, Lsn, PageId, SlotId, narrow, widen};
use terrace_policy::replacement::sketch::{FrequencySketch, page_hash};
use terrace_policy::{
    AdmissionRule, Design, History, Inclusion, Invalidation, Leave, Replacement, SlotBits, Tick,
};

use crate::order::{Asks, Fill, SlotOrder, Slots};
use crate::shares::GAUGES;
use crate::{CHOICES, Choice, Gauge, LogSizes, Shares};
use versions::Versions;

/// Each time that the log has grown by this many bytes, all recLSNs are examined for old ones whose
/// narrowed form would soon be taken for a later LSN.
const REC_LAP: u64 = LOG_BYTES_MAX / 2;

const STATE: u8 = 0b111;
const NEWER: u8 = 1 << 3;
const READING: u8 = 1 << 4;
const DOOMED: u8 = 1 << 5;
const DAMAGED: u8 = 1 << 6;
const PINNED: u8 = 1 << 7;
/// The same bit, of INVALID slots, which are never read: the slot is kept for its page, to be
/// written again in place. An INVALID slot without it is a base, which must not be overwritten.
const OWN: u8 = READING;

const FREE: u8 = 0;
const READY: u8 = 1;
const WRITING: u8 = 2;
const CLEAN: u8 = 3;
const DIRTY: u8 = 4;
const LAZYCLEANING: u8 = 5;
const INVALID: u8 = 6;
const RETIRED: u8 = 7;

/// `find` compares this many slots at a time, without a branch, so that the compiler uses vectors.
const LOOKED_AT: usize = 32;

/// `pages` of a slot without a page.
const NO_PAGE: u32 = u32::MAX;

/// The states of S3 II-B1, for `check` and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// Holds nothing.
    Free,
    /// Taken for a page, to be written.
    Ready,
    /// Being written.
    Writing,
    /// Holds the version of the page that home has.
    Clean,
    /// Holds a version that home lacks.
    Dirty,
    /// Being brought home.
    LazyCleaning,
    /// Holds an older version of its page: a base, or its page's own slot.
    Invalid,
    /// Free as soon as the table on flash says so.
    Retired,
}

/// The table. Slots are numbered from zero within the partition.
pub struct SlotTable<O, S> {
    pages: Box<[u32]>,
    /// RecLSNs, narrowed: rounded down, a lower bound stays one. Empty if the design keeps
    /// no dirty pages on flash.
    rec: Box<[u32]>,
    /// The newest recLSN so far, against which narrowed ones are widened: all others are near it.
    newest_rec: Lsn,
    states: Box<[u8]>,
    versions: Versions,
    order: O,
    /// The design; of `auto`, with the choice in force.
    design: Design,
    /// Whether slots may hold pages that are newer than home.
    keeps_dirty: bool,
    /// Whether the slot of a page that changes stays the page's own.
    keeps_own: bool,
    /// Whether pages are appended in groups, to a log.
    appends: bool,
    keeps_bases: bool,
    is_persistent: bool,
    waits_for_table: bool,
    sizes: LogSizes,
    /// Groups of an append log that have been processed, with slots that cannot be freed yet.
    stuck: Vec<Run>,
    /// A buffer for the answers about a group that leaves, kept to reuse its memory.
    answers: Vec<(SlotId, Leave)>,
    admissions: Admissions,
    /// Of an inclusive design: the slots whose page is in memory (leaving.W5).
    in_memory: Option<SlotBits>,
    /// How often pages were requested, if the design admits by that, or is `auto`, which may.
    uses: Option<FrequencySketch>,
    admits_by_frequency: bool,
    /// The number of slots in each condition, by `Gauge`.
    gauges: [u32; GAUGES],
    shares: S,
}

/// A table as its order sees it.
struct Seen<'a> {
    states: &'a [u8],
    pages: &'a [u32],
}

impl Slots for Seen<'_> {
    fn count(&self) -> u32 {
        self.pages.len() as u32
    }

    fn page(&self, slot: SlotId) -> PageId {
        PageId(u64::from(self.pages[slot.0 as usize]))
    }

    fn is_evictable(&self, slot: SlotId) -> bool {
        self.states[slot.0 as usize] == CLEAN
    }

    fn is_cleanable(&self, slot: SlotId) -> bool {
        self.states[slot.0 as usize] == DIRTY | NEWER
    }

    fn is_dirty(&self, slot: SlotId) -> Option<bool> {
        let state = self.states[slot.0 as usize];
        (state != FREE).then_some(state & STATE == DIRTY)
    }
}

/// Whether `page` was requested more often recently than `other`.
fn is_used_more(uses: &FrequencySketch, page: PageId, other: PageId) -> bool {
    uses.estimate(page_hash(page)) > uses.estimate(page_hash(other))
}

/// The sketch in which a table of `slots` counts requests, if its rules need one.
fn sketch(rules: &SlotRules, slots: u32) -> Option<FrequencySketch> {
    let counts = matches!(rules.design.admission, AdmissionRule::Frequency | AdmissionRule::Chosen);
    counts.then(|| FrequencySketch::new((slots / rules.sketch_one_in).max(1)))
}

impl<O: SlotOrder, S: Shares> SlotTable<O, S> {
    /// `count` free slots in this `order`.
    pub fn new(count: u32, order: O, rules: &SlotRules, shares: &S) -> SlotTable<O, S> {
        let design = rules.design;
        let keeps_dirty = design.keeps_dirty_on_flash();
        let recs = if keeps_dirty { count } else { 0 };
        SlotTable {
            pages: vec![NO_PAGE; count as usize].into(),
            rec: vec![0; recs as usize].into(),
            newest_rec: Lsn::ZERO,
            states: vec![FREE; count as usize].into(),
            versions: Versions::new(count, rules.versions),
            order,
            keeps_dirty,
            keeps_own: design.invalidation == Invalidation::Logical,
            appends: design.batch().is_some(),
            keeps_bases: rules.keeps_bases,
            is_persistent: rules.is_persistent,
            waits_for_table: rules.waits_for_table,
            sizes: rules.log,
            stuck: Vec::new(),
            answers: Vec::new(),
            admissions: Admissions::default(),
            in_memory: (design.inclusion == Inclusion::Inclusive).then(|| SlotBits::new(count)),
            uses: sketch(rules, count),
            admits_by_frequency: design.admission == AdmissionRule::Frequency,
            design: match design.replacement {
                Replacement::Chosen => CHOICES[0].of(design),
                _ => design,
            },
            gauges: [0; GAUGES],
            shares: shares.clone(),
        }
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        let books = self.pages.len() * 4 + self.rec.len() * 4 + self.states.len();
        let uses = self.uses.as_ref().map_or(0, FrequencySketch::bytes);
        let in_memory = self.in_memory.as_ref().map_or(0, SlotBits::bytes);
        self.order.bytes() + books + self.versions.bytes() + uses + in_memory
    }

    /// Slots of the table.
    pub fn count(&self) -> u32 {
        self.pages.len() as u32
    }

    /// Whether a page may have a slot whose bytes are an older version of it.
    pub fn keeps_stale(&self) -> bool {
        self.keeps_own || self.keeps_bases
    }

    /// In which state `slot` is.
    pub fn state(&self, slot: u32) -> SlotState {
        match self.base(slot) {
            FREE => SlotState::Free,
            READY => SlotState::Ready,
            WRITING => SlotState::Writing,
            CLEAN => SlotState::Clean,
            DIRTY => SlotState::Dirty,
            LAZYCLEANING => SlotState::LazyCleaning,
            INVALID => SlotState::Invalid,
            _ => SlotState::Retired,
        }
    }

    /// The slot that holds `page`, or is kept for it, if there is one. Searches all slots: for a
    /// driver with few slots and no directory.
    pub fn find(&self, page: PageId) -> Option<u32> {
        let number = PageNumber::of(page).0;
        let is_among = |pages: &[u32]| pages.iter().fold(false, |is, &at| is | (at == number));
        let group = self.pages.chunks(LOOKED_AT).position(is_among)? * LOOKED_AT;
        let at = self.pages[group..].iter().position(|&at| at == number)?;
        Some((group + at) as u32)
    }

    #[inline]
    fn base(&self, slot: u32) -> u8 {
        self.states[slot as usize] & STATE
    }

    #[inline]
    fn has(&self, slot: u32, mark: u8) -> bool {
        self.states[slot as usize] & mark != 0
    }

    /// How many slots of the table `what` counts.
    #[inline]
    pub fn gauge(&self, what: Gauge) -> u32 {
        self.gauges[what as usize]
    }

    /// Adds `by`, which may be negative, to the gauge `what`.
    #[inline]
    fn gauged(&mut self, what: Gauge, by: i32) {
        let count = &mut self.gauges[what as usize];
        *count = count.wrapping_add_signed(by);
        self.shares.counted(what, by);
    }

    /// Adjusts the gauge `what` for a slot that it counted before if `was`, and counts now if `is`.
    #[inline]
    fn regauge(&mut self, what: Gauge, was: bool, is: bool) {
        if was != is {
            self.gauged(what, if is { 1 } else { -1 });
        }
    }

    #[inline]
    fn set_base(&mut self, slot: u32, from: &[u8], to: u8) {
        let base = self.base(slot);
        let is_from = from.iter().fold(false, |is, &state| is | (state == base));
        assert!(is_from, "slot {slot} goes from {base} to {to}");
        self.states[slot as usize] = (self.states[slot as usize] & !STATE) | to;
        self.regauge(Gauge::Used, base != FREE, to != FREE);
        self.regauge(Gauge::Invalid, base == INVALID, to == INVALID);
        self.regauge(Gauge::Unavailable, base == LAZYCLEANING, to == LAZYCLEANING);
    }

    /// The page that `slot` holds, or is kept for.
    #[inline]
    pub fn page(&self, slot: u32) -> Option<PageId> {
        let page = self.pages[slot as usize];
        (page != NO_PAGE).then_some(PageId(u64::from(page)))
    }

    /// Whether `slot` holds `page`, or is kept for it.
    #[inline]
    pub fn holds(&self, slot: u32, page: PageId) -> bool {
        u64::from(self.pages[slot as usize]) == page.0
    }

    /// Whether the slot's bytes are the page.
    #[inline]
    pub fn is_valid(&self, slot: u32) -> bool {
        matches!(self.base(slot), CLEAN | DIRTY | LAZYCLEANING) && !self.has(slot, DOOMED)
    }

    /// Whether home lacks a change in the slot's page.
    #[inline]
    fn is_newer(&self, slot: u32) -> bool {
        self.states[slot as usize] & (NEWER | DOOMED) == NEWER
    }

    /// Lower bound of the first change in the slot's page that is not at home, if there is one.
    pub fn newer(&self, slot: u32) -> Option<Lsn> {
        self.is_newer(slot).then(|| self.rec(slot))
    }

    /// The least of `newer`, DOOMED slots included, whose home write may still be needed.
    pub fn oldest_newer(&self) -> Option<Lsn> {
        let newer = (0..self.rec.len() as u32).filter(|&slot| self.has(slot, NEWER));
        newer.map(|slot| self.rec(slot)).min()
    }

    /// The recLSN that is kept for `slot`, rounded down; zero if there is none.
    #[inline]
    fn rec(&self, slot: u32) -> Lsn {
        widen(self.rec[slot as usize], self.newest_rec).unwrap_or(Lsn::ZERO)
    }

    #[inline]
    fn set_rec(&mut self, slot: u32, lsn: Lsn) {
        if lsn.0 / REC_LAP > self.newest_rec.0 / REC_LAP {
            self.forget_old_recs(lsn);
        }
        self.newest_rec = self.newest_rec.max(lsn);
        let is_near = self.newest_rec.0 - lsn.0 < LOG_BYTES_MAX;
        self.rec[slot as usize] = narrow(if is_near { lsn } else { Lsn::ZERO });
    }

    /// Replaces recLSNs that are too far below `newest` to be in any log by zero, which stands for
    /// the beginning of the log. Only a persistent tier has such.
    #[cold]
    fn forget_old_recs(&mut self, newest: Lsn) {
        for slot in 0..self.rec.len() {
            let is_near = newest.0.saturating_sub(self.rec(slot as u32).0) < LOG_BYTES_MAX;
            if self.rec[slot] != 0 && !is_near {
                self.rec[slot] = narrow(Lsn::ZERO);
            }
        }
    }

    #[inline]
    fn set_newer(&mut self, slot: u32, rec_lsn: Option<Lsn>) {
        let before = self.has(slot, NEWER);
        if let Some(lsn) = rec_lsn {
            self.set_rec(slot, lsn);
            self.states[slot as usize] |= NEWER;
        } else {
            self.states[slot as usize] &= !NEWER;
        }
        self.regauge(Gauge::Dirty, before, rec_lsn.is_some());
    }

    /// A damaged slot is not available to the cleaner.
    #[inline]
    fn set_damaged(&mut self, slot: u32, is_damaged: bool) {
        self.regauge(Gauge::Unavailable, self.has(slot, DAMAGED), is_damaged);
        match is_damaged {
            true => self.states[slot as usize] |= DAMAGED,
            false => self.states[slot as usize] &= !DAMAGED,
        }
    }

    /// Takes a free slot for `page`: FREE -> READY.
    pub fn alloc(&mut self, page: PageId, now: Tick) -> Option<u32> {
        let slot = self.order.take_free(page, now)?.0;
        self.set_base(slot, &[FREE], READY);
        self.pages[slot as usize] = PageNumber::of(page).0;
        Some(slot)
    }

    /// Names the clean slot to reuse, if one may give way to `page`, which may have slot `own`.
    pub fn victim(&mut self, page: PageId, own: Option<u32>) -> Result<u32, NoVictim> {
        let asks = Asks { page, own: own.map(SlotId), compares: self.admits_by_frequency };
        let slots = Seen { states: &self.states, pages: &self.pages };
        let victim = self.order.victim(asks, &slots, &self.shares)?;
        self.gives_way(victim.0, page)
    }

    /// From now on admission, order and treatment of dirty pages are those of `choice`.
    pub fn choose(&mut self, choice: Choice) {
        self.design = choice.of(self.design);
        self.admits_by_frequency = choice.admission == AdmissionRule::Frequency;
        self.order.choose(choice.order);
    }

    /// `page`, which is in no frame, is requested.
    pub fn asked_for(&mut self, page: PageId) {
        if let Some(uses) = &mut self.uses {
            uses.count(page_hash(page));
        }
    }

    /// The content of clean `slot` gives way to `page`: CLEAN -> READY.
    pub fn reuse(&mut self, slot: u32, page: PageId) {
        let former = self.page(slot).expect("a clean slot has a page");
        self.order.replaced(SlotId(slot), former, page);
        self.set_base(slot, &[CLEAN], READY);
        self.pages[slot as usize] = PageNumber::of(page).0;
    }

    /// An invalid slot is about to get the bytes of its page again: INVALID -> READY.
    pub fn refresh(&mut self, slot: u32) {
        assert!(self.is_own(slot), "a base in slot {slot} is written over");
        self.set_base(slot, &[INVALID], READY);
        self.states[slot as usize] &= !OWN;
    }

    /// The write into `slot` begins: READY -> WRITING.
    #[inline]
    pub fn issue(&mut self, slot: u32) {
        self.set_base(slot, &[READY], WRITING);
    }

    /// Flash, and home, hold the page: WRITING -> CLEAN.
    pub fn wrote_clean(&mut self, slot: u32, history: History, lsn: Lsn) {
        self.set_base(slot, &[WRITING], CLEAN);
        self.versions.set(slot, lsn);
        let page = PageId(u64::from(self.pages[slot as usize]));
        self.order.filled(SlotId(slot), page, Fill::Clean(history), &self.shares);
    }

    /// Flash alone holds this version; home lacks its changes from `rec_lsn` on: WRITING -> DIRTY.
    pub fn wrote_dirty(&mut self, slot: u32, history: History, lsn: Lsn, rec_lsn: Lsn) {
        self.set_base(slot, &[WRITING], DIRTY);
        self.versions.set(slot, lsn);
        self.set_newer(slot, Some(rec_lsn));
        let page = PageId(u64::from(self.pages[slot as usize]));
        let fill = Fill::Dirty(history, rec_lsn);
        self.order.filled(SlotId(slot), page, fill, &self.shares);
    }

    /// The write did not happen, or failed: READY|WRITING -> FREE, or INVALID if the slot is `kept`
    /// for its page.
    pub fn give_back(&mut self, slot: u32, kept: bool) {
        if kept {
            self.set_base(slot, &[READY, WRITING], INVALID);
            self.states[slot as usize] |= OWN;
        } else {
            self.release(slot, &[READY, WRITING]);
        }
    }

    /// The page in valid `slot` is used, but not read from flash.
    pub fn used(&mut self, slot: u32, now: Tick) {
        self.order.hit(SlotId(slot), now);
    }

    /// The uses of the page in `slot`, if the policy keeps them.
    pub fn history(&self, slot: u32) -> Option<History> {
        self.order.history(SlotId(slot))
    }

    /// Frees the slot that is kept for a page and holds no version of it: INVALID -> FREE.
    pub fn release_own(&mut self, slot: u32) {
        assert!(self.is_own(slot), "slot {slot} is nobody's own");
        self.release(slot, &[INVALID]);
    }

    /// Whether `slot` is kept for its page, to be written again in place.
    pub fn is_own(&self, slot: u32) -> bool {
        self.states[slot as usize] == INVALID | OWN
    }

    #[inline]
    fn release(&mut self, slot: u32, from: &[u8]) {
        self.set_newer(slot, None);
        self.set_damaged(slot, false);
        self.set_base(slot, from, FREE);
        self.states[slot as usize] = FREE;
        let page = self.page(slot);
        self.pages[slot as usize] = NO_PAGE;
        self.order.freed(SlotId(slot), page);
    }

    /// Asserts the picture: marks fit states, and the order agrees.
    pub fn check(&self) {
        for slot in 0..self.count() {
            let (state, marks) = (self.state(slot), self.states[slot as usize] & !STATE);
            let may = match state {
                SlotState::Free | SlotState::Ready | SlotState::Writing => 0,
                SlotState::Invalid => OWN,
                SlotState::Retired => 0,
                SlotState::Clean => READING | PINNED,
                SlotState::Dirty => NEWER | READING | DAMAGED,
                SlotState::LazyCleaning => NEWER | READING | DOOMED | PINNED,
            };
            assert_eq!(marks & !may, 0, "slot {slot} is {state:?} with marks {marks:b}");
            let must = matches!(state, SlotState::Dirty | SlotState::LazyCleaning);
            assert_eq!(marks & NEWER != 0, must, "slot {slot} is {state:?}");
            assert!(!must || self.keeps_dirty, "slot {slot} is {state:?} of a design without");
            let is_empty = matches!(state, SlotState::Free | SlotState::Retired);
            // A base may be retired while it is being cleaned.
            let may_be_empty = is_empty || self.has(slot, DOOMED);
            assert!(self.page(slot).is_some() || may_be_empty, "slot {slot} has no page");
            assert!(self.page(slot).is_none() || !is_empty, "slot {slot} has a page");
            self.order.check_slot(SlotId(slot), state);
        }
        self.order.check();
    }
}

/// Why no slot gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoVictim {
    /// Every slot is dirty, in use or invalid.
    Busy,
    /// The new page is not worth more than the one that would give way.
    Colder,
}

/// A page number that fits a slot's 32 bits.
struct PageNumber(u32);

impl PageNumber {
    #[inline]
    fn of(page: PageId) -> PageNumber {
        let number =
            u32::try_from(page.0).expect("page numbers are checked when a page is asked for");
        assert_ne!(number, NO_PAGE);
        PageNumber(number)
    }
}

/// One more than the largest page number: slots keep 32 bits.
pub const PAGES_MAX: u64 = NO_PAGE as u64;
