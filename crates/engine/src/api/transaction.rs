//! Transactions: serializable, by strict two-phase locks on keys and the gaps between them.

use std::fmt;
use std::sync::Arc;

use terrace_page::Lsn;

use crate::api::core::{Before, Core, Sealed};
use crate::api::loader::{Bulk, FILL, FILL_MIN};
use crate::api::types;
use crate::btree::Tree;
use crate::context::Mark;
use crate::engine::Engine;
use crate::log::Level;
use crate::opened::Types;
use crate::schema::{Asked, type_names};
use crate::share::Share;
use crate::{Error, Key, Loader, Nanos, ReadTable, Schema, Table, TableDef, TransactionId, Value};

/// When a commit returns.
///
/// # Examples
///
/// ```
/// # use terrace::{Database, Durability, TableDef};
/// # let db = terrace::doc_test::database();
/// const VISITS: TableDef<&str, u64> = TableDef::new("visits");
/// let txn = db.begin_write()?;
/// txn.open_table(VISITS)?.insert("front page", 1)?;
/// txn.commit(Durability::Buffered)?;
/// db.flush()?; // from here on it survives a power cut
/// # Ok::<(), terrace::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// At once. The commit becomes durable with a later force of the log: a durable commit, a
    /// checkpoint, [`Database::flush`](crate::Database::flush).
    None,
    /// When the commit has been written to the log device, without a sync: it survives a crash of
    /// the process, and a power cut only if neither device nor file system has a volatile cache.
    Buffered,
    /// When the commit has been written and synced: it survives a power cut, and so does every
    /// commit that the transaction has read. (A read transaction does not wait for that: it may see
    /// a commit that a power cut then undoes.)
    #[default]
    Durable,
}

/// A transaction of either kind. Code that only reads can be generic over it.
///
/// # Examples
///
/// ```
/// # use terrace::{TableDef, Table, Transaction, Error};
/// /// Counts entries, in a transaction that writes or in one that does not.
/// fn count<T: Transaction>(table: &Table<'_, u64, u64, T>) -> Result<usize, Error> {
///     table.range(..)?.try_fold(0, |count, entry| entry.map(|_| count + 1))
/// }
/// # let db = terrace::doc_test::database();
/// # const T: TableDef<u64, u64> = TableDef::new("t");
/// # let txn = db.begin_write()?;
/// # assert_eq!(count(&txn.open_table(T)?)?, 0);
/// # Ok::<(), terrace::Error>(())
/// ```
pub trait Transaction: Sealed {}

/// A transaction that reads and writes. Dropped without a commit, it is rolled back.
///
/// It is not `Send`: it stays in the thread or task that began it. If a thread has two transactions
/// and one would wait for a lock of the other, that operation fails at once with [`Error::Nested`].
///
/// After an operation has failed, other than for an invalid argument (`KeyTooLong`, for instance),
/// the transaction can only be rolled back ([`Error::Doomed`]). A panic rolls it back, too.
///
/// It cannot be held across an `await` in a task that a multi-threaded runtime may move to another
/// thread:
///
/// ```compile_fail,E0277
/// # use terrace::Database;
/// fn spawn(_future: impl Future<Output = ()> + Send) {}
/// fn misuse(db: Database) {
///     spawn(async move {
///         let txn = db.begin_write().expect("open");
///         std::future::ready(()).await;
///         drop(txn);
///     });
/// }
/// ```
///
/// # Examples
///
/// ```
/// # use terrace::{Database, Durability, TableDef};
/// # let db = terrace::doc_test::database();
/// const STOCK: TableDef<&str, u32> = TableDef::new("stock");
/// let txn = db.begin_write()?;
/// {
///     let mut stock = txn.open_table(STOCK)?;
///     stock.insert("apples", 3)?;
///     stock.insert("pears", 5)?;
/// }
/// txn.commit(Durability::Durable)?;
/// # Ok::<(), terrace::Error>(())
/// ```
pub struct WriteTransaction {
    core: Core,
}

