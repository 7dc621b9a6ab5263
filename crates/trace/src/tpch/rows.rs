//! What stands in the rows of TPC-H, as far as the queries ask: computed, not stored.
//!
//! - R1: a line has one part, and the index by part finds it there: `part_of(line_at(entry))` is
//!   the part that has `entry` among its `entries_of`.
//! - R2: lines that lie by the date of shipping do so in the order of their numbers.
//! - The benchmark's rules are kept where they decide which pages are read: four suppliers of a
//!   part by its formula, one to seven lines of an order, uniform parts, customers and nations.
//! - Simpler: every customer has orders, where a third has none; lines of an order come in rounds
//!   of seven orders with 1 to 7 lines each, so that the first line of any order is known.

use super::sizes::{DAYS, LINES_PER_ROUND, ORDERS_PER_ROUND, SUPPLIERS_PER_PART, Sizes};
use crate::scatter::Scatter;
use fastrand::Rng;
use std::ops::Range;

/// What is drawn for a key; each has draws of its own.
#[derive(Clone, Copy)]
pub(super) enum Column {
    OrderCustomer,
    OrderDate,
    RoundOfLines,
    LineSupplier,
    CustomerNation,
    PartSizeAndMetal,
    PartName,
    PartBrandAndContainer,
    PartClass,
    SupplierNation,
    OfferQuantity,
    OfferCost,
    LineSale,
}

/// The rows of all tables.
#[derive(Clone, Debug)]
pub struct Rows {
    seed: u64,
    /// How many there are.
    pub sizes: Sizes,
    by_part: Scatter,
}

impl Rows {
    /// The number of rows that `sizes` says.
    pub(super) fn new(sizes: Sizes, random: &mut Rng) -> Rows {
        Rows { seed: random.u64(..), sizes, by_part: Scatter::new(sizes.lines, random) }
    }

    /// The customer of an order.
    pub(super) fn customer_of(&self, order: u64) -> u64 {
        self.draw(Column::OrderCustomer, order, self.sizes.customers)
    }

    /// The lines of an order. Of the order after the last, an empty place behind all lines begins
    /// them.
    pub(super) fn lines_of(&self, order: u64) -> Range<u64> {
        let (round, at) = (order / ORDERS_PER_ROUND, order % ORDERS_PER_ROUND);
        let turn = self.turn(round);
        let first = round * LINES_PER_ROUND + (0..at).map(|at| lines(at, turn)).sum::<u64>();
        first..first + lines(at, turn)
    }

    /// The order of a line, and which of its lines it is.
    pub(super) fn order_of(&self, line: u64) -> (u64, u64) {
        let (round, mut place) = (line / LINES_PER_ROUND, line % LINES_PER_ROUND);
        let turn = self.turn(round);
        for at in 0..ORDERS_PER_ROUND {
            let lines = lines(at, turn);
            if place < lines {
                return (round * ORDERS_PER_ROUND + at, place);
            }
            place -= lines;
        }
        unreachable!("the lines of a round are those of its orders")
    }

    /// How far the numbers of lines of a round's orders are turned.
    fn turn(&self, round: u64) -> u64 {
        self.draw(Column::RoundOfLines, round, ORDERS_PER_ROUND)
    }

    /// The part of a line.
    pub(super) fn part_of(&self, line: u64) -> u64 {
        ((self.by_part.back(line) + 1) * self.sizes.parts - 1) / self.sizes.lines
    }

    /// The entries of a part in the index of lines by part.
    pub fn entries_of(&self, part: u64) -> Range<u64> {
        let Sizes { parts, lines, .. } = self.sizes;
        part * lines / parts..(part + 1) * lines / parts
    }

    /// The number of the line of an entry of that index.
    #[must_use]
    pub fn line_at(&self, entry: u64) -> u64 {
        self.by_part.of(entry)
    }

    /// Which of the four suppliers of its part a line has.
    pub(super) fn place_of(&self, line: u64) -> u64 {
        self.draw(Column::LineSupplier, line, SUPPLIERS_PER_PART)
    }

    /// The supplier of a part in one of four places (clause 4.2.3).
    pub(super) fn supplier_of(&self, part: u64, place: u64) -> u64 {
        let suppliers = self.sizes.suppliers;
        let step = suppliers / SUPPLIERS_PER_PART + part / suppliers;
        (part + place * step) % suppliers
    }

    /// The lines that were shipped on these days, the same number on each.
    pub(super) fn shipped_on(&self, days: &Range<u64>) -> Range<u64> {
        let first = |day: u64| day * self.sizes.lines / DAYS;
        first(days.start)..first(days.end)
    }

    /// The day on which a line was shipped.
    pub(super) fn day_of(&self, line: u64) -> u64 {
        ((line + 1) * DAYS - 1) / self.sizes.lines
    }

    /// A number below `below` that `column` has for `key`.
    pub(super) fn draw(&self, column: Column, key: u64, below: u64) -> u64 {
        let mut bits = self.seed ^ (column as u64) << 56 ^ key;
        for factor in [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB] {
            bits = (bits ^ bits >> 30).wrapping_mul(factor);
        }
        ((u128::from(bits ^ bits >> 31) * u128::from(below)) >> 64) as u64
    }
}

/// Lines of an order of a round: 1 to 7, each once.
fn lines(at: u64, turn: u64) -> u64 {
    1 + (at + turn) % ORDERS_PER_ROUND
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Rows {
        Rows::new(Sizes::at_scale(0.01), &mut Rng::with_seed(3))
    }

    #[test]
    fn orders_have_one_to_seven_lines_without_gaps() {
        let rows = rows();
        let mut end = 0;
        for order in 0..rows.sizes.orders {
            let lines = rows.lines_of(order);
            assert_eq!(lines.start, end);
            assert!((1..=7).contains(&(lines.end - lines.start)));
            end = lines.end;
            for (at, line) in lines.enumerate() {
                assert_eq!(rows.order_of(line), (order, at as u64));
            }
        }
        assert_eq!(end, rows.sizes.lines);
        assert_eq!(rows.lines_of(rows.sizes.orders).start, end);
    }

    #[test]
    fn the_index_by_part_finds_the_lines_of_the_part() {
        let rows = rows();
        let mut entries = 0;
        for part in 0..rows.sizes.parts {
            for entry in rows.entries_of(part) {
                assert_eq!(rows.part_of(rows.line_at(entry)), part);
                entries += 1;
            }
        }
        assert_eq!(entries, rows.sizes.lines);
    }

    #[test]
    fn every_line_is_shipped_on_the_day_that_has_it() {
        let rows = rows();
        let mut end = 0;
        for day in 0..DAYS {
            let lines = rows.shipped_on(&(day..day + 1));
            assert_eq!(lines.start, end);
            end = lines.end;
            assert!(lines.into_iter().all(|line| rows.day_of(line) == day));
        }
        assert_eq!(end, rows.sizes.lines);
    }

    #[test]
    fn draws_are_uniform_and_suppliers_of_a_part_differ() {
        let rows = rows();
        let chosen = (0..100_000).filter(|&key| rows.draw(Column::PartName, key, 100_000) < 5_000);
        assert!((4_700..5_300).contains(&chosen.count()));
        for part in 0..rows.sizes.parts {
            let mut suppliers: Vec<u64> =
                (0..SUPPLIERS_PER_PART).map(|place| rows.supplier_of(part, place)).collect();
            suppliers.sort_unstable();
            suppliers.dedup();
            assert_eq!(suppliers.len(), 4, "part {part}");
        }
    }
}
