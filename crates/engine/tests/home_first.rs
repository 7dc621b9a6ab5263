//! Large values, whose pages go home before their record: against a map under random operations,
//! cut off at any moment, on a full home, and beside threads.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use terrace::{
    Checkpoint, Database, Devices, Durability, Error, ReadTransaction, Table, TableDef, World,
    WriteTransaction,
};
use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Keep, Store};
use terrace_policy::{FlashRole, designs, restarts};
use terrace_pool::{Mutation, Mutations};
use terrace_rt::{LeafMutex, Prng, Stopped, Virtual, VirtualConfig};

const FILES: TableDef<u64, &[u8]> = TableDef::new("files");
const NAMES: TableDef<&str, &[u8]> = TableDef::new("names");
const MIB: u64 = 1 << 20;
/// Keys of large values, and rows beside them.
const KEYS: u64 = 5;
const ROWS: u64 = 200;

type Ledger = BTreeMap<u64, Content>;

/// A value that its length and one number make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Content {
    len: usize,
    mark: u32,
}

impl Content {
    fn draw(prng: &mut Prng) -> Content {
        let len = match prng.below(8) {
            0 => prng.below(200),
            1 | 4 => prng.below(900_000),
            2 => MIB - 3 + prng.below(6),
            3 => 8160 * (129 + prng.below(200)),
            _ => MIB + prng.below(2 * MIB),
        };
        Content { len: len as usize, mark: prng.next_u64() as u32 }
    }

    fn small(prng: &mut Prng) -> Content {
        Content { len: prng.below(900) as usize, mark: prng.next_u64() as u32 }
    }

    fn byte(self, at: usize) -> u8 {
        ((at >> 10) as u32).wrapping_mul(0x9e37_79b9).wrapping_add(self.mark).to_le_bytes()[at % 4]
    }

    fn bytes(self) -> Vec<u8> {
        (0..self.len).map(|at| self.byte(at)).collect()
    }
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    design: &'static str,
    restart: &'static str,
    role: FlashRole,
    memory: u64,
    mutations: Mutations,
}

const NO_FLASH: Shape = Shape {
    design: "no-ssd",
    restart: "forget",
    role: FlashRole::Cache,
    memory: 512 << 10,
    mutations: Mutations::NONE,
};

/// Each way in which flash keeps what it has.
const SHAPES: [Shape; 11] = [
    NO_FLASH,
    Shape { memory: 8 << 20, ..NO_FLASH },
    Shape { design: "lc", restart: "warm", ..NO_FLASH },
    Shape { design: "lc", restart: "warm", role: FlashRole::Persistent, ..NO_FLASH },
    Shape { design: "tac", restart: "mmr", ..NO_FLASH },
    Shape { design: "cw", restart: "lbr", ..NO_FLASH },
    Shape { design: "dw", restart: "lvr", ..NO_FLASH },
    Shape { design: "face", restart: "warm", ..NO_FLASH },
    Shape { design: "face", restart: "warm", role: FlashRole::Persistent, ..NO_FLASH },
    Shape { design: "exclusive", restart: "map-log", ..NO_FLASH },
    Shape { design: "lc", restart: "warm", memory: 4 << 20, ..NO_FLASH },
];

struct Rig {
    home: Arc<SimDevice>,
    log: Arc<SimDevice>,
    flash: Arc<SimDevice>,
}

impl Rig {
    fn blank(world: &World, home_bytes: u64) -> Rig {
        let device = |bytes| {
            let spec = Preset::Ram.spec().with_write_cache();
            SimDevice::new(spec, world.clone(), Store::new(bytes, Keep::Plain))
        };
        Rig { home: device(home_bytes), log: device(4096), flash: device(6 * MIB) }
    }

    fn in_world(&self, world: &World) -> Rig {
        let again = |device: &Arc<SimDevice>| device.reopen(world.clone());
        Rig { home: again(&self.home), log: again(&self.log), flash: again(&self.flash) }
    }

    fn cut(&self, prng: &mut Prng) {
        self.home.power_cut(prng);
        self.log.power_cut(prng);
        self.flash.power_cut(prng);
    }

    fn open(&self, shape: &Shape) -> Result<Database, Error> {
        let design = designs::find(shape.design).expect("a row of the table");
        let flash = design.uses_flash().then(|| self.flash.clone() as Arc<_>);
        let devices = Devices { home: self.home.clone(), flash, log: self.log.clone() };
        let mutations = shape.mutations;
        Database::builder()
            .memory(shape.memory)
            .log_max(64 * MIB)
            .design(design)
            .restart(restarts::find(shape.restart).expect("a row of the table"))
            .flash_role(shape.role)
            .tune(move |tier| tier.mutations = mutations)
            .devices(devices)
            .open_or_create_on_devices()
    }
}

