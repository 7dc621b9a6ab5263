//! What transactions do with tables: they find, make, drop and check them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_page::PageId;
use terrace_pool::Mutation;

use super::{CATALOG, CATALOG_HEADER, OpenTable, Trees, corrupt, done};
use crate::api::{CheckReport, Durability};
use crate::btree::{BALANCE_LOGS, Put, Tree};
use crate::catalog::{Entry, garbage_key, garbage_lock, name_lock, table_key};
use crate::context::{Context, Locking};
use crate::engine::Engine;
use crate::opened::Types;
use crate::reclaim::{SpaceWait, Work};
use crate::schema::{Asked, Schema, TableInfo};
use crate::share::Share;
use crate::space::TREES_MAX;
use crate::superblock::Creation;
use crate::{Error, LockMode, Part, TreeId};

/// Whether a table was there before the transaction that opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// It was live.
    Old,
    /// This transaction makes it live.
    New,
}

impl Trees {
    /// After the undo: makes what a new database lacks, reads the catalog again, and hands the
    /// trees that are garbage to the reclaim task.
    ///
    /// # Errors
    ///
    /// `HomeFull`, `Corrupt`, those of the pool and the log.
    pub(crate) fn tidy(&self, engine: &Arc<Engine>, creation: Creation) -> Result<(), Error> {
        if creation == Creation::Begun && !self.has_catalog()? {
            self.alone(engine, |context| {
                if !self.has_map()? {
                    self.space.format(context)?;
                }
                let (pool, space) = (Arc::clone(&self.pool), Arc::clone(&self.space));
                let catalog = Tree::create(context, CATALOG, pool, space)?;
                assert_eq!(catalog.header(), CATALOG_HEADER, "the first extent for data");
                Ok(())
            })?;
        }
        for tree in self.load(Creation::Finished)? {
            engine.reclaim.offer(Work::Tree(tree));
        }
        Ok(())
    }

    /// The live table `name`, for a transaction that reads.
    ///
    /// # Errors
    ///
    /// `NoSuchTable`, `TableTypes`, `TableSchema`, `Conflict`.
    pub(crate) fn open(
        &self,
        context: &mut Context,
        name: &str,
        (types, schema): (Types, Option<&Schema>),
    ) -> Result<Arc<Share<Tree>>, Error> {
        context.lock_key(CATALOG, name_lock(name), LockMode::Shared, || table_key(name))?;
        let version = self.version();
        let missing = || Error::NoSuchTable { name: name.into() };
        let names = types.names();
        let asked = Asked { types: names.as_deref(), schema };
        let table = self.live(name, asked)?.ok_or_else(missing)?;
        let described = table.described();
        let tree = Share::new(Arc::new(table.tree));
        context.remember(version, (name, types), described, &tree);
        Ok(tree)
    }

    /// The live table `name`, for a transaction that writes: made, if there is none.
    ///
    /// # Errors
    ///
    /// As `open_or_make`.
    pub(crate) fn open_for_write(
        &self,
        context: &mut Context,
        (name, types): (&str, Types),
        asked: Asked<'_>,
    ) -> Result<Arc<Share<Tree>>, Error> {
        let names = types.names();
        let asked = Asked { types: asked.types.or(names.as_deref()), ..asked };
        let (table, age) = self.live_or_made(context, name, asked)?;
        let described = table.described();
        let tree = Share::new(Arc::new(table.tree));
        if age == Age::Old {
            // Under the lock of its name, whatever happens to others.
            let version = self.version();
            context.remember(version, (name, types), described, &tree);
        }
        Ok(tree)
    }

    /// The live table `name`, for a transaction that writes: made, if there is none.
    ///
    /// # Errors
    ///
    /// `TableTypes`, `TableSchema`, `Conflict`, `HomeFull`, those of the pool and the log.
    pub(crate) fn open_or_make(
        &self,
        context: &mut Context,
        name: &str,
        asked: Asked<'_>,
    ) -> Result<(Tree, Age), Error> {
        self.live_or_made(context, name, asked).map(|(table, age)| (table.tree, age))
    }

