//! Terrace: a transactional storage engine over memory, local flash and a slow home.
//!
//! Modules in reading order:
//!
//! - `api`: what an embedder sees.
//! - `key`, `value`: the types that tables hold.
//! - `lock`: transaction locks.
//! - `writer`, `change`: how trees change pages.
//! - `error`: what can go wrong.

#![forbid(unsafe_code)]

mod api;
mod key;
mod value;

mod context;
mod engine;
mod open;
mod recovery;
mod superblock;

mod journal;
mod log;

mod lock;

mod btree;
mod trees;

mod change;
mod space;
mod writer;

mod error;

pub use api::{
    Builder, CheckReport, Checkpoint, Checkpoints, Database, Devices, Durability, Entry,
    FullImages, Loader, LogStats, Owned, Range, ReadTable, ReadTransaction, Savepoint, Stats,
    Table, TableDef, Transaction, TransactionStats, WriteTransaction,
};
pub use error::{Error, Part};
pub use key::{Key, KeyPart};
pub use lock::TreeId;
pub use terrace_pool::{Fills, PoolConfig, TacConfig, TacWrite};
pub use terrace_rt::{Nanos, World};
pub use value::Value;

pub(crate) use lock::{KeyHash, LockMode, LockOutcome, LockRequest};

/// A database in memory, for the examples in this documentation.
#[doc(hidden)]
pub mod doc_test {
    use terrace_device::model::{Preset, build};
    use terrace_device::{Device, Keep, Store};

    /// A small one.
    pub fn database() -> crate::Database {
        let memory = |bytes| -> std::sync::Arc<dyn Device> {
            build(Preset::Ram, crate::World::current(), Store::new(bytes, Keep::Plain))
        };
        let devices = crate::Devices { home: memory(64 << 20), flash: None, log: memory(8 << 20) };
        let builder = crate::Database::builder().memory(4 << 20).devices(devices);
        builder.create_on_devices().expect("memory is there")
    }
}
