//! The pool's own tasks. All sleep until there is work; none spins, and none keeps a world awake.
//!
//! | task | woken by | does |
//! |---|---|---|
//! | evictor | a partition low on free frames | `run_evictor` |
//! | cleaner | too many dirty pages on flash, a run that ended | `run_cleaner` |
//! | age writer | a log that has grown, with a bound on age | `run_age_writer` |
//! | TAC writers (and of inclusive tiers) | a page read from home | `run_tac_writer` |
//! | restart | what the restart waits for | `Keep::run` |
//! | redo | an opening that owes pages | `drain_owed_gently` |

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use terrace_rt::{LeafMutex, Nanos, Task, World, dead, sleep};

use crate::BufferPool;
use crate::config::TacWrite;

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
}

impl BufferPool {
    pub(crate) fn is_closing(&self) -> bool {
        self.background.is_closing.load(Ordering::Acquire)
    }

    pub(crate) fn start_tasks(self: &Arc<BufferPool>) {
        self.start("evictor", BufferPool::run_evictor);
    }

    pub(crate) fn start_late_tasks(self: &Arc<BufferPool>) {
        let design = self.config.design;
        if self.restart.keeper.is_some() {
            self.start("restart", BufferPool::run_keeper);
        }
        if self.owed() > 0 {
            self.start("redo", BufferPool::drain_owed_gently);
        }
        if design.keeps_dirty_on_flash() {
            self.start("cleaner", BufferPool::run_cleaner);
        }
        if self.config.clean_age.is_some() {
            self.start("age writer", BufferPool::run_age_writer);
        }
        if design.writes_what_is_read() && self.config.tac.write == TacWrite::Async {
            for _ in 0..self.config.tac.writers {
                self.start("tac writer", BufferPool::run_tac_writer);
            }
        }
    }

    fn run_keeper(&self) {
        if let Some(keeper) = &self.restart.keeper {
            keeper.run(self);
        }
    }

    fn start(self: &Arc<BufferPool>, name: &'static str, life: fn(&BufferPool)) {
        let pool = Arc::clone(self);
        let task = self.background.world.spawn(name, move || life(&pool));
        self.background.tasks.lock().push(task);
    }

    /// Stops the background tasks and waits for them. Dirty pages stay dirty: call `flush_all`
    /// first.
    pub fn shutdown(&self) {
        self.background.is_closing.store(true, Ordering::Release);
        self.traffic.offered.close();
        self.memory.frames_wanted.notify_all();
        self.cleaning.news.notify_all();
        self.durability.age.notify();
        if let Some(keeper) = &self.restart.keeper {
            keeper.close();
        }
        let tasks = std::mem::take(&mut *self.background.tasks.lock());
        for task in tasks {
            task.join();
        }
        // A panic that drops the pool kills the world at the first wait: nobody ends after that.
        while !dead() && self.background.errands.load(Ordering::Acquire) > 0 {
            sleep(CLOSING_NAP);
        }
    }
}
