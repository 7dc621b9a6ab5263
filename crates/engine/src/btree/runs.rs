//! Large values whose pages go home first: the log has only where they are.
//!
//! ```text
//! record -> list (a chain of overflow pages, logged) -> runs of raw pages (not logged)
//!
//! list page: as in `overflow`, with bit 1 of the state; its bytes are entries
//! offset size field
//!      0    8 first     the first page of a run
//!      8    4 pages     how many pages it has, next to each other
//!     12    4 written   how many of them were about to be written
//!
//! raw page: header, kind Raw
//! offset size field
//!     24    8 stamp     that of the record, and of the list
//!     32      the bytes: all pages but the last are full
//! ```
//!
//! ```text
//!   begin     an empty list, on the tree's list of values to be freed
//!   write     takes runs, lists them; `Change::Renew`, then the pages, home (pool's `straight`)
//!   finish    gives back what is left of the last run; syncs home
//!   put       the record, which refers to the list; then the list waits no more to be freed
//! ```
//!
//! - R1: from its first page on the list waits to be freed, as if this transaction had given it up.
//!   So whatever ends the transaction before `put`, a crash included, has its pages freed; and
//!   they are not freed while it is open. After `put` it is as with any large value: the record, or
//!   its undo, leads to the list.
//! - R2: a page is listed before it is written, and `Renew` is logged, durably, before it is
//!   written and after its copy on flash was made void: an opening neither redoes what the page was
//!   before, nor believes a copy of that.
//! - R3: home was synced before a record refers to the pages. So what is committed is there.
//! - R4: the list changes under the latch of its page, then the map is latched; as in `overflow`,
//!   the header before both.

use std::ops::Range;

use terrace_page::{HEADER_SIZE, PAGE_SIZE, PageBuf, PageId, PageKind, lsn, set_kind};
use terrace_pool::{Mutation, PageMut, PoolError};

use super::Tree;
use super::header::Header;
use super::overflow::{DATA_AT, DATA_MAX, LEN_AT, Link, set_link};
use super::reference::{Form, RAW_STAMP_AT, Reference};
use crate::Error;
use crate::change::{BODY_AT, Change, RENEWED_MAX};
use crate::reclaim::Progress;
use crate::space::{EXTENT_PAGES, Purpose};
use crate::writer::{Undo, Writer};

/// Values of so many bytes go home first.
pub(crate) const HOME_FIRST_MIN: usize = 1 << 20;
/// Bytes of a value in a raw page.
pub(crate) const RAW_DATA: usize = PAGE_SIZE - HEADER_SIZE;
const ENTRY: usize = 16;
const WRITTEN_IN_ENTRY: usize = 12;
/// The longest run that is taken at once: 16 MiB.
const RUN_MAX: u64 = 64;
/// Pages that are latched, and written, at once: a part of what memory has, and no more than this.
const BATCH_MAX: u32 = 512;
const BATCH_ONE_IN: u32 = 8;
/// Pages of lists that are looked at, at most: those of 500 TiB.
const LISTS_MAX: u32 = 1 << 24;
/// Pages that a reader asks for at once.
const READ_PAGES: u64 = 64;

const _: () = assert!(BATCH_MAX <= RENEWED_MAX);

/// Pages next to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: PageId,
    pub(super) pages: u32,
    written: u32,
}

impl Run {
    /// The numbers of its pages.
    fn numbers(&self) -> Range<u64> {
        self.first.0..self.first.0.saturating_add(u64::from(self.pages))
    }

    fn encode(&self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        bytes[..8].copy_from_slice(&self.first.0.to_le_bytes());
        bytes[8..WRITTEN_IN_ENTRY].copy_from_slice(&self.pages.to_le_bytes());
        bytes[WRITTEN_IN_ENTRY..].copy_from_slice(&self.written.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; ENTRY]) -> Run {
        let u32_at =
            |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let first = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        Run { first: PageId(first), pages: u32_at(8), written: u32_at(WRITTEN_IN_ENTRY) }
    }
}

/// The runs in a page of a list; none in a page of anything else.
pub(super) fn runs_in<'p>(page: &'p PageBuf, link: &Link) -> impl Iterator<Item = Run> + use<'p> {
    let len = if link.lists { link.len.min(DATA_MAX) } else { 0 };
    page[DATA_AT..DATA_AT + len].as_chunks::<ENTRY>().0.iter().map(Run::decode)
}

