//! A new base copy: the old one and the journal after it, written to the other of two places.
//!
//! - M1: the old copy, and the blocks after it, stay whole until a durable block names the new one.
//! - Cost: the table is read and written once, in large requests, and the blocks are read once.

use std::io;

use super::Position;
use crate::layout::PAGE_ENTRIES;
use crate::warm::entry::{Entry, Record, read_block, read_entries, write_entries};
use crate::warm::form::{OnFlash, damaged};
use terrace_page_io::Staging;
use terrace_page_io::{PageIo, run};

/// Pages read or written at once.
const PAGES_PER_IO: u64 = 64;

/// Writes the next base copy, of all blocks before `position.next`, and moves `position` to it.
pub(super) fn rewrite(on_flash: &OnFlash<'_>, position: &mut Position) -> io::Result<()> {
    let OnFlash { flash, layout, table, now } = *on_flash;
    let mut records = read_records(on_flash, position)?;
    // The last record of a slot counts, and a stable sort keeps their order.
    records.sort_by_key(|record| record.slot);
    let mut records = &records[..];
    let chunks = u64::from(layout.slots.div_ceil(PAGE_ENTRIES));
    let mut staging = Staging::new(PAGES_PER_IO.min(chunks) as usize);
    let mut entries = Vec::with_capacity(PAGE_ENTRIES as usize);
    for start in (0..chunks).step_by(PAGES_PER_IO as usize) {
        let count = PAGES_PER_IO.min(chunks - start);
        let pages = &mut staging.pages_mut()[..count as usize];
        if position.base > 0 {
            let first = layout.base_copy(position.base) + start;
            run(flash, vec![PageIo::read(first, &mut *pages)])?;
        }
        for (at, page) in pages.iter_mut().enumerate() {
            let first_slot = (start as u32 + at as u32) * PAGE_ENTRIES;
            let len = PAGE_ENTRIES.min(layout.slots - first_slot);
            entries.clear();
            if position.base > 0 {
                let (old, then) =
                    read_entries(page, table, position.base).ok_or_else(|| damaged("base copy"))?;
                entries.extend(old.map(|entry| entry.aged(then, now)));
            }
            entries.resize(len as usize, Entry::FREE);
            let upto = records.partition_point(|record| record.slot < first_slot + len);
            for record in &records[..upto] {
                let entry = &mut entries[(record.slot - first_slot) as usize];
                *entry = entry.after(record.entry);
            }
            records = &records[upto..];
            write_entries(page, &entries, table, position.base + 1, now);
        }
        let first = layout.base_copy(position.base + 1) + start;
        run(flash, vec![PageIo::write(first, &*pages)])?;
    }
    flash.sync()?;
    position.base += 1;
    position.tail = position.next;
    Ok(())
}

/// The records that the base copy lacks, with their ages as of `now`.
fn read_records(on_flash: &OnFlash<'_>, position: &Position) -> io::Result<Vec<Record>> {
    let OnFlash { flash, layout, table, now } = *on_flash;
    let mut found = Vec::new();
    let mut staging = Staging::new(PAGES_PER_IO as usize);
    let mut next = position.tail;
    while next < position.next {
        let at = next % layout.journal_pages;
        let count = PAGES_PER_IO.min(layout.journal_pages - at).min(position.next - next);
        let pages = &mut staging.pages_mut()[..count as usize];
        run(flash, vec![PageIo::read(layout.journal + at, &mut *pages)])?;
        for page in pages.iter() {
            let (header, records) =
                read_block(page, table, next).ok_or_else(|| damaged("journal"))?;
            let is_there = |record: &Record| record.slot < layout.slots;
            found.extend(
                records
                    .filter(is_there)
                    .map(|record| Record { entry: record.entry.aged(header.now, now), ..record }),
            );
            next += 1;
        }
    }
    Ok(found)
}
