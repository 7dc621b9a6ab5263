//! Tasks that run in the background until the pool is closed, and short ones that a closing waits
//! for. All sleep until there is work; none spins, and none keeps a world awake.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use terrace_rt::{LeafMutex, Nanos, Task, World, dead, sleep};

use crate::BufferPool;

/// How often a closing pool looks whether its last runs have ended.
const CLOSING_NAP: Nanos = Nanos(1_000_000);

/// The pool's tasks.
pub(crate) struct Background {
    world: World,
    /// For tasks that outlive the call that starts them.
    pool: Weak<BufferPool>,
    tasks: LeafMutex<Vec<Task>>,
    is_closing: AtomicBool,
    /// Short tasks under way, which a closing waits for.
    errands: AtomicU32,
}

impl Background {
    pub(crate) fn new(world: World, pool: Weak<BufferPool>) -> Background {
        let (tasks, is_closing) = (LeafMutex::new(Vec::new()), AtomicBool::new(false));
        Background { world, pool, tasks, is_closing, errands: AtomicU32::new(0) }
    }

    /// The pool, unless it is being dropped.
    pub(crate) fn pool(&self) -> Option<Arc<BufferPool>> {
        self.pool.upgrade()
    }

    /// Runs `errand` in a task that ends by itself. A closing waits for it.
    pub(crate) fn spawn(
        &self,
        name: &'static str,
        pool: Arc<BufferPool>,
        errand: impl FnOnce(&BufferPool) + Send + 'static,
    ) {
        self.errands.fetch_add(1, Ordering::Relaxed);
        let task = move || {
            errand(&pool);
            pool.background.errands.fetch_sub(1, Ordering::Release);
        };
        drop(self.world.spawn(name, task));
    }

    /// Runs `life` until it ends, which a closing waits for.
    pub(crate) fn start(&self, name: &'static str, life: impl FnOnce() + Send + 'static) {
        let task = self.world.spawn(name, life);
        self.tasks.lock().push(task);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// All that runs is to end soon.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
    }

    /// Waits until all that runs has ended.
    pub(crate) fn join(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            task.join();
        }
        // A panic that drops the pool kills the world at the first wait: no task ends after that.
        while !dead() && self.errands.load(Ordering::Acquire) > 0 {
            sleep(CLOSING_NAP);
        }
    }
}
