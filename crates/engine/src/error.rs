//! What can go wrong, one variant for each thing a caller can do about it.
//!
//! Variants carry ids, sizes and sources, never a `String`; `Display` says what happened and what
//! to do. A variant that dooms a transaction says so: the transaction is rolled back when dropped.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use terrace_page::{Lsn, PageId, TxnId};
use terrace_pool::ColdStart;
use terrace_rt::Nanos;

use crate::TreeId;

/// A part of a database that lives on a device of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The permanent home of all pages.
    Home,
    /// The flash tier.
    Flash,
    /// The log.
    Log,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Home => "home",
            Part::Flash => "flash",
            Part::Log => "log",
        })
    }
}

/// Why an operation failed: one variant for each thing a caller can do.
///
/// # Examples
///
/// ```
/// let error = terrace::Error::Conflict;
/// assert!(error.is_transient());
/// assert!(error.to_string().contains("run it again"));
/// ```
#[derive(Debug)]
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
    /// The lock table is full. Use smaller transactions, or allow it more memory.
    TooManyLocks,
    /// The log has no room for this transaction: it wrote too much itself, or it is the oldest one
    /// and others wait for the log that it holds. Use smaller or shorter transactions, or a larger
    /// log.
    LogFull {
        /// Bytes that the transaction has logged.
        own_bytes: u64,
        /// Bytes that the log holds.
        capacity: u64,
    },
    /// The log stayed full for as long as a transaction waits for room, because another one that
    /// began long ago is still open. End that one.
    LogHeld {
        /// The transaction that holds the log.
        txn: TxnId,
        /// Bytes that the log keeps since it began.
        held_bytes: u64,
        /// Bytes that the log holds.
        capacity: u64,
    },
    /// The home, or the file system that it grows on, has no room for another page. Delete
    /// something, make room on its device, or enlarge it; then all goes on.
    HomeFull,
    /// The key is longer than a page allows. Shorten it.
    KeyTooLong {
        /// Bytes of the encoded key.
        len: usize,
        /// The most that a key may have.
        max: usize,
    },
    /// The value is longer than a value may be. Split it.
    ValueTooLong {
        /// Bytes of the encoded value.
        len: u64,
        /// The most that a value may have.
        max: u64,
    },
    /// Bulk loading wants keys in strictly ascending order, into an empty table.
    NotAscending,
    /// The table exists with other key or value types. Open it with those.
    TableTypes {
        /// The table's tree.
        tree: TreeId,
    },
    /// There is no such table. A write transaction creates it by opening it.
    NoSuchTable,
    /// The transaction failed before, and can only be rolled back.
    Doomed,
    /// An option of the builder makes no sense; nothing was touched.
    InvalidOption {
        /// Which option, and what it must be.
        what: &'static str,
    },
    /// There is already something at the path; nothing was touched. Open it, or choose another.
    Exists {
        /// The part that has the path.
        part: Part,
    },
    /// There is no database at the path.
    Missing {
        /// The part that is not there.
        part: Part,
    },
    /// Another process, or another `Database`, has it open.
    AlreadyOpen {
        /// The part that it keeps.
        part: Part,
        /// The file or device that is locked.
        path: PathBuf,
        /// The process that has it, if the system tells.
        holder: Option<u32>,
    },
    /// The database was opened to be read only. Open it without that to change it.
    ReadOnly,
    /// What is stored there is not this database's; nothing was touched.
    NotADatabase {
        /// Which part.
        part: Part,
        /// How it was seen.
        what: &'static str,
    },
    /// The database was written by a newer version. Use that one.
    NewerFormat {
        /// The format version found.
        found: u32,
        /// The newest that this version reads.
        supported: u32,
    },
    /// The database has a format that this version does not open any more; nothing was changed.
    /// Convert it with `terrace upgrade`.
    OlderFormat {
        /// The format version found.
        found: u32,
        /// The one that this version reads.
        supported: u32,
    },
    /// The database has features that this version does not know; nothing was changed. Use a newer
    /// version, or, where only `read_only` is not zero, open it for reading.
    UnknownFeatures {
        /// Bits of features without which nothing can be read.
        incompatible: u64,
        /// Bits of features without which nothing must be written.
        read_only: u64,
    },
    /// Stored bytes break their format. Restore from a backup.
    Corrupt {
        /// Which part.
        part: Part,
        /// The page, where there is one.
        page: PageId,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The log breaks its format before its end. Restore from a backup.
    CorruptLog {
        /// Where.
        lsn: Lsn,
        /// What is wrong there.
        what: &'static str,
    },
    /// Redo met a version of a page that the log does not lead on from (SPEC 1.3). The engine
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
        /// Why it cannot be used.
        why: ColdStart,
    },
    /// Every frame of memory is in use. Use fewer tasks, or give more memory.
    AllPinned,
    /// A device failed.
    Device {
        /// The part on that device.
        part: Part,
        /// What it said.
        source: io::Error,
    },
    /// An earlier write failed and may be lost, so nothing more is written. Reopen, to recover.
    Failed,
    /// The database is closed, or its world lost power.
    Closed,
}