/// A value that is being written. Left alone, it is freed once its transaction has ended.
#[derive(Debug)]
pub(crate) struct Unfinished {
    stamp: u64,
    /// The list's first page and its last.
    first: PageId,
    last: PageId,
    /// The run that is being filled, and where its entry is in the list's last page.
    filling: Option<(usize, Run)>,
    /// Extents taken so far.
    taken: u64,
    len: u64,
}

impl Unfinished {
    /// What leads to the value once it is finished.
    pub(super) fn reference(&self) -> Reference {
        let Unfinished { stamp, first, len, .. } = *self;
        Reference { len, stamp, first, form: Form::Lists }
    }

    /// Bytes written so far.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }
}

/// Where a value is whose pages are listed.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    len: u64,
    stamp: u64,
    /// Runs, each with the number of pages before it.
    runs: Vec<(u64, Run)>,
}

impl Located {
    /// Bytes of the value.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// The pages, in order.
    pub(super) fn pages(&self) -> impl Iterator<Item = PageId> + '_ {
        let run = |(_, run): &(u64, Run)| (run.first, u64::from(run.pages));
        self.runs
            .iter()
            .map(run)
            .flat_map(|(first, count)| (0..count).map(move |at| first.plus(at)))
    }

    /// The page that is the `index`th of the value.
    fn page(&self, index: u64) -> Option<PageId> {
        let at = self.runs.partition_point(|(before, _)| *before <= index);
        let (before, run) = self.runs.get(at.checked_sub(1)?)?;
        let within = index - before;
        (within < u64::from(run.pages)).then(|| run.first.plus(within))
    }
}

impl Tree {
    /// Begins a value: its list is empty, and waits to be freed (R1).
    ///
    /// # Errors
    ///
    /// `HomeFull`, those of the pool and of `Writer::change`, `Corrupt`.
    pub(crate) fn begin_runs<W: Writer>(&self, w: &mut W) -> Result<Unfinished, Error> {
        let stamp = w.stamp();
        let (mut header, fields) = self.header_exclusive()?;
        let last = self.other(fields.pending_last)?;
        let near = self.header();
        let mut reserved = self.space.reserve(w, self.id(), near, 1, Purpose::Forward)?;
        let id = reserved.pages()[0];
        let mut page = self.pool.create(id)?;
        let waits = !self.pool.mutations().has(Mutation::ForgetUnfinished);
        let before = if waits { fields.pending_last } else { PageId(0) };
        let txn = w.txn();
        let empty = Link::new(self.id(), stamp, 0, PageId(0));
        let link = Link { pending: waits, lists: true, before, txn, ..empty };
        w.gave_up(self.id(), 0);
        let nested = w.begin_nested();
        reserved.take(w)?;
        format_list(w, &mut page, &link)?;
        if waits {
            let first = if last.is_some() { fields.pending_first } else { id };
            let mut latched = Vec::with_capacity(1);
            if let Some((mut last, link)) = last {
                set_link(w, &mut last, &Link { after: id, ..link })?;
                latched.push(last);
            }
            let fields = Header { pending_first: first, pending_last: id, ..fields };
            self.set_header(w, &mut header, &fields)?;
            w.end_nested(nested)?;
        } else {
            w.end_nested(nested)?;
        }
        Ok(Unfinished { stamp, first: id, last: id, filling: None, taken: 0, len: 0 })
    }

