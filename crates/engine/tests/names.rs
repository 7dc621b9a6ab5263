//! Tables made, dropped, renamed, made again and filled at random, held against a model, with the
//! power cut at every event.

use std::collections::BTreeMap;
use std::sync::Arc;

use terrace::{Checkpoint, Database, Devices, Durability, Error, TableDef, WriteTransaction};
use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Keep, Store};
use terrace_pool::{Mutation, Mutations};
use terrace_rt::{LeafMutex, Prng, Stopped, Virtual, VirtualConfig, World};

const NAMES: [&str; 3] = ["apples", "pears", "quinces"];
const TRANSACTIONS: u64 = 14;

/// The devices of one history, from world to world.
struct Rig {
    home: Arc<SimDevice>,
    log: Arc<SimDevice>,
}

impl Rig {
    fn blank(world: &World) -> Rig {
        let device = |bytes| {
            let spec = Preset::Ram.spec().with_write_cache();
            SimDevice::new(spec, world.clone(), Store::new(bytes, Keep::Plain))
        };
        Rig { home: device(16 << 20), log: device(4 << 20) }
    }

    fn cut(&self, prng: &mut Prng) {
        self.home.power_cut(prng);
        self.log.power_cut(prng);
    }

    fn in_world(&self, world: &World) -> Rig {
        Rig { home: self.home.reopen(world.clone()), log: self.log.reopen(world.clone()) }
    }

    fn open(&self) -> Result<Database, Error> {
        self.open_with(Mutations::NONE)
    }

    fn open_with(&self, mutations: Mutations) -> Result<Database, Error> {
        let (home, log) = (Arc::clone(&self.home), Arc::clone(&self.log));
        let devices = Devices { home, flash: None, log };
        let builder = Database::builder().memory(512 << 10).devices(devices);
        builder.tune(move |tier| tier.mutations = mutations).open_or_create_on_devices()
    }
}

fn world(seed: u64) -> Virtual {
    Virtual::new(VirtualConfig { seed, switch_one_in: 0, cores: 1, stack_bytes: 256 << 10 })
}

/// Tables, and their rows.
type Model = BTreeMap<&'static str, BTreeMap<u64, Vec<u8>>>;

fn table(name: &'static str) -> TableDef<'static, u64, &'static [u8]> {
    TableDef::new(name)
}

/// A value, now and then one for overflow pages.
fn value(prng: &mut Prng) -> Vec<u8> {
    let len = if prng.chance(6) { 5_000 + prng.below(30_000) } else { prng.below(300) };
    vec![prng.below(256) as u8; len as usize]
}

