//! What the experiments of VLDB 2010, section 4, rest on: OPT as a tier, bands of temperature, and
//! the requests that are kept.

use super::*;
use crate::Ask;

#[test]
fn opt_as_a_tier_misses_as_it_does_alone() {
    for seed in 0..6 {
        let references = random(seed, 300, 5_000, 0);
        let places = Places::new(&references);
        for bypass in [Bypass::Never, Bypass::Allowed] {
            let counts = replay(&references, &places, NO_MEMORY, &setup(Flash::Opt(bypass), 40));
            let alone = Policy::Opt(bypass).misses(&references, 40, 1);
            assert_eq!((counts.misses(), counts.home.reads), (alone, alone), "{bypass:?}");
        }
    }
}

/// With writes, OPT is the best for reads among all that write as it does.
#[test]
fn no_tier_reads_home_less_often_than_opt() {
    let references = random(9, 400, 8_000, 30);
    let places = Places::new(&references);
    let reads = |flash| replay(&references, &places, NO_MEMORY, &setup(flash, 50)).home.reads;
    let best = reads(Flash::Opt(Bypass::Allowed));
    for &row in replacement::REPLACEMENTS {
        assert!(best <= reads(Flash::Policy(row, WriteMode::Update)), "{}", row.name);
    }
    let tac = designs::find("tac").expect("a design");
    assert!(best <= reads(Flash::Opt(Bypass::Never)) && best <= reads(Flash::Design(tac)));
}

#[test]
fn one_band_of_temperature_is_lru() {
    for seed in 0..4 {
        let references = random(seed, 300, 5_000, 0);
        let places = Places::new(&references);
        let tac = Flash::Design(designs::find("tac").expect("a design"));
        let misses = |count| {
            let bands = Some(Bands { count, order: terrace_policy::BandOrder::Lru });
            let tac_write = TacWrite::AtOnce;
            let setup = FlashSetup { bands, tac_write, ..setup(tac, 40) };
            replay(&references, &places, NO_MEMORY, &setup).misses()
        };
        assert_eq!(misses(1), Policy::Online(row("lru")).misses(&references, 40, 1));
        assert_ne!(misses(1), misses(20));
    }
}

#[test]
fn what_is_kept_is_what_was_counted() {
    let references = random(6, 300, 6_000, 30);
    let places = Places::new(&references);
    for flash in all_flashes().into_iter().filter(|flash| flash.name() != "ssd-only") {
        for policy in [None, Some((memory_row("lru"), 20))] {
            let memory = Memory { policy, counted_from: 500, ..NO_MEMORY };
            let (counts, asked) = replay_kept(&references, &places, memory, &setup(flash, 50));
            let of = |is: fn(Ask) -> bool| asked.iter().filter(|&ask| is(ask)).count() as u64;
            let got = [
                of(|ask| matches!(ask, Ask::ReadHome(_))),
                of(|ask| matches!(ask, Ask::WriteHome(_) | Ask::WriteHomeAlong(_))),
                of(|ask| matches!(ask, Ask::ReadFlash | Ask::ReadFlashAlong)),
                of(is_flash_write),
            ];
            let TierCounts { home, flash: on_flash, .. } = counts;
            let expected = [home.reads, home.writes, on_flash.reads, on_flash.writes];
            assert_eq!(got, expected, "{} {policy:?}", flash.name());
        }
    }
}

fn is_flash_write(ask: Ask) -> bool {
    matches!(ask, Ask::WriteFlash | Ask::AppendFlash | Ask::AppendFlashAlong)
}
