//! What opening reads: the log pages, which tell what counts, and then the chunks that they name.

use terrace_page::PageBuf;
use terrace_tier::{Mutation, Mutations};

use super::page::LogPage;
use super::{Chunk, Chunks, Logged, Places, mixed};
use crate::layout::PAGE_ENTRIES;
use crate::recover::{ColdStart, Place};
use crate::warm::entry::{Entry, Record, read_entries};
use crate::warm::form::Loaded;
use terrace_page_io::Staging;
use terrace_page_io::{PageIo, run};

/// Chunks whose pages are read at once.
const CHUNKS_PER_READ: u32 = 32;

/// A whole log page.
struct Found {
    header: LogPage,
    place: u64,
    records: Vec<Record>,
}

/// Reads the table, of which home says that write `position` counts.
pub(in crate::warm) fn read(
    place: &Place<'_>,
    position: u64,
    mutations: Mutations,
) -> Result<Loaded<Chunks>, ColdStart> {
    let places = Places::of(&place.layout);
    let found = read_log_pages(place, &places)?;
    let headers = found.iter().flatten().map(|it| &it.header);
    let last = match mutations.has(Mutation::ChunksCountAlone) {
        true => headers.map(|header| header.number).max(),
        false => last_write(headers),
    };
    let last = last.ok_or(ColdStart::Table)?;
    if last < position {
        return Err(ColdStart::Table);
    }
    let mut next = last;
    let mut now = 0;
    let mut digests = (Chunks::new(&place.layout).digest, None);
    let mut chunks = Chunks { last, ..Chunks::new(&place.layout) };
    for (at, pages) in (0..).zip(found) {
        next = pages.iter().map(|it| it.header.number).fold(next, u64::max);
        if pages.iter().any(|it| it.header.number > last) {
            chunks.stale.push(at);
        }
        let counts = pages.into_iter().filter(|it| it.header.number <= last);
        let Some(Found { header, place, records }) = counts.max_by_key(|it| it.header.number)
        else {
            continue;
        };
        let LogPage { number, base, now: then, digest, .. } = header;
        if number == last {
            (now, digests.1) = (then, Some(digest));
        }
        digests.0 ^= mixed(at, 0) ^ mixed(at, number);
        let logged = |record| Logged { record, then };
        let records = records.into_iter().map(logged).collect();
        chunks.chunks[at as usize] = Chunk { number, place, base, records };
    }
    // chunks.C5.
    if !mutations.has(Mutation::ChunksCountAlone) && digests.1 != Some(digests.0) {
        return Err(ColdStart::Table);
    }
    (chunks.next, chunks.digest) = (next + 1, digests.0);
    let entries = read_entries_of(place, &places, &chunks, now)?;
    Ok(Loaded { entries, now, at: chunks, frontier: None })
}

/// The last write of which every part is there (chunks.C2, chunks.C3).
fn last_write<'a>(headers: impl Iterator<Item = &'a LogPage> + Clone) -> Option<u64> {
    let newest = headers.clone().max_by_key(|header| header.number)?;
    let parts = headers.filter(|header| header.number == newest.number).count();
    match parts == newest.parts as usize {
        true => Some(newest.number),
        false => Some(newest.before).filter(|&before| before > 0),
    }
}

/// The whole log pages of each chunk.
fn read_log_pages(place: &Place<'_>, places: &Places<'_>) -> Result<Vec<Vec<Found>>, ColdStart> {
    let mut found = Vec::with_capacity(places.map.count as usize);
    let mut staging = Staging::new(2 * CHUNKS_PER_READ as usize);
    for first in (0..places.map.count).step_by(CHUNKS_PER_READ as usize) {
        let chunks = first..places.map.count.min(first + CHUNKS_PER_READ);
        let pages = &mut staging.pages_mut()[..2 * chunks.len()];
        place.read(places.log_page(first, 0), pages)?;
        for (chunk, both) in chunks.zip(pages.chunks(2)) {
            let whole = (0..).zip(both).filter_map(|(at, page): (u64, &PageBuf)| {
                let (header, records) = LogPage::read(page, place.table, chunk)?;
                Some(Found { header, place: at, records: records.collect() })
            });
            found.push(whole.collect());
        }
    }
    Ok(found)
}

/// The entries of all chunks, with their ages as of `now`.
fn read_entries_of(
    place: &Place<'_>,
    places: &Places<'_>,
    chunks: &Chunks,
    now: u64,
) -> Result<Vec<Entry>, ColdStart> {
    let mut entries = vec![Entry::FREE; place.layout.slots as usize];
    let each = places.map.pages as usize;
    let mut staging = Staging::new(each * CHUNKS_PER_READ as usize);
    for first in (0..places.map.count).step_by(CHUNKS_PER_READ as usize) {
        let at_once = first..places.map.count.min(first + CHUNKS_PER_READ);
        let pages = staging.pages_mut().chunks_mut(each).zip(at_once.clone());
        let has_copy = |chunk: u32| chunks.chunks[chunk as usize].base > 0;
        let ios = pages.filter(|&(_, chunk)| has_copy(chunk)).map(|(pages, chunk)| {
            PageIo::read(places.copy(chunk, chunks.chunks[chunk as usize].base), pages)
        });
        run(place.flash, ios.collect()).map_err(|error| ColdStart::Device(error.kind()))?;
        for (pages, chunk) in staging.pages().chunks(each).zip(at_once) {
            let (from, len) = (places.first_slot(chunk) as usize, places.slots(chunk) as usize);
            let of_chunk = entries.get_mut(from..from + len).unwrap_or_default();
            let counts = &chunks.chunks[chunk as usize];
            if counts.base > 0 {
                let number = |at| places.copy_number(chunk, counts.base, at);
                decode(pages, (place.table, now), number, of_chunk).ok_or(ColdStart::Table)?;
            }
            for Logged { record, then } in &counts.records {
                let at = (record.slot as usize).checked_sub(from).ok_or(ColdStart::Table)?;
                let entry = of_chunk.get_mut(at).ok_or(ColdStart::Table)?;
                *entry = entry.after(record.entry.aged(*then, now));
            }
        }
    }
    Ok(entries)
}

/// The entries of a copy of a chunk, if all its pages are whole.
fn decode(
    pages: &[PageBuf],
    (table, now): (u64, u64),
    number: impl Fn(u32) -> u64,
    entries: &mut [Entry],
) -> Option<()> {
    let parts = entries.chunks_mut(PAGE_ENTRIES as usize);
    for ((at, page), entries) in (0..).zip(pages).zip(parts) {
        let (found, then) = read_entries(page, table, number(at))?;
        let mut found = found.map(|entry| entry.aged(then, now));
        for entry in entries.iter_mut() {
            *entry = found.next()?;
        }
    }
    Some(())
}
