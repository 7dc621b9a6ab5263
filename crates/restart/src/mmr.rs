//! MMR, the memory-mapped restart [S3 III-B]: a table beside the slots, hardened entry by entry at
//! the transitions that matter.
//!
//! ```text
//! offset size field
//!      0    4 checksum   CRC-32C of bytes 4..32 and of the slot's number
//!      4    4 page       the page that the slot holds; all ones: FREE
//!      8    8 table      the stamp of the cold start at which the table was begun
//!     16    7 last       tick of the last use
//!     23    1 state      1 CLEAN, 2 DIRTY
//!     24    8 previous   tick of the use before; all ones: none
//! ```
//!
//! | event [S3 Table III] | DW, CW, TAC | LC | hardened by |
//! |---|---|---|---|
//! | a page goes into a FREE slot | WRITING -> CLEAN | WRITING -> CLEAN or DIRTY | `harden` after the write |
//! | a page goes into a CLEAN slot | CLEAN -> READY, then as above | the same | `before_writes` |
//! | the slot's page is modified | CLEAN -> FREE (TAC: INVALID) | CLEAN or DIRTY -> FREE | `harden` in `make_dirty` |
//! | the page was lazily cleaned | - | LAZYCLEANING -> CLEAN | `harden` after the home write |
//!
//! - M1: only FREE, CLEAN and DIRTY are stored; a state in between is stored as what it may be
//!   taken for (`image_of`), since a write of one entry takes its neighbours along.
//! - M2: an entry lies in one sector, so a power cut leaves the old one or the new one; one with a
//!   wrong checksum, or of another table, is FREE.
//! - M3: a unit of the table has one write outstanding, which encodes the states of that moment
//!   under the lock of their partition; a task that comes later finds its change covered, or
//!   writes.
//! - M4: a slot is durable before its entry says that it holds something, and an entry before the
//!   hook that hardens it returns.
//! - M5: a table that cannot be written may go on to name what is no longer there. It is given up:
//!   a durable GIVEN_UP in the log says so to the next opening, before whatever waited for the
//!   write goes on; the next checkpoint has home forget the device. Slots are used as before.
//! - Cost: in memory 24 bytes for 128 slots; one synchronous write of 4 KiB for each transition
//!   above, and a sync of the flash before and after it where the device has a volatile cache.
//! - Not for: knowing an old copy of a page from the right one. The entry has no LSN, so MMR is as
//!   good as its hardening: a slot write that the device drops, or brings back, goes unseen if the
//!   bytes are a whole version of the same page.
//!
//! CW and TAC, which the paper leaves out, have DW's states, and so its column.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace_page::{Lsn, PAGE_SIZE, PageId};
use terrace_policy::{History, Tick};
use terrace_rt::Mutex;
use terrace_tier::{Mutation, Mutations};

use super::forget::not_written;
use super::images::{Images, table_parts};
use super::keeper::{Freed, Held, Keeper};
use super::layout::{FlashLayout, MAPPED_ENTRY_BYTES};
use super::records::TierRecord;
use super::recover::{ColdStart, LogFacts, Place, Recover, ScanFrom};
use super::settings::Settings;
use super::site::{Site, TableError, TableEvent, images_of};
use terrace_page_io::Staging;
use terrace_page_io::{PageIo, run};
use terrace_tier::Image;

const CHECKSUM_AT: usize = 0;
const PAGE_AT: usize = 4;
const TABLE_AT: usize = 8;
const LAST_AT: usize = 16;
const PREVIOUS_AT: usize = 24;

const _: () = assert!(CHECKSUM_AT + 4 == PAGE_AT);
const _: () = assert!(PREVIOUS_AT + 8 == MAPPED_ENTRY_BYTES);
const _: () = assert!(terrace_device::SECTOR_SIZE.is_multiple_of(MAPPED_ENTRY_BYTES));

const NO_PAGE: u32 = u32::MAX;
const NO_TICK: u64 = u64::MAX;
const STATE_SHIFT: u32 = 56;
const TICK_MASK: u64 = (1 << STATE_SHIFT) - 1;
const CLEAN: u64 = 1;
const DIRTY: u64 = 2;

type MmrEntry = [u8; MAPPED_ENTRY_BYTES];

