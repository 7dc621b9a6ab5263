//! Ranges of a table, read from either end.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::Arc;

use crate::api::core::Core;
use crate::api::table::check_decoded;
use crate::btree::{Batch, Direction, Scan, Tree};
use crate::{Error, Key, LockMode, Transaction, Value};

/// Entries that a long scan fetches at once. It begins with one and doubles, so that who wants one
/// entry locks one.
const BATCH_MAX: usize = 128;

/// A key and its value, encoded, and decoded on demand. Entries that were fetched together, up to
/// 128 in a long scan, share one buffer, which is freed with the last of them.
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
    fn new(batch: &Arc<Batch>, index: usize, of: (&Core, &Tree)) -> Result<Entry<K, V>, Error> {
        let (key, value) = batch.entry(index);
        check_decoded(K::decode(key), of, type_name::<K>())?;
        check_decoded(V::decode(value), of, type_name::<V>())?;
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
/// Entries are read in batches: the first call reads one, later ones twice as many each, up to 128.
/// So a change that the same transaction makes meanwhile, through another [`Table`](crate::Table),
/// shows in the entries that are read after it, not in those of the current batch: up to 127
/// entries may be returned that it has removed since, or with values that it has replaced. No other
/// transaction can change what the batch holds. For the same reason a range goes on to the end of
/// its batch after the database was closed, and returns [`Error::Closed`] only then.
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
    name: &'static str,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    mode: LockMode,
    /// None until something was read from there.
    front: Option<Side>,
    back: Option<Side>,
    types: PhantomData<fn() -> (K, V)>,
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
        (tree, name): (Arc<Tree>, &'static str),
        lower: Bound<Vec<u8>>,
        upper: Bound<Vec<u8>>,
        mode: LockMode,
    ) -> Range<'a, K, V, T> {
        let (front, back) = (None, None);
        Range { transaction, tree, name, lower, upper, mode, front, back, types: PhantomData }
    }

    #[inline]
    fn advance(&mut self, direction: Direction) -> Option<Result<Entry<K, V>, Error>> {
        let has_next =
            |side: &Option<Side>| side.as_ref().is_some_and(|side| !side.left.is_empty());
        let side = if direction == Direction::Forward { &self.front } else { &self.back };
        if !has_next(side)
            && let Err(error) = self.fetch(direction)
        {
            return Some(Err(error));
        }
        let (side, other) = match direction {
            Direction::Forward => (&mut self.front, &self.back),
            Direction::Backward => (&mut self.back, &self.front),
        };
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

    /// Fetches the next entries at one end, if there are any.
    #[cold]
    fn fetch(&mut self, direction: Direction) -> Result<(), Error> {
        let core = self.transaction.core();
        core.check_table(&self.tree, self.name)?;
        let (side, other) = match direction {
            Direction::Forward => (&mut self.front, &self.back),
            Direction::Backward => (&mut self.back, &self.front),
        };
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
            Scan::new(lower, upper, direction, self.mode)
        });
        let limit = (side.batch_len * 2).clamp(1, BATCH_MAX);
        side.batch_len = limit;
        let batch = side.refill();
        let fetched = core.read(|context| scan.next_batch(&self.tree, context, limit, batch));
        side.left = 0..side.batch.len();
        side.ended = fetched.is_err() || side.left.is_empty();
        side.scan = Some(scan);
        if fetched.is_err() {
            side.left = 0..0;
        }
        fetched
    }
}

impl<K: Key, V: Value, T: Transaction> Drop for Range<'_, K, V, T> {
    fn drop(&mut self) {
        for side in [self.front.take(), self.back.take()].into_iter().flatten() {
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
