//! Pages that are written home, and the memory that they are written from: their frames, or, where
//! they were copied to the doublewrite area, the copies.
//!
//! A request shares the memory of copies, so that a time limit costs no further copy.

use std::sync::Arc;

use terrace_page::{PAGE_SIZE, PageBuf, PageId};

use crate::durability::doublewrite::Shield;
use crate::io::PageIo;
use crate::memory::frames::Staging;

/// A page to write home, and its bytes.
pub(crate) struct Homeward<'a> {
    pub page: PageId,
    bytes: Bytes<'a>,
}

enum Bytes<'a> {
    Own(&'a PageBuf),
    /// write_out.W7: as they were copied, and where in that memory.
    Copied(&'a Arc<Staging>, usize),
}

/// What `pages`, which `shield` has copies of if there is one, are written home from.
pub(crate) fn homeward<'a>(
    pages: impl Iterator<Item = (PageId, &'a PageBuf)>,
    shield: Option<&'a Shield<'_>>,
) -> Vec<Homeward<'a>> {
    let source = |(index, (page, own))| {
        let copy = shield.map(|shield| shield.copy(index));
        let bytes = copy.map_or(Bytes::Own(own), |(copies, at)| Bytes::Copied(copies, at));
        Homeward { page, bytes }
    };
    pages.enumerate().map(source).collect()
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
    pages.chunk_by(|a, b| a.page.plus(1) == b.page).map(write).collect()
}

impl<'a> Homeward<'a> {
    fn own(&self) -> &'a PageBuf {
        match self.bytes {
            Bytes::Own(bytes) => bytes,
            Bytes::Copied(copies, at) => &copies.pages()[at],
        }
    }
}
