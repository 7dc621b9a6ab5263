//! Replays of traces: what a policy would have missed, and what a flash tier would have served.
//!
//! A trace becomes [`References`], page numbers in the order of their requests; policies of
//! `terrace-policy` run over them as they are.
//!
//! ```
//! use terrace_replay::{Policy, References};
//!
//! let references = References::of_reads([1, 2, 3, 1, 2, 3, 4, 1]);
//! let misses = |name| Policy::find(name).unwrap().misses(&references, 2, 0);
//! assert_eq!((misses("lru"), misses("opt")), (8, 6));
//! ```

#![forbid(unsafe_code)]

mod references;

mod filter;
mod opt;
mod single_tier;
mod streaming;

pub mod curve;

mod places;
mod service;
pub mod tiers;
mod timed;
mod write_back;

mod queueing;
mod sample;

pub use filter::filter;
pub use opt::{Bypass, NEVER, next_uses, opt};
pub use places::Places;
pub use queueing::throughput;
pub use references::References;
pub use sample::{Sample, Stretches, TierRates};
pub use service::ServiceTimes;
pub use single_tier::{BANDS, Policy, online};
pub use streaming::{Following, Numbered, Reference, StreamError};
pub use terrace_policy::{Distances, FIRST_USE};
pub use terrace_tier::BusyCosts;
pub use timed::{Ask, Asked, Seconds, TimedDevices};
pub use write_back::WriteBack;
