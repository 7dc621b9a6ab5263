//! Every structure against a naive model: random operations, and a power cut at every write and
//! every barrier.
//!
//! ```text
//!   life 1: load, settle | op op commit op ... | cut      life 2: open, compare, op op, compare
//!                                                 \--> a second cut while life 2 opens
//! ```
//!
//! After a cut the index must be as the model was after some number of operations, no fewer than
//! the last commit covers.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use terrace_device::model::{Preset, SimDevice, Spec};
use terrace_device::{Device, Keep as KeepBytes, Store};
use terrace_rt::{Prng, Stopped, Virtual, VirtualConfig};

use crate::{
    BTree, BTreeOptions, Bftl, BftlOptions, Devices, Error, FdOptions, FdTree, Fill, Index, Keep,
    Key, LeafRead, Op, PioOptions, PioTree, Pointer, Room, Source,
};

const PAGE_BYTES: usize = 512;
const PAGES_BYTES: u64 = 4 << 20;
/// Small, so that it is settled within a test.
const JOURNAL_BYTES: u64 = 128 << 10;
const KEYS: u64 = 400;

type Make = fn(Devices, Start) -> Result<Box<dyn Index>, Error>;

/// How an index begins.
enum Start {
    Load(Arc<dyn Source>),
    Open,
}

fn room() -> Room {
    Room { page_bytes: PAGE_BYTES, memory_pages: 6, pio_max: 4, search_pages: 40 }
}

fn btree(devices: Devices, start: Start) -> Result<Box<dyn Index>, Error> {
    let options = BTreeOptions { room: room(), keep_leaves: Keep::Lru, fill: Fill(0.7) };
    Ok(match start {
        Start::Load(source) => Box::new(BTree::load(devices, source, options)?),
        Start::Open => Box::new(BTree::open(devices, options)?),
    })
}

fn btree_through(devices: Devices, start: Start) -> Result<Box<dyn Index>, Error> {
    let options = BTreeOptions { room: room(), keep_leaves: Keep::Not, fill: Fill(1.0) };
    Ok(match start {
        Start::Load(source) => Box::new(BTree::load(devices, source, options)?),
        Start::Open => Box::new(BTree::open(devices, options)?),
    })
}

fn pio_of(devices: Devices, start: Start, options: PioOptions) -> Result<Box<dyn Index>, Error> {
    Ok(match start {
        Start::Load(source) => Box::new(PioTree::load(devices, source, options)?),
        Start::Open => Box::new(PioTree::open(devices, options)?),
    })
}

fn pio_options(segments: u32) -> PioOptions {
    PioOptions {
        room: room(),
        queue_pages: 1,
        sort_every: 10,
        batch_ops: 20,
        segments,
        leaf_read: LeafRead::Whole,
        keep_leaves: Keep::Lru,
        fill: Fill(0.7),
    }
}

fn pio(devices: Devices, start: Start) -> Result<Box<dyn Index>, Error> {
    pio_of(devices, start, pio_options(3))
}

fn pio_small(devices: Devices, start: Start) -> Result<Box<dyn Index>, Error> {
    let options = PioOptions { batch_ops: 1000, keep_leaves: Keep::Not, ..pio_options(1) };
    pio_of(devices, start, options)
}

fn pio_parts(devices: Devices, start: Start) -> Result<Box<dyn Index>, Error> {
    let leaf_read = LeafRead::Segment { operations: 2 };
    let options = PioOptions { leaf_read, keep_leaves: Keep::Not, ..pio_options(7) };
    pio_of(devices, start, options)
}

/// Read one way and then the other: a leaf that was appended to as a whole has operations behind
/// its entries.
fn pio_both(devices: Devices, start: Start) -> Result<Box<dyn Index>, Error> {
    let leaf_read = match start {
        Start::Load(_) => LeafRead::Whole,
        Start::Open => LeafRead::Segment { operations: 1 },
    };
    pio_of(devices, start, PioOptions { leaf_read, ..pio_options(5) })
}

