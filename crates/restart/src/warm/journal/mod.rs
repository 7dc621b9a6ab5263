//! The journal: changes of the table in a ring of blocks, and a base copy of it now and then.
//!
//! - J1: blocks are chained, and written in the order of the records (form.F1): those up to the
//!   first that is not whole count.
//! - J2: blocks go into the ring at their number modulo its length, and never over a block that the
//!   newest whole base copy does not cover.
//! - J3: where there is a frontier, the first record of each block names the block where it was
//!   written. Blocks from there on are kept, too, and read (`frontier`).
//! - Cost: 20 bytes of flash for each change, and a rewrite of the table (16 bytes a slot) whenever
//!   the journal is half full.
//!
//! Modules in reading order: `merge`, a new base copy; `read`, what opening reads.

mod merge;
mod read;

pub(super) use read::read;

use std::io;

use super::entry::{BLOCK_RECORDS, BlockHeader, Record, write_block};
use super::form::{Form, OnFlash};
use super::frontier::{Frontier, place_mark};
use crate::FlashLayout;
use terrace_page_io::Staging;
use terrace_page_io::{PageIo, run};

/// Blocks written together, at most.
const BLOCKS_MAX: usize = 64;

/// Where the ring stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// The number of the next block.
    pub next: u64,
    /// The first block that the base copy does not cover.
    pub tail: u64,
    /// Which base copy it is: the nth, or none yet.
    pub base: u64,
    /// The checksum of the block before `next`.
    pub before: u32,
    /// The first block of the frontier in force, if there is one.
    pub frontier: Option<u64>,
}

/// The journal while the database is open.
pub(super) struct Journal {
    at: Position,
    /// The tail that a durable block names.
    durable_tail: u64,
}

impl Journal {
    pub fn new(at: Position) -> Journal {
        Journal { at, durable_tail: at.tail }
    }

    fn header(&self, on_flash: &OnFlash<'_>) -> BlockHeader {
        let Position { next, tail, base, before, .. } = self.at;
        BlockHeader { table: on_flash.table, number: next, now: on_flash.now, base, tail, before }
    }

    /// The first block that must stay.
    fn kept_from(&self) -> u64 {
        self.at.frontier.map_or(self.durable_tail, |first| first.min(self.durable_tail))
    }

    fn write_blocks(&mut self, on_flash: &OnFlash<'_>, blocks: &[Vec<Record>]) -> io::Result<()> {
        let length = on_flash.layout.journal_pages;
        let is_full = |journal: &Journal| {
            // One block is spared: it tells of the base copy that makes room.
            journal.at.next + blocks.len() as u64 - journal.kept_from() >= length
        };
        if is_full(self) {
            self.merge(on_flash)?;
        }
        if is_full(self) {
            return Err(io::Error::other("the flash table's journal has no room"));
        }
        self.put(on_flash, blocks)
    }

    /// Writes blocks where there is room for them.
    fn put(&mut self, on_flash: &OnFlash<'_>, blocks: &[Vec<Record>]) -> io::Result<()> {
        let mut staging = Staging::new(blocks.len());
        let mut header = self.header(on_flash);
        for (page, records) in staging.pages_mut().iter_mut().zip(blocks) {
            header.before = write_block(page, &header, records);
            header.number += 1;
        }
        let length = on_flash.layout.journal_pages;
        let page_of = |at: usize| on_flash.layout.journal + (self.at.next + at as u64) % length;
        let ios = staging.pages().iter().enumerate();
        let ios = ios.map(|(at, page)| PageIo::write(page_of(at), [page])).collect();
        on_flash.flash.sync()?;
        run(on_flash.flash, ios)?;
        on_flash.flash.sync()?;
        self.at.next = header.number;
        self.at.before = header.before;
        self.durable_tail = self.at.tail;
        Ok(())
    }

    /// Writes a new base copy, so that the ring has room again.
    fn merge(&mut self, on_flash: &OnFlash<'_>) -> io::Result<()> {
        merge::rewrite(on_flash, &mut self.at)?;
        // The old tail is in the way until a block names the new one; there is room for that.
        let block = self.blocks(&[]);
        self.put(on_flash, &block)
    }

    /// The blocks of `records`, one at least.
    fn blocks(&self, records: &[Record]) -> Vec<Vec<Record>> {
        let place = self.at.frontier.map(place_mark);
        let of_block = |records: &[Record]| -> Vec<Record> {
            place.into_iter().chain(records.iter().copied()).collect()
        };
        let room = BLOCK_RECORDS - usize::from(place.is_some());
        let mut blocks: Vec<Vec<Record>> = records.chunks(room).map(of_block).collect();
        if blocks.is_empty() {
            blocks.push(of_block(&[]));
        }
        blocks
    }

    fn write_all(&mut self, on_flash: &OnFlash<'_>, blocks: &[Vec<Record>]) -> io::Result<()> {
        // A quarter of a small ring at once leaves room to merge.
        let at_once = BLOCKS_MAX.min(on_flash.layout.journal_pages as usize / 4);
        blocks.chunks(at_once).try_for_each(|blocks| self.write_blocks(on_flash, blocks))
    }

    /// J3: all of it is in force with its last block, which names the first.
    fn begin(&mut self, on_flash: &OnFlash<'_>, frontier: &Frontier) -> io::Result<()> {
        let marks = frontier.marks();
        let former = self.at.frontier.replace(self.at.next);
        let mut blocks = self.blocks(&marks);
        let count = blocks.len();
        for block in &mut blocks[..count - 1] {
            match former {
                Some(former) => block[0] = place_mark(former),
                None => drop(block.remove(0)),
            }
        }
        self.at.frontier = former;
        let first = self.at.next;
        self.write_all(on_flash, &blocks)?;
        self.at.frontier = Some(first);
        Ok(())
    }
}

impl Form for Journal {
    fn write(
        &mut self,
        on_flash: &OnFlash<'_>,
        records: &[Record],
        frontier: Option<&Frontier>,
    ) -> io::Result<()> {
        if !records.is_empty() || frontier.is_none() {
            let blocks = self.blocks(records);
            self.write_all(on_flash, &blocks)?;
        }
        frontier.map_or(Ok(()), |frontier| self.begin(on_flash, frontier))
    }

    fn is_crowded(&self, layout: &FlashLayout) -> bool {
        let first = self.at.frontier.unwrap_or(self.at.next);
        self.at.next - first > layout.journal_pages / 4
    }

    fn tidy(&mut self, on_flash: &OnFlash<'_>) -> io::Result<()> {
        match self.at.next - self.at.tail > on_flash.layout.journal_pages / 2 {
            true => self.merge(on_flash),
            false => Ok(()),
        }
    }

    fn position(&self) -> u64 {
        self.at.next
    }
}
