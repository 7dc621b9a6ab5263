//! The parts of the versions: which row is in which, and which are in use.

use std::sync::atomic::{AtomicU64, Ordering};

use terrace_rt::{LeafGuard, LeafMutex};

use super::Versions;
use super::part::{Part, Row};
use crate::log::Fate;

/// There are at least this many parts,
const PARTS_MIN: u64 = 64;
/// at most this many,
const PARTS_MAX: u64 = 1 << 14;
/// and as many as give each of them about this much of the memory: what is done to a whole part,
/// while it is held, takes about a millisecond for each MiB.
const PART_BYTES: u64 = 4 << 20;

/// How many parts there are, where versions may have so many bytes.
pub(super) fn count(bytes_max: u64) -> u64 {
    (bytes_max / PART_BYTES).next_power_of_two().clamp(PARTS_MIN, PARTS_MAX)
}

/// A part, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Line(pub(super) LeafMutex<Part>);

impl Versions {
    #[inline]
    pub(super) fn part(&self, row: &Row<'_>) -> &LeafMutex<Part> {
        &self.parts[self.number_of_part(row)].0
    }

    /// The number of the part that has a row.
    #[inline]
    pub(super) fn number_of_part(&self, row: &Row<'_>) -> usize {
        (row.hash >> self.part_shift) as usize
    }

    /// Where it is said whether a part is in use.
    pub(super) fn in_use(&self, part: usize) -> (&AtomicU64, u64) {
        (&self.in_use[part / 64], 1 << (part % 64))
    }

    /// The part of a row, to keep something under `number`, or of a transaction that is kept whole.
    /// `None`: versions were turned off since, and another number looks through the undo again.
    #[inline]
    pub(super) fn part_to_keep(
        &self,
        row: &Row<'_>,
        (fate, number): (&Fate, u64),
    ) -> Option<LeafGuard<'_, Part>> {
        let part = self.part_to_fill(row);
        // The task that turns versions off sets `keeping` before it looks which parts are in use.
        self.is_keeping((fate, number)).then_some(part)
    }

    /// The part of a row, which is about to have something.
    pub(super) fn part_to_fill(&self, row: &Row<'_>) -> LeafGuard<'_, Part> {
        let part = self.part(row).lock();
        if part.is_empty() {
            let (word, bit) = self.in_use(self.number_of_part(row));
            word.fetch_or(bit, Ordering::SeqCst);
        }
        part
    }

    /// Whether versions are kept under `number`, or those of this transaction in any case.
    #[inline]
    pub(super) fn is_keeping(&self, (fate, number): (&Fate, u64)) -> bool {
        self.keeping.load(Ordering::SeqCst) == number || fate.is_kept()
    }

    /// Each part that has entries.
    pub(super) fn each_in_use(&self, mut look: impl FnMut(&mut Part)) {
        for number in 0..self.parts.len() {
            self.look_if_in_use(number, &mut look);
        }
    }

    /// A part, if it has entries.
    pub(super) fn look_if_in_use(&self, number: usize, look: impl FnOnce(&mut Part)) {
        let (word, bit) = self.in_use(number);
        if word.load(Ordering::SeqCst) & bit == 0 {
            return;
        }
        let mut part = self.parts[number].0.lock();
        self.change(&mut part, look);
        if part.is_empty() {
            word.fetch_and(!bit, Ordering::SeqCst);
        }
    }
}
