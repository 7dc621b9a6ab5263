//! A log that grows and shrinks, beside a list of its records.

use std::collections::VecDeque;
use std::sync::Arc;

use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Device, Keep, Store};
use terrace_page::{Lsn, PageId};
use terrace_rt::{LeafMutex, Prng, Stopped, Virtual, VirtualConfig, World};

use super::super::header::{self, LogShape};
use super::super::record::{Body, Draft};
use super::super::{BLOCK, Chain, FIRST_LSN, Level, LogReader};
use super::*;

const DATABASE: u128 = 77;
const MIB: u64 = 1 << 20;
const LIMIT: u64 = 3 * MIB;

fn world(seed: u64) -> Virtual {
    Virtual::new(VirtualConfig { seed, switch_one_in: 0, cores: 1, stack_bytes: 64 << 10 })
}

fn device(world: &World) -> Arc<SimDevice> {
    let spec = Preset::Ram.spec().with_write_cache();
    SimDevice::new(spec, world.clone(), Store::new(4096, Keep::Plain))
}

/// What a log must hold.
#[derive(Clone, Debug, Default)]
struct Model {
    /// Where its records begin, and their numbers: those from `start` on.
    records: VecDeque<(Lsn, u64)>,
    start: Lsn,
    /// What is durable for certain.
    durable: Lsn,
    next: u64,
    epoch: u32,
}

impl Model {
    fn new() -> Model {
        Model { start: FIRST_LSN, durable: FIRST_LSN, ..Model::default() }
    }

    /// Where the log ends that an opening finds: it has all that is durable, in order, and perhaps
    /// more of what was appended. The log goes on from there.
    fn reopen(&mut self, device: &Arc<SimDevice>, limit: u64, case: &str) -> Log {
        let device = Arc::clone(device) as Arc<dyn Device>;
        let header = header::open(&*device, DATABASE).unwrap_or_else(|e| panic!("{case}: {e}"));
        let map = header.map(DATABASE);
        let mut reader = LogReader::new(&*device, map.clone(), self.start, map.end(self.start));
        let mut count = 0;
        while let Some(stored) = reader.next().expect("readable") {
            let Body::BufWrite { eol, .. } = stored.record.body else { panic!("{stored:?}") };
            let (lsn, number) = self.records[count];
            assert_eq!((stored.lsn, eol), (lsn, Lsn(number)), "{case}");
            count += 1;
        }
        let end = reader.end();
        assert!(end.position >= self.durable, "{case}: the end is {}", end.position);
        if self.epoch > 0 {
            reader.check_end(self.epoch).unwrap_or_else(|error| panic!("{case}: {error}"));
        }
        self.records.truncate(count);
        self.durable = end.position;
        self.epoch += 1;
        let tail = match end.position.0.is_multiple_of(BLOCK as u64) {
            true => vec![0; BLOCK],
            false => reader.block_at(end.position).expect("readable"),
        };
        let space = LogSpace::new(Arc::clone(&device), DATABASE, &header, limit);
        let kept = (self.start, end.position);
        let log = Log::open(Arc::clone(&device), space, self.epoch, kept, end.last, &tail);
        log.set_marks(self.records.iter().map(|(lsn, _)| *lsn));
        log.begin_settling().expect("a good device");
        log
    }
}

fn create(device: &dyn Device) {
    header::create(device, DATABASE, FIRST_LSN, LogShape::Growing).expect("room");
    device.sync().expect("memory");
}

/// Appends a record, if there is room. The model is told before anything can be on the device.
fn append(log: &Log, model: &LeafMutex<Model>, pages: u64) -> bool {
    let mut draft = Draft::default();
    let number = model.lock().next;
    // No two are alike: sectors of one never make another one whole that was torn.
    let pages: Vec<PageId> = (number..number + pages).map(PageId).collect();
    draft.buf_write(&pages, Lsn(number));
    let mut reserved = draft.len() as u64;
    if !log.reserve_or_extend(reserved, Room::Forward).expect("a good device") {
        return false;
    }
    let mut model = model.lock();
    let lsn = log.append_next(&mut draft, Room::Forward, &mut reserved, &Chain::default());
    model.records.push_back((lsn.expect("it is reserved").lsn, number));
    model.next += 1;
    true
}

