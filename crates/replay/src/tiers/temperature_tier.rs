//! TAC, over the same temperatures and slots as the pool [S4 3].
//!
//! - H1: a page that is read from home is written to flash at once, if its extent is warm enough;
//!   the papers' race with a change that comes first is not modelled.
//! - H2: a slot whose page was changed stays its page's, out of the heap, until the page is
//!   written home: then it is written there again.

use super::{FlashSetup, FlashTier, Leaving, Miss, Traffic};
use crate::places::Places;
use terrace_page::{PageId, SlotId};
use terrace_policy::{History, SlotHeat, TacRule, Temperatures};

/// No slot.
const NONE: u32 = u32::MAX;

pub struct TemperatureTier {
    temperatures: Temperatures,
    heat: SlotHeat,
    rule: TacRule,
    ids: Vec<PageId>,
    slots: Vec<u32>,
    pages: Vec<u32>,
}

impl TemperatureTier {
    pub fn new(places: &Places, setup: &FlashSetup) -> TemperatureTier {
        let ids = places.by_extents();
        let aging = if setup.tac_aging == 0 { u64::from(setup.slots) } else { setup.tac_aging };
        TemperatureTier {
            temperatures: Temperatures::new(setup.saved, aging),
            heat: SlotHeat::new(setup.slots),
            rule: setup.tac_rule,
            slots: vec![NONE; ids.len()],
            pages: vec![NONE; setup.slots as usize],
            ids,
        }
    }

    fn slot(&self, page: u32) -> Option<SlotId> {
        let slot = self.slots[page as usize];
        (slot != NONE).then_some(SlotId(slot))
    }

    /// A slot for `page`, if its extent is warm enough.
    fn admitted(&mut self, page: u32) -> Option<SlotId> {
        if let Some(slot) = self.heat.take_free() {
            return Some(slot);
        }
        let (pages, ids) = (&self.pages, &self.ids);
        let id_of = |slot: SlotId| ids[pages[slot.0 as usize] as usize];
        let victim = self.heat.victim(&self.temperatures, id_of, |_| true)?;
        if !self.temperatures.admits(self.rule, ids[page as usize], id_of(victim)) {
            return None;
        }
        self.heat.remove(victim);
        self.slots[self.pages[victim.0 as usize] as usize] = NONE;
        Some(victim)
    }

    fn write(&mut self, slot: SlotId, page: u32, io: &mut Traffic) {
        self.slots[page as usize] = slot.0;
        self.pages[slot.0 as usize] = page;
        self.heat.insert(slot, self.ids[page as usize], &self.temperatures);
        io.write_flash();
    }
}

impl FlashTier for TemperatureTier {
    fn fetch(&mut self, miss: &Miss, io: &mut Traffic) -> Option<History> {
        self.temperatures.on_miss(self.ids[miss.page as usize], miss.requests);
        if self.holds(miss.page) {
            io.read_flash();
            return Some(History::once(miss.now));
        }
        io.read_home(miss.page);
        let slot = self.slot(miss.page).or_else(|| self.admitted(miss.page));
        if let Some(slot) = slot {
            self.write(slot, miss.page, io);
        }
        None
    }

    fn change(&mut self, page: u32) {
        if let Some(slot) = self.slot(page)
            && self.heat.is_ranked(slot)
        {
            self.heat.remove(slot);
        }
    }

    fn leave(&mut self, leaving: &Leaving, io: &mut Traffic) {
        if !leaving.dirty {
            return;
        }
        io.write_home(leaving.page);
        if let Some(slot) = self.slot(leaving.page) {
            self.write(slot, leaving.page, io);
        }
    }

    fn holds(&self, page: u32) -> bool {
        self.slot(page).is_some_and(|slot| self.heat.is_ranked(slot))
    }
}
