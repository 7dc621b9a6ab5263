//! The queries of the two workloads, drawn one after the other.
//!
//! - Q1: the same workload, scale and seed give the same rows and the same queries, whatever runs
//!   them.

use super::answer::Answer;
use super::rows::Rows;
use super::sizes::{ORDER_KEY_STEP, Sizes};
use super::steps::Steps;
use super::{dates, ods};
use crate::synthetic::BadOption;
use crate::zipf::Zipf;
use fastrand::Rng;
use std::ops::Range;

/// Largest scale: its pages keep below those that a made-up trace may have.
const SCALE_MAX: f64 = 1_000.0;

/// Which queries over which ranges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TpchWorkload {
    /// Queries 2, 5, 9, 11, 17, each over a uniformly placed range of keys, whose length is drawn
    /// from the narrowest to the widest, orders of magnitude alike.
    Ods {
        /// Fewest values of a range.
        narrowest: u64,
        /// Most.
        widest: u64,
    },
    /// Queries 1, 6, 14, 15 over ranges of dates, both ends by Zipf's law from the last day back,
    /// with this exponent; lines lie by date.
    Dates(f64),
}

/// A query, by its number in the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueryName {
    /// Pricing summary.
    Q1,
    /// Minimum cost supplier.
    Q2,
    /// Local supplier volume.
    Q5,
    /// Forecasting revenue change.
    Q6,
    /// Product type profit.
    Q9,
    /// Important stock.
    Q11,
    /// Promotion effect.
    Q14,
    /// Top supplier.
    Q15,
    /// Small-quantity-order revenue.
    Q17,
}

use QueryName::{Q1, Q2, Q5, Q6, Q9, Q11, Q14, Q15, Q17};

const ODS: [QueryName; 5] = [Q2, Q5, Q9, Q11, Q17];
const DATES: [QueryName; 4] = [Q1, Q6, Q14, Q15];

/// A query with its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Which one.
    pub name: QueryName,
    /// Of keys of orders (5, 9), parts (2, 11, 17), or days (1, 6, 14, 15).
    pub range: Range<u64>,
}

impl Query {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// Those of the steps.
    pub fn run<S: Steps>(&self, steps: &mut S) -> Result<Answer, S::Error> {
        let range = self.range.clone();
        match self.name {
            Q1 => dates::pricing_summary(steps, range),
            Q2 => ods::minimum_cost_supplier(steps, range),
            Q5 => ods::local_supplier_volume(steps, range),
            Q6 => dates::forecasting_revenue_change(steps, range),
            Q9 => ods::product_type_profit(steps, range),
            Q11 => ods::important_stock(steps, range),
            Q14 => dates::promotion_effect(steps, range),
            Q15 => dates::top_supplier(steps, range),
            Q17 => ods::small_quantity_revenue(steps, range),
        }
    }
}

/// Queries without end.
#[derive(Clone, Debug)]
pub struct Queries {
    workload: TpchWorkload,
    sizes: Sizes,
    random: Rng,
    recency: Option<Zipf>,
}

impl Queries {
    /// The rows of a database of `scale` GB of rows, and queries over it.
    ///
    /// # Errors
    ///
    /// An option makes no sense.
    pub fn new(
        workload: TpchWorkload,
        scale: f64,
        seed: u64,
    ) -> Result<(Rows, Queries), BadOption> {
        let bad = |option, rule| Err(BadOption { option, rule });
        if !(scale > 0.0 && scale <= SCALE_MAX) {
            return bad("scale", "above 0, up to 1000");
        }
        let recency = match workload {
            TpchWorkload::Ods { narrowest, widest } if narrowest == 0 || widest < narrowest => {
                return bad("widths", "a number of keys and one that is not smaller");
            }
            TpchWorkload::Ods { .. } => None,
            TpchWorkload::Dates(exponent) => match Zipf::new(super::sizes::DAYS, exponent) {
                Some(zipf) => Some(zipf),
                None => return bad("zipf", "an exponent from 0 on"),
            },
        };
        let mut random = Rng::with_seed(seed);
        let sizes = Sizes::at_scale(scale);
        let rows = Rows::new(sizes, &mut random);
        Ok((rows, Queries { workload, sizes, random, recency }))
    }

    /// How many values the attribute has that a query's range is of.
    fn domain(&self, name: QueryName) -> u64 {
        match name {
            Q5 | Q9 => self.sizes.orders * ORDER_KEY_STEP,
            _ => self.sizes.parts,
        }
    }
}

impl Iterator for Queries {
    type Item = Query;

    fn next(&mut self) -> Option<Query> {
        Some(match (self.workload, &self.recency) {
            (TpchWorkload::Ods { narrowest, widest }, _) => {
                let name = ODS[self.random.usize(..ODS.len())];
                let domain = self.domain(name);
                let ratio = widest as f64 / narrowest as f64;
                let width = (narrowest as f64 * ratio.powf(self.random.f64())) as u64;
                let start = self.random.u64(..domain);
                Query { name, range: start..(start + width).min(domain) }
            }
            (TpchWorkload::Dates(_), Some(recency)) => {
                let name = DATES[self.random.usize(..DATES.len())];
                Query { name, range: dates::days(recency, &mut self.random) }
            }
            (TpchWorkload::Dates(_), None) => unreachable!("it was made with the options"),
        })
    }
}
