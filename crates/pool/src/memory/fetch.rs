//! Misses: a page gets a frame, and its bytes from flash or home. Who asks is `request`, or
//! `multi_read` for many pages.
//!
//! ```text
//!   install                    load                       serve
//! (no frame) ---> in flight ---------> verified ---------------------> page
//!                 exclusive latch        |  unload
//!                                        +--------> (no frame)  damaged, or the device failed
//! ```
//!
//! - F1: the frame is in the directory, latched exclusively, before the read begins: whoever wants
//!   the page meanwhile waits for the latch, and nobody reads it twice.
//! - F2: flash serves a page if its copy is valid, and if it is newer than home, or if no more
//!   than mu requests are queued there [S0 3.3.2], and none of them is spilled (`spill`).
//! - F3: what a device returns is verified. A bad copy of what home has too is dropped and home is
//!   read; what only flash had is rebuilt from home and the log (`loading`), if flash is a cache.
//!   Else it is the caller's error.
//! - F4: while a page is in flight the cleaner, or a front of an append log, may bring it home, or
//!   move its copy. Whoever finds that copy bad waits for the end of that, and chooses the source
//!   again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace_page::PageId;
use terrace_policy::{History, Tick, Touch};
use terrace_tier::{Missed, Reading, Wanted};

use crate::buffer_pool::Intent;
use crate::io::{self, PageIo};
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

/// How often a page in flight is read from flash: its copy may be moved, or cleaned, each time.
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
    /// The page after the one that a read of its own fetched last, for the 64-page rule; zero
    /// before there was one.
    after_last: AtomicU64,
}

impl FetchHistory {
    fn memory_is_full(&self) {
        self.memory_was_full.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_ramp_up(&self) -> bool {
        !self.memory_was_full.load(Ordering::Relaxed)
    }

    /// The page that was fetched before `page`.
    fn followed_by(&self, page: PageId) -> Option<PageId> {
        self.after_last.swap(page.0 + 1, Ordering::Relaxed).checked_sub(1).map(PageId)
    }
}

impl BufferPool {
    /// Gives `page` a frame if one is free: puts it into the directory, latched, to be loaded.
    pub(crate) fn install(&self, page: PageId, intent: Intent, want: Want) -> Installed<'_> {
        let partition = self.memory.partition(page);
        let mut books = partition.books.lock();
        let place = partition.find(&books, &self.memory.frames, page);
        match place {
            Place::Memory(id) => return Installed::Memory(id),
            Place::Flash(_) if want == Want::OnlyHome => return Installed::Unwanted,
            Place::Flash(_) | Place::Nowhere => {}
        }
        let Some(guard) = self.pop_free(&mut books) else {
            self.memory.fetches.memory_is_full();
            return Installed::NoFrame;
        };
        let now = self.memory.tick();
        partition.install(&guard, page, place);
        let reading = match place {
            Place::Flash(slot) => self.choose_source(&mut books, slot, want, now),
            _ => None,
        };
        let history = match &reading {
            Some(reading) => books.slots.history(reading.slot()),
            // A page that is spilled keeps its uses.
            None => match place {
                Place::Flash(slot) if self.devices.spilling.is_some() => {
                    let slots = &mut books.slots;
                    if slots.is_valid(slot) { slots.history(slot) } else { None }
                }
                _ => None,
            },
        };
        guard.frame().set_touch(touch(intent, want, history, now));
        guard.frame().set_class(intent.class);
        self.include(partition, &mut books, page, guard.frame());
        match want {
            Want::Best => {
                books.stats.misses += 1;
                self.sample_miss(page);
                self.count_read(partition, &mut books, (page, guard.frame().slot()));
                books.slots.asked_for(page);
            }
            Want::BestAhead | Want::HomeUnlessNewer | Want::OnlyHome => {
                books.stats.pages_read_ahead += 1
            }
            Want::Nothing => {}
        }
        let is_low = books.free.len() < partition.free_frames_low();
        drop(books);
        if is_low {
            // The evictor keeps some frames free: from here on memory is as full as it gets.
            self.memory.fetches.memory_is_full();
            self.memory.frames_wanted.notify_all();
        }
        if want == Want::Best {
            self.choosing_asked(page);
            self.devices.missed();
        }
        if want != Want::Nothing {
            self.memory.observe(page, PageEvent::Fetch);
            self.classify(page, intent, guard.frame());
            if !intent.cold {
                self.warm(page);
            }
        }
        let source = source_of(&reading);
        Installed::New(Loading { guard, partition, page, source, reading })
    }

