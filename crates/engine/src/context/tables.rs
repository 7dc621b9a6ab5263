//! The tables that a transaction has locked, and how.

use crate::TreeId;
use crate::lock::Modes;

/// What a transaction has of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableLock {
    tree: TreeId,
    pub(super) modes: Modes,
    /// Locks of keys.
    pub(super) keys: usize,
    /// When to try to lock the whole table next.
    pub(super) escalate_at: usize,
}

/// Tables that share a place, and are found by a walk: those with one number modulo this.
const PLACES: usize = 16;

/// The tables that a transaction has locked, whole or in part.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) list: Vec<TableLock>,
    /// Where in the list a table was last put. A hint: the entry itself names its table.
    places: [u8; PLACES],
}

impl Tables {
    /// Where a table is in the list.
    #[inline]
    pub(super) fn find(&self, tree: TreeId) -> Option<usize> {
        let place = usize::from(self.places[tree.0 as usize % PLACES]);
        match self.list.get(place) {
            Some(table) if table.tree == tree => Some(place),
            _ => self.list.iter().position(|table| table.tree == tree),
        }
    }

    pub(super) fn get(&self, tree: TreeId) -> Option<&TableLock> {
        self.find(tree).map(|index| &self.list[index])
    }

    /// Adds a table of which nothing is held; returns where it is.
    pub(super) fn add(&mut self, tree: TreeId, escalate_at: usize) -> usize {
        let index = self.list.len();
        self.list.push(TableLock { tree, modes: Modes::NONE, keys: 0, escalate_at });
        self.places[tree.0 as usize % PLACES] = index.try_into().unwrap_or(u8::MAX);
        index
    }

    /// Forgets them all.
    pub(super) fn clear(&mut self) {
        self.list.clear();
    }
}
