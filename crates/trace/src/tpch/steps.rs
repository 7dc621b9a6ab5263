//! The steps of a query's plan, whatever takes them: a database that has the tables, or a
//! computation that knows what stands in them and notes which pages would be asked for.
//!
//! - P1: rows of an inner table are looked up one by one, in the order of the outer, or the whole
//!   table is scanned for a hash join: whichever costs less by the optimizer's two figures, for the
//!   number of different pages that this number of uniform lookups touches (Cardenas 1975), no
//!   memory assumed.
//! - P2: the answer depends on the rows only, not on what takes the steps.

use super::row::{Line, Row};
use super::rows::Rows;
use std::collections::BTreeMap;
use std::ops::Range;

/// What a random page costs the optimizer, ms: DB2's default overhead of a container, which is of
/// the time [VLDB 2010, 4.1: DB2 9.5].
const RANDOM_MS: f64 = 7.5;
/// What a page of a scan costs it, ms per KiB: DB2's default transfer rate, .06 ms for 4 KiB.
const TRANSFER_MS_PER_KIB: f64 = 0.015;

/// What a query may ask of its tables.
pub trait Steps {
    /// Why a step failed.
    type Error;

    /// How many rows the tables have, as an optimizer's statistics say.
    fn rows(&self) -> &Rows;

    /// Whether reading all of a table costs less than `lookups` lookups in it.
    fn scan_costs_less<R: Row>(&self, lookups: u64) -> bool;

    /// The rows whose leading key column is in `leading`, in the order in which they lie.
    ///
    /// # Errors
    ///
    /// The steps' own.
    fn range<R: Row>(
        &mut self,
        leading: Range<u64>,
        each: impl FnMut(R),
    ) -> Result<(), Self::Error>;

    /// All rows, in the order in which they lie.
    ///
    /// # Errors
    ///
    /// The steps' own.
    fn scan<R: Row>(&mut self, each: impl FnMut(R)) -> Result<(), Self::Error>;

    /// The row with a key that there is.
    ///
    /// # Errors
    ///
    /// The steps' own.
    fn look_up<R: Row>(&mut self, key: u64) -> Result<R, Self::Error>;

    /// The lines of a part, by the index that is not clustered, in the order in which they lie.
    ///
    /// # Errors
    ///
    /// The steps' own.
    fn lines_of_part(&mut self, part: u64) -> Result<Vec<Line>, Self::Error>;

    /// As `range`, of rows on which nothing but the answer depends.
    ///
    /// # Errors
    ///
    /// The steps' own.
    fn tally<R: Row>(
        &mut self,
        leading: Range<u64>,
        each: impl FnMut(R),
    ) -> Result<(), Self::Error> {
        self.range(leading, each)
    }

    /// The rows with these keys, in the order of the keys: looked up, or found by a scan.
    ///
    /// # Errors
    ///
    /// The steps' own.
    fn join<R: Row>(&mut self, keys: &[u64]) -> Result<Vec<R>, Self::Error> {
        if !self.scan_costs_less::<R>(keys.len() as u64) {
            return keys.iter().map(|&key| self.look_up(key)).collect();
        }
        let mut found: BTreeMap<u64, Option<R>> = keys.iter().map(|&key| (key, None)).collect();
        self.scan(|row: R| {
            if let Some(place) = found.get_mut(&row.key()) {
                *place = Some(row);
            }
        })?;
        // A row that the scan does not find is not there.
        keys.iter().map(|key| found[key].map_or_else(|| self.look_up(*key), Ok)).collect()
    }
}

/// Whether a scan of `table_pages` costs less than the given number of uniform lookups, each of
/// which needs one of the pages of each part of `looked_into`.
#[must_use]
pub fn scan_costs_less(
    page_bytes: u64,
    table_pages: u64,
    looked_into: &[u64],
    lookups: u64,
) -> bool {
    let transfer_ms = TRANSFER_MS_PER_KIB * (page_bytes >> 10) as f64;
    let scan_ms = RANDOM_MS + table_pages as f64 * transfer_ms;
    let touched: f64 = looked_into.iter().map(|&pages| distinct(lookups, pages)).sum();
    scan_ms < touched * (RANDOM_MS + transfer_ms)
}

/// How many of `pages` `draws` uniform draws touch.
fn distinct(draws: u64, pages: u64) -> f64 {
    let pages = pages as f64;
    -pages * (draws as f64 * (-1.0 / pages).ln_1p()).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    #[test]
    fn draws_touch_as_many_pages_as_expected() {
        let mut random = Rng::with_seed(4);
        let mut touched = [false; 500];
        (0..700).for_each(|_| touched[random.usize(..500)] = true);
        let got = touched.into_iter().filter(|&is| is).count() as f64;
        assert!((got - distinct(700, 500)).abs() < 25.0, "{got} {}", distinct(700, 500));
    }
}
