//! A shared or exclusive latch in one word, with a version for optimistic readers.
//!
//! ```text
//! 63          24 23        4    3        2        1         0
//! +--------------+----------+--------+--------+--------+-----------+
//! |   version    |  shared  | INSIST | WRITER | PARKED | EXCLUSIVE |
//! +--------------+----------+--------+--------+--------+-----------+
//! ```
//!
//! - A1: EXCLUSIVE excludes a shared count above zero.
//! - A2: while a task is parked on the word, PARKED is set, or a task that was woken has not run
//!   yet. A task that was parked takes the latch with PARKED set, or parks again, or wakes the next
//!   and gives up: all keep A2.
//! - A3: WRITER keeps newcomers from the shared mode, INSIST from both; a task that was parked may
//!   pass. A writer sets WRITER when it parks. A task that was woken, and found that a newcomer had
//!   been quicker, sets INSIST and parks again: so no task is overtaken for ever, though most often
//!   a newcomer saves a switch. The task that set a mark clears it when it takes the latch or gives
//!   up.
//! - A4: the version grows at each release of the exclusive mode, and only there.
//! - A5: a release fence follows each taking of the exclusive mode, for optimistic readers.
//! - A release touches the word once; after it the latch may be freed by another owner.
//! - Not for: critical sections of a few instructions (`LeafMutex`).
//!
//! The wake-up protocol is that of the three-state futex mutex (Drepper, "Futexes are tricky",
//! 2011); the version is that of optimistic lock coupling (Leis et al., DaMoN 2016).

use crate::word::{self, AtomicU64, Ordering};

const EXCLUSIVE: u64 = 1;
const PARKED: u64 = 1 << 1;
const WRITER: u64 = 1 << 2;
const INSIST: u64 = 1 << 3;
const SHARED_ONE: u64 = 1 << 4;
const SHARED_BITS: u32 = 20;
const SHARED_MASK: u64 = ((1 << SHARED_BITS) - 1) * SHARED_ONE;
const VERSION_ONE: u64 = SHARED_ONE << SHARED_BITS;
const VERSION_MASK: u64 = !(VERSION_ONE - 1);

const _: () = assert!(VERSION_ONE == 1 << 24);

/// A latch: many readers, or one writer. See the module for the word.
#[derive(Debug, Default)]
pub struct Latch {
    word: AtomicU64,
}

impl Latch {
    /// A free latch.
    #[cfg(not(loom))]
    pub const fn new() -> Latch {
        Latch { word: AtomicU64::new(0) }
    }

    /// A free latch.
    #[cfg(loom)]
    pub fn new() -> Latch {
        Latch { word: AtomicU64::new(0) }
    }

    /// Takes the shared mode; waits while a writer holds the latch or waits for it.
    #[inline]
    pub fn lock_shared(&self) {
        self.lock_shared_while(|| true);
    }

    /// As [`Latch::lock_shared`], but only while `still` holds: it is asked before each wait, and
    /// false means that the latch was not taken. What `still` reads must change under the exclusive
    /// mode only; then no task waits for a latch whose meaning has changed.
    #[inline]
    pub fn lock_shared_while(&self, still: impl Fn() -> bool) -> bool {
        word::maybe_switch();
        self.take_shared() || self.lock_shared_slow(still)
    }

    /// Gives the shared mode back.
    #[inline]
    pub fn unlock_shared(&self) {
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            debug_assert!(seen & SHARED_MASK != 0, "unlock_shared of a latch nobody shares");
            let last = seen & SHARED_MASK == SHARED_ONE;
            let next = (seen - SHARED_ONE) & if last { !PARKED } else { !0 };
            match self.swap(seen, next, Ordering::Release) {
                Ok(_) if last && seen & PARKED != 0 => return word::wake_one(&self.word),
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Takes the exclusive mode; waits until no task holds the latch.
    #[inline]
    pub fn lock_exclusive(&self) {
        self.lock_exclusive_while(|| true);
    }

    /// As [`Latch::lock_exclusive`], but only while `still` holds, see
    /// [`Latch::lock_shared_while`].
    #[inline]
    pub fn lock_exclusive_while(&self, still: impl Fn() -> bool) -> bool {
        word::maybe_switch();
        self.take_exclusive() || self.lock_exclusive_slow(still)
    }

    /// Takes the exclusive mode if that needs no waiting. Never switches tasks, so that it may be
    /// called under a `LeafMutex`.
    #[inline]
    pub fn try_lock_exclusive(&self) -> bool {
        self.take_exclusive()
    }

    /// Gives the exclusive mode back; the version grows.
    #[inline]
    pub fn unlock_exclusive(&self) {
        self.release_exclusive(VERSION_ONE, 0);
    }

    /// Turns the exclusive mode into the shared one; the version grows. No task gets in between.
    #[inline]
    pub fn downgrade(&self) {
        self.release_exclusive(VERSION_ONE, SHARED_ONE);
    }

    /// Turns the shared mode into the exclusive one if the caller is the only reader. On false the
    /// caller still holds the shared mode.
    #[inline]
    pub fn try_upgrade(&self) -> bool {
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            debug_assert!(seen & SHARED_MASK != 0, "try_upgrade of a latch nobody shares");
            if seen & SHARED_MASK != SHARED_ONE {
                return false;
            }
            match self.swap(seen, seen - SHARED_ONE + EXCLUSIVE, Ordering::Acquire) {
                Ok(_) => return announce_writer(),
                Err(now) => seen = now,
            }
        }
    }

    /// Whether a task holds the exclusive mode now.
    #[inline]
    pub fn is_exclusive(&self) -> bool {
        self.word.load(Ordering::Relaxed) & EXCLUSIVE != 0
    }

    /// Whether a task holds the latch, in either mode, now.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.word.load(Ordering::Relaxed) & (EXCLUSIVE | SHARED_MASK) != 0
    }

