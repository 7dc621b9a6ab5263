//! What can be seen of the pool: events and samples, counters, the memory that it takes, and
//! `check`, which asserts the invariants of it all.

pub(crate) mod check;
pub(crate) mod metadata;
pub(crate) mod observe;
pub(crate) mod stats;
