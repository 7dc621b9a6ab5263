//! Ranges, forward and backward, a batch of entries at a time.
//!
//! A scan locks each record that it meets and the gap before it, and at its end the gap before the
//! first key beyond the range: so no other transaction can put a key where it has looked. Ghosts
//! are locked like any record, and skipped. Between two batches it holds no latch and remembers a
//! key only; the next batch starts from there by a descent.
//!
//! - Forward, it goes to the right neighbour hand over hand: the first key of the next leaf, or the
//!   gap before it if the range ends there, is locked while both leaves are latched. So no task
//!   puts a key behind the last one of the leaf that is released.
//! - Backward, it first locks the gap before the key beyond its end; from then on the gap below the
//!   last key met is always locked, so it may release its latch and descend anew to what lies below
//!   a fence.
//!
//! **Read-ahead.** A scan that has walked from one leaf to the next asks the pool for the leaves
//! that follow, as its leaves' parents list them, in runs of neighbouring pages: the more, the
//! farther it has walked. It looks at the parents between batches, when no leaf is latched. What is
//! in memory already costs no task.

use std::ops::Bound;

use terrace_page::PageId;
use terrace_pool::PageRef;

use super::Tree;
use super::descend::{Next, Seek};
use super::node::{Node, OVERFLOW};
use crate::writer::{Reader, Step};
use crate::{Error, LockMode, LockRequest};

mod batch;
mod inner;
mod seen;
mod spilled;

pub(crate) use batch::{Batch, LEAF, Wanted};

/// Leaves that a long scan asks for at once: one extent.
const AHEAD_LEAVES: usize = 32;
/// It asks for this many leaves for each that it has walked, up to that: short ranges want little.
const AHEAD_PER_WALKED: usize = 4;
/// There are no more to ask for.
const ALL_AHEAD: usize = usize::MAX;

/// Which way a scan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the least key up.
    Forward,
    /// From the greatest key down.
    Backward,
}

/// Where a scan is.
#[derive(Clone, Debug)]
enum At {
    /// At its first end.
    Start,
    /// It has met this key.
    Past(Vec<u8>),
    /// Backward: it has met all keys from this fence up.
    Below(Vec<u8>),
    /// Forward: it has met all keys below this fence.
    Above(Vec<u8>),
    /// At its other end.
    Done,
}

/// A scan of a range.
pub(crate) struct Scan {
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    direction: Direction,
    mode: LockMode,
    wanted: Wanted,
    at: At,
    /// Entries of the batch that `at` knows of.
    noted: usize,
    /// Leaves that it has walked on to.
    walked: usize,
    /// Leaves that were asked for and are not reached yet.
    ahead: usize,
    /// Where the leaves begin that were not asked for yet: a fence.
    asked: Option<Vec<u8>>,
    /// What was asked for of each level above them, from level 1 on.
    inner: Vec<inner::Asked>,
}

/// How a leaf, or a batch, ended.
enum Stop {
    /// The batch has what was asked for.
    Full,
    /// The range is at its end.
    End,
    /// A lock is busy.
    Busy(LockRequest),
    /// The leaf has no more.
    LeafEnd,
}

macro_rules! stop_if_busy {
    ($locked:expr) => {
        if let Some(request) = $locked? {
            return Ok(Stop::Busy(request));
        }
    };
}

/// Puts the value in `slot` to the key that the batch ends with.
#[inline]
fn push(
    tree: &Tree,
    leaf: PageId,
    node: &Node<'_>,
    slot: usize,
    batch: &mut Batch,
) -> Result<(), Error> {
    let (flags, value) = node.record(slot);
    if flags & OVERFLOW != 0 {
        return batch.push_large(tree, leaf, value);
    }
    if batch.has_leaf() {
        batch.push_in_leaf(node.value_at(slot));
    } else {
        batch.push_value(value);
    }
    Ok(())
}

