//! Changes of pages by a transaction: each one logged, with what undoes it, then applied.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_page::{Lsn, PAGE_SIZE, PageBuf, PageId, PageKind, TxnId, kind, lsn};
use terrace_pool::{Mutation, PageMut};

use super::room::RECORD_BYTES;
use super::{Context, Mode};
use crate::btree::{GHOST, Node, old};
use crate::change::Change;
use crate::leaf_room::{LeafRoom, RowHash};
use crate::lock::{Modes, Resource};
use crate::log::record::{Pieces, undo_difference, undo_writer};
use crate::log::{Appended, Log, Room};
use crate::reclaim::SpaceWait;
use crate::trees::CATALOG;
use crate::versions::{Record, Row, Toward, Writing};
use crate::writer::{Nested, Undo, Writer};
use crate::{Error, KeyHash, TreeId};

/// Bytes of the undo list in memory.
const UNDO_BYTES_MAX: usize = 4 << 20;

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
        let (Undo::Insert { tree, key }
        | Undo::Delete { tree, key, .. }
        | Undo::Update { tree, key, .. }) = undo
        else {
            let lsn = self.append(Room::Forward)?;
            self.apply(page, lsn, |bytes| apply(change, bytes));
            return Ok(());
        };
        let chain = self.chain.take().expect("registered by begin_operation");
        let appended = self.append_undoable(&chain, (undo_at, prev, room), tree);
        if let Ok((appended, true)) = &appended {
            self.keep_version(&chain, page, (tree, key), change, *appended, Toward::Forward);
        }
        self.chain = Some(chain);
        let (appended, _) = appended?;
        self.apply(page, appended.lsn, |bytes| apply(change, bytes));
        self.count_rows(tree, rows_added(&undo));
        Ok(())
    }

    /// Appends the draft, and lists its undo; whether to keep what its row was.
    fn append_undoable(
        &mut self,
        chain: &Writing,
        (undo_at, prev, room): (usize, Lsn, u64),
        tree: TreeId,
    ) -> Result<(Appended, bool), Error> {
        let (appended, mut undo) = self.append_listed(chain, Room::Forward)?;
        if appended.versioned != 0 {
            self.engine.versions.told(chain, &mut undo, appended.versioned);
        }
        if !self.spilled {
            let encoded = self.buffers.draft.undo_bytes(undo_at);
            let bytes_max = UNDO_BYTES_MAX + chain.lent();
            if undo.bytes() + encoded.len() > bytes_max && !self.engine.versions.lend(chain) {
                self.spilled = true;
                self.engine.versions.outgrows(chain, appended.versioned);
                undo.drop_undo();
            } else {
                undo.push(appended.lsn, prev, room, encoded);
            }
        }
        let is_kept = appended.versioned != 0 || chain.is_kept();
        Ok((appended, is_kept && !undo.has_made(tree)))
    }

    /// Keeps what the row of `key` was, which `change` of a latched leaf is about to change.
    fn keep_version(
        &self,
        chain: &Writing,
        page: &PageBuf,
        (tree, key): (TreeId, &[u8]),
        change: &Change<'_>,
        appended: Appended,
        toward: Toward,
    ) {
        terrace_rt::maybe_switch();
        let node = Node::again(page);
        let current = match *change {
            Change::LeafInsert { .. } => None,
            Change::LeafMark { slot, .. }
            | Change::LeafReplace { slot, .. }
            | Change::LeafPatch { slot, .. } => Some(node.record(usize::from(slot))),
            _ => unreachable!("a row is changed by no {change:?}"),
        };
        let toward = match *change {
            // No key is behind the last one of the last leaf.
            Change::LeafInsert { slot, .. }
                if usize::from(slot) == node.len() && node.upper().is_none()
                    || self.engine.pool.mutations().has(Mutation::MarkAnyInsert) =>
            {
                Toward::Append
            }
            _ => toward,
        };
        let writer = (chain.fate(), appended.lsn, appended.versioned);
        self.engine.versions.keep(&Row::new(tree, key), current, writer, toward);
    }

    /// The change that undoes one of a row, the newest that is listed.
    fn change_back(
        &mut self,
        page: &mut PageMut<'_>,
        change: &Change<'_>,
        undo_next: Lsn,
    ) -> Result<(), Error> {
        let place = (page.id(), lsn(page));
        let encode = |out: &mut Vec<u8>| change.encode(out);
        self.buffers.draft.clr(self.txn, self.last, place, encode, undo_next);
        let chain = self.chain.take().expect("what is undone was logged");
        let appended = self.append_undo(&chain);
        if let Ok((appended, true)) = &appended
            && let Some(slot) = change.row()
        {
            let node = Node::again(page);
            let row = (TreeId(node.tree()), &*node.key(slot));
            self.keep_version(&chain, page, row, change, *appended, Toward::Back);
        }
        self.chain = Some(chain);
        let (appended, _) = appended?;
        self.apply(page, appended.lsn, |bytes| apply(change, bytes));
        Ok(())
    }

    /// Appends the draft, a CLR, and lists the undo no more that it has carried out (context.X5);
    /// whether versions are kept.
    fn append_undo(&mut self, chain: &Writing) -> Result<(Appended, bool), Error> {
        let (appended, mut undo) = self.append_listed(chain, Room::Reserved)?;
        if appended.versioned != 0 {
            self.engine.versions.told(chain, &mut undo, appended.versioned);
        }
        undo.pop();
        Ok((appended, appended.versioned != 0 || chain.is_kept()))
    }

    /// A change within a nested action.
    fn change_nested(&mut self, page: &mut PageMut<'_>, change: &Change<'_>) -> Result<(), Error> {
        let place = (page.id(), lsn(page));
        let mut after = self.buffers.page.take().unwrap_or_else(|| Box::new([0; PAGE_SIZE]));
        after.copy_from_slice(&page[..]);
        apply(change, &mut after);
        let encode = |out: &mut Vec<u8>| change.encode(out);
        let (txn, prev, draft) = (self.txn, self.last, &mut self.buffers.draft);
        if change.is_whole() && self.nested == 1 && !self.has_bytes_to_restore {
            draft.update(txn, prev, place, encode, undo_writer(&Undo::None));
        } else if change.formats() && kind(page) == Some(PageKind::Free) {
            self.has_bytes_to_restore = true;
            // The bytes of a page that no link leads to are not needed again. A link leads to a
            // root that is made anew, and to a leaf that has given rows to its neighbour.
            draft.update(txn, prev, place, encode, undo_writer(&Undo::None));
        } else {
            self.has_bytes_to_restore = true;
            // All bytes: what lies between the slots and the cells now may be cells again, once
            // earlier changes of this action are undone.
            draft.update(txn, prev, place, encode, undo_difference(page, &after));
        }
        let appended = self.append(Room::Reserved);
        if let Ok(lsn) = appended {
            self.apply(page, lsn, |bytes| bytes.copy_from_slice(&after[..]));
        }
        self.buffers.page = Some(after);
        appended.map(|_| ())
    }

    /// Applies to `page` what was logged as `lsn`. A panic within would leave the page half
    /// changed: it stops the engine before the page's latch goes.
    fn apply(&self, page: &mut PageMut<'_>, lsn: Lsn, change: impl FnOnce(&mut PageBuf)) {
        let half_changed = StopOnUnwind(&self.engine.log, page.id());
        page.apply(lsn, change);
        std::mem::forget(half_changed);
    }
}

