//! What one torture does, drawn from its seed.

use terrace_policy::replacement::REPLACEMENTS;
use terrace_policy::{
    AdmissionRule, Asked, DESIGNS, Design, FlashRole, LAYOUTS, RESTARTS, Restart, find_replacement,
};
use terrace_pool::Mutations;
use terrace_rt::{Nanos, Prng};

use super::mishaps::Mishaps;

/// Ordinary tables beside that of the markers.
pub const TABLES: u8 = 3;

/// The bound on age that one seed in three has: less than a round's log.
const CLEAN_AGE: u64 = 64 << 10;

/// Names of the restart methods that the matrix has, and a calm seed; others when they are asked
/// for.
pub const OPEN_RESTARTS: &[&str] = &["forget", "mmr", "lbr", "lvr", "warm"];

/// The restarts that `design` can be opened with.
pub(super) fn open_restarts(design: &Design, role: FlashRole) -> Vec<Restart> {
    let mut restarts = all_restarts(design, role);
    restarts.retain(|restart| OPEN_RESTARTS.contains(&restart.name));
    restarts
}

/// All that go with `design`.
fn all_restarts(design: &Design, role: FlashRole) -> Vec<Restart> {
    let can_be = |restart: &Restart| {
        restart.refusal(design).is_none() && role.refusal(design, restart).is_none()
    };
    RESTARTS.into_iter().filter(can_be).collect()
}

/// Those of the matrix, or `asked` alone, if it can go with `design`.
pub(super) fn restarts_of(
    design: &Design,
    asked: Option<Restart>,
    role: FlashRole,
) -> Vec<Restart> {
    match asked {
        Some(asked) => {
            all_restarts(design, role).into_iter().filter(|one| one.name == asked.name).collect()
        }
        None => open_restarts(design, role),
    }
}

/// The designs whose flash can have this role for their database.
fn open_designs(role: FlashRole) -> Vec<Design> {
    DESIGNS.into_iter().filter(|design| !open_restarts(design, role).is_empty()).collect()
}

/// What a test fixes of a scenario; the seed decides the rest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fixed {
    /// The design.
    pub design: Option<Design>,
    /// The restart; a design that cannot have it gets another.
    pub restart: Option<Restart>,
    /// What flash is to the database.
    pub flash_role: FlashRole,
    /// Faults that tests put in force.
    pub mutations: Mutations,
    /// One in this number of requests stalls.
    pub stall_one_in: Option<u64>,
    /// Share of the flash that may be dirty.
    pub lambda: Option<f64>,
    /// Bytes of log after which changes are brought home.
    pub clean_age: Option<u64>,
    /// Nothing goes wrong but the power: what is looked for is not to hide behind other failures.
    pub is_calm: bool,
}

/// How a round is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutPlan {
    /// The power is cut after this number of events, if the round lasts that long.
    AtEvent(u64),
    /// The power stays; the database is closed.
    Close,
}

/// What happens to the flash device while the power is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashFate {
    /// It keeps what the fault model leaves.
    Kept,
    /// It comes back blank.
    Wiped,
    /// It comes back as it was at an earlier restart.
    Old,
}

/// One torture.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The design under torture.
    pub design: Design,
    /// How its flash is found again.
    pub restart: Restart,
    /// What flash is to the database.
    pub flash_role: FlashRole,
    /// Faults in force.
    pub mutations: Mutations,
    /// Pages in memory, fewer than the database has.
    pub frames: u32,
    /// Pages of the flash device: slots, and what a restart method keeps beside them.
    pub flash_slots: u32,
    /// Share of them that may be dirty.
    pub lambda: f64,
    /// Bytes of log after which changes are brought home.
    pub clean_age: Option<u64>,
    /// Partitions of the pool.
    pub partitions: u32,
    /// Tasks that run transactions.
    pub clients: u32,
    /// Transactions of each client in a round.
    pub transactions: u32,
    /// Keys of each table.
    pub keys: u32,
    /// Restarts, at most.
    pub rounds: u32,
    /// Tasks switch at one in this number of latch acquisitions.
    pub switch_one_in: u32,
    /// Time between two checkpoints of the engine's own.
    pub checkpoint_every: Nanos,
    /// Pages in a BUF_WRITE record.
    pub buf_write_pages: u32,
    /// Pages that are appended together, and those of a block.
    pub append_group: u32,
    /// The design that picks itself picks something else after this number of misses.
    pub forced_choice_misses: u64,
    /// Page requests in a window of FASC.
    pub window_requests: u64,
    /// One in this number of requests stalls, so that others overtake it; zero is none.
    pub stall_one_in: u64,
    /// A checkpoint is requested after one transaction in this number, at random; zero is never.
    pub checkpoint_one_in: u32,
    /// Home writes pages atomically, without a doublewrite area.
    pub writes_pages_atomically: bool,
    /// What goes wrong beside power cuts.
    pub mishaps: Mishaps,
}

/// Half of the time `design` with other answers, if they go together with it and with the rest.
fn varied(design: Design, restart: &Restart, role: FlashRole, number: u32) -> Design {
    if number.is_multiple_of(2) {
        return design;
    }
    let (rest, all) = (number / 2, Some(AdmissionRule::All));
    let replacement = |name| Some(find_replacement(name).expect("a row's own name"));
    let asked = match REPLACEMENTS.get(rest as usize % (REPLACEMENTS.len() + 1)) {
        _ if rest % 4 == 3 => {
            let layout = Some(LAYOUTS[rest as usize / 4 % LAYOUTS.len()].1);
            let order = ["fifo", "clock"][rest as usize / 16 % 2];
            Asked { admission: all, replacement: replacement(order), layout }
        }
        Some(row) => {
            let tiny = Some(AdmissionRule::Frequency).filter(|_| number % 4 == 3);
            Asked { admission: tiny.or(all), replacement: replacement(row.name), layout: None }
        }
        None => Asked { admission: Some(AdmissionRule::Frequency), ..Asked::default() },
    };
    let other = design
        .combined(asked)
        .or_else(|_| design.combined(Asked { admission: all, ..asked }))
        .unwrap_or(design);
    let refusal = restart.refusal(&other).or_else(|| role.refusal(&other, restart));
    if refusal.is_none() { other } else { design }
}

