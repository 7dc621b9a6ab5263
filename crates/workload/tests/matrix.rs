//! The crash matrix: a sample of it finds nothing in the engine as it is, and it finds mutations of
//! the pool.

use terrace_policy::{FlashRole, designs, restarts};
use terrace_pool::Mutation::{
    self, BufWriteBeforeSync, DirtyCopyTrustsHome, DropBasesAtFront, DropOldBases,
    EntryEndsBeforeSync, ForgetUnfinished, KeepStaleCopy, OldestWithoutFlash, PageBeforeLog,
    PunchBeforeCheckpoint, ReferBeforeSync, ReuseBeforeHomeSync, ReuseBeforeTable, SkipVerify,
    UnmarkedBlocks,
};
use terrace_pool::Mutations;
use terrace_workload::torture::OPEN_RESTARTS;
use terrace_workload::torture::matrix::{Choice, Fate, MatrixReport, SCRIPTS, Script, TPCC, walks};

/// One in this number of cases is in the suite; `terrace torture --matrix` runs all.
const SAMPLED_ONE_IN: u64 = 60;
/// One in this number of those is tried unless `TERRACE_TEST_MATRIX` is `all`.
const BRIEFLY_ONE_IN: u64 = 8;

/// Whether all of this is wanted: many minutes of two cores.
fn is_whole() -> bool {
    std::env::var("TERRACE_TEST_MATRIX").is_ok_and(|wanted| wanted == "all")
}

fn sampled_one_in() -> u64 {
    if is_whole() { SAMPLED_ONE_IN } else { SAMPLED_ONE_IN * BRIEFLY_ONE_IN }
}

/// Whether there are enough of what the whole sample has more than `count` of.
fn are_enough(found: u64, count: u64) -> bool {
    found > if is_whole() { count } else { count / BRIEFLY_ONE_IN }
}

fn run(choice: Choice, seed: u64, one_in: u64) -> MatrixReport {
    let mut total = MatrixReport::default();
    for walk in walks(choice, seed) {
        total.add(walk.run(one_in));
    }
    total
}

#[test]
fn a_sample_of_the_matrix_loses_nothing() {
    // TPC-C with the seeds 1 and 2 tears home writes of pages whose image lies before the log's
    // range.
    let total = run(Choice::default(), 1, sampled_one_in());
    let first = total.failures.first().map(|(case, failure)| format!("{failure}: {case}"));
    assert_eq!(first, None, "{} failures", total.failures.len());
    let cut = |script: &&Script| total.by_script.contains_key(script.name);
    let is_for = |script: &&Script| match script.name {
        "rest" => OPEN_RESTARTS.contains(&"lvr"),
        "table" => OPEN_RESTARTS.contains(&"lvr") || OPEN_RESTARTS.contains(&"warm"),
        _ => true,
    };
    let missed: Vec<_> = SCRIPTS.iter().filter(is_for).filter(|it| !cut(it)).collect();
    assert!(missed.is_empty(), "{:?} is not cut", missed.first().map(|script| script.name));
    for fate in Fate::ALL {
        assert!(total.by_fate.contains_key(fate.name()), "{} does not happen", fate.name());
    }
    assert_eq!(total.by_moment.len(), 9, "{:?}", total.by_moment);
    let remembers = |name: &&str| **name != *"forget";
    let is_warm = total.warm_by_fate.contains_key("kept");
    assert_eq!(is_warm, OPEN_RESTARTS.iter().any(remembers), "{:?}", total.warm_by_fate);
    assert!(are_enough(total.second_cuts, 50) && total.verified > total.cuts);
    assert!(total.torn.dropped > 0 && total.torn.torn > 0, "{:?}", total.torn);
    for count in [total.tpcc_in_opening, total.tpcc_in_run, total.tpcc_checks] {
        assert!(are_enough(count, 9), "{total:?}");
    }
}

