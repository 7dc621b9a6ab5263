//! Large values: chains of pages, to which the record in the leaf refers (`reference`).
//!
//! ```text
//! page
//! offset size field
//!      0   24 (header)  see `terrace_page`; kind is Overflow
//!     24    8 next      the next page of the chain, or 0
//!     32    2 len       bytes of the value in this page
//!     34    2 state     bit 0: the head of a chain that waits to be freed; what follows is for
//!                       it; bit 1: the bytes list runs of pages, see `runs`
//!     36    4 tree      number of the tree
//!     40    8 after     head of the next chain that waits, or 0
//!     48    8 before    head of the one before, or 0
//!     56    8 txn       the transaction that gave the chain up
//!     64    8 stamp     of the record that leads here
//!     72      the bytes
//! ```
//!
//! **Stamps.** A value's stamp is where the log ended when it was put, or a little more, so that no
//! other value that is put then has the same. A page is freed, and used
//! again, by logged changes only, so no page ever had the same stamp twice: a page that a device
//! brought back from an older state is distinguished from the one that was written last, whether
//! its value is read or freed.
//!
//! No page is ever lost, whatever moment a crash picks:
//!
//! - A new chain grows from its record: the record comes first, without pages, and each nested
//!   action hangs the next few pages at the chain's end.
//! - A deleted value's pages stay, since an undo wants them back: the chain joins the tree's list
//!   of pending chains *after* its record has gone. An undo takes it off the list *before* the
//!   record returns. In between, the record, or its undo, still leads to the chain.
//! - Chains leave the list, and the reclaim task frees their pages from the head on, once no undo
//!   can come: `Writer::oldest_active`. The header's latch guards the list.

use terrace_page::{PAGE_SIZE, PageBuf, PageId, PageKind, TxnId, kind};
use terrace_pool::PageMut;

use super::Tree;
use super::descend::Seek;
use super::header::Header;
use super::node::OVERFLOW;
use super::reference::{FIRST_IN_REFERENCE, Form, Parts, Reference, tail_len};
use crate::change::{BODY_AT, Change, FREE};
use crate::reclaim::{Progress, SpaceWait};
use crate::space::{EXTENT_PAGES, Purpose};
use crate::writer::{Undo, Writer};
use crate::{Error, TreeId};

const NEXT_AT: usize = BODY_AT;
pub(super) const LEN_AT: usize = NEXT_AT + 8;
const STATE_AT: usize = LEN_AT + 2;
const TREE_AT: usize = STATE_AT + 2;
const AFTER_AT: usize = TREE_AT + 4;
const BEFORE_AT: usize = AFTER_AT + 8;
const TXN_AT: usize = BEFORE_AT + 8;
const STAMP_AT: usize = TXN_AT + 8;
pub(super) const DATA_AT: usize = STAMP_AT + 8;
/// Bytes of a value in a page.
pub(super) const DATA_MAX: usize = PAGE_SIZE - DATA_AT;
/// Pages that a nested action adds or frees: each is latched meanwhile.
const BATCH: usize = 8;
const PENDING: u16 = 1;
const LISTS: u16 = 2;

const _: () = assert!(DATA_AT == 72);

/// The fields of an overflow page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) next: PageId,
    pub(super) len: usize,
    pub(super) pending: bool,
    /// The bytes list runs of pages.
    pub(super) lists: bool,
    pub(super) tree: u32,
    pub(super) after: PageId,
    pub(super) before: PageId,
    pub(super) txn: TxnId,
    pub(super) stamp: u64,
}

impl Link {
    pub(super) fn new(tree: TreeId, stamp: u64, len: usize, next: PageId) -> Link {
        let (after, before, txn) = (PageId(0), PageId(0), TxnId(0));
        let (pending, lists) = (false, false);
        Link { next, len, pending, lists, tree: tree.0, after, before, txn, stamp }
    }

