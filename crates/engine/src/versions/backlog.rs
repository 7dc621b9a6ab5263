//! Changes of rows whose versions are not sorted in yet.
//!
//! ```text
//!   writers --- `put` ---> lanes ---- `cut`, by a reader, or when a lane is full ----> parts
//!                            '------- `drop_seen` ---> nothing: all snapshots see it
//! ```
//!
//! Finding the place of a version costs a writer more than all else that it does for snapshots, and
//! most versions are never looked for: no snapshot is so old, or it does not read that row. So a
//! writer only appends what the row was to the list of its lane. A reader sorts all of that in
//! first, if the leaf was changed since that was done last.
//!
//! - K1: a change is in its lane before its page has it, and a reader has the page latched. So a
//!   reader that finds a page with an LSN finds the change here, or in the parts.
//! - K2: all lanes are cut while all of them are held: what a cut has comes with all that came
//!   before it in the same row. It is sorted by LSN, which is the order of the changes of a row.
//! - K3: `sorted_to` is the end of the log as of a cut, told once all of that cut is in the parts.
//!   A change that was logged before the cut, and comes to its lane after it, does not go there:
//!   its writer waits for that end, and puts it into its part itself. So the versions of a page
//!   whose LSN is below `sorted_to` are in the parts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_page::Lsn;
use terrace_rt::{LeafGuard, LeafMutex, lane};

use super::author::Author;
use super::needs::Needs;
use super::part::{Record, Row, Toward};
use crate::TreeId;
use crate::log::Fate;
use crate::share::Apart;

/// Threads beyond so many share lanes.
const LANES: usize = 16;
/// Lanes with fewer bytes are not looked through.
const LOOK_BYTES: usize = 6 << 10;

/// A change that waits.
#[derive(Debug)]
struct Waiting {
    writer: Author,
    lsn: Lsn,
    hash: u64,
    /// Where its key begins. The flags and the value that the row had follow it, if there was one.
    at: u32,
    value_len: u32,
    tree: TreeId,
    key_len: u16,
    is_record: bool,
    toward: Toward,
}

/// The changes of some threads, in the order in which they came here.
#[derive(Debug, Default)]
pub(super) struct Lane {
    waiting: Vec<Waiting>,
    bytes: Vec<u8>,
    /// Where the log ended at the last cut.
    cut_at: Lsn,
    /// All that came since it was made.
    count: u64,
    /// It is looked through once its changes have more bytes.
    look_at: usize,
}

impl Waiting {
    /// The change, in whose lane are these bytes.
    fn change<'l>(&'l self, bytes: &'l [u8]) -> Change<'l> {
        let (key_at, key_len) = (self.at as usize, usize::from(self.key_len));
        let key = &bytes[key_at..][..key_len];
        let current = self.is_record.then(|| {
            let record = &bytes[key_at + key_len..][..1 + self.value_len as usize];
            (record[0], &record[1..])
        });
        let row = Row { tree: self.tree, key, hash: self.hash };
        let (writer, lsn, toward) = (&self.writer, self.lsn, self.toward);
        Change { row, current, writer, lsn, toward }
    }
}

/// What is changed, as it is sorted in.
pub(super) struct Change<'c> {
    pub(super) row: Row<'c>,
    pub(super) current: Option<Record<'c>>,
    pub(super) writer: &'c Author,
    pub(super) lsn: Lsn,
    pub(super) toward: Toward,
}

/// Whether a lane takes a change.
pub(super) enum Put {
    /// It has it.
    Done,
    /// It comes too late for the last cut (K3).
    Late,
}

impl Lane {
    /// Bytes of memory that it has.
    pub(super) fn bytes_held(&self) -> usize {
        self.waiting.capacity() * size_of::<Waiting>() + self.bytes.capacity()
    }

    /// Bytes of the changes that wait.
    pub(super) fn used(&self) -> usize {
        self.waiting.len() * size_of::<Waiting>() + self.bytes.len()
    }

