//! Insertion, update and removal of a key.
//!
//! A removed key stays as a ghost: see [`purge`](super::purge). An insertion finds it there, and
//! puts the new record in its place.
//!
//! A transaction changes a page only once the key is locked, even where a leaf is only split for
//! it: so one that has locked the whole table may rely on the tree's shape while reclaiming is
//! paused, as a check of the tree does.
//!
//! All that can fail comes before the change of the leaf (writer.W4), with one exception after
//! which the caller must roll back: a large value runs out of room while it is being written.

use terrace_page::PageId;
use terrace_pool::PageMut;

use super::blocks::{Block, block_tail};
use super::node::{CELL_MAX, GHOST, Joined, KEY_MAX, LEAF_CELL, Node, OVERFLOW, SLOT};
use super::reference::{Form, Reference, tail_len};
use super::runs::Unfinished;
use super::split::Need;
use super::{Tree, VALUE_MAX, lock_or_wait, old};
use crate::change::Change;
use crate::space::Purpose;
use crate::writer::{Step, Undo, Writer};
use crate::{Error, KeyHash, LockMode};

/// Every attempt after the first follows a split that made room, which others may have used up.
pub(super) const ATTEMPTS_MAX: u32 = 10_000;

/// What to do with a key that is there, or is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// Put the value there in any case.
    Upsert,
    /// Put it there if there is none.
    InsertNew,
    /// Put it there if there is one.
    Update,
}

/// What became of a value that was to be modified.
#[derive(Debug)]
pub(crate) enum Modified<E> {
    /// There is none.
    Absent,
    /// It was changed, and put back.
    Done,
    /// It was changed and is still to be put back: it needs more than its place.
    NotYet,
    /// It was not changed.
    Refused(E),
}

/// Bytes that are compared at once, as long as they are equal.
const STRIDE: usize = 32;

/// How many bytes `a` and `b`, which are equally long, both begin with.
#[inline]
fn same_ahead(a: &[u8], b: &[u8]) -> usize {
    let strides = a.as_chunks::<STRIDE>().0.iter().zip(b.as_chunks::<STRIDE>().0);
    let mut same = STRIDE * strides.take_while(|(a, b)| a == b).count();
    let (a_words, a_rest) = a[same..].as_chunks::<8>();
    let (b_words, b_rest) = b[same..].as_chunks::<8>();
    for (a, b) in a_words.iter().zip(b_words) {
        match u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b) {
            0 => same += 8,
            unequal => return same + unequal.trailing_zeros() as usize / 8,
        }
    }
    same + a_rest.iter().zip(b_rest).take_while(|(a, b)| a == b).count()
}

/// How many bytes `a` and `b`, which are equally long, both end with.
#[inline]
fn same_behind(a: &[u8], b: &[u8]) -> usize {
    let strides = a.as_rchunks::<STRIDE>().1.iter().zip(b.as_rchunks::<STRIDE>().1);
    let mut same = STRIDE * strides.rev().take_while(|(a, b)| a == b).count();
    let (a_rest, a_words) = a[..a.len() - same].as_rchunks::<8>();
    let (b_rest, b_words) = b[..b.len() - same].as_rchunks::<8>();
    for (a, b) in a_words.iter().zip(b_words).rev() {
        match u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b) {
            0 => same += 8,
            unequal => return same + unequal.leading_zeros() as usize / 8,
        }
    }
    same + a_rest.iter().zip(b_rest).rev().take_while(|(a, b)| a == b).count()
}

/// Where `new` differs from `old`: offset, bytes to cut there, bytes to put there.
fn difference<'n>(old: &[u8], new: &'n [u8]) -> (usize, usize, &'n [u8]) {
    let shorter = old.len().min(new.len());
    let at = same_ahead(&old[..shorter], &new[..shorter]);
    let rest = shorter - at;
    let same = same_behind(&old[old.len() - rest..], &new[new.len() - rest..]);
    (at, old.len() - at - same, &new[at..new.len() - same])
}