fn world(seed: u64) -> Virtual {
    Virtual::new(VirtualConfig { seed, switch_one_in: 40, cores: 1, stack_bytes: 256 << 10 })
}

/// What is told as committed, and what the transaction under way makes of it.
#[derive(Clone, Default)]
struct Told {
    rows: Ledger,
    under_way: Option<Ledger>,
}

fn stream(
    files: &mut Table<'_, u64, &'static [u8]>,
    key: u64,
    content: Content,
    prng: &mut Prng,
    finishes: bool,
) -> Result<(), Error> {
    let mut writer = files.writer(key)?;
    let bytes = content.bytes();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(1 + prng.below(700_000) as usize));
        if prng.below(2) == 0 {
            writer.push(now)?;
        } else {
            writer.write_all(now).expect("no error");
        }
        rest = later;
    }
    assert_eq!(writer.len(), content.len as u64);
    if finishes { writer.finish() } else { Ok(()) }
}

/// One change of a transaction, and of its map.
fn change(
    files: &mut Table<'_, u64, &'static [u8]>,
    rows: &mut Ledger,
    prng: &mut Prng,
) -> Result<(), Error> {
    let key = prng.below(KEYS);
    match prng.below(10) {
        0 | 1 => {
            let content = Content::draw(prng);
            files.insert(key, &content.bytes())?;
            rows.insert(key, content);
        }
        2 => {
            let content = Content::draw(prng);
            let is_new = files.insert_new(key, &content.bytes())?;
            assert_eq!(is_new, !rows.contains_key(&key));
            rows.entry(key).or_insert(content);
        }
        3 => {
            let content = Content::draw(prng);
            let is_there = files.update(key, &content.bytes())?;
            assert_eq!(is_there, rows.contains_key(&key));
            rows.entry(key).and_modify(|old| *old = content);
        }
        4 => {
            let content = Content::draw(prng);
            let old = files.replace(key, &content.bytes())?;
            let before = rows.insert(key, content);
            assert!(old.map(|old| old.bytes().to_vec()) == before.map(Content::bytes));
        }
        5 => {
            let (content, finishes) = (Content::draw(prng), prng.below(3) > 0);
            stream(files, key, content, prng, finishes)?;
            if finishes {
                rows.insert(key, content);
            }
        }
        6 | 7 => {
            assert_eq!(files.remove(key)?, rows.remove(&key).is_some());
        }
        _ => {
            for _ in 0..prng.below(30) {
                let (key, content) = (KEYS + prng.below(ROWS), Content::small(prng));
                files.insert(key, &content.bytes())?;
                rows.insert(key, content);
            }
        }
    }
    Ok(())
}

fn transaction(txn: &WriteTransaction, before: &Ledger, prng: &mut Prng) -> Result<Ledger, Error> {
    let mut files = txn.open_table(FILES)?;
    let mut rows = before.clone();
    for _ in 0..1 + prng.below(3) {
        let (savepoint, saved) = (txn.savepoint()?, rows.clone());
        change(&mut files, &mut rows, prng)?;
        if prng.below(5) == 0 {
            txn.rollback_to(&savepoint)?;
            rows = saved;
        }
    }
    Ok(rows)
}

/// Reads a value in parts, from places in any order.
fn look(txn: &ReadTransaction, rows: &Ledger, prng: &mut Prng) {
    let key = prng.below(KEYS);
    let Ok(files) = txn.open_table(FILES) else { return assert!(rows.is_empty()) };
    let Some(mut reader) = files.reader(key).expect("no error") else {
        return assert!(!rows.contains_key(&key));
    };
    let content = rows[&key];
    assert_eq!(reader.len(), content.len as u64);
    for _ in 0..4 {
        let at = prng.below(content.len as u64 + 10);
        let mut out = vec![0; prng.below(60_000) as usize];
        reader.seek(SeekFrom::Start(at)).expect("a place");
        let count = reader.read(&mut out).expect("no error");
        let expected = content.len.saturating_sub(at as usize).min(out.len());
        assert_eq!(count, expected);
        let is_same = |(index, byte): (usize, &u8)| *byte == content.byte(at as usize + index);
        assert!(out[..count].iter().enumerate().all(is_same), "key {key} at {at}");
    }
}

