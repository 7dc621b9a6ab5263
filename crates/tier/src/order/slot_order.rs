//! The trait through which the table uses an order of slots: what the order is told, and what it is
//! asked. The table knows the states of slots, and the order only what it is told of them.
//!
//! ```text
//!        take_free            filled              taken
//! free ------------> busy ------------> filled -----------> busy
//!  ^                  |                                       |
//!  +------------------+----------- freed ---------------------+
//! ```

use terrace_page::{Lsn, PageId, SlotId};
use terrace_policy::{AgeOrder, CleanKey, History, SlotBits, Tick};

use super::LogSlots;
use crate::{Image, NoVictim, Shares, SlotState};

/// The page for which a slot is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Asks {
    /// The page.
    pub page: PageId,
    /// The slot that it already has and cannot use, if there is one.
    pub own: Option<SlotId>,
    /// Whether admission compares the page with the victim, which may stay then.
    pub compares: bool,
}

/// What a slot holds that is filled.
#[derive(Clone, Copy, Debug)]
pub enum Fill {
    /// The version that home has, of a page with these uses.
    Clean(History),
    /// A version of which home lacks changes from an LSN on, of a page with these uses.
    Dirty(History, Lsn),
    /// The same page as before, which home has now.
    Cleaned,
    /// The same page as before, of which home still lacks changes from an LSN on.
    StillDirty(Lsn),
}

/// What was counted of a page.
#[derive(Clone, Copy, Debug)]
pub enum Count {
    /// A read from a device.
    Read,
    /// A write to a device.
    Write,
    /// Requests to memory, of which a device served some.
    InMemory {
        /// All of them.
        logical: u32,
        /// Those that a device served.
        physical: u32,
    },
}

/// The slots of a table, as an order sees them.
pub trait Slots {
    /// How many there are.
    fn count(&self) -> u32;
    /// The page of a slot that is not free.
    fn page(&self, slot: SlotId) -> PageId;
    /// Whether a filled slot may be reused now.
    fn is_evictable(&self, slot: SlotId) -> bool;
    /// Whether a slot is newer than home, and no task uses the slot.
    fn is_cleanable(&self, slot: SlotId) -> bool;
    /// Whether a slot is newer than home; `None` if it is free.
    fn is_dirty(&self, slot: SlotId) -> Option<bool>;
}

/// The same slots, except that those in `kept` may not be reused.
struct But<'a, S> {
    slots: &'a S,
    kept: &'a SlotBits,
}

impl<S: Slots> Slots for But<'_, S> {
    fn count(&self) -> u32 {
        self.slots.count()
    }

    fn page(&self, slot: SlotId) -> PageId {
        self.slots.page(slot)
    }

    fn is_evictable(&self, slot: SlotId) -> bool {
        !self.kept.has(slot.0) && self.slots.is_evictable(slot)
    }

    fn is_cleanable(&self, slot: SlotId) -> bool {
        self.slots.is_cleanable(slot)
    }

    fn is_dirty(&self, slot: SlotId) -> Option<bool> {
        self.slots.is_dirty(slot)
    }
}

/// An order of the slots of a partition. An order leaves out the methods that it has no use for.
pub trait SlotOrder {
    /// Bytes allocated.
    fn bytes(&self) -> usize;

    /// Takes a free slot for `page`.
    fn take_free(&mut self, page: PageId, now: Tick) -> Option<SlotId>;

    /// Names the slot to reuse, if one may give way to the page. Append logs reuse groups only.
    fn victim(
        &mut self,
        _asks: Asks,
        _slots: &impl Slots,
        _shares: &impl Shares,
    ) -> Result<SlotId, NoVictim> {
        Err(NoVictim::Busy)
    }

    /// As `victim`, but never one of the slots in `kept`. An order may count kept slots that it
    /// passes over as used at the given tick.
    fn victim_but(
        &mut self,
        (kept, _): (&SlotBits, Tick),
        asks: Asks,
        slots: &impl Slots,
        shares: &impl Shares,
    ) -> Result<SlotId, NoVictim> {
        self.victim(asks, &But { slots, kept }, shares)
    }

    /// A busy slot holds `page` now.
    fn filled(&mut self, slot: SlotId, page: PageId, fill: Fill, shares: &impl Shares);

