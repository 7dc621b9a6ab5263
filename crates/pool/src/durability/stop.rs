//! Whether the pool takes changes: after a failed write or sync of home it takes no more.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use terrace_rt::LeafMutex;

use crate::PoolError;

/// Why a pool stopped.
type Cause = Arc<dyn Error + Send + Sync>;

/// Set once, with the first cause, and never reset.
#[derive(Default)]
pub(crate) struct StopSwitch {
    is_set: AtomicBool,
    cause: LeafMutex<Option<Cause>>,
}

impl StopSwitch {
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// # Errors
    ///
    /// `Stopped` with the first cause.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), PoolError> {
        if self.is_set() { self.told() } else { Ok(()) }
    }

    #[cold]
    fn told(&self) -> Result<(), PoolError> {
        match &*self.cause.lock() {
            Some(cause) => Err(PoolError::Stopped { cause: Arc::clone(cause) }),
            None => Ok(()),
        }
    }

    /// Stops the pool for `cause`, unless an earlier cause has. Returns the error for the caller.
    pub(crate) fn set(&self, cause: impl FnOnce() -> Cause) -> PoolError {
        let mut first = self.cause.lock();
        let cause = first.get_or_insert_with(cause);
        self.is_set.store(true, Ordering::Release);
        PoolError::Stopped { cause: Arc::clone(cause) }
    }
}