/// The first slot of a leaf at or beyond a lower bound.
fn first_slot(node: &Node<'_>, bound: Bound<&[u8]>) -> usize {
    match bound {
        Bound::Unbounded => 0,
        Bound::Included(key) => node.child_below(key),
        Bound::Excluded(key) => node.child_of(key),
    }
}

impl Scan {
    /// A scan of the keys between the bounds. Records are locked in `mode`, `Shared` or
    /// `Exclusive`.
    pub(crate) fn new(
        lower: Bound<Vec<u8>>,
        upper: Bound<Vec<u8>>,
        direction: Direction,
        mode: LockMode,
    ) -> Scan {
        let empty = match (&lower, &upper) {
            (Bound::Included(low), Bound::Included(high)) => low > high,
            (Bound::Included(low) | Bound::Excluded(low), Bound::Excluded(high))
            | (Bound::Excluded(low), Bound::Included(high)) => low >= high,
            _ => false,
        };
        Scan {
            lower,
            upper,
            direction,
            mode,
            wanted: Wanted::Rows,
            at: if empty { At::Done } else { At::Start },
            noted: 0,
            walked: 0,
            ahead: 0,
            asked: None,
            inner: Vec::new(),
        }
    }

    /// The scan, which reads what is `wanted` of each row.
    pub(crate) fn reading(self, wanted: Wanted) -> Scan {
        Scan { wanted, ..self }
    }

    /// Replaces `batch` by the next entries, `limit` at most; none: the range is at its end. Fewer
    /// than `limit` says nothing.
    ///
    /// # Errors
    ///
    /// `TooManyLocks`, `Corrupt`, those of the pool.
    pub(crate) fn next_batch<R: Reader + ?Sized>(
        &mut self,
        tree: &Tree,
        r: &mut R,
        limit: usize,
        batch: &mut Batch,
    ) -> Result<Step<()>, Error> {
        batch.clear(self.wanted);
        if matches!(self.at, At::Done) {
            return Ok(Step::Done(()));
        }
        self.read_ahead(tree)?;
        self.noted = 0;
        let limit = limit.max(1);
        let stop = match self.direction {
            Direction::Forward if r.snapshot().is_some() => self.seen(tree, r, limit, batch),
            Direction::Forward => self.forward(tree, r, limit, batch),
            Direction::Backward if r.snapshot().is_some() => {
                self.seen_backward(tree, r, limit, batch)
            }
            Direction::Backward => self.backward(tree, r, limit, batch),
        };
        batch.drop_key();
        self.note_last(batch);
        match stop? {
            Stop::End => self.at = At::Done,
            Stop::Busy(request) if batch.len() == 0 => return Ok(Step::Wait(request)),
            Stop::Busy(_) | Stop::Full | Stop::LeafEnd => {}
        }
        Ok(Step::Done(()))
    }

    fn forward<R: Reader + ?Sized>(
        &mut self,
        tree: &Tree,
        r: &mut R,
        limit: usize,
        batch: &mut Batch,
    ) -> Result<Stop, Error> {
        let from = self.from();
        let first = match from {
            Bound::Unbounded => b"",
            Bound::Included(key) | Bound::Excluded(key) => key,
        };
        let mut leaf = tree.leaf_read_first(r, first)?;
        let mut slot = first_slot(&tree.node(leaf.id(), &leaf)?, from);
        loop {
            let node = tree.node(leaf.id(), &leaf)?;
            match self.forward_in(tree, r, leaf.id(), &node, slot, limit, batch)? {
                Stop::LeafEnd if batch.ends_with_leaf(limit) => return Ok(Stop::Full),
                Stop::LeafEnd => {}
                stop => return Ok(stop),
            }
            let next = tree.next_key(&node, node.len())?;
            let mode = if self.reaches(&next) { self.mode.scanned() } else { LockMode::GapScan };
            stop_if_busy!(tree.lock(r, &next, mode));
            // The leaf is released only now that no task can put a key in between.
            let Some(right) = next.into_leaf() else { return Ok(Stop::End) };
            leaf = right;
            slot = 0;
            self.walk();
        }
    }