impl Scenario {
    /// The scenario of `seed`, whose draws are those of `prng`, with what is `fixed`.
    pub fn draw(seed: u64, prng: &mut Prng, fixed: Fixed) -> Scenario {
        let designs = open_designs(fixed.flash_role);
        let any = designs[prng.below(designs.len() as u64) as usize];
        let design = fixed.design.unwrap_or(any);
        let restarts = match fixed.is_calm {
            true => open_restarts(&design, fixed.flash_role),
            false => all_restarts(&design, fixed.flash_role),
        };
        let any = restarts[prng.below(restarts.len() as u64) as usize];
        let asked = restarts_of(&design, fixed.restart, fixed.flash_role);
        let fixed_restart = fixed.restart.and_then(|_| asked.first().copied());
        let drawn = Scenario {
            design,
            restart: fixed_restart.unwrap_or(any),
            flash_role: fixed.flash_role,
            mutations: fixed.mutations,
            frames: 64 + prng.below(32) as u32,
            flash_slots: 88 + prng.below(120) as u32,
            clean_age: None,
            lambda: [0.1, 0.5, 0.9][prng.below(3) as usize],
            partitions: 1 << prng.below(3),
            clients: 2 + prng.below(6) as u32,
            transactions: 20 + prng.below(60) as u32,
            keys: 500 + prng.below(500) as u32,
            rounds: 3 + prng.below(4) as u32,
            switch_one_in: [0, 3, 20, 100][prng.below(4) as usize],
            checkpoint_every: Nanos::from_millis([2, 20, 200][prng.below(3) as usize]),
            append_group: 64,
            forced_choice_misses: 1,
            window_requests: 4096,
            buf_write_pages: 1 << prng.below(6),
            stall_one_in: [0, 8, 40][prng.below(3) as usize],
            checkpoint_one_in: [0, 10, 40][prng.below(3) as usize],
            writes_pages_atomically: false,
            mishaps: if fixed.is_calm { Mishaps::NONE } else { Mishaps::draw(seed) },
        };
        Scenario {
            // Not a draw of its own, so that a seed goes on being the torture that it was.
            append_group: [1, 3, 64][drawn.frames as usize % 3],
            writes_pages_atomically: drawn.keys % 4 == 1,
            forced_choice_misses: [3, 20, 150][drawn.keys as usize % 3],
            window_requests: [2, 64, 4096][drawn.keys as usize / 2 % 3],
            clean_age: fixed.clean_age.or(drawn.keys.is_multiple_of(3).then_some(CLEAN_AGE)),
            design: varied(design, &drawn.restart, drawn.flash_role, drawn.keys),
            stall_one_in: fixed.stall_one_in.unwrap_or(drawn.stall_one_in),
            lambda: fixed.lambda.unwrap_or(drawn.lambda),
            ..drawn
        }
    }

    /// Whether a round may have a design that uses flash.
    pub fn may_use_flash(&self) -> bool {
        self.design.uses_flash() || self.mishaps.other_options_one_in > 0
    }

    /// Has the next round open the database with other options, by chance, if flash is a cache.
    pub fn change_options(&mut self, fixed: Fixed, prng: &mut Prng) {
        let may_change = !self.flash_role.is_persistent() && fixed.design.is_none();
        if !may_change || !prng.chance(self.mishaps.other_options_one_in) {
            return;
        }
        let design = DESIGNS[prng.below(DESIGNS.len() as u64) as usize];
        let restarts = all_restarts(&design, self.flash_role);
        let any = restarts[prng.below(restarts.len() as u64) as usize];
        let asked = fixed.restart.filter(|one| one.refusal(&design).is_none());
        self.restart = asked.unwrap_or(any);
        self.design = varied(design, &self.restart, self.flash_role, prng.below(500) as u32);
        self.writes_pages_atomically ^= self.frames.is_multiple_of(3);
        if prng.chance(2) {
            self.frames = 64 + prng.below(64) as u32;
            self.partitions = 1 << prng.below(3);
        }
    }

    /// When the power of a round is cut. `opening` and `running` are the events that opening the
    /// database and a whole round took before, zero if not known.
    pub fn cut(&self, prng: &mut Prng, opening: u64, running: u64) -> CutPlan {
        let transactions = u64::from(self.clients) * u64::from(self.transactions);
        let whole = if running == 0 { opening + transactions * 40 } else { running };
        match prng.below(10) {
            0 => CutPlan::Close,
            1..=3 => CutPlan::AtEvent(1 + prng.below(opening.max(40))),
            _ => CutPlan::AtEvent(1 + opening + prng.below(whole.saturating_sub(opening).max(40))),
        }
    }

    /// What happens to the flash while the power is off.
    pub fn flash_fate(&self, prng: &mut Prng) -> FlashFate {
        match prng.below(8) {
            0 | 1 => FlashFate::Wiped,
            2 => FlashFate::Old,
            _ => FlashFate::Kept,
        }
    }
}
