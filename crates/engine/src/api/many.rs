//! What is done with many entries of a table: prefixes, and deletions of ranges.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use super::table::encode_bounds;
use crate::btree::Wanted;
use crate::{
    Entry, Error, Key, KeyPart, LockMode, Range, Table, Transaction, Value, WriteTransaction,
};

/// What keys of type `K` can begin with: the first parts of a tuple, or the beginning of a text.
///
/// | keys | prefixes |
/// |---|---|
/// | tuples of two to six | tuples of their first parts, one or more but not all |
/// | `&str`, `&[u8]` | the same |
pub trait PrefixOf<K: Key> {
    /// Appends what the encoded keys begin with to `out`.
    fn encode_prefix(&self, out: &mut Vec<u8>);
}

impl PrefixOf<&'static str> for &str {
    fn encode_prefix(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
}

impl PrefixOf<&'static [u8]> for &[u8] {
    fn encode_prefix(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

macro_rules! tuple_prefix {
    ($($part:ident $at:tt),*; $($rest:ident),*; $last:ident) => {
        impl<'v, $($part: KeyPart,)* $($rest: KeyPart,)* $last: Key>
            PrefixOf<($($part,)* $($rest,)* $last,)> for ($($part::View<'v>,)*)
        {
            fn encode_prefix(&self, out: &mut Vec<u8>) {
                $($part::encode_part(&self.$at, out);)*
            }
        }
    };
}

tuple_prefix!(A 0;; B);
tuple_prefix!(A 0; B; C);
tuple_prefix!(A 0, B 1;; C);
tuple_prefix!(A 0; B, C; D);
tuple_prefix!(A 0, B 1; C; D);
tuple_prefix!(A 0, B 1, C 2;; D);
tuple_prefix!(A 0; B, C, D; E);
tuple_prefix!(A 0, B 1; C, D; E);
tuple_prefix!(A 0, B 1, C 2; D; E);
tuple_prefix!(A 0, B 1, C 2, D 3;; E);
tuple_prefix!(A 0; B, C, D, E; F);
tuple_prefix!(A 0, B 1; C, D, E; F);
tuple_prefix!(A 0, B 1, C 2; D, E; F);
tuple_prefix!(A 0, B 1, C 2, D 3; E; F);
tuple_prefix!(A 0, B 1, C 2, D 3, E 4;; F);

/// The bounds of all keys that begin with `prefix`.
pub(super) fn beginning_with(prefix: Vec<u8>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let mut end = prefix.clone();
    while end.pop_if(|byte| *byte == u8::MAX).is_some() {}
    let upper = match end.last_mut() {
        Some(last) => {
            *last += 1;
            Bound::Excluded(end)
        }
        None => Bound::Unbounded,
    };
    (Bound::Included(prefix), upper)
}

impl<K: Key, V: Value, T: Transaction> Table<'_, K, V, T> {
    /// An iterator over the entries whose keys begin with `prefix`, from either end.
    ///
    /// # Errors
    ///
    /// As `get`; the iterator returns errors too.
    ///
    /// # Examples
    ///
    /// ```
    /// # use terrace::{Error, TableDef};
    /// # let db = terrace::doc_test::database();
    /// const SCORES: TableDef<(u16, &str), u32> = TableDef::new("scores");
    /// const NAMES: TableDef<&str, u64> = TableDef::new("names");
    /// db.write(|txn| {
    ///     let (mut scores, mut names) = (txn.open_table(SCORES)?, txn.open_table(NAMES)?);
    ///     scores.insert((2026, "ann"), 7)?;
    ///     scores.insert((2027, "bob"), 9)?;
    ///     assert_eq!(scores.prefix((2026,))?.count(), 1);
    ///     names.insert("anna", 1)?;
    ///     names.insert("anton", 2)?;
    ///     assert_eq!(names.prefix("ann")?.count(), 1);
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn prefix(&self, prefix: impl PrefixOf<K>) -> Result<Range<'_, K, V, T>, Error> {
        let mut bytes = Vec::new();
        prefix.encode_prefix(&mut bytes);
        self.range_between(beginning_with(bytes), LockMode::Shared)
    }

    /// As `range`, of the keys alone: the entries have no values. Values that have pages of their
    /// own are not read.
    ///
    /// # Errors
    ///
    /// As `get`; the iterator returns errors too.
    ///
    /// # Examples
    ///
    /// ```
    /// # use terrace::{Error, TableDef};
    /// # let db = terrace::doc_test::database();
    /// const PHOTOS: TableDef<&str, &[u8]> = TableDef::new("photos");
    /// db.write(|txn| {
    ///     let mut photos = txn.open_table(PHOTOS)?;
    ///     let names = ["ann", "bob", "cat"];
    ///     names.into_iter().try_for_each(|name| photos.insert(name, &[7; 100_000]))
    /// })?;
    /// let txn = db.begin_read()?;
    /// let photos = txn.open_table(PHOTOS)?;
    /// assert_eq!(photos.keys("b"..)?.next().expect("bob")?.key(), "bob");
    /// assert_eq!(photos.keys(..)?.rev().count(), 3);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn keys<'k>(
        &self,
        bounds: impl RangeBounds<K::View<'k>>,
    ) -> Result<Range<'_, K, (), T>, Error> {
        self.range_of(encode_bounds::<K>(&bounds), (LockMode::Shared, Wanted::Keys))
    }

    /// How many entries the table has. A read transaction gets what its snapshot has, and locks
    /// nothing. A write transaction gets what is committed with its own changes, and locks the
    /// table as a whole, as if it had read all of it: else another one could add a row before this
    /// one commits, and what it has decided by the number would be wrong.
    ///
    /// So it waits for every transaction that has changed the table, and these wait for it until it
    /// ends. Two that have both changed the table and then ask for its length meet a `Conflict`:
    /// ask first. Where a number that may change at once will do,
    /// [`len_unlocked`](Table::len_unlocked) gives it, or a read transaction.
    ///
    /// The count is kept with the commits, so that nothing is read for it, but for tables whose
    /// count is not known: those that an older version of Terrace has written last, and those of
    /// a database of which a checkpoint could not list all. They are read through by the first
    /// call.
    ///
    /// # Errors
    ///
    /// As `get`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use terrace::{Error, TableDef};
    /// # let db = terrace::doc_test::database();
    /// const EVENTS: TableDef<u64, &str> = TableDef::new("events");
    /// db.write(|txn| {
    ///     let mut events = txn.open_table(EVENTS)?;
    ///     (0..10).try_for_each(|number| events.insert(number, "tick"))?;
    ///     events.remove(3)?;
    ///     assert_eq!(events.len()?, 9);
    ///     Ok::<_, Error>(())
    /// })?;
    /// assert_eq!(db.read(|txn| txn.open_table(EVENTS)?.len())?, 9);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn len(&self) -> Result<u64, Error> {
        let (core, tree) = (self.live()?, self.tree_id());
        if let Some(rows) = core.run(|context| context.rows_of(tree))? {
            return Ok(rows);
        }
        let (mut keys, mut rows) = (self.keys(..)?, 0);
        while let Some(some) = keys.next_rows()? {
            rows += some.len() as u64;
        }
        core.run(|context| context.learn_rows(tree, rows)).map(|()| rows)
    }

    /// Whether the table has no entry.
    ///
    /// # Errors
    ///
    /// As `get`.
    pub fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.first()?.is_none())
    }
}

