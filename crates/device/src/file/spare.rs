//! Memory of requests that have ended, for those that come: a read of a page that owns its memory
//! (file.F7) needs no allocation.
//!
//! - A1: only what no request has any more comes here: the kernel has answered.
//! - A2: at most `KEPT_MAX` pieces of at most `KEPT_BYTES_MAX` stay: a queue of single pages.

use terrace_rt::LeafMutex;

use crate::aligned::Aligned;

/// Two groups of the size that the engine reads together.
const KEPT_MAX: usize = 128;
const KEPT_BYTES_MAX: usize = 16 << 10;

/// The spare memory of a device.
#[derive(Default)]
pub(super) struct Spare(LeafMutex<Vec<Aligned>>);

impl Spare {
    /// Memory whose contents are undefined.
    pub(super) fn take(&self, len: usize, align: usize) -> Aligned {
        let kept = if len <= KEPT_BYTES_MAX { self.0.lock().pop() } else { None };
        // Pages of a device have one size: another one is rare, and its memory goes.
        kept.filter(|it| it.is(len, align)).unwrap_or_else(|| Aligned::new(len, align))
    }

    /// Keeps it, if there is room.
    pub(super) fn give(&self, memory: Aligned) {
        if memory.len() > KEPT_BYTES_MAX {
            return;
        }
        let mut kept = self.0.lock();
        if kept.len() < KEPT_MAX {
            kept.push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_if_it_fits_and_is_bounded() {
        let spare = Spare::default();
        let first = spare.take(8_192, 4_096);
        let at = first.start();
        spare.give(first);
        let again = spare.take(8_192, 4_096);
        assert_eq!(again.start(), at);
        spare.give(again);
        assert_eq!(spare.take(4_096, 4_096).len(), 4_096, "what does not fit is not used");
        spare.give(Aligned::new(2 * KEPT_BYTES_MAX, 512));
        (0..2 * KEPT_MAX).for_each(|_| spare.give(Aligned::new(512, 512)));
        let kept = spare.0.lock();
        assert!(kept.len() == KEPT_MAX && kept.iter().all(|it| it.len() == 512));
    }
}