/// The entry of `slot` in the table that was begun at `table`.
fn encode(image: Option<&Image>, slot: u32, table: u64) -> MmrEntry {
    let mut entry = [0; MAPPED_ENTRY_BYTES];
    let page = image.map_or(NO_PAGE, |image| image.page.0 as u32);
    entry[PAGE_AT..TABLE_AT].copy_from_slice(&page.to_le_bytes());
    entry[TABLE_AT..LAST_AT].copy_from_slice(&table.to_le_bytes());
    if let Some(image) = image {
        let state = if image.newer.is_some() { DIRTY } else { CLEAN };
        let last = (image.history.last.0 & TICK_MASK) | state << STATE_SHIFT;
        let previous = image.history.previous.map_or(NO_TICK, |tick| tick.0);
        entry[LAST_AT..PREVIOUS_AT].copy_from_slice(&last.to_le_bytes());
        entry[PREVIOUS_AT..].copy_from_slice(&previous.to_le_bytes());
    }
    let checksum = checksum(&entry, slot);
    entry[..PAGE_AT].copy_from_slice(&checksum.to_le_bytes());
    entry
}

fn checksum(entry: &MmrEntry, slot: u32) -> u32 {
    crc32c::crc32c_append(slot, &entry[PAGE_AT..])
}

/// What the entry of `slot` says: nothing if it is FREE, damaged, or of another table. A copy that
/// is newer than home gets its LSN once the log was read.
fn decode(entry: &MmrEntry, slot: u32, table: u64) -> Option<Image> {
    let u32_at = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().expect("four"));
    let u64_at = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("eight"));
    let page = u32_at(PAGE_AT);
    let is_ours = u32_at(CHECKSUM_AT) == checksum(entry, slot) && u64_at(TABLE_AT) == table;
    if !is_ours || page == NO_PAGE {
        return None;
    }
    let (last, previous) = (u64_at(LAST_AT), u64_at(PREVIOUS_AT));
    let newer = match last >> STATE_SHIFT {
        CLEAN => None,
        DIRTY => Some(Lsn::ZERO),
        _ => return None,
    };
    let previous = (previous != NO_TICK).then_some(Tick(previous));
    let history = History { last: Tick(last & TICK_MASK), previous };
    Some(Image { page: PageId(u64::from(page)), lsn: None, newer, history })
}

/// Decodes whatever is there; for fuzzing.
pub(super) fn fuzz(bytes: &[u8]) {
    for (slot, entry) in bytes.as_chunks().0.iter().enumerate() {
        let table = u64::from_le_bytes(entry[TABLE_AT..LAST_AT].try_into().expect("eight"));
        let mut entry: MmrEntry = *entry;
        let _as_it_is = decode(&entry, slot as u32, table);
        let checksum = checksum(&entry, slot as u32);
        entry[..PAGE_AT].copy_from_slice(&checksum.to_le_bytes());
        if let Some(image) = decode(&entry, slot as u32, table) {
            assert_eq!(decode(&encode(Some(&image), 7, table), 7, table), Some(image));
        }
    }
}

/// The table as an opening finds it.
pub(super) struct MappedImages {
    images: Images,
    table: u64,
    is_given_up: bool,
}

impl MappedImages {
    pub fn new(layout: &FlashLayout) -> MappedImages {
        MappedImages { images: Images::new(layout.slots, false), table: 0, is_given_up: false }
    }
}

impl Recover for MappedImages {
    fn load(&mut self, place: &Place<'_>, _journal: u64) -> Result<(), ColdStart> {
        self.table = place.table;
        let mut slots = 0..place.layout.slots;
        table_parts(place, |bytes| {
            // The last page of the table may have room for more.
            for (entry, slot) in bytes.as_chunks().0.iter().zip(slots.by_ref()) {
                if let Some(image) = decode(entry, slot, place.table) {
                    self.images.set(slot, &image);
                }
            }
        })?;
        // Nothing here tells which of two copies is the right one.
        self.images.settle_rivals(|_, _| None);
        Ok(())
    }

    fn scan_from(&self) -> ScanFrom {
        ScanFrom::OldestDirty
    }

    fn record(&mut self, _lsn: Lsn, payload: &[u8]) {
        self.is_given_up |=
            TierRecord::decode(payload) == Some(TierRecord::GivenUp { table: self.table });
    }

    fn settle(&mut self, _place: &Place<'_>, facts: &LogFacts<'_>) -> Result<(), ColdStart> {
        if self.is_given_up {
            return Err(ColdStart::GivenUp);
        }
        self.images.take_rec_lsns(facts);
        Ok(())
    }

    fn image(&self, slot: u32) -> Option<Image> {
        self.images.get(slot)
    }
}

/// A unit of the table, and how far it is hardened.
struct Unit {
    /// Transitions of its slots that are to be hardened.
    changes: AtomicU64,
    /// Of these, those that are.
    hardened: AtomicU64,
    /// Held by the task that writes it.
    writing: Mutex<()>,
}

