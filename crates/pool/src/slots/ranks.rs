//! Who is reused next, whatever the replacement: the policies of a partition's slots behind one
//! door, so that the table of slots knows states and nothing of orders.

use std::sync::Arc;

use terrace_page::{Lsn, PageId, SlotId};
use terrace_policy::{
    History, Replacement, SlotHeat, SlotLru2, SlotState, TacRule, Temperatures, Tick,
};
use terrace_rt::LeafMutex;

use super::{NoVictim, SlotRules};
use crate::restart::Image;

/// The replacement of a partition's slots.
pub(super) enum Ranks {
    Lru2(SlotLru2),
    Heat(SlotHeat, Arc<LeafMutex<Temperatures>>, TacRule),
}

impl Ranks {
    pub fn new(
        count: u32,
        rules: &SlotRules,
        temperatures: &Arc<LeafMutex<Temperatures>>,
    ) -> Ranks {
        match rules.replacement {
            Replacement::Nothing => unreachable!("a design without slots has no table"),
            Replacement::Lru2 => Ranks::Lru2(SlotLru2::new(count, rules.order)),
            Replacement::Temperature => {
                Ranks::Heat(SlotHeat::new(count), Arc::clone(temperatures), rules.tac_rule)
            }
        }
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        match self {
            Ranks::Lru2(ranks) => ranks.bytes(),
            Ranks::Heat(ranks, ..) => ranks.bytes(),
        }
    }

    /// Takes a free slot.
    pub fn take_free(&mut self, now: Tick) -> Option<u32> {
        let slot = match self {
            Ranks::Lru2(ranks) => ranks.take_free(now)?,
            Ranks::Heat(ranks, ..) => ranks.take_free()?,
        };
        Some(slot.0)
    }

    /// Names the slot to reuse among those that are `evictable`, if one may give way to `page`.
    pub fn victim(
        &mut self,
        page: PageId,
        page_of: impl Fn(SlotId) -> PageId,
        evictable: impl Fn(SlotId) -> bool,
    ) -> Result<u32, NoVictim> {
        match self {
            Ranks::Lru2(ranks) => ranks.victim(evictable).map(|slot| slot.0).ok_or(NoVictim::Busy),
            Ranks::Heat(ranks, temperatures, rule) => {
                let temperatures = temperatures.lock();
                let victim = ranks.victim(&temperatures, &page_of, evictable);
                let victim = victim.ok_or(NoVictim::Busy)?;
                let admitted = temperatures.admits(*rule, page, page_of(victim));
                if admitted { Ok(victim.0) } else { Err(NoVictim::Colder) }
            }
        }
    }

    /// A busy slot now holds what home holds of `page`.
    pub fn fill_clean(&mut self, slot: u32, page: PageId, history: History) {
        match self {
            Ranks::Lru2(ranks) => ranks.fill_clean(SlotId(slot), history),
            Ranks::Heat(ranks, temperatures, _) => {
                ranks.insert(SlotId(slot), page, &temperatures.lock());
            }
        }
    }

    /// A busy slot now holds a page newer than home.
    pub fn fill_dirty(&mut self, slot: u32, history: History, rec_lsn: Lsn) {
        match self {
            Ranks::Lru2(ranks) => ranks.fill_dirty(SlotId(slot), history, rec_lsn),
            Ranks::Heat(..) => unreachable!("temperature designs write through"),
        }
    }

    /// A slot that was taken to be cleaned is as new as home.
    pub fn was_cleaned(&mut self, slot: u32) {
        match self {
            Ranks::Lru2(ranks) => {
                let history = ranks.history(SlotId(slot));
                ranks.fill_clean(SlotId(slot), history);
            }
            Ranks::Heat(..) => unreachable!("temperature designs write through"),
        }
    }

