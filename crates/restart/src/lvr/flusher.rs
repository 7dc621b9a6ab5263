//! The flusher: hardens the table chunk by chunk, in passes that never end [S3 III-D2, Fig. 6].
//!
//! ```text
//! harden(chunk): the log's durable end -> read the chunk -> copy the slots, each partition under
//!                its lock -> write the chunk
//! ```
//!
//! - L1: the durable end is read before the slots are looked at: a slot that is valid in the copy
//!   was valid when the log had become durable up to there, so every later change of its page has
//!   a later LSN [S3 III-D4]. The paper has the log's tail there; what a power cut takes of it
//!   gives its LSNs away again [sources.D10].
//! - L2: one chunk is hardened at a time, by the flusher or by a checkpoint.
//! - L3: an old entry is as good as a new one: recovery sees how old it is. So a write that fails,
//!   or that a power cut takes, costs slots and no page.
//! - The paper skips a slot whose latch is taken, and writes its old entry back. A partition's lock
//!   is held for moments, never for an I/O, so it is waited for; the old entries are read
//!   nevertheless, since an entry that is FREE and was FREE stays as it is.

use terrace_device::{SECTOR_SIZE, read, write};
use terrace_page::PAGE_SIZE;
use terrace_rt::{Mutex, Signal, now, yield_now};
use terrace_tier::{Mutation, Mutations};

use super::entry::{Bytes, LvrEntry, decode, encode};
use crate::keeper::Keeper;
use crate::layout::{FLUSHED_ENTRY_BYTES, FlashLayout, pages_of};
use crate::settings::Settings;
use crate::site::{Site, TableError, TableEvent, images_of};
use crate::tuning::RestartTuning;
use terrace_page_io::Staging;

/// Entries in a sector: no chunk has a part of one.
const SECTOR_ENTRIES: u32 = (SECTOR_SIZE / FLUSHED_ENTRY_BYTES) as u32;

/// The table of an open pool.
pub(crate) struct Flusher {
    layout: FlashLayout,
    table: u64,
    tuning: RestartTuning,
    mutations: Mutations,
    /// Entries of a chunk.
    chunk_entries: u32,
    chunks: u32,
    /// The next chunk (L2).
    next: Mutex<u32>,
    /// Given when the pool closes.
    closing: Signal,
}

impl Flusher {
    pub fn new(layout: FlashLayout, table: u64, settings: &Settings) -> Flusher {
        let (tuning, mutations) = (settings.tuning, settings.mutations);
        let entries = layout.slots.div_ceil(tuning.lvr_chunks).max(1);
        let chunk_entries = entries.next_multiple_of(SECTOR_ENTRIES);
        let chunks = layout.slots.div_ceil(chunk_entries).max(1);
        let (next, closing) = (Mutex::new(0), Signal::new());
        Flusher { layout, table, tuning, mutations, chunk_entries, chunks, next, closing }
    }

    /// Hardens the next chunk.
    fn harden_next(&self, site: &dyn Site) {
        let mut next = self.next.lock();
        let chunk = *next;
        *next = (chunk + 1) % self.chunks;
        let hardened = self.harden_chunk(site, chunk);
        drop(next);
        site.count(TableEvent::Written, 1);
        site.count(TableEvent::Fault, u64::from(hardened.is_err()));
    }

    fn harden_chunk(&self, site: &dyn Site, chunk: u32) -> std::io::Result<()> {
        let flash = site.flash();
        let hardened = match self.mutations.has(Mutation::LvrTailLsn) {
            true => site.log().last_lsn(),
            false => site.log().durable_lsn(),
        };
        let first = chunk * self.chunk_entries;
        let slots = first..(first + self.chunk_entries).min(self.layout.slots);
        let bytes = (slots.len() * FLUSHED_ENTRY_BYTES).next_multiple_of(SECTOR_SIZE);
        let offset =
            self.layout.table * PAGE_SIZE as u64 + u64::from(first) * FLUSHED_ENTRY_BYTES as u64;
        let mut staging = Staging::new(pages_of(bytes));
        let chunk = &mut staging.pages_mut().as_flattened_mut()[..bytes];
        read(flash, offset, chunk)?;
        let images = images_of(site, slots.clone());
        for ((slot, image), bytes) in slots.zip(images).zip(entries_of(chunk)) {
            let was_free = decode(bytes, slot, self.table) == LvrEntry::Free;
            if image.is_some() || !was_free {
                *bytes = encode(image.as_ref(), hardened, slot, self.table);
            }
        }
        write(flash, offset, chunk)
    }

    /// Makes what was hardened durable. What is not is only older (L3).
    fn sync(&self, site: &dyn Site) {
        let flash = site.flash();
        if flash.sync().is_err() {
            site.count(TableEvent::Fault, 1);
        }
    }
}

fn entries_of(bytes: &mut [u8]) -> impl Iterator<Item = &mut Bytes> {
    bytes.as_chunks_mut::<FLUSHED_ENTRY_BYTES>().0.iter_mut()
}

impl Keeper for Flusher {
    /// A full pass, begun after BEGIN_CHKPT, since the log is cut there, and with it what makes
    /// older entries believable [S3 III-D3, Pitfall 3].
    fn checkpoint(&self, site: &dyn Site) -> Result<u64, TableError> {
        if !self.mutations.has(Mutation::LvrSkipsPass) {
            for chunk in 1..=self.chunks {
                self.harden_next(site);
                if chunk.is_multiple_of(self.tuning.lvr_chunks_per_yield) {
                    yield_now();
                }
            }
            self.sync(site);
        }
        Ok(0)
    }

    fn run(&self, site: &dyn Site) {
        while !site.is_closing() {
            let seen = self.closing.seen();
            for _ in 0..self.tuning.lvr_chunks_per_pause.min(self.chunks) {
                self.harden_next(site);
            }
            self.sync(site);
            if !site.is_closing() {
                self.closing.wait_until(seen, now() + self.tuning.lvr_pause);
            }
        }
    }

    fn close(&self) {
        self.closing.notify_all();
    }

    fn wants_unlogged(&self) -> bool {
        true
    }
}
