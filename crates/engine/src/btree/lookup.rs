//! Point reads.

use terrace_page::{Lsn, PageBuf, PageId};
use terrace_pool::PageRef;

use super::node::{GHOST, Node, OVERFLOW};
use super::{Tree, lock_or_wait};
use crate::versions::{Record, Seen, View};
use crate::writer::{Reader, Step};
use crate::{Error, LockMode};

impl Tree {
    /// Shows the value of `key` to `show`, locked in `mode` (`Shared` or `Exclusive`), or locks
    /// the gap that the key would be in. The value is shown in place, under the leaf's latch:
    /// `show` must not touch the tree.
    ///
    /// # Errors
    ///
    /// `TooManyLocks`, `Corrupt`, those of the pool.
    pub(crate) fn get<R: Reader + ?Sized, T>(
        &self,
        r: &mut R,
        key: &[u8],
        mode: LockMode,
        show: impl FnOnce(&[u8]) -> T,
    ) -> Result<Step<Option<T>>, Error> {
        let leaf = match mode {
            LockMode::Exclusive => self.leaf_read_first(r, key)?,
            _ => self.leaf_read(r, key)?,
        };
        if let Some(view) = r.snapshot() {
            return self.get_seen(&view, leaf, key, show).map(Step::Done);
        }
        let node = Node::again(&leaf);
        match node.search(key) {
            Ok(slot) => {
                node.prefetch(slot);
                lock_or_wait!(self, r, key, mode);
                let (flags, value) = node.record(slot);
                if flags & GHOST != 0 {
                    // No other transaction makes it a key again before this one ends.
                    self.note_ghosts(r, leaf.id(), &node, key);
                    return Ok(Step::Done(None));
                }
                if flags & OVERFLOW == 0 {
                    return Ok(Step::Done(Some(show(value))));
                }
                let mut whole = Vec::new();
                self.read_large(leaf.id(), value, &mut whole)?;
                Ok(Step::Done(Some(show(&whole))))
            }
            Err(slot) => {
                // Absent until the transaction ends: no other transaction may fill the gap.
                let next = self.next_key(&node, slot)?;
                lock_or_wait!(self, r, &next, LockMode::GapScan);
                Ok(Step::Done(None))
            }
        }
    }

    /// As `get`, in the leaf of the key, through a snapshot.
    fn get_seen<T>(
        &self,
        view: &View<'_>,
        leaf: PageRef<'_>,
        key: &[u8],
        show: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, Error> {
        self.look(view, leaf, key, |leaf, (flags, mut value)| {
            let mut whole = Vec::new();
            if flags & OVERFLOW != 0 {
                self.read_large(leaf, value, &mut whole)?;
                value = &whole;
            }
            // Checked before `show` gets a value that may be of another moment.
            if view.is_ended() { Err(view.why_ended()) } else { Ok(show(value)) }
        })
    }

    /// Shows what a snapshot sees of `key`, which belongs to `leaf`, to `show`, with that leaf's
    /// number: under its latch, unless the row is spilled.
    ///
    /// # Errors
    ///
    /// `SnapshotLost`, and those of `show`.
    pub(super) fn look<T>(
        &self,
        view: &View<'_>,
        leaf: PageRef<'_>,
        key: &[u8],
        show: impl FnOnce(PageId, Record<'_>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let id = leaf.id();
        let early = view.look_early((self.id, key));
        let node = Node::again(&leaf);
        let slot = node.search(key).ok();
        slot.inspect(|&slot| node.prefetch(slot));
        let current = slot.map(|slot| node.record(slot));
        let mut older = Vec::new();
        let found = self.seen(view, &leaf, key, current, &mut older);
        let Some(bound) = found.bound.filter(|_| view.has_spilled()) else {
            return found.record.map(|record| show(id, record)).transpose();
        };
        // No task that writes waits until the file was read.
        let here: Option<Vec<u8>> = found.record.map(owned);
        let latched = view.reads_latched().then_some(leaf);
        let spilled = match early {
            Some(early) => early?,
            None => view.spilled((self.id, key), bound)?,
        };
        drop(latched);
        let record = spilled.unwrap_or(here);
        let record = record.as_deref().and_then(<[u8]>::split_first);
        record.map(|(&flags, value)| show(id, (flags, value))).transpose()
    }

    /// What a snapshot sees of a row, of which its leaf has `current`: that, or what is put into
    /// `older`.
    #[inline]
    pub(super) fn seen<'r>(
        &self,
        view: &View<'_>,
        leaf: &PageBuf,
        key: &[u8],
        current: Option<Record<'r>>,
        older: &'r mut Vec<u8>,
    ) -> Found<'r> {
        let mut bound = None;
        if !view.is_current(leaf) {
            let (seen, before) = view.see(self.id, key, current, older);
            bound = Some(before);
            match seen {
                Seen::Current => (),
                Seen::Absent => return Found { record: None, bound },
                Seen::Older => {
                    let record = older.split_first().map(|(&flags, value)| (flags, value));
                    return Found { record, bound };
                }
            }
        }
        Found { record: current.filter(|(flags, _)| flags & GHOST == 0), bound }
    }
}

/// What a snapshot sees of a row by its leaf and the versions in memory.
pub(super) struct Found<'r> {
    pub(super) record: Option<Record<'r>>,
    /// What is spilled counts more, if its change ended before this; `None`: nothing does.
    pub(super) bound: Option<Lsn>,
}

/// Flags and value, in one piece.
pub(super) fn owned((flags, value): Record<'_>) -> Vec<u8> {
    let mut record = Vec::with_capacity(1 + value.len());
    record.push(flags);
    record.extend_from_slice(value);
    record
}
