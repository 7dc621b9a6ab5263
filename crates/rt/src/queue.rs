//! A bounded queue between tasks: many push, many pop, first in, first out.
//!
//! - Q1: a task that waits has read its sequence word before it looked at the items, so a push or
//!   pop that it did not see has changed the word, and the wait returns.
//! - Q2: waiters are counted under the mutex, so an uncontended push wakes no task and looks for
//!   none.

use std::collections::VecDeque;

use crate::leaf::LeafMutex;
use crate::word::{self, AtomicU64, Ordering};

/// A bounded queue; pushing to a full one and popping from an empty one block the task.
#[derive(Debug)]
pub struct Queue<T> {
    state: LeafMutex<State<T>>,
    capacity: usize,
    pushes: AtomicU64,
    pops: AtomicU64,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    closed: bool,
    pushers_waiting: usize,
    poppers_waiting: usize,
}

impl<T> Queue<T> {
    /// An empty queue for up to `capacity` items, at least one.
    pub fn new(capacity: usize) -> Queue<T> {
        assert!(capacity > 0, "a queue without room");
        let state = State {
            items: VecDeque::with_capacity(capacity.min(1024)),
            closed: false,
            pushers_waiting: 0,
            poppers_waiting: 0,
        };
        Queue {
            state: LeafMutex::new(state),
            capacity,
            pushes: AtomicU64::new(0),
            pops: AtomicU64::new(0),
        }
    }

    /// Appends `item`, waiting for room. Gives it back if the queue is closed or the world dead.
    pub fn push(&self, item: T) -> Result<(), T> {
        word::maybe_switch();
        let mut item = item;
        loop {
            let seen = self.pops.load(Ordering::Acquire);
            let mut state = self.state.lock();
            if state.closed {
                return Err(item);
            }
            item = match self.append(&mut state, item) {
                Ok(waiting) => {
                    drop(state);
                    self.announce(&self.pushes, waiting);
                    return Ok(());
                }
                Err(item) => item,
            };
            state.pushers_waiting += 1;
            drop(state);
            word::wait(&self.pops, seen);
            self.state.lock().pushers_waiting -= 1;
            if word::dead() {
                return Err(item);
            }
        }
    }

    /// Appends `item` if there is room; gives it back if not, or if the queue is closed.
    pub fn try_push(&self, item: T) -> Result<(), T> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(item);
        }
        let waiting = self.append(&mut state, item)?;
        drop(state);
        self.announce(&self.pushes, waiting);
        Ok(())
    }

    /// Takes the oldest item, waiting for one. None if the queue is closed and empty, or the world
    /// dead.
    pub fn pop(&self) -> Option<T> {
        word::maybe_switch();
        loop {
            let seen = self.pushes.load(Ordering::Acquire);
            let mut state = self.state.lock();
            if let Some(item) = state.items.pop_front() {
                let waiting = state.pushers_waiting;
                drop(state);
                self.announce(&self.pops, waiting);
                return Some(item);
            }
            if state.closed {
                return None;
            }
            state.poppers_waiting += 1;
            drop(state);
            word::wait(&self.pushes, seen);
            self.state.lock().poppers_waiting -= 1;
            if word::dead() {
                return None;
            }
        }
    }

    /// Lets nothing more in; what is in can still be popped. All waiting tasks go on.
    pub fn close(&self) {
        self.state.lock().closed = true;
        for sequence in [&self.pushes, &self.pops] {
            sequence.fetch_add(1, Ordering::Release);
            word::wake_all(sequence);
        }
    }

    /// Items in the queue now.
    pub fn len(&self) -> usize {
        self.state.lock().items.len()
    }

    /// Whether nothing is in the queue now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends, and says how many wait to pop.
    fn append(&self, state: &mut State<T>, item: T) -> Result<usize, T> {
        if state.items.len() == self.capacity {
            return Err(item);
        }
        state.items.push_back(item);
        Ok(state.poppers_waiting)
    }

    fn announce(&self, sequence: &AtomicU64, waiting: usize) {
        if waiting > 0 {
            sequence.fetch_add(1, Ordering::Release);
            word::wake_one(sequence);
        }
    }
}
