//! What an embedder sees: builder, database, transactions, tables, ranges.

mod builder;
mod database;
mod files;
mod range;
mod stats;
mod table;
mod transaction;

pub use builder::{Builder, Checkpoints, Devices, FullImages};
pub use database::{CheckReport, Checkpoint, Database};
pub use range::{Entry, Range};
pub use stats::{LogStats, Stats, TransactionStats};
pub use table::{Loader, Owned, ReadTable, Table, TableDef};
pub use transaction::{Durability, ReadTransaction, Savepoint, Transaction, WriteTransaction};
