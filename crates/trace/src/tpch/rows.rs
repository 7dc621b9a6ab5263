//! What stands in the rows of TPC-H, as far as the queries ask: computed, not stored.
//!
//! - R1: a line has one part, and the index by part finds it there: `part_of(line_at(entry))` is
//!   the part that has `entry` among its `entries_of`.
//! - The benchmark's rules are kept where they decide which pages are read: four suppliers of a
//!   part by its formula, one to seven lines of an order, uniform parts, customers and nations.
//! - Simpler: every customer has orders, where a third has none; lines of an order come in rounds
//!   of seven orders with 1 to 7 lines each, so that the first line of any order is known.

use super::shape::{LINES_PER_ROUND, ORDERS_PER_ROUND, SUPPLIERS_PER_PART, Shape};
use crate::scatter::Scatter;
use fastrand::Rng;
use std::ops::Range;

/// What is drawn for a key; each has draws of its own.
#[derive(Clone, Copy)]
pub enum Column {
    OrderCustomer,
    OrderIsInYears,
    RoundOfLines,
    LineSupplier,
    CustomerNation,
    PartIsWanted,
    PartIsGreen,
    PartIsBoxed,
}

/// Nations, of which a region has a fifth.
pub const NATIONS: u64 = 25;
/// Regions.
pub const REGIONS: u64 = 5;

/// The rows of all tables.
#[derive(Clone, Debug)]
pub struct Rows {
    seed: u64,
    parts: u64,
    suppliers: u64,
    customers: u64,
    lines: u64,
    by_part: Scatter,
}

impl Rows {
    /// As many as `shape` has.
    pub fn new(shape: &Shape, random: &mut Rng) -> Rows {
        let lines = shape.lineitem.rows;
        Rows {
            seed: random.u64(..),
            parts: shape.part.rows,
            suppliers: shape.supplier.rows,
            customers: shape.customer.rows,
            lines,
            by_part: Scatter::new(lines, random),
        }
    }

    /// The customer of an order.
    pub fn customer_of(&self, order: u64) -> u64 {
        self.draw(Column::OrderCustomer, order, self.customers)
    }

    /// The lines of an order.
    pub fn lines_of(&self, order: u64) -> Range<u64> {
        let (round, at) = (order / ORDERS_PER_ROUND, order % ORDERS_PER_ROUND);
        let turn = self.draw(Column::RoundOfLines, round, ORDERS_PER_ROUND);
        let lines = |at| 1 + (at + turn) % ORDERS_PER_ROUND;
        let first = round * LINES_PER_ROUND + (0..at).map(lines).sum::<u64>();
        first..first + lines(at)
    }

    /// The part of a line.
    pub fn part_of(&self, line: u64) -> u64 {
        ((self.by_part.back(line) + 1) * self.parts - 1) / self.lines
    }

    /// The entries of a part in the index of lines by part.
    pub fn entries_of(&self, part: u64) -> Range<u64> {
        part * self.lines / self.parts..(part + 1) * self.lines / self.parts
    }

    /// The line of an entry of that index.
    pub fn line_at(&self, entry: u64) -> u64 {
        self.by_part.of(entry)
    }

    /// Which of the four suppliers of its part a line has.
    pub fn place_of(&self, line: u64) -> u64 {
        self.draw(Column::LineSupplier, line, SUPPLIERS_PER_PART)
    }

    /// The supplier of a part in one of four places (clause 4.2.3).
    pub fn supplier_of(&self, part: u64, place: u64) -> u64 {
        let step = self.suppliers / SUPPLIERS_PER_PART + part / self.suppliers;
        (part + place * step) % self.suppliers
    }

    /// A number below `below` that `column` has for `key`.
    pub fn draw(&self, column: Column, key: u64, below: u64) -> u64 {
        let mut bits = self.seed ^ (column as u64) << 56 ^ key;
        for factor in [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB] {
            bits = (bits ^ bits >> 30).wrapping_mul(factor);
        }
        ((u128::from(bits ^ bits >> 31) * u128::from(below)) >> 64) as u64
    }

    /// Whether `column` holds for `key`: for `share` of a hundred thousand keys.
    pub fn holds(&self, column: Column, key: u64, share: u64) -> bool {
        self.draw(column, key, 100_000) < share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> (Shape, Rows) {
        let shape = Shape::new(0.01, 8 << 10);
        let rows = Rows::new(&shape, &mut Rng::with_seed(3));
        (shape, rows)
    }

    #[test]
    fn orders_have_one_to_seven_lines_without_gaps() {
        let (shape, rows) = rows();
        let mut end = 0;
        for order in 0..shape.orders.rows {
            let lines = rows.lines_of(order);
            assert_eq!(lines.start, end);
            assert!((1..=7).contains(&(lines.end - lines.start)));
            end = lines.end;
        }
        assert_eq!(end, shape.lineitem.rows);
    }

    #[test]
    fn the_index_by_part_finds_the_lines_of_the_part() {
        let (shape, rows) = rows();
        let mut entries = 0;
        for part in 0..shape.part.rows {
            for entry in rows.entries_of(part) {
                assert_eq!(rows.part_of(rows.line_at(entry)), part);
                entries += 1;
            }
        }
        assert_eq!(entries, shape.lineitem.rows);
    }

    #[test]
    fn draws_are_uniform_and_suppliers_of_a_part_differ() {
        let (shape, rows) = rows();
        let chosen = (0..100_000).filter(|&key| rows.holds(Column::PartIsGreen, key, 5_000));
        assert!((4_700..5_300).contains(&chosen.count()));
        for part in 0..shape.part.rows {
            let mut suppliers: Vec<u64> =
                (0..SUPPLIERS_PER_PART).map(|place| rows.supplier_of(part, place)).collect();
            suppliers.sort_unstable();
            suppliers.dedup();
            assert_eq!(suppliers.len(), 4, "part {part}");
        }
    }
}
