//! What an error is about: parts and their paths, tables, locks, types.
//!
//! The place that meets an error knows little more than a tree's number or a part. The API adds
//! the names and the paths as the error passes it, in [`Error::explained`].

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use terrace_device::Operation;

use crate::{Error, TreeId};

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

/// The path of a part. `None` where the caller gave a device without one. One pointer, since
/// errors are to be small.
pub type ErrorPath = Option<Arc<PathBuf>>;

/// `path`, as errors carry it.
pub(crate) fn error_path(path: &Path) -> ErrorPath {
    Some(Arc::new(path.to_path_buf()))
}

/// Where the parts of a database are, as far as that is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    pub(crate) home: ErrorPath,
    pub(crate) flash: ErrorPath,
    pub(crate) log: ErrorPath,
}

impl Places {
    /// The error with the paths of its parts.
    pub(crate) fn explain(&self, error: Error) -> Error {
        error.explained(self, &|_| None)
    }

    fn of(&self, part: Part) -> ErrorPath {
        match part {
            Part::Home => self.home.clone(),
            Part::Flash => self.flash.clone(),
            Part::Log => self.log.clone(),
        }
    }
}

/// What a device was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// To open, to make or to size its file.
    Open,
    /// To read.
    Read,
    /// To write.
    Write,
    /// To make durable what was written.
    Sync,
    /// To set room aside.
    Reserve,
    /// To make it longer.
    Grow,
    /// To give room back.
    Punch,
}

impl From<Operation> for Action {
    fn from(operation: Operation) -> Action {
        match operation {
            Operation::Read => Action::Read,
            Operation::Sync => Action::Sync,
            Operation::Reserve => Action::Reserve,
            Operation::Grow => Action::Grow,
            Operation::Punch => Action::Punch,
            _ => Action::Write,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::Open => "open",
            Action::Read => "read",
            Action::Write => "write",
            Action::Sync => "sync",
            Action::Reserve => "reserve room in",
            Action::Grow => "lengthen",
            Action::Punch => "give back room of",
        })
    }
}

/// The table that an error is about.
#[derive(Clone, PartialEq, Eq)]
pub struct TableRef {
    tree: TreeId,
    name: Option<Arc<Box<str>>>,
}

impl TableRef {
    /// The table's tree.
    pub fn tree(&self) -> TreeId {
        self.tree
    }

    /// The table's name. `None` for the catalog, and for a table that is gone by now.
    pub fn name(&self) -> Option<&str> {
        self.name.as_ref().map(|name| &***name)
    }

    fn explain(&mut self, name_of: &dyn Fn(TreeId) -> Option<String>) {
        if self.name.is_none() {
            self.name = name_of(self.tree).map(|name| Arc::new(name.into()));
        }
    }
}

impl From<TreeId> for TableRef {
    fn from(tree: TreeId) -> TableRef {
        TableRef { tree, name: None }
    }
}

impl fmt::Display for TableRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "table \"{}\"", name.escape_debug()),
            None if self.tree == crate::trees::CATALOG => f.write_str("the catalog"),
            None => self.tree.fmt(f),
        }
    }
}

impl fmt::Debug for TableRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The names of a table's types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeNames {
    /// The type of its keys.
    pub key: String,
    /// The type of its values.
    pub value: String,
}

impl TypeNames {
    /// From what the catalog has: key type name, a zero, value type name.
    pub(crate) fn decode(types: &str) -> Box<TypeNames> {
        let (key, value) = types.split_once('\0').unwrap_or((types, "?"));
        Box::new(TypeNames { key: key.to_string(), value: value.to_string() })
    }
}

impl fmt::Display for TypeNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}, {}>", self.key, self.value)
    }
}

/// Why a savepoint was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavepointFlaw {
    /// Another transaction made it.
    OtherTransaction,
    /// The transaction was rolled back to an earlier savepoint since.
    RolledBack,
}

impl Error {
    /// The same, with the names of its tables and the paths of its parts.
    #[cold]
    pub(crate) fn explained(
        mut self,
        places: &Places,
        name_of: &dyn Fn(TreeId) -> Option<String>,
    ) -> Error {
        match &mut self {
            Error::Exists { part, path }
            | Error::NotBlank { part, path, .. }
            | Error::NotAFile { part, path, .. }
            | Error::NoRoom { part, path, .. }
            | Error::Missing { part, path }
            | Error::AlreadyOpen { part, path, .. }
            | Error::NotADatabase { part, path, .. }
            | Error::Truncated { part, path, .. }
            | Error::NewerFormat { part, path, .. }
            | Error::OlderFormat { part, path, .. }
            | Error::Corrupt { part, path, .. }
            | Error::Device { part, path, .. }
                if path.is_none() =>
            {
                *path = places.of(*part);
            }
            Error::HomeFull { path, .. } | Error::UnknownFeatures { path, .. }
                if path.is_none() =>
            {
                path.clone_from(&places.home);
            }
            Error::CorruptLog { path, .. } if path.is_none() => path.clone_from(&places.log),
            Error::FlashNeeded { path, .. } if path.is_none() => path.clone_from(&places.flash),
            Error::KeyTooLong { table, .. }
            | Error::ValueTooLong { table, .. }
            | Error::NotAscending { table }
            | Error::NotEmpty { table }
            | Error::NotAValue { table, .. }
            | Error::Undecodable { table, .. }
            | Error::TableTypes { table, .. }
            | Error::TableSchema { table, .. }
            | Error::DamagedSchema { table, .. } => table.explain(name_of),
            Error::LockTimeout(wait) | Error::Nested(wait) if wait.table.is_empty() => {
                wait.table = name_of(wait.tree).unwrap_or_default();
            }
            Error::Failed { cause: Some(cause) } | Error::Doomed { cause: Some(cause) } => {
                *cause = Arc::new(Error::clone(cause).explained(places, name_of));
            }
            _ => (),
        }
        self
    }
}
