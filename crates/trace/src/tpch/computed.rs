//! Steps without a database: rows are computed, and the pages that they would be read from noted.
//!
//! - P1: a range of a clustered index asks for the way down, then for each leaf and the rows of its
//!   entries.
//! - P2: a page that was the last to be asked for is not asked for again.
//! - Simpler: nothing is sorted, spilled or read ahead of its turn; a query has one stream. A table
//!   without a place is asked for no page.

use super::row::{Line, Row};
use super::rows::Rows;
use super::shape::{Index, Shape, Table};
use super::steps::{Steps, scan_costs_less};
use std::convert::Infallible;
use std::ops::Range;

/// Whether the answer is wanted, or only the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// It is.
    Wanted,
    /// It is not, and rows that only it depends on are not computed.
    Skipped,
}

/// A database that is computed.
pub struct Computed<'a> {
    shape: &'a Shape,
    rows: &'a Rows,
    answers: Answers,
    /// The pages that were asked for, in order.
    pub(super) pages: Vec<u64>,
}

impl<'a> Computed<'a> {
    /// `rows` in tables of this shape.
    #[must_use]
    pub fn new(shape: &'a Shape, rows: &'a Rows, answers: Answers) -> Computed<'a> {
        Computed { shape, rows, answers, pages: Vec::new() }
    }

    /// The rows `range` of `table`, by an index in whose order they lie.
    fn ask_range(&mut self, (index, table): (&Index, &Table), range: Range<u64>) {
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

    /// All pages of a table.
    fn ask_all<R: Row>(&mut self) {
        if let Some((_, table)) = R::place(self.shape) {
            (0..table.pages()).for_each(|page| self.ask(table.page(0) + page));
        }
    }

    /// The numbers of the rows of a range, whose pages are asked for.
    fn numbers<R: Row>(&mut self, leading: Range<u64>) -> Range<u64> {
        let [start, end] = [leading.start, leading.end].map(|key| R::before(self.rows, key));
        if let Some(place) = R::place(self.shape) {
            self.ask_range(place, start..end);
        }
        start..end
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

impl Steps for Computed<'_> {
    type Error = Infallible;

    fn rows(&self) -> &Rows {
        self.rows
    }

    fn scan_costs_less<R: Row>(&self, lookups: u64) -> bool {
        R::place(self.shape).is_some_and(|(index, table)| {
            let looked_into = [index.leaves(), table.pages()];
            scan_costs_less(self.shape.page_bytes, table.pages(), &looked_into, lookups)
        })
    }

    fn range<R: Row>(
        &mut self,
        leading: Range<u64>,
        each: impl FnMut(R),
    ) -> Result<(), Infallible> {
        self.numbers::<R>(leading).map(|number| R::at(self.rows, number)).for_each(each);
        Ok(())
    }

    fn tally<R: Row>(
        &mut self,
        leading: Range<u64>,
        each: impl FnMut(R),
    ) -> Result<(), Infallible> {
        match self.answers {
            Answers::Wanted => self.range(leading, each),
            Answers::Skipped => {
                self.numbers::<R>(leading);
                Ok(())
            }
        }
    }

    fn scan<R: Row>(&mut self, each: impl FnMut(R)) -> Result<(), Infallible> {
        self.ask_all::<R>();
        (0..R::count(&self.rows.sizes)).map(|number| R::at(self.rows, number)).for_each(each);
        Ok(())
    }

    fn look_up<R: Row>(&mut self, key: u64) -> Result<R, Infallible> {
        let number = R::number(self.rows, key);
        if let Some((index, table)) = R::place(self.shape) {
            self.descend(index, number);
            self.ask(index.leaf(number));
            self.ask(table.page(number));
        }
        Ok(R::at(self.rows, number))
    }

    fn lines_of_part(&mut self, part: u64) -> Result<Vec<Line>, Infallible> {
        let (index, entries) = (&self.shape.lineitem_part, self.rows.entries_of(part));
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        self.descend(index, entries.start);
        (index.leaf(entries.start)..=index.leaf(entries.end - 1)).for_each(|leaf| self.ask(leaf));
        let mut lines: Vec<u64> = entries.map(|entry| self.rows.line_at(entry)).collect();
        lines.sort_unstable();
        lines.iter().for_each(|&line| self.ask(self.shape.lineitem.page(line)));
        Ok(lines.into_iter().map(|line| Line::at(self.rows, line)).collect())
    }

    /// A scan finds the rows that are there, so they need not be looked for.
    fn join<R: Row>(&mut self, keys: &[u64]) -> Result<Vec<R>, Infallible> {
        if !self.scan_costs_less::<R>(keys.len() as u64) {
            return keys.iter().map(|&key| self.look_up(key)).collect();
        }
        self.ask_all::<R>();
        Ok(keys.iter().map(|&key| R::at(self.rows, R::number(self.rows, key))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::{Order, Part};
    use super::super::sizes::Sizes;
    use super::*;
    use fastrand::Rng;

    fn run(steps: impl FnOnce(&mut Computed<'_>)) -> (Shape, Vec<u64>) {
        let sizes = Sizes::at_scale(0.1);
        let (shape, rows) = (Shape::new(&sizes, 8 << 10), Rows::new(sizes, &mut Rng::with_seed(1)));
        let mut computed = Computed::new(&shape, &rows, Answers::Wanted);
        steps(&mut computed);
        let pages = computed.pages;
        (shape, pages)
    }

    #[test]
    fn a_range_asks_for_each_of_its_pages_once_and_in_order() {
        let (shape, pages) = run(|steps| {
            let mut keys = Vec::new();
            steps.range(398..35_997, |order: Order| keys.push(order.key)).expect("computed");
            assert_eq!(keys, (100..9_000).map(|number| number * 4).collect::<Vec<_>>());
        });
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
        let join = |steps: &mut Computed<'_>, keys: &[u64]| {
            let parts: Vec<Part> = steps.join(keys).expect("computed");
            assert_eq!(parts.iter().map(|part| part.key).collect::<Vec<_>>(), keys);
        };
        let (shape, few) = run(|steps| join(steps, &[5, 9_000]));
        let height = shape.part_key.above(0).count() + 1;
        assert!(few.len() <= 2 * (height + 1), "{few:?}");
        assert_eq!(few[height], shape.part.page(5));
        let keys: Vec<u64> = (0..2_000).map(|key| key * 7 % 20_000).collect();
        let (shape, many) = run(|steps| join(steps, &keys));
        let expected: Vec<u64> =
            (0..shape.part.pages()).map(|at| shape.part.page(0) + at).collect();
        assert_eq!(many, expected);
    }

    #[test]
    fn rows_that_only_the_answer_depends_on_can_be_skipped() {
        let sizes = Sizes::at_scale(0.1);
        let shape = Shape::new(&sizes, 8 << 10);
        let rows = Rows::new(sizes, &mut Rng::with_seed(1));
        let [wanted, skipped] = [Answers::Wanted, Answers::Skipped].map(|answers| {
            let mut steps = Computed::new(&shape, &rows, answers);
            let mut count = 0;
            steps.tally(7..900, |_: Part| count += 1).expect("computed");
            (count, steps.pages)
        });
        assert_eq!((wanted.0, skipped.0), (893, 0));
        assert_eq!(wanted.1, skipped.1);
    }
}