fn force(log: &Log, model: &LeafMutex<Model>) {
    let end = log.end();
    log.force(end, Level::Durable).expect("a good device");
    let mut model = model.lock();
    model.durable = model.durable.max(end);
}

/// Cuts the log before the record at `index`, or before its end; says so first, as the superblock
/// does.
fn cut(log: &Log, model: &LeafMutex<Model>, index: usize, settle: Settle) {
    force(log, model);
    let start = {
        let mut model = model.lock();
        let start = model.records.get(index).map_or(log.end(), |(lsn, _)| *lsn);
        model.records.retain(|(lsn, _)| *lsn >= start);
        model.start = start;
        start
    };
    log.truncate(start);
    log.settle(settle).expect("a good device");
}

fn check(log: &Log, model: &Model, most: u64, case: &str) {
    let map = log.place().0;
    let bytes = map.bytes();
    assert!((LINE_BYTES_MIN..=most).contains(&bytes), "{case}: {bytes} bytes");
    assert!(map.place(model.start.0).is_some(), "{case}: the start");
    assert!(map.place(log.end().0).is_some(), "{case}: the end");
    let table = log.space.hold().table_ranges();
    assert!(super::super::map::are_apart(&mut table.clone()), "{case}: {table:?}");
}

fn one_step(log: &Log, model: &LeafMutex<Model>, device: &SimDevice, prng: &mut Prng) {
    let records = model.lock().records.len() as u64;
    match prng.below(12) {
        0 => cut(log, model, prng.below(records + 1) as usize, Settle::Running),
        1 => cut(log, model, records as usize, Settle::Closing),
        2 => force(log, model),
        3 => device.set_full_from(Some(device.len() + prng.below(2) * 300_000)),
        4 => device.set_full_from(None),
        5 => {
            let area = log.space.hold().area();
            let _larger = log.larger(area).expect("a good device");
        }
        _ => {
            for _ in 0..prng.below(60) {
                if !append(log, model, 1 + prng.below(2_000)) {
                    let records = model.lock().records.len();
                    cut(log, model, records, Settle::Running);
                    assert!(append(log, model, 100), "an empty log has room");
                }
            }
        }
    }
}

#[test]
fn a_growing_log_agrees_with_a_list() {
    let mut longest = 0;
    for seed in 0..60 {
        let world = world(seed);
        let run = || {
            let device = device(&World::current());
            create(&*device);
            let mut prng = Prng::from_seed(seed);
            let model = LeafMutex::new(Model::new());
            let mut longest = 0;
            for round in 0..4 {
                let mut now = model.lock().clone();
                let log = now.reopen(&device, LIMIT, &format!("seed {seed} round {round}"));
                *model.lock() = now;
                for step in 0..60 {
                    one_step(&log, &model, &device, &mut prng);
                    let case = format!("seed {seed} round {round} step {step}");
                    check(&log, &model.lock(), LIMIT, &case);
                    longest = longest.max(log.place().0.bytes());
                }
                force(&log, &model);
                device.set_full_from(None);
                let records = model.lock().records.len();
                cut(&log, &model, records, Settle::Closing);
                let bytes = log.place().0.bytes();
                assert!(bytes <= 2 * LINE_BYTES_MIN, "seed {seed}: {bytes} bytes of an empty log");
            }
            longest
        };
        longest = longest.max(world.run(run).expect("nobody waits for ever"));
    }
    assert!(longest > LIMIT - MIB, "no log had more than {longest} bytes");
}

/// Cuts the power at every event of a history, and of the one that goes on from there.
#[test]
fn a_power_cut_at_any_event_of_growth_and_shrinking_loses_nothing_durable() {
    for seed in 0..6 {
        let mut at = 1;
        while cut_at(seed, at) {
            at += 1;
        }
        assert!(at > 100, "seed {seed} has only {at} events");
    }
}

