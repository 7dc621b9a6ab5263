//! Every tier under every memory: nothing that was changed is lost, and nothing stale is read.
//!
//! What is newer than home is told page by page, from what the tier hears and from what is written
//! home. Each such page must be dirty in memory or newer on flash after every reference; no page is
//! written home that need not be. And flash has of the pages in memory what the design says.

use super::super::residents::Residents;
use super::super::run::Replay;
use super::super::start::{TierVisitor, with_tier};
use super::*;
use std::collections::BTreeSet;
use terrace_policy::Inclusion;

/// A tier, and the pages that are newer than home.
struct Checked<F> {
    tier: F,
    newer: BTreeSet<u32>,
    heard: usize,
    /// Pages that came since this was emptied.
    came: BTreeSet<u32>,
}

impl<F: FlashTier> Checked<F> {
    /// What was written home since the last look is there.
    fn look(&mut self, io: &Traffic) {
        for page in &io.written_home[self.heard..] {
            assert!(self.newer.remove(page), "page {page} goes home, which has it");
        }
        self.heard = io.written_home.len();
    }
}

impl<F: FlashTier> Allocated for Checked<F> {
    fn bytes(&self) -> usize {
        self.tier.bytes()
    }
}

impl<F: FlashTier> FlashTier for Checked<F> {
    fn fetch(
        &mut self,
        miss: &Miss,
        residents: &mut Residents,
        io: &mut Traffic,
    ) -> Option<History> {
        self.came.insert(miss.page);
        // A group that was appended since may have gone home.
        self.look(io);
        let held = self.tier.held(miss.page);
        let found = self.tier.fetch(miss, residents, io);
        // A long read from home passes over copies that are no newer.
        let passes = miss.need == Need::Ahead(Wanted::OnlyNewer) && held == Held::Clean;
        let is_right = found.is_some() == held.is_current() || passes;
        assert!(is_right, "page {}: {held:?}", miss.page);
        let is_old = found.is_none() && self.newer.contains(&miss.page);
        assert!(!is_old, "page {} is read from home, which has it not", miss.page);
        self.look(io);
        found
    }

    fn note(&mut self, note: Note, io: &mut Traffic) {
        self.tier.note(note, io);
        self.look(io);
        if let Note::Changes(page) = note {
            self.newer.insert(page);
            assert!(!self.tier.held(page).is_current(), "page {page} changed");
        }
    }

    fn leave(&mut self, leaving: &Leaving, io: &mut Traffic) {
        self.tier.leave(leaving, io);
        self.look(io);
    }

    fn held(&self, page: u32) -> Held {
        self.tier.held(page)
    }

    fn log(&mut self) -> Option<&mut dyn Log> {
        self.tier.log()
    }
}

/// Replays a trace and looks at every page after every reference.
struct Check<'a> {
    references: &'a References,
    places: &'a Places,
    memory: Memory,
    setup: &'a FlashSetup,
    what: &'a str,
}

