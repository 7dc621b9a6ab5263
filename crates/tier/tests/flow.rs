//! Pages under every design: a driver without devices, against a model that knows of each page
//! which version is where. Whatever fails, is refused, or is still under way, the newest version of
//! a page is in memory, or in its slot if that is valid, or at home.

/// The surroundings, with what each call rolls.
macro_rules! dice {
    ($world:ident) => {{
        let mut rare = |one_in| $world.prng.below(one_in) == 0;
        Dice {
            now: $world.now,
            is_filling: rare(2),
            is_usable: !rare(12),
            is_throttled: rare(8),
            is_over_budget: rare(12),
            is_sharp: rare(8),
            going_home: &$world.going_home,
        }
    }};
}

mod groups;
mod plain;

use std::collections::{BTreeMap, BTreeSet};

use groups::Group;
use plain::Plain;
use terrace_page::{Lsn, PageId};
use terrace_policy::{
    AccessClass, AdmissionRule, CleanLeave, Costs, DESIGNS, Design, DirtyLeave, History, Inclusion,
    Tick,
};
use terrace_rt::Prng;
use terrace_tier::{
    After, AnyOrder, Around, BaseRule, Candidate, Claim, Devices, Displaced, Gauge, LogSizes,
    Missed, Outcome, Purpose, Reading, SlotRules, SlotTable, Version, VersionBits, Wanted, Way,
    Writing, Written,
};

const SLOTS: u32 = 24;
const PAGES: u64 = 60;
const FRAMES: usize = 8;
const GROUP: u32 = 4;
/// RecLSNs are kept in blocks of this many bytes of log.
const LSN_STEP: u64 = 4096;

/// A page in memory.
#[derive(Clone, Copy, Debug)]
struct Frame {
    version: Lsn,
    /// Its first change that neither home nor a slot has.
    rec: Option<Lsn>,
    class: AccessClass,
}

/// A write under way.
struct Transfer {
    writing: Writing,
    purpose: Purpose,
    frame: Frame,
}

/// The surroundings of one call: what the dice say, and where the pages are.
struct Dice<'a> {
    now: Tick,
    is_filling: bool,
    is_usable: bool,
    is_throttled: bool,
    is_over_budget: bool,
    is_sharp: bool,
    going_home: &'a BTreeSet<PageId>,
}

impl Around for Dice<'_> {
    fn now(&self) -> Tick {
        self.now
    }

    fn is_filling(&self) -> bool {
        self.is_filling
    }

    fn is_usable(&self) -> bool {
        self.is_usable
    }

    fn is_throttled(&self) -> bool {
        self.is_throttled
    }

    fn is_over_budget(&self) -> bool {
        self.is_over_budget
    }

    fn is_sharp(&self) -> bool {
        self.is_sharp
    }

    fn is_going_home(&self, page: PageId) -> bool {
        self.going_home.contains(&page)
    }

    fn may_go_home(&self, page: PageId) -> bool {
        !self.going_home.contains(&page)
    }

    fn take_hits(&self) -> u32 {
        3
    }
}

impl Devices for Dice<'_> {
    fn is_flash_spared(&self) -> bool {
        self.is_throttled
    }

    fn spills(&self) -> bool {
        self.is_over_budget
    }
}

struct World {
    design: Design,
    keeps_bases: bool,
    tier: SlotTable<AnyOrder, Plain>,
    shares: Plain,
    prng: Prng,
    now: Tick,
    last_lsn: Lsn,
    slots: Vec<Option<u32>>,
    memory: BTreeMap<PageId, Frame>,
    newest: Vec<Lsn>,
    home: Vec<Lsn>,
    /// What is in each slot, whatever the tier says of it.
    flash: Vec<Option<(PageId, Lsn)>>,
    going_home: BTreeSet<PageId>,
    transfers: Vec<Transfer>,
    readings: Vec<(PageId, Reading)>,
    claims: Vec<(Claim, Lsn)>,
    groups: Vec<Group>,
    retired: Vec<u32>,
}

