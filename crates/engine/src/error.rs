//! What can go wrong, one variant for each thing a caller can do about it.
//!
//! Variants carry ids, names, paths, sizes and sources, never a message alone; `Display` says what
//! happened, where, and what to do. What an error is about is in `about`.
//!
//! - E1: an error has at most [`ERROR_BYTES_MAX`] bytes, since every result of a read or a write
//!   has room for one; what is larger is boxed.
//! - E2: errors can be cloned, so that every caller is told the first failure of an engine.

mod about;
mod device;
mod lock_wait;
mod message;
mod pool;

use std::io;
use std::sync::Arc;

use terrace_device::{Contents, Holder};
use terrace_page::{Lsn, PageId};
use terrace_pool::ColdStart;

pub use self::about::{Action, ErrorPath, Part, SavepointFlaw, TableRef, TypeNames};
pub(crate) use self::about::{Places, error_path};
pub(crate) use self::lock_wait::locked;
pub use self::lock_wait::{LockWait, TransactionId};

/// Bytes of an error at most (E1).
const ERROR_BYTES_MAX: usize = 40;
const _: () = assert!(size_of::<Error>() <= ERROR_BYTES_MAX);

/// Why an operation failed: one variant for each thing a caller can do.
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
    /// Another transaction stands in the way and one of the two had to go: run this one again.
    Conflict,
    /// A lock was waited for until the time limit: run the transaction again, shorten the one that
    /// holds the lock, or allow more time (`Builder::lock_timeout`).
    LockTimeout(Box<LockWait>),
    /// The lock is held by a transaction of the same `Database::write` or `Database::read` that
    /// waits here: it would wait for itself. Use the outer transaction.
    Nested(Box<LockWait>),
    /// The call came from inside another one: from the closure of `Table::modify`, from
    /// `Value::decode` while that checks what the closure left, or from a `PageObserver`. They run
    /// while a page is latched, so it might wait for itself for ever. Nothing was changed; make it
    /// before the outer call or after it.
    Reentrant,
    /// The lock table is full. Use smaller transactions, or allow it more memory.
    TooManyLocks,
    /// As many transactions are open as there may be, readers included. End some.
    TooManyTransactions {
        /// How many there may be: 4,096.
        max: usize,
    },
    /// The log is too small for this transaction, with what its rollback would need. Split it into
    /// smaller ones, or give the database a larger log (`Builder::log_size`).
    LogFull {
        /// Bytes that the transaction has logged.
        own_bytes: u64,
        /// Bytes that are kept for its rollback.
        rollback_bytes: u64,
        /// Bytes that the operation asked for.
        wanted_bytes: u64,
        /// Bytes that the log holds. A transaction may log half of it.
        capacity: u64,
    },
    /// The transaction is open for so long that the log is full of what others have written since
    /// it began, and they wait. It gives way: run it again, and end it sooner.
    HoldsLog {
        /// Bytes that it has logged itself.
        own_bytes: u64,
        /// Bytes that the log keeps since it began.
        held_bytes: u64,
        /// Bytes that the log holds.
        capacity: u64,
    },
    /// The log stayed full for as long as a transaction waits for room, because another one that
    /// began long ago is still open. End that one.
    LogHeld {
        /// The transaction that holds the log; `None` if it is one of the engine's own.
        holder: Option<TransactionId>,
        /// Bytes that the log keeps since it began.
        held_bytes: u64,
        /// Bytes that the log holds.
        capacity: u64,
    },
    /// The log has come to the end of the positions that tables on flash can hold, after 255 TiB:
    /// nothing can be changed any more, and all can be read. Save the database with `terrace dump`
    /// and load it into a new one, whose log begins anew.
    LogEnds {
        /// The position that the log has come to.
        position: Lsn,
    },
    /// The home, or the file system that it grows on, has no room for another page. Delete
    /// something, or make room on its device; then all goes on. Or open the database again with a
    /// larger [`Builder::home_size`](crate::Builder::home_size).
    HomeFull {
        /// The path of the home.
        path: ErrorPath,
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
    /// Bulk loading wants keys in strictly ascending order. Sort them, or insert them.
    NotAscending {
        /// The table that was being loaded.
        table: TableRef,
    },
    /// Bulk loading wants an empty table. Insert the entries, or delete the table first.
    NotEmpty {
        /// The table.
        table: TableRef,
    },
    /// What `modify` left is no value of the table's type; nothing was changed.
    NotAValue {
        /// The table.
        table: TableRef,
        /// Bytes that it left.
        len: usize,
    },
    /// A page is whole, and the type of the table's keys or values does not decode what it holds:
    /// `decode` gave `None`. Read it with a type that knows what was written.
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
    /// There is no such table. A write transaction creates it by opening it.
    NoSuchTable {
        /// The name that was asked for.
        name: Box<str>,
    },
    /// The savepoint cannot be rolled back to; nothing was changed.
    Savepoint {
        /// Why not.
        flaw: SavepointFlaw,
    },
    /// The transaction failed before, and can only be rolled back.
    Doomed {
        /// Its first failure.
        cause: Option<Arc<Error>>,
    },
    /// A bulk load was begun and not finished: the transaction can only be rolled back.
    UnfinishedLoad,
    /// The database was opened for reading only. Open it for writing.
    ReadOnly,
    /// An option makes no sense; nothing was touched.
    InvalidOption {
        /// The option: a method of the builder, or an argument.
        option: &'static str,
        /// What it must be.
        what: &'static str,
    },
    /// There is already something at the path; nothing was touched. Open it, or choose another.
    Exists {
        /// The part that has the path.
        part: Part,
        /// The path.
        path: ErrorPath,
    },
    /// Something else than a database is at the path; nothing was touched. Choose another path, or
    /// say with `Builder::overwrite` that it may be destroyed.
    NotBlank {
        /// The part that has the path.
        part: Part,
        /// The path.
        path: ErrorPath,
        /// What was found.
        found: Contents,
    },
    /// At the path is neither a file nor a block device. Choose another path.
    NotAFile {
        /// The part that has the path.
        part: Part,
        /// The path.
        path: ErrorPath,
        /// What is there instead, with its article.
        found: &'static str,
    },
    /// The home is a block device: beside it there is no place for a log. Say with `Builder::log`
    /// where the log is.
    LogPlace {
        /// The home.
        home: ErrorPath,
    },
    /// A device, or the file system of a file, has no room for a part; nothing is left of what was
    /// made. Make room, or ask for less.
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
    /// There is no database at the path: no file, or a blank one. Where it is the log that is not
    /// there, the home is: say where the log is (`Builder::log`), restore both from a backup, or
    /// save with `terrace dump --salvage` what the home has by itself.
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
        /// Who has it, as far as the system tells.
        holder: Box<Holder>,
    },
    /// The engine was opened by the parent of this process. It belongs to the parent; nothing was
    /// touched. Open the database in one process only, after the fork.
    Forked {
        /// The process that opened it.
        pid: u32,
    },
    /// What is stored there is no database, or not this one's; nothing was touched.
    NotADatabase {
        /// Which part.
        part: Part,
        /// Its path.
        path: ErrorPath,
        /// How it was seen.
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
    /// The database has features that this version does not know; nothing was changed. Use a newer
    /// version, or, where only `read_only` is not zero, open it for reading.
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
    /// Redo met a version of a page that the log does not lead on from. The engine
    /// refuses to open: the page or the log is not the one that was written last.
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
    /// Flash is a part of this database, has changes that home and log lack, and cannot be used.
    /// Nothing was changed. Give it the flash device, whole, that it had last; or restore a backup.
    FlashNeeded {
        /// The path of the flash.
        path: ErrorPath,
        /// Why it cannot be used.
        why: ColdStart,
    },
    /// Every frame of memory is in use, by operations that need more of them and wait for each
    /// other. Run the transaction again; if that is told often, use fewer tasks at a time, or give
    /// the database more memory.
    AllPinned,
    /// The system gives the process no thread, or no file descriptor, and an opening needs one.
    /// Raise its limits, or have it do with less elsewhere. Nothing was opened or made.
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
        /// What it was to do.
        action: Action,
        /// With which page, where it was one.
        page: Option<PageId>,
        /// What it said.
        source: Arc<io::Error>,
    },
    /// A panic left a page half changed. The engine stops; opening the database again recovers it.
    Panicked {
        /// The page.
        page: Option<PageId>,
    },
    /// The engine has stopped after its first failure, since writes may be lost. It refuses reads,
    /// too: what memory shows may never have been committed. Reopen it, to recover.
    Failed {
        /// That failure.
        cause: Option<Arc<Error>>,
    },
    /// The database is closed, or its world lost power.
    Closed,
}

impl Error {
    /// Whether running the same transaction again may well succeed.
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
            | Error::AllPinned
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
    pub(crate) const HOME_FULL: Error = Error::HomeFull { path: None };
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Device { source, .. }
            | Error::NoRoom { source, .. }
            | Error::NoThread { source } => Some(&**source),
            Error::Failed { cause: Some(cause) } | Error::Doomed { cause: Some(cause) } => {
                Some(&**cause)
            }
            _ => None,
        }
    }
}