/// Flags and value in one.
fn record(flags: u8, value: &[u8]) -> Joined {
    Joined::new(&[flags], value)
}

/// Whether a value goes to overflow pages.
pub(super) fn is_large(key: &[u8], value: &[u8]) -> bool {
    SLOT + LEAF_CELL + key.len() + value.len() > CELL_MAX
}

/// The record that a key gets.
#[derive(Clone, Copy)]
struct New<'v> {
    flags: u8,
    value: &'v [u8],
    /// What it refers to, if that is a block, which is still to be written.
    block: Option<Block<'v>>,
}

/// What an attempt to put a key came to.
enum Attempt {
    Done {
        existed: bool,
    },
    Wait(crate::LockRequest),
    /// The leaf has no room for a record of this length, flags included.
    NoRoom(Need),
    /// The record would be written, and its block has no page.
    NeedsPage,
}

impl Tree {
    /// Checks that a key and a value can be stored.
    pub(crate) fn check_sizes(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if key.len() > KEY_MAX {
            let (table, len) = (self.id().into(), key.len());
            return Err(Error::KeyTooLong { table, len, max: KEY_MAX });
        }
        if value.len() > VALUE_MAX {
            let (len, max) = (value.len() as u64, VALUE_MAX as u64);
            return Err(Error::ValueTooLong { table: self.id().into(), len, max });
        }
        Ok(())
    }

    /// Puts `value` at `key` as `put` says; returns whether the key was there. The value that was
    /// there goes to `old`, if asked for, whether or not it was replaced.
    ///
    /// # Errors
    ///
    /// `KeyTooLong` and `ValueTooLong`, before anything was changed; `HomeFull`, `TooManyLocks`,
    /// `Corrupt`, those of the pool and of `Writer::change`, after which the transaction must be
    /// rolled back.
    pub(crate) fn put<W: Writer>(
        &self,
        w: &mut W,
        key: &[u8],
        value: &[u8],
        put: Put,
        mut old: Option<&mut Vec<u8>>,
    ) -> Result<Step<bool>, Error> {
        self.check_sizes(key, value)?;
        let large = is_large(key, value);
        if large && let Some(tail) = block_tail(key, value) {
            return self.put_block(w, key, (value, tail), put, old);
        }
        let len = value.len() as u64;
        let stamp = if large { w.stamp() } else { 0 };
        let reference;
        let new = if large {
            let tail = &value[value.len() - tail_len(key, value)..];
            reference = Reference { len, stamp, first: PageId(0), form: Form::Chain }.encode(tail);
            New { flags: OVERFLOW, value: &reference, block: None }
        } else {
            New { flags: 0, value, block: None }
        };
        for _ in 0..ATTEMPTS_MAX {
            match self.try_put(w, key, new, put, old.as_deref_mut())? {
                Attempt::Wait(request) => return Ok(Step::Wait(request)),
                Attempt::NoRoom(need) => self.make_room(w, key, need, Purpose::Forward)?,
                Attempt::NeedsPage => unreachable!("it is no block"),
                Attempt::Done { existed } => {
                    let written = if existed { put != Put::InsertNew } else { put != Put::Update };
                    if large && written {
                        self.write_large(w, key, value, stamp)?;
                    }
                    return Ok(Step::Done(existed));
                }
            }
        }
        Err(Tree::corrupt(self.header, "splits make no room in this tree"))
    }

