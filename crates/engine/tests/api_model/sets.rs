//! Operations that only a multimap, or only a raw table, has.

use std::ops::Bound;

use terrace::{Multimap, RawTable, Transaction};
use terrace_rt::Prng;

use super::rows::{Rows, Shape, same};

/// What a pair's bytes are.
fn numbers(pair: &[u8]) -> (u64, u64) {
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("eight"));
    (number(&pair[..8]), number(&pair[8..]))
}

fn pair(prng: &mut Prng) -> (Vec<u8>, (u64, u64)) {
    let bytes = Shape::Pairs.key(prng);
    let numbers = numbers(&bytes);
    (bytes, numbers)
}

fn pairs(rows: &Rows, is_wanted: impl Fn(u64) -> bool) -> Vec<(u64, u64)> {
    rows.keys().map(|pair| numbers(pair)).filter(|(key, _)| is_wanted(*key)).collect()
}

/// One operation of a multimap that reads.
pub fn reads<T: Transaction>(
    what: &str,
    tags: &Multimap<'_, u64, u64, T>,
    rows: &Rows,
    prng: &mut Prng,
) {
    let (bytes, (key, value)) = pair(prng);
    match prng.below(6) {
        0 => same(what, tags.contains(key, value), Ok(rows.contains_key(&bytes))),
        1 => same(what, tags.len(), Ok(rows.len() as u64)),
        2 => same(what, tags.is_empty(), Ok(rows.is_empty())),
        3 => {
            let found = tags.table().prefix((key,)).map(Iterator::count);
            same(what, found, Ok(pairs(rows, |other| other == key).len()));
        }
        4 => {
            let found = tags.get(key).and_then(|range| {
                range.rev().map(|entry| entry.map(|entry| entry.key())).collect()
            });
            let mut expected = pairs(rows, |other| other == key);
            expected.reverse();
            same(what, found, Ok(expected));
        }
        _ => {
            let mut bound = || match prng.below(3) {
                0 => Bound::Unbounded,
                1 => Bound::Excluded(pair(prng).1.0),
                _ => Bound::Included(pair(prng).1.0),
            };
            let (lower, upper) = (bound(), bound());
            let is_within = |key: u64| {
                let above = match lower {
                    Bound::Unbounded => true,
                    Bound::Included(bound) => key >= bound,
                    Bound::Excluded(bound) => key > bound,
                };
                above
                    && match upper {
                        Bound::Unbounded => true,
                        Bound::Included(bound) => key <= bound,
                        Bound::Excluded(bound) => key < bound,
                    }
            };
            let found = tags
                .range((lower, upper))
                .and_then(|range| range.map(|entry| entry.map(|entry| entry.key())).collect());
            same(what, found, Ok(pairs(rows, is_within)));
        }
    }
}

/// One operation of a multimap that writes.
pub fn writes(what: &str, tags: &mut Multimap<'_, u64, u64>, rows: &mut Rows, prng: &mut Prng) {
    let (bytes, (key, value)) = pair(prng);
    match prng.below(6) {
        0 | 1 => same(what, tags.remove(key, value), Ok(rows.remove(&bytes).is_some())),
        2 => {
            let before = rows.len();
            rows.retain(|pair, _| numbers(pair).0 != key);
            same(what, tags.remove_all(key), Ok((before - rows.len()) as u64));
        }
        _ => {
            let is_new = rows.insert(bytes, Vec::new()).is_none();
            same(what, tags.insert(key, value), Ok(is_new));
        }
    }
}

/// What each operation of a multimap that is gone says.
pub fn stale(what: &str, tags: &mut Multimap<'_, u64, u64>, prng: &mut Prng) {
    let (_, (key, value)) = pair(prng);
    let gone = match prng.below(5) {
        0 => tags.insert(key, value).map(drop),
        1 => tags.remove(key, value).map(drop),
        2 => tags.remove_all(key).map(drop),
        3 => tags.get(key).map(drop),
        _ => tags.contains(key, value).map(drop),
    };
    same(what, gone, Err("NoSuchTable"));
}

/// The rows of a raw table whose keys begin with some bytes.
pub fn prefix<T: Transaction>(
    what: &str,
    table: &RawTable<'_, T>,
    (rows, shape): (&Rows, Shape),
    prng: &mut Prng,
) {
    let mut bytes = shape.key(prng);
    bytes.truncate(prng.below(1 + bytes.len() as u64) as usize);
    let found = table.prefix(&bytes[..]).and_then(|range| {
        range.map(|entry| entry.map(|entry| entry.key().to_vec())).collect::<Result<Vec<_>, _>>()
    });
    let expected = rows.keys().filter(|key| key.starts_with(&bytes)).cloned().collect();
    same(what, found, Ok(expected));
}