    /// Where a forward scan goes on.
    fn from(&self) -> Bound<&[u8]> {
        match &self.at {
            At::Past(key) => Bound::Excluded(&key[..]),
            At::Above(key) => Bound::Included(&key[..]),
            _ => self.lower.as_ref().map(|key| &key[..]),
        }
    }

    /// Where a backward scan goes on.
    fn down_from(&self) -> Bound<&[u8]> {
        match &self.at {
            At::Past(key) | At::Below(key) => Bound::Excluded(&key[..]),
            _ => self.upper.as_ref().map(|key| &key[..]),
        }
    }

    /// Whether the range goes as far as the next key.
    fn reaches(&self, next: &Next<'_>) -> bool {
        match (next.key(), &self.upper) {
            (None, _) => false,
            (Some(_), Bound::Unbounded) => true,
            (Some(key), Bound::Included(upper)) => key <= upper,
            (Some(key), Bound::Excluded(upper)) => key < upper,
        }
    }

    #[expect(clippy::too_many_arguments, reason = "what a leaf is read with")]
    fn forward_in<R: Reader + ?Sized>(
        &mut self,
        tree: &Tree,
        r: &mut R,
        leaf: PageId,
        node: &Node<'_>,
        slot: usize,
        limit: usize,
        batch: &mut Batch,
    ) -> Result<Stop, Error> {
        // Where the range ends in this leaf, and whether with a key that is there.
        let (end, has_bound) = match &self.upper {
            Bound::Unbounded => (node.len(), false),
            Bound::Included(upper) => match node.search(upper) {
                Ok(slot) => (slot + 1, true),
                Err(slot) => (slot, false),
            },
            Bound::Excluded(upper) => (node.child_below(upper), false),
        };
        let mode = self.mode.scanned();
        let free = r.covers(tree.id, mode);
        let mut has_ghosts = false;
        batch.copy_leaf(node, end.saturating_sub(slot), limit);
        for slot in slot..end {
            if batch.is_full(limit) {
                return Ok(Stop::Full);
            }
            let hash = batch.begin(node, slot, free);
            if let Some(hash) = hash {
                stop_if_busy!(tree.lock_hash(r, hash, mode, || batch.last_key().to_vec()));
            }
            if node.is_ghost(slot) {
                // Locked as what it was: the transaction that removed it may roll back.
                batch.drop_key();
                has_ghosts = true;
                continue;
            }
            push(tree, leaf, node, slot, batch)?;
        }
        if has_ghosts {
            tree.note_ghosts(r, leaf, node, &node.key(0));
        }
        if has_bound {
            return Ok(Stop::End);
        }
        if batch.is_full(limit) {
            return Ok(Stop::Full);
        }
        if end < node.len() {
            stop_if_busy!(tree.lock(r, &*node.key(end), LockMode::GapScan));
            return Ok(Stop::End);
        }
        Ok(Stop::LeafEnd)
    }

    /// The scan is past the last entry of the batch.
    fn note_last(&mut self, batch: &Batch) {
        let Some(last) = batch.len().checked_sub(1).filter(|last| *last >= self.noted) else {
            return;
        };
        let (key, _) = batch.entry(last);
        if let At::Past(past) = &mut self.at {
            past.clear();
            past.extend_from_slice(key);
        } else {
            self.at = At::Past(key.to_vec());
        }
        self.noted = batch.len();
    }

    fn backward<R: Reader + ?Sized>(
        &mut self,
        tree: &Tree,
        r: &mut R,
        limit: usize,
        batch: &mut Batch,
    ) -> Result<Stop, Error> {
        loop {
            let (leaf, end) = match self.last_leaf(tree, r)? {
                Ok(found) => found,
                Err(stop) => return Ok(stop),
            };
            let node = tree.node(leaf.id(), &leaf)?;
            match self.backward_in(tree, r, leaf.id(), &node, end, limit, batch)? {
                Stop::LeafEnd => {}
                stop => return Ok(stop),
            }
            if !self.goes_below(&node, batch) {
                return Ok(Stop::End);
            }
            if batch.ends_with_leaf(limit) {
                return Ok(Stop::Full);
            }
        }
    }

