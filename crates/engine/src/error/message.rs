//! What errors say: what is wrong, where, and what to do about it.

use std::fmt;
use std::path::Path;

use terrace_device::{DeviceError, Holder};
use terrace_page::PageId;
use terrace_pool::ColdStart;

use super::about::{Action, ErrorPath, Part, SavepointFlaw};
use crate::Error;
use crate::trees::CATALOG;

/// Characters of a name that a caller has given, at most.
const NAME_SHOWN: usize = 100;

/// A part, and its path if it is known.
struct At<'a>(Part, &'a ErrorPath);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(path) => write!(f, "the {} {}", self.0, path.display()),
            None => write!(f, "the {}", self.0),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Conflict
            | Error::LockTimeout(_)
            | Error::Nested(_)
            | Error::Reentrant
            | Error::TooManyLocks
            | Error::TooManyTransactions { .. }
            | Error::LogFull { .. }
            | Error::HoldsLog { .. }
            | Error::LogHeld { .. }
            | Error::LogEnds { .. }
            | Error::Savepoint { .. }
            | Error::Doomed { .. }
            | Error::SnapshotTooOld
            | Error::SnapshotLost { .. }
            | Error::UnfinishedLoad => of_transaction(self, f),
            Error::KeyTooLong { .. }
            | Error::ValueTooLong { .. }
            | Error::NotAscending { .. }
            | Error::NotEmpty { .. }
            | Error::NotAValue { .. }
            | Error::Undecodable { .. }
            | Error::TableTypes { .. }
            | Error::TableSchema { .. }
            | Error::DamagedSchema { .. }
            | Error::TableExists { .. }
            | Error::TooManyTables { .. }
            | Error::NoSuchTable { .. } => of_table(self, f),
            Error::InvalidOption { .. }
            | Error::Exists { .. }
            | Error::NotBlank { .. }
            | Error::NotAFile { .. }
            | Error::LogPlace { .. }
            | Error::NoRoom { .. }
            | Error::Missing { .. }
            | Error::AlreadyOpen { .. }
            | Error::Forked { .. }
            | Error::NotADatabase { .. }
            | Error::Truncated { .. }
            | Error::NewerFormat { .. }
            | Error::OlderFormat { .. }
            | Error::UnknownFeatures { .. }
            | Error::FlashNeeded { .. } => of_opening(self, f),
            _ => of_engine(self, f),
        }
    }
}

/// Messages for a transaction.
fn of_transaction(error: &Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match error {
        Error::LockTimeout(wait) => wait.timed_out(f),
        Error::Nested(wait) => wait.nested(f),
        Error::Reentrant => f.write_str(
            "a database was used from the closure of `modify`, or from other code that the engine \
             calls while a page is latched: do that before or after the call",
        ),
        Error::TooManyLocks => f.write_str(
            "too many locks: use smaller transactions, a lower `lock_escalation` or more \
             `lock_memory`",
        ),
        Error::TooManyTransactions { max } => {
            write!(f, "{max} transactions are open, which is the limit: end some of them")
        }
        Error::LogFull { .. }
        | Error::HoldsLog { .. }
        | Error::LogHeld { .. }
        | Error::LogEnds { .. } => of_log(error, f),
        Error::Savepoint { flaw: SavepointFlaw::OtherTransaction } => {
            f.write_str("the savepoint belongs to another transaction: use one of this transaction")
        }
        Error::Savepoint { flaw: SavepointFlaw::RolledBack } => f.write_str(
            "the savepoint is no longer valid, since the transaction was rolled back to an \
             earlier one: create a new one",
        ),
        Error::Doomed { cause: Some(cause) } => {
            write!(f, "an earlier operation of this transaction failed, roll it back: {cause}")
        }
        Error::Doomed { cause: None } => f.write_str(
            "an earlier operation of this transaction failed: roll it back and run it again",
        ),
        Error::SnapshotTooOld => f.write_str(
            "the snapshot was ended, since the versions of rows that it may see took more than \
             `version_memory`, or `version_limit` if that is set: begin another one, allow more, \
             or read for a shorter time",
        ),
        Error::SnapshotLost { source } => write!(
            f,
            "the snapshot was ended, since the file of old row versions failed: begin another one, \
             and see to the disk of the home's folder: {source}",
        ),
        Error::UnfinishedLoad => f.write_str(
            "a bulk load of the transaction was not finished: call Loader::finish first, or roll \
             the transaction back",
        ),
        _ => f.write_str("deadlock with another transaction: roll this one back and run it again"),
    }
}