impl Unit {
    fn is_hardened(&self) -> bool {
        self.hardened.load(Ordering::Acquire) >= self.changes.load(Ordering::Acquire)
    }
}

/// The table of an open pool.
pub(super) struct MappedTable {
    layout: FlashLayout,
    table: u64,
    mutations: Mutations,
    /// Bytes of a unit.
    unit_bytes: usize,
    units: Box<[Unit]>,
    /// Slots that were filled.
    fills: AtomicU64,
    /// Of these, those whose bytes are durable.
    durable_fills: AtomicU64,
    /// M5: from before the GIVEN_UP is appended.
    is_given_up: AtomicBool,
    /// M5: from when the GIVEN_UP is durable.
    is_known: AtomicBool,
    /// M5: held by the task that appends it.
    giving_up: Mutex<()>,
}

impl MappedTable {
    /// The table that was begun at `table`. If it `was_loaded`, entries may be there that were not
    /// believed: each unit is then written when it is first needed.
    pub fn new(
        layout: FlashLayout,
        table: u64,
        was_loaded: bool,
        settings: &Settings,
    ) -> MappedTable {
        let unit_bytes = settings.tuning.mmr_unit as usize;
        let entries = (unit_bytes / MAPPED_ENTRY_BYTES) as u32;
        let unit = |_| Unit {
            changes: AtomicU64::new(u64::from(was_loaded)),
            hardened: AtomicU64::new(0),
            writing: Mutex::new(()),
        };
        let (fills, durable_fills) = (AtomicU64::new(0), AtomicU64::new(0));
        let units = (0..layout.slots.div_ceil(entries)).map(unit).collect();
        let mutations = settings.mutations;
        MappedTable {
            layout,
            table,
            mutations,
            unit_bytes,
            units,
            fills,
            durable_fills,
            is_given_up: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
            giving_up: Mutex::new(()),
        }
    }

    /// The table could not be written (M5).
    fn give_up(&self, site: &dyn Site, source: std::io::Error) -> Result<(), TableError> {
        if self.mutations.has(Mutation::MmrNeverGivesUp) {
            return Ok(());
        }
        let _one_at_a_time = self.giving_up.lock();
        if self.is_known.load(Ordering::Acquire) {
            return Ok(());
        }
        self.is_given_up.store(true, Ordering::Release);
        let payload = TierRecord::GivenUp { table: self.table }.encode();
        let Some(lsn) = site.log().append_kept(&payload) else {
            return Err(site.stop(source));
        };
        site.log().make_durable(lsn)?;
        site.count(TableEvent::GivenUp, 1);
        self.is_known.store(true, Ordering::Release);
        Ok(())
    }

    fn entries_per_unit(&self) -> u32 {
        (self.unit_bytes / MAPPED_ENTRY_BYTES) as u32
    }

    /// Under the lock of the slot's partition.
    fn note(&self, slot: u32) {
        self.units[(slot / self.entries_per_unit()) as usize]
            .changes
            .fetch_add(1, Ordering::Release);
    }

    /// Writes the units of `slots` that have changed since they were last written (M3).
    fn harden_units(&self, site: &dyn Site, slots: &[u32]) -> Result<(), TableError> {
        let mut numbers: Vec<u32> =
            slots.iter().map(|slot| slot / self.entries_per_unit()).collect();
        if self.is_known.load(Ordering::Acquire) {
            return Ok(());
        }
        numbers.sort_unstable();
        numbers.dedup();
        numbers.retain(|&number| !self.units[number as usize].is_hardened());
        // In ascending order, as all tasks take them.
        let mut units: Vec<_> = numbers
            .iter()
            .map(|&number| (number, self.units[number as usize].writing.lock()))
            .collect();
        units.retain(|&(number, _)| !self.units[number as usize].is_hardened());
        let numbers: Vec<u32> = units.iter().map(|&(number, _)| number).collect();
        if numbers.is_empty() {
            return Ok(());
        }
        self.write_units(site, &numbers).or_else(|source| self.give_up(site, source))
    }

