//! The steps of a query's plan, as the pages that they ask for, in order.
//!
//! - P1: a range of a clustered index asks for the way down, then for each leaf and the rows of its
//!   entries.
//! - P2: rows of an inner table are looked up one by one, in the order of the outer, or the whole
//!   table is scanned for a hash join: whichever costs less by the optimizer's two figures, for as
//!   many different pages as so many uniform lookups touch (Cardenas 1975), no memory assumed.
//! - P3: a page that was the last to be asked for is not asked for again.
//! - Simpler: nothing is sorted, spilled or read ahead of its turn; a query has one stream.

use super::rows::Rows;
use super::shape::{Index, Shape, Table};
use std::ops::Range;

/// What a random page costs the optimizer, ms: DB2's default overhead of a container, which is of
/// the time [VLDB 2010, 4.1: DB2 9.5].
const RANDOM_MS: f64 = 7.5;
/// What a page of a scan costs it, ms per KiB: DB2's default transfer rate, .06 ms for 4 KiB.
const TRANSFER_MS_PER_KIB: f64 = 0.015;

/// A query at work.
pub struct Plan<'a> {
    pub shape: &'a Shape,
    pub rows: &'a Rows,
    page_bytes: u64,
    pages: &'a mut Vec<u64>,
}

impl<'a> Plan<'a> {
    /// Adds to `pages`.
    pub fn new(
        shape: &'a Shape,
        rows: &'a Rows,
        page_bytes: u64,
        pages: &'a mut Vec<u64>,
    ) -> Plan<'a> {
        Plan { shape, rows, page_bytes, pages }
    }

    /// The rows `range` of `table`, by an index in whose order they lie.
    pub fn range(&mut self, index: &Index, table: &Table, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.descend(index, range.start);
        let mut at = range.start;
        while at < range.end {
            self.ask(index.leaf(at));
            let end = (at / index.per_page + 1) * index.per_page;
            let end = end.min(range.end);
            (table.page(at)..=table.page(end - 1)).for_each(|page| self.ask(page));
            at = end;
        }
    }

    /// The entries `range` of an index that is not clustered, and of each the row that `row_of`
    /// names, those of a range in the order in which they lie.
    pub fn scattered(
        &mut self,
        index: &Index,
        table: &Table,
        range: Range<u64>,
        row_of: impl Fn(u64) -> u64,
    ) {
        if range.is_empty() {
            return;
        }
        self.descend(index, range.start);
        (index.leaf(range.start)..=index.leaf(range.end - 1)).for_each(|leaf| self.ask(leaf));
        let mut rows: Vec<u64> = range.map(row_of).collect();
        rows.sort_unstable();
        rows.into_iter().for_each(|row| self.ask(table.page(row)));
    }

    /// The rows `keys` of `table`, which are found by a clustered `index` or by a scan.
    pub fn join(&mut self, index: &Index, table: &Table, keys: &[u64]) {
        if self.prefers_scan(index, table, keys.len() as u64) {
            self.scan(table);
            return;
        }
        for &key in keys {
            self.descend(index, key);
            self.ask(index.leaf(key));
            self.ask(table.page(key));
        }
    }

    /// Whether reading all of `table` costs less than so many lookups.
    pub fn prefers_scan(&self, index: &Index, table: &Table, lookups: u64) -> bool {
        let transfer_ms = TRANSFER_MS_PER_KIB * (self.page_bytes >> 10) as f64;
        let scan_ms = RANDOM_MS + table.pages() as f64 * transfer_ms;
        let touched = distinct(lookups, index.leaves()) + distinct(lookups, table.pages());
        scan_ms < touched * (RANDOM_MS + transfer_ms)
    }

    /// All pages of `table`.
    pub fn scan(&mut self, table: &Table) {
        (0..table.pages()).for_each(|page| self.ask(table.page(0) + page));
    }

    fn descend(&mut self, index: &Index, entry: u64) {
        index.above(entry).for_each(|page| self.ask(page));
    }

    fn ask(&mut self, page: u64) {
        if self.pages.last() != Some(&page) {
            self.pages.push(page);
        }
    }
}

/// How many of `pages` so many uniform draws touch.
fn distinct(draws: u64, pages: u64) -> f64 {
    let pages = pages as f64;
    -pages * (draws as f64 * (-1.0 / pages).ln_1p()).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    fn run(steps: impl FnOnce(&mut Plan<'_>)) -> (Shape, Vec<u64>) {
        let shape = Shape::new(0.1, 8 << 10);
        let rows = Rows::new(&shape, &mut Rng::with_seed(1));
        let mut pages = Vec::new();
        steps(&mut Plan::new(&shape, &rows, 8 << 10, &mut pages));
        (shape, pages)
    }

    #[test]
    fn a_range_asks_for_each_of_its_pages_once_and_in_order() {
        let (shape, pages) =
            run(|plan| plan.range(&plan.shape.orders_key, &plan.shape.orders, 100..9_000));
        let of_rows =
            |page: &&u64| (shape.orders.page(0)..shape.customer_key.leaf(0)).contains(*page);
        let expected: Vec<u64> = (shape.orders.page(100)..=shape.orders.page(8_999)).collect();
        let mut rows: Vec<u64> = pages.iter().filter(of_rows).copied().collect();
        rows.dedup();
        rows.retain(|page| expected.contains(page));
        rows.dedup();
        assert_eq!(rows, expected);
        let leaf = shape.orders_key.leaf(8_999);
        assert!(pages.contains(&leaf) && !pages.contains(&(leaf + 1)));
    }

    #[test]
    fn few_rows_are_looked_up_and_many_are_scanned_for() {
        let (shape, few) =
            run(|plan| plan.join(&plan.shape.part_key, &plan.shape.part, &[5, 9_000]));
        let height = shape.part_key.above(0).count() + 1;
        assert!(few.len() <= 2 * (height + 1), "{few:?}");
        assert_eq!(few[height], shape.part.page(5));
        let keys: Vec<u64> = (0..2_000).map(|key| key * 7 % 20_000).collect();
        let (shape, many) = run(|plan| plan.join(&plan.shape.part_key, &plan.shape.part, &keys));
        let expected: Vec<u64> =
            (0..shape.part.pages()).map(|at| shape.part.page(0) + at).collect();
        assert_eq!(many, expected);
    }

    #[test]
    fn draws_touch_as_many_pages_as_expected() {
        let mut random = Rng::with_seed(4);
        let mut touched = [false; 500];
        (0..700).for_each(|_| touched[random.usize(..500)] = true);
        let got = touched.into_iter().filter(|&is| is).count() as f64;
        assert!((got - distinct(700, 500)).abs() < 25.0, "{got} {}", distinct(700, 500));
    }
}
