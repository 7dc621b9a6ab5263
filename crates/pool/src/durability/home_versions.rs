//! Which versions of pages home has, asked before there is a pool.

use terrace_device::Device;
use terrace_page::{Lsn, PAGE_SIZE, PageId, lsn, verify};

use crate::io::{PageIo, run};
use crate::memory::frames::Staging;

/// Pages read at once.
const BATCH_PAGES: usize = 64;

/// The version of each of `pages` that `home` has whole, in their order; `None` if it is damaged,
/// cannot be read, or lies past the end.
#[must_use]
pub fn home_versions(home: &dyn Device, pages: &[PageId]) -> Vec<Option<Lsn>> {
    let pages_at_home = home.len() / PAGE_SIZE as u64;
    let is_there = |page: PageId| page.0 < pages_at_home;
    let mut staging = Staging::new(BATCH_PAGES.min(pages.len()));
    let mut versions = Vec::with_capacity(pages.len());
    for batch in pages.chunks(BATCH_PAGES) {
        let buffers = &mut staging.pages_mut()[..batch.len()];
        let both = batch.iter().zip(&mut *buffers).filter(|(page, _)| is_there(**page));
        let ios = both.map(|(page, bytes)| PageIo::read(page.0, [bytes])).collect();
        let are_read = run(home, ios).is_ok();
        for (&page, bytes) in batch.iter().zip(buffers) {
            // One bad sector must not cost the others.
            let is_read = is_there(page)
                && (are_read || run(home, vec![PageIo::read(page.0, [&mut *bytes])]).is_ok());
            let is_whole = is_read && verify(bytes, page).is_ok();
            versions.push(is_whole.then(|| lsn(bytes)));
        }
    }
    versions
}
