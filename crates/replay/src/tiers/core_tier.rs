//! A flash tier that drives the slot table of the pool, [`SlotTable`], under every design.
//!
//! - C1: what a design does is the table's to say. Here is what the pool does around its table: who
//!   has which slot, the requests to devices, and when the cleaner works.
//! - C2: an operation of a table ends at once, as nothing here waits for a device.
//! - C3: one partition; no throttle and no budget, since no device has a queue of its own.

use super::cleaning::{Cleaning, take_home};
use super::copies::Copies;
use super::residents::Residents;
use super::shared::Shared;
use super::{Allocated, FlashSetup, FlashTier, Held, Leaving, Miss, Note, Traffic};
use crate::places::Places;
use std::cell::Cell;
use terrace_page::{Lsn, PageId, SlotId};
use terrace_policy::{Cleaning as CleaningRule, Design, Filling, History, Tick};
use terrace_tier::{
    After, Around, BaseRule, Candidate, Claim, Cleaned, Devices, Displaced, Ended, Gauge, Missed,
    Outcome, Purpose, Root, SlotOrder, SlotRules, SlotTable, UntilSync, Version, Wanted, Way,
    Writing, Written,
};

/// A tier whose slots are in order `O`.
pub struct CoreTier<'a, O> {
    design: Design,
    table: SlotTable<O, Shared>,
    books: Books,
    cleaning: Cleaning,
    places: &'a Places,
}

/// What is known beside the table.
struct Books {
    shared: Shared,
    copies: Copies,
    filling: Cell<Filling>,
}

/// The surroundings of the table at a moment.
struct Now<'b> {
    books: &'b Books,
    now: Tick,
    /// Hits in memory of the page that leaves, since they were counted last.
    hits: u32,
}

impl Around for Now<'_> {
    fn now(&self) -> Tick {
        self.now
    }

    fn is_filling(&self) -> bool {
        let mut filling = self.books.filling.get();
        let is_on = filling.is_on(self.books.shared.count(Gauge::Used));
        self.books.filling.set(filling);
        is_on
    }

    fn is_in_memory(&self, _: PageId) -> bool {
        false
    }

    fn frames(&self) -> u32 {
        0
    }

    fn take_hits(&self) -> u32 {
        self.hits
    }
}

/// Devices that serve every request.
struct Idle;

impl Devices for Idle {
    fn is_flash_spared(&self) -> bool {
        false
    }

    fn spills(&self) -> bool {
        false
    }
}

/// What the table calls a page: its number in the trace.
pub fn id(page: u32) -> PageId {
    PageId(u64::from(page))
}

/// The number of a page of the table.
fn number(page: PageId) -> u32 {
    page.0 as u32
}

