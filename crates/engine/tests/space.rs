//! Space is bounded: what is replaced, deleted and dropped is given back, whatever comes first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace::{Checkpoint, Database, Devices, Durability, Error, TableDef};
use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Device, Keep, Store, read, write};
use terrace_page::PAGE_SIZE;
use terrace_rt::{Nanos, Prng, Virtual, VirtualConfig, World};

const VALUES: TableDef<u64, &[u8]> = TableDef::new("values");
const SLACK: u64 = 1 << 20;

/// Devices that stay, whatever is opened on them.
struct Rig {
    home: Arc<SimDevice>,
    log: Arc<SimDevice>,
}

impl Rig {
    fn new(world: &World, home: u64) -> Rig {
        let device = |bytes| {
            let spec = Preset::Ram.spec().with_write_cache();
            SimDevice::new(spec, world.clone(), Store::new(bytes, Keep::Plain))
        };
        Rig { home: device(home), log: device(16 << 20) }
    }

    fn open(&self) -> Result<Database, Error> {
        let (home, log) = (Arc::clone(&self.home), Arc::clone(&self.log));
        let devices = Devices { home, flash: None, log };
        Database::builder().memory(4 << 20).devices(devices).open_or_create_on_devices()
    }
}

fn in_world(home: u64, body: impl FnOnce(&Rig) -> Result<(), Error> + Send + 'static) {
    let config = VirtualConfig { seed: 5, switch_one_in: 0, cores: 1, stack_bytes: 512 << 10 };
    let world = Virtual::new(config);
    let rig = Rig::new(&world.world(), home);
    world.run(|| body(&rig)).expect("nobody waits for ever").expect("no error");
}

fn used(db: &Database) -> u64 {
    db.stats().home_used_bytes
}

/// Waits until the background has nothing more to give back, for a bounded time.
fn settled(db: &Database) -> u64 {
    let mut last = used(db);
    for _ in 0..1_000 {
        terrace_rt::sleep(Nanos::from_millis(10));
        let now = used(db);
        if now == last {
            break;
        }
        last = now;
    }
    last
}

fn put(db: &Database, row: u64, byte: u8, len: usize) -> Result<(), Error> {
    db.write(|txn| txn.open_table(VALUES)?.insert(row, &vec![byte; len]).map(drop))
}

/// Five values of 4 MiB that were replaced seven times took 128 MiB; deleting all gave nothing
/// back, nor did reopening.
#[test]
fn replaced_values_give_their_pages_back() {
    in_world(256 << 20, |rig| {
        let db = rig.open()?;
        for row in 0..5 {
            put(&db, row, 0, 4 << 20)?;
        }
        let live = used(&db);
        for round in 1..=7 {
            for row in 0..5 {
                put(&db, row, round, 4 << 20)?;
                let now = used(&db);
                assert!(now <= live * 3 / 2 + SLACK, "{now} bytes for {live} live ones");
            }
        }
        db.check()?;
        db.write(|txn| {
            let mut table = txn.open_table(VALUES)?;
            (0..5).try_for_each(|row| table.remove(row).map(drop))
        })?;
        let left = settled(&db);
        assert!(left <= SLACK, "{left} bytes for no value");
        db.check()?;
        db.close()
    });
}

/// As a crash and a close leave them: what waits to be freed is found again.
#[test]
fn what_waits_to_be_freed_is_found_at_the_next_opening() {
    in_world(64 << 20, |rig| {
        let db = rig.open()?;
        for row in 0..4 {
            put(&db, row, 1, 2 << 20)?;
        }
        db.write(|txn| {
            txn.open_table(VALUES)?.remove(1)?;
            txn.open_table(TableDef::<u64, u64>::new("dropped"))?.insert(1, 1).map(drop)
        })?;
        db.write(|txn| {
            txn.open_table(VALUES)?.remove(2)?;
            txn.delete_table("dropped")
        })?;
        db.close()?;
        let db = rig.open()?;
        let left = settled(&db);
        assert!(left <= (4 << 20) + (256 << 10), "{left} bytes for two values");
        db.check()?;
        db.close()
    });
}

