//! What opening reads: the base copy and the blocks after it, never a slot.
//!
//! - R1: home names how far the journal reaches at least. If it does not reach so far, or the base
//!   copy is not whole, dirty copies may be unknown: the tier starts cold (form.F3).
//! - R2: blocks after that point count up to the first that is not whole: the session may have been
//!   cut while it wrote them. What they said is then found out another way (warm.W1,
//!   warm.W2).
//! - R3: a block counts only if it names the checksum of the one before: what a session left beyond
//!   a block that was lost must not be taken for what a later session said.

use super::Position;
use crate::layout::PAGE_ENTRIES;
use crate::recover::{ColdStart, Place};
use crate::warm::entry::{
    BlockHeader, Entry, Record, block_number, checksum_of, read_block, read_entries,
};
use crate::warm::form::Loaded;
use crate::warm::frontier::{FrontierReader, place_of};
use terrace_page_io::Staging;

/// Pages read at once.
const READ_PAGES: u64 = 256;

/// Reads base copy and journal, which reaches to block `journal` at least.
pub(in crate::warm) fn read(
    place: &Place<'_>,
    journal: u64,
) -> Result<Loaded<Position>, ColdStart> {
    let last = journal.checked_sub(1).ok_or(ColdStart::Table)?;
    // The newest block says where to begin. Home names one that is not much older, unless the
    // ring has gone round since.
    let mut newest = None;
    let mut frontier = None;
    let mut look = |header: &BlockHeader, records: &mut dyn Iterator<Item = Record>| {
        newest = Some(*header);
        frontier = records.next().and_then(|record| place_of(&record));
    };
    let seen = read_blocks(place, last, journal, &mut look);
    if seen.is_err() {
        let found = find_newest(place)?.filter(|&number| number > last);
        let number = found.ok_or(ColdStart::Table)?;
        read_blocks(place, number, number + 1, &mut look)?;
    }
    let newest = newest.ok_or(ColdStart::Table)?;
    let mut entries = match newest.base {
        0 => vec![Entry::FREE; place.layout.slots as usize],
        number => read_base(place, number, newest.now)?,
    };
    let end = newest.number + 1;
    let mut reader = FrontierReader::default();
    let first = frontier.map_or(newest.tail, |first| first.min(newest.tail));
    let before = read_blocks(place, first, end, |header, records| {
        for record in records {
            if frontier.is_some_and(|first| header.number >= first) {
                reader.note(&record);
            }
            let entry = entries.get_mut(record.slot as usize);
            if let Some(entry) = entry.filter(|_| header.number >= newest.tail) {
                *entry = entry.after(record.entry.aged(header.now, newest.now));
            }
        }
    })?;
    let BlockHeader { tail, base, now, .. } = newest;
    let at = Position { next: end, tail, base, before, frontier };
    let frontier = reader.in_force();
    if at.frontier.is_some() != frontier.is_some() {
        return Err(ColdStart::Table);
    }
    Ok(Loaded { entries, now, at, frontier })
}

/// The blocks from `first` on: up to `until`, where all must be whole, and beyond while they
/// are and follow each other (R3). Calls `each` with them in order; returns the checksum of the
/// last.
fn read_blocks(
    place: &Place<'_>,
    first: u64,
    until: u64,
    mut each: impl FnMut(&BlockHeader, &mut dyn Iterator<Item = Record>),
) -> Result<u32, ColdStart> {
    let length = place.layout.journal_pages;
    let mut staging = Staging::new(READ_PAGES as usize);
    let mut next = first;
    let end = first + length;
    let mut before = None;
    while next < end {
        let at = next % length;
        let count = READ_PAGES.min(length - at).min(end - next);
        let pages = &mut staging.pages_mut()[..count as usize];
        place.read(place.layout.journal + at, pages)?;
        for page in pages.iter() {
            match read_block(page, place.table, next) {
                Some((header, mut records)) if before.is_none_or(|it| it == header.before) => {
                    each(&header, &mut records);
                    before = Some(checksum_of(page));
                }
                _ if next < until => return Err(ColdStart::Table),
                _ => return Ok(before.unwrap_or(0)),
            }
            next += 1;
        }
    }
    Ok(before.unwrap_or(0))
}

/// The number of the newest block in the ring, wherever it is.
fn find_newest(place: &Place<'_>) -> Result<Option<u64>, ColdStart> {
    let length = place.layout.journal_pages;
    let mut staging = Staging::new(READ_PAGES.min(length) as usize);
    let mut newest = None;
    for start in (0..length).step_by(READ_PAGES as usize) {
        let count = READ_PAGES.min(length - start);
        let pages = &mut staging.pages_mut()[..count as usize];
        place.read(place.layout.journal + start, pages)?;
        for (at, page) in (start..).zip(pages.iter()) {
            let number = block_number(page, place.table);
            newest = newest.max(number.filter(|number| number % length == at));
        }
    }
    Ok(newest)
}

/// The entries of base copy `number`, with their ages as of `now`.
fn read_base(place: &Place<'_>, number: u64, now: u64) -> Result<Vec<Entry>, ColdStart> {
    let mut entries = Vec::new();
    entries.reserve_exact(place.layout.slots as usize);
    let chunks = u64::from(place.layout.slots.div_ceil(PAGE_ENTRIES));
    let first = place.layout.base_copy(number);
    let mut staging = [(); 2].map(|()| Staging::new(READ_PAGES.min(chunks) as usize));
    let [decoded, read] = &mut staging;
    let mut decoded = &mut decoded.pages_mut()[..READ_PAGES.min(chunks) as usize];
    let mut read = read.pages_mut();
    place.read(first, decoded)?;
    for start in (READ_PAGES..chunks + READ_PAGES).step_by(READ_PAGES as usize) {
        let count = READ_PAGES.min(chunks.saturating_sub(start));
        // The next part is read while this one is decoded.
        let next = &mut std::mem::take(&mut read)[..count as usize];
        let entries = &mut entries;
        let decode = || {
            decoded.iter().try_for_each(|page| {
                let (found, then) = read_entries(page, place.table, number)?;
                entries.extend(found.map(|entry| entry.aged(then, now)));
                Some(())
            })
        };
        let whole = place.read_beside(first + start, next, decode)?;
        whole.ok_or(ColdStart::Table)?;
        (decoded, read) = (next, decoded);
    }
    match entries.len() == place.layout.slots as usize {
        true => Ok(entries),
        false => Err(ColdStart::Table),
    }
}
