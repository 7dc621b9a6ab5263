//! Tasks as coroutines: their stacks, which one runs, and how they end. Both worlds use it.
//!
//! ```text
//!         add             resume              resume (last)
//!   (new) ---> Fresh ------------> Started ------------------> gone
//!                \                    | ^ suspend
//!                 \ kill: drops it    | kill: unwinds it
//!                  `----> gone        `-----> gone
//! ```
//!
//! - T1: no borrow of the table is alive at a switch, nor while a task is dropped or unwound.
//! - T2: a panic never leaves a task's stack by itself: `resume` returns it.
//! - T3: a task's body is kept off its stack until it starts, so that it can be dropped without it.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::leaf::LeafMutex;
use crate::stack::Stacks;

/// A place in the table.
pub(crate) type TaskIndex = u32;

/// No task.
pub(crate) const NO_TASK: TaskIndex = TaskIndex::MAX;

/// What a panic carries.
pub(crate) type Payload = Box<dyn Any + Send>;

/// What a task does. A scoped one has been made to look unscoped by the code that waits for its
/// end.
pub(crate) type Body = Box<dyn FnOnce()>;

/// The payload that ends a task in a dead world.
struct TaskStopped;

type Suspender = Yielder<(), ()>;

/// The end of a task.
pub(crate) struct Done {
    /// 0 while it runs, 1 afterwards.
    pub(crate) word: AtomicU64,
    /// What it panicked with, until it is joined.
    pub(crate) panic: LeafMutex<Option<Payload>>,
}

impl Done {
    pub(crate) fn new() -> Done {
        Done { word: AtomicU64::new(0), panic: LeafMutex::new(None) }
    }
}

/// What `resume` came back with.
pub(crate) enum Resumed {
    Suspended,
    Finished { done: Arc<Done>, panic: Option<Payload> },
}

struct TaskSlot {
    coroutine: Option<Coroutine<(), (), (), DefaultStack>>,
    suspender: *const Suspender,
    body: Option<Body>,
    name: &'static str,
    done: Arc<Done>,
    timed_out: bool,
}

struct Slots {
    slots: Vec<TaskSlot>,
    free: Vec<TaskIndex>,
    stacks: Stacks,
}

/// The tasks of one thread. It must not move while it has tasks.
pub(crate) struct TaskTable {
    tasks: RefCell<Slots>,
    current: Cell<TaskIndex>,
    suspender: Cell<*const Suspender>,
    panic: Cell<Option<Payload>>,
}

impl TaskTable {
    pub(crate) fn new(stack_bytes: usize) -> TaskTable {
        let stacks = Stacks::new(stack_bytes);
        TaskTable {
            tasks: RefCell::new(Slots { slots: Vec::new(), free: Vec::new(), stacks }),
            current: Cell::new(NO_TASK),
            suspender: Cell::new(ptr::null()),
            panic: Cell::new(None),
        }
    }

    /// The task that runs now, or [`NO_TASK`].
    #[inline]
    pub(crate) fn current(&self) -> TaskIndex {
        self.current.get()
    }

    /// Adds a task, which starts at its first `resume`.
    pub(crate) fn add(&self, name: &'static str, done: Arc<Done>, body: Body) -> TaskIndex {
        let mut tasks = self.tasks.borrow_mut();
        let stack = tasks.stacks.take();
        let table: *const TaskTable = self;
        let coroutine = Coroutine::with_stack(stack, move |suspender: &Suspender, ()| {
            // SAFETY: the table does not move, and ends its tasks before it is dropped.
            unsafe { &*table }.run_body(suspender);
        });
        let slot = TaskSlot {
            coroutine: Some(coroutine),
            suspender: ptr::null(),
            body: Some(body),
            name,
            done,
            timed_out: false,
        };
        match tasks.free.pop() {
            Some(index) => {
                tasks.slots[index as usize] = slot;
                index
            }
            None => {
                tasks.slots.push(slot);
                TaskIndex::try_from(tasks.slots.len() - 1).expect("too many tasks")
            }
        }
    }

