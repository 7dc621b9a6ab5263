//! The buffer manager over three tiers: memory, flash and home.
//!
//! A page is read and changed through a guard that holds its latch; where its bytes are, and where
//! they go when it leaves memory, is decided here. The log is the engine's: the pool reaches it
//! through [`Journal`].

mod journal;

mod config;
mod error;
mod stats;

mod buffer_pool;
mod guard;

pub use buffer_pool::{BufferPool, Recovered};
pub use config::Rules;
pub use error::{PoolError, Tier};
pub use guard::{Dirtied, PageMut, PageRef};
pub use journal::Journal;
pub use stats::PoolStats;
