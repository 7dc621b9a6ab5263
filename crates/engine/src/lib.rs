//! Terrace is an embedded transactional storage engine that keeps a database on slow storage and
//! caches it in memory and on local flash.
//!
//! ```
//! use terrace::{Database, TableDef};
//!
//! /// Points by year and name.
//! const POINTS: TableDef<(u16, &str), u64> = TableDef::new("points");
//!
//! # let folder = tempfile::tempdir()?;
//! # let (home, flash) = (folder.path().join("game.terrace"), folder.path().join("flash"));
//! # let small = Database::builder().home_size(32 << 20).log_size(8 << 20);
//! # small.create(&home)?.close()?;
//! let db = Database::builder()
//!     .memory(64 << 20) // bytes
//!     .flash(&flash, 16 << 20)
//!     .open_or_create(&home)?;
//!
//! db.write(|txn| {
//!     let mut points = txn.open_table(POINTS)?; // created if it does not exist
//!     points.insert((1984, "Ada"), 30)?;
//!     points.insert((1984, "Bob"), 12)
//! })?; // committed, and durable
//!
//! let sum = db.read(|txn| {
//!     let points = txn.open_table(POINTS)?;
//!     let mut sum = 0;
//!     for entry in points.range((1984, "")..(1985, ""))? {
//!         sum += entry?.value();
//!     }
//!     Ok::<u64, terrace::Error>(sum)
//! })?;
//! assert_eq!(sum, 42);
//! db.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Concepts
//!
//! **Tables.** A database has named tables, each a map that is sorted by its keys. A [`TableDef`]
//! is the name of a table and the types of its keys ([`Key`]) and values ([`Value`]). Opening a
//! table in a write transaction creates it if it does not exist. A [`RawTable`] is a table opened
//! by its name alone, with bytes as keys and values; a [`Schema`] says which columns a table has; a
//! [`Multimap`] has a sorted set of values for each key.
//!
//! Keys and values are numbers, text, bytes, and options, tuples and arrays of them. The features
//! `uuid`, `time` and `chrono` add the types of these crates, `serde` adds `Postcard`, for values
//! of any type that serde serializes, and `derive` adds `#[derive(Key, Value)]` for structs. None
//! is on by default.
//!
//! **Transactions.** [`Database::write`] and [`Database::read`] run a closure in a transaction,
//! and run it again after a conflict. So the closure must not have side effects that may happen
//! only once. With [`Database::begin_write`] and [`Database::begin_read`] the caller retries:
//! [`Error::Conflict`] means "roll back and run it again". A [`WriteTransaction`] has savepoints
//! and bulk loads.
//!
//! **Isolation.** Transactions are strictly serializable. Those that write use two-phase locking:
//! rows and the gaps between keys stay locked until the transaction ends, and no wait for a lock is
//! longer than [`Builder::lock_timeout`]. Those that only read are snapshots of what was committed
//! when they began: they lock nothing, and no writer waits for them ([`ReadTransaction`] describes
//! the one exception).
//!
//! **Durability.** [`Database::write`] returns when the commit is durable. With a lower
//! [`Durability`] a commit returns earlier, and a power cut may undo the last commits: those that
//! survive are a prefix of all commits, in their order. Opening after a crash recovers the
//! database.
//!
//! **Files.** The *home* is the backing store, the permanent place of every page. The *log* is
//! beside it, at the same path with `.log` added. Both are needed. The *flash* tier is by default a
//! cache: it may fail, be lost or be replaced, without losing a commit. Each of the three may also
//! be a block device.
//!
//! **Designs.** A [`Design`] says which pages are written to flash, and when dirty pages are
//! written home. The default, `auto`, adapts to workload and devices while it runs; [`designs`] has
//! the others. A [`Restart`] is a method of finding the contents of flash again when the database
//! is opened: the default is `warm`. [`FlashRole::Persistent`] makes flash a part of the database.
//!
//! **Threads.** A [`Database`] is a handle that can be cloned and used by any thread. Calls block;
//! a transaction stays in the thread that began it. Asynchronous code calls [`Database::run`],
//! which returns a future, and commits that it awaits later have a token ([`Durable`]).
//!
//! **Storages.** Home, flash and log may be storages of your own: see [`storage`].
//!
//! **Events.** With the feature `tracing`, which is off by default, the engine tells the `tracing`
//! subscriber of the program what an operator wants to know.
//!
//! # Limits
//!
//! - Linux only. One process can have a database open for writing, or several for reading only
//!   ([`Database::open_read_only`]). A forked child cannot use its parent's database.
//! - At most 65,536 transactions that write are open at once.
//! - Snapshots read old row versions, whose memory is bounded ([`Builder::version_memory`]). Beyond
//!   that the oldest snapshots end with [`Error::SnapshotTooOld`], unless versions may go to disk
//!   ([`Builder::version_limit`], off by default).
//! - An encoded key has at most 1,024 bytes, a value at most 1 GiB.
//! - The log records of a transaction may fill at most half of the log's limit
//!   ([`Builder::log_max`]). Values of 1 MiB and more are not logged, others are.
//! - Rows of up to 4,040 bytes share pages. Longer ones have pages of their own; the last bytes of
//!   a value of up to 16 pages are with its key.
//! - The home is a file that grows as needed, by default up to 64 GiB ([`Builder::home_size`]).
//!   [`Database::compact`] gives what is free in it back to the file system.
//! - There are no secondary indexes.
//! - The file format may still change ([`FORMAT_VERSION`]); `terrace upgrade` converts a database.
//!
//! # More
//!
//! In the repository, `docs/GUIDE.md` shows how to write a program with Terrace: recipes, limits,
//! tuning, and what is where for those who know redb, RocksDB, LMDB or SQLite.
//! `docs/GUARANTEES.md` lists the guarantees with the tests of each,
//! `docs/OPERATING.md` says how to inspect, change, back up and restore a database,
//! `docs/POLICIES.md` compares the designs, `docs/FORMAT.md` and `docs/RECOVERY.md` describe the
//! files and recovery, and `ARCHITECTURE.md` maps the code.