/// The message for a transaction that finds no room in the log.
fn of_log(error: &Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match error {
        Error::LogFull { own_bytes, rollback_bytes, wanted_bytes, capacity, is_device_full } => {
            write!(
                f,
                "the log of {capacity} bytes is too small for this transaction, which has logged \
                 {own_bytes} bytes, has reserved {rollback_bytes} for its rollback and needs \
                 {wanted_bytes} more: split it into smaller ones, or ",
            )?;
            f.write_str(match is_device_full {
                true => "free space where the log is, which may be longer and found none",
                false => "give the database a larger log",
            })?;
            f.write_str(" (a transaction may fill half of it)")
        }
        Error::HoldsLog { own_bytes, held_bytes, capacity, is_device_full } => {
            write!(
                f,
                "the log is full: {held_bytes} of its {capacity} bytes cannot be cut because this \
                 transaction, which has logged {own_bytes} itself, is still open, and others are \
                 waiting: run it again, and end it sooner",
            )?;
            of_short_log(*is_device_full, f)
        }
        Error::LogEnds { position } => write!(
            f,
            "the log has reached {position}, its last position: nothing can be changed any more; \
             dump the database with `terrace dump`, and load it into a new one",
        ),
        Error::LogHeld { holder, held_bytes, capacity, is_device_full } => {
            f.write_str("the log is full: ")?;
            match holder {
                Some(holder) => write!(f, "{holder}")?,
                None => f.write_str("a transaction of the engine")?,
            }
            write!(
                f,
                ", still open, prevents {held_bytes} of its {capacity} bytes from being cut: end \
                 it, and run this one again",
            )?;
            of_short_log(*is_device_full, f)
        }
        _ => unreachable!("no error of the log's room"),
    }
}

fn of_short_log(is_device_full: bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(match is_device_full {
        true => "; the log may be longer, and found no space where it is: free some there",
        false => "",
    })
}

/// A name that a caller has given, which may be of any length and have any characters.
fn shown(name: &str) -> String {
    let shown: String = name.chars().take(NAME_SHOWN).collect();
    match shown.len() == name.len() {
        true => shown.escape_debug().to_string(),
        false => format!("{}...", shown.escape_debug()),
    }
}

/// Messages for the caller of a table.
fn of_table(error: &Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match error {
        Error::KeyTooLong { table, len, max } if table.tree() == CATALOG => {
            // Before the name stands one byte.
            let (len, max) = (len - 1, max - 1);
            write!(f, "a name of {len} bytes is too long for a table: at most {max}")
        }
        Error::KeyTooLong { table, len, max } => {
            write!(f, "a key of {len} bytes is too long for {table}: at most {max}")
        }
        Error::ValueTooLong { table, len, max } => {
            write!(f, "a value of {len} bytes is too long for {table}: at most {max}")
        }
        Error::NotAscending { table } => write!(
            f,
            "a bulk load of {table} needs keys in strictly ascending order: sort them, or use \
             insert",
        ),
        Error::NotEmpty { table } => write!(
            f,
            "{table} has entries, and a bulk load needs an empty table: use insert, or delete the \
             table first",
        ),
        Error::NotAValue { table, len } => write!(
            f,
            "the {len} bytes that the closure of `modify` has left do not decode as a value of \
             {table}: nothing was changed",
        ),
        Error::Undecodable { table, type_name } => write!(
            f,
            "{type_name} cannot decode bytes of {table}, in a page that is not damaged: read it \
             with the type that it was written with",
        ),
        Error::TableTypes { table, stored, asked } => {
            write!(
                f,
                "{table} has the types {stored}, but was opened with {asked}: open it with its own"
            )
        }
        Error::TableSchema { table, stored, asked } => {
            match &**stored {
                Some(stored) => write!(f, "{table} has the schema {stored}")?,
                None => write!(f, "{table} has no schema")?,
            }
            write!(f, ", but was opened with {asked}: open it with its own, or without one")
        }
        Error::DamagedSchema { table, what } => write!(
            f,
            "the catalog's entry of {table} is damaged: {what}; its rows are not: open it without \
             asking for a schema, or as a raw table, and copy them into another table",
        ),
        Error::NoSuchTable { name } => write!(
            f,
            "there is no table \"{}\": open it in a write transaction to create it",
            shown(name),
        ),
        Error::TableExists { name } => write!(
            f,
            "there is a table \"{}\" already: delete it first, or choose another name",
            shown(name),
        ),
        Error::TooManyTables { max } => write!(
            f,
            "{max} tables were made in this database, as many as there are numbers for: dump it \
             with `terrace dump`, and load it into a new one",
        ),
        _ => unreachable!("no error of a table"),
    }
}

