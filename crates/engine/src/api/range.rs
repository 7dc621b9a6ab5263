//! Ranges of a table, read from either end.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::Arc;

use crate::api::table::check_decoded;
use crate::btree::node::Joined;
use crate::btree::{Batch, Direction, Scan, Tree};
use crate::{Error, Key, LockMode, Transaction, Value};

/// Entries that a long scan fetches at once. It begins with one and doubles, so that who wants one
/// entry locks one.
const BATCH_MAX: usize = 128;

/// A key and its value: their bytes, decoded on demand.
///
/// # Examples
///
/// ```
/// # use terrace::TableDef;
/// # let db = terrace::doc_test::database();
/// const NAMES: TableDef<u32, &str> = TableDef::new("names");
/// db.write(|txn| txn.open_table(NAMES)?.insert(1, "one"))?;
/// let entry = db.read(|txn| txn.open_table(NAMES)?.first())?.expect("just inserted");
/// assert_eq!((entry.key(), entry.value()), (1, "one"));
/// # Ok::<(), terrace::Error>(())
/// ```
pub struct Entry<K: Key, V: Value> {
    bytes: Joined,
    key_len: usize,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Value> Entry<K, V> {
    fn new(key: &[u8], value: &[u8], tree: &Tree) -> Result<Entry<K, V>, Error> {
        check_decoded(K::decode(key).is_some() && V::decode(value).is_some(), tree)?;
        Ok(Entry { bytes: Joined::new(key, value), key_len: key.len(), types: PhantomData })
    }

    pub(crate) fn key_bytes(&self) -> &[u8] {
        &self.bytes[..self.key_len]
    }

    /// The key.
    pub fn key(&self) -> K::View<'_> {
        K::decode(&self.bytes[..self.key_len]).expect("checked when it was read")
    }

    /// The value.
    pub fn value(&self) -> V::View<'_> {
        V::decode(&self.bytes[self.key_len..]).expect("checked when it was read")
    }

    /// The value as it is stored.
    pub fn value_bytes(&self) -> &[u8] {
        &self.bytes[self.key_len..]
    }
}

impl<K: Key, V: Value> fmt::Debug for Entry<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, value) = self.bytes.split_at(self.key_len);
        f.debug_struct("Entry").field("key", &key).field("value", &value).finish()
    }
}

/// An iterator over the entries of a range, ascending; `rev` turns it round.
///
/// What it has passed stays as it is until the transaction ends: the entries, and the gaps
/// between them. A long scan locks up to 128 entries ahead.
///
/// # Examples
///
/// ```
/// # use terrace::TableDef;
/// # let db = terrace::doc_test::database();
/// const NAMES: TableDef<u32, &str> = TableDef::new("names");
/// db.write(|txn| {
///     let mut names = txn.open_table(NAMES)?;
///     [(1, "one"), (2, "two"), (3, "three")].into_iter().try_for_each(|(n, s)| names.insert(n, s))
/// })?;
/// let txn = db.begin_read()?;
/// let names = txn.open_table(NAMES)?;
/// let mut range = names.range(2..)?;
/// assert_eq!(range.next_back().expect("three")?.key(), 3);
/// assert_eq!(range.next().expect("two")?.value(), "two");
/// assert!(range.next().is_none());
/// # Ok::<(), terrace::Error>(())
/// ```
pub struct Range<'a, K: Key, V: Value, T: Transaction> {
    transaction: &'a T,
    tree: Arc<Tree>,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    mode: LockMode,
    front: Side,
    back: Side,
    types: PhantomData<fn() -> (K, V)>,
}

/// One end of a range.
#[derive(Default)]
struct Side {
    scan: Option<Scan>,
    batch: Batch,
    /// Entries of the batch that were not returned yet.
    left: std::ops::Range<usize>,
    batch_len: usize,
    /// The key returned last.
    last: Option<Vec<u8>>,
    ended: bool,
}

impl<'a, K: Key, V: Value, T: Transaction> Range<'a, K, V, T> {
    pub(crate) fn new(
        transaction: &'a T,
        tree: Arc<Tree>,
        lower: Bound<Vec<u8>>,
        upper: Bound<Vec<u8>>,
        mode: LockMode,
    ) -> Range<'a, K, V, T> {
        let (front, back) = (Side::default(), Side::default());
        Range { transaction, tree, lower, upper, mode, front, back, types: PhantomData }
    }

    fn advance(&mut self, direction: Direction) -> Option<Result<Entry<K, V>, Error>> {
        let forward = direction == Direction::Forward;
        let (side, other) = match forward {
            true => (&mut self.front, &self.back),
            false => (&mut self.back, &self.front),
        };
        if side.ended {
            return None;
        }
        if side.left.is_empty() {
            let core = self.transaction.core();
            let bound = |bound: &Bound<Vec<u8>>| bound.clone();
            let scan = side.scan.get_or_insert_with(|| {
                side.batch = core.take_batch();
                // What the other end has returned is not looked at again.
                let met = || other.last.clone().map(Bound::Excluded);
                let (lower, upper) = match forward {
                    true => (bound(&self.lower), met().unwrap_or_else(|| bound(&self.upper))),
                    false => (met().unwrap_or_else(|| bound(&self.lower)), bound(&self.upper)),
                };
                Scan::new(lower, upper, direction, self.mode)
            });
            side.batch_len = (side.batch_len * 2).clamp(1, BATCH_MAX);
            let (limit, batch) = (side.batch_len, &mut side.batch);
            let fetched =
                core.read(|context| scan.next_batch(&self.tree, context, limit, &mut *batch));
            if let Err(error) = fetched {
                side.ended = true;
                return Some(Err(error));
            }
            side.left = 0..side.batch.len();
        }
        let Some(index) = side.left.next() else {
            side.ended = true;
            return None;
        };
        let (key, value) = side.batch.entry(index);
        let met = other.last.as_deref();
        if met.is_some_and(|met| if forward { key >= met } else { key <= met }) {
            side.ended = true;
            return None;
        }
        let last = side.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        Some(Entry::new(key, value, &self.tree))
    }
}

impl<K: Key, V: Value, T: Transaction> Drop for Range<'_, K, V, T> {
    fn drop(&mut self) {
        for side in [&mut self.front, &mut self.back] {
            if side.scan.is_some() {
                self.transaction.core().keep_batch(std::mem::take(&mut side.batch));
            }
        }
    }
}

impl<K: Key, V: Value, T: Transaction> Iterator for Range<'_, K, V, T> {
    type Item = Result<Entry<K, V>, Error>;

    fn next(&mut self) -> Option<Result<Entry<K, V>, Error>> {
        self.advance(Direction::Forward)
    }
}

impl<K: Key, V: Value, T: Transaction> DoubleEndedIterator for Range<'_, K, V, T> {
    fn next_back(&mut self) -> Option<Result<Entry<K, V>, Error>> {
        self.advance(Direction::Backward)
    }
}

impl<K: Key, V: Value, T: Transaction> fmt::Debug for Range<'_, K, V, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range").field("tree", &self.tree.id()).finish_non_exhaustive()
    }
}