    /// A slot that was taken to be cleaned is still newer than home.
    pub fn was_not_cleaned(&mut self, slot: u32, rec_lsn: Lsn) {
        match self {
            Ranks::Lru2(ranks) => {
                let history = ranks.history(SlotId(slot));
                ranks.fill_dirty(SlotId(slot), history, rec_lsn);
            }
            Ranks::Heat(..) => unreachable!("temperature designs write through"),
        }
    }

    /// The page in `slot` was used at `now`.
    pub fn hit(&mut self, slot: u32, now: Tick) {
        if let Ranks::Lru2(ranks) = self {
            ranks.hit(SlotId(slot), now);
        }
    }

    /// The uses of the page in `slot`, if the policy keeps them.
    pub fn history(&self, slot: u32) -> Option<History> {
        match self {
            Ranks::Lru2(ranks) => Some(ranks.history(SlotId(slot))),
            Ranks::Heat(..) => None,
        }
    }

    /// The dirty slot to clean first, among those that are `cleanable`.
    pub fn next_dirty(&self, cleanable: impl Fn(SlotId) -> bool) -> Option<u32> {
        match self {
            Ranks::Lru2(ranks) => ranks.next_dirty(cleanable).map(|slot| slot.0),
            Ranks::Heat(..) => None,
        }
    }

    /// Whether dirty slot `a` goes to the cleaner before dirty slot `b` of partition `other`.
    pub fn cleans_before(&self, a: u32, other: &Ranks, b: u32) -> bool {
        match (self, other) {
            (Ranks::Lru2(ranks), Ranks::Lru2(others)) => {
                ranks.cleans_before(SlotId(a), others, SlotId(b))
            }
            _ => unreachable!("partitions are of one design, and temperature's has no cleaner"),
        }
    }

    /// A filled slot becomes busy.
    pub fn take(&mut self, slot: u32) {
        match self {
            Ranks::Lru2(ranks) => ranks.take(SlotId(slot)),
            Ranks::Heat(ranks, ..) => ranks.remove(SlotId(slot)),
        }
    }

    /// The content of `slot` is gone.
    pub fn free(&mut self, slot: u32) {
        match self {
            Ranks::Lru2(ranks) => ranks.free(SlotId(slot)),
            Ranks::Heat(ranks, ..) => ranks.free(SlotId(slot)),
        }
    }

    /// A new table is about to be filled with what opening found, with the clock at `now`.
    pub fn begin_restore(&mut self, now: Tick) {
        if let Ranks::Lru2(ranks) = self {
            ranks.begin_restore(now);
        }
    }

    /// Opening found `slot` filled.
    pub fn found(&mut self, slot: u32, image: &Image) {
        if let Ranks::Lru2(ranks) = self {
            ranks.found(SlotId(slot), image.history, image.newer);
        }
    }

    /// All was told: `is_dirty` says of each slot that is filled whether it is newer than home.
    pub fn end_restore(
        &mut self,
        slots_count: u32,
        page_of: impl Fn(SlotId) -> PageId,
        is_dirty: impl Fn(SlotId) -> Option<bool>,
    ) {
        match self {
            Ranks::Lru2(ranks) => ranks.settle(is_dirty),
            Ranks::Heat(ranks, temperatures, _) => {
                let temperatures = temperatures.lock();
                ranks.occupy(|slot| is_dirty(slot).is_some());
                let slots = (0..slots_count).map(SlotId);
                for slot in slots.filter(|&slot| is_dirty(slot).is_some()) {
                    ranks.insert(slot, page_of(slot), &temperatures);
                }
            }
        }
    }

    /// Asserts that the policy has `slot` where its state says.
    pub fn check_slot(&self, slot: u32, expected: SlotState) {
        if let Ranks::Lru2(ranks) = self {
            assert_eq!(ranks.state(SlotId(slot)), expected, "slot {slot}");
        }
    }

    /// Asserts the policy's own invariants.
    pub fn check(&self) {
        match self {
            Ranks::Lru2(ranks) => ranks.check(),
            Ranks::Heat(ranks, ..) => ranks.check(),
        }
    }
}
