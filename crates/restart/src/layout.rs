//! Where things lie on the flash device.
//!
//! ```text
//! page 0          8                                     first_slot
//! +----------------+-----------------+-----------------+------------------------+
//! | header, spare  | table           | journal         | slots                  |
//! +----------------+-----------------+-----------------+------------------------+
//! ```
//!
//! | restart | table | journal |
//! |---|---|---|
//! | `forget`, `lbr` | - | - |
//! | `mmr` | 32 bytes a slot | - |
//! | `lvr` | 64 bytes a slot | - |
//! | `warm`, `map-log`, `map-segments`, `map-zone` | two copies of 16 bytes a slot | a ring of blocks |
//! | `map-chunks`, `map-through` | two copies of each chunk, 16 bytes a slot | two log pages a chunk |

use terrace_page::PAGE_SIZE;
use terrace_policy::RestartKind;

/// Pages before the table: the header is in the first.
const HEADER_PAGES: u64 = 8;
/// Bytes of an entry of the memory-mapped table [S3 III-B].
pub(crate) const MAPPED_ENTRY_BYTES: usize = 32;
/// Bytes of an entry of the flusher's table [S3 III-D].
pub(crate) const FLUSHED_ENTRY_BYTES: usize = 64;
/// Entries in a page of the journalled table.
pub(crate) const PAGE_ENTRIES: u32 = 510;
/// Pages of a copy of a chunk of FASC's map, at most: the paper says several [S2 6].
const CHUNK_PAGES_MAX: u32 = 8;
/// A small tier has this many chunks all the same.
const CHUNKS_MIN: u32 = 4;
/// The journal is this many times as long as a copy of its table: the longer it is, the less often
/// the table is rewritten.
const JOURNAL_PER_TABLE: u64 = 4;
const JOURNAL_PAGES_MIN: u64 = 8;
/// 256 MiB: what opening reads of a journal, at most.
const JOURNAL_PAGES_MAX: u64 = 32 << 10;

/// The places of header, table, journal and slots, in pages of the flash device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashLayout {
    /// How many slots there are.
    pub slots: u32,
    /// The first page of the table.
    pub table: u64,
    /// Pages of the table, all copies together.
    pub table_pages: u64,
    /// The first page of the journal.
    pub journal: u64,
    /// Pages of the journal.
    pub journal_pages: u64,
    /// The page of slot 0.
    pub first_slot: u64,
}

impl FlashLayout {
    /// The layout of `slots` slots under `restart`.
    ///
    /// ```
    /// use terrace_policy::RestartKind;
    /// use terrace_restart::FlashLayout;
    ///
    /// let layout = FlashLayout::new(1000, RestartKind::Forget);
    /// assert_eq!(layout.pages(), 1008);
    /// assert_eq!(FlashLayout::fitting(1008, RestartKind::Forget).slots, 1000);
    /// ```
    #[must_use]
    pub fn new(slots: u32, restart: RestartKind) -> FlashLayout {
        let entries = |bytes: usize| (u64::from(slots) * bytes as u64).div_ceil(PAGE_SIZE as u64);
        let copy = u64::from(slots.div_ceil(PAGE_ENTRIES));
        let (table_pages, journal_pages) = match restart {
            RestartKind::Forget | RestartKind::LogBased => (0, 0),
            RestartKind::MemoryMapped => (entries(MAPPED_ENTRY_BYTES), 0),
            RestartKind::LazyVerification => (entries(FLUSHED_ENTRY_BYTES), 0),
            RestartKind::MapChunks | RestartKind::MapThrough => {
                let map = MapChunks::of(slots);
                (2 * u64::from(map.count * map.pages), 2 * u64::from(map.count))
            }
            // Beside what is merged, blocks are kept from where the frontier began.
            RestartKind::MapSegments | RestartKind::MapZone => {
                let journal = 2 * copy * JOURNAL_PER_TABLE;
                (2 * copy, journal.clamp(4 * JOURNAL_PAGES_MIN, 2 * JOURNAL_PAGES_MAX))
            }
            RestartKind::Warm | RestartKind::MapLog => {
                let journal = copy * JOURNAL_PER_TABLE;
                (2 * copy, journal.clamp(JOURNAL_PAGES_MIN, JOURNAL_PAGES_MAX))
            }
        };
        let (table, journal) = (HEADER_PAGES, HEADER_PAGES + table_pages);
        let first_slot = journal + journal_pages;
        FlashLayout { slots, table, table_pages, journal, journal_pages, first_slot }
    }

    /// The layout with the most slots on a device of `pages` pages; maybe none.
    #[must_use]
    pub fn fitting(pages: u64, restart: RestartKind) -> FlashLayout {
        let (mut fits, mut too_many) = (0, u64::from(u32::MAX).min(pages + 1));
        while fits + 1 < too_many {
            let middle = fits + (too_many - fits) / 2;
            match FlashLayout::new(middle as u32, restart).pages() <= pages {
                true => fits = middle,
                false => too_many = middle,
            }
        }
        FlashLayout::new(fits as u32, restart)
    }

    /// Pages of the device that it needs.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.first_slot + u64::from(self.slots)
    }

    /// The same in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pages() * PAGE_SIZE as u64
    }

    /// The first page of base copy `number` of the table.
    pub(crate) fn base_copy(&self, number: u64) -> u64 {
        self.table + (number % 2) * (self.table_pages / 2)
    }
}

/// Pages that hold `bytes`.
pub(super) fn pages_of(bytes: usize) -> usize {
    bytes.div_ceil(PAGE_SIZE)
}

/// How the slots of a tier are put into the chunks of FASC's map: chunk after chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MapChunks {
    pub count: u32,
    /// Slots of each; the last may have fewer.
    pub slots: u32,
    /// Pages of a copy of one.
    pub pages: u32,
}

impl MapChunks {
    pub fn of(slots: u32) -> MapChunks {
        let count = slots.div_ceil(CHUNK_PAGES_MAX * PAGE_ENTRIES).max(CHUNKS_MIN.min(slots));
        let each = slots.div_ceil(count.max(1));
        MapChunks { count, slots: each, pages: each.div_ceil(PAGE_ENTRIES) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_policy::RESTARTS;

    #[test]
    fn as_many_slots_as_fit_are_laid_out_one_after_the_other() {
        for restart in RESTARTS {
            for pages in [0, 7, 8, 9, 20, 21, 100, 183_501, 20_000_000] {
                let layout = FlashLayout::fitting(pages, restart.kind);
                let least = FlashLayout::new(0, restart.kind).pages();
                assert!(layout.pages() <= pages.max(least), "{} {pages}", restart.name);
                let more = FlashLayout::new(layout.slots + 1, restart.kind);
                assert!(more.pages() > pages, "{} {pages}", restart.name);
                assert_eq!(layout.table + layout.table_pages, layout.journal);
                assert_eq!(layout.journal + layout.journal_pages, layout.first_slot);
            }
        }
    }
}