    /// As `put`, of a block with a tail.
    fn put_block<W: Writer>(
        &self,
        w: &mut W,
        key: &[u8],
        (value, tail): (&[u8], usize),
        put: Put,
        mut old: Option<&mut Vec<u8>>,
    ) -> Result<Step<bool>, Error> {
        let (len, stamp) = (value.len() as u64, w.stamp());
        // Without latches: it may wait for space, which what changes nothing must not.
        let mut taken = if put == Put::Upsert { Some(self.take_block(w)?) } else { None };
        for _ in 0..ATTEMPTS_MAX {
            let first = taken.as_ref().map_or(PageId(0), |taken| taken.page);
            let reference = Reference { len, stamp, first, form: Form::Block };
            let reference = reference.encode(&value[value.len() - tail..]);
            let block = Some(Block { page: first, stamp, value });
            let new = New { flags: OVERFLOW, value: &reference, block };
            match self.try_put(w, key, new, put, old.as_deref_mut())? {
                Attempt::Wait(request) => return Ok(Step::Wait(request)),
                Attempt::NoRoom(need) => self.make_room(w, key, need, Purpose::Forward)?,
                Attempt::NeedsPage => taken = Some(self.take_block(w)?),
                Attempt::Done { existed } => return Ok(Step::Done(existed)),
            }
        }
        Err(Tree::corrupt(self.header, "splits make no room in this tree"))
    }

    /// As `put`, of a value that is finished. Once it is there, nothing frees it before it is given
    /// up again.
    ///
    /// # Errors
    ///
    /// As `put`.
    pub(crate) fn put_finished<W: Writer>(
        &self,
        w: &mut W,
        key: &[u8],
        value: &Unfinished,
        put: Put,
        mut old: Option<&mut Vec<u8>>,
    ) -> Result<Step<bool>, Error> {
        self.check_sizes(key, &[])?;
        let value = value.reference();
        let reference = value.encode(&[]);
        let new = New { flags: OVERFLOW, value: &reference, block: None };
        w.refers_to_unlogged();
        for _ in 0..ATTEMPTS_MAX {
            match self.try_put(w, key, new, put, old.as_deref_mut())? {
                Attempt::Wait(request) => return Ok(Step::Wait(request)),
                Attempt::NoRoom(need) => self.make_room(w, key, need, Purpose::Forward)?,
                Attempt::NeedsPage => unreachable!("it is no block"),
                Attempt::Done { existed } => {
                    let written = if existed { put != Put::InsertNew } else { put != Put::Update };
                    if written {
                        self.pull_pending(w, value)?;
                    }
                    return Ok(Step::Done(existed));
                }
            }
        }
        Err(Tree::corrupt(self.header, "splits make no room in this tree"))
    }

    /// Copies the value of `key` to `row`, has `change` change it, and puts it back: one search for
    /// both. `change` is taken, and run under the leaf's latch, once the key is locked.
    ///
    /// # Errors
    ///
    /// As `put`.
    pub(crate) fn modify<W: Writer, E>(
        &self,
        w: &mut W,
        key: &[u8],
        row: &mut Vec<u8>,
        change: &mut Option<impl FnOnce(&mut Vec<u8>) -> Result<(), E>>,
    ) -> Result<Step<Modified<E>>, Error> {
        let mut leaf = self.leaf_write(w, key)?;
        let node = Node::again(&leaf);
        let slot = match node.search(key) {
            Ok(slot) => slot,
            Err(slot) => {
                let next = self.next_key(&node, slot)?;
                lock_or_wait!(self, w, &next, LockMode::GapScan);
                return Ok(Step::Done(Modified::Absent));
            }
        };
        node.prefetch(slot);
        if node.is_ghost(slot) {
            lock_or_wait!(self, w, key, LockMode::Shared);
            self.note_ghosts(w, leaf.id(), &node, key);
            return Ok(Step::Done(Modified::Absent));
        }
        lock_or_wait!(self, w, key, LockMode::Exclusive);
        self.copy_value(&leaf, slot, row)?;
        let change = change.take().expect("its key is locked once");
        if let Err(error) = change(row) {
            return Ok(Step::Done(Modified::Refused(error)));
        }
        let is_inline = node.record(slot).0 & OVERFLOW == 0 && !is_large(key, row);
        if !is_inline || !self.fits_in_place_of(w, &node, slot, 1 + row.len()) {
            return Ok(Step::Done(Modified::NotYet));
        }
        self.replace(w, &mut leaf, slot, key, (0, row))?;
        Ok(Step::Done(Modified::Done))
    }

