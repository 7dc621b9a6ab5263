//! ParaAggr: aggregates of a column (Fan et al., 4.3).
//!
//! Each task of the scan has a SubAggr for the rows of its ScanBuffer; TolAggr brings them
//! together: counts become a sum, an average a sum over a count.
//!
//! - A1: null values are left out of all functions; of no values there is a count, 0, and nothing
//!   else.
//! - A2: sums are exact: 2^63 values of 64 bits fit into 128.

use crate::Error;
use crate::cpu::{Cpu, Step};
use crate::plan::Plan;
use crate::scan::scan;
use crate::table::Input;

/// An aggregate function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// The sum of the values.
    Sum,
    /// The greatest.
    Max,
    /// The least.
    Min,
    /// How many values there are.
    Count,
    /// Their mean.
    Avg,
}

/// What a function gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aggregated {
    /// No value was there (A1).
    Null,
    /// Of all functions but the average.
    Whole(i128),
    /// Of the average.
    Mean(f64),
}

/// A SubAggr, and what TolAggr makes of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Partial {
    count: u64,
    sum: i128,
    ends: Option<(i64, i64)>,
}

impl Partial {
    fn add(&mut self, value: i64) {
        self.merge(Partial { count: 1, sum: i128::from(value), ends: Some((value, value)) });
    }

    fn merge(&mut self, other: Partial) {
        self.count += other.count;
        self.sum += other.sum;
        self.ends = match (self.ends, other.ends) {
            (Some((least, most)), Some((low, high))) => Some((least.min(low), most.max(high))),
            (one, other) => one.or(other),
        };
    }

    fn result(self, function: Function) -> Aggregated {
        let Some((least, most)) = self.ends else {
            let is_count = function == Function::Count;
            return if is_count { Aggregated::Whole(0) } else { Aggregated::Null };
        };
        match function {
            Function::Sum => Aggregated::Whole(self.sum),
            Function::Max => Aggregated::Whole(i128::from(most)),
            Function::Min => Aggregated::Whole(i128::from(least)),
            Function::Count => Aggregated::Whole(i128::from(self.count)),
            Function::Avg => Aggregated::Mean(self.sum as f64 / self.count as f64),
        }
    }
}

/// The aggregates of a column, in the order of `functions`.
///
/// # Errors
///
/// As [`scan`].
pub fn aggregate(
    input: &Input,
    functions: &[Function],
    plan: &Plan,
    cpu: &Cpu,
) -> Result<Vec<Aggregated>, Error> {
    let (rows, count) = (input.clone(), functions.len() as u64);
    let make = |_| Partial::default();
    let partials = scan(&input.table, plan, cpu, make, move |partial, page, work| {
        let before = partial.count;
        let seen = page.rows().filter(|(_, row)| rows.sees(row));
        seen.filter_map(|(_, row)| rows.value(row)).for_each(|value| partial.add(value));
        work.add(Step::Aggregate, (partial.count - before) * count);
        Ok(())
    })?;
    let mut total = Partial::default();
    partials.into_iter().for_each(|partial| total.merge(partial));
    Ok(functions.iter().map(|function| total.result(*function)).collect())
}
