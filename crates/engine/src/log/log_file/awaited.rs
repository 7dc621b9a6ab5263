//! Futures that wait for the log to be durable, and the task that forces it for them.
//!
//! ```text
//!   commit_async: COMMIT appended, wanted = its end --news--> forcing task: force(wanted)
//!   token polled: waker put down, durable looked at               | durable
//!        ^                                                        v
//!        `------------------------ woken <--- wakers of all positions up to durable
//! ```
//!
//! - A1: a future puts its waker down first and looks at the log second; the log is durable, or has
//!   failed, first, and the forcing task looks for wakers second. So no wake-up is lost.
//! - A2: `wanted` is at or past the position of every future, so while one waits the forcing task
//!   forces, or is about to look.
//! - A3: wakers are code of callers. They are called by the forcing task, and once by the task that
//!   closes the log, with no latch and no mutex held.

use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use terrace_page::Lsn;
use terrace_rt::{LeafMutex, Signal, dead, wake_future};

use super::{Level, Log};
use crate::Error;

/// What futures want of the log.
#[derive(Default)]
pub(super) struct Awaited {
    wanted: AtomicU64,
    /// `wanted` has grown, or the database closes.
    news: Signal,
    wakers: LeafMutex<Wakers>,
}

#[derive(Default)]
struct Wakers {
    /// By position, and by number among those of one position.
    by_position: BTreeMap<(Lsn, u64), Waker>,
    next: u64,
}

impl Log {
    /// Has the forcing task make durable what begins before `position`.
    pub(crate) fn want_durable(&self, position: Lsn) {
        assert!(position <= self.end(), "{position} is wanted, past the end");
        if self.durable_end() < position {
            self.awaited.wanted.fetch_max(position.0, Ordering::AcqRel);
            self.awaited.news.notify_all();
        }
    }

    /// Has the log's tasks look whether the database was closed.
    pub(crate) fn wake_writer(&self) {
        self.write_wanted.notify_all();
        self.awaited.news.notify_all();
    }

    /// The forcing task's work: forces the log as far as is wanted, until `is_closed` (announced by
    /// [`Log::wake_writer`]) and nothing is wanted any more, or until the log fails.
    pub(crate) fn force_as_wanted(&self, is_closed: impl Fn() -> bool) {
        loop {
            let seen = self.awaited.news.seen();
            let wanted = Lsn(self.awaited.wanted.load(Ordering::Acquire));
            let durable = self.durable_end();
            self.wake_up_to(durable);
            if dead() {
                return;
            }
            if durable < wanted {
                if self.force(wanted, Level::Durable).is_err() {
                    return self.wake_all_awaiting();
                }
            } else if is_closed() {
                return;
            } else {
                self.awaited.news.wait(seen);
            }
        }
    }

    /// Whether all that begins before `position` is durable; if not, `number` stands for the waker
    /// of `context`, which is woken when it is, or when the log has failed.
    pub(crate) fn poll_durable(
        &self,
        position: Lsn,
        number: &mut Option<u64>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        if self.durable_end() >= position {
            return Poll::Ready(Ok(()));
        }
        // Not under the mutex: it is a caller's, and so are its clones.
        let waker = context.waker().clone();
        let before = {
            let mut wakers = self.awaited.wakers.lock();
            let number = *number.get_or_insert(wakers.next);
            wakers.next = wakers.next.max(number + 1);
            wakers.by_position.insert((position, number), waker)
        };
        drop(before);
        match self.check() {
            // A1: both again, and the failure first, which does not undo what is durable.
            failed if self.durable_end() < position => match failed {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            },
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Forgets the waker that `poll_durable` has put down.
    pub(crate) fn forget_waker(&self, position: Lsn, number: u64) {
        let forgotten = self.awaited.wakers.lock().by_position.remove(&(position, number));
        drop(forgotten);
    }

    /// Wakes all futures: the log is closed, or has failed.
    pub(crate) fn wake_all_awaiting(&self) {
        self.wake_up_to(Lsn::MAX);
    }

    fn wake_up_to(&self, durable: Lsn) {
        let ready = {
            let mut wakers = self.awaited.wakers.lock();
            let later = match durable {
                Lsn::MAX => BTreeMap::new(),
                durable => wakers.by_position.split_off(&(Lsn(durable.0 + 1), 0)),
            };
            mem::replace(&mut wakers.by_position, later)
        };
        ready.into_values().for_each(wake_future);
    }
}
