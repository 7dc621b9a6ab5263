//! A flash tier that drives the slot table of the pool, [`SlotTable`], under every design.
//!
//! - C1: what a design does is the table's to say. Here is what the pool does around its table:
//!   which page has which slot, the requests to devices, and when the cleaner works.
//! - C2: an operation of a table ends at once, as nothing here waits for a device.
//! - C3: the pool writes what was read unless it has left memory by then. Here it cannot have left:
//!   the write comes before the next page does, and pages leave for that one. Without memory the
//!   client that read the page has it until then.
//! - C4: one partition; no throttle and no budget, since no device has a queue of its own.

use super::appending::Appends;
use super::choosing::Choosing;
use super::cleaning::{Cleaning, take_home};
use super::copies::Copies;
use super::residents::Residents;
use super::shared::{Shared, id};
use super::{
    Allocated, FlashSetup, FlashTier, Held, Leaving, Log, Miss, Need, Note, TacWrite, Traffic,
};
use crate::places::Places;
use std::cell::Cell;
use terrace_page::{Lsn, PageId, SlotId};
use terrace_policy::{
    AccessClass, Cleaning as CleaningRule, Design, DirtyLeave, Filling, History, Inclusion,
    Replacement, Temperatures, Tick,
};
use terrace_tier::{
    After, Around, BaseRule, Candidate, Claim, Cleaned, Count, Displaced, Ended, Gauge,
    IdleDevices, Lend, Missed, Outcome, Purpose, Reading, Root, SlotOrder, SlotRules, SlotTable,
    UntilSync, Version, Wanted, Way, Writing, Written,
};

/// A tier whose slots are in order `O`.
pub struct CoreTier<'a, O> {
    /// With what is chosen for the moment of a design that picks itself.
    pub(super) design: Design,
    choosing: Option<Choosing>,
    /// Of a design that appends.
    pub(super) appends: Option<Appends>,
    pub(super) table: SlotTable<O, Shared>,
    pub(super) books: Books,
    when: TacWrite,
    pending: Option<Pending>,
    cleaning: Cleaning,
    pub(super) places: &'a Places,
    /// Buffers of the cleaner, kept to reuse their memory.
    run: Vec<u32>,
    claims: Vec<Claim>,
}

/// What is known beside the table.
pub struct Books {
    shared: Shared,
    pub copies: Copies,
    filling: Cell<Filling>,
}

/// A page that was read and is still to be written to flash (C3).
struct Pending {
    page: u32,
    history: History,
    now: Tick,
}

/// The surroundings of the table at a moment.
pub struct Now<'b> {
    pub books: &'b Books,
    pub now: Tick,
    /// Slots that are not free.
    pub used: u32,
    /// Hits in memory of the page that leaves, since they were counted last.
    pub hits: u32,
}

impl<'b> Now<'b> {
    /// Those of `table`, as no page leaves.
    #[inline]
    pub fn of<O: SlotOrder>(books: &'b Books, table: &SlotTable<O, Shared>, now: Tick) -> Now<'b> {
        Now { books, now, used: table.gauge(Gauge::Used), hits: 0 }
    }
}

impl Around for Now<'_> {
    fn now(&self) -> Tick {
        self.now
    }

    fn is_filling(&self) -> bool {
        let mut filling = self.books.filling.get();
        let is_on = filling.is_on(self.used);
        self.books.filling.set(filling);
        is_on
    }

    fn take_hits(&self) -> u32 {
        self.hits
    }
}

/// An unchanged page that was read by itself, as the table is told of it.
#[inline]
pub fn candidate(page: u32, slot: Option<SlotId>) -> Candidate {
    let slot = slot.map(|slot| slot.0);
    Candidate { page: id(page), slot, is_dirty: false, class: AccessClass::Random }
}

/// The number of a page of the table.
#[inline]
pub fn number(page: PageId) -> u32 {
    page.0 as u32
}

/// What a tier begins with, but for the order of its slots.
pub struct Begins<'a, 's> {
    pub pages_count: u32,
    pub places: &'a Places,
    pub design: Design,
    pub setup: &'s FlashSetup,
    pub rules: SlotRules,
    pub appends: Option<Appends>,
    pub shared: Shared,
}