#[test]
fn a_sample_with_flash_as_a_part_of_the_database_loses_nothing() {
    let choice = Choice { role: FlashRole::Persistent, ..Choice::default() };
    let total = run(choice, 1, sampled_one_in());
    let first = total.failures.first().map(|(case, failure)| format!("{failure}: {case}"));
    assert_eq!(first, None, "{} failures", total.failures.len());
    // Another flash is refused, or was not needed; damage is named, or was not met.
    let (refused, damaged) = (total.refused, total.damaged);
    assert!(are_enough(refused, 50) && are_enough(damaged, 10), "{total:?}");
    assert!(refused + damaged < total.cuts, "{total:?}");
    assert!(total.verified > total.cuts);
}

/// The restarts that a seed does not draw.
#[test]
fn published_maps_lose_nothing() {
    let maps = [
        ("fasc", "map-chunks"),
        ("fasc", "map-through"),
        ("lc", "map-chunks"),
        ("cac", "map-zone"),
        MAP_OF_FACE,
    ];
    for (design, restart) in maps {
        for role in [FlashRole::Cache, FlashRole::Persistent] {
            let (design, restart) = (designs::find(design).ok(), restarts::find(restart).ok());
            let choice = Choice { design, restart, role, ..Choice::default() };
            let total = run(choice, 1, sampled_one_in());
            let first = total.failures.first().map(|(case, failure)| format!("{failure}: {case}"));
            assert_eq!(first, None, "{} failures", total.failures.len());
            let is_warm = total.warm_by_fate.contains_key("kept");
            assert!(
                are_enough(total.cuts, 100) && is_warm,
                "{} cuts, warm by {:?}",
                total.cuts,
                total.warm_by_fate
            );
        }
    }
}

const MAP_OF_FACE: (&str, &str) = ("face-base", "map-segments");

/// Home writes that a cut took back were forgotten once their pages went to flash anew; the cleaner
/// wrote pages home that were still to be redone, and the log then said that home had them; and a
/// dirty copy that was given up was all that told how far back home lacked changes. The next loss
/// of the flash found a hole in the log, or took committed rows along.
#[test]
fn what_is_dirty_on_flash_outlives_it() {
    let tpcc = || Choice {
        script: Some(TPCC),
        design: designs::find("lc").ok(),
        restart: restarts::find("warm").ok(),
        ..Choice::default()
    };
    // The last of them: a block of the journal that a session had left behind a lost one.
    let seeds = if is_whole() { 16 } else { 2 };
    for seed in (1..=seeds).chain([112]) {
        let failures = run(tpcc(), seed, 1).failures;
        let first = failures.first().map(|(case, failure)| format!("{failure}: {case}"));
        assert_eq!(first, None, "seed {seed}");
    }
}

fn tpcc_of_maps(design: &str, restart: &str, mutations: Mutations) -> Choice {
    let (design, restart) = (designs::find(design).ok(), restarts::find(restart).ok());
    Choice { script: Some(TPCC), design, restart, mutations, ..Choice::default() }
}

/// The bug: a page was written home, changed, and appended before home was synced; what the table
/// said of the copy began with that change, so the log was cut behind those that a power cut took
/// from home. It showed when the copy went bad, or the flash was lost, later on.
#[test]
fn tpcc_on_maps_of_append_logs_loses_nothing() {
    for (design, restart) in [("fasc", "map-chunks"), ("fasc", "map-log"), MAP_OF_FACE] {
        let choice = tpcc_of_maps(design, restart, Mutations::NONE);
        for seed in 0..60 {
            let first = run(choice, seed, 1).failures.first().map(|it| it.1.to_string());
            assert_eq!(first, None, "{design} with {restart}, seed {seed}");
        }
    }
    let choice = tpcc_of_maps("fasc", "map-chunks", DirtyCopyTrustsHome.into());
    let found = (0..60).find(|&seed| !run(choice, seed, 1).failures.is_empty());
    assert!(found.is_some(), "TPC-C does not find DirtyCopyTrustsHome");
}

#[test]
fn a_seed_decides_the_matrix() {
    let choice = Choice {
        script: Some("lazy-clean"),
        design: designs::find("lc").ok(),
        ..Choice::default()
    };
    let once = || format!("{:?}", run(choice, 4, 40));
    assert_eq!(once(), once());
}

