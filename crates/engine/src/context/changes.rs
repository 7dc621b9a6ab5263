//! Changes of pages by a transaction: each one logged, with what undoes it, then applied.

use std::sync::Arc;

use terrace_page::{Lsn, PAGE_SIZE, PageBuf, PageId, TxnId, lsn};
use terrace_pool::PageMut;

use super::{Context, Mode, UNDO_BYTES_MAX, UndoEntry};
use crate::change::Change;
use crate::leaf_room::{LeafRoom, RowHash};
use crate::lock::{Modes, Resource};
use crate::log::Room;
use crate::log::record::{Pieces, undo_difference, undo_writer};
use crate::trees::CATALOG;
use crate::writer::{Nested, Undo, Writer};
use crate::{Error, KeyHash, TreeId};

impl Context {
    /// Puts back bytes that a nested action changed which never ended: a RESTORE record.
    ///
    /// # Errors
    ///
    /// Those of the pool and the log.
    pub(crate) fn restore(
        &mut self,
        page: PageId,
        pieces: Pieces<'_>,
        undo_next: Lsn,
    ) -> Result<(), Error> {
        let engine = Arc::clone(&self.engine);
        let mut page = engine.pool.write(page)?;
        page.dirty();
        let place = (page.id(), lsn(&page));
        self.buffers.draft.restore(self.txn, self.last, place, pieces, undo_next);
        let lsn = self.append(Room::Reserved)?;
        page.apply(lsn, |bytes| pieces.apply(bytes));
        Ok(())
    }

    /// A change whose undo is logical, or that is never undone.
    fn change_forward(
        &mut self,
        page: &mut PageMut<'_>,
        change: &Change<'_>,
        undo: Undo<'_>,
    ) -> Result<(), Error> {
        let place = (page.id(), lsn(page));
        let prev = self.last;
        let buffers = &mut *self.buffers;
        let encode = |out: &mut Vec<u8>| change.encode(out);
        let undo_at = buffers.draft.update(self.txn, prev, place, encode, undo_writer(&undo));
        let room = self.reserve_undo(change, &undo)?;
        let lsn = self.append(Room::Forward)?;
        if undo != Undo::None {
            self.remember((lsn, prev), undo_at, room);
        }
        self.apply(page, lsn, |bytes| apply(change, bytes));
        Ok(())
    }

    fn remember(&mut self, (lsn, prev): (Lsn, Lsn), undo_at: usize, room: u64) {
        if self.spilled {
            return;
        }
        let buffers = &mut *self.buffers;
        let encoded = buffers.draft.undo_bytes(undo_at);
        if buffers.undo_bytes.len() + encoded.len() > UNDO_BYTES_MAX {
            self.spilled = true;
            buffers.undo_bytes = Vec::new();
            buffers.undo_list = Vec::new();
            return;
        }
        buffers.undo_list.push(UndoEntry {
            lsn,
            prev,
            room: room as u32,
            at: buffers.undo_bytes.len(),
        });
        buffers.undo_bytes.extend_from_slice(encoded);
    }

    /// A change within a nested action.
    fn change_nested(&mut self, page: &mut PageMut<'_>, change: &Change<'_>) -> Result<(), Error> {
        let place = (page.id(), lsn(page));
        let mut after = self.buffers.page.take().unwrap_or_else(|| Box::new([0; PAGE_SIZE]));
        after.copy_from_slice(&page[..]);
        apply(change, &mut after);
        let encode = |out: &mut Vec<u8>| change.encode(out);
        let (txn, prev, draft) = (self.txn, self.last, &mut self.buffers.draft);
        if change.formats() {
            // Nobody needs the bytes of a page that nothing leads to.
            draft.update(txn, prev, place, encode, undo_writer(&Undo::None));
        } else {
            draft.update(txn, prev, place, encode, undo_difference(page, &after));
        }
        let appended = self.append(Room::Reserved);
        if let Ok(lsn) = appended {
            self.apply(page, lsn, |bytes| bytes.copy_from_slice(&after[..]));
        }
        self.buffers.page = Some(after);
        appended.map(|_| ())
    }
}

fn apply(change: &Change<'_>, page: &mut PageBuf) {
    assert!(change.apply(page).is_ok(), "a change that does not fit its page: {change:?}");
}

impl Writer for Context {
    fn change(
        &mut self,
        page: &mut PageMut<'_>,
        change: &Change<'_>,
        undo: Undo<'_>,
    ) -> Result<(), Error> {
        page.dirty();
        if self.nested > 0 {
            assert!(undo == Undo::None, "a nested action has no undo by key: {undo:?}");
            return self.change_nested(page, change);
        }
        let Mode::Undoing { undo_next } = self.mode else {
            return self.change_forward(page, change, undo);
        };
        let place = (page.id(), lsn(page));
        let encode = |out: &mut Vec<u8>| change.encode(out);
        self.buffers.draft.clr(self.txn, self.last, place, encode, undo_next);
        let lsn = self.append(Room::Reserved)?;
        self.apply(page, lsn, |bytes| apply(change, bytes));
        Ok(())
    }

    fn unlogged(&mut self, page: &mut PageMut<'_>, change: &Change<'_>) -> Result<(), Error> {
        assert!(change.formats() && self.nested == 0, "only a page that nothing leads to");
        page.dirty_unlogged().ok_or_else(|| self.log_full(0))?;
        page.apply(self.engine.log.last_lsn(), |bytes| apply(change, bytes));
        Ok(())
    }

    fn txn(&self) -> TxnId {
        assert!(self.chain.is_some(), "a transaction has a number once it writes");
        self.txn
    }

    fn oldest_active(&self) -> TxnId {
        self.engine.oldest_active()
    }

    fn stamp(&self) -> u64 {
        self.engine.log.end().0
    }

    fn gave_up(&mut self, tree: TreeId, bytes: u64) {
        match self.buffers.gave_up.iter_mut().find(|(known, _)| *known == tree) {
            Some((_, known)) => *known += bytes,
            None => self.buffers.gave_up.push((tree, bytes)),
        }
    }

    fn leaf_room(&self) -> &LeafRoom {
        &self.engine.leaf_room
    }

    fn keep_room(&mut self, row: RowHash, from: usize, freed: usize) {
        self.engine.leaf_room.keep(row, from, freed);
        self.buffers.kept_rows.push((row, freed as u32));
    }

    fn begin_nested(&mut self) -> Nested {
        self.nested += 1;
        Nested { undo_next: self.last, depth: self.nested, log: Some(Arc::clone(&self.engine.log)) }
    }

    fn end_nested(&mut self, mut nested: Nested) -> Result<(), Error> {
        assert_eq!(nested.depth, self.nested, "nested actions end in order");
        self.buffers.draft.nested_end(self.txn, self.last, nested.undo_next);
        self.append(Room::Reserved)?;
        nested.log = None;
        self.nested -= 1;
        Ok(())
    }

    fn may_purge(&self, tree: TreeId) -> bool {
        if self.mode != Mode::Forward {
            return false;
        }
        // The catalog is changed without locks, too, by who holds others instead.
        if tree == CATALOG {
            return self.engine.is_alone(self.txn);
        }
        !self.engine.locks.is_held(Resource::table(tree), Modes::TABLE_WRITES)
    }

    fn is_unlocked(&self, tree: TreeId, key: KeyHash) -> bool {
        self.engine.locks.is_unused(Resource::key(tree, key))
    }
}