impl<'a> Begins<'a, '_> {
    /// A tier with free slots in `order`.
    pub fn with<O: SlotOrder>(self, order: O) -> CoreTier<'a, O> {
        let Begins { pages_count, design, setup, shared, .. } = self;
        let slots = setup.slots;
        let is_chosen = design.replacement == Replacement::Chosen;
        CoreTier {
            design,
            choosing: is_chosen.then(|| Choosing::new(design, setup)),
            appends: self.appends,
            table: SlotTable::new(slots, order, &self.rules, &shared),
            books: Books {
                shared,
                copies: Copies::new(pages_count, slots),
                filling: Cell::new(Filling::new(slots, setup.tau)),
            },
            when: setup.tac_write,
            pending: None,
            cleaning: setup.cleaning,
            places: self.places,
            run: Vec::new(),
            claims: Vec::new(),
        }
    }
}

impl<O: SlotOrder> CoreTier<'_, O> {
    /// Memory missed a page: that is counted, where it matters. When a period of counts is over,
    /// what memory has served of each page is counted first.
    fn count_miss(&mut self, miss: &Miss, residents: &mut Residents) {
        let is_asked_for = miss.need == Need::Now;
        if is_asked_for {
            self.table.asked_for(id(miss.page));
        }
        if is_asked_for && self.design.replacement.is_by_benefit() {
            self.count(miss.page, Count::Read);
            if self.table.is_period_over() {
                self.end_period(residents);
            }
        }
        if self.design.replacement == Replacement::Temperature {
            let page = self.books.shared.by_extents(id(miss.page));
            let warm = |warmth: &mut Temperatures| warmth.on_miss(page, miss.requests);
            self.books.shared.lend(warm);
        }
    }

    /// A design that picks itself may choose now.
    fn choose(&mut self, page: u32, residents: &mut Residents, io: &Traffic) {
        let asked = self.choosing.as_mut().and_then(|choosing| choosing.asked(page, io));
        if let Some((choice, price_ratio)) = asked {
            self.table.choose(choice);
            self.design.dirty_leave = choice.dirty;
            residents.price_ratio = Some(price_ratio);
        }
    }

    fn count(&mut self, page: u32, what: Count) {
        let slot = self.books.copies.slot(page).map(|slot| slot.0);
        self.table.counted(id(page), slot, what);
    }

    fn end_period(&mut self, residents: &mut Residents) {
        let here: Vec<u32> = residents.pages().collect();
        for page in here {
            let frame = residents.get_mut(page).expect("a page that is here");
            let logical = std::mem::take(&mut frame.hits);
            self.count(page, Count::InMemory { logical, physical: 0 });
        }
        self.table.halve_counts();
    }

    /// The table's read of a page that memory missed, or a read from home.
    fn read(&mut self, miss: &Miss, io: &mut Traffic) -> Option<Reading> {
        // The clock of slots by age, or in blocks, does not go back to when the page was asked for.
        let is_exact = self.design.replacement == Replacement::Lru2;
        let now = if is_exact { miss.now } else { miss.tick };
        let wanted = match miss.need {
            Need::Now => Wanted::Copy,
            Need::Ahead(wanted) => wanted,
        };
        let missed = match self.books.copies.slot(miss.page) {
            Some(slot) => self.table.missed(slot.0, wanted, now, &IdleDevices),
            None => Missed::Home,
        };
        let Missed::Flash(reading) = missed else {
            io.read_home(miss.page);
            return None;
        };
        io.read_flash();
        Some(reading)
    }

    /// The uses of the page in `slot`, which was just read.
    fn uses(&self, slot: u32, miss: &Miss) -> History {
        let previous = self.table.history(slot).and_then(|history| history.previous);
        History { last: miss.now, previous: previous.filter(|&tick| tick < miss.now) }
    }

    /// A page comes into memory, from flash if it was `found` there.
    fn comes(&mut self, miss: &Miss, found: bool, io: &mut Traffic) {
        if self.design.inclusion == Inclusion::Exclusive {
            // A copy goes that a long read passed over, too.
            self.changes(miss.page);
        }
        if self.design.inclusion == Inclusion::Inclusive {
            self.arrives(miss);
        }
        if !found && self.design.writes_what_is_read() {
            self.pending = self.pending_of(miss);
            if self.when == TacWrite::AtOnce {
                self.write_pending(io);
            }
        }
    }

    /// Of an inclusive design: a page that has no slot gets one, without its bytes.
    fn arrives(&mut self, miss: &Miss) {
        let page = candidate(miss.page, self.books.copies.slot(miss.page));
        let around = Now::of(&self.books, &self.table, miss.tick);
        if let Some((slot, displaced)) = self.table.arrived(&page, &around) {
            displaced.into_iter().for_each(|displaced| self.lost(displaced));
            self.books.copies.put(miss.page, SlotId(slot), Held::Stale);
        }
    }

    /// What is to be written of a page that was read from home. An inclusive design that had no
    /// slot for it waits until it leaves memory.
    fn pending_of(&self, miss: &Miss) -> Option<Pending> {
        let is_inclusive = self.design.inclusion == Inclusion::Inclusive;
        if is_inclusive && self.books.copies.slot(miss.page).is_none() {
            return None;
        }
        let (page, history, now) = (miss.page, History::once(miss.now), miss.tick);
        Some(Pending { page, history, now })
    }

    /// The client that asked for the page that was read waits, or is done.
    #[inline]
    fn write_pending(&mut self, io: &mut Traffic) {
        if self.pending.is_some() {
            self.offer_pending(io);
        }
    }

    fn offer_pending(&mut self, io: &mut Traffic) {
        let Some(Pending { page, history, now }) = self.pending.take() else { return };
        let page = candidate(page, self.books.copies.slot(page));
        let around = Now::of(&self.books, &self.table, now);
        if let Way::Write(writing, displaced) = self.table.offer(&page, &around) {
            let version = Version { lsn: Lsn::ZERO, newer: None, history };
            self.write((writing, displaced), &version, io);
        }
    }

    /// The page is not written for that it was read.
    fn forget_pending(&mut self, page: u32) {
        if self.pending.as_ref().is_some_and(|pending| pending.page == page) {
            self.pending = None;
        }
    }

    /// The copy of `page`, if there is one, is no longer the page.
    pub(super) fn changes(&mut self, page: u32) {
        if !self.held(page).is_current() {
            return;
        }
        let slot = self.books.copies.slot(page).expect("a page that is held has a slot");
        match self.table.changes(slot.0, BaseRule::Never).slot {
            After::Gone => self.books.copies.forget(page),
            After::Own => self.books.copies.set(page, Held::Stale),
            After::Base => unreachable!("no restart keeps bases"),
        }
    }

    pub(super) fn lost(&mut self, displaced: Displaced) {
        self.books.copies.forget(number(displaced.page));
    }

    /// A page is written where the table says.
    fn write(
        &mut self,
        (writing, displaced): (Writing, Option<Displaced>),
        version: &Version,
        io: &mut Traffic,
    ) {
        displaced.into_iter().for_each(|displaced| self.lost(displaced));
        if writing.home() {
            io.write_home(number(writing.page()));
        }
        if self.wrote(writing, version).is_some() {
            io.write_flash();
        }
    }

    /// A page was written. Its slot, if it went to one.
    pub(super) fn wrote(&mut self, writing: Writing, version: &Version) -> Option<u32> {
        let page = number(writing.page());
        let own = self.books.copies.slot(page).map(|slot| slot.0);
        match self.table.written(writing, Outcome::WRITTEN, version, own) {
            Written::Into(filled) => {
                let held = if version.newer.is_some() { Held::Dirty } else { Held::Clean };
                self.books.copies.put(page, SlotId(filled.slot), held);
                Some(filled.slot)
            }
            Written::Nowhere => None,
            Written::Failed => unreachable!("no write fails"),
        }
    }

    /// Slots that are newer than home, and not on their way there.
    pub(super) fn dirty_count(&self) -> u32 {
        self.table.gauge(Gauge::Dirty) - self.table.gauge(Gauge::Unavailable)
    }

    /// Cleans as much as is due: all at once, since the cleaner has no time of its own here.
    fn clean(&mut self, io: &mut Traffic) {
        let slots = self.table.count();
        if self.design.cleaning == CleaningRule::AboveShare
            && self.cleaning.is_due(self.dirty_count(), slots)
        {
            while self.cleaning.goes_on(self.dirty_count(), slots)
                && self.clean_run(Root::First, io)
            {}
        }
        if self.design.cleaning == CleaningRule::WhenWanted {
            while self.clean_run(Root::Wanted, io) {}
        }
    }

    /// Takes the first dirty page home, and its dirty neighbours. Whether there was one.
    fn clean_run(&mut self, root: Root, io: &mut Traffic) -> bool {
        let root = self.table.root(root, |_| true);
        if let Some((slot, _)) = root {
            self.clean_around(slot, io);
        }
        root.is_some()
    }

    /// Takes the page of dirty slot `root` home, and its dirty neighbours.
    pub(super) fn clean_around(&mut self, root: u32, io: &mut Traffic) {
        let page = self.table.page(root).expect("a dirty slot has a page");
        let copies = &self.books.copies;
        let is_dirty = |page| copies.held(page) == Held::Dirty;
        self.cleaning.run_around(self.places, number(page), is_dirty, &mut self.run);
        let claim = |&page: &u32| {
            let slot = copies.slot(page).expect("a dirty page has a slot").0;
            match slot == root {
                true => self.table.claim_root(slot),
                false => self.table.claim(slot).expect("nobody uses a dirty slot"),
            }
        };
        self.claims.extend(self.run.iter().map(claim));
        take_home(&self.run, io);
        self.choosing.iter_mut().for_each(|choosing| choosing.cleaned(self.run.len()));
        for (claim, &page) in self.claims.drain(..).zip(&self.run) {
            let ended = self.table.cleaned(claim, Cleaned::AtHome, UntilSync::Reusable);
            assert_eq!(ended, Ended::Clean, "page {page}");
            self.books.copies.set(page, Held::Clean);
        }
    }
}

