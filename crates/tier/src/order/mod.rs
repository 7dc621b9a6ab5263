//! Who is reused next, whatever the replacement: the policies of a partition's slots behind one
//! door, so that the table of slots knows states and nothing of orders.

use terrace_page::{Lsn, PageId, SlotId};
use terrace_policy::{
    AgeOrder, CHOICES, Expansion, History, NoBenefit, Replacement, SlotAges, SlotBenefit, SlotHeat,
    SlotLru2, SlotState, TacRule, Temperatures, Tick,
};

use crate::{Image, Lend, NoVictim, Shares, SlotRules};
pub(crate) use policy_ranks::PolicyRanks;

mod log_slots;
mod policy_ranks;

pub use log_slots::{Leaving, LogSlots};

/// The replacement of a partition's slots.
pub enum Ranks {
    Lru2(SlotLru2),
    Heat(SlotHeat, TacRule),
    Log(LogSlots),
    Benefit(SlotBenefit),
    Policy(Box<PolicyRanks>),
    Ages(SlotAges, AgeOrder),
}

impl Ranks {
    pub fn new(count: u32, frames: u32, rules: &SlotRules, shares: &impl Shares) -> Ranks {
        match rules.replacement {
            Replacement::Nothing => unreachable!("a design without slots has no table"),
            Replacement::Lru2 => Ranks::Lru2(SlotLru2::new(count, rules.order)),
            Replacement::Temperature => Ranks::Heat(SlotHeat::new(count), rules.tac_rule),
            Replacement::Benefit | Replacement::AnticipatedBenefit => {
                Ranks::Benefit(shares.lend(|expansion: &mut Expansion| {
                    SlotBenefit::new(count, frames, &rules.costs, expansion)
                }))
            }
            Replacement::Policy(kind) => {
                let cleaner = rules.keeps_dirty.then_some(rules.order);
                Ranks::Policy(Box::new(PolicyRanks::new(kind, count, cleaner)))
            }
            Replacement::Recency | Replacement::Chosen => {
                let is_chosen = rules.replacement == Replacement::Chosen;
                let order = if is_chosen { CHOICES[0].order } else { AgeOrder::Recency };
                Ranks::Ages(SlotAges::new(count, u64::from(rules.tier_slots)), order)
            }
            Replacement::Fifo | Replacement::Rotating => Ranks::Log(LogSlots::fifo(count, false)),
            Replacement::FifoSecondChance => Ranks::Log(LogSlots::fifo(count, true)),
            Replacement::BlockWeight => Ranks::Log(LogSlots::blocks(count, rules.blocks)),
        }
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        match self {
            Ranks::Lru2(ranks) => ranks.bytes(),
            Ranks::Heat(ranks, ..) => ranks.bytes(),
            Ranks::Log(log) => log.bytes(),
            Ranks::Benefit(ranks) => ranks.bytes(),
            Ranks::Policy(ranks) => ranks.bytes(),
            Ranks::Ages(ages, _) => ages.bytes(),
        }
    }

    /// From now on slots leave by `order`.
    pub fn choose(&mut self, order: AgeOrder) {
        if let Ranks::Ages(_, by) = self {
            *by = order;
        }
    }

    /// Takes a free slot for `page`.
    pub fn take_free(&mut self, page: PageId, now: Tick) -> Option<u32> {
        let slot = match self {
            Ranks::Lru2(ranks) => ranks.take_free(now)?,
            Ranks::Heat(ranks, ..) => ranks.take_free()?,
            Ranks::Log(log) => log.take(now)?,
            Ranks::Benefit(ranks) => ranks.take_free(page)?,
            Ranks::Policy(ranks) => ranks.take_free(now)?,
            Ranks::Ages(ages, _) => ages.take_free(now)?,
        };
        Some(slot.0)
    }

