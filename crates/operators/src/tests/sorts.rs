//! ParaSort beside a sort in memory.

use std::sync::Arc;

use terrace_device::model::{Faults, Preset};
use terrace_device::{Device, FaultPlan, FaultyDevice};
use terrace_rt::{Prng, Virtual, VirtualConfig};

use super::tables::{self, Keys, Row, Wish, fetched, ids, spill};
use crate::{Cpu, Error, Plan, Sort, Sorted, sort};

const DRIVE_BYTES: u64 = 8 << 20;
/// Tables end before this.
const SPILL_AT: u64 = 2 << 20;

/// Keys and numbers of rows.
pub(super) type Rows = Vec<(Option<i64>, u64)>;

pub(super) fn run(sorting: &Sort) -> Result<(Rows, Sorted), Error> {
    let mut got = Vec::new();
    let sorted = sort(sorting, |key, row| {
        got.push((key, fetched(row)));
        Ok(())
    })?;
    Ok((got, sorted))
}

pub(super) fn model(mut rows: Vec<Row>) -> Rows {
    rows.sort();
    rows.into_iter().map(|row| (row.key, row.id)).collect()
}

/// The least memory for a plan: what the error asks for.
fn least(sorting: &Sort) -> u64 {
    match sort(&Sort { memory: 0, ..sorting.clone() }, |_, _| Ok(())) {
        Err(Error::Memory { needed, given: 0 }) => needed,
        other => panic!("no memory is enough: {other:?}"),
    }
}

#[test]
fn rows_come_in_order_with_any_memory() {
    let (mut spilled, mut kept) = (0, 0);
    for seed in 0..60 {
        let mut prng = Prng::from_seed(seed);
        let config = VirtualConfig { seed, cores: 4, ..VirtualConfig::default() };
        let work = || {
            let device: Arc<dyn Device> =
                tables::device(Preset::SsdS, DRIVE_BYTES, Faults::default());
            let wish = tables::wish(&mut prng, 12_000);
            let made = tables::make(&device, 0, wish, &mut prng);
            let plan = tables::plan(&mut prng);
            let mut sorting = Sort {
                input: made.input.clone(),
                projection: ids(),
                plan,
                cpu: Cpu::with_cores(4, 4),
                memory: 0,
                spill: spill(&device, SPILL_AT),
            };
            let least = least(&sorting);
            for memory in [least, least + prng.below(4 * least), 64 << 20] {
                sorting.memory = memory;
                let (got, sorted) = run(&sorting).expect("no faults");
                assert_eq!(got, model(made.rows.clone()), "seed {seed}, {memory} of {wish:?}");
                assert_eq!(sorted.rows, made.rows.len() as u64);
                assert_eq!(sorted.runs == 0, sorted.spilled_bytes == 0);
                let at_edge = u64::from(memory == least);
                spilled += at_edge * u64::from(sorted.runs > 2);
                kept += u64::from(memory > 32 << 20 && sorted.runs == 0);
            }
            sorting.memory = least - 1;
            let refused = run(&sorting).expect_err("a byte too few").to_string();
            assert!(refused.contains("too few") && !refused.contains('\n'), "{refused}");
        };
        Virtual::new(config).run(work).expect("it ends");
    }
    assert!(spilled > 5 && kept == 60, "{spilled} spilled, {kept} not");
}

fn sorting(device: &Arc<dyn Device>, runs: &Arc<dyn Device>, rows: u64) -> (Sort, Vec<Row>) {
    let wish = Wish { keys: Keys::Skewed, rows, span: 500, page_bytes: 4096 };
    let made = tables::make(device, 0, wish, &mut Prng::from_seed(5));
    let sorting = Sort {
        input: made.input,
        projection: ids(),
        plan: Plan::striped(20, 4096, 32, 4).expect("it has domains"),
        cpu: Cpu::free(),
        memory: 96 << 10,
        spill: spill(runs, SPILL_AT),
    };
    (sorting, made.rows)
}

/// Many runs, merged in rounds.
#[test]
fn more_runs_than_are_merged_at_once_take_rounds() {
    let work = || {
        let device: Arc<dyn Device> = tables::device(Preset::Ram, 16 << 20, Faults::default());
        let (sorting, rows) = sorting(&device, &device, 40_000);
        let (got, sorted) = run(&sorting).expect("no faults");
        assert_eq!(got, model(rows));
        // 11 runs are merged at once: half of the memory is 12 blocks.
        assert!(sorted.runs > 22, "{sorted:?}");
        assert!(sorted.spilled_bytes > 40_000 * 23 * 5 / 4, "more than a round: {sorted:?}");
    };
    Virtual::new(VirtualConfig::default()).run(work).expect("it ends");
}

#[test]
fn a_device_that_fails_ends_the_sort_with_its_error() {
    let mut told = 0;
    for seed in 0..40 {
        let work = || {
            let device: Arc<dyn Device> = tables::device(Preset::Ram, 4 << 20, Faults::default());
            let plan = FaultPlan { seed, dies_after: Some(seed * 12), ..FaultPlan::default() };
            let bad: Arc<dyn Device> = FaultyDevice::new(Arc::clone(&device), plan);
            let (sorting, rows) = sorting(&device, &bad, 8_000);
            (run(&sorting), model(rows))
        };
        let done = Virtual::new(VirtualConfig::default()).run(work).expect("it does not hang");
        match done {
            (Ok((got, _)), rows) => assert_eq!(got, rows, "seed {seed}"),
            (Err(Error::Device(_)), _) => told += 1,
            (Err(other), _) => panic!("seed {seed}: {other}"),
        }
    }
    assert!(told > 5, "{told}");
}

#[test]
fn too_little_room_for_runs_is_said() {
    let work = || {
        let device: Arc<dyn Device> = tables::device(Preset::Ram, 4 << 20, Faults::default());
        let (mut sorting, _) = sorting(&device, &device, 20_000);
        sorting.spill.bytes = 64 << 10;
        run(&sorting)
    };
    let found = Virtual::new(VirtualConfig::default()).run(work).expect("it ends");
    assert!(matches!(found, Err(Error::SpillFull { bytes: 65_536 })), "{:?}", found.map(|it| it.1));
}
