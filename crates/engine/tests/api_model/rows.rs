//! Operations of one table, and their model: its rows in a map, encoded. Typed tables, raw ones and
//! the table of a multimap go through the same ones.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use terrace::{Cursor, Database, Entry, Error, Key, Owned, RawTable, Table, Transaction, Value};
use terrace_rt::Prng;

pub type Bytes = &'static [u8];
pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
type Pair = (Vec<u8>, Vec<u8>);
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

pub const KEYS: u64 = 80;
/// Values of each key of a multimap, at most.
const VALUES: u64 = 9;

/// What the rows of a table are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Numbers to bytes.
    Bytes,
    /// Numbers to numbers.
    Numbers,
    /// A multimap: pairs of numbers.
    Pairs,
}

impl Shape {
    pub fn draw(prng: &mut Prng) -> Shape {
        [Shape::Bytes, Shape::Numbers, Shape::Pairs][prng.below(3) as usize]
    }

    /// The key at `place` among all that there can be.
    pub fn key_at(self, place: u64) -> Vec<u8> {
        match self {
            Shape::Pairs => {
                [(place / VALUES).to_be_bytes(), (place % VALUES).to_be_bytes()].concat()
            }
            Shape::Bytes | Shape::Numbers => place.to_be_bytes().to_vec(),
        }
    }

    pub fn key(self, prng: &mut Prng) -> Vec<u8> {
        self.key_at(prng.below(KEYS))
    }

    pub fn value(self, prng: &mut Prng) -> Vec<u8> {
        let len = match (self, prng.below(20)) {
            (Shape::Pairs, _) => 0,
            (Shape::Numbers, _) => return prng.next_u64().to_le_bytes().to_vec(),
            (Shape::Bytes, 0) => 9_000 + prng.below(9_000),
            (Shape::Bytes, 1..4) => 500 + prng.below(1_500),
            (Shape::Bytes, _) => prng.below(40),
        };
        vec![prng.below(256) as u8; len as usize]
    }

    fn bounds(self, prng: &mut Prng) -> Bounds {
        let mut bound = || match prng.below(4) {
            0 => Bound::Unbounded,
            1 => Bound::Excluded(self.key(prng)),
            _ => Bound::Included(self.key(prng)),
        };
        (bound(), bound())
    }

    /// Bounds of a few keys, mostly: for what deletes all of them.
    fn few(self, prng: &mut Prng) -> Bounds {
        if prng.below(4) == 0 {
            return self.bounds(prng);
        }
        let place = prng.below(KEYS);
        let end = self.key_at(place + prng.below(12));
        (Bound::Included(self.key_at(place)), Bound::Excluded(end))
    }
}

fn key_of<K: Key>(bytes: &[u8]) -> K::View<'_> {
    K::decode(bytes).expect("a key of this type")
}

fn value_of<V: Value>(bytes: &[u8]) -> V::View<'_> {
    V::decode(bytes).expect("a value of this type")
}

fn views<K: Key>((lower, upper): &Bounds) -> (Bound<K::View<'_>>, Bound<K::View<'_>>) {
    (lower.as_ref().map(|key| key_of::<K>(key)), upper.as_ref().map(|key| key_of::<K>(key)))
}

fn key_bytes<K: Key>(view: &K::View<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    K::encode(view, &mut bytes);
    bytes
}

fn value_bytes<V: Value>(view: &V::View<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    V::encode(view, &mut bytes);
    bytes
}

fn pair<K: Key, V: Value>(entry: &Entry<K, V>) -> Pair {
    (key_bytes::<K>(&entry.key()), entry.value_bytes().to_vec())
}

fn bytes<V: Value>(found: Option<Owned<V>>) -> Option<Vec<u8>> {
    found.map(|value| value.bytes().to_vec())
}

fn is_within(key: &[u8], (lower, upper): &Bounds) -> bool {
    let above = match lower {
        Bound::Unbounded => true,
        Bound::Included(bound) => key >= &bound[..],
        Bound::Excluded(bound) => key > &bound[..],
    };
    above
        && match upper {
            Bound::Unbounded => true,
            Bound::Included(bound) => key <= &bound[..],
            Bound::Excluded(bound) => key < &bound[..],
        }
}

