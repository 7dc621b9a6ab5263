//! Which pages belong in memory, on flash, in both or in neither, if their requests were known: the
//! static two-tier placement problem (Liu and Salem, IEEE Data Engineering Bulletin, June 2014,
//! section 3).
//!
//! - Idea: a page in memory is not read again, one on flash is read and written there, one in both
//!   is written to flash only. Which pages to place where, so that all requests cost least?
//! - `two_step` chooses for memory first, as if there were no flash, and for flash afterwards: what
//!   two caches do that do not know of each other. `optimal` chooses for both at once.
//! - P1: neither places more pages than a tier holds.
//! - P2: no placement costs less than the optimal one (a test tries them all on small instances).
//! - Cost: pages times places in memory times slots, in time; the same in bytes.

/// What a page is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Reads.
    pub reads: f64,
    /// Writes.
    pub writes: f64,
}

/// What a request costs, in any unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// A read from home.
    pub home_read: f64,
    /// A write to home.
    pub home_write: f64,
    /// A read from flash.
    pub flash_read: f64,
    /// A write to flash.
    pub flash_write: f64,
}

impl Costs {
    /// The paper's: a disk and a solid state drive of 2011, in ms.
    pub const PUBLISHED: Costs =
        Costs { home_read: 12.0, home_write: 12.5, flash_read: 0.16, flash_write: 0.4 };

    /// Whether each is a number above zero.
    #[must_use]
    pub fn are_positive(&self) -> bool {
        let Costs { home_read, home_write, flash_read, flash_write } = *self;
        let costs = [home_read, home_write, flash_read, flash_write];
        costs.iter().all(|cost| cost.is_finite() && *cost > 0.0)
    }

    /// What the requests for a page cost if it is `placed`.
    #[must_use]
    pub fn of(&self, demand: Demand, placed: Placed) -> f64 {
        let write = if placed.on_flash() { self.flash_write } else { self.home_write };
        let read = match (placed.in_memory(), placed.on_flash()) {
            (true, _) => 0.0,
            (false, true) => self.flash_read,
            (false, false) => self.home_read,
        };
        demand.reads * read + demand.writes * write
    }
}

/// Where a page is, beside home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// Nowhere.
    Home,
    /// In memory.
    Memory,
    /// On flash.
    Flash,
    /// In both.
    Both,
}

impl Placed {
    /// All of them.
    pub const ALL: [Placed; 4] = [Placed::Home, Placed::Memory, Placed::Flash, Placed::Both];

    /// Whether it takes a place in memory.
    #[must_use]
    pub fn in_memory(self) -> bool {
        matches!(self, Placed::Memory | Placed::Both)
    }

    /// Whether it takes a slot.
    #[must_use]
    pub fn on_flash(self) -> bool {
        matches!(self, Placed::Flash | Placed::Both)
    }
}

/// Places in the two tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Pages that memory holds.
    pub memory: usize,
    /// Slots on flash.
    pub flash: usize,
}

/// What all requests cost.
#[must_use]
pub fn cost(pages: &[Demand], placed: &[Placed], costs: &Costs) -> f64 {
    pages.iter().zip(placed).map(|(demand, placed)| costs.of(*demand, *placed)).sum()
}

/// Memory first, then flash.
#[must_use]
pub fn two_step(pages: &[Demand], room: Room, costs: &Costs) -> Vec<Placed> {
    let mut placed = vec![Placed::Home; pages.len()];
    let mut fill = |room: usize, from: fn(Placed) -> Placed| {
        let saved = |at: usize, placed: &[Placed]| {
            costs.of(pages[at], placed[at]) - costs.of(pages[at], from(placed[at]))
        };
        let mut order: Vec<usize> = (0..pages.len()).collect();
        order.sort_by(|one, other| saved(*other, &placed).total_cmp(&saved(*one, &placed)));
        order.retain(|at| saved(*at, &placed) > 0.0);
        for at in order.into_iter().take(room) {
            placed[at] = from(placed[at]);
        }
    };
    fill(room.memory, |_| Placed::Memory);
    fill(room.flash, |before| if before.in_memory() { Placed::Both } else { Placed::Flash });
    placed
}