    /// A version to [`Latch::validate`] later, or none while a writer holds the latch or keeps
    /// newcomers from the shared mode: a task that may not share may not read this way either.
    #[inline]
    pub fn optimistic(&self) -> Option<u64> {
        let seen = self.word.load(Ordering::Acquire);
        (seen & (EXCLUSIVE | WRITER | INSIST) == 0).then_some(seen & VERSION_MASK)
    }

    /// Whether no task has held the exclusive mode since [`Latch::optimistic`] gave `version`. What
    /// was read in between must have been read as atomics.
    #[inline]
    pub fn validate(&self, version: u64) -> bool {
        word::fence(Ordering::Acquire);
        self.word.load(Ordering::Relaxed) & (VERSION_MASK | EXCLUSIVE) == version
    }

    #[inline]
    fn swap(&self, seen: u64, next: u64, success: Ordering) -> Result<u64, u64> {
        self.word.compare_exchange_weak(seen, next, success, Ordering::Relaxed)
    }

    #[inline]
    fn take_shared(&self) -> bool {
        let mut seen = self.word.load(Ordering::Relaxed);
        while seen & (EXCLUSIVE | WRITER | INSIST) == 0 {
            assert!(seen & SHARED_MASK != SHARED_MASK, "a latch has too many readers");
            match self.swap(seen, seen + SHARED_ONE, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    #[inline]
    fn take_exclusive(&self) -> bool {
        let mut seen = self.word.load(Ordering::Relaxed);
        while seen & (EXCLUSIVE | SHARED_MASK | INSIST) == 0 {
            match self.swap(seen, seen | EXCLUSIVE, Ordering::Acquire) {
                Ok(_) => return announce_writer(),
                Err(now) => seen = now,
            }
        }
        false
    }

    #[inline]
    fn release_exclusive(&self, version: u64, shared: u64) {
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            debug_assert!(seen & EXCLUSIVE != 0, "release of a latch nobody holds exclusively");
            let next = (seen & !(EXCLUSIVE | PARKED)).wrapping_add(version) | shared;
            match self.swap(seen, next, Ordering::Release) {
                Ok(_) if seen & PARKED != 0 => return word::wake_one(&self.word),
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    #[cold]
    fn lock_shared_slow(&self, still: impl Fn() -> bool) -> bool {
        let taken = self.lock_slow(EXCLUSIVE, WRITER | INSIST, 0, SHARED_ONE, still);
        if taken == Some(Queued::Yes) {
            // The next in the queue may be a reader too, and may enter beside this one.
            word::wake_one(&self.word);
        }
        taken.is_some()
    }

    #[cold]
    fn lock_exclusive_slow(&self, still: impl Fn() -> bool) -> bool {
        let blocked = EXCLUSIVE | SHARED_MASK;
        self.lock_slow(blocked, INSIST, WRITER, EXCLUSIVE, still).is_some() && announce_writer()
    }

    /// Takes the latch by adding `mode` once none of the bits `blocked` are set, nor, for a task
    /// that has not been in the queue, `closed`. Parks with `mark`. None if it gave up.
    fn lock_slow(
        &self,
        blocked: u64,
        closed: u64,
        mark: u64,
        mode: u64,
        still: impl Fn() -> bool,
    ) -> Option<Queued> {
        let mut queued = Queued::No;
        let mut marks = 0;
        loop {
            // Acquire: `still` must not see less than the release that made the word.
            let seen = self.word.load(Ordering::Acquire);
            let (bars, parked) = match queued {
                Queued::No => (blocked | closed, 0),
                Queued::Yes => (blocked, PARKED),
            };
            if seen & bars == 0 {
                let next = ((seen & !marks) + mode) | parked;
                if self.swap(seen, next, Ordering::Acquire).is_ok() {
                    return Some(queued);
                }
            } else if still() {
                let wanted = if queued == Queued::Yes { mark | INSIST } else { mark };
                if self.park(seen, PARKED | wanted) {
                    marks |= wanted;
                    queued = Queued::Yes;
                }
            } else {
                self.give_up(marks, queued);
                return None;
            }
        }
    }

    /// Leaves the queue without the latch. A task that was woken hands the wake-up on (A2).
    fn give_up(&self, marks: u64, queued: Queued) {
        if marks != 0 {
            self.word.fetch_and(!marks, Ordering::Relaxed);
        }
        if queued == Queued::Yes {
            word::wake_one(&self.word);
        }
    }

    /// Waits while the word is `seen` with `marks`; false if the marks could not be made.
    fn park(&self, seen: u64, marks: u64) -> bool {
        let marked = seen | marks;
        if marked != seen && self.swap(seen, marked, Ordering::Relaxed).is_err() {
            return false;
        }
        word::wait_for_latch(&self.word, marked);
        true
    }
}

/// Whether a task has been in the queue of the latch that it takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Queued {
    No,
    Yes,
}

/// A task that reads, as an atomic, what a writer writes from here on, also sees that the latch is
/// taken (pairs with the fence of `validate`). No instruction on x86. Always true.
#[inline]
fn announce_writer() -> bool {
    word::fence(Ordering::Release);
    true
}