/// Messages about a database that is not opened, or not here.
fn of_opening(error: &Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match error {
        Error::InvalidOption { option, what } => write!(f, "invalid option {option}: {what}"),
        Error::Exists { part, path } => {
            let at = At(*part, path);
            write!(f, "{at} exists already, and was not changed: open it, or choose another path")
        }
        Error::Missing { part, path } => missing(At(*part, path), f),
        Error::AlreadyOpen { part, path, holder } => {
            write!(f, "{} is in use by {holder}: {}", At(*part, path), way_out(holder))
        }
        Error::NotBlank { .. }
        | Error::NotAFile { .. }
        | Error::LogPlace { .. }
        | Error::NoRoom { .. } => of_place(error, f),
        Error::Forked { pid } => write!(
            f,
            "the database was opened by process {pid} before it forked this one: open it after \
             the fork, in one of the two processes",
        ),
        Error::NotADatabase { part, path, what } => not_a_database(At(*part, path), what, f),
        Error::Truncated { part, path, needed, found } => write!(
            f,
            "{} was cut short: it has {found} bytes of {needed}; nothing was changed, restore it \
             from a backup",
            At(*part, path),
        ),
        Error::NewerFormat { part, path, found, supported } => write!(
            f,
            "{} has format {found}, this version reads {supported}: use a newer one; nothing was \
             changed",
            At(*part, path),
        ),
        Error::OlderFormat { part, path, found, supported } => write!(
            f,
            "{} has format {found}, this version reads {supported}: convert it with `terrace \
             upgrade`; nothing was changed",
            At(*part, path),
        ),
        Error::UnknownFeatures { path, incompatible: 0, read_only } => write!(
            f,
            "{} has features (bits {read_only:#x}) that this version cannot write: use a newer \
             version, or open it for reading only; nothing was changed",
            At(Part::Home, path),
        ),
        Error::UnknownFeatures { path, incompatible, .. } => write!(
            f,
            "{} has features (bits {incompatible:#x}) that this version does not know: use a \
             newer version; nothing was changed",
            At(Part::Home, path),
        ),
        Error::FlashNeeded { path, why } => write!(
            f,
            "{} has changes that home and log lack, but cannot be used: {why}; nothing was \
             changed: {}",
            At(Part::Flash, path),
            remedy(*why),
        ),
        _ => unreachable!("no error of an opening"),
    }
}

/// The message about a part that is not there.
fn missing(at: At<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match at.0 {
        Part::Log => write!(
            f,
            "{at} does not exist or is blank, and the home cannot be opened without it: give its \
             path (`log`), restore home and log from a backup, or save what the home has with \
             `terrace dump --salvage`",
        ),
        _ => {
            write!(
                f,
                "no database here: {at} does not exist or is blank; check the path, or create the \
                 database"
            )
        }
    }
}

/// The message about a part that is something else.
fn not_a_database(at: At<'_>, what: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let is = if at.0 == Part::Home { "not a database" } else { "not a part of this database" };
    let holds = if what.starts_with("it") { "" } else { "it holds " };
    write!(f, "{at} is {is}: {holds}{what}; nothing was changed, check the path")
}

/// The message about a place where no part can be created.
fn of_place(error: &Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match error {
        Error::NotBlank { part, path, found } => write!(
            f,
            "{} holds {found}, and was not changed: choose another path, or allow with \
             `overwrite` that it is destroyed",
            At(*part, path),
        ),
        Error::NotAFile { part, path, found } => write!(
            f,
            "{} is {found}, neither a file nor a block device: choose another path",
            At(*part, path),
        ),
        Error::LogPlace { home } => write!(
            f,
            "{} is a block device, so its log has no default path: set it with `log`",
            At(Part::Home, home),
        ),
        Error::NoRoom { part, path, needed, source } => write!(
            f,
            "there is no space for {}, which needs {needed} bytes: free space, or ask for less: \
             {source}",
            At(*part, path),
        ),
        _ => unreachable!("no error of a place"),
    }
}

