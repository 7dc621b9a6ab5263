//! The keeper of the table: gathers changes of slots, and has its form write them.
//!
//! - K3: records are in the order in which the states changed.
//! - K4: one task writes at a time.
//! - K5: a retired slot is free once the record of the copy that replaced it is durable. Where
//!   flash is persistent, a slot that was cleaned stays pinned so long, too.
//! - Cost: no request waits for any of it, but a checkpoint; and whatever changes the table, where
//!   the pace is that.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace_page::PageId;
use terrace_rt::{LeafMutex, Mutex, Signal};

use super::entry::{BLOCK_RECORDS, Entry, Record};
use super::form::{Form, FormKind, Site};
use super::{Resume, named};
use crate::restart::FlashLayout;
use crate::restart::keeper::{Freed, Held, Keep};
use crate::{BufferPool, PoolError, Tier};

/// One of so many slots may be retired before the table is written for their sake.
const SLOTS_PER_RETIRED: u32 = 256;
const RETIRED_MIN: usize = 4;

/// When what was told is written, beside at a checkpoint, and when something waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::restart) enum Pace {
    /// When it fills a block.
    Gathered,
    /// When so many slots were filled: once for each block that FASC writes [R in SPEC 7.3].
    Filled(usize),
    /// Before whatever changed it goes on: FASC_T's map, which is right on flash at all times [S2
    /// 7.2]. What others told meanwhile goes along.
    AtOnce,
}

/// The keeper.
pub(in crate::restart) struct TableKeeper {
    pace: Pace,
    layout: FlashLayout,
    table: u64,
    pending: LeafMutex<Pending>,
    /// Held by whoever writes (K4).
    form: Mutex<Box<dyn Form>>,
    /// Records that are durable.
    durable: AtomicU64,
    news: Signal,
    is_closing: AtomicBool,
    /// A write failed, and what it was to say is lost: there is no other, so that home names no
    /// later position.
    is_failed: AtomicBool,
}

/// What is not written yet.
#[derive(Default)]
struct Pending {
    records: Vec<Record>,
    /// Those of `records` that fill a slot.
    filled: usize,
    /// Records gathered so far, written or not.
    gathered: u64,
    /// Slots that wait for so many records to be durable, in that order.
    waiting: Vec<(u64, u32, Wait)>,
}

/// What becomes of a slot that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// It held a base, or a page that has moved on: it is free.
    Retired,
    /// It is clean: it is not pinned any more.
    Pinned,
}

impl TableKeeper {
    /// A keeper that goes on at `resume`.
    pub fn new(layout: FlashLayout, kind: FormKind, resume: Resume, pace: Pace) -> TableKeeper {
        let drop_slot = |slot: &u32| Record { slot: *slot, entry: Entry::FREE };
        let clean_slot =
            |&(slot, page): &(u32, PageId)| Record { slot, entry: Entry::cleaned(page) };
        let cleaned = resume.cleaned.iter().map(clean_slot);
        let records: Vec<Record> = resume.dropped.iter().map(drop_slot).chain(cleaned).collect();
        let gathered = records.len() as u64;
        TableKeeper {
            pace,
            layout,
            table: resume.table,
            pending: LeafMutex::new(Pending { records, gathered, ..Pending::default() }),
            form: Mutex::new(kind.open(&layout, resume.form)),
            durable: AtomicU64::new(0),
            news: Signal::new(),
            is_closing: AtomicBool::new(false),
            is_failed: AtomicBool::new(false),
        }
    }

    fn push(&self, slot: u32, entry: Entry, fills: bool) {
        let mut pending = self.pending.lock();
        pending.records.push(Record { slot, entry });
        pending.gathered += 1;
        pending.filled += usize::from(fills);
        let is_full = match self.pace {
            Pace::Filled(slots) => fills && pending.filled == slots,
            Pace::Gathered | Pace::AtOnce => pending.records.len() == BLOCK_RECORDS,
        };
        drop(pending);
        if is_full {
            self.news.notify_all();
        }
    }

    /// Writes what is pending: all of it, or only whole blocks.
    fn flush(&self, pool: &BufferPool, form: &mut dyn Form, all: bool) -> Result<(), PoolError> {
        if self.is_failed.load(Ordering::Acquire) {
            return Err(failed(io::Error::other("the flash table could not be written")));
        }
        let (records, upto) = {
            let mut pending = self.pending.lock();
            let whole = pending.records.len() - pending.records.len() % BLOCK_RECORDS;
            let count = if all { pending.records.len() } else { whole };
            let rest = pending.records.split_off(count);
            let upto = pending.gathered - rest.len() as u64;
            pending.filled = 0;
            (std::mem::replace(&mut pending.records, rest), upto)
        };
        // Home must name a position, if only one at which nothing is said.
        if records.is_empty() && (!all || form.position() > 0) {
            return Ok(());
        }
        if let Err(error) = form.write(&self.site(pool), &records) {
            self.is_failed.store(true, Ordering::Release);
            return Err(failed(error));
        }
        self.durable.store(upto, Ordering::Release);
        self.release_waiting(pool);
        Ok(())
    }