impl<K: Key, V: Value> Table<'_, K, V, WriteTransaction> {
    /// As `len`, without a lock: what is committed at this moment, with this transaction's own
    /// changes. It waits for no transaction and holds up none. Others may commit right after it, so
    /// it is for statistics, and not for a rule such as "at most ten rows", which `len` is for.
    ///
    /// A table whose count is not known (see `len`) is counted by the first call, with locks.
    ///
    /// # Errors
    ///
    /// As `get`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use terrace::{Error, TableDef};
    /// # let db = terrace::doc_test::database();
    /// const EVENTS: TableDef<u64, &str> = TableDef::new("events");
    /// db.write(|txn| txn.open_table(EVENTS)?.insert(1, "tick"))?;
    /// let (one, other) = (db.begin_write()?, db.begin_write()?);
    /// one.open_table(EVENTS)?.insert(2, "tick")?;
    /// assert_eq!(one.open_table(EVENTS)?.len_unlocked()?, 2);
    /// assert_eq!(other.open_table(EVENTS)?.len_unlocked()?, 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn len_unlocked(&self) -> Result<u64, Error> {
        let (core, tree) = (self.live()?, self.tree_id());
        match core.run(|context| context.rows_of_now(tree))? {
            Some(rows) => Ok(rows),
            None => self.len(),
        }
    }

    /// Deletes the entry with the greatest key in `bounds` and returns it.
    ///
    /// # Errors
    ///
    /// As `insert`.
    pub fn pop_last<'k>(
        &mut self,
        bounds: impl RangeBounds<K::View<'k>>,
    ) -> Result<Option<Entry<K, V>>, Error> {
        let mut range = self.range_in(&bounds, LockMode::Exclusive)?;
        let Some(entry) = range.next_back().transpose()? else { return Ok(None) };
        let found = self.delete(entry.key_bytes(), None)?;
        assert!(found, "an entry that is locked stays");
        Ok(Some(entry))
    }

    /// Deletes the entries whose keys lie in `bounds`; returns how many.
    ///
    /// # Errors
    ///
    /// As `insert`; some of the entries may then be deleted.
    ///
    /// # Examples
    ///
    /// ```
    /// # use terrace::{Error, TableDef};
    /// # let db = terrace::doc_test::database();
    /// const EVENTS: TableDef<u64, &str> = TableDef::new("events");
    /// db.write(|txn| {
    ///     let mut events = txn.open_table(EVENTS)?;
    ///     (0..10).try_for_each(|number| events.insert(number, "tick"))?;
    ///     assert_eq!(events.remove_range(..4)?, 4);
    ///     assert_eq!(events.retain(.., |number, _| number % 2 == 0)?, 3);
    ///     assert_eq!(events.drain(8..)?.next().expect("8")?.key(), 8);
    ///     assert_eq!(events.range(..)?.count(), 2);
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn remove_range<'k>(
        &mut self,
        bounds: impl RangeBounds<K::View<'k>>,
    ) -> Result<u64, Error> {
        let read = (LockMode::Exclusive, Wanted::Keys);
        let keys: Range<'_, K, (), _> = self.range_of(encode_bounds::<K>(&bounds), read)?;
        let mut deleted = 0;
        for entry in keys {
            deleted += u64::from(self.delete(entry?.key_bytes(), None)?);
        }
        Ok(deleted)
    }

    /// Deletes those entries in `bounds` for which `keep` returns false; returns how many. Entries
    /// are read some at a time: of one that `keep` itself changes, through another handle of the
    /// table, it may see the value before.
    ///
    /// # Errors
    ///
    /// As `insert`; some of the entries may then be deleted.
    pub fn retain<'k>(
        &mut self,
        bounds: impl RangeBounds<K::View<'k>>,
        keep: impl FnMut(K::View<'_>, V::View<'_>) -> bool,
    ) -> Result<u64, Error> {
        self.retain_between(encode_bounds::<K>(&bounds), keep)
    }

    /// As `retain`, between two encoded bounds.
    pub(super) fn retain_between(
        &mut self,
        bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
        mut keep: impl FnMut(K::View<'_>, V::View<'_>) -> bool,
    ) -> Result<u64, Error> {
        let mut deleted = 0;
        for entry in self.range_between(bounds, LockMode::Exclusive)? {
            let entry = entry?;
            if !keep(entry.key(), entry.value()) {
                deleted += u64::from(self.delete(entry.key_bytes(), None)?);
            }
        }
        Ok(deleted)
    }

    /// An iterator that deletes the entries in `bounds` as it returns them, from either end. Those
    /// that it did not return when it is dropped stay. It reads keys some at a time: what the
    /// transaction inserts within `bounds` meanwhile, or brings back by
    /// [`rollback_to`](WriteTransaction::rollback_to), may stay, too.
    ///
    /// # Errors
    ///
    /// As `insert`; the iterator returns errors too.
    pub fn drain<'k>(
        &mut self,
        bounds: impl RangeBounds<K::View<'k>>,
    ) -> Result<Drain<'_, K, V>, Error> {
        let range = self.range_in(&bounds, LockMode::Exclusive)?;
        Ok(Drain { table: self, range, deleted: Vec::new() })
    }
}

