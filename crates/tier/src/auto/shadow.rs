//! What a flash tier would have done under other rules, on a sample of the pages.
//!
//! - Idea: the pages whose hash falls into a sample are followed through a small tier, once for
//!   each set of rules. Its slots are a [`SlotTable`], as those of the tier itself, driven by the
//!   same calls. There are no bytes and no devices: an operation ends as soon as it has begun, and
//!   what it would have read and written is counted.
//! - H1: nothing here is told what the tier itself did: a shadow depends on the requests alone.
//! - H2: the rules are those of any design: what a design does is the table's to say.
//! - H3: the cleaner works as soon as more than a share of the slots is newer than home, one page
//!   at a time: neighbours of a page are rarely in the sample.
//! - H4: an append log takes one page at a time, and lets groups leave as the rules say. A group is
//!   gone at once.
//! - H5: the pages of the sample that are in memory are kept for designs that ask: which are there,
//!   and of which home lacks what memory took over from flash.
//! - Cost: a table of slots, and a look through its pages for each event of the sample: a few
//!   hundred of each.

use std::cell::Cell;
use std::collections::BTreeMap;

use terrace_page::{Lsn, PageId};
use terrace_policy::{
    AccessClass, Cleaning, Design, Filling, History, Inclusion, Replacement, Temperatures, Tick,
};

use crate::{
    Around, BaseRule, Candidate, Claim, Cleaned, Count, Front, Gauge, Goes, IdleDevices, Leaver,
    Missed, Moved, Outcome, Purpose, Root, Shares, SlotOrder, SlotRules, SlotTable, UntilSync,
    Version, Wanted, Way, Writing,
};

/// What a set of rules would have asked of the devices, in requests; decayed by half at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Pages that were read from home.
    pub home_reads: f64,
    /// Pages that were written home when they left memory.
    pub home_writes: f64,
    /// Pages that were read from flash, but for those that the cleaner took home.
    pub flash_reads: f64,
    /// Pages that were written to flash.
    pub flash_writes: f64,
    /// Pages that the cleaner took home.
    pub cleanings: f64,
}

impl Tally {
    /// Counts half of what was counted.
    pub fn halve(&mut self) {
        for count in [
            &mut self.home_reads,
            &mut self.home_writes,
            &mut self.flash_reads,
            &mut self.flash_writes,
            &mut self.cleanings,
        ] {
            *count /= 2.0;
        }
    }
}

/// A page that leaves memory.
#[derive(Clone, Copy, Debug)]
pub struct Leaves {
    /// The page.
    pub page: PageId,
    /// Whether memory changed it since home, or flash, had it.
    pub is_dirty: bool,
    /// How it came into memory.
    pub class: AccessClass,
    /// Its uses.
    pub history: History,
}

/// Limits of a tier, as shares of its slots.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Used, until when every page is admitted.
    pub tau: f64,
    /// Newer than home, at most.
    pub lambda: f64,
}

/// A tier in small.
pub struct Shadow<O, S> {
    design: Design,
    table: SlotTable<O, S>,
    shares: S,
    filling: Cell<Filling>,
    dirty_max: u32,
    /// Pages in memory, if the design asks, and whether home lacks what memory took over (H5).
    in_memory: BTreeMap<PageId, bool>,
    follows_memory: bool,
    tally: Tally,
}

/// A page that was read, as the table is told of it.
fn read(page: PageId, slot: Option<u32>) -> Candidate {
    Candidate { page, slot, is_dirty: false, class: AccessClass::Random }
}

/// The surroundings of the table at a moment.
struct Now<'a> {
    now: Tick,
    used: u32,
    filling: &'a Cell<Filling>,
}

impl<'a> Now<'a> {
    fn of<O: SlotOrder, S: Shares>(
        table: &SlotTable<O, S>,
        filling: &'a Cell<Filling>,
        now: Tick,
    ) -> Now<'a> {
        Now { now, used: table.gauge(Gauge::Used), filling }
    }
}

impl Around for Now<'_> {
    fn now(&self) -> Tick {
        self.now
    }

    fn is_filling(&self) -> bool {
        let mut filling = self.filling.get();
        let is_on = filling.is_on(self.used);
        self.filling.set(filling);
        is_on
    }
}

impl<O: SlotOrder, S: Shares> Shadow<O, S> {
    /// A tier with these rules, all of whose `slots` are free, in this `order`.
    pub fn new(
        slots: u32,
        order: O,
        (rules, shares): (&SlotRules, &S),
        limits: Limits,
    ) -> Shadow<O, S> {
        let design = rules.design;
        let rotates = design.replacement == Replacement::Rotating;
        Shadow {
            design,
            table: SlotTable::new(slots, order, rules, shares),
            shares: shares.clone(),
            filling: Cell::new(Filling::new(slots, limits.tau)),
            dirty_max: (f64::from(slots) * limits.lambda) as u32,
            in_memory: BTreeMap::new(),
            follows_memory: design.inclusion == Inclusion::Exclusive || rotates,
            tally: Tally::default(),
        }
    }

