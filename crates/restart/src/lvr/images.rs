//! What LVR believes of its table: first what the entries say of themselves, then what the log says
//! of them, and after a crash what the slots say [S3 Fig. 7].
//!
//! | step | what | where |
//! |---|---|---|
//! | 1 | the table is read; blank entries are FREE | `load` |
//! | 2 | after a shutdown nothing is verified before its first use | `settle` |
//! | 4 | of two entries with one page the one with the earlier pageLSN goes | `load` |
//! | 7 | a BUF_WRITE frees the copies of its pages that are older than its EOL | `written` |
//! | 3 | entries that are older than the log go | `settle` |
//! | 6 | after a crash every slot is read: page id, pageLSN and checksum | `settle` |
//! | 8, 9 | redo and undo; then cleaner and flusher start | the engine, `BufferPool::begin` |
//!
//! Steps are by the paper's numbers, in the order taken. 3 and 6 wait for the log to be read, and
//! so have fewer slots to look at. That 4 comes before 3 makes no difference: an entry that is old
//! enough to fail 3 and has the later pageLSN makes the other one a lie.

use terrace_page::{Damage, Lsn, PageBuf, PageId, lsn, verify};
use terrace_tier::{Mutation, Mutations};

use super::entry::{Bytes, LvrEntry, decode};
use crate::images::{Images, SlotsByPage, table_parts};
use crate::layout::{FLUSHED_ENTRY_BYTES, FlashLayout};
use crate::records::TierRecord;
use crate::recover::{ColdStart, LogFacts, Place, Recover, ScanFrom};
use terrace_page_io::Staging;
use terrace_page_io::{PageIo, run};
use terrace_tier::Image;

/// Slots that deep verification reads together: 4 MiB, of which those that are believed.
const SLOTS_PER_BATCH: u32 = 512;
/// Slots in one of its requests.
const SLOTS_PER_READ: u32 = 32;

/// The table as an opening finds it.
pub(crate) struct FlushedImages {
    images: Images,
    hardened: Box<[u64]>,
    slots: SlotsByPage,
    mutations: Mutations,
}

impl FlushedImages {
    pub fn new(layout: &FlashLayout, mutations: Mutations) -> FlushedImages {
        FlushedImages {
            images: Images::new(layout.slots, true),
            hardened: vec![0; layout.slots as usize].into(),
            slots: SlotsByPage::default(),
            mutations,
        }
    }

    /// Step 4.
    fn settle_rivals(&mut self) {
        let hardened = &self.hardened;
        self.images.settle_rivals(|images, rivals| {
            let age = |&slot: &u32| (images.lsn(slot), hardened[slot as usize]);
            rivals.iter().copied().max_by_key(age)
        });
        self.slots = self.images.filled().map(|(slot, page)| (page, slot)).collect();
    }

    /// Frees the copy of `page` if it is older than `lsn`.
    fn free_if_before(&mut self, page: PageId, lsn: Lsn) {
        let slot = self.slots.get(&page).copied();
        if let Some(slot) = slot.filter(|&slot| self.images.lsn(slot) < lsn) {
            self.slots.remove(&page);
            self.images.free(slot);
        }
    }

    /// Whether the table was written when the log reached further than `end`, which has lost its
    /// tail since, or was put back.
    fn is_of_later_than(&self, end: Lsn) -> bool {
        let is_later =
            |(slot, _)| self.images.lsn(slot) >= end || self.hardened[slot as usize] > end.0;
        self.images.filled().any(is_later)
    }

    /// Step 3: at `hardened` the slot was valid, so every later change of its page has a later LSN;
    /// if the log is whole from there on, the copy can be brought up to date.
    fn verify_shallow(&mut self, start: Lsn) {
        for slot in 0..self.hardened.len() as u32 {
            let known = self.images.lsn(slot).max(Lsn(self.hardened[slot as usize]));
            if !self.mutations.has(Mutation::LvrKeepsOldEntries) && known < start {
                self.images.free(slot);
            }
        }
    }

