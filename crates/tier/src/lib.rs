//! The flash tier as a pure state machine: which page each slot holds, in which state, and which
//! slot is reused next. It knows no device, latch, clock or log. A driver calls it under a lock of
//! its own, does the I/O that it asks for, and tells it how that ended; what all partitions share
//! the driver lends ([`Shares`]), and what it knows beside the table is asked of it ([`Around`]).
//!
//! Modules in reading order: `table`, the states of the slots; `order`, which slot is reused and
//! which is cleaned first; `around`, what is asked of the driver; `shares`, the seam to what
//! partitions share; `log_rules`, how much is appended together; `long_read`, which pages of one
//! come from where; `image`, what a restart method is told of a slot, and tells of it; `auto`, the
//! design that picks itself; `mutation`, faults for tests.

#![forbid(unsafe_code)]

mod table;

mod order;

mod around;
mod image;
mod log_rules;
mod long_read;
mod shares;

mod auto;

mod mutation;

pub use around::Around;
pub use auto::{BusyCosts, BusyFit, CHOICES, Choice, Chooser, Leaves, Limits, Shadow, Tally};
pub use image::{Freed, Held, Image};
pub use log_rules::{LogRules, LogSizes};
pub use long_read::{Residence, Trimmed, trim};
pub use mutation::{Mutation, Mutations};
pub use order::{
    AgesOrder, AnyOrder, Asks, Count, Fill, HeatOrder, KeyedOrder, Leaving, LogSlots, SlotOrder,
    Slots,
};
pub use shares::{Gauge, Lend, Shares, Unshared};
pub use table::{
    Admissions, After, Appending, BaseRule, Candidate, Changed, Claim, Cleaned, Devices, Displaced,
    Ended, Filled, Front, Goes, Gone, HasRead, IdleDevices, Leaver, Missed, Moved, NoVictim,
    Outcome, PAGES_MAX, Purpose, Reading, Refusal, Root, Run, SlotRules, SlotState, SlotTable,
    UntilSync, Version, VersionBits, Wanted, Way, Writing, Written,
};
