//! What can go wrong, one variant for each thing a caller can do about it.
//!
//! Variants carry ids, names, paths, sizes and sources, never a message alone; `Display` says what
//! happened, where, and what to do. What an error is about is in `about`.
//!
//! - E1: an error has at most [`ERROR_BYTES_MAX`] bytes, since every result of a read or a write
//!   has room for one; what is larger is boxed.
//! - E2: errors can be cloned, so that every caller gets the first failure of an engine.

mod about;
mod closing;
mod device;
mod lock_wait;
mod message;
mod pool;

use std::io;
use std::sync::Arc;

use terrace_device::{Contents, Holder};
use terrace_page::{Lsn, PageId};
use terrace_pool::ColdStart;

use crate::schema::Schema;

pub use self::about::{Action, ErrorPath, Part, SavepointFlaw, TableRef, TypeNames};
pub(crate) use self::about::{Places, error_path};
pub(crate) use self::closing::is_of_closing;
pub(crate) use self::lock_wait::locked;
pub use self::lock_wait::{LockWait, TransactionId};

/// Bytes of an error at most (E1).
const ERROR_BYTES_MAX: usize = 40;
const _: () = assert!(size_of::<Error>() <= ERROR_BYTES_MAX);

/// Why an operation failed. There is one variant for each thing that the caller can do about it.
///
/// # Examples
///
/// ```
/// let error = terrace::Error::Conflict;
/// assert!(error.is_transient());
/// assert!(error.to_string().contains("run it again"));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// This transaction was chosen to end a deadlock with another one. Roll it back and run it
    /// again.
    Conflict,
    /// A wait for a lock reached its time limit. Run the transaction again, shorten the one that
    /// holds the lock, or allow more time (`Builder::lock_timeout`).
    LockTimeout(Box<LockWait>),
    /// The lock is held by another transaction of the same thread or task, which would wait for
    /// itself. Use the outer transaction, or end it first.
    Nested(Box<LockWait>),
    /// A database was used from within the closure of `Table::modify`, from `Value::decode`, or
    /// from a `PageObserver`. These run while a page is latched, so the call might deadlock.
    /// Nothing was changed. Make the call before or after the outer one.
    Reentrant,
    /// The lock table is full, or the transaction has too many locks. Use smaller transactions, a
    /// lower `Builder::lock_escalation`, or more `Builder::lock_memory`.
    TooManyLocks,
    /// Too many transactions are open that write, or read with locks. End some.
    TooManyTransactions {
        /// The limit: 65,536.
        max: usize,
    },
    /// The log is too small for the records of this transaction and of its rollback. Split it into
    /// smaller ones, or open the database with a larger limit (`Builder::log_max`), or free space
    /// where the log is if that is full. If the log has a fixed size, `terrace dump` and `terrace
    /// load` make a database with another one.
    LogFull {
        /// Bytes that the transaction has logged.
        own_bytes: u64,
        /// Bytes that are reserved for its rollback.
        rollback_bytes: u64,
        /// Bytes that the operation asked for.
        wanted_bytes: u64,
        /// Bytes that the log holds. A transaction may log half of it.
        capacity: u64,
        /// Whether the log may be longer, but its device or file system had no space for it.
        is_device_full: bool,
    },
    /// The transaction has been open for so long that the log is full of what others have written
    /// since it began, and they are waiting. Run it again, and end it sooner.
    HoldsLog {
        /// Bytes that this transaction has logged.
        own_bytes: u64,
        /// Bytes that the log keeps since it began.
        held_bytes: u64,
        /// Bytes that the log holds.
        capacity: u64,
        /// Whether the log may be longer, but its device or file system had no space for it.
        is_device_full: bool,
    },
    /// The log stayed full until the time limit, because another transaction that began long ago is
    /// still open. End that one.
    LogHeld {
        /// The transaction that holds the log; `None` if it is one of the engine's own.
        holder: Option<TransactionId>,
        /// Bytes that the log keeps since it began.
        held_bytes: u64,
        /// Bytes that the log holds.
        capacity: u64,
        /// Whether the log may be longer, but its device or file system had no space for it.
        is_device_full: bool,
    },
    /// The log has reached its last position, after 255 TiB. Nothing can be changed any more;
    /// everything can be read. Dump the database with `terrace dump` and load it into a new one.
    LogEnds {
        /// The position that the log has come to.
        position: Lsn,
    },
    /// The home has reached its size, or its file system is full. If `is_held_up`, run the
    /// transaction again once others have ended. Otherwise delete rows, free space in the file
    /// system, or open the database again with a larger
    /// [`Builder::home_size`](crate::Builder::home_size).
    HomeFull {
        /// The path of the home.
        path: ErrorPath,
        /// Whether space is about to be free that committed transactions have given up: it is still
        /// being freed, or open transactions or snapshots hold it up.
        is_held_up: bool,
    },
    /// The key is longer than a page allows. Shorten it.
    KeyTooLong {
        /// The table that it was for.
        table: TableRef,
        /// Bytes of the encoded key.
        len: usize,
        /// The most that a key may have.
        max: usize,
    },
    /// The value is longer than a value may be. Split it.
    ValueTooLong {
        /// The table that it was for.
        table: TableRef,
        /// Bytes of the encoded value.
        len: u64,
        /// The most that a value may have.
        max: u64,
    },
    /// A bulk load needs keys in strictly ascending order. Sort them, or use `insert`.
    NotAscending {
        /// The table that was being loaded.
        table: TableRef,
    },
    /// A bulk load needs an empty table. Use `insert`, or delete the table first.
    NotEmpty {
        /// The table.
        table: TableRef,
    },
    /// The bytes that the closure of `modify` has left do not decode as a value of the table;
    /// nothing was changed.
    NotAValue {
        /// The table.
        table: TableRef,
        /// Length of the bytes.
        len: usize,
    },
    /// `decode` of the key or value type has returned `None` for stored bytes of an undamaged page.
    /// Read the table with the type that it was written with.
    Undecodable {
        /// The table.
        table: TableRef,
        /// The type, as Rust calls it.
        type_name: &'static str,
    },
    /// The table exists with other key or value types. Open it with those.
    TableTypes {
        /// The table.
        table: TableRef,
        /// The types that it has.
        stored: Box<TypeNames>,
        /// The types that it was opened with.
        asked: Box<TypeNames>,
    },
    /// The table exists with another schema, or without one; nothing was changed. Open it with its
    /// own, or without asking for one.
    TableSchema {
        /// The table.
        table: TableRef,
        /// The schema that it has.
        stored: Box<Option<Schema>>,
        /// The schema that it was opened with.
        asked: Box<Schema>,
    },
    /// What the catalog has of the table's schema, or of the names of its types, is damaged. Its
    /// rows are not: open it without asking for a schema, or as a
    /// [`RawTable`](crate::RawTable), and copy them into another table; or restore from a backup.
    DamagedSchema {
        /// The table.
        table: TableRef,
        /// What is damaged.
        what: &'static str,
    },
    /// What this snapshot sees, and what was written since, were more than there is memory for
    /// ([`Builder::version_memory`](crate::Builder::version_memory)), so that the snapshot was
    /// ended. Begin another one; allow more memory, let versions go to disk
    /// ([`Builder::version_limit`](crate::Builder::version_limit)), or read for a shorter time.
    SnapshotTooOld,
    /// What this snapshot sees could not be written to the file of old row versions, or read from
    /// it, so that the snapshot was ended. Nothing else is lost: begin another one. If the disk of
    /// the home's folder is full or fails, see to that.
    SnapshotLost {
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// There is no such table. A write transaction creates it by opening it.
    NoSuchTable {
        /// The name that was asked for.
        name: Box<str>,
    },
    /// There is a table of this name already; nothing was changed. Delete it first, or choose
    /// another name.
    TableExists {
        /// The name that was asked for.
        name: Box<str>,
    },
    /// As many tables were made as a database has numbers for, those included that were deleted.
    /// Dump it with `terrace dump` and load it into a new one.
    TooManyTables {
        /// How many numbers there are.
        max: u32,
    },
    /// The savepoint cannot be rolled back to; nothing was changed.
    Savepoint {
        /// Why not.
        flaw: SavepointFlaw,
    },
    /// An earlier operation of the transaction has failed, so that it can only be rolled back.
    Doomed {
        /// Its first failure.
        cause: Option<Arc<Error>>,
    },
    /// A bulk load was begun and not finished: the transaction can only be rolled back.
    UnfinishedLoad,
    /// The database was opened for reading only. Open it for writing.
    ReadOnly,
    /// An option is invalid; nothing was changed.
    InvalidOption {
        /// The option: a method of the builder, or an argument.
        option: &'static str,
        /// What it must be.
        what: &'static str,
    },
    /// There is already a database at the path; nothing was changed. Open it, or choose another
    /// path.
    Exists {
        /// The part that has the path.
        part: Part,
        /// The path.
        path: ErrorPath,
    },
    /// Something other than a database is at the path; nothing was changed. Choose another path, or
    /// allow with `Builder::overwrite` that it is destroyed.
    NotBlank {
        /// The part that has the path.
        part: Part,
        /// The path.
        path: ErrorPath,
        /// What was found.
        found: Contents,
    },
    /// What is at the path is neither a file nor a block device. Choose another path.
    NotAFile {
        /// The part that has the path.
        part: Part,
        /// The path.
        path: ErrorPath,
        /// What is there instead, with its article.
        found: &'static str,
    },
    /// The home is a block device, so the log has no default path. Set it with `Builder::log`.
    LogPlace {
        /// The home.
        home: ErrorPath,
    },
    /// A device or file system has no space for a part; files that were created are removed again.
    /// Free space, or ask for less.
    NoRoom {
        /// The part.
        part: Part,
        /// Its path.
        path: ErrorPath,
        /// Bytes that it was to have.
        needed: u64,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// There is no database at the path: no file, or a blank one. If only the log is missing: give
    /// its path (`Builder::log`), restore home and log from a backup, or save what the home has
    /// with `terrace dump --salvage`.
    Missing {
        /// The part that is not there.
        part: Part,
        /// The path.
        path: ErrorPath,
    },
    /// Another process, or another `Database`, has it open.
    AlreadyOpen {
        /// The part that is in use.
        part: Part,
        /// Its path.
        path: ErrorPath,
        /// The process that has it open, as far as the system tells.
        holder: Box<Holder>,
    },
    /// The database was opened by the parent of this process before the fork, and cannot be used by
    /// the child. Open it after the fork, in one of the processes.
    Forked {
        /// The process that opened it.
        pid: u32,
    },
    /// The file is not a database, or not a part of this one; nothing was changed.
    NotADatabase {
        /// Which part.
        part: Part,
        /// Its path.
        path: ErrorPath,
        /// What was found instead.
        what: &'static str,
    },
    /// The file or the device is shorter than the database that it holds; nothing was touched.
    /// Restore it from a backup.
    Truncated {
        /// Which part.
        part: Part,
        /// Its path.
        path: ErrorPath,
        /// Bytes that it must have.
        needed: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// The database was written by a newer version. Use that one.
    NewerFormat {
        /// Which part says so.
        part: Part,
        /// Its path.
        path: ErrorPath,
        /// The format version found.
        found: u32,
        /// The newest that this version reads.
        supported: u32,
    },
    /// The database was written by an older version. Convert it with `terrace upgrade`.
    OlderFormat {
        /// Which part says so.
        part: Part,
        /// Its path.
        path: ErrorPath,
        /// The format version found.
        found: u32,
        /// The oldest that this version reads.
        supported: u32,
    },
    /// The database uses features that this version does not know; nothing was changed. Use a newer
    /// version; if `incompatible` is zero, it can be opened for reading only.
    UnknownFeatures {
        /// The path of the home.
        path: ErrorPath,
        /// Bits of features without which nothing can be read.
        incompatible: u64,
        /// Bits of features without which nothing must be written.
        read_only: u64,
    },
    /// Stored bytes break their format. Restore from a backup.
    Corrupt {
        /// Which part.
        part: Part,
        /// Its path.
        path: ErrorPath,
        /// The page.
        page: PageId,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The log breaks its format before its end. Restore from a backup.
    CorruptLog {
        /// The path of the log.
        path: ErrorPath,
        /// Where.
        lsn: Lsn,
        /// What is wrong there.
        what: &'static str,
    },
    /// During redo a page had another version than the one that its log record was written on, so
    /// home and log do not belong together. Restore both from one backup.
    RedoGap {
        /// The page.
        page: PageId,
        /// The record to be redone.
        record: Lsn,
        /// The page LSN that the record was written on.
        expected: Lsn,
        /// The page LSN found.
        found: Lsn,
    },
    /// Flash is a part of this database and has changes that home and log lack, but cannot be used.
    /// Nothing was changed. Attach the flash device that the database used last, or restore home,
    /// log and flash from one backup.
    FlashNeeded {
        /// The path of the flash.
        path: ErrorPath,
        /// Why it cannot be used.
        why: ColdStart,
    },
    /// Every frame of memory is in use by operations that wait for another one. Run the transaction
    /// again. If this is frequent, use more memory (`Builder::memory`) or fewer concurrent
    /// operations.
    AllPinned,
    /// The system refuses the process a thread or a file descriptor that opening needs. Raise the
    /// limits of the process. Nothing was opened or created.
    NoThread {
        /// What the system says.
        source: Arc<io::Error>,
    },
    /// A device failed.
    Device {
        /// The part on that device.
        part: Part,
        /// Its path.
        path: ErrorPath,
        /// The operation that failed.
        action: Action,
        /// The page that it was for, if it was for one.
        page: Option<PageId>,
        /// The error of the system.
        source: Arc<io::Error>,
    },
    /// A panic has interrupted the change of a page. The engine stops; opening the database again
    /// recovers it.
    Panicked {
        /// The page.
        page: Option<PageId>,
    },
    /// The engine has stopped after a failed write, since later writes might be lost. It refuses
    /// reads, too, because memory may hold changes that were never committed. Open the database
    /// again to recover it.
    Failed {
        /// The first failure.
        cause: Option<Arc<Error>>,
    },
    /// The database is closed, or its virtual world has lost power.
    Closed,
}

impl Error {
    /// Whether running the same transaction again may succeed.
    ///
    /// ```
    /// # use terrace::Error;
    /// assert!(Error::Conflict.is_transient() && !Error::Closed.is_transient());
    /// ```
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Conflict
            | Error::LockTimeout(_)
            | Error::HoldsLog { .. }
            | Error::LogHeld { .. }
            | Error::HomeFull { is_held_up: true, .. }
            | Error::AllPinned
            | Error::SnapshotTooOld
            | Error::SnapshotLost { .. }
            | Error::TooManyTransactions { .. } => true,
            Error::Doomed { cause: Some(cause) } => cause.is_transient(),
            _ => false,
        }
    }

    /// The device of `part` failed at `action`.
    pub(crate) fn device(part: Part, action: Action) -> impl Fn(io::Error) -> Error + Copy {
        move |source| Error::Device {
            part,
            path: None,
            action,
            page: None,
            source: Arc::new(source),
        }
    }

    /// `page` of `part` breaks its format.
    pub(crate) fn corrupt(part: Part, page: PageId, what: &'static str) -> Error {
        Error::Corrupt { part, path: None, page, what }
    }

    /// The log breaks its format at `lsn`.
    pub(crate) fn corrupt_log(lsn: Lsn, what: &'static str) -> Error {
        Error::CorruptLog { path: None, lsn, what }
    }

    /// The engine has stopped; why is not known here.
    pub(crate) const STOPPED: Error = Error::Failed { cause: None };
    /// Home has no room.
    pub(crate) const HOME_FULL: Error = Error::HomeFull { path: None, is_held_up: false };
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Device { source, .. }
            | Error::NoRoom { source, .. }
            | Error::SnapshotLost { source }
            | Error::NoThread { source } => Some(&**source),
            Error::Failed { cause: Some(cause) } | Error::Doomed { cause: Some(cause) } => {
                Some(&**cause)
            }
            _ => None,
        }
    }
}
