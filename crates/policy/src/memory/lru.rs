//! LRU: the page whose last use is oldest leaves first.
//!
//! - Idea: what was used lately will be used again.
//! - State: the touch words alone.
//! - Cost: a hit is one store; see `coldest` for a victim.
//! - Not for: scans longer than memory, which push all else out.

use crate::memory::coldest::Cold;
use crate::{Tick, Touch};

pub fn cold(touch: Touch, now: Tick) -> Cold {
    Cold { age: u64::from(touch.age(now)), tie: 0 }
}
