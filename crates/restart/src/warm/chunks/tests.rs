//! The chunks against a naive model, with power cuts at random moments, and with damage.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use terrace_device::model::{Faults, Preset, SimDevice};
use terrace_device::{Device, Keep, Store, read, write};
use terrace_page::{Lsn, PAGE_SIZE, PageId};
use terrace_policy::{History, RestartKind, Tick};
use terrace_rt::{Nanos, Prng, Stopped, Virtual, VirtualConfig};
use terrace_tier::{Mutation, Mutations};

use super::*;
use crate::recover::{ColdStart, Place};
use crate::warm::entry::Entry;
use crate::warm::form::{Loaded, OnFlash};
use crate::warm::kind::{FormKind, Resumed};

const TABLE: u64 = 77;
const SESSIONS: u64 = 6;

/// What a slot holds: page, version, first change that home lacks.
type Held = (u64, u64, Option<u64>);
type Model = BTreeMap<u32, Held>;

/// A change as the model has it.
#[derive(Clone, Copy)]
enum Change {
    Filled(u32, Held),
    Cleaned(u32, u64),
    Freed(u32),
}

impl Change {
    fn draw(prng: &mut Prng, slots: u32) -> Change {
        let slot = prng.below(u64::from(slots)) as u32;
        let page = prng.below(20);
        match prng.below(4) {
            0 => Change::Freed(slot),
            1 => Change::Cleaned(slot, page),
            _ => {
                let lsn = 1 + prng.below(1 << 30);
                let newer = prng.chance(2).then_some(lsn & !4095);
                Change::Filled(slot, (page, lsn, newer))
            }
        }
    }

    fn apply(self, model: &mut Model) {
        match self {
            Change::Filled(slot, held) => drop(model.insert(slot, held)),
            Change::Freed(slot) => drop(model.remove(&slot)),
            Change::Cleaned(slot, page) => {
                if let Some(held) = model.get_mut(&slot).filter(|held| held.0 == page) {
                    held.2 = None;
                }
            }
        }
    }

    fn record(self, now: u64) -> Record {
        match self {
            Change::Filled(slot, (page, lsn, newer)) => {
                let history = History::once(Tick(now));
                let entry = Entry::of(PageId(page), Lsn(lsn), newer.map(Lsn), history, Tick(now));
                Record { slot, entry }
            }
            Change::Cleaned(slot, page) => Record { slot, entry: Entry::cleaned(PageId(page)) },
            Change::Freed(slot) => Record { slot, entry: Entry::FREE },
        }
    }
}

fn held(loaded: &Loaded<Resumed>) -> Model {
    let of_slot = |(slot, entry): (u32, &Entry)| {
        let image = entry.image(loaded.now)?;
        let lsn = image.lsn.expect("an entry has an LSN").0;
        Some((slot, (image.page.0, lsn, image.newer.map(|lsn| lsn.0))))
    };
    (0..).zip(&loaded.entries).filter_map(of_slot).collect()
}

/// What was written: each write's changes; how many writes returned; what home names.
#[derive(Default)]
struct Told {
    writes: Vec<Vec<Change>>,
    returned: usize,
    named: u64,
}

impl Told {
    fn after(&self, writes: usize) -> Model {
        let mut model = Model::new();
        self.writes[..writes].iter().flatten().for_each(|change| change.apply(&mut model));
        model
    }

    /// Of how many writes `found` is the outcome: none that returned may be missing.
    fn writes_of(&self, found: &Model) -> Result<usize, String> {
        let mut so_far = self.returned..=self.writes.len();
        so_far.find(|&writes| self.after(writes) == *found).ok_or_else(|| {
            let (returned, all) = (self.returned, self.writes.len());
            format!("the table is that of no number of writes from {returned} to {all}")
        })
    }
}

fn place<'a>(flash: &'a dyn Device, layout: FlashLayout) -> Place<'a> {
    let (clean, began) = (false, Lsn::ZERO);
    Place { flash, layout, table: TABLE, clean, began }
}

