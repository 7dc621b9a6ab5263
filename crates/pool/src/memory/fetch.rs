//! Misses: a page gets a frame, and its bytes from flash or home. Called by `request`, and by
//! `multi_read` for many pages.
//!
//! ```text
//!   install                    load                       serve
//! (no frame) ---> in flight ---------> verified ---------------------> page
//!                 exclusive latch        |  unload
//!                                        +--------> (no frame)  damaged, or the device failed
//! ```
//!
//! - F1: the frame is in the directory, latched exclusively, before the read begins: tasks that
//!   want the page meanwhile wait for the latch, and the page is read once.
//! - F2: flash serves a page if its copy is valid, and if either the copy is newer than home, or no
//!   more than mu requests are queued at the flash [S0 3.3.2] and reads do not spill (`spill`).
//! - F3: what a device returns is verified. If a bad copy is clean, it is dropped, and home is
//!   read. If it is newer than home, and flash is a cache, the page is rebuilt from home and the
//!   log (`loading`). Otherwise the caller gets the error.
//! - F4: while a page is in flight the cleaner, or the front of an append log, may write it home,
//!   or move its copy. A load that finds the copy bad waits until that has ended, and chooses the
//!   source again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace_page::PageId;
use terrace_policy::{History, Tick, Touch};
use terrace_tier::{Missed, Reading, Wanted};

use crate::buffer_pool::Intent;
use crate::flow::arriving::{exclude, offer_read_page};
use crate::io::{self, PageIo};
use crate::memory::Section;
use crate::memory::frames::Exclusive;
use crate::memory::loading::first_cause;
use crate::memory::loading::{BadCopy, Loading, Source, source_of};
use crate::memory::{Books, Place};
use crate::{BufferPool, PageEvent, PoolError, Tier};

/// Which sources a fetch takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// The best one.
    Best,
    /// The best one, ahead of need.
    BestAhead,
    /// Home, unless flash is newer: the page lies in the middle of a long read [S0 3.3.3].
    HomeUnlessNewer,
    /// Home, and only if flash does not know the page: a neighbour that comes along.
    OnlyHome,
    /// None: the page will be created.
    Nothing,
}

/// What `install` did.
pub(crate) enum Installed<'p> {
    /// Nothing: the page is in memory, or on its way there.
    Memory(terrace_page::FrameId),
    /// Nothing: no frame is free.
    NoFrame,
    /// Nothing: the source is not one that was wanted.
    Unwanted,
    /// The page has a frame.
    New(Loading<'p>),
}

/// The most reads of flash for one page in flight: its copy may be moved, or cleaned, each time.
const SOURCES_MAX: u32 = 64;

/// The uses of a page that comes into memory.
fn touch(intent: Intent, want: Want, history: Option<History>, now: Tick) -> Touch {
    let is_ahead = matches!(want, Want::BestAhead | Want::HomeUnlessNewer);
    match history {
        _ if intent.cold => Touch::cold(now),
        Some(history) if !is_ahead || history.previous.is_some() => Touch::with_history(history),
        _ if is_ahead => Touch::ahead(now),
        _ => Touch::first(now),
    }
}

/// What a miss needs to know of the misses before it.
#[derive(Default)]
pub(crate) struct FetchHistory {
    /// Memory was full once: ramp-up is over [S0 4.3.2].
    memory_was_full: AtomicBool,
    /// The page number after that of the last single fetch, for the 64-page rule; zero before the
    /// first one.
    after_last: AtomicU64,
}

impl FetchHistory {
    fn memory_is_full(&self) {
        self.memory_was_full.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_ramp_up(&self) -> bool {
        !self.memory_was_full.load(Ordering::Relaxed)
    }

    /// The page that was fetched before `page`, which becomes the last one.
    fn followed_by(&self, page: PageId) -> Option<PageId> {
        self.after_last.swap(page.0 + 1, Ordering::Relaxed).checked_sub(1).map(PageId)
    }
}

impl<'p> Installed<'p> {
    /// The page, if it has got a frame.
    pub(super) fn loading(self) -> Option<Loading<'p>> {
        match self {
            Installed::New(loading) => Some(loading),
            Installed::Memory(_) | Installed::NoFrame | Installed::Unwanted => None,
        }
    }
}

