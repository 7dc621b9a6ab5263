//! Guards: a page in memory, held by its latch. Holding the latch is the pin.

use std::ops::Deref;

use terrace_page::{FrameId, Lsn, PAGE_SIZE, PageBuf, PageId, lsn, page_id, set_lsn, set_page_id};

use crate::durability::dirty::{make_dirty, unmake_dirty};
use crate::memory::frames::{Exclusive, Shared};
use crate::{BufferPool, PageEvent};

/// What `PageMut::dirty` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dirtied {
    /// The page was the same as home: it had no dirty entry.
    Fresh,
    /// The page had a dirty entry, in memory or on flash.
    Already,
}

/// A page, latched shared.
pub struct PageRef<'p> {
    page: PageId,
    guard: Shared<'p>,
}

/// A page, latched exclusively.
pub struct PageMut<'p> {
    pool: &'p BufferPool,
    page: PageId,
    /// `None` only while the guard is being taken apart.
    guard: Option<Exclusive<'p>>,
    /// What the first call of `dirty` found.
    dirtied: Option<Dirtied>,
    backing: Backing,
}

/// What to do with the bytes if the guard is dropped without a change.
enum Backing {
    /// Nothing: they are the page.
    Page,
    /// Take them out of the pool: they are no page.
    Blank,
    /// Put these back.
    Former(Box<PageBuf>),
}

impl<'p> PageRef<'p> {
    pub(crate) fn new(page: PageId, guard: Shared<'p>) -> PageRef<'p> {
        PageRef { page, guard }
    }

    /// Which page this is.
    #[must_use]
    #[inline]
    pub fn id(&self) -> PageId {
        self.page
    }

    /// The frame that it is in now: where `BufferPool::read_in` looks first.
    #[must_use]
    #[inline]
    pub fn frame(&self) -> FrameId {
        self.guard.id()
    }

    /// From now on [`BufferPool::peek`] may read the page's frame: for pages that many tasks read
    /// and few change. Changes of a page in this frame cost more from now on (frames.M5).
    #[inline]
    pub fn let_peek(&self) {
        self.guard.let_peek();
    }
}

impl Deref for PageRef<'_> {
    type Target = PageBuf;

    #[inline]
    fn deref(&self) -> &PageBuf {
        &self.guard
    }
}

