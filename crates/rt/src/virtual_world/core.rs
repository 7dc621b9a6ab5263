//! The inside of a virtual world: its tasks, clock and cores, and how it dies.
//!
//! ```text
//!            run                    finish, or the power is cut, or a task panics
//!   Alive ---------> Alive   Alive -----------------------------------------------> Dead
//!                            (a destructor must not wait: `stop_here`)
//! ```
//!
//! - V1: one thread owns the world; every entry asserts it.
//! - V2: no borrow of the state is alive at a switch, at a timer's call, or while a task is
//!   unwound.
//! - V3: in a dead world nothing suspends: `stop_here` returns (in a destructor) or ends the task.
//! - V4: events are counted where they happen; the power is cut between tasks, never inside one.

use std::cell::{Cell, RefCell};
use std::panic;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use super::schedule::{Schedule, What};
use super::{Stopped, VirtualConfig};
use crate::leaf;
use crate::prng::Prng;
use crate::task::{Body, Done, NO_TASK, Resumed, TaskIndex, TaskTable};
use crate::time::Nanos;
use crate::timer::Timer;
use crate::world::Waited;

/// Virtual worlds that switch at random; zero keeps latches off the slow path.
static SWITCHING_WORLDS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The number of the thread, once it has asked for one.
    static TOKEN: Cell<u64> = const { Cell::new(0) };

    /// The virtual world made or run last on this thread.
    static HERE: Cell<*const Core> = const { Cell::new(ptr::null()) };

    /// All virtual worlds of this thread, the one of `HERE` last.
    static WORLDS: RefCell<Vec<*const Core>> = const { RefCell::new(Vec::new()) };
}

/// The state of a virtual world; only its own thread touches it.
pub(crate) struct Core {
    thread: u64,
    switch_one_in: u32,
    now: Cell<Nanos>,
    events: Cell<u64>,
    cut_event: Cell<u64>,
    cut_at: Cell<Nanos>,
    dead: AtomicBool,
    running: Cell<bool>,
    prng: RefCell<Prng>,
    draws: RefCell<Prng>,
    cores_free_at: RefCell<Vec<Nanos>>,
    schedule: RefCell<Schedule>,
    tasks: TaskTable,
}

// SAFETY: V1: what `World` offers asserts that it runs on the owning thread before it touches a
// cell, and `here` finds only worlds of its thread. What is left for other threads is to hold and
// drop the `Arc`, and the last drop finds no tasks, since `Virtual` is not `Send` and ends them
// when it is dropped.
unsafe impl Send for Core {}
// SAFETY: as above.
unsafe impl Sync for Core {}

/// Runs `f` with the virtual world of this thread, if there is one.
#[inline]
pub(crate) fn here<R>(f: impl FnOnce(Option<&Core>) -> R) -> R {
    // SAFETY: the pointer is null, or a core kept alive by the `Virtual` of this thread that set
    // it and that clears it when dropped.
    f(unsafe { HERE.get().as_ref() })
}

/// The virtual world of this thread as an owner.
pub(crate) fn here_owned() -> Option<Arc<Core>> {
    let core = HERE.get();
    if core.is_null() {
        return None;
    }
    // SAFETY: as in `here`; the pointer came from `Arc::as_ptr`.
    unsafe {
        Arc::increment_strong_count(core);
        Some(Arc::from_raw(core))
    }
}

/// A number that no other thread has, nor had. Never zero.
pub(crate) fn thread_token() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    if TOKEN.get() == 0 {
        TOKEN.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
    }
    TOKEN.get()
}

/// Whether any world of the process switches at random.
#[inline]
pub(crate) fn any_switching() -> bool {
    SWITCHING_WORLDS.load(Ordering::Relaxed) != 0
}

impl Core {
    pub(crate) fn new(config: VirtualConfig) -> Core {
        assert!(config.cores > 0, "a world without cores");
        if config.switch_one_in > 0 {
            SWITCHING_WORLDS.fetch_add(1, Ordering::Relaxed);
        }
        Core {
            thread: thread_token(),
            switch_one_in: config.switch_one_in,
            now: Cell::new(Nanos::ZERO),
            events: Cell::new(0),
            cut_event: Cell::new(u64::MAX),
            cut_at: Cell::new(Nanos::MAX),
            dead: AtomicBool::new(false),
            running: Cell::new(false),
            prng: RefCell::new(Prng::from_seed(config.seed)),
            draws: RefCell::new(Prng::from_seed(!config.seed)),
            cores_free_at: RefCell::new(vec![Nanos::ZERO; config.cores as usize]),
            schedule: RefCell::default(),
            tasks: TaskTable::new(config.stack_bytes),
        }
    }

