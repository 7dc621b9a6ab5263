//! LRU-2 for frames: the page whose use before the last is oldest leaves first (O'Neil, 1993).
//!
//! - Idea: one use says little; two uses say how often. A page used once goes before all others, so
//!   a scan pushes nothing out.
//! - State: the touch words alone. Uses within one tick of the caller's clock count as one.
//! - Cost: a hit is one store; see `coldest` for a victim.
//! - Not for: memory so small that a page leaves before its second use.

use crate::memory::coldest::Cold;
use crate::{Tick, Touch};

/// The age of a use that never was: above every age.
const NEVER: u64 = u64::MAX;

pub fn cold(touch: Touch, now: Tick) -> Cold {
    Cold { age: touch.age_of_previous(now).unwrap_or(NEVER), tie: touch.age(now) }
}
