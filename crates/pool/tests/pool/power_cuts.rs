//! Power cuts at random moments, and recovery from home and log alone (the flash is gone); and the
//! mutations that lose updates then, each of which must be found.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_policy::{CleanerOrder, DESIGNS};
use terrace_pool::{Mutation, PoolConfig};
use terrace_rt::{Nanos, Prng, Stopped, Virtual, VirtualConfig, sleep};

use crate::bench_world::{Bench, FLASH_NS, config};
use crate::log_model::recover;

const PAGES: u64 = 60;
const TASKS: u64 = 6;
/// A mutation must be found within this many seeds.
const SEEDS_MAX: u64 = 400;
/// A slow flash, so that much happens while a page is on its way to it.
const SLOW_FLASH_NS: u64 = 1_500_000;

/// Runs until the power is cut; what recovery then says.
fn cut_and_recover(seed: u64, config: PoolConfig, flash_ns: u64) -> Result<(), String> {
    let world = Virtual::new(VirtualConfig { seed, switch_one_in: 3, ..VirtualConfig::default() });
    let mut prng = Prng::from_seed(seed);
    world.cut_at(Nanos(5_000_000 + prng.below(300_000_000)));
    let kept: Rc<RefCell<Option<Arc<Bench>>>> = Rc::default();
    let stopped = world.run(|| {
        let handle = world.world();
        let may_overlap = config.mutations.has(Mutation::TwoHomeWrites);
        let bench = Bench::with_flash(&handle, config, PAGES, seed, flash_ns);
        bench.home.allows_overlap.store(may_overlap, Ordering::Relaxed);
        *kept.borrow_mut() = Some(bench.clone());
        for task in 0..TASKS {
            let bench = bench.clone();
            drop(handle.spawn("worker", move || {
                let mut prng = Prng::from_seed(seed * 100 + task);
                loop {
                    bench.step(&mut prng);
                    sleep(Nanos(prng.below(200_000)));
                }
            }));
        }
        let mut prng = Prng::from_seed(seed + 77);
        loop {
            sleep(Nanos(prng.below(1_000_000)));
            bench.checkpoint();
            bench.commit();
        }
    });
    match stopped {
        Ok(()) | Err(Stopped::PowerCut { .. }) => {}
        Err(stopped) => panic!("{stopped}"),
    }
    let bench = kept.take().expect("the run began");
    let home = bench.home.after_power_cut(&mut prng);
    let recovered = recover(home, &bench.log.after_power_cut())?;
    let expected = bench.log.durable_values(PAGES);
    match (0..PAGES as usize).find(|&page| recovered[page] != expected[page]) {
        None => Ok(()),
        Some(page) => Err(format!("page {page} lost an update")),
    }
}

#[test]
fn no_design_loses_an_update_with_its_flash_and_power() {
    for design in DESIGNS {
        for seed in 0..60 {
            let mut config = config(design.name);
            config.lambda = [0.05, 0.5][seed as usize % 2];
            config.buf_write_pages = 1 + seed as u32 % 8;
            config.forced_choice_misses = Some([3, 30][seed as usize / 4 % 2]);
            let flash_ns = [FLASH_NS, SLOW_FLASH_NS][seed as usize / 2 % 2];
            let recovered = cut_and_recover(seed, config, flash_ns);
            assert_eq!(recovered, Ok(()), "{} seed {seed}", design.name);
        }
    }
}

/// The first seed at which the pool with `mutation` loses something.
fn first_caught(design: &str, mutation: Mutation, flash_ns: u64) -> Option<u64> {
    (0..SEEDS_MAX).find(|&seed| {
        let mut config = config(design);
        // Hot pages go round through flash, and are cleaned while they are wanted.
        config.frames = 16;
        config.lambda = [0.05, 0.9][seed as usize % 2];
        config.cleaner_order = CleanerOrder::RecLsn;
        config.buf_write_pages = 1 + seed as u32 % 4;
        config.mutations = mutation.into();
        let outcome = catch_unwind(AssertUnwindSafe(|| cut_and_recover(seed, config, flash_ns)));
        !matches!(outcome, Ok(Ok(())))
    })
}

#[test]
fn every_mutation_is_found() {
    let cases = [
        (Mutation::PageBeforeLog, "no-ssd"),
        (Mutation::JoinModified, "lc"),
        (Mutation::EolAfterJoin, "lc"),
        (Mutation::BufWriteBeforeSync, "no-ssd"),
        (Mutation::EntryEndsBeforeSync, "no-ssd"),
        (Mutation::TwoHomeWrites, "lc"),
        (Mutation::InvalidateBeforeEntry, "lc"),
        (Mutation::KeepStaleCopy, "cw"),
        (Mutation::CleanBeforeBothWrites, "dw"),
        (Mutation::EntryMovesBeforeWrite, "lc"),
        (Mutation::OldestWithoutFlash, "lc"),
        (Mutation::OldestWithoutFlash, "face"),
        (Mutation::FrontCleanBeforeHome, "face-gr"),
        (Mutation::ReuseFrontTooSoon, "face"),
        (Mutation::FrontCleanBeforeHome, "fasc"),
        (Mutation::ReuseFrontTooSoon, "fasc"),
    ];
    let mut missed = Vec::new();
    for (mutation, design) in cases {
        let is_slow = mutation == Mutation::EntryMovesBeforeWrite;
        let flash_ns = if is_slow { SLOW_FLASH_NS } else { FLASH_NS };
        match first_caught(design, mutation, flash_ns) {
            Some(seed) => println!("{mutation:?} under {design} is found at seed {seed}"),
            None => missed.push((mutation, design)),
        }
    }
    assert!(missed.is_empty(), "nothing finds {missed:?}");
}
