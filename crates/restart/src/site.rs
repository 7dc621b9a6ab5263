//! The pool as a restart method sees it. A restart method knows no more of the pool than this, so
//! that a test can replace the pool by slots, a log and a device of its own.
//!
//! - S1: [`Site::images`] shows the slots of a partition under its lock, the lock under which the
//!   hooks of a `Keeper` are called: it shows one moment, between two changes of state.
//! - S2: `log`, `now`, `span_of` and `count` neither block nor switch tasks, so they may be called
//!   under that lock; so may the methods of the log, except [`TableLog::make_durable`].

use std::error::Error;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use terrace_device::Device;
use terrace_page::Lsn;
use terrace_policy::Tick;

use terrace_tier::Image;

/// The pool as a restart method sees it. Slots are numbered over all partitions.
pub trait Site: Sync {
    /// The device that the slots and the table are on.
    fn flash(&self) -> &dyn Device;

    /// The log.
    fn log(&self) -> &dyn TableLog;

    /// The clock of the policies.
    fn now(&self) -> Tick;

    /// Whether recovery may still redo pages: a page that is redone changes without a new record.
    fn is_recovering(&self) -> bool;

    /// Whether the database is being closed.
    fn is_closing(&self) -> bool;

    /// Calls `see` for each partition that has some of `slots`, under its lock (S1): with the
    /// number of the first one, and an image for each, `None` if the slot has no valid copy.
    fn images(&self, slots: Range<u32>, see: &mut dyn FnMut(u32, Vec<Option<Image>>));

    /// The slots of the partition that has `slot`.
    fn span_of(&self, slot: u32) -> Range<u32>;

    /// The table on flash says what `slot` waited for: the slot may be reused.
    fn release(&self, slot: u32, waited: Waited);

    /// Begins a zone of a `parts`-th of the slots of each partition, and returns its slots.
    fn begin_zone(&self, parts: u32) -> Vec<u32>;

    /// `what` has happened `by` times more.
    fn count(&self, what: TableEvent, by: u64);

    /// The table cannot be written because of `source`, and the next opening would trust it all the
    /// same: stops the database from taking changes. Returns the error for callers.
    fn stop(&self, source: io::Error) -> TableError;
}

/// The log as a restart method sees it.
pub trait TableLog: Sync {
    /// The LSN of the last record appended. Never decreases.
    fn last_lsn(&self) -> Lsn;

    /// Every record up to this LSN is durable. Never decreases.
    fn durable_lsn(&self) -> Lsn;

    /// Returns when every record up to `upto` is durable.
    ///
    /// # Errors
    ///
    /// [`TableError::Pool`] if the log cannot be written.
    fn make_durable(&self, upto: Lsn) -> Result<(), TableError>;

    /// Appends a record without forcing it; returns its LSN, or `None` if the log has no room.
    /// Recovery passes the record to the restart method.
    fn append(&self, payload: &[u8]) -> Option<Lsn>;

    /// As `append`, in log space that is reserved for a record that cannot be omitted: at most one
    /// short record between two checkpoints.
    fn append_kept(&self, payload: &[u8]) -> Option<Lsn>;
}

/// Why a slot waited for the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// It held a base, or the old copy of a page that has moved to another slot: it becomes free.
    Retired,
    /// It is clean, and was PINNED: it may be reused from now on.
    Pinned,
}

/// Events of tables that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableEvent {
    /// A part of a table was written.
    Written,
    /// A byte of a table was logged.
    Logged,
    /// A table was given up.
    GivenUp,
    /// The flash failed a request that the restart method can do without.
    Fault,
}

/// Why a table cannot be kept.
#[derive(Clone, Debug)]
pub enum TableError {
    /// The flash device cannot be written, or the table was given up before.
    Flash {
        /// What the device said.
        source: Arc<io::Error>,
    },
    /// The log cannot be written, or the database takes no more changes.
    Pool {
        /// The pool's own error.
        cause: Arc<dyn Error + Send + Sync>,
    },
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TableError::Flash { source } => {
                write!(f, "the table of the flash tier cannot be written: {source}")
            }
            TableError::Pool { cause } => cause.fmt(f),
        }
    }
}

impl Error for TableError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            TableError::Flash { source } => Some(&**source),
            TableError::Pool { cause } => Some(&**cause),
        }
    }
}

/// What `slots` of `site` hold now.
pub(super) fn images_of(site: &dyn Site, slots: Range<u32>) -> Vec<Option<Image>> {
    let mut images = Vec::with_capacity(slots.len());
    site.images(slots, &mut |_, part| images.extend(part));
    images
}
