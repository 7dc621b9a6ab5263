//! Pages on their way home: the cleaner's are read from flash first; then all are copied to the
//! doublewrite area, if there is one, and written home, adjacent pages with one request.
//!
//! They are written from their frames, or, if they were copied, from the copies in memory. A
//! request shares that memory, so a device with a time limit needs no copy of its own.

use std::sync::Arc;

use terrace_device::Operation;
use terrace_page::{Lsn, PAGE_SIZE, PageBuf, PageId};
use terrace_tier::{LogRules, Mutation};

use crate::durability::Durability;
use crate::durability::doublewrite::{CopyError, Doublewrite, Shield};
use crate::io::{self, PageIo};
use crate::memory::frames::Staging;
use crate::{BufferPool, PoolError};

/// A page to write home, and its bytes.
pub(crate) struct Homeward<'a> {
    pub page: PageId,
    bytes: Bytes<'a>,
}

enum Bytes<'a> {
    Own(&'a PageBuf),
    /// write_out.W7: the copies, and the index of this page among them.
    Copied(&'a Arc<Staging>, usize),
}

/// Whether a page is copied to the doublewrite area, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copying {
    Yes,
    /// write_out.W8.
    No,
}

/// `pages`, with the bytes to write: those of the copies in `shield`, if there is one, which has
/// those to be copied in this order.
pub(crate) fn homeward<'a>(
    pages: impl Iterator<Item = (PageId, &'a PageBuf, Copying)>,
    shield: Option<&'a Shield<'_>>,
) -> Vec<Homeward<'a>> {
    let mut copied = 0;
    let source = |(page, own, copying)| {
        let shield = shield.filter(|_| copying == Copying::Yes);
        let copy = shield.map(|shield| shield.copy(copied));
        copied += usize::from(copying == Copying::Yes);
        let bytes = copy.map_or(Bytes::Own(own), |(copies, at)| Bytes::Copied(copies, at));
        Homeward { page, bytes }
    };
    pages.map(source).collect()
}

/// Writes of `pages`, which are in order, as their copies are, neighbours gathered into one.
pub(crate) fn home_runs<'a>(pages: &[Homeward<'a>]) -> Vec<PageIo<'a>> {
    let write = |run: &[Homeward<'a>]| match run[0].bytes {
        Bytes::Copied(copies, at) => {
            let range = at * PAGE_SIZE..(at + run.len()) * PAGE_SIZE;
            PageIo::write_staged(run[0].page.0 * PAGE_SIZE as u64, copies, range)
        }
        Bytes::Own(_) => PageIo::write(run[0].page.0, run.iter().map(Homeward::own)),
    };
    let is_copied = |page: &Homeward<'a>| matches!(page.bytes, Bytes::Copied(..));
    let is_run = |a: &Homeward<'a>, b: &Homeward<'a>| {
        a.page.plus(1) == b.page && is_copied(a) == is_copied(b)
    };
    pages.chunk_by(is_run).map(write).collect()
}

impl<'a> Homeward<'a> {
    fn own(&self) -> &'a PageBuf {
        match self.bytes {
            Bytes::Own(bytes) => bytes,
            Bytes::Copied(copies, at) => &copies.pages()[at],
        }
    }
}

impl Durability {
    /// The doublewrite area, if there is one.
    fn doublewrite(&self) -> Option<&Arc<Doublewrite>> {
        let area = self.journal.doublewrite();
        area.filter(|_| !self.mutations.has(Mutation::SkipDoublewrite))
    }

    /// Pages that were copied to the doublewrite area.
    pub(crate) fn pages_copied(&self) -> u64 {
        self.doublewrite().map_or(0, |area| area.pages_copied())
    }

    /// The most pages that one batch of the doublewrite area takes.
    pub(crate) fn shielded_pages(&self) -> usize {
        self.doublewrite().map_or(usize::MAX, |area| area.batch_pages())
    }

    /// write_out.W7: copies `pages`, at most `shielded_pages`, beside the log, and makes the copies
    /// durable, and the log up to `upto`. The shield is to be kept until the pages are at home.
    /// `None` if nothing is copied.
    pub(crate) fn shield(
        &self,
        pages: &[&PageBuf],
        upto: Lsn,
    ) -> Result<Option<Shield<'_>>, PoolError> {
        let Some(area) = self.doublewrite().filter(|_| !pages.is_empty()) else { return Ok(None) };
        let shield = area.copy(pages).map_err(|error| match error {
            CopyError::Log(source) => self.journal.failed(source),
            CopyError::Home(source) => self.stop_for_home(Operation::Sync, source),
            error @ CopyError::Torn => self.stop_for_home(Operation::Write, error.into()),
        })?;
        if !self.mutations.has(Mutation::PageBeforeLog) {
            self.journal.barrier(upto)?;
        }
        Ok(Some(shield))
    }

    /// A home write failed, and may have torn its pages. The cause is kept before any task meets
    /// what follows from it.
    pub(super) fn stop_torn(
        &self,
        source: std::io::Error,
        shield: Option<Shield<'_>>,
    ) -> PoolError {
        let error = self.stop_for_home(Operation::Write, source);
        if let Some(shield) = shield {
            shield.torn();
        }
        error
    }
}

/// Reads copies that are to be written home from flash into `staging`: with the requests of
/// `batch`, or, since one bad sector must not keep the others from home, one by one, as `places`
/// tells: where in the staging, and which page of the device. Bytes that could not be read are
/// zeroes. Returns whether the batch was read. A flash that is a part of the database, and is given
/// up, stops the pool.
pub(super) fn read_copies(
    BufferPool { devices, durability, .. }: &BufferPool,
    staging: &mut Staging,
    places: impl Iterator<Item = (usize, u64)>,
    batch: impl for<'a> FnOnce(&'a mut Staging) -> Vec<PageIo<'a>>,
) -> bool {
    let is_read = io::run(devices.flash(), batch(staging)).is_ok();
    if !is_read {
        devices.count_fault();
        for (at, number) in places {
            let bytes = &mut staging.pages_mut()[at];
            bytes.fill(0);
            let _failed = io::run(devices.flash(), vec![PageIo::read(number, [bytes])]);
        }
        devices.look_at_flash(durability);
    }
    is_read
}

/// Writes `pages`, which are in order, home from flash, up to `at_once` with one batch of writes,
/// in groups of what the doublewrite area takes. The log has their changes already. A failure stops
/// the pool.
pub(super) fn bring_home(
    pool: &BufferPool,
    pages: &[(PageId, &PageBuf)],
    at_once: usize,
) -> Result<(), PoolError> {
    let BufferPool { devices, durability, .. } = pool;
    devices.count_cleaning(pages, at_once);
    for part in pages.chunks(durability.shielded_pages()) {
        let copied: Vec<&PageBuf> = part.iter().map(|(_, bytes)| *bytes).collect();
        let shield = durability.shield(&copied, Lsn::ZERO).map_err(|error| {
            durability.stop_for_home(Operation::Write, std::io::Error::other(error))
        })?;
        let pages = part.iter().map(|(page, bytes)| (*page, *bytes, Copying::Yes));
        let homeward = homeward(pages, shield.as_ref());
        let batches: Vec<Vec<PageIo<'_>>> = homeward.chunks(at_once).map(home_runs).collect();
        let written = io::run_in_turn(&*devices.home, &batches, LogRules::MIGRATIONS);
        written.map_err(|source| durability.stop_torn(source, shield))?;
    }
    Ok(())
}
