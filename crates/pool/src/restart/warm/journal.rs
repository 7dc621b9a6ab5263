//! The journal: changes of the table in a ring of blocks, and a base copy of it now and then.
//!
//! - J1: blocks are chained, and written in the order of the records (F1): those up to the first
//!   that is not whole count.
//! - J2: blocks go into the ring at their number modulo its length, and never over a block that the
//!   newest whole base copy does not cover.
//! - Cost: 20 bytes of flash for each change, and a rewrite of the table (16 bytes a slot) whenever
//!   the journal is half full.

use std::io;

use super::entry::{BLOCK_RECORDS, BlockHeader, Record, write_block};
use super::form::{Form, Site};
use super::merge;
use crate::frames::Staging;
use crate::io::{PageIo, run};

/// Blocks written together, at most.
const BLOCKS_MAX: usize = 64;

/// Where the ring stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::restart) struct Position {
    /// The number of the next block.
    pub next: u64,
    /// The first block that the base copy does not cover.
    pub tail: u64,
    /// Which base copy it is: the nth, or none yet.
    pub base: u64,
    /// The checksum of the block before `next`.
    pub before: u32,
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

    fn header(&self, site: &Site<'_>) -> BlockHeader {
        let Position { next, tail, base, before } = self.at;
        BlockHeader { table: site.table, number: next, now: site.now, base, tail, before }
    }

    fn write_blocks(&mut self, site: &Site<'_>, blocks: &[&[Record]]) -> io::Result<()> {
        let length = site.layout.journal_pages;
        // One block is spared: it tells of the base copy that makes room.
        if self.at.next + blocks.len() as u64 - self.durable_tail >= length {
            self.merge(site)?;
        }
        let mut staging = Staging::new(blocks.len());
        let mut header = self.header(site);
        for (page, records) in staging.pages_mut().iter_mut().zip(blocks) {
            header.before = write_block(page, &header, records);
            header.number += 1;
        }
        let page_of = |at: usize| site.layout.journal + (self.at.next + at as u64) % length;
        let ios = staging.pages().iter().enumerate();
        let ios = ios.map(|(at, page)| PageIo::write(page_of(at), [page])).collect();
        site.flash.sync()?;
        run(site.flash, ios)?;
        site.flash.sync()?;
        self.at.next = header.number;
        self.at.before = header.before;
        self.durable_tail = self.at.tail;
        Ok(())
    }

    /// Writes a new base copy, so that the ring has room again.
    fn merge(&mut self, site: &Site<'_>) -> io::Result<()> {
        merge::rewrite(site, &mut self.at)?;
        // The old tail is in the way until a block names the new one; there is room for that.
        let mut staging = Staging::new(1);
        let before = write_block(&mut staging.pages_mut()[0], &self.header(site), &[]);
        let page = site.layout.journal + self.at.next % site.layout.journal_pages;
        run(site.flash, vec![PageIo::write(page, staging.pages())])?;
        site.flash.sync()?;
        self.at.next += 1;
        self.at.before = before;
        self.durable_tail = self.at.tail;
        Ok(())
    }
}

impl Form for Journal {
    fn write(&mut self, site: &Site<'_>, records: &[Record]) -> io::Result<()> {
        let mut blocks: Vec<&[Record]> = records.chunks(BLOCK_RECORDS).collect();
        if blocks.is_empty() {
            blocks.push(&[]);
        }
        // A quarter of a small ring at once leaves room to merge.
        let at_once = BLOCKS_MAX.min(site.layout.journal_pages as usize / 4);
        blocks.chunks(at_once).try_for_each(|blocks| self.write_blocks(site, blocks))
    }

    fn tidy(&mut self, site: &Site<'_>) -> io::Result<()> {
        match self.at.next - self.at.tail > site.layout.journal_pages / 2 {
            true => self.merge(site),
            false => Ok(()),
        }
    }

    fn position(&self) -> u64 {
        self.at.next
    }
}
