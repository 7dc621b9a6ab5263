//! The buffer pool: reading, changing and creating pages.

use terrace_page::{Damage, Lsn, PageId};

use crate::{PageMut, PageRef, PoolError, PoolStats};

/// Pages in memory over flash over home.
pub struct BufferPool {}

/// A page as recovery found it.
pub enum Recovered<'p> {
    /// A whole page.
    Whole(PageMut<'p>),
    /// Home holds no such page, whole: the guard shows zeroes with the page's id and LSN zero. If the
    /// guard is dropped without a change, nothing of it stays in the pool.
    Damaged(PageMut<'p>, Damage),
}

impl BufferPool {
    /// The page, latched shared. Waits while another task holds it exclusively, or reads it in.
    ///
    /// # Errors
    ///
    /// `Damaged`, `Read`, `AllPinned`, `OutOfRange`; `Stopped` or `Journal` if no frame is free and
    /// none can be written out.
    pub fn read(&self, _page: PageId) -> Result<PageRef<'_>, PoolError> {
        unimplemented!()
    }

    /// The page, latched exclusively.
    ///
    /// # Errors
    ///
    /// As [`BufferPool::read`], and `Stopped` after a failed write.
    pub fn write(&self, _page: PageId) -> Result<PageMut<'_>, PoolError> {
        unimplemented!()
    }

    /// The page, latched exclusively, without reading it: zeroes, with its id in the header. Its LSN
    /// is zero, or that of the page's earlier life if that is not at home yet. The bytes stay in the
    /// pool only if the guard changes them.
    ///
    /// # Errors
    ///
    /// As [`BufferPool::write`].
    pub fn create(&self, _page: PageId) -> Result<PageMut<'_>, PoolError> {
        unimplemented!()
    }

    /// As [`BufferPool::write`], for recovery: a torn or blank home page is no error, so that the
    /// image in the log can repair it.
    ///
    /// # Errors
    ///
    /// As [`BufferPool::write`], but no `Damaged { tier: Home, .. }`.
    pub fn read_damaged_ok(&self, _page: PageId) -> Result<Recovered<'_>, PoolError> {
        unimplemented!()
    }

    /// Reads those of `pages` that are not in memory, all at once, and returns when they are there:
    /// best effort, since they may leave again, or find no frame.
    pub fn prefetch(&self, _pages: &[PageId]) {
        unimplemented!()
    }

    /// Starts to read `count` pages from `first` on, as few large requests, for a scan that will soon
    /// want them; marks them sequential. Returns at once.
    pub fn read_ahead(&self, _first: PageId, _count: u32) {
        unimplemented!()
    }

    /// The least LSN that the log must keep for redo: a lower bound of every change that is not
    /// durable at home, over memory and flash, as one consistent view [S3 Fig.3]; `None` if home has
    /// them all. Syncs home, so that pages written before the call no longer count.
    pub fn oldest_dirty_lsn(&self) -> Option<Lsn> {
        unimplemented!()
    }

    /// Writes home every page in memory whose dirty entry is older than `lsn`, in that order.
    ///
    /// # Errors
    ///
    /// `Stopped` or `Journal`.
    pub fn flush_below(&self, _lsn: Lsn) -> Result<(), PoolError> {
        unimplemented!()
    }

    /// Writes home every page that is dirty at the call, in memory and on flash, and syncs it: the
    /// sharp checkpoint [S0 3.2].
    ///
    /// # Errors
    ///
    /// `Stopped` or `Journal`.
    pub fn flush_all(&self) -> Result<(), PoolError> {
        unimplemented!()
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        unimplemented!()
    }

    /// Asserts the relations between the copies of every page [S0 Fig.3] and the pool's own books.
    ///
    /// # Panics
    ///
    /// If a relation is broken: a bug.
    pub fn check(&self) {
        unimplemented!()
    }

    /// Stops the background tasks and waits for them. Dirty pages stay dirty: call `flush_all` first.
    pub fn shutdown(&self) {
        unimplemented!()
    }
}