    pub(super) fn encode(&self) -> [u8; DATA_AT - BODY_AT] {
        let mut page = [0; DATA_AT];
        page[NEXT_AT..LEN_AT].copy_from_slice(&self.next.0.to_le_bytes());
        page[LEN_AT..STATE_AT].copy_from_slice(&(self.len as u16).to_le_bytes());
        let state = if self.pending { PENDING } else { 0 } | if self.lists { LISTS } else { 0 };
        page[STATE_AT..TREE_AT].copy_from_slice(&state.to_le_bytes());
        page[TREE_AT..AFTER_AT].copy_from_slice(&self.tree.to_le_bytes());
        page[AFTER_AT..BEFORE_AT].copy_from_slice(&self.after.0.to_le_bytes());
        page[BEFORE_AT..TXN_AT].copy_from_slice(&self.before.0.to_le_bytes());
        page[TXN_AT..STAMP_AT].copy_from_slice(&self.txn.0.to_le_bytes());
        page[STAMP_AT..DATA_AT].copy_from_slice(&self.stamp.to_le_bytes());
        page[BODY_AT..].try_into().expect("the fields")
    }

    fn decode(page: &PageBuf) -> Link {
        let u16_at = |at: usize| u16::from_le_bytes([page[at], page[at + 1]]);
        let u64_at =
            |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"));
        Link {
            next: PageId(u64_at(NEXT_AT)),
            len: usize::from(u16_at(LEN_AT)),
            pending: u16_at(STATE_AT) & PENDING != 0,
            lists: u16_at(STATE_AT) & LISTS != 0,
            tree: u32::from_le_bytes(page[TREE_AT..AFTER_AT].try_into().expect("four bytes")),
            after: PageId(u64_at(AFTER_AT)),
            before: PageId(u64_at(BEFORE_AT)),
            txn: TxnId(u64_at(TXN_AT)),
            stamp: u64_at(STAMP_AT),
        }
    }
}

/// The page of `chunk`, a part of the large value with this stamp.
pub(super) fn format(tree: TreeId, stamp: u64, chunk: &[u8], next: PageId) -> Vec<u8> {
    let mut bytes = Link::new(tree, stamp, chunk.len(), next).encode().to_vec();
    bytes.extend_from_slice(chunk);
    bytes
}

pub(super) fn set_link<W: Writer>(
    w: &mut W,
    page: &mut PageMut<'_>,
    link: &Link,
) -> Result<(), Error> {
    let change = Change::Bytes { at: BODY_AT as u16, bytes: &link.encode() };
    w.change(page, &change, Undo::None)
}

impl Tree {
    /// The fields of overflow page `id`.
    pub(super) fn link(&self, id: PageId, page: &PageBuf) -> Result<Link, Error> {
        let link = Link::decode(page);
        if kind(page) != Some(PageKind::Overflow) || link.tree != self.id.0 || link.len > DATA_MAX {
            return Err(Tree::corrupt(id, "it should be a part of a large value of this tree"));
        }
        Ok(link)
    }

    /// The fields of page `id` of the value with this stamp.
    pub(super) fn link_of(&self, id: PageId, page: &PageBuf, stamp: u64) -> Result<Link, Error> {
        let link = self.link(id, page)?;
        if link.stamp != stamp {
            return Err(Tree::corrupt(id, "it is a part of another large value, of an older day"));
        }
        Ok(link)
    }

    /// Appends to `out` the value that `reference`, in the leaf `leaf`, leads to.
    pub(super) fn read_large(
        &self,
        leaf: PageId,
        reference: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let (reference, parts) = Reference::with_parts(leaf, reference)?;
        match reference.form {
            Form::Lists => return self.read_runs(&reference, out),
            Form::Block => return self.read_block(&reference, &parts, out),
            Form::Chain => {}
        }
        let Parts { chain_len, tail } = parts;
        let Reference { stamp, first, .. } = reference;
        let mut left = usize::try_from(chain_len).unwrap_or(usize::MAX);
        let mut next = first;
        while left > 0 {
            if next == PageId(0) {
                return Err(Tree::corrupt(leaf, "a large value ends early"));
            }
            let page = self.pool.read(next)?;
            let link = self.link_of(next, &page, stamp)?;
            if link.len == 0 || link.len > left {
                return Err(Tree::corrupt(next, "a large value has another length"));
            }
            out.extend_from_slice(&page[DATA_AT..DATA_AT + link.len]);
            left -= link.len;
            next = link.next;
        }
        out.extend_from_slice(tail);
        Ok(())
    }

