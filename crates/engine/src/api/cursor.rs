//! Cursors: places in a table that can be moved.

use std::fmt;
use std::ops::Bound;

use crate::{Entry, Error, Key, LockMode, Range, Table, Transaction, Value, WriteTransaction};

/// Where a cursor is.
enum Place<K: Key, V: Value> {
    /// Before the first entry.
    Start,
    /// At an entry.
    At(Entry<K, V>),
    /// Behind the last entry.
    End,
}

/// A place in a table: at an entry, before the first one or behind the last one.
/// [`Table::cursor`] makes it, and [`Table::cursor_for_update`] one with exclusive locks.
///
/// It reads entries as a [`Range`] does, and locks what it passes: a change that the same
/// transaction makes meanwhile, through another handle of the table, may not show in the next 127
/// entries in the direction in which the cursor moves. [`Cursor::seek`] and a change of direction
/// read anew.
///
/// # Examples
///
/// ```
/// # use terrace::{Error, TableDef};
/// # let db = terrace::doc_test::database();
/// const NAMES: TableDef<u32, &str> = TableDef::new("names");
/// db.write(|txn| {
///     let mut names = txn.open_table(NAMES)?;
///     let rows = [(1, "one"), (3, "three"), (5, "five")];
///     rows.into_iter().try_for_each(|(number, name)| names.insert(number, name))
/// })?;
/// let txn = db.begin_read()?;
/// let names = txn.open_table(NAMES)?;
/// let mut cursor = names.cursor();
/// assert_eq!(cursor.seek(2)?.expect("3 is the next").value(), "three");
/// assert_eq!(cursor.prev()?.expect("there").key(), 1);
/// assert!(cursor.prev()?.is_none() && cursor.current().is_none());
/// assert_eq!(cursor.next()?.expect("the first again").key(), 1);
/// assert_eq!(cursor.last()?.expect("there").key(), 5);
/// # Ok::<(), Error>(())
/// ```
pub struct Cursor<'a, K: Key, V: Value, T: Transaction> {
    table: &'a Table<'a, K, V, T>,
    mode: LockMode,
    place: Place<K, V>,
    /// What lies behind the place, if the last step went forward.
    after: Option<Range<'a, K, V, T>>,
    /// What lies before it, if the last step went backward.
    before: Option<Range<'a, K, V, T>>,
}

impl<'t, K: Key, V: Value, T: Transaction> Table<'t, K, V, T> {
    /// A cursor, which is before the first entry. In a write transaction it locks what it passes as
    /// `get` does, not for an update: two transactions that walk the same rows and then change them
    /// meet a `Conflict`. See `cursor_for_update`.
    pub fn cursor<'a>(&'a self) -> Cursor<'a, K, V, T> {
        self.cursor_in(LockMode::Shared)
    }

    fn cursor_in<'a>(&'a self, mode: LockMode) -> Cursor<'a, K, V, T> {
        Cursor { table: self, mode, place: Place::Start, after: None, before: None }
    }
}

impl<K: Key, V: Value> Table<'_, K, V, WriteTransaction> {
    /// As `cursor`, with exclusive locks on what it passes: for rows that are then changed, through
    /// another handle of the table. It locks up to 127 entries ahead.
    ///
    /// # Examples
    ///
    /// ```
    /// # use terrace::{Error, TableDef};
    /// # let db = terrace::doc_test::database();
    /// const JOBS: TableDef<u64, &str> = TableDef::new("jobs");
    /// db.write(|txn| {
    ///     let (jobs, mut to_change) = (txn.open_table(JOBS)?, txn.open_table(JOBS)?);
    ///     (1..4).try_for_each(|number| to_change.insert(number, "waiting"))?;
    ///     let mut cursor = jobs.cursor_for_update();
    ///     let second = cursor.seek(2)?.expect("2 waits").key();
    ///     to_change.update(second, "done")?;
    ///     assert_eq!(cursor.next()?.expect("3 waits").key(), 3);
    ///     assert_eq!(jobs.get(2)?.expect("there").value(), "done");
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn cursor_for_update<'a>(&'a self) -> Cursor<'a, K, V, WriteTransaction> {
        self.cursor_in(LockMode::Exclusive)
    }
}

