//! Which design of which size to take, or that the trace does not tell.
//!
//! - H1: nothing is taken that serves under 1% of memory's misses, or whose gain may be below 1.05;
//!   or that wears its drive out too soon; or whose design is not [`is_held`] against the engine;
//!   or whose hits one record does not tell, as a faster tier would change the order
//!   ([`keeps_order`]).
//!   Nothing at all is taken of a load that [`reads_ahead`].
//! - H2: of what is left, the knee: the smallest size that gives nearly all that any would give.
//!   Gains above `GAIN_TOLD_MAX` are alike.
//! - H3: of designs that do about as well at that size, the one that writes least to flash.
//! - H4: if nothing is left, the reason is told: nothing is gained, the drive wears out, the order
//!   would change, or the trace is too short, and then how long one would have to be.

use super::estimate::{Estimate, GAIN_TOLD_MAX, Half, Stage};

/// This share of the best gain is nearly all.
const NEARLY_ALL: f64 = 0.95;
/// And this share is all.
const ALL: f64 = 0.99;
/// Designs so close do about as well.
const AS_WELL: f64 = 0.98;
/// Less is nothing.
pub const GAIN_MIN: f64 = 1.05;
/// A tier that serves less of memory's misses is of no use, whatever the gain comes from.
pub const HITS_MIN: f64 = 0.01;
/// Misses of pages that were used before, below which a trace tells nothing: of a share of half of
/// them the error is then 3 points.
pub const MISSES_MIN: u64 = 1_000;
/// A gain that a longer trace might show is looked for if it reaches this.
const MAYBE_MIN: f64 = 1.2;

/// Designs of which, at twice the size, the gain was off by more than a tenth on a trace of the
/// engine's own under transactions, or the hits by more than 2 points on the brokerage load:
/// `docs/ADVICE.md` says by how much, and of which others the hits were off on TPC-C. They are
/// shown and not advised.
pub const NOT_HELD: [&str; 4] = ["auto", "cac", "exclusive", "fasc"];

/// Whether what is predicted of a design was found to be what the engine does.
pub fn is_held(design: &str) -> bool {
    !NOT_HELD.contains(&design)
}

/// Above this share of pages that are read ahead of need, no design is advised. Predictions were
/// off by up to two fifths on loads with shares of 12% and more; the others that were held against
/// the engine had .1% at most. Nothing lies between, so the limit is a choice.
const AHEAD_MAX: f64 = 0.05;

/// Whether so large a share of the pages that memory lacks is read ahead that predictions are not
/// held against the engine.
pub fn reads_ahead(share: f64) -> bool {
    share > AHEAD_MAX
}

/// Above this share of misses that follow a change of the page, the order of a record counts.
const AFTER_CHANGE_MAX: f64 = 0.25;
/// References of each client while tiers are turned over, below which one transaction that is done
/// sooner moves much of what is found there. The longest transactions of TPC-C, which read what
/// others have just changed, make some hundred.
const TURNOVER_MIN: f64 = 2_000.0;

/// Whether the hits of a tier can be told from the order of one record. A page that is read after
/// another client has changed it is read so much later as the reader was behind: a faster tier lets
/// the reader come sooner, after fewer references of others. That matters if many of memory's
/// misses are of this kind (`after_change`), and if each client makes few references (`turnover`)
/// until the tier has other pages: then the reader's own wait is much of that time.
pub fn keeps_order(after_change: f64, turnover: Option<f64>) -> bool {
    after_change <= AFTER_CHANGE_MAX || turnover.is_none_or(|each| each >= TURNOVER_MIN)
}

/// What is known of the load, as far as a choice needs it.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// Counted misses of memory, of pages that were used before.
    pub misses: u64,
    /// Share of the pages that memory lacks which are read ahead.
    pub ahead: f64,
}

/// What is known of a design of a size, as far as a choice needs it.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    pub design: &'static str,
    pub slots: u32,
    /// Whether it is a tier. A home that is on flash is what a tier comes up to at best; whether to
    /// have one is not a matter of caching.
    pub is_tier: bool,
    pub hits: f64,
    pub gain: f64,
    /// The least and the most that the gain may be.
    pub range: [f64; 2],
    pub lasts: bool,
    /// Whether its hits can be told from the order of one record.
    pub keeps_order: bool,
    pub flash_writes: f64,
    /// Whether it is from all that is replayed.
    pub is_full: bool,
}

