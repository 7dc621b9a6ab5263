//! Operations of one table, and their model: its rows in a map.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use terrace::{Database, Error, Table, Value};
use terrace_rt::Prng;

pub type Bytes = &'static [u8];
pub type Rows = BTreeMap<u64, Vec<u8>>;

pub const KEYS: u64 = 80;

/// A type of values, as the model has them: encoded.
pub trait Kind: Value {
    fn view(bytes: &[u8]) -> Self::View<'_>;
    fn draw(prng: &mut Prng) -> Vec<u8>;
    const IS_NUMBER: bool;
}

impl Kind for Bytes {
    fn view(bytes: &[u8]) -> &[u8] {
        bytes
    }
    fn draw(prng: &mut Prng) -> Vec<u8> {
        let len = match prng.below(20) {
            0 => 9_000 + prng.below(9_000),
            1..4 => 500 + prng.below(1_500),
            _ => prng.below(40),
        };
        vec![prng.below(256) as u8; len as usize]
    }
    const IS_NUMBER: bool = false;
}

impl Kind for u64 {
    fn view(bytes: &[u8]) -> u64 {
        u64::from_le_bytes(bytes.try_into().expect("a number"))
    }
    fn draw(prng: &mut Prng) -> Vec<u8> {
        prng.next_u64().to_le_bytes().to_vec()
    }
    const IS_NUMBER: bool = true;
}

fn bounds(prng: &mut Prng) -> (Bound<u64>, Bound<u64>) {
    let mut bound = || match prng.below(4) {
        0 => Bound::Unbounded,
        1 => Bound::Excluded(prng.below(KEYS)),
        _ => Bound::Included(prng.below(KEYS)),
    };
    (bound(), bound())
}

fn within(rows: &Rows, (lower, upper): (Bound<u64>, Bound<u64>)) -> Vec<(u64, Vec<u8>)> {
    let above = |key: u64| match lower {
        Bound::Unbounded => true,
        Bound::Included(bound) => key >= bound,
        Bound::Excluded(bound) => key > bound,
    };
    let below = |key: u64| match upper {
        Bound::Unbounded => true,
        Bound::Included(bound) => key <= bound,
        Bound::Excluded(bound) => key < bound,
    };
    let rows = rows.iter().filter(|(key, _)| above(**key) && below(**key));
    rows.map(|(key, value)| (*key, value.clone())).collect()
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

pub fn reads<V: Kind>(what: &str, table: &Table<'_, u64, V>, rows: &Rows, prng: &mut Prng) {
    let key = prng.below(KEYS);
    let old = rows.get(&key).cloned();
    let bytes = |found: Option<terrace::Owned<V>>| found.map(|value| value.bytes().to_vec());
    let pair = |entry: terrace::Entry<u64, V>| (entry.key(), entry.value_bytes().to_vec());
    match prng.below(8) {
        5 => same(what, table.len(), Ok(rows.len() as u64)),
        0 => same(what, table.get(key).map(bytes), Ok(old)),
        1 => {
            let mut out = b"rest".to_vec();
            same(what, table.get_into(key, &mut out), Ok(old.is_some()));
            assert!(old.is_none_or(|old| old == out), "{what}");
        }
        2 => same(what, table.contains(key), Ok(old.is_some())),
        3 => {
            let first = rows.iter().next().map(|(key, value)| (*key, value.clone()));
            same(what, table.first().map(|entry| entry.map(pair)), Ok(first));
        }
        4 => {
            let last = rows.iter().next_back().map(|(key, value)| (*key, value.clone()));
            same(what, table.last().map(|entry| entry.map(pair)), Ok(last));
        }
        6 => {
            let bounds = bounds(prng);
            let expected: Vec<u64> = within(rows, bounds).into_iter().map(|(key, _)| key).collect();
            let keys = table.keys(bounds).expect("it is there");
            let found: Result<Vec<u64>, Error> = match prng.chance(2) {
                true => keys.map(|entry| entry.map(|entry| entry.key())).collect(),
                false => keys.rev().map(|entry| entry.map(|entry| entry.key())).collect(),
            };
            let found = found.map(|mut found| {
                found.sort_unstable();
                found
            });
            same(what, found, Ok(expected));
        }
        _ => {
            // From both ends, in turns, and perhaps not to the end.
            let bounds = bounds(prng);
            let mut expected = VecDeque::from(within(rows, bounds));
            let mut range = table.range(bounds).expect("it is there");
            for _ in 0..prng.below(2 * KEYS) {
                if prng.chance(8) {
                    many(what, &mut range, &mut expected, prng.chance(2));
                }
                let (found, model) = match prng.chance(2) {
                    true => (range.next(), expected.pop_front()),
                    false => (range.next_back(), expected.pop_back()),
                };
                same(what, found.transpose().map(|entry| entry.map(pair)), Ok(model));
            }
        }
    }
}

/// Reads rows from either end, each time the given number at once.
fn many<V: Kind, T: terrace::Transaction>(
    what: &str,
    range: &mut terrace::Range<'_, u64, V, T>,
    expected: &mut VecDeque<(u64, Vec<u8>)>,
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
        let mut bytes = Vec::new();
        V::encode(&value, &mut bytes);
        let model = if forward { expected.pop_front() } else { expected.pop_back() };
        assert_eq!(Some((key, bytes)), model, "{what}");
    }
}

