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

use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_rt::{Nanos, dead, sleep};

use crate::BufferPool;
use crate::config::TacWrite;

/// How often a closing pool looks whether its last runs have ended.
const CLOSING_NAP: Nanos = Nanos(1_000_000);

impl BufferPool {
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    pub(crate) fn start_tasks(self: &Arc<BufferPool>) {
        self.start("evictor", BufferPool::run_evictor);
    }

    pub(crate) fn start_late_tasks(self: &Arc<BufferPool>) {
        let design = self.config.design;
        if self.keeper.is_some() {
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
        if let Some(keeper) = &self.keeper {
            keeper.run(self);
        }
    }

    fn start(self: &Arc<BufferPool>, name: &'static str, life: fn(&BufferPool)) {
        let pool = Arc::clone(self);
        let task = self.world.spawn(name, move || life(&pool));
        self.tasks.lock().push(task);
    }

    /// Stops the background tasks and waits for them. Dirty pages stay dirty: call `flush_all`
    /// first.
    pub fn shutdown(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.tac_queue.close();
        self.frames_wanted.notify_all();
        self.cleaner_news.notify_all();
        self.age_news.notify_all();
        if let Some(keeper) = &self.keeper {
            keeper.close();
        }
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            task.join();
        }
        // A panic that drops the pool kills the world at the first wait: nobody ends after that.
        while !dead()
            && (self.cleaner_runs.load(Ordering::Acquire) > 0
                || self.read_aheads.load(Ordering::Acquire) > 0)
        {
            sleep(CLOSING_NAP);
        }
    }
}
