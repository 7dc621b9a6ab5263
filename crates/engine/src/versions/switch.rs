//! Opening and closing snapshots; turning versions on and off; room.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_page::Lsn;
use terrace_pool::Mutation;
use terrace_rt::maybe_switch;

use super::part::Part;
use super::snapshots::Snapshot;
use super::writing::Writing;
use super::{SWITCH_CHANGES, Versions};

/// Versions are being turned off.
const CLOSING: u64 = u64::MAX;
/// Each attempt after the first follows a switch that others have undone.
const ATTEMPTS_MAX: u32 = 1000;
/// A part that is cleared keeps this much of its memory, or one part in `SPARE_PARTS` of what
/// versions may have.
const SPARE_BYTES_MAX: u64 = 8 << 10;
const SPARE_PARTS: u64 = 256;

/// Transactions that write.
type Writers = Vec<Arc<Writing>>;

impl Versions {
    /// Opens a snapshot of what is committed now. `None`: it cannot be (versions.V7). `writers` are
    /// the transactions that write, as of when it is called; `tell_moment` calls `note_ended`.
    pub(crate) fn open(
        &self,
        writers: impl Fn() -> Writers,
        tell_moment: impl Fn(),
        task: u64,
    ) -> Option<Arc<Snapshot>> {
        let mut early = self.early_moment();
        for _ in 0..ATTEMPTS_MAX {
            let opened = self.snapshots.open(|list| {
                if matches!(self.number.load(Ordering::Acquire), 0 | CLOSING) {
                    return None;
                }
                let xmin = self.oldest.xmin.load(Ordering::Acquire);
                let low = self.oldest.low.load(Ordering::Acquire);
                // versions.V3.
                let (at, low) = match early {
                    Some((at, before)) => (at, before.unwrap_or(Lsn(low))),
                    None => (self.moment(), Lsn(low)),
                };
                Some(Snapshot::new((at, low), terrace_page::TxnId(xmin), list, task))
            });
            if opened.is_some() {
                return opened;
            }
            if !self.switch_on(&writers, &tell_moment) {
                return None;
            }
            if !self.mutations.has(Mutation::SnapshotBeforeIndexing) {
                early = self.early_moment();
            }
        }
        None
    }

    /// For tests that turn rules off: the moment is taken too early, or `low` too late.
    #[inline]
    fn early_moment(&self) -> Option<(Lsn, Option<Lsn>)> {
        if !self.mutations.has(Mutation::SnapshotBeforeIndexing)
            && !self.mutations.has(Mutation::LowAfterMoment)
        {
            return None;
        }
        let low = Lsn(self.oldest.low.load(Ordering::Acquire));
        let early =
            (self.moment(), self.mutations.has(Mutation::SnapshotBeforeIndexing).then_some(low));
        (0..8).for_each(|_| maybe_switch());
        Some(early)
    }

    /// versions.V2. Whether versions are kept then.
    #[cold]
    fn switch_on(&self, writers: impl Fn() -> Writers, tell_moment: impl Fn()) -> bool {
        let mut last = self.switch.lock();
        if self.number.load(Ordering::Acquire) != 0 {
            return true;
        }
        if self.lost.load(Ordering::Acquire) > 0 {
            return false;
        }
        *last += 1;
        let number = *last;
        self.keeping.store(number, Ordering::SeqCst);
        maybe_switch();
        self.log.set_versioned(number);
        maybe_switch();
        // What was kept of transactions that have ended: others may have changed its rows since,
        // and not been told.
        self.sort_in();
        self.each_in_use(Part::drop_ended);
        let mut changes = SWITCH_CHANGES;
        for writing in writers() {
            {
                let mut undo = writing.undo.lock();
                let fate = writing.fate();
                if fate.is_kept() || fate.ended().is_some() {
                    undo.indexed = number;
                }
                if undo.indexed != number && !fate.is_lost() {
                    changes += undo.len() as u64;
                    self.index(&writing, &mut undo, number);
                }
                if undo.indexed != number {
                    drop(undo);
                    self.turn_off();
                    return false;
                }
            }
            maybe_switch();
        }
        // versions.V8.
        tell_moment();
        self.idle.changes.store(0, Ordering::Relaxed);
        self.idle.changes_max.store(changes, Ordering::Relaxed);
        self.number.store(number, Ordering::SeqCst);
        true
    }

    /// Keeps versions no more, and drops what there is but for what is kept of transactions that
    /// outgrew memory. No snapshot is open.
    fn turn_off(&self) {
        // In this order, so that no reader takes what is kept for the original of changes that were
        // appended untold.
        self.keeping.store(0, Ordering::SeqCst);
        maybe_switch();
        self.log.set_versioned(0);
        maybe_switch();
        self.drop_backlog();
        let spare = (self.bytes_max / SPARE_PARTS).min(SPARE_BYTES_MAX) as usize;
        self.each_in_use(|part| part.clear(spare));
        self.forget_ends();
        let graves = std::mem::take(&mut *self.graves.lock());
        let bytes = graves.values().flatten().map(|key| super::grave_bytes(key)).sum();
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(spill) = &self.spill {
            self.release_frozen(spill.clear());
        }
    }

    /// Whether there is something for `do_chores`.
    #[inline]
    pub(crate) fn has_chores(&self) -> bool {
        self.has_chores.load(Ordering::Relaxed)
    }

