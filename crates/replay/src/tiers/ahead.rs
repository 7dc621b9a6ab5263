//! Pages that a scan announces are read before they are asked for, in few large requests, as the
//! pool reads them.
//!
//! - A1: pages next to one another are one run, of [`RUN_PAGES_MAX`] at most. Which of them come
//!   from home in one request, and which from flash, is [`trim`]'s to say.
//! - A2: what was announced is read when the scan has to wait: it goes on through what memory has
//!   until then. If memory misses, the page that is missed is read first, alone.
//! - A3: room for all of a run is made first: memory has the announced pages before the scan
//!   reaches them, and lacks others meanwhile. A page for which no frame is free is not read.
//! - A4: a page that is not there yet does not leave memory. A run is there when a client that had
//!   to wait finds a page of it, or when the queues have served it. A quarter of memory is in
//!   flight at most: of more, the oldest run counts as there.
//! - A5: nobody waits for them. They are sequential, and look to memory as if they were used twice
//!   when they came, until the scan has passed them.
//! - A6: memory lacked them, and finds them when they are asked for: that is no hit of memory
//!   (`TierCounts::ahead`).
//! - Not for: a replay without memory, where pages have nowhere to wait.

use super::queues::Moment;
use super::residents::Frame;
use super::run::{APPENDS_MAX, Replay};
use super::{FlashTier, Held, Miss, Need};
use std::cell::Cell;
use std::collections::VecDeque;
use terrace_policy::{AccessClass, Touch};
use terrace_tier::{Residence, Wanted, trim};

/// Pages that the pool reads at once, at most.
const RUN_PAGES_MAX: usize = 64;
/// One frame of so many is in flight at most (A4).
const FRAMES_PER_FLIGHT: usize = 4;

/// A run that is read.
pub struct Flight {
    pages: Vec<u32>,
    /// When the queues have served it.
    served_at: Moment,
}

impl<F: FlashTier> Replay<'_, F> {
    /// A scan will soon ask for `page`.
    pub(super) fn announce(&mut self, page: u32) {
        self.announced.push(page);
        self.scans = true;
    }

    /// Time passes before a reference to `page`: what was announced is read if memory has that page
    /// (A2), and if it is in flight, it is there (A4).
    #[inline(never)]
    pub(super) fn scan_waits(&mut self, page: u32) {
        if self.memory.residents.get(page).is_some() {
            self.read_announced();
        }
        self.arrives(page);
        self.scans = !(self.announced.is_empty() && self.flights.is_empty());
    }

    /// Reads what was announced.
    #[inline(never)]
    pub(super) fn read_announced(&mut self) {
        let announced = std::mem::take(&mut self.announced);
        if self.has_memory {
            let follows = |a: &u32, b: &u32| self.places.of(*a).plus(1) == self.places.of(*b);
            for run in announced.chunk_by(follows).flat_map(|run| run.chunks(RUN_PAGES_MAX)) {
                self.read_run(run);
            }
        }
        self.announced = announced;
        self.announced.clear();
        self.scans = !self.flights.is_empty();
    }

    fn read_run(&mut self, run: &[u32]) {
        let residences: Vec<Residence> = run.iter().map(|&page| self.residence(page)).collect();
        let away = residences.iter().filter(|&&place| place != Residence::Memory).count() as u32;
        if away == 0 {
            return;
        }
        self.end_flights();
        self.make_room(away);
        let before = self.now;
        let trimmed = trim(&residences);
        for &at in &trimmed.flash {
            self.read_ahead(run[at], Wanted::Copy);
        }
        for at in trimmed.home {
            match residences[at] {
                Residence::Home | Residence::FlashClean => {
                    self.read_ahead(run[at], Wanted::OnlyNewer);
                }
                // Read along, and dropped.
                Residence::Memory | Residence::FlashNewer => self.io.read_home_along(run[at]),
            }
            self.io.read_along();
        }
        self.io.end_run();
        if self.now == before {
            return;
        }
        let is_new =
            |&page: &u32| self.memory.residents.get(page).is_some_and(|frame| frame.in_flight);
        let pages: Vec<u32> = run.iter().copied().filter(is_new).collect();
        self.flights.push_back(Flight { pages, served_at: self.io.served_at() });
        let in_flight = |flights: &VecDeque<Flight>| -> usize {
            flights.iter().map(|flight| flight.pages.len()).sum()
        };
        let most = self.memory.frames_count() as usize / FRAMES_PER_FLIGHT;
        while in_flight(&self.flights) > most {
            self.end_flight();
        }
    }

    /// A client had to wait, and then finds `page`: its run is there, and all before it (A4).
    fn arrives(&mut self, page: u32) {
        let at = self.flights.iter().position(|flight| flight.pages.contains(&page));
        (0..at.map_or(0, |at| at + 1)).for_each(|_| self.end_flight());
    }

    /// Runs that the queues have served are there.
    fn end_flights(&mut self) {
        let is_timed = self.io.now() > 0;
        while is_timed && self.flights.front().is_some_and(|it| it.served_at <= self.io.now()) {
            self.end_flight();
        }
    }

    fn end_flight(&mut self) {
        let Some(flight) = self.flights.pop_front() else { return };
        for page in flight.pages {
            if let Some(frame) = self.memory.residents.get_mut(page) {
                frame.in_flight = false;
            }
        }
    }

    fn residence(&self, page: u32) -> Residence {
        match self.flash.held(page) {
            _ if self.memory.residents.get(page).is_some() => Residence::Memory,
            Held::Dirty => Residence::FlashNewer,
            Held::Clean => Residence::FlashClean,
            Held::Stale | Held::Nothing => Residence::Home,
        }
    }

    /// Makes room for `pages` pages, as far as it can (A3).
    fn make_room(&mut self, pages: u32) {
        let pages = pages.min(self.memory.frames_count());
        let mut homeward = self.end_homeward();
        let mut appends = 0;
        while !self.memory.has_room(pages, homeward) {
            match self.memory.victim(&self.flash, self.now) {
                Some(victim) => self.let_go(victim),
                None if self.flash.log().is_none() || appends == APPENDS_MAX => return,
                None => {
                    self.append();
                    appends += 1;
                }
            }
            homeward = self.homeward_count();
        }
    }

    /// Reads `page` ahead of need, if there is room for it.
    fn read_ahead(&mut self, page: u32, wanted: Wanted) {
        let homeward = self.homeward_count();
        if self.memory.is_full(homeward) {
            return;
        }
        self.now.0 += 1;
        if self.near_is_sequential {
            self.previous = Some(self.places.of(page));
        }
        let requests = self.requests();
        let held = self.flash.held(page);
        let need = Need::Ahead(wanted);
        let miss = Miss { page, need, now: self.now, tick: self.now, requests };
        let found = self.flash.fetch(&miss, &mut self.memory.residents, &mut self.io);
        self.counts.ahead += 1;
        self.counts.flash_hits += u64::from(found.is_some());
        let touch = match found {
            Some(history) if history.previous.is_some() => Touch::with_history(history),
            _ => Touch::ahead(self.now),
        };
        let dirty = held == Held::Dirty && !self.flash.held(page).has_slot();
        let class = AccessClass::Sequential;
        let frame =
            Frame { touch: Cell::new(touch), class, dirty, in_flight: true, ..Frame::default() };
        self.comes(page, frame);
    }
}