#![forbid(unsafe_code)]

mod api;
mod backup;
mod foreign;
mod key;
mod key_text;
mod value;

mod context;
mod copies;
mod counts;
mod engine;
mod events;
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
mod schema;
mod trees;

#[doc(hidden)]
pub mod dump;
#[doc(hidden)]
pub mod upgrade;

mod change;
mod frames;
mod leaf_room;
mod room;
mod share;
mod space;
mod versions;
mod writer;

mod error;

pub use api::{
    BadMisses, Builder, CachedParts, CheckReport, Checkpoint, Checkpoints, Compacted, Cursor,
    Database, Devices, DirectIo, Drain, Durability, Durable, Entry, Loader, LogStats, Merged,
    Misses, Multimap, MultimapDef, Owned, PrefixOf, Range, RawTable, ReadTable, ReadTransaction,
    Rows, Run, Savepoint, Stats, Table, TableDef, TableStats, TornPages, Transaction,
    TransactionStats, ValueReader, ValueWriter, WriteTransaction,
};
pub use backup::{BackedUp, BackupError, BackupMark, BackupOptions, RestoreError, Restored};
pub use copies::{BadCopy, CopyFlaw};
pub use error::{
    Action, Error, ErrorPath, LockWait, Part, SavepointFlaw, TableRef, TransactionId, TypeNames,
};
#[cfg(feature = "serde")]
pub use foreign::Postcard;
pub use key::{Key, KeyField, KeyPart};
pub use lock::TreeId;
pub use schema::{Column, Schema, TableInfo, TableSpec};
/// The format of databases that this version makes, reads and writes.
pub use superblock::FORMAT_VERSION;
#[cfg(feature = "derive")]
pub use terrace_derive::{Key, Value};
pub use terrace_device::{Contents, DeviceError, Holder, Operation};
pub use terrace_page::{Lsn, PageId};
pub use terrace_policy::{Design, FlashRole, Restart, designs, restarts};
pub use terrace_pool::{
    ColdStart, FascConfig, Fills, FlashLayout, Metadata, PageEvent, PageObserver, PoolConfig,
    RestartTuning, Spill, TacConfig, TacWrite,
};
pub use terrace_rt::{Nanos, World};
pub use value::{Value, ValueField};