    /// Marks the page's class by the rule that is configured [S0 2.2].
    fn classify(&self, page: PageId, intent: Intent, frame: &crate::memory::frames::Frame) {
        if intent.cold {
            return;
        }
        let previous = self.memory.fetches.followed_by(page);
        frame.set_class(self.config.classifier.class(intent.class, previous, page));
    }

    /// Takes a free frame that no late reader holds.
    fn pop_free(&self, books: &mut Books) -> Option<Exclusive<'_>> {
        for at in (0..books.free.len()).rev() {
            if let Some(guard) = self.memory.frames.try_exclusive(books.free[at]) {
                books.free.remove(at);
                return Some(guard);
            }
        }
        None
    }

    /// F2. The read of the page's slot, if flash serves it.
    fn choose_source(
        &self,
        books: &mut Books,
        slot: u32,
        want: Want,
        now: Tick,
    ) -> Option<Reading> {
        let wanted = match want {
            Want::Best | Want::BestAhead => Wanted::Copy,
            Want::HomeUnlessNewer | Want::OnlyHome | Want::Nothing => Wanted::OnlyNewer,
        };
        let reading = match books.slots.missed(slot, wanted, now, &self.devices) {
            Missed::Flash(reading) => reading,
            Missed::Home => return None,
            Missed::Spared => {
                books.stats.throttled_reads += 1;
                return None;
            }
            Missed::Spilled => {
                books.stats.spilled_reads += 1;
                return None;
            }
        };
        if want == Want::Best {
            books.stats.flash_hits += 1;
            books.stats.flash_hits_dirty += u64::from(reading.is_newer());
        }
        books.stats.flash_reads += 1;
        Some(reading)
    }

    /// Reads one page in flight, and verifies it. On an error the page is still in flight.
    pub(crate) fn load(&self, loading: &mut Loading<'_>) -> Result<(), PoolError> {
        let mut attempts = 0;
        while let Some(reading) = loading.reading.take() {
            let slot = reading.slot();
            let number = loading.partition.slot_page(slot);
            let read =
                io::run(self.devices.flash(), vec![PageIo::read(number, [loading.guard.target()])]);
            let read = self.judge(loading.page, Tier::Flash, read, &loading.guard);
            attempts += 1;
            match self.flash_was_read(loading, reading, read) {
                Ok(true) => return Ok(()),
                Ok(false) => loading.source = Source::Home,
                Err(error) if attempts == SOURCES_MAX || terrace_rt::dead() => return Err(error),
                Err(error) => match self.after_bad_copy(loading, slot, error)? {
                    BadCopy::Rescued => return Ok(()),
                    BadCopy::LookAgain => {}
                },
            }
        }
        let read = self.read_home(loading);
        read.or_else(|error| self.redo_damaged(loading, error))
    }

    /// The copy in `slot`, which home lacked when its read began, is bad: what is to be read
    /// instead may have changed since. Waits for whoever brings the page home just now (F4).
    fn after_bad_copy(
        &self,
        loading: &mut Loading<'_>,
        slot: u32,
        error: PoolError,
    ) -> Result<BadCopy, PoolError> {
        let seen = loading.partition.home_write_ended.seen();
        let rec = {
            let mut books = loading.partition.books.lock();
            let now = loading.guard.frame().slot();
            let slots = &mut books.slots;
            match slots.newer(slot).filter(|_| now == Some(slot)) {
                None => {
                    loading.read_from(now.and_then(|slot| {
                        self.choose_source(&mut books, slot, Want::BestAhead, self.memory.now())
                    }));
                    return Ok(BadCopy::LookAgain);
                }
                Some(rec) if self.may_rescue(slots, slot) => Some(rec),
                Some(_) => None,
            }
        };
        let rescued = match rec {
            Some(rec) => {
                self.rescue(loading, slot, rec).map_err(|failed| first_cause(Err(failed), error))?
            }
            None => {
                loading.partition.home_write_ended.wait(seen);
                BadCopy::LookAgain
            }
        };
        if rescued == BadCopy::LookAgain {
            let mut books = loading.partition.books.lock();
            let slot = loading.guard.frame().slot();
            loading.read_from(slot.and_then(|slot| {
                self.choose_source(&mut books, slot, Want::BestAhead, self.memory.now())
            }));
        }
        Ok(rescued)
    }

    /// A loaded page is a page like any other.
    pub(crate) fn serve<'p>(&self, loading: Loading<'p>) -> Exclusive<'p> {
        if loading.source == Source::Home {
            self.offer_read_page(&loading);
        }
        self.exclude(&loading);
        loading.guard
    }

    /// A page in flight that could not be loaded leaves memory.
    pub(crate) fn unload(&self, loading: Loading<'_>) {
        self.owe_again(&loading);
        self.memory.discard(loading.page, loading.guard);
    }
}
