//! The locks of a transaction: on keys, on tables, and from one to the other.
//!
//! - A key is locked under an intention lock of its table. Both are noted in `Held`, so that what
//!   is held already costs a look there, and nothing else.
//! - A transaction with many keys of a table tries for the whole table, now and again; at the
//!   limit it waits for it. What it locked before stays locked.

use std::sync::atomic::Ordering;

use terrace_page::PageId;
use terrace_rt::{Nanos, now};

use super::{Context, Locking, Mode};
use crate::btree::Leaves;
use crate::events::{Event, LONG_LOCK_WAIT};
use crate::lock::{Modes, Refused, Resource};
use crate::versions::View;
use crate::writer::Reader;
use crate::{Error, KeyHash, LockMode, LockOutcome, LockRequest, LockWait, TreeId};

/// Leaves whose ghosts a transaction remembers: scans and insertions find the others.
const MET_MAX: usize = 4096;

impl Context {
    /// Waits for a lock that a tree could not get.
    ///
    /// # Errors
    ///
    /// `Conflict`, `LockTimeout`, `Nested`, `TooManyLocks`, `HoldsLog`, `Closed`.
    pub(crate) fn wait_for(&mut self, request: LockRequest) -> Result<(), Error> {
        let (resource, modes) = self.refused(request);
        self.acquire(resource, modes)?;
        self.note(request.tree, resource, modes);
        Ok(())
    }

    /// Locks `resource`, waiting for others.
    fn acquire(&self, resource: Resource, modes: Modes) -> Result<(), Error> {
        let owner = self.owner.as_ref().expect("who waits locks");
        let limit = self.lock_timeout;
        self.engine.locks.show_key(owner, &self.buffers.busy_key);
        let began = now();
        let acquired = self.engine.locks.acquire(owner, resource, modes, limit);
        self.tell_long_wait(resource, now().saturating_sub(began), acquired.is_ok());
        acquired.map_err(|refused| {
            let wait = |holder, queued, waited| {
                let tree = resource.tree();
                let (table, key_type) = self.engine.trees.described(tree).unwrap_or_default();
                let key = (!resource.is_table()).then(|| self.buffers.busy_key.clone());
                Box::new(LockWait { tree, table, key, holder, queued, waited, key_type })
            };
            match refused {
                Refused::Circle => Error::Conflict,
                Refused::Full => Error::TooManyLocks,
                Refused::Dead => Error::Closed,
                Refused::Interrupted => self.holds_log(),
                Refused::TimedOut { holder, queued } => {
                    Error::LockTimeout(wait(holder, queued, limit))
                }
                Refused::Nested { holder } => Error::Nested(wait(Some(holder), None, Nanos::ZERO)),
            }
        })
    }

    fn tell_long_wait(&self, resource: Resource, waited: Nanos, was_granted: bool) {
        if waited >= LONG_LOCK_WAIT {
            let (table, _) = self.engine.trees.described(resource.tree()).unwrap_or_default();
            Event::LockWait { table: &table, waited, was_granted }.tell();
        }
    }

    /// Locks a key, waiting for others.
    ///
    /// # Errors
    ///
    /// As `wait_for`.
    pub(crate) fn lock_key(
        &mut self,
        tree: TreeId,
        key: KeyHash,
        mode: LockMode,
        bytes: impl Fn() -> Vec<u8>,
    ) -> Result<(), Error> {
        let request = LockRequest { tree, key, mode };
        while self.try_lock(request)? == LockOutcome::Busy {
            self.busy(&bytes());
            self.wait_for(request)?;
        }
        Ok(())
    }

    /// Locks a table as for reading some of its keys, waiting for others; or as for writing some,
    /// if it will probably do so, and need not wait for that.
    ///
    /// # Errors
    ///
    /// As `wait_for`.
    pub(crate) fn lock_intent(&mut self, tree: TreeId) -> Result<(), Error> {
        let Some(owner) = &self.owner else { return Ok(()) };
        let tables = &self.buffers.tables;
        if tables.was_written(tree) && tables.find(tree).is_none() {
            let (resource, modes) = (Resource::table(tree), Modes::TABLE_INTENT_WRITE);
            if self.engine.locks.try_acquire(owner, resource, modes)? {
                self.note(tree, resource, modes);
                return Ok(());
            }
        }
        self.lock_with_intent(tree, Modes::TABLE_INTENT_READ)
    }

