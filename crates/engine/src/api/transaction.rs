//! Transactions: serializable, by strict two-phase locks on keys and the gaps between them.

use crate::{Error, Key, Loader, ReadTable, Table, TableDef, Value};

/// When a commit returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// At once: the commit reaches the log device when something else forces it there.
    None,
    /// When it has been handed to the log device, without a barrier: it survives a crash of the
    /// process, and of the machine if the device has no volatile cache.
    Buffered,
    /// When it survives a power cut.
    #[default]
    Durable,
}

/// A transaction of either kind.
pub trait Transaction {}

/// A transaction that reads and writes. Dropped without a commit, it is rolled back.
///
/// It may move between threads, and belongs to one at a time.
pub struct WriteTransaction {}

/// A transaction that only reads.
pub struct ReadTransaction {}

/// A point in a write transaction to which it can be rolled back.
#[derive(Debug)]
pub struct Savepoint {}

impl Transaction for WriteTransaction {}
impl Transaction for ReadTransaction {}

impl WriteTransaction {
    /// Opens the table, and creates it if there is none.
    ///
    /// # Errors
    ///
    /// `TableTypes`, `Conflict`, `HomeFull`, and those of devices.
    pub fn open_table<K: Key, V: Value>(
        &self,
        _table: TableDef<K, V>,
    ) -> Result<Table<'_, K, V>, Error> {
        unimplemented!()
    }

    /// Deletes the table with all it holds; returns whether there was one.
    ///
    /// # Errors
    ///
    /// `Conflict`, and those of devices.
    pub fn delete_table(&self, _name: &str) -> Result<bool, Error> {
        unimplemented!()
    }

    /// The names of all tables, in order.
    ///
    /// # Errors
    ///
    /// `Conflict`, and those of devices.
    pub fn table_names(&self) -> Result<Vec<String>, Error> {
        unimplemented!()
    }

    /// Loads an empty table with entries in key order: much faster than insertion. The table is
    /// locked as a whole.
    ///
    /// # Errors
    ///
    /// `NotAscending` if the table is not empty; those of `open_table`.
    pub fn bulk_load<K: Key, V: Value>(
        &self,
        _table: TableDef<K, V>,
    ) -> Result<Loader<'_, K, V>, Error> {
        unimplemented!()
    }

    /// Marks this point, to roll back to.
    ///
    /// # Errors
    ///
    /// `Doomed`.
    pub fn savepoint(&self) -> Result<Savepoint, Error> {
        unimplemented!()
    }

    /// Undoes every change since `savepoint` was made. Locks stay.
    ///
    /// # Errors
    ///
    /// `Doomed`, and those of devices.
    pub fn rollback_to(&self, _savepoint: &Savepoint) -> Result<(), Error> {
        unimplemented!()
    }

    /// Makes the changes permanent.
    ///
    /// # Errors
    ///
    /// `Doomed` if an operation failed so that the transaction is rolled back; `Failed` if the log
    /// could not be written: reopening shows whether it is committed.
    pub fn commit(self, _durability: Durability) -> Result<(), Error> {
        unimplemented!()
    }

    /// Undoes the changes.
    ///
    /// # Errors
    ///
    /// `Failed` if the changes could not be undone now: recovery undoes them.
    pub fn rollback(self) -> Result<(), Error> {
        unimplemented!()
    }
}

impl ReadTransaction {
    /// Opens the table.
    ///
    /// # Errors
    ///
    /// `NoSuchTable`, `TableTypes`, `Conflict`, and those of devices.
    pub fn open_table<K: Key, V: Value>(
        &self,
        _table: TableDef<K, V>,
    ) -> Result<ReadTable<'_, K, V>, Error> {
        unimplemented!()
    }

    /// The names of all tables, in order.
    ///
    /// # Errors
    ///
    /// `Conflict`, and those of devices.
    pub fn table_names(&self) -> Result<Vec<String>, Error> {
        unimplemented!()
    }
}