/// Opens the table, holds it against what was told, and goes on telling until the power is cut.
fn session(
    flash: &dyn Device,
    layout: &FlashLayout,
    told: &RefCell<Told>,
    mutations: Mutations,
    prng: &mut Prng,
) -> Result<(), String> {
    let named = told.borrow().named;
    let loaded = FormKind::Chunks.read(&place(flash, *layout), named, mutations);
    let mut form = match loaded {
        Ok(loaded) => {
            let mut told = told.borrow_mut();
            let writes = told.writes_of(&held(&loaded))?;
            told.writes.truncate(writes);
            told.returned = writes;
            FormKind::Chunks.open(layout, Some(loaded.at))
        }
        Err(ColdStart::Table) if told.borrow().returned == 0 => {
            told.borrow_mut().writes.clear();
            FormKind::Chunks.open(layout, None)
        }
        Err(cold) => return Err(format!("after {} writes: {cold}", told.borrow().returned)),
    };
    for now in 1.. {
        let few = if prng.chance(8) { 300 } else { 12 };
        let count = 1 + prng.below(few);
        let changes: Vec<Change> = (0..count).map(|_| Change::draw(prng, layout.slots)).collect();
        let records: Vec<Record> = changes.iter().map(|change| change.record(now)).collect();
        told.borrow_mut().writes.push(changes);
        let on_flash = OnFlash { flash, layout, table: TABLE, now };
        form.write(&on_flash, &records, None).map_err(|error| error.to_string())?;
        let mut told = told.borrow_mut();
        told.returned = told.writes.len();
        if prng.chance(3) {
            told.named = form.position();
        }
    }
    Ok(())
}

fn device(seed: u64, layout: &FlashLayout, handle: &terrace_rt::World) -> Arc<SimDevice> {
    let store = Store::new(layout.bytes(), Keep::Plain);
    let faults = Faults { seed, ..Faults::default() };
    SimDevice::with_faults(Preset::Nvme.spec().with_write_cache(), handle.clone(), store, faults)
}

/// Sessions on one device, each cut at random.
fn survive(seed: u64, mutations: Mutations) -> Result<usize, String> {
    let mut prng = Prng::from_seed(seed);
    let most = [12, 60, 700, 9000][prng.below(4) as usize];
    let layout = FlashLayout::new(1 + prng.below(most) as u32, RestartKind::MapChunks);
    let told = Rc::new(RefCell::new(Told::default()));
    let idle = Virtual::new(VirtualConfig { seed, ..VirtualConfig::default() });
    let mut flash = device(seed, &layout, &idle.world());
    for round in 0..SESSIONS {
        let seed = seed * 100 + round;
        let world = Virtual::new(VirtualConfig { seed, ..VirtualConfig::default() });
        world.cut_at(Nanos(1 + prng.below([1_000_000, 20_000_000][round as usize % 2])));
        flash = flash.reopen(world.world());
        let mut chance = Prng::from_seed(seed);
        let ended = world.run(|| session(&*flash, &layout, &told, mutations, &mut chance));
        match ended {
            Ok(Ok(())) => unreachable!("a session is cut"),
            Ok(Err(lost)) => return Err(format!("session {round}: {lost}")),
            Err(Stopped::PowerCut { .. }) => drop(flash.power_cut(&mut Prng::from_seed(seed + 7))),
            Err(stopped) => panic!("{stopped}"),
        }
    }
    let returned = told.borrow().returned;
    Ok(returned)
}

#[test]
fn what_was_written_survives_power_cuts_and_no_part_of_a_write_does() {
    let mut writes = 0;
    for seed in 0..300 {
        match survive(seed, Mutations::NONE) {
            Ok(returned) => writes += returned,
            Err(lost) => panic!("seed {seed}: {lost}"),
        }
    }
    assert!(writes > 10_000, "{writes} writes returned");
}

#[test]
fn log_pages_that_count_one_by_one_are_found_out() {
    let mutations = Mutation::ChunksCountAlone.into();
    let caught = (0..300).find(|&seed| survive(seed, mutations).is_err());
    println!("log pages count one by one: seed {caught:?}");
    assert!(caught.is_some(), "nobody misses it");
}

