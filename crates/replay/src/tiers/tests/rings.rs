//! The rings of FaCE, the rotating tier and HeteroDrive under LRU, against lists of pages.

use super::*;

/// A page on flash: whether it is newer than home, whether it was hit, whether it is a hole.
#[derive(Clone, Copy)]
struct Copied {
    page: u32,
    newer: bool,
    hit: bool,
    hole: bool,
}

/// Memory: the pages that LRU knows, the oldest first, and those that wait for their group, with
/// whether they were used since; which are changed. The ring, oldest first.
struct Lists {
    known: Vec<u32>,
    waiting: Vec<(u32, bool)>,
    dirty: BTreeMap<u32, bool>,
    ring: Vec<Copied>,
    slots: usize,
    known_max: usize,
    group: usize,
    ahead: usize,
    second_chance: bool,
    rotates: bool,
    /// Changed pages alone are written, and swept home when they are more than half of the slots.
    sweeps: bool,
    /// Memory hits, flash hits, pages written to flash, read from home, written home.
    counts: [u64; 5],
}

impl Lists {
    fn new(name: &str, frames: usize, slots: usize) -> Lists {
        let design = designs::find(name).expect("a design");
        let is_group = design.batch() == Some(terrace_policy::Batch::Group);
        let group = if is_group { (frames / 8).min(slots / 8).clamp(1, 64) } else { 1 };
        Lists {
            known: Vec::new(),
            waiting: Vec::new(),
            dirty: BTreeMap::new(),
            ring: Vec::new(),
            slots,
            known_max: frames - (group - 1),
            group,
            ahead: (2 * group).max(32).min(slots / 8).max(group),
            second_chance: name == "face",
            rotates: name == "rotating",
            sweeps: name == "hetero",
            counts: [0; 5],
        }
    }

    fn copy(&mut self, page: u32) -> Option<&mut Copied> {
        self.ring.iter_mut().find(|copy| copy.page == page && !copy.hole)
    }

    fn reference(&mut self, page: u32, write: bool) {
        if let Some(at) = self.known.iter().position(|&known| known == page) {
            self.counts[0] += 1;
            self.known.remove(at);
            self.known.push(page);
        } else if let Some(row) = self.waiting.iter_mut().find(|row| row.0 == page) {
            self.counts[0] += 1;
            row.1 = true;
        } else {
            let found = self.copy(page).map(|copy| copy.hit = true);
            self.counts[if found.is_some() { 1 } else { 3 }] += 1;
            self.dirty.insert(page, false);
            let victim = self.know(page);
            self.write(page, write);
            if victim.is_some_and(|victim| self.waits(victim)) {
                while self.waiting.len() >= self.group {
                    self.append();
                }
            }
            return;
        }
        self.write(page, write);
    }

    fn write(&mut self, page: u32, write: bool) {
        if write {
            self.copy(page).into_iter().for_each(|copy| copy.hole = true);
            self.dirty.insert(page, true);
        }
    }

    /// LRU gets to know `page`; returns the page that leaves for it.
    fn know(&mut self, page: u32) -> Option<u32> {
        self.known.push(page);
        (self.known.len() > self.known_max).then(|| self.known.remove(0))
    }

    /// Whether `page`, which leaves, waits for its group: else it is gone.
    fn waits(&mut self, page: u32) -> bool {
        let is_absent = !self.sweeps && self.copy(page).is_none();
        let waits = self.rotates || self.dirty[&page] || is_absent;
        if waits {
            self.waiting.push((page, false));
        } else {
            self.dirty.remove(&page);
        }
        waits
    }

    /// Those that were used since are known again.
    fn come_back(&mut self) {
        while let Some(at) = self.waiting.iter().position(|row| row.1) {
            let (page, _) = self.waiting.swap_remove(at);
            if let Some(victim) = self.know(page) {
                self.waits(victim);
            }
        }
    }

    fn append(&mut self) {
        self.come_back();
        let free = self.slots - self.ring.len();
        let mut leaving = Vec::new();
        if free < self.ahead + self.waiting.len() {
            let count = self.group.min(self.ring.len());
            leaving.extend(self.ring.drain(..count));
        }
        let mut again: Vec<usize> = (0..leaving.len())
            .filter(|&at| self.second_chance && leaving[at].hit && !leaving[at].hole)
            .collect();
        let room = free.min(self.group).min(leaving.len().saturating_sub(1));
        while again.len() > room {
            again.remove(0);
        }
        let mut rear = Vec::new();
        for (at, copy) in leaving.iter().enumerate().filter(|(_, copy)| !copy.hole) {
            if again.contains(&at) {
                rear.push(Copied { hit: false, ..*copy });
                continue;
            }
            if !copy.newer {
                continue;
            }
            match self.dirty.get_mut(&copy.page) {
                Some(dirty) if self.rotates => *dirty = true,
                _ => self.counts[4] += 1,
            }
        }
        // Second chances get their slots first.
        let taken = self.group.saturating_sub(rear.len()).min(free - rear.len());
        let waiting: Vec<_> = self.waiting.drain(..taken.min(self.waiting.len())).collect();
        self.counts[2] += (rear.len() + waiting.len()) as u64;
        self.ring.append(&mut rear);
        for (page, _) in waiting {
            let dirty = self.dirty.remove(&page).expect("it waits");
            let old = self.copy(page).map(|copy| {
                copy.hole = true;
                copy.newer
            });
            let newer = dirty || old == Some(true);
            self.ring.push(Copied { page, newer, hit: false, hole: false });
        }
        self.sweep();
    }

    fn sweep(&mut self) {
        let is_newer = |copy: &&mut Copied| copy.newer && !copy.hole;
        let newer: Vec<&mut Copied> = self.ring.iter_mut().filter(is_newer).collect();
        if self.sweeps && 2 * newer.len() > self.slots {
            self.counts[4] += newer.len() as u64;
            newer.into_iter().for_each(|copy| copy.newer = false);
        }
    }
}

#[test]
fn rings_agree_with_lists() {
    for name in ["face-base", "face-gr", "face", "rotating", "hetero"] {
        for seed in 0..12 {
            let references = random(seed, 200, 4_000, 30);
            let places = Places::new(&references);
            let at = seed as usize;
            let (frames, slots) = ([8, 17, 40][at % 3], [3, 20, 70, 90][at % 4]);
            let memory = Memory { policy: Some((memory_row("lru"), frames as u32)), ..NO_MEMORY };
            let flash = Flash::Design(designs::find(name).expect("a design"));
            let counts = replay(&references, &places, memory, &setup(flash, slots as u32));
            let mut lists = Lists::new(name, frames, slots);
            for (at, &page) in references.pages().iter().enumerate() {
                lists.reference(page, references.is_write(at));
            }
            let got = [
                counts.memory_hits,
                counts.flash_hits,
                counts.flash.writes,
                counts.home.reads,
                counts.home.writes,
            ];
            assert_eq!(got, lists.counts, "{name}, seed {seed}, {frames} over {slots}");
        }
    }
}