/// A lock that a transaction waited for in vain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockWait {
    /// The number of the table, or of the catalog of tables.
    pub tree: TreeId,
    /// The name of the table; empty if it has none yet, as the catalog.
    pub table: String,
    /// The key, as it is stored; empty beyond the last key. `None`: the whole table.
    pub key: Option<Vec<u8>>,
    /// The number of a transaction that holds the lock, if that one has written.
    pub holder: Option<u64>,
    /// How long it was waited for.
    pub waited: Nanos,
}

impl LockWait {
    fn timed_out(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = "run this transaction again, end that one earlier, or allow more time";
        write!(f, "{self}, after {} ms: {what}", self.waited.0 / 1_000_000)
    }

    fn nested(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = "both are of one task, which would wait for itself: use the outer one";
        write!(f, "{self}, within which this transaction began; {what}")
    }
}

/// Bytes of a key that a message shows.
const KEY_SHOWN: usize = 48;

impl fmt::Display for LockWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            None => f.write_str("the lock of ")?,
            Some(key) if key.is_empty() => f.write_str("the lock of the end of ")?,
            Some(key) => {
                f.write_str("the lock of key ")?;
                let shown = &key[..key.len().min(KEY_SHOWN)];
                match std::str::from_utf8(shown) {
                    Ok(text) if !text.chars().any(char::is_control) => write!(f, "{text:?}")?,
                    _ => {
                        f.write_str("0x")?;
                        shown.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                    }
                }
                if key.len() > KEY_SHOWN {
                    write!(f, "... ({} bytes)", key.len())?;
                }
                f.write_str(" of ")?;
            }
        }
        match &*self.table {
            "" => write!(f, "{}", self.tree)?,
            name => write!(f, "table {name:?}")?,
        }
        match self.holder {
            Some(holder) => write!(f, " is held by transaction {holder}"),
            None => f.write_str(" is held by a transaction that has written nothing"),
        }
    }
}

