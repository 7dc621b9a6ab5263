//! Compaction in files and beside other threads: nothing is lost, and the file system gets the room
//! of what is free.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use terrace::{Checkpoint, Compacted, Database, Devices, Durability, Error, TableDef};
use terrace_device::model::{Faults, Preset, SimDevice};
use terrace_device::{Keep, Store};
use terrace_policy::{FlashRole, designs};
use terrace_rt::{Prng, Virtual, VirtualConfig};

#[path = "compaction/values.rs"]
mod values;

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const KEYS: u64 = 30_000;
const WRITERS: u64 = 3;
/// How long threads run beside compactions.
const SPAN: Duration = Duration::from_secs(2);

type Ledger = BTreeMap<u64, Vec<u8>>;

fn value(prng: &mut Prng) -> Vec<u8> {
    let len = match prng.below(200) {
        0 => prng.below(30_000),
        1..5 => 8_192,
        _ => prng.below(150),
    };
    vec![prng.below(256) as u8; len as usize]
}

fn load(db: &Database, keys: impl Iterator<Item = u64>, ledger: &mut Ledger, prng: &mut Prng) {
    let keys: Vec<u64> = keys.collect();
    for batch in keys.chunks(500) {
        db.write_with(Durability::None, |txn| {
            let mut rows = txn.open_table(ROWS)?;
            for key in batch {
                let value = ledger.entry(*key).or_insert_with(|| value(prng));
                rows.insert(*key, &value[..])?;
            }
            Ok::<_, Error>(())
        })
        .expect("room");
    }
}

fn thin(db: &Database, keep_one_in: u64, ledger: &mut Ledger, prng: &mut Prng) {
    let gone: Vec<u64> = ledger.keys().copied().filter(|_| prng.below(keep_one_in) != 0).collect();
    for batch in gone.chunks(500) {
        db.write_with(Durability::None, |txn| {
            let mut rows = txn.open_table(ROWS)?;
            batch.iter().try_for_each(|key| rows.remove(*key).map(drop))
        })
        .expect("no room is needed");
    }
    gone.iter().for_each(|key| drop(ledger.remove(key)));
}

fn read(db: &Database) -> Ledger {
    db.read(|txn| {
        let rows = txn.open_table(ROWS)?;
        let all = rows.range(..)?.map(|entry| {
            let entry = entry?;
            Ok((entry.key(), entry.value().to_vec()))
        });
        all.collect::<Result<Ledger, Error>>()
    })
    .expect("readable")
}

fn allocated(path: &Path) -> u64 {
    fs::metadata(path).expect("a file").blocks() * 512
}

#[test]
fn a_home_that_shrank_takes_little() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let db = Database::builder().memory(4 << 20).create(&path).expect("a new path");
    let (mut ledger, mut prng) = (Ledger::new(), Prng::from_seed(1));
    ledger.extend((0..KEYS * 8).map(|key| (key, vec![7; 100])));
    load(&db, 0..KEYS * 8, &mut ledger, &mut prng);
    thin(&db, 12, &mut ledger, &mut prng);
    db.checkpoint(Checkpoint::Sharp).expect("no error");
    let before = allocated(&path);
    let Compacted { bytes_punched, pages_freed, pages_moved, .. } = db.compact().expect("no error");
    assert!(pages_freed + pages_moved > 0);
    let after = allocated(&path);
    if bytes_punched > 0 {
        assert!(after * 3 < before, "{before} bytes before, {after} after");
    }
    db.check().expect("sound");
    assert!(read(&db) == ledger);
    db.close().expect("closed");
    // The room of holes is asked for again, as far as it is used.
    let db = Database::open(&path).expect("its own");
    load(&db, KEYS * 8..KEYS * 9, &mut ledger, &mut prng);
    assert!(read(&db) == ledger);
    let filled = allocated(&path);
    assert!(bytes_punched == 0 || filled < before, "{before} before, {after}, {filled} filled");
    db.check().expect("sound");
}