/// Leaves that a removal had emptied stayed for ever if a crash came before the reclaim task, and
/// those that it had not come to when the database was closed.
#[test]
fn leaves_that_were_emptied_before_a_crash_are_given_back() {
    for is_closed in [false, true] {
        in_world(64 << 20, move |rig| {
            let db = rig.open()?;
            db.write(|txn| {
                let mut table = txn.open_table(VALUES)?;
                (0..3_000).try_for_each(|row| table.insert(row, &[1; 1_000]).map(drop))
            })?;
            let full = db.check()?.pages;
            db.write(|txn| {
                let mut table = txn.open_table(VALUES)?;
                (5..2_995).try_for_each(|row| table.remove(row).map(drop))
            })?;
            let copy = |device: &SimDevice| {
                let spec = Preset::Ram.spec().with_write_cache();
                SimDevice::new(spec, World::current(), device.store())
            };
            let mut crashed = Rig { home: copy(&rig.home), log: copy(&rig.log) };
            if is_closed {
                db.close()?;
                crashed = Rig { home: copy(&rig.home), log: copy(&rig.log) };
            }
            let db = crashed.open()?;
            let at_first = db.check()?.pages;
            let limit = if is_closed { 20 } else { full };
            assert!(at_first <= limit, "closed {is_closed}: {at_first} pages of {full}");
            terrace_rt::sleep(Nanos::from_secs(1));
            let left = db.check()?.pages;
            assert!(left <= 20, "closed {is_closed}: {left} pages for ten rows, of {full}");
            db.close()
        });
    }
}

/// Nineteen rows of twenty deleted in ascending order: each leaf met a full neighbour when it got
/// thin, and was not looked at again; 1,204 pages stayed for 1,500 rows.
#[test]
fn leaves_that_get_thin_one_after_the_other_merge() {
    for ascending in [true, false] {
        in_world(64 << 20, move |rig| {
            let db = rig.open()?;
            let rows = 12_000;
            for first in (0..rows).step_by(1_000) {
                db.write(|txn| {
                    let mut table = txn.open_table(VALUES)?;
                    (first..first + 1_000).try_for_each(|row| table.insert(row, &[1; 300]))
                })?;
            }
            let full = db.check()?.pages;
            for first in (0..rows).step_by(500) {
                db.write(|txn| {
                    let mut table = txn.open_table(VALUES)?;
                    let of = |row| if ascending { row } else { rows - 1 - row };
                    let mut go = (first..first + 500).map(of).filter(|row| row % 20 > 0);
                    go.try_for_each(|row| table.remove(row).map(drop))
                })?;
            }
            terrace_rt::sleep(Nanos::from_secs(1));
            let left = db.check()?.pages;
            assert!(left <= full / 8, "ascending {ascending}: {left} pages of {full}");
            db.close()
        });
    }
}

#[test]
fn dropped_tables_give_their_extents_back() {
    in_world(64 << 20, |rig| {
        let db = rig.open()?;
        for round in 0..12 {
            db.write(|txn| {
                let mut table = txn.open_table(VALUES)?;
                (0..4_000).try_for_each(|row| table.insert(row, &[round; 1_000]).map(drop))
            })?;
            db.write(|txn| txn.delete_table("values"))?;
        }
        let left = settled(&db);
        assert!(left <= SLACK, "{left} bytes for no table");
        db.check()?;
        db.close()
    });
}

