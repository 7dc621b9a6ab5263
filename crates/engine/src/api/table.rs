//! Tables: ordered maps from keys to values, seen through a transaction.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use crate::api::core::Core;
use crate::api::stream::{self, ValueReader, ValueWriter};
use crate::btree::{Batch, Modified, Put, Tree, Wanted};
use crate::share::Share;
use crate::writer::Step;
use crate::{
    Entry, Error, Key, LockMode, Range, ReadTransaction, Transaction, TreeId, Value,
    WriteTransaction,
};

/// A value that was read. It owns the encoded bytes, and decodes them on demand.
///
/// # Examples
///
/// ```
/// # use terrace::TableDef;
/// # let db = terrace::doc_test::database();
/// const NAMES: TableDef<u32, &str> = TableDef::new("names");
/// db.write(|txn| txn.open_table(NAMES)?.insert(1, "one"))?;
/// let name = db.read(|txn| txn.open_table(NAMES)?.get(1))?.expect("just inserted");
/// assert_eq!(name.value(), "one");
/// # Ok::<(), terrace::Error>(())
/// ```
pub struct Owned<V: Value> {
    bytes: Vec<u8>,
    types: PhantomData<fn() -> V>,
}

impl<V: Value> Owned<V> {
    /// Checks that the bytes decode.
    fn new(bytes: Vec<u8>, (core, tree): (&Core, &Tree)) -> Result<Owned<V>, Error> {
        core.check_decoded(V::decode(&bytes), tree, type_name::<V>())?;
        Ok(Owned { bytes, types: PhantomData })
    }

    /// The value.
    pub fn value(&self) -> V::View<'_> {
        V::decode(&self.bytes).expect("checked when it was read")
    }

    /// The encoded bytes of the value.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl<V: Value> fmt::Debug for Owned<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owned").field(&self.bytes).finish()
    }
}

/// A table opened in a read transaction.
///
/// # Examples
///
/// ```
/// # use terrace::{ReadTable, TableDef, Error};
/// # let db = terrace::doc_test::database();
/// const NAMES: TableDef<u32, &str> = TableDef::new("names");
/// fn longest(names: &ReadTable<'_, u32, &'static str>) -> Result<usize, Error> {
///     names.range(..)?.try_fold(0, |most, entry| Ok(most.max(entry?.value().len())))
/// }
/// db.write(|txn| txn.open_table(NAMES)?.insert(1, "one"))?;
/// assert_eq!(db.read(|txn| longest(&txn.open_table(NAMES)?))?, 3);
/// # Ok::<(), Error>(())
/// ```
pub type ReadTable<'t, K, V> = Table<'t, K, V, ReadTransaction>;

/// An open table: a map that is sorted by its keys. In a [`WriteTransaction`] it can be changed, in
/// a [`ReadTransaction`] only read.
///
/// # Examples
///
/// ```
/// # use terrace::TableDef;
/// # let db = terrace::doc_test::database();
/// const SCORES: TableDef<(u16, &str), u32> = TableDef::new("scores");
/// db.write(|txn| {
///     let mut scores = txn.open_table(SCORES)?;
///     scores.insert((2026, "ann"), 7)?;
///     scores.insert((2026, "bob"), 9)?;
///     scores.insert((2027, "ann"), 8)?;
///     let of_2026 = scores.range((2026, "")..(2027, ""))?;
///     let names: Result<Vec<_>, _> =
///         of_2026.rev().map(|entry| entry.map(|entry| entry.key().1.to_string())).collect();
///     assert_eq!(names?, ["bob", "ann"]);
///     assert!(scores.remove((2026, "bob"))?);
///     assert_eq!(scores.last()?.expect("two are left").value(), 8);
///     Ok::<_, terrace::Error>(())
/// })?;
/// # Ok::<(), terrace::Error>(())
/// ```
pub struct Table<'t, K: Key, V: Value, T: Transaction = WriteTransaction> {
    transaction: &'t T,
    tree: Arc<Share<Tree>>,
    name: &'t str,
    types: PhantomData<fn() -> (K, V)>,
}