fn fd_of(devices: Devices, start: Start, ratio: u64, keep: Keep) -> Result<Box<dyn Index>, Error> {
    let options = FdOptions { room: room(), head_pages: 1, ratio, keep_leaves: keep };
    Ok(match start {
        Start::Load(source) => Box::new(FdTree::load(devices, source, options)?),
        Start::Open => Box::new(FdTree::open(devices, options)?),
    })
}

fn fd(devices: Devices, start: Start) -> Result<Box<dyn Index>, Error> {
    fd_of(devices, start, 2, Keep::Lru)
}

fn fd_wide(devices: Devices, start: Start) -> Result<Box<dyn Index>, Error> {
    fd_of(devices, start, 5, Keep::Not)
}

fn bftl(devices: Devices, start: Start) -> Result<Box<dyn Index>, Error> {
    let options = BftlOptions { room: room(), buffer_units: 12, list_max: 4, fill: Fill(0.7) };
    Ok(match start {
        Start::Load(source) => Box::new(Bftl::load(devices, source, options)?),
        Start::Open => Box::new(Bftl::open(devices, options)?),
    })
}

const STRUCTURES: &[(&str, Make)] = &[
    ("btree", btree),
    ("btree, leaves written at once", btree_through),
    ("pio", pio),
    ("pio, one segment", pio_small),
    ("pio, by segments", pio_parts),
    ("pio, read both ways", pio_both),
    ("fd", fd),
    ("fd, ratio 5", fd_wide),
    ("bftl", bftl),
];

/// The naive model.
type Model = BTreeMap<Key, Pointer>;

fn follow(model: &mut Model, op: Op) {
    match op.answer() {
        Some(pointer) => drop(model.insert(op.key, pointer)),
        None => drop(model.remove(&op.key)),
    }
}

fn random_op(prng: &mut Prng, step: u32) -> Op {
    let key = prng.below(KEYS) as Key;
    match prng.below(6) {
        0..3 => Op::insert(key, step),
        3 => Op::update(key, step),
        _ => Op::remove(key),
    }
}

fn some(model: &Model, keys: Range<Key>) -> Vec<(Key, Pointer)> {
    if keys.is_empty() {
        return Vec::new();
    }
    model.range(keys).map(|(key, pointer)| (*key, *pointer)).collect()
}

fn loaded(seed: u64) -> Vec<(Key, Pointer)> {
    let mut prng = Prng::from_seed(seed);
    let count = [0, 1, 40, KEYS][prng.below(4) as usize];
    let keys: BTreeMap<Key, Pointer> =
        (0..count).map(|at| (prng.below(KEYS) as Key, at as Pointer)).collect();
    keys.into_iter().collect()
}

fn memory_devices(world: &Virtual) -> Devices {
    let device = |bytes| {
        let store = Store::new(bytes, KeepBytes::Plain);
        SimDevice::new(Preset::Ram.spec(), world.world(), store) as Arc<dyn Device>
    };
    Devices { pages: device(PAGES_BYTES), journal: Some(device(JOURNAL_BYTES)) }
}

/// Compares all answers.
fn compare(index: &mut dyn Index, model: &Model, at: &str) {
    let all = index.range(0..Key::MAX).expect("no faults");
    assert_eq!(all, some(model, 0..Key::MAX), "{at}: all");
    let keys: Vec<Key> = (0..KEYS as Key + 2).collect();
    let many = index.get_many(&keys).expect("no faults");
    for (key, found) in keys.iter().zip(many) {
        assert_eq!(found, model.get(key).copied(), "{at}: key {key} of many");
        assert_eq!(index.get(*key).expect("no faults"), found, "{at}: key {key}");
    }
}

