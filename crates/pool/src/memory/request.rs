//! Page requests: a page is read, changed or created, in memory.
//!
//! A request of a page in memory is a lookup without locks, the frame's latch, a check that the
//! frame still holds the page, and a store or two. A page that is not found this way is fetched: it
//! gets a frame, for which another page may have to leave, and is read. The lookup prefetches the
//! page's bytes into the processor's cache before it has compared the frame's page number: the two
//! cache misses overlap.

use terrace_page::{Damage, FrameId, PageId};
use terrace_page_io::PageAhead;
use terrace_policy::AccessClass;

use crate::buffer_pool::{Intent, LOOKUPS_MAX, Recovered};
use crate::memory::evict::make_room;
use crate::memory::fetch::{Installed, Want, install};
use crate::memory::frames::Exclusive;
use crate::memory::loading::Source;
use crate::memory::multi_read::make_room_for_group;
use crate::{BufferPool, PageEvent, PageMut, PageRef, Peek, PoolError, Tier};

/// What a lookup that may read came to.
enum Fetched<'p> {
    /// The page is, or was a moment ago, in this frame.
    Memory(terrace_page::FrameId),
    /// The page was not in memory; now it is.
    New(Exclusive<'p>),
}

const RANDOM: Intent = Intent { class: AccessClass::Random, cold: false };

