//! Many tasks with little memory: each operation latches a few pages, and all of them together more
//! than there are frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace::{Database, Devices, Durability, Error, Nanos, TableDef, World};
use terrace_device::model::{Preset, build};
use terrace_device::{Keep, Store};
use terrace_rt::{Prng, Virtual, VirtualConfig, now, spawn};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const KEYS: u64 = 500;
const TASKS: u64 = 48;
const TRANSACTIONS: u64 = 60;
/// In memory a transaction takes far less.
const TOO_LONG: Nanos = Nanos::from_secs(10);

fn create() -> Database {
    let device = |preset, bytes| build(preset, World::current(), Store::new(bytes, Keep::Plain));
    let (home, log) = (device(Preset::Ram, 64 << 20), device(Preset::Ram, 16 << 20));
    let devices = Devices { home, flash: None, log };
    Database::builder().memory(128 << 10).devices(devices).create_on_devices().expect("memory")
}

fn change(db: &Database, prng: &mut Prng) -> Result<(), Error> {
    let (key, removes) = (prng.below(KEYS), prng.chance(4));
    // Every fourth row is a large value, of pages of its own.
    let row = vec![key as u8; if key % 4 == 3 { 20_000 } else { 300 }];
    db.write_with(Durability::None, |txn| {
        let mut rows = txn.open_table(ROWS)?;
        match removes {
            true => rows.remove(key).map(drop),
            false => rows.insert(key, &row[..]).map(drop),
        }
    })?;
    db.read(|txn| {
        let rows = txn.open_table(ROWS)?;
        let found = rows.get(key)?;
        let is_whole = |row: &[u8]| row.iter().all(|&byte| byte == key as u8);
        assert!(found.is_none_or(|row| is_whole(row.value())));
        Ok(())
    })
}

/// The bug: tasks took all frames from each other and waited for 20 s, until one got the error that
/// every frame is in use. Later: rollbacks that were refused frames tried again at once, and kept
/// each other and the holders of the frames from their turn, until a wait for a lock timed out.
#[test]
fn tasks_that_take_all_frames_from_each_other_go_on() {
    for seed in 0..60 {
        let config = VirtualConfig { seed, switch_one_in: 3, cores: 4, stack_bytes: 256 << 10 };
        let run = || {
            let db = create();
            db.write(|txn| txn.open_table(ROWS).map(drop)).expect("a table");
            let worst = Arc::new(AtomicU64::new(0));
            let work = |task| {
                let (db, worst) = (db.clone(), Arc::clone(&worst));
                move || {
                    let mut prng = Prng::from_seed(seed << 32 | task);
                    for _ in 0..TRANSACTIONS {
                        let began = now();
                        change(&db, &mut prng).expect("nothing fails");
                        worst.fetch_max(now().saturating_sub(began).0, Ordering::Relaxed);
                    }
                }
            };
            let tasks: Vec<_> = (0..TASKS).map(|task| spawn("changes", work(task))).collect();
            tasks.into_iter().for_each(terrace_rt::Task::join);
            let worst = Nanos(worst.load(Ordering::Relaxed));
            assert!(worst < TOO_LONG, "seed {seed}: {worst:?}");
            db.check().expect("sound");
            db.close().expect("closed");
        };
        Virtual::new(config).run(run).expect("nobody waits for ever");
    }
}
