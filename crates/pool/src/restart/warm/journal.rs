//! The keeper of the journalled table: gathers changes of slots, writes them as blocks.
//!
//! - J1: records are in the order in which the states changed. A block is written after the flash
//!   was synced, so that what it speaks of is durable, and counts once the flash was synced again.
//! - J2: one task writes at a time. Blocks go into the ring at their number modulo its length, and
//!   never over a block that the newest whole base copy does not cover.
//! - J3: a retired slot is free once the record of the copy that replaced it is durable. Where
//!   flash is persistent, a slot that was cleaned stays pinned so long, too.
//! - Cost: 20 bytes of flash for each change, and a rewrite of the table (16 bytes a slot) whenever
//!   the journal is half full. No request waits for any of it, but a checkpoint.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace_page::PageId;
use terrace_rt::{LeafMutex, Mutex, Signal};

use super::Resume;
use super::entry::{BLOCK_RECORDS, BlockHeader, Entry, Record, write_block};
use super::merge;
use crate::frames::Staging;
use crate::io::{PageIo, run};
use crate::restart::FlashLayout;
use crate::restart::keeper::{Freed, Held, Keep};
use crate::{BufferPool, PoolError, Tier};

/// Blocks written together, at most.
const BLOCKS_MAX: usize = 64;
/// One of so many slots may be retired before the journal is written for their sake.
const SLOTS_PER_RETIRED: u32 = 256;
const RETIRED_MIN: usize = 4;

/// When what was told is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::restart) enum Pace {
    /// When it fills a block, at a checkpoint, and when something waits for it.
    Gathered,
    /// Before whatever changed it goes on: FASC_T's map, which is right on flash at all times [S2
    /// 7.2]. What others told meanwhile goes along.
    AtOnce,
}

/// The keeper.
pub(in crate::restart) struct Journalled {
    pace: Pace,
    layout: FlashLayout,
    table: u64,
    pending: LeafMutex<Pending>,
    /// Held by whoever writes (J2).
    writer: Mutex<Position>,
    /// Records whose blocks are durable.
    durable: AtomicU64,
    news: Signal,
    is_closing: AtomicBool,
}

/// What is not written yet.
#[derive(Default)]
struct Pending {
    records: Vec<Record>,
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

/// Where the ring stands.
pub(super) struct Position {
    /// The number of the next block.
    pub next: u64,
    /// The first block that the base copy does not cover.
    pub tail: u64,
    /// Which base copy it is.
    pub base: u64,
    /// The tail that a durable block names.
    durable_tail: u64,
    /// The checksum of the block before `next`.
    before: u32,
}

impl Journalled {
    /// A keeper that goes on at `resume`.
    pub fn new(layout: FlashLayout, resume: Resume, pace: Pace) -> Journalled {
        let drop_slot = |slot: &u32| Record { slot: *slot, entry: Entry::FREE };
        let clean_slot =
            |&(slot, page): &(u32, PageId)| Record { slot, entry: Entry::cleaned(page) };
        let cleaned = resume.cleaned.iter().map(clean_slot);
        let records: Vec<Record> = resume.dropped.iter().map(drop_slot).chain(cleaned).collect();
        let gathered = records.len() as u64;
        let Resume { table, next, tail, base, before, .. } = resume;
        Journalled {
            pace,
            layout,
            table,
            pending: LeafMutex::new(Pending { records, gathered, waiting: Vec::new() }),
            writer: Mutex::new(Position { next, tail, base, durable_tail: tail, before }),
            durable: AtomicU64::new(0),
            news: Signal::new(),
            is_closing: AtomicBool::new(false),
        }
    }

    fn push(&self, slot: u32, entry: Entry) {
        let mut pending = self.pending.lock();
        pending.records.push(Record { slot, entry });
        pending.gathered += 1;
        let is_full = pending.records.len() == BLOCK_RECORDS;
        drop(pending);
        if is_full {
            self.news.notify_all();
        }
    }

    /// Writes what is pending: all of it, or only whole blocks. Returns whether it wrote.
    fn flush(
        &self,
        pool: &BufferPool,
        position: &mut Position,
        all: bool,
    ) -> Result<bool, PoolError> {
        let (records, upto) = {
            let mut pending = self.pending.lock();
            let whole = pending.records.len() - pending.records.len() % BLOCK_RECORDS;
            let count = if all { pending.records.len() } else { whole };
            let rest = pending.records.split_off(count);
            let upto = pending.gathered - rest.len() as u64;
            (std::mem::replace(&mut pending.records, rest), upto)
        };
        // Home must name a block, if only one that says nothing.
        if records.is_empty() && (!all || position.next > 0) {
            return Ok(false);
        }
        let mut blocks: Vec<&[Record]> = records.chunks(BLOCK_RECORDS).collect();
        if blocks.is_empty() {
            blocks.push(&[]);
        }
        // A quarter of a small ring at once leaves room to merge.
        let at_once = BLOCKS_MAX.min(self.layout.journal_pages as usize / 4);
        for blocks in blocks.chunks(at_once) {
            self.write_blocks(pool, position, blocks)?;
        }
        self.durable.store(upto, Ordering::Release);
        self.release_waiting(pool);
        Ok(true)
    }

