//! Merges: a value made of the one that is there and an operand.
//!
//! - M1: the operator runs with the row locked, and without a page latched or the transaction in
//!   use: one that panics leaves both as they were.

use std::fmt;
use std::marker::PhantomData;

use crate::{Error, Key, Table, Value, WriteTransaction};

/// What a merge leaves in the table: the operator of [`Table::merge`] says it.
pub struct Merged<V: Value> {
    bytes: Vec<u8>,
    outcome: Outcome,
    types: PhantomData<fn() -> V>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The operator has said nothing: the row stays as it is.
    Kept,
    /// The row gets a value.
    Set,
    /// The row goes.
    Removed,
}

impl<V: Value> Merged<V> {
    /// The row gets this value.
    pub fn set(&mut self, value: V::View<'_>) {
        self.bytes.clear();
        V::encode(&value, &mut self.bytes);
        self.outcome = Outcome::Set;
    }

    /// The row is removed, if there is one.
    pub fn remove(&mut self) {
        self.outcome = Outcome::Removed;
    }
}

impl<V: Value> fmt::Debug for Merged<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Merged").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

impl<K: Key, V: Value> Table<'_, K, V, WriteTransaction> {
    /// Merges `operand` into the value of `key`: `operator` gets the value, if there is one, and
    /// the operand, and says what is to be there. It is applied at once, and what it reads stays
    /// locked exclusively until the transaction ends.
    ///
    /// If it says nothing, or panics, the row stays as it is. It may use the transaction.
    ///
    /// # Errors
    ///
    /// As `insert`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use terrace::{Error, TableDef};
    /// # let db = terrace::doc_test::database();
    /// const VISITS: TableDef<&str, u64> = TableDef::new("visits");
    /// db.write(|txn| {
    ///     let mut visits = txn.open_table(VISITS)?;
    ///     for page in ["a", "b", "a"] {
    ///         visits.merge(page, 1, |seen, more, now| now.set(seen.unwrap_or(0) + more))?;
    ///     }
    ///     assert_eq!(visits.get("a")?.expect("merged").value(), 2);
    ///     visits.merge("b", 0, |_, _, now| now.remove())?;
    ///     assert!(!visits.contains("b")?);
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn merge(
        &mut self,
        key: K::View<'_>,
        operand: V::View<'_>,
        operator: impl FnOnce(Option<V::View<'_>>, V::View<'_>, &mut Merged<V>),
    ) -> Result<(), Error> {
        let mut encoded = Vec::new();
        K::encode(&key, &mut encoded);
        let old = self.get_for_update(key)?;
        let mut merged = Merged { bytes: Vec::new(), outcome: Outcome::Kept, types: PhantomData };
        operator(old.as_ref().map(|old| old.value()), operand, &mut merged);
        match merged.outcome {
            Outcome::Kept => Ok(()),
            Outcome::Set => self.put_encoded(&encoded, &merged.bytes),
            Outcome::Removed => self.delete(&encoded, None).map(drop),
        }
    }
}
