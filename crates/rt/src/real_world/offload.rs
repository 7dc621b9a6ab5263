//! Calls that may never return, on threads of their own: the caller does not wait for them.
//!
//! - O1: a job begins at once while fewer than [`HELPERS_MAX`] of its group run, and fewer than
//!   [`THREADS_MAX`] of all; beyond, it waits for one of them to end. So a group whose jobs never
//!   return, those of a device that does not answer say, leaves threads to the others.
//! - O2: a thread that has had nothing to do for [`LINGER`] ends. One whose job never returns stays
//!   until the process ends, and is never joined.
//! - O3: if the system gives the process no thread at all, the caller runs the job itself.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::PerProcess;

/// Threads at once, at most.
const THREADS_MAX: usize = 1024;
/// Those of one group.
const HELPERS_MAX: usize = 64;
/// How long a thread waits for another job.
const LINGER: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

struct Pool {
    state: Mutex<State>,
    news: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

static POOL: PerProcess<Pool> = PerProcess::new(|| Pool {
    state: Mutex::new(State { jobs: VecDeque::new(), threads: 0, idle: 0 }),
    news: Condvar::new(),
});

/// A group of jobs that share a fate, such as the requests of one device (O1).
#[derive(Default)]
pub struct Helpers(Mutex<Group>);

#[derive(Default)]
struct Group {
    waiting: VecDeque<Job>,
    running: usize,
}

impl Helpers {
    /// Runs `job` on a thread of its own, and returns at once.
    pub fn run(self: &Arc<Helpers>, job: impl FnOnce() + Send + 'static) {
        let mut group = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if group.running == HELPERS_MAX {
            return group.waiting.push_back(Box::new(job));
        }
        group.running += 1;
        drop(group);
        let helpers = Arc::clone(self);
        offload(Box::new(move || {
            job();
            while let Some(job) = helpers.next() {
                job();
            }
        }));
    }

    /// The next job; if there is none, one fewer runs.
    fn next(&self) -> Option<Job> {
        let mut group = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = group.waiting.pop_front();
        group.running -= usize::from(next.is_none());
        next
    }
}

fn offload(job: Job) {
    let pool = POOL.get();
    let mut state = pool.state.lock().unwrap_or_else(PoisonError::into_inner);
    state.jobs.push_back(job);
    if state.idle >= state.jobs.len() {
        pool.news.notify_one();
    } else if state.threads < THREADS_MAX {
        let started =
            thread::Builder::new().name("terrace-blocking".to_owned()).spawn(|| work(pool));
        // Without another thread, those that there are take it.
        state.threads += usize::from(started.is_ok());
        if state.threads == 0 {
            let job = state.jobs.pop_back();
            drop(state);
            job.into_iter().for_each(|job| job());
        }
    }
}

fn work(pool: &Pool) {
    let mut state = pool.state.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(job) = state.jobs.pop_front() {
            drop(state);
            job();
            state = pool.state.lock().unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        state.idle += 1;
        let waited = pool.news.wait_timeout(state, LINGER);
        let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        state = woken;
        state.idle -= 1;
        if timeout.timed_out() && state.jobs.is_empty() {
            state.threads -= 1;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn jobs_that_never_return_hold_up_no_other_group() {
        // The jobs of all devices shared 256 threads: one device that did not answer took them all.
        let (stuck, release) = mpsc::channel::<()>();
        let release = Arc::new(Mutex::new(release));
        let (silent, healthy) = (Arc::<Helpers>::default(), Arc::<Helpers>::default());
        let (send, receive) = mpsc::channel();
        for _ in 0..THREADS_MAX {
            let (release, send) = (Arc::clone(&release), send.clone());
            silent.run(move || {
                drop(release.lock().map(|release| release.recv()));
                send.send(0).expect("somebody listens");
            });
        }
        for number in 1..=1000 {
            let send = send.clone();
            healthy.run(move || send.send(number).expect("somebody listens"));
        }
        let mut done: Vec<u32> = receive.iter().take(1000).collect();
        done.sort_unstable();
        assert!(done.into_iter().eq(1..=1000));
        // Those that waited for the stuck ones come to an end, too.
        drop(stuck);
        assert_eq!(receive.iter().take(THREADS_MAX).sum::<u32>(), 0);
    }
}