fn random_steps(name: &str, make: Make, seed: u64, steps: u32) {
    let world = Virtual::new(VirtualConfig { seed, ..VirtualConfig::default() });
    let mut devices = memory_devices(&world);
    if seed.is_multiple_of(3) {
        devices.journal = None;
    }
    let mut prng = Prng::from_seed(seed);
    let entries = loaded(seed);
    let mut model: Model = entries.iter().copied().collect();
    let run = || {
        let mut index = make(devices.clone(), Start::Load(Arc::new(entries))).expect("no faults");
        for step in 0..steps {
            let at = format!("{name}, seed {seed}, step {step}");
            match prng.below(60) {
                0 => compare(&mut *index, &model, &at),
                1 => index.flush().expect("no faults"),
                2 => {
                    index.flush().expect("no faults");
                    drop(index);
                    index = make(devices.clone(), Start::Open).expect("no faults");
                }
                3..8 => {
                    let start = prng.below(KEYS) as Key;
                    let keys = start..start + prng.below(60) as Key;
                    let found = index.range(keys.clone()).expect("no faults");
                    assert_eq!(found, some(&model, keys.clone()), "{at}: {keys:?}");
                }
                8..12 => {
                    let keys: Vec<Key> =
                        (0..prng.below(40)).map(|_| prng.below(KEYS) as Key).collect();
                    let found = index.get_many(&keys).expect("no faults");
                    let wanted: Vec<_> = keys.iter().map(|key| model.get(key).copied()).collect();
                    assert_eq!(found, wanted, "{at}: {keys:?}");
                }
                12..20 => {
                    let key = prng.below(KEYS) as Key;
                    let found = index.get(key).expect("no faults");
                    assert_eq!(found, model.get(&key).copied(), "{at}: key {key}");
                }
                _ => {
                    let op = random_op(&mut prng, step);
                    index.apply(op).expect("no faults");
                    follow(&mut model, op);
                }
            }
        }
        compare(&mut *index, &model, &format!("{name}, seed {seed}, at the end"));
    };
    world.run(run).expect("nothing stops it");
}

#[test]
fn structures_agree_with_a_map() {
    for (name, make) in STRUCTURES {
        for seed in 0..15 {
            random_steps(name, *make, seed, 2_000);
        }
    }
}

/// The operations of a life that is cut, and the commits between them.
fn ops_of(seed: u64, count: usize) -> Vec<Op> {
    let mut prng = Prng::from_seed(seed ^ 0x5eed);
    (0..count).map(|step| random_op(&mut prng, step as u32)).collect()
}

/// Two devices that a life leaves to the next.
struct Disks {
    pages: Arc<SimDevice>,
    journal: Arc<SimDevice>,
}

impl Disks {
    fn new(spec: &Spec, world: &Virtual) -> Disks {
        let device = |bytes| {
            SimDevice::new(spec.clone(), world.world(), Store::new(bytes, KeepBytes::Plain))
        };
        Disks { pages: device(PAGES_BYTES), journal: device(JOURNAL_BYTES) }
    }

    fn devices(&self) -> Devices {
        Devices { pages: self.pages.clone(), journal: Some(self.journal.clone()) }
    }

    fn cut(&self, prng: &mut Prng) {
        self.pages.power_cut(prng);
        self.journal.power_cut(prng);
    }

    fn reopen(&self, world: &Virtual) -> Disks {
        Disks {
            pages: self.pages.reopen(world.world()),
            journal: self.journal.reopen(world.world()),
        }
    }
}

/// How far a life has got: operations that were begun, and those that a commit covers.
#[derive(Clone, Default)]
struct Progress {
    loaded: Arc<AtomicUsize>,
    begun: Arc<AtomicUsize>,
    committed: Arc<AtomicUsize>,
}

struct Case {
    name: &'static str,
    make: Make,
    seed: u64,
    spec: Spec,
    ops: Vec<Op>,
}

const COMMIT_EVERY: usize = 7;

impl Case {
    fn new(name: &'static str, make: Make, seed: u64, count: usize) -> Case {
        // A volatile cache on every second seed; time, so that events lie apart.
        let spec = Preset::Nvme.spec();
        let spec = if seed.is_multiple_of(2) { spec.with_write_cache() } else { spec };
        Case { name, make, seed, spec, ops: ops_of(seed, count) }
    }

