//! Bulk loads: a table filled with entries in key order.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Bound;

use crate::api::core::Core;
use crate::api::stream;
use crate::api::table::Encoded;
use crate::btree::{Batch, Direction, Put, Scan, Tree};
use crate::trees::Age;
use crate::writer::Step;
use crate::{Error, Key, LockMode, Value};

/// How full pages are left unless told otherwise, in percent.
pub(crate) const FILL: u8 = 100;
/// Emptier pages make no sense.
pub(crate) const FILL_MIN: u8 = 10;

/// A load, under the types.
pub(crate) struct Bulk {
    tree: Tree,
    last: Option<Vec<u8>>,
    /// Rows of a tree that is built.
    rows: i64,
    /// None if the entries are inserted one by one.
    built: Option<crate::btree::Loader>,
}

impl Bulk {
    /// Locks the table, which must be empty.
    pub(crate) fn begin(core: &Core, tree: Tree, age: Age, fill: u8) -> Result<Bulk, Error> {
        core.emptied.borrow_mut().forget();
        core.run(|context| context.lock_table(tree.id(), LockMode::Exclusive))?;
        if age == Age::New && core.run(|_| tree.is_bare())? {
            let built =
                core.change(0, |context| tree.load(context, usize::from(fill)).map(Step::Done))?;
            core.begin_load();
            return Ok(Bulk { tree, last: None, rows: 0, built: Some(built) });
        }
        let all = Bound::Unbounded;
        let mut scan = Scan::new(all.clone(), all, Direction::Forward, LockMode::Shared);
        let mut batch = Batch::default();
        core.read(|context| scan.next_batch(&tree, context, 1, &mut batch))?;
        if batch.len() > 0 {
            return Err(core.explain(Error::NotEmpty { table: tree.id().into() }));
        }
        Ok(Bulk { tree, last: None, rows: 0, built: None })
    }

    pub(crate) fn push(&mut self, core: &Core, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if let Some(built) = &mut self.built {
            // Pages are not logged, only that extents are taken for them: some 250 bytes for each
            // of 256 KiB, if none lie side by side.
            let bytes = key.len() + value.len() / 512;
            core.change(bytes, |context| built.push(context, key, value).map(Step::Done))?;
            self.rows += 1;
            return Ok(());
        }
        if self.last.as_deref().is_some_and(|last| last >= key) {
            let table = self.tree.id().into();
            return Err(core.explain(Error::NotAscending { table }));
        }
        stream::put(core, &self.tree, (key, value), Put::Upsert, None)?;
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        Ok(())
    }

    pub(crate) fn finish(&mut self, core: &Core) -> Result<(), Error> {
        let Some(built) = self.built.take() else { return Ok(()) };
        let mut built = Some(built);
        core.change(0, |context| {
            let built = built.take().expect("it never waits");
            built.finish(context)?.install(context)?;
            context.count_loaded(self.tree.id(), self.rows).map(Step::Done)
        })?;
        core.end_load();
        Ok(())
    }
}

/// A bulk load in progress, begun by
/// [`WriteTransaction::bulk_load`](crate::WriteTransaction::bulk_load): loads an empty table with
/// entries in strictly ascending key order. Unless [`Loader::finish`] is called, the transaction
/// can only be rolled back.
///
/// # Examples
///
/// ```
/// # use terrace::{Durability, TableDef};
/// # let db = terrace::doc_test::database();
/// const SQUARES: TableDef<u64, u64> = TableDef::new("squares");
/// let txn = db.begin_write()?;
/// let mut loader = txn.bulk_load(SQUARES)?;
/// for n in 0..1000 {
///     loader.push(n, n * n)?;
/// }
/// loader.finish()?;
/// txn.commit(Durability::Durable)?;
/// # Ok::<(), terrace::Error>(())
/// ```
pub struct Loader<'t, K: Key, V: Value> {
    /// That of its transaction.
    core: &'t Core,
    bulk: Bulk,
    name: &'t str,
    types: PhantomData<fn() -> (K, V)>,
}

impl<'t, K: Key, V: Value> Loader<'t, K, V> {
    pub(crate) fn new(core: &'t Core, bulk: Bulk, name: &'t str) -> Loader<'t, K, V> {
        Loader { core, bulk, name, types: PhantomData }
    }

    /// What the load is within, if its table still is one.
    fn live(&self) -> Result<&'t Core, Error> {
        self.core.check_table(&self.bulk.tree, self.name).map(|()| self.core)
    }

    /// Adds the next entry.
    ///
    /// # Errors
    ///
    /// `NotAscending`, `KeyTooLong`, `ValueTooLong`, `HomeFull`, `LogFull`, `Failed`; `NoSuchTable`
    /// if the transaction has deleted the table.
    pub fn push(&mut self, key: K::View<'_>, value: V::View<'_>) -> Result<(), Error> {
        let core = self.live()?;
        let mut encoded = Encoded::key::<K>(core, &key);
        let (key, value) = encoded.value::<V>(&value);
        self.bulk.push(core, key, value)
    }

    /// Completes the load. The entries can be read from then on, first by this transaction alone.
    ///
    /// # Errors
    ///
    /// As `push`.
    pub fn finish(mut self) -> Result<(), Error> {
        let core = self.live()?;
        self.bulk.finish(core)
    }
}

impl<K: Key, V: Value> fmt::Debug for Loader<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader").field("tree", &self.bulk.tree.id()).finish_non_exhaustive()
    }
}
