//! Where the tables and indexes of TPC-H lie: one table space, each object a run of pages.
//!
//! - S1: an object begins at a multiple of an extent, so that no extent has pages of two.
//! - S2: rows lie in the order of their key, and the k-th entry of a clustered index is of the k-th
//!   row.
//! - Rows have the mean widths of the benchmark's specification, and what a page and a row cost
//!   besides; an entry has four bytes for each column of its key, and a row's address. Leaves are
//!   filled to nine tenths, as by a load. There is an index for each primary key, for each foreign
//!   key that the queries could use, and for the date of shipping.
//!
//! Source: TPC Benchmark H, revision 2, clauses 1.4 and 4.2.5 (rows and widths).

use super::row::{Customer, KEY_COLUMN_BYTES, Line, Offer, Order, Part, Row, Supplier};
use super::sizes::Sizes;

/// Pages of an extent.
const EXTENT_PAGES: u64 = 32;
/// Bytes of a page that are not for rows or entries.
const PAGE_OVERHEAD_BYTES: u64 = 96;
/// Bytes that a row takes besides its columns: its header and its slot.
const ROW_OVERHEAD_BYTES: u64 = 12;
/// Bytes that an entry takes besides: the address of its row, its flags, its slot.
const ENTRY_OVERHEAD_BYTES: u64 = 8;

/// A table.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    first: u64,
    /// How many rows it has.
    pub rows: u64,
    per_page: u64,
}

impl Table {
    /// The page of a row.
    pub fn page(&self, row: u64) -> u64 {
        debug_assert!(row < self.rows, "row {row} of {}", self.rows);
        self.first + row / self.per_page
    }

    /// Its pages.
    pub fn pages(&self) -> u64 {
        self.rows.div_ceil(self.per_page)
    }
}

/// A B+-tree: its leaves, then each level above them.
#[derive(Clone, Debug)]
pub struct Index {
    first: u64,
    /// Entries of a page, of every level.
    pub per_page: u64,
    /// Pages of each level, from the leaves up; the last is the root.
    levels: Vec<u64>,
}

impl Index {
    /// Its leaves.
    pub fn leaves(&self) -> u64 {
        self.levels[0]
    }

    /// The leaf of an entry.
    pub fn leaf(&self, entry: u64) -> u64 {
        self.first + entry / self.per_page
    }

    /// The pages on the way to the leaf of an entry, from the root on, without the leaf.
    pub fn above(&self, entry: u64) -> impl Iterator<Item = u64> {
        let mut first = self.first;
        let mut at = entry / self.per_page;
        let mut way = [0; LEVELS_MAX];
        for (level, pages) in self.levels.iter().enumerate().skip(1) {
            first += self.levels[level - 1];
            at /= self.per_page;
            debug_assert!(at < *pages);
            way[level] = first + at;
        }
        (1..self.levels.len()).rev().map(move |level| way[level])
    }
}

/// No tree is higher: with two entries a page it would have 2^16 rows, and pages have hundreds.
const LEVELS_MAX: usize = 16;

/// All tables and indexes.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// SUPPLIER.
    pub supplier: Table,
    /// PART.
    pub part: Table,
    /// PARTSUPP.
    pub partsupp: Table,
    /// CUSTOMER.
    pub customer: Table,
    /// ORDERS.
    pub orders: Table,
    /// LINEITEM.
    pub lineitem: Table,
    /// Of suppliers by number.
    pub supplier_key: Index,
    /// Of parts by number.
    pub part_key: Index,
    /// Of offers by part and supplier.
    pub partsupp_key: Index,
    /// Of customers by number.
    pub customer_key: Index,
    /// Of orders by number.
    pub orders_key: Index,
    /// By order and line; clustered unless the table lies by the date of shipping.
    pub lineitem_key: Index,
    /// By part and supplier; not clustered.
    pub lineitem_part: Index,
    /// By the date of shipping.
    pub lineitem_shipdate: Index,
    /// Pages of the table space.
    pub pages: u64,
}

