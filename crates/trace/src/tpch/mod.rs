//! TPC-H as the TAC paper ran it, with ranges added to its queries: what the queries do, and traces
//! of which pages they ask for, before memory, made from the shape of the tables.
//!
//! - T1: the same options give the same requests.
//! - T2: every request reads one page, at a multiple of its size, in file 0, the table space.
//!
//! Modules in reading order: `sizes`; `rows` and `row`, what stands in the tables; `steps`, what a
//! query may ask of them; `ods` and `dates`, the queries of the two workloads, written once;
//! `queries`, which are drawn; `answer`. A type that implements [`Steps`] can run them: here
//! `computed`, which has no database but `shape`, the pages that tables and indexes have.
//!
//! Source: Canim et al., "SSD Bufferpool Extensions for Database Systems", VLDB 2010, 4.2.
//! Not for: the benchmark's own queries, which have no such ranges.

mod answer;
mod computed;
mod dates;
#[cfg(test)]
mod naive;
mod ods;
mod queries;
mod row;
mod rows;
mod shape;
mod sizes;
mod steps;

pub use answer::{Answer, Group};
pub use computed::{Answers, Computed};
pub use queries::{Queries, Query, QueryName, TpchWorkload};
pub use row::{
    COLUMNS_MAX, Customer, Line, Nation, Offer, Order, Part, Region, Row, Shipped, Supplier,
};
pub use rows::Rows;
pub use shape::{Index, Shape, Table};
pub use sizes::{DAYS, Sizes};
pub use steps::{Steps, scan_costs_less};

use crate::pages::PageBytes;
use crate::request::{Kind, Request};
use crate::synthetic::BadOption;
use std::convert::Infallible;

/// Largest page and smallest.
const PAGE_BYTES: std::ops::RangeInclusive<u64> = 1 << 10..=64 << 10;

/// What a trace of TPC-H is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TpchOptions {
    /// Queries and ranges.
    pub workload: TpchWorkload,
    /// The benchmark's scale factor: about the GB of rows.
    pub scale: f64,
    /// How many queries.
    pub queries: u32,
    /// Decides everything that is drawn.
    pub seed: u64,
    /// The size of a page, and of every request.
    pub page_bytes: PageBytes,
    /// Nanoseconds between two requests.
    pub interval_ns: u64,
}

/// A trace of TPC-H queries.
#[derive(Clone, Debug)]
pub struct Tpch {
    options: TpchOptions,
    shape: Shape,
    rows: Rows,
    queries: Queries,
    /// Queries begun.
    begun: u32,
    /// What the present query asks for, and how much of it was given.
    pages: Vec<u64>,
    given: usize,
    requests: u64,
}

impl Tpch {
    /// The trace that `options` describe.
    ///
    /// # Errors
    ///
    /// An option makes no sense.
    pub fn new(options: TpchOptions) -> Result<Tpch, BadOption> {
        let (rows, queries) = Queries::new(options.workload, options.scale, options.seed)?;
        if !PAGE_BYTES.contains(&options.page_bytes.get()) {
            let rule = "from 1KiB to 64KiB for this workload";
            return Err(BadOption { option: "page", rule });
        }
        let shape = Shape::new(&rows.sizes, options.page_bytes.get());
        let (begun, pages, given, requests) = (0, Vec::new(), 0, 0);
        Ok(Tpch { options, shape, rows, queries, begun, pages, given, requests })
    }

    /// Pages of the table space.
    #[must_use]
    pub fn pages_count(&self) -> u64 {
        self.shape.pages
    }

    fn begin(&mut self) {
        self.begun += 1;
        self.given = 0;
        let query = self.queries.next().expect("they have no end");
        let mut steps = Computed::new(&self.shape, &self.rows, Answers::Skipped);
        let Ok::<_, Infallible>(_) = query.run(&mut steps);
        self.pages = steps.pages;
    }
}

impl Iterator for Tpch {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        while self.given == self.pages.len() {
            if self.begun == self.options.queries {
                return None;
            }
            self.begin();
        }
        let page_bytes = self.options.page_bytes.get();
        let address = self.pages[self.given] * page_bytes;
        self.given += 1;
        let time_ns = self.requests.wrapping_mul(self.options.interval_ns);
        self.requests += 1;
        Some(Request { time_ns, address, length: page_bytes as u32, file: 0, kind: Kind::Read })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const ODS: TpchOptions = TpchOptions {
        workload: TpchWorkload::Ods { narrowest: 10, widest: 1_000 },
        scale: 0.1,
        queries: 60,
        seed: 1,
        page_bytes: PageBytes::DEFAULT,
        interval_ns: 1,
    };
    const DATES: TpchOptions = TpchOptions { workload: TpchWorkload::Dates(1.0), ..ODS };

    fn pages(options: TpchOptions) -> Vec<u64> {
        let trace = Tpch::new(options).expect("options that make sense");
        trace.map(|request| request.address / 8192).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_requests() {
        for options in [ODS, DATES] {
            let (one, other) = (pages(options), pages(TpchOptions { seed: 2, ..options }));
            assert_eq!(one, pages(options));
            assert_ne!(one, other);
            let count = Tpch::new(options).expect("sense").pages_count();
            assert!(one.iter().all(|&page| page < count));
        }
    }

    #[test]
    fn every_table_is_asked_for() {
        let trace = Tpch::new(ODS).expect("sense");
        let tables = [
            trace.shape.supplier,
            trace.shape.part,
            trace.shape.partsupp,
            trace.shape.customer,
            trace.shape.orders,
            trace.shape.lineitem,
        ];
        let seen: BTreeSet<u64> = pages(ODS).into_iter().collect();
        for table in tables {
            let pages = table.page(0)..=table.page(table.rows - 1);
            assert!(seen.range(pages).next().is_some(), "{table:?}");
        }
    }

    #[test]
    fn recent_lines_are_asked_for_more_often() {
        let trace = Tpch::new(DATES).expect("sense");
        let lines = trace.shape.lineitem;
        let (first, end) = (lines.page(0), lines.page(lines.rows - 1) + 1);
        let middle = first + (end - first) / 2;
        let (mut old, mut recent) = (0, 0);
        for page in pages(DATES).into_iter().filter(|page| (first..end).contains(page)) {
            if page < middle { old += 1 } else { recent += 1 }
        }
        assert!(recent > 3 * old && old > 0, "{recent} and {old}");
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let options = [
            TpchOptions { scale: 0.0, ..ODS },
            TpchOptions { scale: f64::NAN, ..ODS },
            TpchOptions { page_bytes: PageBytes::SECTOR, ..ODS },
            TpchOptions { workload: TpchWorkload::Ods { narrowest: 0, widest: 5 }, ..ODS },
            TpchOptions { workload: TpchWorkload::Ods { narrowest: 6, widest: 5 }, ..ODS },
            TpchOptions { workload: TpchWorkload::Dates(-1.0), ..ODS },
        ];
        for options in options {
            assert!(Tpch::new(options).is_err(), "{options:?}");
        }
    }
}