fn within(rows: &Rows, bounds: &Bounds) -> Vec<Pair> {
    let rows = rows.iter().filter(|(key, _)| is_within(key, bounds));
    rows.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Whether the errors are of one kind: then their fields are compared by their text.
#[track_caller]
pub fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    found: Result<T, Error>,
    model: Result<T, &str>,
) {
    match (&found, &model) {
        (Ok(found), Ok(model)) => assert_eq!(found, model, "{what}"),
        (Err(error), Err(kind)) => {
            let debug = format!("{error:?}");
            assert!(debug.starts_with(kind), "{what}: {error}, not {kind}");
        }
        _ => panic!("{what}: found {found:?}, expected {model:?}"),
    }
}

/// One operation that reads, of either kind of transaction.
pub fn reads<K: Key, V: Value, T: Transaction>(
    what: &str,
    table: &Table<'_, K, V, T>,
    (rows, shape): (&Rows, Shape),
    prng: &mut Prng,
) {
    let key = shape.key(prng);
    let (old, view) = (rows.get(&key).cloned(), key_of::<K>(&key));
    let own = |entry: Option<Entry<K, V>>| entry.as_ref().map(pair);
    match prng.below(12) {
        0 => same(what, table.get(view).map(bytes), Ok(old)),
        1 => {
            let mut out = b"rest".to_vec();
            same(what, table.get_into(view, &mut out), Ok(old.is_some()));
            assert!(old.is_none_or(|old| old == out), "{what}");
        }
        2 => same(what, table.contains(view), Ok(old.is_some())),
        3 => {
            let first = rows.iter().next().map(|(key, value)| (key.clone(), value.clone()));
            same(what, table.first().map(own), Ok(first));
        }
        4 => {
            let last = rows.iter().next_back().map(|(key, value)| (key.clone(), value.clone()));
            same(what, table.last().map(own), Ok(last));
        }
        5 => same(what, table.len(), Ok(rows.len() as u64)),
        6 => same(what, table.is_empty(), Ok(rows.is_empty())),
        7 => {
            // More than are read at once, and some of them twice.
            let keys: Vec<Vec<u8>> = (0..prng.below(100)).map(|_| shape.key(prng)).collect();
            let found = table.get_many(keys.iter().map(|key| key_of::<K>(key)));
            let found = found.map(|found| found.into_iter().map(bytes).collect::<Vec<_>>());
            same(what, found, Ok(keys.iter().map(|key| rows.get(key).cloned()).collect()));
        }
        8 => walk(what, table.cursor(), (rows, shape), prng),
        9 => {
            let bounds = shape.bounds(prng);
            let expected: Vec<_> = within(rows, &bounds).into_iter().map(|(key, _)| key).collect();
            let keys = table.keys(views::<K>(&bounds)).expect("it is there");
            let key = |entry: Result<Entry<K, ()>, Error>| entry.map(|entry| pair(&entry).0);
            let found: Result<Vec<_>, Error> = match prng.chance(2) {
                true => keys.map(key).collect(),
                false => keys.rev().map(key).collect(),
            };
            let found = found.map(|mut found| {
                found.sort_unstable();
                found
            });
            same(what, found, Ok(expected));
        }
        _ => ends(what, table, (rows, shape), prng),
    }
}

/// Reads a range from both ends, in turns, and perhaps not to the end.
fn ends<K: Key, V: Value, T: Transaction>(
    what: &str,
    table: &Table<'_, K, V, T>,
    (rows, shape): (&Rows, Shape),
    prng: &mut Prng,
) {
    let bounds = shape.bounds(prng);
    let mut expected = VecDeque::from(within(rows, &bounds));
    let mut range = table.range(views::<K>(&bounds)).expect("it is there");
    for _ in 0..prng.below(2 * KEYS) {
        if prng.chance(8) {
            many(what, &mut range, &mut expected, prng.chance(2));
        }
        let (found, model) = match prng.chance(2) {
            true => (range.next(), expected.pop_front()),
            false => (range.next_back(), expected.pop_back()),
        };
        same(what, found.transpose().map(|entry| entry.as_ref().map(pair)), Ok(model));
    }
}