impl<'a> TierVisitor<'a> for Check<'a> {
    type Output = ();

    fn visit<F: FlashTier + 'a>(self, tier: F) {
        let flash = Checked { tier, newer: BTreeSet::new(), heard: 0, came: BTreeSet::new() };
        let count = self.references.pages_count();
        let inclusion = match self.setup.flash {
            Flash::Design(design) => design.inclusion,
            _ => Inclusion::Free,
        };
        let mut in_both = BTreeSet::new();
        let mut replay = Replay::new(self.places, count, self.memory, self.setup, flash);
        let mut aheads = self.references.aheads().iter().peekable();
        for (at, &page) in self.references.pages().iter().enumerate() {
            while let Some(&(_, page)) = aheads.next_if(|ahead| ahead.0 as usize == at) {
                replay.announce(page);
            }
            if self.references.has_waited(at) {
                replay.wait(page);
            }
            replay.reference(page, self.references.is_write(at));
            let (flash, residents) = (&mut replay.flash, &replay.memory.residents);
            let came = std::mem::take(&mut flash.came);
            flash.look(&replay.io);
            for page in 0..count {
                let is_dirty = residents.get(page).is_some_and(|frame| frame.dirty);
                let held = flash.held(page);
                let is_newer = is_dirty || held == Held::Dirty;
                let is_right = flash.newer.contains(&page) == is_newer;
                let is_stale = is_dirty && held.is_current();
                let what = self.what;
                assert!(is_right && !is_stale, "{what}, reference {at}, page {page}: {held:?}");
                let is_in_both = residents.get(page).is_some() && held.has_slot();
                // It may have left for another page of this reference, and come again with a run.
                let stayed = residents.get(page).is_some() && !came.contains(&page);
                let keeps = !stayed || !in_both.contains(&page);
                match inclusion {
                    Inclusion::Free => {}
                    Inclusion::Exclusive => assert!(!is_in_both, "{what}, page {page} is in both"),
                    Inclusion::Inclusive => assert!(is_in_both || keeps, "{what}, page {page}"),
                }
                match is_in_both {
                    true => in_both.insert(page),
                    false => in_both.remove(&page),
                };
            }
        }
        let counts = replay.counts();
        let asked = counts.home.reads + counts.flash_hits;
        // Of a long read pages are dropped, and others are not asked for after all.
        if self.memory.policy.is_some() && self.references.aheads().is_empty() {
            assert_eq!(asked, counts.requests - counts.memory_hits, "{}", self.what);
        }
    }
}

#[test]
fn no_change_is_lost_under_any_tier_and_memory() {
    let pool = [MemoryPolicy::Lru2, MemoryPolicy::Gd2l, MemoryPolicy::Fasc, MemoryPolicy::Sieve];
    let rules = pool.map(MemoryRule::Pool).into_iter().chain(["lru", "arc"].map(memory_row));
    // Of more frames larger groups wait.
    let rules: Vec<MemoryRule> = rules.collect();
    let memories = |seed: u64| {
        let frames = [30, 90][seed as usize % 2];
        rules.iter().map(move |&rule| Some((rule, frames))).chain([None])
    };
    let rows = ["sieve", "w-tinylfu"].map(row);
    let modes = [WriteMode::Back, WriteMode::Around];
    let policies = rows.into_iter().flat_map(|row| modes.map(|mode| Flash::Policy(row, mode)));
    let flashes: Vec<Flash> = DESIGNS.into_iter().map(Flash::Design).chain(policies).collect();
    for seed in 0..4 {
        let references = match seed {
            0 | 1 => random(seed, 150, 1_000, 20 + 10 * seed as u8),
            _ => scanned(seed, 150, 1_000, 20 + 10 * seed as u8),
        };
        let places = Places::new(&references);
        for (at, &flash) in flashes.iter().enumerate() {
            for (under, policy) in memories(seed).enumerate() {
                let slots = [1, 9, 64, 110, 200][(at + under + seed as usize) % 5];
                let near_is_sequential = under % 2 == 0;
                let outstanding = [0, 25][(at + under) % 2];
                let memory = Memory { policy, near_is_sequential, outstanding, ..NO_MEMORY };
                let what = format!("seed {seed}, {} of {slots}, {policy:?}", flash.name());
                let setup = setup(flash, slots);
                let (references, places, setup) = (&references, &places, &setup);
                let check = Check { references, places, memory, setup, what: &what };
                with_tier(references.pages_count(), places, memory, setup, check);
            }
        }
    }
}

#[test]
fn a_home_on_flash_is_no_flash_with_other_devices() {
    let references = random(3, 300, 5_000, 30);
    let places = Places::new(&references);
    let memory = Memory { policy: Some((MemoryRule::Pool(MemoryPolicy::Lru2), 40)), ..NO_MEMORY };
    let counts = |name| {
        let design = Flash::Design(designs::find(name).expect("a design"));
        replay(&references, &places, memory, &setup(design, 1))
    };
    let (none, only) = (counts("no-ssd"), counts("ssd-only"));
    assert_eq!((only.flash, only.home), (none.home, none.flash));
    assert_eq!((only.misses(), only.flash_hits), (0, none.misses()));
    assert_eq!(only.dirty_leaves, none.dirty_leaves);
}