/// Mutations, a design that they harm, and the script whose cuts show it.
const MUTATIONS: [(&[Mutation], &str, &str); 10] = [
    (&[PageBeforeLog], "cw", "roll-back"),
    // Either of the two rules alone makes up for the other.
    (&[BufWriteBeforeSync, EntryEndsBeforeSync], "no-ssd", "sharp-checkpoint"),
    (&[KeepStaleCopy], "cw", "roll-back"),
    (&[OldestWithoutFlash], "lc", "cold-checkpoint"),
    (&[DropOldBases], "lc", "checkpoint"),
    (&[SkipVerify], "cw", "evict-dirty"),
    (&[PunchBeforeCheckpoint], "no-ssd", "compact"),
    (&[ReferBeforeSync], "no-ssd", "large"),
    (&[ForgetUnfinished], "no-ssd", "large"),
    (&[UnmarkedBlocks], "no-ssd", "blocks"),
];

/// The same where flash is a part of the database.
const PERSISTENT_MUTATIONS: [(&[Mutation], &str, &str); 4] = [
    (&[DropOldBases], "lc", "checkpoint"),
    (&[ReuseBeforeHomeSync], "face", "front"),
    (&[ReuseBeforeTable], "face", "front"),
    (&[DropBasesAtFront], "fasc", "front-bases"),
];

#[test]
fn every_mutation_is_found() {
    let of = |role| move |case| (role, case);
    let cached = MUTATIONS.into_iter().map(of(FlashRole::Cache));
    let persistent = PERSISTENT_MUTATIONS.into_iter().map(of(FlashRole::Persistent));
    for (role, (mutations, design, script)) in cached.chain(persistent) {
        let mutations: Mutations = mutations.iter().copied().collect();
        let design = designs::find(design).ok();
        let choice = Choice { script: Some(script), design, role, mutations, ..Choice::default() };
        let found = (0..6).map(|seed| run(choice, seed, 5)).find(|it| !it.failures.is_empty());
        let found = found.unwrap_or_else(|| panic!("{script} does not find {mutations:?}"));
        let (case, failure) = &found.failures[0];
        println!("{mutations:?}: {} in {} cuts, {failure}", found.failures.len(), found.cuts);
        assert!(case.cut.is_some(), "a cut shows it, not the script alone: {case}");
    }
}

#[test]
fn compactions_lose_nothing() {
    cuts_lose_nothing("compact", 40);
}

/// The same, of values that move.
#[test]
fn values_that_move_lose_nothing() {
    cuts_lose_nothing("gather", 60);
}

/// The same, of values whose pages go home before their record.
#[test]
fn large_values_lose_nothing() {
    cuts_lose_nothing("large", 100);
}

/// The same, of blocks.
#[test]
fn blocks_lose_nothing() {
    cuts_lose_nothing("blocks", 3);
}

/// A sample of the cuts of one seed, where flash keeps changed pages in different ways.
fn cuts_lose_nothing(script: &'static str, briefly_one_in: u64) {
    for (design, role) in [
        ("no-ssd", FlashRole::Cache),
        ("lc", FlashRole::Cache),
        ("lc", FlashRole::Persistent),
        ("face", FlashRole::Cache),
        ("face", FlashRole::Persistent),
    ] {
        let design = designs::find(design).ok();
        let choice = Choice { script: Some(script), design, role, ..Choice::default() };
        let total = run(choice, 3, if is_whole() { 1 } else { briefly_one_in });
        let first = total.failures.first().map(|(case, failure)| format!("{failure}: {case}"));
        assert_eq!(first, None, "{} failures", total.failures.len());
        assert!(total.cuts > 10, "{} cuts", total.cuts);
    }
}

#[test]
fn a_case_alone_fails_as_it_does_in_its_walk() {
    let mutations = OldestWithoutFlash.into();
    let (script, design) = (Some("cold-checkpoint"), designs::find("lc").ok());
    let choice = Choice { script, design, mutations, ..Choice::default() };
    let found = run(choice, 0, 3);
    let (case, failure) = &found.failures[0];
    let again = walks(choice, 0)[0].repeat(case.cut.expect("a case with a cut"));
    assert_eq!(&again.failures[0].1, failure);
}
