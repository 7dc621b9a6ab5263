//! LVR without one of its cures: the paper's violations A to D and pitfalls 1 to 3.

use std::panic::{AssertUnwindSafe, catch_unwind};

use terrace_page::Lsn;
use terrace_pool::Mutation;
use terrace_rt::{Nanos, sleep};

use super::machine::{Cut, Ended, Plan, Session, run, survive};

/// The lack of a disabled cure must be found within this many seeds.
const SEEDS_MAX: u64 = 1000;
/// Seeds in which nothing is missed with all cures in.
const SEEDS_WHOLE: u64 = 60;

/// A tier whose flusher is quick, so that its table is worth something when the power is cut.
fn plan(design: &str, seed: u64) -> Plan {
    let mut plan = Plan::new(design, "lvr", seed);
    plan.config.frames = 16;
    plan.config.flash_slots = 40;
    plan.config.restart_tuning.lvr_chunks = 4;
    plan.config.restart_tuning.lvr_pause = Nanos(1_000_000);
    plan.home_stall = Nanos(100_000);
    plan.flash_stall = Nanos(1_000_000);
    plan.checkpoint_every = Nanos(2_000_000);
    plan
}

/// What a test changes of a plan.
type Change = fn(&mut Plan);

fn put(plan: &mut Plan, mutation: Mutation) {
    plan.config.mutations = plan.config.mutations.and(mutation);
}

fn first_caught(design: &str, seeds: u64, setting: Change, out: Change) -> Option<u64> {
    (0..seeds).find(|&seed| {
        let mut plan = plan(design, seed);
        setting(&mut plan);
        out(&mut plan);
        !matches!(catch_unwind(AssertUnwindSafe(|| survive(&plan, 3))), Ok(Ok(_)))
    })
}

/// The cure is missed when it is out, and nothing is when it is in.
fn is_missed(what: &str, design: &str, setting: Change, out: Change) {
    let caught = first_caught(design, SEEDS_MAX, setting, out);
    println!("{what}: {design} is caught at seed {caught:?}");
    assert!(caught.is_some(), "{what}: nobody misses the cure");
    assert_eq!(first_caught(design, SEEDS_WHOLE, setting, |_| {}), None, "{what}, cured");
}

#[test]
fn violation_a_another_page_is_told_by_its_id() {
    // No page was ever changed, so all have the same LSN, and only the id tells them apart.
    let setting: Change = |plan| {
        plan.only_reads = true;
        plan.config.flash_slots = 20;
    };
    let out: Change = |plan| put(plan, Mutation::SkipPageIdCheck);
    for design in ["dw", "lc"] {
        is_missed("A", design, setting, out);
    }
}

#[test]
fn violation_b_another_version_is_told_by_its_lsn() {
    for design in ["dw", "lc"] {
        is_missed("B", design, |_| {}, |plan| put(plan, Mutation::SkipLsnCheck));
    }
}

#[test]
fn violation_c_a_dirty_copy_taken_for_clean_is_told_by_its_lsn() {
    // Our redo owes home what it finds clean on flash, which would hide the violation.
    let setting: Change = |plan| {
        plan.owes_home = false;
        plan.home_has_cache = false;
    };
    is_missed("C", "lc", setting, |plan| put(plan, Mutation::SkipLsnCheck));
}

/// A flusher so slow that the log is cut before it comes round, as without the cure of Pitfall 3.
const SLOW: Change = |plan| {
    put(plan, Mutation::LvrSkipsPass);
    plan.config.restart_tuning.lvr_chunks = 5;
    plan.config.restart_tuning.lvr_chunks_per_pause = 1;
    plan.config.restart_tuning.lvr_pause = Nanos(10_000_000);
};

#[test]
fn violation_d_an_old_copy_is_told_by_the_start_of_the_log() {
    for design in ["dw", "lc"] {
        is_missed("D", design, SLOW, |plan| put(plan, Mutation::LvrKeepsOldEntries));
    }
}

