//! The error of a transaction that did not get a lock.

use std::fmt;

use terrace_rt::Nanos;

use crate::TreeId;
use crate::catalog::{self, Key};
use crate::key_text::key_text;
use crate::trees::CATALOG;

/// The number of a transaction, as [`WriteTransaction::id`](crate::WriteTransaction::id) tells it:
/// unique while the database is open.
///
/// # Examples
///
/// ```
/// # let db = terrace::doc_test::database();
/// let (one, two) = (db.begin_write()?, db.begin_write()?);
/// assert_ne!(one.id(), two.id());
/// assert_eq!(one.id().to_string(), format!("transaction {}", one.id().0));
/// # Ok::<(), terrace::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId(pub u64);

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transaction {}", self.0)
    }
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
    /// A transaction that holds the lock.
    pub holder: Option<TransactionId>,
    /// If what it holds is no obstacle by itself: the transaction that waits for it, and is first
    /// in the queue for the lock.
    pub queued: Option<TransactionId>,
    /// How long it was waited for.
    pub waited: Nanos,
    /// The type of the key, as the catalog names it.
    pub(crate) key_type: String,
}

/// What is locked of `table`, of number `tree`: `key`, whose type the catalog calls `key_type`, or
/// all of it.
pub(crate) fn locked(tree: TreeId, table: &str, key: Option<&[u8]>, key_type: &str) -> String {
    if tree == CATALOG {
        return match key.map(|key| (key.is_empty(), catalog::decode_key(key))) {
            None => "the catalog of tables".into(),
            Some((true, _)) => "the end of the catalog of tables".into(),
            Some((_, Ok(Key::Table(name)))) => {
                format!("the name \"{}\" in the catalog of tables", name.escape_debug())
            }
            Some((_, Ok(Key::Garbage(tree)))) => format!("{tree}, deleted, in the catalog"),
            Some((_, Err(_))) => "a key of the catalog".into(),
        };
    }
    let table = match table {
        "" => tree.to_string(),
        name => format!("table \"{}\"", name.escape_debug()),
    };
    match key {
        None => table,
        Some([]) => format!("the gap after the last key of {table}"),
        Some(key) => format!("key {} of {table}", key_text(key_type, key)),
    }
}

impl LockWait {
    pub(super) fn timed_out(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = "run this transaction again, end the other one sooner, or allow more time";
        write!(f, "{self}, after {} ms: {what}", self.waited.0 / 1_000_000)
    }

    pub(super) fn nested(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what =
            "this thread or task would wait for itself: use that transaction, or end it first";
        write!(f, "{self}, which is of the same thread or task; {what}")
    }
}

impl fmt::Display for LockWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = locked(self.tree, &self.table, self.key.as_deref(), &self.key_type);
        write!(f, "the lock of {what} is held by ")?;
        match self.holder {
            Some(holder) => holder.fmt(f)?,
            None => f.write_str("another transaction")?,
        }
        match self.queued {
            Some(queued) => write!(f, ", and {queued} waits for it ahead of this one"),
            None => Ok(()),
        }
    }
}
