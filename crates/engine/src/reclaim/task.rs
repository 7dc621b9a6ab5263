//! The task that takes work from the queue and performs it, a piece at a time.

use std::sync::Arc;

use terrace_rt::{Nanos, dead, now};

use super::{Next, Progress, Reclaim, Work, may_pass};
use crate::Error;
use crate::engine::Engine;

/// How long the task pauses after an error that may pass, such as a full log.
const PAUSE: Nanos = Nanos::from_millis(20);
/// Errors in a row after which the task tries only now and then, and no task waits for it.
const ERRORS_MAX: u32 = 1000;
/// How long it pauses then.
const REST: Nanos = Nanos::from_secs(10);

impl Reclaim {
    /// The task: returns when it is stopped, or the engine has failed.
    pub(crate) fn run(&self, engine: &Arc<Engine>) {
        // Also if it panics: otherwise a task that waits for the piece of work under way would wait
        // for ever.
        let _ended = Ended(self);
        self.run_until_stopped(engine);
    }

    fn run_until_stopped(&self, engine: &Arc<Engine>) {
        let mut errors = 0;
        self.offer(Work::Survey);
        loop {
            let seen = self.wanted.seen();
            let work = match self.take() {
                Next::Work(work) => work,
                Next::Wait => {
                    self.wanted.wait(seen);
                    if dead() {
                        return;
                    }
                    continue;
                }
                Next::Stop => return,
            };
            let performed = perform(engine, &work);
            let may_pass = performed.as_ref().is_err_and(may_pass);
            let is_blocked = self.put_back(work, performed);
            if is_blocked {
                engine.tell_reclaim();
            }
            if dead() || engine.check_open().is_err() || engine.log.is_failed() {
                return;
            }
            errors = if may_pass { errors + 1 } else { 0 };
            let is_resting = errors > ERRORS_MAX;
            self.queue.lock().is_resting = is_resting;
            if may_pass {
                let (seen, pause) =
                    if is_resting { (seen, REST) } else { (self.wanted.seen(), PAUSE) };
                self.idle.notify_all();
                let _waited = self.wanted.wait_until(seen, now().saturating_add(pause));
            }
        }
    }
}

/// The reclaim task has ended once it is dropped.
struct Ended<'r>(&'r Reclaim);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        {
            let mut queue = self.0.queue.lock();
            queue.is_stopped = true;
            queue.is_busy = false;
        }
        self.0.idle.notify_all();
        self.0.turn.notify_all();
    }
}

fn perform(engine: &Arc<Engine>, work: &Work) -> Result<Progress, Error> {
    let trees = &engine.trees;
    match work {
        Work::Leaf(tree, least, greatest) => trees.purge_leaves(engine, *tree, least, greatest),
        Work::Sweep(tree, key) => {
            match trees.sweep_leaf(engine, *tree, key)? {
                Some(next) => engine.reclaim.offer(Work::Sweep(*tree, next)),
                None => engine.reclaim.queue.lock().has_swept(*tree),
            }
            Ok(Progress::Done)
        }
        Work::Page(page) => trees.purge_page(engine, *page),
        Work::Chains(tree) => trees.free_chains(engine, *tree),
        Work::Blocks(tree) => trees.tidy_blocks(engine, *tree),
        Work::Spare(tree) => trees.free_spare(engine, *tree),
        Work::Tree(tree) => trees.free_dropped(engine, *tree),
        Work::Survey => {
            trees.survey(|work| engine.reclaim.offer(work))?;
            Ok(Progress::Done)
        }
    }
}