/// Transactions failed because home was full of tables whose extents were about to be freed: as
/// soon as the transactions had ended that were open when the tables were dropped.
#[test]
fn who_finds_home_full_of_garbage_waits_for_it() {
    const OTHERS: TableDef<u64, u64> = TableDef::new("others");
    for (rows, bytes) in [(1, 10), (400, 1_200), (10, 200_000), (2, 2 << 20)] {
        in_world(16 << 20, move |rig| {
            let db = rig.open()?;
            let is_over = Arc::new(AtomicU64::new(0));
            let (other, until) = (db.clone(), Arc::clone(&is_over));
            let others = terrace_rt::spawn("others", move || {
                for row in 0.. {
                    let txn = other.begin_write().expect("open");
                    txn.open_table(OTHERS)
                        .and_then(|mut it| it.insert(row % 9, row))
                        .expect("room");
                    terrace_rt::sleep(Nanos::from_millis(30));
                    txn.commit(Durability::None).expect("nothing fails");
                    if until.load(Ordering::Relaxed) > 0 {
                        return;
                    }
                }
            });
            for round in 0..100 {
                let value = vec![round; bytes];
                if round % 2 == 0 {
                    let txn = db.begin_write()?;
                    let mut table = txn.open_table(VALUES)?;
                    (0..rows).try_for_each(|row| table.insert(row, &value).map(drop))?;
                    drop(table);
                    txn.commit(Durability::None)?;
                } else {
                    db.write(|txn| txn.open_table(VALUES).map(drop))?;
                    for row in 0..rows {
                        let put = |txn: &terrace::WriteTransaction| {
                            txn.open_table(VALUES)?.insert(row, &value).map(drop)
                        };
                        db.write_with(Durability::None, put)?;
                    }
                }
                db.write(|txn| txn.delete_table("values"))?;
            }
            is_over.store(1, Ordering::Relaxed);
            others.join();
            db.check()?;
            db.close()
        });
    }
}

/// The bug, while it was new that operations wait for space: a bulk load went on in the middle of
/// what it had begun, and lost rows, or leaked pages.
#[test]
fn a_bulk_load_that_finds_home_full_loses_nothing() {
    const OTHERS: TableDef<u64, u64> = TableDef::new("others");
    const LOADED: TableDef<u64, &[u8]> = TableDef::new("loaded");
    for (rows, bytes) in [(60_000u64, 100), (2_500, 3_000), (40, 200_000), (4, 2 << 20)] {
        for garbage in (20..120).step_by(10) {
            in_world(16 << 20, move |rig| {
                let db = rig.open()?;
                let given_up = vec![1; 100_000];
                for row in 0..garbage {
                    db.write(|txn| txn.open_table(VALUES)?.insert(row, &given_up).map(drop))?;
                }
                let older = db.begin_write()?;
                older.open_table(OTHERS)?.insert(1, 1)?;
                db.write(|txn| txn.delete_table("values"))?;
                let other = db.clone();
                let load = terrace_rt::spawn("load", move || {
                    let txn = other.begin_write().expect("open");
                    let mut loader = txn.bulk_load(LOADED).expect("a new table");
                    let value = vec![2; bytes];
                    let loaded = (0..rows).try_for_each(|row| loader.push(row, &value));
                    match loaded.and_then(|()| loader.finish()) {
                        Ok(()) => txn.commit(Durability::None).expect("room"),
                        Err(Error::HomeFull { .. }) => txn.rollback().expect("no error"),
                        Err(error) => panic!("{error}"),
                    }
                });
                terrace_rt::sleep(Nanos::from_millis(150));
                older.commit(Durability::None)?;
                load.join();
                db.check()?;
                db.close()
            });
        }
    }
}

/// What nothing will free is told at once, and by the one whose own garbage it is.
#[test]
fn who_finds_home_full_of_data_does_not_wait() {
    in_world(16 << 20, |rig| {
        let db = rig.open()?;
        let fill = |txn: &terrace::WriteTransaction, from: u64| {
            let mut table = txn.open_table(VALUES)?;
            (from..from + 20).try_for_each(|row| table.insert(row, &vec![1; 2 << 20]).map(drop))
        };
        let began = terrace_rt::now();
        let txn = db.begin_write()?;
        let full = fill(&txn, 0);
        assert!(matches!(full, Err(Error::HomeFull { .. })), "{full:?}");
        txn.rollback()?;
        // Its own garbage stays until it has ended.
        db.write(|txn| {
            (0..8)
                .try_for_each(|row| txn.open_table(VALUES)?.insert(row, &[2; 1_000_000]).map(drop))
        })?;
        let txn = db.begin_write()?;
        for row in 0..8 {
            txn.open_table(VALUES)?.remove(row)?;
        }
        let full = fill(&txn, 100);
        assert!(matches!(full, Err(Error::HomeFull { .. })), "{full:?}");
        let took = terrace_rt::now().saturating_sub(began);
        assert!(took < Nanos::from_secs(4), "{took:?}");
        txn.rollback()?;
        db.check()?;
        db.close()
    });
}

