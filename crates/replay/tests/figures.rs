//! Misses on a small trace that ships, by every policy: the figures that the naive models of the
//! policies give, and for OPT its definition. A replay must give the same, exactly.

use std::path::Path;
use terrace_replay::{Policy, References};
use terrace_trace::{ReadOptions, Reader};

const FIGURES: &str = include_str!("data/mixed.figures.csv");

fn mixed() -> References {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/mixed.lis");
    let reader = Reader::open(&path, &ReadOptions::default()).expect("the trace ships");
    let paging = reader.paging();
    References::read(reader, paging).expect("the trace is whole")
}

#[test]
fn every_policy_misses_as_its_model_does() {
    let references = mixed();
    let mut compared = Vec::new();
    for line in FIGURES.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let policy = Policy::find(fields[0]).expect("a policy");
        let capacity = fields[1].parse().expect("a capacity");
        let misses = policy.misses(&references, capacity, 1);
        assert_eq!(misses.to_string(), fields[2], "{line}");
        compared.push(policy.name());
    }
    // TAC's slots, by heap and by bands, have models of their own.
    let tac = [Policy::Temperature, Policy::TemperatureBands];
    for policy in Policy::all().into_iter().filter(|policy| !tac.contains(policy)) {
        assert!(compared.contains(&policy.name()), "{} has figures", policy.name());
    }
}

/// OPT has no model in the list's sense: this is its definition, on the same trace.
#[test]
fn opt_misses_as_its_definition_says() {
    let references = mixed();
    let pages = references.pages();
    for line in FIGURES.lines().filter(|line| line.starts_with("opt,")) {
        let fields: Vec<&str> = line.split(',').collect();
        let capacity: usize = fields[1].parse().expect("a capacity");
        let (mut cached, mut misses) = (Vec::new(), 0);
        for (at, page) in pages.iter().enumerate() {
            if cached.contains(page) {
                continue;
            }
            misses += 1;
            if cached.len() == capacity {
                let next_use = |page: &u32| {
                    pages[at..].iter().position(|other| other == page).unwrap_or(usize::MAX)
                };
                let farthest = *cached.iter().max_by_key(|page| next_use(page)).expect("full");
                cached.retain(|page| *page != farthest);
            }
            cached.push(*page);
        }
        assert_eq!(misses.to_string(), fields[2], "{line}");
    }
}
