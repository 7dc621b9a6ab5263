//! Two tiers, against naive models of dirty pages and copies, and against one tier.

mod ahead;
mod conserved;
mod inclusion;
mod rings;
mod section_4;

use super::*;
use crate::places::Places;
use crate::{Policy, Reference};
use std::collections::BTreeMap;
use terrace_policy::{DESIGNS, designs, replacement};
use terrace_trace::{Kind, PageKey, PageRequest};

fn row(name: &str) -> ReplacementRow {
    replacement::find(name).expect("a policy")
}

fn memory_row(name: &str) -> MemoryRule {
    MemoryRule::Policy(row(name))
}

fn setup(flash: Flash, slots: u32) -> FlashSetup {
    let cleaning = Cleaning { lambda: 0.5, alpha: 4, writes: 3 };
    FlashSetup { cleaning, tac_rule: TacRule::OnePercent, ..FlashSetup::new(flash, slots, 1) }
}

fn random(seed: u64, pages: u64, requests: usize, writes: u8) -> References {
    let mut prng = fastrand::Rng::with_seed(seed);
    let mut references = References::default();
    for at in 0..requests {
        let number = prng.u64(..pages).min(prng.u64(..pages));
        let kind = if prng.u8(..100) < writes { Kind::Write } else { Kind::Read };
        let page = PageKey { file: 0, number };
        references.push(PageRequest { time_ns: at as u64 / 3, page, kind });
    }
    references
}

/// The same with scans between, which announce what they will read, and sometimes more.
fn scanned(seed: u64, pages: u64, requests: usize, writes: u8) -> References {
    let mut prng = fastrand::Rng::with_seed(seed);
    let points = random(seed, pages, requests, writes);
    let mut references = References::default();
    let page = |number| PageKey { file: 0, number };
    let mut time_ns = 0;
    let mut push = |time_ns, number: u64, kind| {
        references.push(PageRequest { time_ns, page: page(number), kind });
    };
    for (at, &point) in points.pages().iter().enumerate() {
        time_ns += prng.u64(..2);
        if prng.u8(..60) == 0 {
            let (first, length) = (prng.u64(..pages), prng.u64(2..40));
            for at in first..first + length + prng.u64(..5) {
                push(time_ns, at, Kind::Ahead);
            }
            for at in first..first + length {
                time_ns += prng.u64(..2);
                push(time_ns, at, Kind::Read);
            }
        }
        let kind = if points.is_write(at) { Kind::Write } else { Kind::Read };
        push(time_ns, points.name(point).number, kind);
    }
    references
}

fn all_flashes() -> Vec<Flash> {
    let designs = DESIGNS.into_iter().map(Flash::Design);
    let modes = [WriteMode::Back, WriteMode::Through, WriteMode::Around, WriteMode::Update];
    let policies = replacement::REPLACEMENTS
        .iter()
        .flat_map(|&row| modes.map(|mode| Flash::Policy(row, mode)));
    designs.chain(policies).collect()
}

#[test]
fn without_memory_a_policy_misses_as_it_does_alone() {
    let references = random(3, 400, 6_000, 0);
    let places = Places::new(&references);
    let memory =
        Memory { policy: None, near_is_sequential: false, outstanding: 0, counted_from: 0 };
    for &row in replacement::REPLACEMENTS {
        let flash = setup(Flash::Policy(row, WriteMode::Back), 60);
        let counts = replay(&references, &places, memory, &flash);
        let alone = Policy::Online(row).misses(&references, 60, 1);
        assert_eq!(counts.misses(), alone, "{}", row.name);
        assert_eq!((counts.home.reads, counts.flash.writes), (alone, alone), "{}", row.name);
    }
}