impl Candidate {
    /// What the first half of the trace alone would have told.
    pub fn learnt(one: &Estimate, lifetime_years: f64) -> Option<Candidate> {
        let [learnt, _] = one.halves?;
        let Half { gain, hits } = learnt;
        let all = Candidate::of(one, lifetime_years);
        Some(Candidate { gain, hits, range: [gain, gain], ..all })
    }

    /// What was estimated.
    pub fn of(one: &Estimate, lifetime_years: f64) -> Candidate {
        Candidate {
            design: one.design.name,
            slots: one.slots,
            is_tier: one.design.uses_flash(),
            hits: one.hit_ratio.mean,
            gain: one.gain.mean,
            range: one.gain_range,
            lasts: one.lasts(lifetime_years),
            keeps_order: one.keeps_order,
            flash_writes: one.rates.flash.writes,
            is_full: one.stage == Stage::Full,
        }
    }

    fn told_gain(&self) -> f64 {
        self.gain.min(GAIN_TOLD_MAX)
    }

    fn is_of_use(&self) -> bool {
        self.would_be_of_use() && self.keeps_order
    }

    /// The same, if a faster tier left the references in their order.
    fn would_be_of_use(&self) -> bool {
        self.hits >= HITS_MIN && self.gain >= GAIN_MIN && is_held(self.design)
    }

    fn is_sure(&self) -> bool {
        self.range[0] >= GAIN_MIN
    }
}

/// Why a design is taken, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is.
    Take,
    /// Nothing is gained.
    NoFlash,
    /// What would be gained wears the drive out.
    WearsOut,
    /// The trace is too short.
    TooShort,
    /// Scans read too much ahead.
    ReadsAhead,
    /// A faster tier would change the order of the references.
    OrderChanges,
}

/// What is advised: places in the list of candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub verdict: Verdict,
    /// The design at its knee; none if no flash is worth it.
    pub taken: Option<usize>,
    /// The size of the same design beyond which there is nothing more to gain.
    pub enough: Option<usize>,
    /// The best gain of all, whatever wears out.
    pub best: usize,
    /// What gains more than what is taken, and was left out because the drive would not last.
    pub worn: Option<usize>,
    /// If the trace is too short: what a longer one might show to be worth taking.
    pub open: Option<usize>,
    /// What gains most of what would be of use if the references kept their order, and do not.
    pub reordered: Option<usize>,
}

/// What is advised of `estimates`, and what the first half of the trace alone would have advised.
pub fn choices(
    estimates: &[Estimate],
    lifetime_years: f64,
    counted: Counted,
) -> (Choice, Option<Choice>) {
    let all = estimates.iter().map(|one| Candidate::of(one, lifetime_years));
    let learnt = estimates.iter().map(|one| Candidate::learnt(one, lifetime_years));
    let learnt: Option<Vec<Candidate>> = learnt.collect();
    let chosen = choose(&all.collect::<Vec<_>>(), counted);
    (chosen, learnt.map(|learnt| choose(&learnt, counted)))
}