/// One random operation, on the database and on its model.
fn step(txn: &WriteTransaction, model: &mut Model, prng: &mut Prng) -> Result<(), Error> {
    let name = NAMES[prng.below(3) as usize];
    match prng.below(10) {
        0..3 => {
            let was_there = model.remove(name).is_some();
            assert_eq!(txn.delete_table(name)?, was_there, "{name}");
        }
        4 => {
            let to = NAMES[prng.below(3) as usize];
            match txn.rename_table(name, to) {
                Ok(renamed) => assert_eq!(renamed, model.contains_key(name), "{name} to {to}"),
                Err(Error::TableExists { name: taken }) => {
                    assert!(
                        name != to && *taken == *to && model.contains_key(to),
                        "{name} to {to}"
                    );
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            if let Some(rows) = model.remove(name) {
                model.insert(to, rows);
            }
        }
        3 if !model.contains_key(name) => {
            let rows: BTreeMap<u64, Vec<u8>> =
                (0..prng.below(60)).map(|row| (row * 3, value(prng))).collect();
            let mut loader = txn.bulk_load(table(name))?;
            for (row, value) in &rows {
                loader.push(*row, value)?;
            }
            loader.finish()?;
            model.insert(name, rows);
        }
        _ => {
            let rows = model.entry(name).or_default();
            let mut table = txn.open_table(table(name))?;
            for _ in 0..prng.below(12) {
                let row = prng.below(100);
                if prng.chance(4) {
                    rows.remove(&row);
                    table.remove(row)?;
                } else {
                    let value = value(prng);
                    table.insert(row, &value)?;
                    rows.insert(row, value);
                }
            }
        }
    }
    Ok(())
}

/// A transaction: steps, savepoints and returns to them; what it leaves, if it commits.
fn transact(db: &Database, mut model: Model, prng: &mut Prng) -> Result<Option<Model>, Error> {
    let txn = db.begin_write()?;
    let mut saved = None;
    for _ in 0..1 + prng.below(6) {
        match prng.below(8) {
            0 => saved = Some((txn.savepoint()?, model.clone())),
            1 => {
                if let Some((savepoint, then)) = &saved {
                    txn.rollback_to(savepoint)?;
                    model = then.clone();
                }
            }
            _ => step(&txn, &mut model, prng)?,
        }
        let names: Vec<&str> = model.keys().copied().collect();
        assert_eq!(txn.table_names()?, names);
    }
    if prng.chance(4) {
        txn.rollback()?;
        return Ok(None);
    }
    txn.commit(Durability::Durable)?;
    Ok(Some(model))
}

fn contents(db: &Database) -> Result<Model, Error> {
    db.read(|txn| {
        let mut model = Model::new();
        for name in txn.table_names()? {
            let name = NAMES.into_iter().find(|known| *known == name).expect("a known name");
            let rows = txn.open_table(table(name))?;
            let rows = rows.range(..)?.map(|entry| entry.map(|e| (e.key(), e.value().to_vec())));
            model.insert(name, rows.collect::<Result<_, Error>>()?);
        }
        Ok(model)
    })
}

/// What must be there: after the last commit that was reported, or the one under way.
#[derive(Clone, Default)]
struct Expected {
    now: Model,
    next: Option<Model>,
}

/// Runs the history of `seed`.
fn run(rig: &Rig, seed: u64, expected: &LeafMutex<Expected>) -> Result<(), Error> {
    let db = rig.open()?;
    for number in 0..TRANSACTIONS {
        let now = expected.lock().now.clone();
        let mut prng = Prng::from_seed(seed * 1_000 + number);
        // On the model alone first: what a commit under way may show.
        expected.lock().next = rehearse(&now, &prng);
        if let Some(after) = transact(&db, now, &mut prng)? {
            expected.lock().now = after;
        }
        expected.lock().next = None;
        if number % 5 == 4 {
            db.checkpoint(Checkpoint::Indirect)?;
        }
    }
    assert_eq!(contents(&db)?, expected.lock().now, "seed {seed}");
    db.check()?;
    db.close()
}

/// What `transact` leaves, on a model without a database.
fn rehearse(model: &Model, prng: &Prng) -> Option<Model> {
    let (mut model, mut prng) = (model.clone(), prng.clone());
    let prng = &mut prng;
    let mut saved = None;
    for _ in 0..1 + prng.below(6) {
        match prng.below(8) {
            0 => saved = Some(model.clone()),
            1 => {
                if let Some(then) = &saved {
                    model = Model::clone(then);
                }
            }
            _ => rehearse_step(&mut model, prng),
        }
    }
    (!prng.chance(4)).then_some(model)
}

fn rehearse_step(model: &mut Model, prng: &mut Prng) {
    let name = NAMES[prng.below(3) as usize];
    match prng.below(10) {
        0..3 => drop(model.remove(name)),
        4 => {
            let to = NAMES[prng.below(3) as usize];
            if !model.contains_key(to)
                && let Some(rows) = model.remove(name)
            {
                model.insert(to, rows);
            }
        }
        3 if !model.contains_key(name) => {
            let rows = (0..prng.below(60)).map(|row| (row * 3, value(prng))).collect();
            model.insert(name, rows);
        }
        _ => {
            let rows = model.entry(name).or_default();
            for _ in 0..prng.below(12) {
                let row = prng.below(100);
                if prng.chance(4) {
                    rows.remove(&row);
                } else {
                    rows.insert(row, value(prng));
                }
            }
        }
    }
}

/// Runs the history of `seed` to event `at` and cuts; returns false if it ended before.
fn cut_at(seed: u64, at: u64, recuts: u64) -> bool {
    let first = world(seed.wrapping_add(at));
    let mut rig = Rig::blank(&first.world());
    let expected = LeafMutex::new(Expected::default());
    first.cut_at_event(at);
    let mut prng = Prng::from_seed(at);
    match first.run(|| run(&rig, seed, &expected)) {
        Ok(ran) => {
            ran.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            return false;
        }
        Err(Stopped::PowerCut { .. }) => rig.cut(&mut prng),
        Err(stopped) => panic!("{stopped:?} at event {at} of seed {seed}"),
    }
    for recut in 0..recuts {
        let again = world(at + recut);
        rig = rig.in_world(&again.world());
        again.cut_at_event(1 + prng.below(80));
        match again.run(|| rig.open().map(drop)) {
            Ok(opened) => opened.expect("recovers"),
            Err(_) => rig.cut(&mut prng),
        }
    }
    let last = world(at);
    let rig = rig.in_world(&last.world());
    let expected = expected.lock().clone();
    last.run(|| {
        let db = rig.open().unwrap_or_else(|error| panic!("event {at} of seed {seed}: {error}"));
        db.check().unwrap_or_else(|error| panic!("event {at} of seed {seed}: {error}"));
        let found = contents(&db).expect("readable");
        let is_next = expected.next.as_ref() == Some(&found);
        assert!(is_next || found == expected.now, "event {at} of seed {seed}: other rows");
        // It goes on, and a table made anew is empty.
        let mut prng = Prng::from_seed(at);
        for _ in 0..3 {
            let now = contents(&db).expect("readable");
            let left = transact(&db, now.clone(), &mut prng).expect("goes on").unwrap_or(now);
            assert_eq!(contents(&db).expect("readable"), left, "event {at} of seed {seed}");
        }
        db.check().expect("sound");
        db.close().expect("good devices");
    })
    .expect("nobody waits for ever");
    true
}

/// A table that was deleted and made again in one transaction left, after a crash, a database that
/// never opened; rolled back, it failed the engine.
#[test]
fn tables_made_and_dropped_in_one_transaction_survive_every_cut() {
    for seed in 1..9 {
        let mut at = 1;
        while cut_at(seed, at, 0) {
            at += 1 + at / 40 + seed % 3;
        }
        assert!(at > 100, "the history has only {at} events");
    }
}

#[test]
fn recovery_of_names_can_be_cut_again_and_again() {
    for seed in 20..24 {
        let mut at = 5;
        while cut_at(seed, at, 3) {
            at += 11 + at / 30;
        }
    }
}

#[test]
fn histories_of_names_agree_with_their_model() {
    for seed in 100..400 {
        assert!(!cut_at(seed, u64::MAX, 0));
    }
}

/// A drop that a savepoint took back was forgotten by the names, not by the commit: that freed the
/// pages of a table that was there.
#[test]
fn a_drop_that_a_savepoint_takes_back_frees_nothing() {
    let world = world(1);
    let rig = Rig::blank(&world.world());
    let ran = world.run(|| {
        let db = rig.open()?;
        db.write(|txn| txn.open_table(table("apples"))?.insert(1, &[7; 100]).map(drop))?;
        let txn = db.begin_write()?;
        let before = txn.savepoint()?;
        assert!(txn.delete_table("apples")?);
        txn.rollback_to(&before)?;
        txn.commit(Durability::Durable)?;
        // What was freed would be given to the next.
        for _ in 0..4 {
            db.write(|txn| {
                let mut other = txn.open_table(table("pears"))?;
                (0..200).try_for_each(|row| other.insert(row, &[9; 1_000]).map(drop))
            })?;
        }
        db.check()?;
        let row = db.read(|txn| Ok::<_, Error>(txn.open_table(table("apples"))?.get(1)?.is_some()));
        assert!(row?);
        db.close()
    });
    ran.expect("nobody waits for ever").expect("no error");
}

/// A name so long that the record of a table with it crosses the sectors of the log.
fn long_name(seed: u64, number: u64) -> String {
    format!("{number}{}", "n".repeat(500 + (seed * 37 % 500) as usize))
}

/// Changes rows of a table and gives it another name, in a transaction that does not end, or is
/// being rolled back; cuts the power as another one's commit forces the log, at event `after`.
/// Returns whether the event came, and how the next opening went.
fn rename_and_cut(seed: u64, after: u64, mutations: Mutations) -> (bool, Result<(), Error>) {
    let first = world(seed);
    let rig = Rig::blank(&first.world());
    let (old, new) = (long_name(seed, 1), long_name(seed, 2));
    let (old, new) = (TableDef::<u64, &[u8]>::new(&old), TableDef::<u64, &[u8]>::new(&new));
    let row: &[u8] = &[7; 100];
    let ran = first.run(|| {
        let db = rig.open_with(mutations)?;
        db.write_with(Durability::Durable, |txn| txn.open_table(old)?.insert(1, row))?;
        let txn = db.begin_write()?;
        txn.open_table(old)?.insert(1, &[8; 100])?;
        assert!(txn.rename_table(old.name(), new.name())?);
        if seed.is_multiple_of(2) {
            txn.rollback()?;
        } else {
            std::mem::forget(txn);
        }
        first.cut_at_event(first.world().events() + after);
        db.write_with(Durability::Durable, |txn| txn.open_table(table("pears"))?.insert(1, row))
    });
    match ran {
        Err(Stopped::PowerCut { .. }) => {}
        ran => {
            ran.expect("nobody waits for ever").expect("no error");
            return (false, Ok(()));
        }
    }
    rig.cut(&mut Prng::from_seed(seed ^ after << 32));
    let last = world(seed);
    let rig = rig.in_world(&last.world());
    let opened = last.run(|| {
        let db = rig.open_with(mutations)?;
        db.check()?;
        let found = db.read(|txn| {
            assert_eq!(txn.open_table(new).err().map(|error| error.is_transient()), Some(false));
            Ok::<_, Error>(txn.open_table(old)?.get(1)?.map(|found| found.value().to_vec()))
        })?;
        assert_eq!(found.as_deref(), Some(row), "event {after} of seed {seed}");
        db.close()
    });
    (true, opened.expect("nobody waits for ever"))
}

/// How many cuts there were, until an opening was refused.
fn cuts_of_renames(seeds: u64, mutations: Mutations) -> Result<u64, Error> {
    let mut cuts = 0;
    for seed in 0..seeds {
        for after in 0.. {
            let (came, opened) = rename_and_cut(seed, after, mutations);
            opened?;
            if !came {
                break;
            }
            cuts += 1;
        }
    }
    Ok(cuts)
}

/// Between the end of the old name and the new one no entry of the catalog named the tree: an
/// opening after a crash there could not undo its rows, and each one after it failed alike.
#[test]
fn a_name_that_is_changed_survives_a_log_that_ends_in_between() {
    let cuts = cuts_of_renames(12, Mutations::NONE).expect("each opening recovers");
    assert!(cuts > 100, "{cuts} cuts");
    let broken = cuts_of_renames(60, Mutation::RenameWithoutGarbage.into());
    assert!(broken.is_err(), "no cut finds that a tree has no entry for a moment");
}
