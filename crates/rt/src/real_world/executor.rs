//! One thread that runs tasks, and sleeps in its reactor when there is nothing to run.
//!
//! ```text
//!   read mail -> run ready tasks: BATCH, or until there is mail -> fire timers
//!       ^                                                              |
//!       `------------ reactor: poll, or wait if idle <-----------------'
//! ```
//!
//! - X1: a task stays on its executor. Only this thread touches what is below.
//! - X2: while a task waits it is in exactly one of: the parking table, the mail, `ready`.
//! - X3: a woken task runs before those that gave way: it may have been given a lock, which others
//!   then want. But no more than `WOKEN_IN_A_ROW` run before one of those.
//! - X4: no borrow is alive while a task runs; while the reactor reaps, only its own.
//! - X5: it sleeps in the reactor only while a device owes that an answer, and else on the bell
//!   alone. Some watchers of a process let no other thread run while one is inside a ring
//!   (valgrind does); an executor that waited there for another thread would wait for ever.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::mailbox::{Mail, Mailbox, NewTask};
use super::parking::{self, Sleeper};
use super::{RealCore, now};
use crate::leaf;
use crate::stack::STACK_BYTES;
use crate::task::{NO_TASK, Resumed, TaskIndex, TaskTable};
use crate::time::Nanos;
use crate::world::Waited;

/// Tasks resumed between two looks at the clock and the reactor, at most.
const BATCH: usize = 64;

/// Tasks that were woken which are resumed in a row, while others only gave way.
const WOKEN_IN_A_ROW: usize = 16;

/// Stale timers are swept once there are this many and more than half of the heap.
const STALE_MIN: usize = 1024;

/// The longest sleep in one system call; the loop goes round and sleeps again.
const SLEEP_MAX: Nanos = Nanos::from_secs(3600);

thread_local! {
    static HERE: Cell<*const Executor> = const { Cell::new(ptr::null()) };
}

/// What an executor does for its devices when it has a moment: a ring of asynchronous requests.
pub trait Reactor: Any {
    /// Hands queued requests over and reaps completions, without blocking.
    fn poll(&mut self);

    /// Whether anything was started that has not completed.
    fn is_busy(&self) -> bool;

    /// Hands queued requests over, then blocks until something has completed (and reaps it), `bell`
    /// is readable, or `span` is over. May return for no reason. Only called while it is busy.
    fn wait(&mut self, bell: BorrowedFd<'_>, span: Option<Nanos>);
}

/// An executor, on the stack of its thread.
pub(super) struct Executor {
    core: Arc<RealCore>,
    mailbox: Arc<Mailbox>,
    tasks: TaskTable,
    ready: RefCell<Ready>,
    waits: RefCell<Waits>,
    reactor: RefCell<Option<Box<dyn Reactor>>>,
    /// The bell rings, or another thread is about to ring it.
    rung: Cell<bool>,
    dead: Cell<bool>,
}

/// The tasks that can run (X3).
#[derive(Default)]
struct Ready {
    woken: VecDeque<TaskIndex>,
    /// New ones, and those that gave way.
    others: VecDeque<TaskIndex>,
    woken_in_a_row: usize,
}

impl Ready {
    fn next(&mut self) -> Option<TaskIndex> {
        if self.woken_in_a_row < WOKEN_IN_A_ROW
            && let Some(task) = self.woken.pop_front()
        {
            self.woken_in_a_row += 1;
            return Some(task);
        }
        self.woken_in_a_row = 0;
        self.others.pop_front().or_else(|| self.woken.pop_front())
    }

    fn is_empty(&self) -> bool {
        self.woken.is_empty() && self.others.is_empty()
    }
}

/// What the tasks of an executor wait for.
#[derive(Default)]
struct Waits {
    /// (instant, number of the wait, task), earliest first.
    timers: BinaryHeap<Reverse<(Nanos, u64, TaskIndex)>>,
    count: u64,
    armed: usize,
    /// For each task, the word it is parked on (0: none), and its armed timer (0: none).
    tasks: Vec<(usize, u64)>,
}

impl Waits {
    fn begin(&mut self, task: TaskIndex, address: usize, deadline: Option<Nanos>) {
        if self.tasks.len() <= task as usize {
            self.tasks.resize(task as usize + 1, (0, 0));
        }
        let mut timer = 0;
        if let Some(at) = deadline {
            self.count += 1;
            timer = self.count;
            self.armed += 1;
            self.timers.push(Reverse((at, timer, task)));
        }
        self.tasks[task as usize] = (address, timer);
        self.sweep();
    }

    fn end(&mut self, task: TaskIndex) {
        if let Some(wait) = self.tasks.get_mut(task as usize) {
            self.armed -= usize::from(wait.1 != 0);
            *wait = (0, 0);
        }
    }

