//! All hash joins beside a loop in a loop.

use std::collections::BTreeMap;
use std::sync::Arc;

use terrace_device::model::{Faults, Preset};
use terrace_device::{Device, FaultPlan, FaultyDevice};
use terrace_rt::{LeafMutex, Prng, Virtual, VirtualConfig};

use super::tables::{self, Keys, Made, Row, Wish, fetched, ids, spill};
use crate::{Carry, Cpu, Error, Input, Join, Joined, Plan, Side, hash_join};

const DRIVE_BYTES: u64 = 32 << 20;
/// Where the second table begins, and what does not fit in memory.
const PROBE_AT: u64 = 2 << 20;
const SPILL_AT: u64 = 4 << 20;

pub(super) type Pairs = Vec<(i64, u64, u64)>;

pub(super) fn run(join: &Join) -> Result<(Pairs, Joined), Error> {
    let pairs = Arc::new(LeafMutex::new(Pairs::new()));
    let got = Arc::clone(&pairs);
    let consumer = move |value: i64, build: &[u8], probe: &[u8]| {
        got.lock().push((value, fetched(build), fetched(probe)));
        Ok(())
    };
    let joined = hash_join(join, Arc::new(consumer))?;
    let mut pairs = std::mem::take(&mut *pairs.lock());
    pairs.sort_unstable();
    Ok((pairs, joined))
}

pub(super) fn model(build: &[Row], probe: &[Row]) -> Pairs {
    let mut by_key: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
    for row in build {
        if let Some(key) = row.key {
            by_key.entry(key).or_default().push(row.id);
        }
    }
    let mut pairs = Pairs::new();
    for row in probe {
        let Some(key) = row.key else { continue };
        let found = by_key.get(&key).into_iter().flatten();
        pairs.extend(found.map(|id| (key, *id, row.id)));
    }
    pairs.sort_unstable();
    pairs
}

pub(super) fn side(made: &Made) -> Side {
    Side { input: made.input.clone(), projection: ids() }
}

/// The least memory for a join: what the error asks for.
fn least(join: &Join) -> u64 {
    // What is needed grows a little with what is given. Nothing is joined here.
    let mut memory = 0;
    let mut join = join.clone();
    for side in [&mut join.build, &mut join.probe] {
        side.input.predicate = Some(Arc::new(|_: &[u8]| false));
    }
    loop {
        match hash_join(&Join { memory, ..join.clone() }, Arc::new(|_, _: &[u8], _: &[u8]| Ok(())))
        {
            Err(Error::Memory { needed, given }) => {
                assert!(given == memory && needed > memory, "{needed} of {memory}");
                memory = needed;
            }
            _ => return memory,
        }
    }
}

#[test]
fn every_pair_is_found_once_with_any_memory() {
    let mut spilled = [0; 2];
    for seed in 0..80 {
        let mut prng = Prng::from_seed(seed);
        let config =
            VirtualConfig { seed, switch_one_in: 20, cores: 4, ..VirtualConfig::default() };
        let work = || {
            let device: Arc<dyn Device> =
                tables::device(Preset::Ram, DRIVE_BYTES, Faults::default());
            let (mut one, mut other) =
                (tables::wish(&mut prng, 24_000), tables::wish(&mut prng, 8_000));
            if one.keys == Keys::Equal || one.keys == Keys::Skewed {
                // Else there are millions of pairs.
                (one.rows, other.rows) = (one.rows.min(400), other.rows.min(900));
            }
            let build = tables::make(&device, 0, one, &mut prng);
            let probe = tables::make(&device, PROBE_AT, other, &mut prng);
            let carry = if prng.chance(2) { Carry::Rids } else { Carry::Rows };
            let mut join = Join {
                build: side(&build),
                probe: side(&probe),
                carry,
                plan: tables::plan(&mut prng),
                cpu: Cpu::with_cores(4, 4),
                memory: 0,
                buckets: prng.chance(3).then(|| 1 << prng.below(10)),
                spill: spill(&device, SPILL_AT),
            };
            let even = |row: &[u8]| tables::id(row).is_multiple_of(2);
            let is_half = prng.chance(2);
            if is_half {
                join.probe.input.predicate = Some(Arc::new(even));
            }
            let seen = |row: &&Row| !is_half || row.id.is_multiple_of(2);
            let probed: Vec<Row> = probe.rows.iter().filter(seen).copied().collect();
            let pairs = model(&build.rows, &probed);
            let least = least(&join);
            for memory in [least, least + prng.below(least), 16 << 20] {
                join.memory = memory;
                let (got, joined) = run(&join).expect("no faults");
                assert!(got == pairs, "seed {seed}: {} pairs of {}", got.len(), pairs.len());
                assert_eq!(joined.rows, pairs.len() as u64);
                assert!(joined.peak_bytes <= memory, "{joined:?} in {memory}");
                assert!(joined.spilled > 0 || joined.loads == 0, "{joined:?}");
                spilled[usize::from(carry == Carry::Rows)] += joined.spilled;
                assert!(memory < 16 << 20 || joined.spilled == 0, "{joined:?}");
            }
            if let Some(memory) = least.checked_sub(1) {
                join.memory = memory;
                let refused = run(&join).expect_err("a byte too few").to_string();
                assert!(refused.contains("too few") && !refused.contains('\n'), "{refused}");
            }
        };
        Virtual::new(config).run(work).expect("it ends");
    }
    assert!(spilled.iter().all(|count| *count > 20), "{spilled:?}");
}

