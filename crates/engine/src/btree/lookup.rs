//! Point reads.

use super::node::{GHOST, Node, OVERFLOW};
use super::{Tree, lock_or_wait};
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
        match node.search(key) {
            Ok(slot) => {
                node.prefetch(slot);
                lock_or_wait!(self, r, key, mode);
                let (flags, value) = node.record(slot);
                if flags & GHOST != 0 {
                    // Nobody makes it a key again before this transaction ends.
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
                // Absent until the transaction ends: nobody may fill the gap.
                let next = self.next_key(&node, slot)?;
                lock_or_wait!(self, r, &next, LockMode::GapScan);
                Ok(Step::Done(None))
            }
        }
    }
}