    fn lock_with_intent(&mut self, tree: TreeId, modes: Modes) -> Result<(), Error> {
        let Some(owner) = &self.owner else { return Ok(()) };
        if self.buffers.tables.get(tree).is_some_and(|table| table.modes.covers(modes)) {
            return Ok(());
        }
        let resource = Resource::table(tree);
        if !self.engine.locks.try_acquire(owner, resource, modes)? {
            self.acquire(resource, modes)?;
        }
        self.note(tree, resource, modes);
        Ok(())
    }

    /// Locks a table as for writing some of its keys, waiting for others.
    ///
    /// # Errors
    ///
    /// As `wait_for`.
    pub(crate) fn lock_to_write(&mut self, tree: TreeId) -> Result<(), Error> {
        self.lock_with_intent(tree, Modes::TABLE_INTENT_WRITE)
    }

    /// Locks a whole table, waiting for others.
    ///
    /// # Errors
    ///
    /// As `wait_for`.
    pub(crate) fn lock_table(&mut self, tree: TreeId, mode: LockMode) -> Result<(), Error> {
        if self.owner.is_none() {
            return Ok(());
        }
        let modes = match mode {
            LockMode::Shared | LockMode::GapScan | LockMode::SharedScan => Modes::TABLE_READ,
            _ => Modes::TABLE_WRITE,
        };
        let resource = Resource::table(tree);
        self.acquire(resource, modes)?;
        self.note(tree, resource, modes);
        Ok(())
    }

    /// What stands between the transaction and `request`: first the table, then the key.
    fn refused(&self, request: LockRequest) -> (Resource, Modes) {
        let (intent, whole) = table_modes(request.mode);
        let table = self.buffers.tables.get(request.tree);
        let held = table.map_or(Modes::NONE, |table| table.modes);
        if !held.covers(intent) && !covers_table(held, whole) {
            return (Resource::table(request.tree), intent);
        }
        let full = self.buffers.held.len() >= self.engine.lock_limits.per_transaction_max;
        if full && !covers_table(held, whole) {
            return (Resource::table(request.tree), whole);
        }
        (Resource::key(request.tree, request.key), request.mode.into())
    }

    /// Notes a lock that was granted.
    fn note(&mut self, tree: TreeId, resource: Resource, modes: Modes) {
        let escalate_at = self.engine.lock_limits.escalate_at;
        self.buffers.held.add(resource, modes);
        let tables = &mut self.buffers.tables;
        let index = tables.find(tree).unwrap_or_else(|| tables.add(tree, escalate_at));
        let table = &mut tables.list[index];
        if resource == Resource::table(tree) {
            table.modes = table.modes.and(modes);
        } else {
            table.keys += 1;
        }
    }

    /// Locks a key under the intention lock of its table, number `index` of those locked.
    #[inline]
    fn try_lock_key(&mut self, request: LockRequest, index: usize) -> Result<LockOutcome, Error> {
        let modes = Modes::from(request.mode);
        let resource = Resource::key(request.tree, request.key);
        let found = self.buffers.held.find(resource);
        if found.modes.covers(modes) {
            return Ok(LockOutcome::Granted);
        }
        let owner = self.owner.as_ref().expect("who locks is an owner");
        let locks = &self.engine.locks;
        if request.mode == LockMode::GapInsert {
            return Ok(match locks.is_free(owner, resource, modes) {
                true => LockOutcome::Granted,
                false => LockOutcome::Busy,
            });
        }
        if !locks.try_acquire(owner, resource, modes)? {
            return Ok(LockOutcome::Busy);
        }
        self.buffers.held.add_found(&found, modes);
        self.buffers.tables.list[index].keys += 1;
        Ok(LockOutcome::Granted)
    }

