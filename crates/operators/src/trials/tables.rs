//! The tables of Fan et al. (2014), computed when they are read.
//!
//! | table | rows | bytes of a row | pages of 4 KiB |
//! |---|---|---|---|
//! | ORDERS of TPC-H | 15,000,000 | 144 | 28 rows: 2.04 GiB ("2G") |
//! | CUSTOMER of TPC-H | 1,500,000 | 170 | 23 rows: 255 MiB ("256M") |
//! | CUSTOMER of TPC-C | 870,000 | 1,234 | 3 rows: 1.1 GiB ("1GB") |
//!
//! The paper gives 150 million rows for ORDERS of 2 GB, 14 bytes each: they are taken for 15
//! million, those of scale factor 10, as its CUSTOMER has. Rows are as long as table over rows say.
//!
//! - T1: CUSTOMER has the keys 0 to its number. One in 100 orders, at random, has one of them; the
//!   others have keys that no customer has: the selectivity of 1%.
//! - T2: a row is a function of its table and number.

use std::sync::Arc;

use terrace_device::{Computed, IMAGE_SIZE};

use crate::table::Pages;
use crate::{Error, PageNo, RowPages};

/// Bytes of a page: one chunk of SSD-S, as in the paper.
pub const PAGE_BYTES: u16 = 4096;
/// One in this number of orders finds its customer.
const SELECTIVITY: u64 = 100;
/// Tables begin at multiples of this: a chunk of SSD-M times its domains.
const ALIGNMENT: u64 = 320 << 10;

/// A table of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// ORDERS of TPC-H.
    Orders,
    /// CUSTOMER of TPC-H.
    Customer,
    /// CUSTOMER of TPC-C.
    TpccCustomer,
}

impl Of {
    /// Its rows in the paper.
    #[must_use]
    pub fn rows(self) -> u64 {
        match self {
            Of::Orders => 15_000_000,
            Of::Customer => 1_500_000,
            Of::TpccCustomer => 870_000,
        }
    }

    /// Bytes of a row.
    #[must_use]
    pub fn row_bytes(self) -> u16 {
        match self {
            Of::Orders => 144,
            Of::Customer => 170,
            Of::TpccCustomer => 1_234,
        }
    }
}

/// The number in eight bytes of a row.
pub(super) fn number(row: &[u8], at: usize) -> Option<i64> {
    Some(i64::from_le_bytes(row[at..at + 8].try_into().expect("eight bytes")))
}

/// Mixes the bits of a number (splitmix64, Steele and others, OOPSLA 2014).
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A table in its place.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// Which.
    pub of: Of,
    /// Rows, at this scale.
    pub rows: u64,
    /// Its first byte.
    pub first_byte: u64,
    pages: RowPages,
    /// Customers of the join.
    customers: u64,
}

impl Placed {
    fn new(of: Of, divisor: u64, first_byte: u64) -> Result<Placed, Error> {
        let pages = RowPages::new(PAGE_BYTES, of.row_bytes())?;
        let customers = Of::Customer.rows() / divisor;
        Ok(Placed { of, rows: of.rows() / divisor, first_byte, pages, customers })
    }

    /// How its pages are read.
    #[must_use]
    pub fn pages(&self) -> RowPages {
        self.pages
    }

    /// Its pages.
    #[must_use]
    pub fn count(&self) -> PageNo {
        self.rows.div_ceil(u64::from(self.pages.rows_max())) as PageNo
    }

    fn end(&self) -> u64 {
        self.first_byte + u64::from(self.count()) * u64::from(PAGE_BYTES)
    }

    /// Fills a row: its key, and then what it is joined on or aggregated.
    fn fill(&self, seed: u64, number: u64, row: &mut [u8]) {
        let chance = mixed(seed ^ mixed(number));
        let value = match self.of {
            Of::Orders => {
                let customer = chance / SELECTIVITY % self.customers;
                let found = chance.is_multiple_of(SELECTIVITY);
                if found { customer } else { self.customers + customer }
            }
            Of::Customer => number,
            Of::TpccCustomer => chance % 50_000,
        };
        row[..8].copy_from_slice(&number.to_le_bytes());
        row[8..16].copy_from_slice(&value.to_le_bytes());
        row[16..24].copy_from_slice(&chance.to_le_bytes());
    }

    fn page(&self, seed: u64, page: PageNo, bytes: &mut [u8]) {
        let per_page = u64::from(self.pages.rows_max());
        let first = u64::from(page) * per_page;
        let rows = per_page.min(self.rows - first) as u16;
        self.pages.fill(page, 1, rows, bytes, |slot, row| {
            self.fill(seed, first + u64::from(slot), row);
        });
    }
}

/// Tables one behind the other, and room behind them.
#[derive(Clone)]
pub struct Image {
    /// The tables.
    pub tables: Vec<Placed>,
    /// Where the room begins.
    pub end: u64,
    seed: u64,
}

impl Image {
    /// Tables of a part of the paper's sizes.
    ///
    /// # Errors
    ///
    /// None.
    pub fn new(all: &[Of], divisor: u64, seed: u64) -> Result<Image, Error> {
        let mut image = Image { tables: Vec::new(), end: 0, seed };
        for of in all {
            let placed = Placed::new(*of, divisor, image.end)?;
            image.end = placed.end().next_multiple_of(ALIGNMENT);
            image.tables.push(placed);
        }
        Ok(image)
    }

    /// A table of it.
    ///
    /// # Panics
    ///
    /// If it has none such.
    #[must_use]
    pub fn table(&self, of: Of) -> Placed {
        *self.tables.iter().find(|placed| placed.of == of).expect("a table of the image")
    }

    /// As the contents of a store.
    #[must_use]
    pub fn computed(&self) -> Arc<dyn Computed> {
        Arc::new(self.clone())
    }
}

impl Computed for Image {
    fn page(&self, page: u64, bytes: &mut [u8; IMAGE_SIZE]) {
        let begin = page * IMAGE_SIZE as u64;
        let parts = (begin..).step_by(usize::from(PAGE_BYTES));
        for (offset, bytes) in parts.zip(bytes.chunks_exact_mut(usize::from(PAGE_BYTES))) {
            let holds = |placed: &&Placed| (placed.first_byte..placed.end()).contains(&offset);
            if let Some(placed) = self.tables.iter().find(holds) {
                let page = (offset - placed.first_byte) / u64::from(PAGE_BYTES);
                placed.page(self.seed, page as PageNo, bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_the_sizes_of_the_paper() {
        let all = [Of::Orders, Of::Customer, Of::TpccCustomer];
        let image = Image::new(&all, 1, 1).expect("whole pages");
        let bytes = |of| u64::from(image.table(of).count()) * 4096;
        for (of, bytes, published) in [
            (Of::Orders, bytes(Of::Orders), 2_u64 << 30),
            (Of::Customer, bytes(Of::Customer), 256 << 20),
            (Of::TpccCustomer, bytes(Of::TpccCustomer), 1 << 30),
        ] {
            let ratio = bytes as f64 / published as f64;
            assert!((0.95..1.15).contains(&ratio), "{of:?}: {ratio}");
        }
    }

    /// T1.
    #[test]
    fn one_in_a_hundred_orders_has_a_customer() {
        let image = Image::new(&[Of::Orders], 1, 7).expect("whole pages");
        let orders = image.table(Of::Orders);
        let mut row = [0; 144];
        let mut found = 0;
        for number in 0..100_000 {
            orders.fill(7, number, &mut row);
            found += u64::from(super::number(&row, 8).expect("a key") < 1_500_000);
        }
        assert!((900..1_100).contains(&found), "{found}");
    }
}
