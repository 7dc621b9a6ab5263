//! Room at home that the device has promised: a full file system is met before anything changes.
//!
//! A sparse home grows as it is used, on a file system that others fill too. If a page met its end
//! only when it is written home, its change would be committed already, and all would have to
//! stop. So room is asked for when an extent is given away.
//!
//! - M1: an extent that is known here as promised has room. It stays so while the database is
//!   open, unless the extent is punched (`space::holes`): its promise is void before the device
//!   gives the room back.
//! - What a device has promised is as durable as its last sync. A power cut may take it back with
//!   the pages that lay there: recovery asks again before it writes.
//! - A file system that writes elsewhere whenever it writes (btrfs, zfs) promises less than that:
//!   there a write may still fail, which stops the engine.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use terrace_device::Device;
use terrace_page::{PAGE_SIZE, PageId};
use terrace_rt::LeafMutex;

use crate::{Action, Error, Part};

/// What is asked for beyond all that was promised before is asked for in steps, if the device has
/// as much: an eighth of home, but one extent at least, and 4 MiB at most. So a small database
/// occupies little.
const STEP_ONE_IN: u64 = 8;
const STEP_EXTENTS_MAX: u64 = 16;

/// A set of extents.
#[derive(Default)]
struct Extents {
    /// Extent i is bit i.
    bits: Vec<u64>,
    /// No extent from here on is in the set.
    end: u64,
}

impl Extents {
    fn has(&self, extent: u64) -> bool {
        let word = self.bits.get((extent / 64) as usize).copied().unwrap_or(0);
        word & 1 << (extent % 64) != 0
    }

    fn insert(&mut self, extents: Range<u64>) {
        self.end = self.end.max(extents.end);
        let words = extents.end.div_ceil(64) as usize;
        if self.bits.len() < words {
            self.bits.resize(words, 0);
        }
        extents.for_each(|extent| self.bits[(extent / 64) as usize] |= 1 << (extent % 64));
    }

    fn remove(&mut self, extents: Range<u64>) {
        for extent in extents {
            if let Some(word) = self.bits.get_mut((extent / 64) as usize) {
                *word &= !(1 << (extent % 64));
            }
        }
    }

    /// The first run of extents within `part` that are not in the set.
    fn first_gap(&self, part: Range<u64>) -> Option<Range<u64>> {
        let start = part.clone().find(|extent| !self.has(*extent))?;
        let end = (start..part.end).find(|extent| self.has(*extent)).unwrap_or(part.end);
        Some(start..end)
    }
}

/// The room that the home device has promised.
pub(crate) struct Room {
    home: Arc<dyn Device>,
    /// Pages of home, and of an extent.
    pages: u64,
    extent_pages: u64,
    promised: LeafMutex<Extents>,
}

impl Room {
    /// The room of a home of `pages`. Nothing is promised yet, whatever was before.
    pub(crate) fn new(home: Arc<dyn Device>, pages: u64, extent_pages: u64) -> Room {
        Room { home, pages, extent_pages, promised: LeafMutex::new(Extents::default()) }
    }

    /// Has the device promise room for these extents, if it has not.
    ///
    /// # Errors
    ///
    /// `HomeFull`, `Device`.
    pub(crate) fn promise(&self, extents: Range<u64>) -> Result<(), Error> {
        loop {
            let (gap, end) = {
                let promised = self.promised.lock();
                let Some(gap) = promised.first_gap(extents.clone()) else { return Ok(()) };
                (gap, promised.end)
            };
            // The device may have as much as is needed, and no more.
            let step = (gap.end / STEP_ONE_IN).next_power_of_two().clamp(1, STEP_EXTENTS_MAX);
            let ahead = if gap.end > end { gap.end.next_multiple_of(step) } else { gap.end };
            match self.ask(gap.start..ahead).or_else(|_| self.ask(gap.clone())) {
                Ok(asked) => self.promised.lock().insert(asked),
                Err(source) => {
                    return Err(match source.kind() {
                        ErrorKind::StorageFull
                        | ErrorKind::QuotaExceeded
                        | ErrorKind::FileTooLarge => Error::HOME_FULL,
                        _ => Error::device(Part::Home, Action::Reserve)(source),
                    });
                }
            }
        }
    }

    fn ask(&self, extents: Range<u64>) -> std::io::Result<Range<u64>> {
        let page = |extent: u64| (extent * self.extent_pages).min(self.pages);
        let (from, to) = (page(extents.start), page(extents.end));
        if from < to {
            self.home.reserve(from * PAGE_SIZE as u64, (to - from) * PAGE_SIZE as u64)?;
        }
        Ok(extents)
    }

    /// Has the device promise room for the extents of `pages`, which ascend.
    ///
    /// # Errors
    ///
    /// `HomeFull`, `Device`.
    pub(crate) fn promise_pages(&self, pages: impl Iterator<Item = PageId>) -> Result<(), Error> {
        let mut run = 0..0;
        for extent in pages.map(|page| page.0 / self.extent_pages) {
            if run.contains(&extent) {
                continue;
            }
            if extent != run.end {
                self.promise(run)?;
                run = extent..extent;
            }
            run.end = extent + 1;
        }
        self.promise(run)
    }

    /// Gives the room of free extents back: their promise is void (M1). Returns the bytes, none if
    /// the device keeps them.
    pub(crate) fn give_back(&self, extents: Range<u64>) -> u64 {
        use terrace_device::Punched;
        self.promised.lock().remove(extents.clone());
        let at = extents.start * self.extent_pages * PAGE_SIZE as u64;
        let end = (extents.end * self.extent_pages * PAGE_SIZE as u64).min(self.home.len());
        if at >= end {
            return 0;
        }
        // What is not given back is free all the same.
        match self.home.punch(at, end - at) {
            Ok(Punched::Freed { bytes }) => bytes,
            Ok(Punched::Kept) | Err(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use terrace_rt::Prng;

    use super::*;

    #[test]
    fn a_set_of_extents_agrees_with_its_model() {
        let mut prng = Prng::from_seed(5);
        let (mut set, mut model) = (Extents::default(), BTreeSet::new());
        for _ in 0..4_000 {
            let start = prng.below(400);
            let run = start..start + prng.below(70);
            match prng.below(3) {
                0 => {
                    set.insert(run.clone());
                    model.extend(run);
                }
                1 => {
                    set.remove(run.clone());
                    model.retain(|extent| !run.contains(extent));
                }
                _ => {
                    let start = run.clone().find(|extent| !model.contains(extent));
                    let gap = start.map(|start| {
                        let end = (start..run.end).find(|extent| model.contains(extent));
                        start..end.unwrap_or(run.end)
                    });
                    assert_eq!(set.first_gap(run), gap);
                }
            }
            assert!(model.last().is_none_or(|last| *last < set.end));
        }
    }
}