    #[cold]
    fn try_lock_table(&mut self, request: LockRequest) -> Result<TableAnswer, Error> {
        let (intent, whole) = table_modes(request.mode);
        let limits = self.engine.lock_limits;
        let (held, keys, escalate_at) = match self.buffers.tables.get(request.tree) {
            Some(table) => (table.modes, table.keys, table.escalate_at),
            None => (Modes::NONE, 0, limits.escalate_at),
        };
        if covers_table(held, whole) {
            return Ok(TableAnswer::Covered);
        }
        let owner = self.owner.as_ref().expect("who locks is an owner");
        let resource = Resource::table(request.tree);
        let locks = &self.engine.locks;
        if !held.covers(intent) {
            if !locks.try_acquire(owner, resource, intent)? {
                return Ok(TableAnswer::Busy);
            }
            self.note(request.tree, resource, intent);
            return Ok(TableAnswer::ByKey);
        }
        if keys < escalate_at {
            return Ok(TableAnswer::ByKey);
        }
        if locks.try_acquire(owner, resource, whole)? {
            self.note(request.tree, resource, whole);
            let escalations = &self.engine.tally.escalations;
            escalations.fetch_add(1, Ordering::Relaxed);
            return Ok(TableAnswer::Covered);
        }
        let index = self.buffers.tables.find(request.tree).expect("its locks were counted");
        self.buffers.tables.list[index].escalate_at *= 2;
        let full = self.buffers.held.len() >= limits.per_transaction_max;
        Ok(if full { TableAnswer::Busy } else { TableAnswer::ByKey })
    }

    /// Whether it needs no locks: it is alone, or undoes what it has locked before.
    #[inline]
    fn asks_nobody(&self) -> bool {
        self.locking == Locking::Off || self.mode != Mode::Forward
    }

    /// Gives up every lock.
    pub(super) fn release_locks(&mut self) {
        let Some(owner) = self.owner.take() else { return };
        let locks = &self.engine.locks;
        for resource in self.buffers.held.iter() {
            locks.release(&owner, resource);
        }
        locks.leave(owner);
    }
}

/// How the table stands to a lock of one of its keys.
enum TableAnswer {
    /// The lock of the table covers it.
    Covered,
    /// The key has to be locked.
    ByKey,
    /// The table is locked by others.
    Busy,
}

/// The modes of the table that a lock of a key needs, and that stand for it.
fn table_modes(mode: LockMode) -> (Modes, Modes) {
    match mode {
        LockMode::Shared | LockMode::GapScan | LockMode::SharedScan => {
            (Modes::TABLE_INTENT_READ, Modes::TABLE_READ)
        }
        _ => (Modes::TABLE_INTENT_WRITE, Modes::TABLE_WRITE),
    }
}

/// Whether what is held of a table stands for `whole`.
fn covers_table(held: Modes, whole: Modes) -> bool {
    held.covers(Modes::TABLE_WRITE) || held.covers(whole)
}

impl Reader for Context {
    fn try_lock(&mut self, request: LockRequest) -> Result<LockOutcome, Error> {
        if self.asks_nobody() {
            return Ok(LockOutcome::Granted);
        }
        let (intent, whole) = table_modes(request.mode);
        // What is held of the table is at hand; whether the key is held takes a look that may miss
        // the cache, once there are many.
        let known = self.buffers.tables.find(request.tree);
        if let Some(index) = known {
            let table = &mut self.buffers.tables.list[index];
            table.is_written |= intent == Modes::TABLE_INTENT_WRITE;
            if covers_table(table.modes, whole) {
                return Ok(LockOutcome::Granted);
            }
            if table.modes.covers(intent) && table.keys < table.escalate_at {
                return self.try_lock_key(request, index);
            }
        }
        // Which may be held already, from when less was held of the table.
        let resource = Resource::key(request.tree, request.key);
        if self.buffers.held.modes(resource).covers(request.mode.into()) {
            return Ok(LockOutcome::Granted);
        }
        match self.try_lock_table(request)? {
            TableAnswer::Covered => Ok(LockOutcome::Granted),
            TableAnswer::Busy => Ok(LockOutcome::Busy),
            TableAnswer::ByKey => {
                let index = self.buffers.tables.find(request.tree).expect("its intent was noted");
                self.try_lock_key(request, index)
            }
        }
    }

    fn busy(&mut self, key: &[u8]) {
        self.buffers.busy_key.clear();
        self.buffers.busy_key.extend_from_slice(key);
    }

