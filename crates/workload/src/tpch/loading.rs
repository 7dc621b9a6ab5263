//! Loads a new database: eight tables, and the index of lines by part.
//!
//! - L1: every row has the width that the specification gives, its key included, but for four bytes
//!   more where the key is one column.

use std::collections::BTreeMap;

use terrace::{Database, Durability, TableDef};
use terrace_page::PAGE_SIZE;
use terrace_trace::tpch::{
    COLUMNS_MAX, Customer, Line, Nation, Offer, Order, Part, Region, Row, Rows, Shipped, Sizes,
    Supplier, TpchWorkload,
};

use crate::Error;
use crate::sampling::home_pages;

/// A stored row, by its key.
type Stored = TableDef<'static, u64, &'static [u8]>;

/// The index of lines by part: part and key of the line.
pub(super) const BY_PART: TableDef<(u32, u64), ()> = TableDef::new("lineitem_by_part");

/// The table of a row.
pub(super) const fn table<R: Row>() -> Stored {
    TableDef::new(R::TABLE)
}

/// How full pages are left, in percent.
const FILL: u8 = 90;
/// Rows between two calls for progress.
const ROWS_PER_PROGRESS: u64 = 1 << 16;
/// Bytes of home for each line with all that comes with it, at least: rows of other tables have a
/// third of the bytes of lines, entries an eighth.
const BYTES_PER_LINE: u64 = 320;
/// Bytes of a column.
const COLUMN_BYTES: usize = 4;
/// Bytes of a column of a key, by the specification.
const KEY_COLUMN_BYTES: u64 = 4;

/// Bytes of a home for all of it.
pub(super) fn home_bytes(sizes: &Sizes) -> u64 {
    const ROOM_BYTES: u64 = 64 << 20;
    (sizes.lines * BYTES_PER_LINE + ROOM_BYTES).next_multiple_of(PAGE_SIZE as u64)
}

/// Bytes of a row beside its key.
pub(super) const fn value_bytes<R: Row>() -> usize {
    (R::WIDTH - R::KEY_COLUMNS * KEY_COLUMN_BYTES) as usize
}

/// The columns of a stored row.
///
/// # Errors
///
/// `MalformedRow`.
pub(super) fn row_of<R: Row>(key: u64, bytes: &[u8]) -> Result<R, Error> {
    if bytes.len() != value_bytes::<R>() {
        return Err(Error::MalformedRow { table: R::TABLE });
    }
    let mut columns = [0; COLUMNS_MAX];
    for (column, bytes) in columns.iter_mut().zip(bytes.chunks_exact(COLUMN_BYTES)) {
        *column = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    }
    Ok(R::of(key, columns))
}

fn put<R: Row>(row: &R, bytes: &mut [u8]) {
    for (column, bytes) in row.columns().iter().zip(bytes.chunks_exact_mut(COLUMN_BYTES)) {
        bytes.copy_from_slice(&column.to_le_bytes());
    }
}

/// Pages of each table, by its name.
pub(super) type TablePages = BTreeMap<&'static str, u64>;

/// Fills the empty database `db`, and says how many pages each table has.
///
/// # Errors
///
/// Those of the engine.
pub(super) fn populate(
    db: &Database,
    rows: &Rows,
    workload: TpchWorkload,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<TablePages, Error> {
    let is_by_date = matches!(workload, TpchWorkload::Dates(_));
    let sizes = rows.sizes;
    let small = sizes.suppliers + sizes.customers + sizes.orders + Offer::count(&sizes);
    let of_lines = if is_by_date { sizes.lines } else { 2 * sizes.lines };
    let total = small + sizes.parts + of_lines + Region::count(&sizes) + Nation::count(&sizes);
    let mut load = Load { db, rows, done: 0, total, progress, pages: TablePages::new() };
    load.table::<Region>()?;
    load.table::<Nation>()?;
    load.table::<Supplier>()?;
    load.table::<Part>()?;
    load.table::<Offer>()?;
    load.table::<Customer>()?;
    load.table::<Order>()?;
    if is_by_date {
        load.table::<Shipped>()?;
    } else {
        load.table::<Line>()?;
        load.by_part()?;
    }
    assert_eq!(load.done, total, "all rows are loaded");
    Ok(load.pages)
}

struct Load<'a> {
    db: &'a Database,
    rows: &'a Rows,
    done: u64,
    total: u64,
    progress: &'a mut dyn FnMut(u64, u64),
    pages: TablePages,
}

impl Load<'_> {
    /// Loads one table.
    fn table<R: Row>(&mut self) -> Result<(), Error> {
        let before = home_pages(&self.db.stats());
        let txn = self.db.begin_write()?;
        let mut loader = txn.bulk_load_filled(table::<R>(), FILL)?;
        let mut bytes = vec![0; value_bytes::<R>()];
        for row in in_order::<R>(self.rows) {
            put(&row, &mut bytes);
            loader.push(row.key(), &bytes)?;
            self.tell();
        }
        loader.finish()?;
        txn.commit(Durability::Buffered)?;
        self.pages.insert(R::TABLE, home_pages(&self.db.stats()) - before);
        Ok(())
    }

    /// Loads the index of lines by part.
    fn by_part(&mut self) -> Result<(), Error> {
        let txn = self.db.begin_write()?;
        let mut loader = txn.bulk_load_filled(BY_PART, FILL)?;
        for part in 0..self.rows.sizes.parts {
            let lines = self.rows.entries_of(part).map(|entry| self.rows.line_at(entry));
            let mut keys: Vec<u64> = lines.map(|line| Line::at(self.rows, line).key()).collect();
            keys.sort_unstable();
            for key in keys {
                loader.push((part as u32, key), ())?;
                self.tell();
            }
        }
        loader.finish()?;
        txn.commit(Durability::Buffered)?;
        Ok(())
    }

    fn tell(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(ROWS_PER_PROGRESS) {
            (self.progress)(self.done, self.total);
        }
    }
}

/// Rows whose keys are sorted together, at most: the four offers of a part come in any order.
const SORTED_TOGETHER: u64 = 4;

/// All rows in the order of their keys.
fn in_order<R: Row>(rows: &Rows) -> impl Iterator<Item = R> + '_ {
    let count = R::count(&rows.sizes);
    let groups = (0..count.div_ceil(SORTED_TOGETHER)).map(|group| group * SORTED_TOGETHER);
    groups.flat_map(move |first| {
        let end = count.min(first + SORTED_TOGETHER);
        let mut some: Vec<R> = (first..end).map(|number| R::at(rows, number)).collect();
        some.sort_unstable_by_key(Row::key);
        some
    })
}
