//! Many tasks, few frames, fewer slots than pages: every design against the naive model.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use terrace_policy::replacement::REPLACEMENTS;
use terrace_policy::{
    ADMISSIONS, AdmissionRule, Asked, Classifier, CleanerOrder, DESIGNS, LAYOUTS, MEMORY_POLICIES,
    TacRule, combinable, designs, find_replacement,
};
use terrace_pool::{Fills, PoolConfig, PoolStats, Spill, TacWrite};
use terrace_rt::{Nanos, Prng, Virtual, VirtualConfig, sleep};

use crate::bench_world::{Bench, config};

const TASKS: u64 = 8;
const STEPS: u64 = 120;
const PAGES: u64 = 150;

/// Runs tasks at random, checking the pool all the while; ends with a sharp checkpoint.
fn run(seed: u64, config: PoolConfig) -> PoolStats {
    let name = config.design.name;
    let world = Virtual::new(VirtualConfig { seed, switch_one_in: 3, ..VirtualConfig::default() });
    let result = world.run(|| {
        let handle = world.world();
        let bench = Bench::new(&handle, config.clone(), PAGES, seed);
        let is_over = Arc::new(AtomicBool::new(false));
        let watcher = {
            let (bench, is_over) = (bench.clone(), is_over.clone());
            handle.spawn("watcher", move || {
                while !is_over.load(Ordering::Relaxed) {
                    bench.pool.check();
                    sleep(Nanos(50_000));
                }
            })
        };
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let bench = bench.clone();
                handle.spawn("worker", move || {
                    let mut prng = Prng::from_seed(seed * 100 + task);
                    for _ in 0..STEPS {
                        bench.step(&mut prng);
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(terrace_rt::Task::join);
        bench.pool.check();
        bench.pool.flush_all().expect("a sharp checkpoint");
        bench.assert_home_is_current();
        assert_eq!(
            bench.pool.oldest_dirty_lsn(),
            None,
            "{name} seed {seed} {:?}",
            bench.pool.stats()
        );
        is_over.store(true, Ordering::Relaxed);
        watcher.join();
        bench.pool.shutdown();
        bench.pool.check();
        bench.pool.stats()
    });
    result.unwrap_or_else(|stopped| panic!("{name} seed {seed}: {stopped}"))
}

fn seeds(name: &str, count: u64, change: impl Fn(u64, &mut PoolConfig)) -> PoolStats {
    let mut last = PoolStats::default();
    for seed in 0..count {
        let mut config = config(name);
        change(seed, &mut config);
        last = run(seed, config);
    }
    last
}

#[test]
fn every_design_agrees_with_the_model() {
    for design in DESIGNS {
        seeds(design.name, 30, |seed, config| {
            config.memory_policy = Some(MEMORY_POLICIES[seed as usize % MEMORY_POLICIES.len()].1);
        });
    }
}

#[test]
fn several_partitions_agree_with_the_model() {
    for design in DESIGNS {
        seeds(design.name, 10, |seed, config| {
            config.frames = 200;
            config.partitions = 3;
            config.append_group = 1 + seed as u32 % 4 % 3;
            config.fasc.block_pages = config.append_group;
            config.fasc.window_requests = 1 << (seed % 12);
            config.flash_slots *= 2;
        });
    }
}

#[test]
fn a_design_that_picks_something_else_all_the_time_agrees_with_the_model() {
    let stats = seeds("auto", 60, |seed, config| {
        config.forced_choice_misses = Some([1, 5, 40][seed as usize % 3]);
        config.lambda = [0.0, 0.5, 0.9][seed as usize / 3 % 3];
        config.memory_policy = Some(MEMORY_POLICIES[seed as usize % MEMORY_POLICIES.len()].1);
    });
    assert!(stats.choice_changes > 10 && stats.flash_hits > 0, "{stats:?}");
    assert!(stats.cleaner_pages > 0 && stats.flash_hits_dirty > 0, "{stats:?}");
}

/// The devices of the model answer in their own time, so that now one of them is busier, now the
/// other.
#[test]
fn reads_that_are_spilled_agree_with_the_model() {
    for design in ["lc", "dw", "tac", "face", "auto"] {
        seeds(design, 20, |_, config| config.spill = Spill::WhenFlashIsBusy);
    }
}

#[test]
fn lazy_cleaning_holds_lambda_in_either_order() {
    let stats = seeds("lc", 20, |seed, config| {
        config.lambda = [0.0, 0.1, 0.5, 0.9][seed as usize % 4];
        config.cleaner_order = [CleanerOrder::Lru2Age, CleanerOrder::RecLsn][seed as usize / 4 % 2];
    });
    assert!(stats.cleaner_pages > 0 && stats.flash_hits_dirty > 0, "{stats:?}");
}

#[test]
fn temperatures_agree_with_the_model_in_all_variants() {
    for write in [TacWrite::Sync, TacWrite::Async] {
        for rule in [TacRule::OnePercent, TacRule::HotterThanColdest] {
            let stats = seeds("tac", 10, |_, config| {
                config.tac.write = write;
                config.tac.rule = rule;
            });
            assert!(stats.flash_hits > 0, "{stats:?}");
            assert_eq!(stats.slots_dirty, 0);
        }
    }
}

#[test]
fn fills_throttle_and_classifier_agree_with_the_model() {
    for design in ["cw", "dw", "lc", "tac"] {
        seeds(design, 10, |seed, config| {
            config.fills = Fills { ramp_up: seed % 2 == 0, aggressive: true };
            config.mu = [0, 1, 4][seed as usize % 3];
            config.tau = [0.0, 0.5, 1.0][seed as usize % 3];
            config.classifier = Classifier::Near;
        });
    }
}

#[test]
fn every_replacement_agrees_with_the_model_under_every_design_it_goes_with() {
    for design in combinable() {
        for row in REPLACEMENTS {
            let replacement = Some(find_replacement(row.name).expect("a row"));
            let stats = seeds(design.name, 6, |seed, config| {
                let admission = [None, Some(AdmissionRule::All)][seed as usize % 2];
                let asked = Asked { admission, replacement, layout: None };
                config.design = design.combined(asked).expect("they go together");
                config.lambda = 0.3;
            });
            assert!(stats.flash_hits > 0, "{} {}: {stats:?}", design.name, row.name);
        }
    }
}

#[test]
fn every_layout_agrees_with_the_model_under_every_design_it_goes_with() {
    let find = |name| find_replacement(name).expect("a row");
    for (design, (_, layout)) in ["lc", "lazy", "face", "face-base"].into_iter().flat_map(|name| {
        let design = designs::find(name).expect("a row");
        LAYOUTS.into_iter().map(move |layout| (design, layout))
    }) {
        for replacement in [find("fifo"), find("clock")] {
            let asked = Asked {
                admission: Some(AdmissionRule::All),
                replacement: Some(replacement),
                layout: Some(layout),
            };
            let stats = seeds(design.name, 6, |_, config| {
                config.design = design.combined(asked).expect("they go together");
            });
            assert!(stats.flash_hits > 0, "{} {asked:?}: {stats:?}", design.name);
        }
    }
}

#[test]
fn every_admission_agrees_with_the_model_under_every_design_it_goes_with() {
    for design in combinable() {
        for (name, admission) in ADMISSIONS {
            let stats = seeds(design.name, 6, |_, config| {
                let asked = Asked { admission: Some(admission), ..Asked::default() };
                config.design = design.combined(asked).expect("they go together");
            });
            assert!(stats.admissions > 0, "{} {name}: {stats:?}", design.name);
            let chooses = admission != AdmissionRule::All;
            assert_eq!(stats.bypassed_by_policy > 0, chooses, "{name}: {stats:?}");
        }
    }
}

/// A budget that the first pages spend keeps all others out, and home has them.
#[test]
fn a_spent_budget_admits_nothing() {
    for design in DESIGNS.into_iter().filter(|design| design.uses_flash()) {
        let free = seeds(design.name, 4, |_, _| ());
        let kept = seeds(design.name, 4, |_, config| config.flash_writes_per_day = Some(1 << 30));
        assert!(kept.flash_writes < free.flash_writes / 2, "{}: {kept:?}", design.name);
        // Victims of an append log are not asked about one by one.
        let is_asked = design.batch().is_none();
        assert_eq!(kept.bypassed_by_budget > 0, is_asked, "{}: {kept:?}", design.name);
    }
}

#[test]
fn the_same_seed_gives_the_same_counts() {
    for design in DESIGNS {
        assert_eq!(run(7, config(design.name)), run(7, config(design.name)), "{}", design.name);
    }
}
