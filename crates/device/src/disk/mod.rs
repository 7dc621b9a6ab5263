//! A rotating disk as a function of time and of a fixed seed: geometry, arm, rotation, buffer,
//! command overheads.
//!
//! Modules in reading order: `geometry` (where a sector lies), `seek` (how long the arm takes),
//! `mechanism` (arm and rotation together), `buffer` (what the disk remembers), `drive` (a command
//! from start to end). Nothing here knows a queue, a world or a byte: `model` does.
//!
//! The shape of the model is that of Ruemmler and Wilkes, "An introduction to disk drive modeling"
//! (IEEE Computer, 1994), and its parameters are those of DiskSim, so that a disk described for
//! DiskSim can be replayed here. `docs/DISKS.md` says how well that goes on five measured disks.

mod buffer;
mod drive;
mod geometry;
mod mechanism;
mod seek;

pub use buffer::{Buffering, ReadAhead};
pub use drive::{DiskAccess, Drive, DriveSpec, Overheads, Service, WriteReporting};
pub use geometry::{Geometry, Layout, Place, Zone};
pub use mechanism::{Mechanics, Mechanism};
pub use seek::SeekCurve;
