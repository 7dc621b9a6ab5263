//! The design that picks itself, over the same slots by age, the same shadows and the same choices
//! as the pool: `auto`.
//!
//! - C1: what requests cost is what the modelled devices are busy with for each, loaded; the pool
//!   fits that to the counters of its devices.
//! - C2: the prices of memory's policy follow the loads: what both devices were busy with since the
//!   last decision, over what the busier one was, as a loaded system goes as fast as that lets it.
//! - C3: a page that both have is read from flash: that the pool spills such reads to home is not
//!   modelled, since nothing queues here.
//! - C4: after a change away from write-back what is newer than home goes there, one run for each
//!   page that leaves memory: the pool's cleaner has eight runs under way at a time.

use super::aged_slots::AgedSlots;
use super::residents::Residents;
use super::{Allocated, DeviceTraffic, FlashSetup, FlashTier, Held, Leaving, Miss, Note, Traffic};
use crate::places::Places;
use terrace_page::{PageId, SlotId};
use terrace_policy::replacement::sketch::{FrequencySketch, page_hash};
use terrace_policy::{
    AccessClass, AdmissionRule, BusyCosts, CHOICES, Choice, Chooser, DirtyLeave, Filling, History,
    Prices, SKETCH_SLOTS, admit,
};

/// Pages in a write of the cleaner, before there was one.
const CLEANED_TOGETHER: f64 = 2.0;

/// Slots that go by what was chosen.
pub struct ChosenTier<'a> {
    chooser: Chooser,
    choice: Choice,
    busy: BusyCosts,
    prices: Prices,
    /// What home and flash were asked for until the last decision.
    before: [DeviceTraffic; 2],
    slots: AgedSlots<'a>,
    uses: FrequencySketch,
    filling: Filling,
}

fn id(page: u32) -> PageId {
    PageId(u64::from(page))
}

impl<'a> ChosenTier<'a> {
    pub fn new(pages_count: u32, places: &'a Places, setup: &FlashSetup) -> ChosenTier<'a> {
        let slots = setup.slots;
        ChosenTier {
            chooser: Chooser::new(slots, setup.tau, setup.cleaning.lambda),
            choice: CHOICES[0],
            busy: setup.busy,
            prices: Prices::new(setup.costs.home_read / setup.costs.flash_read),
            before: Default::default(),
            slots: AgedSlots::new(pages_count, places, setup),
            uses: FrequencySketch::new((slots / SKETCH_SLOTS).max(1)),
            filling: Filling::new(slots, setup.tau),
        }
    }

    fn is_sampled(&self, page: u32) -> bool {
        Chooser::samples(self.chooser.one_in(), id(page))
    }

    /// Memory misses `page`: a choice may be due.
    fn asked(&mut self, page: u32, residents: &mut Residents, io: &Traffic) {
        self.uses.count(page_hash(id(page)));
        if !self.is_sampled(page) || !self.chooser.asked(id(page)) {
            return;
        }
        let together = match self.slots.cleaned {
            (_, 0) => CLEANED_TOGETHER,
            (pages, writes) => pages as f64 / writes as f64,
        };
        let home_clean = self.busy.home_write / together;
        let costs = BusyCosts { home_clean, ..self.busy };
        self.choice = self.chooser.decide(&costs);
        self.tell_prices(&costs, io);
        residents.price_ratio = Some(self.prices.ratio());
    }

    /// The loads since the last decision (C2).
    fn tell_prices(&mut self, costs: &BusyCosts, io: &Traffic) {
        let since = |now: DeviceTraffic, before: DeviceTraffic| {
            // Counts begin anew where the tiers have been filled.
            let less = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now) as f64;
            (less(now.reads, before.reads), less(now.writes, before.writes))
        };
        let [home_before, flash_before] = self.before;
        let (home, flash) = (since(io.home, home_before), since(io.flash, flash_before));
        self.before = [io.home, io.flash];
        let home = home.0 * costs.home_read + home.1 * costs.home_write;
        let flash = flash.0 * costs.flash_read + flash.1 * costs.flash_write;
        let busier = home.max(flash);
        if busier > 0.0 {
            self.prices.told(home / busier, flash / busier, costs.home_read / costs.flash_read);
        }
    }