/// A transaction that only reads: a snapshot of what was committed when it began.
///
/// It sees the commits of all transactions that had ended by then, and nothing of any other,
/// however long it is open. So it is serializable, strictly: a transaction that begins after a
/// commit has returned sees that commit. It takes no locks, waits for no transaction, and holds up
/// none. It does not see what a [`WriteTransaction`] of the same thread has not committed yet.
///
/// While it is open, memory keeps what rows were that others change, and pages of large values and
/// tables that others drop stay at home. If that memory is more than
/// [`Builder::version_memory`](crate::Builder::version_memory), the oldest snapshots are ended:
/// each of their operations fails with [`Error::SnapshotTooOld`] from then on. With
/// [`Builder::version_limit`](crate::Builder::version_limit), a file takes what memory has no room
/// for; if that fails, operations of a snapshot fail with [`Error::SnapshotLost`].
///
/// There is one exception. While a transaction is open that has changed so much that its undo has
/// no room in memory (see there), or while an unfinished one of before a crash cannot be rolled
/// back, a read transaction that begins takes shared locks on what it reads until it ends, as a
/// write transaction does: it may wait, and fail with [`Error::LockTimeout`], [`Error::Conflict`]
/// or [`Error::Nested`].
///
/// It is not `Send`: it stays in the thread or task that began it.
///
/// # Examples
///
/// ```
/// # use terrace::{Database, TableDef};
/// # let db = terrace::doc_test::database();
/// const STOCK: TableDef<&str, u32> = TableDef::new("stock");
/// db.write(|txn| txn.open_table(STOCK)?.insert("apples", 3))?;
/// let txn = db.begin_read()?;
/// assert_eq!(txn.open_table(STOCK)?.get("apples")?.map(|n| n.value()), Some(3));
/// # Ok::<(), terrace::Error>(())
/// ```
pub struct ReadTransaction {
    core: Core,
}

/// A point in a write transaction to which it can be rolled back.
///
/// # Examples
///
/// ```
/// # use terrace::{Database, TableDef};
/// # let db = terrace::doc_test::database();
/// const STOCK: TableDef<&str, u32> = TableDef::new("stock");
/// db.write(|txn| {
///     let mut stock = txn.open_table(STOCK)?;
///     stock.insert("apples", 3)?;
///     let before = txn.savepoint()?;
///     stock.insert("pears", 5)?;
///     txn.rollback_to(&before)?;
///     assert!(stock.contains("apples")? && !stock.contains("pears")?);
///     Ok::<_, terrace::Error>(())
/// })?;
/// # Ok::<(), terrace::Error>(())
/// ```
#[derive(Debug)]
pub struct Savepoint {
    mark: Mark,
}

impl Sealed for WriteTransaction {
    fn core(&self) -> &Core {
        &self.core
    }
}

impl Sealed for ReadTransaction {
    fn core(&self) -> &Core {
        &self.core
    }
}

impl Transaction for WriteTransaction {}
impl Transaction for ReadTransaction {}

impl fmt::Debug for WriteTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteTransaction").field("doomed", &self.core.doomed).finish()
    }
}

impl fmt::Debug for ReadTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadTransaction").field("doomed", &self.core.doomed).finish()
    }
}

impl WriteTransaction {
    #[inline]
    pub(crate) fn begin(engine: &Arc<Share<Engine>>) -> Result<WriteTransaction, Error> {
        Ok(WriteTransaction { core: Core::begin(engine)? })
    }

    pub(crate) fn run_again(&self, runs: u32) -> Option<Before> {
        self.core.run_again(runs)
    }

    /// Its number, by which errors about locks name it: [`LockWait::holder`](crate::LockWait) is
    /// one, for instance.
    ///
    /// # Panics
    ///
    /// In the closure of [`Table::modify`] of this transaction.
    pub fn id(&self) -> TransactionId {
        self.core.id()
    }

    /// Sets how long this transaction waits for a lock or for log room, from now on; see
    /// `Builder::lock_timeout`.
    pub fn set_lock_timeout(&self, limit: Nanos) {
        self.core.context.borrow_mut().set_lock_timeout(limit);
    }

