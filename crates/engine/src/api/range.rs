//! Ranges of a table, read from either end.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::Arc;

use crate::api::core::Core;
use crate::btree::{Batch, Direction, LEAF, Scan, Tree, Wanted};
use crate::share::Share;
use crate::{Error, Key, LockMode, Transaction, Value};

/// Entries that a long scan with locks fetches at once. It begins with one and doubles, so that a
/// caller that wants one entry locks one.
const BATCH_MAX: usize = 128;
/// Entries that a scan of a snapshot fetches first: a caller that wants one reads no other value.
/// Then it fetches leaf by leaf.
const FIRST_BATCH: usize = 1;

/// A key and its value, encoded, and decoded on demand. Entries that were fetched together (in a
/// long scan up to 128, or those of a leaf of the tree) share one buffer, which is freed with the
/// last of them.
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
    batch: Arc<Batch>,
    index: usize,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Value> Entry<K, V> {
    #[inline]
    pub(super) fn new(
        batch: &Arc<Batch>,
        index: usize,
        (core, tree): (&Core, &Tree),
    ) -> Result<Entry<K, V>, Error> {
        let (key, value) = batch.entry(index);
        core.check_decoded(K::decode(key), tree, type_name::<K>())?;
        core.check_decoded(V::decode(value), tree, type_name::<V>())?;
        Ok(Entry { batch: Arc::clone(batch), index, types: PhantomData })
    }

    pub(crate) fn key_bytes(&self) -> &[u8] {
        self.batch.entry(self.index).0
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> K::View<'_> {
        K::decode(self.key_bytes()).expect("checked when it was read")
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> V::View<'_> {
        V::decode(self.value_bytes()).expect("checked when it was read")
    }

    /// The encoded bytes of the value.
    #[inline]
    pub fn value_bytes(&self) -> &[u8] {
        self.batch.entry(self.index).1
    }
}

impl<K: Key, V: Value> fmt::Debug for Entry<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, value) = self.batch.entry(self.index);
        f.debug_struct("Entry").field("key", &key).field("value", &value).finish()
    }
}

/// An iterator over the entries of a range in ascending order; `rev` reverses it.
///
/// The entries that it has passed, and the gaps between them, stay locked until the transaction
/// ends. A long scan locks up to 128 entries ahead.
///
/// In a write transaction entries are read in batches: the first call reads one, each later one
/// twice the number before, up to 128. So a change that the same transaction makes meanwhile,
/// through another [`Table`](crate::Table), shows in the entries that are read after it, not in
/// those of the current batch: up to 127 entries may be returned that it has removed since, or
/// with values that it has replaced. No other transaction can change what the batch holds. For the
/// same reason a range goes on to the end of its batch after the database was closed, and returns
/// [`Error::Closed`] only then.
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
    tree: Arc<Share<Tree>>,
    name: &'a str,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    mode: LockMode,
    wanted: Wanted,
    ends: Ends,
    types: PhantomData<fn() -> (K, V)>,
}

/// Both ends of a range: none until something was read from there.
#[derive(Default)]
struct Ends {
    front: Option<Side>,
    back: Option<Side>,
}

impl Ends {
    /// One of them, and the other one.
    #[inline]
    fn of(&mut self, direction: Direction) -> (&mut Option<Side>, &Option<Side>) {
        match direction {
            Direction::Forward => (&mut self.front, &self.back),
            Direction::Backward => (&mut self.back, &self.front),
        }
    }
}

/// What a caller has asked for.
#[derive(Clone, Copy)]
enum Step {
    /// The next entry.
    Row,
    /// All entries of the next leaf.
    Leaf,
}

/// One end of a range.
struct Side {
    scan: Option<Scan>,
    /// Shared with the entries that were returned of it.
    batch: Arc<Batch>,
    /// Entries of the batch that were not returned yet.
    left: std::ops::Range<usize>,
    batch_len: usize,
    /// The key returned last of the batch before.
    last: Option<Vec<u8>>,
    ended: bool,
}

impl Side {
    fn new(batch: Arc<Batch>) -> Side {
        Side { scan: None, batch, left: 0..0, batch_len: 0, last: None, ended: false }
    }