/// Messages about stored bytes, devices, and the engine as a whole.
fn of_engine(error: &Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match error {
        Error::HomeFull { path, is_held_up: false } => write!(
            f,
            "{} is full, and nothing that it holds is about to be freed: delete rows, free space \
             on its file system, or open it with a larger `home_size`",
            At(Part::Home, path),
        ),
        Error::HomeFull { path, is_held_up: true } => write!(
            f,
            "{} is full until what was deleted is freed, which open transactions or snapshots may \
             hold up: end those, and run the transaction again",
            At(Part::Home, path),
        ),
        Error::Corrupt { part, path, page, what } => {
            write!(f, "{page} of {} is corrupt: {what}; restore it from a backup", At(*part, path),)
        }
        Error::CorruptLog { path, lsn, what } => write!(
            f,
            "{} is corrupt at {lsn}: {what}; restore home and log from a backup",
            At(Part::Log, path),
        ),
        Error::RedoGap { page, record, expected, found } => write!(
            f,
            "{page} has {found}, but the log record at {record} was written on {expected}: home \
             and log do not belong together; restore both from one backup",
        ),
        Error::AllPinned => f.write_str(
            "every frame of memory is in use: run the transaction again, or use more memory or \
             fewer concurrent operations",
        ),
        Error::NoThread { source } => write!(
            f,
            "the system gives this process no more threads or file descriptors ({source}): raise \
             its limits",
        ),
        Error::Device { part, path, action, page, source } => {
            device(f, At(*part, path), (*action, *page), source)
        }
        Error::Panicked { page: Some(page) } => {
            write!(
                f,
                "a panic has interrupted a change of {page}: open the database again to recover it"
            )
        }
        Error::Panicked { page: None } => {
            f.write_str("a panic has interrupted a change: open the database again to recover it")
        }
        Error::Failed { cause: Some(cause) } => {
            write!(f, "the engine has stopped, open the database again to recover it: {cause}")
        }
        Error::Failed { cause: None } => f.write_str(
            "the engine has stopped after a failed write: open the database again to recover it",
        ),
        Error::ReadOnly => {
            f.write_str("the database was opened for reading only: open it for writing")
        }
        _ => f.write_str("the database is closed: open it again"),
    }
}

fn device(
    f: &mut fmt::Formatter<'_>,
    at: At<'_>,
    (action, page): (Action, Option<PageId>),
    source: &std::io::Error,
) -> fmt::Result {
    match page {
        Some(page) => write!(f, "cannot {action} {page} of {at}: ")?,
        None => write!(f, "cannot {action} {at}: ")?,
    }
    let is_named = |device: &str| at.1.as_ref().is_some_and(|path| **path == *Path::new(device));
    match DeviceError::of(source) {
        // The name of the device is the path, which the message contains.
        Some(DeviceError { device, operation, range, source }) if is_named(device) => {
            if let Some((offset, len)) = range {
                write!(f, "{operation} of {len} bytes at {offset}: ")?;
            }
            write!(f, "{source}")
        }
        _ => write!(f, "{source}"),
    }
}

/// What to do about a part that is in use.
fn way_out(holder: &Holder) -> &'static str {
    match holder {
        Holder::Unanswered | Holder::Ending { .. } => {
            "open it again when the device has answered or was removed, or its forks have ended"
        }
        Holder::Process { pid } if *pid == std::process::id() => {
            "use that handle, or close it first"
        }
        Holder::Process { .. } | Holder::Fork { .. } => "end that process first",
        Holder::Mount { .. } => "unmount it first",
        _ => "release it there first",
    }
}

/// What to do about flash that is needed.
fn remedy(why: ColdStart) -> &'static str {
    match why {
        ColdStart::NotPersistent => {
            "open it with persistent flash; after a sharp checkpoint it is not needed any more"
        }
        ColdStart::NoDevice => "name the flash device that the database had last",
        ColdStart::Forget | ColdStart::OtherRestart => "open it with the restart it had last",
        ColdStart::OtherShape => "open it with the flash size it had last",
        ColdStart::Partitions(_) => "open it with that much memory, or more",
        ColdStart::Version => "open it with the version that wrote the flash device",
        ColdStart::NoRoom => "free space for the flash, and open it again",
        ColdStart::Device(_) => "repair the device, and open it again",
        _ => "attach the device that it had last, or restore home, log and flash from one backup",
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use terrace_device::Operation;

    use super::*;
    use crate::error::{Places, error_path};

    /// "cannot sync the log /x/db.log: /x/db.log: sync: Input/output error": the path stood there
    /// twice.
    #[test]
    fn an_error_of_a_device_names_its_path_once() {
        let told = |action, operation, range, page| {
            let source = io::Error::from_raw_os_error(5);
            let source = DeviceError::wrap(String::from("/x/db.log"), operation, range, source);
            let error = match Error::device(Part::Log, action)(source) {
                Error::Device { part, path, action, source, .. } => {
                    Error::Device { part, path, action, page, source }
                }
                other => other,
            };
            let places = Places { log: error_path(Path::new("/x/db.log")), ..Places::default() };
            (error.to_string(), places.explain(error).to_string())
        };
        let what = io::Error::from_raw_os_error(5).to_string();
        let (bare, placed) = told(Action::Sync, Operation::Sync, None, None);
        assert_eq!(placed, format!("cannot sync the log /x/db.log: {what}"));
        assert_eq!(bare, format!("cannot sync the log: /x/db.log: sync: {what}"));
        let (_, placed) = told(Action::Read, Operation::Read, Some((512, 1024)), Some(PageId(7)));
        let expected = "cannot read page 7 of the log /x/db.log: read of 1024 bytes at 512: ";
        assert_eq!(placed, format!("{expected}{what}"));
    }
}
