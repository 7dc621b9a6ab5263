//! What an opening finds out by reading pages in their slots, so that it need not be written: of
//! FaCE's last segments [sources.U1], of CAC's eviction zone [sources.U2].
//!
//! ```text
//!  all written, and a frontier     fills of its slots are kept back;       all written, and
//!  begins: slots, and an LSN       at checkpoints the rest is written      the next one begins
//!  ------------------------------------------------------------------------------------------>
//!                                     cut: an opening reads the slots
//! ```
//!
//! A frontier is the slots that may be written while it is in force, and the LSN from which on the
//! log was to grow when it began.
//!
//! - N1: slots outside the frontier may be written, but what fills them is not kept back. FaCE
//!   writes none while it is in force: a task that needs one first has all that is pending written,
//!   and a new frontier begun. CAC gives away no slot outside the frontier, but a page may be
//!   written in its own again.
//! - N2: the fill of a slot may be kept back if its page's LSN is not before the frontier's,
//!   nothing else of the slot was told after it, none of its fills was written since the frontier
//!   began, and one ever was: before the table was begun the slot may have held another database's
//!   page.
//! - N3: so an opening believes a whole page in a slot of the frontier that the table knows, and of
//!   which no fill was written since, if its LSN is not before the frontier's. What the slot held
//!   before the frontier began is older than that, whether it was still valid or not.
//! - N4: whatever else is told is written at each checkpoint, in order, behind a sync of the flash:
//!   what was kept back is then in its slot for certain. So form.F1 holds of records and pages
//!   together.
//! - N5: a page found so was told with its first change that home lacks, which is not in the page.
//!   Where flash is a cache, analysis reads from the first such change of all, and knows. Where it
//!   is persistent, the page counts as newer than home since ever, until it was brought there.

use std::collections::{BTreeMap, BTreeSet};

use terrace_page::Lsn;

use super::entry::{Entry, Record};

/// The slot of records that are none of a slot's.
const NO_SLOT: u32 = u32::MAX;
const BEGIN: u16 = 1;
const RUN: u16 = 2;
const END: u16 = 3;
const PLACE: u16 = 4;

/// The slots of which a fill was ever written, since the table was begun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known(Vec<u64>);

impl Known {
    pub fn new(slots: u32) -> Known {
        Known(vec![0; slots.div_ceil(u64::BITS) as usize])
    }

    /// Whatever was written.
    pub fn all(slots: u32) -> Known {
        Known(vec![u64::MAX; slots.div_ceil(u64::BITS) as usize])
    }

    /// Those of a table that was read.
    pub fn of(entries: &[Entry]) -> Known {
        let mut known = Known::new(entries.len() as u32);
        let ever = (0..).zip(entries).filter(|(_, entry)| !entry.is_of_never_filled());
        ever.for_each(|(slot, _)| known.insert(slot));
        known
    }

    pub fn has(&self, slot: u32) -> bool {
        let word = self.0.get((slot / u64::BITS) as usize);
        word.is_some_and(|word| word & (1 << (slot % u64::BITS)) != 0)
    }

    fn insert(&mut self, slot: u32) {
        self.0[(slot / u64::BITS) as usize] |= 1 << (slot % u64::BITS);
    }

    pub fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

/// A frontier in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Frontier {
    since: Lsn,
    /// First slot and length of each run, ascending; none overlaps another.
    runs: Vec<(u32, u32)>,
    /// Slots of which a fill was written since it began.
    told: BTreeSet<u32>,
}

fn mark(kind: u16, lsn: u64, (first, len): (u32, u32)) -> Record {
    Record { slot: NO_SLOT, entry: Entry::mark(kind, lsn, first, len) }
}

/// The record that says where the frontier in force was written.
pub(super) fn place_mark(block: u64) -> Record {
    mark(PLACE, block, (0, 0))
}

/// The block that a record names as the one where the frontier in force was written.
pub(super) fn place_of(record: &Record) -> Option<u64> {
    let (kind, block, ..) = record.entry.as_mark();
    (record.slot == NO_SLOT && kind == PLACE).then_some(block)
}

impl Frontier {
    /// One of `slots`, for pages with an LSN of `since` or later.
    pub fn new(since: Lsn, slots: impl IntoIterator<Item = u32>) -> Frontier {
        let slots: BTreeSet<u32> = slots.into_iter().collect();
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for slot in slots {
            match runs.last_mut() {
                Some((first, len)) if *first + *len == slot => *len += 1,
                _ => runs.push((slot, 1)),
            }
        }
        Frontier { since, runs, told: BTreeSet::new() }
    }

    pub fn has(&self, slot: u32) -> bool {
        let after = self.runs.partition_point(|&(first, _)| first <= slot);
        after > 0 && slot - self.runs[after - 1].0 < self.runs[after - 1].1
    }

    /// The runs of slots that an opening reads.
    pub fn runs(&self) -> &[(u32, u32)] {
        &self.runs
    }

    /// Whether a page with `lsn`, found whole in `slot`, which is known, was written since the
    /// frontier began, and nothing that was written says so (N3).
    pub fn tells(&self, slot: u32, lsn: Lsn) -> bool {
        lsn >= self.since && self.has(slot) && !self.told.contains(&slot)
    }

