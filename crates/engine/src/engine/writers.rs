//! The transactions that write, in the order in which they came, and what snapshots keep of them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_page::{Lsn, TxnId};
use terrace_pool::Mutation;
use terrace_rt::LeafMutex;

use super::Engine;
use crate::versions::{Snapshot, Writing};

/// The transactions that write.
#[derive(Debug)]
pub(super) struct Writers {
    /// By number, which is the order in which they came.
    pub(super) chains: LeafMutex<VecDeque<(TxnId, Arc<Writing>)>>,
    /// The number of the next one. Written with the mutex held.
    next: AtomicU64,
}

impl Writers {
    /// None, the next of which is `next`.
    pub(super) fn new(next: TxnId) -> Writers {
        Writers { chains: LeafMutex::default(), next: AtomicU64::new(next.0) }
    }

    /// The number of the next transaction that writes.
    #[inline]
    pub(super) fn next(&self) -> TxnId {
        TxnId(self.next.load(Ordering::Relaxed))
    }
}

impl Engine {
    /// Gives a number to a transaction that is about to write its first record. Later numbers go to
    /// transactions that write later, so none below the least one registered will write again.
    pub(crate) fn register(&self, chain: &Arc<Writing>) -> TxnId {
        self.pool.log_grew(self.log.end());
        let mut chains = self.writing.chains.lock();
        // Under the mutex: those that come later begin no earlier.
        chain.begins(self.log.end());
        let txn = self.writing.next();
        self.writing.next.store(txn.0 + 1, Ordering::Relaxed);
        chains.push_back((txn, Arc::clone(chain)));
        txn
    }

    /// Notes a transaction that recovery found unfinished.
    pub(crate) fn register_recovered(&self, txn: TxnId, first: Lsn, last: Lsn) -> Arc<Writing> {
        let chain = Arc::new(Writing::recovered(first, last));
        let mut chains = self.writing.chains.lock();
        let at = chains.partition_point(|(other, _)| *other < txn);
        chains.insert(at, (txn, Arc::clone(&chain)));
        chain
    }

    /// The least number of a transaction that has not ended, or the next one.
    fn oldest_active(&self) -> TxnId {
        let chains = self.writing.chains.lock();
        chains.front().map_or_else(|| self.writing.next(), |(txn, _)| *txn)
    }

    /// Large values and trees that a transaction below this has given up are no longer needed: it
    /// has ended, and no snapshot sees what was before.
    pub(crate) fn oldest_wanted(&self) -> TxnId {
        let oldest = self.oldest_active();
        if self.pool.mutations().has(Mutation::FreeSeenPages) {
            return oldest;
        }
        // Looked at later: a snapshot that is opened since sees the end of all that had ended.
        self.versions.xmin().map_or(oldest, |seen| seen.min(oldest))
    }

    /// Transactions that write.
    pub(crate) fn writers(&self) -> Vec<Arc<Writing>> {
        self.writing.chains.lock().iter().map(|(_, writing)| Arc::clone(writing)).collect()
    }

    /// Closes a snapshot: what only it has seen may go.
    pub(crate) fn close_snapshot(&self, snapshot: &Arc<Snapshot>) {
        self.versions.close_snapshot(snapshot);
        self.tell_reclaim();
    }

    /// Makes room for versions if they take too much, and drops them when they are of no more use.
    /// Called without latches.
    #[inline]
    pub(crate) fn tend_versions(&self) {
        if self.versions.has_chores() && self.versions.do_chores(|| self.writers()) {
            self.tell_reclaim();
        }
    }

    /// Tells the reclaim task, if it waits for that, what no transaction and no snapshot wants any
    /// more.
    pub(crate) fn tell_reclaim(&self) {
        if self.reclaim.is_blocked() {
            self.reclaim.seen(self.versions.xmin(), self.oldest_active());
        }
    }

    /// Whether `txn` is the only transaction that has begun to write.
    pub(crate) fn is_alone(&self, txn: TxnId) -> bool {
        self.writing.chains.lock().iter().all(|(other, _)| *other == txn)
    }

    /// Forgets a transaction whose last record is written.
    pub(crate) fn unregister(&self, txn: TxnId) {
        let oldest = {
            let mut chains = self.writing.chains.lock();
            let is_oldest = chains.front().is_some_and(|(oldest, _)| *oldest == txn);
            if is_oldest {
                chains.pop_front();
            } else {
                let at = chains.binary_search_by_key(&txn, |(other, _)| *other);
                chains.remove(at.expect("a transaction is forgotten once"));
            }
            let next = || (self.writing.next(), self.log.end());
            let (oldest, low) =
                chains.front().map_or_else(next, |(txn, chain)| (*txn, chain.began()));
            if is_oldest {
                self.versions.note_oldest(low, oldest);
            }
            self.versions.note_ended(self.log.end());
            oldest
        };
        self.reclaim.ended(oldest);
    }

    /// As if a transaction had ended: snapshots that are opened from now on see all that is
    /// committed (versions.V8).
    pub(crate) fn tell_moment(&self) {
        let _alone = self.writing.chains.lock();
        self.versions.note_ended(self.log.end());
    }
}
