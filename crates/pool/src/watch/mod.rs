//! What can be seen of the pool: events and samples, counters, and `check`, which asserts the
//! invariants of it all.

pub(crate) mod check;
pub(crate) mod observe;
pub(crate) mod stats;