/// How many rows more there are after the change that `undo` takes back.
pub(super) fn rows_added(undo: &Undo<'_>) -> i64 {
    match undo {
        Undo::Insert { .. } => 1,
        Undo::Delete { .. } => -1,
        // The key was removed before, by the same transaction.
        Undo::Update { old: [old::WHOLE, flags, ..], .. } if flags & GHOST != 0 => 1,
        Undo::Update { .. } | Undo::None => 0,
    }
}

fn apply(change: &Change<'_>, page: &mut PageBuf) {
    assert!(change.apply(page).is_ok(), "a change that does not fit its page: {change:?}");
}

/// Stops the engine unless it is forgotten.
struct StopOnUnwind<'a>(&'a Log, PageId);

impl Drop for StopOnUnwind<'_> {
    fn drop(&mut self) {
        if terrace_rt::unwinding() {
            self.0.fail(Error::Panicked { page: Some(self.1) });
        }
    }
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
        self.change_back(page, change, undo_next)
    }

    fn unlogged(&mut self, page: &mut PageMut<'_>, change: &Change<'_>) -> Result<(), Error> {
        assert!(change.formats() && self.nested == 0, "only a page that nothing leads to");
        if page.dirty_unlogged().is_none() {
            // A log that is being closed has no room to spare.
            self.engine.log.check()?;
            self.engine.check_beginning()?;
            return Err(self.log_full(RECORD_BYTES));
        }
        self.writes_unlogged(page.id(), 1);
        page.apply(self.engine.log.last_lsn(), |bytes| apply(change, bytes));
        Ok(())
    }

    fn writes_unlogged(&mut self, first: PageId, count: u32) {
        self.engine.backup.wrote(self.txn, first, count);
    }

    fn refers_to_unlogged(&mut self) {
        if !self.engine.pool.mutations().has(Mutation::BackupForgetsUnlogged) {
            self.engine.backup.refers(self.txn);
        }
    }

    fn txn(&self) -> TxnId {
        assert!(self.chain.is_some(), "a transaction has a number once it writes");
        self.txn
    }

    fn oldest_active(&self) -> TxnId {
        self.engine.oldest_wanted()
    }

    fn stamp(&self) -> u64 {
        let end = self.engine.log.end().0;
        let next = |last: u64| Some(end.max(last + 1));
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let last = self.engine.stamp.fetch_update(set, fetch, next).expect("there is a next one");
        end.max(last + 1)
    }

    fn gave_up(&mut self, tree: TreeId, bytes: u64) {
        match self.buffers.gave_up.iter_mut().find(|(known, _)| *known == tree) {
            Some((_, known)) => *known += bytes,
            None => self.buffers.gave_up.push((tree, bytes)),
        }
    }

    fn gave_up_blocks(&mut self, tree: TreeId) {
        if !self.buffers.gave_up_blocks.contains(&tree) {
            self.buffers.gave_up_blocks.push(tree);
        }
    }

    fn waits_for_space(&mut self, wait: &mut SpaceWait) -> bool {
        self.wait_for_space(wait)
    }

    fn leaf_room(&self) -> &LeafRoom {
        &self.engine.leaf_room
    }

    fn keep_room(&mut self, row: RowHash, from: usize, freed: usize) {
        self.engine.leaf_room.keep(row, from, freed);
        self.buffers.kept_rows.push((row, freed as u32));
    }

    fn begin_nested(&mut self) -> Nested {
        self.has_bytes_to_restore &= self.nested > 0;
        self.nested += 1;
        Nested { undo_next: self.last, depth: self.nested, log: Some(Arc::clone(&self.engine.log)) }
    }

    fn end_nested(&mut self, mut nested: Nested) -> Result<(), Error> {
        assert_eq!(nested.depth, self.nested, "nested actions end in order");
        if self.has_bytes_to_restore {
            self.buffers.draft.nested_end(self.txn, self.last, nested.undo_next);
            self.append(Room::Reserved)?;
        }
        nested.log = None;
        self.nested -= 1;
        Ok(())
    }

    fn may_purge(&self, tree: TreeId) -> bool {
        if self.mode != Mode::Forward {
            return false;
        }
        // Transactions also change the catalog without locks on it, under other locks.
        if tree == CATALOG {
            return self.engine.is_alone(self.txn);
        }
        !self.engine.locks.is_held(Resource::table(tree), Modes::TABLE_WRITES)
    }

    fn is_unlocked(&self, tree: TreeId, key: KeyHash) -> bool {
        self.engine.locks.is_unused(Resource::key(tree, key))
    }

    fn bury(&mut self, tree: TreeId, key: &[u8], ghost: Record<'_>) {
        self.engine.versions.bury(&Row::new(tree, key), ghost);
    }
}
