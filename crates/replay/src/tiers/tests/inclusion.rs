//! What flash has of pages in memory, and in which order it is swept: against lists and sets, with
//! room for all pages on flash, under LRU.

use super::*;
use terrace_policy::Inclusion;

const FRAMES: usize = 25;

/// Memory, the oldest first, with whether each page is dirty; flash, with whether it is newer than
/// home.
struct Model {
    inclusion: Inclusion,
    memory: Vec<(u32, bool)>,
    flash: BTreeMap<u32, bool>,
    /// Memory hits, flash hits, pages written to flash, read from home.
    counts: [u64; 4],
}

impl Model {
    fn reference(&mut self, page: u32, write: bool) {
        match self.memory.iter().position(|row| row.0 == page) {
            Some(at) => {
                self.counts[0] += 1;
                let row = self.memory.remove(at);
                self.memory.push(row);
            }
            None => {
                let dirty = self.fetch(page);
                self.memory.push((page, dirty));
                if self.memory.len() > FRAMES {
                    let victim = self.memory.remove(0);
                    self.leave(victim);
                }
            }
        }
        if write {
            self.memory.last_mut().expect("the page").1 = true;
            self.flash.remove(&page);
        }
    }

    /// Whether memory alone has what home lacks.
    fn fetch(&mut self, page: u32) -> bool {
        let Some(&newer) = self.flash.get(&page) else {
            self.counts[3] += 1;
            if self.inclusion == Inclusion::Inclusive {
                self.counts[2] += 1;
                self.flash.insert(page, false);
            }
            return false;
        };
        self.counts[1] += 1;
        let is_exclusive = self.inclusion == Inclusion::Exclusive;
        if is_exclusive {
            self.flash.remove(&page);
        }
        is_exclusive && newer
    }

    fn leave(&mut self, (page, dirty): (u32, bool)) {
        if dirty || !self.flash.contains_key(&page) {
            self.counts[2] += 1;
            self.flash.insert(page, dirty);
        }
    }
}

fn design(name: &str) -> terrace_policy::Design {
    designs::find(name).expect("a design")
}

#[test]
fn pages_flow_as_in_lists() {
    for name in ["lazy", "inclusive", "exclusive"] {
        let design = design(name);
        for seed in 0..10 {
            let references = random(seed, 200, 4_000, 30);
            let places = Places::new(&references);
            let memory = Memory { policy: Some((memory_row("lru"), FRAMES as u32)), ..NO_MEMORY };
            let roomy = setup(Flash::Design(design), 2 * references.pages_count());
            let setup = FlashSetup {
                cleaning: Cleaning { lambda: 1.0, ..roomy.cleaning },
                tac_write: TacWrite::AtOnce,
                ..roomy
            };
            let counts = replay(&references, &places, memory, &setup);
            let mut model = Model {
                inclusion: design.inclusion,
                memory: Vec::new(),
                flash: BTreeMap::new(),
                counts: [0; 4],
            };
            for (at, &page) in references.pages().iter().enumerate() {
                model.reference(page, references.is_write(at));
            }
            let TierCounts { memory_hits, flash_hits, flash, home, .. } = counts;
            let got = [memory_hits, flash_hits, flash.writes, home.reads];
            assert_eq!(got, model.counts, "{name}, seed {seed}");
            assert_eq!((flash.reads, home.writes), (flash_hits, 0), "{name}, seed {seed}");
        }
    }
}

/// The engine writes what an inclusive tier read by a task of its own.
#[test]
fn an_inclusive_tier_does_not_write_what_is_changed_before_anybody_waits() {
    let written = |kind, times: [u64; 2], tac_write| {
        let mut references = References::default();
        for (kind, time_ns) in [Kind::Read, kind].into_iter().zip(times) {
            let page = PageKey { file: 0, number: 7 };
            references.push(PageRequest { time_ns, page, kind });
        }
        let places = Places::new(&references);
        let memory = Memory { policy: Some((memory_row("lru"), 10)), ..NO_MEMORY };
        let setup = FlashSetup { tac_write, ..setup(Flash::Design(design("inclusive")), 50) };
        replay(&references, &places, memory, &setup).flash.writes
    };
    assert_eq!(written(Kind::Write, [1, 1], TacWrite::AtOnce), 1);
    assert_eq!(written(Kind::Write, [1, 1], TacWrite::Behind), 0);
    assert_eq!(written(Kind::Write, [1, 2], TacWrite::Behind), 1, "time passed before the change");
}

