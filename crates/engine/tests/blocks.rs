//! Blocks, values of one page that are overwritten without a read: against a map under random
//! operations, cut off at any moment, on a full home, and beside snapshots and damage.

use std::collections::BTreeMap;
use std::sync::Arc;

use terrace::{
    Checkpoint, Database, Devices, Durability, Error, Nanos, ReadTransaction, TableDef, World,
    WriteTransaction,
};
use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Keep, Store};
use terrace_policy::{FlashRole, designs, restarts};
use terrace_pool::{Mutation, Mutations};
use terrace_rt::{LeafMutex, Prng, Stopped, Virtual, VirtualConfig, sleep};

#[path = "blocks/beside.rs"]
mod beside;
#[path = "blocks/harmed.rs"]
mod harmed;

const BLOCKS: TableDef<u64, &[u8]> = TableDef::new("blocks");
const VOLUME: TableDef<u64, [u8; 8192]> = TableDef::new("volume");
const MIB: u64 = 1 << 20;
const KEYS: u64 = 60;
/// Pages without a record that a table keeps, at most.
const KEPT: u64 = 64;

type Ledger = BTreeMap<u64, Content>;

/// A value that its length and one number make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Content {
    len: usize,
    mark: u32,
}

impl Content {
    fn draw(prng: &mut Prng) -> Content {
        let len = match prng.below(12) {
            0 => prng.below(4_000),
            1 => 4_000 + prng.below(100),
            2 => 8_150 + prng.below(60),
            3 => 4_040 + prng.below(8_100),
            4 => 12_000 + prng.below(30_000),
            _ => 8_192,
        };
        Content { len: len as usize, mark: prng.next_u64() as u32 }
    }

