//! Queries of TPC-H as a whole, small, in the virtual world: every design gives the right answers,
//! a wrong one is seen, and the same seed gives the same run.

use std::collections::BTreeMap;
use terrace_policy::{Design, designs};
use terrace_rt::Nanos;
use terrace_trace::tpch::{QueryName, TpchWorkload};
use terrace_workload::tpch::{Config, Loaded, TpchResult, load, run};
use terrace_workload::{Consistency, Place, System};

const ODS: TpchWorkload = TpchWorkload::Ods { narrowest: 20, widest: 4_000 };
const DATES: TpchWorkload = TpchWorkload::Dates(0.7);

/// Some 1,500 pages.
fn config(workload: TpchWorkload, seed: u64) -> Config {
    Config::new(workload, 0.01, 40, seed).expect("options that make sense")
}

fn system() -> System {
    System {
        place: Place::Virtual {
            home: "vldb2010-hdd".into(),
            flash: "vldb2010-ssd".into(),
            log: "sigmod2011-log".into(),
        },
        memory_pages: 64,
        flash_pages: 128,
        log_bytes: 64 << 20,
        ..System::default()
    }
}

fn loaded(workload: TpchWorkload, seed: u64) -> Loaded {
    load(&config(workload, seed), &system(), &mut |_, _| {}).expect("loads")
}

fn design(name: &str) -> Design {
    designs::find(name).expect("known")
}

fn ran(loaded: &Loaded, name: &str) -> TpchResult {
    run(loaded, &system(), design(name), &mut |_, _| {}).expect("runs")
}

#[test]
fn designs_answer_as_the_rows_say() {
    for workload in [ODS, DATES] {
        let loaded = loaded(workload, 7);
        for name in ["no-ssd", "tac", "lc", "exclusive", "auto"] {
            let result = ran(&loaded, name);
            assert_eq!(result.consistency, Consistency::Ok, "{name}");
            assert_eq!(result.queries.len(), 40);
            let elapsed: Nanos = result.queries.iter().map(|query| query.elapsed).sum();
            assert_eq!(elapsed, result.elapsed(), "one after the other");
            let mut answered = BTreeMap::<QueryName, u64>::new();
            for query in &result.queries {
                assert!(query.rows_read >= query.rows_answered && query.references > 0);
                assert!(query.misses <= query.references);
                *answered.entry(query.query.name).or_default() += query.rows_answered;
            }
            assert!(answered.len() >= 4, "{answered:?}");
            assert!(answered.values().all(|&rows| rows > 0), "no answer is empty: {answered:?}");
        }
    }
}

#[test]
fn a_wrong_answer_is_seen() {
    // What is expected is that of other rows than those that are stored.
    for workload in [ODS, DATES] {
        let mixed = loaded(workload, 7).expecting(&loaded(workload, 8));
        let result = ran(&mixed, "no-ssd");
        assert!(matches!(result.consistency, Consistency::Broken(_)), "{:?}", result.consistency);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let shown = |seed: u64| format!("{:?}", ran(&loaded(ODS, seed), "tac"));
    assert_eq!(shown(7), shown(7));
    assert_ne!(shown(7), shown(8));
}

#[test]
fn more_memory_misses_less_and_answers_the_same() {
    let loaded = loaded(ODS, 7);
    let misses = |memory_pages: u32| {
        let system = System { memory_pages, ..system() };
        let result = run(&loaded, &system, design("no-ssd"), &mut |_, _| {}).expect("runs");
        assert_eq!(result.consistency, Consistency::Ok);
        result.queries.iter().map(|query| query.misses).sum::<u64>()
    };
    assert!(misses(512) < misses(64));
}