/// Writers change and remove rows of their own, and note what they have committed.
fn writer(db: &Database, me: u64, is_over: &AtomicBool) -> Ledger {
    let mut prng = Prng::from_seed(100 + me);
    let mut own = Ledger::new();
    while !is_over.load(Ordering::Relaxed) {
        let mut changed: Vec<(u64, Option<Vec<u8>>)> = Vec::new();
        let thins = prng.below(3) != 0;
        for _ in 0..1 + prng.below(40) {
            let key = prng.below(KEYS) * WRITERS + me;
            changed.push((key, (!thins).then(|| value(&mut prng))));
        }
        let rolls_back = prng.below(5) == 0;
        let txn = db.begin_write().expect("open");
        let done = txn.open_table(ROWS).and_then(|mut rows| {
            changed.iter().try_for_each(|(key, value)| match value {
                Some(value) => rows.insert(*key, &value[..]),
                None => rows.remove(*key).map(drop),
            })
        });
        match done {
            Ok(()) if !rolls_back => txn.commit(Durability::None).expect("committed"),
            Ok(()) => {
                txn.rollback().expect("no error");
                continue;
            }
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                txn.rollback().expect("no error");
                continue;
            }
        }
        for (key, value) in changed {
            match value {
                Some(value) => drop(own.insert(key, value)),
                None => drop(own.remove(&key)),
            }
        }
    }
    own
}

/// What a snapshot shows stays the same, and is in order.
fn reader(db: &Database, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let read = db.read(|txn| {
            let rows = txn.open_table(ROWS)?;
            let keys = || -> Result<Vec<(u64, usize)>, Error> {
                rows.range(..)?.map(|row| row.map(|row| (row.key(), row.value().len()))).collect()
            };
            let (first, second) = (keys()?, keys()?);
            assert!(first == second && first.is_sorted());
            Ok::<_, Error>(())
        });
        match read {
            Ok(()) | Err(Error::SnapshotTooOld) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn beside_threads(builder: terrace::Builder, path: &Path) {
    let db = builder.clone().create(path).expect("a new path");
    db.write(|txn| txn.open_table(ROWS).map(drop)).expect("made");
    let is_over = AtomicBool::new(false);
    let (ledger, compacted) = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|me| {
                scope.spawn({
                    let (db, over) = (&db, &is_over);
                    move || writer(db, me, over)
                })
            })
            .collect();
        scope.spawn(|| reader(&db, &is_over));
        let began = Instant::now();
        let mut total = Compacted::default();
        while began.elapsed() < SPAN {
            let compacted = db.compact().expect("no error");
            total.pages_freed += compacted.pages_freed;
            total.pages_moved += compacted.pages_moved;
        }
        is_over.store(true, Ordering::Relaxed);
        let ledger: Ledger =
            writers.into_iter().flat_map(|writer| writer.join().expect("no panic")).collect();
        (ledger, total)
    });
    assert!(compacted.pages_freed + compacted.pages_moved > 0, "{compacted:?}");
    db.check().expect("sound");
    assert!(read(&db) == ledger);
    db.close().expect("closed");
    let db = builder.open(path).expect("its own");
    db.check().expect("sound");
    assert!(read(&db) == ledger);
}

#[test]
fn threads_lose_nothing_beside_compactions() {
    let folder = tempfile::tempdir().expect("a folder");
    let builder = Database::builder().memory(2 << 20).log_size(32 << 20);
    beside_threads(builder, &folder.path().join("db"));
}

#[test]
fn threads_lose_nothing_with_flash() {
    for (design, role) in [("lc", FlashRole::Cache), ("face", FlashRole::Persistent)] {
        let folder = tempfile::tempdir().expect("a folder");
        let builder = Database::builder()
            .memory(1 << 20)
            .log_size(32 << 20)
            .design(designs::find(design).expect("a row of the table"))
            .flash_role(role)
            .flash(folder.path().join("flash"), 8 << 20);
        beside_threads(builder, &folder.path().join("db"));
    }
}