    fn live_or_made(
        &self,
        context: &mut Context,
        name: &str,
        asked: Asked<'_>,
    ) -> Result<(OpenTable, Age), Error> {
        context.lock_key(CATALOG, name_lock(name), LockMode::Shared, || table_key(name))?;
        if let Some(table) = self.live(name, asked)? {
            return Ok((table, Age::Old));
        }
        context.lock_key(CATALOG, name_lock(name), LockMode::Exclusive, || table_key(name))?;
        if let Some(table) = self.live(name, asked)? {
            return Ok((table, Age::Old));
        }
        let tree = self.make(context)?;
        let id = tree.id();
        let types: Arc<str> = asked.types.expect("a table is made with types").into();
        let schema = asked.schema.cloned().map(Arc::new);
        let made = OpenTable { tree, types, schema, damaged: None };
        let entry = made.entry();
        let (key, value, garbage) = (table_key(name), entry.encode(), garbage_key(id));
        context.lock_key(CATALOG, garbage_lock(id), LockMode::Exclusive, || garbage.to_vec())?;
        context.begin_operation(key.len() + value.len())?;
        context.touch(name);
        let named = context.without_locks(|context| {
            let existed = done(self.catalog.put(context, &key, &value, Put::InsertNew, None)?);
            let was_garbage = done(self.catalog.remove(context, &garbage, None)?);
            Ok::<_, Error>(!existed && was_garbage)
        });
        context.end_operation();
        if !named? {
            return Err(corrupt("a name is there that is not, or a new tree is not"));
        }
        self.name(name, Some(made.clone()));
        Ok((made, Age::New))
    }

