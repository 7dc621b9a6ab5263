//! Guards: a page in memory, held by its latch. Holding the latch is the pin.

use std::ops::Deref;

use terrace_page::{Lsn, PageBuf, PageId};

use crate::BufferPool;

/// What `PageMut::dirty` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dirtied {
    /// The page was the same as home: it had no dirty entry. Log a full image of it first, if images
    /// are on.
    Fresh,
    /// The page had a dirty entry, in memory or on flash.
    Already,
}

/// A page, latched shared.
pub struct PageRef<'p> {
    #[expect(dead_code)]
    pool: &'p BufferPool,
}

/// A page, latched exclusively.
pub struct PageMut<'p> {
    #[expect(dead_code)]
    pool: &'p BufferPool,
}

impl PageRef<'_> {
    /// Which page this is.
    #[must_use]
    pub fn id(&self) -> PageId {
        unimplemented!()
    }
}

impl Deref for PageRef<'_> {
    type Target = PageBuf;

    fn deref(&self) -> &PageBuf {
        unimplemented!()
    }
}

impl<'p> PageMut<'p> {
    /// Which page this is.
    #[must_use]
    pub fn id(&self) -> PageId {
        unimplemented!()
    }

    /// Announces a change: makes the page's dirty entry, then invalidates its flash copy; the caller
    /// then appends the record, then calls `apply` [S0 2.3, order by SPEC 2.3]. Cheap from the second
    /// call on.
    pub fn dirty(&mut self) -> Dirtied {
        unimplemented!()
    }

    /// Changes the bytes, for a record that was appended with `lsn`, and sets the page's LSN.
    ///
    /// # Panics
    ///
    /// If `dirty` was not called on this guard, or `lsn` is older than the page's LSN.
    pub fn apply(&mut self, _lsn: Lsn, _change: impl FnOnce(&mut PageBuf)) {
        unimplemented!()
    }

    /// Lets other readers in.
    #[must_use]
    pub fn downgrade(self) -> PageRef<'p> {
        unimplemented!()
    }
}

impl Deref for PageMut<'_> {
    type Target = PageBuf;

    fn deref(&self) -> &PageBuf {
        unimplemented!()
    }
}