/// A table of some writes on a device that is whole; `then` looks at it.
fn with_table(seed: u64, then: impl FnOnce(&dyn Device, &FlashLayout, &Model, u64)) {
    let mut prng = Prng::from_seed(seed);
    let layout = FlashLayout::new(40 + prng.below(3000) as u32, RestartKind::MapChunks);
    let world = Virtual::new(VirtualConfig { seed, ..VirtualConfig::default() });
    let flash = device(seed, &layout, &world.world());
    let ran = world.run(|| {
        let mut form = FormKind::Chunks.open(&layout, None);
        let mut model = Model::new();
        for now in 1..60 {
            let some: Vec<Change> =
                (0..50).map(|_| Change::draw(&mut prng, layout.slots)).collect();
            let records: Vec<Record> = some.iter().map(|change| change.record(now)).collect();
            some.iter().for_each(|change| change.apply(&mut model));
            let on_flash = OnFlash { flash: &*flash, layout: &layout, table: TABLE, now };
            form.write(&on_flash, &records, None).expect("a device that is whole");
        }
        then(&*flash, &layout, &model, form.position());
    });
    ran.expect("nothing stops it");
}

#[test]
fn a_damaged_page_is_told_and_never_taken_for_what_was_before() {
    let (mut told, mut harmless) = (0, 0);
    for seed in 0..20 {
        with_table(seed, |flash, layout, model, position| {
            let whole = FormKind::Chunks.read(&place(flash, *layout), position, Mutations::NONE);
            assert_eq!(held(&whole.expect("a whole table")), *model);
            for page in layout.table..layout.first_slot {
                let at = page * PAGE_SIZE as u64;
                let mut staging = terrace_page_io::Staging::new(1);
                read(flash, at, &mut staging.pages_mut()[0][..]).expect("a page");
                staging.pages_mut()[0][100] ^= 4;
                write(flash, at, &staging.pages()[0][..]).expect("a page");
                match FormKind::Chunks.read(&place(flash, *layout), position, Mutations::NONE) {
                    Ok(loaded) => {
                        assert_eq!(held(&loaded), *model, "seed {seed}, page {page}");
                        harmless += 1;
                    }
                    Err(ColdStart::Table) => told += 1,
                    Err(cold) => panic!("seed {seed}, page {page}: {cold}"),
                }
                staging.pages_mut()[0][100] ^= 4;
                write(flash, at, &staging.pages()[0][..]).expect("a page");
            }
        });
    }
    // Half of the pages do not count.
    assert!(told > 100 && harmless > 100, "{told} told, {harmless} harmless");
}

#[test]
fn a_table_of_an_earlier_position_is_refused() {
    with_table(3, |flash, layout, _, position| {
        let later = FormKind::Chunks.read(&place(flash, *layout), position + 1, Mutations::NONE);
        assert_eq!(later.err(), Some(ColdStart::Table));
        let another = Place { table: TABLE + 1, ..place(flash, *layout) };
        let read = FormKind::Chunks.read(&another, position, Mutations::NONE);
        assert_eq!(read.err(), Some(ColdStart::Table));
    });
}

#[test]
fn ages_do_not_drift_as_a_log_page_is_rewritten() {
    let layout = FlashLayout::new(4000, RestartKind::MapChunks);
    let world = Virtual::new(VirtualConfig::default());
    let flash = device(1, &layout, &world.world());
    let ran = world.run(|| {
        let mut form = FormKind::Chunks.open(&layout, None);
        let start = 1_000_000;
        for now in start..start + 300 {
            let on_flash = OnFlash { flash: &*flash, layout: &layout, table: TABLE, now };
            let slot = (now - start) as u32;
            let record = Change::Filled(slot, (slot.into(), 5, None)).record(now);
            form.write(&on_flash, &[record], None).expect("a write");
        }
        let read = FormKind::Chunks.read(&place(&*flash, layout), 300, Mutations::NONE);
        let loaded = read.expect("a table");
        for slot in 0..300 {
            let used = loaded.entries[slot].image(loaded.now).expect("a page").history.last.0;
            assert!(used.abs_diff(start + slot as u64) <= 1, "slot {slot} was used at {used}");
        }
    });
    ran.expect("nothing stops it");
}
