//! Where records begin, as far as the log remembers it.

use terrace_page::Lsn;

use super::Log;

impl Log {
    /// Notes that records begin at `places`, which ascend: what a scan before the first append saw.
    pub(crate) fn set_marks(&self, places: impl Iterator<Item = Lsn>) {
        self.tail.lock().marks = places.map(|place| place.0).collect();
    }

    /// The beginning of a record at or before `bound`, and not far before: a bound of what must be
    /// kept need not be where a record begins. A bound that was rounded down to before the start
    /// means the start.
    pub(crate) fn record_before(&self, bound: Lsn) -> Lsn {
        let start = self.start();
        let tail = self.tail.lock();
        let after = tail.marks.partition_point(|&mark| mark <= bound.0);
        after.checked_sub(1).map_or(start, |index| Lsn(tail.marks[index]).max(start))
    }
    /// Forgets those before `start`.
    pub(super) fn forget_marks(&self, start: Lsn) {
        let mut tail = self.tail.lock();
        while tail.marks.front().is_some_and(|&mark| mark < start.0) {
            tail.marks.pop_front();
        }
    }
}
