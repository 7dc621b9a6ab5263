//! Many keys at once: against single ones, and in how many rounds of reads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use terrace::{Database, Devices, Durability, Error, TableDef};
use terrace_device::model::{Faults, Preset, SimDevice};
use terrace_device::{Keep, Store};
use terrace_rt::{Nanos, Prng, Virtual, VirtualConfig, now};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const MIB: u64 = 1 << 20;

fn in_world(seed: u64, memory: u64, work: impl FnOnce(&Database) + Send) {
    let world = Virtual::new(VirtualConfig { seed, ..VirtualConfig::default() });
    let run = || {
        let here = terrace_rt::World::current();
        let device = |preset: Preset| {
            let store = Store::new(64 * MIB, Keep::Plain);
            SimDevice::with_faults(preset.spec(), here.clone(), store, Faults::default())
        };
        let devices = Devices {
            home: device(Preset::P300) as Arc<_>,
            flash: None,
            log: device(Preset::Ram) as Arc<_>,
        };
        let builder = Database::builder().memory(memory).devices(devices);
        let db = builder.create_on_devices().expect("room");
        work(&db);
        db.close().expect("closed");
    };
    world.run(run).expect("nobody waits for ever");
}

fn value(prng: &mut Prng) -> Vec<u8> {
    let len = match prng.below(12) {
        0 => 8_192,
        1 => prng.below(40_000),
        2 => prng.below(4_000),
        _ => prng.below(200),
    };
    vec![prng.below(256) as u8; len as usize]
}

/// Random groups of keys, some of them twice, some not there, through snapshots and in
/// transactions that have changes of their own: as a map has them.
#[test]
fn groups_agree_with_a_map() {
    for seed in 0..6 {
        // The least memory there is: most of a group has left it when its turn comes.
        let memory = if seed % 2 == 0 { 256 << 10 } else { 4 * MIB };
        in_world(seed, memory, |db| {
            let (mut prng, mut map) = (Prng::from_seed(seed), BTreeMap::<u64, Vec<u8>>::new());
            for _round in 0..40 {
                let count = prng.below(200);
                let entries: Vec<(u64, Vec<u8>)> =
                    (0..count).map(|_| (prng.below(600), value(&mut prng))).collect();
                let txn = db.begin_write().expect("open");
                let mut rows = txn.open_table(ROWS).expect("made");
                let views = entries.iter().map(|(key, value)| (*key, &value[..]));
                rows.insert_many(views).expect("room");
                let mut changed = map.clone();
                changed.extend(entries.iter().cloned());
                let keys: Vec<u64> = (0..prng.below(150)).map(|_| prng.below(700)).collect();
                let agrees = |found: Vec<Option<terrace::Owned<&'static [u8]>>>,
                              map: &BTreeMap<_, Vec<u8>>| {
                    let found = found.iter().map(|it| it.as_ref().map(|it| it.value().to_vec()));
                    let expected = keys.iter().map(|key| map.get(key).cloned());
                    assert!(found.eq(expected), "seed {seed}");
                };
                agrees(rows.get_many(keys.iter().copied()).expect("readable"), &changed);
                drop(rows);
                // What it has not committed is seen by nobody else.
                let read = db.begin_read().expect("open");
                if let Ok(seen) = read.open_table(ROWS) {
                    agrees(seen.get_many(keys.iter().copied()).expect("readable"), &map);
                }
                if prng.below(3) == 0 {
                    txn.rollback().expect("no error");
                } else {
                    txn.commit(Durability::None).expect("committed");
                    map = changed;
                }
            }
            db.check().expect("sound");
        });
    }
}