fn contents(txn: &ReadTransaction, rows: &Ledger) -> bool {
    let files = match txn.open_table(FILES) {
        Err(Error::NoSuchTable { .. }) => return rows.is_empty(),
        files => files.expect("no error"),
    };
    let mut found = 0;
    for entry in files.range(..).expect("no error") {
        let entry = entry.expect("no error");
        let is_it = rows.get(&entry.key()).is_some_and(|content| {
            content.len == entry.value().len() && content.bytes() == entry.value()
        });
        if !is_it {
            return false;
        }
        found += 1;
    }
    found == rows.len()
}

/// Random transactions, with a snapshot of before now and then.
fn live(rig: &Rig, shape: &Shape, seed: u64, told: &LeafMutex<Told>) {
    let mut prng = Prng::from_seed(seed);
    let mut rows = told.lock().rows.clone();
    let db = rig.open(shape).expect("good devices");
    let mut snapshot = None;
    for _ in 0..10 {
        if prng.below(4) == 0 {
            snapshot = Some((db.begin_read().expect("no error"), rows.clone()));
        }
        let txn = db.begin_write().expect("no error");
        let after = transaction(&txn, &rows, &mut prng).expect("room");
        if prng.below(4) == 0 {
            txn.rollback().expect("no error");
        } else {
            told.lock().under_way = Some(after.clone());
            txn.commit(Durability::Durable).expect("no error");
            *told.lock() = Told { rows: after.clone(), under_way: None };
            rows = after;
        }
        if let Some((txn, then)) = &snapshot {
            look(txn, then, &mut prng);
            if prng.below(3) == 0 {
                assert!(contents(txn, then), "seed {seed}: a snapshot changed");
                snapshot = None;
            }
        }
        if prng.below(6) == 0 {
            let kind = [Checkpoint::Sharp, Checkpoint::Indirect][prng.below(2) as usize];
            db.checkpoint(kind).expect("good devices");
        }
        look(&db.begin_read().expect("no error"), &rows, &mut prng);
    }
    drop(snapshot);
    db.check().expect("whole");
    assert!(contents(&db.begin_read().expect("no error"), &rows), "seed {seed}");
    db.close().expect("good devices");
}

#[test]
fn large_values_are_as_in_a_map() {
    for (seed, shape) in (0..).zip(SHAPES) {
        let (mut rig, told) = (None, LeafMutex::new(Told::default()));
        for life in 0..3 {
            let world = world(seed * 10 + life);
            let now = match &rig {
                None => Rig::blank(&world.world(), 96 * MIB),
                Some(before) => Rig::in_world(before, &world.world()),
            };
            world
                .run(|| live(&now, &shape, seed * 10 + life, &told))
                .unwrap_or_else(|stopped| panic!("{shape:?}, life {life}: {stopped:?}"));
            rig = Some(now);
        }
    }
}

/// Cuts the power of a life at some event, and looks at what the next one has. False if it lost
/// something, or could not be opened.
fn cut_is_survived(shape: &Shape, seed: u64, cuts: &mut u64) -> Result<(), String> {
    let mut prng = Prng::from_seed(seed ^ 0xc07);
    let told = LeafMutex::new(Told::default());
    let first = world(seed);
    let mut rig = Rig::blank(&first.world(), 96 * MIB);
    first.run(|| live(&rig, shape, seed, &told)).map_err(|stopped| format!("{stopped:?}"))?;
    for life in 0..4 {
        let next = world(seed * 31 + life);
        rig = rig.in_world(&next.world());
        next.cut_at_event(50 + prng.below(if life % 2 == 0 { 9_000 } else { 1_200 }));
        match next.run(|| live(&rig, shape, seed * 31 + life, &told)) {
            Ok(()) => {}
            Err(Stopped::PowerCut { .. }) => {
                *cuts += 1;
                rig.cut(&mut prng);
            }
            Err(stopped) => return Err(format!("life {life}: {stopped:?}")),
        }
        let next = world(seed * 37 + life);
        rig = rig.in_world(&next.world());
        let looked = next.run(|| -> Result<Ledger, String> {
            let db = rig.open(shape).map_err(|error| format!("life {life}: {error}"))?;
            let Told { rows, under_way } = told.lock().clone();
            db.check().map_err(|error| format!("life {life}: {error}"))?;
            let txn = db.begin_read().expect("no error");
            let found = [Some(rows), under_way].into_iter().flatten();
            let found = found.into_iter().find(|rows| contents(&txn, rows));
            drop(txn);
            db.close().map_err(|error| format!("life {life}: {error}"))?;
            found.ok_or_else(|| format!("life {life}: other values"))
        });
        let rows = looked.map_err(|stopped| format!("life {life}: {stopped:?}"))??;
        *told.lock() = Told { rows, under_way: None };
    }
    Ok(())
}

