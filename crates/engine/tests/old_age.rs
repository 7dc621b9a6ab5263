//! Databases that have logged for years: positions of the log never begin anew.

use std::sync::Arc;

use terrace::{Checkpoints, Database, Devices, Durability, Error, TableDef};

use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Device, Keep, Store};
use terrace_page::{LSN_MAX, Lsn};
use terrace_policy::{DESIGNS, FlashRole, RESTARTS};
use terrace_rt::{Nanos, Prng, Virtual, VirtualConfig, sleep};

const TABLE: TableDef<u64, &[u8]> = TableDef::new("rows");
const ROWS: u64 = 1500;

fn row(key: u64, round: u64) -> [u8; 900] {
    [(key + round) as u8; 900]
}

fn check_rows(db: &Database, round: u64, name: &str) {
    for key in 0..ROWS {
        let found = db.read(|txn| {
            let found = txn.open_table(TABLE)?.get(key)?;
            Ok::<_, Error>(found.map(|row| row.value().to_vec()))
        });
        let found = found.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(found, Some(row(key, round).to_vec()), "{name}: row {key}");
    }
}

fn write_rows(db: &Database, round: u64) -> Result<(), Error> {
    (0..ROWS).step_by(50).try_for_each(|first| {
        db.write_with(Durability::Buffered, |txn| {
            let mut table = txn.open_table(TABLE)?;
            (first..first + 50).try_for_each(|key| table.insert(key, &row(key, round)))
        })
    })
}

/// Rounds of updates, each after an opening, with the power cut in between.
fn lives(first: Lsn, rounds: u64, role: FlashRole) -> u32 {
    let mut lives = 0;
    for design in DESIGNS.iter().filter(|design| design.uses_flash()) {
        for restart in &RESTARTS {
            let mut stores =
                [8_u64, 1, 4].map(|mebibytes| Store::new(mebibytes << 20, Keep::Plain));
            for round in 0..rounds {
                let name = format!("{} {} from {first}, round {round}", design.name, restart.name);
                let config = VirtualConfig {
                    seed: round,
                    switch_one_in: 0,
                    cores: 1,
                    stack_bytes: 256 << 10,
                };
                let world = Virtual::new(config);
                let devices = stores.map(|store| {
                    let spec = Preset::Ram.spec().with_write_cache();
                    SimDevice::new(spec, world.world(), store)
                });
                let [home, flash, log]: [Arc<dyn Device>; 3] =
                    devices.clone().map(|device| -> Arc<dyn Device> { device });
                let opened = || {
                    Database::builder()
                        .memory(256 << 10)
                        .design(*design)
                        .restart(*restart)
                        .flash_role(role)
                        .checkpoints(Checkpoints::Every(Nanos::from_millis(20)))
                        .log_begins_at(first)
                        .devices(Devices { home, flash: Some(flash), log })
                        .open_or_create_on_devices()
                };
                let mut is_possible = true;
                let ran = world.run(|| {
                    let db = match opened() {
                        Err(Error::InvalidOption { .. }) if round == 0 => {
                            is_possible = false;
                            return;
                        }
                        opened => opened.unwrap_or_else(|error| panic!("{name}: {error}")),
                    };
                    let table = |txn: &terrace::WriteTransaction| txn.open_table(TABLE).map(drop);
                    db.write(table).expect("a table");
                    if round > 0 {
                        check_rows(&db, round - 1, &name);
                    }
                    let written = write_rows(&db, round);
                    written.unwrap_or_else(|error| panic!("{name}: {error}"));
                    db.write(table).expect("durable");
                    db.check().unwrap_or_else(|error| panic!("{name}: {error}"));
                    lives += 1;
                    world.cut_at_event(0);
                    sleep(Nanos(1));
                });
                if !is_possible {
                    break;
                }
                assert!(ran.is_err(), "{name}: the power was cut");
                let mut prng = Prng::from_seed(round);
                devices.iter().for_each(|device| {
                    device.power_cut(&mut prng);
                });
                stores = devices.map(|device| device.store());
            }
        }
    }
    lives
}

/// The bug: after 16 TiB of log the first write of a changed page to flash panicked, and so did
/// every opening.
#[test]
fn sixteen_tebibytes_of_log_are_nothing_special() {
    let first = Lsn((1 << 44) - (2 << 20));
    assert!(lives(first, 3, FlashRole::Cache) > 100);
    assert!(lives(first, 3, FlashRole::Persistent) > 20);
}

#[test]
fn changes_end_where_tables_on_flash_cannot_hold_the_position_and_reads_go_on() {
    let world =
        Virtual::new(VirtualConfig { seed: 1, switch_one_in: 0, cores: 1, stack_bytes: 256 << 10 });
    let ran = world.run(|| {
        let device = |mebibytes: u64| -> Arc<dyn Device> {
            let store = Store::new(mebibytes << 20, Keep::Plain);
            SimDevice::new(Preset::Ram.spec(), world.world(), store)
        };
        let (home, flash, log) = (device(8), Some(device(1)), device(4));
        let open = || {
            Database::builder()
                .memory(256 << 10)
                .log_begins_at(Lsn(LSN_MAX.0 - (1 << 20)))
                .devices(Devices { home: home.clone(), flash: flash.clone(), log: log.clone() })
                .open_or_create_on_devices()
                .expect("an opening")
        };
        let db = open();
        let put = |db: &Database, key| {
            db.write(|txn| txn.open_table(TABLE)?.insert(key % ROWS, &row(key, 0)))
        };
        let (last, error) = (0..10_000)
            .find_map(|key| put(&db, key).err().map(|error| (key, error)))
            .expect("the log ends");
        assert!(matches!(error, Error::LogEnds { position } if position >= LSN_MAX), "{error}");
        assert!(!error.is_transient() && last > 100, "row {last}");
        db.close().expect("closed in good order");
        let db = open();
        assert!(matches!(put(&db, 0), Err(Error::LogEnds { .. })));
        let found = db.read(|txn| {
            Ok::<_, Error>(txn.open_table(TABLE)?.get(last - 1)?.map(|row| row.value().to_vec()))
        });
        assert_eq!(found.expect("a read"), Some(row(last - 1, 0).to_vec()));
        db.check().expect("sound");
        db.close().expect("closed in good order");
    });
    ran.expect("nobody waits for ever");
}