fn modify<V: Kind>(
    what: &str,
    table: &mut Table<'_, u64, V>,
    rows: &mut Rows,
    (db, prng): (&Database, &mut Prng),
) {
    let (key, value, how) = (prng.below(KEYS), V::draw(prng), prng.below(5));
    let mut row = b"rest".to_vec();
    let modified = table.modify(key, &mut row, |row| {
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
    let found = rows.contains_key(&key);
    let expected = match how {
        _ if !found => Ok(false),
        0 => Err("Closed"),
        1 if V::IS_NUMBER => Err("NotAValue"),
        _ => Ok(true),
    };
    if expected == Ok(true) {
        assert_eq!(row, if how == 1 { &value[..value.len().min(3)] } else { &value }, "{what}");
        rows.insert(key, row);
    }
    same(what, modified, expected);
}

pub fn writes<V: Kind>(
    what: &str,
    table: &mut Table<'_, u64, V>,
    rows: &mut Rows,
    (db, prng): (&Database, &mut Prng),
) {
    let (key, value) = (prng.below(KEYS), V::draw(prng));
    let old = rows.get(&key).cloned();
    let view = V::view(&value);
    let bytes = |found: Option<terrace::Owned<V>>| found.map(|value| value.bytes().to_vec());
    match prng.below(12) {
        0 => {
            same(what, table.insert_new(key, view), Ok(old.is_none()));
            rows.entry(key).or_insert(value);
        }
        1 => {
            same(what, table.update(key, view), Ok(old.is_some()));
            rows.entry(key).and_modify(|old| *old = value);
        }
        2 => same(what, table.replace(key, view).map(bytes), Ok(rows.insert(key, value))),
        3 => modify(what, table, rows, (db, prng)),
        4 => same(what, table.remove(key), Ok(rows.remove(&key).is_some())),
        5 => same(what, table.take(key).map(bytes), Ok(rows.remove(&key))),
        6 => {
            let bounds = bounds(prng);
            let first = within(rows, bounds).first().map(|(key, _)| *key);
            let popped = table.pop_first(bounds).map(|entry| entry.map(|entry| entry.key()));
            same(what, popped, Ok(first));
            first.map(|key| rows.remove(&key));
        }
        7 => same(what, table.get_for_update(key).map(bytes), Ok(old)),
        8 => {
            let bounds = bounds(prng);
            let count = table.range_for_update(bounds).map(Iterator::count);
            same(what, count, Ok(within(rows, bounds).len()));
        }
        9 => same(what, table.reserve(prng.below(100_000)), Ok(())),
        _ => {
            same(what, table.insert(key, view), Ok(()));
            rows.insert(key, value);
        }
    }
}

/// What each operation of a table that is gone says.
pub fn stale<V: Kind>(what: &str, table: &mut Table<'_, u64, V>, prng: &mut Prng) {
    let (key, value) = (prng.below(KEYS), V::draw(prng));
    let view = V::view(&value);
    let gone = match prng.below(9) {
        7 => table.len().map(drop),
        0 => table.insert(key, view),
        1 => table.get(key).map(drop),
        2 => table.remove(key).map(drop),
        3 => table.range(..).map(drop),
        4 => table.modify(key, &mut Vec::new(), |_| Ok::<_, Error>(())).map(drop),
        5 => table.pop_first(..).map(drop),
        6 => table.reserve(1),
        _ => table.contains(key).map(drop),
    };
    same(what, gone, Err("NoSuchTable"));
}
