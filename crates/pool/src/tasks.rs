//! The pool's own tasks. All sleep until there is work; none spins, and none keeps a world awake.
//!
//! | task | woken by | does |
//! |---|---|---|
//! | evictor | a partition low on free frames | `run_evictor` |
//! | cleaner | too many dirty pages on flash, a run that ended | `run_cleaner` |
//! | age writer | a log that has grown, with a bound on age | `run_age_writer` |
//! | TAC writers (and of inclusive tiers) | a page read from home | `run_tac_writer` |
//! | restart | what the restart waits for | `Keeper::run` |
//! | redo | an opening that owes pages | `drain_owed_gently` |

use std::sync::Arc;

use terrace_policy::Cleaning;

use crate::BufferPool;
use crate::config::TacWrite;

impl BufferPool {
    pub(crate) fn start_tasks(self: &Arc<BufferPool>) {
        self.start("evictor", BufferPool::run_evictor);
    }

    pub(crate) fn start_late_tasks(self: &Arc<BufferPool>) {
        if self.restart.keeper.is_some() {
            self.start("restart", BufferPool::run_keeper);
        }
        if self.owed() > 0 {
            self.start("redo", BufferPool::drain_owed_gently);
        }
        if self.cleaning.rule != Cleaning::Nothing {
            self.start("cleaner", BufferPool::run_cleaner);
        }
        if self.config.clean_age.is_some() {
            self.start("age writer", BufferPool::run_age_writer);
        }
        if self.traffic.writes_what_is_read == Some(TacWrite::Async) {
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
        self.background.start(name, move || life(&pool));
    }

    /// Stops the background tasks and waits for them. Dirty pages stay dirty: call `flush_all`
    /// first.
    pub fn shutdown(&self) {
        self.background.close();
        self.traffic.offered.close();
        self.memory.frames_wanted.notify_all();
        self.cleaning.news.notify_all();
        self.durability.age.notify();
        if let Some(keeper) = &self.restart.keeper {
            keeper.close();
        }
        self.background.join();
    }
}