    /// Names the slot to reuse among those that are `evictable`, if one may give way to `page`,
    /// which may have one already. Those that are `cleanable` may be wanted clean. If admission
    /// `compares`, the slot may be kept yet.
    pub fn victim(
        &mut self,
        (page, own, compares): (PageId, Option<u32>, bool),
        shares: &impl Lend<Temperatures>,
        page_of: impl Fn(SlotId) -> PageId,
        evictable: impl Fn(SlotId) -> bool,
        cleanable: impl Fn(SlotId) -> bool,
    ) -> Result<u32, NoVictim> {
        match self {
            Ranks::Lru2(ranks) => ranks.victim(evictable).map(|slot| slot.0).ok_or(NoVictim::Busy),
            Ranks::Heat(ranks, rule) => shares.lend(|temperatures| {
                let victim = ranks.victim(temperatures, &page_of, evictable);
                let victim = victim.ok_or(NoVictim::Busy)?;
                let admitted = temperatures.admits(*rule, page, page_of(victim));
                if admitted { Ok(victim.0) } else { Err(NoVictim::Colder) }
            }),
            Ranks::Log(_) => unreachable!("slots of an append log leave in order"),
            Ranks::Policy(ranks) if compares => ranks.contender(page_of, evictable),
            Ranks::Policy(ranks) => ranks.victim(page, page_of, evictable),
            Ranks::Ages(ages, order) => {
                ages.victim(*order, evictable).map(|slot| slot.0).ok_or(NoVictim::Busy)
            }
            Ranks::Benefit(ranks) => {
                match ranks.victim(page, own.map(SlotId), evictable, cleanable) {
                    Ok(victim) => Ok(victim.0),
                    Err(NoBenefit::Least) => Err(NoVictim::Colder),
                    Err(NoBenefit::NotYet) => Err(NoVictim::Busy),
                }
            }
        }
    }

    /// A busy slot now holds what home holds of `page`.
    pub fn fill_clean(
        &mut self,
        slot: u32,
        page: PageId,
        history: History,
        shares: &impl Lend<Temperatures>,
    ) {
        match self {
            Ranks::Lru2(ranks) => ranks.fill_clean(SlotId(slot), history),
            Ranks::Heat(ranks, _) => {
                shares.lend(|temperatures| ranks.insert(SlotId(slot), page, temperatures));
            }
            Ranks::Log(_) => {}
            Ranks::Benefit(ranks) => ranks.fill_clean(SlotId(slot)),
            Ranks::Policy(ranks) => ranks.fill_clean(SlotId(slot), page, history),
            Ranks::Ages(ages, _) => ages.fill_clean(SlotId(slot), history),
        }
    }

    /// A busy slot now holds a page newer than home.
    pub fn fill_dirty(&mut self, slot: u32, history: History, rec_lsn: Lsn) {
        match self {
            Ranks::Lru2(ranks) => ranks.fill_dirty(SlotId(slot), history, rec_lsn),
            Ranks::Heat(..) => unreachable!("temperature designs write through"),
            Ranks::Log(log) => log.set_dirty(slot, true),
            Ranks::Benefit(ranks) => ranks.fill_dirty(SlotId(slot)),
            Ranks::Policy(ranks) => ranks.fill_dirty(SlotId(slot), history, rec_lsn),
            Ranks::Ages(ages, _) => ages.fill_dirty(SlotId(slot), history),
        }
    }

    /// A slot that was taken to be cleaned is as new as home.
    pub fn was_cleaned(&mut self, slot: u32, page: PageId) {
        match self {
            Ranks::Lru2(ranks) => {
                let history = ranks.history(SlotId(slot));
                ranks.fill_clean(SlotId(slot), history);
            }
            Ranks::Heat(..) => unreachable!("temperature designs write through"),
            Ranks::Log(_) => {}
            Ranks::Benefit(ranks) => ranks.fill_clean(SlotId(slot)),
            Ranks::Policy(ranks) => ranks.was_cleaned(SlotId(slot), page),
            Ranks::Ages(ages, _) => ages.was_cleaned(SlotId(slot), true),
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
            Ranks::Log(log) => log.set_dirty(slot, true),
            Ranks::Benefit(ranks) => ranks.fill_dirty(SlotId(slot)),
            Ranks::Policy(ranks) => ranks.was_not_cleaned(SlotId(slot), rec_lsn),
            Ranks::Ages(ages, _) => ages.was_cleaned(SlotId(slot), false),
        }
    }

    /// The page in `slot` was used at `now`.
    pub fn hit(&mut self, slot: u32, now: Tick) {
        match self {
            Ranks::Lru2(ranks) => ranks.hit(SlotId(slot), now),
            Ranks::Log(log) => log.hit(SlotId(slot), now),
            Ranks::Heat(..) | Ranks::Benefit(..) => {}
            Ranks::Policy(ranks) => ranks.hit(SlotId(slot), now),
            Ranks::Ages(ages, _) => ages.hit(SlotId(slot), now),
        }
    }

    /// The uses of the page in `slot`, if the policy keeps them.
    pub fn history(&self, slot: u32) -> Option<History> {
        match self {
            Ranks::Lru2(ranks) => Some(ranks.history(SlotId(slot))),
            Ranks::Heat(..) | Ranks::Log(_) | Ranks::Benefit(..) => None,
            Ranks::Policy(ranks) => ranks.cleaner.as_ref().map(|it| it.history(SlotId(slot))),
            Ranks::Ages(ages, _) => Some(ages.history(SlotId(slot))),
        }
    }

