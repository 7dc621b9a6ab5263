//! Space: what a torture leaves behind takes little more of home than its rows take when new.

use std::sync::Arc;

use terrace::{Database, Devices, Error};
use terrace_device::model::{Preset, build};
use terrace_device::{Device, Keep, Store};
use terrace_rt::{Nanos, World, sleep};

use super::client::{MARKERS, ROWS, read_all};
use super::ledger::Failure;

/// How much more than the same rows when they are new.
const FACTOR: f64 = 1.5;
const SLACK: u64 = 1 << 20;

/// How long the background may take to give back what is free.
const PATIENCE: Nanos = Nanos::from_secs(60);
const PAUSE: Nanos = Nanos::from_millis(200);

/// Devices of the database that is new.
const HOME_BYTES: u64 = 64 << 20;
const LOG_BYTES: u64 = 16 << 20;
/// Rows of one transaction that fills it.
const TOGETHER: usize = 100;

/// Compares the space that `db` takes with that of a new database of the same rows.
///
/// # Errors
///
/// Those of the engine.
pub(super) fn compare(db: &Database, world: &World) -> Result<Option<Failure>, Error> {
    let new = new_bytes(db, world)?;
    let most = (new as f64 * FACTOR) as u64 + SLACK;
    let deadline = world.now().saturating_add(PATIENCE);
    loop {
        let used = db.stats().home_used_bytes;
        if used <= most {
            return Ok(None);
        }
        if world.now() >= deadline {
            return Ok(Some(Failure::Space { used, new }));
        }
        sleep(PAUSE);
    }
}

/// Bytes that the rows of `db` take of a database that they are loaded into.
fn new_bytes(db: &Database, world: &World) -> Result<u64, Error> {
    let found = read_all(db)?;
    let device = |bytes: u64| -> Arc<dyn Device> {
        build(Preset::Ram, world.clone(), Store::new(bytes, Keep::Plain))
    };
    let devices = Devices { home: device(HOME_BYTES), flash: None, log: device(LOG_BYTES) };
    let builder = Database::builder().memory(4 << 20).world(world.clone()).devices(devices);
    let new = builder.create_on_devices()?;
    let rows: Vec<_> = found.rows.into_iter().collect();
    for together in rows.chunks(TOGETHER) {
        new.write(|txn| {
            together.iter().try_for_each(|(place, value)| {
                let value: &[u8] = value;
                txn.open_table(ROWS[usize::from(place.table)])?.insert(place.key, value)
            })
        })?;
    }
    let markers: Vec<u32> = found.markers.into_iter().collect();
    for together in markers.chunks(TOGETHER) {
        new.write(|txn| {
            let mut table = txn.open_table(MARKERS)?;
            together.iter().try_for_each(|&marker| table.insert(marker, ()))
        })?;
    }
    let bytes = new.stats().home_used_bytes;
    new.close()?;
    Ok(bytes)
}
