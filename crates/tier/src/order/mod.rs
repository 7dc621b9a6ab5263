//! Which slot is reused next, and which dirty one is cleaned first: an order of slots, behind one
//! trait (`slot_order`).
//!
//! One file is one order: `lru_2`, `heat` (TAC), `benefit` (CC and CAC), `ages` (recency, and what
//! `auto` picks), `keyed` (a policy over keys), `log` (append logs). [`AnyOrder`] is the one that a
//! design asks for.

mod slot_order;

mod ages;
mod benefit;
mod heat;
mod keyed;
mod log;
mod lru_2;

pub use ages::AgesOrder;
pub use heat::HeatOrder;
pub use keyed::KeyedOrder;
pub use log::{Leaving, LogSlots};
pub use slot_order::{Asks, Count, Fill, SlotOrder, Slots};

use crate::{CHOICES, Image, NoVictim, Shares, SlotRules, SlotState};
use slot_order::{in_heaps, oldest};
use terrace_page::{Lsn, PageId, SlotId};
use terrace_policy::{
    AgeOrder, CleanKey, Expansion, History, Replacement, SlotAges, SlotBenefit, SlotBits, SlotHeat,
    SlotLru2, Tick,
};

/// The order of a partition's slots, of whichever kind its design asks for.
pub struct AnyOrder(Order);

enum Order {
    Nothing(NoSlots),
    Lru2(SlotLru2),
    Heat(HeatOrder),
    Log(LogSlots),
    Benefit(SlotBenefit),
    Keyed(Box<KeyedOrder>),
    Ages(AgesOrder),
}

impl AnyOrder {
    /// The order of `count` free slots by these rules, in a partition with `frames` frames.
    pub fn new((count, frames): (u32, u32), rules: &SlotRules, shares: &impl Shares) -> AnyOrder {
        AnyOrder(match rules.design.replacement {
            Replacement::Nothing => Order::Nothing(NoSlots),
            Replacement::Lru2 => Order::Lru2(SlotLru2::new(count, rules.order)),
            Replacement::Temperature => {
                Order::Heat(HeatOrder { slots: SlotHeat::new(count), rule: rules.tac_rule })
            }
            Replacement::Benefit | Replacement::AnticipatedBenefit => {
                Order::Benefit(shares.lend(|expansion: &mut Expansion| {
                    SlotBenefit::new(count, frames, &rules.costs, expansion)
                }))
            }
            Replacement::Policy(kind) => {
                let cleaner = rules.design.keeps_dirty_on_flash().then_some(rules.order);
                Order::Keyed(Box::new(KeyedOrder::new(kind, count, cleaner)))
            }
            Replacement::Recency | Replacement::Chosen => {
                let is_chosen = rules.design.replacement == Replacement::Chosen;
                let order = if is_chosen { CHOICES[0].order } else { AgeOrder::Recency };
                let ages = SlotAges::new(count, u64::from(rules.tier_slots));
                Order::Ages(AgesOrder { ages, order })
            }
            Replacement::Fifo | Replacement::Rotating => Order::Log(LogSlots::fifo(count, false)),
            Replacement::FifoSecondChance => Order::Log(LogSlots::fifo(count, true)),
            Replacement::BlockWeight => Order::Log(LogSlots::blocks(count, rules.log.blocks())),
        })
    }
}

/// The order of a design without a flash tier: there are no slots.
struct NoSlots;

impl SlotOrder for NoSlots {
    fn bytes(&self) -> usize {
        0
    }

    fn take_free(&mut self, _page: PageId, _now: Tick) -> Option<SlotId> {
        None
    }

    fn filled(&mut self, slot: SlotId, _: PageId, _: Fill, _: &impl Shares) {
        panic!("there is no {slot}");
    }

    fn taken(&mut self, slot: SlotId) {
        panic!("there is no {slot}");
    }

    fn freed(&mut self, slot: SlotId, _: Option<PageId>) {
        panic!("there is no {slot}");
    }

    fn settle(&mut self, _: &impl Slots, _: &impl Shares) {}

    fn check(&self) {}
}