/// Chooses from `all`, sizes ascending within each design.
fn choose(all: &[Candidate], counted: Counted) -> Choice {
    let is_ahead = reads_ahead(counted.ahead);
    let gain = |at: usize| all[at].told_gain();
    let by_gain = |&a: &usize, &b: &usize| gain(a).total_cmp(&gain(b)).then(b.cmp(&a));
    let has_tier = all.iter().any(|one| one.is_tier);
    let tiers: Vec<usize> =
        (0..all.len()).filter(|&at| all[at].is_full && all[at].is_tier == has_tier).collect();
    let best_of = |may: &dyn Fn(&Candidate) -> bool| {
        tiers.iter().copied().filter(|&at| may(&all[at])).max_by(by_gain)
    };
    let best = best_of(&|one| is_held(one.design) && one.hits >= HITS_MIN)
        .or_else(|| best_of(&|one| is_held(one.design)))
        .or_else(|| best_of(&|_| true))
        .expect("a design and a size");
    let useful = || tiers.iter().copied().filter(|&at| all[at].is_of_use());
    let lasting: Vec<usize> = useful().filter(|&at| all[at].is_sure() && all[at].lasts).collect();
    let top = lasting
        .iter()
        .copied()
        .max_by(by_gain)
        .filter(|_| counted.misses >= MISSES_MIN && !is_ahead);
    let taken = top.map(|top| knee_of(all, &lasting, gain(top)));
    let more = taken.map_or(0.0, gain);
    // What would wear out is left out early, so that small samples may be all that tells of it.
    let worn =
        (0..all.len()).filter(|&at| all[at].is_tier == has_tier && all[at].would_be_of_use());
    let worn = worn.filter(|&at| !all[at].lasts && NEARLY_ALL * gain(at) > more);
    let worn = worn.max_by(by_gain);
    let enough = taken.and_then(|taken| {
        let same = || tiers.iter().copied().filter(|&at| all[at].design == all[taken].design);
        let most = same().map(gain).fold(0.0, f64::max);
        same().find(|&at| gain(at) >= ALL * most).filter(|&at| at >= taken)
    });
    // What a longer trace might show to be worth taking.
    let maybe = |at: usize| {
        let one = &all[at];
        let is_open = one.is_of_use() || one.range[1] >= MAYBE_MIN;
        is_open && one.lasts && one.keeps_order && is_held(one.design)
    };
    let open = || tiers.iter().copied().filter(|&at| maybe(at));
    let smallest = || open().min_by_key(|&at| all[at].slots);
    let open = open().filter(|&at| all[at].is_of_use()).max_by(by_gain).or_else(smallest);
    // One that wears out is none, whatever the order.
    let reordered = tiers.iter().copied().filter(|&at| !all[at].keeps_order && all[at].lasts);
    let reordered = reordered.filter(|&at| all[at].would_be_of_use()).max_by(by_gain);
    let verdict = match (taken, worn, open) {
        (Some(_), ..) => Verdict::Take,
        _ if is_ahead => Verdict::ReadsAhead,
        _ if reordered.is_some() => Verdict::OrderChanges,
        (None, Some(_), _) if lasting.is_empty() => Verdict::WearsOut,
        (.., Some(_)) => Verdict::TooShort,
        _ => Verdict::NoFlash,
    };
    Choice { verdict, taken, enough, best, worn, open, reordered }
}

/// The smallest size of `lasting` that gives nearly the gain `top`, under the design that writes
/// least of those that do about as well there.
fn knee_of(all: &[Candidate], lasting: &[usize], top: f64) -> usize {
    let gain = |at: usize| all[at].told_gain();
    let near = || lasting.iter().copied().filter(|&at| gain(at) >= NEARLY_ALL * top);
    let slots = near().map(|at| all[at].slots).min().expect("the top is near");
    let here = || near().filter(|&at| all[at].slots == slots);
    let most = here().map(gain).fold(0.0, f64::max);
    let as_good = here().filter(|&at| gain(at) >= AS_WELL * most);
    let writes = |at: usize| all[at].flash_writes;
    as_good.min_by(|&a, &b| writes(a).total_cmp(&writes(b))).expect("the best of them")
}

