//! The buffer manager over three tiers: memory, flash and home.
//!
//! A page is read and changed through a guard that holds its latch; where its bytes are, and where
//! they go when it leaves memory, is decided here. The log is the engine's: the pool reaches it
//! through [`Journal`].
//!
//! Modules in reading order: the seams to the log and to who watches, what can be told and what can
//! go wrong; then the pool, its guards and its page requests; then a page's way (`fetch`,
//! `multi_read`, `dirty`, `evict`, `doublewrite`, `write_out`, `flash`, `inclusion`, `spill`,
//! `choosing`, `append`, `cleaner`, `sweep`, `age`, `flush`), the tasks that push it along; then
//! what the books are kept in (`partition`, `ledger`, `directory`, `frames`, `peeks`; the
//! slots are `terrace_tier`'s, and `shares` what they share) and what they cost (`metadata`);
//! `check`, which asserts it all; and `site`, the pool as a restart sees it.

mod devices;
mod journal;
mod memory;
mod observe;

mod config;
mod error;
mod stats;

mod buffer_pool;
mod guard;
mod request;

mod fetch;
mod multi_read;

mod dirty;
mod doublewrite;
mod evict;
mod homeward;
mod write_out;

mod choosing;
mod flash;
mod inclusion;
mod spill;

mod append;

mod age;
mod cleaner;
mod sweep;

mod flush;

mod background;
mod budget;
mod stop;

mod build;
mod costs;
mod ledger;
mod metadata;
mod partition;

mod directory;
mod shares;

mod frames;
mod home_versions;
mod peeks;

mod owed;

mod check;

mod site;

pub use buffer_pool::{BufferPool, Recovered};
pub use check::Copies;
pub use config::{FascConfig, Fills, PoolConfig, Rules, Spill, TacConfig, TacWrite};
pub use dirty::OldestDirty;
pub use doublewrite::{
    Doublewrite, DoublewriteOwner, DoublewritePlace, HALF_BYTES_MIN, RestoreError, restore_torn,
};
pub use error::{PoolError, Stop, Tier};
pub use frames::Peek;
pub use guard::{Dirtied, PageMut, PageRef};
pub use home_versions::home_versions;
pub use journal::Journal;
pub use metadata::Metadata;
pub use observe::{PageEvent, PageObserver};
pub use owed::Redo;
pub use stats::PoolStats;
pub use terrace_page_io::prefetch;
pub use terrace_restart::fuzz;
pub use terrace_restart::{
    ColdStart, FlashLayout, FlashNeed, FlashRecovery, Image, LogFacts, ScanFrom,
};
pub use terrace_restart::{RestartRules, RestartTuning, Settings, flash_part_of};

use terrace_page_io as io;
