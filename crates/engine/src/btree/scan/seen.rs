//! Ranges through a snapshot: without locks.
//!
//! A leaf is read under its latch. Where the snapshot does not see it as it is, each of its rows is
//! looked up among the versions, and the rows whose ghosts were purged come in between, by their
//! graves: a key is in a leaf, or it has a grave, for a task that holds the latch.

use std::cmp::Ordering;
use std::ops::Bound;

use terrace_pool::{PageAhead, PageRef};

use super::spilled::RowHere;
use super::{Batch, LEAF, Scan, Stop, first_slot, push};
use crate::Error;
use crate::btree::Tree;
use crate::btree::lookup::owned;
use crate::btree::node::{Node, OVERFLOW};
use crate::versions::{Record, View};
use crate::writer::Reader;

/// A leaf, as a snapshot reads it.
struct Leaf<'l, 't> {
    tree: &'t Tree,
    page: &'l PageRef<'t>,
    node: Node<'l>,
    view: View<'l>,
    /// Purged keys in the part of the range that is here.
    graves: Vec<Box<[u8]>>,
    older: Vec<u8>,
}

/// Where the next row of a leaf is.
enum Place {
    Slot(usize),
    Grave(usize),
}

impl<'l, 't> Leaf<'l, 't> {
    /// The part of a leaf within `bounds`.
    fn new(
        tree: &'t Tree,
        page: &'l PageRef<'t>,
        view: View<'l>,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Result<Leaf<'l, 't>, Error> {
        let node = tree.node(page.id(), page)?;
        let graves = if view.is_current(page) {
            Vec::new()
        } else {
            let lower = match lower {
                Bound::Included(key) | Bound::Excluded(key) if key >= node.lower() => lower,
                _ => Bound::Included(node.lower()),
            };
            let upper = match (upper, node.upper()) {
                (upper, None) => upper,
                (Bound::Included(key), Some(fence)) if key < fence => upper,
                (Bound::Excluded(key), Some(fence)) if key <= fence => upper,
                (_, Some(fence)) => Bound::Excluded(fence),
            };
            if is_empty(lower, upper) { Vec::new() } else { view.graves(tree.id, (lower, upper)) }
        };
        Ok(Leaf { tree, page, node, view, graves, older: Vec::new() })
    }

    /// Whether some of what the snapshot sees may be spilled.
    fn is_spilled(&self) -> bool {
        self.view.has_spilled() && !self.view.is_current(self.page)
    }

    /// Has `read` append rows by the leaf and what is in memory. `None`: that is not all, and
    /// nothing was appended.
    fn alone(
        &mut self,
        batch: &mut Batch,
        read: impl FnOnce(&mut Self, &mut Batch) -> Result<Stop, Error>,
    ) -> Result<Option<Stop>, Error> {
        if self.is_spilled() {
            return Ok(None);
        }
        let mark = batch.mark();
        let stop = read(self, batch)?;
        if self.is_spilled() {
            batch.rewind(&mark);
            return Ok(None);
        }
        Ok(Some(stop))
    }

    /// What the snapshot sees of the rows of `slots`, and of the graves, by the leaf and what is in
    /// memory, in ascending order.
    fn rows(&mut self, slots: std::ops::Range<usize>) -> Vec<RowHere> {
        let graves = std::mem::take(&mut self.graves);
        let mut rows = Vec::with_capacity(slots.len() + graves.len());
        let mut graves = graves.into_iter().peekable();
        for slot in slots {
            let key = self.node.key(slot).to_vec();
            while let Some(grave) = graves.next_if(|grave| **grave < key[..]) {
                rows.push(self.row(grave.into_vec(), None));
            }
            graves.next_if(|grave| **grave == key[..]);
            rows.push(self.row(key, Some(self.node.record(slot))));
        }
        rows.extend(graves.map(|grave| self.row(grave.into_vec(), None)));
        rows
    }

    fn row(&self, key: Vec<u8>, current: Option<Record<'_>>) -> RowHere {
        let mut older = Vec::new();
        let found = self.tree.seen(&self.view, self.page, &key, current, &mut older);
        RowHere { record: found.record.map(owned), bound: found.bound, key }
    }

    /// Appends the row of the key that `batch` ends with, if the snapshot sees one.
    fn push(&mut self, current: Option<Record<'_>>, batch: &mut Batch) -> Result<(), Error> {
        let key = batch.last_key();
        let seen = self.tree.seen(&self.view, self.page, key, current, &mut self.older);
        match seen.record {
            None => batch.drop_key(),
            Some((flags, value)) if flags & OVERFLOW == 0 => batch.push_value(value),
            Some((_, value)) => batch.push_large(self.tree, self.page.id(), value)?,
        }
        Ok(())
    }

