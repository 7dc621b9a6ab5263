//! A warehouse whose lines lie by the date of shipping: queries 1, 6, 14 and 15 over ranges of
//! dates of which recent ones are the likelier [VLDB 2010, 4.2].
//!
//! Both ends of a range are drawn by Zipf's law over the days before the last. That is one reading:
//! the paper says that the ranges were "generated using a Zipfian distribution", without exponent
//! or lengths.

use super::plan::Plan;
use crate::zipf::Zipf;
use fastrand::Rng;
use std::ops::Range;

/// Its queries.
pub const QUERIES: [Query; 4] = [Query::Q1, Query::Q6, Query::Q14, Query::Q15];

/// Days of shipping: 2 January 1992 to 1 December 1998.
pub const DAYS: u64 = 2_526;

/// A query, by its number in the benchmark.
#[derive(Clone, Copy, Debug)]
pub enum Query {
    Q1,
    Q6,
    Q14,
    Q15,
}

/// Days of a query, from the first on.
pub fn days(recency: &Zipf, random: &mut Rng) -> Range<u64> {
    let [one, other] = [(); 2].map(|()| DAYS - recency.sample(random));
    one.min(other)..one.max(other) + 1
}

impl Query {
    /// Asks for its pages.
    pub fn run(self, plan: &mut Plan<'_>, days: &Range<u64>) {
        let (shape, rows) = (plan.shape, plan.rows);
        let row = |day: u64| day * shape.lineitem.rows / DAYS;
        let lines = row(days.start)..row(days.end);
        plan.range(&shape.lineitem_shipdate, &shape.lineitem, lines.clone());
        match self {
            Query::Q1 | Query::Q6 => {}
            Query::Q14 => {
                let (index, table) = (&shape.part_key, &shape.part);
                if plan.prefers_scan(index, table, lines.end - lines.start) {
                    plan.scan(table);
                } else {
                    let parts: Vec<u64> = lines.map(|line| rows.part_of(line)).collect();
                    plan.join(index, table, &parts);
                }
            }
            Query::Q15 => {
                // One supplier has the most; any.
                let best = rows.supplier_of(rows.part_of(lines.start), rows.place_of(lines.start));
                plan.join(&shape.supplier_key, &shape.supplier, &[best]);
            }
        }
    }
}
