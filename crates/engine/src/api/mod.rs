//! What an embedder sees: builder, database, transactions, tables, ranges.

mod builder;
mod compaction;
mod core;
mod database;
mod devices;
mod emptied;
mod files;
mod for_tests;
mod home_copies;
mod loader;
mod misses;
mod options;
mod range;
mod saving;
mod stats;
mod stream;
mod table;
mod transaction;

pub(crate) use self::core::Sealed;
pub use builder::Builder;
pub use compaction::Compacted;
pub use database::{CheckReport, Checkpoint, Database};
pub use devices::Devices;
pub use loader::Loader;
pub(crate) use loader::{Bulk, FILL};
pub use misses::{BadMisses, Misses};
pub use options::{Checkpoints, DirectIo, TornPages};
pub use range::{Entry, Range, Rows};
pub use stats::{CachedParts, LogStats, Stats, TransactionStats};
pub use stream::{ValueReader, ValueWriter};
pub use table::{Owned, ReadTable, Table, TableDef};
pub use transaction::{Durability, ReadTransaction, Savepoint, Transaction, WriteTransaction};
