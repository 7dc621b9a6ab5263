//! A replay under way: one reference after the other, through memory and one flash tier.
//!
//! - G1: where a design appends, what leaves memory and must be written waits in its frame until
//!   its group is whole; then the group is written, and leaves.
//! - G2: where the pool writes a changed page home before it leaves, the page is found in its frame
//!   until home has written it. One that is used until then stays. Its frame counts as free: an
//!   equal number of other frames have a page that is not read yet.
//! - G3: a page counts as used first when it is requested. While the miss is outstanding, other
//!   clients issue misses: more if home serves it than if flash does. That number of misses lies
//!   between its first use and the next, even if that comes at once.
//! - G4: where the copy of a page goes as it is read, what it had that home lacks is in memory, as
//!   if the page had changed.

use super::ahead::Flight;
use super::page_memory::PageMemory;
use super::queues::{Moment, Queues};
use super::residents::Frame;
use super::{FlashSetup, FlashTier, Held, Leaving, Memory, Miss, Need, Note, TierCounts, Traffic};
use crate::places::Places;
use std::cell::Cell;
use std::collections::VecDeque;
use terrace_page::PageId;
use terrace_policy::{AccessClass, Classifier, Tick, Touch};

/// Attempts to append before it is a bug that nothing was.
pub(super) const APPENDS_MAX: u32 = 1_000;

/// A replay of whichever flash tier.
pub struct Replay<'a, F> {
    pub(super) flash: F,
    pub(super) memory: PageMemory,
    pub(super) has_memory: bool,
    pub(super) io: Traffic<'a>,
    pub(super) places: &'a Places,
    pub(super) near_is_sequential: bool,
    pub(super) previous: Option<PageId>,
    pub(super) now: Tick,
    /// The reference that is next.
    at: u64,
    /// Hits that were counted when memory missed last.
    pub(super) hits_before: u64,
    /// Clients, each of which waits for a page.
    clients: usize,
    counted_from: u64,
    /// Pages that wait for their group (G1).
    waiting: Vec<u32>,
    /// Pages on their way home, and when they are there (G2).
    homeward: Vec<(u32, Moment)>,
    pub(super) counts: TierCounts,
    /// Pages that scans have announced, and that are not read yet.
    pub(super) announced: Vec<u32>,
    /// Whether there are such pages, or runs that are read: one test for each reference.
    pub(super) scans: bool,
    /// Runs that are read ahead, the oldest first.
    pub(super) flights: VecDeque<Flight>,
}

