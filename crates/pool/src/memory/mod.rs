//! Memory: its frames, the partitions that say which page is where, and the requests for pages.
//!
//! A request reads downward: `request` looks the page up and latches it; `fetch` gives it a frame
//! and reads it, which ends in `loading`; `history` is what a miss knows of others; `evict` makes
//! room, and `standstill` ends a wait for it that would not end; `guard` is what the caller holds.
//! `multi_read` does that for many pages together. `frames` has the bytes and latches, `directory`
//! finds a page's frame, `partition` has the lock that a miss takes.

pub(crate) mod directory;
pub(crate) mod evict;
pub(crate) mod fetch;
pub(crate) mod frames;
pub(crate) mod guard;
pub(crate) mod history;
pub(crate) mod loading;
pub(crate) mod multi_read;
pub(crate) mod partition;
pub(crate) mod peeks;
pub(crate) mod request;
pub(crate) mod standstill;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use terrace_page::{FrameId, PageId};
use terrace_policy::Tick;
use terrace_rt::Signal;

use crate::memory::directory::PageHash;
use crate::memory::frames::FrameTable;
use crate::memory::history::FetchHistory;
use crate::memory::partition::Partition;
use crate::memory::peeks::Peeks;
use crate::watch::observe::SampledMisses;

pub(crate) struct Memory {
    pub(crate) frames: FrameTable,
    /// Page requests that took no latch, as far as no frame counts them.
    pub(crate) peeks: Peeks,
    pub(crate) partitions: Box<[Partition]>,
    /// The clock of the policies: one tick for each miss.
    clock: AtomicU64,
    pub(crate) fetches: FetchHistory,
    /// Given when a partition runs low on free frames.
    pub(crate) frames_wanted: Signal,
    /// Runs that are being read ahead.
    pub(crate) read_aheads: AtomicU32,
    /// Batches on their way out, and pages on their way in.
    pub(crate) working: AtomicU32,
    pub(crate) misses: SampledMisses,
    /// Whether the tier wants to know how often each page was asked for.
    pub(crate) counts_hits: bool,
}

impl Memory {
    pub(crate) fn new(
        frames: FrameTable,
        partitions: Box<[Partition]>,
        now: Tick,
        counts_hits: bool,
    ) -> Memory {
        Memory {
            frames,
            peeks: Peeks::default(),
            partitions,
            clock: AtomicU64::new(now.0),
            fetches: FetchHistory::new(),
            frames_wanted: Signal::new(),
            read_aheads: AtomicU32::new(0),
            working: AtomicU32::new(0),
            misses: SampledMisses::new(),
            counts_hits,
        }
    }

    /// The tick of the latest miss.
    #[inline]
    pub(crate) fn now(&self) -> Tick {
        Tick(self.clock.load(Ordering::Relaxed))
    }

    /// A page is missed, at the tick that is returned.
    pub(crate) fn tick(&self) -> Tick {
        Tick(self.clock.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The partition of `page`.
    #[inline]
    pub(crate) fn partition(&self, page: PageId) -> &Partition {
        &self.partitions[self.partition_number(page)]
    }

    #[inline]
    pub(crate) fn partition_number(&self, page: PageId) -> usize {
        PageHash::of(page).partition(self.partitions.len())
    }

    /// The partition of `slot`, numbered over all partitions.
    pub(crate) fn partition_of_slot(&self, slot: u32) -> &Partition {
        let after = self.partitions.partition_point(|part| part.first_slot <= slot);
        &self.partitions[after - 1]
    }

    #[inline]
    pub(crate) fn lookup(&self, page: PageId) -> Option<FrameId> {
        let hash = PageHash::of(page);
        let partition = &self.partitions[hash.partition(self.partitions.len())];
        partition.find_frame(&self.frames, hash, page)
    }

    /// As `lookup`, for a page that will be looked into.
    #[inline]
    pub(crate) fn lookup_ahead(&self, page: PageId) -> Option<FrameId> {
        let hash = PageHash::of(page);
        let partition = &self.partitions[hash.partition(self.partitions.len())];
        partition.find_frame_ahead(&self.frames, hash, page)
    }

    /// Hits on pages that have left memory since.
    pub(crate) fn retired_hits(&self) -> u64 {
        self.partitions.iter().map(|part| part.retired_hits.load(Ordering::Relaxed)).sum()
    }
}
