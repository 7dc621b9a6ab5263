//! Where bytes live: one trait for real files, modelled disks and flash, and faulty ones.
//!
//! The code above cannot tell them apart. Modules in reading order:
//!
//! - `device`: the `Device` trait, requests, and the blocking helpers `read` and `write`.
//! - `psync`: a group of requests submitted together, its results taken together.
//! - `each`: reads that end one by one.
//! - `completion`: how a device reports the end of a batch to the task that waits.
//! - `time_limit`: how long a device may be silent.
//! - `contents`: whether a file or block device is blank, and what it holds if not.
//! - `failure`: what errors say.
//! - `patience`: which errors pass, and what is tried again.
//! - `fault`: faults of any device, real ones too.
//! - `fuse`: a device that is given up when it does not answer.
//! - `file`: files and block devices.
//! - `storage`: a storage of the user's own as a device, and the test of its rules.
//! - `nameless`: files that vanish with the process.
//! - `overlay`: copy on write over another device, for callers that must not change it, or not yet.
//! - `slab`, `difference` and `store`: the bytes of modelled devices, shared or computed.
//! - `disk`: a rotating disk as a function of time.
//! - `nand`: a flash drive as a function of time.
//! - `model`: modelled devices, their presets, and their faults.
//! - `inside`: the domains of a drive, from timing alone.

mod aligned;
mod completion;
pub mod contents;
mod device;
mod difference;
pub mod disk;
mod each;
mod failure;
mod fault;
mod file;
mod fuse;
pub mod inside;
pub mod model;
mod nameless;
pub mod nand;
mod overlay;
mod patience;
mod psync;
mod slab;
pub mod storage;
mod store;
mod time_limit;

pub use completion::{Completion, Drain, Ticket};
pub use contents::Contents;
pub use device::{
    Counters, Device, IoBuf, IoFailure, MemoryOwner, Op, Punched, Request, SECTOR_SIZE, read,
    write, write_shared,
};
pub use each::Reads;
pub use failure::{DeviceError, Operation, errno, has_failed, said_again};
pub use fault::{FaultCounts, FaultPlan, FaultyDevice};
pub use file::{
    Access, FileClaim, FileDevice, FileOptions, Holder, Method, OpenError, Refusal, Room,
};
pub use fuse::Fuse;
pub use overlay::{OnLoss, Overlay, OverlayMemory, Withheld, Withholding};
pub use patience::persist;
pub use psync::{PSYNC_GROUP_MAX, PsyncRead, PsyncWrite, psync_read, psync_write};
pub use slab::{IMAGE_SIZE, Image, ImageBytes, Slab};
pub use store::{Computed, Dropped, Keep, Store};