/// Reads rows from either end, each time the given number at once.
fn many<K: Key, V: Value, T: Transaction>(
    what: &str,
    range: &mut terrace::Range<'_, K, V, T>,
    expected: &mut VecDeque<Pair>,
    forward: bool,
) {
    let rows = if forward { range.next_rows() } else { range.next_rows_back() };
    let Some(rows) = rows.expect("it is there") else {
        assert!(expected.is_empty(), "{what}: {} more", expected.len());
        return;
    };
    assert!(rows.len() > 0, "{what}: none, and no end");
    for row in rows {
        let (key, value) = row.expect("rows of this type");
        let bytes = value_bytes::<V>(&value);
        let model = if forward { expected.pop_front() } else { expected.pop_back() };
        assert_eq!(Some((key_bytes::<K>(&key), bytes)), model, "{what}");
    }
}

/// Moves a cursor at random, and a place among the keys with it: 0 is before the first of them.
fn walk<K: Key, V: Value, T: Transaction>(
    what: &str,
    mut cursor: Cursor<'_, K, V, T>,
    (rows, shape): (&Rows, Shape),
    prng: &mut Prng,
) {
    let keys: Vec<&Vec<u8>> = rows.keys().collect();
    let (mut place, end) = (0, keys.len() + 1);
    for _ in 0..prng.below(60) {
        let key = shape.key(prng);
        let view = key_of::<K>(&key);
        let found = match prng.below(9) {
            0 => {
                place = 1 + keys.partition_point(|other| **other < key);
                cursor.seek(view)
            }
            1 => {
                place = keys.partition_point(|other| **other <= key);
                cursor.seek_back(view)
            }
            2 => {
                place = 1;
                cursor.first()
            }
            3 => {
                place = keys.len();
                cursor.last()
            }
            4..7 => {
                place = (place + 1).min(end);
                cursor.next()
            }
            _ => {
                place = place.saturating_sub(1);
                cursor.prev()
            }
        };
        let expected = place.checked_sub(1).and_then(|at| keys.get(at));
        let expected = expected.map(|key| ((*key).clone(), rows[*key].clone()));
        same(what, found.map(|entry| entry.map(pair)), Ok(expected.clone()));
        assert_eq!(cursor.current().map(pair), expected, "{what}");
    }
}

fn modify<K: Key, V: Value>(
    what: &str,
    table: &mut Table<'_, K, V>,
    (rows, shape): (&mut Rows, Shape),
    (db, prng): (&Database, &mut Prng),
) {
    let (key, value, mut how) = (shape.key(prng), shape.value(prng), prng.below(5));
    let cut = &value[..value.len().min(3)];
    let is_refused = V::decode(cut).is_none();
    if how == 1 && shape == Shape::Numbers && !is_refused {
        // A raw table would take what is no number.
        how = 3;
    }
    let mut row = b"rest".to_vec();
    let modified = table.modify(key_of::<K>(&key), &mut row, |row| {
        assert_eq!(Some(&*row), rows.get(&key), "{what}");
        row.clone_from(&value);
        match how {
            0 => return Err(Error::Closed),
            1 => row.truncate(3),
            2 => {
                let refused = db.read(|txn| txn.table_names());
                assert!(matches!(refused, Err(Error::Reentrant)), "{what}: {refused:?}");
            }
            _ => (),
        }
        Ok::<_, Error>(())
    });
    let expected = match how {
        _ if !rows.contains_key(&key) => Ok(false),
        0 => Err("Closed"),
        1 if is_refused => Err("NotAValue"),
        _ => Ok(true),
    };
    if expected == Ok(true) {
        assert_eq!(row, if how == 1 { cut } else { &value }, "{what}");
        rows.insert(key, row);
    }
    same(what, modified, expected);
}

