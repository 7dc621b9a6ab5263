//! The form: appends records to the log pages of their chunks, and merges those that are full.

use std::collections::BTreeMap;
use std::io;

use super::page::LogPage;
use super::{Chunk, Chunks, Logged, Places, mixed, other};
use crate::FlashLayout;
use crate::layout::PAGE_ENTRIES;
use crate::warm::entry::{Entry, Record, read_entries, write_entries};
use crate::warm::form::{Form, OnFlash, damaged};
use crate::warm::frontier::Frontier;
use terrace_page_io::Staging;
use terrace_page_io::{PageIo, run};

/// Log pages of one write, at most, beside those of chunks.C4: more records than these take go in
/// several.
const PARTS_MAX: usize = 256;

/// The chunks while the database is open.
pub(in crate::warm) struct ChunkTable {
    counts: Chunks,
    bytes: usize,
}

/// Chunks as they are after a write that is not durable yet.
type Touched = BTreeMap<u32, Chunk>;

impl ChunkTable {
    pub fn new(layout: &FlashLayout, counts: Chunks) -> ChunkTable {
        let of_records = Places::of(layout).log_records() * size_of::<Logged>();
        let bytes = counts.chunks.len() * (of_records + size_of::<Chunk>());
        ChunkTable { counts, bytes }
    }

    /// How many of the first `records` go in one write.
    fn part_of(places: &Places<'_>, records: &[Record]) -> usize {
        let mut touched = BTreeMap::new();
        let is_more = |record: &Record| {
            touched.insert(places.chunk_of(record.slot), ());
            touched.len() > PARTS_MAX
        };
        records.iter().position(is_more).unwrap_or(records.len())
    }

    /// One write, of `records` and of what does not count.
    fn write_part(&mut self, on_flash: &OnFlash<'_>, records: &[Record]) -> io::Result<()> {
        let places = Places::of(on_flash.layout);
        let mut touched = self.touch(&places, records, on_flash.now);
        let (number, before) = (self.counts.next, self.counts.last);
        let mut digest = self.counts.digest;
        for (&at, chunk) in &mut touched {
            digest ^= mixed(at, chunk.number) ^ mixed(at, number);
            (chunk.number, chunk.place) = (number, other(chunk.place));
        }
        // chunks.C6: until it is known to count.
        self.counts.next += 1;
        let mut stale: Vec<u32> = touched.keys().copied().collect();
        std::mem::swap(&mut self.counts.stale, &mut stale);
        merge_full(on_flash, &places, &mut touched)?;
        on_flash.flash.sync()?;
        let mut staging = Staging::new(touched.len());
        let parts = touched.len() as u32;
        for (page, (&chunk, after)) in staging.pages_mut().iter_mut().zip(&touched) {
            let (table, now, base) = (on_flash.table, on_flash.now, after.base);
            let header = LogPage { table, number, now, before, digest, base, chunk, parts };
            header.write(page, &after.records);
        }
        let ios = staging.pages().iter().zip(&touched).map(|(page, (&chunk, after))| {
            PageIo::write(places.log_page(chunk, after.place), [page])
        });
        run(on_flash.flash, ios.collect())?;
        on_flash.flash.sync()?;
        for (at, chunk) in touched {
            self.counts.chunks[at as usize] = chunk;
        }
        self.counts.last = number;
        self.counts.digest = digest;
        self.counts.stale.clear();
        Ok(())
    }

    /// The chunks that `records` change, and those that chunks.C4 wants written, with what they
    /// then hold.
    fn touch(&self, places: &Places<'_>, records: &[Record], now: u64) -> Touched {
        let mut touched = Touched::new();
        let chunks = &self.counts.chunks;
        // With nothing to write, home must still have a write to name.
        let first = records.is_empty().then_some(0);
        for chunk in self.counts.stale.iter().copied().chain(first) {
            touched.insert(chunk, chunks[chunk as usize].clone());
        }
        for &record in records {
            let at = places.chunk_of(record.slot);
            let chunk = touched.entry(at).or_insert_with(|| chunks[at as usize].clone());
            chunk.records.push(Logged { record, then: now });
        }
        touched
    }
}

/// Writes new copies of the chunks whose log pages are full (chunks.C1).
fn merge_full(
    on_flash: &OnFlash<'_>,
    places: &Places<'_>,
    touched: &mut Touched,
) -> io::Result<()> {
    let most = places.log_records();
    for (&at, chunk) in touched.iter_mut().filter(|(_, chunk)| chunk.records.len() > most) {
        let mut staging = Staging::new(places.map.pages as usize);
        let mut entries = old_entries(on_flash, places, (at, chunk), &mut staging)?;
        for Logged { record, then } in chunk.records.drain(..) {
            let entry = &mut entries[(record.slot - places.first_slot(at)) as usize];
            *entry = entry.after(record.entry.aged(then, on_flash.now));
        }
        chunk.base += 1;
        for (page, of_page) in (0..).zip(entries.chunks(PAGE_ENTRIES as usize)) {
            let number = places.copy_number(at, chunk.base, page);
            let bytes = &mut staging.pages_mut()[page as usize];
            write_entries(bytes, of_page, on_flash.table, number, on_flash.now);
        }
        let used = entries.len().div_ceil(PAGE_ENTRIES as usize);
        let pages = &staging.pages()[..used];
        run(on_flash.flash, vec![PageIo::write(places.copy(at, chunk.base), pages)])?;
    }
    Ok(())
}

/// The entries of the copy that a chunk goes on from, with their ages as of now.
fn old_entries(
    on_flash: &OnFlash<'_>,
    places: &Places<'_>,
    (at, chunk): (u32, &Chunk),
    staging: &mut Staging,
) -> io::Result<Vec<Entry>> {
    let slots = places.slots(at) as usize;
    if chunk.base == 0 {
        return Ok(vec![Entry::FREE; slots]);
    }
    let pages = &mut staging.pages_mut()[..slots.div_ceil(PAGE_ENTRIES as usize)];
    run(on_flash.flash, vec![PageIo::read(places.copy(at, chunk.base), &mut *pages)])?;
    let mut entries = Vec::with_capacity(slots);
    for (page, bytes) in (0..).zip(pages.iter()) {
        let number = places.copy_number(at, chunk.base, page);
        let (found, then) =
            read_entries(bytes, on_flash.table, number).ok_or_else(|| damaged("chunk"))?;
        entries.extend(found.map(|entry| entry.aged(then, on_flash.now)));
    }
    match entries.len() == slots {
        true => Ok(entries),
        false => Err(damaged("chunk")),
    }
}

impl Form for ChunkTable {
    fn write(
        &mut self,
        on_flash: &OnFlash<'_>,
        records: &[Record],
        frontier: Option<&Frontier>,
    ) -> io::Result<()> {
        assert!(frontier.is_none(), "chunks keep nothing back");
        let places = Places::of(on_flash.layout);
        let mut rest = records;
        loop {
            let (part, more) = rest.split_at(ChunkTable::part_of(&places, rest));
            self.write_part(on_flash, part)?;
            rest = more;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    fn position(&self) -> u64 {
        self.counts.last
    }

    /// With all log pages full.
    fn bytes(&self) -> usize {
        self.bytes
    }
}