    fn write_units(&self, site: &dyn Site, numbers: &[u32]) -> std::io::Result<()> {
        let flash = site.flash();
        let unit = |number: u32| &self.units[number as usize];
        let covered: Vec<u64> =
            numbers.iter().map(|&number| unit(number).changes.load(Ordering::Acquire)).collect();
        let mut staging = Staging::new(numbers.len().div_ceil(PAGE_SIZE / self.unit_bytes));
        let bytes = staging.pages_mut().as_flattened_mut();
        for (&number, bytes) in numbers.iter().zip(bytes.chunks_mut(self.unit_bytes)) {
            self.encode_unit(site, number, bytes);
        }
        // M4: what was just encoded relies on these.
        let fills = self.fills.load(Ordering::Acquire);
        if !self.mutations.has(Mutation::MmrEntryBeforeSync)
            && self.durable_fills.load(Ordering::Acquire) < fills
        {
            flash.sync()?;
            self.durable_fills.fetch_max(fills, Ordering::AcqRel);
        }
        let bytes = staging.pages().as_flattened();
        let ios = numbers.iter().zip(bytes.chunks(self.unit_bytes)).map(|(&number, bytes)| {
            let table = self.layout.table * PAGE_SIZE as u64;
            PageIo::write_bytes(table + u64::from(number) * self.unit_bytes as u64, bytes)
        });
        site.count(TableEvent::Written, numbers.len() as u64);
        run(flash, ios.collect())?;
        flash.sync()?;
        for (&number, covered) in numbers.iter().zip(covered) {
            unit(number).hardened.store(covered, Ordering::Release);
        }
        Ok(())
    }

    fn encode_unit(&self, site: &dyn Site, number: u32, bytes: &mut [u8]) {
        let entries = self.entries_per_unit();
        let first = number * entries;
        let images = images_of(site, first..(first + entries).min(self.layout.slots));
        let (entries, _) = bytes.as_chunks_mut::<MAPPED_ENTRY_BYTES>();
        for ((slot, image), entry) in (first..).zip(images).zip(entries) {
            *entry = encode(image.as_ref(), slot, self.table);
        }
    }
}

impl Keeper for MappedTable {
    fn before_writes(&self, site: &dyn Site, slots: &[u32]) -> Result<(), TableError> {
        self.harden_units(site, slots)
    }

    fn filled(&self, _site: &dyn Site, held: &Held) {
        self.fills.fetch_add(1, Ordering::Release);
        self.note(held.slot);
    }

    fn cleaned(&self, _site: &dyn Site, slot: u32, _page: PageId) {
        self.note(slot);
    }

    fn freed(&self, _site: &dyn Site, slot: u32, _page: PageId, why: Freed) {
        let is_hardened = match why {
            Freed::Modified => !self.mutations.has(Mutation::MmrSkipModified),
            Freed::Reused => !self.mutations.has(Mutation::MmrSkipReused),
        };
        if is_hardened {
            self.note(slot);
        }
    }

    fn harden(&self, site: &dyn Site, slots: &[u32]) -> Result<(), TableError> {
        self.harden_units(site, slots)
    }

    fn checkpoint(&self, _site: &dyn Site) -> Result<u64, TableError> {
        match self.is_given_up.load(Ordering::Acquire)
            && !self.mutations.has(Mutation::MmrNeverGivesUp)
        {
            true => Err(not_written("the table")),
            false => Ok(0),
        }
    }

    fn bytes(&self) -> usize {
        size_of_val::<[Unit]>(&self.units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_rt::Prng;

    fn some_image(prng: &mut Prng) -> Option<Image> {
        let previous = prng.chance(2).then(|| Tick(1 + prng.below(1 << 40)));
        let image = Image {
            page: PageId(prng.below(u64::from(NO_PAGE))),
            lsn: None,
            newer: prng.chance(3).then_some(Lsn::ZERO),
            history: History { last: Tick(prng.below(1 << STATE_SHIFT)), previous },
        };
        (!prng.chance(4)).then_some(image)
    }

    #[test]
    fn an_entry_survives_in_its_place_only() {
        let mut prng = Prng::from_seed(1);
        for _ in 0..2_000 {
            let (image, slot, table) =
                (some_image(&mut prng), prng.below(1 << 30), prng.next_u64());
            let slot = slot as u32;
            let entry = encode(image.as_ref(), slot, table);
            assert_eq!(decode(&entry, slot, table), image);
            assert_eq!(decode(&entry, slot ^ 1, table), None, "another slot's");
            assert_eq!(decode(&entry, slot, table ^ 1), None, "another table's");
            let mut flipped = entry;
            flipped[prng.below(MAPPED_ENTRY_BYTES as u64) as usize] ^= 1 << prng.below(8);
            assert_eq!(decode(&flipped, slot, table), None, "a flipped bit");
        }
        assert_eq!(decode(&[0; MAPPED_ENTRY_BYTES], 0, 0), None, "a blank device");
    }

    #[test]
    fn garbage_is_survived() {
        let mut prng = Prng::from_seed(2);
        for _ in 0..2_000 {
            let bytes: Vec<u8> = (0..prng.below(500)).map(|_| prng.next_u64() as u8).collect();
            fuzz(&bytes);
        }
    }
}
