//! What a snapshot sees of spilled rows in a range, as much of it as is read at once.
//!
//! Each source puts to the chunk what it has, and where it had to stop. The chunk has all rows of
//! all sources up to the nearest of these cuts.

use std::collections::BTreeMap;
use std::ops::Bound;

use terrace_page::Lsn;

use super::block::{parts_of, whole_key};
use crate::TreeId;

/// Bytes of a row beside its key and record, about.
const ROW_BYTES: usize = 64;

/// From which end a range is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Ascending,
    Descending,
}

/// A range of a tree, in whole keys.
pub(super) struct Wanted<'w> {
    lower: Bound<&'w [u8]>,
    upper: Bound<&'w [u8]>,
    pub(super) order: Order,
    /// A source stops after this many bytes.
    pub(super) bytes_max: usize,
}

impl<'w> Wanted<'w> {
    pub(super) fn new(
        (lower, upper): (Bound<&'w [u8]>, Bound<&'w [u8]>),
        order: Order,
        bytes_max: usize,
    ) -> Wanted<'w> {
        Wanted { lower, upper, order, bytes_max }
    }

    /// No key of the range is below this one.
    pub(super) fn lower(&self) -> &[u8] {
        match self.lower {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[],
        }
    }

    pub(super) fn is_below_end(&self, key: &[u8]) -> bool {
        match self.upper {
            Bound::Included(upper) => key <= upper,
            Bound::Excluded(upper) => key < upper,
            Bound::Unbounded => true,
        }
    }

    pub(super) fn has(&self, key: &[u8]) -> bool {
        let is_above = match self.lower {
            Bound::Included(lower) => key >= lower,
            Bound::Excluded(lower) => key > lower,
            Bound::Unbounded => true,
        };
        is_above && self.is_below_end(key)
    }
}

/// The whole keys that bound a range of a tree.
pub(super) fn whole_bounds(
    tree: TreeId,
    (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let whole = |key: &[u8]| {
        let mut whole = Vec::new();
        whole_key(tree, key, &mut whole);
        whole
    };
    let next_tree = || tree.0.checked_add(1).map(|next| next.to_be_bytes().to_vec());
    let lower = match lower {
        Bound::Unbounded => Bound::Included(whole(&[])),
        bound => bound.map(whole),
    };
    let upper = match upper {
        Bound::Unbounded => next_tree().map_or(Bound::Unbounded, Bound::Excluded),
        bound => bound.map(whole),
    };
    (lower, upper)
}

/// A spilled row, as a snapshot sees it: where its change ended, and what it was.
pub(crate) type Spilled = (Lsn, Option<Vec<u8>>);

/// Where a chunk ends before its range does. All rows on this side of the key are here.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cut {
    None,
    From(Vec<u8>),
    To(Vec<u8>),
}

/// The rows, by whole key. See the module.
#[derive(Debug)]
pub(crate) struct Chunk {
    rows: BTreeMap<Vec<u8>, Spilled>,
    cut: Cut,
}

impl Chunk {
    pub(crate) fn new() -> Chunk {
        Chunk { rows: BTreeMap::new(), cut: Cut::None }
    }

    /// A row was `before` until a change that ended there; bytes that this takes. What ended first
    /// counts.
    pub(super) fn put(&mut self, key: &[u8], ended: Lsn, before: Option<&[u8]>) -> usize {
        match self.rows.get_mut(key) {
            Some(there) if there.0 <= ended => (),
            Some(there) => *there = (ended, before.map(<[u8]>::to_vec)),
            None => drop(self.rows.insert(key.to_vec(), (ended, before.map(<[u8]>::to_vec)))),
        }
        ROW_BYTES + key.len() + before.map_or(0, <[u8]>::len)
    }

    /// Whether it has a row before `key`, or behind it.
    pub(super) fn has_before(&self, key: &[u8]) -> bool {
        self.rows.first_key_value().is_some_and(|(first, _)| &first[..] < key)
    }

    pub(super) fn has_behind(&self, key: &[u8]) -> bool {
        self.rows.last_key_value().is_some_and(|(last, _)| &last[..] > key)
    }

    /// A source has more from `key` on: only rows before it are here for certain.
    pub(super) fn cut_from(&mut self, key: &[u8]) {
        match &self.cut {
            Cut::From(before) if &before[..] <= key => (),
            _ => self.cut = Cut::From(key.to_vec()),
        }
    }

    /// A source has more up to `key`: only rows behind it are here for certain.
    pub(super) fn cut_to(&mut self, key: &[u8]) {
        match &self.cut {
            Cut::To(before) if &before[..] >= key => (),
            _ => self.cut = Cut::To(key.to_vec()),
        }
    }

    /// Drops what is beyond the cut.
    pub(super) fn finish(&mut self) {
        match &self.cut {
            Cut::None => (),
            Cut::From(key) => drop(self.rows.split_off(key)),
            Cut::To(key) => {
                let mut rest = self.rows.split_off(key);
                rest.remove(key);
                self.rows = rest;
            }
        }
    }

    /// Where it ends before its range does, if so: the key is not of this chunk.
    pub(crate) fn cut(&self) -> Option<&[u8]> {
        match &self.cut {
            Cut::None => None,
            Cut::From(key) | Cut::To(key) => Some(parts_of(key).1),
        }
    }

    /// Whether all of the row of `key`, in its tree, is here.
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        match &self.cut {
            Cut::None => true,
            Cut::From(cut) => key < parts_of(cut).1,
            Cut::To(cut) => key > parts_of(cut).1,
        }
    }

    /// Its rows, by key within their tree, in ascending order.
    pub(crate) fn into_rows(self) -> Vec<(Vec<u8>, Spilled)> {
        let own = |(key, spilled): (Vec<u8>, Spilled)| (parts_of(&key).1.to_vec(), spilled);
        self.rows.into_iter().map(own).collect()
    }
}
