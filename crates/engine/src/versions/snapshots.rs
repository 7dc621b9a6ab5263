//! The snapshots that are open.
//!
//! - S1: a task that opens one takes its place in the list, and its moment, under one mutex. A task
//!   that looks through the lists reads the end of the log first: so a snapshot that it has missed
//!   is not below that end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use terrace_page::{Lsn, TxnId};
use terrace_rt::{LeafMutex, Nanos, now};

use super::horizon::Horizon;
use crate::Error;

/// Lists of snapshots: threads use different ones.
const LISTS: usize = 16;

/// A snapshot that is open.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// It sees what was committed before this.
    pub(super) at: Lsn,
    /// All that it does not see was logged here or later.
    pub(super) low: Lsn,
    /// All transactions below this had ended when it was opened.
    pub(super) xmin: TxnId,
    list: usize,
    task: u64,
    opened: Nanos,
    is_ended: AtomicBool,
    /// Why it was ended, if it was not for want of room.
    failure: LeafMutex<Option<Arc<io::Error>>>,
}

impl Snapshot {
    pub(super) fn new((at, low): (Lsn, Lsn), xmin: TxnId, list: usize, task: u64) -> Snapshot {
        Snapshot {
            at,
            low,
            xmin,
            list,
            task,
            opened: now(),
            is_ended: AtomicBool::new(false),
            failure: LeafMutex::new(None),
        }
    }

    /// It sees what was committed before this.
    pub(crate) fn at(&self) -> Lsn {
        self.at
    }

    /// Whether it was ended, since its versions were more than there is room for. Asked after each
    /// look at versions: they go after that was said.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    /// The error of one that was ended.
    #[cold]
    pub(crate) fn why_ended(&self) -> Error {
        match &*self.failure.lock() {
            Some(source) => Error::SnapshotLost { source: Arc::clone(source) },
            None => Error::SnapshotTooOld,
        }
    }

    /// Ends it: for want of room, or since the file of versions has failed.
    fn mark_ended(&self, failure: Option<Arc<io::Error>>) {
        if !self.is_ended() {
            *self.failure.lock() = failure;
            self.is_ended.store(true, Ordering::Release);
        }
    }
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct List {
    open: LeafMutex<Vec<Arc<Snapshot>>>,
    /// How many of these were not ended, for callers that do not take the mutex.
    count: AtomicUsize,
}

impl List {
    fn count(&self, open: &[Arc<Snapshot>]) {
        let count = open.iter().filter(|snapshot| !snapshot.is_ended()).count();
        self.count.store(count, Ordering::Relaxed);
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Snapshots {
    lists: Vec<List>,
}

impl Snapshots {
    pub(super) fn new() -> Snapshots {
        Snapshots { lists: (0..LISTS).map(|_| List::default()).collect() }
    }

    /// Opens what `snapshot` makes for the list that it is given, if it makes one (S1).
    pub(super) fn open(
        &self,
        snapshot: impl FnOnce(usize) -> Option<Snapshot>,
    ) -> Option<Arc<Snapshot>> {
        let number = terrace_rt::lane() % LISTS;
        let list = &self.lists[number];
        let mut open = list.open.lock();
        let opened = Arc::new(snapshot(number)?);
        open.push(Arc::clone(&opened));
        list.count(&open);
        Some(opened)
    }

    pub(super) fn close(&self, snapshot: &Arc<Snapshot>) {
        let list = &self.lists[snapshot.list];
        let mut open = list.open.lock();
        let at = open.iter().rposition(|open| Arc::ptr_eq(open, snapshot));
        open.swap_remove(at.expect("a snapshot is closed once"));
        list.count(&open);
    }

    fn each(&self, mut look: impl FnMut(&Arc<Snapshot>)) {
        for list in &self.lists {
            list.open.lock().iter().for_each(&mut look);
        }
    }

    /// Those that are open, where the log has ended at `as_of`.
    pub(super) fn horizon(&self, as_of: Lsn) -> Horizon {
        let mut open = Vec::new();
        self.each(|snapshot| {
            if !snapshot.is_ended() {
                open.push(snapshot.at);
            }
        });
        open.sort_unstable();
        open.dedup();
        Horizon::new(as_of, open)
    }

    /// The least transaction that a snapshot may not see.
    pub(super) fn xmin(&self) -> Option<TxnId> {
        let mut least = None;
        self.each(|snapshot| {
            if !snapshot.is_ended() {
                least = Some(least.map_or(snapshot.xmin, |least| snapshot.xmin.min(least)));
            }
        });
        least
    }

    /// Whether one is open and was not ended.
    pub(super) fn is_any_open(&self) -> bool {
        let mut is_any = false;
        self.each(|snapshot| is_any |= !snapshot.is_ended());
        is_any
    }

    /// Whether none is open, as far as can be seen without the mutexes.
    #[inline]
    pub(super) fn seem_closed(&self) -> bool {
        self.lists.iter().all(|list| list.count.load(Ordering::Relaxed) == 0)
    }

    /// How many are open.
    pub(super) fn open_count(&self) -> u64 {
        self.lists.iter().map(|list| list.open.lock().len() as u64).sum()
    }

    /// Whether one is open in another task.
    pub(super) fn is_open_beside(&self, task: u64) -> bool {
        let mut is_open = false;
        self.each(|snapshot| is_open |= snapshot.task != task);
        is_open
    }

    /// How long the oldest is open that was not ended.
    pub(super) fn oldest_age(&self) -> Nanos {
        let mut oldest: Option<(Lsn, Nanos)> = None;
        self.each(|snapshot| {
            if !snapshot.is_ended() && oldest.is_none_or(|(at, _)| snapshot.at < at) {
                oldest = Some((snapshot.at, snapshot.opened));
            }
        });
        oldest.map_or(Nanos(0), |(_, opened)| now().saturating_sub(opened))
    }

    /// Ends one that cannot read what it may see.
    pub(super) fn lose(&self, snapshot: &Snapshot, failure: Arc<io::Error>) {
        snapshot.mark_ended(Some(failure));
        let list = &self.lists[snapshot.list];
        list.count(&list.open.lock());
    }

    /// Ends the oldest, an eighth of them if they are many; whether there were any. `failure` is
    /// why there is no room for what they see, if that has a cause.
    pub(super) fn end_oldest(&self, failure: Option<&Arc<io::Error>>) -> u64 {
        let mut open = Vec::new();
        self.each(|snapshot| {
            if !snapshot.is_ended() {
                open.push(Arc::clone(snapshot));
            }
        });
        open.sort_by_key(|snapshot| snapshot.at);
        let count = open.len().div_ceil(8);
        for snapshot in &open[..count] {
            snapshot.mark_ended(failure.cloned());
            let list = &self.lists[snapshot.list];
            list.count(&list.open.lock());
        }
        count as u64
    }
}
