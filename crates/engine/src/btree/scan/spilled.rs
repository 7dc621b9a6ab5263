//! Ranges through a snapshot whose versions are spilled, in part.
//!
//! What a leaf and the memory show of its rows is copied under the latch; then the latch goes, and
//! what is spilled of the same range is read (spill.T2). What is spilled may have rows that are in
//! no leaf, and more than fit at once: then the scan goes on where that ended, in the same leaf or
//! what became of it.

use std::ops::Bound;

use terrace_page::{Lsn, PageId};
use terrace_pool::PageRef;
use terrace_rt::maybe_switch;

use super::{At, Batch, Scan, Stop};
use crate::Error;
use crate::btree::Tree;
use crate::btree::node::OVERFLOW;
use crate::versions::{Chunk, Order, View};

/// A row by its leaf and what is in memory.
pub(super) struct RowHere {
    pub(super) key: Vec<u8>,
    /// What the snapshot sees by these, flags first.
    pub(super) record: Option<Vec<u8>>,
    /// What is spilled counts more, if its change ended before this.
    pub(super) bound: Option<Lsn>,
}

/// A row that the snapshot sees, or not: key and record.
type RowSeen = (Vec<u8>, Option<Vec<u8>>);

/// Puts together what is here and what is spilled of the same range, in ascending order.
fn merged(tree: &Tree, view: View<'_>, here: Vec<RowHere>, chunk: Chunk) -> Vec<RowSeen> {
    // Other tasks may spill, and put rows behind all others, since `chunk` was read (spill.T6).
    maybe_switch();
    let mut here: Vec<RowHere> = here.into_iter().filter(|row| chunk.covers(&row.key)).collect();
    here.reverse();
    let alone = |row: RowHere| (row.key, row.record);
    let mut rows = Vec::new();
    for (key, (ended, before)) in chunk.into_rows() {
        while here.last().is_some_and(|row| row.key < key) {
            rows.extend(here.pop().map(alone));
        }
        match here.last() {
            Some(row) if row.key == key => {
                let row = here.pop().expect("just seen");
                let name = (tree.id, &row.key[..]);
                let counts = row.bound.is_some_and(|bound| view.counts(name, bound, ended));
                rows.push((key, if counts { before } else { row.record }));
            }
            _ => {
                let counts = ended < view.bound(tree.id, &key);
                rows.push((key, before.filter(|_| counts)));
            }
        }
    }
    rows.extend(here.into_iter().rev().map(alone));
    rows
}

fn push(tree: &Tree, leaf: PageId, (key, record): RowSeen, batch: &mut Batch) -> Result<(), Error> {
    let Some(record) = record else { return Ok(()) };
    let Some((&flags, value)) = record.split_first() else { return Ok(()) };
    batch.push_key(&key);
    if flags & OVERFLOW != 0 {
        return batch.push_large(tree, leaf, value);
    }
    batch.push_value(value);
    Ok(())
}

fn owned(bound: Bound<&[u8]>) -> Bound<Vec<u8>> {
    bound.map(<[u8]>::to_vec)
}

fn borrowed(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &key[..])
}

impl Scan {
    /// Appends the rows of a leaf, and goes on behind them: `LeafEnd`.
    pub(super) fn ascend_spilled(
        &mut self,
        tree: &Tree,
        page: PageRef<'_>,
        here: Vec<RowHere>,
        view: View<'_>,
        limit: usize,
        batch: &mut Batch,
    ) -> Result<Stop, Error> {
        let id = page.id();
        let (lower, upper, fence) = {
            let node = tree.node(id, &page)?;
            let fence = node.upper().filter(|_| self.goes_above(&node)).map(<[u8]>::to_vec);
            let lower = match self.from() {
                Bound::Included(key) | Bound::Excluded(key) if key >= node.lower() => self.from(),
                _ => Bound::Included(node.lower()),
            };
            let upper = match &fence {
                Some(fence) => Bound::Excluded(fence.clone()),
                None => self.upper.clone(),
            };
            (owned(lower), upper, fence)
        };
        drop(page);
        let bounds = (borrowed(&lower), borrowed(&upper));
        let chunk = view.spilled_in(tree.id, bounds, Order::Ascending)?;
        let next = chunk.cut().map(<[u8]>::to_vec).or(fence);
        for row in merged(tree, view, here, chunk) {
            if batch.is_full(limit) {
                return Ok(Stop::Full);
            }
            push(tree, id, row, batch)?;
        }
        if view.is_ended() {
            return Err(view.why_ended());
        }
        let Some(next) = next else { return Ok(Stop::End) };
        self.at = At::Above(next);
        self.noted = batch.len();
        self.walk();
        Ok(Stop::LeafEnd)
    }

    /// As `ascend_spilled`, in descending order.
    pub(super) fn descend_spilled(
        &mut self,
        tree: &Tree,
        page: PageRef<'_>,
        here: Vec<RowHere>,
        view: View<'_>,
        limit: usize,
        batch: &mut Batch,
    ) -> Result<Stop, Error> {
        let id = page.id();
        let (lower, upper) = {
            let node = tree.node(id, &page)?;
            let lower = match &self.lower {
                Bound::Included(key) | Bound::Excluded(key) if &key[..] >= node.lower() => {
                    self.lower.clone()
                }
                _ => Bound::Included(node.lower().to_vec()),
            };
            (lower, owned(self.down_from()))
        };
        let goes_on = {
            let before = self.at.clone();
            let node = tree.node(id, &page)?;
            let goes_on = self.goes_below(&node, batch);
            let below = std::mem::replace(&mut self.at, before);
            goes_on.then_some(below)
        };
        drop(page);
        let bounds = (borrowed(&lower), borrowed(&upper));
        let chunk = view.spilled_in(tree.id, bounds, Order::Descending)?;
        // The cut itself is still to come.
        let below_cut = chunk.cut().map(|cut| At::Below([cut, &[0]].concat()));
        let next = below_cut.or(goes_on);
        for row in merged(tree, view, here, chunk).into_iter().rev() {
            if batch.is_full(limit) {
                return Ok(Stop::Full);
            }
            push(tree, id, row, batch)?;
        }
        if view.is_ended() {
            return Err(view.why_ended());
        }
        let Some(next) = next else { return Ok(Stop::End) };
        self.at = next;
        self.noted = batch.len();
        Ok(Stop::LeafEnd)
    }
}