#[test]
fn tiers_that_are_told_in_chunks_count_the_same() {
    let references = scanned(5, 300, 4_000, 30);
    let places = Places::new(&references);
    let (pages, count) = (references.pages(), references.pages_count());
    let of = |at: usize| Reference {
        page: pages[at],
        is_write: references.is_write(at),
        has_waited: references.has_waited(at),
        is_ahead: false,
    };
    let mut all: Vec<Reference> = Vec::new();
    let mut aheads = references.aheads().iter().peekable();
    for at in 0..pages.len() {
        while let Some(&(_, page)) = aheads.next_if(|ahead| ahead.0 as usize == at) {
            all.push(Reference { page, is_write: false, has_waited: false, is_ahead: true });
        }
        all.push(of(at));
    }
    for flash in all_flashes() {
        for policy in [None, Some((flash.memory_rule(), 20))] {
            let near_is_sequential = policy.is_some();
            let memory = Memory { policy, near_is_sequential, outstanding: 0, counted_from: 0 };
            let setup = setup(flash, 50);
            let mut tiers = FollowingTiers::new(count, &places, memory, &setup);
            all.chunks(70).for_each(|chunk| tiers.feed(chunk));
            let expected = replay(&references, &places, memory, &setup);
            assert_eq!(tiers.counts(), expected, "{} {policy:?}", flash.name());
            // Which frame each page has, at least.
            assert!(tiers.bytes() >= 4 * count as usize, "{}", flash.name());
        }
    }
}

#[test]
fn what_goes_out_is_what_was_changed() {
    for seed in 0..6 {
        let references = random(seed, 300, 5_000, 30);
        let places = Places::new(&references);
        for flash in all_flashes().into_iter().filter(|flash| flash.name() != "ssd-only") {
            for policy in [None, Some((memory_row("lru"), 20))] {
                let memory =
                    Memory { policy, near_is_sequential: true, outstanding: 0, counted_from: 0 };
                let counts = replay(&references, &places, memory, &setup(flash, 50));
                let what = format!("{} {policy:?} seed {seed}", flash.name());
                let TierCounts { home, flash: on_flash, .. } = counts;
                let reads = if policy.is_some() { counts.requests } else { reads_of(&references) };
                let missed = reads - counts.memory_hits;
                // Each request was served, by one of the two devices.
                if policy.is_some() {
                    assert_eq!(home.reads + counts.flash_hits, missed, "{what}");
                }
                assert!(home.reads <= missed, "{what}");
                assert!(home.writes <= counts.dirty_leaves, "{what}: written once each at most");
                if !keeps_dirty(flash) {
                    assert_eq!(home.writes, counts.dirty_leaves, "{what}");
                }
                let lost = counts.dirty_leaves - home.writes;
                // What is dirty on flash at the end, or was overwritten there by a newer version.
                assert!(lost == 0 || on_flash.writes >= lost, "{what}");
            }
        }
    }
}

fn reads_of(references: &References) -> u64 {
    references.pages().len() as u64 - references.writes_count()
}

fn keeps_dirty(flash: Flash) -> bool {
    match flash {
        Flash::Design(design) => design.keeps_dirty_on_flash(),
        Flash::Policy(_, mode) => mode == WriteMode::Back,
        Flash::Opt(_) => false,
    }
}

/// LRU over write-back LRU, with versions of pages: a read that finds an old version panics.
#[test]
fn lru_over_lru_agrees_with_versions_in_maps() {
    for seed in 0..20 {
        let references = random(seed, 120, 4_000, 40);
        let places = Places::new(&references);
        let memory = Memory {
            policy: Some((memory_row("lru"), 12)),
            near_is_sequential: false,
            outstanding: 0,
            counted_from: 0,
        };
        let flash = setup(Flash::Policy(row("lru"), WriteMode::Back), 30);
        let counts = replay(&references, &places, memory, &flash);
        let mut model = Versions::default();
        for (at, &page) in references.pages().iter().enumerate() {
            model.reference(page, references.is_write(at));
        }
        let model = (model.flash_hits, model.flash_writes, model.home_reads, model.home_writes);
        let got = (counts.flash_hits, counts.flash.writes, counts.home.reads, counts.home.writes);
        assert_eq!(got, model, "seed {seed}");
    }
}

/// Lists of page, version and whether it is newer than home, least recently used first. A page
/// that is changed in memory keeps its place on flash.
#[derive(Default)]
struct Versions {
    newest: BTreeMap<u32, u64>,
    memory: Vec<(u32, u64, bool)>,
    flash: Vec<(u32, u64, bool)>,
    home: BTreeMap<u32, u64>,
    flash_hits: u64,
    flash_writes: u64,
    home_reads: u64,
    home_writes: u64,
}

