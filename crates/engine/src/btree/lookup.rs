//! Point reads.

use terrace_page::PageBuf;
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
        let node = Node::again(&leaf);
        if let Some(view) = r.snapshot() {
            return self.get_seen(&view, &leaf, key, show).map(Step::Done);
        }
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
        leaf: &PageRef<'_>,
        key: &[u8],
        show: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, Error> {
        let node = Node::again(leaf);
        let slot = node.search(key).ok();
        slot.inspect(|&slot| node.prefetch(slot));
        let current = slot.map(|slot| node.record(slot));
        let (mut older, mut whole) = (Vec::new(), Vec::new());
        let Some((flags, mut value)) = self.seen(view, leaf, key, current, &mut older) else {
            return Ok(None);
        };
        if flags & OVERFLOW != 0 {
            self.read_large(leaf.id(), value, &mut whole)?;
            value = &whole;
        }
        // Checked before `show` gets a value that may be of another moment.
        if view.is_ended() { Err(Error::SnapshotTooOld) } else { Ok(Some(show(value))) }
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
    ) -> Option<Record<'r>> {
        if !view.is_current(leaf) {
            match view.see(self.id, key, current, older) {
                Seen::Current => (),
                Seen::Absent => return None,
                Seen::Older => {
                    let (flags, value) = older.split_first()?;
                    return Some((*flags, value));
                }
            }
        }
        current.filter(|(flags, _)| flags & GHOST == 0)
    }
}
