//! The steps of a query's plan as reads of the engine's tables, in one transaction.

use std::ops::Range;

use terrace::ReadTransaction;
use terrace_page::PAGE_SIZE;
use terrace_trace::tpch::{Line, Row, Rows, Steps, scan_costs_less};

use super::loading::{BY_PART, TablePages, row_of, table};
use crate::Error;

/// A query at work.
pub(super) struct Reads<'a> {
    pub(super) txn: &'a ReadTransaction,
    pub(super) rows: &'a Rows,
    pub(super) pages: &'a TablePages,
    /// Rows that were read of tables, and entries of the index.
    pub(super) read: u64,
}

impl Reads<'_> {
    fn entries<R: Row>(
        &mut self,
        keys: impl std::ops::RangeBounds<u64>,
        mut each: impl FnMut(R),
    ) -> Result<(), Error> {
        let table = self.txn.open_table(table::<R>())?;
        for entry in table.range(keys)? {
            let entry = entry?;
            each(row_of(entry.key(), entry.value())?);
            self.read += 1;
        }
        Ok(())
    }
}

impl Steps for Reads<'_> {
    type Error = Error;

    fn rows(&self) -> &Rows {
        self.rows
    }

    fn scan_costs_less<R: Row>(&self, lookups: u64) -> bool {
        let pages = self.pages[R::TABLE];
        scan_costs_less(PAGE_SIZE as u64, pages, &[pages], lookups)
    }

    fn range<R: Row>(&mut self, leading: Range<u64>, each: impl FnMut(R)) -> Result<(), Error> {
        self.entries(R::first_key(leading.start)..R::first_key(leading.end), each)
    }

    fn scan<R: Row>(&mut self, each: impl FnMut(R)) -> Result<(), Error> {
        self.entries(.., each)
    }

    fn look_up<R: Row>(&mut self, key: u64) -> Result<R, Error> {
        let found = self.txn.open_table(table::<R>())?.get(key)?;
        self.read += 1;
        row_of(key, found.ok_or(Error::MissingRow { table: R::TABLE })?.value())
    }

    fn lines_of_part(&mut self, part: u64) -> Result<Vec<Line>, Error> {
        let part = part as u32;
        let mut keys = Vec::new();
        for entry in self.txn.open_table(BY_PART)?.range((part, 0)..(part + 1, 0))? {
            keys.push(entry?.key().1);
        }
        self.read += keys.len() as u64;
        keys.into_iter().map(|key| self.look_up(key)).collect()
    }
}
