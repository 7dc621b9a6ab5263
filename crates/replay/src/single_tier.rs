//! One tier: how often each policy misses. A miss is always cached, as demand paging has it, but
//! for TAC and OPT with bypass.

use crate::opt::{Bypass, next_uses, opt};
use crate::tiers::{Bands, Flash, FlashSetup, TacWrite, temperature_misses};
use crate::{Places, References};
use std::hint::black_box;
use terrace_page::PageId;
use terrace_policy::replacement::{
    Forgetting, Key, Look, REPLACEMENTS, Replace, ReplacementRow, Setup, Visitor,
};
use terrace_policy::{BandOrder, UnknownName, designs};

/// Requests whose pages are looked at before they are replayed, so that what the cache of the
/// processor misses of them, it misses at once.
pub(crate) const AHEAD_REQUESTS: usize = 32;

/// TAC's bands unless others are asked for: 50 to 100 are "a good choice" [S4 3.3].
pub const BANDS: Bands = Bands { count: 64, order: BandOrder::Lru };

/// What chooses the page that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// A policy that knows the past.
    Online(ReplacementRow),
    /// TAC, with the temperatures of extents; a page may stay out.
    Temperature,
    /// TAC with bands of temperature, [`BANDS`] unless a flash tier has others.
    TemperatureBands,
    /// OPT, which knows the future.
    Opt(Bypass),
}

impl Policy {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Policy::Online(row) => row.name,
            Policy::Temperature => "tac",
            Policy::TemperatureBands => "tac-bands",
            Policy::Opt(Bypass::Never) => "opt",
            Policy::Opt(Bypass::Allowed) => "opt-bypass",
        }
    }

    /// All of them.
    #[must_use]
    pub fn all() -> Vec<Policy> {
        let online = REPLACEMENTS.iter().copied().map(Policy::Online);
        let opt = [Bypass::Never, Bypass::Allowed].map(Policy::Opt);
        online.chain([Policy::Temperature, Policy::TemperatureBands]).chain(opt).collect()
    }

    /// The policy called `name`.
    ///
    /// # Errors
    ///
    /// An unknown name; the message lists the known.
    pub fn find(name: &str) -> Result<Policy, UnknownName> {
        let all = Policy::all();
        let found = all.iter().find(|policy| policy.name() == name).copied();
        found.ok_or_else(|| UnknownName {
            what: "policy",
            name: name.into(),
            known: all.iter().map(|policy| policy.name()).collect(),
        })
    }

    /// Misses of a cache of `capacity` pages. All chance follows from `seed`.
    ///
    /// # Panics
    ///
    /// If the capacity is zero.
    #[must_use]
    pub fn misses(self, references: &References, capacity: u32, seed: u64) -> u64 {
        let (pages, pages_count) = (references.pages(), references.pages_count());
        match self {
            Policy::Online(row) => online(pages, pages_count, row, capacity, seed),
            Policy::Temperature | Policy::TemperatureBands => {
                let tac = designs::find("tac").expect("a row of the table");
                let bands = (self == Policy::TemperatureBands).then_some(BANDS);
                let setup = FlashSetup::new(Flash::Design(tac), capacity, seed);
                let setup = FlashSetup { tac_write: TacWrite::AtOnce, bands, ..setup };
                temperature_misses(references, &Places::new(references), &setup)
            }
            Policy::Opt(bypass) => opt(&next_uses(pages, pages_count), capacity, bypass, |_| {}),
        }
    }
}

/// Misses of an online policy over `pages`, which are below `pages_count`.
#[must_use]
pub fn online(
    pages: &[u32],
    pages_count: u32,
    row: ReplacementRow,
    capacity: u32,
    seed: u64,
) -> u64 {
    let setup = Setup { capacity, keys_count: pages_count, forgetting: Forgetting::Silent, seed };
    row.visit(setup, Run { pages })
}

struct Run<'a> {
    pages: &'a [u32],
}

impl Visitor for Run<'_> {
    type Output = u64;

    fn visit<P: Replace + Look>(self, mut policy: P) -> u64 {
        let mut misses = 0;
        for batch in self.pages.chunks(AHEAD_REQUESTS) {
            // The sum is of no use, but the loads are.
            black_box(batch.iter().filter(|&&page| policy.is_cached(Key(page))).count());
            for &page in batch {
                if policy.hit(Key(page)) {
                    continue;
                }
                misses += 1;
                let left = policy.insert(Key(page), PageId(u64::from(page)), |_| true);
                debug_assert!(left.is_ok(), "any page may leave");
            }
        }
        misses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_found_by_name() {
        for policy in Policy::all() {
            assert_eq!(Policy::find(policy.name()), Ok(policy));
        }
        let unknown = Policy::find("mru").unwrap_err().to_string();
        assert!(unknown.starts_with("unknown policy `mru`; known: lru, fifo,"), "{unknown}");
        assert!(unknown.ends_with("lecar, tac, tac-bands, opt, opt-bypass"), "{unknown}");
    }

    #[test]
    fn no_policy_misses_less_than_opt_nor_opt_less_than_with_bypass() {
        for seed in 0..30 {
            let mut prng = fastrand::Rng::with_seed(seed);
            let ids = prng.u64(5..80);
            let requests: Vec<u64> =
                (0..2_000).map(|_| prng.u64(..ids).min(prng.u64(..ids))).collect();
            let references = References::of_reads(requests);
            let capacity = prng.u32(1..=references.pages_count());
            let misses = |policy: Policy| policy.misses(&references, capacity, seed);
            let (best, bypass) = (Policy::Opt(Bypass::Never), Policy::Opt(Bypass::Allowed));
            assert!(misses(bypass) <= misses(best));
            for policy in Policy::all() {
                let got = misses(policy);
                assert!(got >= misses(bypass), "{}: seed {seed}", policy.name());
                let may_bypass = matches!(policy, Policy::Temperature | Policy::Opt(_));
                assert!(may_bypass || got >= misses(best), "{}: {seed}", policy.name());
                if capacity == references.pages_count() {
                    assert_eq!(got, u64::from(capacity), "{}", policy.name());
                }
            }
        }
    }
}
