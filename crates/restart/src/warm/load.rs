//! What opening makes of a table: what the log contradicts goes. And how the journal is read: the
//! base copy and the blocks after it, never a slot.
//!
//! - L1: home names how far the journal reaches at least. If it does not reach so far, or the base
//!   copy is not whole, dirty copies may be unknown: the tier starts cold (form.F3).
//! - L2: blocks after that point count up to the first that is not whole: the session may have been
//!   cut while it wrote them. What they said is then found out another way (warm.W1,
//!   warm.W2).
//! - L3: a block counts only if it names the checksum of the one before: what a session left beyond
//!   a block that was lost must not be taken for what a later session said.
//! - L4: a copy that the log does not reach is of a later moment than home and log: a snapshot of
//!   these was put back, say. Analysis began where the table of their moment would have allowed, so
//!   the opening begins anew, without the tier.

use std::collections::HashMap;

use terrace_device::Device;
use terrace_page::{Lsn, PageBuf, PageId, lsn, page_id, verify};
use terrace_policy::{FlashRole, History, Tick};

use super::entry::{
    BlockHeader, Entry, Record, block_number, checksum_of, read_block, read_entries,
};
use super::form::{FormKind, Loaded, Resumed};
use super::frontier::{Frontier, FrontierReader, Known, place_of};
use super::journal::Position;
use super::{Resume, position_of};
use crate::RestartRules;
use crate::found::{ColdStart, Image, LogFacts, Place, Recover, ScanFrom};
use crate::layout::{FlashLayout, PAGE_ENTRIES};
use crate::records::Record as TierRecord;
use crate::settings::Settings;
use terrace_page_io::Staging;
use terrace_page_io::{PageIo, run_beside};
use terrace_tier::PAGES_MAX;

/// Pages read at once.
const READ_PAGES: u64 = 256;

/// The table while the database is opened.
pub(crate) struct WarmTable {
    form: FormKind,
    rules: RestartRules,
    frontier_is_read: bool,
    frontier_is_known: bool,
    entries: Vec<Entry>,
    /// The last change of each page in the log.
    updated: PageLsns,
    /// How far home has each page, by the BUF_WRITEs in the log.
    written: PageLsns,
    resume: Resume,
    /// Pages that were found in slots of the frontier, and their entries.
    found: Vec<(u32, Entry)>,
    role: FlashRole,
}

/// The greatest LSN that the log tells of each page.
#[derive(Default)]
struct PageLsns {
    last: HashMap<PageId, Lsn>,
    /// Bits by page number, modulo their count: few of a large tier's pages are in the log, and the
    /// others are told at once. Empty: none is.
    filter: Vec<u64>,
}

impl PageLsns {
    const FILTER_BITS: u64 = 1 << 22;

    fn bit_of(page: PageId) -> (usize, u64) {
        let bit = page.0 % PageLsns::FILTER_BITS;
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    fn insert(&mut self, page: PageId, lsn: Lsn) {
        if self.filter.is_empty() {
            self.filter = vec![0; (PageLsns::FILTER_BITS / 64) as usize];
        }
        let (word, bit) = PageLsns::bit_of(page);
        self.filter[word] |= bit;
        let last = self.last.entry(page).or_insert(lsn);
        *last = lsn.max(*last);
    }

    /// Whether the log may tell of `page`.
    #[inline]
    fn may_have(&self, page: PageId) -> bool {
        let (word, bit) = PageLsns::bit_of(page);
        self.filter.get(word).is_some_and(|bits| bits & bit != 0)
    }

    fn last(&self, page: PageId) -> Option<Lsn> {
        if self.may_have(page) { self.last.get(&page).copied() } else { None }
    }
}

impl WarmTable {
    pub fn new(form: FormKind, settings: &Settings) -> WarmTable {
        WarmTable {
            form,
            rules: settings.rules,
            frontier_is_read: settings.frontier_is_read,
            frontier_is_known: settings.frontier_is_known,
            entries: Vec::new(),
            updated: PageLsns::default(),
            written: PageLsns::default(),
            resume: Resume::default(),
            found: Vec::new(),
            role: settings.role,
        }
    }

    /// frontier.N5: what home lacks of the pages that were found, as the log says.
    fn settle_found(&mut self, facts: &LogFacts<'_>) {
        for (slot, entry) in &mut self.found {
            let page = entry.page().expect("a page was found");
            if self.role == FlashRole::Cache {
                *entry = entry.since((facts.dirty)(page).map(|(rec, _)| rec));
                self.entries[*slot as usize] = *entry;
            }
        }
        self.resume.found = std::mem::take(&mut self.found);
    }