    /// Opens the table, and creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// `TableTypes`, `Conflict`, `HomeFull`, and those of devices.
    pub fn open_table<'t, K: Key, V: Value>(
        &'t self,
        table: TableDef<'t, K, V>,
    ) -> Result<Table<'t, K, V>, Error> {
        let tree = self.core.run(|context| {
            let (name, types) = (table.name(), types::<K, V>());
            if let Some(tree) = context.opened(name, types, Asked::ANY)? {
                return Ok(tree);
            }
            let engine = Arc::clone(context.engine());
            engine.trees.open_for_write(context, (name, types), Asked::ANY)
        })?;
        Ok(Table::new(self, tree, table.name()))
    }

    /// Deletes the table and its rows; returns whether there was one. A `Table` of it that this
    /// transaction has open returns `NoSuchTable` from then on.
    ///
    /// # Errors
    ///
    /// `Conflict`, `UnfinishedLoad`, and those of devices.
    pub fn delete_table(&self, name: &str) -> Result<bool, Error> {
        self.core.check_loads()?;
        self.core.has_unnamed.set(true);
        self.core.emptied.borrow_mut().forget();
        self.core.run(|context| {
            let engine = Arc::clone(context.engine());
            engine.trees.drop_table(context, name)
        })
    }

    /// Gives the table `from` the name `to`; returns whether there was one. A `Table` of it that is
    /// open stays so.
    ///
    /// # Errors
    ///
    /// `TableExists` if there is a table `to`; `KeyTooLong`; those of `delete_table`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use terrace::{Error, TableDef};
    /// # let db = terrace::doc_test::database();
    /// const NEW: TableDef<u64, u64> = TableDef::new("prices, new");
    /// const PRICES: TableDef<u64, u64> = TableDef::new("prices");
    /// db.write(|txn| {
    ///     txn.open_table(NEW)?.insert(1, 250)?;
    ///     txn.delete_table("prices")?;
    ///     assert!(txn.rename_table("prices, new", "prices")?);
    ///     assert_eq!(txn.open_table(PRICES)?.get(1)?.expect("there").value(), 250);
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn rename_table(&self, from: &str, to: &str) -> Result<bool, Error> {
        self.core.check_loads()?;
        self.core.has_unnamed.set(true);
        self.core.run(|context| {
            let engine = Arc::clone(context.engine());
            engine.trees.rename(context, from, to)
        })
    }

    /// Loads an empty table with entries in key order, and locks it as a whole. If this transaction
    /// creates the table, its tree is built bottom-up and its rows are not logged, which is many
    /// times faster than insertion. A table that existed before is filled by insertion.
    ///
    /// Until the load is finished, changed pages of all tables that leave memory are written home,
    /// whatever the design of the flash tier, and designs that append to flash take no pages.
    ///
    /// # Errors
    ///
    /// `NotEmpty` if the table has entries; those of `open_table`.
    pub fn bulk_load<'t, K: Key, V: Value>(
        &'t self,
        table: TableDef<'t, K, V>,
    ) -> Result<Loader<'t, K, V>, Error> {
        self.bulk_load_filled(table, FILL)
    }

    /// As `bulk_load`, with pages filled to `percent`, 10 to 100, to leave room for later
    /// insertions.
    ///
    /// # Errors
    ///
    /// `InvalidOption`; those of `bulk_load`.
    pub fn bulk_load_filled<'t, K: Key, V: Value>(
        &'t self,
        table: TableDef<'t, K, V>,
        percent: u8,
    ) -> Result<Loader<'t, K, V>, Error> {
        if !(FILL_MIN..=FILL).contains(&percent) {
            let what = "pages are filled to 10 to 100 percent";
            return Err(Error::InvalidOption { option: "percent", what });
        }
        let types = type_names::<K, V>();
        let asked = Asked { types: Some(&types), schema: None };
        let (tree, age) = self.core.run(|context| {
            let engine = Arc::clone(context.engine());
            engine.trees.open_or_make(context, table.name(), asked)
        })?;
        Bulk::begin(&self.core, tree, age, percent)
            .map(|bulk| Loader::new(&self.core, bulk, table.name()))
    }

    /// Creates a savepoint, to which `rollback_to` can return.
    ///
    /// # Errors
    ///
    /// `Doomed`; `UnfinishedLoad` while a bulk load is in progress.
    pub fn savepoint(&self) -> Result<Savepoint, Error> {
        self.core.check_loads()?;
        self.core.run(|context| Ok(Savepoint { mark: context.mark() }))
    }

    /// Undoes every change since `savepoint` was created; locks are kept. It may be repeated: the
    /// savepoint and earlier ones stay valid, later ones do not. A `Table` whose creation is undone
    /// returns `NoSuchTable`.
    ///
    /// # Errors
    ///
    /// `Savepoint` if it belongs to another transaction or is not valid any more, and
    /// `UnfinishedLoad` while a bulk load is in progress: then nothing is changed. `Doomed`, and
    /// those of devices.
    pub fn rollback_to(&self, savepoint: &Savepoint) -> Result<(), Error> {
        self.core.check_loads()?;
        self.core.has_unnamed.set(true);
        self.core.emptied.borrow_mut().forget();
        self.core.run(|context| context.undo_to_mark(savepoint.mark))
    }

    /// Makes the changes permanent.
    ///
    /// # Errors
    ///
    /// `Doomed` if an operation failed, `UnfinishedLoad`: the transaction is rolled back. `Failed`
    /// if the log could not be written: whether it is committed is known after reopening.
    pub fn commit(self, durability: Durability) -> Result<(), Error> {
        self.commit_at(durability).map(|_| ())
    }

    /// Commits, and does not wait for the log's device; returns the position that is to be durable.
    pub(super) fn commit_visibly(self) -> Result<Lsn, Error> {
        self.commit_at(Durability::None)
    }

    fn commit_at(mut self, durability: Durability) -> Result<Lsn, Error> {
        self.core.context.get_mut().engine().check_running()?;
        self.core.check_doomed()?;
        self.core.check_loads()?;
        // In place: a context has some hundred bytes.
        let context = self.core.context.get_mut();
        let committed = context.commit_at(durability);
        let at = committed.map_err(|error| context.engine().explain(error))?;
        context.engine().tally.commits.count();
        Ok(at)
    }

    /// The engine.
    pub(super) fn engine(&self) -> Arc<Engine> {
        Arc::clone(self.core.context.borrow().engine())
    }

    /// Undoes the changes.
    ///
    /// # Errors
    ///
    /// `Failed` if the changes could not be undone: recovery undoes them at the next opening.
    pub fn rollback(mut self) -> Result<(), Error> {
        let context = self.core.context.get_mut();
        context.engine().check_usable()?;
        let undone = context.rollback();
        undone.map_err(|error| context.engine().explain(error))
    }
}

