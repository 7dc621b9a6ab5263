//! Blocks: large values of one page, and perhaps a tail, which are overwritten without a look at
//! what they were.
//!
//! ```text
//! record's value                                page: header, kind Raw, as in `runs`
//! offset size field                             offset size field
//!      0    1 kind      4: a block                  24    8 stamp    that of the record
//!      1    7 reserved  zero                        32      bytes 0..8160 of the value, or zeroes
//!      8    8 len       bytes of the value
//!     16    8 stamp     in the page, too
//!     24    8 page
//!     32      tail      bytes 8160.. of the value
//! ```
//!
//! ```text
//!   put     a page that no record refers to is formatted by one record (`Change::Page`), which
//!           nothing undoes; then the record in the leaf changes, and refers to it
//!   undo    the old record comes back; the page it refers to was not changed
//!   after   the page that the leaf no longer refers to is used for another block, or freed, once
//!           nothing can want it back (`space::blocks`)
//! ```
//!
//! A put so reads the leaf, and writes the block to the log once. The pages lie in extents of their
//! own, whose owner in the maps is the tree's number with its highest bit set. All that is durable
//! of the pages that no record refers to is that the map has them as used: there is no list of
//! them, which could be damaged, or could need room when a block is removed. So:
//!
//! - K1: before the first page of an opening is taken or given up, the tree's header is marked:
//!   pages may be left over. A closing that has freed all of them takes the mark away.
//! - K2: an opening that finds the mark has the reclaim task sweep the tree: it looks at all
//!   records, in the order of keys, and frees the pages of the tree's blocks that none refers to.
//!   But for those that a transaction has taken, given up or got back since the opening
//!   (space::blocks.P2). Until then they are taken for garbage. If a leaf cannot be read, nothing
//!   is freed: a damaged page costs space, never an opening.
//! - K3: a ghost's reference counts for nothing: its page was given up with the record, or is by
//!   the opening that K2 speaks of.
//! - K4: the page's stamp is that of the record: an older version of the page, which a device
//!   brought back, is an error, and no value.
//! - Redo makes the page by its one record, from nothing: no doublewrite copy of it is needed.

use terrace_page::{HEADER_SIZE, PAGE_SIZE, PageId, PageKind, TxnId};
use terrace_pool::{Mutation, PageMut};

use super::Tree;
use super::descend::Seek;
use super::header::Header;
use super::node::{CELL_MAX, GHOST, OVERFLOW};
use super::reference::{Parts, Reference, TAIL_CELL};
use super::runs::RAW_DATA;
use crate::change::{BODY_AT, Change};
use crate::reclaim::{Progress, SpaceWait};
use crate::space::{EXTENT_PAGES, Purpose, SweepAt, blocks_of};
use crate::writer::{Undo, Writer};
use crate::{Error, reclaim};

/// Pages that were given up and that a tree keeps for its next blocks, beside those of an extent
/// that it has taken from the map.
const KEPT: usize = 32;
/// Pages that are taken from the map at once: those of an extent.
const TAKEN_MAX: u32 = EXTENT_PAGES as u32;
/// Pages that a piece of the reclaim task frees.
const FREED_MAX: usize = 64;

/// Bytes of the value that its record holds, if it is a block.
pub(super) fn block_tail(key: &[u8], value: &[u8]) -> Option<usize> {
    let tail = value.len().saturating_sub(RAW_DATA);
    (TAIL_CELL + key.len() + tail <= CELL_MAX).then_some(tail)
}

/// What a page of a block holds, from its stamp on.
pub(super) fn page_of(stamp: u64, value: &[u8]) -> Vec<u8> {
    let bytes = &value[..value.len().min(RAW_DATA)];
    let mut page = Vec::with_capacity(PAGE_SIZE - BODY_AT);
    page.extend_from_slice(&stamp.to_le_bytes());
    page.extend_from_slice(bytes);
    page
}

/// A page that was taken for a block. Dropped, it goes back, unless a record refers to it.
pub(super) struct Taken<'t> {
    tree: &'t Tree,
    pub(super) page: PageId,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.tree.space.put_back_block(self.tree.id, self.page);
    }
}

/// A block that is being put.
#[derive(Clone, Copy)]
pub(super) struct Block<'v> {
    /// Zero if it has none yet.
    pub(super) page: PageId,
    pub(super) stamp: u64,
    pub(super) value: &'v [u8],
}

impl Block<'_> {
    pub(super) fn needs_page(self) -> bool {
        self.page == PageId(0)
    }
}

impl Tree {
    /// K1.
    pub(super) fn know_blocks<W: Writer>(&self, w: &mut W) -> Result<(), Error> {
        if self.space.knows_blocks(self.id) {
            return Ok(());
        }
        let (mut header, fields) = self.header_exclusive()?;
        if self.space.knows_blocks(self.id) {
            return Ok(());
        }
        if !fields.left_over && !self.pool.mutations().has(Mutation::UnmarkedBlocks) {
            let nested = w.begin_nested();
            self.set_header(w, &mut header, &Header { left_over: true, ..fields })?;
            w.end_nested(nested)?;
        }
        self.space.know_blocks(self.id, fields.left_over);
        Ok(())
    }