    fn try_put<W: Writer>(
        &self,
        w: &mut W,
        key: &[u8],
        new: New<'_>,
        put: Put,
        old: Option<&mut Vec<u8>>,
    ) -> Result<Attempt, Error> {
        let mut leaf = self.leaf_write(w, key)?;
        let node = Node::again(&leaf);
        match node.search(key) {
            Ok(slot) if node.is_ghost(slot) => self.put_over_ghost(w, leaf, slot, key, new, put),
            Ok(slot) => {
                let mode =
                    if put == Put::InsertNew { LockMode::Shared } else { LockMode::Exclusive };
                if let Some(request) = self.lock(w, key, mode)? {
                    return Ok(Attempt::Wait(request));
                }
                if let Some(old) = old {
                    self.copy_value(&leaf, slot, old)?;
                }
                if put == Put::InsertNew {
                    return Ok(Attempt::Done { existed: true });
                }
                let record_len = 1 + new.value.len();
                if !self.fits_in_place_of(w, &node, slot, record_len) {
                    return Ok(Attempt::NoRoom(Need::Replace { record_len }));
                }
                if new.block.is_some_and(Block::needs_page) {
                    return Ok(Attempt::NeedsPage);
                }
                let (flags, value) = node.record(slot);
                let large = self.large_to_give_up(w, leaf.id(), flags, value)?;
                self.write_block(w, new.block.as_ref())?;
                self.replace(w, &mut leaf, slot, key, (new.flags, new.value))?;
                self.attach_block(new.block.as_ref());
                self.give_up(w, leaf, large)?;
                Ok(Attempt::Done { existed: true })
            }
            Err(slot) if put == Put::Update => {
                let next = self.next_key(&node, slot)?;
                Ok(match self.lock(w, &next, LockMode::GapScan)? {
                    Some(request) => Attempt::Wait(request),
                    None => Attempt::Done { existed: false },
                })
            }
            Err(slot) => self.try_insert(w, leaf, slot, key, new),
        }
    }

    /// Puts a key where a ghost of it is. The transaction that removed it has ended, or is this
    /// one: then its undo wants the ghost back as it was.
    fn put_over_ghost<W: Writer>(
        &self,
        w: &mut W,
        mut leaf: PageMut<'_>,
        slot: usize,
        key: &[u8],
        New { flags, value, block }: New<'_>,
        put: Put,
    ) -> Result<Attempt, Error> {
        let node = Node::again(&leaf);
        let hash = KeyHash::of(key);
        let may_be_own = w.may_hold(self.id, hash);
        let mode = if put == Put::Update { LockMode::Shared } else { LockMode::Exclusive };
        if let Some(request) = self.lock_hash(w, hash, mode, || key.to_vec())? {
            return Ok(Attempt::Wait(request));
        }
        if put == Put::Update {
            self.note_ghosts(w, leaf.id(), &node, key);
            return Ok(Attempt::Done { existed: false });
        }
        if !self.fits_in_place_of(w, &node, slot, 1 + value.len()) {
            return Ok(Attempt::NoRoom(Need::Replace { record_len: 1 + value.len() }));
        }
        if block.is_some_and(Block::needs_page) {
            return Ok(Attempt::NeedsPage);
        }
        let shrinks = value.len() < node.record(slot).1.len();
        self.write_block(w, block.as_ref())?;
        let (tree, record) = (self.id, record(flags, value));
        let change = Change::LeafReplace { slot: slot as u16, record: &record };
        if may_be_own {
            let (ghost_flags, ghost_value) = node.record(slot);
            let old = [&[old::WHOLE, ghost_flags], ghost_value].concat();
            self.keep_room(w, key, (ghost_value.len(), value.len()));
            w.change(&mut leaf, &change, Undo::Update { tree, key, old: &old })?;
        } else {
            w.change(&mut leaf, &change, Undo::Insert { tree, key })?;
        }
        if shrinks {
            self.note_light(w, &leaf, key);
        }
        self.attach_block(block.as_ref());
        Ok(Attempt::Done { existed: false })
    }