    /// Writes the pages of a large value, all but its tail. Its record is there without pages, and
    /// locked.
    pub(super) fn write_large<W: Writer>(
        &self,
        w: &mut W,
        key: &[u8],
        value: &[u8],
        stamp: u64,
    ) -> Result<(), Error> {
        let mut rest = &value[..value.len() - tail_len(key, value)];
        let mut tail = None;
        let mut wait = SpaceWait::default();
        let mut batch = BATCH;
        while !rest.is_empty() {
            let pages = rest.len().div_ceil(DATA_MAX).min(batch);
            let (chunk, after) = rest.split_at((pages * DATA_MAX).min(rest.len()));
            match self.append_pages(w, (key, stamp), tail, chunk, pages as u32) {
                // Home may be too full for a whole batch in one extent.
                Err(Error::HomeFull { .. }) if pages > 1 => batch = 1,
                Err(Error::HomeFull { .. }) if w.waits_for_space(&mut wait) => {}
                appended => {
                    tail = Some(appended?);
                    rest = after;
                    batch = BATCH;
                }
            }
        }
        Ok(())
    }

    /// Hangs `count` pages with `chunk` at the page `tail`, or at the record of `key`.
    fn append_pages<W: Writer>(
        &self,
        w: &mut W,
        (key, stamp): (&[u8], u64),
        tail: Option<PageId>,
        chunk: &[u8],
        count: u32,
    ) -> Result<PageId, Error> {
        let mut holder = match tail {
            Some(tail) => self.pool.write(tail)?,
            None => self.leaf_exclusive(Seek::Key(key))?,
        };
        let near = holder.id();
        let mut reserved = self.space.reserve(w, self.id, near, count, Purpose::Forward)?;
        let ids = reserved.pages().to_vec();
        let mut pages = Vec::with_capacity(ids.len());
        for id in &ids {
            pages.push(self.pool.create(*id)?);
        }
        let link = match tail {
            Some(tail) => Some(Link { next: ids[0], ..self.link_of(tail, &holder, stamp)? }),
            None => None,
        };
        let slot = match link {
            Some(_) => 0,
            None => self.slot_of_large(&holder, key)?,
        };
        let nested = w.begin_nested();
        reserved.take(w)?;
        for (index, (page, chunk)) in pages.iter_mut().zip(chunk.chunks(DATA_MAX)).enumerate() {
            let next = ids.get(index + 1).copied().unwrap_or_default();
            let bytes = format(self.id, stamp, chunk, next);
            w.change(page, &Change::Page { kind: PageKind::Overflow, bytes: &bytes }, Undo::None)?;
        }
        match link {
            Some(link) => set_link(w, &mut holder, &link)?,
            None => {
                let bytes = &ids[0].0.to_le_bytes();
                let at = FIRST_IN_REFERENCE as u16;
                let change = Change::LeafPatch { slot: slot as u16, at, cut: 8, bytes };
                w.change(&mut holder, &change, Undo::None)?;
            }
        }
        w.end_nested(nested)?;
        Ok(ids[ids.len() - 1])
    }

    /// Where the record of `key` is, which refers to a large value.
    fn slot_of_large(&self, leaf: &PageMut<'_>, key: &[u8]) -> Result<usize, Error> {
        let node = self.node(leaf.id(), leaf)?;
        match node.search(key) {
            Ok(slot) if node.record(slot).0 & OVERFLOW != 0 => Ok(slot),
            _ => Err(Tree::corrupt(leaf.id(), "a record vanished while it was locked")),
        }
    }

