//! What the tier asks of the pool while it decides: the state of the devices, of memory and of
//! home. And what the pool does when a page loses its slot to another.

use std::sync::atomic::Ordering;

use terrace_page::PageId;
use terrace_policy::Tick;
use terrace_tier::{Around, Candidate, Displaced, Freed, Gauge, Mutation};

use crate::durability::ledger::Ledger;
use crate::memory::frames::Frame;
use crate::memory::{Books, Partition};
use crate::{BufferPool, PageEvent};

/// A partition of the pool around its slots, while its lock is held.
pub(crate) struct PoolAround<'a> {
    pool: &'a BufferPool,
    partition: &'a Partition,
    ledger: &'a Ledger,
    /// The frame of the page that is asked about, if one is.
    frame: Option<&'a Frame>,
}

impl BufferPool {
    /// The surroundings of the slots of `partition`, whose `ledger` this is.
    pub(crate) fn around<'a>(
        &'a self,
        partition: &'a Partition,
        ledger: &'a Ledger,
        frame: Option<&'a Frame>,
    ) -> PoolAround<'a> {
        PoolAround { pool: self, partition, ledger, frame }
    }

    /// A page lost its slot to another, or with the group that it was in.
    pub(crate) fn displaced(&self, partition: &Partition, books: &Books, displaced: Displaced) {
        let Displaced { page, slot } = displaced;
        partition.detach_slot(books, &self.memory.frames, page, slot);
        self.memory.observe(page, PageEvent::SlotLost);
        self.slot_freed(partition.first_slot + slot, page, Freed::Reused);
    }
}

/// The page of `frame`, as the tier is told of it.
pub(crate) fn candidate(frame: &Frame) -> Candidate {
    Candidate {
        page: frame.page().expect("a page to write"),
        slot: frame.slot(),
        is_dirty: frame.rec_lsn().is_some(),
        class: frame.class(),
    }
}

impl Around for PoolAround<'_> {
    fn now(&self) -> Tick {
        self.pool.memory.now()
    }

    fn is_filling(&self) -> bool {
        self.pool.is_filling()
    }

    fn is_in_memory(&self, page: PageId) -> bool {
        self.partition.has_frame(&self.pool.memory.frames, page)
    }

    fn frames(&self) -> u32 {
        self.partition.frames_count
    }

    fn is_usable(&self) -> bool {
        self.pool.devices.is_usable()
    }

    fn is_throttled(&self) -> bool {
        self.pool.devices.is_throttled()
    }

    fn is_over_budget(&self) -> bool {
        self.pool.devices.is_over_budget()
    }

    fn is_sharp(&self) -> bool {
        self.pool.durability.is_sharp()
    }

    fn is_going_home(&self, page: PageId) -> bool {
        !self.pool.config.mutations.has(Mutation::TwoHomeWrites) && self.ledger.is_going_home(page)
    }

    fn may_go_home(&self, page: PageId) -> bool {
        // What leaves before the end of recovery could take home back in time [S3 III-D6].
        !self.pool.restart.is_recovering() && self.ledger.may_go_home(page)
    }

    fn take_hits(&self) -> u32 {
        self.frame.map_or(0, |frame| self.partition.take_hits(frame))
    }

    fn slots_wanted(&self) {
        self.pool.slots_wanted();
    }

    fn cleaning_wanted(&self) {
        self.pool.cleaning.is_wanted.store(true, Ordering::Relaxed);
    }

    fn was_full(&self) {
        // More than any number of slots ends the filling for good.
        self.pool.traffic.filling.lock().is_on(u32::MAX);
    }
}

impl BufferPool {
    /// Whether the tier is being filled with every page [S0 3.3.1].
    pub(crate) fn is_filling(&self) -> bool {
        self.traffic.filling.lock().is_on(self.shares.gauge(Gauge::Used))
    }
}