    /// The dirty slot to clean first, among those that are `cleanable`.
    pub fn next_dirty(&self, cleanable: impl Fn(SlotId) -> bool) -> Option<u32> {
        match self {
            Ranks::Lru2(ranks) => ranks.next_dirty(cleanable).map(|slot| slot.0),
            Ranks::Heat(..) => None,
            Ranks::Log(log) => log.next_dirty(cleanable),
            Ranks::Benefit(ranks) => ranks.next_dirty(cleanable).map(|slot| slot.0),
            Ranks::Policy(ranks) => ranks.cleaner.as_ref()?.next_dirty(cleanable).map(|it| it.0),
            Ranks::Ages(ages, _) => ages.next_dirty(cleanable).map(|slot| slot.0),
        }
    }

    /// As `next_dirty`, but that whose `rec` is least, if the order is not by age in any case.
    pub fn oldest_dirty(
        &self,
        cleanable: impl Fn(SlotId) -> bool,
        rec: impl Fn(u32) -> Lsn,
    ) -> Option<u32> {
        match self {
            Ranks::Lru2(_) | Ranks::Heat(..) | Ranks::Policy(_) => self.next_dirty(cleanable),
            Ranks::Log(log) => {
                let cleanable = log.dirty().filter(|&slot| cleanable(SlotId(slot)));
                cleanable.min_by_key(|&slot| (rec(slot), slot))
            }
            Ranks::Ages(ages, _) => {
                let slots = ages.dirty_slots().filter(|&slot| cleanable(slot));
                slots.map(|slot| slot.0).min_by_key(|&slot| (rec(slot), slot))
            }
            Ranks::Benefit(ranks) => {
                let slots = ranks.dirty_slots().filter(|&slot| cleanable(slot));
                slots.map(|slot| slot.0).min_by_key(|&slot| (rec(slot), slot))
            }
        }
    }

    /// Whether dirty slot `a` goes to the cleaner before dirty slot `b` of partition `other`.
    pub fn cleans_before(&self, a: u32, other: &Ranks, b: u32) -> bool {
        match (self, other) {
            (Ranks::Lru2(ranks), Ranks::Lru2(others)) => {
                ranks.cleans_before(SlotId(a), others, SlotId(b))
            }
            (Ranks::Benefit(ranks), Ranks::Benefit(others)) => {
                ranks.cleans_before(SlotId(a), others, SlotId(b))
            }
            (Ranks::Policy(ranks), Ranks::Policy(others)) => {
                let both = ranks.cleaner.as_ref().zip(others.cleaner.as_ref());
                let (ranks, others) = both.expect("a design that keeps dirty pages");
                ranks.cleans_before(SlotId(a), others, SlotId(b))
            }
            (Ranks::Ages(ages, _), Ranks::Ages(others, _)) => {
                ages.cleans_before(SlotId(a), others, SlotId(b))
            }
            _ => unreachable!("partitions are of one design, and temperature's has no cleaner"),
        }
    }

    /// A filled slot becomes busy.
    pub fn take(&mut self, slot: u32) {
        match self {
            Ranks::Lru2(ranks) => ranks.take(SlotId(slot)),
            Ranks::Heat(ranks, ..) => ranks.remove(SlotId(slot)),
            Ranks::Log(log) => log.set_dirty(slot, false),
            Ranks::Benefit(ranks) => ranks.take(SlotId(slot)),
            Ranks::Policy(ranks) => ranks.take(SlotId(slot)),
            Ranks::Ages(ages, _) => ages.take(SlotId(slot)),
        }
    }

    /// The content of clean `slot`, which is `former`, gives way to `page`; the slot is busy.
    pub fn replace(&mut self, slot: u32, former: PageId, page: PageId) {
        match self {
            Ranks::Benefit(ranks) => ranks.replace(SlotId(slot), former, page),
            Ranks::Lru2(_)
            | Ranks::Heat(..)
            | Ranks::Log(_)
            | Ranks::Policy(_)
            | Ranks::Ages(..) => self.take(slot),
        }
    }

    /// The page of slot `from` has slot `to` in its stead.
    pub fn carry(&mut self, from: u32, to: u32) {
        if let Ranks::Benefit(ranks) = self {
            ranks.carry(SlotId(from), SlotId(to));
        }
    }