    /// The next task whose time has come, and the word it is parked on.
    fn due(&mut self, now: Nanos) -> Option<(TaskIndex, usize)> {
        while let Some(&Reverse((at, timer, task))) = self.timers.peek() {
            if at > now {
                return None;
            }
            self.timers.pop();
            let (address, armed) = self.tasks[task as usize];
            if armed == timer {
                self.tasks[task as usize].1 = 0;
                self.armed -= 1;
                return Some((task, address));
            }
        }
        None
    }

    fn sweep(&mut self) {
        if self.timers.len() - self.armed >= STALE_MIN && self.timers.len() > 2 * self.armed {
            let tasks = &self.tasks;
            self.timers.retain(|Reverse((_, timer, task))| tasks[*task as usize].1 == *timer);
        }
    }
}

/// Runs `f` with the executor of this thread, if it is one.
#[inline]
pub(super) fn here<R>(f: impl FnOnce(Option<&Executor>) -> R) -> R {
    // SAFETY: the pointer is null, or this thread is inside `Executor::run`, which clears it.
    f(unsafe { HERE.get().as_ref() })
}

/// Wakes `task` if the calling thread is the executor behind `mailbox`.
pub(super) fn wake_here(mailbox: &Mailbox, task: TaskIndex) -> bool {
    here(|executor| match executor {
        Some(executor) if ptr::eq(&*executor.mailbox, mailbox) => {
            executor.make_ready(task);
            true
        }
        _ => false,
    })
}

/// The body of an executor's thread.
pub(super) fn run(core: Arc<RealCore>, mailbox: Arc<Mailbox>) {
    let executor = Executor {
        core,
        mailbox,
        tasks: TaskTable::new(STACK_BYTES),
        ready: RefCell::default(),
        waits: RefCell::default(),
        reactor: RefCell::new(None),
        rung: Cell::new(false),
        dead: Cell::new(false),
    };
    HERE.set(&raw const executor);
    executor.run();
    HERE.set(ptr::null());
}

impl Executor {
    pub(super) fn core(&self) -> &Arc<RealCore> {
        &self.core
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.get()
    }

    /// The task that runs now, or `NO_TASK`.
    #[inline]
    pub(super) fn current(&self) -> TaskIndex {
        self.tasks.current()
    }

    /// Whether the caller is one of the tasks.
    pub(super) fn in_task(&self) -> bool {
        self.tasks.current() != NO_TASK
    }

    pub(super) fn wait(&self, word: &AtomicU64, seen: u64, deadline: Option<Nanos>) -> Waited {
        if word.load(Ordering::Acquire) != seen {
            return Waited::Woken;
        }
        if !self.may_suspend() {
            return self.block(word, seen);
        }
        let task = self.tasks.current();
        let address = ptr::from_ref(word) as usize;
        self.waits.borrow_mut().begin(task, address, deadline);
        if !parking::enter(word, seen, self.sleeper(task)) {
            self.waits.borrow_mut().end(task);
            return Waited::Woken;
        }
        self.tasks.suspend();
        match deadline.is_some() && self.tasks.take_timed_out(task) {
            true => Waited::TimedOut,
            false => Waited::Woken,
        }
    }

    pub(super) fn sleep_until(&self, at: Nanos) {
        if self.may_suspend() {
            self.waits.borrow_mut().begin(self.tasks.current(), 0, Some(at));
            self.tasks.suspend();
        }
    }

    pub(super) fn yield_now(&self) {
        if self.may_suspend() {
            self.ready.borrow_mut().others.push_back(self.tasks.current());
            self.tasks.suspend();
        }
    }

    /// Uses the reactor, made by `make` if there is none yet.
    pub(super) fn reactor<R: Reactor, T>(
        &self,
        make: impl FnOnce() -> Option<R>,
        operate: impl FnOnce(&mut R) -> T,
    ) -> Option<T> {
        let mut slot = self.reactor.borrow_mut();
        if slot.is_none() {
            *slot = Some(Box::new(make()?));
        }
        let reactor: &mut dyn Any = &mut **slot.as_mut()?;
        Some(operate(reactor.downcast_mut().expect("one kind of reactor in a process")))
    }

    /// Lets the reactor wait for a completion without switching tasks.
    pub(super) fn drive(&self, span: Nanos) {
        match &mut *self.reactor.borrow_mut() {
            Some(reactor) if reactor.is_busy() => reactor.wait(self.mailbox.bell(), Some(span)),
            _ => thread::sleep(std::time::Duration::from_nanos(span.0)),
        }
    }