    fn bytes(self) -> Vec<u8> {
        (0..self.len).map(|at| (self.mark >> (at % 25)) as u8 ^ (at >> 8) as u8).collect()
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
const SHAPES: [Shape; 9] = [
    NO_FLASH,
    Shape { memory: 8 << 20, ..NO_FLASH },
    Shape { design: "lc", restart: "warm", ..NO_FLASH },
    Shape { design: "lc", restart: "warm", role: FlashRole::Persistent, ..NO_FLASH },
    Shape { design: "tac", restart: "mmr", ..NO_FLASH },
    Shape { design: "cw", restart: "lbr", ..NO_FLASH },
    Shape { design: "dw", restart: "lvr", ..NO_FLASH },
    Shape { design: "face", restart: "warm", role: FlashRole::Persistent, ..NO_FLASH },
    Shape { design: "exclusive", restart: "map-log", ..NO_FLASH },
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
        Rig { home: device(home_bytes), log: device(4096), flash: device(2 * MIB) }
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

fn transaction(txn: &WriteTransaction, before: &Ledger, prng: &mut Prng) -> Result<Ledger, Error> {
    let mut table = txn.open_table(BLOCKS)?;
    let mut rows = before.clone();
    for _ in 0..1 + prng.below(3) {
        let (savepoint, saved) = (txn.savepoint()?, rows.clone());
        for _ in 0..1 + prng.below(8) {
            let (key, content) = (prng.below(KEYS), Content::draw(prng));
            match prng.below(8) {
                0 | 1 => assert_eq!(table.remove(key)?, rows.remove(&key).is_some()),
                2 => {
                    assert_eq!(table.update(key, &content.bytes())?, rows.contains_key(&key));
                    rows.entry(key).and_modify(|old| *old = content);
                }
                3 => {
                    let old = table.replace(key, &content.bytes())?;
                    let before = rows.insert(key, content);
                    assert!(old.map(|old| old.bytes().to_vec()) == before.map(Content::bytes));
                }
                4 => {
                    let is_new = table.insert_new(key, &content.bytes())?;
                    assert_eq!(is_new, !rows.contains_key(&key));
                    rows.entry(key).or_insert(content);
                }
                _ => {
                    table.insert(key, &content.bytes())?;
                    rows.insert(key, content);
                }
            }
        }
        if prng.below(5) == 0 {
            txn.rollback_to(&savepoint)?;
            rows = saved;
        }
    }
    Ok(rows)
}

/// Whether the table is as the map says.
fn contents(txn: &ReadTransaction, rows: &Ledger) -> Result<bool, Error> {
    let table = match txn.open_table(BLOCKS) {
        Err(Error::NoSuchTable { .. }) => return Ok(rows.is_empty()),
        table => table?,
    };
    let mut found = 0;
    for entry in table.range(..)? {
        let entry = entry?;
        let is_it = rows.get(&entry.key()).is_some_and(|content| {
            content.len == entry.value().len() && content.bytes() == entry.value()
        });
        if !is_it {
            return Ok(false);
        }
        found += 1;
    }
    Ok(found == rows.len())
}

/// Random transactions, with snapshots of before.
fn live(rig: &Rig, shape: &Shape, seed: u64, told: &LeafMutex<Told>) {
    let mut prng = Prng::from_seed(seed);
    let mut rows = told.lock().rows.clone();
    let db = rig.open(shape).expect("good devices");
    let mut snapshots: Vec<(ReadTransaction, Ledger)> = Vec::new();
    for _ in 0..25 {
        if prng.below(4) == 0 {
            snapshots.push((db.begin_read().expect("no error"), rows.clone()));
        }
        let txn = db.begin_write().expect("no error");
        let after = transaction(&txn, &rows, &mut prng).expect("room");
        if prng.below(4) == 0 {
            txn.rollback().expect("no error");
        } else {
            let durability =
                if prng.below(2) == 0 { Durability::Durable } else { Durability::None };
            told.lock().under_way = Some(after.clone());
            txn.commit(durability).expect("no error");
            if durability == Durability::Durable {
                *told.lock() = Told { rows: after.clone(), under_way: None };
                rows = after;
            } else {
                // Told once it is durable.
                let empty = db.begin_write().expect("no error");
                let mut table = empty.open_table(BLOCKS).expect("there");
                table.remove(KEYS + 1).expect("no error");
                empty.commit(Durability::Durable).expect("no error");
                *told.lock() = Told { rows: after.clone(), under_way: None };
                rows = after;
            }
        }
        if prng.below(3) == 0
            && let Some((txn, then)) = snapshots.pop()
        {
            assert!(contents(&txn, &then).expect("no error"), "seed {seed}: a snapshot changed");
        }
        if prng.below(8) == 0 {
            let kind = [Checkpoint::Sharp, Checkpoint::Indirect][prng.below(2) as usize];
            db.checkpoint(kind).expect("good devices");
        }
        if prng.below(20) == 0 {
            db.compact().expect("good devices");
        }
    }
    for (txn, then) in snapshots {
        assert!(contents(&txn, &then).expect("no error"), "seed {seed}: a snapshot changed");
    }
    db.check().expect("whole");
    let txn = db.begin_read().expect("no error");
    assert!(contents(&txn, &rows).expect("no error"), "seed {seed}");
    drop(txn);
    db.close().expect("good devices");
}

#[test]
fn blocks_are_as_in_a_map() {
    for (seed, shape) in (0..).zip(SHAPES) {
        let (mut rig, told) = (None, LeafMutex::new(Told::default()));
        for life in 0..3 {
            let world = world(seed * 10 + life);
            let now = match &rig {
                None => Rig::blank(&world.world(), 32 * MIB),
                Some(before) => Rig::in_world(before, &world.world()),
            };
            world
                .run(|| live(&now, &shape, seed * 10 + life, &told))
                .unwrap_or_else(|stopped| panic!("{shape:?}, life {life}: {stopped:?}"));
            rig = Some(now);
        }
    }
}

/// Cuts the power of a life at some event, and looks at what the next one has. An error if it lost
/// something, could not be opened, or leaked a page.
fn cut_is_survived(shape: &Shape, seed: u64, cuts: &mut u64) -> Result<(), String> {
    let mut prng = Prng::from_seed(seed ^ 0xc07);
    let told = LeafMutex::new(Told::default());
    let first = world(seed);
    let mut rig = Rig::blank(&first.world(), 32 * MIB);
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
        let rows = next
            .run(|| look(&rig, shape, &next.world(), &told))
            .map_err(|stopped| format!("life {life}: {stopped:?}"))?
            .map_err(|why| format!("life {life}: {why}"))?;
        *told.lock() = Told { rows, under_way: None };
    }
    Ok(())
}

/// Looks at a database after a cut: what it has, and that what no row refers to is freed.
fn look(rig: &Rig, shape: &Shape, world: &World, told: &LeafMutex<Told>) -> Result<Ledger, String> {
    let text = |error: Error| error.to_string();
    let db = rig.open(shape).map_err(text)?;
    let Told { rows, under_way } = told.lock().clone();
    db.check().map_err(text)?;
    let txn = db.begin_read().expect("no error");
    let mut found = None;
    for rows in [Some(rows), under_way].into_iter().flatten() {
        if contents(&txn, &rows).map_err(text)? {
            found = Some(rows);
        }
    }
    drop(txn);
    let found = found.ok_or("other values")?;
    sleep(Nanos::from_secs(1));
    let pending = db.check().map_err(text)?.pages_pending;
    if pending > KEPT {
        return Err(format!("{pending} pages are not freed"));
    }
    db.close().map_err(text)?;
    let rig = rig.in_world(world);
    let db = rig.open(shape).map_err(text)?;
    let pending = db.check().map_err(text)?.pages_pending;
    if pending > 0 {
        return Err(format!("{pending} pages are not freed by closing"));
    }
    db.close().map_err(text)?;
    Ok(found)
}

#[test]
fn a_power_cut_at_any_moment_leaves_what_was_committed() {
    let mut cuts = 0;
    let rounds = if std::env::var("TERRACE_TEST_MATRIX").is_ok() { 40 } else { 2 };
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
fn each_rule_of_blocks_is_needed() {
    let mut missed = Vec::new();
    let with = |mutation: Mutation, shape: Shape| Shape { mutations: mutation.into(), ..shape };
    for shape in [
        with(Mutation::ReuseBlocksEarly, NO_FLASH),
        with(Mutation::UnmarkedBlocks, NO_FLASH),
        with(Mutation::PageBeforeLog, NO_FLASH),
    ] {
        let sound = Shape { mutations: Mutations::NONE, ..shape };
        let found = (0..200).find_map(|seed| {
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

/// Blocks are overwritten for ever in the room of those that there are.
#[test]
fn overwriting_leaks_nothing() {
    let world = world(3);
    let rig = Rig::blank(&world.world(), 32 * MIB);
    let run = || {
        let db = rig.open(&NO_FLASH).expect("a new one");
        let mut prng = Prng::from_seed(3);
        let put = |db: &Database, key: u64, mark: u8| {
            db.write(|txn| txn.open_table(VOLUME)?.insert(key, [mark; 8192])).expect("room");
        };
        (0..2_000).for_each(|key| put(&db, key, 1));
        let before = db.table_bytes().expect("no error")["volume"];
        for round in 0..6_000 {
            put(&db, prng.below(2_000), round as u8);
        }
        let after = db.table_bytes().expect("no error")["volume"];
        assert!(after <= before + (KEPT + 8) * 8192, "{before} bytes became {after}");
        // Without a place in the map, which has no room: a removal needs none.
        db.write(|txn| {
            let mut table = txn.open_table(VOLUME)?;
            (0..2_000).try_for_each(|key| table.remove(key).map(drop))
        })
        .expect("no room is needed");
        sleep(Nanos::from_secs(2));
        let empty = db.table_bytes().expect("no error")["volume"];
        assert!(empty < (KEPT + 8) * 8192, "{empty} bytes of nothing");
        db.check().expect("whole");
        db.close().expect("good devices");
    };
    world.run(run).expect("nobody waits for ever");
}

/// A removal, and an undo of anything, needs no page: not when home is full to its last one.
#[test]
fn blocks_are_removed_from_a_full_home() {
    let world = world(4);
    let rig = Rig::blank(&world.world(), 16 * MIB);
    let run = || {
        let db = rig.open(&NO_FLASH).expect("a new one");
        let mut count = 0;
        let full = loop {
            match db.write(|txn| txn.open_table(VOLUME)?.insert(count, [7; 8192])) {
                Ok(()) => count += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, Error::HomeFull { .. }), "{full:?}");
        assert!(count > 1_500, "{count} blocks in 16 MiB");
        // Nor does one need room that changes nothing.
        db.write(|txn| {
            let mut table = txn.open_table(VOLUME)?;
            assert!(!table.insert_new(1, [9; 8192])?);
            assert!(!table.update(count + 1, [9; 8192])?);
            Ok::<_, Error>(())
        })
        .expect("no room is needed");
        let snapshot = db.begin_read().expect("no error");
        for key in 0..count {
            let txn = db.begin_write().expect("no error");
            let mut table = txn.open_table(VOLUME).expect("there");
            assert!(table.remove(key).expect("no room is needed"));
            drop(table);
            if key % 3 == 0 {
                txn.rollback().expect("no room is needed");
            } else {
                txn.commit(Durability::None).expect("no room is needed");
            }
        }
        let table = snapshot.open_table(VOLUME).expect("there");
        for key in 0..count {
            assert!(table.get(key).expect("no error").is_some(), "{key}: the snapshot has it");
        }
        drop(table);
        drop(snapshot);
        db.check().expect("whole");
        sleep(Nanos::from_secs(1));
        let mut put = 0;
        while db.write(|txn| txn.open_table(VOLUME)?.insert(10_000 + put, [8; 8192])).is_ok() {
            put += 1;
        }
        assert!(put + KEPT + 8 > count * 2 / 3, "{put} blocks in the room of {}", count * 2 / 3);
        db.check().expect("whole");
        db.close().expect("good devices");
    };
    world.run(run).expect("nobody waits for ever");
}

/// What tables keep for their next blocks is there for others once home is full.
#[test]
fn a_full_home_keeps_no_pages_for_later() {
    const HOARDERS: [TableDef<u64, [u8; 8192]>; 6] = [
        TableDef::new("a"),
        TableDef::new("b"),
        TableDef::new("c"),
        TableDef::new("d"),
        TableDef::new("e"),
        TableDef::new("f"),
    ];
    let world = world(6);
    let rig = Rig::blank(&world.world(), 16 * MIB);
    let run = || {
        let db = rig.open(&NO_FLASH).expect("a new one");
        for hoarder in HOARDERS {
            let put = |key| db.write(|txn| txn.open_table(hoarder)?.insert(key, [1; 8192]));
            (0..32).try_for_each(put).expect("room");
            let remove = |key| db.write(|txn| txn.open_table(hoarder)?.remove(key).map(drop));
            (0..32).try_for_each(remove).expect("no room is needed");
        }
        sleep(Nanos::from_secs(1));
        let kept = db.table_bytes().expect("no error")["a"];
        assert!(kept >= 32 * 8192, "{kept} bytes are kept");
        let mut count = 0;
        let refused = loop {
            match db.write(|txn| txn.open_table(VOLUME)?.insert(count, [7; 8192])) {
                Ok(()) => count += 1,
                Err(error) => break error,
            }
        };
        // Nothing is left that could be freed.
        assert!(matches!(refused, Error::HomeFull { is_held_up: false, .. }), "{refused:?}");
        let bytes = db.table_bytes().expect("no error");
        for hoarder in ["a", "b", "c", "d", "e", "f"] {
            assert!(bytes[hoarder] < 16 * 8192, "{} bytes of {hoarder}", bytes[hoarder]);
        }
        db.check().expect("whole");
        db.close().expect("good devices");
    };
    world.run(run).expect("nobody waits for ever");
}

/// Log bytes of an overwritten block, and space of those loaded in order.
#[test]
fn a_block_is_logged_once_and_takes_a_page() {
    let world = world(5);
    let rig = Rig::blank(&world.world(), 64 * MIB);
    let run = || {
        let db = rig.open(&SHAPES[1]).expect("a new one");
        let mut prng = Prng::from_seed(5);
        for first in (0..4_000).step_by(100) {
            db.write(|txn| {
                let mut table = txn.open_table(VOLUME)?;
                (first..first + 100).try_for_each(|key| table.insert(key, [1; 8192]))
            })
            .expect("room");
        }
        let bytes = db.table_bytes().expect("no error")["volume"];
        let space = bytes as f64 / (4_000.0 * 8192.0);
        assert!(space < 1.03, "{space} of the data");
        let before = db.stats().log.bytes;
        for round in 0..2_000 {
            let key = prng.below(4_000);
            db.write(|txn| txn.open_table(VOLUME)?.insert(key, [round as u8; 8192])).expect("room");
        }
        let logged = (db.stats().log.bytes - before) as f64 / (2_000.0 * 8192.0);
        println!("{space:.4} of the data in space, {logged:.4} in log");
        assert!(logged < 1.05, "{logged} of the data");
        db.close().expect("good devices");
    };
    world.run(run).expect("nobody waits for ever");
}
