//! The tables that a transaction has locked, and how.
//!
//! A transaction that opens a table takes its intention lock for reading, and that for writing
//! when it writes a key. If the transaction that had the same buffers before has written the table,
//! it takes the lock for writing at once, unless it would have to wait for that. So a thread whose
//! transactions all write asks the lock table once for each.

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
    /// The transaction has asked for locks to write keys of it.
    pub(super) is_written: bool,
}

/// Tables that share a place, and are found by a walk: those with one number modulo this.
const PLACES: usize = 16;

/// The tables that a transaction has locked, whole or in part.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) list: Vec<TableLock>,
    /// Where in the list a table was last put. A hint: the entry itself names its table.
    places: [u8; PLACES],
    /// In the place of a table, its number if the last transaction that has locked it has written
    /// it.
    was_written: [Option<TreeId>; PLACES],
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
        self.list.push(TableLock {
            tree,
            modes: Modes::NONE,
            keys: 0,
            escalate_at,
            is_written: false,
        });
        self.places[tree.0 as usize % PLACES] = index.try_into().unwrap_or(u8::MAX);
        index
    }

    /// Whether the last transaction that has locked the table has written it, as far as is known.
    #[inline]
    pub(super) fn was_written(&self, tree: TreeId) -> bool {
        self.was_written[tree.0 as usize % PLACES] == Some(tree)
    }

    /// Forgets them all, but for which ones were written.
    pub(super) fn clear(&mut self) {
        for table in &self.list {
            let place = table.tree.0 as usize % PLACES;
            self.was_written[place] = table.is_written.then_some(table.tree);
        }
        self.list.clear();
    }
}