    /// Makes room, and turns versions off that are of no more use; `writers` as for `open`. Whether
    /// a snapshot was ended. Called without latches; never waits.
    #[cold]
    pub(crate) fn do_chores(&self, writers: impl Fn() -> Writers) -> bool {
        let Some(_alone) = self.switch.try_lock() else { return false };
        self.has_chores.store(false, Ordering::Relaxed);
        if self.snapshots.seem_closed() {
            self.close();
        }
        self.want_spilling();
        if self.bytes() <= self.bytes_max {
            return false;
        }
        self.collect_all();
        self.shrink_backlog(0);
        if self.bytes() > self.bytes_max {
            self.give_up_ends();
        }
        let mut has_ended = false;
        while self.bytes() > self.bytes_max && self.end_oldest() {
            has_ended = true;
        }
        if self.bytes() > self.bytes_max && self.close() && self.bytes() > self.bytes_max {
            self.lose_kept(writers);
        }
        has_ended
    }

    /// Has the task spill versions, if they are too much for memory, and is not told again until it
    /// has, or they take all of their memory.
    fn want_spilling(&self) {
        if let Some(spill) = &self.spill
            && self.own_bytes() > spill.spill_at()
        {
            let room = self.bytes_max.saturating_sub(spill.memory());
            self.chores_at.store(room, Ordering::Relaxed);
            spill.want();
        }
    }

    pub(super) fn is_any_snapshot_open(&self) -> bool {
        self.snapshots.is_any_open()
    }

    pub(super) fn collect_all(&self) {
        self.sort_in();
        let needs = self.needs();
        self.each_in_use(|part| self.collect(part, &needs));
    }

    /// versions.V6. Whether there was one.
    pub(super) fn end_oldest(&self) -> bool {
        if self.mutations.has(Mutation::EndAfterCollecting) {
            // What the oldest needs is dropped before it is marked as ended.
            self.sort_in();
            let mut needs = self.needs();
            needs.horizon.open.drain(..needs.horizon.open.len().min(1));
            self.each_in_use(|part| self.collect(part, &needs));
            let first = needs.horizon.first();
            let spilled = self.spill.as_ref().map_or(0, |spill| spill.drop_seen(first));
            self.release_frozen(spilled);
            (0..20).for_each(|_| maybe_switch());
        }
        let failure = self.spill.as_ref().and_then(|spill| spill.failure());
        let ended = self.snapshots.end_oldest(failure.as_ref());
        if let Some(spill) = &self.spill {
            spill.note_ending(Lsn::ZERO);
        }
        self.collect_all();
        self.drop_seen_runs();
        ended > 0
    }

    /// Turns versions off unless a snapshot is open. Whether they are off.
    fn close(&self) -> bool {
        let number = self.number.load(Ordering::Acquire);
        if number != 0 {
            // A task that opens a snapshot either is seen here, or sees this.
            self.number.store(CLOSING, Ordering::SeqCst);
            maybe_switch();
            if self.snapshots.is_any_open() {
                self.number.store(number, Ordering::SeqCst);
                return false;
            }
            self.turn_off();
            self.number.store(0, Ordering::SeqCst);
        }
        true
    }

    /// Gives up what is kept of large transactions. Versions are off.
    fn lose_kept(&self, writers: impl Fn() -> Writers) {
        for writing in writers() {
            if writing.fate().is_kept() && writing.fate().ended().is_none() {
                self.lose(&writing);
            }
        }
        self.drop_backlog();
        self.each_in_use(|part| part.clear(0));
        self.forget_ends();
    }
}

#[cfg(test)]
mod tests {
    use terrace_rt::{Virtual, VirtualConfig};

    use super::*;
    use crate::TableDef;

    /// The first number of an open database.
    const FIRST: u64 = 1;

    /// The bug: its next append was told the new number, and its empty list counted as looked
    /// through. So a snapshot was opened that saw all that it had changed before.
    #[test]
    fn a_transaction_that_is_lost_while_versions_are_turned_on_keeps_them_off() {
        let test = || {
            let db = crate::doc_test::database();
            let versions = &db.engine().versions;
            let writing = Arc::new(Writing::default());
            let writers = || {
                let mut undo = writing.undo.lock();
                // Its last append was told that they are off, its next one that they are on.
                versions.outgrows(&writing, 0);
                undo.drop_undo();
                versions.told(&writing, &mut undo, FIRST);
                vec![Arc::clone(&writing)]
            };
            assert!(versions.open(writers, || (), 0).is_none(), "nothing is known of its changes");
        };
        Virtual::new(VirtualConfig::default()).run(test).expect("nobody waits for ever");
    }

    /// Nothing is kept of a transaction whose last record is there while versions are turned on,
    /// even if it has not told so yet: all snapshots have to see it.
    #[test]
    fn a_transaction_that_ends_while_versions_are_turned_on_is_seen() {
        let test = || {
            let db = crate::doc_test::database();
            let engine = db.engine();
            let writing = Arc::new(Writing::default());
            let txn = engine.register(&writing);
            db.write(|txn| {
                txn.open_table(TableDef::<u64, u64>::new("table"))?.insert(1, 1).map(drop)
            })
            .expect("room");
            let last = Lsn(engine.log.end().0 - 1);
            let before = engine.versions.moment();
            writing.fate().end_for_tests(last);
            assert!(last < before, "a transaction that came later has told");
            engine.versions.note_ended(last);
            let (writers, tell) = (|| engine.writers(), || engine.tell_moment());
            let snapshot = engine.versions.open(writers, tell, 0).expect("nothing was lost");
            assert!(snapshot.at() > last, "{:?} of {last:?}", snapshot.at());
            engine.close_snapshot(&snapshot);
            engine.unregister(txn);
        };
        Virtual::new(VirtualConfig::default()).run(test).expect("nobody waits for ever");
    }
}