/// A merge whose operator sets, removes, says nothing or panics.
fn merge<K: Key, V: Value>(
    what: &str,
    table: &mut Table<'_, K, V>,
    (rows, shape): (&mut Rows, Shape),
    prng: &mut Prng,
) {
    let (key, operand, new) = (shape.key(prng), shape.value(prng), shape.value(prng));
    let how = prng.below(5);
    let merged = catch_unwind(AssertUnwindSafe(|| {
        table.merge(key_of::<K>(&key), value_of::<V>(&operand), |old, more, now| {
            let old = old.map(|old| value_bytes::<V>(&old));
            assert_eq!(old, rows.get(&key).cloned(), "{what}");
            assert_eq!(value_bytes::<V>(&more), operand, "{what}");
            match how {
                0 => now.remove(),
                1 => (),
                // Without the message of a panic.
                2 => resume_unwind(Box::new("an operator of a test")),
                _ => now.set(value_of::<V>(&new)),
            }
        })
    }));
    match (how, merged) {
        (2, Err(_)) => {}
        (_, Ok(merged)) if how != 2 => same(what, merged, Ok(())),
        (_, Err(panic)) => resume_unwind(panic),
        (_, Ok(merged)) => panic!("{what}: no panic, but {merged:?}"),
    }
    match how {
        0 => drop(rows.remove(&key)),
        1 | 2 => {}
        _ => drop(rows.insert(key, new)),
    }
}

/// Drains a range from both ends, perhaps not all of it, while another handle of the table changes
/// and removes rows of it.
fn drain<K: Key, V: Value>(
    what: &str,
    table: &mut Table<'_, K, V>,
    beside: &mut RawTable<'_>,
    (rows, shape): (&mut Rows, Shape),
    prng: &mut Prng,
) {
    let bounds = shape.few(prng);
    let mut left: VecDeque<Vec<u8>> =
        within(rows, &bounds).into_iter().map(|(key, _)| key).collect();
    let mut drain = table.drain(views::<K>(&bounds)).expect("it is there");
    for _ in 0..prng.below(30) {
        let (key, value) = (shape.key(prng), shape.value(prng));
        match prng.below(6) {
            0 => same(what, beside.remove(&key), Ok(rows.remove(&key).is_some())),
            1 => {
                same(what, beside.update(&key, &value), Ok(rows.contains_key(&key)));
                rows.entry(key).and_modify(|old| *old = value);
            }
            how => {
                let forward = how > 3;
                let found = if forward { drain.next() } else { drain.next_back() };
                let expected = std::iter::from_fn(|| match forward {
                    true => left.pop_front(),
                    false => left.pop_back(),
                })
                .find_map(|key| rows.remove_entry(&key));
                let found = found.transpose().map(|entry| entry.as_ref().map(pair));
                same(what, found, Ok(expected));
            }
        }
    }
}

/// One operation that changes rows of a range.
fn sweeps<K: Key, V: Value>(
    what: &str,
    table: &mut Table<'_, K, V>,
    beside: &mut RawTable<'_>,
    (rows, shape): (&mut Rows, Shape),
    prng: &mut Prng,
) {
    match prng.below(6) {
        how @ (0 | 1) => {
            let bounds = shape.bounds(prng);
            let some = within(rows, &bounds);
            let (popped, one) = match how {
                0 => (table.pop_first(views::<K>(&bounds)), some.first()),
                _ => (table.pop_last(views::<K>(&bounds)), some.last()),
            };
            same(what, popped.map(|entry| entry.as_ref().map(pair)), Ok(one.cloned()));
            one.map(|(key, _)| rows.remove(key));
        }
        2 => {
            let bounds = shape.few(prng);
            let some = within(rows, &bounds);
            same(what, table.remove_range(views::<K>(&bounds)), Ok(some.len() as u64));
            some.iter().for_each(|(key, _)| drop(rows.remove(key)));
        }
        3 => {
            let (bounds, rest) = (shape.few(prng), prng.below(3) as u8);
            let some = within(rows, &bounds);
            let mut seen = Vec::new();
            let keeps = |key: &[u8]| key[key.len() - 1] % 3 == rest;
            let removed = table.retain(views::<K>(&bounds), |key, value| {
                let key = key_bytes::<K>(&key);
                let kept = keeps(&key);
                seen.push((key, value_bytes::<V>(&value)));
                kept
            });
            let gone = some.iter().filter(|(key, _)| !keeps(key));
            same(what, removed, Ok(gone.clone().count() as u64));
            gone.for_each(|(key, _)| drop(rows.remove(key)));
            assert_eq!(seen, some, "{what}");
        }
        _ => drain(what, table, beside, (rows, shape), prng),
    }
}

