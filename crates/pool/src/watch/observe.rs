//! Observers of page references: for traces of what a workload asks for, and of what memory misses.
//!
//! ```text
//!   caller --- Read, Change ---> memory --- Fetch, WriteOut ---> flash, home
//! ```
//!
//! - O1: a page request is seen once: `Read` when it was served, or `Change` instead when its guard
//!   is given back after a change.
//! - O2: `Ahead` comes before the reads that a scan announces, whether memory has the page or not.
//! - O3: `Fetch` is a page that memory lacked and that is read, for whatever reason; `WriteOut` is
//!   a changed page whose new version was written to flash or home from memory.
//! - O4: of the misses a sample is always kept, by the pool itself, for `BufferPool::miss_curve`.
//! - O5: `SlotTaken` and `SlotLost` of a page take turns; a write after which a page has a slot is
//!   seen before that. What opening finds on flash is not told.
//! - Cost without an observer: a test of one word for each page request, a hash for each miss.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_page::PageId;
use terrace_policy::{MissCurve, MissSampler, sample_hash};
use terrace_rt::LeafMutex;

use crate::BufferPool;

/// What became of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageEvent {
    /// It was asked for, and not changed.
    Read,
    /// It was asked for, and changed.
    Change,
    /// A scan will soon ask for it.
    Ahead,
    /// Memory lacked it: it is read from flash or home.
    Fetch,
    /// What was changed of it was written to flash or home.
    WriteOut,
    /// It has a slot on flash from now on, with its bytes or to be written.
    SlotTaken,
    /// It has none any more.
    SlotLost,
}

/// Sees what becomes of pages. Called with latches held, and with leaf locks: it must neither wait
/// for a task nor call the pool.
pub trait PageObserver: Debug + Send + Sync {
    /// `page` went through `event`.
    fn saw(&self, page: PageId, event: PageEvent);
}

/// Pages of the sample of misses, at most: about half a MiB.
const SAMPLED_PAGES_MAX: u32 = 4096;

/// A sample of misses, and a copy of its bound, which is read without the lock.
pub(crate) struct SampledMisses {
    sampler: LeafMutex<MissSampler>,
    bound: AtomicU64,
}

impl SampledMisses {
    pub fn new() -> SampledMisses {
        let sampler = MissSampler::new(SAMPLED_PAGES_MAX);
        let bound = AtomicU64::new(sampler.bound());
        SampledMisses { sampler: LeafMutex::new(sampler), bound }
    }

    /// Memory missed `page`, which was asked for.
    #[inline]
    pub fn miss(&self, page: PageId) {
        if sample_hash(page) < self.bound.load(Ordering::Relaxed) {
            self.sample(page);
        }
    }

    #[inline(never)]
    fn sample(&self, page: PageId) {
        let mut sampler = self.sampler.lock();
        sampler.miss(page);
        self.bound.store(sampler.bound(), Ordering::Relaxed);
    }
}

impl BufferPool {
    /// What a second tier of any size would have had of the misses since the pool was opened.
    #[must_use]
    pub fn miss_curve(&self) -> MissCurve {
        let misses = self.memory.partitions.iter().map(|part| part.books.lock().stats.misses).sum();
        self.memory.misses.sampler.lock().curve(misses)
    }
}