    /// A slot for the page that leaves, without its bytes, if it is admitted by what is chosen.
    fn admitted(&mut self, leaving: &Leaving) -> Option<SlotId> {
        let class = match self.choice.admission {
            AdmissionRule::Nothing => return None,
            AdmissionRule::RandomClass | AdmissionRule::Frequency => leaving.class,
            _ => AccessClass::Random,
        };
        let AgedSlots { ages, copies, .. } = &mut self.slots;
        let used = copies.slots_count() - ages.free_count();
        let filling = class == AccessClass::Sequential && self.filling.is_on(used);
        admit(class, filling, 0, 0, 1).ok()?;
        let slot = match ages.take_free(leaving.now) {
            Some(slot) => slot,
            None => {
                let victim = ages.victim(self.choice.order, |_| true)?;
                let former = copies.page(victim).expect("a filled slot has a page");
                let of = |page: u32| self.uses.estimate(page_hash(id(page)));
                let compares = self.choice.admission == AdmissionRule::Frequency;
                if compares && of(leaving.page) <= of(former) {
                    return None;
                }
                ages.take(victim);
                victim
            }
        };
        copies.put(leaving.page, slot, Held::Stale);
        Some(slot)
    }

    /// Writes the page that leaves, if it is admitted. Whether it was.
    fn write(&mut self, leaving: &Leaving, held: Held, io: &mut Traffic) -> bool {
        let slot = self.admitted(leaving);
        if let Some(slot) = slot {
            self.slots.write(leaving.page, slot, leaving.history, held, io);
        }
        slot.is_some()
    }

    fn write_back(&mut self, leaving: &Leaving, io: &mut Traffic) {
        if self.write(leaving, Held::Dirty, io) {
            self.slots.clean(io);
        } else {
            io.write_home(leaving.page);
        }
    }
}

impl Allocated for ChosenTier<'_> {
    fn bytes(&self) -> usize {
        self.chooser.bytes() + self.uses.bytes() + self.slots.bytes()
    }
}

impl FlashTier for ChosenTier<'_> {
    fn fetch(
        &mut self,
        miss: &Miss,
        residents: &mut Residents,
        io: &mut Traffic,
    ) -> Option<History> {
        let slot = self.slots.copies.slot(miss.page);
        let history = slot.map(|slot| self.slots.read(slot, miss, io));
        if history.is_none() {
            io.read_home(miss.page);
        }
        self.asked(miss.page, residents, io);
        history
    }

    fn note(&mut self, note: Note, _: &mut Traffic) {
        let Note::Changes(page) = note else { return };
        if self.is_sampled(page) {
            self.chooser.changed(id(page));
        }
        self.slots.forget(page);
    }

    fn leave(&mut self, leaving: &Leaving, io: &mut Traffic) {
        let dirty = self.choice.dirty;
        match leaving.dirty {
            false if self.held(leaving.page).has_slot() => {}
            false => {
                self.write(leaving, Held::Clean, io);
            }
            true if dirty == DirtyLeave::Flash => self.write_back(leaving, io),
            true => {
                io.write_home(leaving.page);
                if dirty == DirtyLeave::FlashAndHome {
                    self.write(leaving, Held::Clean, io);
                }
            }
        }
        if self.is_sampled(leaving.page) {
            let is_reused = leaving.history.previous.is_some();
            self.chooser.left(id(leaving.page), leaving.dirty, leaving.class, is_reused);
        }
        if dirty != DirtyLeave::Flash && self.slots.has_dirty() {
            self.slots.clean_run(io);
        }
    }

    #[inline]
    fn held(&self, page: u32) -> Held {
        self.slots.copies.held(page)
    }
}