impl World {
    fn new(design: Design, keeps_bases: bool, seed: u64) -> World {
        let shares = Plain::new();
        let rules = SlotRules {
            versions: VersionBits::Full,
            log: LogSizes { group: GROUP, ahead: 2 * GROUP, window: 50 },
            keeps_bases,
            waits_for_table: keeps_bases && design.batch().is_some(),
            is_persistent: keeps_bases && design.batch().is_some(),
            ..SlotRules::of_cache(design, SLOTS, Costs::PUBLISHED)
        };
        let count = if design.uses_flash() { SLOTS } else { 0 };
        let order = AnyOrder::new((count, FRAMES as u32), &rules, &shares);
        World {
            design,
            keeps_bases,
            tier: SlotTable::new(count, order, &rules, &shares),
            shares,
            prng: Prng::from_seed(seed),
            now: Tick(1),
            last_lsn: Lsn(LSN_STEP),
            slots: vec![None; PAGES as usize],
            memory: BTreeMap::new(),
            newest: vec![Lsn::ZERO; PAGES as usize],
            home: vec![Lsn::ZERO; PAGES as usize],
            flash: vec![None; count as usize],
            going_home: BTreeSet::new(),
            transfers: Vec::new(),
            readings: Vec::new(),
            claims: Vec::new(),
            groups: Vec::new(),
            retired: Vec::new(),
        }
    }

    fn any_base(&self) -> BaseRule {
        if self.keeps_bases { BaseRule::ALL } else { BaseRule::Never }
    }

    fn slot(&self, page: PageId) -> Option<u32> {
        self.slots[page.0 as usize]
    }

    /// Whether a task has the page latched.
    fn is_latched(&self, page: PageId) -> bool {
        self.transfers.iter().any(|it| it.writing.page() == page)
            || self.readings.iter().any(|it| it.0 == page)
    }

    fn any_unlatched(&mut self) -> Option<PageId> {
        let pages: Vec<PageId> = self.memory.keys().copied().collect();
        let pages: Vec<PageId> = pages.into_iter().filter(|&it| !self.is_latched(it)).collect();
        let at = self.prng.below(pages.len().max(1) as u64) as usize;
        pages.get(at).copied()
    }

    fn candidate(&self, page: PageId) -> Candidate {
        let frame = self.memory[&page];
        let (slot, is_dirty) = (self.slot(page), frame.rec.is_some());
        Candidate { page, slot, is_dirty, class: frame.class }
    }

    fn lost(&mut self, displaced: Displaced) {
        let Displaced { page, slot } = displaced;
        assert_eq!(self.slot(page), Some(slot), "{page} had slot {slot}");
        let is_inclusive = self.design.inclusion == Inclusion::Inclusive;
        assert!(!is_inclusive || !self.memory.contains_key(&page), "{page} is in memory");
        self.slots[page.0 as usize] = None;
    }

    /// The bytes in a slot of its page.
    fn version_in(&self, page: PageId, slot: u32) -> Lsn {
        let (other, version) = self.flash[slot as usize].expect("a slot with bytes");
        assert_eq!(other, page, "slot {slot}");
        version
    }

    /// A page is read, or made, and perhaps changed.
    fn use_page(&mut self) {
        let page = PageId(self.prng.below(PAGES));
        if self.is_latched(page) {
            return;
        }
        self.tier.asked_for(page);
        if !self.memory.contains_key(&page) {
            if self.memory.len() == FRAMES {
                return;
            }
            self.fetch(page);
        }
        if self.prng.below(2) == 0 && !self.is_latched(page) {
            self.change(page);
        }
    }

    fn fetch(&mut self, page: PageId) {
        let missed = match self.slot(page) {
            Some(slot) => {
                let dice = dice!(self);
                self.tier.missed(slot, Wanted::Copy, self.now, &dice)
            }
            None => Missed::Home,
        };
        let version = match missed {
            Missed::Flash(reading) => {
                let version = self.version_in(page, reading.slot());
                self.readings.push((page, reading));
                version
            }
            _ => self.home[page.0 as usize],
        };
        assert_eq!(version, self.newest[page.0 as usize], "{page} is read");
        let class = [AccessClass::Random, AccessClass::Sequential][self.prng.below(2) as usize];
        self.memory.insert(page, Frame { version, rec: None, class });
        let candidate = self.candidate(page);
        let arrived = {
            let dice = dice!(self);
            self.tier.arrived(&candidate, &dice)
        };
        if let Some((slot, displaced)) = arrived {
            displaced.into_iter().for_each(|page| self.lost(page));
            assert_eq!(self.slot(page), None);
            assert!(self.tier.is_own(slot), "slot {slot}");
            self.slots[page.0 as usize] = Some(slot);
        }
    }

