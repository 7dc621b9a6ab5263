//! Calls that may never return, on threads of their own: who asks does not wait for them.
//!
//! - O1: a job begins at once while fewer than [`THREADS_MAX`] jobs run; beyond, it waits for one
//!   of them to end.
//! - O2: a thread that has had nothing to do for [`LINGER`] ends. One whose job never returns stays
//!   until the process ends, and nobody joins it.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Threads at once, at most.
const THREADS_MAX: usize = 256;
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

static POOL: Pool = Pool {
    state: Mutex::new(State { jobs: VecDeque::new(), threads: 0, idle: 0 }),
    news: Condvar::new(),
};

/// Runs `job` on a thread of its own, and returns at once.
pub fn offload(job: impl FnOnce() + Send + 'static) {
    let mut state = POOL.state.lock().unwrap_or_else(PoisonError::into_inner);
    state.jobs.push_back(Box::new(job));
    if state.idle >= state.jobs.len() {
        POOL.news.notify_one();
    } else if state.threads < THREADS_MAX {
        let started = thread::Builder::new().name("terrace-blocking".to_owned()).spawn(work);
        // Without another thread, those that there are take it.
        state.threads += usize::from(started.is_ok());
        assert!(state.threads > 0, "no thread for a blocking call");
    }
}

fn work() {
    let mut state = POOL.state.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(job) = state.jobs.pop_front() {
            drop(state);
            job();
            state = POOL.state.lock().unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        state.idle += 1;
        let waited = POOL.news.wait_timeout(state, LINGER);
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
    fn jobs_that_never_return_hold_up_no_other() {
        let (stuck, release) = mpsc::channel::<()>();
        let release = std::sync::Arc::new(Mutex::new(release));
        for _ in 0..8 {
            let release = std::sync::Arc::clone(&release);
            offload(move || drop(release.lock().map(|release| release.recv())));
        }
        let (send, receive) = mpsc::channel();
        for number in 0..1000 {
            let send = send.clone();
            offload(move || send.send(number).expect("somebody listens"));
        }
        let mut done: Vec<u32> = receive.iter().take(1000).collect();
        done.sort_unstable();
        assert!(done.into_iter().eq(0..1000));
        drop(stuck);
    }
}
