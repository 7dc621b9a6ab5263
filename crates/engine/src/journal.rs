//! The log as the pool sees it.
//!
//! While recovery redoes a page, the pool must take the recLSN that analysis found for the bound of
//! the page's dirty entry, not the log's end. So the last LSN that this journal tells is the one
//! before it, until redo is over. A BUF_WRITE batch made meanwhile has a smaller EOL than it might.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_page::{Lsn, PageBuf, PageId};
use terrace_pool::{Doublewrite, Journal, PoolError, Stop};
use terrace_rt::{LeafMutex, Mutex};

use crate::log::record::{BUF_WRITE_PAGES_MAX, Draft, HEADER_BYTES};
use crate::log::{Level, Log, LogReader, Room};
use crate::recovery::{LostPages, repair};
use crate::{Action, Error, Part};

/// The log of an open database, for its pool.
pub(crate) struct LogJournal {
    log: Arc<Log>,
    /// What `last_lsn` answers while records are redone, or zero.
    redone: AtomicU64,
    draft: LeafMutex<Draft>,
    doublewrite: Option<Arc<Doublewrite>>,
    /// What was read of pages that flash has lost. Held while the log is read.
    lost: Mutex<LostPages>,
    lost_bytes_max: usize,
}

impl LogJournal {
    /// A journal on `log`; if `redone` is not zero, that is the last LSN until `redo_at` moves it.
    /// Of pages that flash has lost it keeps `lost_bytes_max` bytes of changes at most, or those of
    /// one page.
    pub(crate) fn new(
        log: &Arc<Log>,
        redone: Lsn,
        doublewrite: Option<Arc<Doublewrite>>,
        lost_bytes_max: usize,
    ) -> Arc<LogJournal> {
        let (log, redone) = (Arc::clone(log), AtomicU64::new(redone.0));
        let (draft, lost) = (LeafMutex::new(Draft::default()), Mutex::default());
        Arc::new(LogJournal { log, redone, draft, doublewrite, lost, lost_bytes_max })
    }

    /// Calls `read` with a reader of what the log has since `rec`, and where that ends.
    fn read_since<T>(
        &self,
        rec: Lsn,
        read: impl FnOnce(&mut LogReader<'_>, Lsn) -> Result<T, PoolError>,
    ) -> Result<T, PoolError> {
        let end = self.log.end();
        self.log
            .force(end, Level::Written)
            .map_err(|source| PoolError::Journal { source: Arc::new(source) })?;
        let (map, device) = self.log.place();
        // A bound need not be where a record begins.
        let start = self.log.record_before(rec);
        read(&mut LogReader::new(&**device, map, start, end), end)
    }

    /// A page with the recLSN `lsn` is redone next.
    pub(crate) fn redo_at(&self, lsn: Lsn) {
        self.redone.store(lsn.0 - 1, Ordering::Release);
    }

    /// Redo is over.
    pub(crate) fn end_redo(&self) {
        self.redone.store(0, Ordering::Release);
    }
}

impl Journal for LogJournal {
    fn last_lsn(&self) -> Lsn {
        match self.redone.load(Ordering::Acquire) {
            // The last byte appended, not the first of its record: what the pool takes for a bound,
            // one more, is then where a record begins, and the log can be read and cut there.
            0 => Lsn(self.log.end().0 - 1),
            redone => Lsn(redone),
        }
    }

    fn durable_lsn(&self) -> Lsn {
        Lsn(self.log.durable_end().0 - 1)
    }

    fn make_durable(&self, upto: Lsn) -> Result<(), PoolError> {
        // Records end where the next one begins, so "past its first byte" is "all of it".
        let position = Lsn(upto.0 + 1);
        self.log
            .force(position, Level::Durable)
            .map_err(|source| PoolError::Journal { source: Arc::new(source) })
    }

    fn doublewrite(&self) -> Option<&Arc<Doublewrite>> {
        self.doublewrite.as_ref()
    }

    fn barrier(&self, upto: Lsn) -> Result<(), PoolError> {
        self.log
            .barrier(Lsn(upto.0 + 1))
            .map_err(|source| PoolError::Journal { source: Arc::new(source) })
    }

    fn log_buf_write(&self, pages: &[PageId], eol: Lsn) {
        // It spares redo some work, nothing depends on it: if the log is full, do without.
        let mut draft = self.draft.lock();
        for pages in pages.chunks(BUF_WRITE_PAGES_MAX) {
            draft.buf_write(pages, eol);
            let _is_logged = self.log.append(&mut draft, Room::Forward);
        }
    }

    fn log_flash(&self, payload: &[u8]) -> Option<Lsn> {
        // Rollbacks have been promised room; the flash tier can do without.
        if !self.log.has_room((HEADER_BYTES + payload.len()) as u64) {
            return None;
        }
        let mut draft = self.draft.lock();
        draft.flash(payload);
        self.log.append(&mut draft, Room::Forward).ok()
    }

    fn log_flash_kept(&self, payload: &[u8]) -> Option<Lsn> {
        let mut draft = self.draft.lock();
        draft.flash(payload);
        self.log.append(&mut draft, Room::Reserved).ok()
    }

    fn failed(&self, source: std::io::Error) -> PoolError {
        let failed = self.log.fail(Error::device(Part::Log, Action::Write)(source));
        PoolError::Journal { source: Arc::new(failed) }
    }

    fn stopped(&self, stop: Stop) -> Arc<dyn std::error::Error + Send + Sync> {
        Arc::new(self.log.fail(Error::Device {
            part: stop.tier.into(),
            path: None,
            action: stop.operation.into(),
            page: stop.page,
            source: Arc::new(stop.source),
        }))
    }

    fn repair(
        &self,
        page: PageId,
        rec: Lsn,
        bytes: &mut PageBuf,
        is_whole: bool,
    ) -> Result<(), PoolError> {
        self.read_since(rec, |reader, _| repair(reader, page, bytes, is_whole))
    }

    fn repair_among(
        &self,
        page: PageId,
        rec: Lsn,
        bytes: &mut PageBuf,
        is_whole: bool,
        lost: &dyn Fn() -> Vec<(PageId, Lsn)>,
    ) -> Result<(), PoolError> {
        let mut gathered = self.lost.lock();
        if let Some(repaired) = gathered.repair(page, bytes, is_whole) {
            return repaired;
        }
        let mut wanted: BTreeMap<PageId, Lsn> = lost().into_iter().collect();
        wanted.insert(page, rec);
        let since = wanted.values().copied().min().unwrap_or(rec);
        let read = self.read_since(since, |reader, end| {
            LostPages::gather(reader, end, page, &wanted, self.lost_bytes_max)
                .map_err(|_| PoolError::Redo { page, what: "the log cannot be read" })
        })?;
        *gathered = read.unwrap_or_default();
        match gathered.repair(page, bytes, is_whole) {
            Some(repaired) => repaired,
            // The log is kept from the first change of this page on.
            None => self.repair(page, rec, bytes, is_whole),
        }
    }
}
