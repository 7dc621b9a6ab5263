//! Pure decisions: which page leaves memory, which slot of the flash is reused, which page is worth
//! a write to it, and the table of designs that puts the answers together.
//!
//! A policy remembers and answers; the tier acts. Nothing here knows a device, a latch, a clock or
//! a log: time is a [`Tick`] that the caller counts, and the caller's lock protects each policy.
//! The same files serve the buffer pool and a replay of a trace.
//!
//! ```
//! use terrace_policy::{DirtyLeave, designs};
//!
//! let lc = designs::find("lc").unwrap();
//! assert_eq!(lc.dirty_leave, DirtyLeave::Flash);
//! let error = designs::find("lru").unwrap_err();
//! assert_eq!(error.to_string(), "unknown design `lru`; known: no-ssd, cw, dw, lc, tac, lazy, \
//!     inclusive, exclusive, hetero, face, face-gr, face-base, rotating, fasc, cc, cac, \
//!     ssd-only, auto");
//! ```

#![forbid(unsafe_code)]

mod combine;
pub mod designs;
mod flash_role;
pub mod placement;
pub mod replacement;
pub mod restarts;
mod touch;

mod clock;
mod coldest;
mod frames;
mod gd2l;
mod lru;
mod lru_2;
mod priced;
mod sieve;
mod tails;
mod two_queues;

mod benefit;
mod bloom;
mod ghosts;
mod heaps;
mod keyed_slots;
mod lazy_heap;
mod slot_ages;
mod slot_bands;
mod slot_benefit;
mod slot_bits;
mod slot_blocks;
mod slot_fifo;
mod slot_lru_2;
mod tac;

mod admission;
mod auto;
mod busy_fit;
mod shadow;

mod distances;
mod miss_curve;

pub use admission::{AccessClass, Classifier, Filling, NEAR_PAGES, Refusal, admit};
pub use auto::{BusyCosts, CHOICES, Choice, Chooser, SKETCH_SLOTS};
pub use benefit::{BenefitSide, Counts, Expansion, ExpansionRule};
pub use busy_fit::BusyFit;
pub use combine::{
    ADMISSIONS, Asked, LAYOUTS, NoSuchDesign, combinable, find_admission, find_layout,
    find_replacement,
};
pub use designs::{
    AdmissionRule, Batch, CleanLeave, Cleaning, DESIGNS, Design, DirtyLeave, HomeDevice, Inclusion,
    Invalidation, Layout, MemoryRule, Replacement, UnknownName,
};
pub use distances::{Distances, FIRST_USE};
pub use flash_role::FlashRole;
pub use frames::{FramePolicy, Frames, MEMORY_POLICIES, MemoryPolicy, Standing};
pub use keyed_slots::{Kept, KeyedSlots};
pub use miss_curve::{MissCurve, MissSampler, NoStep, sample_hash};
pub use placement::Costs;
pub use priced::Prices;
pub use restarts::{RESTARTS, Restart, RestartKind};
pub use slot_ages::{AgeOrder, SlotAges};
pub use slot_bands::{BANDS_MAX, BandOrder, SlotBands};
pub use slot_benefit::{NoBenefit, SlotBenefit};
pub use slot_bits::SlotBits;
pub use slot_blocks::{BlockRules, SlotBlocks};
pub use slot_fifo::{Fronted, Leave, SlotFifo};
pub use slot_lru_2::{CleanerOrder, SlotLru2, SlotState};
pub use tac::{
    EXTENT_PAGES, REFRESHES_MAX, SEQUENTIAL_REQUESTS_MIN, SavedCosts, SlotHeat, TacRule,
    Temperatures, WINDOW_REQUESTS,
};
pub use touch::{History, Tick, Touch};
pub use two_queues::QueueRules;

/// The examples of `docs/POLICIES.md`, which are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/POLICIES.md")]
pub struct Policies;