    /// Lets `task` run until it suspends or ends.
    pub(crate) fn resume(&self, task: TaskIndex) -> Resumed {
        let mut coroutine = {
            let slot = &mut self.tasks.borrow_mut().slots[task as usize];
            self.suspender.set(slot.suspender);
            slot.coroutine.take().expect("a ready task has a stack")
        };
        self.current.set(task);
        let result = coroutine.resume(());
        self.current.set(NO_TASK);
        let mut tasks = self.tasks.borrow_mut();
        let slot = &mut tasks.slots[task as usize];
        match result {
            CoroutineResult::Yield(()) => {
                slot.suspender = self.suspender.get();
                slot.coroutine = Some(coroutine);
                Resumed::Suspended
            }
            CoroutineResult::Return(()) => {
                let done = Arc::clone(&slot.done);
                tasks.stacks.give(coroutine.into_stack());
                tasks.free.push(task);
                Resumed::Finished { done, panic: self.panic.take() }
            }
        }
    }

    /// Goes back to the executor that resumed the current task, which exists.
    #[inline]
    pub(crate) fn suspend(&self) {
        debug_assert!(self.current.get() != NO_TASK);
        // SAFETY: a task runs, and this is its suspender: `run_body` or `resume` has set it.
        unsafe { (*self.suspender.get()).suspend(()) }
    }

    /// In a dead world: returns in a destructor and outside of tasks, otherwise ends the task.
    #[cold]
    pub(crate) fn stop_here(&self) {
        if !thread::panicking() && self.current.get() != NO_TASK {
            panic::resume_unwind(Box::new(TaskStopped));
        }
    }

    /// Ends all tasks, and says so of each. Their world must be dead: nothing that they call may
    /// suspend.
    pub(crate) fn kill(&self, ended: impl Fn(&Done)) {
        let count = self.tasks.borrow().slots.len();
        for index in 0..count {
            let (coroutine, body) = {
                let slot = &mut self.tasks.borrow_mut().slots[index];
                (slot.coroutine.take(), slot.body.take())
            };
            let Some(mut coroutine) = coroutine else { continue };
            // Destructors may panic on both ways; the task ends all the same.
            let unwound = match body {
                Some(body) => panic::catch_unwind(AssertUnwindSafe(|| drop(body))),
                None => {
                    self.current.set(index as TaskIndex);
                    panic::catch_unwind(AssertUnwindSafe(|| coroutine.force_unwind()))
                }
            };
            self.current.set(NO_TASK);
            drop(unwound);
            drop(self.panic.take());
            // Without its body a fresh coroutine is no more than a pointer.
            coroutine.force_unwind();
            let done = {
                let mut tasks = self.tasks.borrow_mut();
                tasks.stacks.give(coroutine.into_stack());
                Arc::clone(&tasks.slots[index].done)
            };
            ended(&done);
        }
    }

    /// Notes how the current wait of `task` ended.
    pub(crate) fn set_timed_out(&self, task: TaskIndex, timed_out: bool) {
        self.tasks.borrow_mut().slots[task as usize].timed_out = timed_out;
    }

    /// Whether the last wait of `task` ended by its deadline; asked once.
    pub(crate) fn take_timed_out(&self, task: TaskIndex) -> bool {
        std::mem::take(&mut self.tasks.borrow_mut().slots[task as usize].timed_out)
    }

    /// The names of the living tasks that `choose` chooses, in order of their index.
    pub(crate) fn names(&self, choose: impl Fn(TaskIndex) -> bool) -> Vec<&'static str> {
        let tasks = self.tasks.borrow();
        let alive = tasks.slots.iter().enumerate().filter(|(_, slot)| slot.coroutine.is_some());
        alive.filter(|&(index, _)| choose(index as TaskIndex)).map(|(_, slot)| slot.name).collect()
    }

    fn run_body(&self, suspender: &Suspender) {
        self.suspender.set(suspender);
        let body = self.tasks.borrow_mut().slots[self.current.get() as usize].body.take();
        let body = body.expect("a task starts once");
        if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(body)) {
            let stopped = payload.is::<TaskStopped>();
            let said = "a destructor waited while its task panicked, which ends the world";
            self.panic.set(Some(if stopped { Box::new(said) } else { payload }));
        }
    }
}