    /// Appends the row in `slot` of a leaf that is as the snapshot sees it.
    #[inline]
    fn push_current(&self, slot: usize, batch: &mut Batch) -> Result<(), Error> {
        if self.node.is_ghost(slot) {
            return Ok(());
        }
        let _read_freely = batch.begin(&self.node, slot, true);
        push(self.tree, self.page.id(), &self.node, slot, batch)
    }

    /// How many entries come from here: all of a leaf that was copied, so that it is copied once.
    fn limit_of(&self, batch: &Batch, limit: usize) -> usize {
        if batch.has_leaf() { self.node.len() } else { limit }
    }

    fn push_place(&mut self, place: &Place, batch: &mut Batch) -> Result<(), Error> {
        match *place {
            Place::Slot(slot) => {
                let _read_freely = batch.begin(&self.node, slot, true);
                self.push(Some(self.node.record(slot)), batch)
            }
            Place::Grave(grave) => {
                batch.push_key(&self.graves[grave]);
                self.push(None, batch)
            }
        }
    }

    /// Appends the rows of `slots`, and of the graves, in ascending order.
    fn ascend(
        &mut self,
        mut slots: std::ops::Range<usize>,
        limit: usize,
        batch: &mut Batch,
        goes_on: bool,
    ) -> Result<Stop, Error> {
        if self.view.is_current(self.page) {
            batch.copy_leaf(&self.node, slots.len(), limit);
            let takes_slots = batch.takes_slots(limit);
            let limit = self.limit_of(batch, limit);
            if takes_slots {
                // The next leaf comes into the processor's cache while this one is read.
                let next = Some(self.node.right()).filter(|_| goes_on);
                let mut ahead = next.and_then(|next| self.tree.pool.ahead(next));
                let step = || ahead.iter_mut().for_each(PageAhead::step);
                slots.start += batch.push_slots(&self.node, slots.clone(), step);
            }
            for slot in slots {
                if batch.is_full(limit) {
                    return Ok(Stop::Full);
                }
                self.push_current(slot, batch)?;
            }
            return Ok(Stop::LeafEnd);
        }
        let (mut slot, mut grave) = (slots.start, 0);
        while slot < slots.end || grave < self.graves.len() {
            if batch.is_full(limit) {
                return Ok(Stop::Full);
            }
            let order = match self.graves.get(grave) {
                None => Ordering::Less,
                Some(_) if slot >= slots.end => Ordering::Greater,
                Some(key) => (*self.node.key(slot)).cmp(key),
            };
            // A row that was put again is where it is.
            if order == Ordering::Greater {
                self.push_place(&Place::Grave(grave), batch)?;
            } else {
                self.push_place(&Place::Slot(slot), batch)?;
                slot += 1;
            }
            grave += usize::from(order != Ordering::Less);
        }
        Ok(Stop::LeafEnd)
    }

    /// As `ascend`, in descending order.
    fn descend(
        &mut self,
        mut slots: std::ops::Range<usize>,
        limit: usize,
        batch: &mut Batch,
    ) -> Result<Stop, Error> {
        if self.view.is_current(self.page) {
            batch.copy_leaf(&self.node, slots.len(), limit);
            let takes_slots = batch.takes_slots(limit);
            let limit = self.limit_of(batch, limit);
            if takes_slots {
                slots.end -= batch.push_slots(&self.node, slots.clone().rev(), || {});
            }
            for slot in slots.rev() {
                if batch.is_full(limit) {
                    return Ok(Stop::Full);
                }
                self.push_current(slot, batch)?;
            }
            return Ok(Stop::LeafEnd);
        }
        let (mut slot, mut grave) = (slots.end.max(slots.start), self.graves.len());
        while slot > slots.start || grave > 0 {
            if batch.is_full(limit) {
                return Ok(Stop::Full);
            }
            let order = match grave.checked_sub(1).map(|last| &self.graves[last]) {
                None => Ordering::Greater,
                Some(_) if slot <= slots.start => Ordering::Less,
                Some(key) => (*self.node.key(slot - 1)).cmp(key),
            };
            if order == Ordering::Less {
                self.push_place(&Place::Grave(grave - 1), batch)?;
            } else {
                self.push_place(&Place::Slot(slot - 1), batch)?;
                slot -= 1;
            }
            grave -= usize::from(order != Ordering::Greater);
        }
        Ok(Stop::LeafEnd)
    }
}

