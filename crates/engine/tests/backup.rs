//! Backups taken beside transactions, and what is restored of them, held against a model.

#[path = "backup/beside.rs"]
mod beside;
#[path = "backup/files.rs"]
mod files;
#[path = "backup/still.rs"]
mod still;

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use terrace::{Builder, Database, Devices, Error, RestoreError, Restored, TableDef};
use terrace_device::model::{Preset, SimDevice, build};
use terrace_device::{Keep, Store};
use terrace_rt::{Virtual, VirtualConfig, World};

/// Rows of one writer are those whose key begins with its number.
const ROWS: TableDef<(u64, u64), &[u8]> = TableDef::new("rows");

type Rows = BTreeMap<(u64, u64), Vec<u8>>;

fn in_world<T>(seed: u64, switch_one_in: u32, run: impl FnOnce() -> T) -> T {
    let config = VirtualConfig { seed, switch_one_in, cores: 2, stack_bytes: 512 << 10 };
    Virtual::new(config).run(run).expect("nobody waits for ever")
}

fn memory(bytes: u64) -> Arc<SimDevice> {
    build(Preset::Ram, World::current(), Store::new(bytes, Keep::Plain))
}

/// Blank devices for a copy.
fn blank() -> Devices {
    Devices { home: memory(128 << 20), flash: None, log: memory(64 << 20) }
}

/// Restores these backups on new devices.
fn restore(builder: Builder, backups: &[&[u8]]) -> Result<(Devices, Restored), RestoreError> {
    let devices = blank();
    let mut inputs: Vec<&[u8]> = backups.to_vec();
    let mut inputs: Vec<&mut dyn Read> = inputs.iter_mut().map(|it| it as _).collect();
    let builder = builder.identity(77).devices(devices.clone());
    let restored = builder.restore_on_devices(&mut inputs)?;
    Ok((devices, restored))
}

fn rows_of(db: &Database) -> Rows {
    db.read(|txn| {
        let rows = txn.open_table(ROWS)?;
        let all = rows.range(..)?.map(|entry| {
            let entry = entry?;
            Ok((entry.key(), entry.value().to_vec()))
        });
        all.collect::<Result<Rows, Error>>()
    })
    .expect("readable")
}