    /// What the log says of the copy in an entry.
    fn is_believed(&self, entry: &Entry, facts: &LogFacts<'_>) -> bool {
        let Some(page) = entry.page() else { return true };
        let lsn = entry.lsn();
        match self.updated.last(page) {
            Some(last) if last > lsn => {
                // Old, but maybe what the records to be redone were written on.
                (facts.redo_base)(page).is_some_and(|base| base <= lsn)
            }
            _ => true,
        }
    }

    /// The page of a dirty entry, if the log says that home has that version, or a newer one.
    fn is_home_too(&self, entry: &Entry) -> Option<PageId> {
        let page = entry.page().filter(|_| entry.is_newer())?;
        self.written.last(page).is_some_and(|eol| entry.lsn() <= eol).then_some(page)
    }
}

/// Reads base copy and journal, which reaches to block `journal` at least.
pub(super) fn read_journalled(place: &Place<'_>, journal: u64) -> Result<Loaded, ColdStart> {
    let last = journal.checked_sub(1).ok_or(ColdStart::Table)?;
    // The newest block says where to begin. Home names one that is not much older, unless the
    // ring has gone round since.
    let mut newest = None;
    let mut frontier = None;
    let mut look = |header: &BlockHeader, records: &mut dyn Iterator<Item = Record>| {
        newest = Some(*header);
        frontier = records.next().and_then(|record| place_of(&record));
    };
    let seen = read_journal(place, last, journal, &mut look);
    if seen.is_err() {
        let found = find_newest(place)?.filter(|&number| number > last);
        let number = found.ok_or(ColdStart::Table)?;
        read_journal(place, number, number + 1, &mut look)?;
    }
    let newest = newest.ok_or(ColdStart::Table)?;
    let mut entries = match newest.base {
        0 => vec![Entry::FREE; place.layout.slots as usize],
        number => read_base(place, number, newest.now)?,
    };
    let end = newest.number + 1;
    let mut reader = FrontierReader::default();
    let first = frontier.map_or(newest.tail, |first| first.min(newest.tail));
    let before = read_journal(place, first, end, |header, records| {
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
    Ok(Loaded { entries, now, resumed: Resumed::Journal(at), frontier })
}

/// The blocks from `first` on: up to `until`, where all must be whole, and beyond while they
/// are and follow each other (L3). Calls `each` with them in order; returns the checksum of the
/// last.
fn read_journal(
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
        read_run(place.flash, place.layout.journal + at, pages)?;
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
        read_run(place.flash, place.layout.journal + start, pages)?;
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
    let first = base_page(&place.layout, number);
    let mut staging = [(); 2].map(|()| Staging::new(READ_PAGES.min(chunks) as usize));
    let [decoded, read] = &mut staging;
    let mut decoded = &mut decoded.pages_mut()[..READ_PAGES.min(chunks) as usize];
    let mut read = read.pages_mut();
    read_run(place.flash, first, decoded)?;
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
        let whole = read_run_beside(place.flash, first + start, next, decode)?;
        whole.ok_or(ColdStart::Table)?;
        (decoded, read) = (next, decoded);
    }
    match entries.len() == place.layout.slots as usize {
        true => Ok(entries),
        false => Err(ColdStart::Table),
    }
}

/// The pages in slots of `frontier` that were written since it began, and are not told of
/// (frontier.N3).
fn read_slots(
    place: &Place<'_>,
    (frontier, known): (&Frontier, &Known),
    now: u64,
) -> Result<Vec<(u32, Entry)>, ColdStart> {
    let history = History::once(Tick(now));
    let mut found = Vec::new();
    let mut staging = Staging::new(READ_PAGES as usize);
    for &(first, len) in frontier.runs() {
        for start in (0..len).step_by(READ_PAGES as usize) {
            let count = len.min(start + READ_PAGES as u32) - start;
            let pages = &mut staging.pages_mut()[..count as usize];
            let slots = first + start..first + start + count;
            if slots.end > place.layout.slots {
                return Err(ColdStart::Table);
            }
            read_run(place.flash, place.layout.first_slot + u64::from(slots.start), pages)?;
            for (slot, page) in slots.zip(pages.iter()) {
                let (id, lsn) = (page_id(page), lsn(page));
                let may_be = id.0 < PAGES_MAX && lsn.0 < Entry::LSN_MAX;
                if may_be
                    && known.has(slot)
                    && frontier.tells(slot, lsn)
                    && verify(page, id).is_ok()
                {
                    found.push((slot, Entry::of(id, lsn, Some(Lsn::ZERO), history, Tick(now))));
                }
            }
        }
    }
    Ok(found)
}

/// The first page of base copy `number`.
pub(super) fn base_page(layout: &FlashLayout, number: u64) -> u64 {
    layout.table + (number % 2) * (layout.table_pages / 2)
}

pub(super) fn read_run(
    flash: &dyn Device,
    first: u64,
    pages: &mut [PageBuf],
) -> Result<(), ColdStart> {
    read_run_beside(flash, first, pages, || ())
}

/// As `read_run`, with `work` done meanwhile.
fn read_run_beside<T>(
    flash: &dyn Device,
    first: u64,
    pages: &mut [PageBuf],
    work: impl FnOnce() -> T,
) -> Result<T, ColdStart> {
    const PAGES_PER_IO: usize = 64;
    let ios = pages.chunks_mut(PAGES_PER_IO).enumerate();
    let ios = ios.map(|(at, pages)| PageIo::read(first + (at * PAGES_PER_IO) as u64, pages));
    let (done, read) = run_beside(flash, ios.collect(), work);
    read.map(|()| done).map_err(|error| ColdStart::Device(error.kind()))
}

impl Recover for WarmTable {
    fn load(&mut self, place: &Place<'_>, journal: u64) -> Result<(), ColdStart> {
        let position = position_of(place.table, journal).ok_or(ColdStart::Table)?;
        let loaded = self.form.read(place, position, self.rules)?;
        let Loaded { entries, now, resumed, frontier } = loaded;
        self.entries = entries;
        let known = (self.form == FormKind::Frontier).then(|| match self.frontier_is_known {
            true => Known::of(&self.entries),
            false => Known::all(place.layout.slots),
        });
        if let Some(frontier) = frontier.filter(|_| self.frontier_is_read) {
            let known = known.as_ref().ok_or(ColdStart::Table)?;
            self.found = read_slots(place, (&frontier, known), now)?;
            for &(slot, entry) in &self.found {
                self.entries[slot as usize] = entry;
            }
        }
        let form = Some(resumed);
        self.resume = Resume { table: place.table, now, form, known, ..Resume::default() };
        Ok(())
    }

    fn scan_from(&self) -> ScanFrom {
        // frontier.N5.
        match (self.form, self.role) {
            (FormKind::Frontier, FlashRole::Cache) => ScanFrom::OldestDirty,
            _ => ScanFrom::OldestBase,
        }
    }

    fn updated(&mut self, page: PageId, lsn: Lsn) {
        self.updated.insert(page, lsn);
    }

    fn written(&mut self, page: PageId, eol: Lsn) {
        self.written.insert(page, eol);
    }

    fn record(&mut self, lsn: Lsn, payload: &[u8]) {
        if let Some(TierRecord::Unlogged { page }) = TierRecord::decode(payload) {
            self.updated.insert(page, lsn);
        }
    }

    fn settle(&mut self, _place: &Place<'_>, facts: &LogFacts<'_>) -> Result<(), ColdStart> {
        self.settle_found(facts);
        for slot in 0..self.entries.len() {
            let entry = &self.entries[slot];
            let Some(page) = entry.page() else { continue };
            if entry.lsn() >= facts.end {
                // The log has lost its tail, or was put back: the table is of a later moment, and
                // what it says no more of other slots, too, may be needed (L4).
                return Err(ColdStart::LogLost);
            }
            let is_told = self.updated.may_have(page) || self.written.may_have(page);
            if !is_told {
                continue;
            }
            if !self.is_believed(&self.entries[slot], facts) {
                self.entries[slot] = Entry::FREE;
                self.resume.dropped.push(slot as u32);
            } else if let Some(page) = self.is_home_too(&self.entries[slot]) {
                // Written home again, it could be torn there, and the log has no image of it.
                self.entries[slot] = self.entries[slot].after(Entry::cleaned(page));
                self.resume.cleaned.push((slot as u32, page));
            }
        }
        self.updated = PageLsns::default();
        self.written = PageLsns::default();
        Ok(())
    }

    fn image(&self, slot: u32) -> Option<Image> {
        self.entries.get(slot as usize)?.image(self.resume.now)
    }

    fn clock(&self) -> Option<u64> {
        Some(self.resume.now)
    }

    fn resume(&self) -> Option<Resume> {
        Some(self.resume.clone())
    }
}