/// Gives `page` a frame if one is free: puts it into the directory, latched, to be loaded.
pub(crate) fn install(
    pool: &BufferPool,
    page: PageId,
    intent: Intent,
    want: Want,
) -> Installed<'_> {
    let BufferPool { memory, devices, .. } = pool;
    let partition = memory.partition(page);
    let mut section = Section::enter(pool, partition);
    let place = partition.find(&section.books, &memory.frames, page);
    match place {
        Place::Memory(id) => return Installed::Memory(id),
        Place::Flash(_) if want == Want::OnlyHome => return Installed::Unwanted,
        Place::Flash(_) | Place::Nowhere => {}
    }
    let Some(guard) = section.pop_free() else {
        memory.fetches.memory_is_full();
        return Installed::NoFrame;
    };
    let now = memory.tick();
    partition.install(&guard, page, place);
    let slot = if let Place::Flash(slot) = place { Some(slot) } else { None };
    let reading = slot.and_then(|slot| section.choose_source(slot, want, now));
    let slots = &mut section.books.slots;
    let history = match &reading {
        Some(reading) => slots.history(reading.slot()),
        // A page that is spilled keeps its uses.
        None => {
            let slot = slot.filter(|&slot| devices.spilling.is_some() && slots.is_valid(slot));
            slot.and_then(|slot| slots.history(slot))
        }
    };
    guard.frame().set_touch(touch(intent, want, history, now));
    guard.frame().set_class(intent.class);
    section.include(guard.frame());
    match want {
        Want::Best => {
            section.books.stats.misses += 1;
            memory.misses.miss(page);
            section.count_read(page, guard.frame().slot());
            section.books.slots.asked_for(page);
        }
        Want::BestAhead | Want::HomeUnlessNewer | Want::OnlyHome => {
            section.books.stats.pages_read_ahead += 1
        }
        Want::Nothing => {}
    }
    let is_low = section.books.free.len() < partition.free_frames_low();
    drop(section);
    if is_low {
        // The evictor keeps some frames free: from here on memory is as full as it gets.
        memory.fetches.memory_is_full();
        memory.frames_wanted.notify_all();
    }
    let source = source_of(&reading);
    let loading = Loading { pool, guard, partition, page, source, reading };
    loading.announce(intent, want);
    Installed::New(loading)
}

impl<'p> Section<'p> {
    /// Takes a free frame whose latch is free: a reader of its former page may still hold it.
    fn pop_free(&mut self) -> Option<Exclusive<'p>> {
        let (frames, free) = (&self.pool.memory.frames, &mut self.books.free);
        for at in (0..free.len()).rev() {
            if let Some(guard) = frames.try_exclusive(free[at]) {
                free.remove(at);
                return Some(guard);
            }
        }
        None
    }

    /// F2. The read of the page's slot, if flash serves it.
    fn choose_source(&mut self, slot: u32, want: Want, now: Tick) -> Option<Reading> {
        let Books { slots, stats, .. } = &mut *self.books;
        let wanted = match want {
            Want::Best | Want::BestAhead => Wanted::Copy,
            Want::HomeUnlessNewer | Want::OnlyHome | Want::Nothing => Wanted::OnlyNewer,
        };
        let reading = match slots.missed(slot, wanted, now, &self.pool.devices) {
            Missed::Flash(reading) => reading,
            Missed::Home => return None,
            Missed::Spared => {
                stats.throttled_reads += 1;
                return None;
            }
            Missed::Spilled => {
                stats.spilled_reads += 1;
                return None;
            }
        };
        if want == Want::Best {
            stats.flash_hits += 1;
            stats.flash_hits_dirty += u64::from(reading.is_newer());
        }
        stats.flash_reads += 1;
        Some(reading)
    }
}