    /// Writes a part of what `bytes` adds to the value, which follow what was written before and
    /// fill their pages, but the last ones of a value. Returns how many bytes. `hint` is how many
    /// bytes will come, these included, as far as that is known.
    ///
    /// # Errors
    ///
    /// As `begin_runs`.
    pub(crate) fn write_runs<W: Writer>(
        &self,
        w: &mut W,
        value: &mut Unfinished,
        bytes: &[u8],
        hint: u64,
    ) -> Result<usize, Error> {
        assert!(
            value.len.is_multiple_of(RAW_DATA as u64),
            "nothing follows a page that is not full"
        );
        if value.filling.is_none_or(|(_, run)| run.written == run.pages) {
            self.take_run(w, value, hint)?;
        }
        let (entry_at, run) = value.filling.expect("just taken");
        let wanted = BATCH_MAX.min(self.pool.frames() / BATCH_ONE_IN).max(1);
        // Until they are home.
        let latched = self.pool.latched_ahead(wanted.min(run.pages - run.written));
        let count = latched.pages() as usize;
        let bytes = &bytes[..bytes.len().min(count * RAW_DATA)];
        let (pages, written) = self.write_batch(w, value, (entry_at, run), bytes)?;
        value.filling = Some((entry_at, Run { written: run.written + pages, ..run }));
        value.len += written as u64;
        Ok(written)
    }

    /// Takes the next run, and lists it.
    fn take_run<W: Writer>(
        &self,
        w: &mut W,
        value: &mut Unfinished,
        hint: u64,
    ) -> Result<(), Error> {
        let mut list = self.pool.write(value.last)?;
        let mut link = self.link_of(value.last, &list, value.stamp)?;
        if link.len + ENTRY > DATA_MAX {
            list = self.extend_list(w, value, list, &link)?;
            link = self.link_of(value.last, &list, value.stamp)?;
        }
        let known = hint.div_ceil(RAW_DATA as u64).div_ceil(EXTENT_PAGES);
        let length = known.max(value.taken / 2).min(RUN_MAX);
        let mut taking = self.space.taking(w, self.id(), length)?;
        let (first, pages) = taking.pages();
        let run = Run { first, pages, written: 0 };
        let at = DATA_AT + link.len;
        let len = ((link.len + ENTRY) as u16).to_le_bytes();
        let nested = w.begin_nested();
        taking.take(w)?;
        let change = Change::Bytes { at: at as u16, bytes: &run.encode() };
        w.change(&mut list, &change, Undo::None)?;
        let change = Change::Bytes { at: LEN_AT as u16, bytes: &len };
        w.change(&mut list, &change, Undo::None)?;
        w.end_nested(nested)?;
        drop(list);
        taking.done();
        value.taken += u64::from(pages) / EXTENT_PAGES;
        value.filling = Some((at, run));
        Ok(())
    }