    /// Takes a page for a block, without latches.
    ///
    /// # Errors
    ///
    /// `HomeFull`, `Corrupt`, those of the pool and of `Writer::change`.
    pub(super) fn take_block<W: Writer>(&self, w: &mut W) -> Result<Taken<'_>, Error> {
        let mut wait = SpaceWait::default();
        loop {
            self.know_blocks(w)?;
            if let Some(page) = self.space.take_block(self.id) {
                return Ok(Taken { tree: self, page });
            }
            let early = self.pool.mutations().has(Mutation::ReuseBlocksEarly);
            let oldest = if early { TxnId(w.txn().0 + 1) } else { w.oldest_active() };
            if self.space.refill_blocks(self.id, oldest)? {
                continue;
            }
            match self.add_blocks(w) {
                Err(Error::HomeFull { .. }) if w.waits_for_space(&mut wait) => {}
                added => added?,
            }
        }
    }

    /// Has the map give the tree more pages for blocks.
    fn add_blocks<W: Writer>(&self, w: &mut W) -> Result<(), Error> {
        let (owner, count) = (blocks_of(self.id), (1, TAKEN_MAX));
        // No extent of blocks is near the header.
        let near = self.header;
        let mut reserved = self.space.reserve_up_to(w, owner, near, count, Purpose::Forward)?;
        let pages = reserved.pages().to_vec();
        self.space.touch_blocks(self.id, &pages);
        let nested = w.begin_nested();
        reserved.take(w)?;
        w.end_nested(nested)?;
        // While the map is latched: a check that sees the pages in use there finds them here.
        self.space.add_blocks(self.id, &pages);
        drop(reserved);
        Ok(())
    }

    /// Writes the page of a block, right before a record refers to it. Its leaf is latched.
    pub(super) fn write_block<W: Writer>(
        &self,
        w: &mut W,
        block: Option<&Block<'_>>,
    ) -> Result<(), Error> {
        let Some(block) = block else { return Ok(()) };
        let mut page: PageMut<'_> = self.pool.create(block.page)?;
        let bytes = page_of(block.stamp, block.value);
        w.change(&mut page, &Change::Page { kind: PageKind::Raw, bytes: &bytes }, Undo::None)
    }

    /// A record refers to the page of a block.
    pub(super) fn attach_block(&self, block: Option<&Block<'_>>) {
        if let Some(block) = block {
            self.space.attach_block(self.id, block.page);
        }
    }

    /// Appends to `out` the block of `reference`.
    pub(super) fn read_block(
        &self,
        reference: &Reference,
        parts: &Parts<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let page = self.pool.read(reference.first)?;
        if !self.pool.mutations().has(Mutation::TrustBlocks) {
            self.check_raw(reference.first, &page, reference.stamp)?;
        }
        let len = parts.chain_len as usize;
        out.extend_from_slice(&page[HEADER_SIZE..HEADER_SIZE + len]);
        out.extend_from_slice(parts.tail);
        Ok(())
    }

    /// A record, whose leaf is latched, refers to a page no more.
    pub(super) fn give_block<W: Writer>(&self, w: &mut W, page: PageId) {
        let txn = w.txn();
        if self.space.give_block(self.id, page, txn) > KEPT {
            w.gave_up_blocks(self.id);
        }
    }

    /// Whether an earlier opening may have left pages over: they will be swept.
    ///
    /// # Errors
    ///
    /// `Corrupt`, those of the pool.
    pub(crate) fn finds_left_over(&self) -> Result<bool, Error> {
        let page = self.pool.read(self.header)?;
        let is_left_over = self.header_of(&page)?.left_over;
        if is_left_over {
            self.space.know_blocks(self.id, true);
        }
        Ok(is_left_over)
    }

    /// A piece of the reclaim task's work: of a sweep, or of freeing pages that no record refers
    /// to, all but those that are kept.
    ///
    /// # Errors
    ///
    /// Those of the pool and of `Writer::change`, `Corrupt`.
    pub(crate) fn tidy_blocks<W: Writer>(&self, w: &mut W, keep: Keep) -> Result<Progress, Error> {
        if let Some(from) = self.space.sweep_from(self.id) {
            let swept = self.sweep(w, from);
            if let Err(error) = &swept
                && !reclaim::may_pass(error)
            {
                self.space.end_sweep(self.id, false);
            }
            return swept.map(|()| Progress::More);
        }
        let keep = if keep == Keep::Some { KEPT } else { 0 };
        let oldest = w.oldest_active();
        let pages = self.space.release_blocks(self.id, oldest, (keep, FREED_MAX))?;
        if !pages.is_empty() {
            self.free_blocks(w, &pages)?;
            return Ok(Progress::More);
        }
        match self.space.blocks_wait_for(self.id, keep) {
            Some(txn) => Ok(Progress::Blocked(txn)),
            None => Ok(Progress::Done),
        }
    }

    /// How many pieces of work free all that can be freed now. Writers give up more meanwhile,
    /// which may go on for ever.
    pub(crate) fn pieces_to_free(&self) -> usize {
        1 + self.space.unreferenced_count(self.id).div_ceil(FREED_MAX)
    }

    /// Frees pages in ascending order. Those that are not free after an error are put back, and
    /// only those: one that is may be another block's at once.
    fn free_blocks<W: Writer>(&self, w: &mut W, pages: &[PageId]) -> Result<(), Error> {
        let mut left = pages;
        let freed = self.free_by_extent(w, pages, &mut left);
        if self.pool.mutations().has(Mutation::PutBackFreed) {
            left = pages;
        }
        left.iter().for_each(|&page| self.space.put_back_block(self.id, page));
        freed
    }

    /// A nested action for each extent. `left` are the pages that are not free yet.
    fn free_by_extent<'p, W: Writer>(
        &self,
        w: &mut W,
        pages: &'p [PageId],
        left: &mut &'p [PageId],
    ) -> Result<(), Error> {
        let extent = |page: &PageId| page.0 / EXTENT_PAGES;
        for pages in pages.chunk_by(|a, b| extent(a) == extent(b)) {
            let mut freeing = match self.space.freeing(blocks_of(self.id), pages) {
                Err(error) if !reclaim::may_pass(&error) => {
                    self.space.abandon_blocks(self.id, pages);
                    return Err(error);
                }
                freeing => freeing?,
            };
            let nested = w.begin_nested();
            freeing.free(w)?;
            w.end_nested(nested)?;
            // Before another task gets them from the map.
            pages.iter().for_each(|&page| self.space.attach_block(self.id, page));
            *left = &left[pages.len()..];
            freeing.done();
        }
        Ok(())
    }

    /// K2: one leaf, and after the last one some of the pages to be freed.
    fn sweep<W: Writer>(&self, w: &mut W, from: SweepAt) -> Result<(), Error> {
        match from {
            SweepAt::Key(key) => self.sweep_leaf_of_blocks(&key),
            SweepAt::Extent(page) => self.free_left_over(w, page),
        }
    }

    fn sweep_leaf_of_blocks(&self, from: &[u8]) -> Result<(), Error> {
        let mut pages = Vec::new();
        let leaf = self.leaf_shared(Seek::Key(from))?;
        let node = self.node(leaf.id(), &leaf)?;
        for slot in 0..node.len() {
            pages.extend(block_in(leaf.id(), node.record(slot))?);
        }
        let next = match node.upper() {
            Some(key) => SweepAt::Key(key.to_vec()),
            None => SweepAt::Extent(PageId(0)),
        };
        self.space.swept_to(self.id, &pages, next);
        Ok(())
    }

    fn free_left_over<W: Writer>(&self, w: &mut W, from: PageId) -> Result<(), Error> {
        let mut freed = 0;
        let extents = self.space.some_extents_of(blocks_of(self.id), from)?;
        for extent in &extents {
            let left = self.space.left_over(self.id, extent);
            if !left.is_empty() {
                self.free_blocks(w, &left)?;
                freed += left.len();
            }
            let next = extent.first.plus(EXTENT_PAGES);
            self.space.swept_to(self.id, &[], SweepAt::Extent(next));
            if freed >= FREED_MAX {
                return Ok(());
            }
        }
        if extents.is_empty() {
            self.space.end_sweep(self.id, true);
        }
        Ok(())
    }

    /// Takes the mark of K1 away if no page is left over: nothing else changes the tree.
    ///
    /// # Errors
    ///
    /// `Corrupt`, those of the pool and of `Writer::change`.
    pub(crate) fn end_blocks<W: Writer>(
        &self,
        w: &mut W,
        is_alone: impl Fn(&W) -> bool,
    ) -> Result<(), Error> {
        let (mut header, fields) = self.header_exclusive()?;
        let Some(uses) = self.space.uses_of_blocks(self.id).filter(|_| fields.left_over) else {
            return Ok(());
        };
        // A transaction that is registered later finds the mark gone, or is one use more.
        if is_alone(w) && self.space.forget_blocks(self.id, uses) {
            let nested = w.begin_nested();
            self.set_header(w, &mut header, &Header { left_over: false, ..fields })?;
            w.end_nested(nested)?;
        }
        Ok(())
    }
}

/// Which pages stay that no record refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// A few, for the next blocks.
    Some,
    /// None.
    None,
}

/// The page of the block that a record of the leaf `leaf` refers to, if it does.
fn block_in(leaf: PageId, (flags, value): (u8, &[u8])) -> Result<Option<PageId>, Error> {
    if flags & (OVERFLOW | GHOST) != OVERFLOW {
        return Ok(None);
    }
    let reference = Reference::of(leaf, value)?;
    Ok(reference.is_block().then_some(reference.first))
}

const _: () = assert!(BODY_AT + 8 == HEADER_SIZE && RAW_DATA + HEADER_SIZE == PAGE_SIZE);
