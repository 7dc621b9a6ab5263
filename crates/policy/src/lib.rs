//! Pure decisions: which page leaves memory, which slot of the flash is reused, which page is worth
//! a write to it, and the table of designs that puts the answers together.
//!
//! A policy remembers and answers; the tier acts. Nothing here knows a device, a latch, a clock or
//! a log: time is a [`Tick`] that the caller counts, and the caller's lock protects each policy.
//! The same files serve the buffer pool and a replay of a trace.
//!
//! - `memory`: which page leaves memory. `slots`: which slot of the flash is reused, and which
//!   dirty one is cleaned next. [`replacement`]: policies over keys, for a replay, and for slots
//!   through [`KeyedSlots`]. `admission`: which page is written to flash. `curves`: misses by size.
//!   [`designs`]: the table of all the answers.
//! - LRU and LRU-2 are kept in three ways, by what a hit may cost and how exact a victim must be.
//!   Frames of memory keep no order at all: a hit stores a touch word, and victims come from a
//!   look through the words, a batch at a time (`memory/coldest.rs`; with two queues,
//!   `memory/tails.rs`). Keys keep a list, or a heap that is brought up to date when it is asked
//!   (`replacement`): a hit moves a node. Slots of the flash keep heaps, exactly as the papers
//!   have it (`slots/lru_2.rs`, 16 bytes each), or ages in a byte each, which a hand looks through
//!   (`slots/ages.rs`).
//!
//! ```
//! use terrace_policy::{DirtyLeave, designs};
//!
//! let lc = designs::find("lc").unwrap();
//! assert_eq!(lc.dirty_leave, DirtyLeave::Flash);
//! let error = designs::find("lru").unwrap_err();
//! assert!(error.to_string().contains("known: "));
//! ```

#![forbid(unsafe_code)]

mod admission;
mod curves;
pub mod designs;
mod memory;
pub mod placement;
pub mod replacement;
mod slots;
mod structures;
mod touch;

pub use admission::{AccessClass, Classifier, Filling, NEAR_PAGES, Refusal, admit};
pub use curves::distances::{Distances, FIRST_USE};
pub use curves::miss_curve::{MissCurve, MissSampler, NoStep, sample_hash};
pub use designs::combine::{
    ADMISSIONS, Asked, LAYOUTS, NoSuchDesign, combinable, find_admission, find_layout,
    find_replacement,
};
pub use designs::flash_role::FlashRole;
pub use designs::restarts;
pub use designs::restarts::{RESTARTS, Restart, RestartKind};
pub use designs::{
    AdmissionRule, Batch, CleanLeave, Cleaning, DESIGNS, Design, DirtyLeave, HomeDevice, Inclusion,
    Invalidation, Layout, MemoryRule, Replacement, UnknownName,
};
pub use memory::frames::{Frames, Standing};
pub use memory::policy::{FramePolicy, MEMORY_POLICIES, MemoryPolicy};
pub use memory::priced::Prices;
pub use memory::two_queues::QueueRules;
pub use placement::Costs;
pub use slots::ages::{AgeOrder, SlotAges};
pub use slots::bands::{BANDS_MAX, BandOrder, SlotBands};
pub use slots::benefit::{NoBenefit, SlotBenefit};
pub use slots::blocks::{BlockRules, SlotBlocks};
pub use slots::clean_key::CleanKey;
pub use slots::counts::{BenefitSide, Counts, Expansion, ExpansionRule};
pub use slots::fifo::{Fronted, Leave, SlotFifo};
pub use slots::keyed::{Kept, KeyedSlots};
pub use slots::lru_2::{CleanerOrder, HeapState, SlotLru2};
pub use slots::tac::{
    EXTENT_PAGES, REFRESHES_MAX, SEQUENTIAL_REQUESTS_MIN, SavedCosts, SlotHeat, TacRule,
    Temperatures, WINDOW_REQUESTS,
};
pub use structures::bits::SlotBits;
pub use touch::{History, Tick, Touch};

/// The examples of `docs/POLICIES.md`, which are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/POLICIES.md")]
pub struct Policies;
