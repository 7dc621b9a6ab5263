//! Ranges of a table, read from either end.

use std::marker::PhantomData;

use crate::{Error, Key, Transaction, Value};

/// A key and its value: their bytes, decoded on demand.
pub struct Entry<K: Key, V: Value> {
    bytes: Vec<u8>,
    key_len: usize,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Value> Entry<K, V> {
    /// The key.
    pub fn key(&self) -> K::View<'_> {
        K::decode(&self.bytes[..self.key_len]).expect("checked when it was read")
    }

    /// The value.
    pub fn value(&self) -> V::View<'_> {
        V::decode(&self.bytes[self.key_len..]).expect("checked when it was read")
    }
}

/// An iterator over the entries of a range, ascending; `rev` turns it round.
///
/// What it has passed stays as it is until the transaction ends: the entries, and the gaps
/// between them.
pub struct Range<'a, K: Key, V: Value, T: Transaction> {
    #[expect(dead_code)]
    transaction: &'a T,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Value, T: Transaction> Iterator for Range<'_, K, V, T> {
    type Item = Result<Entry<K, V>, Error>;

    fn next(&mut self) -> Option<Result<Entry<K, V>, Error>> {
        unimplemented!()
    }
}

impl<K: Key, V: Value, T: Transaction> DoubleEndedIterator for Range<'_, K, V, T> {
    fn next_back(&mut self) -> Option<Result<Entry<K, V>, Error>> {
        unimplemented!()
    }
}
