//! Tiers in small under every design, against models: a map while nothing has to give way, and the
//! number of pages that home lacks whatever happens.

mod plain;

use std::collections::BTreeMap;

use plain::Plain;
use terrace_page::PageId;
use terrace_policy::{
    AccessClass, AdmissionRule, Cleaning, Costs, DESIGNS, Design, History, Inclusion, Replacement,
    Tick, designs, replacement,
};
use terrace_rt::Prng;
use terrace_tier::{AnyOrder, CHOICES, Gauge, Leaves, Limits, LogSizes, Shadow, SlotRules, Tally};

const SLOTS: u32 = 24;
const PAGES: u64 = 90;
const GROUP: u32 = 3;

/// Every row, every choice of the one that picks itself, and a row with a policy over keys.
fn rows() -> Vec<Design> {
    let auto = designs::find("auto").unwrap();
    let chosen = |design| Design { replacement: Replacement::Recency, ..design };
    let keyed = Replacement::Policy(replacement::find("s3-fifo").unwrap().kind);
    let mut rows =
        DESIGNS.map(|row| if row == auto { chosen(CHOICES[0].of(auto)) } else { row }).to_vec();
    rows.extend(CHOICES.iter().map(|choice| chosen(choice.of(auto))));
    rows.push(Design { replacement: keyed, ..designs::find("lc").unwrap() });
    rows
}

fn shadow(design: Design, limits: Limits) -> (Shadow<AnyOrder, Plain>, Plain) {
    let shares = Plain::new();
    let rules = SlotRules {
        log: LogSizes { group: GROUP, ahead: 2 * GROUP, window: 50 },
        ..SlotRules::of_cache(design, SLOTS, Costs::PUBLISHED)
    };
    let slots = if design.uses_flash() { SLOTS } else { 0 };
    let order = AnyOrder::new((slots, 8), &rules, &shares);
    (Shadow::new(slots, order, (&rules, &shares), limits), shares)
}

fn leaves(page: PageId, is_dirty: bool, class: AccessClass, now: Tick) -> Leaves {
    Leaves { page, is_dirty, class, history: History::once(now) }
}

/// A shadow, and how many pages home lacks though memory has not changed them since they left it.
struct Followed {
    shadow: Shadow<AnyOrder, Plain>,
    shares: Plain,
    prng: Prng,
    now: Tick,
    in_memory: BTreeMap<PageId, bool>,
    /// Pages that left memory dirty.
    left_dirty: u64,
    /// Of these, those that changed again before home had them.
    superseded: u64,
}

impl Followed {
    fn lacking(&self) -> u64 {
        self.shares.gauge(Gauge::Dirty) as u64 + self.shadow.taken_over().count() as u64
    }

    /// What was lacking of `page` before it changes is not any more.
    fn supersede(&mut self, page: PageId) {
        let table = self.shadow.table();
        let on_flash = table.find(page).is_some_and(|slot| table.newer(slot).is_some());
        let in_memory = self.shadow.taken_over().any(|other| other == page);
        assert!(!on_flash || !in_memory, "{page} is in two places");
        self.superseded += u64::from(on_flash || in_memory);
    }

    fn step(&mut self) {
        self.now.0 += 1;
        let page = PageId(self.prng.below(PAGES).min(self.prng.below(PAGES)));
        match self.in_memory.get(&page).copied() {
            None => {
                self.shadow.asked(page, self.now);
                self.in_memory.insert(page, false);
            }
            Some(_) if self.prng.chance(3) => {
                self.supersede(page);
                self.shadow.changed(page);
                self.in_memory.insert(page, true);
            }
            Some(is_dirty) => {
                if is_dirty {
                    self.supersede(page);
                    self.left_dirty += 1;
                }
                let class = match self.prng.chance(4) {
                    true => AccessClass::Sequential,
                    false => AccessClass::Random,
                };
                self.shadow.left(&leaves(page, is_dirty, class, self.now), self.now);
                self.in_memory.remove(&page);
            }
        }
    }
}

