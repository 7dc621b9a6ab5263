//! What opening makes of a table: what the log contradicts goes.
//!
//! - L1: a copy that the log does not reach is of a later moment than home and log: a snapshot of
//!   these was put back, say. Analysis began where the table of their moment would have allowed, so
//!   the opening begins anew, without the tier.

use std::collections::HashMap;

use terrace_page::{Lsn, PageId, lsn, page_id, verify};
use terrace_page_io::Staging;
use terrace_policy::{FlashRole, History, Tick};
use terrace_tier::{Image, Mutation, Mutations, PAGES_MAX};

use super::entry::Entry;
use super::form::Loaded;
use super::frontier::{Frontier, Known};
use super::kind::FormKind;
use super::{Resume, position_of};
use crate::records::TierRecord;
use crate::recover::{ColdStart, LogFacts, Place, Recover, ScanFrom};
use crate::settings::Settings;

/// Pages read at once.
const READ_PAGES: u64 = 256;

/// The table while the database is opened.
pub(crate) struct WarmTable {
    form: FormKind,
    mutations: Mutations,
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
            mutations: settings.mutations,
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

    /// Whether the log allows the copy in an entry.
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
            place.read(place.layout.first_slot + u64::from(slots.start), pages)?;
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

impl Recover for WarmTable {
    fn load(&mut self, place: &Place<'_>, journal: u64) -> Result<(), ColdStart> {
        let position = position_of(place.table, journal).ok_or(ColdStart::Table)?;
        let loaded = self.form.read(place, position, self.mutations)?;
        let Loaded { entries, now, at, frontier } = loaded;
        self.entries = entries;
        let known = (self.form == FormKind::Frontier).then(|| {
            match self.mutations.has(Mutation::TrustUnknownSlots) {
                true => Known::all(place.layout.slots),
                false => Known::of(&self.entries),
            }
        });
        let read = |_: &Frontier| !self.mutations.has(Mutation::SkipFrontier);
        if let Some(frontier) = frontier.filter(read) {
            let known = known.as_ref().ok_or(ColdStart::Table)?;
            self.found = read_slots(place, (&frontier, known), now)?;
            for &(slot, entry) in &self.found {
                self.entries[slot as usize] = entry;
            }
        }
        let form = Some(at);
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
                // what it says no more of other slots, too, may be needed (L1).
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