/// A storage of your own as home, flash or log: the trait [`Storage`](storage::Storage), its rules,
/// and [`conformance`](storage::conformance), the test of them.
///
/// ```
/// use std::io;
/// use std::sync::{Arc, RwLock};
///
/// use terrace::storage::{Storage, conformance};
/// use terrace::{Database, Part, TableDef};
///
/// /// Bytes in memory. A clone is the same storage.
/// #[derive(Clone, Default)]
/// struct Memory(Arc<RwLock<Vec<u8>>>);
///
/// impl Storage for Memory {
///     fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
///         let held = self.0.read().expect("no panic");
///         let rest = held.get(offset as usize..).unwrap_or_default();
///         let len = rest.len().min(bytes.len());
///         bytes[..len].copy_from_slice(&rest[..len]);
///         Ok(len)
///     }
///     fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
///         let mut held = self.0.write().expect("no panic");
///         held[offset as usize..][..bytes.len()].copy_from_slice(bytes);
///         Ok(bytes.len())
///     }
///     fn sync(&self) -> io::Result<()> {
///         Ok(())
///     }
///     fn len(&self) -> io::Result<u64> {
///         Ok(self.0.read().expect("no panic").len() as u64)
///     }
///     fn grow(&self, len: u64) -> io::Result<()> {
///         let mut held = self.0.write().expect("no panic");
///         let len = held.len().max(len as usize);
///         held.resize(len, 0);
///         Ok(())
///     }
/// }
///
/// let memory = Memory::default();
/// conformance(|| memory.clone()).expect("it keeps the rules");
///
/// const ROWS: TableDef<u64, u64> = TableDef::new("rows");
/// let (home, log) = (Memory::default(), Memory::default());
/// let builder = Database::builder().home_size(8 << 20).storage(Part::Home, home);
/// let db = builder.storage(Part::Log, log).create_on_storage()?;
/// db.write(|txn| txn.open_table(ROWS)?.insert(1, 1))?;
/// db.close()?;
/// # Ok::<(), terrace::Error>(())
/// ```
pub mod storage {
    pub use terrace_device::storage::{Broken, Punched, Storage, StorageDevice, conformance};
}

/// What `#[derive(Value)]` calls.
#[doc(hidden)]
pub mod derived {
    pub use crate::value::{decode_part, encode_part};
}

pub(crate) use lock::{KeyHash, LockMode, LockOutcome, LockRequest};

/// The example in the README, which is compiled and run with the others.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Those in the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/GUIDE.md")]
struct Guide;

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

    /// Pages: the checksum, then as a node of a tree, with what its records refer to.
    pub fn page(bytes: &[u8]) {
        let mut page: Box<PageBuf> = Box::new([0; PAGE_SIZE]);
        let len = bytes.len().min(PAGE_SIZE);
        page[..len].copy_from_slice(&bytes[..len]);
        let _damage = verify(&page, PageId(7));
        crate::btree::fuzz(&page);
    }

    /// Dumps.
    pub fn dump(bytes: &[u8]) {
        crate::dump::fuzz(bytes);
    }

    /// Backups.
    pub fn backup(bytes: &[u8]) {
        crate::backup::fuzz(bytes);
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
                *kind = 1 + prng.below(13) as u8;
            }
            super::fuzz::record(&bytes);
            super::fuzz::page(&bytes);
            super::fuzz::superblock(&bytes);
            super::fuzz::backup(&bytes);
            super::fuzz::journalled_table(&bytes);
        }
    }
}