    /// Adds a page to a list whose last one is full.
    fn extend_list<'t, W: Writer>(
        &'t self,
        w: &mut W,
        value: &mut Unfinished,
        mut list: PageMut<'t>,
        link: &Link,
    ) -> Result<PageMut<'t>, Error> {
        let near = list.id();
        let mut reserved = self.space.reserve(w, self.id(), near, 1, Purpose::Forward)?;
        let id = reserved.pages()[0];
        let mut page = self.pool.create(id)?;
        let empty = Link::new(self.id(), value.stamp, 0, PageId(0));
        let nested = w.begin_nested();
        reserved.take(w)?;
        format_list(w, &mut page, &Link { lists: true, ..empty })?;
        set_link(w, &mut list, &Link { next: id, ..*link })?;
        w.end_nested(nested)?;
        value.last = id;
        Ok(page)
    }

    /// Writes pages of a run, as many as memory has frames for: their number, and that of bytes.
    fn write_batch<W: Writer>(
        &self,
        w: &mut W,
        value: &Unfinished,
        (entry_at, run): (usize, Run),
        bytes: &[u8],
    ) -> Result<(u32, usize), Error> {
        let first = run.first.plus(u64::from(run.written));
        let mut list = self.pool.write(value.last)?;
        self.link_of(value.last, &list, value.stamp)?;
        let mut pages = Vec::new();
        for at in 0..bytes.len().div_ceil(RAW_DATA) as u64 {
            match self.pool.create(first.plus(at)) {
                Ok(mut page) => {
                    // R2: the copy on flash goes before the record.
                    page.dirty();
                    pages.push(page);
                }
                Err(PoolError::AllPinned) if !pages.is_empty() => break,
                Err(error) => return Err(error.into()),
            }
        }
        let count = pages.len() as u32;
        w.writes_unlogged(first, count);
        let (at, written) = ((entry_at + WRITTEN_IN_ENTRY) as u16, run.written + count);
        w.change(&mut list, &Change::Renew { at, first, count, written }, Undo::None)?;
        let at = lsn(&list);
        for (page, chunk) in pages.iter_mut().zip(bytes.chunks(RAW_DATA)) {
            page.renew(at, |page| format_raw(page, value.stamp, chunk));
        }
        drop(list);
        self.pool.go_home(pages)?;
        Ok((count, bytes.len().min(count as usize * RAW_DATA)))
    }

    /// All bytes are written: frees what is left of the last run, and syncs home (R3).
    ///
    /// # Errors
    ///
    /// Those of the pool and of `Writer::change`, `Corrupt`.
    pub(crate) fn finish_runs<W: Writer>(
        &self,
        w: &mut W,
        value: &mut Unfinished,
    ) -> Result<(), Error> {
        while let Some((entry_at, run)) = value.filling.filter(|(_, run)| run.written < run.pages) {
            let mut list = self.pool.write(value.last)?;
            self.link_of(value.last, &list, value.stamp)?;
            let unused = run.first.plus(u64::from(run.written));
            let mut giving = self.space.giving(self.id(), unused, run.pages - run.written)?;
            let run = Run { pages: run.pages - giving.pages(), ..run };
            let nested = w.begin_nested();
            giving.free(w)?;
            let change = Change::Bytes { at: entry_at as u16, bytes: &run.encode() };
            w.change(&mut list, &change, Undo::None)?;
            w.end_nested(nested)?;
            drop(list);
            giving.done();
            value.filling = Some((entry_at, run));
        }
        if !self.pool.mutations().has(Mutation::ReferBeforeSync) {
            self.pool.sync_written()?;
        }
        Ok(())
    }

    /// Frees a part of what the head of a list that waits lists last; the header is latched.
    pub(super) fn free_listed<W: Writer>(
        &self,
        w: &mut W,
        mut head: PageMut<'_>,
        link: &Link,
    ) -> Result<Progress, Error> {
        let bad = |what| Tree::corrupt(head.id(), what);
        let run = runs_in(&head, link).last().ok_or_else(|| bad("a list of runs is cut short"))?;
        if run.pages == 0 || !link.len.is_multiple_of(ENTRY) {
            return Err(bad("a list of runs makes no sense"));
        }
        let entry_at = DATA_AT + link.len - ENTRY;
        let mut giving = self.space.giving(self.id(), run.first, run.pages)?;
        let left = run.pages - giving.pages();
        let nested = w.begin_nested();
        giving.free(w)?;
        if left == 0 {
            let len = ((link.len - ENTRY) as u16).to_le_bytes();
            let change = Change::Bytes { at: LEN_AT as u16, bytes: &len };
            w.change(&mut head, &change, Undo::None)?;
        } else {
            let run = Run { pages: left, ..run };
            let change = Change::Bytes { at: entry_at as u16, bytes: &run.encode() };
            w.change(&mut head, &change, Undo::None)?;
        }
        w.end_nested(nested)?;
        drop(head);
        giving.done();
        Ok(Progress::More)
    }

    /// The pages that page `id` lists, if it is a whole list of them.
    pub(super) fn listed_in(&self, id: PageId) -> Vec<Range<u64>> {
        let Ok(page) = self.pool.read(id) else { return Vec::new() };
        let Ok(link) = self.link(id, &page) else { return Vec::new() };
        runs_in(&page, &link).map(|run| run.numbers()).collect()
    }

    /// Appends to `out` the pages of values that are not finished, or wait to be freed. The list of
    /// them may change meanwhile: it is read as far as it makes sense.
    ///
    /// # Errors
    ///
    /// Those of the pool.
    pub(crate) fn waiting_runs(&self, out: &mut Vec<Range<u64>>) -> Result<(), Error> {
        let mut head = self.header_fields()?.pending_first;
        let (mut next, mut after) = (head, PageId(0));
        // A list that is damaged may be a ring.
        for _ in 0..LISTS_MAX {
            if next == PageId(0) {
                (head, next) = (after, after);
            }
            if next == PageId(0) {
                break;
            }
            let page = self.pool.read(next)?;
            let Ok(link) = self.link(next, &page) else { break };
            if next == head {
                after = link.after;
            }
            out.extend(runs_in(&page, &link).map(|run| run.numbers()));
            next = if link.lists { link.next } else { PageId(0) };
        }
        Ok(())
    }

    /// Where the value of `reference`, in the leaf `leaf`, is.
    ///
    /// # Errors
    ///
    /// `Corrupt`, those of the pool.
    pub(super) fn located(&self, leaf: PageId, reference: &Reference) -> Result<Located, Error> {
        let Reference { len, stamp, first, .. } = *reference;
        let pages_wanted = len.div_ceil(RAW_DATA as u64);
        let (mut runs, mut pages, mut next) = (Vec::new(), 0, first);
        while next != PageId(0) {
            let page = self.pool.read(next)?;
            let link = self.link_of(next, &page, stamp)?;
            if !link.lists {
                return Err(Tree::corrupt(next, "it should list the pages of a large value"));
            }
            for run in runs_in(&page, &link) {
                runs.push((pages, run));
                pages += u64::from(run.pages);
            }
            if pages > pages_wanted || (link.len == 0 && link.next != PageId(0)) {
                return Err(Tree::corrupt(next, "it lists more than the value has"));
            }
            next = link.next;
        }
        if pages != pages_wanted {
            return Err(Tree::corrupt(leaf, "a large value has another length"));
        }
        Ok(Located { len, stamp, runs })
    }

    /// Appends to `out` the value of `reference`.
    pub(super) fn read_runs(&self, reference: &Reference, out: &mut Vec<u8>) -> Result<(), Error> {
        let located = self.located(reference.first, reference)?;
        let end = located.len;
        let mut at = 0;
        while at < end {
            at +=
                self.read_located(&located, at, end - at, |bytes| out.extend_from_slice(bytes))?;
        }
        Ok(())
    }

    /// Shows the bytes of a value from `at` on, `most` at most and those of a few pages. Returns
    /// how many there were: none at its end.
    ///
    /// # Errors
    ///
    /// `Corrupt`, those of the pool.
    pub(super) fn read_located(
        &self,
        value: &Located,
        at: u64,
        most: u64,
        mut show: impl FnMut(&[u8]),
    ) -> Result<u64, Error> {
        let end = value.len.min(at.saturating_add(most));
        if at >= end {
            return Ok(0);
        }
        let data = RAW_DATA as u64;
        let (first, last) = (at / data, (end - 1) / data);
        let last = last.min(first + READ_PAGES - 1);
        let no_page = || Tree::corrupt(self.header(), "a large value ends early");
        let pages: Option<Vec<PageId>> = (first..=last).map(|index| value.page(index)).collect();
        let pages = pages.ok_or_else(no_page)?;
        if pages.len() > 1 {
            self.pool.prefetch(&pages);
            // The next read finds its pages on their way.
            if let Some(next) = value.page(last + 1) {
                let is_beside = |at: &u64| value.page(last + 1 + at) == Some(next.plus(*at));
                let count = (0..READ_PAGES).take_while(is_beside).count();
                self.pool.read_ahead(next, count as u32);
            }
        }
        let mut position = at;
        for (index, id) in (first..).zip(pages) {
            let page = self.pool.read(id)?;
            self.check_raw(id, &page, value.stamp)?;
            let from = (position - index * data) as usize;
            let to = (end - index * data).min(data) as usize;
            show(&page[HEADER_SIZE + from..HEADER_SIZE + to]);
            position += (to - from) as u64;
        }
        Ok(position - at)
    }
}

fn format_list<W: Writer>(w: &mut W, page: &mut PageMut<'_>, link: &Link) -> Result<(), Error> {
    let bytes = link.encode();
    w.change(page, &Change::Page { kind: PageKind::Overflow, bytes: &bytes }, Undo::None)
}

fn format_raw(page: &mut PageBuf, stamp: u64, chunk: &[u8]) {
    set_kind(page, PageKind::Raw);
    page[RAW_STAMP_AT..HEADER_SIZE].copy_from_slice(&stamp.to_le_bytes());
    let (bytes, rest) = page[HEADER_SIZE..].split_at_mut(chunk.len());
    bytes.copy_from_slice(chunk);
    rest.fill(0);
}

const _: () = assert!(RAW_STAMP_AT == BODY_AT);