    /// Goes on below a leaf, unless the range does not.
    fn goes_below(&mut self, leaf: &Node<'_>, batch: &Batch) -> bool {
        let below = match &self.lower {
            Bound::Unbounded => leaf.lower().is_empty(),
            Bound::Included(lower) | Bound::Excluded(lower) => leaf.lower() <= &lower[..],
        };
        if below || leaf.lower().is_empty() {
            return false;
        }
        self.at = At::Below(leaf.lower().to_vec());
        self.noted = batch.len();
        self.walk();
        true
    }

    /// The leaf that a backward scan goes on in, and the slot after the next one; at the start,
    /// the gap before the key beyond the range is locked.
    fn last_leaf<'t, R: Reader + ?Sized>(
        &self,
        tree: &'t Tree,
        r: &mut R,
    ) -> Result<Result<(PageRef<'t>, usize), Stop>, Error> {
        let start = matches!(self.at, At::Start);
        let bound = self.down_from();
        let seek = match bound {
            Bound::Unbounded => Seek::Last,
            Bound::Included(key) => Seek::Key(key),
            // No key is below the empty one.
            Bound::Excluded([]) => return Ok(Err(Stop::End)),
            Bound::Excluded(key) => Seek::Below(key),
        };
        let leaf = tree.leaf_shared(seek)?;
        let node = tree.node(leaf.id(), &leaf)?;
        let end = match bound {
            Bound::Unbounded => node.len(),
            Bound::Included(key) => node.child_of(key),
            Bound::Excluded(key) => node.child_below(key),
        };
        if start && r.snapshot().is_none() {
            let next = tree.next_key(&node, end)?;
            if let Some(request) = tree.lock(r, &next, LockMode::GapScan)? {
                return Ok(Err(Stop::Busy(request)));
            }
        }
        Ok(Ok((leaf, end)))
    }

    #[expect(clippy::too_many_arguments, reason = "what a leaf is read with")]
    fn backward_in<R: Reader + ?Sized>(
        &mut self,
        tree: &Tree,
        r: &mut R,
        leaf: PageId,
        node: &Node<'_>,
        end: usize,
        limit: usize,
        batch: &mut Batch,
    ) -> Result<Stop, Error> {
        // Where the range begins in this leaf, and whether with a key that is there.
        let (start, has_bound) = match &self.lower {
            Bound::Unbounded => (0, false),
            Bound::Included(lower) => match node.search(lower) {
                Ok(slot) => (slot, true),
                Err(slot) => (slot, false),
            },
            Bound::Excluded(lower) => (node.child_of(lower), false),
        };
        let mode = self.mode.scanned();
        let free = r.covers(tree.id, mode);
        let mut has_ghosts = false;
        batch.copy_leaf(node, end.saturating_sub(start), limit);
        for slot in (start..end).rev() {
            if batch.is_full(limit) {
                return Ok(Stop::Full);
            }
            let hash = batch.begin(node, slot, free);
            if let Some(hash) = hash {
                stop_if_busy!(tree.lock_hash(r, hash, mode, || batch.last_key().to_vec()));
            }
            if node.is_ghost(slot) {
                // Locked as what it was: the transaction that removed it may roll back.
                batch.drop_key();
                has_ghosts = true;
                continue;
            }
            push(tree, leaf, node, slot, batch)?;
        }
        if has_ghosts {
            tree.note_ghosts(r, leaf, node, &node.key(0));
        }
        if has_bound || start > 0 {
            return Ok(Stop::End);
        }
        Ok(if batch.is_full(limit) { Stop::Full } else { Stop::LeafEnd })
    }

    fn walk(&mut self) {
        self.walked += 1;
        self.ahead = self.ahead.saturating_sub(1);
    }

    /// Asks for the leaves to come, if the scan has shown that it is one.
    fn read_ahead(&mut self, tree: &Tree) -> Result<(), Error> {
        let (At::Past(past) | At::Below(past) | At::Above(past)) = &self.at else { return Ok(()) };
        let most = (AHEAD_PER_WALKED * self.walked).min(AHEAD_LEAVES);
        if self.walked == 0 || self.ahead > most / 2 {
            return Ok(());
        }
        let from = if self.ahead == 0 { past } else { self.asked.as_ref().unwrap_or(past) };
        let (mut pages, mut next) = (Vec::with_capacity(most), Some(from.clone()));
        if most == AHEAD_LEAVES {
            self.inner_ahead(tree, &from.clone())?;
        }
        while let Some(from) = next.take_if(|_| pages.len() < most) {
            next = self.nodes_behind(tree, 1, &from, most, &mut pages)?;
        }
        self.ahead = if next.is_some() { self.ahead + pages.len() } else { ALL_AHEAD };
        self.asked = next;
        for (first, count) in runs(&pages) {
            tree.pool.read_ahead(first, count);
        }
        Ok(())
    }

    /// Adds the nodes behind `from` that one parent, of `level`, has and the scan will want, up to
    /// `most` in all. Where the rest of them begin, or those of the next parent; `None` if there
    /// are no more.
    fn nodes_behind(
        &self,
        tree: &Tree,
        level: u8,
        from: &[u8],
        most: usize,
        pages: &mut Vec<PageId>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let forward = self.direction == Direction::Forward;
        let seek = match (forward, from.is_empty()) {
            (false, false) => Seek::Below(from),
            _ => Seek::Key(from),
        };
        let Some(parent) = tree.node_shared(seek, level)? else { return Ok(None) };
        let node = tree.node(parent.id(), &parent)?;
        let (first, end) = self.wanted(&node, seek.child(&node), most - pages.len());
        pages.extend((first..end).map(|index| node.child(index)));
        if first == end {
            return Ok(None);
        }
        Ok(if forward {
            let has_more = (1..=node.len()).contains(&end);
            let fence = has_more.then(|| node.key(end - 1).to_vec());
            fence.or_else(|| node.upper().map(<[u8]>::to_vec))
        } else if first > 0 {
            Some(node.key(first - 1).to_vec())
        } else {
            (!node.lower().is_empty()).then(|| node.lower().to_vec())
        })
    }
}

