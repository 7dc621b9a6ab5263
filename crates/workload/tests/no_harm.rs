//! A flash tier does no harm: no design is slower than no flash at all while scans read all there
//! is beside the clients.

use terrace_policy::{DESIGNS, designs};
use terrace_rt::Nanos;
use terrace_workload::steady::{Plan, SteadyResult, run};
use terrace_workload::{System, brokerage, restart};

/// What a design must keep of the throughput without flash.
const KEPT_MIN: f64 = 0.97;

fn workload() -> brokerage::Config {
    brokerage::Config { customers: 240, clients: 16, scanners: 4, ..brokerage::Config::default() }
}

fn plan() -> Plan {
    Plan {
        system: System {
            // A tenth of the database, and a third of it.
            memory_pages: 300,
            flash_pages: 1_000,
            log_bytes: 1 << 30,
            ..System::default()
        },
        seed: 1,
        duration: Nanos::from_secs(24),
        window: Nanos::from_secs(1),
        averaged: Nanos::from_secs(12),
    }
}

#[test]
fn no_design_is_slower_than_no_flash_beside_scans() {
    let (workload, plan) = (workload(), plan());
    let load = restart::load(&workload, &plan.system, plan.seed, &mut |_, _| {});
    let loaded = load.expect("a database");
    assert!((2_800..3_200).contains(&loaded.home_pages), "{} pages", loaded.home_pages);
    let of = |name: &str| -> SteadyResult {
        let design = designs::find(name).expect("a row");
        run(&loaded, &workload, &plan, design, &mut |_, _| {}).expect("a run")
    };
    let base = of("no-ssd").averages.transactions_per_s;
    for design in DESIGNS.into_iter().filter(|design| design.uses_flash()) {
        let result = of(design.name);
        assert_eq!(result.consistency.summary(), "ok", "{}", design.name);
        let kept = result.averages.transactions_per_s / base;
        println!("{}: {kept:.2} of {base:.0} a second", design.name);
        assert!(kept >= KEPT_MIN, "{} keeps {kept:.2} of no-ssd", design.name);
    }
}