    fn write_blocks(
        &self,
        pool: &BufferPool,
        position: &mut Position,
        blocks: &[&[Record]],
    ) -> Result<(), PoolError> {
        let length = self.layout.journal_pages;
        // One block is spared: it tells of the base copy that makes room.
        if position.next + blocks.len() as u64 - position.durable_tail >= length {
            self.merge(pool, position)?;
        }
        let flash = pool.flash.as_deref().expect("a table is on flash");
        let mut staging = Staging::new(blocks.len());
        let mut before = position.before;
        for (at, (page, records)) in staging.pages_mut().iter_mut().zip(blocks).enumerate() {
            let header = BlockHeader {
                table: self.table,
                number: position.next + at as u64,
                now: pool.now().0,
                base: position.base,
                tail: position.tail,
                before,
            };
            before = write_block(page, &header, records);
        }
        let page_of = |at: usize| self.layout.journal + (position.next + at as u64) % length;
        let ios = staging.pages().iter().enumerate();
        let ios = ios.map(|(at, page)| PageIo::write(page_of(at), [page])).collect();
        let written = flash.sync().and_then(|()| run(flash, ios)).and_then(|()| flash.sync());
        written.map_err(failed)?;
        position.next += blocks.len() as u64;
        position.before = before;
        position.durable_tail = position.tail;
        Ok(())
    }

    /// Writes a new base copy, so that the ring has room again.
    fn merge(&self, pool: &BufferPool, position: &mut Position) -> Result<(), PoolError> {
        let flash = pool.flash.as_deref().expect("a table is on flash");
        merge::rewrite(flash, &self.layout, self.table, position, pool.now().0).map_err(failed)?;
        // The old tail is in the way until a block names the new one; there is room for that.
        let header = BlockHeader {
            table: self.table,
            number: position.next,
            now: pool.now().0,
            base: position.base,
            tail: position.tail,
            before: position.before,
        };
        let mut staging = Staging::new(1);
        let before = write_block(&mut staging.pages_mut()[0], &header, &[]);
        let page = self.layout.journal + position.next % self.layout.journal_pages;
        let ios = vec![PageIo::write(page, staging.pages())];
        run(flash, ios).and_then(|()| flash.sync()).map_err(failed)?;
        position.next += 1;
        position.before = before;
        position.durable_tail = position.tail;
        Ok(())
    }

    /// J3.
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

    fn has_work(&self) -> bool {
        let pending = self.pending.lock();
        pending.records.len() >= BLOCK_RECORDS || pending.waiting.len() >= self.retired_max()
    }

    fn work(&self, pool: &BufferPool) -> Result<(), PoolError> {
        let mut position = self.writer.lock();
        let all = self.pending.lock().waiting.len() >= self.retired_max();
        self.flush(pool, &mut position, all)?;
        if position.next - position.tail > self.layout.journal_pages / 2 {
            self.merge(pool, &mut position)?;
        }
        Ok(())
    }
}

fn failed(source: std::io::Error) -> PoolError {
    PoolError::Read { tier: Tier::Flash, page: PageId(0), source: std::sync::Arc::new(source) }
}

impl Keep for Journalled {
    fn filled(&self, pool: &BufferPool, held: &Held) {
        let history = held.history.unwrap_or_else(|| terrace_policy::History::once(pool.now()));
        self.push(held.slot, Entry::of(held.page, held.lsn, held.newer, history, pool.now()));
    }

    fn cleaned(&self, _pool: &BufferPool, slot: u32, page: PageId) {
        self.push(slot, Entry::cleaned(page));
    }

    fn freed(&self, _pool: &BufferPool, slot: u32, _page: PageId, _why: Freed) {
        self.push(slot, Entry::FREE);
    }

    fn wants_unlogged(&self) -> bool {
        // The drop of the old copy may be lost with the last block.
        true
    }

    fn retired(&self, _pool: &BufferPool, slot: u32) {
        self.push(slot, Entry::FREE);
        self.wait(slot, Wait::Retired);
    }

    fn unpin_later(&self, _pool: &BufferPool, slot: u32) {
        self.wait(slot, Wait::Pinned);
    }

    fn harden(&self, pool: &BufferPool, _slots: &[u32]) -> Result<(), PoolError> {
        match self.pace {
            Pace::Gathered => Ok(()),
            Pace::AtOnce => self.checkpoint(pool).map(drop),
        }
    }

    fn checkpoint(&self, pool: &BufferPool) -> Result<u64, PoolError> {
        let mut position = self.writer.lock();
        self.flush(pool, &mut position, true)?;
        Ok(position.next)
    }

    fn run(&self, pool: &BufferPool) {
        let mut is_failed = false;
        while !self.is_closing.load(Ordering::Acquire) {
            let seen = self.news.seen();
            if !is_failed && self.has_work() {
                // The table stays as it is; the next checkpoint fails too, and home disowns it.
                is_failed = self.work(pool).is_err();
                continue;
            }
            self.news.wait(seen);
        }
    }

    fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.news.notify_all();
    }
}
