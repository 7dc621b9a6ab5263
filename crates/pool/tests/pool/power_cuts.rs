//! Power cuts at random moments, recovery from home and log alone (the flash is gone), and the
//! rules without which that loses updates: each is switched off in turn, and must be missed.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_policy::{CleanerOrder, DESIGNS};
use terrace_pool::{PoolConfig, Rules};
use terrace_rt::{Nanos, Prng, Stopped, Virtual, VirtualConfig, sleep};

use crate::bench_world::{Bench, FLASH_NS, config};
use crate::log_model::recover;

const PAGES: u64 = 60;
const TASKS: u64 = 6;
/// A rule that is off must be missed within so many seeds.
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
        let in_flight = config.rules.in_flight_home_writes;
        let bench = Bench::with_flash(&handle, config, PAGES, seed, flash_ns);
        bench.home.allows_overlap.store(!in_flight, Ordering::Relaxed);
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

/// The first seed at which the pool without a rule is caught.
fn first_caught(design: &str, break_rule: impl Fn(&mut Rules), flash_ns: u64) -> Option<u64> {
    (0..SEEDS_MAX).find(|&seed| {
        let mut config = config(design);
        // Hot pages go round through flash, and are cleaned while they are wanted.
        config.frames = 16;
        config.lambda = [0.05, 0.9][seed as usize % 2];
        config.cleaner_order = CleanerOrder::RecLsn;
        config.buf_write_pages = 1 + seed as u32 % 4;
        break_rule(&mut config.rules);
        let outcome = catch_unwind(AssertUnwindSafe(|| cut_and_recover(seed, config, flash_ns)));
        !matches!(outcome, Ok(Ok(())))
    })
}

#[test]
fn every_rule_is_missed_when_it_is_off() {
    type Break = fn(&mut Rules);
    let rules: [(&str, &str, Break); 16] = [
        ("wal_before_page", "no-ssd", |rules| rules.wal_before_page = false),
        ("buf_write_join_rule", "lc", |rules| rules.buf_write_join_rule = false),
        ("buf_write_eol_rule", "lc", |rules| rules.buf_write_eol_rule = false),
        ("sync_before_buf_write", "no-ssd", |rules| rules.sync_before_buf_write = false),
        ("entry_until_sync", "no-ssd", |rules| rules.entry_until_sync = false),
        ("in_flight_home_writes", "lc", |rules| rules.in_flight_home_writes = false),
        ("entry_before_invalidation", "lc", |rules| rules.entry_before_invalidation = false),
        ("invalidate_on_modify", "cw", |rules| rules.invalidate_on_modify = false),
        ("dw_clean_after_both", "dw", |rules| rules.dw_clean_after_both = false),
        ("lc_entry_moves", "lc", |rules| rules.lc_entry_moves_after_flash_write = false),
        ("oldest_covers_flash", "lc", |rules| rules.oldest_covers_flash = false),
        ("oldest_covers_flash", "face", |rules| rules.oldest_covers_flash = false),
        ("front_is_dirty", "face-gr", |rules| rules.front_is_dirty_until_home = false),
        ("front_is_kept", "face", |rules| rules.front_is_kept_until_left = false),
        ("front_is_dirty", "fasc", |rules| rules.front_is_dirty_until_home = false),
        ("front_is_kept", "fasc", |rules| rules.front_is_kept_until_left = false),
    ];
    let mut missed = Vec::new();
    for (name, design, break_rule) in rules {
        let flash_ns = if name == "lc_entry_moves" { SLOW_FLASH_NS } else { FLASH_NS };
        match first_caught(design, break_rule, flash_ns) {
            Some(seed) => println!("without {name}, {design} is caught at seed {seed}"),
            None => missed.push(name),
        }
    }
    assert!(missed.is_empty(), "nobody misses {missed:?}");
}
