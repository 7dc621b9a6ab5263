//! A page in flight, and the ends of its reads. Its rules are those of `fetch`.

use std::sync::Arc;

use terrace_page::{Damage, PageBuf, PageId, lsn, verify};
use terrace_tier::{Freed, Mutation, Reading};

use crate::io::{self, PageIo};
use crate::memory::Partition;
use crate::memory::frames::Exclusive;
use crate::{BufferPool, PoolError, Tier};

/// Where a page's bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Home,
    Flash,
}

/// What is to be done about a bad copy that home lacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadCopy {
    /// Nothing: the page is whole, from home and the log.
    Rescued,
    /// Its source is to be read, which may be another one now.
    LookAgain,
}

/// A page in flight.
pub(crate) struct Loading<'p> {
    pub guard: Exclusive<'p>,
    pub partition: &'p Partition,
    pub page: PageId,
    /// Where its bytes come from, or came from.
    pub source: Source,
    /// The read of its slot, until it has ended.
    pub reading: Option<Reading>,
}

impl Loading<'_> {
    /// The page is to be read from its slot, or else from home.
    pub(crate) fn read_from(&mut self, reading: Option<Reading>) {
        (self.source, self.reading) = (source_of(&reading), reading);
    }
}

pub(super) fn source_of(reading: &Option<Reading>) -> Source {
    if reading.is_some() { Source::Flash } else { Source::Home }
}

impl BufferPool {
    /// Reads a page in flight from home, and verifies it.
    pub(crate) fn read_home(&self, loading: &mut Loading<'_>) -> Result<(), PoolError> {
        let io = PageIo::read(loading.page.0, [loading.guard.target()]);
        self.count_home_read(1);
        let read = io::run(&*self.devices.home, vec![io]);
        self.judge(loading.page, Tier::Home, read, &loading.guard)
    }

    /// The read of a slot has ended. Whether flash served; if not, home will.
    pub(crate) fn flash_was_read(
        &self,
        loading: &Loading<'_>,
        reading: Reading,
        read: Result<(), PoolError>,
    ) -> Result<bool, PoolError> {
        let mut books = loading.partition.books.lock();
        let slot = reading.slot();
        let copy = books.slots.read_ended(reading, lsn(&loading.guard));
        let read = match read {
            Ok(()) if self.config.mutations.checks_versions() && !copy.is_version => {
                let (tier, page, damage) = (Tier::Flash, loading.page, Damage::Version);
                Err(PoolError::Damaged { tier, page, damage })
            }
            read => read,
        };
        let Err(error) = read else { return Ok(true) };
        self.look_at_flash();
        if copy.is_newer {
            // Also while the log is redone: that may have gone by what the copy had.
            return Err(error);
        }
        books.stats.flash_faults += 1;
        // A base stays: home has the page, but may lose it again.
        let changed = books.slots.changes(slot, self.any_base());
        let of = (loading.page, loading.guard.frame());
        let freed = self.copy_changed(loading.partition, of, slot, (changed, Freed::Modified));
        drop(books);
        self.harden(freed.as_slice());
        Ok(false)
    }

    /// Whether what a device returned is `page` (fetch.F3), and at home no newer than the log: a
    /// page goes there after its records, so a log that ends before one of them has lost its tail.
    /// A flash that is newer is told as a whole, when it is opened.
    pub(crate) fn judge(
        &self,
        page: PageId,
        tier: Tier,
        read: std::io::Result<()>,
        bytes: &PageBuf,
    ) -> Result<(), PoolError> {
        read.map_err(|source| PoolError::Read { tier, page, source: Arc::new(source) })?;
        if self.config.mutations.has(Mutation::SkipVerify) {
            return Ok(());
        }
        match verify(bytes, page) {
            Err(Damage::WrongPage { .. })
                if tier == Tier::Flash && self.config.mutations.has(Mutation::SkipPageIdCheck) =>
            {
                Ok(())
            }
            Ok(()) if tier == Tier::Home && self.is_newer_than_log(bytes) => {
                Err(PoolError::Damaged { tier, page, damage: Damage::Version })
            }
            verified => verified.map_err(|damage| PoolError::Damaged { tier, page, damage }),
        }
    }

    /// Whether a page has changes that the log lacks. Redo looks for itself while it runs: it knows
    /// where the log ended.
    fn is_newer_than_log(&self, bytes: &PageBuf) -> bool {
        !self.restart.is_recovering() && lsn(bytes) > self.durability.journal.last_lsn()
    }

    pub(crate) fn count_home_read(&self, pages: usize) {
        let mut stats = self.stats.lock();
        stats.home_reads += 1;
        stats.home_read_pages += pages as u64;
    }
}