#[test]
fn closing_ends_a_compaction() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let (mut ledger, mut prng) = (Ledger::new(), Prng::from_seed(1));
    let db = Database::builder().memory(2 << 20).create(&path).expect("a new path");
    load(&db, 0..KEYS * 4, &mut ledger, &mut prng);
    thin(&db, 8, &mut ledger, &mut prng);
    let beside = db.clone();
    let compacting = thread::spawn(move || {
        loop {
            if let Err(error) = beside.compact() {
                return error;
            }
        }
    });
    thread::sleep(Duration::from_millis(30));
    let began = Instant::now();
    db.close().expect("closed");
    assert!(matches!(compacting.join().expect("no panic"), Error::Closed));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let db = Database::open(&path).expect("its own");
    db.check().expect("sound");
    assert!(read(&db) == ledger);
}

/// The bug: a compaction went on from leaf to leaf until it came to the last one, and never did as
/// long as queues grew at their end.
#[test]
fn a_compaction_ends_beside_queues_that_grow_at_their_end() {
    let db = Database::in_memory().expect("memory");
    let is_over = Arc::new(AtomicBool::new(false));
    let next = Arc::new(AtomicU64::new(0));
    let queues: Vec<_> = (0..2)
        .map(|_| {
            let (db, is_over, next) = (db.clone(), Arc::clone(&is_over), Arc::clone(&next));
            thread::spawn(move || {
                let mut queued = VecDeque::new();
                while !is_over.load(Ordering::Relaxed) {
                    let pushed: Vec<u64> =
                        (0..20).map(|_| next.fetch_add(1, Ordering::Relaxed)).collect();
                    let popped: Vec<u64> =
                        (1_000..queued.len()).filter_map(|_| queued.pop_front()).collect();
                    let done = db.write_with(Durability::None, |txn| {
                        let mut rows = txn.open_table(ROWS)?;
                        pushed.iter().try_for_each(|key| rows.insert(*key, &[7; 900]))?;
                        popped.iter().try_for_each(|key| rows.remove(*key).map(drop))
                    });
                    done.expect("room");
                    queued.extend(pushed);
                }
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(300));
    let (told, ended) = std::sync::mpsc::channel();
    let compacted = db.clone();
    thread::spawn(move || told.send(compacted.compact().map(drop)));
    let ended = ended.recv_timeout(Duration::from_secs(30));
    is_over.store(true, Ordering::Relaxed);
    queues.into_iter().for_each(|queue| queue.join().expect("no panic"));
    ended.expect("while the queues grew").expect("good devices");
    db.check().expect("sound");
}

/// The file system is full: a compaction needs no room of it, and makes some.
#[test]
fn a_full_disk_is_compacted() {
    let world = Virtual::new(VirtualConfig { seed: 3, ..VirtualConfig::default() });
    let work = || {
        let here = terrace_rt::World::current();
        let device = |bytes, full_from| {
            let store = Store::new(bytes, Keep::Plain);
            let faults = Faults { full_from, ..Faults::default() };
            SimDevice::with_faults(Preset::Nvme.spec(), here.clone(), store, faults)
        };
        let devices = Devices {
            home: device(256 << 20, Some(8 << 20)) as Arc<_>,
            flash: None,
            log: device(64 << 20, None) as Arc<_>,
        };
        let builder = Database::builder().memory(512 << 10).devices(devices);
        let db = builder.create_on_devices().expect("room for a new one");
        let (mut ledger, mut prng) = (Ledger::new(), Prng::from_seed(3));
        let full = (0..1_000u64).find_map(|batch| {
            let rows: Ledger = (0..100).map(|at| (batch * 100 + at, value(&mut prng))).collect();
            let done = db.write(|txn| {
                let mut table = txn.open_table(ROWS)?;
                rows.iter().try_for_each(|(key, value)| table.insert(*key, &value[..]))
            });
            if done.is_ok() {
                ledger.extend(rows);
            }
            done.err()
        });
        assert!(matches!(full, Some(Error::HomeFull { .. })), "{full:?}");
        db.compact().expect("it needs no room");
        thin(&db, 10, &mut ledger, &mut prng);
        let compacted = db.compact().expect("it needs no room");
        assert!(compacted.bytes_punched > 0);
        load(&db, 1 << 40..(1 << 40) + 2_000, &mut ledger, &mut prng);
        assert!(read(&db) == ledger);
        db.check().expect("sound");
        db.close().expect("closed");
    };
    world.run(work).expect("nobody waits for ever");
}
