//! The buffer manager over three tiers: memory, flash and home.
//!
//! A page is read and changed through a guard that holds its latch; where its bytes are, and where
//! they go when it leaves memory, is decided here. The log is the engine's: the pool reaches it
//! through [`Journal`].
//!
//! Modules in reading order: `buffer_pool`, which holds the parts together, opens and closes them,
//! `build`, which fills them, and `background`, which runs tasks; then the parts: `memory` with the
//! requests for pages, `flow` with a page's way below memory, `durability` with the changes that
//! home lacks, `devices` with flash and home, `watch` with what can be seen. The slots of flash are
//! `terrace_tier`'s, and `shares` what they share; `site` is the pool as a restart method sees it.

mod devices;
mod durability;
mod flow;
mod memory;
mod watch;

mod config;
mod error;

mod buffer_pool;

mod background;

mod build;

mod shares;

mod site;

pub use buffer_pool::{BufferPool, Recovered};
pub use build::Metadata;
pub use config::{FascConfig, Fills, PoolConfig, Spill, TacConfig, TacWrite};
pub use durability::Journal;
pub use durability::dirty::OldestDirty;
pub use durability::doublewrite::{
    Ahead, AreaRoom, Doublewrite, DoublewriteOwner, DoublewritePlace, HALF_BYTES_MIN, RestoreError,
    Restored, restore_torn,
};
pub use durability::flush::BulkLoad;
pub use durability::home_versions::home_versions;
pub use error::{PoolError, Stop, Tier};
pub use flow::straight::Latched;
pub use memory::frames::Peek;
pub use memory::guard::{Dirtied, PageMut, PageRef};
pub use memory::loading::Redo;
pub use terrace_page_io::{PageAhead, prefetch, prefetch_line};
pub use terrace_restart::fuzz;
pub use terrace_restart::{
    ColdStart, FlashLayout, FlashNeed, FlashRecovery, Image, LogFacts, ScanFrom,
};
pub use terrace_restart::{RestartTuning, Settings, flash_part_of};
#[doc(hidden)]
pub use terrace_tier::{Mutation, Mutations};
pub use watch::check::Copies;
pub use watch::observe::{PageEvent, PageObserver};
pub use watch::stats::PoolStats;

use terrace_page_io as io;
