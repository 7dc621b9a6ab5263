//! Rows changed in place, and rows kept while their range goes on, each against a map.

use std::collections::BTreeMap;
use std::sync::Arc;

use terrace::{Database, Devices, Durability, Entry, Error, TableDef, World};
use terrace_device::model::{Preset, build};
use terrace_device::{Device, Keep, Store};
use terrace_rt::{Prng, Virtual, VirtualConfig};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const NAMES: TableDef<u64, &str> = TableDef::new("names");

type Model = BTreeMap<u64, Vec<u8>>;

fn memory(bytes: u64) -> Arc<dyn Device> {
    build(Preset::Ram, World::current(), Store::new(bytes, Keep::Plain))
}

fn with_database(seed: u64, run: impl FnOnce(&Database)) {
    let config = VirtualConfig { seed, switch_one_in: 0, cores: 1, stack_bytes: 256 << 10 };
    let world = Virtual::new(config);
    let ran = world.run(|| {
        let devices = Devices { home: memory(64 << 20), flash: None, log: memory(16 << 20) };
        let builder = Database::builder().memory(4 << 20).devices(devices);
        let db = builder.create_on_devices().expect("memory is there");
        run(&db);
        db.close().expect("memory");
    });
    ran.expect("nobody waits for ever");
}

/// What a modification was refused with.
#[derive(Debug, PartialEq)]
enum Refused {
    ByItself,
    ByTheEngine,
}

impl From<Error> for Refused {
    fn from(_: Error) -> Refused {
        Refused::ByTheEngine
    }
}

/// Another value, often of about the same length, sometimes one for overflow pages.
fn changed(prng: &mut Prng, value: &mut Vec<u8>) {
    let len = match prng.below(8) {
        0 => prng.below(9000),
        1 | 2 => prng.below(300),
        _ => value.len() as u64,
    };
    value.resize(len as usize, 7);
    if let Some(last) = value.len().checked_sub(1) {
        value[prng.below(last as u64 + 1) as usize] ^= 1;
    }
}

#[test]
fn modified_values_are_those_of_a_map() {
    for seed in 0..12 {
        with_database(seed, |db| {
            let mut prng = Prng::from_seed(seed);
            let mut model = Model::new();
            for _ in 0..30 {
                let txn = db.begin_write().expect("open");
                let mut rows = txn.open_table(ROWS).expect("its name");
                let (mut next, mut row) = (model.clone(), Vec::new());
                for _ in 0..40 {
                    let key = prng.below(60);
                    if prng.below(4) == 0 {
                        let value = vec![1; prng.below(200) as usize];
                        rows.insert(key, &value).expect("room");
                        next.insert(key, value);
                        continue;
                    }
                    let refuses = prng.below(5) == 0;
                    let found = rows.modify(key, &mut row, |row| {
                        assert_eq!(Some(&*row), next.get(&key));
                        changed(&mut prng, row);
                        if refuses { Err(Refused::ByItself) } else { Ok(()) }
                    });
                    let expected = match (next.get_mut(&key), refuses) {
                        (None, _) => Ok(false),
                        (Some(_), true) => Err(Refused::ByItself),
                        (Some(value), false) => {
                            value.clone_from(&row);
                            Ok(true)
                        }
                    };
                    assert_eq!(found, expected, "seed {seed} key {key}");
                }
                if prng.below(4) == 0 {
                    txn.rollback().expect("undone");
                } else {
                    txn.commit(terrace::Durability::None).expect("room");
                    model = next;
                }
                assert_eq!(all(db), model, "seed {seed}");
            }
            db.check().expect("whole");
        });
    }
}

fn all(db: &Database) -> Model {
    let read = db.read(|txn| {
        let rows = txn.open_table(ROWS)?;
        rows.range(..)?.map(|entry| entry.map(|e| (e.key(), e.value().to_vec()))).collect()
    });
    read.or_else(|error| match error {
        Error::NoSuchTable { .. } => Ok(Model::new()),
        other => Err(other),
    })
    .expect("readable")
}

#[test]
fn bytes_that_are_no_value_are_refused() {
    with_database(1, |db| {
        let txn = db.begin_write().expect("open");
        let mut names = txn.open_table(NAMES).expect("its name");
        names.insert(1, "one").expect("room");
        let refused = names.modify(1, &mut Vec::new(), |row| {
            row[0] = 0xff;
            Ok::<_, Error>(())
        });
        assert!(matches!(refused, Err(Error::NotAValue { .. })), "{refused:?}");
        assert_eq!(names.get(1).expect("not doomed").expect("there").value(), "one");
    });
}

