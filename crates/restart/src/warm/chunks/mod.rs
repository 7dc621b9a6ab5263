//! FASC's map [S2 6]: the table is divided into fixed chunks of several flash pages, each
//! with a log page of its own. Changes of a chunk are appended to its log page; when that is full,
//! they are merged into the chunk.
//!
//! ```text
//!  records ---> log page of their chunk ---full---> new copy of the chunk, and an empty log page
//!
//!  on flash, of each chunk:   copy A | copy B        log page A | log page B
//!                             the base-th is in      the older one, and the
//!                             place base % 2         newer, are in turn both
//! ```
//!
//! The paper does not say how a map survives a power cut in the middle of a write. Here nothing
//! that counts is ever overwritten:
//!
//! - C1: a log page holds all records since its chunk was merged, and is written whole into the one
//!   of its two places that does not count; likewise a chunk. A copy of a chunk is durable before a
//!   log page names it.
//! - C2: the log pages that one `write` touches bear its number, and how many they are. They count
//!   together: where one is missing, all count as they were before. So records of one write that go
//!   to many chunks are there all or not at all (form.F1).
//! - C3: a write begins when the one before is durable, and takes a new number. So only the last
//!   can be incomplete, and what it touched has its former log page in the other place.
//! - C4: each log page names the write that counted before it. A session that follows an incomplete
//!   write rewrites, with its first one, every log page that does not count, so that a later
//!   reader never has to judge two incomplete writes.
//! - C5: each log page has a digest of which write of each chunk counts. A chunk whose newest log
//!   page is damaged would be taken for what it was before; the digest tells (form.F3).
//! - C6: a write that fails has used up its number. What it may have left is rewritten by the next,
//!   as in C4.
//! - Cost: a random write of a page for each chunk that changes, once for each `write`; 16 bytes a
//!   slot, read and written, when a log page is full. Memory: the records in the log pages.
//!
//! Modules in reading order: `page`, the bytes; `table`, the form; `read`, what opening reads.

mod page;
mod read;
mod table;

pub(super) use page::fuzz;
pub(super) use read::read;
pub(super) use table::ChunkTable;

use super::entry::Record;
use crate::FlashLayout;
use crate::layout::MapChunks;

/// One of the two places of a log page, or of a copy of a chunk.
fn other(place: u64) -> u64 {
    1 - place
}

/// A record, with its age as of `then`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Logged {
    record: Record,
    then: u64,
}

/// What counts of a chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Chunk {
    /// The write that its log page bears; none has touched it: zero.
    number: u64,
    /// The place of that log page.
    place: u64,
    /// Which copy of the chunk it goes on from: the nth, or none yet.
    base: u64,
    /// What the log page holds.
    records: Vec<Logged>,
}

/// What counts of all chunks, and where writing goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunks {
    chunks: Vec<Chunk>,
    /// The last write that counts.
    last: u64,
    /// The number of the next.
    next: u64,
    /// C5.
    digest: u64,
    /// Chunks with a log page that does not count (C4, C6), ascending.
    stale: Vec<u32>,
}

impl Chunks {
    /// None was ever written.
    pub fn new(layout: &FlashLayout) -> Chunks {
        let count = MapChunks::of(layout.slots).count as usize;
        let digest = (0..count as u32).fold(0, |sum, chunk| sum ^ mixed(chunk, 0));
        let chunks = vec![Chunk::default(); count];
        Chunks { chunks, last: 0, next: 1, digest, stale: Vec::new() }
    }
}

/// What the digest has of `chunk`, whose log page bears `number`: the finalizer of splitmix64.
fn mixed(chunk: u32, number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(u64::from(chunk) + 1);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Where a chunk and its log pages are.
#[derive(Clone, Copy)]
struct Places<'a> {
    layout: &'a FlashLayout,
    map: MapChunks,
}

impl<'a> Places<'a> {
    fn of(layout: &'a FlashLayout) -> Places<'a> {
        Places { layout, map: MapChunks::of(layout.slots) }
    }

    fn chunk_of(&self, slot: u32) -> u32 {
        slot / self.map.slots
    }

    fn first_slot(&self, chunk: u32) -> u32 {
        chunk * self.map.slots
    }

    /// Slots of `chunk`: none if those before it have all.
    fn slots(&self, chunk: u32) -> u32 {
        let rest = self.layout.slots.saturating_sub(self.first_slot(chunk));
        self.map.slots.min(rest)
    }

    /// The first page of the nth copy of `chunk`.
    fn copy(&self, chunk: u32, base: u64) -> u64 {
        let half = self.layout.table_pages / 2;
        self.layout.table + (base % 2) * half + u64::from(chunk * self.map.pages)
    }

    fn log_page(&self, chunk: u32, place: u64) -> u64 {
        self.layout.journal + 2 * u64::from(chunk) + place
    }

    /// The number that page `at` of the nth copy of `chunk` bears.
    fn copy_number(&self, chunk: u32, base: u64, at: u32) -> u64 {
        (base << 32) | u64::from(chunk * self.map.pages + at)
    }

    /// Records that a log page holds: one for each slot of its chunk, if they find room. Beyond
    /// that a new copy is cheaper than what it would save.
    fn log_records(&self) -> usize {
        page::RECORDS_MAX.min(self.map.slots as usize).max(page::RECORDS_MIN)
    }
}

#[cfg(test)]
mod tests;
