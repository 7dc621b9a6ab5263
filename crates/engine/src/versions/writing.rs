//! A transaction that writes: its chain in the log, and how to undo its changes.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_page::Lsn;
use terrace_rt::LeafMutex;

use crate::TreeId;
use crate::log::Chain;

/// Bytes that an empty list keeps.
const BYTES_KEPT: usize = 1 << 16;

/// How to undo one record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UndoEntry {
    pub(crate) lsn: Lsn,
    /// The transaction's record before.
    pub(crate) prev: Lsn,
    /// Log bytes reserved for its undo.
    pub(crate) room: u32,
    /// Where its encoded undo begins in the list's bytes.
    pub(crate) at: usize,
}

/// How to undo what a transaction has changed, in the order of its records.
#[derive(Debug, Default)]
pub(crate) struct UndoList {
    list: Vec<UndoEntry>,
    bytes: Vec<u8>,
    /// Under which number versions of all of this are kept.
    pub(super) indexed: u64,
    /// Trees that the transaction has made: no snapshot sees them before it has ended.
    made: Vec<TreeId>,
}

impl UndoList {
    pub(crate) fn push(&mut self, lsn: Lsn, prev: Lsn, room: u64, encoded: &[u8]) {
        let at = self.bytes.len();
        self.list.push(UndoEntry { lsn, prev, room: room as u32, at });
        self.bytes.extend_from_slice(encoded);
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Bytes of all.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len() + self.list.len() * size_of::<UndoEntry>()
    }

    /// The newest, and how it is undone.
    pub(crate) fn last(&self) -> Option<(UndoEntry, &[u8])> {
        self.list.last().map(|entry| (*entry, &self.bytes[entry.at..]))
    }

    pub(crate) fn pop(&mut self) {
        if let Some(entry) = self.list.pop() {
            self.bytes.truncate(entry.at);
        }
    }

    /// All, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Lsn, &[u8])> {
        let ends = self.list.iter().skip(1).map(|entry| entry.at).chain([self.bytes.len()]);
        self.list.iter().zip(ends).map(|(entry, end)| (entry.lsn, &self.bytes[entry.at..end]))
    }

    /// Forgets the undo: it is more than memory keeps, and the log has it.
    pub(crate) fn drop_undo(&mut self) {
        (self.list, self.bytes) = (Vec::new(), Vec::new());
    }

    pub(crate) fn note_made(&mut self, tree: TreeId) {
        self.made.push(tree);
    }

    pub(crate) fn has_made(&self, tree: TreeId) -> bool {
        self.made.contains(&tree)
    }

    fn reset(&mut self) {
        self.list.clear();
        self.bytes.clear();
        if self.bytes.capacity() > BYTES_KEPT {
            self.drop_undo();
        }
        self.indexed = 0;
        self.made.clear();
    }
}

/// A transaction that has a number. Others see it until its last record is appended.
#[derive(Debug, Default)]
pub(crate) struct Writing {
    chain: Chain,
    /// Held from before a change is appended until it is listed here, and from before its undo is
    /// appended until it is listed no more. So its holder sees what is in the log, of the changes
    /// that came before: see `versions`.
    pub(crate) undo: LeafMutex<UndoList>,
    /// The log ended here when it got its number.
    began: AtomicU64,
    /// Bytes of memory that it was lent for its undo.
    pub(super) lent: AtomicU64,
}

impl Writing {
    /// One that recovery has found.
    pub(crate) fn recovered(first: Lsn, last: Lsn) -> Writing {
        let chain = Chain::recovered(first, last);
        Writing { chain, began: AtomicU64::new(first.0), ..Writing::default() }
    }

    /// For the next transaction.
    pub(crate) fn reset(&mut self) {
        self.chain.reset();
        self.undo.get_mut().reset();
        *self.lent.get_mut() = 0;
    }

    pub(crate) fn begins(&self, at: Lsn) {
        self.began.store(at.0, Ordering::Relaxed);
    }

    /// Bytes that its undo may take, beside what every transaction has.
    pub(crate) fn lent(&self) -> usize {
        self.lent.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn began(&self) -> Lsn {
        Lsn(self.began.load(Ordering::Relaxed))
    }
}

impl Deref for Writing {
    type Target = Chain;

    fn deref(&self) -> &Chain {
        &self.chain
    }
}
