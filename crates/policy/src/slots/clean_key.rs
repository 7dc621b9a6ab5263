//! Which dirty slot is cleaned first, over all partitions, whatever the order of their slots.

/// Where a dirty slot stands: that with the least key is cleaned first. Keys of one order compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CleanKey(pub [u64; 4]);