    /// Step 6.
    fn verify_deep(&mut self, place: &Place<'_>) {
        let slots = place.layout.slots;
        let mut staging = Staging::new(SLOTS_PER_BATCH.min(slots.max(1)) as usize);
        for first in (0..slots).step_by(SLOTS_PER_BATCH as usize) {
            let batch: Vec<u32> = (first..slots.min(first + SLOTS_PER_BATCH))
                .filter(|&slot| self.images.page(slot).is_some())
                .collect();
            let pages = staging.pages_mut();
            let mut ios = Vec::new();
            let mut rest = &mut pages[..];
            for run in batch.chunk_by(|a, b| a + 1 == *b && b % SLOTS_PER_READ != 0) {
                let (bytes, others) = rest.split_at_mut(run.len());
                rest = others;
                ios.push(PageIo::read(place.layout.first_slot + u64::from(run[0]), bytes));
            }
            if run(place.flash, ios).is_err() {
                // One bad sector must not cost the others: one by one, then.
                for (&slot, bytes) in batch.iter().zip(&mut *pages) {
                    let number = place.layout.first_slot + u64::from(slot);
                    if run(place.flash, vec![PageIo::read(number, [&mut *bytes])]).is_err() {
                        self.images.free(slot);
                    }
                }
            }
            for (&slot, bytes) in batch.iter().zip(&*pages) {
                if !self.is_copy(slot, bytes) {
                    self.images.free(slot);
                }
            }
        }
    }

    fn is_copy(&self, slot: u32, bytes: &PageBuf) -> bool {
        let Some(page) = self.images.page(slot) else { return true };
        let is_page = match verify(bytes, page) {
            Ok(()) => true,
            Err(Damage::WrongPage { .. }) => self.mutations.has(Mutation::SkipPageIdCheck),
            Err(_) => false,
        };
        is_page
            && (self.mutations.has(Mutation::SkipLsnCheck) || lsn(bytes) == self.images.lsn(slot))
    }
}

impl Recover for FlushedImages {
    fn load(&mut self, place: &Place<'_>, _journal: u64) -> Result<(), ColdStart> {
        let mut slots = 0..place.layout.slots;
        table_parts(place, |bytes| {
            let entries: &[Bytes] = bytes.as_chunks::<FLUSHED_ENTRY_BYTES>().0;
            // The last page of the table may have room for more.
            for (entry, slot) in entries.iter().zip(slots.by_ref()) {
                if let LvrEntry::Filled { image, hardened } = decode(entry, slot, place.table) {
                    self.images.set(slot, &image);
                    self.hardened[slot as usize] = hardened.0;
                }
            }
        })?;
        self.settle_rivals();
        Ok(())
    }

    fn scan_from(&self) -> ScanFrom {
        ScanFrom::LogStart
    }

    fn written(&mut self, page: PageId, eol: Lsn) {
        if !self.mutations.has(Mutation::LvrIgnoresBufWrites) {
            self.free_if_before(page, eol);
        }
    }

    fn record(&mut self, lsn: Lsn, payload: &[u8]) {
        if let Some(TierRecord::Unlogged { page }) = TierRecord::decode(payload) {
            self.free_if_before(page, lsn);
        }
    }

    fn settle(&mut self, place: &Place<'_>, facts: &LogFacts<'_>) -> Result<(), ColdStart> {
        if self.is_of_later_than(facts.end) {
            return Err(ColdStart::LogLost);
        }
        self.verify_shallow(facts.start);
        if !place.clean {
            self.verify_deep(place);
        }
        // An entry may be older than the cleaning that brought its page home.
        self.images.raise_rec_lsns(facts.start);
        Ok(())
    }

    fn image(&self, slot: u32) -> Option<Image> {
        self.images.get(slot)
    }
}
