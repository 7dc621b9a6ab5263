//! Which page leaves memory: policies over frames, which remember nothing of a hit but the
//! frame's touch word.

pub(crate) mod clock;
pub(crate) mod coldest;
pub(crate) mod frames;
pub(crate) mod gd2l;
pub(crate) mod lru;
pub(crate) mod lru_2;
pub(crate) mod policy;
pub(crate) mod priced;
pub(crate) mod sieve;
pub(crate) mod tails;
pub(crate) mod two_queues;