/// Asserts that every page in memory has a slot.
struct Included<'a> {
    references: &'a References,
    places: &'a Places,
    memory: Memory,
    setup: &'a FlashSetup,
}

impl<'a> start::TierVisitor<'a> for Included<'a> {
    type Output = ();

    fn visit<F: FlashTier + 'a>(self, tier: F) {
        let count = self.references.pages_count();
        let mut replay = run::Replay::new(self.places, count, self.memory, self.setup, tier);
        for (at, &page) in self.references.pages().iter().enumerate() {
            replay.reference(page, false);
            let mut here = replay.memory.residents.pages();
            assert!(here.all(|page| replay.flash.held(page).has_slot()), "reference {at}");
        }
    }
}

/// Pages that stay in memory are not read from flash: their slots are the oldest there.
#[test]
fn pages_that_stay_in_memory_keep_the_slots_that_are_oldest() {
    let hot: Vec<PageRequest> = random(5, 1_000, 6_000, 0)
        .pages()
        .iter()
        .flat_map(|&page| [page % 20, 20 + page])
        .map(|number| {
            let page = PageKey { file: 0, number: u64::from(number) };
            PageRequest { time_ns: 0, page, kind: Kind::Read }
        })
        .collect();
    let mut references = References::default();
    hot.into_iter().for_each(|request| references.push(request));
    let places = Places::new(&references);
    let memory = Memory { policy: Some((memory_row("lru"), 60)), ..NO_MEMORY };
    for slots in [61, 70, 300] {
        let setup = setup(Flash::Design(design("inclusive")), slots);
        let (references, places, setup) = (&references, &places, &setup);
        let included = Included { references, places, memory, setup };
        start::with_tier(references.pages_count(), places, memory, setup, included);
    }
}

/// Keeps what was written home.
struct Written<'a> {
    references: &'a References,
    places: &'a Places,
    memory: Memory,
    setup: &'a FlashSetup,
}

impl<'a> start::TierVisitor<'a> for Written<'a> {
    type Output = Vec<u32>;

    fn visit<F: FlashTier + 'a>(self, tier: F) -> Vec<u32> {
        let count = self.references.pages_count();
        let mut replay = run::Replay::new(self.places, count, self.memory, self.setup, tier);
        for (at, &page) in self.references.pages().iter().enumerate() {
            replay.reference(page, self.references.is_write(at));
        }
        replay.io.written_home
    }
}

#[test]
fn a_sweep_goes_over_home_in_order() {
    for seed in 0..4 {
        let references = random(seed, 2_000, 6_000, 60);
        let places = Places::new(&references);
        // The front is not reached.
        let setup = FlashSetup {
            cleaning: Cleaning { lambda: 0.04, alpha: 4, writes: 2 },
            ..setup(Flash::Design(design("hetero")), 8_000)
        };
        let count = references.pages_count();
        let written = |outstanding| {
            let policy = Some((MemoryRule::Pool(MemoryPolicy::Lru2), 100));
            let memory = Memory { policy, outstanding, ..NO_MEMORY };
            let written =
                Written { references: &references, places: &places, memory, setup: &setup };
            start::with_tier(count, &places, memory, &setup, written)
        };
        let at_once = written(0);
        let sweeps = at_once.chunk_by(|&a, &b| places.of(a) < places.of(b));
        let lengths: Vec<usize> = sweeps.map(<[u32]>::len).collect();
        assert!(lengths.len() > 3, "seed {seed}: {lengths:?}");
        assert!(lengths.iter().all(|&length| length > 320), "seed {seed}: {lengths:?}");
        // Two writes at a time take longer than the trace.
        let queued = written(25);
        assert!(!queued.is_empty() && queued.len() < at_once.len(), "seed {seed}");
    }
}