    /// The copy of a page in memory stops being the page, which has what home lacked of it.
    fn take_over(&mut self, page: PageId, slot: u32) {
        let changed = self.tier.changes(slot, self.any_base());
        let version = self.version_in(page, slot);
        assert!(changed.newer.is_some() || self.home[page.0 as usize] == version, "{page}");
        self.was_changed(page, (changed.newer, changed.slot));
    }

    fn was_changed(&mut self, page: PageId, (newer, after): (Option<Lsn>, After)) {
        let frame = self.memory.get_mut(&page).expect("a page in memory");
        if newer.is_some() {
            assert_eq!(frame.rec, None, "{page} is dirty twice");
            frame.rec = newer;
        }
        if after == After::Gone {
            self.slots[page.0 as usize] = None;
        }
    }

    fn change(&mut self, page: PageId) {
        if let Some(slot) = self.slot(page).filter(|&slot| self.tier.is_valid(slot)) {
            self.take_over(page, slot);
        }
        self.last_lsn.0 += LSN_STEP;
        let frame = self.memory.get_mut(&page).expect("a page in memory");
        frame.rec = frame.rec.or(Some(self.last_lsn));
        frame.version = self.last_lsn;
        self.newest[page.0 as usize] = self.last_lsn;
    }

    fn end_reading(&mut self) {
        if self.readings.is_empty() {
            return;
        }
        let at = self.prng.below(self.readings.len() as u64) as usize;
        let (page, reading) = self.readings.swap_remove(at);
        let (slot, version) = (reading.slot(), self.memory[&page].version);
        assert!(self.tier.read_ended(reading, version).is_version, "{page} in slot {slot}");
        let is_there = self.slot(page) == Some(slot) && self.tier.is_valid(slot);
        if self.design.inclusion == Inclusion::Exclusive && is_there {
            let is_newer = self.tier.newer(slot).is_some();
            if is_newer || !self.tier.keeps(slot, self.any_base()) {
                self.take_over(page, slot);
            }
        }
    }

    /// What a page that leaves, or is brought up to date, may come to, by the row of its design.
    fn check_way(&self, page: &Candidate, purpose: Purpose, sharp: bool, way: &Way) {
        let is_evicted = purpose == Purpose::Evict;
        let has_copy = page.slot.is_some_and(|slot| self.tier.is_valid(slot));
        let is_persistent = self.keeps_bases && self.design.batch().is_some();
        let Way::Write(writing, _) = way else {
            let is_busy = self.going_home.contains(&page.page);
            let is_idle = *way == Way::Nothing;
            assert!(is_busy || (is_idle && !page.is_dirty), "{way:?} {page:?}");
            return;
        };
        if self.design.batch().is_some() {
            assert_eq!(writing.slot(), None, "an append log takes groups only");
        }
        let (home, slot) = (writing.home(), writing.slot().is_some());
        if !page.is_dirty {
            assert!(!home && slot && is_evicted && !has_copy, "{writing:?}");
            assert_eq!(self.design.clean_leave, CleanLeave::Flash);
            return;
        }
        match self.design.dirty_leave {
            DirtyLeave::Home => assert!(home && !slot),
            DirtyLeave::FlashAndHome => assert!(home && (is_evicted || sharp || !slot)),
            DirtyLeave::HomeAndOwnSlot => assert!(home && (!slot || writing.slot() == page.slot)),
            DirtyLeave::Flash => {
                assert_ne!(home, slot, "one of both");
                assert!(home || ((is_evicted || is_persistent) && !sharp));
            }
        }
    }

    /// A page that could have a slot and got none: there is a reason.
    fn check_refusal(&self, page: &Candidate, (may, free): (bool, usize), way: &Way) {
        let asks = match (page.is_dirty, self.design.dirty_leave) {
            (false, _) => self.design.clean_leave == CleanLeave::Flash,
            (true, rule) => rule == DirtyLeave::Flash || rule == DirtyLeave::FlashAndHome,
        };
        let admits_all = matches!(self.design.admission, AdmissionRule::All);
        let is_placed = matches!(way, Way::Write(writing, _) if writing.slot().is_some());
        let is_simple = self.design.batch().is_none() && page.slot.is_none();
        if asks && may && admits_all && is_simple && free > 0 && *way != Way::Busy {
            assert!(is_placed, "{way:?} of {page:?} with {free} free slots");
        }
        if asks && !may && is_simple {
            assert!(!is_placed, "{way:?}");
        }
    }

