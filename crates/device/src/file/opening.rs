//! What the user of a file holds, and the lock that it gives up.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::shared::Shared;
use super::unanswered::Unanswered;

/// What the user holds. Requests that are answered may hold the file for a moment longer, and do
/// not hold its lock (file.F1).
pub(super) struct Opening(pub(super) Arc<Shared>);

impl Opening {
    /// Gives up the lock, unless requests have no answer yet: then it goes with the last of them.
    pub(super) fn release(&self) {
        if self.0.is_forked() {
            return;
        }
        // A write that has no answer yet may reach the file after the next opener's (file.F7).
        if self.0.gauge.queued() > 0 {
            self.0.unanswered.lock().get_or_insert_with(|| Unanswered::note(self.0.identity));
        } else if !self.0.released.swap(true, Ordering::AcqRel) {
            // If it fails the lock goes with the file's last holder.
            let _unlocked = self.0.file.unlock();
        }
    }
}

impl Deref for Opening {
    type Target = Arc<Shared>;

    fn deref(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.release();
    }
}