/// An iterator that deletes the entries that it returns: see [`Table::drain`].
pub struct Drain<'a, K: Key, V: Value> {
    table: &'a Table<'a, K, V, WriteTransaction>,
    range: Range<'a, K, V, WriteTransaction>,
    /// The value that was deleted last.
    deleted: Vec<u8>,
}

impl<'a, K: Key, V: Value> Drain<'a, K, V> {
    /// The next entry that is still there to be deleted: the transaction may have deleted some
    /// itself, or rolled them back, since they were read.
    fn next_deleted(
        &mut self,
        next: impl Fn(&mut Range<'a, K, V, WriteTransaction>) -> Option<Result<Entry<K, V>, Error>>,
    ) -> Option<Result<Entry<K, V>, Error>> {
        loop {
            let entry = match next(&mut self.range)? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            match self.table.delete(entry.key_bytes(), Some(&mut self.deleted)) {
                Ok(true) if self.deleted == entry.value_bytes() => return Some(Ok(entry)),
                Ok(true) => return Some(self.table.entry(entry.key_bytes(), &self.deleted)),
                Ok(false) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl<K: Key, V: Value> Iterator for Drain<'_, K, V> {
    type Item = Result<Entry<K, V>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_deleted(Range::next)
    }
}

impl<K: Key, V: Value> DoubleEndedIterator for Drain<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_deleted(Range::next_back)
    }
}

impl<K: Key, V: Value> fmt::Debug for Drain<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain").finish_non_exhaustive()
    }
}