#[test]
fn a_power_cut_at_any_moment_leaves_what_was_committed() {
    let mut cuts = 0;
    let rounds = if std::env::var("TERRACE_TEST_MATRIX").is_ok() { 40 } else { 1 };
    for round in 0..rounds {
        for (index, shape) in (0..).zip(SHAPES) {
            let seed = 1_000 + round * 100 + index;
            cut_is_survived(&shape, seed, &mut cuts)
                .unwrap_or_else(|why| panic!("seed {seed}, {shape:?}: {why}"));
        }
    }
    println!("{cuts} cuts");
    assert!(cuts > 20 * rounds, "{cuts} cuts");
}

#[test]
fn each_rule_of_large_values_is_needed() {
    let mut missed = Vec::new();
    let with = |mutation: Mutation, shape: Shape| Shape { mutations: mutation.into(), ..shape };
    for shape in [
        with(Mutation::ReferBeforeSync, NO_FLASH),
        with(Mutation::ForgetUnfinished, NO_FLASH),
        with(Mutation::RedoBelowValues, NO_FLASH),
        with(Mutation::PageBeforeLog, NO_FLASH),
        with(Mutation::KeepCopiesOfTaken, SHAPES[2]),
    ] {
        let sound = Shape { mutations: Mutations::NONE, ..shape };
        let found = (0..400).find_map(|seed| {
            let caught = std::panic::catch_unwind(|| cut_is_survived(&shape, seed, &mut 0));
            match caught {
                Ok(survived) => survived.err().map(|why| (seed, why)),
                Err(_) => Some((seed, "a panic".to_string())),
            }
        });
        println!("{:?}: {found:?}", shape.mutations);
        if let Some((seed, _)) = &found {
            cut_is_survived(&sound, *seed, &mut 0).expect("nothing is lost by the rules");
        }
        if found.is_none() {
            missed.push(shape.mutations);
        }
    }
    assert!(missed.is_empty(), "{missed:?} are not noticed");
}

/// What does not fit is refused, and leaves the room that there was.
#[test]
fn a_full_home_refuses_a_large_value_and_keeps_the_others() {
    for (seed, shape) in (0..).zip([NO_FLASH, SHAPES[2], SHAPES[8]]) {
        let world = world(seed);
        let rig = Rig::blank(&world.world(), 16 * MIB);
        let run = || {
            let db = rig.open(&shape).expect("room for an empty one");
            let small = Content { len: 3 << 20, mark: 7 };
            db.write(|txn| txn.open_table(FILES)?.insert(0, &small.bytes())).expect("room");
            for round in 0..6 {
                let large = Content { len: 14 << 20, mark: round };
                let put = db.write(|txn| txn.open_table(FILES)?.insert(1, &large.bytes()));
                assert!(matches!(put, Err(Error::HomeFull { .. })), "{put:?}");
                // What it had taken is given back in the background.
                let next = Content { len: 2 << 20, mark: 9 + round };
                let mut tries = 0;
                while let Err(error) =
                    db.write(|txn| txn.open_table(FILES)?.insert(2, &next.bytes()))
                {
                    tries += 1;
                    assert!(matches!(error, Error::HomeFull { .. }) && tries < 100, "{error}");
                    terrace_rt::sleep(terrace::Nanos::from_millis(20));
                }
                let rows = Ledger::from([(0, small), (2, next)]);
                assert!(contents(&db.begin_read().expect("no error"), &rows), "round {round}");
                db.check().expect("whole");
            }
            db.close().expect("good devices");
        };
        world.run(run).expect("nobody waits for ever");
    }
}

