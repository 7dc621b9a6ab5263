//! What a flash tier would have done under other rules, on a sample of the pages.
//!
//! - Idea: the pages whose hash falls into a sample are followed through a tier in small, once for
//!   each set of rules: the same structure as the tier's own, without bytes. What it would have
//!   read and written is counted.
//! - H1: nothing here is told what the tier itself did: a shadow depends on the requests alone.
//! - H2: a changed page has no copy; a copy that is newer than home leaves only after it was
//!   cleaned; no more than a share of the copies is newer than home.
//! - Cost: 5.25 bytes per slot in small, and a walk over its pages for each event of the sample: a
//!   few hundred of each.
//! - Not for: layouts other than in place.

use super::Choice;
use terrace_page::{PageId, SlotId};
use terrace_policy::replacement::sketch::{FrequencySketch, page_hash};
use terrace_policy::{
    AccessClass, AdmissionRule, AgeOrder, DirtyLeave, Filling, History, SlotAges, Tick,
};

/// No page.
const NONE: u32 = u32::MAX;

/// What a set of rules would have asked of the devices, in requests; decayed by half at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    pub home_reads: f64,
    /// Dirty pages that left memory and were not admitted.
    pub home_writes: f64,
    pub flash_reads: f64,
    pub flash_writes: f64,
    /// Of `flash_writes`, those of pages newer than home.
    pub dirty_writes: f64,
    /// Pages that the cleaner took home.
    pub cleanings: f64,
}

impl Tally {
    pub fn halve(&mut self) {
        for count in [
            &mut self.home_reads,
            &mut self.home_writes,
            &mut self.flash_reads,
            &mut self.flash_writes,
            &mut self.dirty_writes,
            &mut self.cleanings,
        ] {
            *count /= 2.0;
        }
    }
}

/// What a tier in small is ruled by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShadowRules {
    pub admission: AdmissionRule,
    pub order: AgeOrder,
    /// Whether changed pages are admitted at all.
    pub takes_dirty: bool,
}

impl ShadowRules {
    /// Those of a choice.
    pub fn of(choice: &Choice) -> ShadowRules {
        ShadowRules {
            admission: choice.admission,
            order: choice.order,
            takes_dirty: choice.dirty != DirtyLeave::Home,
        }
    }
}

/// A page that leaves memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaving {
    pub page: u32,
    pub is_dirty: bool,
    pub class: AccessClass,
    pub history: History,
}

/// A tier in small.
pub(crate) struct Shadow {
    rules: ShadowRules,
    ages: SlotAges,
    pages: Box<[u32]>,
    filling: Filling,
    dirty_count: u32,
    dirty_max: u32,
    pub tally: Tally,
}

impl Shadow {
    /// A tier of `slots`, filled with everything up to the share `tau`, of which the share
    /// `lambda` may be newer than home.
    pub fn new(rules: ShadowRules, slots: u32, (tau, lambda): (f64, f64)) -> Shadow {
        Shadow {
            rules,
            ages: SlotAges::new(slots, u64::from(slots)),
            pages: vec![NONE; slots as usize].into(),
            filling: Filling::new(slots, tau),
            dirty_count: 0,
            dirty_max: (f64::from(slots) * lambda) as u32,
            tally: Tally::default(),
        }
    }

    pub fn bytes(&self) -> usize {
        self.ages.bytes() + 4 * self.pages.len()
    }

    fn find(&self, page: u32) -> Option<SlotId> {
        let slot = self.pages.iter().position(|&other| other == page)?;
        Some(SlotId(slot as u32))
    }

    /// Memory misses `page`.
    pub fn asked(&mut self, page: u32, now: Tick) {
        match self.find(page) {
            Some(slot) => {
                self.ages.hit(slot, now);
                self.tally.flash_reads += 1.0;
            }
            None => self.tally.home_reads += 1.0,
        }
    }

    /// `page` changes in memory.
    pub fn changed(&mut self, page: u32) {
        if let Some(slot) = self.find(page) {
            self.dirty_count -= u32::from(self.ages.state(slot).1);
            self.pages[slot.0 as usize] = NONE;
            self.ages.free(slot);
        }
    }

    /// A page leaves memory.
    pub fn left(&mut self, leaving: &Leaving, uses: &FrequencySketch, now: Tick) {
        if leaving.is_dirty {
            // Its entry may be from before the shadow knew the page.
            self.changed(leaving.page);
        } else if self.find(leaving.page).is_some() {
            return;
        }
        let may = self.rules.takes_dirty || !leaving.is_dirty;
        let slot = if may { self.admit(leaving, uses, now) } else { None };
        let Some(slot) = slot else {
            self.tally.home_writes += f64::from(u8::from(leaving.is_dirty));
            return;
        };
        self.pages[slot.0 as usize] = leaving.page;
        self.tally.flash_writes += 1.0;
        if leaving.is_dirty {
            self.tally.dirty_writes += 1.0;
            self.dirty_count += 1;
            self.ages.fill_dirty(slot, leaving.history);
            self.clean();
        } else {
            self.ages.fill_clean(slot, leaving.history);
        }
    }

