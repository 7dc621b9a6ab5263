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

#[expect(dead_code, reason = "the trees that use it follow")]
mod lock;

#[allow(dead_code, reason = "the operations follow")]
mod btree;

#[allow(dead_code, reason = "the log that carries it follows")]
mod change;
#[expect(dead_code, reason = "the trees that use it follow")]
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
pub use value::Value;

#[expect(unused_imports, reason = "the trees that use them follow")]
pub(crate) use lock::{KeyHash, LockMode, LockOutcome, LockRequest};
