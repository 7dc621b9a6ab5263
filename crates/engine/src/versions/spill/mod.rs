//! Spilled versions: those for which memory has no room, in runs on disk.
//!
//! ```text
//!   parts ---- `freeze` ----> frozen ---- `write` ----> run ---- `merge` ----> larger run
//!                                |                       |
//!                                '-----------------------'----> nothing: no snapshot needs it
//! ```
//!
//! Above a share of the memory that versions may have, a task of the background takes rows out of
//! the parts whose changes are all of transactions that have ended, and writes what they were, in
//! order, to a run in a file without a name. Another task merges runs of a size into one. Both give
//! other tasks their turns after each few hundred entries.
//!
//! - T1: a reader looks into the part first, then here: all that it may see is in one of both. What
//!   is frozen, and the runs, are read under one mutex, and a run takes the place of what was
//!   frozen, and of the runs that were merged, under the same.
//! - T2: a reader that reads runs has no page latched, and no task that writes reads a run or waits
//!   for the tasks here. What a reader finds after it has released its leaf is what it would have
//!   found before: of the entries of a row, the one that counts for a snapshot stays the same.
//! - T3: memory and file are bounded, whatever the tasks here have got done. The file never takes
//!   more than its limit (room.R1). The oldest snapshot ends for want of room in two cases:
//!   versions take all of their memory, since the tasks here were not fast enough; or they take more
//!   than half of it, the file has no room for what is to be spilled, and merges can free none of
//!   it: all runs were written with the snapshots of now in view, but for what is less than one
//!   part in 16 of the file (`squeezable`).
//! - T4: a run goes whole once the oldest snapshot is behind the ends of all of its changes. Before
//!   something goes that a snapshot may need, it is marked as ended.
//! - T5: if the file fails, snapshots end with an error that says so: one whose read failed, and
//!   the oldest ones, once memory has no more room. Nothing else is concerned.
//! - T6: a row that is put behind all others may leave nothing but a mark (marks.M2). So a reader
//!   asks for the bound of a row again after it has read runs: they may have what became of a row
//!   that was not there when it looked at the leaf.

mod block;
mod cache;
mod chunk;
mod fences;
mod filter;
mod frozen;
mod merge;
mod reader;
mod room;
mod run;
mod segment;
mod write;
mod writer;

use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use terrace_page::Lsn;
use terrace_rt::{LeafMutex, Signal};

use self::cache::Cache;
pub(crate) use self::chunk::{Chunk, Order, Spilled};
use self::chunk::{Wanted, whole_bounds};
use self::frozen::Frozen;
use self::room::Room;
pub(crate) use self::room::SpillTo;
use self::run::{Run, Squeezed, Sums};
use self::writer::SegmentMemory;
use super::part::Row;
use crate::TreeId;

/// Versions are spilled once they take more than one part in this of the memory that they may
/// have: so there is time to write before it is full, though tables of the parts double at once.
const SPILL_ONE_IN: u64 = 4;
/// A spilling goes on until they take no more than one part in this.
const LEFT_ONE_IN: u64 = 8;
/// After a spilling, versions may grow by one part in this before the next one.
const GROW_ONE_IN: u64 = 16;
/// While the file has no room for them, versions may take one part in this of their memory before
/// the oldest snapshot is ended for that (T3).
const FULL_ONE_IN: u64 = 2;
/// What is taken out of the parts at once takes one part in this of the file, at most.
const FROZEN_ONE_IN: u64 = 16;
/// One part in this of the memory of versions is for blocks that were read last,
const CACHE_ONE_IN: u64 = 16;
/// for filters of runs, at most,
const FILTERS_ONE_IN: u64 = 8;
/// and for what is not written yet.
const BUFFER_ONE_IN: u64 = 64;
const BUFFER_MAX: u64 = 1 << 20;
/// Bytes of rows that a source puts to a chunk at once, about.
const CHUNK_BYTES: usize = 64 << 10;

/// What is spilled.
#[derive(Clone, Default)]
struct Held {
    frozen: Option<Arc<Frozen>>,
    /// Bytes of it.
    frozen_bytes: u64,
    /// Where the last of its changes ended.
    frozen_end: Lsn,
    runs: Arc<Vec<Arc<Run>>>,
}

impl Held {
    /// Forgets what is frozen; bytes of it.
    fn thaw(&mut self) -> u64 {
        (self.frozen, self.frozen_end) = (None, Lsn::ZERO);
        std::mem::take(&mut self.frozen_bytes)
    }
}

