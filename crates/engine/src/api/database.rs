//! The database: a handle for any number of tasks and threads.

use std::path::Path;

use crate::{Builder, Durability, Error, ReadTransaction, Stats, WriteTransaction};

/// Which kind of checkpoint to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpoint {
    /// Notes the oldest change that is not at home, and lets the log be cut there [S3 Fig.3].
    Indirect,
    /// Writes every changed page home first, from memory and flash [S0 3.2].
    Sharp,
}

/// What `Database::check` has gone through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Trees, the catalog included.
    pub trees: u64,
    /// Pages of those trees.
    pub pages: u64,
    /// Entries in them.
    pub entries: u64,
}

/// An open database. Clones are handles of the same one; the last one dropped closes it.
///
/// # Examples
///
/// ```
/// use terrace::{Database, TableDef};
///
/// const ACCOUNTS: TableDef<u64, &str> = TableDef::new("accounts");
///
/// # let dir = tempfile::tempdir()?;
/// let db = Database::create(dir.path().join("bank.terrace"))?;
/// db.write(|txn| txn.open_table(ACCOUNTS)?.insert(7, "seven"))?;
/// db.read(|txn| {
///     let accounts = txn.open_table(ACCOUNTS)?;
///     assert_eq!(accounts.get(7)?.expect("just inserted").value(), "seven");
///     Ok(())
/// })?;
/// db.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Database {}

impl Database {
    /// How to create or open one with options.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Creates a database at `path` with the defaults of `Builder`.
    ///
    /// # Errors
    ///
    /// As [`Builder::create`].
    pub fn create(path: impl AsRef<Path>) -> Result<Database, Error> {
        Builder::new().create(path)
    }

    /// Opens the database at `path` with the defaults of `Builder`.
    ///
    /// # Errors
    ///
    /// As [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Database, Error> {
        Builder::new().open(path)
    }

    /// Begins a transaction that may write. Any number may run at once, on any task or thread.
    ///
    /// # Errors
    ///
    /// `Failed`, `Closed`.
    pub fn begin_write(&self) -> Result<WriteTransaction, Error> {
        unimplemented!()
    }

    /// Begins a transaction that only reads.
    ///
    /// # Errors
    ///
    /// `Closed`.
    pub fn begin_read(&self) -> Result<ReadTransaction, Error> {
        unimplemented!()
    }

    /// Runs `run` in a write transaction and commits it durably; runs it again, from its start,
    /// as long as it meets a conflict. If it returns an error, its changes are rolled back.
    ///
    /// # Errors
    ///
    /// What `run` returns, and the errors of the commit.
    pub fn write<T, E: From<Error>>(
        &self,
        run: impl FnMut(&WriteTransaction) -> Result<T, E>,
    ) -> Result<T, E> {
        self.write_with(Durability::Durable, run)
    }

    /// As `write`, with a durability of choice.
    ///
    /// # Errors
    ///
    /// As `write`.
    pub fn write_with<T, E: From<Error>>(
        &self,
        _durability: Durability,
        _run: impl FnMut(&WriteTransaction) -> Result<T, E>,
    ) -> Result<T, E> {
        unimplemented!()
    }

    /// Runs `run` in a read transaction; runs it again as long as it meets a conflict.
    ///
    /// # Errors
    ///
    /// What `run` returns.
    pub fn read<T, E: From<Error>>(
        &self,
        _run: impl FnMut(&ReadTransaction) -> Result<T, E>,
    ) -> Result<T, E> {
        unimplemented!()
    }

    /// Returns when every transaction committed so far is durable.
    ///
    /// # Errors
    ///
    /// `Failed`, `Closed`.
    pub fn flush(&self) -> Result<(), Error> {
        unimplemented!()
    }

    /// Takes a checkpoint and drops the log before it.
    ///
    /// # Errors
    ///
    /// `Failed`, `Closed`, `Device`.
    pub fn checkpoint(&self, _kind: Checkpoint) -> Result<(), Error> {
        unimplemented!()
    }

    /// Counters and gauges.
    pub fn stats(&self) -> Stats {
        unimplemented!()
    }

    /// Walks every tree and checks its order, its links and its checksums, and the pool's books.
    /// Transactions may run meanwhile, but wait where it reads.
    ///
    /// # Errors
    ///
    /// `Corrupt` at the first flaw.
    pub fn check(&self) -> Result<CheckReport, Error> {
        unimplemented!()
    }

    /// Closes the database: writes changed pages home and takes a last checkpoint. Transactions
    /// still open must be gone.
    ///
    /// # Errors
    ///
    /// Those of a checkpoint; the database is closed all the same, and recovers when opened.
    pub fn close(self) -> Result<(), Error> {
        unimplemented!()
    }
}