/// The smallest of some sizes that gives nearly the best of their gains.
pub fn knee(sizes: impl Iterator<Item = (u32, f64)> + Clone) -> Option<u32> {
    let best = sizes.clone().map(|(_, gain)| gain).fold(0.0, f64::max);
    sizes.filter(|&(_, gain)| gain >= NEARLY_ALL * best).map(|(slots, _)| slots).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: Counted = Counted { misses: 1_000_000, ahead: 0.02 };

    fn candidate(design: &'static str, slots: u32, gain: f64, flash_writes: f64) -> Candidate {
        Candidate {
            design,
            slots,
            is_tier: true,
            hits: 0.5,
            gain,
            range: [gain, gain],
            lasts: true,
            keeps_order: true,
            flash_writes,
            is_full: true,
        }
    }

    #[test]
    fn the_knee_is_taken_under_the_design_that_writes_less() {
        let all = [
            candidate("dw", 10, 2.0, 1.0),
            candidate("dw", 20, 3.95, 1.0),
            candidate("dw", 40, 4.0, 1.0),
            candidate("dw", 80, 4.0, 1.0),
            candidate("lc", 20, 4.0, 2.0),
            candidate("lc", 40, 4.05, 2.0),
        ];
        let choice = choose(&all, MANY);
        assert_eq!((choice.taken, choice.enough, choice.best), (Some(1), Some(2), 5));
        assert_eq!((choice.verdict, choice.worn), (Verdict::Take, None));
    }

    #[test]
    fn what_wears_the_drive_out_is_left_out_and_told() {
        let worn = Candidate { lasts: false, ..candidate("lc", 10, 4.0, 1.0) };
        let all = [candidate("dw", 10, 2.0, 1.0), worn];
        let choice = choose(&all, MANY);
        assert_eq!((choice.taken, choice.best, choice.worn), (Some(0), 1, Some(1)));
        let choice = choose(&all[1..], MANY);
        assert_eq!((choice.taken, choice.verdict), (None, Verdict::WearsOut));
    }

    /// The knee of a best gain of 1.06 was a size with 1.01, which was advised as "1.0 times as
    /// fast".
    #[test]
    fn a_knee_below_the_least_gain_is_not_taken() {
        let all = [candidate("dw", 10, 1.01, 1.0), candidate("dw", 20, 1.06, 1.0)];
        assert_eq!(choose(&all, MANY).taken, Some(1));
        assert_eq!(choose(&all[..1], MANY).verdict, Verdict::NoFlash);
    }

    /// The gain of a design that brings a better memory policy was credited to a tier that served
    /// .2% of the misses.
    #[test]
    fn a_tier_that_serves_nothing_is_not_taken() {
        let idle = Candidate { hits: 0.002, ..candidate("cc", 1, 1.9, 1.0) };
        let choice = choose(&[idle], MANY);
        assert_eq!(choice.taken, None);
        // Nor is it the best of what is not taken.
        let choice = choose(&[idle, candidate("dw", 1, 1.02, 1.0)], MANY);
        assert_eq!((choice.taken, choice.best), (None, 1));
    }

    /// Gains of 156 and 217 times, of a home with nothing left to do, decided on the size.
    #[test]
    fn gains_of_an_idle_home_are_alike() {
        let all = [candidate("dw", 10, 20.0, 1.0), candidate("dw", 20, 217.0, 1.0)];
        let choice = choose(&all, MANY);
        assert_eq!((choice.taken, choice.enough), (Some(0), Some(0)));
    }

    #[test]
    fn a_trace_that_does_not_tell_is_too_short() {
        let unsure = Candidate { range: [0.9, 1.5], ..candidate("lc", 10, 1.2, 1.0) };
        assert_eq!(choose(&[unsure], MANY).verdict, Verdict::TooShort);
        let sure = candidate("lc", 10, 1.2, 1.0);
        let few = Counted { misses: MISSES_MIN - 1, ..MANY };
        assert_eq!(choose(&[sure], few).verdict, Verdict::TooShort);
        let enough = Counted { misses: MISSES_MIN, ..MANY };
        assert_eq!(choose(&[sure], enough).verdict, Verdict::Take);
        // It never filled the tier: a longer one might find more there.
        let open = Candidate { range: [1.0, 2.0], hits: 0.0, ..candidate("lc", 10, 1.0, 1.0) };
        assert_eq!(choose(&[open], MANY).verdict, Verdict::TooShort);
    }

    /// Of a star schema whose scans read 12% ahead, gains were off by up to 41%, and advised.
    #[test]
    fn a_load_that_reads_ahead_is_told_nothing() {
        let all = [candidate("lc", 10, 2.0, 1.0)];
        let choice = choose(&all, Counted { ahead: 0.12, ..MANY });
        assert_eq!((choice.taken, choice.verdict), (None, Verdict::ReadsAhead));
    }

    /// Of one warehouse and 50 clients, hits that were advised were 2 to 7 points too low: with the
    /// larger tier, readers came sooner after those who had changed their pages.
    #[test]
    fn hits_that_hang_on_the_order_are_not_told() {
        assert!(!keeps_order(0.42, Some(630.0)));
        assert!(keeps_order(0.10, Some(681.0)), "few misses follow a change");
        assert!(keeps_order(0.43, Some(3_718.0)), "clients do much until the tier has other pages");
        assert!(keeps_order(0.43, None), "the tier has all that is used");
        let moved = Candidate { keeps_order: false, ..candidate("lc", 10, 1.7, 1.0) };
        let choice = choose(&[moved], MANY);
        let expected = (None, Verdict::OrderChanges, Some(0));
        assert_eq!((choice.taken, choice.verdict, choice.reordered), expected);
        // A larger one, in which pages stay for longer, is told.
        let choice = choose(&[moved, candidate("lc", 40, 1.9, 1.0)], MANY);
        assert_eq!((choice.taken, choice.verdict), (Some(1), Verdict::Take));
        // What gains nothing needs no reason of this kind.
        let idle = Candidate { gain: 1.01, range: [1.01, 1.01], ..moved };
        assert_eq!(choose(&[idle], MANY).verdict, Verdict::NoFlash);
    }

    #[test]
    fn a_design_that_is_not_held_against_the_engine_is_not_taken() {
        let all = [candidate("fasc", 10, 4.0, 1.0), candidate("lc", 10, 1.5, 1.0)];
        let choice = choose(&all, MANY);
        assert_eq!((choice.taken, choice.best), (Some(1), 1));
        assert_eq!(choose(&all[..1], MANY).taken, None);
    }
}