    fn live(&self, devices: Devices, progress: &Progress) {
        let entries = loaded(self.seed);
        let mut index = (self.make)(devices, Start::Load(Arc::new(entries))).expect("no faults");
        progress.loaded.store(1, Ordering::Relaxed);
        for (at, op) in self.ops.iter().enumerate() {
            progress.begun.store(at + 1, Ordering::Relaxed);
            index.apply(*op).expect("no faults");
            if at % COMMIT_EVERY == 0 {
                index.commit().expect("no faults");
                progress.committed.store(at + 1, Ordering::Relaxed);
            }
            if at % 97 == 96 {
                index.flush().expect("no faults");
                progress.committed.store(at + 1, Ordering::Relaxed);
            }
        }
    }

    fn world(&self) -> Virtual {
        Virtual::new(VirtualConfig { seed: self.seed, ..VirtualConfig::default() })
    }

    /// Events at which a write or a barrier of a life that is not cut began or ended.
    fn marks(&self) -> Vec<u64> {
        let world = self.world();
        let disks = Disks::new(&self.spec, &world);
        disks.pages.record_writes();
        disks.journal.record_writes();
        world.run(|| self.live(disks.devices(), &Progress::default())).expect("no cut");
        let marks = disks.pages.marks().into_iter().chain(disks.journal.marks());
        let mut events: Vec<u64> = marks.map(|mark| mark.event).collect();
        events.sort_unstable();
        events.dedup();
        events
    }

    /// Cuts at `event`, opens again, and maybe cuts that opening, too.
    fn cut_at(&self, event: u64, second: Option<u64>) {
        let at = format!("{}, seed {}, cut at event {event}, {second:?}", self.name, self.seed);
        let mut prng = Prng::from_seed(self.seed ^ event);
        let world = self.world();
        let mut disks = Disks::new(&self.spec, &world);
        let progress = Progress::default();
        world.cut_at_event(event);
        match world.run(|| self.live(disks.devices(), &progress)) {
            Ok(()) => return,
            Err(Stopped::PowerCut { .. }) => disks.cut(&mut prng),
            Err(stopped) => panic!("{at}: {stopped}"),
        }
        if progress.loaded.load(Ordering::Relaxed) == 0 {
            return;
        }
        if let Some(second) = second {
            let world = self.world();
            disks = disks.reopen(&world);
            world.cut_at_event(second);
            let devices = disks.devices();
            let open = || (self.make)(devices, Start::Open).map(|_| ()).expect("it opens");
            if world.run(open).is_err() {
                disks.cut(&mut prng);
            }
        }
        let world = self.world();
        disks = disks.reopen(&world);
        let devices = disks.devices();
        world.run(|| self.check(devices, &progress, &at)).expect("no cut");
    }

    /// The index is as the model was after some operation from the last commit on, and goes on.
    fn check(&self, devices: Devices, progress: &Progress, at: &str) {
        let mut index = (self.make)(devices.clone(), Start::Open)
            .unwrap_or_else(|error| panic!("{at}: {error}"));
        let all = index.range(0..Key::MAX).unwrap_or_else(|error| panic!("{at}: {error}"));
        let committed = progress.committed.load(Ordering::Relaxed);
        let begun = progress.begun.load(Ordering::Relaxed);
        let mut model: Model = loaded(self.seed).into_iter().collect();
        self.ops[..committed].iter().for_each(|op| follow(&mut model, *op));
        let mut survived = committed;
        while some(&model, 0..Key::MAX) != all {
            assert!(survived < begun, "{at}: {committed} operations committed, {begun} begun");
            follow(&mut model, self.ops[survived]);
            survived += 1;
        }
        for op in &self.ops[..20] {
            index.apply(*op).expect("no faults");
            follow(&mut model, *op);
        }
        compare(&mut *index, &model, at);
        index.flush().expect("no faults");
        drop(index);
        let mut index = (self.make)(devices, Start::Open).expect("it was flushed");
        compare(&mut *index, &model, at);
    }
}

#[test]
fn a_cut_at_every_write_and_barrier_loses_nothing_committed() {
    for (name, make) in STRUCTURES {
        for seed in 0..2 {
            let case = Case::new(name, *make, seed, 160);
            let marks = case.marks();
            assert!(marks.len() > 20, "{name}: a life has writes to be cut at");
            marks.into_iter().for_each(|event| case.cut_at(event, None));
        }
    }
}