impl<'a, O: SlotOrder> CoreTier<'a, O> {
    /// A tier of `design` with free slots in `order`, for pages below `pages_count`.
    pub fn new(
        pages_count: u32,
        places: &'a Places,
        design: Design,
        setup: &FlashSetup,
        (order, shared): (O, Shared),
    ) -> CoreTier<'a, O> {
        let slots = setup.slots;
        let rules = SlotRules::of_cache(design, slots, setup.costs);
        CoreTier {
            design,
            table: SlotTable::new(slots, order, &rules, &shared),
            books: Books {
                shared,
                copies: Copies::new(pages_count, slots),
                filling: Cell::new(Filling::new(slots, setup.tau)),
            },
            cleaning: setup.cleaning,
            places,
        }
    }

    /// A page that leaves memory, or stays, is written where the table says.
    fn write(
        &mut self,
        (writing, displaced): (Writing, Option<Displaced>),
        leaving: &Leaving,
        io: &mut Traffic,
    ) {
        let (page, home) = (leaving.page, writing.home());
        if let Some(displaced) = displaced {
            self.books.copies.forget(number(displaced.page));
        }
        if home {
            io.write_home(page);
        }
        let newer = (leaving.dirty && !home).then_some(Lsn(leaving.now.0));
        let version = Version { lsn: Lsn::ZERO, newer, history: leaving.history };
        let own = self.books.copies.slot(page).map(|slot| slot.0);
        match self.table.written(writing, Outcome::WRITTEN, &version, own) {
            Written::Into(filled) => {
                let held = if newer.is_some() { Held::Dirty } else { Held::Clean };
                self.books.copies.put(page, SlotId(filled.slot), held);
                io.write_flash();
            }
            Written::Nowhere => {}
            Written::Failed => unreachable!("no write fails"),
        }
    }

    /// Slots that are newer than home, and not on their way there.
    fn dirty_count(&self) -> u32 {
        self.books.shared.count(Gauge::Dirty) - self.books.shared.count(Gauge::Unavailable)
    }

    /// Cleans as much as is due: all at once, since the cleaner has no time of its own here.
    fn clean(&mut self, io: &mut Traffic) {
        let slots = self.table.count();
        if self.design.cleaning == CleaningRule::AboveShare
            && self.cleaning.is_due(self.dirty_count(), slots)
        {
            while self.cleaning.goes_on(self.dirty_count(), slots) && self.clean_run(io) {}
        }
    }

    /// Takes the first dirty page home, and its dirty neighbours. Whether there was one.
    fn clean_run(&mut self, io: &mut Traffic) -> bool {
        let Some((root, _)) = self.table.root(Root::First, |_| true) else { return false };
        let page = self.table.page(root).expect("a dirty slot has a page");
        let copies = &self.books.copies;
        let is_dirty = |page| copies.held(page) == Held::Dirty;
        let run = self.cleaning.run_around(self.places, number(page), is_dirty);
        let claim = |&page: &u32| {
            let slot = copies.slot(page).expect("a dirty page has a slot").0;
            match slot == root {
                true => self.table.claim_root(slot),
                false => self.table.claim(slot).expect("nobody uses a dirty slot"),
            }
        };
        let claims: Vec<Claim> = run.iter().map(claim).collect();
        take_home(&run, io);
        for (claim, page) in claims.into_iter().zip(run) {
            let ended = self.table.cleaned(claim, Cleaned::AtHome, UntilSync::Reusable);
            assert_eq!(ended, Ended::Clean, "page {page}");
            self.books.copies.set(page, Held::Clean);
        }
        true
    }
}

impl<O: SlotOrder> Allocated for CoreTier<'_, O> {
    fn bytes(&self) -> usize {
        self.table.bytes() + self.books.copies.bytes() + self.books.shared.bytes()
    }
}

impl<O: SlotOrder> FlashTier for CoreTier<'_, O> {
    fn fetch(&mut self, miss: &Miss, _: &mut Residents, io: &mut Traffic) -> Option<History> {
        let missed = match self.books.copies.slot(miss.page) {
            Some(slot) => self.table.missed(slot.0, Wanted::Copy, miss.now, &Idle),
            None => Missed::Home,
        };
        let Missed::Flash(reading) = missed else {
            io.read_home(miss.page);
            return None;
        };
        io.read_flash();
        let history = self.table.history(reading.slot());
        let _copy = self.table.read_ended(reading, Lsn::ZERO);
        Some(history.unwrap_or(History::once(miss.now)))
    }

    fn note(&mut self, note: Note, _: &mut Traffic) {
        let Note::Changes(page) = note else { return };
        let Some(slot) = self.books.copies.slot(page) else { return };
        if !self.held(page).is_current() {
            return;
        }
        match self.table.changes(slot.0, BaseRule::Never).slot {
            After::Gone => _ = self.books.copies.forget(page),
            After::Own => self.books.copies.set(page, Held::Stale),
            After::Base => unreachable!("no restart keeps bases"),
        }
    }

    fn leave(&mut self, leaving: &Leaving, io: &mut Traffic) {
        let Leaving { page, dirty, class, now, hits, .. } = *leaving;
        let slot = self.books.copies.slot(page).map(|slot| slot.0);
        let candidate = Candidate { page: id(page), slot, is_dirty: dirty, class };
        let around = Now { books: &self.books, now, hits };
        match self.table.left(&candidate, Purpose::Evict, &around) {
            Way::Busy => unreachable!("no home write is under way"),
            Way::Nothing => {}
            Way::Write(writing, displaced) => self.write((writing, displaced), leaving, io),
        }
        self.clean(io);
    }

    #[inline]
    fn held(&self, page: u32) -> Held {
        self.books.copies.held(page)
    }
}