/// Whether no key is between the bounds.
fn is_empty(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> bool {
    match (lower, upper) {
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (Bound::Included(low) | Bound::Excluded(low), Bound::Excluded(high))
        | (Bound::Excluded(low), Bound::Included(high)) => low >= high,
        _ => false,
    }
}

fn bytes(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &key[..])
}

impl Scan {
    /// As `forward`, through the snapshot of `r`.
    pub(super) fn seen<R: Reader + ?Sized>(
        &mut self,
        tree: &Tree,
        r: &mut R,
        limit: usize,
        batch: &mut Batch,
    ) -> Result<Stop, Error> {
        let mut next = None;
        loop {
            let (page, slot) = match next.take() {
                Some(page) => (page, 0),
                None => {
                    let first = match self.from() {
                        Bound::Unbounded => b"",
                        Bound::Included(key) | Bound::Excluded(key) => key,
                    };
                    let page = tree.leaf_read_first(r, first)?;
                    let slot = first_slot(&tree.node(page.id(), &page)?, self.from());
                    (page, slot)
                }
            };
            let view = r.snapshot().expect("its caller has seen it");
            let mut leaf = Leaf::new(tree, &page, view, (self.from(), bytes(&self.upper)))?;
            let node = leaf.node;
            let end = match &self.upper {
                Bound::Unbounded => node.len(),
                Bound::Included(upper) => node.child_of(upper),
                Bound::Excluded(upper) => node.child_below(upper),
            };
            let goes_on = self.walked > 0 || limit != LEAF && limit > end - slot.min(end);
            let ascend = |leaf: &mut Leaf<'_, '_>, batch: &mut Batch| {
                leaf.ascend(slot..end, limit, batch, goes_on)
            };
            let Some(stop) = leaf.alone(batch, ascend)? else {
                let rows = leaf.rows(slot..end);
                match self.ascend_spilled(tree, page, rows, view, limit, batch)? {
                    Stop::LeafEnd if batch.ends_with_leaf(limit) => return Ok(Stop::Full),
                    Stop::LeafEnd => continue,
                    stop => return Ok(stop),
                }
            };
            if let Stop::Full = stop {
                return Ok(Stop::Full);
            }
            if !self.goes_above(&node) {
                return Ok(Stop::End);
            }
            if view.is_ended() {
                return Err(view.why_ended());
            }
            if batch.ends_with_leaf(limit) {
                return Ok(Stop::Full);
            }
            let Some(right) = tree.right_of(&node)? else { return Ok(Stop::End) };
            next = Some(right);
            self.walk();
        }
    }

    /// Whether a forward scan goes on behind a leaf.
    pub(super) fn goes_above(&self, leaf: &Node<'_>) -> bool {
        leaf.upper().is_some_and(|fence| match &self.upper {
            Bound::Unbounded => true,
            Bound::Included(upper) => fence <= &upper[..],
            Bound::Excluded(upper) => fence < &upper[..],
        })
    }

    /// As `backward`, through the snapshot of `r`.
    pub(super) fn seen_backward<R: Reader + ?Sized>(
        &mut self,
        tree: &Tree,
        r: &mut R,
        limit: usize,
        batch: &mut Batch,
    ) -> Result<Stop, Error> {
        loop {
            let (page, end) = match self.last_leaf(tree, r)? {
                Ok(found) => found,
                Err(stop) => return Ok(stop),
            };
            let view = r.snapshot().expect("its caller has seen it");
            let bounds = (bytes(&self.lower), self.down_from());
            let mut leaf = Leaf::new(tree, &page, view, bounds)?;
            let node = leaf.node;
            let start = first_slot(&node, bytes(&self.lower));
            let stop = leaf.alone(batch, |leaf, batch| leaf.descend(start..end, limit, batch))?;
            let Some(stop) = stop else {
                let rows = leaf.rows(start..end.max(start));
                match self.descend_spilled(tree, page, rows, view, limit, batch)? {
                    Stop::LeafEnd if batch.ends_with_leaf(limit) => return Ok(Stop::Full),
                    Stop::LeafEnd => continue,
                    stop => return Ok(stop),
                }
            };
            if let Stop::Full = stop {
                return Ok(Stop::Full);
            }
            if !self.goes_below(&node, batch) {
                return Ok(Stop::End);
            }
            if view.is_ended() {
                return Err(view.why_ended());
            }
            if batch.ends_with_leaf(limit) {
                return Ok(Stop::Full);
            }
        }
    }
}
