//! Replacement: which page of a full cache leaves. `replace` is what a policy answers; then one
//! file for each policy; `list` makes one enum of them, dispatched statically.
//!
//! A policy works on [`Key`]s, small numbers that its owner gives to pages. A replay numbers all
//! pages of its trace; a pool numbers the pages that it holds and those that the policy still
//! remembers ([`ReplacementRow::keys_count`] are enough), and takes a number back when the policy
//! forgets it. So no policy hashes a page on a hit.
//!
//! ```text
//!              insert                        evict, insert of another
//!   unknown ------------> cached (hit) -------------------------------> ghost
//!      ^  ^                 |    ^                                     |   |
//!      |  +-----------------+    +-------------------------------------+   |
//!      |   evict, remove                         insert                    |
//!      +-------------------------------------------------------------------+
//!                    forgotten by any operation; remove
//! ```
//!
//! - R1: at most `capacity` keys are cached, but for what `insert` was told.
//! - R2: a key that may not leave keeps its place and its marks, and is asked about again.
//! - R3: a key is known from `insert` until it is named by `forgotten` or taken by `remove`; what
//!   was evicted and is no ghost is forgotten, too.
//! - R4: at most `keys_count` keys are known at a time.
//! - Cost: a search passes all keys that may not leave: an owner with many of those at the old end
//!   should take them out, or refuse a few only.

mod arc;
mod arena;
mod clock;
mod fifo;
mod lecar;
mod lirs;
mod list;
mod lru;
mod lru_2;
mod replace;
mod s3_fifo;
mod sieve;
pub mod sketch;
mod two_q;
mod w_tinylfu;

#[cfg(test)]
mod models;

pub use list::{REPLACEMENTS, ReplacementKind, ReplacementPolicy, ReplacementRow, Visitor, find};
pub use replace::{Forgetting, Key, Look, NoneMayLeave, Replace, Setup};