    fn leave(&mut self, purpose: Purpose) {
        let Some(page) = self.any_unlatched() else { return };
        let candidate = self.candidate(page);
        let free = self.flash.len() - self.shares.gauge(Gauge::Used);
        let (way, may, sharp) = {
            let dice = dice!(self);
            let may = dice.is_usable && !dice.is_throttled && !dice.is_over_budget;
            (self.tier.left(&candidate, purpose, &dice), may, dice.is_sharp)
        };
        if let Way::Write(_, displaced) = &way {
            assert!(displaced.is_none() || free == 0, "{way:?} with {free} free slots");
        }
        self.check_way(&candidate, purpose, sharp, &way);
        if purpose == Purpose::Evict && !(sharp && candidate.is_dirty) {
            self.check_refusal(&candidate, (may, free), &way);
        }
        match way {
            Way::Busy => {}
            Way::Nothing if purpose == Purpose::Evict => self.evict(page),
            Way::Nothing => {}
            Way::Write(writing, displaced) => {
                displaced.into_iter().for_each(|page| self.lost(page));
                if writing.home() {
                    assert!(self.going_home.insert(page), "one home write of {page} at a time");
                }
                let frame = self.memory[&page];
                self.transfers.push(Transfer { writing, purpose, frame });
            }
        }
    }

    fn evict(&mut self, page: PageId) {
        let frame = self.memory.remove(&page).expect("a page in memory");
        assert_eq!(frame.rec, None, "dirty {page} leaves memory");
        self.slots[page.0 as usize] = self.tier.evicted(self.slot(page));
    }

    fn offer(&mut self) {
        let Some(page) = self.any_unlatched() else { return };
        let candidate = self.candidate(page);
        let way = {
            let dice = dice!(self);
            self.tier.offer(&candidate, &dice)
        };
        let Way::Write(writing, displaced) = way else { return };
        assert!(self.design.writes_what_is_read() && !candidate.is_dirty && !writing.home());
        displaced.into_iter().for_each(|page| self.lost(page));
        self.slots[page.0 as usize] = writing.slot();
        let frame = self.memory[&page];
        self.transfers.push(Transfer { writing, purpose: Purpose::Checkpoint, frame });
    }

    fn end_transfer(&mut self) {
        if self.transfers.is_empty() {
            return;
        }
        let at = self.prng.below(self.transfers.len() as u64) as usize;
        let Transfer { writing, purpose, frame } = self.transfers.swap_remove(at);
        let (page, home, slot) = (writing.page(), writing.home(), writing.slot());
        let is_used = self.prng.below(8) == 0;
        let flash_fails = self.prng.below(8) == 0;
        // An exclusive design lets nothing go to flash that stays in memory.
        let is_void = is_used && self.design.inclusion == Inclusion::Exclusive;
        let how = Outcome { home: self.prng.below(8) > 0, flash: !flash_fails && !is_void };
        if home {
            assert!(self.going_home.remove(&page));
        }
        if let Some(slot) = slot {
            self.flash[slot as usize] = how.flash.then_some((page, frame.version));
        }
        if home && how.home {
            self.write_home(page, frame.version);
        }
        let newer = frame.rec.filter(|_| !home || self.keeps_bases);
        let history = History::once(self.now);
        let version = Version { lsn: frame.version, newer, history };
        let written = self.tier.written(writing, how, &version, self.slot(page));
        let is_filled = how.flash && (how.home || !home);
        match written {
            Written::Nowhere => assert_eq!(slot, None),
            Written::Failed => assert!(!is_filled),
            Written::Into(filled) => {
                assert!(is_filled && Some(filled.slot) == slot);
                assert_eq!(filled.is_pinned, newer.is_some() && home);
                self.retired.extend(filled.retired);
                self.slots[page.0 as usize] = slot;
            }
        }
        let is_safe = if home { how.home } else { is_filled };
        let now = self.memory.get_mut(&page).expect("a latched page is in memory");
        if is_safe {
            now.rec = None;
        }
        if purpose == Purpose::Evict && !is_used && now.rec.is_none() {
            self.evict(page);
        }
    }

