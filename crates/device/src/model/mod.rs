//! Modelled devices: they hold real bytes and say when each request would have finished.
//!
//! - `preset`: the devices by name, in one table with their sources.
//! - `geometry`: those of them that have domains.
//! - `spec`: a device in figures. `disk_server`, `measured`, `volume`: how a member serves.
//! - `member`: one server of an array, its accounting, and how addresses are striped. `job`: what
//!   it is asked to do.
//! - `sim`: the device that a virtual world sees. `service`: its requests. `transfer`: its bytes.
//!   `durability`: what survives a power cut.
//! - `fault`: the faults, and which data must survive each.

mod disk_server;
mod durability;
mod fault;
mod geometry;
mod job;
mod mark;
mod measured;
mod member;
mod preset;
mod service;
mod sim;
mod spec;
mod transfer;
mod volume;

pub use durability::CutReport;
pub use fault::Faults;
pub use mark::{Mark, MarkKind};
pub use preset::{Preset, PresetRow, UnknownPreset, build};
pub use sim::SimDevice;
pub use spec::{
    DiskSpec, Limits, MeasuredSpec, MeasuredTimes, MemberSpec, Scheduling, Spec, Upper, VolumeSpec,
};
