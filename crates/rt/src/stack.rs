//! Guard-paged stacks for tasks, kept for reuse: mapping one costs more than a thousand switches.

use std::io;
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

    /// A stack, used before or fresh.
    pub(crate) fn take(&mut self) -> io::Result<DefaultStack> {
        if let Some(stack) = self.free.pop() {
            return Ok(stack);
        }
        if self.bytes == STACK_BYTES
            && let Some(stack) = KEPT.get().lock().unwrap_or_else(PoisonError::into_inner).pop()
        {
            return Ok(stack);
        }
        DefaultStack::new(self.bytes)
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