/// A transaction that may still roll back keeps what it replaced.
#[test]
fn a_value_that_an_open_transaction_replaced_comes_back() {
    in_world(64 << 20, |rig| {
        let db = rig.open()?;
        put(&db, 1, 7, 3 << 20)?;
        let txn = db.begin_write()?;
        txn.open_table(VALUES)?.insert(1, &vec![8; 3 << 20])?;
        for row in 10..20 {
            put(&db, row, 9, 300_000)?;
            put(&db, row, 10, 300_000)?;
        }
        terrace_rt::sleep(Nanos::from_millis(200));
        txn.rollback()?;
        let whole = db.read(|txn| {
            let table = txn.open_table(VALUES)?;
            Ok::<_, Error>(table.get(1)?.is_some_and(|value| *value.value() == vec![7; 3 << 20]))
        })?;
        assert!(whole, "the old value is gone");
        db.check()?;
        db.close()
    });
}

/// An overflow page of an older day was served as the value, and `check` said that all is sound.
#[test]
fn an_overflow_page_of_an_older_day_is_told() {
    in_world(64 << 20, |rig| {
        const LEN: usize = 100_000;
        let db = rig.open()?;
        put(&db, 1, 1, LEN)?;
        db.checkpoint(Checkpoint::Sharp)?;
        db.close()?;
        let mut before = vec![0; rig.home.len() as usize];
        read(&*rig.home, 0, &mut before).expect("a good device");
        // Until the pages of the first day have another value.
        let db = rig.open()?;
        for round in 2..12 {
            put(&db, 1, round, LEN)?;
            settled(&db);
        }
        db.close()?;
        let mut after = vec![0; rig.home.len() as usize];
        read(&*rig.home, 0, &mut after).expect("a good device");
        let (old, _) = before.as_chunks::<PAGE_SIZE>();
        let (new, _) = after.as_chunks::<PAGE_SIZE>();
        let is_overflow = |page: &[u8; PAGE_SIZE]| {
            terrace_page::kind(page) == Some(terrace_page::PageKind::Overflow)
        };
        let pages: Vec<usize> = (0..old.len())
            .filter(|&page| is_overflow(&old[page]) && is_overflow(&new[page]))
            .filter(|&page| new[page][PAGE_SIZE / 2] == 11)
            .collect();
        assert!(!pages.is_empty(), "no page was used again");
        let mut prng = Prng::from_seed(3);
        for _ in 0..4 {
            let page = pages[prng.below(pages.len() as u64) as usize];
            let at = (page * PAGE_SIZE) as u64;
            write(&*rig.home, at, &before[page * PAGE_SIZE..][..PAGE_SIZE]).expect("a good device");
            let db = rig.open()?;
            let got = db.read(|txn| {
                let table = txn.open_table(VALUES)?;
                Ok::<_, Error>(table.get(1)?.map(|value| value.value().to_vec()))
            });
            assert!(matches!(got, Err(Error::Corrupt { .. })), "page {page} was served");
            let checked = db.check();
            assert!(matches!(checked, Err(Error::Corrupt { .. })), "{checked:?}");
            db.close()?;
            write(&*rig.home, at, &after[page * PAGE_SIZE..][..PAGE_SIZE]).expect("a good device");
        }
        Ok(())
    });
}

