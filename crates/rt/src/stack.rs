//! Guard-paged stacks for tasks, kept for reuse: mapping one costs more than a thousand switches.

use std::alloc::{self, Layout};
use std::sync::{Mutex, PoisonError};

use corosensei::stack::{DefaultStack, Stack};

use crate::real_world::PerProcess;

/// Stacks kept by the process while no world needs them.
const KEPT_MAX: usize = 1024;

/// Bytes in a task's stack unless the world says otherwise; pages are mapped when touched.
pub(crate) const STACK_BYTES: usize = 256 * 1024;

static KEPT: PerProcess<Mutex<Vec<DefaultStack>>> = PerProcess::new(|| Mutex::new(Vec::new()));

/// Finished stacks of one world or executor, all of `bytes`.
pub(crate) struct Stacks {
    bytes: usize,
    free: Vec<DefaultStack>,
}

impl Stacks {
    pub(crate) fn new(bytes: usize) -> Stacks {
        Stacks { bytes, free: Vec::new() }
    }

    /// A stack, used before or fresh. If there is no memory for one, the process ends, as it does
    /// when any allocation fails: an executor that only panicked would leave its tasks, and all
    /// tasks that wait for them, waiting for ever.
    pub(crate) fn take(&mut self) -> DefaultStack {
        if let Some(stack) = self.free.pop() {
            return stack;
        }
        if self.bytes == STACK_BYTES
            && let Some(stack) = KEPT.get().lock().unwrap_or_else(PoisonError::into_inner).pop()
        {
            return stack;
        }
        let exhausted = |_| {
            let layout = Layout::from_size_align(self.bytes, align_of::<u128>());
            alloc::handle_alloc_error(layout.expect("the size of a stack"))
        };
        DefaultStack::new(self.bytes).unwrap_or_else(exhausted)
    }

    pub(crate) fn give(&mut self, stack: DefaultStack) {
        debug_assert!(stack.base().get() - stack.limit().get() >= self.bytes);
        self.free.push(stack);
    }
}

impl Drop for Stacks {
    fn drop(&mut self) {
        if self.bytes != STACK_BYTES {
            return;
        }
        let mut kept = KEPT.get().lock().unwrap_or_else(PoisonError::into_inner);
        let room = KEPT_MAX.saturating_sub(kept.len());
        kept.extend(self.free.drain(..).take(room));
    }
}

#[cfg(test)]
mod tests {
    use crate::{Nanos, Real, Task, in_fork, sleep, spawn};

    const ABORTED: i32 = 7;

    /// Has the process get no more than the given bytes of address space beside what it has.
    fn limit_memory(more: u64) {
        let pages = std::fs::read_to_string("/proc/self/statm").expect("of this process");
        let pages = pages.split(' ').next().and_then(|pages| pages.parse::<u64>().ok());
        let most = pages.expect("a number") * 4096 + more;
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: a plain system call; the limit lives until it returns.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    }

    extern "C" fn aborted(_signal: libc::c_int) {
        // SAFETY: it may be called by a handler, and does not return.
        unsafe { libc::_exit(ABORTED) }
    }

    /// The bug: an executor that found no memory for the stack of another task panicked, and was
    /// gone. A task that waited for one of its tasks waited for ever.
    #[test]
    fn a_process_without_memory_for_stacks_ends() {
        let code = in_fork(|| {
            let handler = aborted as extern "C" fn(libc::c_int);
            // SAFETY: plain system calls; the handler only ends the process.
            unsafe {
                libc::signal(libc::SIGABRT, handler as libc::sighandler_t);
                libc::alarm(20);
            }
            let real = Real::new(1);
            real.run(|| ());
            limit_memory(16 << 20);
            real.run(|| {
                let sleeps = |_| spawn("sleeps", || sleep(Nanos::from_secs(60)));
                let tasks: Vec<_> = (0..1000).map(sleeps).collect();
                tasks.into_iter().for_each(Task::join);
            });
            0
        });
        assert_eq!(i32::from(code), ABORTED);
    }
}
