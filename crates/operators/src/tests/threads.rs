//! All operators in the real world: executors that are threads of their own, real files, and a
//! watchdog, which ends a test that hangs.

use std::path::PathBuf;
use std::sync::Arc;

use terrace_device::{Device, FaultPlan, FaultyDevice, FileDevice, FileOptions};
use terrace_rt::{Nanos, Prng, Real, within};

use super::tables::{self, Keys, Made, Wish, ids, key};
use super::{joins, sorts};
use crate::{
    Aggregated, Carry, Cpu, Error, Function, Input, Join, Plan, Sort, Spill, Table, aggregate,
};

const EXECUTORS: usize = 3;
const ROUNDS: u64 = 6;
const FILE_BYTES: u64 = 32 << 20;
const PROBE_AT: u64 = 4 << 20;
const SPILL_AT: u64 = 8 << 20;
/// Longer than any of this takes on a busy machine.
const PATIENCE: Nanos = Nanos::from_secs(300);

/// A file for a test, taken away at its end.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str) -> TestFile {
        let name = format!("terrace-operators-{name}-{}", std::process::id());
        TestFile(std::env::temp_dir().join(name))
    }

    fn open(&self) -> Arc<dyn Device> {
        let options = FileOptions {
            size: Some(FILE_BYTES),
            create: true,
            direct: false,
            ..FileOptions::default()
        };
        Arc::new(FileDevice::open(&self.0, &options).expect("a file"))
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Both tables, on a file.
fn made(device: &Arc<dyn Device>, seed: u64) -> [Made; 2] {
    let mut prng = Prng::from_seed(seed);
    let keys = [Keys::Spread, Keys::Nulls, Keys::Spread][seed as usize % 3];
    let wish = Wish { keys, rows: 20_000, span: 20_000, page_bytes: 4096 };
    [0, PROBE_AT].map(|at| tables::make(device, at, wish, &mut prng))
}

fn on(device: &Arc<dyn Device>, input: &Input) -> Input {
    let table = &input.table;
    let (pages, first) = (Arc::clone(table.pages()), table.first_byte());
    let table = Table::new(Arc::clone(device), pages, first, table.count()).expect("as before");
    Input { table, ..input.clone() }
}

/// What a join and a sort of two tables are, with too little memory for either.
fn tasks(device: &Arc<dyn Device>, tables: &[Made; 2], carry: Carry) -> (Join, Sort) {
    let plan = Plan::striped(20, 4096, 32, 12).expect("it has domains");
    let half = FILE_BYTES / 2;
    let spill =
        |first_byte| Spill { device: Arc::clone(device), first_byte, bytes: half - SPILL_AT };
    let [mut build, mut probe] = [joins::side(&tables[0]), joins::side(&tables[1])];
    build.input = on(device, &build.input);
    probe.input = on(device, &probe.input);
    let sort = Sort {
        input: build.input.clone(),
        projection: ids(),
        plan,
        cpu: Cpu::free(),
        memory: 256 << 10,
        spill: spill(half),
    };
    let join = Join {
        build,
        probe,
        carry,
        plan,
        cpu: Cpu::free(),
        memory: 256 << 10,
        buckets: Some(512),
        spill: spill(SPILL_AT),
    };
    (join, sort)
}

#[test]
fn threads_agree_with_the_models() {
    let done = within(PATIENCE, || {
        let file = TestFile::new("threads");
        let device = file.open();
        Real::new(EXECUTORS).run(move || {
            let mut spilled = 0;
            for seed in 0..ROUNDS {
                let tables = made(&device, seed);
                let carry = if seed % 2 == 0 { Carry::Rids } else { Carry::Rows };
                let (join, sort) = tasks(&device, &tables, carry);
                // The sort runs beside the join.
                let sorts_rows = sorts::model(tables[0].rows.clone());
                let sorted = terrace_rt::spawn("a sort", move || {
                    let (got, sorted) = sorts::run(&sort).expect("no faults");
                    assert!(got == sorts_rows && sorted.runs > 1, "seed {seed}: {sorted:?}");
                });
                let (got, joined) = joins::run(&join).expect("no faults");
                assert!(got == joins::model(&tables[0].rows, &tables[1].rows), "seed {seed}");
                assert!(joined.peak_bytes <= join.memory, "{joined:?}");
                spilled += joined.spilled;
                let count = aggregate(&join.probe.input, &[Function::Count], &join.plan, &join.cpu);
                let keys = tables[1].rows.iter().filter(|row| row.key.is_some()).count();
                assert_eq!(count.expect("no faults"), [Aggregated::Whole(keys as i128)]);
                sorted.join();
            }
            assert!(spilled > 20, "{spilled} partitions");
        });
    });
    assert!(done.is_some(), "an operator hangs, or a check failed");
}

#[test]
fn threads_end_with_the_error_of_a_device() {
    let done = within(PATIENCE, || {
        let file = TestFile::new("errors");
        let device = file.open();
        Real::new(EXECUTORS).run(move || {
            let tables = made(&device, 0);
            assert!(tables[0].input.value(&[0; 17]) == key(&[0; 17]));
            let mut told = 0;
            for seed in 0..30 {
                let plan = FaultPlan { seed, dies_after: Some(seed * 30), ..FaultPlan::default() };
                let bad: Arc<dyn Device> = FaultyDevice::new(Arc::clone(&device), plan);
                let (join, sort) = tasks(&bad, &tables, Carry::Rids);
                for error in [joins::run(&join).err(), sorts::run(&sort).err()] {
                    told += u64::from(matches!(error, Some(Error::Device(_))));
                    assert!(matches!(error, None | Some(Error::Device(_))), "{error:?}");
                }
            }
            assert!(told > 20, "{told}");
        });
    });
    assert!(done.is_some(), "an operator hangs, or a check failed");
}