    /// The key returned last.
    #[inline]
    fn last(&self) -> Option<&[u8]> {
        match self.left.start.checked_sub(1) {
            Some(index) => Some(self.batch.entry(index).0),
            None => self.last.as_deref(),
        }
    }

    /// The batch, to be filled anew: another one if entries still share it.
    fn refill(&mut self) -> &mut Batch {
        if let Some(last) = self.left.start.checked_sub(1) {
            let kept = self.last.get_or_insert_default();
            kept.clear();
            kept.extend_from_slice(self.batch.entry(last).0);
        }
        self.left = 0..0;
        if Arc::get_mut(&mut self.batch).is_none() {
            self.batch = Arc::default();
        }
        Arc::get_mut(&mut self.batch).expect("nobody else has it")
    }
}

impl<'a, K: Key, V: Value, T: Transaction> Range<'a, K, V, T> {
    pub(crate) fn new(
        transaction: &'a T,
        (tree, name): (Arc<Share<Tree>>, &'a str),
        lower: Bound<Vec<u8>>,
        upper: Bound<Vec<u8>>,
        (mode, wanted): (LockMode, Wanted),
    ) -> Range<'a, K, V, T> {
        let ends = Ends::default();
        Range { transaction, tree, name, lower, upper, mode, wanted, ends, types: PhantomData }
    }

    #[inline]
    fn advance(&mut self, direction: Direction) -> Option<Result<Entry<K, V>, Error>> {
        let (side, _) = self.ends.of(direction);
        if side.as_ref().is_none_or(|side| side.left.is_empty())
            && let Err(error) = self.fetch(direction, Step::Row)
        {
            return Some(Err(error));
        }
        let (side, other) = self.ends.of(direction);
        let side = side.as_mut()?;
        let index = side.left.next()?;
        if let Some(met) = other.as_ref().and_then(Side::last) {
            let (key, _) = side.batch.entry(index);
            if if direction == Direction::Forward { key >= met } else { key <= met } {
                // That one was not returned.
                (side.ended, side.left) = (true, index..index);
                return None;
            }
        }
        Some(Entry::new(&side.batch, index, (self.transaction.core(), &self.tree)))
    }

