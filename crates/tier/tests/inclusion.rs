//! Inclusive tiers: a page in memory keeps its slot, whatever the driver.

mod plain;

use plain::Plain;
use terrace_page::{Lsn, PageId};
use terrace_policy::{AccessClass, Costs, History, Tick, designs};
use terrace_tier::{
    AnyOrder, Around, Candidate, Displaced, Gauge, Outcome, Purpose, SlotRules, SlotTable, Version,
    Way,
};

const SLOTS: u32 = 100;

/// Nothing is the matter, at a time.
struct At(Tick);

impl Around for At {
    fn now(&self) -> Tick {
        self.0
    }

    fn is_filling(&self) -> bool {
        false
    }
}

fn read(page: u64, slot: Option<u32>) -> Candidate {
    Candidate { page: PageId(page), slot, is_dirty: false, class: AccessClass::Random }
}

/// A full tier, all of whose pages are in memory and were used at `before`.
fn full(before: Tick) -> SlotTable<AnyOrder, Plain> {
    let design = designs::find("inclusive").expect("a design");
    let (rules, shares) = (SlotRules::of_cache(design, SLOTS, Costs::PUBLISHED), Plain::new());
    let order = AnyOrder::new((SLOTS, SLOTS), &rules, &shares);
    let mut table = SlotTable::new(SLOTS, order, &rules, &shares);
    for page in 0..u64::from(SLOTS) {
        let (slot, _) = table.arrived(&read(page, None), &At(before)).expect("a free slot");
        let way = table.offer(&read(page, Some(slot)), &At(before));
        let Way::Write(writing, None) = way else { panic!("{way:?}") };
        let version = Version { lsn: Lsn(1), newer: None, history: History::once(before) };
        let _into = table.written(writing, Outcome::WRITTEN, &version, Some(slot));
        assert!(table.is_valid(slot));
    }
    assert_eq!(shares.gauge(Gauge::Used), SLOTS as usize);
    table
}

/// The table used to ask its driver which pages are in memory, and the drivers answered in two
/// ways: for the pool, slots up to the number of its frames were passed over and counted as used.
#[test]
fn a_slot_whose_page_is_in_memory_is_no_victim() {
    let (before, now) = (Tick(1), Tick(90));
    let mut table = full(before);
    let left = table.find(PageId(5)).expect("a page on flash");
    assert_eq!(table.evicted(Some(left)), Some(left));
    let displaced = Displaced { page: PageId(5), slot: left };
    assert_eq!(table.arrived(&read(200, None), &At(now)), Some((left, Some(displaced))));
    for slot in (0..SLOTS).filter(|&slot| slot != left) {
        assert!(table.history(slot).expect("it is filled").last < now, "slot {slot} was used");
    }
    assert_eq!(table.arrived(&read(201, None), &At(now)), None, "all are in memory");
}

#[test]
fn a_page_that_comes_from_flash_keeps_its_slot() {
    let mut table = full(Tick(1));
    let slot = table.find(PageId(7)).expect("a page on flash");
    let way = table.left(&read(7, Some(slot)), Purpose::Evict, &At(Tick(2)));
    assert_eq!(way, Way::Nothing, "flash has it");
    assert_eq!(table.evicted(Some(slot)), Some(slot));
    assert_eq!(table.arrived(&read(7, Some(slot)), &At(Tick(3))), None, "it has a slot");
    assert_eq!(table.arrived(&read(201, None), &At(Tick(4))), None, "all are in memory");
}
