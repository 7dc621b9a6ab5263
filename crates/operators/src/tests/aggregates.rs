//! ParaAggr beside sums of the rows in memory.

use std::sync::Arc;

use terrace_device::Device;
use terrace_device::model::{Faults, Preset};
use terrace_rt::{Prng, Virtual, VirtualConfig};

use super::tables::{self, Row};
use crate::{Aggregated, Cpu, Error, Function, Input, aggregate};

const ALL: [Function; 5] =
    [Function::Sum, Function::Max, Function::Min, Function::Count, Function::Avg];

fn model(rows: &[Row]) -> Vec<Aggregated> {
    let values: Vec<i64> = rows.iter().filter_map(|row| row.key).collect();
    let sum: i128 = values.iter().map(|value| i128::from(*value)).sum();
    let whole = |value: Option<i64>| {
        value.map_or(Aggregated::Null, |value| Aggregated::Whole(i128::from(value)))
    };
    let some = |value| if values.is_empty() { Aggregated::Null } else { value };
    vec![
        some(Aggregated::Whole(sum)),
        whole(values.iter().max().copied()),
        whole(values.iter().min().copied()),
        Aggregated::Whole(values.len() as i128),
        some(Aggregated::Mean(sum as f64 / values.len() as f64)),
    ]
}

#[test]
fn all_functions_agree_with_their_model() {
    for seed in 0..80 {
        let mut prng = Prng::from_seed(seed);
        let run = || {
            let device: Arc<dyn Device> = tables::device(Preset::SsdS, 4 << 20, Faults::default());
            let wish = tables::wish(&mut prng, 1_000);
            let made = tables::make(&device, 0, wish, &mut prng);
            let plan = tables::plan(&mut prng);
            let found = aggregate(&made.input, &ALL, &plan, &Cpu::free()).expect("no faults");
            assert_eq!(found, model(&made.rows), "seed {seed}, {wish:?}");
            // With a predicate, and in another order.
            let odd = |row: &[u8]| tables::id(row) % 2 == 1;
            let input = Input { predicate: Some(Arc::new(odd)), ..made.input.clone() };
            let some = [Function::Count, Function::Sum];
            let found = aggregate(&input, &some, &plan, &Cpu::free()).expect("no faults");
            let rows: Vec<Row> = made.rows.iter().filter(|row| row.id % 2 == 1).copied().collect();
            let all = model(&rows);
            assert_eq!(found, [all[3], all[0]], "seed {seed}");
        };
        let config = VirtualConfig { seed, ..VirtualConfig::default() };
        Virtual::new(config).run(run).expect("it ends");
    }
}

/// aggregate.A2: the greatest values do not overflow.
#[test]
fn sums_of_the_greatest_values_are_exact() {
    let run = || {
        let device: Arc<dyn Device> = tables::device(Preset::Ram, 1 << 20, Faults::default());
        let wish = tables::Wish { keys: tables::Keys::Equal, rows: 500, span: 1, page_bytes: 512 };
        let mut input = tables::make(&device, 0, wish, &mut Prng::from_seed(1)).input;
        input.attribute.column = Arc::new(|_: &[u8]| Some(i64::MIN));
        let plan = tables::plan(&mut Prng::from_seed(2));
        aggregate(&input, &[Function::Sum, Function::Avg], &plan, &Cpu::free()).expect("no faults")
    };
    let found = Virtual::new(VirtualConfig::default()).run(run).expect("it ends");
    let sum = 500 * i128::from(i64::MIN);
    assert_eq!(found, [Aggregated::Whole(sum), Aggregated::Mean(i64::MIN as f64)]);
}

#[test]
fn a_device_that_fails_ends_it_with_its_error() {
    for seed in 0..20 {
        let run = || {
            let faults = Faults { seed, dies_after: Some(seed * 7), ..Faults::default() };
            let device: Arc<dyn Device> = tables::device(Preset::SsdS, 1 << 20, faults);
            let pages = crate::RowPages::new(4096, 17).expect("whole sectors");
            let table = crate::Table::new(device, Arc::new(pages), 0, 256).expect("it fits");
            let attribute = crate::Attribute { column: Arc::new(tables::key), bytes: 8 };
            let input = Input { table, attribute, predicate: None };
            let plan = tables::plan(&mut Prng::from_seed(seed));
            aggregate(&input, &ALL, &plan, &Cpu::free())
        };
        let found = Virtual::new(VirtualConfig::default()).run(run).expect("it does not hang");
        assert!(matches!(found, Err(Error::Device(_) | Error::Corrupt { .. })), "{found:?}");
    }
}