    fn try_insert<W: Writer>(
        &self,
        w: &mut W,
        mut leaf: PageMut<'_>,
        slot: usize,
        key: &[u8],
        New { flags, value, block }: New<'_>,
    ) -> Result<Attempt, Error> {
        let node = Node::again(&leaf);
        let hash = KeyHash::of(key);
        if let Some(request) = self.lock_hash(w, hash, LockMode::Exclusive, || key.to_vec())? {
            return Ok(Attempt::Wait(request));
        }
        if !self.fits(w, &node, key, 1 + value.len()) {
            return Ok(Attempt::NoRoom(Need::Insert { body_len: 1 + value.len() }));
        }
        let next = self.next_key(&node, slot)?;
        if let Some(request) = self.lock(w, &next, LockMode::GapInsert)? {
            return Ok(Attempt::Wait(request));
        }
        if w.holds_gap(self.id, next.hash)
            && let Some(request) = self.lock_hash(w, hash, LockMode::GapScan, || key.to_vec())?
        {
            return Ok(Attempt::Wait(request));
        }
        drop(next);
        if block.is_some_and(Block::needs_page) {
            return Ok(Attempt::NeedsPage);
        }
        self.write_block(w, block.as_ref())?;
        let record = record(flags, value);
        let change = Change::LeafInsert { slot: slot as u16, key, record: &record };
        w.change(&mut leaf, &change, Undo::Insert { tree: self.id, key })?;
        self.attach_block(block.as_ref());
        Ok(Attempt::Done { existed: false })
    }

    /// A record of `leaf` has given up what it referred to: a block, before another task looks at
    /// the leaf, or a chain.
    fn give_up<W: Writer>(
        &self,
        w: &mut W,
        leaf: PageMut<'_>,
        large: Option<Reference>,
    ) -> Result<(), Error> {
        let Some(large) = large else { return Ok(()) };
        if large.is_block() {
            self.give_block(w, large.first);
            return Ok(());
        }
        drop(leaf);
        self.push_pending(w, large)
    }

    /// Copies the value in `slot`, whole.
    pub(super) fn copy_value(
        &self,
        leaf: &PageMut<'_>,
        slot: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let (flags, value) = Node::again(leaf).record(slot);
        out.clear();
        if flags & OVERFLOW == 0 {
            out.extend_from_slice(value);
            return Ok(());
        }
        self.read_large(leaf.id(), value, out)
    }

    /// Replaces a record for which there is room, by what differs if that is less.
    fn replace<W: Writer>(
        &self,
        w: &mut W,
        leaf: &mut PageMut<'_>,
        slot: usize,
        key: &[u8],
        (flags, value): (u8, &[u8]),
    ) -> Result<(), Error> {
        let (old_flags, old_value) = Node::again(leaf).record(slot);
        let (tree, slot) = (self.id, slot as u16);
        let shrinks = value.len() < old_value.len();
        self.keep_room(w, key, (old_value.len(), value.len()));
        if flags == 0 && old_flags == 0 {
            let (at, cut, bytes) = difference(old_value, value);
            if cut == 0 && bytes.is_empty() {
                return Ok(());
            }
            let ([at0, at1], [len0, len1]) =
                ((at as u16).to_le_bytes(), (bytes.len() as u16).to_le_bytes());
            let head = [old::PATCH, at0, at1, len0, len1];
            let old = Joined::new(&head, &old_value[at..at + cut]);
            let change = Change::LeafPatch { slot, at: at as u16, cut: cut as u16, bytes };
            w.change(leaf, &change, Undo::Update { tree, key, old: &old })?;
        } else {
            let old = [&[old::WHOLE, old_flags], old_value].concat();
            let record = record(flags, value);
            let change = Change::LeafReplace { slot, record: &record };
            w.change(leaf, &change, Undo::Update { tree, key, old: &old })?;
        }
        if shrinks {
            self.note_light(w, leaf, key);
        }
        Ok(())
    }