impl<'p> Loading<'p> {
    /// Reports this miss to `auto`, the spilling rule, the observer and the classifier.
    fn announce(&self, intent: Intent, want: Want) {
        let BufferPool { memory, devices, traffic, cleaning, .. } = self.pool;
        let page = self.page;
        if want == Want::Best {
            if let Some(choosing) = &traffic.choosing {
                choosing.asked(page, memory, devices, cleaning);
            }
            devices.missed();
        }
        if want != Want::Nothing {
            memory.observe(page, PageEvent::Fetch);
            if !intent.cold {
                // The page's class, by the rule that is configured [S0 2.2].
                let previous = memory.fetches.followed_by(page);
                let class = self.pool.config.classifier.class(intent.class, previous, page);
                self.guard.frame().set_class(class);
                traffic.warm(page, memory, &self.pool.shares);
            }
        }
    }

    /// Reads the page, and verifies it. On an error it is still in flight.
    pub(crate) fn load(&mut self) -> Result<(), PoolError> {
        let mut attempts = 0;
        while let Some(reading) = self.reading.take() {
            let slot = reading.slot();
            let number = self.partition.slot_page(slot);
            let io = PageIo::read(number, [self.guard.target()]);
            let read = io::run(self.pool.devices.flash(), vec![io]);
            let read = self.judge(Tier::Flash, read);
            attempts += 1;
            match self.flash_was_read(reading, read) {
                Ok(true) => return Ok(()),
                Ok(false) => self.source = Source::Home,
                Err(error) if attempts == SOURCES_MAX || terrace_rt::dead() => return Err(error),
                Err(error) => match self.after_bad_copy(slot, error)? {
                    BadCopy::Rescued => return Ok(()),
                    BadCopy::LookAgain => {}
                },
            }
        }
        self.read_home().or_else(|error| self.redo_damaged(error))
    }

    /// The copy in `slot`, which was newer than home when its read began, is bad. Waits for a home
    /// write of the page that is under way, rebuilds the page if it can, and otherwise chooses the
    /// source again (F4).
    fn after_bad_copy(&mut self, slot: u32, error: PoolError) -> Result<BadCopy, PoolError> {
        let partition = self.partition;
        let seen = partition.home_write_ended.seen();
        let mut section = Section::enter(self.pool, partition);
        let is_there = self.guard.frame().slot() == Some(slot);
        let slots = &section.books.slots;
        if let Some(rec) = slots.newer(slot).filter(|_| is_there) {
            let may_rescue = self.may_rescue(slots, slot);
            drop(section);
            if !may_rescue {
                partition.home_write_ended.wait(seen);
            } else {
                let rescued = self.rescue(slot, rec);
                let rescued = rescued.map_err(|failed| first_cause(Err(failed), error))?;
                if rescued == BadCopy::Rescued {
                    return Ok(rescued);
                }
            }
            section = Section::enter(self.pool, partition);
        }
        let (now, slot) = (self.pool.memory.now(), self.guard.frame().slot());
        let source = slot.and_then(|slot| section.choose_source(slot, Want::BestAhead, now));
        self.read_from(source);
        Ok(BadCopy::LookAgain)
    }

    /// Ends the flight of a loaded page: tells the flash tier that it is in memory.
    pub(crate) fn serve(self) -> Exclusive<'p> {
        if self.source == Source::Home {
            offer_read_page(self.pool, self.page, &self.guard);
        }
        exclude(self.pool, self.partition, &self.guard);
        self.guard
    }

    /// A page in flight that could not be loaded leaves memory.
    pub(crate) fn unload(self) {
        self.owe_again();
        self.pool.memory.discard(self.page, self.guard);
    }
}