/// Spilled versions. See the module.
pub(crate) struct Spill {
    room: Arc<Room>,
    held: LeafMutex<Held>,
    /// Whether anything is held.
    is_used: AtomicBool,
    /// Where the last of its changes ended.
    last_end: AtomicU64,
    cache: Cache,
    bytes_max: u64,
    /// Bytes of memory of runs.
    run_bytes: AtomicU64,
    /// Versions that take more are to be spilled.
    spill_at: AtomicU64,
    next_run: AtomicU64,
    /// The part that rows are taken out of next.
    next_part: AtomicUsize,
    /// What is frozen has no room in the file.
    is_pressed: AtomicBool,
    /// Of the run that is being written by a merge.
    merging: LeafMutex<Option<Squeezed>>,
    /// Why the last write failed, if it did.
    failure: LeafMutex<Option<Arc<io::Error>>>,
    /// Given when something is to be spilled, or room to be given back; and when runs were written.
    wanted: Signal,
    merge_wanted: Signal,
}

impl Spill {
    /// For versions that may have `bytes_max` of memory and `limit` bytes of a file.
    pub(super) fn new(to: SpillTo, limit: u64, bytes_max: u64) -> Option<Spill> {
        if matches!(to, SpillTo::Memory) || limit == 0 {
            return None;
        }
        Some(Spill {
            room: Arc::new(Room::new(to, limit)),
            held: LeafMutex::default(),
            is_used: AtomicBool::new(false),
            last_end: AtomicU64::new(0),
            cache: Cache::new(bytes_max / CACHE_ONE_IN),
            bytes_max,
            run_bytes: AtomicU64::new(0),
            spill_at: AtomicU64::new(bytes_max / SPILL_ONE_IN),
            next_run: AtomicU64::new(1),
            next_part: AtomicUsize::new(0),
            is_pressed: AtomicBool::new(false),
            merging: LeafMutex::new(None),
            failure: LeafMutex::new(None),
            wanted: Signal::new(),
            merge_wanted: Signal::new(),
        })
    }

    /// Bytes of memory for runs and blocks: what is frozen is counted with the versions.
    pub(super) fn memory(&self) -> u64 {
        self.run_bytes.load(Ordering::Relaxed) + self.cache.bytes()
    }

    /// Bytes of the file that are in use.
    pub(super) fn file_bytes(&self) -> u64 {
        self.room.used()
    }

    pub(super) fn run_count(&self) -> u64 {
        self.held.lock().runs.len() as u64
    }

    pub(super) fn spill_at(&self) -> u64 {
        self.spill_at.load(Ordering::Relaxed)
    }

    /// Why the last write failed, if it did.
    pub(super) fn failure(&self) -> Option<Arc<io::Error>> {
        self.failure.lock().clone()
    }

    /// Wakes the tasks.
    pub(super) fn wake(&self) {
        self.wanted.notify_all();
        self.merge_wanted.notify_all();
    }

    /// Has the task spill versions, or give room back.
    pub(super) fn want(&self) {
        self.wanted.notify_all();
    }

    /// A snapshot at `at` was closed: has the tasks drop what only that one has needed.
    pub(super) fn closed(&self, at: Lsn) {
        self.note_ending(at);
        if at.0 <= self.last_end.load(Ordering::Relaxed) {
            self.want();
        }
    }

    /// A snapshot at `at` was closed or ended: runs that have changes which ended after that may
    /// have what no snapshot needs any more.
    pub(super) fn note_ending(&self, at: Lsn) {
        if !self.is_used() {
            return;
        }
        for run in self.held().runs.iter().filter(|run| run.sums().last_end >= at) {
            run.is_squeezed.store(false, Ordering::SeqCst);
        }
        if let Some(merging) = &*self.merging.lock() {
            merging.store(false, Ordering::SeqCst);
        }
        if self.is_pressed.load(Ordering::SeqCst) {
            self.merge_wanted.notify_all();
        }
    }

    /// Whether anything may be found here: asked after a look into the parts (T1).
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    fn held(&self) -> Held {
        self.held.lock().clone()
    }

    /// Changes what is held.
    fn hold<T>(&self, change: impl FnOnce(&mut Held) -> T) -> T {
        let mut held = self.held.lock();
        let before = held.clone();
        let changed = change(&mut held);
        let sums = sums_of(&held.runs);
        self.run_bytes.store(sums.memory as u64, Ordering::Relaxed);
        let is_used = held.frozen.is_some() || !held.runs.is_empty();
        self.is_used.store(is_used, Ordering::Release);
        let last_end = sums.last_end.max(held.frozen_end);
        self.last_end.store(last_end.0, Ordering::Relaxed);
        drop(held);
        drop(before);
        changed
    }