/// An encoded key with a value not yet encoded: memory that is taken from the transaction and given
/// back, so that only its first operation allocates.
pub(crate) struct Encoded<'t> {
    core: &'t Core,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'t> Encoded<'t> {
    pub(crate) fn key<K: Key>(core: &'t Core, key: &K::View<'_>) -> Encoded<'t> {
        let mut bytes = core.take_key();
        bytes.clear();
        K::encode(key, &mut bytes);
        Encoded { core, key: bytes, value: Vec::new() }
    }

    /// The bytes of `value`, encoded here unless they are at hand.
    pub(crate) fn value<'v, V: Value>(
        &'v mut self,
        value: &'v V::View<'_>,
    ) -> (&'v [u8], &'v [u8]) {
        match V::as_encoded(value) {
            Some(bytes) => (&self.key, bytes),
            None => {
                self.value = self.core.take_value();
                self.value.clear();
                V::encode(value, &mut self.value);
                (&self.key, &self.value)
            }
        }
    }
}

impl Drop for Encoded<'_> {
    fn drop(&mut self) {
        self.core.keep_encoded(std::mem::take(&mut self.key), std::mem::take(&mut self.value));
    }
}

/// The bounds of a range, encoded.
pub(super) fn encode_bounds<'k, K: Key>(
    bounds: &impl RangeBounds<K::View<'k>>,
) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let encode = |bound: Bound<&K::View<'k>>| {
        bound.map(|key| {
            let mut bytes = Vec::new();
            K::encode(key, &mut bytes);
            bytes
        })
    };
    (encode(bounds.start_bound()), encode(bounds.end_bound()))
}

