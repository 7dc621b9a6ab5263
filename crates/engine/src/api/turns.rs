//! Turns: how many closures of callers run at once, first come, first served.
//!
//! - T1: `running` counts the turns that were given and not given back, those included whose future
//!   has not been polled since (`granted`). It is never above the limit.
//! - T2: a future that waits is in `waiting` or in `granted`; one that is dropped leaves both, and
//!   passes on what it was granted.
//! - T3: wakers are called, cloned and dropped with no mutex held.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use terrace_rt::{LeafMutex, wake_future};

/// See the module.
pub(crate) struct Turns {
    limit: usize,
    state: LeafMutex<State>,
}

#[derive(Default)]
struct State {
    running: usize,
    next: u64,
    waiting: BTreeMap<u64, Waker>,
    granted: BTreeSet<u64>,
}

/// A turn; dropping it gives it to the next one that waits.
pub(crate) struct Turn(Arc<Turns>);

impl Turns {
    /// `limit` turns at once, at least one.
    pub(crate) fn new(limit: usize) -> Arc<Turns> {
        assert!(limit > 0, "no turn is ever given");
        Arc::new(Turns { limit, state: LeafMutex::default() })
    }

    /// A turn, if one is free and none has waited for longer. Otherwise `number` stands for a place
    /// in the line.
    pub(crate) fn poll(
        self: &Arc<Turns>,
        number: &mut Option<u64>,
        context: &mut Context<'_>,
    ) -> Poll<Turn> {
        // T3: it is a caller's, and so are its clones.
        let waker = context.waker().clone();
        let mut state = self.state.lock();
        let is_given = match *number {
            Some(own) if state.granted.remove(&own) => true,
            _ if state.running < self.limit && state.waiting.is_empty() => {
                state.running += 1;
                true
            }
            _ => false,
        };
        if is_given {
            *number = None;
            return Poll::Ready(Turn(Arc::clone(self)));
        }
        let own = *number.get_or_insert(state.next);
        state.next = state.next.max(own + 1);
        let before = state.waiting.insert(own, waker);
        drop(state);
        drop(before);
        Poll::Pending
    }

    /// A future that waits is dropped.
    pub(crate) fn leave(&self, number: u64) {
        let mut state = self.state.lock();
        if state.granted.remove(&number) {
            drop(state);
            return self.pass_on();
        }
        let waker = state.waiting.remove(&number);
        drop(state);
        drop(waker);
    }

    /// Wakes all that wait: they look whether the database was closed.
    pub(crate) fn wake_all(&self) {
        // Those that are not ready then take a place again.
        let wakers = std::mem::take(&mut self.state.lock().waiting);
        wakers.into_values().for_each(wake_future);
    }

    fn pass_on(&self) {
        let mut state = self.state.lock();
        let Some((number, waker)) = state.waiting.pop_first() else {
            state.running -= 1;
            return;
        };
        state.granted.insert(number);
        drop(state);
        wake_future(waker);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.pass_on();
    }
}

#[cfg(test)]
mod tests {
    use terrace_rt::Prng;

    use super::*;

    /// Against a list: whatever comes, polls and goes, turns go out in the order of the line, and
    /// no more than the limit at once.
    #[test]
    fn turns_agree_with_a_line() {
        const LIMIT: usize = 3;
        let mut context = Context::from_waker(Waker::noop());
        for seed in 0..300 {
            let mut prng = Prng::from_seed(seed);
            let turns = Turns::new(LIMIT);
            let (mut running, mut waiting, mut granted) = (Vec::new(), Vec::new(), Vec::new());
            for step in 0..200 {
                let at = format!("seed {seed}, step {step}");
                match prng.below(4) {
                    0 | 1 => {
                        let mut number = None;
                        match turns.poll(&mut number, &mut context) {
                            Poll::Ready(turn) => {
                                assert!(waiting.is_empty(), "{at}: before those that wait");
                                running.push(turn);
                            }
                            Poll::Pending => waiting.push(number.expect("a place")),
                        }
                    }
                    2 if !running.is_empty() => {
                        drop(running.swap_remove(prng.below(running.len() as u64) as usize));
                        if !waiting.is_empty() {
                            granted.push(waiting.remove(0));
                        }
                    }
                    3 if prng.chance(2) && !waiting.is_empty() => {
                        let gone = prng.below(waiting.len() as u64) as usize;
                        turns.leave(waiting.remove(gone));
                    }
                    3 if !granted.is_empty() => {
                        let mut number = Some(granted.remove(0));
                        match prng.chance(2) {
                            true => {
                                let turn = turns.poll(&mut number, &mut context);
                                let Poll::Ready(turn) = turn else { panic!("{at}: granted") };
                                running.push(turn);
                            }
                            false => {
                                turns.leave(number.expect("just made"));
                                if !waiting.is_empty() {
                                    granted.push(waiting.remove(0));
                                }
                            }
                        }
                    }
                    _ => (),
                }
                let state = turns.state.lock();
                assert_eq!(state.running, running.len() + granted.len(), "{at}");
                assert!(state.running <= LIMIT, "{at}");
                assert!(state.waiting.keys().eq(&waiting), "{at}");
            }
        }
    }
}
