//! Files that were closed before their requests were answered.

use terrace_rt::LeafMutex;

/// A file that was closed with requests outstanding, until they are answered.
pub(super) struct Unanswered((u64, u64));

static UNANSWERED: LeafMutex<Vec<(u64, u64)>> = LeafMutex::new(Vec::new());

impl Unanswered {
    pub(super) fn note(identity: (u64, u64)) -> Unanswered {
        UNANSWERED.lock().push(identity);
        Unanswered(identity)
    }

    pub(super) fn has(identity: (u64, u64)) -> bool {
        UNANSWERED.lock().contains(&identity)
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        let mut files = UNANSWERED.lock();
        if let Some(at) = files.iter().position(|&it| it == self.0) {
            files.swap_remove(at);
        }
    }
}
