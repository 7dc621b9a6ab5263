//! What an event loop calls at an instant.

use std::sync::Arc;

/// What [`World::call_at`](crate::World::call_at) calls.
pub trait Timer: Send + Sync {
    /// The instant has come. Called from the event loop: must not block.
    fn fire(self: Arc<Self>, token: u64);
}
