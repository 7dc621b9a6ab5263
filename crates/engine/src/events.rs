//! Events for the log of the program, with the feature `tracing`: what an operator wants to know.
//!
//! - V1: an event is told with no latch and no leaf mutex held, and within a `callback`: a
//!   subscriber is code of a caller, and calls of this crate from within it are refused. One that
//!   panics has said so on standard error, and disturbs nothing here.
//! - V2: without the feature nothing is told, and no code is left of it.

#[cfg(feature = "tracing")]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use terrace_pool::{BufferPool, ColdStart};
use terrace_rt::Nanos;

use crate::recovery::Analysis;
use crate::{Compacted, Error};

/// A wait for a lock is told once it has lasted this long.
pub(crate) const LONG_LOCK_WAIT: Nanos = Nanos::from_secs(1);

/// What is told.
#[derive(Debug)]
#[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "V2"))]
pub(crate) enum Event<'a> {
    /// The log of a database that was not closed is about to be redone.
    Recovering {
        log_bytes: u64,
        dirty_pages: u64,
        losers: u64,
    },
    Opened {
        database: u128,
        was_closed: bool,
    },
    FlashCold {
        why: &'a ColdStart,
    },
    FlashLost,
    Checkpoint {
        span: Nanos,
        log_used: u64,
        log_capacity: u64,
    },
    /// The engine takes no more writes.
    Stopped {
        cause: &'a Error,
    },
    /// A device failed, or a page is damaged, and the engine goes on.
    Met {
        error: &'a Error,
    },
    SnapshotEnded {
        why: &'a Error,
    },
    LogFull {
        wanted: u64,
        used: u64,
        capacity: u64,
    },
    LockWait {
        table: &'a str,
        waited: Nanos,
        was_granted: bool,
    },
    Compacted {
        compacted: &'a Compacted,
    },
    Closed {
        is_clean: bool,
    },
}

impl Event<'_> {
    #[cfg(not(feature = "tracing"))]
    #[inline]
    pub(crate) fn tell(self) {}

    /// Tells it, see V1.
    #[cfg(feature = "tracing")]
    pub(crate) fn tell(self) {
        if terrace_rt::dead() {
            return;
        }
        let tell = AssertUnwindSafe(|| self.pass_on());
        let _told = terrace_rt::callback(|| catch_unwind(tell));
    }

    #[cfg(feature = "tracing")]
    fn pass_on(self) {
        const T: &str = "terrace";
        let ms = |span: Nanos| span.0 / 1_000_000;
        match self {
            Event::Recovering { log_bytes, dirty_pages, losers } => {
                tracing::info!(target: T, log_bytes, dirty_pages, losers, "recovering");
            }
            Event::Opened { database, was_closed } => {
                let database = format!("{database:032x}");
                tracing::info!(target: T, database, was_closed, "opened");
            }
            Event::FlashCold { why } => tracing::warn!(target: T, %why, "flash starts cold"),
            Event::FlashLost => {
                tracing::error!(target: T, "flash lost: the database goes on without it");
            }
            Event::Checkpoint { span, log_used, log_capacity } => {
                tracing::debug!(target: T, ms = ms(span), log_used, log_capacity, "checkpoint");
            }
            Event::Stopped { cause } => tracing::error!(target: T, %cause, "stopped"),
            Event::Met { error } => tracing::error!(target: T, %error, "device error"),
            Event::SnapshotEnded { why } => tracing::warn!(target: T, %why, "snapshot ended"),
            Event::LogFull { wanted, used, capacity } => {
                tracing::warn!(target: T, wanted, used, capacity, "log full: waiting");
            }
            Event::LockWait { table, waited, was_granted } => {
                tracing::warn!(target: T, table, ms = ms(waited), was_granted, "long lock wait");
            }
            Event::Compacted { compacted } => tracing::info!(
                target: T,
                pages_moved = compacted.pages_moved,
                pages_freed = compacted.pages_freed,
                bytes_punched = compacted.bytes_punched,
                "compacted"
            ),
            Event::Closed { is_clean } => tracing::info!(target: T, is_clean, "closed"),
        }
    }
}

/// The database was not closed: `log_bytes` of its log are about to be redone.
pub(crate) fn recovering(analysis: &Analysis, log_bytes: u64) {
    let (dirty_pages, losers) = (analysis.dirty.len() as u64, analysis.losers.len() as u64);
    Event::Recovering { log_bytes, dirty_pages, losers }.tell();
}

/// A checkpoint has ended, which took `span`; the log is in use so far, of so much.
pub(crate) fn checkpoint(span: Nanos, (log_used, log_capacity): (u64, u64)) {
    Event::Checkpoint { span, log_used, log_capacity }.tell();
}

/// The database is open; its flash, if it has any, may have started cold.
pub(crate) fn opened(database: u128, was_closed: bool, cold_start: Option<ColdStart>) {
    Event::Opened { database, was_closed }.tell();
    match cold_start {
        None | Some(ColdStart::NoDevice) => (),
        Some(why) => Event::FlashCold { why: &why }.tell(),
    }
}

/// A caller is about to get `error`. That the engine has stopped is told once.
pub(crate) fn met(error: &Error, is_stop_told: &AtomicBool) {
    match error {
        Error::Failed { .. } if is_stop_told.swap(true, Ordering::Relaxed) => (),
        Error::Failed { .. } => Event::Stopped { cause: error }.tell(),
        Error::Device { .. } | Error::Corrupt { .. } => Event::Met { error }.tell(),
        Error::SnapshotTooOld | Error::SnapshotLost { .. } => {
            Event::SnapshotEnded { why: error }.tell();
        }
        _ => (),
    }
}

/// Looks now and then whether the flash is lost, for a task that holds nothing.
pub(crate) struct FlashWatch {
    is_lost: bool,
}

impl FlashWatch {
    /// Of an engine that was opened just now.
    pub(crate) fn new() -> FlashWatch {
        FlashWatch { is_lost: false }
    }

    /// Tells, once, that it is lost.
    pub(crate) fn look(&mut self, pool: &BufferPool) {
        if !self.is_lost && pool.is_flash_lost() {
            self.is_lost = true;
            Event::FlashLost.tell();
        }
    }
}