/// Two tables of one wish, joined on a device; what does not fit goes to another.
fn join(device: &Arc<dyn Device>, other: &Arc<dyn Device>, wish: Wish) -> (Join, Pairs) {
    let mut prng = Prng::from_seed(6);
    let build = tables::make(device, 0, wish, &mut prng);
    let probe = tables::make(device, PROBE_AT, wish, &mut prng);
    let join = Join {
        build: side(&build),
        probe: side(&probe),
        carry: Carry::Rids,
        plan: Plan::striped(20, 4096, 32, 4).expect("it has domains"),
        cpu: Cpu::free(),
        memory: 0,
        buckets: None,
        spill: spill(other, SPILL_AT),
    };
    let memory = least(&join);
    // Of equal values there are too many pairs for a model.
    let is_equal = wish.keys == Keys::Equal;
    let pairs = if is_equal { Pairs::new() } else { model(&build.rows, &probe.rows) };
    (Join { memory, ..join }, pairs)
}

/// A partition whose rows all have one value fits in no memory but in pieces.
#[test]
fn rows_that_all_have_one_value_are_joined_in_any_memory() {
    let work = || {
        let device: Arc<dyn Device> = tables::device(Preset::Ram, 256 << 20, Faults::default());
        let wish = Wish { keys: Keys::Equal, rows: 20_000, span: 1, page_bytes: 4096 };
        let (mut join, _) = join(&device, &device, wish);
        let few = |row: &[u8]| tables::id(row) < 20;
        join.probe.input.predicate = Some(Arc::new(few));
        let (pairs, joined) = run(&join).expect("no faults");
        assert_eq!((pairs.len(), joined.rows), (400_000, 400_000));
        assert!(joined.spilled == 1 && joined.loads > 1, "{joined:?}");
        assert!(joined.peak_bytes <= join.memory, "{joined:?} in {}", join.memory);
    };
    Virtual::new(VirtualConfig::default()).run(work).expect("it ends");
}

const SPREAD: Wish = Wish { keys: Keys::Spread, rows: 20_000, span: 40_000, page_bytes: 4096 };

#[test]
fn a_device_that_fails_ends_the_join_with_its_error() {
    let (mut told, mut whole) = (0, 0);
    for seed in 0..40 {
        let work = || {
            let device: Arc<dyn Device> =
                tables::device(Preset::Ram, DRIVE_BYTES, Faults::default());
            let plan = FaultPlan { seed, dies_after: Some(seed * 8), ..FaultPlan::default() };
            let bad: Arc<dyn Device> = FaultyDevice::new(Arc::clone(&device), plan);
            let (join, pairs) = join(&device, &device, SPREAD);
            let spill = spill(&bad, SPILL_AT);
            (run(&Join { spill, ..join }), pairs)
        };
        let done = Virtual::new(VirtualConfig::default()).run(work).expect("it does not hang");
        match done {
            (Ok((got, _)), pairs) => {
                assert!(got == pairs, "seed {seed}");
                whole += 1;
            }
            (Err(Error::Device(_)), _) => told += 1,
            (Err(other), _) => panic!("seed {seed}: {other}"),
        }
    }
    assert!(told > 10, "{told} told, {whole} whole");
}

/// Every write and read that fails once, wherever in the join, is an error and no wrong answer.
#[test]
fn an_error_anywhere_is_told_and_never_a_wrong_answer() {
    let mut told = 0;
    for seed in 0..60 {
        let work = || {
            let faults = Faults { seed, ..Faults::default() };
            let device: Arc<dyn Device> = tables::device(Preset::Ram, DRIVE_BYTES, faults);
            let plan = FaultPlan {
                seed,
                read_error_one_in: 300,
                write_error_one_in: 300,
                partial_error_one_in: 300,
                ..FaultPlan::default()
            };
            let (mut join, pairs) = join(&device, &device, SPREAD);
            let bad: Arc<dyn Device> = FaultyDevice::new(Arc::clone(&device), plan);
            join.spill = spill(&bad, SPILL_AT);
            let bad_table = |input: &Input| {
                let table = &input.table;
                let (pages, count) = (Arc::clone(table.pages()), table.count());
                let moved = crate::Table::new(Arc::clone(&bad), pages, table.first_byte(), count);
                Input { table: moved.expect("as before"), ..input.clone() }
            };
            join.build.input = bad_table(&join.build.input);
            join.probe.input = bad_table(&join.probe.input);
            (run(&join), pairs)
        };
        let done = Virtual::new(VirtualConfig::default()).run(work).expect("it does not hang");
        match done {
            (Ok((got, _)), pairs) => assert!(got == pairs, "seed {seed}"),
            (Err(_), _) => told += 1,
        }
    }
    assert!(told > 5, "{told}");
}

#[test]
fn joins_that_make_no_sense_are_refused_in_a_line() {
    let work = || {
        let device: Arc<dyn Device> = tables::device(Preset::Ram, DRIVE_BYTES, Faults::default());
        let wish = Wish { keys: Keys::Spread, rows: 3_000, span: 60_000, page_bytes: 512 };
        let (join, _) = join(&device, &device, wish);
        let buckets = Join { buckets: Some(24), ..join.clone() };
        let mut narrow = join.clone();
        narrow.build.input.attribute.bytes = 1;
        let mut small = join.clone();
        small.spill.bytes = 8 << 10;
        for (join, said) in [
            (buckets, "24 buckets are no power of two: take 16 or 32"),
            (narrow, "does not fit in the 1 bytes of its attribute"),
            (small, "8192 bytes are too few for what does not fit in memory"),
            (Join { memory: 100, ..join }, "100 bytes of memory are too few"),
        ] {
            let error = run(&join).expect_err("it makes no sense").to_string();
            assert!(error.contains(said) && !error.contains('\n'), "{error}");
        }
    };
    Virtual::new(VirtualConfig::default()).run(work).expect("it ends");
}