#[test]
fn a_second_cut_during_recovery_loses_nothing_either() {
    for (name, make) in STRUCTURES {
        let case = Case::new(name, *make, 5, 120);
        for event in case.marks().into_iter().step_by(13) {
            (2..80).step_by(6).for_each(|second| case.cut_at(event, Some(second)));
        }
    }
}

#[test]
fn keys_out_of_order_are_refused() {
    for (name, make) in STRUCTURES {
        let world = Virtual::new(VirtualConfig::default());
        let devices = memory_devices(&world);
        let entries: Vec<(Key, Pointer)> = vec![(1, 1), (7, 2), (7, 3)];
        let error = world.run(|| make(devices, Start::Load(Arc::new(entries))).err());
        let error = error.expect("no cut").expect("it is refused").to_string();
        let wanted = "bulk load: key 7 of entry 2 comes after key 7: sort them";
        assert_eq!(error, wanted, "{name}");
    }
}

#[test]
fn a_device_without_an_index_is_refused() {
    for (name, make) in STRUCTURES {
        let world = Virtual::new(VirtualConfig::default());
        let devices = memory_devices(&world);
        let error = world.run(|| make(devices, Start::Open).err()).expect("no cut");
        assert!(matches!(error, Some(Error::NotAnIndex)), "{name}: {error:?}");
    }
}

#[test]
fn an_index_of_another_structure_is_refused() {
    for (name, make) in STRUCTURES {
        let world = Virtual::new(VirtualConfig::default());
        let devices = memory_devices(&world);
        let entries: Vec<(Key, Pointer)> = vec![(1, 1), (7, 2)];
        let load = || make(devices.clone(), Start::Load(Arc::new(entries))).map(|_| ());
        world.run(load).expect("no cut").expect("no faults");
        for (other, open) in STRUCTURES {
            let opened = world.run(|| open(devices.clone(), Start::Open).err()).expect("no cut");
            match opened.map(|error| error.to_string()) {
                None => assert_eq!(name[..2], other[..2], "{name} is no {other}"),
                Some(line) => {
                    assert_ne!(name[..2], other[..2], "{name}: {line}");
                    assert!(line.ends_with(": open it as that"), "{name} as {other}: {line}");
                    assert!(!line.contains('\n'), "one line: {line}");
                }
            }
        }
    }
}

#[test]
fn memory_below_pio_max_times_height_is_refused() {
    let world = Virtual::new(VirtualConfig::default());
    let devices = memory_devices(&world);
    let entries: Vec<(Key, Pointer)> = (0..10_000).map(|key| (key, key)).collect();
    let options = PioOptions { room: Room { search_pages: 11, ..room() }, ..pio_options(1) };
    let error = world.run(|| pio_of(devices, Start::Load(Arc::new(entries)), options).err());
    let line = error.expect("no cut").expect("it is refused").to_string();
    let wanted = "11 pages for a search are fewer than PioMax times height, 4 times 3: give it \
                  more, or lower PioMax";
    assert_eq!(line, wanted);
}

#[test]
fn a_device_without_room_is_told() {
    let world = Virtual::new(VirtualConfig::default());
    let device = |bytes| {
        let store = Store::new(bytes, KeepBytes::Plain);
        // An array has a geometry, so it does not grow.
        let spec = Preset::Sigmod2011Hdd.spec();
        SimDevice::new(spec, world.world(), store) as Arc<dyn Device>
    };
    let devices = Devices { pages: device(64 << 10), journal: None };
    for (name, make) in STRUCTURES {
        let entries: Vec<(Key, Pointer)> = (0..20_000).map(|key| (key, key)).collect();
        let load = || make(devices.clone(), Start::Load(Arc::new(entries))).err();
        let error = world.run(load).expect("no cut");
        assert!(matches!(error, Some(Error::Full { .. })), "{name}: {error:?}");
    }
}