    /// How many changes came.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Appends a change, if it does not come too late.
    #[inline]
    pub(super) fn put(
        &mut self,
        row: &Row<'_>,
        current: Option<Record<'_>>,
        (writer, lsn): (&Arc<Fate>, Lsn),
        toward: Toward,
        may_be_late: bool,
    ) -> Put {
        if lsn < self.cut_at && !may_be_late {
            return Put::Late;
        }
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(row.key);
        let mut value_len = 0;
        if let Some((flags, value)) = current {
            self.bytes.push(flags);
            self.bytes.extend_from_slice(value);
            value_len = value.len() as u32;
        }
        self.waiting.push(Waiting {
            writer: Author::Open(Arc::clone(writer)),
            lsn,
            hash: row.hash,
            at,
            value_len,
            tree: row.tree,
            key_len: row.key.len() as u16,
            is_record: current.is_some(),
            toward,
        });
        self.count += 1;
        Put::Done
    }

    /// The transaction of `fate` has ended. Says so beside its last changes, if they are here, so
    /// that nothing else refers to its fate, and its memory serves the next one.
    pub(super) fn settle(&mut self, fate: &Arc<Fate>) {
        const LAST: usize = 16;
        for waiting in self.waiting.iter_mut().rev().take(LAST) {
            if matches!(&waiting.writer, Author::Open(own) if Arc::ptr_eq(own, fate)) {
                waiting.writer = waiting.writer.again();
            }
        }
    }

    fn change<'l>(&'l self, waiting: &'l Waiting) -> Change<'l> {
        waiting.change(&self.bytes)
    }