impl Shape {
    /// Of the numbers of rows in `sizes`, in pages of `page_bytes`.
    pub fn new(sizes: &Sizes, page_bytes: u64) -> Shape {
        let mut space = Space { next: 0, bytes: page_bytes - PAGE_OVERHEAD_BYTES };
        let mut shape = Shape {
            page_bytes,
            supplier: space.table::<Supplier>(sizes),
            part: space.table::<Part>(sizes),
            partsupp: space.table::<Offer>(sizes),
            customer: space.table::<Customer>(sizes),
            orders: space.table::<Order>(sizes),
            lineitem: space.table::<Line>(sizes),
            supplier_key: space.index(sizes.suppliers, Supplier::KEY_COLUMNS),
            part_key: space.index(sizes.parts, Part::KEY_COLUMNS),
            partsupp_key: space.index(Offer::count(sizes), Offer::KEY_COLUMNS),
            customer_key: space.index(sizes.customers, Customer::KEY_COLUMNS),
            orders_key: space.index(sizes.orders, Order::KEY_COLUMNS),
            lineitem_key: space.index(sizes.lines, Line::KEY_COLUMNS),
            lineitem_part: space.index(sizes.lines, 2),
            lineitem_shipdate: space.index(sizes.lines, 1),
            pages: 0,
        };
        // No query uses these, but they take their place: the orders of a customer, the parts of a
        // supplier.
        space.index(sizes.orders, 1);
        space.index(Offer::count(sizes), 1);
        shape.pages = space.next;
        shape
    }
}

/// Where the next object goes.
struct Space {
    next: u64,
    /// Bytes of a page that are for rows.
    bytes: u64,
}

impl Space {
    fn table<R: Row>(&mut self, sizes: &Sizes) -> Table {
        let (rows, per_page) = (R::count(sizes), self.bytes / (R::WIDTH + ROW_OVERHEAD_BYTES));
        let per_page = per_page.max(1);
        let table = Table { first: self.next, rows, per_page };
        self.take(table.pages());
        table
    }

    fn index(&mut self, entries: u64, columns: u64) -> Index {
        let entry_bytes = columns * KEY_COLUMN_BYTES + ENTRY_OVERHEAD_BYTES;
        let per_page = (self.bytes * 9 / 10 / entry_bytes).max(2);
        let mut levels = vec![entries.div_ceil(per_page)];
        while let Some(&pages) = levels.last()
            && pages > 1
        {
            levels.push(pages.div_ceil(per_page));
        }
        let index = Index { first: self.next, per_page, levels };
        self.take(index.levels.iter().sum());
        index
    }

    fn take(&mut self, pages: u64) {
        self.next = (self.next + pages).next_multiple_of(EXTENT_PAGES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_ten_takes_fifteen_gigabytes() {
        let shape = Shape::new(&Sizes::at_scale(10.0), 16 << 10);
        let gb = (shape.pages * (16 << 10)) as f64 / 1e9;
        assert!((14.5..15.5).contains(&gb), "{gb} GB");
        assert_eq!(shape.partsupp.rows, 8_000_000);
        assert!(shape.lineitem.rows.abs_diff(60_000_000) < 28, "{}", shape.lineitem.rows);
    }

    #[test]
    fn objects_do_not_overlap_and_a_way_leads_down() {
        let shape = Shape::new(&Sizes::at_scale(0.1), 8 << 10);
        let tables = [shape.supplier, shape.part, shape.partsupp, shape.customer, shape.orders];
        let mut end = 0;
        for table in tables.into_iter().chain([shape.lineitem]) {
            assert!(table.page(0) >= end && table.page(0).is_multiple_of(EXTENT_PAGES));
            end = table.page(table.rows - 1) + 1;
            assert_eq!(end - table.page(0), table.pages());
        }
        let index = &shape.lineitem_key;
        assert!(index.leaf(0) >= end);
        for entry in [0, 1, shape.lineitem.rows - 1] {
            let way: Vec<u64> = index.above(entry).collect();
            assert_eq!(way.len(), index.levels.len() - 1);
            assert_eq!(way[0], index.first + index.levels.iter().sum::<u64>() - 1, "the root");
            assert!(way.windows(2).all(|pair| pair[1] < pair[0]) && way[1] > index.leaf(entry));
        }
    }
}
