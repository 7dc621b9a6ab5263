//! Several pieces of work at once, each on a thread of its own, their results in order.
//!
//! Each piece brings its own world, so the order in which threads run decides nothing.
//!
//! - D1: behind a Ctrl-C that is watched for no further piece begins; the first always does.

use crate::interrupt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Does `count` pieces of work, `jobs` at once; a failure keeps further pieces from starting.
///
/// # Errors
///
/// The failure with the lowest number among those that happened.
pub fn each<T: Send, E: Send>(
    count: usize,
    jobs: usize,
    work: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<Result<T, E>>>> = Mutex::new((0..count).map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, count.max(1)) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count || at > 0 && interrupt::is_asked() {
                        return;
                    }
                    let result = work(at);
                    if result.is_err() {
                        next.store(count, Ordering::Relaxed);
                    }
                    results.lock().expect("no piece panicked")[at] = Some(result);
                }
            });
        }
    });
    let results = results.into_inner().expect("no piece panicked");
    // Pieces start in order: whatever is missing comes after a failure or a Ctrl-C.
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order() {
        let done = each(50, 4, |at| Ok::<_, ()>(at * at));
        assert_eq!(done, Ok((0..50).map(|at| at * at).collect()));
        assert_eq!(each(0, 4, |_| Ok::<_, ()>(())), Ok(vec![]));
    }

    #[test]
    fn a_failure_stops_what_has_not_begun() {
        let begun = AtomicUsize::new(0);
        let done = each(1_000, 1, |at| {
            begun.fetch_add(1, Ordering::Relaxed);
            if at == 3 { Err(at) } else { Ok(at) }
        });
        assert_eq!((done, begun.into_inner()), (Err(3), 4));
    }
}
