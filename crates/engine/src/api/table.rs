//! Tables: ordered maps from keys to values, seen through a transaction.

use std::marker::PhantomData;
use std::ops::RangeBounds;

use crate::{Entry, Error, Key, Range, ReadTransaction, Transaction, Value, WriteTransaction};

/// The name and the types of a table.
///
/// # Examples
///
/// ```
/// use terrace::TableDef;
///
/// const ORDERS: TableDef<(u32, u32, &str), &[u8]> = TableDef::new("orders");
/// assert_eq!(ORDERS.name(), "orders");
/// ```
pub struct TableDef<K: Key, V: Value> {
    name: &'static str,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Value> TableDef<K, V> {
    /// The table `name`.
    pub const fn new(name: &'static str) -> TableDef<K, V> {
        TableDef { name, types: PhantomData }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<K: Key, V: Value> Clone for TableDef<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Key, V: Value> Copy for TableDef<K, V> {}

/// A value that was read: its bytes, decoded on demand.
pub struct Owned<V: Value> {
    bytes: Vec<u8>,
    types: PhantomData<fn() -> V>,
}

impl<V: Value> Owned<V> {
    /// The value.
    pub fn value(&self) -> V::View<'_> {
        V::decode(&self.bytes).expect("checked when it was read")
    }
}

/// A table that a read transaction has open.
pub type ReadTable<'t, K, V> = Table<'t, K, V, ReadTransaction>;

/// An open table: an ordered map. What it can do depends on its transaction.
pub struct Table<'t, K: Key, V: Value, T: Transaction = WriteTransaction> {
    #[expect(dead_code)]
    transaction: &'t T,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Value, T: Transaction> Table<'_, K, V, T> {
    /// The value of `key`.
    ///
    /// # Errors
    ///
    /// `Conflict`, `TooManyLocks`, `Corrupt`, and those of devices; so for all methods here.
    pub fn get(&self, _key: K::View<'_>) -> Result<Option<Owned<V>>, Error> {
        unimplemented!()
    }

    /// Puts the encoded value of `key` into `out`, whose memory is reused; returns whether there is
    /// one. The fastest read: no allocation.
    ///
    /// # Errors
    ///
    /// As `get`.
    pub fn get_into(&self, _key: K::View<'_>, _out: &mut Vec<u8>) -> Result<bool, Error> {
        unimplemented!()
    }

    /// Whether there is an entry for `key`.
    ///
    /// # Errors
    ///
    /// As `get`.
    pub fn contains(&self, _key: K::View<'_>) -> Result<bool, Error> {
        unimplemented!()
    }

    /// The entry with the least key.
    ///
    /// # Errors
    ///
    /// As `get`.
    pub fn first(&self) -> Result<Option<Entry<K, V>>, Error> {
        unimplemented!()
    }

    /// The entry with the greatest key.
    ///
    /// # Errors
    ///
    /// As `get`.
    pub fn last(&self) -> Result<Option<Entry<K, V>>, Error> {
        unimplemented!()
    }

    /// The entries whose keys lie in `bounds`, from either end: `range(3..9)`, `range(..).rev()`.
    ///
    /// # Errors
    ///
    /// As `get`; the iterator returns errors too.
    pub fn range<'k>(
        &self,
        _bounds: impl RangeBounds<K::View<'k>>,
    ) -> Result<Range<'_, K, V, T>, Error> {
        unimplemented!()
    }
}

impl<K: Key, V: Value> Table<'_, K, V, WriteTransaction> {
    /// The value of `key`, locked as if it were written: for a change that depends on it. Reading
    /// it with `get` first, two transactions that both go on to write would conflict.
    ///
    /// # Errors
    ///
    /// As `get`.
    pub fn get_for_update(&self, _key: K::View<'_>) -> Result<Option<Owned<V>>, Error> {
        unimplemented!()
    }

    /// As `get_into`, locked as if it were written.
    ///
    /// # Errors
    ///
    /// As `get`.
    pub fn get_into_for_update(
        &self,
        _key: K::View<'_>,
        _out: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        unimplemented!()
    }

    /// As `range`, locked as if the entries were written.
    ///
    /// # Errors
    ///
    /// As `get`.
    pub fn range_for_update<'k>(
        &self,
        _bounds: impl RangeBounds<K::View<'k>>,
    ) -> Result<Range<'_, K, V, WriteTransaction>, Error> {
        unimplemented!()
    }

    /// Puts `value` at `key`, in place of the value there, if there is one; returns nothing of it
    /// (`replace` does).
    ///
    /// # Errors
    ///
    /// Those of `get`; `KeyTooLong`, `ValueTooLong`, `HomeFull`, `LogFull`, `Failed`, `Doomed`.
    pub fn insert(&mut self, _key: K::View<'_>, _value: V::View<'_>) -> Result<(), Error> {
        unimplemented!()
    }

    /// Puts `value` at `key` if there is none yet; returns whether it did.
    ///
    /// # Errors
    ///
    /// As `insert`.
    pub fn insert_new(&mut self, _key: K::View<'_>, _value: V::View<'_>) -> Result<bool, Error> {
        unimplemented!()
    }

    /// Puts `value` at `key` if there is an entry; returns whether there was.
    ///
    /// # Errors
    ///
    /// As `insert`.
    pub fn update(&mut self, _key: K::View<'_>, _value: V::View<'_>) -> Result<bool, Error> {
        unimplemented!()
    }

    /// Puts `value` at `key` and returns the value that was there.
    ///
    /// # Errors
    ///
    /// As `insert`.
    pub fn replace(
        &mut self,
        _key: K::View<'_>,
        _value: V::View<'_>,
    ) -> Result<Option<Owned<V>>, Error> {
        unimplemented!()
    }

    /// Deletes the entry of `key`; returns whether there was one.
    ///
    /// # Errors
    ///
    /// As `insert`.
    pub fn remove(&mut self, _key: K::View<'_>) -> Result<bool, Error> {
        unimplemented!()
    }

    /// Deletes the entry of `key` and returns its value.
    ///
    /// # Errors
    ///
    /// As `insert`.
    pub fn take(&mut self, _key: K::View<'_>) -> Result<Option<Owned<V>>, Error> {
        unimplemented!()
    }

    /// Deletes the entry with the least key in `bounds` and returns it.
    ///
    /// # Errors
    ///
    /// As `insert`.
    pub fn pop_first<'k>(
        &mut self,
        _bounds: impl RangeBounds<K::View<'k>>,
    ) -> Result<Option<Entry<K, V>>, Error> {
        unimplemented!()
    }
}

/// Loads an empty table with entries in key order. Dropped before `finish`, it leaves the table
/// as far as it was loaded, part of the transaction like any change.
pub struct Loader<'t, K: Key, V: Value> {
    #[expect(dead_code)]
    transaction: &'t WriteTransaction,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Value> Loader<'_, K, V> {
    /// Adds the next entry.
    ///
    /// # Errors
    ///
    /// `NotAscending`, `KeyTooLong`, `ValueTooLong`, `HomeFull`, `LogFull`, `Failed`.
    pub fn push(&mut self, _key: K::View<'_>, _value: V::View<'_>) -> Result<(), Error> {
        unimplemented!()
    }

    /// Completes the load.
    ///
    /// # Errors
    ///
    /// As `push`.
    pub fn finish(self) -> Result<(), Error> {
        unimplemented!()
    }
}