    fn admit(&mut self, leaving: &Leaving, uses: &FrequencySketch, now: Tick) -> Option<SlotId> {
        if self.rules.admission == AdmissionRule::Nothing {
            return None;
        }
        let filling = self.filling.is_on(self.pages.len() as u32 - self.ages.free_count());
        let is_scanned = leaving.class == AccessClass::Sequential && !filling;
        if is_scanned && self.rules.admission != AdmissionRule::All {
            return None;
        }
        if let Some(slot) = self.ages.take_free(now) {
            return Some(slot);
        }
        let victim = self.ages.victim(self.rules.order, |_| true)?;
        let former = self.pages[victim.0 as usize];
        let of = |page: u32| uses.estimate(page_hash(PageId(u64::from(page))));
        if self.rules.admission == AdmissionRule::Frequency && of(leaving.page) <= of(former) {
            return None;
        }
        self.ages.take(victim);
        Some(victim)
    }

    /// Cleans what is above the share that may be newer than home.
    fn clean(&mut self) {
        while self.dirty_count > self.dirty_max {
            let Some(slot) = self.ages.next_dirty(|_| true) else { return };
            self.ages.take(slot);
            self.ages.was_cleaned(slot, true);
            self.dirty_count -= 1;
            self.tally.cleanings += 1.0;
        }
    }

    /// Asserts that the books agree.
    #[cfg(test)]
    fn check(&self) {
        self.ages.check();
        assert_eq!(self.ages.dirty_slots().count(), self.dirty_count as usize);
        assert!(self.dirty_count <= self.dirty_max.max(1), "H2");
        let used = self.pages.iter().filter(|&&page| page != NONE).count();
        assert_eq!(used, self.pages.len() - self.ages.free_count() as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use terrace_rt::Prng;

    const SLOTS: u32 = 24;

    fn rules(admission: AdmissionRule, takes_dirty: bool) -> ShadowRules {
        ShadowRules { admission, order: AgeOrder::Reuse, takes_dirty }
    }

    fn leaving(page: u32, is_dirty: bool, class: AccessClass) -> Leaving {
        Leaving { page, is_dirty, class, history: History::once(Tick(1)) }
    }

    /// While nothing has to give way a shadow is a map from page to whether it is dirty.
    #[test]
    fn a_shadow_with_room_agrees_with_a_map() {
        use AccessClass::Random;
        let mut uses = FrequencySketch::new(64);
        for seed in 0..200 {
            let mut prng = Prng::from_seed(seed);
            let all = rules(AdmissionRule::All, prng.chance(2));
            let mut shadow = Shadow::new(all, SLOTS, (0.9, 1.0));
            let (mut model, mut expected) = (BTreeMap::new(), Tally::default());
            for step in 0..300 {
                let (now, page) = (Tick(step + 1), prng.below(u64::from(SLOTS)) as u32);
                match prng.below(3) {
                    0 => {
                        uses.count(page_hash(PageId(u64::from(page))));
                        shadow.asked(page, now);
                        let is_here = model.contains_key(&page);
                        expected.flash_reads += f64::from(u8::from(is_here));
                        expected.home_reads += f64::from(u8::from(!is_here));
                    }
                    1 => {
                        shadow.changed(page);
                        model.remove(&page);
                    }
                    _ => {
                        let is_dirty = prng.chance(2);
                        shadow.left(&leaving(page, is_dirty, Random), &uses, now);
                        if is_dirty && !all.takes_dirty {
                            model.remove(&page);
                            expected.home_writes += 1.0;
                        } else if is_dirty || !model.contains_key(&page) {
                            model.insert(page, is_dirty);
                            expected.flash_writes += 1.0;
                            expected.dirty_writes += f64::from(u8::from(is_dirty));
                        }
                    }
                }
                shadow.check();
                assert_eq!(shadow.tally, expected, "seed {seed} step {step}");
                let dirty = model.values().filter(|&&is_dirty| is_dirty).count();
                assert_eq!(shadow.dirty_count as usize, dirty, "seed {seed} step {step}");
            }
        }
    }

    #[test]
    fn books_agree_whatever_is_asked_under_all_rules() {
        let admissions = [
            AdmissionRule::Nothing,
            AdmissionRule::RandomClass,
            AdmissionRule::All,
            AdmissionRule::Frequency,
        ];
        for seed in 0..200 {
            let mut prng = Prng::from_seed(seed);
            let rules = rules(admissions[prng.below(4) as usize], prng.chance(2));
            let mut shadow = Shadow::new(rules, SLOTS, (prng.f64(), prng.f64()));
            let mut uses = FrequencySketch::new(SLOTS);
            for step in 0..600 {
                let (now, page) = (Tick(step + 1), prng.below(90) as u32);
                match prng.below(4) {
                    0 => {
                        uses.count(page_hash(PageId(u64::from(page))));
                        shadow.asked(page, now);
                    }
                    1 => shadow.changed(page),
                    _ => {
                        let class =
                            [AccessClass::Random, AccessClass::Sequential][prng.below(2) as usize];
                        shadow.left(&leaving(page, prng.chance(2), class), &uses, now);
                    }
                }
                shadow.check();
            }
            let is_nothing = rules.admission == AdmissionRule::Nothing;
            assert_eq!(shadow.tally.flash_writes == 0.0, is_nothing, "seed {seed}");
        }
    }
}
