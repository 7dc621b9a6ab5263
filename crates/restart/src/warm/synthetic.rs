//! A table that no pool has written, to measure what opening makes of one of any size.

use std::io;

use terrace_device::{Device, write};
use terrace_page::{Lsn, PAGE_SIZE, PageId};
use terrace_policy::{History, RestartKind, Tick};
use terrace_rt::Prng;

use super::entry::{BLOCK_RECORDS, BlockHeader, Entry, Record, write_block, write_entries};
use super::named;
use crate::header::Header;
use crate::layout::{FlashLayout, PAGE_ENTRIES};
use crate::settings::Settings;
use terrace_page_io::Staging;
use terrace_page_io::{PageIo, run};

/// Pages written at once.
const WRITE_PAGES: u64 = 64;
/// The policies' clock.
const NOW: Tick = Tick(1 << 40);
/// How long ago pages were used, at most.
const AGE_MAX: u64 = 1 << 30;
/// One copy in this number is newer than home.
const NEWER_ONE_IN: u64 = 5;
/// The log ends here; copies are of any age.
const LOG_END: u64 = 1 << 40;

/// Writes the header and the table of a tier as `settings` says, all of its slots filled, and a
/// journal that is half full; the slots themselves stay as they are. A tier of `database`, with
/// `stamp`; `partition_of` says which partition a page is in. Returns the position of the journal
/// that home would name. For measurements of opening.
///
/// # Errors
///
/// Those of the device.
pub fn write_synthetic_table(
    settings: &Settings,
    partition_of: &dyn Fn(PageId) -> u32,
    flash: &dyn Device,
    database: u128,
    stamp: u64,
) -> io::Result<u64> {
    let layout = FlashLayout::new(settings.slots, RestartKind::Warm);
    let partitions = settings.partitions;
    let header = Header {
        database,
        stamp,
        table: stamp,
        slots: layout.slots,
        partitions,
        restart: RestartKind::Warm,
        is_part: settings.role.is_persistent(),
    };
    let mut sector = Staging::new(1);
    sector.pages_mut()[0][..header.encode().len()].copy_from_slice(&header.encode());
    write(flash, 0, &sector.pages()[0][..])?;
    let mut tables = Tables { prng: Prng::from_seed(1), stamp, layout, partition_of };
    tables.write_base(flash, partitions)?;
    let blocks = tables.write_journal(flash, partitions)?;
    flash.sync()?;
    Ok(named(stamp, blocks))
}

/// The pages of partition `at`, ascending.
fn pages_of(at: u32, partition_of: &dyn Fn(PageId) -> u32) -> impl Iterator<Item = PageId> {
    let is_here = move |page: &PageId| partition_of(*page) == at;
    (0..u64::from(u32::MAX)).map(PageId).filter(is_here)
}

fn share(total: u32, partitions: u32, at: u32) -> u32 {
    total / partitions + u32::from(at < total % partitions)
}

struct Tables<'a> {
    prng: Prng,
    stamp: u64,
    layout: FlashLayout,
    partition_of: &'a dyn Fn(PageId) -> u32,
}

impl Tables<'_> {
    fn entry(&mut self, page: PageId) -> Entry {
        let prng = &mut self.prng;
        let last = NOW.0 - prng.below(AGE_MAX);
        let previous = (prng.below(2) == 0).then(|| Tick(last - prng.below(AGE_MAX)));
        let lsn = 1 + prng.below(LOG_END - 1);
        let newer = (prng.below(NEWER_ONE_IN) == 0).then_some(Lsn(lsn));
        Entry::of(page, Lsn(lsn), newer, History { last: Tick(last), previous }, NOW)
    }

    /// Base copy 1.
    fn write_base(&mut self, flash: &dyn Device, partitions: u32) -> io::Result<()> {
        let (slots, partition_of) = (self.layout.slots, self.partition_of);
        let mut pages = (0..partitions)
            .flat_map(|at| pages_of(at, partition_of).take(share(slots, partitions, at) as usize));
        let chunks = u64::from(slots.div_ceil(PAGE_ENTRIES));
        let mut staging = Staging::new(WRITE_PAGES as usize);
        for start in (0..chunks).step_by(WRITE_PAGES as usize) {
            let count = WRITE_PAGES.min(chunks - start) as usize;
            for page in &mut staging.pages_mut()[..count] {
                let of_chunk = pages.by_ref().take(PAGE_ENTRIES as usize);
                let entries: Vec<Entry> = of_chunk.map(|page| self.entry(page)).collect();
                write_entries(page, &entries, self.stamp, 1, NOW.0);
            }
            let first = self.layout.base_copy(1) + start;
            run(flash, vec![PageIo::write(first, &staging.pages()[..count])])?;
        }
        Ok(())
    }

    /// Half a ring of blocks, whose records fill slots anew with other pages. Returns how many.
    fn write_journal(&mut self, flash: &dyn Device, partitions: u32) -> io::Result<u64> {
        let (slots, partition_of) = (self.layout.slots, self.partition_of);
        let blocks = self.layout.journal_pages / 2;
        let per_partition = blocks as usize * BLOCK_RECORDS / partitions as usize;
        let mut records = Vec::new();
        let mut first_slot = 0;
        for at in 0..partitions {
            let count = share(slots, partitions, at);
            let new_pages = pages_of(at, partition_of).skip(count as usize).take(per_partition);
            for page in new_pages {
                let slot = first_slot + self.prng.below(u64::from(count)) as u32;
                records.push(Record { slot, entry: self.entry(page) });
            }
            first_slot += count;
        }
        let mut staging = Staging::new(1);
        let mut before = 0;
        for (number, records) in (0..blocks).zip(records.chunks(BLOCK_RECORDS)) {
            let (table, now) = (self.stamp, NOW.0);
            let header = BlockHeader { table, number, now, base: 1, tail: 0, before };
            before = write_block(&mut staging.pages_mut()[0], &header, records);
            let at = (self.layout.journal + number) * PAGE_SIZE as u64;
            write(flash, at, &staging.pages()[0][..])?;
        }
        Ok(blocks.min(records.len().div_ceil(BLOCK_RECORDS) as u64))
    }
}
