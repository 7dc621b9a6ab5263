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
mod key_text;
mod value;

mod context;
mod copies;
mod engine;
mod flash;
mod open;
mod opened;
mod reclaim;
mod recovery;
mod superblock;
mod system_pages;

mod journal;
mod log;

mod lock;

mod btree;
mod catalog;
mod trees;

#[doc(hidden)]
pub mod dump;
#[doc(hidden)]
pub mod upgrade;

mod change;
mod leaf_room;
mod room;
mod space;
mod writer;

mod error;

pub use api::{
    BadMisses, Builder, CachedParts, CheckReport, Checkpoint, Checkpoints, Database, Devices,
    DirectIo, Durability, Entry, Loader, LogStats, Misses, Owned, Range, ReadTable,
    ReadTransaction, Savepoint, Stats, Table, TableDef, TornPages, Transaction, TransactionStats,
    WriteTransaction,
};
pub use copies::{BadCopy, CopyFlaw};
pub use error::{
    Action, Error, ErrorPath, LockWait, Part, SavepointFlaw, TableRef, TransactionId, TypeNames,
};
pub use key::{Key, KeyPart};
pub use lock::TreeId;
/// The format of databases that this version makes, reads and writes.
pub use superblock::FORMAT_VERSION;
pub use terrace_device::{Contents, DeviceError, Holder, Operation};
pub use terrace_page::{Lsn, PageId};
pub use terrace_policy::{Design, FlashRole, Restart, designs, restarts};
pub use terrace_pool::{
    ColdStart, FascConfig, Fills, FlashLayout, Metadata, PageEvent, PageObserver, PoolConfig,
    RestartTuning, Spill, TacConfig, TacWrite,
};
pub use terrace_rt::{Nanos, World};
pub use value::Value;

pub(crate) use lock::{KeyHash, LockMode, LockOutcome, LockRequest};

/// The example in the README, which is compiled and run with the others.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

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

/// Entry points for fuzzing: whatever the bytes, each returns.
#[doc(hidden)]
pub mod fuzz {
    use terrace_page::{PAGE_SIZE, PageBuf, PageId, verify};

    pub use terrace_pool::fuzz::{flash_record, flushed_table, journalled_table, mapped_table};

    /// Log records, and the changes in them.
    pub fn record(bytes: &[u8]) {
        use crate::log::record::{Body, claimed_len, decode, verify};
        let _length = claimed_len(bytes);
        let _epoch = verify(bytes, terrace_page::Lsn(4096), 1);
        let Some(record) = decode(bytes) else { return };
        if let Body::Update { change, .. } | Body::Clr { change, .. } = record.body
            && let Ok(change) = crate::change::Change::decode(change)
        {
            let mut page: Box<PageBuf> = Box::new([0; PAGE_SIZE]);
            let _applied = change.apply(&mut page);
        }
    }

    /// Pages: the checksum, then as a node of a tree.
    pub fn page(bytes: &[u8]) {
        let mut page: Box<PageBuf> = Box::new([0; PAGE_SIZE]);
        let len = bytes.len().min(PAGE_SIZE);
        page[..len].copy_from_slice(&bytes[..len]);
        let _damage = verify(&page, PageId(7));
        let _flaw = crate::btree::node::check(&page);
    }

    /// Dumps.
    pub fn dump(bytes: &[u8]) {
        crate::dump::fuzz(bytes);
    }

    /// Superblocks.
    pub fn superblock(bytes: &[u8]) {
        let mut page: Box<PageBuf> = Box::new([0; PAGE_SIZE]);
        let len = bytes.len().min(PAGE_SIZE);
        page[..len].copy_from_slice(&bytes[..len]);
        crate::superblock::fuzz(&page);
    }
}

#[cfg(test)]
mod fuzz_tests {
    use terrace_rt::Prng;

    /// A small dose of what `fuzz/` does for hours.
    #[test]
    fn garbage_is_survived() {
        let mut prng = Prng::from_seed(5);
        for _ in 0..3_000 {
            let mut bytes = vec![0; prng.below(9_000) as usize];
            let dense = prng.chance(2);
            for byte in &mut bytes {
                *byte = if dense || prng.chance(20) { prng.next_u64() as u8 } else { 0 };
            }
            if let Some(kind) = bytes.get_mut(12) {
                *kind = 1 + prng.below(11) as u8;
            }
            super::fuzz::record(&bytes);
            super::fuzz::page(&bytes);
            super::fuzz::superblock(&bytes);
            super::fuzz::journalled_table(&bytes);
        }
    }
}