    /// The large value that a record of the leaf `leaf` is about to give up, if it has one. Its
    /// first page is read while nothing has changed: a rollback needs it, too, and one that met its
    /// damage would stop the engine, and each opening after it. That of a block is not looked at.
    pub(super) fn large_to_give_up<W: Writer>(
        &self,
        w: &mut W,
        leaf: PageId,
        flags: u8,
        value: &[u8],
    ) -> Result<Option<Reference>, Error> {
        if flags & OVERFLOW == 0 {
            return Ok(None);
        }
        let large = Reference::of(leaf, value)?;
        if large.is_block() {
            self.know_blocks(w)?;
        }
        if large.first != PageId(0) && !large.is_block() {
            self.link(large.first, &*self.pool.read(large.first)?)?;
        }
        Ok(Some(large))
    }

    /// Puts a chain that no record refers to any more onto the list of those to be freed, unless
    /// it is there already; or gives up a block.
    pub(super) fn push_pending<W: Writer>(&self, w: &mut W, value: Reference) -> Result<(), Error> {
        let head = value.first;
        if value.is_block() {
            self.give_block(w, head);
            return Ok(());
        }
        if head == PageId(0) {
            return Ok(());
        }
        let (mut header, fields) = self.header_exclusive()?;
        let mut page = self.pool.write(head)?;
        let link = self.link(head, &page)?;
        if link.pending {
            return Ok(());
        }
        let last = self.other(fields.pending_last)?;
        // A list of runs is freed in a few steps.
        w.gave_up(self.id, if value.lists() { 0 } else { value.len });
        let nested = w.begin_nested();
        let before = fields.pending_last;
        let (after, txn) = (PageId(0), w.txn());
        set_link(w, &mut page, &Link { pending: true, before, after, txn, ..link })?;
        let first = if last.is_some() { fields.pending_first } else { head };
        if let Some((mut last, link)) = last {
            set_link(w, &mut last, &Link { after: head, ..link })?;
            self.set_header(w, &mut header, &Header { pending_last: head, ..fields })?;
            return w.end_nested(nested);
        }
        let fields = Header { pending_first: first, pending_last: head, ..fields };
        self.set_header(w, &mut header, &fields)?;
        w.end_nested(nested)
    }

    /// Another chain's head, while the header is latched.
    pub(super) fn other(&self, id: PageId) -> Result<Option<(PageMut<'_>, Link)>, Error> {
        if id == PageId(0) {
            return Ok(None);
        }
        let page = self.pool.write(id)?;
        let link = self.link(id, &page)?;
        Ok(Some((page, link)))
    }

    /// Takes a chain off the list, if it is there, or gets a block back: its record is about to
    /// return.
    pub(super) fn pull_pending<W: Writer>(&self, w: &mut W, value: Reference) -> Result<(), Error> {
        let head = value.first;
        if value.is_block() {
            self.space.regain_block(self.id, head);
            return Ok(());
        }
        if head == PageId(0) {
            return Ok(());
        }
        let (mut header, mut fields) = self.header_exclusive()?;
        let mut page = self.pool.write(head)?;
        let link = self.link(head, &page)?;
        if !link.pending {
            return Ok(());
        }
        let before = self.other(link.before)?;
        let after = self.other(link.after)?;
        let nested = w.begin_nested();
        let own = Link { lists: link.lists, ..Link::new(self.id, link.stamp, link.len, link.next) };
        set_link(w, &mut page, &own)?;
        // Latched until the end of the action.
        let mut latched = Vec::with_capacity(2);
        match before {
            Some((mut page, other)) => {
                set_link(w, &mut page, &Link { after: link.after, ..other })?;
                latched.push(page);
            }
            None => fields.pending_first = link.after,
        }
        match after {
            Some((mut page, other)) => {
                set_link(w, &mut page, &Link { before: link.before, ..other })?;
                latched.push(page);
            }
            None => fields.pending_last = link.before,
        }
        self.set_header(w, &mut header, &fields)?;
        w.end_nested(nested)
    }

    /// Whether large values of this tree wait to be freed.
    ///
    /// # Errors
    ///
    /// Those of the pool, `Corrupt`.
    pub(crate) fn has_pending(&self) -> Result<bool, Error> {
        Ok(self.header_fields()?.pending_first != PageId(0))
    }