    fn holds_gap(&self, tree: TreeId, next: KeyHash) -> bool {
        let held = self.buffers.held.modes(Resource::key(tree, next));
        !self.asks_nobody() && !held.within(Modes::GAP_SCAN).is_none()
    }

    fn may_hold(&self, tree: TreeId, key: KeyHash) -> bool {
        let held = self.buffers.held.modes(Resource::key(tree, key));
        self.covers(tree, LockMode::Exclusive) || held.covers(LockMode::Exclusive.into())
    }

    fn met_ghosts(&mut self, tree: TreeId, leaf: PageId, key: &[u8]) {
        let met = &mut self.buffers.met;
        let is_known = met.last().is_some_and(|(of, page, _)| (*of, *page) == (tree, leaf));
        if !is_known && met.len() < MET_MAX {
            met.push((tree, leaf, key.into()));
        }
    }

    fn covers(&self, tree: TreeId, mode: LockMode) -> bool {
        let held = self.buffers.tables.get(tree).map_or(Modes::NONE, |table| table.modes);
        self.asks_nobody() || covers_table(held, table_modes(mode).1)
    }

    fn snapshot(&self) -> Option<View<'_>> {
        self.snapshot.as_deref().map(|snapshot| View::new(&self.engine.versions, snapshot))
    }

    #[inline]
    fn leaves(&mut self) -> Option<&mut Leaves> {
        // An undo may meet the pages of a load that is being taken back.
        if self.asks_nobody() && self.snapshot.is_none() {
            return None;
        }
        self.buffers.leaves.keep_to(self.engine.trees.version());
        Some(&mut self.buffers.leaves)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use terrace_rt::{Virtual, VirtualConfig};

    use super::*;
    use crate::share::Share;

    const TREE: TreeId = TreeId(7);

    fn lock_key(context: &mut Context, mode: LockMode) {
        let request = LockRequest { tree: TREE, key: KeyHash::of(b"row"), mode };
        assert_eq!(context.try_lock(request).expect("room"), LockOutcome::Granted);
    }

    /// What a transaction has locked of the table once it has opened it.
    fn opened(context: &mut Context) -> Modes {
        context.lock_intent(TREE).expect("it is not waited for");
        context.buffers.tables.get(TREE).expect("just locked").modes
    }

    fn in_world(test: impl Fn(&dyn Fn() -> Context)) {
        let test = || {
            let db = crate::doc_test::database();
            let engine = Share::new(Arc::clone(db.engine()));
            test(&|| Context::begin_in_task(&engine, 1).expect("open"));
        };
        Virtual::new(VirtualConfig::default()).run(test).expect("nobody waits for ever");
    }

    /// A transaction opens a table with the lock that the one before it needed in the end.
    #[test]
    fn a_table_is_opened_with_the_lock_that_was_needed_last() {
        in_world(|begin| {
            let reads = Modes::TABLE_INTENT_READ;
            let writes = Modes::TABLE_INTENT_WRITE;
            let cases = [
                (reads, LockMode::Shared),
                (reads, LockMode::Exclusive),
                (writes, LockMode::Exclusive),
                (writes, LockMode::Shared),
                (reads, LockMode::Shared),
            ];
            for (expected, mode) in cases {
                let mut context = begin();
                assert_eq!(opened(&mut context), expected);
                lock_key(&mut context, mode);
                // So that what was needed first does not hide what was needed in the end.
                lock_key(&mut context, LockMode::Shared);
            }
        });
    }

    /// The stronger lock is not waited for before it is needed.
    #[test]
    fn a_table_that_is_read_as_a_whole_can_be_opened() {
        in_world(|begin| {
            // It has buffers of its own as long as it lives.
            let mut reader = begin();
            let write = || {
                let mut writer = begin();
                let modes = opened(&mut writer);
                lock_key(&mut writer, LockMode::Exclusive);
                modes
            };
            write();
            assert_eq!(write(), Modes::TABLE_INTENT_WRITE);
            reader.lock_table(TREE, LockMode::Shared).expect("free");
            assert_eq!(opened(&mut begin()), Modes::TABLE_INTENT_READ);
        });
    }
}