impl Scan {
    /// Which children of a node, from `child` on and up to `most`, the scan will want.
    fn wanted(&self, parent: &Node<'_>, child: usize, most: usize) -> (usize, usize) {
        let end_of = |bound: &Bound<Vec<u8>>, other: usize| match bound {
            Bound::Included(key) | Bound::Excluded(key) => parent.child_of(key),
            Bound::Unbounded => other,
        };
        match self.direction {
            Direction::Forward => {
                let last = end_of(&self.upper, parent.len());
                (child, (child + most).min(last + 1).max(child))
            }
            Direction::Backward => {
                let first = end_of(&self.lower, 0);
                ((child + 1).saturating_sub(most).max(first).min(child + 1), child + 1)
            }
        }
    }
}

/// Pages as runs of neighbours, ascending.
fn runs(pages: &[PageId]) -> Vec<(PageId, u32)> {
    let mut pages = pages.to_vec();
    pages.sort_unstable();
    let mut runs: Vec<(PageId, u32)> = Vec::new();
    for page in pages {
        match runs.last_mut() {
            Some((first, count)) if first.plus(u64::from(*count)) == page => *count += 1,
            _ => runs.push((page, 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_read_by_one_request() {
        let pages = [7, 8, 9, 3, 12, 11].map(PageId);
        let expected = [(3, 1), (7, 3), (11, 2)].map(|(first, count)| (PageId(first), count));
        assert_eq!(runs(&pages), expected);
        assert_eq!(runs(&[]), []);
    }
}