impl<'t, K: Key, V: Value, T: Transaction> Table<'t, K, V, T> {
    pub(crate) fn new(
        transaction: &'t T,
        tree: Arc<Share<Tree>>,
        name: &'t str,
    ) -> Table<'t, K, V, T> {
        Table { transaction, tree, name, types: PhantomData }
    }

    pub(super) fn core(&self) -> &'t Core {
        self.transaction.core()
    }

    pub(super) fn tree_id(&self) -> TreeId {
        self.tree.id()
    }

    /// What the table is within, if it still is one.
    #[inline]
    pub(super) fn live(&self) -> Result<&'t Core, Error> {
        let core = self.core();
        core.check_table(&self.tree, self.name).map(|()| core)
    }

    /// The table's tree.
    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    fn get_in(&self, key: &K::View<'_>, mode: LockMode, out: &mut Vec<u8>) -> Result<bool, Error> {
        let encoded = Encoded::key::<K>(self.core(), key);
        self.get_bytes(&encoded.key, mode, out)
    }

    fn get_bytes(&self, key: &[u8], mode: LockMode, out: &mut Vec<u8>) -> Result<bool, Error> {
        let found = self.live()?.read(|context| {
            self.tree.get(context, key, mode, |bytes| {
                out.clear();
                out.extend_from_slice(bytes);
            })
        })?;
        Ok(found.is_some())
    }

    /// The value of an encoded key.
    pub(super) fn get_encoded(
        &self,
        key: &[u8],
        mode: LockMode,
    ) -> Result<Option<Owned<V>>, Error> {
        let mut bytes = Vec::new();
        let found = self.get_bytes(key, mode, &mut bytes)?;
        found.then(|| self.owned(bytes)).transpose()
    }

    /// An encoded value, checked.
    pub(super) fn owned(&self, bytes: Vec<u8>) -> Result<Owned<V>, Error> {
        Owned::new(bytes, (self.core(), &self.tree))
    }

    fn get_owned(&self, key: &K::View<'_>, mode: LockMode) -> Result<Option<Owned<V>>, Error> {
        let mut bytes = Vec::new();
        let found = self.get_in(key, mode, &mut bytes)?;
        found.then(|| Owned::new(bytes, (self.core(), &self.tree))).transpose()
    }

    /// The value of `key`.
    ///
    /// # Errors
    ///
    /// `Conflict`, `LockTimeout`, `Nested`, `TooManyLocks`, `AllPinned`, `Undecodable`, `Corrupt`,
    /// and those of devices; all methods of a table may return these.
    pub fn get(&self, key: K::View<'_>) -> Result<Option<Owned<V>>, Error> {
        self.get_owned(&key, LockMode::Shared)
    }

    /// Replaces the contents of `out` by the encoded value of `key`; returns whether there is one.
    /// The fastest read, since it need not allocate.
    ///
    /// # Errors
    ///
    /// As `get`.
    pub fn get_into(&self, key: K::View<'_>, out: &mut Vec<u8>) -> Result<bool, Error> {
        self.get_in(&key, LockMode::Shared, out)
    }

    /// A reader of the encoded value of `key`, if there is one, for values that are large: it reads
    /// what is asked for.
    ///
    /// # Errors
    ///
    /// As `get`.
    pub fn reader(&self, key: K::View<'_>) -> Result<Option<ValueReader<'t>>, Error> {
        let encoded = Encoded::key::<K>(self.core(), &key);
        ValueReader::find(self.live()?, &self.tree, &encoded.key)
    }

    /// Whether there is an entry for `key`.
    ///
    /// # Errors
    ///
    /// As `get`.
    pub fn contains(&self, key: K::View<'_>) -> Result<bool, Error> {
        let encoded = Encoded::key::<K>(self.core(), &key);
        let found = self
            .live()?
            .read(|context| self.tree.get(context, &encoded.key, LockMode::Shared, |_| ()))?;
        Ok(found.is_some())
    }

    /// The entry with the least key.
    ///
    /// # Errors
    ///
    /// As `get`.
    pub fn first(&self) -> Result<Option<Entry<K, V>>, Error> {
        self.range(..)?.next().transpose()
    }

    /// The entry with the greatest key.
    ///
    /// # Errors
    ///
    /// As `get`.
    pub fn last(&self) -> Result<Option<Entry<K, V>>, Error> {
        self.range(..)?.next_back().transpose()
    }

    /// An iterator over the entries whose keys lie in `bounds`, from either end: `range(3..9)`,
    /// `range(..).rev()`.
    ///
    /// # Errors
    ///
    /// As `get`; the iterator returns errors too.
    pub fn range<'k>(
        &self,
        bounds: impl RangeBounds<K::View<'k>>,
    ) -> Result<Range<'_, K, V, T>, Error> {
        self.range_in(&bounds, LockMode::Shared)
    }

    pub(super) fn range_in<'k>(
        &self,
        bounds: &impl RangeBounds<K::View<'k>>,
        mode: LockMode,
    ) -> Result<Range<'_, K, V, T>, Error> {
        self.range_between(encode_bounds::<K>(bounds), mode)
    }

    /// The range between two encoded bounds.
    pub(super) fn range_between(
        &self,
        bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
        mode: LockMode,
    ) -> Result<Range<'_, K, V, T>, Error> {
        self.range_of(bounds, (mode, Wanted::Rows))
    }

    /// The same, of values of type `W`: those that the table has, or none.
    pub(super) fn range_of<W: Value>(
        &self,
        (lower, upper): (Bound<Vec<u8>>, Bound<Vec<u8>>),
        read: (LockMode, Wanted),
    ) -> Result<Range<'_, K, W, T>, Error> {
        self.live()?;
        let lower = self.core().emptied.borrow().skip(self.tree.id(), lower);
        let table = (Arc::clone(&self.tree), self.name);
        Ok(Range::new(self.transaction, table, lower, upper, read))
    }
}