    /// The next entries in ascending order, many at a time: those that have been read already, or
    /// those of the next leaf of the tree, at most some hundreds. That costs least for each; `None`
    /// if the range is at its end. [`next`](Iterator::next) goes on behind them. With locks, all of
    /// them are locked.
    ///
    /// # Errors
    ///
    /// Those of [`Table::get`](crate::Table::get).
    ///
    /// # Examples
    ///
    /// ```
    /// # use terrace::TableDef;
    /// # let db = terrace::doc_test::database();
    /// const SALES: TableDef<u64, u64> = TableDef::new("sales");
    /// db.write(|txn| {
    ///     let mut sales = txn.open_table(SALES)?;
    ///     (0..1000).try_for_each(|n| sales.insert(n, n))
    /// })?;
    /// let txn = db.begin_read()?;
    /// let sales = txn.open_table(SALES)?;
    /// let (mut range, mut sum) = (sales.range(10..)?, 0);
    /// while let Some(rows) = range.next_rows()? {
    ///     for row in rows {
    ///         let (_number, amount) = row?;
    ///         sum += amount;
    ///     }
    /// }
    /// assert_eq!(sum, (10..1000).sum());
    /// # Ok::<(), terrace::Error>(())
    /// ```
    pub fn next_rows(&mut self) -> Result<Option<Rows<'_, K, V>>, Error> {
        self.rows(Direction::Forward)
    }

    /// As `next_rows`, in descending order.
    ///
    /// # Errors
    ///
    /// Those of `next_rows`.
    pub fn next_rows_back(&mut self) -> Result<Option<Rows<'_, K, V>>, Error> {
        self.rows(Direction::Backward)
    }

    fn rows(&mut self, direction: Direction) -> Result<Option<Rows<'_, K, V>>, Error> {
        let (side, _) = self.ends.of(direction);
        if side.as_ref().is_none_or(|side| side.left.is_empty()) {
            self.fetch(direction, Step::Leaf)?;
        }
        let (side, other) = self.ends.of(direction);
        let Some(side) = side else { return Ok(None) };
        let mut rows = side.left.clone();
        if let Some(met) = other.as_ref().and_then(Side::last) {
            let is_met = |index: usize| {
                let (key, _) = side.batch.entry(index);
                if direction == Direction::Forward { key >= met } else { key <= met }
            };
            while !rows.is_empty() && is_met(rows.end - 1) {
                rows.end -= 1;
                side.ended = true;
            }
        }
        if rows.is_empty() {
            side.left = rows;
            return Ok(None);
        }
        side.left = rows.end..rows.end;
        Ok(Some(Rows {
            batch: &side.batch,
            rows,
            of: (self.transaction.core(), &self.tree),
            types: PhantomData,
        }))
    }

    /// Fetches the next entries at one end.
    #[cold]
    fn fetch(&mut self, direction: Direction, step: Step) -> Result<(), Error> {
        let core = self.transaction.core();
        core.check_table(&self.tree, self.name)?;
        let (side, other) = self.ends.of(direction);
        let side = side.get_or_insert_with(|| Side::new(core.take_batch()));
        if side.ended {
            return Ok(());
        }
        let mut scan = side.scan.take().unwrap_or_else(|| {
            // What the other end has returned is not looked at again.
            let met = other.as_ref().and_then(Side::last).map(|met| Bound::Excluded(met.to_vec()));
            let (lower, upper) = match direction {
                Direction::Forward => {
                    (self.lower.clone(), met.unwrap_or_else(|| self.upper.clone()))
                }
                Direction::Backward => {
                    (met.unwrap_or_else(|| self.lower.clone()), self.upper.clone())
                }
            };
            Scan::new(lower, upper, direction, self.mode).reading(self.wanted)
        });
        let len_before = side.batch_len;
        let batch = side.refill();
        let mut limit = LEAF;
        let fetched = core.read(|context| {
            limit = match (step, context.snapshot_at()) {
                (Step::Row, Some(_)) if len_before == 0 => FIRST_BATCH,
                (Step::Row, None) => (len_before * 2).clamp(1, BATCH_MAX),
                (Step::Row, Some(_)) | (Step::Leaf, _) => LEAF,
            };
            scan.next_batch(&self.tree, context, limit, batch)
        });
        side.batch_len = limit.min(BATCH_MAX);
        side.left = 0..side.batch.len();
        side.ended = fetched.is_err() || side.left.is_empty();
        side.scan = Some(scan);
        if fetched.is_err() {
            side.left = 0..0;
        }
        fetched
    }
}

/// Some rows of a range, in its order. See [`Range::next_rows`].
pub struct Rows<'r, K: Key, V: Value> {
    batch: &'r Batch,
    rows: std::ops::Range<usize>,
    of: (&'r Core, &'r Tree),
    types: PhantomData<fn() -> (K, V)>,
}

impl<'r, K: Key, V: Value> Iterator for Rows<'r, K, V> {
    type Item = Result<(K::View<'r>, V::View<'r>), Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (key, value) = self.batch.entry(self.rows.next()?);
        Some(match (K::decode(key), V::decode(value)) {
            (Some(key), Some(value)) => Ok((key, value)),
            (None, _) => Err(self.of.0.undecodable(self.of.1, type_name::<K>())),
            (_, None) => Err(self.of.0.undecodable(self.of.1, type_name::<V>())),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rows.size_hint()
    }
}

impl<K: Key, V: Value> ExactSizeIterator for Rows<'_, K, V> {}

impl<K: Key, V: Value> fmt::Debug for Rows<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("left", &self.rows.len()).finish_non_exhaustive()
    }
}

impl<K: Key, V: Value, T: Transaction> Drop for Range<'_, K, V, T> {
    fn drop(&mut self) {
        for side in [self.ends.front.take(), self.ends.back.take()].into_iter().flatten() {
            self.transaction.core().keep_batch(side.batch);
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
