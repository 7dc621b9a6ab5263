//! Index structures for flash drives, side by side: the B+-tree, and three that know what it lies
//! on.
//!
//! Modules in reading order:
//!
//! - `index`: what all of them can do. `entry`: keys, pointers, operations. `error`.
//! - `btree`: the B+-tree with chained leaves.
//! - `pio`: the PIO B-tree, which keeps the device's whole queue full for one task.
//! - `fd`: the FD-tree, sorted runs of growing size. `bftl`: nodes scattered over a log.
//! - `search`: MPSearch. `load`: the layout of a loaded tree.
//! - `pages`: pages in memory and on the device, and recovery. `pool`, `journal`, `superblock`,
//!   `page`: its parts. `group`: psync I/O.
//! - `trials`: the papers' measurements, on modelled drives. `fuzz`: damaged devices.
//!
//! One task uses an index at a time. Structures allocate behind what they have, and never shrink
//! their device.

#![forbid(unsafe_code)]

mod index;

mod entry;

mod error;

mod bftl;
mod btree;
mod fd;
mod pio;

mod load;
mod search;

mod pages;

mod group;
mod journal;
mod page;
mod pool;
mod superblock;

pub mod trials;

#[doc(hidden)]
pub mod fuzz;

#[cfg(test)]
mod tests;

pub use bftl::{Bftl, BftlOptions};
pub use btree::{BTree, BTreeOptions};
pub use entry::{Change, ENTRY_BYTES, Key, OP_BYTES, Op, Pointer, Source, Spaced};
pub use error::Error;
pub use fd::{FdLayout, FdOptions, FdTree};
pub use index::{Index, Memory};
pub use load::{Fill, TreeLayout};
pub use page::{Page, PageNo};
pub use pages::{Devices, Keep, Room, Traffic};
pub use pio::cost;
pub use pio::{LeafRead, PioOptions, PioTree};
pub use superblock::Kind;