    fn site<'a>(&'a self, pool: &'a BufferPool) -> Site<'a> {
        let flash = pool.flash.as_deref().expect("a table is on flash");
        Site { flash, layout: &self.layout, table: self.table, now: pool.now().0 }
    }

    /// K5.
    fn release_waiting(&self, pool: &BufferPool) {
        let durable = self.durable.load(Ordering::Acquire);
        let released: Vec<(u64, u32, Wait)> = {
            let mut pending = self.pending.lock();
            let upto = pending.waiting.partition_point(|&(upto, ..)| upto <= durable);
            pending.waiting.drain(..upto).collect()
        };
        for (_, slot, wait) in released {
            let partition = pool.partition_of_slot(slot);
            let mut books = partition.books.lock();
            let (slots, slot) = (books.slots_mut(), slot - partition.first_slot);
            match wait {
                Wait::Retired => slots.release_retired(slot),
                Wait::Pinned if slots.is_pinned(slot) => drop(slots.unpin(slot)),
                Wait::Pinned => {}
            }
        }
    }

    /// `slot` waits for all that was told so far.
    fn wait(&self, slot: u32, wait: Wait) {
        let mut pending = self.pending.lock();
        let upto = pending.gathered;
        pending.waiting.push((upto, slot, wait));
        let is_many = pending.waiting.len() == self.retired_max();
        drop(pending);
        if is_many {
            self.news.notify_all();
        }
    }

    fn retired_max(&self) -> usize {
        ((self.layout.slots / SLOTS_PER_RETIRED) as usize).max(RETIRED_MIN)
    }

    /// Whether something is to be written now; and whether all of it, or only whole blocks.
    fn work(&self) -> Option<bool> {
        let pending = self.pending.lock();
        let waits = pending.waiting.len() >= self.retired_max();
        let is_filled = matches!(self.pace, Pace::Filled(slots) if pending.filled >= slots);
        let all = waits || is_filled;
        (all || pending.records.len() >= BLOCK_RECORDS).then_some(all)
    }

    fn write(&self, pool: &BufferPool, all: bool) -> Result<(), PoolError> {
        let mut form = self.form.lock();
        self.flush(pool, &mut **form, all)?;
        let tidied = form.tidy(&self.site(pool));
        tidied.inspect_err(|_| self.is_failed.store(true, Ordering::Release)).map_err(failed)
    }
}

fn failed(source: io::Error) -> PoolError {
    PoolError::Read { tier: Tier::Flash, page: PageId(0), source: std::sync::Arc::new(source) }
}

impl Keep for TableKeeper {
    fn filled(&self, pool: &BufferPool, held: &Held) {
        let history = held.history.unwrap_or_else(|| terrace_policy::History::once(pool.now()));
        self.push(held.slot, Entry::of(held.page, held.lsn, held.newer, history, pool.now()), true);
    }

    fn cleaned(&self, _pool: &BufferPool, slot: u32, page: PageId) {
        self.push(slot, Entry::cleaned(page), false);
    }

    fn freed(&self, _pool: &BufferPool, slot: u32, _page: PageId, _why: Freed) {
        self.push(slot, Entry::FREE, false);
    }

    fn wants_unlogged(&self) -> bool {
        // The drop of the old copy may be lost with the last block.
        true
    }

    fn retired(&self, _pool: &BufferPool, slot: u32) {
        self.push(slot, Entry::FREE, false);
        self.wait(slot, Wait::Retired);
    }

    fn unpin_later(&self, _pool: &BufferPool, slot: u32) {
        self.wait(slot, Wait::Pinned);
    }

    fn harden(&self, pool: &BufferPool, _slots: &[u32]) -> Result<(), PoolError> {
        match self.pace {
            Pace::Gathered | Pace::Filled(_) => Ok(()),
            Pace::AtOnce => self.checkpoint(pool).map(drop),
        }
    }

    fn checkpoint(&self, pool: &BufferPool) -> Result<u64, PoolError> {
        let mut form = self.form.lock();
        self.flush(pool, &mut **form, true)?;
        Ok(named(self.table, form.position()))
    }

    fn run(&self, pool: &BufferPool) {
        while !self.is_closing.load(Ordering::Acquire) {
            let seen = self.news.seen();
            let is_failed = self.is_failed.load(Ordering::Acquire);
            if let Some(all) = self.work().filter(|_| !is_failed) {
                // The table stays as it is; the next checkpoint fails too, and home disowns it.
                let _failed: Result<(), PoolError> = self.write(pool, all);
                continue;
            }
            self.news.wait(seen);
        }
    }

    fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.news.notify_all();
    }

    fn bytes(&self) -> usize {
        self.form.lock().bytes()
    }
}