    /// Drops what no snapshot needs, of which the first is `first` (T4); bytes of what was frozen
    /// that went.
    pub(super) fn drop_seen(&self, first: Lsn) -> u64 {
        if !self.is_used() {
            return 0;
        }
        self.hold(|held| {
            let is_needed = |end: Lsn| end >= first;
            if held.runs.iter().any(|run| !is_needed(run.sums().last_end)) {
                let left = held.runs.iter().filter(|run| is_needed(run.sums().last_end));
                held.runs = Arc::new(left.cloned().collect());
            }
            // Until all of it is here, its end is not known.
            let is_seen = held.frozen_end > Lsn::ZERO && !is_needed(held.frozen_end);
            if is_seen { held.thaw() } else { 0 }
        })
    }

    /// Drops all: no snapshot is open. Bytes of what was frozen.
    pub(super) fn clear(&self) -> u64 {
        if !self.is_used() {
            return 0;
        }
        let bytes = self.hold(|held| std::mem::take(held).frozen_bytes);
        self.cache.clear();
        self.wake();
        bytes
    }

    /// What a snapshot at `at` sees of `row`, in part `part`, if that is here.
    ///
    /// # Errors
    ///
    /// What the device says, or that it returned what was not written.
    pub(super) fn find(&self, at: Lsn, part: usize, row: &Row<'_>) -> io::Result<Option<Spilled>> {
        let held = self.held();
        let mut found = held.frozen.as_ref().and_then(|frozen| frozen.find(at, part, row));
        let mut key = Vec::new();
        block::whole_key(row.tree, row.key, &mut key);
        for run in held.runs.iter() {
            let other = run.find(at, (row, &key), &self.cache)?;
            found = match (found, other) {
                (Some(one), Some(other)) if other.0 < one.0 => Some(other),
                (found, other) => found.or(other),
            };
        }
        Ok(found)
    }

    /// What a snapshot at `at` sees of rows of `tree` in a range, from one end of it on.
    ///
    /// # Errors
    ///
    /// As `find`.
    pub(super) fn range(
        &self,
        at: Lsn,
        tree: TreeId,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        order: Order,
    ) -> io::Result<Chunk> {
        let held = self.held();
        let (lower, upper) = whole_bounds(tree, bounds);
        let own = |bound: &'_ Bound<Vec<u8>>| bound.clone();
        let (lower, upper) = (own(&lower), own(&upper));
        let bounds = (lower.as_ref().map(|key| &key[..]), upper.as_ref().map(|key| &key[..]));
        let wanted = Wanted::new(bounds, order, CHUNK_BYTES);
        let mut chunk = Chunk::new();
        if let Some(frozen) = &held.frozen {
            frozen.range(at, &wanted, &mut chunk);
        }
        for run in held.runs.iter() {
            run.range(at, &wanted, &self.cache, &mut chunk)?;
        }
        chunk.finish();
        Ok(chunk)
    }

    /// Memory for a new segment of about `bytes` bytes of entries, where all that is to be written
    /// has `of`: entries and bytes. What is on disk of it already is `merged`. Filters get what
    /// `FILTERS_ONE_IN` says, by rows: so that each row of each run is worth the same, and a merged
    /// run gets what its inputs give back.
    fn memory_for_segment(&self, of: (u64, u64), merged: Sums) -> SegmentMemory {
        let held = sums_of(&self.held().runs);
        let (entries, bytes) = of;
        let segment = self.room.segment_extents() as u64 * self.room.extent_bytes();
        let rows = match bytes > segment {
            true => (u128::from(entries) * u128::from(segment) / u128::from(bytes)) as u64 + 1,
            false => entries,
        };
        let all_rows = (held.entries + entries).saturating_sub(merged.entries).max(rows);
        let budget = self.bytes_max / FILTERS_ONE_IN;
        let own = u128::from(budget) * u128::from(rows) / u128::from(all_rows.max(1));
        let others = held.filter_memory.saturating_sub(merged.filter_memory) as u64;
        SegmentMemory {
            rows,
            filter_bytes: (own as u64).min(budget.saturating_sub(others)),
            buffer_bytes: (self.bytes_max / BUFFER_ONE_IN).min(BUFFER_MAX),
        }
    }

    /// The file is needed no more.
    pub(super) fn release(&self) {
        self.room.release();
    }
}

/// Sums over runs.
fn sums_of(runs: &[Arc<Run>]) -> Sums {
    runs.iter().fold(Sums::default(), |sums, run| sums.and(run.sums()))
}