impl<'p> PageMut<'p> {
    pub(crate) fn new(pool: &'p BufferPool, page: PageId, guard: Exclusive<'p>) -> PageMut<'p> {
        let (guard, backing) = (Some(guard), Backing::Page);
        PageMut { pool, page, guard, dirtied: None, backing }
    }

    /// Zeroes with the page's id, in a frame whose bytes mean nothing.
    pub(crate) fn blank(pool: &'p BufferPool, page: PageId, guard: Exclusive<'p>) -> PageMut<'p> {
        let mut blank = PageMut::new(pool, page, guard);
        blank.backing = Backing::Blank;
        blank.format(Lsn::ZERO);
        blank
    }

    /// Zeroes with the page's id and LSN, over a page that is in memory already.
    pub(crate) fn recreated(mut self) -> PageMut<'p> {
        self.backing = Backing::Former(Box::new(*self));
        self.format(lsn(&self));
        self
    }

    fn format(&mut self, page_lsn: Lsn) {
        let id = self.page;
        self.change(|bytes| {
            *bytes = [0; PAGE_SIZE];
            set_page_id(bytes, id);
            set_lsn(bytes, page_lsn);
        });
    }

    #[inline]
    fn change(&mut self, change: impl FnOnce(&mut PageBuf)) {
        self.guard.as_mut().expect("a whole guard").change(change);
    }

    fn exclusive(&self) -> &Exclusive<'p> {
        self.guard.as_ref().expect("a whole guard")
    }

    /// Which page this is.
    #[must_use]
    #[inline]
    pub fn id(&self) -> PageId {
        self.page
    }

    /// The frame that it is in now: where `BufferPool::write_in` looks first.
    #[must_use]
    #[inline]
    pub fn frame(&self) -> FrameId {
        self.exclusive().id()
    }

    /// Whether flash has a copy of the page that counts as clean. Recovery asks, since the home
    /// write that made the copy clean may have been lost.
    #[must_use]
    pub fn is_clean_copy(&self) -> bool {
        // In a persistent tier it counts as clean once home was synced.
        let is_cache = !self.pool.restart.rules.is_persistent;
        let slot = self.exclusive().frame().slot().filter(|_| is_cache);
        slot.is_some_and(|slot| {
            let slots = &self.pool.memory.partition(self.page).books.lock().slots;
            slots.is_valid(slot) && slots.newer(slot).is_none()
        })
    }

    /// Announces a change: makes the page's dirty entry, then invalidates its flash copy; the
    /// caller then appends the record, then calls `apply` [S0 2.3; sources.D2]. Cheap from
    /// the second call on.
    pub fn dirty(&mut self) -> Dirtied {
        if self.dirtied.is_some() {
            return Dirtied::Already;
        }
        let found = if self.exclusive().frame().rec_lsn().is_some() {
            Dirtied::Already
        } else {
            make_dirty(self.pool, self.page, self.exclusive())
        };
        self.dirtied = Some(found);
        found
    }

    /// As [`PageMut::dirty`], for a change that is not logged. `None` if the log is full, and the
    /// restart method would miss the change: then it must not be made.
    pub fn dirty_unlogged(&mut self) -> Option<Dirtied> {
        let found = self.dirty();
        let journal = &*self.pool.durability.journal;
        self.pool.restart.log_unlogged(journal, self.page).then_some(found)
    }

    /// Changes the bytes, for a record that was appended with `lsn`, and sets the page's LSN.
    ///
    /// # Panics
    ///
    /// If `dirty` was not called on this guard, if `lsn` is lower than the page's LSN, or if the
    /// change gives the page another id.
    pub fn apply(&mut self, lsn: Lsn, change: impl FnOnce(&mut PageBuf)) {
        assert!(self.dirtied.is_some(), "{} changes without an entry", self.page);
        assert!(lsn >= terrace_page::lsn(self), "{} gets {lsn} after a newer one", self.page);
        self.backing = Backing::Page;
        let id = self.page;
        if self.pool.restart.follows_changes && !self.pool.restart.is_recovering() {
            self.pool.restart.page_changed(id, lsn);
        }
        self.change(|bytes| {
            change(bytes);
            assert_eq!(page_id(bytes), id, "a change keeps the page's id");
            set_lsn(bytes, lsn);
        });
    }

    /// As `apply`, for a page that goes straight home: `lsn` is that of the record that renewed it.
    pub fn renew(&mut self, lsn: Lsn, change: impl FnOnce(&mut PageBuf)) {
        self.apply(lsn, change);
    }

    /// The latch alone, of a page that was changed.
    pub(crate) fn into_exclusive(mut self) -> Exclusive<'p> {
        assert!(matches!(self.backing, Backing::Page), "{} has no content yet", self.page);
        self.was_used();
        self.guard.take().expect("a whole guard")
    }

    fn was_used(&self) {
        let event = if self.dirtied.is_some() { PageEvent::Change } else { PageEvent::Read };
        self.pool.memory.observe(self.page, event);
    }

    /// Lets other readers in.
    ///
    /// # Panics
    ///
    /// If the page was created, or found damaged, and not changed since.
    #[must_use]
    pub fn downgrade(mut self) -> PageRef<'p> {
        assert!(matches!(self.backing, Backing::Page), "{} has no content yet", self.page);
        let guard = self.guard.take().expect("a whole guard");
        self.was_used();
        PageRef::new(self.page, guard.downgrade())
    }
}

impl Deref for PageMut<'_> {
    type Target = PageBuf;

    #[inline]
    fn deref(&self) -> &PageBuf {
        self.guard.as_ref().expect("a whole guard")
    }
}

impl Drop for PageMut<'_> {
    fn drop(&mut self) {
        let Some(mut guard) = self.guard.take() else { return };
        self.was_used();
        match std::mem::replace(&mut self.backing, Backing::Page) {
            Backing::Page => {}
            Backing::Former(bytes) => guard.change(|page| *page = *bytes),
            Backing::Blank if terrace_rt::dead() => {}
            Backing::Blank => {
                if let Some(found) = self.dirtied {
                    unmake_dirty(&self.pool.memory, self.page, &guard, found);
                }
                self.pool.memory.discard(self.page, guard);
            }
        }
    }
}
