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
    Last(&'c Chain, Last),
}

/// The last record of a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    Commit,
    End,
}

/// Where the log ends, on cache lines of its own. Written within appends.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Ends {
    end: AtomicU64,
    last: AtomicU64,
    committed: AtomicU64,
}

impl Ends {
    pub(super) fn new(end: Lsn, last: Lsn) -> Ends {
        let (end, last) = (AtomicU64::new(end.0), AtomicU64::new(last.0));
        Ends { end, last, committed: AtomicU64::new(0) }
    }

    /// A record was appended at `lsn`, behind which the log ends at `end`: called within the
    /// append, after `Link::appended`.
    #[inline]
    pub(super) fn appended(&self, link: Link<'_>, lsn: Lsn, end: u64) {
        self.last.store(lsn.0, Ordering::Release);
        self.end.store(end, Ordering::Release);
        if let Link::Last(_, Last::Commit) = link {
            // After the end: it is never beyond that.
            self.committed.store(lsn.0 + 1, Ordering::Release);
        }
    }

    /// Where the next record will begin.
    #[inline]
    pub(super) fn end(&self) -> Lsn {
        Lsn(self.end.load(Ordering::Acquire))
    }

    /// Where the last record begins.
    #[inline]
    pub(super) fn last(&self) -> Lsn {
        Lsn(self.last.load(Ordering::Acquire))
    }

    /// A position behind the beginning of the last COMMIT, if one was appended since the opening.
    #[inline]
    pub(super) fn committed(&self) -> Lsn {
        Lsn(self.committed.load(Ordering::Acquire))
    }
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
        if Fate::is_shared(&self.fate) {
            self.fate = Arc::default();
        } else {
            self.fate.reset();
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
            Link::Last(chain, _) => {
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
            Link::Next(chain) | Link::Last(chain, _) => chain.bytes(),
        }
    }
}
