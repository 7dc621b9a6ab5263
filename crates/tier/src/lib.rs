//! The flash tier as a pure state machine: which page each slot holds, in which state, and which
//! slot is reused next. It knows no device, latch, clock or log. A driver calls it under a lock of
//! its own, does the I/O that it asks for, and tells it how that ended; what all partitions share
//! the driver lends ([`Shares`]).
//!
//! Modules in reading order: `table`, the states of the slots; `order`, which slot is reused and
//! which is cleaned first; `shares`, the seam to what partitions share; `image`, what is told of a
//! slot to a restart, and by one; `mutation`, faults for tests.

#![forbid(unsafe_code)]

mod table;

mod order;

mod image;
mod shares;

mod mutation;

pub use image::{Freed, Held, Image};
pub use mutation::{Mutation, Mutations};
pub use order::{AnyOrder, Asks, Count, Fill, Leaving, LogSlots, SlotOrder, Slots};
pub use shares::{Gauge, Lend, Shares};
pub use table::{
    After, BaseRule, Changed, Claim, Cleaned, Devices, Ended, HasRead, Missed, NoVictim, PAGES_MAX,
    Reading, Root, SlotRules, SlotState, SlotTable, UntilSync, VersionBits, Wanted,
};