    /// Deletes `key`; returns whether it was there. Its value goes to `old`, if asked for.
    ///
    /// # Errors
    ///
    /// As `put`.
    pub(crate) fn remove<W: Writer>(
        &self,
        w: &mut W,
        key: &[u8],
        old: Option<&mut Vec<u8>>,
    ) -> Result<Step<bool>, Error> {
        let mut leaf = self.leaf_write(w, key)?;
        let node = Node::again(&leaf);
        let slot = match node.search(key) {
            Ok(slot) => slot,
            Err(slot) => {
                let next = self.next_key(&node, slot)?;
                lock_or_wait!(self, w, &next, LockMode::GapScan);
                return Ok(Step::Done(false));
            }
        };
        if node.is_ghost(slot) {
            lock_or_wait!(self, w, key, LockMode::Shared);
            self.note_ghosts(w, leaf.id(), &node, key);
            return Ok(Step::Done(false));
        }
        lock_or_wait!(self, w, key, LockMode::Exclusive);
        if let Some(old) = old {
            self.copy_value(&leaf, slot, old)?;
        }
        let (flags, value) = node.record(slot);
        let large = self.large_to_give_up(w, leaf.id(), flags, value)?;
        let change = Change::LeafMark { slot: slot as u16, flags: flags | GHOST };
        w.change(&mut leaf, &change, Undo::Delete { tree: self.id, key, record: &[flags] })?;
        self.note_ghosts(w, leaf.id(), &Node::again(&leaf), key);
        self.give_up(w, leaf, large)?;
        Ok(Step::Done(true))
    }
}

#[cfg(test)]
mod tests {
    use terrace_rt::Prng;

    use super::*;

    #[test]
    fn a_difference_of_long_values_is_that_of_their_bytes() {
        for seed in 0..3000 {
            let mut prng = Prng::from_seed(seed);
            let mut old = vec![0; prng.below(200) as usize];
            prng.fill(&mut old);
            let mut new = old.clone();
            for _ in 0..prng.below(3) {
                let at = prng.below(new.len() as u64 + 1) as usize;
                let cut = (prng.below(40) as usize).min(new.len() - at);
                let same = prng.below(2) == 0;
                let put = if same { cut } else { prng.below(40) as usize };
                new.splice(at..at + cut, (0..put).map(|_| prng.below(256) as u8));
            }
            let ahead = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
            let (old_rest, new_rest) = (&old[ahead..], &new[ahead..]);
            let behind = old_rest.iter().rev().zip(new_rest.iter().rev());
            let behind = behind.take_while(|(a, b)| a == b).count();
            let middle = &new_rest[..new_rest.len() - behind];
            let expected = (ahead, old_rest.len() - behind, middle);
            assert_eq!(difference(&old, &new), expected, "seed {seed}");
        }
    }

    #[test]
    fn a_difference_is_the_least_range() {
        type Case = (&'static [u8], &'static [u8], (usize, usize, &'static [u8]));
        let cases: [Case; 7] = [
            (b"", b"", (0, 0, b"")),
            (b"same", b"same", (4, 0, b"")),
            (b"0123456789abcdef", b"0123456789Xbcdef", (10, 1, b"X")),
            (b"aaa", b"aaaa", (3, 0, b"a")),
            (b"aaaa", b"aa", (2, 2, b"")),
            (b"left mid right", b"left right", (5, 4, b"")),
            (b"x", b"y", (0, 1, b"y")),
        ];
        for (old, new, expected) in cases {
            assert_eq!(difference(old, new), expected, "{old:?} {new:?}");
        }
    }
}
