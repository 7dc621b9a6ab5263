//! Telling other tasks that something happened: once ([`Event`]) or again and again ([`Signal`]).

#[cfg(not(loom))]
use crate::time::Nanos;
use crate::word::{self, AtomicU64, Ordering};
#[cfg(not(loom))]
use crate::world::{Waited, wait_until};

const UNSET: u64 = 0;
const SET: u64 = 1;
const AWAITED: u64 = 2;

/// Something that happens once.
#[derive(Debug, Default)]
pub struct Event {
    word: AtomicU64,
}

impl Event {
    /// An event that has not happened.
    pub fn new() -> Event {
        Event::default()
    }

    /// It has happened: all tasks that wait go on, now and for ever. A task that finds the event
    /// set sees what was written before.
    pub fn set(&self) {
        if self.word.swap(SET, Ordering::Release) == AWAITED {
            word::wake_all(&self.word);
        }
    }

    /// Whether it has happened.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.word.load(Ordering::Acquire) == SET
    }

    /// Waits until it has happened; in a dead world a destructor returns at once.
    #[inline]
    pub fn wait(&self) {
        while !self.is_set() && !self.park() {}
    }

    /// Waits once; true if the world is dead.
    #[cold]
    fn park(&self) -> bool {
        let relaxed = Ordering::Relaxed;
        match self.word.compare_exchange(UNSET, AWAITED, relaxed, relaxed) {
            Ok(_) | Err(AWAITED) => word::wait(&self.word, AWAITED),
            Err(_) => (),
        }
        word::dead()
    }
}

const PARKED: u64 = 1;
const SEQUENCE_ONE: u64 = 2;

/// A sequence counter to wait on: read [`Signal::seen`], look at the state, then wait for news.
#[derive(Debug, Default)]
pub struct Signal {
    word: AtomicU64,
}

impl Signal {
    /// A signal never given.
    pub fn new() -> Signal {
        Signal::default()
    }

    /// How often the signal was given. Read it before the state that the signal is about.
    #[inline]
    pub fn seen(&self) -> u64 {
        self.word.load(Ordering::Acquire) & !PARKED
    }

    /// Gives the signal: all waiting tasks go on. Change the state before.
    pub fn notify_all(&self) {
        let next = |seen: u64| (seen & !PARKED).wrapping_add(SEQUENCE_ONE);
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            let order = (Ordering::Release, Ordering::Relaxed);
            match self.word.compare_exchange_weak(seen, next(seen), order.0, order.1) {
                Ok(_) if seen & PARKED != 0 => return word::wake_all(&self.word),
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Waits until the signal is given after `seen`; in a dead world a destructor returns at once.
    pub fn wait(&self, seen: u64) {
        while self.mark(seen) {
            word::wait(&self.word, seen | PARKED);
            if word::dead() {
                return;
            }
        }
    }

    /// As [`Signal::wait`], but not beyond `deadline`.
    #[cfg(not(loom))]
    pub fn wait_until(&self, seen: u64, deadline: Nanos) -> Waited {
        while self.mark(seen) {
            let waited = wait_until(&self.word, seen | PARKED, deadline);
            if waited == Waited::TimedOut || word::dead() {
                return Waited::TimedOut;
            }
        }
        Waited::Woken
    }

    /// Marks the word as awaited; false if the signal was given since `seen`.
    fn mark(&self, seen: u64) -> bool {
        let mut now = self.word.load(Ordering::Acquire);
        while now & !PARKED == seen {
            let order = (Ordering::Relaxed, Ordering::Acquire);
            if now & PARKED != 0 {
                return true;
            }
            match self.word.compare_exchange_weak(now, now | PARKED, order.0, order.1) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        false
    }
}
