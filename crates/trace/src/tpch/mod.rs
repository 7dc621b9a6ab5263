//! Traces of TPC-H queries with ranges, as the TAC paper had them: page references, before memory,
//! made from the shape of the tables.
//!
//! - T1: the same options give the same requests.
//! - T2: every request reads one page, at a multiple of its size, in file 0, the table space.
//!
//! No database is there: `shape` says which pages its tables and indexes have, `rows` what stands
//! in them, `plan` what a step of a plan asks for; `ods` and `dates` are the queries of the two
//! workloads.
//!
//! Source: Canim et al., "SSD Bufferpool Extensions for Database Systems", VLDB 2010, 4.2.
//! Not for: the benchmark's own queries, which have no such ranges.

mod dates;
mod ods;
mod plan;
mod rows;
mod shape;

use crate::pages::PageBytes;
use crate::request::{Kind, Request};
use crate::synthetic::BadOption;
use crate::zipf::Zipf;
use fastrand::Rng;
use plan::Plan;
use rows::Rows;
use shape::Shape;

/// Largest scale: its pages keep below those that a made-up trace may have.
const SCALE_MAX: f64 = 1_000.0;
/// Largest page and smallest.
const PAGE_BYTES: std::ops::RangeInclusive<u64> = 1 << 10..=64 << 10;

/// Which queries over which ranges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TpchWorkload {
    /// Queries 2, 5, 9, 11, 17, each over a uniformly placed range of keys, as many as are drawn
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

/// What a trace of TPC-H is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TpchOptions {
    /// Queries and ranges.
    pub workload: TpchWorkload,
    /// The benchmark's scale factor: about so many GB of rows.
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
    random: Rng,
    shape: Shape,
    rows: Rows,
    recency: Option<Zipf>,
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
        let bad = |option, rule| Err(BadOption { option, rule });
        if !(options.scale > 0.0 && options.scale <= SCALE_MAX) {
            return bad("scale", "above 0, up to 1000");
        }
        if !PAGE_BYTES.contains(&options.page_bytes.get()) {
            return bad("page", "from 1KiB to 64KiB for this workload");
        }
        let recency = match options.workload {
            TpchWorkload::Ods { narrowest, widest } if narrowest == 0 || widest < narrowest => {
                return bad("widths", "a number of keys and one that is not smaller");
            }
            TpchWorkload::Ods { .. } => None,
            TpchWorkload::Dates(exponent) => match Zipf::new(dates::DAYS, exponent) {
                Some(zipf) => Some(zipf),
                None => return bad("zipf", "an exponent from 0 on"),
            },
        };
        let mut random = Rng::with_seed(options.seed);
        let shape = Shape::new(options.scale, options.page_bytes.get());
        let rows = Rows::new(&shape, &mut random);
        let (begun, pages, given, requests) = (0, Vec::new(), 0, 0);
        Ok(Tpch { options, random, shape, rows, recency, begun, pages, given, requests })
    }

    /// Pages of the table space.
    #[must_use]
    pub fn pages_count(&self) -> u64 {
        self.shape.pages
    }

    fn begin(&mut self) {
        self.begun += 1;
        self.pages.clear();
        self.given = 0;
        let random = &mut self.random;
        let page_bytes = self.options.page_bytes.get();
        let mut plan = Plan::new(&self.shape, &self.rows, page_bytes, &mut self.pages);
        match (self.options.workload, &self.recency) {
            (TpchWorkload::Ods { narrowest, widest }, _) => {
                let query = ods::QUERIES[random.usize(..ods::QUERIES.len())];
                let domain = query.domain(&plan);
                let ratio = widest as f64 / narrowest as f64;
                let width = (narrowest as f64 * ratio.powf(random.f64())) as u64;
                let start = random.u64(..domain);
                query.run(&mut plan, start..(start + width).min(domain));
            }
            (TpchWorkload::Dates(_), Some(recency)) => {
                let query = dates::QUERIES[random.usize(..dates::QUERIES.len())];
                query.run(&mut plan, &dates::days(recency, random));
            }
            (TpchWorkload::Dates(_), None) => unreachable!("it was made with the options"),
        }
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