/// Snapshots on OS threads read groups of a file while others split leaves and change rows: each
/// sees both rows of a pair as one transaction left them, and neither side waits for ever.
#[test]
fn groups_of_threads_are_of_one_moment() {
    const PAIRS: u64 = 1_500;
    let folder = tempfile::tempdir().expect("a folder");
    let db = Database::builder().memory(MIB).create(folder.path().join("home")).expect("room");
    let both = |txn: &terrace::WriteTransaction, pair: u64, value: &[u8]| {
        let mut rows = txn.open_table(ROWS)?;
        rows.insert(2 * pair, value)?;
        rows.insert(2 * (pair + PAIRS), value).map(drop)
    };
    for pair in 0..PAIRS {
        db.write_with(Durability::None, |txn| both(txn, pair, &[0; 500])).expect("room");
    }
    db.checkpoint(terrace::Checkpoint::Sharp).expect("room");
    let (is_over, groups) = (AtomicBool::new(false), AtomicU64::new(0));
    let write = |seed| {
        let mut prng = Prng::from_seed(seed);
        while !is_over.load(Ordering::Relaxed) {
            let (pair, bytes) = (prng.below(PAIRS), vec![1; prng.below(2_000) as usize]);
            db.write_with(Durability::None, |txn| both(txn, pair, &bytes)).expect("room");
        }
    };
    let read = |seed| {
        let mut prng = Prng::from_seed(seed);
        while !is_over.load(Ordering::Relaxed) {
            let pairs: Vec<u64> = (0..32).map(|_| prng.below(PAIRS)).collect();
            let keys = pairs.iter().flat_map(|pair| [2 * pair, 2 * (pair + PAIRS), 2 * pair + 1]);
            let txn = db.begin_read().expect("open");
            let rows = txn.open_table(ROWS).expect("there");
            let found = rows.get_many(keys).expect("readable");
            for found in found.chunks(3) {
                let values: Vec<_> =
                    found.iter().map(|it| it.as_ref().map(|it| it.value())).collect();
                assert!(values[0].is_some() && values[0] == values[1], "two moments");
                assert_eq!(values[2], None, "no transaction inserts it");
            }
            groups.fetch_add(1, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        let (write, read) = (&write, &read);
        (0..2).for_each(|seed| drop(scope.spawn(move || write(seed))));
        (2..4).for_each(|seed| drop(scope.spawn(move || read(seed))));
        let (began, mut seen, mut since) = (Instant::now(), 0, Instant::now());
        while began.elapsed() < Duration::from_secs(3) || seen < 20 {
            thread::sleep(Duration::from_millis(20));
            let now = groups.load(Ordering::Relaxed);
            if now != seen {
                (seen, since) = (now, Instant::now());
            } else if since.elapsed() > Duration::from_secs(60) {
                eprintln!("threads stand still:\n{}", db.debug_waits());
                std::process::abort();
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    db.check().expect("sound");
    db.close().expect("closed");
}

/// How long 64 keys of distinct leaves take that are not in memory, one by one and at once.
#[test]
fn a_group_is_read_in_a_round_for_each_level() {
    // Much more than a group: what is read for it must not drive itself out.
    in_world(1, 8 * MIB, |db| {
        for first in (0..90_000u64).step_by(5_000) {
            let load = |txn: &terrace::WriteTransaction| {
                txn.open_table(ROWS)?
                    .insert_many((first..first + 5_000).map(|key| (key, &[1; 400][..])))
            };
            db.write_with(Durability::None, load).expect("room");
        }
        db.checkpoint(terrace::Checkpoint::Sharp).expect("no error");
        let keys = |from: u64| (0..64).map(move |at| from + at * 1_400);
        let took = |work: &dyn Fn() -> Result<(), Error>| {
            let began = now();
            work().expect("readable");
            now() - began
        };
        let txn = db.begin_read().expect("open");
        let rows = txn.open_table(ROWS).expect("there");
        let single = took(&|| keys(100).try_for_each(|key| rows.get(key).map(drop)));
        let group = took(&|| rows.get_many(keys(400)).map(drop));
        println!("{single:?} one by one, {group:?} at once");
        assert!(group > Nanos::ZERO && group * 5 < single, "{single:?}, {group:?}");
    });
}