impl Error {
    /// Whether running the same transaction again may well succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Error::Conflict | Error::LockTimeout(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Conflict => f.write_str("another transaction stands in the way: run it again"),
            Error::LockTimeout(wait) => wait.timed_out(f),
            Error::Nested(wait) => wait.nested(f),
            Error::TooManyLocks => f.write_str(
                "the lock table is full: use smaller transactions, or allow it more memory",
            ),
            Error::LogFull { own_bytes, capacity } => write!(
                f,
                "the log of {capacity} bytes has no room for this transaction, which has written \
                 {own_bytes}: use smaller or shorter ones, or a larger log",
            ),
            Error::LogHeld { txn, held_bytes, capacity } => write!(
                f,
                "the log is full: {txn}, still open, keeps {held_bytes} of its {capacity} bytes; \
                 end it, and run this one again",
            ),
            Error::HomeFull => {
                f.write_str("the home is full: delete something, or make room on its device")
            }
            Error::KeyTooLong { len, max } => {
                write!(f, "a key of {len} bytes is too long: at most {max}")
            }
            Error::ValueTooLong { len, max } => {
                write!(f, "a value of {len} bytes is too long: at most {max}")
            }
            Error::NotAscending => f.write_str(
                "bulk loading wants strictly ascending keys and an empty table: use insert",
            ),
            Error::TableTypes { tree } => {
                write!(f, "the table ({tree}) has other key or value types: open it with those")
            }
            Error::NoSuchTable => {
                f.write_str("no such table: a write transaction creates it when it opens it")
            }
            Error::Doomed => {
                f.write_str("the transaction failed before: roll it back and run it again")
            }
            Error::InvalidOption { what } => write!(f, "invalid option: {what}"),
            Error::Exists { part } => write!(
                f,
                "something is at the path of the {part} already, and stays there: open it, or \
                 choose another path",
            ),
            Error::Missing { part } => write!(f, "no database here: its {part} is missing"),
            Error::AlreadyOpen { path, holder, .. } => already_open(f, path, *holder),
            Error::ReadOnly => f.write_str("the database is read only: open it for writing"),
            Error::NotADatabase { part, what } => {
                write!(f, "the {part} is not of this database: {what}; nothing was changed")
            }
            Error::NewerFormat { found, supported } => other_format(f, *found, *supported),
            Error::OlderFormat { found, supported } => other_format(f, *found, *supported),
            Error::UnknownFeatures { incompatible, read_only } => {
                unknown_features(f, *incompatible, *read_only)
            }
            Error::Corrupt { part, page, what } => {
                write!(f, "{page} is corrupt at {part}: {what}; restore it from a backup")
            }
            Error::CorruptLog { lsn, what } => {
                write!(f, "the log is corrupt at {lsn}: {what}; restore it from a backup")
            }
            Error::RedoGap { page, record, expected, found } => write!(
                f,
                "{page} has {found} where the record at {record} was written on {expected}: \
                 home and log do not belong together; restore both from a backup",
            ),
            Error::FlashNeeded { why } => flash_needed(f, *why),
            Error::AllPinned => f.write_str("every frame of memory is in use: give it more memory"),
            Error::Device { part, source } => write!(f, "the {part} device failed: {source}"),
            Error::Failed => {
                f.write_str("an earlier write failed, nothing more is written: reopen to recover")
            }
            Error::Closed => f.write_str("the database is closed"),
        }
    }
}

fn other_format(f: &mut fmt::Formatter<'_>, found: u32, supported: u32) -> fmt::Result {
    write!(f, "the database has format {found}, this version reads {supported}: ")?;
    f.write_str(match found > supported {
        true => "use a newer one; nothing was changed",
        false => "convert it with `terrace upgrade`; nothing was changed",
    })
}

fn unknown_features(f: &mut fmt::Formatter<'_>, needed: u64, to_write: u64) -> fmt::Result {
    match needed {
        0 => write!(f, "the database has features (bits {to_write:#x}) that this version cannot ")?,
        _ => write!(f, "the database has features (bits {needed:#x}) that this version does not ")?,
    }
    f.write_str(match needed {
        0 => "write: use a newer version, or open it for reading only; nothing was changed",
        _ => "know: use a newer version; nothing was changed",
    })
}

fn already_open(f: &mut fmt::Formatter<'_>, path: &Path, holder: Option<u32>) -> fmt::Result {
    write!(f, "{}: the database is already open", path.display())?;
    match holder {
        Some(process) => write!(f, " in process {process}: close it there first"),
        None => f.write_str(": close it there first"),
    }
}

fn flash_needed(f: &mut fmt::Formatter<'_>, why: ColdStart) -> fmt::Result {
    write!(
        f,
        "the flash tier has changes that home and log lack, and cannot be used: {why}; nothing was \
         opened: {}",
        remedy(why),
    )
}

/// What to do about flash that is needed.
fn remedy(why: ColdStart) -> &'static str {
    match why {
        ColdStart::NotPersistent => {
            "open it with persistent flash; a sharp checkpoint then brings all home"
        }
        ColdStart::NoDevice => "name the flash device that the database had last",
        ColdStart::Forget | ColdStart::OtherRestart => "open it with the restart it had last",
        ColdStart::OtherShape => "open it with the flash size and the partitions it had last",
        ColdStart::Version => "open it with the version that wrote the flash device",
        ColdStart::Device(_) => "see to the device, and open it again",
        _ => "attach the device that it had last, or restore home, log and flash from one backup",
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Device { source, .. } => Some(source),
            _ => None,
        }
    }
}