impl<K: Key, V: Value> Table<'_, K, V, WriteTransaction> {
    /// The value of `key`, with an exclusive lock: for a read that a write of the same key will
    /// follow. If two transactions read it with `get` and then both write it, they deadlock, and
    /// one fails with `Conflict`.
    ///
    /// # Errors
    ///
    /// As `get`.
    pub fn get_for_update(&self, key: K::View<'_>) -> Result<Option<Owned<V>>, Error> {
        self.get_owned(&key, LockMode::Exclusive)
    }

    /// As `get_into`, with an exclusive lock.
    ///
    /// # Errors
    ///
    /// As `get`.
    pub fn get_into_for_update(&self, key: K::View<'_>, out: &mut Vec<u8>) -> Result<bool, Error> {
        self.get_in(&key, LockMode::Exclusive, out)
    }

    /// As `range`, with exclusive locks.
    ///
    /// # Errors
    ///
    /// As `get`.
    pub fn range_for_update<'k>(
        &self,
        bounds: impl RangeBounds<K::View<'k>>,
    ) -> Result<Range<'_, K, V, WriteTransaction>, Error> {
        self.range_in(&bounds, LockMode::Exclusive)
    }

    fn put(
        &mut self,
        key: &K::View<'_>,
        value: &V::View<'_>,
        put: Put,
        old: Option<&mut Vec<u8>>,
    ) -> Result<bool, Error> {
        let core = self.live()?;
        let mut encoded = Encoded::key::<K>(core, key);
        let (key, value) = encoded.value::<V>(value);
        core.emptied.borrow_mut().put(self.tree.id(), key);
        stream::put(core, &self.tree, (key, value), put, old)
    }

    /// Puts an encoded value at an encoded key.
    pub(super) fn put_encoded(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let core = self.live()?;
        core.emptied.borrow_mut().put(self.tree.id(), key);
        stream::put(core, &self.tree, (key, value), Put::Upsert, None).map(|_| ())
    }

    /// Inserts the entry, or replaces the value of `key` if there is one. (`replace` also returns
    /// the old value.)
    ///
    /// # Errors
    ///
    /// Those of `get`; `KeyTooLong`, `ValueTooLong`, `HomeFull`, `LogFull`, `Failed`, `Doomed`.
    pub fn insert(&mut self, key: K::View<'_>, value: V::View<'_>) -> Result<(), Error> {
        self.put(&key, &value, Put::Upsert, None).map(|_| ())
    }

    /// Inserts the entry if there is none for `key`; returns whether it did.
    ///
    /// # Errors
    ///
    /// As `insert`.
    pub fn insert_new(&mut self, key: K::View<'_>, value: V::View<'_>) -> Result<bool, Error> {
        self.put(&key, &value, Put::InsertNew, None).map(|found| !found)
    }

    /// Replaces the value of `key` if there is an entry; returns whether there was.
    ///
    /// # Errors
    ///
    /// As `insert`.
    pub fn update(&mut self, key: K::View<'_>, value: V::View<'_>) -> Result<bool, Error> {
        self.put(&key, &value, Put::Update, None)
    }

    /// Changes the value of `key` in place, if there is one; returns whether there was. The encoded
    /// value is copied to `row`, `change` modifies it there, and the result is stored: one search
    /// of the tree, where `get_into_for_update` and `update` take two. If `change` returns an error
    /// nothing is changed.
    ///
    /// `change` runs while the page is latched, so it should be short. It cannot use this or
    /// another database: that fails with [`Error::Reentrant`]; a transaction that it drops is
    /// rolled back by another task. It must not wait for a thread that uses the database, which may
    /// wait for the page.
    ///
    /// # Errors
    ///
    /// What `change` returns; those of `insert`, and `NotAValue` if the new bytes do not decode.
    ///
    /// # Panics
    ///
    /// If `change` calls `set_lock_timeout` of this table's transaction.
    ///
    /// # Examples
    ///
    /// ```
    /// # use terrace::{Error, TableDef};
    /// # let db = terrace::doc_test::database();
    /// const STOCK: TableDef<&str, &[u8]> = TableDef::new("stock");
    /// db.write(|txn| {
    ///     let (mut stock, mut row) = (txn.open_table(STOCK)?, Vec::new());
    ///     stock.insert("apples", &[3, 0])?;
    ///     let found = stock.modify("apples", &mut row, |row| {
    ///         row[0] += 1;
    ///         Ok::<_, Error>(())
    ///     })?;
    ///     assert!(found && row == [4, 0]);
    ///     assert_eq!(stock.get("apples")?.expect("still there").value(), [4, 0]);
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn modify<E: From<Error>>(
        &mut self,
        key: K::View<'_>,
        row: &mut Vec<u8>,
        change: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let core = self.live()?;
        let encoded = Encoded::key::<K>(core, &key);
        let key = &encoded.key;
        let checked = |row: &mut Vec<u8>| {
            terrace_rt::callback(|| {
                change(row).map_err(Some)?;
                // `None`: reported below, where the transaction is free to name its table.
                V::decode(row).map(|_| ()).ok_or(None)
            })
        };
        let mut checked = Some(checked);
        let modify = |context: &mut _| self.tree.modify(context, key, row, &mut checked);
        let modified = core.change_with_space(key.len(), modify)?;
        match modified {
            Modified::Absent => Ok(false),
            Modified::Done => Ok(true),
            Modified::Refused(Some(error)) => Err(error),
            Modified::Refused(None) => {
                let refused = Error::NotAValue { table: self.tree.id().into(), len: row.len() };
                Err(E::from(self.core().explain(refused)))
            }
            Modified::NotYet => {
                Ok(stream::put(self.core(), &self.tree, (key, row), Put::Update, None)?)
            }
        }
    }

    /// Inserts the entry or replaces its value; returns the value that was there.
    ///
    /// # Errors
    ///
    /// As `insert`.
    pub fn replace(
        &mut self,
        key: K::View<'_>,
        value: V::View<'_>,
    ) -> Result<Option<Owned<V>>, Error> {
        let mut old = Vec::new();
        let found = self.put(&key, &value, Put::Upsert, Some(&mut old))?;
        found.then(|| Owned::new(old, (self.core(), &self.tree))).transpose()
    }

    /// Deletes the entry of `key`; returns whether there was one.
    ///
    /// # Errors
    ///
    /// As `insert`.
    pub fn remove(&mut self, key: K::View<'_>) -> Result<bool, Error> {
        self.delete(&Encoded::key::<K>(self.core(), &key).key, None)
    }

    /// Deletes the entry of an encoded key, and puts its value into `old`; returns whether there
    /// was one.
    pub(super) fn delete(&self, key: &[u8], mut old: Option<&mut Vec<u8>>) -> Result<bool, Error> {
        let remove = |context: &mut _| self.tree.remove(context, key, old.as_deref_mut());
        self.live()?.change(key.len(), remove)
    }

    /// The entry of an encoded key and value.
    pub(super) fn entry(&self, key: &[u8], value: &[u8]) -> Result<Entry<K, V>, Error> {
        Entry::new(&Arc::new(Batch::of(key, value)), 0, (self.core(), &self.tree))
    }

    /// Deletes the entry of `key` and returns its value.
    ///
    /// # Errors
    ///
    /// As `insert`.
    pub fn take(&mut self, key: K::View<'_>) -> Result<Option<Owned<V>>, Error> {
        let mut old = Vec::new();
        let found = self.delete(&Encoded::key::<K>(self.core(), &key).key, Some(&mut old))?;
        found.then(|| Owned::new(old, (self.core(), &self.tree))).transpose()
    }

    /// Reserves space for the table to grow by `bytes`, contiguous as far as possible, so that a
    /// table that grows slowly beside others is not scattered.
    ///
    /// # Errors
    ///
    /// `HomeFull`, and those of devices.
    pub fn reserve(&mut self, bytes: u64) -> Result<(), Error> {
        let pages = bytes.div_ceil(terrace_page::PAGE_SIZE as u64);
        self.live()?.change(0, |context| self.tree.reserve(context, pages).map(Step::Done))
    }

    /// Deletes the entry with the least key in `bounds` and returns it.
    ///
    /// # Errors
    ///
    /// As `insert`.
    pub fn pop_first<'k>(
        &mut self,
        bounds: impl RangeBounds<K::View<'k>>,
    ) -> Result<Option<Entry<K, V>>, Error> {
        let Some(entry) = self.range_in(&bounds, LockMode::Exclusive)?.next().transpose()? else {
            return Ok(None);
        };
        let found = self.delete(entry.key_bytes(), None)?;
        assert!(found, "an entry that is locked stays");
        let (lower, _) = encode_bounds::<K>(&bounds);
        self.core().emptied.borrow_mut().took(self.tree.id(), lower, entry.key_bytes());
        Ok(Some(entry))
    }
}

impl<'t, K: Key> Table<'t, K, &'static [u8], WriteTransaction> {
    /// A writer of the value of `key`, for values that are large, or not there as a whole: the
    /// entry is inserted, or its value replaced, when the writer is finished.
    ///
    /// # Errors
    ///
    /// As `insert`.
    pub fn writer(&mut self, key: K::View<'_>) -> Result<ValueWriter<'t>, Error> {
        let mut bytes = Vec::new();
        K::encode(&key, &mut bytes);
        let core = self.live()?;
        self.tree.check_sizes(&bytes, &[]).map_err(|error| core.explain(error))?;
        Ok(ValueWriter::new(core, &self.tree, self.name, bytes))
    }
}

impl<K: Key, V: Value, T: Transaction> fmt::Debug for Table<'_, K, V, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("tree", &self.tree.id()).finish_non_exhaustive()
    }
}
