//! What the pool asks of the log. The engine implements it.

use std::error::Error;
use std::io;
use std::sync::Arc;

use terrace_page::{Lsn, PageBuf, PageId};

use crate::{Doublewrite, PoolError, Stop};

/// The log, as the pool sees it [S3 II-A].
///
/// The pool calls `last_lsn`, `log_buf_write`, `log_flash` and `log_flash_kept` under its own leaf
/// locks: none may block or switch tasks. `make_durable` is called without any.
pub trait Journal: Send + Sync {
    /// The LSN of the last record appended. Never decreases.
    fn last_lsn(&self) -> Lsn;

    /// Every record up to this LSN is durable. Never decreases.
    fn durable_lsn(&self) -> Lsn;

    /// Returns when every record up to `upto` is durable: the pool calls it before a page goes to
    /// home or to flash (write-ahead logging) [S0 2.4].
    ///
    /// # Errors
    ///
    /// [`PoolError::Journal`] if the log cannot be written; the page stays where it is.
    fn make_durable(&self, upto: Lsn) -> Result<(), PoolError>;

    /// Where pages are copied before they go home, if they are.
    fn doublewrite(&self) -> Option<&Arc<Doublewrite>> {
        None
    }

    /// As `make_durable`, and what was written to the log's device before the call is durable, too.
    ///
    /// # Errors
    ///
    /// As `make_durable`.
    fn barrier(&self, upto: Lsn) -> Result<(), PoolError> {
        self.make_durable(upto)
    }

    /// Appends a BUF_WRITE record, not forced: the home copy of each of `pages` is durable and
    /// holds every update with an LSN up to `eol` [S3 II-A].
    fn log_buf_write(&self, pages: &[PageId], eol: Lsn);

    /// Appends a record of the flash tier's own, not forced; returns its LSN, or `None` if the log
    /// has no room. Recovery shows it to the tier again [S3 III-C].
    fn log_flash(&self, payload: &[u8]) -> Option<Lsn>;

    /// As `log_flash`, in the room that is kept for what must be said: at most one short record
    /// between two checkpoints.
    fn log_flash_kept(&self, payload: &[u8]) -> Option<Lsn> {
        self.log_flash(payload)
    }

    /// The log's device has failed to write copies of pages: the log takes no more records, and so
    /// the pool no more changes.
    fn failed(&self, source: io::Error) -> PoolError {
        PoolError::Journal { source: Arc::new(source) }
    }

    /// A device has failed, so that the pool takes no more changes. Returns the cause that all are
    /// told from now on: the first one, which may be of the log's own. Called under leaf locks.
    fn stopped(&self, stop: Stop) -> Arc<dyn Error + Send + Sync> {
        Arc::new(stop)
    }

    /// Brings `bytes`, home's version of `page`, up to date from the log, which has every change
    /// since `rec`; if they are not `whole`, an image in the log must come first.
    ///
    /// # Errors
    ///
    /// [`PoolError::Redo`] if the log does not have what it takes.
    fn repair(
        &self,
        page: PageId,
        rec: Lsn,
        bytes: &mut PageBuf,
        is_whole: bool,
    ) -> Result<(), PoolError>;
}