impl BufferPool {
    /// The page, latched shared. Waits while another task holds it exclusively, or reads it in.
    ///
    /// # Errors
    ///
    /// `Damaged`, `Read`, `AllPinned`, `OutOfRange`; `Stopped` or `Journal` if no frame is free and
    /// none can be written out.
    #[inline]
    pub fn read(&self, page: PageId) -> Result<PageRef<'_>, PoolError> {
        match self.memory.lookup_ahead(page).and_then(|id| self.shared(id, page)) {
            Some(page) => Ok(page),
            None => self.read_slow(page),
        }
    }

    /// The page, latched shared, if frame `id` holds it, as it did when its guard was asked.
    #[inline]
    pub fn read_in(&self, id: FrameId, page: PageId) -> Option<PageRef<'_>> {
        self.memory.frames.prefetch(id);
        self.shared(id, page)
    }

    /// A page that will be read soon, if it is in memory, for the processor to fetch meanwhile. It
    /// counts as no request.
    #[inline]
    pub fn ahead(&self, page: PageId) -> Option<PageAhead<'_>> {
        self.memory.lookup(page).map(|id| self.memory.frames.ahead(id))
    }

    #[inline]
    fn shared(&self, id: FrameId, page: PageId) -> Option<PageRef<'_>> {
        let guard = self.memory.frames.shared_if(id, page)?;
        guard.frame().hit(self.memory.now());
        self.memory.observe(page, PageEvent::Read);
        Some(PageRef::new(page, guard))
    }

    /// Reads a page in memory optimistically, without its latch: returns what `read` returned.
    /// `None` if the page is not in memory, or if a task changed it meanwhile, or waited to: `read`
    /// may have seen torn bytes then, and its result is dropped. Writes to no cache line that other
    /// tasks read: for pages that many tasks read and few change, such as inner nodes. Not counted
    /// as a page request if `read` returns `None`.
    #[inline]
    pub fn peek<T>(&self, page: PageId, read: impl FnOnce(Peek<'_>) -> Option<T>) -> Option<T> {
        terrace_rt::maybe_switch();
        let id = self.memory.lookup(page)?;
        let seen = self.memory.frames.peek_if(id, page, read)??;
        let frame = self.memory.frames.frame(id);
        if self.memory.counts_hits {
            // The hits of a page that leaves memory age temperatures, and count as logical reads.
            frame.hit(self.memory.now());
        } else {
            frame.used(self.memory.now());
            self.memory.peeks.count();
        }
        self.memory.observe(page, PageEvent::Read);
        Some(seen)
    }

    #[cold]
    fn read_slow(&self, page: PageId) -> Result<PageRef<'_>, PoolError> {
        for _ in 0..LOOKUPS_MAX {
            match self.fetch(page)? {
                Fetched::New(guard) => {
                    self.memory.observe(page, PageEvent::Read);
                    return Ok(PageRef::new(page, guard.downgrade()));
                }
                Fetched::Memory(id) => {
                    if let Some(guard) = self.shared(id, page) {
                        return Ok(guard);
                    }
                }
            }
        }
        Err(PoolError::AllPinned)
    }

    /// The page, latched exclusively.
    ///
    /// # Errors
    ///
    /// As [`BufferPool::read`], and `Stopped` after a failed write.
    #[inline]
    pub fn write(&self, page: PageId) -> Result<PageMut<'_>, PoolError> {
        self.durability.check_writable()?;
        match self.memory.lookup_ahead(page).and_then(|id| self.in_memory(id, page)) {
            Some(page) => Ok(page),
            None => self.write_slow(page),
        }
    }

    /// The page, latched exclusively, if frame `id` holds it, as it did when its guard was asked.
    ///
    /// # Errors
    ///
    /// `Stopped` after a failed write.
    #[inline]
    pub fn write_in(&self, id: FrameId, page: PageId) -> Result<Option<PageMut<'_>>, PoolError> {
        self.durability.check_writable()?;
        self.memory.frames.prefetch(id);
        Ok(self.in_memory(id, page))
    }

    #[cold]
    fn write_slow(&self, page: PageId) -> Result<PageMut<'_>, PoolError> {
        for _ in 0..LOOKUPS_MAX {
            match self.fetch(page)? {
                Fetched::New(guard) => return Ok(PageMut::new(self, page, guard)),
                Fetched::Memory(id) => {
                    if let Some(guard) = self.in_memory(id, page) {
                        return Ok(guard);
                    }
                }
            }
        }
        Err(PoolError::AllPinned)
    }

    #[inline]
    fn in_memory(&self, id: FrameId, page: PageId) -> Option<PageMut<'_>> {
        let guard = self.memory.frames.exclusive_if(id, page)?;
        guard.frame().hit(self.memory.now());
        Some(PageMut::new(self, page, guard))
    }

    /// The page, latched exclusively, without reading it: zeroes, with its id in the header. Its
    /// LSN is that of the page's earlier life if memory or a newer flash copy tells it, else zero.
    /// The zeroes stay only if the guard changes them.
    ///
    /// # Errors
    ///
    /// As [`BufferPool::write`].
    pub fn create(&self, page: PageId) -> Result<PageMut<'_>, PoolError> {
        self.durability.check_writable()?;
        for _ in 0..LOOKUPS_MAX {
            match self.fetch_blank(page)? {
                Fetched::New(guard) => return Ok(PageMut::blank(self, page, guard)),
                Fetched::Memory(id) => {
                    if let Some(guard) = self.in_memory(id, page) {
                        return Ok(guard.recreated());
                    }
                }
            }
        }
        Err(PoolError::AllPinned)
    }

    /// As [`BufferPool::write`], for recovery: a torn or blank page is no error, so that redo can
    /// rebuild it from the log record that formatted it.
    ///
    /// # Errors
    ///
    /// As [`BufferPool::write`], but not `Damaged`.
    pub fn read_damaged_ok(&self, page: PageId) -> Result<Recovered<'_>, PoolError> {
        self.durability.check_writable()?;
        for _ in 0..LOOKUPS_MAX {
            let (fetched, damage) = self.fetch_any(page)?;
            match (fetched, damage) {
                (Fetched::New(guard), None) => {
                    return Ok(Recovered::Whole(PageMut::new(self, page, guard)));
                }
                (Fetched::New(guard), Some((tier, damage))) => {
                    let blank = PageMut::blank(self, page, guard);
                    return Ok(Recovered::Damaged(blank, tier, damage));
                }
                (Fetched::Memory(id), _) => {
                    if let Some(guard) = self.in_memory(id, page) {
                        return Ok(Recovered::Whole(guard));
                    }
                }
            }
        }
        Err(PoolError::AllPinned)
    }
}