    /// Makes this the world that free functions find on this thread.
    pub(crate) fn enter(&self) {
        self.assert_owner();
        WORLDS.with_borrow_mut(|worlds| {
            worlds.retain(|&world| !ptr::eq(world, self));
            worlds.push(self);
        });
        HERE.set(self);
    }

    /// The opposite of [`Core::enter`]: free functions find the world before.
    pub(crate) fn leave(&self) {
        WORLDS.with_borrow_mut(|worlds| {
            worlds.retain(|&world| !ptr::eq(world, self));
            HERE.set(worlds.last().copied().unwrap_or(ptr::null()));
        });
    }

    pub(crate) fn assert_owner(&self) {
        assert!(thread_token() == self.thread, "a virtual world belongs to one thread");
    }

    /// The same world, after asserting that this is its thread.
    pub(crate) fn owned(&self) -> &Core {
        self.assert_owner();
        self
    }

    pub(crate) fn now(&self) -> Nanos {
        self.now.get()
    }

    pub(crate) fn draw(&self) -> u64 {
        self.draws.borrow_mut().next_u64()
    }

    pub(crate) fn events(&self) -> u64 {
        self.events.get()
    }

    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.get()
    }

    pub(crate) fn cut_at_event(&self, event: u64) {
        self.cut_event.set(event);
    }

    pub(crate) fn cut_at(&self, at: Nanos) {
        self.cut_at.set(at);
    }

    /// Adds a task. The caller has made `body` live as long as the task.
    pub(crate) fn spawn(&self, name: &'static str, done: Arc<Done>, body: Body) -> TaskIndex {
        debug_assert!(!self.is_dead());
        let task = self.tasks.add(name, done, body);
        let mut schedule = self.schedule.borrow_mut();
        schedule.admit(task);
        schedule.make_ready(task);
        self.count(1);
        task
    }

    /// Waits on `word` while it is `seen`.
    pub(crate) fn wait(&self, word: &AtomicU64, seen: u64, deadline: Option<Nanos>) -> Waited {
        if word.load(Ordering::Acquire) != seen {
            return Waited::Woken;
        }
        if !self.may_suspend() {
            return Waited::TimedOut;
        }
        let task = self.tasks.current();
        let address = ptr::from_ref(word) as usize;
        // A deadline that has passed is due now: the clock never goes back.
        let due = deadline.map(|at| at.max(self.now.get()));
        self.schedule.borrow_mut().park(task, address, due);
        self.tasks.suspend();
        if deadline.is_none() {
            return Waited::Woken;
        }
        match self.tasks.take_timed_out(task) {
            true => Waited::TimedOut,
            false => Waited::Woken,
        }
    }

    pub(crate) fn wake(&self, word: &AtomicU64, all: bool) {
        if self.is_dead() {
            return;
        }
        let woken = self.schedule.borrow_mut().wake(ptr::from_ref(word) as usize, all);
        self.count(woken);
    }

    pub(crate) fn sleep_until(&self, at: Nanos) {
        if self.may_suspend() {
            self.schedule.borrow_mut().sleep(self.tasks.current(), at);
            self.tasks.suspend();
        }
    }

    pub(crate) fn yield_now(&self) {
        if self.may_suspend() {
            self.schedule.borrow_mut().make_ready(self.tasks.current());
            self.tasks.suspend();
        }
    }

    /// Lets another task run, if the dice say so.
    #[cold]
    pub(crate) fn maybe_switch(&self) {
        let in_task = self.tasks.current() != NO_TASK;
        if self.switch_one_in == 0 || !in_task || self.is_dead() || thread::panicking() {
            return;
        }
        if self.prng.borrow_mut().chance(u64::from(self.switch_one_in)) {
            self.yield_now();
        }
    }

    /// Occupies the core that is free first for `span`, and waits until the work is done.
    pub(crate) fn charge(&self, span: Nanos) {
        if span == Nanos::ZERO || !self.may_suspend() {
            return;
        }
        let done_at = {
            let mut cores = self.cores_free_at.borrow_mut();
            let core = cores.iter_mut().min().expect("a world has cores");
            *core = (*core).max(self.now.get()) + span;
            *core
        };
        self.schedule.borrow_mut().sleep(self.tasks.current(), done_at);
        self.tasks.suspend();
    }

    pub(crate) fn call_at(&self, at: Nanos, timer: Arc<dyn Timer>, token: u64) {
        self.assert_owner();
        if self.is_dead() {
            return;
        }
        let at = at.max(self.now.get());
        self.schedule.borrow_mut().call_at(at, timer, token);
        self.count(1);
    }

    /// Runs until `done` is set. On an error, and when it unwinds, all tasks are gone.
    pub(crate) fn run_until(&self, done: &Done) -> Result<(), Stopped> {
        assert!(!self.running.replace(true), "run() inside run()");
        let stop = StopOnUnwind(self);
        let result = loop {
            if done.word.load(Ordering::Relaxed) != 0 {
                break Ok(());
            }
            if self.events.get() >= self.cut_event.get() {
                break Err(Stopped::PowerCut { event: self.events.get(), at: self.now.get() });
            }
            match self.step() {
                Step::Done => (),
                Step::PowerCut => {
                    self.now.set(self.cut_at.get().max(self.now.get()));
                    break Err(Stopped::PowerCut { event: self.events.get(), at: self.now.get() });
                }
                Step::Deadlock => break Err(Stopped::Deadlock { tasks: self.parked_names() }),
            }
        };
        if result.is_err() {
            self.kill();
        }
        std::mem::forget(stop);
        self.running.set(false);
        result
    }

    /// Ends the world: unwinds all tasks, drops all timers.
    pub(crate) fn kill(&self) {
        self.dead.store(true, Ordering::Relaxed);
        self.tasks.kill(|_| ());
        let timers = self.schedule.borrow_mut().clear();
        drop(timers);
    }

    fn step(&self) -> Step {
        let ready = self.schedule.borrow_mut().next_ready();
        if let Some(task) = ready {
            self.count(1);
            self.resume(task);
            return Step::Done;
        }
        let due = self.schedule.borrow_mut().next_due(self.cut_at.get());
        let Some(due) = due else {
            let is_cut = self.schedule.borrow().has_events();
            return if is_cut { Step::PowerCut } else { Step::Deadlock };
        };
        debug_assert!(due.at >= self.now.get());
        self.now.set(due.at);
        self.count(1);
        match due.what {
            What::Fire { timer, token } => timer.fire(token),
            What::Resume { task, .. } => {
                let mut schedule = self.schedule.borrow_mut();
                let timed_out = schedule.is_parked(task);
                schedule.time_out(task);
                self.tasks.set_timed_out(task, timed_out);
            }
        }
        Step::Done
    }

    fn resume(&self, task: TaskIndex) {
        let Resumed::Finished { done, panic } = self.tasks.resume(task) else { return };
        if let Some(payload) = panic {
            panic::resume_unwind(payload);
        }
        done.word.store(1, Ordering::Release);
        self.wake(&done.word, true);
    }

    /// The task that runs now, or `NO_TASK`.
    pub(crate) fn current_task(&self) -> TaskIndex {
        self.tasks.current()
    }

    /// Whether the current task may suspend. If not, the world is dead, and this returns only in a
    /// destructor (V3).
    #[inline]
    fn may_suspend(&self) -> bool {
        if !self.is_dead() && !thread::panicking() {
            assert!(self.tasks.current() != NO_TASK, "only a task waits: call this inside run()");
            leaf::assert_none_held();
            return true;
        }
        self.stop_here();
        false
    }

    #[cold]
    fn stop_here(&self) {
        if thread::panicking() {
            // The task panics, and a destructor wants to wait: the panic will end the world.
            self.dead.store(true, Ordering::Relaxed);
        }
        self.tasks.stop_here();
    }

    fn parked_names(&self) -> Vec<&'static str> {
        let schedule = self.schedule.borrow();
        self.tasks.names(|task| schedule.is_parked(task))
    }

    #[inline]
    fn count(&self, events: u64) {
        self.events.set(self.events.get() + events);
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if self.switch_one_in > 0 {
            SWITCHING_WORLDS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

enum Step {
    Done,
    PowerCut,
    Deadlock,
}

/// Ends the world if `run_until` unwinds: a task or a timer has panicked.
struct StopOnUnwind<'a>(&'a Core);

impl Drop for StopOnUnwind<'_> {
    fn drop(&mut self) {
        self.0.kill();
        self.0.running.set(false);
    }
}