    /// The content of `slot` is gone, which was `page`, if it was still anybody's.
    pub fn free(&mut self, slot: u32, page: Option<PageId>) {
        match self {
            Ranks::Lru2(ranks) => ranks.free(SlotId(slot)),
            Ranks::Heat(ranks, ..) => ranks.free(SlotId(slot)),
            Ranks::Log(log) => log.emptied(slot),
            Ranks::Benefit(ranks) => ranks.free(SlotId(slot), page),
            Ranks::Policy(ranks) => ranks.free(SlotId(slot)),
            Ranks::Ages(ages, _) => ages.free(SlotId(slot)),
        }
    }

    /// From now on only slots of a zone are given away, if the order is one by benefit: those that
    /// are free, and the `count` least of the others. Returns them.
    pub fn begin_zone(&mut self, count: u32) -> Vec<u32> {
        match self {
            Ranks::Benefit(ranks) => {
                ranks.begin_zone(count).into_iter().map(|slot| slot.0).collect()
            }
            _ => unreachable!("a zone is of the slots that benefit least"),
        }
    }

    /// A new table is about to be filled with what opening found, with the clock at `now`.
    pub fn begin_restore(&mut self, now: Tick) {
        match self {
            Ranks::Lru2(ranks) => ranks.begin_restore(now),
            Ranks::Heat(..) | Ranks::Log(_) | Ranks::Benefit(..) => {}
            Ranks::Policy(ranks) => ranks.begin_restore(now),
            Ranks::Ages(ages, _) => ages.begin_restore(now),
        }
    }

    /// Opening found `slot` filled.
    pub fn found(&mut self, slot: u32, image: &Image) {
        match self {
            Ranks::Lru2(ranks) => ranks.found(SlotId(slot), image.history, image.newer),
            Ranks::Heat(..) | Ranks::Log(_) => {}
            Ranks::Benefit(ranks) => ranks.found(SlotId(slot), image.history),
            Ranks::Policy(ranks) => ranks.found(SlotId(slot), image),
            Ranks::Ages(ages, _) => ages.found(SlotId(slot), image.history),
        }
    }

    /// All was told: `is_dirty` says of each slot that is filled whether it is newer than home.
    pub fn end_restore(
        &mut self,
        slots_count: u32,
        shares: &impl Lend<Temperatures>,
        page_of: impl Fn(SlotId) -> PageId,
        is_dirty: impl Fn(SlotId) -> Option<bool>,
    ) {
        match self {
            Ranks::Lru2(ranks) => ranks.settle(is_dirty),
            Ranks::Heat(ranks, _) => shares.lend(|temperatures| {
                ranks.occupy(|slot| is_dirty(slot).is_some());
                let slots = (0..slots_count).map(SlotId);
                for slot in slots.filter(|&slot| is_dirty(slot).is_some()) {
                    ranks.insert(slot, page_of(slot), temperatures);
                }
            }),
            Ranks::Log(log) => {
                log.restore(|slot| is_dirty(slot).is_some());
                for slot in (0..slots_count).filter(|&slot| is_dirty(SlotId(slot)) == Some(true)) {
                    log.set_dirty(slot, true);
                }
            }
            Ranks::Benefit(ranks) => ranks.settle(is_dirty),
            Ranks::Policy(ranks) => ranks.settle(is_dirty),
            Ranks::Ages(ages, _) => ages.settle(is_dirty),
        }
    }

    /// Asserts that the policy has `slot` where its state says.
    pub fn check_slot(&self, slot: u32, expected: SlotState) {
        let state = match self {
            Ranks::Lru2(ranks) => ranks.state(SlotId(slot)),
            Ranks::Heat(..) | Ranks::Log(_) => return,
            Ranks::Benefit(ranks) => ranks.state(SlotId(slot)),
            Ranks::Ages(ages, _) => {
                let (free, dirty) = (expected == SlotState::Free, expected == SlotState::Dirty);
                assert_eq!(ages.state(SlotId(slot)), (free, dirty), "slot {slot}");
                return;
            }
            Ranks::Policy(ranks) => match &ranks.cleaner {
                Some(cleaner) => cleaner.state(SlotId(slot)),
                None => return,
            },
        };
        assert_eq!(state, expected, "slot {slot}");
    }

    /// Asserts the policy's own invariants.
    pub fn check(&self) {
        match self {
            Ranks::Lru2(ranks) => ranks.check(),
            Ranks::Heat(ranks, ..) => ranks.check(),
            Ranks::Log(log) => log.check(),
            Ranks::Benefit(ranks) => ranks.check(),
            Ranks::Policy(ranks) => ranks.check(),
            Ranks::Ages(ages, _) => ages.check(),
        }
    }
}