/// A value is longer than all of memory, and the log has next to nothing of it.
#[test]
fn the_log_has_little_of_a_large_value() {
    let world = world(5);
    let rig = Rig::blank(&world.world(), 160 * MIB);
    let run = || {
        let db = rig.open(&NO_FLASH).expect("good devices");
        let before = db.stats().log.bytes;
        let large = Content { len: 100 << 20, mark: 1 };
        let txn = db.begin_write().expect("no error");
        let mut files = txn.open_table(FILES).expect("no error");
        stream(&mut files, 0, large, &mut Prng::from_seed(1), true).expect("room");
        txn.commit(Durability::Durable).expect("no error");
        let bytes = db.stats().log.bytes - before;
        // With memory for 64 pages, batches are of 8: the most that is logged.
        assert!(bytes < 2 * MIB, "{bytes} bytes of log");
        let txn = db.begin_read().expect("no error");
        for seed in 0..20 {
            look(
                &txn,
                &(0..KEYS).map(|key| (key, large)).take(1).collect(),
                &mut Prng::from_seed(seed),
            );
        }
        drop(txn);
        assert!(db.write(|txn| txn.open_table(FILES)?.remove(0)).expect("no error"));
        let free = Content { len: 90 << 20, mark: 2 };
        let mut tries = 0;
        while let Err(error) = db.write(|txn| txn.open_table(FILES)?.insert(1, &free.bytes())) {
            tries += 1;
            assert!(matches!(error, Error::HomeFull { .. }) && tries < 100, "{error}");
            terrace_rt::sleep(terrace::Nanos::from_millis(20));
        }
        db.check().expect("whole");
    };
    world.run(run).expect("nobody waits for ever");
}

/// The bug: bytes that a writer could not write were in its buffer nevertheless; pushed once more,
/// they were in the value twice. And one that was too long panicked within another operation.
#[test]
fn a_writer_that_has_failed_cannot_be_finished() {
    let world = world(1);
    let rig = Rig::blank(&world.world(), 64 * MIB);
    let run = || {
        let db = rig.open(&NO_FLASH).expect("a new one");
        let txn = db.begin_write().expect("open");
        let mut files = txn.open_table(FILES).expect("made");
        files.insert(1, b"one").expect("room");
        let mut writer = files.writer(2).expect("a short key");
        let part = vec![7; 1 << 20];
        let mut row = Vec::new();
        let modified = files.modify(1, &mut row, |value| {
            let within = writer.push(&part);
            assert!(matches!(within, Err(Error::Reentrant)), "{within:?}");
            let too_long = writer.push(&part);
            assert!(matches!(too_long, Err(Error::Reentrant)), "{too_long:?}");
            value.push(b'!');
            Ok::<_, Error>(())
        });
        assert!(modified.expect("nothing was changed meanwhile"));
        let again = writer.push(&part);
        assert!(matches!(again, Err(Error::Reentrant)), "{again:?}");
        let finished = writer.finish();
        assert!(matches!(finished, Err(Error::Reentrant)), "{finished:?}");
        assert!(files.get(2).expect("no error").is_none());
        let long = db.begin_write().expect("open");
        let mut names = long.open_table(NAMES).expect("made");
        let key = "k".repeat(5_000);
        assert!(matches!(names.writer(&key), Err(Error::KeyTooLong { .. })));
        long.rollback().expect("nothing to undo");
        drop(files);
        txn.commit(Durability::Durable).expect("it goes on");
        db.check().expect("sound");
        db.close().expect("closed");
    };
    world.run(run).expect("nobody waits for ever");
}

/// A savepoint changes nothing of a value that is being written.
#[test]
fn a_writer_goes_on_after_a_savepoint() {
    let world = world(2);
    let rig = Rig::blank(&world.world(), 64 * MIB);
    let run = || {
        let db = rig.open(&NO_FLASH).expect("a new one");
        db.write(|txn| txn.open_table(FILES).map(drop)).expect("made");
        let txn = db.begin_write().expect("open");
        let savepoint = txn.savepoint().expect("made");
        {
            let mut files = txn.open_table(FILES).expect("made");
            files.insert(1, b"one").expect("room");
            let mut writer = files.writer(2).expect("a short key");
            writer.push(&vec![7; 3 << 20]).expect("room");
            txn.rollback_to(&savepoint).expect("its own");
            writer.push(&vec![8; 2 << 20]).expect("room");
            writer.finish().expect("room");
            assert!(files.get(1).expect("no error").is_none());
            let value = files.get(2).expect("no error").expect("finished");
            assert!(value.value()[..3 << 20].iter().all(|byte| *byte == 7));
            assert!(value.value()[3 << 20..].iter().all(|byte| *byte == 8));
        }
        txn.commit(Durability::Durable).expect("it goes on");
        db.check().expect("sound");
        db.close().expect("closed");
    };
    world.run(run).expect("nobody waits for ever");
}