/// Pages that are in no frame.
impl BufferPool {
    /// The page's frame; reads the page if it has none.
    fn fetch(&self, page: PageId) -> Result<Fetched<'_>, PoolError> {
        if self.fills_aggressively() {
            make_room_for_group(self, page);
        }
        let mut loading = match self.install_with_room(page, Want::Best)? {
            Installed::New(loading) => loading,
            Installed::Memory(id) => return Ok(Fetched::Memory(id)),
            Installed::NoFrame | Installed::Unwanted => unreachable!("any source is wanted"),
        };
        let _at_work = self.memory.at_work();
        let loaded = if loading.source == Source::Home && self.reads_neighbours() {
            loading.load_with_neighbours()
        } else {
            loading.load()
        };
        match loaded.and_then(|()| loading.redo_if_owed()) {
            Ok(()) => Ok(Fetched::New(loading.serve())),
            Err(error) => {
                loading.unload();
                Err(error)
            }
        }
    }

    /// As `fetch`, but also returns a damaged page, with the tier whose copy is damaged.
    fn fetch_any(&self, page: PageId) -> Result<(Fetched<'_>, Option<(Tier, Damage)>), PoolError> {
        let mut loading = match self.install_with_room(page, Want::Best)? {
            Installed::New(loading) => loading,
            Installed::Memory(id) => return Ok((Fetched::Memory(id), None)),
            Installed::NoFrame | Installed::Unwanted => unreachable!("any source is wanted"),
        };
        let _at_work = self.memory.at_work();
        match loading.load().and_then(|()| loading.redo_if_owed()) {
            Ok(()) => Ok((Fetched::New(loading.serve()), None)),
            Err(PoolError::Damaged { tier, damage, .. }) => {
                Ok((Fetched::New(loading.guard), Some((tier, damage))))
            }
            Err(error) => {
                loading.unload();
                Err(error)
            }
        }
    }

    /// A frame for a page that will be created; reads it only if flash is newer than home, since
    /// its LSN is needed then.
    fn fetch_blank(&self, page: PageId) -> Result<Fetched<'_>, PoolError> {
        if self.owed.has(page, &self.memory) {
            return self.fetch(page);
        }
        match self.install_with_room(page, Want::Nothing)? {
            Installed::New(mut loading) => match loading.source {
                Source::Home => Ok(Fetched::New(loading.guard)),
                Source::Flash => {
                    match loading.load().and_then(|()| loading.redo_if_owed()) {
                        Ok(()) => drop(loading.serve()),
                        // The next lookup meets the same error, and reports it.
                        Err(_) => loading.unload(),
                    }
                    self.fetch(page)
                }
            },
            Installed::Memory(id) => Ok(Fetched::Memory(id)),
            Installed::NoFrame | Installed::Unwanted => unreachable!("any source is wanted"),
        }
    }

    fn install_with_room(&self, page: PageId, want: Want) -> Result<Installed<'_>, PoolError> {
        if !self.devices.has(page) {
            return Err(PoolError::OutOfRange { page });
        }
        for attempt in 0..LOOKUPS_MAX {
            match install(self, page, RANDOM, want) {
                Installed::NoFrame => make_room(self, self.memory.partition(page))?,
                installed => return Ok(installed),
            }
            if attempt > 0 {
                // A frame is free, but a late reader still holds its latch, until it has seen that
                // the frame no longer has its page.
                terrace_rt::yield_now();
            }
        }
        Err(PoolError::AllPinned)
    }

    /// Whether single reads from home fetch neighbours now [S0 4.3.2; S3 IV-A1].
    fn reads_neighbours(&self) -> bool {
        let fills = self.config.fills;
        (fills.ramp_up && self.memory.fetches.is_ramp_up()) || self.fills_aggressively()
    }

    /// Whether flash is being filled with the neighbours of what is read [S3 IV-A1].
    fn fills_aggressively(&self) -> bool {
        self.config.fills.aggressive && self.devices.flash.is_some() && self.shares.is_filling()
    }
}