impl<'a, K: Key, V: Value, T: Transaction> Cursor<'a, K, V, T> {
    /// The entry that it is at, if it is at one.
    pub fn current(&self) -> Option<&Entry<K, V>> {
        match &self.place {
            Place::At(entry) => Some(entry),
            Place::Start | Place::End => None,
        }
    }

    /// Moves to the first entry whose key is `key` or greater, or behind the last entry.
    ///
    /// # Errors
    ///
    /// As [`Table::get`]; the cursor is then where it was.
    pub fn seek(&mut self, key: K::View<'_>) -> Result<Option<&Entry<K, V>>, Error> {
        let mut bytes = Vec::new();
        K::encode(&key, &mut bytes);
        self.go_forward(Bound::Included(bytes))
    }

    /// Moves to the last entry whose key is `key` or less, or before the first entry.
    ///
    /// # Errors
    ///
    /// As `seek`.
    pub fn seek_back(&mut self, key: K::View<'_>) -> Result<Option<&Entry<K, V>>, Error> {
        let mut bytes = Vec::new();
        K::encode(&key, &mut bytes);
        self.go_back(Bound::Included(bytes))
    }

    /// Moves to the first entry.
    ///
    /// # Errors
    ///
    /// As `seek`.
    pub fn first(&mut self) -> Result<Option<&Entry<K, V>>, Error> {
        self.go_forward(Bound::Unbounded)
    }

    /// Moves to the last entry.
    ///
    /// # Errors
    ///
    /// As `seek`.
    pub fn last(&mut self) -> Result<Option<&Entry<K, V>>, Error> {
        self.go_back(Bound::Unbounded)
    }

    /// Moves to the next entry, or behind the last one. From before the first one it moves to that.
    ///
    /// # Errors
    ///
    /// As `seek`.
    #[expect(clippy::should_implement_trait, reason = "its items borrow from the cursor")]
    pub fn next(&mut self) -> Result<Option<&Entry<K, V>>, Error> {
        match (&self.place, self.after.take()) {
            (Place::End, _) => Ok(None),
            (Place::Start, _) => self.go_forward(Bound::Unbounded),
            (Place::At(_), Some(after)) => self.step_forward(after),
            (Place::At(entry), None) => {
                let key = entry.key_bytes().to_vec();
                self.go_forward(Bound::Excluded(key))
            }
        }
    }

    /// Moves to the entry before, or before the first one. From behind the last one it moves to
    /// that.
    ///
    /// # Errors
    ///
    /// As `seek`.
    pub fn prev(&mut self) -> Result<Option<&Entry<K, V>>, Error> {
        match (&self.place, self.before.take()) {
            (Place::Start, _) => Ok(None),
            (Place::End, _) => self.go_back(Bound::Unbounded),
            (Place::At(_), Some(before)) => self.step_back(before),
            (Place::At(entry), None) => {
                let key = entry.key_bytes().to_vec();
                self.go_back(Bound::Excluded(key))
            }
        }
    }

    fn go_forward(&mut self, lower: Bound<Vec<u8>>) -> Result<Option<&Entry<K, V>>, Error> {
        let after = self.table.range_between((lower, Bound::Unbounded), self.mode)?;
        self.step_forward(after)
    }

    fn go_back(&mut self, upper: Bound<Vec<u8>>) -> Result<Option<&Entry<K, V>>, Error> {
        let before = self.table.range_between((Bound::Unbounded, upper), self.mode)?;
        self.step_back(before)
    }

    fn step_forward(
        &mut self,
        mut after: Range<'a, K, V, T>,
    ) -> Result<Option<&Entry<K, V>>, Error> {
        self.place = match after.next().transpose()? {
            Some(entry) => Place::At(entry),
            None => Place::End,
        };
        (self.after, self.before) = (Some(after), None);
        Ok(self.current())
    }

    fn step_back(&mut self, mut before: Range<'a, K, V, T>) -> Result<Option<&Entry<K, V>>, Error> {
        self.place = match before.next_back().transpose()? {
            Some(entry) => Place::At(entry),
            None => Place::Start,
        };
        (self.after, self.before) = (None, Some(before));
        Ok(self.current())
    }
}

impl<K: Key, V: Value, T: Transaction> fmt::Debug for Cursor<'_, K, V, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("current", &self.current()).finish_non_exhaustive()
    }
}
