//! Calls that may never return, on threads of their own: the caller does not wait for them.
//!
//! - O1: a job begins at once while fewer than [`HELPERS_MAX`] of its group run, and fewer than
//!   [`THREADS_MAX`] of all; beyond, it waits for one of them to end. So a group whose jobs never
//!   return, those of a device that does not answer say, leaves threads to the others.
//! - O2: a thread that has had nothing to do for [`LINGER`] ends. One whose job never returns stays
//!   until the process ends, and is never joined.
//! - O3: if the system gives the process no thread at all, the caller runs the job itself.
//! - O4: code of callers, which may block for as long as it likes, has threads that no job of a
//!   device waits for. It begins at once or not at all, and whoever starts it says how much of it
//!   there is at most.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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
    name: &'static str,
    threads_max: usize,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

static POOL: PerProcess<Pool> = PerProcess::new(|| Pool::new("terrace-blocking", THREADS_MAX));

/// For code of callers (O4).
static CALLERS: PerProcess<Pool> = PerProcess::new(|| Pool::new("terrace-run", usize::MAX));

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
    let mut state = pool.lock();
    state.jobs.push_back(job);
    // Without another thread, those that there are take it.
    if pool.engage(&mut state).is_err() && state.threads == 0 {
        let job = state.jobs.pop_back();
        drop(state);
        job.into_iter().for_each(|job| job());
    }
}

/// Begins code of a caller on a thread that does nothing else until it returns (O4). A panic of it
/// goes no further.
///
/// # Errors
///
/// If the operating system has no thread left.
pub(crate) fn run_for_caller(job: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let pool = CALLERS.get();
    let mut state = pool.lock();
    state.jobs.push_back(Box::new(|| drop(catch_unwind(AssertUnwindSafe(job)))));
    let engaged = pool.engage(&mut state);
    let refused = engaged.is_err().then(|| state.jobs.pop_back());
    drop(state);
    drop(refused);
    engaged
}

impl Pool {
    fn new(name: &'static str, threads_max: usize) -> Pool {
        Pool { state: Mutex::default(), news: Condvar::new(), name, threads_max }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds a thread for the job that came last, unless there are as many as may be.
    fn engage(&'static self, state: &mut State) -> io::Result<()> {
        if state.idle >= state.jobs.len() {
            self.news.notify_one();
        } else if state.threads < self.threads_max {
            thread::Builder::new().name(self.name.to_owned()).spawn(|| self.work())?;
            state.threads += 1;
        }
        Ok(())
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.lock();
                continue;
            }
            state.idle += 1;
            let waited = self.news.wait_timeout(state, LINGER);
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if timeout.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// All of them block until the last has begun.
    #[test]
    fn code_of_callers_has_threads_of_its_own() {
        const JOBS: usize = 200;
        let all = Arc::new(std::sync::Barrier::new(JOBS));
        let (send, receive) = mpsc::channel();
        for number in 0..JOBS {
            let (all, send) = (Arc::clone(&all), send.clone());
            run_for_caller(move || {
                all.wait();
                send.send(number).expect("somebody listens");
                if number.is_multiple_of(50) {
                    // It goes no further, and says nothing.
                    std::panic::resume_unwind(Box::new(()));
                }
            })
            .expect("threads are left");
        }
        let mut done: Vec<usize> = receive.iter().take(JOBS).collect();
        done.sort_unstable();
        assert!(done.into_iter().eq(0..JOBS));
    }

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