    /// Bytes allocated, but for pages in memory (H5).
    pub fn bytes(&self) -> usize {
        self.table.bytes()
    }

    /// What was counted.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// What was counted so far counts half from now on.
    pub fn halve(&mut self) {
        self.tally.halve();
    }

    /// The slots.
    pub fn table(&self) -> &SlotTable<O, S> {
        &self.table
    }

    /// Pages of the sample in memory of which home lacks what memory took over from flash.
    pub fn taken_over(&self) -> impl Iterator<Item = PageId> + '_ {
        self.in_memory.iter().filter(|row| *row.1).map(|row| *row.0)
    }

    /// Memory misses `page`.
    pub fn asked(&mut self, page: PageId, now: Tick) {
        self.count_miss(page);
        let slot = self.table.find(page);
        let missed = match slot {
            Some(slot) => self.table.missed(slot, Wanted::Copy, now, &IdleDevices),
            None => Missed::Home,
        };
        if let Missed::Flash(reading) = missed {
            let _copy = self.table.read_ended(reading, Lsn::ZERO);
            self.tally.flash_reads += 1.0;
            self.comes(page, now);
            if self.design.inclusion == Inclusion::Exclusive {
                self.take_over(page);
            }
        } else {
            self.tally.home_reads += 1.0;
            self.comes(page, now);
            self.offer(page, now);
        }
    }

    /// `page` is in memory from now on.
    fn comes(&mut self, page: PageId, now: Tick) {
        if self.follows_memory {
            self.in_memory.insert(page, false);
        }
        if self.design.inclusion == Inclusion::Inclusive {
            let around = Now::of(&self.table, &self.filling, now);
            let _own = self.table.arrived(&read(page, self.table.find(page)), &around);
        }
    }

    /// That memory missed `page` is counted, where it matters.
    fn count_miss(&mut self, page: PageId) {
        self.table.asked_for(page);
        if self.design.replacement.is_by_benefit() {
            self.table.counted(page, self.table.find(page), Count::Read);
            if self.table.is_period_over() {
                self.table.halve_counts();
            }
        }
        if self.design.replacement == Replacement::Temperature {
            self.shares.lend(|warmth: &mut Temperatures| warmth.on_miss(page, 1));
        }
    }

    /// The copy of `page` goes, since memory has the page.
    fn take_over(&mut self, page: PageId) {
        let slot = self.table.find(page).expect("a copy has a slot");
        if self.table.changes(slot, BaseRule::Never).newer.is_some() {
            self.in_memory.insert(page, true);
        }
    }

    /// `page` was read from home, and may be written to flash.
    fn offer(&mut self, page: PageId, now: Tick) {
        if !self.design.writes_what_is_read() {
            return;
        }
        let slot = self.table.find(page);
        // An inclusive design that had no slot for the page waits until it leaves.
        if self.design.inclusion == Inclusion::Inclusive && slot.is_none() {
            return;
        }
        let around = Now::of(&self.table, &self.filling, now);
        let way = self.table.offer(&read(page, slot), &around);
        self.write(way, None, History::once(now));
    }

    /// `page` changes in memory.
    pub fn changed(&mut self, page: PageId) {
        if let Some(is_taken_over) = self.in_memory.get_mut(&page) {
            *is_taken_over = false;
        }
        if let Some(slot) = self.copy(page) {
            let _gone = self.table.changes(slot, BaseRule::Never);
        }
    }

    /// The slot of `page`, if it has a copy there.
    fn copy(&self, page: PageId) -> Option<u32> {
        self.table.find(page).filter(|&slot| self.table.is_valid(slot))
    }

    /// A page leaves memory.
    pub fn left(&mut self, leaves: &Leaves, now: Tick) {
        if leaves.is_dirty {
            // It may have changed before the shadow knew it.
            self.changed(leaves.page);
        }
        if self.design.batch().is_some() {
            self.append(leaves, now);
            self.in_memory.remove(&leaves.page);
        } else {
            let candidate = self.candidate(leaves);
            self.in_memory.remove(&leaves.page);
            let newer = candidate.is_dirty.then_some(Lsn(now.0));
            let around = Now::of(&self.table, &self.filling, now);
            let way = self.table.left(&candidate, Purpose::Evict, &around);
            self.write(way, newer, leaves.history);
            if self.design.inclusion == Inclusion::Inclusive {
                let _its_own = self.table.evicted(self.table.find(leaves.page));
            }
        }
        self.clean();
    }

    /// A page that leaves memory, as the table is told of it.
    fn candidate(&self, leaves: &Leaves) -> Candidate {
        let Leaves { page, class, .. } = *leaves;
        let is_taken_over = self.in_memory.get(&page).copied().unwrap_or(false);
        let is_dirty = leaves.is_dirty || is_taken_over;
        Candidate { page, slot: self.table.find(page), is_dirty, class }
    }

    /// A page is written where the table says: home lacks its changes from `newer` on.
    fn write(&mut self, way: Way, newer: Option<Lsn>, history: History) {
        let Way::Write(writing, _) = way else { return };
        let newer = newer.filter(|_| !writing.home());
        self.tally.home_writes += f64::from(u8::from(writing.home()));
        self.wrote(writing, newer, history);
    }

    fn wrote(&mut self, writing: Writing, newer: Option<Lsn>, history: History) {
        let slot = writing.slot();
        self.tally.flash_writes += f64::from(u8::from(slot.is_some()));
        let version = Version { lsn: Lsn::ZERO, newer, history };
        let _into = self.table.written(writing, Outcome::WRITTEN, &version, slot);
    }

    /// A page goes to the rear of the log, if the design appends it; home, if there is no room.
    fn append(&mut self, leaves: &Leaves, now: Tick) {
        let page = self.candidate(leaves);
        if !self.design.appends(page.is_dirty, page.slot.is_some()) {
            return;
        }
        // A group of second chances alone makes no room.
        for _ in 0..self.table.count() {
            let around = Now::of(&self.table, &self.filling, now);
            let mut appending = self.table.append(1, &around);
            let front = appending.front.take().map(|front| self.begin_front(front));
            let page = self.candidate(leaves);
            let around = Now::of(&self.table, &self.filling, now);
            let put = self.table.put(&mut appending, &page, &around);
            if let Some((front, leavers)) = front {
                self.let_go(front, leavers);
            }
            if let Some((writing, changed)) = put {
                let is_newer = changed.is_some_and(|changed| changed.newer.is_some());
                let newer = (page.is_dirty || is_newer).then_some(Lsn(now.0));
                self.wrote(writing, newer, leaves.history);
                return;
            }
        }
        self.tally.home_writes += f64::from(u8::from(page.is_dirty));
    }

    /// A group begins to leave: the pages that go somewhere.
    fn begin_front(&mut self, mut front: Front) -> (Front, Vec<Leaver>) {
        let mut leavers = std::mem::take(&mut front.leavers);
        while self.table.drop_next(&mut front).is_some() {}
        if self.table.rotates() {
            leavers.retain(|leaver| {
                let is_in_memory = self.in_memory.contains_key(&leaver.page());
                if leaver.goes() == Goes::Home && is_in_memory {
                    self.take_over(leaver.page());
                }
                leaver.goes() != Goes::Home || !is_in_memory
            });
        }
        (front, leavers)
    }

    /// The pages of a group are where they go, and its slots are free.
    fn let_go(&mut self, front: Front, leavers: Vec<Leaver>) {
        for leaver in leavers {
            let (page, slot) = (leaver.page(), leaver.slot());
            let claim = match leaver.goes() {
                Goes::Home => self.table.claim_leaver(slot),
                Goes::To(_) => match self.table.moved(leaver, true) {
                    Moved::Home(claim) => claim,
                    Moved::On { .. } => {
                        self.tally.flash_reads += 1.0;
                        self.tally.flash_writes += 1.0;
                        continue;
                    }
                    Moved::Dropped(_) | Moved::Stays => {
                        self.tally.flash_reads += 1.0;
                        continue;
                    }
                },
            };
            self.cleaned(claim);
            let _dropped = self.table.dropped(page, slot);
        }
        let _free = self.table.gone(front);
    }

    /// Cleans as much as is due (H3).
    fn clean(&mut self) {
        match self.design.cleaning {
            Cleaning::AboveShare => while self.is_above_share() && self.clean_one(Root::First) {},
            Cleaning::Sweeps => {
                if self.is_above_share() {
                    while self.clean_one(Root::First) {}
                }
            }
            Cleaning::WhenWanted => while self.clean_one(Root::Wanted) {},
            Cleaning::Nothing | Cleaning::AtFront => {}
        }
    }

    fn is_above_share(&self) -> bool {
        self.table.gauge(Gauge::Dirty) > self.dirty_max
    }

    /// Takes a dirty page home. Whether there was one.
    fn clean_one(&mut self, root: Root) -> bool {
        let root = self.table.root(root, |_| true);
        if let Some((slot, _)) = root {
            let claim = self.table.claim_root(slot);
            self.cleaned(claim);
        }
        root.is_some()
    }

    fn cleaned(&mut self, claim: Claim) {
        let _clean = self.table.cleaned(claim, Cleaned::AtHome, UntilSync::Reusable);
        self.tally.cleanings += 1.0;
    }
}
