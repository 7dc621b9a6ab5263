//! What was taken out of the parts, on its way to a run.
//!
//! - Z1: a part's rows come here while the part is held. So a task that has looked into the part
//!   finds each row there, or here from then on, or in the run that this became.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use terrace_page::Lsn;
use terrace_rt::{LeafMutex, yield_now};

use super::block::{ENTRY_BYTES, TREE_BYTES, whole_key};
use super::chunk::{Chunk, Order, Wanted};
use crate::TreeId;
use crate::versions::part::{Old, Row, Taken};

/// Rows of a part that a chunk gets at once.
const ROWS_MAX: usize = 64;
/// Entries between two turns of other tasks.
pub(super) const BETWEEN_TURNS: u64 = 256;

/// What was taken out of one part, and its entries in the order of runs, once they were sorted.
struct Piece {
    taken: Taken,
    order: LeafMutex<Option<Arc<Vec<u32>>>>,
}

impl Piece {
    /// The numbers of its entries in their order: sorted without the mutex, maybe by two tasks.
    fn order(&self) -> Arc<Vec<u32>> {
        if let Some(order) = &*self.order.lock() {
            return Arc::clone(order);
        }
        let mut numbers: Vec<u32> = self.taken.numbers().collect();
        numbers.sort_unstable_by(|&one, &other| self.key(one).cmp(&self.key(other)));
        let order = Arc::new(numbers);
        *self.order.lock() = Some(Arc::clone(&order));
        order
    }

    fn row(&self, number: u32) -> (TreeId, &[u8]) {
        let Old { row, .. } = self.taken.entry(number);
        (row.tree, row.key)
    }

    fn key(&self, number: u32) -> (TreeId, &[u8], Lsn) {
        let Old { row, ended, .. } = self.taken.entry(number);
        (row.tree, row.key, ended)
    }
}

/// All that was taken out at once. See the module.
pub(super) struct Frozen {
    pieces: Vec<LeafMutex<Option<Arc<Piece>>>>,
}

impl Frozen {
    /// For `parts` parts, of which nothing is here yet.
    pub(super) fn new(parts: usize) -> Frozen {
        Frozen { pieces: (0..parts).map(|_| LeafMutex::new(None)).collect() }
    }

    /// Takes what was taken out of part `part`, which is held.
    pub(super) fn put(&self, part: usize, taken: Taken) {
        let piece = Piece { taken, order: LeafMutex::new(None) };
        *self.pieces[part].lock() = Some(Arc::new(piece));
    }

    fn pieces(&self) -> impl Iterator<Item = Arc<Piece>> {
        self.pieces.iter().filter_map(|piece| piece.lock().clone())
    }

    /// What a snapshot at `at` sees of `row`, whose part is `part`, if it is here.
    pub(super) fn find(
        &self,
        at: Lsn,
        part: usize,
        row: &Row<'_>,
    ) -> Option<(Lsn, Option<Vec<u8>>)> {
        let piece = self.pieces[part].lock().clone()?;
        let found = piece.taken.find(at, row)?;
        Some((found.ended, found.before.map(<[u8]>::to_vec)))
    }

    /// Puts to `chunk` what a snapshot at `at` sees of rows in a range.
    pub(super) fn range(&self, at: Lsn, wanted: &Wanted<'_>, chunk: &mut Chunk) {
        let mut key = Vec::new();
        for piece in self.pieces() {
            let order = piece.order();
            let mut whole = |number: u32| {
                let old = piece.taken.entry(number);
                whole_key(old.row.tree, old.row.key, &mut key);
                key.clone()
            };
            let first = order.partition_point(|&number| whole(number)[..] < *wanted.lower());
            let end = order.partition_point(|&number| wanted.is_below_end(&whole(number)));
            let numbers = &order[first..end.max(first)];
            // All versions of a row come together.
            let differ = |one: u32, other: u32| piece.row(one) != piece.row(other);
            let mut most = numbers.len().min(ROWS_MAX);
            let (now, next) = match wanted.order {
                Order::Ascending => {
                    while most < numbers.len() && !differ(numbers[most - 1], numbers[most]) {
                        most += 1;
                    }
                    (&numbers[..most], numbers.get(most))
                }
                Order::Descending => {
                    let mut rest = numbers.len() - most;
                    while rest > 0 && !differ(numbers[rest - 1], numbers[rest]) {
                        rest -= 1;
                    }
                    (&numbers[rest..], numbers[..rest].last())
                }
            };
            for &number in now {
                let key = whole(number);
                let old = piece.taken.entry(number);
                if old.ended >= at && wanted.has(&key) {
                    chunk.put(&key, old.ended, old.before);
                }
            }
            match (next, wanted.order) {
                (None, _) => (),
                (Some(&next), Order::Ascending) => chunk.cut_from(&whole(next)),
                (Some(&next), Order::Descending) => chunk.cut_to(&whole(next)),
            }
        }
    }

    /// Where the last of its changes ended.
    pub(super) fn last_end(&self) -> Lsn {
        let ends = self.pieces().map(|piece| {
            let ends = piece.taken.numbers().map(|number| piece.taken.entry(number).ended);
            ends.max().unwrap_or_default()
        });
        ends.max().unwrap_or_default()
    }

    /// How many entries it has, and how many bytes these have in a run, at most.
    pub(super) fn size(&self) -> (u64, u64) {
        let (mut entries, mut bytes) = (0, 0);
        for piece in self.pieces() {
            for number in piece.taken.numbers() {
                let old = piece.taken.entry(number);
                entries += 1;
                let key_len = TREE_BYTES + old.row.key.len();
                bytes += (ENTRY_BYTES + key_len + old.before.map_or(0, <[u8]>::len)) as u64;
            }
        }
        (entries, bytes)
    }

    /// Its entries in their order, by whole key. Other tasks have their turns in between.
    ///
    /// # Errors
    ///
    /// Those of `each`.
    pub(super) fn each<E>(
        &self,
        mut each: impl FnMut(&[u8], Old<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let pieces: Vec<Arc<Piece>> = self.pieces().collect();
        let mut orders = Vec::with_capacity(pieces.len());
        for piece in &pieces {
            orders.push(piece.order());
            yield_now();
        }
        let mut heap = BinaryHeap::with_capacity(pieces.len());
        let next = |place: usize, at: usize| {
            let number = *orders[place].get(at)?;
            Some(Reverse((pieces[place].key(number), place, at)))
        };
        heap.extend((0..pieces.len()).filter_map(|place| next(place, 0)));
        let (mut whole, mut count) = (Vec::new(), 0_u64);
        while let Some(Reverse((_, place, at))) = heap.pop() {
            heap.extend(next(place, at + 1));
            let old = pieces[place].taken.entry(orders[place][at]);
            whole_key(old.row.tree, old.row.key, &mut whole);
            each(&whole, old)?;
            count += 1;
            if count.is_multiple_of(BETWEEN_TURNS) {
                yield_now();
            }
        }
        Ok(())
    }
}