    /// A filled slot becomes busy: it is about to be cleaned, its page changes, or moves on.
    fn taken(&mut self, slot: SlotId);

    /// The content of a clean slot, which is `former`, gives way to `page`; the slot is busy.
    fn replaced(&mut self, slot: SlotId, _former: PageId, _page: PageId) {
        self.taken(slot);
    }

    /// The page of slot `from` now has slot `to` instead.
    fn carried(&mut self, _from: SlotId, _to: SlotId) {}

    /// A slot is free; it held `page`, if it held one.
    fn freed(&mut self, slot: SlotId, page: Option<PageId>);

    /// The page in a slot was used at `now`.
    fn hit(&mut self, _slot: SlotId, _now: Tick) {}

    /// The uses of the page in a slot, if they are kept.
    fn history(&self, _slot: SlotId) -> Option<History> {
        None
    }

    /// The dirty slot to clean first, among those that `may` be.
    fn next_dirty(&self, _may: impl Fn(SlotId) -> bool) -> Option<SlotId> {
        None
    }

    /// As `next_dirty`, but that whose `rec` is least, where the order can tell.
    fn oldest_dirty(
        &self,
        may: impl Fn(SlotId) -> bool,
        _rec: impl Fn(u32) -> Lsn,
    ) -> Option<SlotId> {
        self.next_dirty(may)
    }

    /// Where a dirty slot stands among those of all partitions, if it is not cleaned by age.
    fn clean_key(&self, _slot: SlotId) -> Option<CleanKey> {
        None
    }

    /// A request for `page`, which has `slot` or none, was counted.
    fn counted(&mut self, _page: PageId, _slot: Option<SlotId>, _: Count, _: &impl Shares) {}

    /// Whether counts are to be halved, once all is counted.
    fn is_period_over(&self) -> bool {
        false
    }

    /// Forgets half of all counts.
    fn halve_counts(&mut self) {}

    /// Whether dirty slots are wanted clean ahead of need.
    fn wants_cleaning(&self) -> bool {
        false
    }

    /// The cleaner has taken a slot, or found none.
    fn cleaning_begun(&mut self) {}

    /// From now on victims are chosen by `order`, if the order of slots has a choice (`auto`).
    fn choose(&mut self, _order: AgeOrder) {}

    /// From now on only slots of a zone are given away: those that are free, and the `count` least
    /// of the others. Returns them.
    fn begin_zone(&mut self, _count: u32) -> Vec<SlotId> {
        Vec::new()
    }

    /// A new table is about to be filled with what opening found, with the clock at `now`.
    fn begin_restore(&mut self, _now: Tick) {}

    /// Opening found a slot filled.
    fn found(&mut self, _slot: SlotId, _image: &Image) {}

    /// All that opening found was told: `slots` are filled accordingly.
    fn settle(&mut self, slots: &impl Slots, shares: &impl Shares);

    /// The slots as those of an append log, if they are.
    fn log(&self) -> Option<&LogSlots> {
        None
    }

    /// As `log`, to change it.
    fn log_mut(&mut self) -> Option<&mut LogSlots> {
        None
    }

    /// Asserts that the order has `slot` where its state says.
    fn check_slot(&self, _slot: SlotId, _state: SlotState) {}

    /// Asserts the order's own invariants.
    fn check(&self);
}

/// The least of `slots` by `rec` that `may` be cleaned.
pub(super) fn oldest(
    slots: impl Iterator<Item = SlotId>,
    may: impl Fn(SlotId) -> bool,
    rec: impl Fn(u32) -> Lsn,
) -> Option<SlotId> {
    slots.filter(|&slot| may(slot)).min_by_key(|&slot| (rec(slot.0), slot.0))
}

/// Where a policy with heaps of clean and dirty slots has a slot in this state.
pub(super) fn in_heaps(state: SlotState) -> terrace_policy::HeapState {
    match state {
        SlotState::Free => terrace_policy::HeapState::Free,
        SlotState::Clean => terrace_policy::HeapState::Clean,
        SlotState::Dirty => terrace_policy::HeapState::Dirty,
        _ => terrace_policy::HeapState::Busy,
    }
}
