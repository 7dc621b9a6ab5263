//! What the books of a flash tier take, and whether the frames are charged for it.

use terrace_policy::{DESIGNS, designs, restarts};
use terrace_pool::{Metadata, PoolConfig, PoolError};
use terrace_rt::{Virtual, VirtualConfig};

use crate::bench_world::{Bench, config};

const PAGES: u64 = 600;
const SLOTS: u32 = 16_384;

fn charged(name: &str) -> PoolConfig {
    let design = designs::find(name).expect("a row");
    let flash_slots = if design.uses_flash() { SLOTS } else { 0 };
    PoolConfig { frames: 2048, flash_slots, metadata: Metadata::Charged, ..config(name) }
}

#[test]
fn what_is_charged_is_what_an_open_pool_allocates() {
    for design in DESIGNS.into_iter().filter(|design| design.uses_flash()) {
        // The others write tables, which the device of these tests does not take.
        for restart in ["forget", "lbr"].map(|name| restarts::find(name).expect("a row")) {
            if restart.refusal(&design).is_some() {
                continue;
            }
            let world = Virtual::new(VirtualConfig::default());
            let run = || {
                let mut config = PoolConfig { restart, ..charged(design.name) };
                config.charge(PAGES).expect("memory for the books");
                let charged = config.metadata_bytes(PAGES).div_ceil(u64::from(SLOTS));
                let bench = Bench::new(&world.world(), config, PAGES, 1);
                for page in 0..PAGES {
                    bench.change(page, 1);
                    bench.read(PAGES - 1 - page);
                }
                let taken = bench.pool.stats().metadata_bytes_per_slot;
                let pair = format!("{} {}", design.name, restart.name);
                println!("{pair}: {taken} bytes a slot");
                assert!(taken.abs_diff(charged) <= 1, "{pair}: {taken}, charged {charged}");
                bench.pool.shutdown();
            };
            world.run(run).expect("the world goes on");
        }
    }
}

#[test]
fn a_restart_that_keeps_versions_or_a_table_in_memory_costs_more() {
    let of = |design: &str, restart: &str| {
        let restart = restarts::find(restart).expect("a row");
        PoolConfig { restart, ..charged(design) }.metadata_bytes(PAGES)
    };
    let slots = u64::from(SLOTS);
    for design in ["dw", "lc", "inclusive", "cac", "auto"] {
        assert!(of(design, "mmr") > of(design, "forget"), "{design}: units of its table");
        assert_eq!(of(design, "lvr"), of(design, "forget") + 8 * slots, "{design}: whole versions");
        assert_eq!(
            of(design, "warm"),
            of(design, "forget") + 4 * slots,
            "{design}: half of each version"
        );
    }
}

#[test]
fn the_books_are_taken_from_the_frames_once_and_only_if_asked() {
    for design in DESIGNS {
        let mut config = charged(design.name);
        let books = config.metadata_bytes(PAGES);
        assert_eq!(books > 0, design.uses_flash(), "{}", design.name);
        config.charge(PAGES).expect("memory for the books");
        let taken = u64::from(2048 - config.frames);
        assert_eq!(taken, books.div_ceil(8192), "{}: {books} bytes", design.name);
        let mut free = PoolConfig { metadata: Metadata::Free, ..charged(design.name) };
        free.charge(PAGES).expect("nothing to pay");
        assert_eq!(free.frames, 2048);
    }
}

#[test]
fn books_that_take_all_of_the_memory_are_refused() {
    let mut config = PoolConfig { frames: 40, ..charged("lc") };
    let refused = config.charge(PAGES);
    assert!(matches!(refused, Err(PoolError::Config { .. })), "{refused:?}");
    // It is not for want of frames alone.
    let mut without = PoolConfig { frames: 40, ..charged("no-ssd") };
    without.charge(PAGES).expect("no books");
}

/// The default at most 16 bytes, the rows of the papers 32, at sizes like those of the papers.
#[test]
fn no_design_takes_more_than_32_bytes_for_a_page_of_flash() {
    for design in DESIGNS.into_iter().filter(|design| design.uses_flash()) {
        let config = PoolConfig { frames: 25_600, flash_slots: 183_501, ..charged(design.name) };
        let bytes = config.metadata_bytes(400_000).div_ceil(183_501);
        println!("{}: {bytes} bytes", design.name);
        let most = if design.name == "auto" { 16 } else { 32 };
        assert!(bytes <= most, "{}: {bytes} bytes", design.name);
    }
}