    /// Drops what `is_kept` is false of.
    fn retain(&mut self, is_kept: impl Fn(&Change<'_>) -> bool) {
        let mut end = 0;
        let bytes = &mut self.bytes;
        self.waiting.retain_mut(|waiting| {
            let is_kept = is_kept(&waiting.change(bytes));
            if is_kept {
                let at = waiting.at as usize;
                let value_len = waiting.value_len as usize + usize::from(waiting.is_record);
                let len = usize::from(waiting.key_len) + value_len;
                bytes.copy_within(at..at + len, end);
                waiting.at = end as u32;
                end += len;
            }
            is_kept
        });
        bytes.truncate(end);
    }

    /// Drops the changes of transactions that had ended before `first`, where the oldest snapshot
    /// is, or that to come.
    pub(super) fn drop_seen(&mut self, first: Lsn) {
        self.retain(|change| !change.writer.ended_before(first));
    }

    /// Drops the changes whose versions no snapshot needs, as far as that can be told here.
    pub(super) fn drop_unneeded(&mut self, needs: &Needs) {
        let first = needs.horizon.first();
        if needs.ends.is_empty() {
            return self.drop_seen(first);
        }
        self.waiting.iter().for_each(|waiting| needs.ends.look_ahead(waiting.hash));
        self.retain(|change| !change.writer.ended_before(first) && !needs.is_unneeded(change));
    }

    /// Whether it has so much that it should be looked through, where it may have `max` bytes.
    #[inline]
    pub(super) fn is_due(&self, max: usize) -> bool {
        self.used() > self.look_at.min(max)
    }

    /// It was looked through: what is left is looked at again once there is as much again. So each
    /// change is looked at a few times, and most go while the processor has them at hand.
    pub(super) fn is_looked_through(&mut self) {
        self.look_at = LOOK_BYTES.max(2 * self.used());
    }

    /// Drops all but the changes of open transactions that are kept whole.
    pub(super) fn drop_unkept(&mut self) {
        self.retain(|change| change.writer.is_kept());
    }

    fn clear(&mut self) {
        self.waiting.clear();
        self.bytes.clear();
    }
}

/// What a cut has taken, and the memory for the next one.
#[derive(Debug)]
pub(super) struct Cut {
    lanes: Vec<Lane>,
    /// The lane and the place of each change, behind what they are sorted by.
    order: Vec<(u64, Lsn, u32, u32)>,
    end: Lsn,
}

impl Cut {
    /// The changes, those of a `group` together and in the order of the log.
    pub(super) fn groups(
        &mut self,
        group: impl Fn(&Row<'_>) -> u64,
        mut each: impl FnMut(&[Change<'_>]),
    ) {
        self.order.clear();
        for (number, lane) in self.lanes.iter().enumerate() {
            for (place, waiting) in lane.waiting.iter().enumerate() {
                let group = group(&lane.change(waiting).row);
                self.order.push((group, waiting.lsn, number as u32, place as u32));
            }
        }
        self.order.sort_unstable();
        let mut changes = Vec::new();
        for group in self.order.chunk_by(|one, other| one.0 == other.0) {
            changes.extend(group.iter().map(|&(_, _, lane, place)| {
                let lane = &self.lanes[lane as usize];
                lane.change(&lane.waiting[place as usize])
            }));
            each(&changes);
            changes.clear();
        }
    }

    /// Each lane as it was cut off.
    pub(super) fn lanes(&mut self) -> impl Iterator<Item = &mut Lane> {
        self.lanes.iter_mut()
    }

    /// Bytes of memory that it has.
    pub(super) fn memory(&self) -> usize {
        let order = self.order.capacity() * size_of::<(u64, Lsn, u32, u32)>();
        self.lanes.iter().map(Lane::bytes_held).sum::<usize>() + order
    }

    /// Forgets what it has taken, and memory beyond `spare` bytes of a lane.
    fn clear(&mut self, spare: usize) {
        for lane in &mut self.lanes {
            lane.clear();
            if lane.bytes_held() > spare {
                *lane = Lane::default();
            }
        }
        if self.order.capacity() * size_of::<(u64, Lsn, u32, u32)>() > spare {
            self.order = Vec::new();
        }
    }
}

/// All lanes.
#[derive(Debug)]
pub(super) struct Backlog {
    lanes: Vec<Apart<LeafMutex<Lane>>>,
    /// K3.
    sorted_to: Apart<AtomicU64>,
    /// Held from a cut until all of it is in the parts.
    cut: LeafMutex<Cut>,
}

impl Backlog {
    pub(super) fn new() -> Backlog {
        let cut = Cut {
            lanes: (0..LANES).map(|_| Lane::default()).collect(),
            order: Vec::new(),
            end: Lsn::ZERO,
        };
        Backlog {
            lanes: (0..LANES).map(|_| Apart::default()).collect(),
            sorted_to: Apart::default(),
            cut: LeafMutex::new(cut),
        }
    }

    /// The lane of this thread.
    #[inline]
    pub(super) fn lane(&self) -> LeafGuard<'_, Lane> {
        self.lanes[lane() % LANES].0.lock()
    }

    /// Whether the versions of a page with this LSN are in the parts (K3).
    #[inline]
    pub(super) fn is_sorted(&self, lsn: Lsn) -> bool {
        lsn.0 < self.sorted_to.load(Ordering::Acquire)
    }

    /// The changes of a transaction that ended before this are all in the parts (K3).
    pub(super) fn sorted_to(&self) -> Lsn {
        Lsn(self.sorted_to.load(Ordering::Acquire))
    }

    /// Held while changes go to the parts, by a cut or without one.
    pub(super) fn hold(&self) -> LeafGuard<'_, Cut> {
        self.cut.lock()
    }

    /// Takes what is in the lanes, as of `end`, which is asked while all are held (K2).
    pub(super) fn cut(&self, cut: &mut Cut, end: impl FnOnce() -> Lsn) {
        let mut lanes: [LeafGuard<'_, Lane>; LANES] =
            std::array::from_fn(|number| self.lanes[number].0.lock());
        cut.end = end();
        for (lane, taken) in lanes.iter_mut().zip(&mut cut.lanes) {
            lane.cut_at = cut.end;
            if !lane.waiting.is_empty() {
                (taken.cut_at, taken.count) = (lane.cut_at, lane.count);
                std::mem::swap(&mut **lane, taken);
            }
        }
    }

    /// Gives back the memory of lanes that are empty and have more than `spare` bytes; how much.
    pub(super) fn shrink(&self, spare: usize) -> usize {
        let mut freed = 0;
        for lane in &self.lanes {
            let mut lane = lane.0.lock();
            if lane.waiting.is_empty() && lane.bytes_held() > spare {
                freed += lane.bytes_held();
                let (cut_at, count) = (lane.cut_at, lane.count);
                *lane = Lane { cut_at, count, ..Lane::default() };
            }
        }
        freed
    }

    /// All of the cut is in the parts. Its memory is kept if it is not more than `spare` bytes.
    pub(super) fn is_in(&self, cut: &mut Cut, spare: usize) {
        cut.clear(spare);
        self.sorted_to.store(cut.end.0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use terrace_rt::Prng;

    use super::*;

    const TREE: TreeId = TreeId(1);
    const WRITERS: usize = 4;
    const KEYS: u64 = 5;

    /// A change that waits, and the lane that it is in.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Known {
        lsn: Lsn,
        key: u64,
        record: Option<Vec<u8>>,
        writer: usize,
        lane: usize,
    }

    struct Case {
        backlog: Backlog,
        prng: Prng,
        now: u64,
        cut_at: Lsn,
        writers: Vec<Arc<Fate>>,
        /// What is in the log, and not here yet.
        logged: Vec<Lsn>,
        known: Vec<Known>,
    }

    fn record(known: &Known) -> Option<Record<'_>> {
        known.record.as_ref().map(|record| (record[0], &record[1..]))
    }

    impl Case {
        fn tick(&mut self) -> Lsn {
            self.now += 1;
            Lsn(self.now)
        }

        fn put(&mut self) {
            let Some(last) = self.logged.len().checked_sub(1) else { return };
            let lsn = self.logged.swap_remove(self.prng.below(last as u64 + 1) as usize);
            let key = self.prng.below(KEYS);
            let record = self.prng.chance(2).then(|| vec![7; 1 + self.prng.below(30) as usize]);
            let writer = self.prng.below(WRITERS as u64) as usize;
            let lane = self.prng.below(3) as usize;
            let known = Known { lsn, key, record, writer, lane };
            let key = key.to_be_bytes();
            let writer = (&self.writers[writer], lsn);
            let mut lane = self.backlog.lanes[lane].0.lock();
            let put = lane.put(
                &Row::new(TREE, &key),
                self::record(&known),
                writer,
                Toward::Forward,
                false,
            );
            assert_eq!(matches!(put, Put::Late), lsn < self.cut_at, "backlog.K3");
            if let Put::Done = put {
                self.known.push(known);
            }
        }

        /// A transaction ends, and another one comes.
        fn end(&mut self) {
            let (writer, lsn) = (self.prng.below(WRITERS as u64) as usize, self.tick());
            if self.writers[writer].ended().is_none() {
                self.writers[writer].end_for_tests(lsn);
            }
            if self.prng.chance(2) {
                let lane = self.prng.below(3) as usize;
                self.backlog.lanes[lane].0.lock().settle(&self.writers[writer]);
            }
            let first = Lsn(self.prng.below(self.now + 2));
            let is_seen = |known: &Known, lane| {
                known.lane == lane
                    && self.writers[known.writer].ended().is_some_and(|at| at < first)
            };
            let lane = self.prng.below(3) as usize;
            self.backlog.lanes[lane].0.lock().drop_seen(first);
            self.known.retain(|known| !is_seen(known, lane));
            if self.known.iter().all(|known| known.writer != writer) {
                self.writers[writer] = Arc::default();
            }
        }

        /// All that waits comes out, the changes of each key in the order of the log.
        fn cut(&mut self) {
            let mut found = Vec::new();
            let mut cut = self.backlog.hold();
            self.cut_at = Lsn(self.now + 1);
            self.backlog.cut(&mut cut, || Lsn(self.now + 1));
            cut.groups(
                |row| row.hash,
                |changes| {
                    for change in changes {
                        let key = u64::from_be_bytes(change.row.key.try_into().expect("8 bytes"));
                        let record =
                            change.current.map(|(flags, value)| [&[flags], value].concat());
                        let is = |fate: &Arc<Fate>| change.writer.is(&Author::new(fate));
                        let writer = self.writers.iter().position(is).expect("it is here");
                        found.push((key, change.lsn, record, writer));
                    }
                },
            );
            self.backlog.is_in(&mut cut, 100);
            assert!(found.windows(2).all(|two| two[0].0 != two[1].0 || two[0].1 < two[1].1));
            let known = self
                .known
                .drain(..)
                .map(|known| (known.key, known.lsn, known.record, known.writer));
            let mut known: Vec<_> = known.collect();
            known.sort();
            found.sort();
            assert_eq!(found, known);
            assert!(self.backlog.is_sorted(Lsn(self.now)));
            assert!(!self.backlog.is_sorted(self.cut_at));
        }
    }

    #[test]
    fn a_backlog_agrees_with_a_list() {
        for seed in 0..300 {
            let mut case = Case {
                backlog: Backlog::new(),
                prng: Prng::from_seed(seed),
                now: 1,
                cut_at: Lsn::ZERO,
                writers: (0..WRITERS).map(|_| Arc::default()).collect(),
                logged: Vec::new(),
                known: Vec::new(),
            };
            for _ in 0..300 {
                match case.prng.below(16) {
                    0..7 => {
                        let lsn = case.tick();
                        case.logged.push(lsn);
                    }
                    7..13 => case.put(),
                    13..15 => case.end(),
                    _ => case.cut(),
                }
            }
        }
    }
}
