//! Databases that are opened with another design each time: what one design leaves on flash, and
//! what it has home say of the log, is right for the next one.

use std::sync::Arc;

use terrace::{
    Checkpoint, Checkpoints, ColdStart, Database, Devices, Durability, Error, FlashRole, TableDef,
};
use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Device, Keep, Store};
use terrace_policy::{designs, restarts};
use terrace_rt::{Nanos, Virtual, VirtualConfig, World, sleep};

const TABLE: TableDef<u64, &[u8]> = TableDef::new("rows");
const ROWS: u64 = 2_000;
const ROW_BYTES: usize = 700;
/// Time between checkpoints, and time for the background to do its work.
const CHECKPOINTS: Nanos = Nanos::from_millis(20);
const REST: Nanos = Nanos::from_millis(200);

#[derive(Clone)]
struct Rig {
    home: Store,
    flash: Store,
    log: Store,
}

fn write(db: &Database, number: u8, step: usize) -> Result<(), Error> {
    let row = [number; ROW_BYTES];
    for keys in (0..ROWS).step_by(step).collect::<Vec<_>>().chunks(100) {
        db.write_with(Durability::Durable, |txn| {
            let mut table = txn.open_table(TABLE)?;
            keys.iter().try_for_each(|&key| table.insert(key, &row[..]))
        })?;
    }
    Ok(())
}

fn row(db: &Database, key: u64) -> Result<u8, Error> {
    let txn = db.begin_read()?;
    let table = txn.open_table(TABLE)?;
    let row = table.get(key)?.expect("a row");
    Ok(row.value()[0])
}

/// Runs `body` on the database, and cuts the power in the end.
fn session(
    rig: &Rig,
    (design, restart): (&str, &str),
    body: impl FnOnce(Database) -> Result<(), Error>,
) -> Result<Rig, Error> {
    let config = VirtualConfig { seed: 1, switch_one_in: 0, cores: 1, stack_bytes: 256 << 10 };
    let world = Virtual::new(config);
    let on =
        |store: &Store, world: World| SimDevice::new(Preset::Nvme.spec(), world, store.clone());
    let [home, flash, log] =
        [&rig.home, &rig.flash, &rig.log].map(|store| on(store, world.world()));
    let now = || Rig { home: home.store(), flash: flash.store(), log: log.store() };
    let mut refused = None;
    let _cut = world.run(|| {
        let devices = Devices {
            home: home.clone(),
            flash: Some(flash.clone() as Arc<dyn Device>),
            log: log.clone(),
        };
        let opened = Database::builder()
            .memory(512 << 10)
            .design(designs::find(design).expect("a row"))
            .restart(restarts::find(restart).expect("a row"))
            .flash_role(FlashRole::Cache)
            .checkpoints(Checkpoints::Every(CHECKPOINTS))
            .devices(devices)
            .open_or_create_on_devices();
        refused = opened.and_then(body).err();
        world.cut_at_event(0);
        sleep(Nanos(1));
    });
    refused.map_or_else(|| Ok(now()), Err)
}

/// Rows that are wrong in a database whose design changes at each opening, and why its flash was
/// cold.
fn switched(
    restart: &str,
    designs: [&str; 3],
    closes: bool,
) -> Result<Vec<(u64, Option<ColdStart>)>, Error> {
    let store = |mebibytes: u64| Store::new(mebibytes << 20, Keep::Plain);
    let mut rig = Rig { home: store(32), flash: store(8), log: store(16) };
    rig = session(&rig, (designs[0], restart), |db| {
        write(&db, 1, 1)?;
        if !closes {
            db.checkpoint(Checkpoint::Sharp)?;
        }
        write(&db, 2, 1)?;
        write(&db, 3, 50)?;
        sleep(REST);
        if closes { db.close() } else { Ok(()) }
    })?;
    let mut found = Vec::new();
    for (design, is_last) in [(designs[1], false), (designs[2], true)] {
        rig = session(&rig, (design, restart), |db| {
            let mut wrong = 0;
            for key in 0..ROWS {
                let expected = match key {
                    key if key % 7 == 0 && is_last => 4,
                    key if key % 50 == 0 => 3,
                    _ => 2,
                };
                wrong += u64::from(row(&db, key)? != expected);
            }
            found.push((wrong, db.cold_start()));
            db.check()?;
            if is_last { Ok(()) } else { write(&db, 4, 7) }
        })?;
    }
    Ok(found)
}

/// The bugs: pages that only flash and the log had were dropped by a design that keeps no such
/// pages, and the log was read from where the design before had needed it; and the table went on to
/// name their slots, which the first design then believed again. Durable rows were lost.
#[test]
fn another_design_at_an_opening_loses_nothing() {
    let mut tried = 0;
    for restart in ["warm", "map-log", "lvr", "mmr"] {
        for first in ["auto", "lc", "cac", "face"] {
            for second in ["dw", "cw", "tac", "lc", "face", "fasc", "exclusive"] {
                for closes in [false, true] {
                    let case = format!("{restart}: {first}, then {second}, closed: {closes}");
                    let found = match switched(restart, [first, second, first], closes) {
                        // The two do not go together.
                        Err(Error::InvalidOption { .. }) => continue,
                        found => found.unwrap_or_else(|error| panic!("{case}: {error}")),
                    };
                    assert_eq!(found, [(0, None), (0, None)], "{case}");
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 100, "{tried} pairs go together");
}