    /// Makes an empty tree, which is garbage until it gets a name (trees.N1).
    fn make(&self, context: &mut Context) -> Result<Tree, Error> {
        let number = self.next.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |next| {
            (next < TREES_MAX).then_some(next + 1)
        });
        let id = TreeId(number.map_err(|_| Error::TooManyTables { max: TREES_MAX - 1 })?);
        context.engine().counts.made(id);
        let put = |context: &mut Context, header| {
            let value = Entry::garbage(id, header).encode();
            self.catalog.put(context, &garbage_key(id), &value, Put::Upsert, None).map(done)
        };
        self.alone_for(context, |context| put(context, PageId(0)))?;
        context.made(id);
        let mut wait = SpaceWait::default();
        loop {
            let made = self.alone_for(context, |context| {
                let (pool, space) = (Arc::clone(&self.pool), Arc::clone(&self.space));
                let tree = Tree::create(context, id, pool, space)?;
                put(context, tree.header())?;
                self.by_id.lock().insert(id, tree.clone());
                Ok(tree)
            });
            match made {
                Err(Error::HomeFull { .. }) if context.wait_for_space(&mut wait) => {}
                made => return made,
            }
        }
    }

    /// Drops the table `name`: its pages are freed once the transaction has committed. Returns
    /// whether there was one.
    ///
    /// # Errors
    ///
    /// `Conflict`, those of the pool and the log.
    pub(crate) fn drop_table(&self, context: &mut Context, name: &str) -> Result<bool, Error> {
        context.lock_key(CATALOG, name_lock(name), LockMode::Exclusive, || table_key(name))?;
        let Some(table) = self.names.lock().get(name).cloned() else { return Ok(false) };
        let (id, header) = (table.tree.id(), table.tree.header());
        context.lock_table(id, LockMode::Exclusive)?;
        let (garbage, value) = (garbage_key(id), Entry::garbage(id, header).encode());
        context.lock_key(CATALOG, garbage_lock(id), LockMode::Exclusive, || garbage.to_vec())?;
        context.touch(name);
        context.begin_operation(value.len() + table.entry().encode().len())?;
        let changed = context.without_locks(|context| {
            done(self.catalog.put(context, &garbage, &value, Put::Upsert, None)?);
            self.catalog.remove(context, &table_key(name), None).map(done)
        });
        context.end_operation();
        changed?;
        self.name(name, None);
        context.dropped(id);
        Ok(true)
    }

    /// Gives the table `from` the name `to`. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// `TableExists`, `Conflict`, those of the pool and the log.
    pub(crate) fn rename(
        &self,
        context: &mut Context,
        from: &str,
        to: &str,
    ) -> Result<bool, Error> {
        for name in [from, to] {
            context.lock_key(CATALOG, name_lock(name), LockMode::Exclusive, || table_key(name))?;
        }
        let (table, is_taken) = {
            let names = self.names.lock();
            (names.get(from).cloned(), names.contains_key(to))
        };
        let Some(table) = table else { return Ok(false) };
        if from == to {
            return Ok(true);
        }
        if is_taken {
            return Err(Error::TableExists { name: to.into() });
        }
        let (id, header) = (table.tree.id(), table.tree.header());
        context.lock_table(id, LockMode::Exclusive)?;
        let (old, new) = (table_key(from), table_key(to));
        self.catalog.check_sizes(&new, &[])?;
        let (garbage, value) = (garbage_key(id), Entry::garbage(id, header).encode());
        context.lock_key(CATALOG, garbage_lock(id), LockMode::Exclusive, || garbage.to_vec())?;
        context.touch(from);
        context.touch(to);
        let mut entry = Vec::new();
        let bytes = old.len() + new.len() + table.entry().encode().len() + value.len();
        context.begin_operation(bytes)?;
        let is_bare = self.pool.mutations().has(Mutation::RenameWithoutGarbage);
        let moved = context.without_locks(|context| {
            if !is_bare {
                done(self.catalog.put(context, &garbage, &value, Put::Upsert, None)?);
            }
            let found = done(self.catalog.remove(context, &old, Some(&mut entry))?);
            let existed = done(self.catalog.put(context, &new, &entry, Put::InsertNew, None)?);
            let kept = is_bare || done(self.catalog.remove(context, &garbage, None)?);
            Ok::<_, Error>(found && !existed && kept)
        });
        context.end_operation();
        if !moved? {
            return Err(corrupt("a table's entry is not where its name says"));
        }
        self.name(from, None);
        self.name(to, Some(table));
        Ok(true)
    }

    /// The live tables, in the order of their names. The names are locked as a whole.
    ///
    /// # Errors
    ///
    /// `Conflict`.
    pub(crate) fn infos(&self, context: &mut Context) -> Result<Vec<TableInfo>, Error> {
        context.lock_table(CATALOG, LockMode::Shared)?;
        let names = self.names.lock();
        Ok(names.iter().map(|(name, table)| table.info(name)).collect())
    }

    /// Checks every tree; each is locked as a whole meanwhile.
    ///
    /// # Errors
    ///
    /// `Corrupt` at the first flaw; `DamagedSchema` if there is none but that; `Conflict`, those of
    /// the pool.
    pub(crate) fn check(&self, context: &mut Context) -> Result<CheckReport, Error> {
        let engine = Arc::clone(context.engine());
        context.lock_table(CATALOG, LockMode::Shared)?;
        let mut report = CheckReport::default();
        for tree in self.all() {
            context.lock_table(tree.id(), LockMode::Shared)?;
            let stats = {
                let _paused = engine.reclaim.pause();
                tree.check()?
            };
            let counted = context.rows_of(tree.id())?;
            match counted {
                _ if tree.id() == CATALOG => {}
                None => context.learn_rows(tree.id(), stats.keys)?,
                Some(rows) if rows == stats.keys => {}
                Some(_) => {
                    let what = "its table has another number of rows than is counted";
                    return Err(Error::corrupt(Part::Home, tree.header(), what));
                }
            }
            report.trees += 1;
            report.entries += stats.keys;
            report.pages_pending += stats.pending_pages;
            report.pages +=
                1 + stats.leaves + stats.inner_nodes + stats.overflow_pages + stats.pending_pages;
        }
        self.check_owners()?;
        self.check_descriptions()?;
        Ok(report)
    }

    /// Runs `work` in a transaction without locks, and commits it for as long as the log is there.
    pub(super) fn alone<T>(
        &self,
        engine: &Arc<Engine>,
        work: impl FnOnce(&mut Context) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let context = Context::begin(engine, Locking::Off)?;
        self.counted(context, 0, work).map(|(worked, _)| worked)
    }

    /// As `alone`, for work that may have leaves share their rows.
    pub(super) fn alone_to_purge<T>(
        &self,
        engine: &Arc<Engine>,
        work: impl FnOnce(&mut Context) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let context = Context::begin(engine, Locking::Off)?;
        self.counted(context, BALANCE_LOGS, work).map(|(worked, _)| worked)
    }

    /// As `alone`, unless `look`, which changes nothing, has the answer already.
    pub(super) fn alone_if<T>(
        &self,
        engine: &Arc<Engine>,
        look: impl FnOnce(&Context) -> Result<Option<T>, Error>,
        work: impl FnOnce(&mut Context) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut context = Context::begin(engine, Locking::Off)?;
        match look(&context) {
            Ok(None) => self.counted(context, 0, work).map(|(worked, _)| worked),
            Ok(Some(found)) => context.commit(Durability::None).map(|()| found),
            Err(error) => {
                let error = context.first_cause(error);
                context.rollback()?;
                Err(error)
            }
        }
    }

    /// As `alone`, for the transaction of `context`, which answers for what that logs.
    fn alone_for<T>(
        &self,
        context: &mut Context,
        work: impl FnOnce(&mut Context) -> Result<T, Error>,
    ) -> Result<T, Error> {
        context.before_beside()?;
        let mut beside = Context::begin(context.engine(), Locking::Off)?;
        beside.work_for(context);
        let (worked, bytes) = self.counted(beside, 0, work)?;
        context.logged_beside(bytes);
        Ok(worked)
    }

    /// As `alone`, in `context`, for work that appends `bytes` at most, if that is more than
    /// others do; with the bytes that it has logged before its commit.
    fn counted<T>(
        &self,
        mut context: Context,
        bytes: usize,
        work: impl FnOnce(&mut Context) -> Result<T, Error>,
    ) -> Result<(T, u64), Error> {
        context.begin_own_operation(bytes)?;
        let worked = work(&mut context);
        context.end_operation();
        match worked {
            Ok(value) => {
                let bytes = context.own_log_bytes();
                context.commit(Durability::None).map(|()| (value, bytes))
            }
            Err(error) => {
                let error = context.first_cause(error);
                context.rollback()?;
                Err(error)
            }
        }
    }
}
