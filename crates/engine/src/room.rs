//! Room at home that the device has promised: a full file system is met before anything changes.
//!
//! A sparse home grows as it is used, on a file system that others fill too. If a page met its end
//! only when it is written home, its change would be committed already, and all would have to
//! stop. So room is asked for when an extent is given away.
//!
//! - M1: all below `promised` has room. It rises only, while the database is open.
//! - What a device has promised is as durable as its last sync. A power cut may take it back with
//!   the pages that lay there: recovery asks again before it writes.
//! - A file system that writes elsewhere whenever it writes (btrfs, zfs) promises less than that:
//!   there a write may still fail, which stops the engine.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_device::Device;
use terrace_page::{PAGE_SIZE, PageId};

use crate::{Action, Error, Part};

/// Pages are asked for in steps, if the device has as much: an eighth of home, but one extent at
/// least, and 4 MiB at most. So a small database occupies little.
const STEP_ONE_IN: u64 = 8;
const STEP_PAGES_MIN: u64 = 32;
const STEP_PAGES_MAX: u64 = 512;

/// The room that the home device has promised.
pub(crate) struct Room {
    home: Arc<dyn Device>,
    /// Pages of home.
    pages: u64,
    /// All pages below have room.
    promised: AtomicU64,
}

impl Room {
    /// The room of a home of `pages`. Nothing is promised yet, whatever was before.
    pub(crate) fn new(home: Arc<dyn Device>, pages: u64) -> Room {
        Room { home, pages, promised: AtomicU64::new(0) }
    }

    /// Has the device promise room for all pages of home below `end`, if it has not.
    ///
    /// # Errors
    ///
    /// `HomeFull`, `Device`.
    pub(crate) fn promise(&self, end: PageId) -> Result<(), Error> {
        let end = end.0.min(self.pages);
        let promised = self.promised.load(Ordering::Relaxed);
        if end <= promised {
            return Ok(());
        }
        let ask = |end: u64| {
            let (offset, pages) = (promised * PAGE_SIZE as u64, end - promised);
            self.home.reserve(offset, pages * PAGE_SIZE as u64).map(|()| end)
        };
        // The device may have as much as is needed, and no more.
        let step = (end / STEP_ONE_IN).next_power_of_two().clamp(STEP_PAGES_MIN, STEP_PAGES_MAX);
        match ask(end.next_multiple_of(step).min(self.pages)).or_else(|_| ask(end)) {
            Ok(end) => {
                self.promised.fetch_max(end, Ordering::Relaxed);
                Ok(())
            }
            Err(source) => Err(match source.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                    Error::HOME_FULL
                }
                _ => Error::device(Part::Home, Action::Reserve)(source),
            }),
        }
    }
}