/// The placement that costs least, by dynamic programming over the room that is left; ties go to
/// the placement that takes less.
#[must_use]
pub fn optimal(pages: &[Demand], room: Room, costs: &Costs) -> Vec<Placed> {
    let columns = room.flash + 1;
    let states = (room.memory + 1) * columns;
    // Least cost of the pages so far within each amount of room, and the choices that led there.
    let mut least = vec![0.0; states];
    let mut choices = vec![Placed::Home; states * pages.len()];
    for (demand, choices) in pages.iter().zip(choices.chunks_mut(states)) {
        let price = Placed::ALL.map(|placed| costs.of(*demand, placed));
        // Backwards, since a choice looks at states with less room only.
        for state in (0..states).rev() {
            let (memory, flash) = (state / columns, state % columns);
            let (mut best, mut choice) = (f64::INFINITY, Placed::Home);
            for (placed, price) in Placed::ALL.into_iter().zip(price) {
                let (needs_memory, needs_flash) =
                    (usize::from(placed.in_memory()), usize::from(placed.on_flash()));
                if needs_memory <= memory && needs_flash <= flash {
                    let total = least[state - needs_memory * columns - needs_flash] + price;
                    if total < best {
                        (best, choice) = (total, placed);
                    }
                }
            }
            least[state] = best;
            choices[state] = choice;
        }
    }
    let mut state = states - 1;
    let mut placed = Vec::with_capacity(pages.len());
    for choices in choices.chunks(states).rev() {
        let choice = choices[state];
        state -= usize::from(choice.in_memory()) * columns + usize::from(choice.on_flash());
        placed.push(choice);
    }
    placed.reverse();
    placed
}

/// Pages on a square grid of reads and writes, `side` of each from 1 to `most`: in equal steps, or
/// in equal ratios.
#[must_use]
pub fn grid(side: usize, most: f64, spacing: Spacing) -> Vec<Demand> {
    let step = |at: usize| {
        let share = at as f64 / (side - 1).max(1) as f64;
        match spacing {
            Spacing::Linear => 1.0 + share * (most - 1.0),
            Spacing::Logarithmic => most.powf(share),
        }
    };
    let pages = (0..side * side).map(|at| (at % side, at / side));
    pages.map(|(read, write)| Demand { reads: step(read), writes: step(write) }).collect()
}

/// How the demands of a grid are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// In equal steps.
    Linear,
    /// In equal ratios.
    Logarithmic,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLISHED_ROOM: Room = Room { memory: 150, flash: 200 };

    fn places(placed: &[Placed]) -> Room {
        Room {
            memory: placed.iter().filter(|placed| placed.in_memory()).count(),
            flash: placed.iter().filter(|placed| placed.on_flash()).count(),
        }
    }

    /// Tries all.
    fn cheapest(pages: &[Demand], room: Room, costs: &Costs) -> f64 {
        let mut best = f64::INFINITY;
        for code in 0..4_usize.pow(pages.len() as u32) {
            let placed: Vec<Placed> =
                (0..pages.len()).map(|at| Placed::ALL[code >> (2 * at) & 3]).collect();
            let taken = places(&placed);
            if taken.memory <= room.memory && taken.flash <= room.flash {
                best = best.min(cost(pages, &placed, costs));
            }
        }
        best
    }

    #[test]
    fn no_placement_is_cheaper_than_the_optimal_one() {
        let mut prng = fastrand::Rng::with_seed(1);
        for _ in 0..200 {
            let mut draw = || prng.f64() * 20.0;
            let costs = Costs {
                home_read: 5.0 + draw(),
                home_write: 5.0 + draw(),
                flash_read: draw(),
                flash_write: draw(),
            };
            let pages: Vec<Demand> =
                (0..6).map(|_| Demand { reads: draw(), writes: draw() }).collect();
            let room = Room { memory: prng.usize(..5), flash: prng.usize(..5) };
            let placed = optimal(&pages, room, &costs);
            let taken = places(&placed);
            assert!(taken.memory <= room.memory && taken.flash <= room.flash);
            let off = cost(&pages, &placed, &costs) - cheapest(&pages, room, &costs);
            assert!(off.abs() < 1e-9, "{off}");
            let steps = two_step(&pages, room, &costs);
            let taken = places(&steps);
            assert!(taken.memory <= room.memory && taken.flash <= room.flash);
            assert!(cost(&pages, &steps, &costs) >= cost(&pages, &placed, &costs) - 1e-9);
        }
    }

    /// The paper's example has 900 pages; its optimum has no page in both tiers, and the two steps
    /// put the most written pages of memory on flash as well.
    #[test]
    fn the_published_example_has_no_page_in_both_tiers() {
        let costs = Costs::PUBLISHED;
        for (spacing, most, ratio, overlap) in
            [(Spacing::Logarithmic, 1_000.0, 1.17, 25), (Spacing::Linear, 30.0, 1.04, 0)]
        {
            let pages = grid(30, most, spacing);
            let best = optimal(&pages, PUBLISHED_ROOM, &costs);
            let steps = two_step(&pages, PUBLISHED_ROOM, &costs);
            let both =
                |placed: &[Placed]| placed.iter().filter(|placed| **placed == Placed::Both).count();
            assert_eq!(both(&best), 0, "{spacing:?}");
            assert_eq!(both(&steps), overlap, "{spacing:?}");
            let found = cost(&pages, &steps, &costs) / cost(&pages, &best, &costs);
            assert!((found - ratio).abs() < 0.01, "{spacing:?}: {found}");
        }
    }
}