impl<'a, F: FlashTier> Replay<'a, F> {
    /// Before the first of references to pages below `pages_count`, which lie at `places`.
    pub fn new(
        places: &'a Places,
        pages_count: u32,
        memory: Memory,
        setup: &FlashSetup,
        mut flash: F,
    ) -> Replay<'a, F> {
        let group = flash.log().map_or(0, |log| log.group());
        let (policy, costs) = (memory.policy, (&setup.costs, setup.seed));
        let waiting = (group, memory.outstanding);
        let mut io = Traffic::new(places);
        if memory.outstanding > 0 {
            io.queue(Queues::new(memory.outstanding, setup));
        }
        Replay {
            flash,
            memory: PageMemory::new(policy, waiting, pages_count, costs),
            has_memory: policy.is_some(),
            io,
            places,
            near_is_sequential: memory.near_is_sequential,
            previous: None,
            now: Tick(0),
            at: 0,
            hits_before: 0,
            clients: memory.outstanding as usize,
            counted_from: memory.counted_from as u64,
            waiting: Vec::new(),
            homeward: Vec::new(),
            counts: TierCounts::default(),
            announced: Vec::new(),
            scans: false,
            flights: VecDeque::new(),
        }
    }

    /// The next reference, to `page`, does not follow on from the last.
    pub fn cut(&mut self, page: u32) {
        self.io.cut_reads();
        self.wait(page);
    }

    /// Time passes before the next reference, which is to `page`.
    pub fn wait(&mut self, page: u32) {
        if self.scans {
            self.scan_waits(page);
        }
        self.flash.note(Note::TimePasses, &mut self.io);
    }

    /// The next reference.
    #[inline]
    pub fn reference(&mut self, page: u32, is_write: bool) {
        if self.at == self.counted_from {
            self.counts = TierCounts::default();
            self.io.forget_counts();
        }
        self.at += 1;
        self.counts.requests += 1;
        if self.memory.hit(page, self.now) {
            self.counts.memory_hits += 1;
            self.written(page, is_write);
        } else {
            self.miss(page, is_write);
        }
    }

    /// What happened.
    pub fn counts(&self) -> TierCounts {
        let dirty_slots = u64::from(self.flash.dirty_slots());
        // A page that was read ahead is found in memory, which lacked it.
        let memory_hits = self.counts.memory_hits.saturating_sub(self.counts.ahead);
        let (home, flash) = (self.io.home, self.io.flash);
        TierCounts { home, flash, dirty_slots, memory_hits, ..self.counts }
    }

    fn miss(&mut self, page: u32, is_write: bool) {
        self.counts.after_change += u64::from(self.memory.residents.left_changed(page));
        let frame =
            if is_write && !self.has_memory { self.comes_whole(page) } else { self.fetch(page) };
        let mut homeward = self.end_homeward();
        while self.memory.is_full(homeward) {
            match self.memory.victim(&self.flash, self.now) {
                Some(victim) => self.let_go(victim),
                None => self.append(),
            }
            homeward = self.homeward_count();
        }
        let displaced = self.comes_for(page, frame);
        self.written(page, is_write);
        if let Some(victim) = displaced {
            self.let_go(victim);
        }
        if self.scans {
            self.read_announced();
        }
    }

    /// `page` comes, and is not asked for yet.
    pub(super) fn comes(&mut self, page: u32, frame: Frame) {
        if let Some(victim) = self.comes_for(page, frame) {
            self.let_go(victim);
        }
    }

    /// `page` comes, and another leaves if that can be told now. The page that leaves later.
    #[inline]
    fn comes_for(&mut self, page: u32, frame: Frame) -> Option<u32> {
        let displaced = self.memory.put(page, frame)?;
        // With a group that goes, one comes back, for which the page itself may leave.
        if self.flash.log().is_none() && displaced != page {
            self.let_go(displaced);
            return None;
        }
        Some(displaced)
    }

    /// `page`, in memory, was used, and perhaps changed.
    #[inline]
    fn written(&mut self, page: u32, is_write: bool) {
        if !is_write {
            return;
        }
        let frame = self.memory.residents.get_mut(page).expect("a page that is used is there");
        frame.changed = true;
        if !frame.dirty {
            frame.dirty = true;
            self.flash.note(Note::Changes(page), &mut self.io);
        }
    }

    /// Without memory a page that is written comes with the request (tiers.W1).
    fn comes_whole(&mut self, page: u32) -> Frame {
        self.now.0 += 1;
        self.counts.flash_hits += u64::from(self.flash.held(page).is_current());
        let class = self.class(page);
        Frame { touch: Cell::new(Touch::first(self.now)), class, ..Frame::default() }
    }

    /// Brings a page into memory.
    fn fetch(&mut self, page: u32) -> Frame {
        self.now.0 += 1;
        let class = self.class(page);
        let requests = self.requests();
        let held = self.flash.held(page);
        let meanwhile = self.io.ask(page, held.is_current());
        self.memory.wait_for(self.io.in_flight());
        // The page was asked for when the clock showed this (G3).
        let now = Tick(self.now.0.saturating_sub(meanwhile).max(1));
        let miss = Miss { page, need: Need::Now, now, tick: self.now, requests };
        let touch = match self.flash.fetch(&miss, &mut self.memory.residents, &mut self.io) {
            Some(history) => {
                self.counts.flash_hits += 1;
                Touch::with_history(history)
            }
            None => Touch::first(now),
        };
        let dirty = held == Held::Dirty && !self.flash.held(page).has_slot();
        Frame { touch: Cell::new(touch), class, dirty, ..Frame::default() }
    }

    /// Page requests since the last miss, the next included, as the pool counts them.
    #[inline]
    pub(super) fn requests(&mut self) -> u64 {
        let hits = self.memory.residents.retired_hits;
        1 + hits - std::mem::replace(&mut self.hits_before, hits)
    }

    fn class(&mut self, page: u32) -> AccessClass {
        if !self.near_is_sequential {
            return AccessClass::Random;
        }
        let place = self.places.of(page);
        let previous = self.previous.replace(place);
        Classifier::Near.class(AccessClass::Random, previous, place)
    }

    /// `page` leaves memory: at once, or with its group.
    pub(super) fn let_go(&mut self, page: u32) {
        let frame = self.memory.residents.get_mut(page).expect("a page that leaves");
        let Some(log) = self.flash.log().filter(|log| log.wants(page, frame.dirty)) else {
            return self.leave(page);
        };
        frame.waits = true;
        // It may have waited before, and been used since.
        if self.waiting.contains(&page) {
            self.waiting.retain(|&other| other != page);
        }
        self.waiting.push(page);
        let group = if self.has_memory { log.gathered_together() } else { 1 };
        for _ in 0..APPENDS_MAX {
            if self.waiting.len() < group as usize {
                return;
            }
            self.append();
        }
        panic!("an append log takes no page");
    }

    fn leave(&mut self, page: u32) {
        let frame = self.memory.residents.get_mut(page).expect("a page that leaves");
        let history = frame.touch.get().history(self.now);
        let Frame { dirty, class, hits, .. } = *frame;
        self.counts.dirty_leaves += u64::from(dirty);
        let leaving = Leaving { page, dirty, class, history, hits, now: self.now };
        self.io.last_written = None;
        self.flash.leave(&leaving, &mut self.io);
        let goes_home = dirty && self.io.last_written == Some(page);
        if !goes_home || self.clients == 0 || !self.memory.is_of_pool() {
            self.memory.residents.take_out(page);
            return;
        }
        let frame = self.memory.residents.get_mut(page).expect("it is on its way home");
        (frame.dirty, frame.waits) = (false, true);
        self.homeward.retain(|&(other, _)| other != page);
        self.homeward.push((page, self.io.written_at()));
    }

    /// Pages that have come home leave, but for those that were used (G2). How many are not there
    /// yet.
    pub(super) fn end_homeward(&mut self) -> u32 {
        if self.homeward.is_empty() {
            return 0;
        }
        // A client has one of them on its way, at most.
        while self.homeward_count() as usize > self.clients {
            let first = self.homeward.iter().map(|row| row.1).min().expect("more than none");
            self.io.wait_until(first);
            self.end_homeward_at(first);
        }
        self.end_homeward_at(self.io.now());
        self.homeward_count()
    }

    fn end_homeward_at(&mut self, now: Moment) {
        let residents = &mut self.memory.residents;
        self.homeward.retain(|&(page, at)| {
            if at <= now && residents.get(page).is_some_and(|frame| frame.waits) {
                residents.take_out(page);
            }
            at > now
        });
    }

    pub(super) fn homeward_count(&self) -> u32 {
        let waits = |page| self.memory.residents.get(page).is_some_and(|frame| frame.waits);
        self.homeward.iter().filter(|&&(page, _)| waits(page)).count() as u32
    }

    /// Appends what waits, as far as there is room.
    pub(super) fn append(&mut self) {
        let mut at = 0;
        while let Some(&page) = self.waiting.get(at) {
            let frame = self.memory.residents.get(page).expect("what waits is in memory");
            if frame.waits {
                at += 1;
                continue;
            }
            self.waiting.swap_remove(at);
            if let Some(victim) = self.memory.come_back(page) {
                self.waits_too(victim);
            }
        }
        let log = self.flash.log().expect("what waits is appended");
        let residents = &mut self.memory.residents;
        let taken = log.append(&self.waiting, self.now, residents, &mut self.io);
        for page in self.waiting.drain(..taken) {
            let frame = self.memory.residents.take_out(page);
            self.counts.dirty_leaves += u64::from(frame.dirty);
        }
    }

    /// `page` leaves for one that came back: it waits, if it has to.
    fn waits_too(&mut self, page: u32) {
        let frame = self.memory.residents.get_mut(page).expect("a page that leaves");
        if self.flash.log().is_some_and(|log| log.wants(page, frame.dirty)) {
            frame.waits = true;
            self.waiting.push(page);
        } else {
            self.leave(page);
        }
    }
}