#[test]
fn what_home_lacks_is_on_flash_or_in_memory_under_every_row() {
    for design in rows() {
        for seed in 0..30 {
            let mut prng = Prng::from_seed(seed);
            let limits = Limits { tau: prng.f64(), lambda: prng.f64() };
            let (shadow, shares) = shadow(design, limits);
            let mut followed = Followed {
                shadow,
                shares,
                prng,
                now: Tick(0),
                in_memory: BTreeMap::new(),
                left_dirty: 0,
                superseded: 0,
            };
            for step in 0..1_500 {
                followed.step();
                let context = format!("{}, seed {seed}, step {step}", design.name);
                let Followed { shadow, left_dirty, superseded, .. } = &followed;
                shadow.table().check();
                let tally = shadow.tally();
                let went_home = (tally.home_writes + tally.cleanings) as u64;
                assert_eq!(followed.lacking() + superseded + went_home, *left_dirty, "{context}");
                let is_bound = matches!(design.cleaning, Cleaning::AboveShare | Cleaning::Sweeps);
                let dirty_max = (f64::from(SLOTS) * limits.lambda) as u32;
                let dirty = shadow.table().gauge(Gauge::Dirty);
                assert!(!is_bound || dirty <= dirty_max, "{context}: {dirty} of {dirty_max}");
            }
            let tally = *followed.shadow.tally();
            let is_nothing = design.admission == AdmissionRule::Nothing;
            assert_eq!(tally.flash_writes == 0.0, is_nothing, "{}, seed {seed}", design.name);
            assert_eq!(tally.flash_reads == 0.0, is_nothing, "{}, seed {seed}", design.name);
        }
    }
}

/// While nothing has to give way a tier is a map from page to whether it is newer than home.
#[test]
fn a_shadow_with_room_agrees_with_a_map() {
    for choice in CHOICES.iter().filter(|choice| choice.admission != AdmissionRule::Nothing) {
        let auto = designs::find("auto").unwrap();
        let design = Design { replacement: Replacement::Recency, ..choice.of(auto) };
        assert_eq!(design.inclusion, Inclusion::Free);
        for seed in 0..20 {
            let mut prng = Prng::from_seed(seed);
            let (mut shadow, shares) = shadow(design, Limits { tau: 0.9, lambda: 1.0 });
            let (mut model, mut expected) = (BTreeMap::new(), Tally::default());
            for step in 0..300 {
                let (now, page) = (Tick(step + 1), PageId(prng.below(u64::from(SLOTS))));
                match prng.below(3) {
                    0 => {
                        shadow.asked(page, now);
                        match model.contains_key(&page) {
                            true => expected.flash_reads += 1.0,
                            false => expected.home_reads += 1.0,
                        }
                    }
                    1 => {
                        shadow.changed(page);
                        model.remove(&page);
                    }
                    _ => {
                        let is_dirty = prng.chance(2);
                        shadow.left(&leaves(page, is_dirty, AccessClass::Random, now), now);
                        left(&mut model, &mut expected, &design, (page, is_dirty));
                    }
                }
                let context = format!("{}, seed {seed}, step {step}", choice.title());
                assert_eq!(*shadow.tally(), expected, "{context}");
                let dirty = model.values().filter(|&&is_dirty| is_dirty).count();
                assert_eq!(shares.gauge(Gauge::Dirty), dirty, "{context}");
            }
        }
    }
}

fn left(
    model: &mut BTreeMap<PageId, bool>,
    expected: &mut Tally,
    design: &Design,
    (page, is_dirty): (PageId, bool),
) {
    use terrace_policy::DirtyLeave::{Flash, Home};
    if is_dirty && design.dirty_leave != Flash {
        expected.home_writes += 1.0;
    }
    if is_dirty && design.dirty_leave == Home {
        model.remove(&page);
    } else if is_dirty || !model.contains_key(&page) {
        model.insert(page, is_dirty && design.dirty_leave == Flash);
        expected.flash_writes += 1.0;
    }
}