/// One operation that writes, or locks what will be written. `beside` is another handle of the
/// table.
pub fn writes<K: Key, V: Value>(
    what: &str,
    table: &mut Table<'_, K, V>,
    beside: &mut RawTable<'_>,
    (rows, shape): (&mut Rows, Shape),
    (db, prng): (&Database, &mut Prng),
) {
    let (key, value) = (shape.key(prng), shape.value(prng));
    let old = rows.get(&key).cloned();
    let (at, view) = (key_of::<K>(&key), value_of::<V>(&value));
    match prng.below(18) {
        0 => {
            same(what, table.insert_new(at, view), Ok(old.is_none()));
            rows.entry(key).or_insert(value);
        }
        1 => {
            same(what, table.update(at, view), Ok(old.is_some()));
            rows.entry(key).and_modify(|old| *old = value);
        }
        2 => {
            let replaced = table.replace(at, view).map(bytes);
            same(what, replaced, Ok(rows.insert(key.clone(), value.clone())));
        }
        3 => modify(what, table, (rows, shape), (db, prng)),
        4 => same(what, table.remove(at), Ok(rows.remove(&key).is_some())),
        5 => same(what, table.take(at).map(bytes), Ok(rows.remove(&key))),
        6..9 => sweeps(what, table, beside, (rows, shape), prng),
        9 => same(what, table.get_for_update(at).map(bytes), Ok(old)),
        10 => {
            let bounds = shape.bounds(prng);
            let count = table.range_for_update(views::<K>(&bounds)).map(Iterator::count);
            same(what, count, Ok(within(rows, &bounds).len()));
        }
        11 => same(what, table.reserve(prng.below(100_000)), Ok(())),
        12 => walk(what, table.cursor_for_update(), (rows, shape), prng),
        13 => merge(what, table, (rows, shape), prng),
        14 => {
            let more = if prng.chance(9) { 90 } else { 9 };
            let some: Vec<Pair> =
                (0..prng.below(more)).map(|_| (shape.key(prng), shape.value(prng))).collect();
            let views = some.iter().map(|(key, value)| (key_of::<K>(key), value_of::<V>(value)));
            same(what, table.insert_many(views), Ok(()));
            rows.extend(some);
        }
        15 => same(what, table.len_unlocked(), Ok(rows.len() as u64)),
        _ => {
            same(what, table.insert(at, view), Ok(()));
            rows.insert(key.clone(), value.clone());
        }
    }
}

/// What each operation of a table that is gone says.
pub fn stale<K: Key, V: Value>(
    what: &str,
    table: &mut Table<'_, K, V>,
    shape: Shape,
    prng: &mut Prng,
) {
    let (key, value) = (shape.key(prng), shape.value(prng));
    let (at, view) = (key_of::<K>(&key), value_of::<V>(&value));
    let gone = match prng.below(18) {
        0 => table.insert(at, view),
        1 => table.get(at).map(drop),
        2 => table.remove(at).map(drop),
        3 => table.range(..).map(drop),
        4 => table.modify(at, &mut Vec::new(), |_| Ok::<_, Error>(())).map(drop),
        5 => table.pop_first(..).map(drop),
        6 => table.reserve(1),
        7 => table.len().map(drop),
        8 => table.len_unlocked().map(drop),
        9 => table.pop_last(..).map(drop),
        10 => table.retain(.., |_, _| false).map(drop),
        11 => table.drain(..).map(drop),
        12 => table.merge(at, view, |_, _, now| now.remove()),
        13 => table.insert_many([(at, view)]),
        14 => table.get_many([at]).map(drop),
        15 => table.cursor().seek(at).map(drop),
        16 => table.cursor_for_update().last().map(drop),
        _ => table.contains(at).map(drop),
    };
    same(what, gone, Err("NoSuchTable"));
}
