//! Where trees ended: why rows that are put behind all others need no versions.
//!
//! A queue puts each row behind the last one. Before that, no such row was there: an entry for each
//! would say the same again and again. One mark says it for all: "when the log was at `at`, the
//! tree had no key from `key` on". It holds for a snapshot before `at` and every key from `key` on
//! that no older entry is of.
//!
//! - M1: a mark is a fact, and holds for ever: it is taken from a change that puts a row behind all
//!   others of its tree, under the latch of the last leaf, and `at` is the LSN of that change.
//! - M2: of the marks that hold for a snapshot and a key, the one with the least `at` counts, and
//!   an entry of a change that ended before `at` goes before it. For a key that was removed before
//!   `at` has such an entry: its ghost was purged, so the transaction that removed it had ended.
//! - M3: entries between a mark and the next snapshot are not kept, since `at` stands for the end
//!   of the change before them. So a mark stays while a snapshot before it is open, unless an
//!   earlier mark says the same to all of these.

use terrace_page::Lsn;

use super::horizon::Horizon;
use super::part::Row;
use crate::TreeId;

#[derive(Debug)]
struct Mark {
    tree: TreeId,
    at: Lsn,
    key: Box<[u8]>,
}

/// The marks of a part, in the order of the log.
#[derive(Debug, Default)]
pub(super) struct Marks {
    list: Vec<Mark>,
    key_bytes: usize,
}

impl Marks {
    /// The most marks of a part of which versions may have `bytes`.
    pub(super) fn count_max(bytes: u64) -> usize {
        const ONE_IN: u64 = 16;
        const MAX: u64 = 64;
        (bytes / ONE_IN / size_of::<Mark>() as u64).clamp(1, MAX) as usize
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.list.capacity() * size_of::<Mark>() + self.key_bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    fn of_key<'m>(
        &'m self,
        tree: TreeId,
        key: &'m [u8],
    ) -> impl DoubleEndedIterator<Item = &'m Mark> {
        self.list.iter().filter(move |mark| mark.tree == tree && &*mark.key <= key)
    }

    /// The record `at` puts `row` behind all others of its tree: notes it, if it tells a snapshot
    /// something new, and there is room for another one of `count_max`.
    pub(super) fn note(&mut self, row: &Row<'_>, at: Lsn, horizon: &Horizon, count_max: usize) {
        let Some(snapshot) = horizon.last_up_to(at) else { return };
        let is_known =
            self.of_key(row.tree, row.key).any(|mark| (snapshot..=at).contains(&mark.at));
        if is_known || self.list.len() >= count_max {
            return;
        }
        let place = self.list.partition_point(|mark| mark.at < at);
        self.key_bytes += row.key.len();
        self.list.insert(place, Mark { tree: row.tree, at, key: row.key.into() });
    }

    /// When the tree had no such key, at the earliest moment from `from` on that is known (M2).
    pub(super) fn first(&self, row: &Row<'_>, from: Lsn) -> Option<Lsn> {
        if self.list.is_empty() {
            return None;
        }
        self.of_key(row.tree, row.key).map(|mark| mark.at).find(|&at| at >= from)
    }

    /// The latest moment up to `to` at which the tree had no such key, as far as is known.
    pub(super) fn last(&self, row: &Row<'_>, to: Lsn) -> Option<Lsn> {
        if self.list.is_empty() {
            return None;
        }
        self.of_key(row.tree, row.key).map(|mark| mark.at).rfind(|&at| at <= to)
    }

    /// Drops what tells no snapshot anything (M3).
    pub(super) fn collect(&mut self, horizon: &Horizon) {
        let mut kept: Vec<Mark> = Vec::new();
        for mark in self.list.drain(..) {
            let same = |other: &&Mark| other.tree == mark.tree && other.key <= mark.key;
            let earlier = kept.iter().rev().find(same).map_or(Lsn::ZERO, |other| other.at);
            if horizon.may_see(earlier, mark.at) {
                kept.push(mark);
            } else {
                self.key_bytes -= mark.key.len();
            }
        }
        self.list = kept;
    }
}
