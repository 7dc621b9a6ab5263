//! Values of several pages, and of one: they leave extents that are nearly empty.

use terrace_pool::{Mutation, Mutations};
use terrace_rt::{LeafMutex, Nanos, now, spawn};

use super::*;

const MIB: u64 = 1 << 20;

/// What a home takes with nine of ten rows deleted and compacted, over what a fresh one takes.
fn takes_of_fresh(len: usize, count: u64) -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    let home = |name: &str| {
        let path = folder.path().join(name);
        (Database::builder().memory(8 * MIB).create(&path).expect("a new path"), path)
    };
    let (db, path) = home("thinned");
    let mut prng = Prng::from_seed(len as u64);
    let mut ledger: Ledger = (0..count).map(|key| (key, vec![key as u8; len])).collect();
    load(&db, 0..count, &mut ledger, &mut prng);
    thin(&db, 10, &mut ledger, &mut prng);
    db.checkpoint(Checkpoint::Sharp).expect("no error");
    let before = allocated(&path);
    let compacted = db.compact().expect("no error");
    assert!(compacted.pages_moved > 0, "{compacted:?}");
    assert!(read(&db) == ledger);
    db.check().expect("sound");
    let (fresh, fresh_path) = home("fresh");
    load(&fresh, ledger.keys().copied().collect::<Vec<_>>().into_iter(), &mut ledger, &mut prng);
    fresh.checkpoint(Checkpoint::Sharp).expect("no error");
    let (after, fresh) = (allocated(&path), allocated(&fresh_path));
    println!("{len}: {before} before, {after} after, {fresh} fresh, {compacted:?}");
    if compacted.bytes_punched == 0 {
        return 1.0;
    }
    after as f64 / fresh as f64
}

#[test]
fn values_that_are_left_come_together() {
    for (len, count) in [(8_192, 6_000), (30_000, 1_500), (100_000, 500)] {
        let ratio = takes_of_fresh(len, count);
        assert!(ratio < 1.1, "{len}: {ratio}");
    }
}

/// A writer changes blocks and chains of its own beside compactions. Whether a change was lost.
fn loses_changes(seed: u64, mutations: Mutations) -> bool {
    let world = Virtual::new(VirtualConfig { seed, ..VirtualConfig::default() });
    let work = || {
        let here = terrace_rt::World::current();
        let device = |bytes| {
            let store = Store::new(bytes, Keep::Plain);
            SimDevice::with_faults(Preset::Nvme.spec(), here.clone(), store, Faults::default())
        };
        let (home, log) = (device(64 * MIB) as Arc<_>, device(64 * MIB) as Arc<_>);
        let builder = Database::builder()
            .memory(512 << 10)
            .devices(Devices { home, flash: None, log })
            .tune(move |tier| tier.mutations = mutations);
        let db = Arc::new(builder.create_on_devices().expect("room for a new one"));
        let (mut ledger, mut prng) = (Ledger::new(), Prng::from_seed(seed));
        let len = |key| if key % 3 == 0 { 20_000 } else { 8_192 };
        ledger.extend((0..600u64).map(|key| (key, vec![1; len(key)])));
        load(&db, 0..600, &mut ledger, &mut prng);
        thin(&db, 8, &mut ledger, &mut prng);
        let ends = now() + Nanos::from_millis(200);
        let keys: Vec<u64> = ledger.keys().copied().collect();
        let written: Arc<LeafMutex<Option<Result<Ledger, Error>>>> = Arc::default();
        let writer = spawn("writer", {
            let (db, mut own, written) = (Arc::clone(&db), ledger.clone(), Arc::clone(&written));
            let write = move || {
                while now() < ends {
                    let key = keys[prng.below(keys.len() as u64) as usize];
                    let value = vec![prng.below(256) as u8; own[&key].len()];
                    let rolls_back = prng.below(4) == 0;
                    let txn = db.begin_write().expect("open");
                    let put = txn.open_table(ROWS)?.insert(key, &value[..]);
                    if put.is_err() || rolls_back {
                        txn.rollback()?;
                    } else {
                        txn.commit(Durability::None)?;
                        own.insert(key, value);
                    }
                }
                Ok::<_, Error>(own)
            };
            move || *written.lock() = Some(write())
        });
        while now() < ends {
            if db.compact().is_err() {
                return true;
            }
        }
        writer.join();
        let Some(Ok(own)) = written.lock().take() else { return true };
        let is_sound = db.check().is_ok() && db.read(|txn| txn.open_table(ROWS).map(drop)).is_ok();
        !is_sound || read(&db) != own
    };
    world.run(work).expect("nobody waits for ever")
}

#[test]
fn changes_beside_values_that_move_are_not_lost() {
    for seed in 0..8 {
        assert!(!loses_changes(seed, Mutations::NONE), "seed {seed}");
    }
    let is_seen = (0..8).any(|seed| loses_changes(seed, Mutation::MoveUnlocked.into()));
    assert!(is_seen, "rows need not be locked");
}