impl ReadTransaction {
    #[inline]
    pub(crate) fn begin(engine: &Arc<Share<Engine>>) -> Result<ReadTransaction, Error> {
        Ok(ReadTransaction { core: Core::begin_read(engine)? })
    }

    /// Waits until all that it sees is durable.
    ///
    /// # Errors
    ///
    /// `Failed`, `Closed`; `SnapshotTooOld` if there is no snapshot.
    pub(crate) fn harden(&self) -> Result<(), Error> {
        self.core.run(|context| match context.snapshot_at() {
            Some(at) => context.engine().log.force(at, Level::Durable),
            None => Err(Error::SnapshotTooOld),
        })
    }

    pub(crate) fn run_again(&self, runs: u32) -> Option<Before> {
        self.core.run_again(runs)
    }

    /// Opens the table.
    ///
    /// # Errors
    ///
    /// `NoSuchTable`, `TableTypes`, `Conflict`, and those of devices.
    pub fn open_table<'t, K: Key, V: Value>(
        &'t self,
        table: TableDef<'t, K, V>,
    ) -> Result<ReadTable<'t, K, V>, Error> {
        let tree = self.find_table(table.name(), (types::<K, V>(), None))?;
        Ok(Table::new(self, tree, table.name()))
    }

    /// The tree of a table, if it has the types and the schema that are asked for.
    pub(super) fn find_table(
        &self,
        name: &str,
        (types, schema): (Types, Option<&Schema>),
    ) -> Result<Arc<Share<Tree>>, Error> {
        self.core.run(|context| {
            if let Some(tree) = context.opened(name, types, Asked { types: None, schema })? {
                return Ok(tree);
            }
            let engine = Arc::clone(context.engine());
            match context.snapshot_at() {
                Some(_) => engine.trees.open_seen(context, name, (types, schema)),
                None => engine.trees.open(context, name, (types, schema)),
            }
        })
    }
}