/// What two threads leave behind that push rows at the end of a table each and pop them in front,
/// while a third one puts this many values of 1 MiB over each other: the bytes in use, again
/// and again.
fn queues_of_threads(large: u64) -> Vec<u64> {
    let folder = tempfile::tempdir().expect("a folder");
    let builder = Database::builder().memory(32 << 20).log_size(64 << 20).home_size(1 << 30);
    let db = builder.create(folder.path().join("db")).expect("a new path");
    let (pushed, live, rows) = (if large > 0 { 60_000 } else { 300_000 }, 1_000, 4);
    let puts = Arc::new(AtomicU64::new(0));
    let push_and_pop = |queue: u64| {
        let (db, puts) = (db.clone(), Arc::clone(&puts));
        std::thread::spawn(move || {
            let is_enough = |row| row >= pushed && puts.load(Ordering::Relaxed) >= large;
            for first in (0..).step_by(rows as usize).take_while(|&row| !is_enough(row)) {
                let change = |txn: &terrace::WriteTransaction| {
                    let mut table = txn.open_table(VALUES)?;
                    for row in (first..first + rows).map(|row| queue << 32 | row) {
                        table.insert(row, &[1; 200])?;
                        if row >= queue << 32 | live {
                            table.remove(row - live)?;
                        }
                    }
                    Ok::<_, Error>(())
                };
                db.write_with(Durability::None, change).expect("room");
            }
        })
    };
    let queues = [1, 2].map(push_and_pop);
    let mut in_use = Vec::new();
    while !queues.iter().all(std::thread::JoinHandle::is_finished) {
        if large > 0 {
            let number = puts.fetch_add(1, Ordering::Relaxed);
            put(&db, number % 4, 7, 1 << 20).expect("room");
        } else {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        in_use.push(used(&db));
    }
    queues.into_iter().for_each(|queue| queue.join().expect("no error"));
    db.close().expect("good files");
    in_use
}

/// The bug: each transaction queued the leaf in which it had removed a row once more, so that the
/// queue overflowed; a sweep in its place began anew at each further leaf. 60 MiB were in use
/// after eight seconds for .4 MiB of rows, and went on growing.
#[test]
fn queues_of_threads_stay_small() {
    let most = queues_of_threads(0).into_iter().max().expect("it took a while");
    assert!(most < 3 << 20, "{most} bytes in use");
}

/// The bug: large values were freed only while no leaf waited, so never: each put took a second,
/// and four live values of 1 MiB grew to 180. While a thread stands still in an open transaction
/// nothing is freed, so the most in use says little on a machine that has more to do.
#[test]
fn large_values_are_freed_beside_queues() {
    let in_use = queues_of_threads(40);
    let late = &in_use[in_use.len() / 2..];
    let least = late.iter().min().expect("it took a while");
    assert!(*least < 16 << 20, "{least} bytes in use, or more");
}

/// What an overflow page of an older day leads to was freed with the value that it stands in: pages
/// of other rows.
#[test]
fn an_overflow_page_of_an_older_day_takes_no_page_of_another_row_along() {
    const ROWS: std::ops::Range<u8> = 2..10;
    in_world(64 << 20, |rig| {
        let image = |rig: &Rig| {
            let mut bytes = vec![0; rig.home.len() as usize];
            read(&*rig.home, 0, &mut bytes).expect("a good device");
            bytes
        };
        let db = rig.open()?;
        put(&db, 1, 1, 300_000)?;
        db.close()?;
        let before = image(rig);
        let db = rig.open()?;
        db.write(|txn| txn.open_table(VALUES)?.remove(1))?;
        settled(&db);
        for row in ROWS {
            put(&db, u64::from(row), row, 30_000)?;
        }
        db.close()?;
        let after = image(rig);
        let kind_of = |page: &[u8; PAGE_SIZE]| terrace_page::kind(page);
        let (old, new) = (before.as_chunks::<PAGE_SIZE>().0, after.as_chunks::<PAGE_SIZE>().0);
        let is_used_again = |page: &usize| {
            let overflow = Some(terrace_page::PageKind::Overflow);
            kind_of(&old[*page]) == overflow && kind_of(&new[*page]) == overflow
        };
        let pages: Vec<usize> = (0..old.len()).filter(is_used_again).collect();
        assert!(pages.len() > 8, "{} pages were used again", pages.len());
        for page in pages {
            let at = (page * PAGE_SIZE) as u64;
            write(&*rig.home, 0, &after).expect("a good device");
            write(&*rig.home, at, &old[page]).expect("a good device");
            let damaged = new[page][PAGE_SIZE / 2];
            let db = rig.open()?;
            // Whether it can be removed is not the point.
            let _removed =
                db.write(|txn| txn.open_table(VALUES)?.remove(u64::from(damaged)).map(drop));
            settled(&db);
            let others = ROWS.filter(|row| *row != damaged);
            db.read(|txn| {
                let table = txn.open_table(VALUES)?;
                for row in others.clone() {
                    let value = table.get(u64::from(row))?.expect("a row of its own");
                    assert!(value.value().iter().all(|byte| *byte == row), "page {page}");
                }
                Ok::<_, Error>(())
            })?;
            db.close()?;
        }
        Ok(())
    });
}

/// The bug: the head of a chain that waits to be freed, of an older day, led to the chain that came
/// next on that day: to a page of another row by now, which was freed.
#[test]
fn a_chain_of_an_older_day_takes_no_chain_of_another_row_along() {
    // Two pages: a value of one is a block.
    const LEN: usize = 14_000;
    const AFTER_AT: usize = 40;
    in_world(64 << 20, |rig| {
        let image = |device: &SimDevice| {
            let mut bytes = vec![0; device.len() as usize];
            read(device, 0, &mut bytes).expect("a good device");
            bytes
        };
        // What an older transaction may want back is not freed.
        let hold = |db: &Database, row: u64| {
            let holds = db.begin_write().expect("open");
            holds.open_table(VALUES).expect("there").insert(row, &[0]).expect("room");
            holds
        };
        let remove = |db: &Database, row: u64| {
            db.write(|txn| txn.open_table(VALUES)?.remove(row).map(|was_there| assert!(was_there)))
        };
        let db = rig.open()?;
        put(&db, 1, 1, LEN)?;
        put(&db, 2, 2, LEN)?;
        let holds = hold(&db, 100);
        remove(&db, 1)?;
        remove(&db, 2)?;
        db.checkpoint(Checkpoint::Sharp)?;
        let before = image(&rig.home);
        holds.rollback()?;
        settled(&db);
        put(&db, 3, 3, LEN)?;
        put(&db, 4, 4, LEN)?;
        let holds = hold(&db, 100);
        remove(&db, 3)?;
        db.checkpoint(Checkpoint::Sharp)?;
        let (mut home, log) = (image(&rig.home), image(&rig.log));
        holds.rollback()?;
        db.close()?;

        let page_of = |row: u8| {
            let is_it = |page: &&[u8; PAGE_SIZE]| {
                terrace_page::kind(page) == Some(terrace_page::PageKind::Overflow)
                    && page[PAGE_SIZE / 2] == row
            };
            let (pages, _) = home.as_chunks::<PAGE_SIZE>();
            let found = pages.iter().find(is_it).map(|page| terrace_page::page_id(page).0);
            found.expect("a row with a page of its own") as usize
        };
        let (head, other) = (page_of(3), page_of(4));
        let old = before[head * PAGE_SIZE..][..PAGE_SIZE].to_vec();
        assert_eq!(old[AFTER_AT..AFTER_AT + 8], (other as u64).to_le_bytes());
        home[head * PAGE_SIZE..][..PAGE_SIZE].copy_from_slice(&old);
        write(&*rig.home, 0, &home).expect("a good device");
        write(&*rig.log, 0, &log).expect("a good device");
        let db = rig.open()?;
        settled(&db);
        let kept = db.read(|txn| {
            let value = txn.open_table(VALUES)?.get(4)?.expect("nobody has removed it");
            Ok::<_, Error>(value.value().iter().all(|byte| *byte == 4))
        });
        assert!(matches!(kept, Ok(true)), "{kept:?}");
        db.close()
    });
}