impl<O: SlotOrder> Allocated for CoreTier<'_, O> {
    fn bytes(&self) -> usize {
        self.table.bytes()
            + self.books.copies.bytes()
            + self.books.shared.bytes()
            + self.choosing.as_ref().map_or(0, Allocated::bytes)
            + self.appends.as_ref().map_or(0, Allocated::bytes)
    }
}

impl<O: SlotOrder> FlashTier for CoreTier<'_, O> {
    fn fetch(
        &mut self,
        miss: &Miss,
        residents: &mut Residents,
        io: &mut Traffic,
    ) -> Option<History> {
        self.count_miss(miss, residents);
        let reading = self.read(miss, io);
        let uses = reading.as_ref().map(|reading| self.uses(reading.slot(), miss));
        self.write_pending(io);
        if let Some(reading) = reading {
            let _copy = self.table.read_ended(reading, Lsn::ZERO);
        }
        self.comes(miss, uses.is_some(), io);
        if self.appends.is_some() {
            self.sweep(io);
        }
        if self.choosing.is_some() && miss.need == Need::Now {
            self.choose(miss.page, residents, io);
        }
        uses
    }

    fn note(&mut self, note: Note, io: &mut Traffic) {
        match note {
            Note::TimePasses => self.write_pending(io),
            Note::Changes(page) => {
                self.choosing.iter_mut().for_each(|choosing| choosing.changes(page));
                self.forget_pending(page);
                self.changes(page);
            }
        }
    }

    fn leave(&mut self, leaving: &Leaving, io: &mut Traffic) {
        let Leaving { page, dirty, class, history, hits, now } = *leaving;
        let is_appended = self.appends.is_some() && self.wants(page, dirty);
        assert!(!is_appended, "page {page} is lost");
        let of_slot = candidate(page, self.books.copies.slot(page));
        let leaves = Candidate { is_dirty: dirty, class, ..of_slot };
        let around = Now { hits, ..Now::of(&self.books, &self.table, now) };
        match self.table.left(&leaves, Purpose::Evict, &around) {
            Way::Busy => unreachable!("no home write is under way"),
            Way::Nothing => {}
            Way::Write(writing, displaced) => {
                let newer = (dirty && !writing.home()).then_some(Lsn(now.0));
                let version = Version { lsn: Lsn::ZERO, newer, history };
                self.write((writing, displaced), &version, io);
            }
        }
        let slot = self.books.copies.slot(page).map(|slot| slot.0);
        if self.table.evicted(slot) != slot {
            self.books.copies.forget(page);
        }
        self.clean(io);
        if let Some(choosing) = &mut self.choosing {
            choosing.left(leaving);
            // What was written back is wanted no more: the pool's cleaner has some runs under way
            // at a time, here there is one for each page that leaves.
            if self.design.dirty_leave != DirtyLeave::Flash {
                self.clean_run(Root::First, io);
            }
        }
    }

    #[inline]
    fn held(&self, page: u32) -> Held {
        self.books.copies.held(page)
    }

    fn dirty_slots(&self) -> u32 {
        self.table.gauge(Gauge::Dirty)
    }

    #[inline]
    fn log(&mut self) -> Option<&mut dyn Log> {
        if self.appends.is_some() { Some(self) } else { None }
    }
}
