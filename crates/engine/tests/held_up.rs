//! A full home with space that is about to be free: `Database::write` ends the transaction that
//! holds it up, or waits for an older one, and runs it again. A home that is full for good is told
//! at once.

use std::thread;
use std::time::{Duration, Instant};

use terrace::{Database, Error, TableDef};
use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Keep, Store};
use terrace_rt::{Nanos, Virtual, VirtualConfig, now};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const ROW: [u8; 3_000] = [7; 3_000];

fn fill(txn: &terrace::WriteTransaction, name: &'static str, rows: u64) -> Result<(), Error> {
    let mut table = txn.open_table(TableDef::<u64, &[u8]>::new(name))?;
    (0..rows).try_for_each(|row| table.insert(row, &ROW[..]))
}

fn in_world(home: u64, body: impl FnOnce(&Database) -> Result<(), Error>) {
    let config = VirtualConfig { seed: 5, switch_one_in: 0, cores: 1, stack_bytes: 512 << 10 };
    let world = Virtual::new(config);
    let device = |bytes| {
        let spec = Preset::Ram.spec().with_write_cache();
        SimDevice::new(spec, world.world(), Store::new(bytes, Keep::Plain))
    };
    let devices = terrace::Devices { home: device(home), flash: None, log: device(32 << 20) };
    let ran = world.run(|| {
        let db = Database::builder().memory(2 << 20).devices(devices).create_on_devices()?;
        body(&db)?;
        db.check()?;
        db.close()
    });
    ran.expect("nobody waits for ever").expect("no error");
}

/// The bug: a transaction that was older than the one which had dropped a table got `HomeFull` for
/// the space of that table, which was free as soon as it had ended.
#[test]
fn a_transaction_that_holds_up_the_space_it_needs_is_run_again() {
    in_world(16 << 20, |db| {
        db.write(|txn| fill(txn, "former", 3_200))?;
        let mut runs = 0;
        db.write(|txn| {
            runs += 1;
            txn.open_table(ROWS)?.insert(0, &ROW[..])?;
            if runs == 1 {
                assert!(db.write(|other| other.delete_table("former"))?);
            }
            fill(txn, "later", 3_200)
        })?;
        assert_eq!(runs, 2);
        Ok(())
    });
}

#[test]
fn a_home_that_is_full_for_good_is_told_at_once() {
    in_world(8 << 20, |db| {
        let mut runs = 0;
        let began = now();
        let failed = db.write(|txn| {
            runs += 1;
            fill(txn, "large", 10_000)
        });
        let error = failed.expect_err("home has no room for that");
        assert!(matches!(error, Error::HomeFull { is_held_up: false, .. }), "{error:?}");
        assert!(error.to_string().contains("nothing that it holds is about to be freed"));
        assert!(!error.is_transient());
        assert_eq!(runs, 1);
        assert!(now() - began < Nanos::from_secs(5), "it took {}", now() - began);
        // What it had taken is free again.
        db.write(|txn| fill(txn, "small", 1_000))
    });
}

/// A snapshot holds the space of a dropped table up for as long as it is open.
#[test]
fn space_that_a_snapshot_holds_up_is_told_as_that() {
    in_world(16 << 20, |db| {
        db.write(|txn| fill(txn, "former", 3_200))?;
        let snapshot = db.begin_read()?;
        assert!(db.write(|txn| txn.delete_table("former"))?);
        let began = now();
        let error = db.write(|txn| fill(txn, "later", 3_200)).expect_err("home is full");
        assert!(matches!(error, Error::HomeFull { is_held_up: true, .. }), "{error:?}");
        assert!(error.is_transient() && error.to_string().contains("snapshots"));
        assert!(now() - began < Nanos::from_secs(30), "it took {}", now() - began);
        drop(snapshot);
        db.write(|txn| fill(txn, "later", 3_200))
    });
}

/// Threads that drop tables and make them again, in a home with room for what is live and little
/// more: space of one is held up by the transactions of the others.
#[test]
fn threads_that_make_tables_again_find_the_space_of_those_that_were_dropped() {
    const TABLES: [&str; 3] = ["left", "middle", "right"];
    const ROUNDS: u64 = 6;
    const TABLE_ROWS: u64 = 1_000;
    let folder = tempfile::tempdir().expect("a folder");
    let db = Database::builder()
        .memory(4 << 20)
        .home_size(20 << 20)
        .create(folder.path().join("db"))
        .expect("room");
    let began = Instant::now();
    thread::scope(|threads| {
        for name in TABLES {
            let db = &db;
            threads.spawn(move || {
                for round in 0..ROUNDS {
                    db.write(|txn| txn.delete_table(name)).expect("a table is dropped");
                    let made = db.write(|txn| fill(txn, name, TABLE_ROWS));
                    made.unwrap_or_else(|error| panic!("table {name}, round {round}: {error}"));
                }
            });
        }
    });
    assert!(began.elapsed() < Duration::from_secs(300), "it took {:?}", began.elapsed());
    db.check().expect("whole");
    db.close().expect("no error");
}