    fn run(&self) {
        let mut mail = Mail::default();
        loop {
            if self.mailbox.has_mail() {
                self.mailbox.take(&mut mail);
                if mail.stop {
                    break;
                }
                mail.woken.drain(..).for_each(|task| self.make_ready(task));
                mail.spawned.drain(..).for_each(|task| self.start(task));
            }
            for _ in 0..BATCH {
                let ready = self.ready.borrow_mut().next();
                let Some(task) = ready else { break };
                self.resume(task);
                if self.mailbox.has_mail() {
                    break;
                }
            }
            self.fire_timers();
            if !self.ready.borrow().is_empty() {
                if let Some(reactor) = &mut *self.reactor.borrow_mut() {
                    reactor.poll();
                }
            } else {
                self.idle();
            }
        }
        self.end(mail.spawned);
    }

    fn idle(&self) {
        if self.mailbox.fall_asleep() {
            let next = self.waits.borrow().timers.peek().map(|&Reverse((at, ..))| at);
            let span = next.map(|at| at.saturating_sub(now()).min(SLEEP_MAX));
            match &mut *self.reactor.borrow_mut() {
                Some(reactor) if reactor.is_busy() => reactor.wait(self.mailbox.bell(), span),
                _ => wait_readable(self.mailbox.bell(), span),
            }
        }
        let rung = self.mailbox.wake_up() || self.rung.get();
        self.rung.set(rung && !self.mailbox.silence());
    }

    fn fire_timers(&self) {
        if self.waits.borrow().timers.is_empty() {
            return;
        }
        let now = now();
        loop {
            let due = self.waits.borrow_mut().due(now);
            let Some((task, address)) = due else { return };
            // A waker may have been quicker: then its message is on its way (X2).
            if address == 0 || parking::leave(address, &self.sleeper(task)) {
                self.tasks.set_timed_out(task, address != 0);
                self.make_ready(task);
            }
        }
    }

    fn start(&self, task: NewTask) {
        let index = self.tasks.add(task.name, task.done, task.body);
        self.ready.borrow_mut().others.push_back(index);
    }

    fn make_ready(&self, task: TaskIndex) {
        self.waits.borrow_mut().end(task);
        self.ready.borrow_mut().woken.push_back(task);
    }

    fn resume(&self, task: TaskIndex) {
        let Resumed::Finished { done, panic } = self.tasks.resume(task) else { return };
        if let Some(payload) = panic {
            self.core.note_panic(&done, payload);
        }
        super::finish(&done);
    }

    /// The world is dropped: unwinds the tasks, and releases the threads that wait for them.
    fn end(&self, unstarted: Vec<NewTask>) {
        self.dead.set(true);
        let parked = std::mem::take(&mut self.waits.borrow_mut().tasks);
        for (task, &(address, _)) in parked.iter().enumerate() {
            if address != 0 {
                parking::leave(address, &self.sleeper(task as TaskIndex));
            }
        }
        self.tasks.kill(super::finish);
        for NewTask { done, body, .. } in unstarted.into_iter().chain(self.mailbox.close()) {
            drop(body);
            super::finish(&done);
        }
    }

    fn sleeper(&self, task: TaskIndex) -> Sleeper {
        Sleeper::Task(Arc::clone(&self.mailbox), task)
    }

    /// Whether the current task may suspend. If not, this returns only in a destructor.
    #[inline]
    fn may_suspend(&self) -> bool {
        if !self.dead.get() && !thread::panicking() {
            assert!(self.in_task(), "an executor waits outside of its tasks");
            leaf::assert_none_held();
            return true;
        }
        if self.dead.get() {
            self.tasks.stop_here();
        }
        false
    }

    /// A destructor waits while its task is unwound. In a dead world it goes on at once. If the
    /// task alone has panicked it must wait without switching; what it waits for may have to
    /// happen on this executor, so this is a short sleep, and the caller looks again.
    #[cold]
    fn block(&self, word: &AtomicU64, seen: u64) -> Waited {
        const LOOK_AGAIN: Nanos = Nanos::from_micros(100);
        if !self.dead.get() && word.load(Ordering::Acquire) == seen {
            self.drive(LOOK_AGAIN);
        }
        Waited::TimedOut
    }
}

/// Blocks until `bell` is readable, or `span` is over.
fn wait_readable(bell: BorrowedFd<'_>, span: Option<Nanos>) {
    const PER_SECOND: u64 = 1_000_000_000;
    let mut poll = libc::pollfd { fd: bell.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let span = span.map(|span| libc::timespec {
        tv_sec: (span.0 / PER_SECOND) as libc::time_t,
        tv_nsec: (span.0 % PER_SECOND) as libc::c_long,
    });
    let span = span.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: both structures live until the call returns; an interrupted call is a short sleep.
    unsafe { libc::ppoll(&raw mut poll, 1, span, ptr::null()) };
}