impl Versions {
    fn reference(&mut self, page: u32, write: bool) {
        let at = self.memory.iter().position(|row| row.0 == page);
        let mut row = match at {
            Some(at) => self.memory.remove(at),
            None => self.fetch(page),
        };
        let newest = self.newest.entry(page).or_default();
        assert_eq!(row.1, *newest, "page {page} is old");
        if write {
            *newest += 1;
            row = (page, *newest, true);
        }
        if at.is_none() && self.memory.len() == 12 {
            let victim = self.memory.remove(0);
            self.leave(victim);
        }
        self.memory.push(row);
    }

    fn fetch(&mut self, page: u32) -> (u32, u64, bool) {
        let newest = self.newest.get(&page).copied().unwrap_or_default();
        let at = self.flash.iter().position(|row| row.0 == page && row.1 == newest);
        if let Some(at) = at {
            self.flash_hits += 1;
            let row = self.flash.remove(at);
            self.flash.push(row);
            return (page, row.1, false);
        }
        self.home_reads += 1;
        (page, self.home.get(&page).copied().unwrap_or_default(), false)
    }

    fn leave(&mut self, (page, version, dirty): (u32, u64, bool)) {
        let copy = self.flash.iter().position(|row| row.0 == page);
        match copy {
            Some(at) if self.flash[at].1 == version => return,
            Some(at) => self.flash[at] = (page, version, dirty),
            None => {
                if self.flash.len() == 30 {
                    let (page, version, dirty) = self.flash.remove(0);
                    // A stale copy is dropped: memory has the page.
                    if dirty && self.newest[&page] == version {
                        self.home.insert(page, version);
                        self.home_writes += 1;
                    }
                }
                self.flash.push((page, version, dirty));
            }
        }
        self.flash_writes += 1;
    }
}

#[test]
fn tac_alone_misses_as_it_does_without_memory() {
    let references = random(8, 4_000, 20_000, 0);
    let places = Places::new(&references);
    let memory =
        Memory { policy: None, near_is_sequential: false, outstanding: 0, counted_from: 0 };
    let tac = setup(Flash::Design(designs::find("tac").expect("a design")), 300);
    let tac = FlashSetup { tac_write: TacWrite::AtOnce, ..tac };
    let counts = replay(&references, &places, memory, &tac);
    assert_eq!(temperature_misses(&references, &places, &tac), counts.misses());
}

/// The engine's TAC writes a page after the client that requested it has gone on, and not if the
/// client has changed it.
#[test]
fn tac_does_not_write_what_is_changed_before_anybody_waits() {
    let tac = setup(Flash::Design(designs::find("tac").expect("a design")), 50);
    let written = |times: [u64; 3], tac_write| {
        let mut references = References::default();
        let requests = [(7, Kind::Read), (7, Kind::Write), (9, Kind::Read)];
        for ((number, kind), time_ns) in requests.into_iter().zip(times) {
            let page = PageKey { file: 0, number };
            references.push(PageRequest { time_ns, page, kind });
        }
        let places = Places::new(&references);
        let memory = Memory { policy: Some((memory_row("lru"), 10)), ..NO_MEMORY };
        let setup = FlashSetup { tac_write, ..tac };
        replay(&references, &places, memory, &setup).flash.writes
    };
    assert_eq!(written([1, 1, 1], TacWrite::AtOnce), 2);
    assert_eq!(written([1, 1, 1], TacWrite::Behind), 0, "the last page is still to be written");
    assert_eq!(written([1, 2, 2], TacWrite::Behind), 1, "time passed before the change");
}

/// Two answers used to be kept by design: that a page which had left memory is written, and that it
/// is not. None can have left, as a page is written before another one comes.
#[test]
fn what_was_read_is_written_before_it_can_leave_memory() {
    let references = random(4, 300, 5_000, 0);
    let places = Places::new(&references);
    let pages = u64::from(references.pages_count());
    let rules = replacement::REPLACEMENTS.iter().map(|&row| MemoryRule::Policy(row));
    let rules = rules.chain(MEMORY_POLICIES.iter().map(|row| MemoryRule::Pool(row.1)));
    let memories = rules.flat_map(|rule| [Some((rule, 1)), Some((rule, 30))]).chain([None]);
    for policy in memories {
        for name in ["tac", "inclusive"] {
            let flash = Flash::Design(designs::find(name).expect("a design"));
            let roomy = setup(flash, 2 * references.pages_count());
            let written = |tac_write| {
                let memory = Memory { policy, ..NO_MEMORY };
                let setup = FlashSetup { tac_write, ..roomy };
                replay(&references, &places, memory, &setup).flash.writes
            };
            assert_eq!(written(TacWrite::AtOnce), pages, "{name} under {policy:?}");
            // The last page that was read may wait still.
            let behind = written(TacWrite::Behind);
            assert!(behind == pages || behind == pages - 1, "{name} under {policy:?}: {behind}");
        }
    }
}

