//! Many keys at once: their pages are read in batches, one for each level of the tree.

use crate::api::stream;
use crate::api::table::Owned;
use crate::btree::{FETCHED_MAX, Put};
use crate::writer::Reader;
use crate::{Error, Key, LockMode, Table, Transaction, Value, WriteTransaction};

impl<K: Key, V: Value, T: Transaction> Table<'_, K, V, T> {
    /// The values of many keys, in the order in which the keys are given.
    ///
    /// As `get` of each, but pages that are not in memory are read many at once: for up to 64 keys,
    /// in ascending order, those of one level of the tree together. So one thread gets what the
    /// device can do with 64 requests under way. Of large values the first pages are read so, and
    /// the others one after the other.
    ///
    /// # Errors
    ///
    /// As `get`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use terrace::TableDef;
    /// # let db = terrace::doc_test::database();
    /// const NAMES: TableDef<u32, &str> = TableDef::new("names");
    /// db.write(|txn| txn.open_table(NAMES)?.insert_many([(2, "two"), (1, "one")]))?;
    /// let txn = db.begin_read()?;
    /// let found = txn.open_table(NAMES)?.get_many([2, 3, 1])?;
    /// let found: Vec<_> = found.iter().map(|value| value.as_ref().map(|it| it.value())).collect();
    /// assert_eq!(found, [Some("two"), None, Some("one")]);
    /// # Ok::<(), terrace::Error>(())
    /// ```
    pub fn get_many<'k>(
        &self,
        keys: impl IntoIterator<Item = K::View<'k>>,
    ) -> Result<Vec<Option<Owned<V>>>, Error> {
        let mut keys: Vec<(Vec<u8>, usize)> =
            keys.into_iter().enumerate().map(|(at, key)| (encoded::<K>(&key), at)).collect();
        keys.sort_unstable();
        let mut found: Vec<Option<Owned<V>>> = Vec::new();
        found.resize_with(keys.len(), || None);
        for group in keys.chunks(FETCHED_MAX) {
            // What the leaves tell as they come. It is decoded later: that is the caller's code.
            let mut at_once: Vec<Option<Option<Vec<u8>>>> = vec![None; group.len()];
            let group_keys = group.iter().map(|(key, _)| &key[..]);
            self.fetch(group_keys, |at, value| at_once[at] = Some(value.map(<[u8]>::to_vec)))?;
            for ((key, at), seen) in group.iter().zip(at_once) {
                found[*at] = match seen {
                    Some(value) => value.map(|bytes| self.owned(bytes)).transpose()?,
                    None => self.get_encoded(key, LockMode::Shared)?,
                };
            }
        }
        Ok(found)
    }

    /// Brings what `keys`, which ascend, will need into memory, and shows to `found` what is known
    /// of them then.
    fn fetch<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]>,
        found: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), Error> {
        let keys: Vec<&[u8]> = keys.collect();
        if keys.len() < 2 {
            return Ok(());
        }
        self.live()?.run(|context| {
            self.tree().fetch(&keys, context.snapshot(), found);
            Ok(())
        })
    }
}

impl<K: Key, V: Value> Table<'_, K, V, WriteTransaction> {
    /// Inserts many entries, each as `insert` does, in ascending order of their keys: of two for
    /// the same key, the one that was given last stays. Pages that are not in memory are read as by
    /// `get_many`. Keys and values are copied first.
    ///
    /// # Errors
    ///
    /// As `insert`.
    ///
    /// # Examples
    ///
    /// See [`get_many`](Table::get_many).
    pub fn insert_many<'k, 'v>(
        &mut self,
        entries: impl IntoIterator<Item = (K::View<'k>, V::View<'v>)>,
    ) -> Result<(), Error> {
        let encode = |(key, value)| {
            let mut bytes = Vec::new();
            V::encode(&value, &mut bytes);
            (encoded::<K>(&key), bytes)
        };
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> = entries.into_iter().map(encode).collect();
        // Stable: the last one of a key stays the last.
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        for group in entries.chunks(FETCHED_MAX) {
            self.fetch(group.iter().map(|(key, _)| &key[..]), |_, _| ())?;
            for (key, value) in group {
                let core = self.live()?;
                core.emptied.borrow_mut().put(self.tree().id(), key);
                stream::put(core, self.tree(), (key, value), Put::Upsert, None)?;
            }
        }
        Ok(())
    }
}

fn encoded<K: Key>(key: &K::View<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    K::encode(key, &mut bytes);
    bytes
}