/// Calls the same method of whichever order it is.
macro_rules! of_each {
    ($self:ident, $method:ident($($argument:expr),*)) => {
        match &$self.0 {
            Order::Nothing(order) => SlotOrder::$method(order, $($argument),*),
            Order::Lru2(order) => SlotOrder::$method(order, $($argument),*),
            Order::Heat(order) => SlotOrder::$method(order, $($argument),*),
            Order::Log(order) => SlotOrder::$method(order, $($argument),*),
            Order::Benefit(order) => SlotOrder::$method(order, $($argument),*),
            Order::Keyed(order) => SlotOrder::$method(&**order, $($argument),*),
            Order::Ages(order) => SlotOrder::$method(order, $($argument),*),
        }
    };
    (mut $self:ident, $method:ident($($argument:expr),*)) => {
        match &mut $self.0 {
            Order::Nothing(order) => SlotOrder::$method(order, $($argument),*),
            Order::Lru2(order) => SlotOrder::$method(order, $($argument),*),
            Order::Heat(order) => SlotOrder::$method(order, $($argument),*),
            Order::Log(order) => SlotOrder::$method(order, $($argument),*),
            Order::Benefit(order) => SlotOrder::$method(order, $($argument),*),
            Order::Keyed(order) => SlotOrder::$method(&mut **order, $($argument),*),
            Order::Ages(order) => SlotOrder::$method(order, $($argument),*),
        }
    };
}

impl SlotOrder for AnyOrder {
    fn bytes(&self) -> usize {
        of_each!(self, bytes())
    }

    fn take_free(&mut self, page: PageId, now: Tick) -> Option<SlotId> {
        of_each!(mut self, take_free(page, now))
    }

    fn victim(
        &mut self,
        asks: Asks,
        slots: &impl Slots,
        shares: &impl Shares,
    ) -> Result<SlotId, NoVictim> {
        of_each!(mut self, victim(asks, slots, shares))
    }

    fn victim_but(
        &mut self,
        kept: (&SlotBits, Tick),
        asks: Asks,
        slots: &impl Slots,
        shares: &impl Shares,
    ) -> Result<SlotId, NoVictim> {
        of_each!(mut self, victim_but(kept, asks, slots, shares))
    }

    fn filled(&mut self, slot: SlotId, page: PageId, fill: Fill, shares: &impl Shares) {
        of_each!(mut self, filled(slot, page, fill, shares));
    }

    fn taken(&mut self, slot: SlotId) {
        of_each!(mut self, taken(slot));
    }

    fn replaced(&mut self, slot: SlotId, former: PageId, page: PageId) {
        of_each!(mut self, replaced(slot, former, page));
    }

    fn carried(&mut self, from: SlotId, to: SlotId) {
        of_each!(mut self, carried(from, to));
    }

    fn freed(&mut self, slot: SlotId, page: Option<PageId>) {
        of_each!(mut self, freed(slot, page));
    }

    fn hit(&mut self, slot: SlotId, now: Tick) {
        of_each!(mut self, hit(slot, now));
    }

    fn history(&self, slot: SlotId) -> Option<History> {
        of_each!(self, history(slot))
    }

    fn next_dirty(&self, may: impl Fn(SlotId) -> bool) -> Option<SlotId> {
        of_each!(self, next_dirty(may))
    }

    fn oldest_dirty(
        &self,
        may: impl Fn(SlotId) -> bool,
        rec: impl Fn(u32) -> Lsn,
    ) -> Option<SlotId> {
        of_each!(self, oldest_dirty(may, rec))
    }

    fn clean_key(&self, slot: SlotId) -> Option<CleanKey> {
        of_each!(self, clean_key(slot))
    }

    fn counted(&mut self, page: PageId, slot: Option<SlotId>, what: Count, shares: &impl Shares) {
        of_each!(mut self, counted(page, slot, what, shares));
    }

    fn is_period_over(&self) -> bool {
        of_each!(self, is_period_over())
    }

    fn halve_counts(&mut self) {
        of_each!(mut self, halve_counts());
    }

    fn wants_cleaning(&self) -> bool {
        of_each!(self, wants_cleaning())
    }

    fn cleaning_begun(&mut self) {
        of_each!(mut self, cleaning_begun());
    }

    fn choose(&mut self, order: AgeOrder) {
        of_each!(mut self, choose(order));
    }

    fn begin_zone(&mut self, count: u32) -> Vec<SlotId> {
        of_each!(mut self, begin_zone(count))
    }

    fn begin_restore(&mut self, now: Tick) {
        of_each!(mut self, begin_restore(now));
    }

    fn found(&mut self, slot: SlotId, image: &Image) {
        of_each!(mut self, found(slot, image));
    }

    fn settle(&mut self, slots: &impl Slots, shares: &impl Shares) {
        of_each!(mut self, settle(slots, shares));
    }

    fn log(&self) -> Option<&LogSlots> {
        of_each!(self, log())
    }

    fn log_mut(&mut self) -> Option<&mut LogSlots> {
        of_each!(mut self, log_mut())
    }

    fn check_slot(&self, slot: SlotId, state: SlotState) {
        of_each!(self, check_slot(slot, state));
    }

    fn check(&self) {
        of_each!(self, check());
    }
}
