//! Room of a leaf beside what its rows may need again: see leaf_room.R1.

use super::node::Node;
use super::{Tree, edit};
use crate::KeyHash;
use crate::leaf_room::RowHash;
use crate::writer::Writer;

impl Tree {
    /// What keeps the room of the row with this key.
    pub(super) fn row(&self, key: &[u8]) -> RowHash {
        RowHash::of(self.id, KeyHash::of(key))
    }

    /// Called before the value of `key` gets another length: keeps what its undo needs.
    pub(super) fn keep_room<W: Writer>(&self, w: &mut W, key: &[u8], (from, to): (usize, usize)) {
        if to < from {
            w.keep_room(self.row(key), 1 + from, from - to);
        }
    }

    /// Bytes to be kept free for the row in `slot` if its record has `len`.
    fn kept<W: Writer>(&self, w: &W, node: &Node<'_>, slot: usize, len: usize) -> usize {
        w.leaf_room().len_of(self.row(&node.key(slot))).saturating_sub(len)
    }

    /// Bytes to be kept free for each row of a leaf; nothing at all if that is none for any.
    pub(super) fn all_kept<W: Writer>(&self, w: &W, node: &Node<'_>) -> Vec<usize> {
        if !node.is_leaf() || w.leaf_room().bytes() == 0 {
            return Vec::new();
        }
        let record_len = |slot| 1 + node.record(slot).1.len();
        (0..node.len()).map(|slot| self.kept(w, node, slot, record_len(slot))).collect()
    }

    /// Whether a leaf has room for a new record of `record_len` bytes, flags included.
    pub(super) fn fits<W: Writer>(
        &self,
        w: &W,
        node: &Node<'_>,
        key: &[u8],
        record_len: usize,
    ) -> bool {
        self.has_room(w, node, edit::needed(node, key, record_len), None)
    }

    /// Whether a leaf has room for a record of `record_len` bytes in place of that in `slot`.
    pub(super) fn fits_in_place_of<W: Writer>(
        &self,
        w: &W,
        node: &Node<'_>,
        slot: usize,
        record_len: usize,
    ) -> bool {
        let needed = edit::needed_in_place_of(node, slot, record_len);
        self.has_room(w, node, needed, Some((slot, record_len)))
    }

    /// Whether a leaf has `needed` bytes beside those to be kept free, where the record in
    /// `replaced` gets another length.
    pub(super) fn has_room<W: Writer>(
        &self,
        w: &W,
        node: &Node<'_>,
        needed: usize,
        replaced: Option<(usize, usize)>,
    ) -> bool {
        let free = node.free();
        // Shortcut: mostly no row keeps room, or all rows of all leaves keep less than this leaf
        // has free.
        if needed == 0 || needed > free || w.leaf_room().bytes() <= free - needed {
            return needed <= free;
        }
        let mut kept = self.all_kept(w, node);
        if let (Some((slot, len)), Some(own)) =
            (replaced, replaced.and_then(|(slot, _)| kept.get_mut(slot)))
        {
            *own = self.kept(w, node, slot, len);
        }
        needed + kept.iter().sum::<usize>() <= free
    }
}
