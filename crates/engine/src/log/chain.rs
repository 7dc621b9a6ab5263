//! The records of one transaction, as the log knows them: where they begin and end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_page::Lsn;

use super::fate::Fate;

/// The first and last record of a transaction, as checkpoints see them. Both are set within the
/// append, so that a table read after BEGIN_CHKPT was appended lacks nothing that precedes it.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    first: AtomicU64,
    last: AtomicU64,
    /// Bytes of its records.
    bytes: AtomicU64,
    /// Shared with the versions that it leaves behind.
    fate: Arc<Fate>,
}

/// What an append does to its transaction's chain.
#[derive(Clone, Copy)]
pub(super) enum Link<'c> {
    None,
    Next(&'c Chain),
    Last(&'c Chain),
}

/// What stands for the last record of one that has ended.
const ENDED: u64 = u64::MAX;

impl Chain {
    /// A chain found by recovery.
    pub(crate) fn recovered(first: Lsn, last: Lsn) -> Chain {
        let (first, last) = (AtomicU64::new(first.0), AtomicU64::new(last.0));
        Chain { first, last, ..Chain::default() }
    }

    /// For the next transaction.
    pub(crate) fn reset(&mut self) {
        *self.first.get_mut() = 0;
        *self.last.get_mut() = 0;
        *self.bytes.get_mut() = 0;
        match Arc::get_mut(&mut self.fate) {
            Some(fate) => *fate = Fate::default(),
            None => self.fate = Arc::default(),
        }
    }

    /// What becomes of the transaction.
    pub(crate) fn fate(&self) -> &Arc<Fate> {
        &self.fate
    }

    /// The first and last record, if there are any and the transaction has not ended.
    pub(crate) fn open(&self) -> Option<(Lsn, Lsn)> {
        let first = self.first.load(Ordering::Acquire);
        let last = self.last.load(Ordering::Acquire);
        (first != 0 && last != ENDED).then_some((Lsn(first), Lsn(last)))
    }

    /// Whether versions of its changes are kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.fate.is_kept()
    }

    /// Bytes of its records.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Link<'_> {
    /// A record of `len` bytes was appended at `lsn`: called within the append.
    pub(super) fn appended(self, lsn: Lsn, len: u64) {
        match self {
            Link::None => (),
            Link::Next(chain) => {
                chain.last.store(lsn.0, Ordering::Release);
                chain.bytes.store(chain.bytes() + len, Ordering::Relaxed);
                if chain.first.load(Ordering::Relaxed) == 0 {
                    chain.first.store(lsn.0, Ordering::Release);
                }
            }
            Link::Last(chain) => {
                chain.last.store(ENDED, Ordering::Release);
                // Before the end: a task that sees an end behind this record sees that, too.
                chain.fate.end(lsn);
            }
        }
    }

    /// Bytes of the records of its transaction.
    pub(super) fn own_bytes(self) -> u64 {
        match self {
            Link::None => 0,
            Link::Next(chain) | Link::Last(chain) => chain.bytes(),
        }
    }
}
