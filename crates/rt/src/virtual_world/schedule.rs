//! What a virtual world does next: its event heap, its run queue, and which task waits on which
//! word.
//!
//! - S1: events of one instant happen in the order in which they were made.
//! - S2: tasks that wait on one word are woken first come, first served. Addresses find a list of
//!   waiters, and decide nothing else.
//! - S3: an entry of the heap that wakes a task carries the number of the wait; a wait that ended
//!   otherwise leaves a stale entry, which is no event and moves no clock.

use std::cmp::Ordering;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use crate::task::{NO_TASK, TaskIndex};
use crate::time::Nanos;
use crate::timer::Timer;

/// Stale entries are swept once there are this many, and more than half of the heap.
const STALE_MIN: usize = 1024;

/// What an event does.
pub(crate) enum What {
    /// Ends the `wait`th wait of a task.
    Resume { task: TaskIndex, wait: u64 },
    /// Tells a device model that its time has come.
    Fire { timer: Arc<dyn Timer>, token: u64 },
}

/// An event to come.
pub(crate) struct Due {
    pub(crate) at: Nanos,
    sequence: u64,
    pub(crate) what: What,
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    /// The heap's greatest is the earliest.
    fn cmp(&self, other: &Due) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

/// Where a task is, and its place in a list of waiters.
#[derive(Clone, Copy)]
struct Place {
    state: State,
    /// How many waits the task has begun; names the current one.
    wait: u64,
    next: TaskIndex,
    previous: TaskIndex,
    has_deadline: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not waiting: running, in the run queue, or no task at all.
    Active,
    /// In the list of a word.
    Parked { address: usize },
    /// Until its entry in the heap.
    Asleep,
}

#[derive(Clone, Copy)]
struct Waiters {
    first: TaskIndex,
    last: TaskIndex,
}

/// Multiplies addresses by a constant: seedless and quick.
#[derive(Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("addresses only")
    }

    fn write_usize(&mut self, address: usize) {
        self.0 = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The plan of a virtual world.
#[derive(Default)]
pub(crate) struct Schedule {
    heap: BinaryHeap<Due>,
    sequence: u64,
    stale: usize,
    ready: VecDeque<TaskIndex>,
    places: Vec<Place>,
    words: HashMap<usize, Waiters, BuildHasherDefault<AddressHasher>>,
}

impl Schedule {
    /// Makes room for `task`.
    pub(crate) fn admit(&mut self, task: TaskIndex) {
        let blank = Place {
            state: State::Active,
            wait: 0,
            next: NO_TASK,
            previous: NO_TASK,
            has_deadline: false,
        };
        if self.places.len() <= task as usize {
            self.places.resize(task as usize + 1, blank);
        }
        assert!(self.places[task as usize].state == State::Active);
    }

    /// Puts `task` at the end of the run queue.
    pub(crate) fn make_ready(&mut self, task: TaskIndex) {
        self.ready.push_back(task);
    }

    /// The task to run next.
    pub(crate) fn next_ready(&mut self) -> Option<TaskIndex> {
        self.ready.pop_front()
    }

    /// Takes the earliest event, if it is not later than `latest`. A woken task is in the run
    /// queue.
    pub(crate) fn next_due(&mut self, latest: Nanos) -> Option<Due> {
        while let Some(due) = self.heap.peek() {
            if let What::Resume { task, wait } = due.what {
                let place = self.places[task as usize];
                if place.state == State::Active || place.wait != wait {
                    self.heap.pop();
                    self.stale -= 1;
                    continue;
                }
            }
            if due.at > latest {
                return None;
            }
            return self.heap.pop();
        }
        None
    }

    /// Plans a call of `timer`.
    pub(crate) fn call_at(&mut self, at: Nanos, timer: Arc<dyn Timer>, token: u64) {
        self.plan(at, What::Fire { timer, token });
    }

    /// `task` sleeps until `at`.
    pub(crate) fn sleep(&mut self, task: TaskIndex, at: Nanos) {
        let place = &mut self.places[task as usize];
        place.wait += 1;
        place.state = State::Asleep;
        place.has_deadline = true;
        let wait = place.wait;
        self.plan(at, What::Resume { task, wait });
    }

    /// `task` waits on the word at `address`, until `deadline` if there is one.
    pub(crate) fn park(&mut self, task: TaskIndex, address: usize, deadline: Option<Nanos>) {
        let mut previous = NO_TASK;
        match self.words.entry(address) {
            Entry::Vacant(vacant) => {
                vacant.insert(Waiters { first: task, last: task });
            }
            Entry::Occupied(mut occupied) => {
                previous = occupied.get().last;
                occupied.get_mut().last = task;
                self.places[previous as usize].next = task;
            }
        }
        let place = &mut self.places[task as usize];
        assert!(place.state == State::Active, "a task waits twice");
        place.wait += 1;
        place.state = State::Parked { address };
        (place.previous, place.next) = (previous, NO_TASK);
        place.has_deadline = deadline.is_some();
        let wait = place.wait;
        if let Some(at) = deadline {
            self.plan(at, What::Resume { task, wait });
        }
    }

    /// Wakes the first waiter of the word at `address`, or all; says how many.
    pub(crate) fn wake(&mut self, address: usize, all: bool) -> u64 {
        let mut woken = 0;
        if self.words.is_empty() {
            return woken;
        }
        while let Some(&Waiters { first, .. }) = self.words.get(&address) {
            if self.places[first as usize].has_deadline {
                self.count_stale();
            }
            self.unpark(first, address);
            self.ready.push_back(first);
            woken += 1;
            if !all {
                break;
            }
        }
        woken
    }

    /// The entry of `task` in the heap came first: it waits no longer.
    pub(crate) fn time_out(&mut self, task: TaskIndex) {
        if let State::Parked { address } = self.places[task as usize].state {
            self.unpark(task, address);
        }
        self.places[task as usize].state = State::Active;
        self.ready.push_back(task);
    }

    /// Whether `task` waits for a word without a deadline.
    pub(crate) fn is_parked(&self, task: TaskIndex) -> bool {
        matches!(self.places[task as usize].state, State::Parked { .. })
    }

    /// Whether anything is still to come.
    pub(crate) fn has_events(&self) -> bool {
        !self.heap.is_empty()
    }

    /// Forgets everything; gives back what is to be dropped outside.
    pub(crate) fn clear(&mut self) -> Vec<Due> {
        self.ready.clear();
        self.words.clear();
        self.stale = 0;
        for place in &mut self.places {
            place.state = State::Active;
        }
        std::mem::take(&mut self.heap).into_vec()
    }

    fn plan(&mut self, at: Nanos, what: What) {
        self.sequence += 1;
        self.heap.push(Due { at, sequence: self.sequence, what });
    }

    fn unpark(&mut self, task: TaskIndex, address: usize) {
        let Place { next, previous, .. } = self.places[task as usize];
        match (previous, next) {
            (NO_TASK, NO_TASK) => {
                self.words.remove(&address);
            }
            (NO_TASK, next) => {
                self.places[next as usize].previous = NO_TASK;
                self.waiters(address).first = next;
            }
            (previous, NO_TASK) => {
                self.places[previous as usize].next = NO_TASK;
                self.waiters(address).last = previous;
            }
            (previous, next) => {
                self.places[previous as usize].next = next;
                self.places[next as usize].previous = previous;
            }
        }
        self.places[task as usize].state = State::Active;
    }

    fn waiters(&mut self, address: usize) -> &mut Waiters {
        self.words.get_mut(&address).expect("a parked task has a list")
    }

    fn count_stale(&mut self) {
        self.stale += 1;
        if self.stale < STALE_MIN || self.stale * 2 < self.heap.len() {
            return;
        }
        let places = &self.places;
        // The task that is being woken is not active yet, and its entry stays: one remains.
        self.heap.retain(|due| match due.what {
            What::Resume { task, wait } => {
                let place = places[task as usize];
                place.state != State::Active && place.wait == wait
            }
            What::Fire { .. } => true,
        });
        self.stale = 1;
    }
}
