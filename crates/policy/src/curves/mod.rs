//! How many misses a cache of any size would have: exactly for LRU, and by samples.

pub(crate) mod distances;
pub(crate) mod miss_curve;
