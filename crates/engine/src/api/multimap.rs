//! Multimaps: tables with several values for a key.
//!
//! - U1: a multimap of `K` to `V` is a table of the keys `(K, V)` without values, and can be opened
//!   as such. The encoding of a key is no prefix of another's (key.K2), so that its values stand
//!   together, in their order.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use super::many::beginning_with;
use crate::{
    Error, Key, KeyPart, LockMode, MultimapDef, Range, ReadTransaction, Table, Transaction,
    WriteTransaction,
};

/// A table with a sorted set of values for each key. It is a table whose keys are `(K, V)`, and has
/// the limits of one: key and value have at most 1,024 bytes together.
///
/// # Examples
///
/// ```
/// use terrace::{Error, MultimapDef};
///
/// # let db = terrace::doc_test::database();
/// const TAGS: MultimapDef<u64, &str> = MultimapDef::new("tags");
/// db.write(|txn| {
///     let mut tags = txn.open_multimap(TAGS)?;
///     assert!(tags.insert(7, "red")? && tags.insert(7, "blue")? && tags.insert(8, "red")?);
///     assert!(!tags.insert(7, "red")?); // there already
///     let of_7: Result<Vec<_>, Error> =
///         tags.get(7)?.map(|entry| entry.map(|entry| entry.key().1.to_string())).collect();
///     assert_eq!(of_7?, ["blue", "red"]);
///     assert_eq!((tags.len()?, tags.remove_all(7)?), (3, 2));
///     Ok::<_, Error>(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
pub struct Multimap<'t, K: KeyPart, V: Key, T: Transaction = WriteTransaction> {
    table: Table<'t, (K, V), (), T>,
}

impl WriteTransaction {
    /// Opens the multimap, and creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// Those of [`WriteTransaction::open_table`].
    pub fn open_multimap<'t, K: KeyPart, V: Key>(
        &'t self,
        multimap: MultimapDef<'t, K, V>,
    ) -> Result<Multimap<'t, K, V>, Error> {
        self.open_table(multimap.table()).map(|table| Multimap { table })
    }
}

impl ReadTransaction {
    /// Opens the multimap.
    ///
    /// # Errors
    ///
    /// Those of [`ReadTransaction::open_table`].
    pub fn open_multimap<'t, K: KeyPart, V: Key>(
        &'t self,
        multimap: MultimapDef<'t, K, V>,
    ) -> Result<Multimap<'t, K, V, ReadTransaction>, Error> {
        self.open_table(multimap.table()).map(|table| Multimap { table })
    }
}

fn encoded<K: KeyPart>(key: &K::View<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    K::encode_part(key, &mut bytes);
    bytes
}

/// The bounds of the pairs whose keys lie in `bounds`.
fn pairs_within<'k, K: KeyPart>(
    bounds: &impl RangeBounds<K::View<'k>>,
) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    // Behind all pairs of a key.
    let behind = |key: &K::View<'k>| beginning_with(encoded::<K>(key)).1;
    let lower = match bounds.start_bound() {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(key) => Bound::Included(encoded::<K>(key)),
        Bound::Excluded(key) => match behind(key) {
            Bound::Excluded(bytes) => Bound::Included(bytes),
            // No pair is greater than all of this key.
            _ => Bound::Excluded(vec![u8::MAX; BEHIND_ALL]),
        },
    };
    let upper = match bounds.end_bound() {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(key) => behind(key),
        Bound::Excluded(key) => Bound::Excluded(encoded::<K>(key)),
    };
    (lower, upper)
}

/// More bytes than any key has: so many of the greatest byte are behind all keys.
const BEHIND_ALL: usize = 1_100;

impl<'t, K: KeyPart, V: Key, T: Transaction> Multimap<'t, K, V, T> {
    /// The values of `key`, in order, from either end: of each entry, `key().1`.
    ///
    /// # Errors
    ///
    /// As [`Table::get`]; the iterator returns errors too.
    pub fn get(&self, key: K::View<'_>) -> Result<Range<'_, (K, V), (), T>, Error> {
        self.table.range_between(beginning_with(encoded::<K>(&key)), LockMode::Shared)
    }

    /// Whether `value` is one of `key`.
    ///
    /// # Errors
    ///
    /// As [`Table::get`].
    pub fn contains<'v>(&self, key: K::View<'v>, value: V::View<'v>) -> Result<bool, Error> {
        self.table.contains((key, value))
    }

    /// The pairs whose keys lie in `bounds`, in order, from either end.
    ///
    /// # Errors
    ///
    /// As [`Table::get`]; the iterator returns errors too.
    pub fn range<'k>(
        &self,
        bounds: impl RangeBounds<K::View<'k>>,
    ) -> Result<Range<'_, (K, V), (), T>, Error> {
        self.table.range_between(pairs_within::<K>(&bounds), LockMode::Shared)
    }

    /// How many pairs there are: see [`Table::len`].
    ///
    /// # Errors
    ///
    /// As [`Table::get`].
    pub fn len(&self) -> Result<u64, Error> {
        self.table.len()
    }

    /// Whether there is no pair.
    ///
    /// # Errors
    ///
    /// As [`Table::get`].
    pub fn is_empty(&self) -> Result<bool, Error> {
        self.table.is_empty()
    }

    /// The table that it is: of pairs, for what a multimap has no methods for.
    pub fn table(&self) -> &Table<'t, (K, V), (), T> {
        &self.table
    }
}

impl<K: KeyPart, V: Key> Multimap<'_, K, V, WriteTransaction> {
    /// Adds `value` to those of `key`; returns whether it was not there.
    ///
    /// # Errors
    ///
    /// As [`Table::insert`].
    pub fn insert<'v>(&mut self, key: K::View<'v>, value: V::View<'v>) -> Result<bool, Error> {
        self.table.insert_new((key, value), ())
    }

    /// Removes `value` from those of `key`; returns whether it was there.
    ///
    /// # Errors
    ///
    /// As [`Table::insert`].
    pub fn remove<'v>(&mut self, key: K::View<'v>, value: V::View<'v>) -> Result<bool, Error> {
        self.table.remove((key, value))
    }

    /// Removes all values of `key`; returns how many there were.
    ///
    /// # Errors
    ///
    /// As [`Table::insert`]; some of them may then be removed.
    pub fn remove_all(&mut self, key: K::View<'_>) -> Result<u64, Error> {
        self.table.retain_between(beginning_with(encoded::<K>(&key)), |_, ()| false)
    }
}

impl<K: KeyPart, V: Key, T: Transaction> fmt::Debug for Multimap<'_, K, V, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Multimap").field("table", &self.table).finish_non_exhaustive()
    }
}