    /// Frees the first pages of the first chain that waits, if no undo can want it back.
    ///
    /// # Errors
    ///
    /// Those of the pool and of `Writer::change`, `Corrupt`.
    pub(crate) fn free_chain<W: Writer>(&self, w: &mut W) -> Result<Progress, Error> {
        let (mut header, mut fields) = self.header_exclusive()?;
        let head = fields.pending_first;
        let Some((page, link)) = self.waiting(head, PageId(0))? else {
            return Ok(Progress::Done);
        };
        if link.txn >= w.oldest_active() {
            return Ok(Progress::Blocked(link.txn));
        }
        if link.lists && link.len > 0 {
            return self.free_listed(w, page, &link);
        }
        let (mut pages, next) = self.run_of_chain(page, link)?;
        // What comes first afterwards: the rest of this chain, or the next one.
        let heir = match next {
            PageId(0) => self.waiting(link.after, head)?,
            next => self.part(next, link.stamp)?,
        };
        let after = match (next, link.after) {
            (PageId(0), _) | (_, PageId(0)) => None,
            (_, after) => self.waiting(after, head)?,
        };
        let ids: Vec<PageId> = pages.iter().map(PageMut::id).collect();
        let mut freeing = self.space.freeing(self.id, &ids)?;
        let nested = w.begin_nested();
        for page in &mut pages {
            w.change(page, &FREE, Undo::None)?;
        }
        freeing.free(w)?;
        let mut latched = Vec::with_capacity(2);
        fields.pending_first = heir.as_ref().map_or(PageId(0), |(page, _)| page.id());
        if next != PageId(0) && link.after == PageId(0) || heir.is_none() {
            fields.pending_last = fields.pending_first;
        }
        if let Some((mut page, own)) = heir {
            let own = if next == PageId(0) {
                Link { before: PageId(0), ..own }
            } else {
                Link { next: own.next, len: own.len, ..link }
            };
            set_link(w, &mut page, &own)?;
            latched.push(page);
        }
        if let Some((mut page, own)) = after {
            set_link(w, &mut page, &Link { before: next, ..own })?;
            latched.push(page);
        }
        self.set_header(w, &mut header, &fields)?;
        w.end_nested(nested)?;
        drop((pages, latched, header));
        freeing.done();
        Ok(Progress::More)
    }

    /// The head of a chain that waits behind that of `before`, while the header is latched: no page
    /// is freed because a head of an older day leads to it.
    fn waiting(&self, id: PageId, before: PageId) -> Result<Option<(PageMut<'_>, Link)>, Error> {
        match self.other(id)? {
            Some((_, link)) if !link.pending || link.before != before => {
                Err(Tree::corrupt(id, "it should be a large value that waits to be freed"))
            }
            found => Ok(found),
        }
    }

    /// A page of the chain with this stamp, while the header is latched: no page that is a part of
    /// another value is freed with it.
    fn part(&self, id: PageId, stamp: u64) -> Result<Option<(PageMut<'_>, Link)>, Error> {
        match self.other(id)? {
            Some((page, _)) => {
                let link = self.link_of(id, &page, stamp)?;
                Ok(Some((page, link)))
            }
            None => Ok(None),
        }
    }

    /// The pages from the head of a chain on that lie in one extent, latched, and what follows.
    fn run_of_chain<'t>(
        &'t self,
        head: PageMut<'t>,
        Link { mut next, stamp, lists, .. }: Link,
    ) -> Result<(Vec<PageMut<'t>>, PageId), Error> {
        let extent = head.id().0 / EXTENT_PAGES;
        let mut pages = vec![head];
        // What the next page lists goes before it does.
        while !lists && next.0 / EXTENT_PAGES == extent && pages.len() < BATCH {
            if pages.iter().any(|page| page.id() == next) {
                return Err(Tree::corrupt(next, "it is in two places of a large value"));
            }
            let Some((page, link)) = self.part(next, stamp)? else { break };
            pages.push(page);
            next = link.next;
        }
        Ok((pages, next))
    }
}