    /// Of `records`, in the order in which they were told: those to be written, and those that may
    /// be kept back (N2). The slots of fills that are written are `known` then.
    pub fn part(&mut self, records: Vec<Record>, known: &mut Known) -> (Vec<Record>, Vec<Record>) {
        let last: BTreeMap<u32, usize> =
            records.iter().enumerate().map(|(at, record)| (record.slot, at)).collect();
        let (mut written, mut kept) = (Vec::new(), Vec::new());
        for (at, record) in records.into_iter().enumerate() {
            let Record { slot, entry } = record;
            let is_last = last[&slot] == at && known.has(slot);
            if entry.is_fill() && is_last && self.tells(slot, entry.lsn()) {
                kept.push(record);
                continue;
            }
            if entry.is_fill() {
                self.told.insert(slot);
                known.insert(slot);
            }
            written.push(record);
        }
        (written, kept)
    }

    /// The records that say that it begins.
    pub fn marks(&self) -> Vec<Record> {
        let runs = self.runs.iter().map(|&run| mark(RUN, 0, run));
        let begin = mark(BEGIN, self.since.0, (0, 0));
        [begin].into_iter().chain(runs).chain([mark(END, 0, (0, 0))]).collect()
    }
}

/// Finds the frontier in force among the records of a table, from its own on.
#[derive(Default)]
pub(super) struct FrontierReader {
    begun: Option<Frontier>,
    in_force: Option<Frontier>,
}

impl FrontierReader {
    pub fn note(&mut self, record: &Record) {
        if record.slot != NO_SLOT {
            if let Some(frontier) = self.in_force.as_mut().filter(|_| record.entry.is_fill()) {
                frontier.told.insert(record.slot);
            }
            return;
        }
        let (kind, lsn, first, len) = record.entry.as_mark();
        match (kind, &mut self.begun) {
            (BEGIN, begun) => *begun = Some(Frontier { since: Lsn(lsn), ..Frontier::default() }),
            (RUN, Some(frontier)) => frontier.runs.push((first, len)),
            (END, begun) => self.in_force = begun.take().or(self.in_force.take()),
            _ => {}
        }
    }

    pub fn in_force(self) -> Option<Frontier> {
        self.in_force
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_page::PageId;
    use terrace_policy::{History, Tick};
    use terrace_rt::Prng;

    fn fill(slot: u32, lsn: u64) -> Record {
        let history = History::once(Tick(1));
        Record { slot, entry: Entry::of(PageId(7), Lsn(lsn), None, history, Tick(1)) }
    }

    fn free(slot: u32) -> Record {
        Record { slot, entry: Entry::DROPPED }
    }

    #[test]
    fn a_frontier_comes_back_with_what_was_told_since() {
        for seed in 0..200 {
            let mut prng = Prng::from_seed(seed);
            let slots: BTreeSet<u32> = (0..prng.below(40)).map(|_| prng.below(60) as u32).collect();
            let frontier = Frontier::new(Lsn(100), slots.iter().copied());
            (0..70).for_each(|slot| assert_eq!(frontier.has(slot), slots.contains(&slot)));
            let mut reader = FrontierReader::default();
            let older = Frontier::new(Lsn(1), [3]).marks();
            let torn = &frontier.marks()[..frontier.marks().len() - 1];
            older.iter().chain(torn).chain(&frontier.marks()).for_each(|it| reader.note(it));
            reader.note(&fill(5, 1));
            reader.note(&free(6));
            let found = reader.in_force().expect("one that ended");
            assert_eq!(found.runs, frontier.runs);
            assert!(!found.tells(5, Lsn(100)), "its fill was written");
            assert_eq!(found.tells(6, Lsn(100)), slots.contains(&6));
            assert!(!found.tells(6, Lsn(99)));
        }
    }

    /// What a slot holds, by the records that were written and the pages in the slots, is what was
    /// told of it, wherever it is read.
    #[test]
    fn what_is_kept_back_is_found_in_the_slots() {
        for seed in 0..500 {
            let mut prng = Prng::from_seed(seed);
            let mut frontier = Frontier::new(Lsn(100), 2..8);
            let mut reader = FrontierReader::default();
            frontier.marks().iter().for_each(|it| reader.note(it));
            // What the slots held before: pages of before the frontier.
            let mut known = Known::new(10);
            let mut bytes: Vec<u64> = (0..10).map(|slot| 50 + slot).collect();
            for slot in 0..10 {
                match prng.chance(3) {
                    // Or those of another database.
                    true => bytes[slot as usize] = 1000,
                    false => known.insert(slot),
                }
            }
            let mut told: Vec<Option<u64>> = vec![None; 10];
            let mut table = told.clone();
            let mut pending = Vec::new();
            for lsn in 100..130 {
                let slot = prng.below(10) as usize;
                let lsn = if prng.chance(4) { lsn - 70 } else { lsn };
                if told[slot].is_none() {
                    pending.push(fill(slot as u32, lsn));
                    (told[slot], bytes[slot]) = (Some(lsn), lsn);
                } else {
                    pending.push(free(slot as u32));
                    told[slot] = None;
                }
                if prng.chance(3) {
                    continue;
                }
                let (written, kept) = frontier.part(std::mem::take(&mut pending), &mut known);
                pending = kept;
                for record in &written {
                    reader.note(record);
                    let lsn = record.entry.page().map(|_| record.entry.lsn().0);
                    table[record.slot as usize] = lsn;
                }
                let in_force = reader.in_force.as_ref().expect("one that ended");
                for slot in 0..10 {
                    let tells =
                        in_force.tells(slot as u32, Lsn(bytes[slot])) && known.has(slot as u32);
                    let found = if tells { Some(bytes[slot]) } else { table[slot] };
                    assert_eq!(found, told[slot], "seed {seed}, slot {slot}");
                }
            }
        }
    }
}
