//! A NAND flash drive as a function of time: write amplification is its result, not a parameter.
//!
//! - `spec`: the drive in figures, and how a small one is cut from a large one's geometry.
//! - `flash`: which die holds what: all dies under one map, or chunks striped over domains.
//! - `ftl`: the flash translation layer: a page map, greedy garbage collection, trim.
//! - `drive`: commands, host link, buffer, channels and dies, event by event.
//!
//! ```text
//!  host --> commands --> link --> buffer --> program --+
//!             |                                        v
//!             +--> read ------> die --> channel     dies, channels   <-- garbage collection
//! ```

mod drive;
mod flash;
mod ftl;
mod spec;

pub(crate) use drive::NandDrive;
pub use drive::Wear;
pub use spec::{Content, NandSpec, Placement, Side};