/// Entries are hardened while much of the log is not durable, and its LSNs are given away again.
/// With LSNs that are not `durable` the table is one of later than the log, and starts cold.
fn reuse_of_lsns(durable: bool) -> Ended {
    let mut first = plan("dw", 1);
    first.config.flash_slots = 80;
    if !durable {
        put(&mut first, Mutation::LvrTailLsn);
    }
    let script = |opened: Session, _: &_| {
        (0..60).for_each(|page| opened.read(page));
        opened.commit();
        (1..1000).for_each(|value| opened.change(0, value));
        opened.pool.harden_table().expect("a pass");
        loop {
            sleep(Nanos(1_000_000_000));
        }
    };
    let cut = Some(Cut::Working(Nanos(2_000_000_000)));
    let (mut machine, ended) = run(&first, None, 1, cut, script);
    assert!(matches!(ended, Ended::Cut));
    SLOW(&mut machine.plan);
    // Changed pages stay in memory: their old slots keep what they hold.
    machine.plan.config.frames = 100;
    machine.plan.config.restart_tuning.lvr_pause = Nanos(1_000_000_000_000);
    let plan = machine.plan.clone();
    let script = move |opened: Session, _: &_| {
        assert_eq!(opened.reused > 30, durable, "{} slots used again", opened.reused);
        (1..60).for_each(|page| opened.change(page, page));
        opened.pool.flush_below(Lsn::MAX).expect("a flush");
        opened.checkpoint(false)
    };
    let (machine, ended) = run(&plan, Some(&machine), 2, None, script);
    assert!(matches!(ended, Ended::Done));
    run(&plan, Some(&machine), 3, None, |_, _| Ok(())).1
}

#[test]
fn the_lsn_before_hardening_is_durable() {
    assert!(matches!(reuse_of_lsns(true), Ended::Done));
    assert!(matches!(reuse_of_lsns(false), Ended::Done));
}

#[test]
fn pitfall_1_a_buf_write_frees_what_is_older() {
    for design in ["dw", "lc"] {
        let out: Change = |plan| put(plan, Mutation::LvrIgnoresBufWrites);
        is_missed("Pitfall 1", design, |_| {}, out);
    }
}

#[test]
fn pitfall_2_the_cleaner_waits_for_recovery() {
    // Its BUF_WRITEs stay in memory: what is missed is the page that it writes.
    let setting: Change = |plan| {
        SLOW(plan);
        plan.config.lambda = 0.05;
        plan.config.buf_write_pages = 64;
    };
    is_missed("Pitfall 2", "lc", setting, |plan| plan.cleans_first = true);
}

/// Slots that are used again, of those that were used, after a checkpoint with nothing dirty.
fn reused_after_checkpoint(seed: u64, waits: bool) -> (u64, u64) {
    let mut plan = Plan::new("dw", "lvr", seed);
    plan.config.flash_slots = 1600;
    plan.config.frames = 64;
    plan.pages = 2000;
    plan.home_stall = Nanos(10_000);
    plan.flash_stall = Nanos(10_000);
    plan.config.restart_tuning.lvr_chunks = 100;
    if !waits {
        put(&mut plan, Mutation::LvrSkipsPass);
    }
    let used = std::cell::Cell::new(0);
    let fill = |opened: Session, _: &_| {
        for page in 0..opened.machine.plan.pages {
            if page % 4 == 0 { opened.change(page, page) } else { opened.read(page) }
        }
        // The flusher goes round once: every slot is in the table.
        terrace_rt::sleep(Nanos(10_000_000_000));
        opened.change(0, 1);
        opened.pool.flush_all().expect("a flush");
        opened.checkpoint(false)?;
        used.set(opened.pool.stats().slots_used);
        // The world ends here, and the power with it.
        Ok(())
    };
    let (machine, ended) = run(&plan, None, seed, None, fill);
    assert!(matches!(ended, Ended::Done));
    let reused = std::cell::Cell::new(0);
    let (_, ended) = run(&plan, Some(&machine), seed + 1, None, |opened, _| {
        reused.set(opened.reused);
        Ok(())
    });
    assert!(matches!(ended, Ended::Done));
    (reused.get(), used.get())
}

#[test]
fn pitfall_3_a_full_pass_in_the_checkpoint_keeps_the_tier() {
    for seed in 0..3 {
        let (with, used) = reused_after_checkpoint(seed, true);
        let (without, used_without) = reused_after_checkpoint(seed, false);
        println!("{with} of {used} slots used again, {without} of {used_without} without a pass");
        assert!(used >= 1500, "{used} slots were used");
        assert!(with * 100 > used * 90, "{with} of {used} slots used again");
        assert!(without * 100 < used_without * 5, "{without} of {used_without} slots used again");
    }
}
