//! Tasks that do one thing together, and end together.
//!
//! - G1: `run` returns when all of its tasks have ended.
//! - G2: after the first error the others stop where they next ask, and that error is returned.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use terrace_rt::{LeafMutex, spawn};

use crate::Error;

/// Tells the tasks of a team to stop.
#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Whether another task has failed.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a team has come to.
struct Ended<T> {
    parts: Vec<Option<T>>,
    error: Option<Error>,
}

/// Runs `work` in `tasks` tasks, numbered from 0; what they return stands in that order.
pub(crate) fn run<T: Send + 'static>(
    tasks: u32,
    work: impl Fn(u32, &Stop) -> Result<T, Error> + Send + Sync + 'static,
) -> Result<Vec<T>, Error> {
    let (work, stop) = (Arc::new(work), Stop::default());
    let parts = (0..tasks).map(|_| None).collect();
    let ended = Arc::new(LeafMutex::new(Ended { parts, error: None }));
    let start = |task: u32| {
        let (work, stop, ended) = (Arc::clone(&work), stop.clone(), Arc::clone(&ended));
        spawn("an operator", move || {
            let part = work(task, &stop);
            let mut ended = ended.lock();
            match part {
                Ok(part) => ended.parts[task as usize] = Some(part),
                Err(error) => {
                    stop.ask();
                    ended.error.get_or_insert(error);
                }
            }
        })
    };
    let started: Vec<_> = (0..tasks).map(start).collect();
    started.into_iter().for_each(terrace_rt::Task::join);
    let mut ended = ended.lock();
    match ended.error.take() {
        Some(error) => Err(error),
        None => {
            let parts = ended.parts.drain(..);
            Ok(parts.map(|part| part.expect("a task ends with a part or an error")).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use terrace_rt::{Nanos, Virtual, VirtualConfig, now, sleep};

    #[test]
    fn parts_stand_in_the_order_of_their_tasks() {
        let world = Virtual::new(VirtualConfig::default());
        let run = || {
            run(5, |task, _| {
                sleep(Nanos(u64::from(10 - task)));
                Ok(task)
            })
        };
        assert_eq!(world.run(run).expect("it ends").expect("no error"), [0, 1, 2, 3, 4]);
    }

    /// G1, G2: the caller waits for all tasks, which stop at once, and gets the first error.
    #[test]
    fn the_first_error_stops_the_others_and_is_returned() {
        let world = Virtual::new(VirtualConfig::default());
        let ended = Arc::new(LeafMutex::new(0));
        let seen = Arc::clone(&ended);
        let run = move || {
            let found = run(4, move |task, stop| {
                for step in 0..1_000 {
                    if stop.is_asked() {
                        break;
                    }
                    sleep(Nanos(10));
                    if step == 3 && task == 2 {
                        let gone = io::Error::from(io::ErrorKind::NotConnected);
                        return Err::<(), _>(Error::Device(gone));
                    }
                }
                *seen.lock() += 1;
                Ok(())
            });
            (found, now())
        };
        let (found, at) = world.run(run).expect("it ends");
        assert!(matches!(found, Err(Error::Device(_))), "{found:?}");
        assert_eq!((*ended.lock(), at), (3, Nanos(50)));
    }
}
