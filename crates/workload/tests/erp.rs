//! The ERP star as a whole, small, in the virtual world: every design gives the right answers, a
//! wrong one is seen, and the same seed gives the same run.

use terrace_policy::{DESIGNS, Design, designs};
use terrace_rt::Nanos;
use terrace_workload::erp::{Config, ErpResult, Fetch, Indexes, Loaded, Plan, QUERIES, load, run};
use terrace_workload::{Consistency, Place, System};

/// Some 260 pages.
const SMALL: Config = Config { seed: 7, facts: 5_000 };

fn system() -> System {
    System {
        place: Place::Virtual {
            home: "vldb2010-hdd".into(),
            flash: "vldb2010-card".into(),
            log: "sigmod2011-log".into(),
        },
        memory_pages: 64,
        flash_pages: 96,
        log_bytes: 64 << 20,
        ..System::default()
    }
}

fn plan(streams: u32) -> Plan {
    Plan {
        system: system(),
        seed: 7,
        streams,
        window: Nanos::from_millis(100),
        indexes: Indexes::AtHome,
        fetch: Fetch::ByIndex,
    }
}

fn loaded() -> Loaded {
    load(&SMALL, &system(), &mut |_, _| {}).expect("loads")
}

fn ran(loaded: &Loaded, plan: &Plan, design: &str) -> ErpResult {
    run(loaded, plan, found(design), &mut |_, _| {}).expect("runs")
}

fn found(design: &str) -> Design {
    designs::find(design).expect("known")
}

#[test]
fn every_design_answers_as_the_rows_say() {
    let loaded = loaded();
    for design in DESIGNS {
        let result = ran(&loaded, &plan(3), design.name);
        assert_eq!(result.consistency, Consistency::Ok, "{}", design.name);
        assert_eq!(result.streams.len(), 3);
        for stream in &result.streams {
            let mut queries: Vec<usize> = stream.queries.iter().map(|(at, _)| *at).collect();
            queries.sort_unstable();
            assert_eq!(queries, (0..QUERIES.len()).collect::<Vec<_>>(), "each once");
            assert_eq!(stream.elapsed, stream.queries.iter().map(|(_, span)| *span).sum());
        }
        assert!(result.elapsed() > Nanos::ZERO);
        assert!(result.touched_pages <= loaded.home_pages);
        assert!(result.windows.last().expect("windows").end >= result.elapsed());
    }
}

#[test]
fn the_order_of_fetching_changes_no_answer() {
    let loaded = loaded();
    let by_number = Plan { fetch: Fetch::ByNumber, ..plan(1) };
    let (one, other) = (ran(&loaded, &plan(1), "no-ssd"), ran(&loaded, &by_number, "no-ssd"));
    assert_eq!([&one.consistency, &other.consistency], [&Consistency::Ok; 2]);
    assert!(other.elapsed() < one.elapsed(), "one sweep is faster than many");
}

#[test]
fn a_wrong_answer_is_seen() {
    // What is expected is that of other rows than those that are stored.
    let other = load(&Config { seed: 8, ..SMALL }, &system(), &mut |_, _| {}).expect("loads");
    let mixed = loaded().expecting(&other);
    let result = ran(&mixed, &plan(1), "no-ssd");
    assert!(matches!(result.consistency, Consistency::Broken(_)), "{:?}", result.consistency);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let loaded = loaded();
    let shown = |plan: &Plan| format!("{:?}", ran(&loaded, plan, "tac"));
    assert_eq!(shown(&plan(4)), shown(&plan(4)));
    let other = Plan { seed: 8, ..plan(4) };
    assert_ne!(shown(&plan(4)), shown(&other));
}

#[test]
fn indexes_on_flash_leave_home_to_the_tables() {
    let loaded = loaded();
    let at_home = ran(&loaded, &plan(2), "no-ssd");
    assert_eq!(at_home.placed_pages, 0);
    assert!(at_home.fetches.of_indexes > 0 && at_home.fetches.of_tables > 0);
    // Room for some of the indexes, and room for more than all of them.
    let mut before = at_home.elapsed();
    for flash_pages in [loaded.index_pages as u32 / 2, 10_000] {
        let system = System { flash_pages, ..system() };
        let placed = Plan { system, indexes: Indexes::OnFlash, ..plan(2) };
        let result = ran(&loaded, &placed, "no-ssd");
        assert_eq!(result.consistency, Consistency::Ok);
        assert!(result.placed_pages >= loaded.index_pages.min(u64::from(flash_pages)));
        assert!(
            result.elapsed() < before,
            "{} pages: {:?}",
            result.placed_pages,
            (result.elapsed(), before)
        );
        before = result.elapsed();
    }
}