#[test]
fn the_ceiling_is_above_every_tier() {
    let references = random(5, 500, 8_000, 0);
    let places = Places::new(&references);
    let memory = Memory {
        policy: Some((memory_row("lru"), 25)),
        near_is_sequential: false,
        outstanding: 0,
        counted_from: 0,
    };
    let (missed, hits) = ceiling(&references, memory, 80, 1);
    for flash in all_flashes() {
        // With others in memory, which wait for their group, memory misses other pages.
        let waits = matches!(flash, Flash::Design(design) if design.batch().is_some());
        if waits || flash.name() == "ssd-only" {
            continue;
        }
        let counts = replay(&references, &places, memory, &setup(flash, 80));
        assert_eq!(counts.requests - counts.memory_hits, missed, "{}", flash.name());
        assert!(counts.flash_hits <= hits, "{}", flash.name());
    }
}

#[test]
fn the_cleaner_gathers_neighbours() {
    // Memory of one page: each write leaves when the next page comes.
    let mut references = References::default();
    for number in (0..40).chain([1_000, 2_000]) {
        let page = PageKey { file: 0, number };
        references.push(PageRequest { time_ns: 0, page, kind: Kind::Write });
    }
    let places = Places::new(&references);
    let memory = Memory {
        policy: Some((memory_row("lru"), 1)),
        near_is_sequential: false,
        outstanding: 0,
        counted_from: 0,
    };
    let lc = Flash::Design(designs::find("lc").expect("a design"));
    let counts = replay(&references, &places, memory, &setup(lc, 64));
    // More than 32 of 64 slots are dirty: a run of four is written home.
    assert!(counts.home.writes >= 4, "{counts:?}");
    assert_eq!(counts.home.writes % 4, 0, "{counts:?}");
    assert_eq!(counts.home.sequential_writes + 1, counts.home.writes, "one run after the other");
    assert_eq!(counts.flash.reads, counts.home.writes, "each is read from flash first");
}

/// The pool's LRU over frames, beside a list: the clock stands still between misses, so that what
/// is used within a tick has no order, and the least of such ties may leave.
#[test]
fn memory_of_the_pool_misses_as_an_lru_does() {
    for seed in 0..10 {
        let references = random(seed, 300, 6_000, 30);
        let places = Places::new(&references);
        let none = setup(Flash::Design(designs::find("no-ssd").expect("a design")), 1);
        let misses = |rule| {
            let memory = Memory { policy: Some((rule, 60)), ..NO_MEMORY };
            let counts = replay(&references, &places, memory, &none);
            (counts.requests - counts.memory_hits) as f64
        };
        let lru = misses(memory_row("lru"));
        let pool = misses(MemoryRule::Pool(MemoryPolicy::Lru));
        assert!((pool / lru - 1.0).abs() < 0.02, "seed {seed}: {pool} for {lru}");
    }
}

#[test]
fn what_comes_before_is_not_counted() {
    let references = random(2, 300, 6_000, 30);
    let places = Places::new(&references);
    for flash in all_flashes() {
        let counts = |counted_from| {
            let policy = Some((MemoryRule::Pool(MemoryPolicy::Lru2), 40));
            let memory = Memory { policy, counted_from, ..NO_MEMORY };
            replay(&references, &places, memory, &setup(flash, 80))
        };
        let (all, late) = (counts(0), counts(4_000));
        assert_eq!(late.requests, 2_000, "{}", flash.name());
        assert!(late.home.reads <= all.home.reads && late.memory_hits < all.memory_hits);
        assert_eq!(late.home.reads + late.flash_hits + late.memory_hits, late.requests);
    }
}

const NO_MEMORY: Memory =
    Memory { policy: None, near_is_sequential: false, outstanding: 0, counted_from: 0 };