/// Entries share the memory of their batch, which is filled anew when none of them is left.
#[test]
fn entries_stay_as_they_are_while_their_range_goes_on() {
    with_database(1, |db| {
        let value = |key: u64| vec![key as u8; 1 + (key % 90) as usize];
        db.write(|txn| {
            let mut rows = txn.open_table(ROWS)?;
            (0..2000).try_for_each(|key| rows.insert(key, &value(key)))
        })
        .expect("room");
        let txn = db.begin_read().expect("open");
        let rows = txn.open_table(ROWS).expect("there");
        for seed in 0..200 {
            let mut prng = Prng::from_seed(seed);
            let (from, to) = (prng.below(2000), prng.below(2200));
            let (mut low, mut high) = (from, to.min(2000));
            let mut range = rows.range(from..to).expect("good bounds");
            let mut kept: Vec<(u64, Entry<u64, &[u8]>)> = Vec::new();
            let forward_one_in = 1 + prng.below(4);
            loop {
                let forward = prng.below(forward_one_in) == 0;
                let entry = if forward { range.next() } else { range.next_back() };
                let expected = (low < high).then(|| if forward { low } else { high - 1 });
                let entry = entry.transpose().expect("no conflict");
                assert_eq!(entry.as_ref().map(Entry::key), expected, "seed {seed}");
                let (Some(entry), Some(key)) = (entry, expected) else { break };
                if forward {
                    low += 1;
                } else {
                    high -= 1;
                }
                if prng.below(9) == 0 {
                    kept.push((key, entry));
                }
            }
            assert!(range.next().is_none() && range.next_back().is_none(), "seed {seed}");
            for (key, entry) in kept {
                assert_eq!((entry.key(), entry.value()), (key, &value(key)[..]), "seed {seed}");
            }
        }
    });
}

/// How many pages a scan of all rows read ahead, and how many requests home had for it.
fn read_by(db: &Database, scan: impl FnOnce() -> Result<u64, Error>) -> (u64, u64) {
    let before = db.stats().pool;
    assert_eq!(scan().expect("good devices"), 40_000);
    let after = db.stats().pool;
    (after.pages_read_ahead - before.pages_read_ahead, after.home_reads - before.home_reads)
}

/// What is read of rows whose values have pages of their own.
#[test]
fn a_range_of_keys_reads_no_value() {
    with_database(1, |db| {
        let value = |key: u64| vec![key as u8; 10_000 + (key as usize % 7) * 30_000];
        for key in 0..300 {
            db.write(|txn| txn.open_table(ROWS)?.insert(key, &value(key))).expect("room");
        }
        for writes in [false, true] {
            let before = db.stats().pool;
            let scan = |txn: &dyn Fn() -> Result<(u64, u64), Error>| txn().expect("good devices");
            let found = if writes {
                let txn = db.begin_write().expect("open");
                scan(&|| sum(txn.open_table(ROWS)?.keys(10..)?))
            } else {
                let txn = db.begin_read().expect("open");
                scan(&|| sum(txn.open_table(ROWS)?.keys(10..)?))
            };
            assert_eq!(found, (290, (10..300).sum()));
            let after = db.stats().pool;
            let read = (after.hits + after.misses) - (before.hits + before.misses);
            assert!(read < 300, "{read} pages for 300 rows of two pages and more each");
        }
    });
}

/// How many keys there are, and their sum.
fn sum<T: terrace::Transaction>(keys: terrace::Range<'_, u64, (), T>) -> Result<(u64, u64), Error> {
    keys.into_iter().try_fold((0, 0), |(count, sum), entry| {
        let entry = entry?;
        let () = entry.value();
        Ok((count + 1, sum + entry.key()))
    })
}

/// The bugs: at the end of each inner node a scan requested no more leaves until it had walked the
/// number that it might have requested; and in a full memory what was read ahead left before it was
/// reached, since what the scan had passed counted as used twice.
#[test]
fn a_scan_of_more_than_memory_reads_nearly_all_of_it_ahead() {
    with_database(1, |db| {
        let txn = db.begin_write().expect("open");
        let mut loader = txn.bulk_load(ROWS).expect("it is new");
        (0..40_000).try_for_each(|key| loader.push(key, &[3; 300])).expect("room");
        loader.finish().expect("room");
        txn.commit(Durability::Durable).expect("good devices");
        let by_leaf = |back: bool| {
            let txn = db.begin_read()?;
            let table = txn.open_table(ROWS)?;
            let (mut range, mut sum) = (table.range(..)?, 0);
            loop {
                let rows = if back { range.next_rows_back() } else { range.next_rows() }?;
                let Some(rows) = rows else { return Ok(sum) };
                sum += rows.inspect(|row| assert!(row.is_ok())).count() as u64;
            }
        };
        let by_row = |back: bool| {
            let txn = db.begin_read()?;
            let table = txn.open_table(ROWS)?;
            let range = table.range(..)?;
            Ok(if back { range.rev().count() } else { range.count() } as u64)
        };
        let locked = || {
            let txn = db.begin_write()?;
            let table = txn.open_table(ROWS)?;
            Ok(table.range(..)?.count() as u64)
        };
        let scans = [
            ("by leaf", read_by(db, || by_leaf(false))),
            ("by leaf, back", read_by(db, || by_leaf(true))),
            ("by row", read_by(db, || by_row(false))),
            ("by row, back", read_by(db, || by_row(true))),
            ("locked", read_by(db, locked)),
        ];
        for (name, (ahead, requests)) in scans {
            assert!(ahead > 1_000 && requests < 150, "{name}: {ahead} pages, {requests} requests");
        }
    });
}