    fn write_home(&mut self, page: PageId, version: Lsn) {
        let at = &mut self.home[page.0 as usize];
        assert!(*at <= version, "home goes back: {page}");
        *at = version;
    }

    /// Home was synced, and the table on flash hardened.
    fn sync(&mut self) {
        if self.prng.below(4) > 0 {
            return;
        }
        for slot in 0..self.flash.len() as u32 {
            if self.tier.is_pinned(slot) {
                assert!(self.tier.unpin(slot));
            }
            let Some(page) = self.tier.page(slot) else { continue };
            let is_base = self.tier.is_kept_for(slot, page);
            if is_base && self.home[page.0 as usize] > self.version_in(page, slot) {
                assert_eq!(self.slot(page), Some(slot));
                self.slots[page.0 as usize] = None;
                self.tier.release_base(slot);
            }
        }
        self.retired.drain(..).for_each(|slot| self.tier.release_retired(slot));
        let _has_freed = self.design.batch().is_some() && self.tier.end_stuck();
    }

    fn step(&mut self) {
        self.now.0 += self.prng.below(3);
        match self.prng.below(16) {
            0..4 => self.use_page(),
            4 => self.leave(Purpose::Evict),
            5 => self.leave(Purpose::Checkpoint),
            6..9 => self.end_transfer(),
            9 => self.claim(),
            10 if !self.claims.is_empty() => {
                let at = self.prng.below(self.claims.len() as u64) as usize;
                let claim = self.claims.swap_remove(at);
                self.end_claim(claim);
            }
            11 => self.end_reading(),
            12 => self.offer(),
            13 => self.append(),
            14 => self.go_on(),
            _ => self.sync(),
        }
    }

    fn check(&self, context: &str) {
        self.tier.check();
        let is_exclusive = self.design.inclusion == Inclusion::Exclusive;
        let takes_over = is_exclusive || self.design.batch().is_some();
        for (at, newest) in self.newest.iter().enumerate() {
            let page = PageId(at as u64);
            let is_here = self.slot(page).and_then(|slot| self.tier.is_in_memory(slot));
            assert!(is_here.is_none_or(|is| is == self.memory.contains_key(&page)), "{page}");
            let valid = self.slot(page).filter(|&slot| self.tier.is_valid(slot));
            if let Some(slot) = valid {
                assert_eq!(self.version_in(page, slot), *newest, "{context}: {page} on flash");
                let lacks = self.home[at] < *newest;
                // A copy that is taken over while it is being cleaned counts as newer ever after.
                let is_newer = self.tier.newer(slot).is_some();
                assert!(is_newer || !lacks, "{context}: {page}");
                assert!(!is_newer || lacks || takes_over, "{context}: {page}");
            }
            match self.memory.get(&page) {
                Some(frame) => {
                    assert_eq!(frame.version, *newest, "{context}: {page} in memory");
                    assert!(frame.rec.is_none() || valid.is_none(), "{context}: {page} twice");
                }
                None if valid.is_none() => {
                    assert_eq!(self.home[at], *newest, "{context}: {page} is lost");
                }
                None => {}
            }
            if let Some(slot) = self.slot(page) {
                assert!(self.tier.holds(slot, page), "{context}: {page} has slot {slot}");
            }
        }
    }
}

fn runs(design: Design, keeps_bases: bool) {
    for seed in 0..40 {
        let mut world = World::new(design, keeps_bases, seed);
        for step in 0..1_200 {
            world.step();
            let bases = if keeps_bases { " with bases" } else { "" };
            world.check(&format!("{}{bases}, seed {seed}, step {step}", design.name));
        }
        if design.uses_flash() {
            let admissions = world.tier.admissions();
            assert!(admissions.admitted > 0, "{}, seed {seed}", design.name);
        }
    }
}

#[test]
fn no_design_loses_the_newest_version_of_a_page() {
    DESIGNS.into_iter().for_each(|design| runs(design, false));
}

#[test]
fn nor_where_copies_are_kept_as_bases() {
    let designs = DESIGNS.into_iter().filter(Design::keeps_dirty_on_flash);
    designs.for_each(|design| runs(design, true));
}