fn cut_at(seed: u64, at: u64) -> bool {
    let mut now = world(seed);
    let mut device = device(&now.world());
    let model = LeafMutex::new(Model::new());
    let mut is_created = false;
    for life in 0..3 {
        let mut prng = Prng::from_seed(seed * 10 + life);
        match life {
            0 => now.cut_at_event(at),
            1 => now.cut_at_event(1 + at / 2),
            _ => {}
        }
        let created = is_created;
        let run = || {
            if !created {
                create(&*device);
                is_created = true;
            }
            let mut found = model.lock().clone();
            let log = found.reopen(&device, LIMIT, &format!("seed {seed} event {at} life {life}"));
            *model.lock() = found;
            for _ in 0..20 {
                one_step(&log, &model, &device, &mut prng);
            }
        };
        match now.run(run) {
            Ok(()) if life == 0 => return false,
            Ok(()) => {}
            Err(Stopped::PowerCut { .. }) => drop(device.power_cut(&mut Prng::from_seed(at))),
            Err(stopped) => panic!("seed {seed} event {at}: {stopped:?}"),
        }
        now = world(seed + at);
        device = device.reopen(now.world());
    }
    true
}

/// What the scan says of a log whose header is of the day on which its line had `LINE_BYTES_MIN`.
fn look_with_an_older_header(seed: u64) -> (u64, Result<(), crate::Error>) {
    let world = world(seed);
    let run = || {
        let device = device(&World::current());
        create(&*device);
        let model = LeafMutex::new(Model::new());
        let mut now = model.lock().clone();
        let log = now.reopen(&device, LIMIT, &format!("seed {seed}"));
        *model.lock() = now;
        let mut older = super::super::buffer::Aligned::zeroed(header::HEADERS_BYTES as usize);
        terrace_device::read(&*device, 0, &mut older).expect("a good device");
        let mut prng = Prng::from_seed(seed);
        let most = [1, 20, 300, 2_000][prng.below(4) as usize];
        let end = LINE_BYTES_MIN + prng.below(2 * LINE_BYTES_MIN);
        while log.end().0 < end {
            assert!(append(&log, &model, 1 + prng.below(most)));
            if prng.below(30) == 0 {
                force(&log, &model);
            }
        }
        force(&log, &model);
        drop(log);
        terrace_device::write(&*device, 0, &older).expect("a good device");
        let header = header::open(&*device, DATABASE).expect("a whole header");
        let map = header.map(DATABASE);
        let mut reader = LogReader::new(&*device, map.clone(), FIRST_LSN, map.end(FIRST_LSN));
        while reader.next().expect("readable").is_some() {}
        let left = map.end(FIRST_LSN).0 - reader.end().position.0;
        (left, reader.check_end(1))
    };
    world.run(run).expect("nobody waits for ever")
}

/// The log ended without a word where its line had ended on the day of the header, and what was
/// committed later was gone.
#[test]
fn a_log_whose_header_is_of_an_earlier_day_is_told() {
    let mut far = 0;
    for seed in 0..40 {
        let (left, told) = look_with_an_older_header(seed);
        far += u32::from(left >= super::super::room::EDGE_BYTES);
        assert!(matches!(told, Err(crate::Error::CorruptLog { .. })), "seed {seed}: {told:?}");
    }
    assert!(far > 0, "each ended at the very end of its line");
}

/// A ring took the mutex of its room for nothing, each time that it was full.
#[test]
fn a_ring_is_not_extended_and_takes_no_mutex() {
    let world = world(1);
    let store = Store::new(MIB, Keep::Plain);
    let device = SimDevice::new(Preset::Ram.spec(), world.world(), store);
    let run = || {
        header::create(&*device, DATABASE, FIRST_LSN, LogShape::Fixed).expect("room");
        let log = Model::new().reopen(&device, 0, "a ring");
        let held = log.space.hold();
        assert!(!log.extend(1, Room::Forward).expect("nothing is written"));
        drop(held);
    };
    world.run(run).expect("nobody waits for ever");
}
