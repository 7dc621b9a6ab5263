//! What the operators ask of a table: pages, columns and predicates.
//!
//! - T1: a page has a version, such as its LSN, that every change of the page changes. A row is
//!   named by its RID; together with its page's version that names one state of the row.
//! - T2: a row's slot stays as long as the page's version does.

use std::sync::Arc;

use terrace_device::{Device, SECTOR_SIZE};

use crate::Error;

/// Number of a page in its table, from 0.
pub type PageNo = u32;

/// Tells states of a page apart (T1).
pub type Version = u64;

/// Where a row is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rid {
    /// The page.
    pub page: PageNo,
    /// The row's place there.
    pub slot: u16,
}

/// What is known of a page that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Its version.
    pub version: Version,
    /// Its rows, in slots from 0.
    pub rows: u16,
}

/// How the pages of a table are read.
pub trait Pages: Send + Sync {
    /// Bytes of a page, whole sectors.
    fn page_bytes(&self) -> usize;

    /// The most bytes of a row.
    fn row_bytes_max(&self) -> usize;

    /// The most rows of a page.
    fn rows_max(&self) -> u16;

    /// What `bytes` hold as page `page`; nothing if they are not that page, whole.
    fn check(&self, page: PageNo, bytes: &[u8]) -> Option<Checked>;

    /// The row in a slot of a page that was checked.
    fn row<'a>(&self, bytes: &'a [u8], slot: u16) -> &'a [u8];
}

/// A number in each row: what is joined on, aggregated or sorted by.
pub trait Column: Send + Sync {
    /// The row's value; `None` is null.
    fn value(&self, row: &[u8]) -> Option<i64>;
}

impl<F: Fn(&[u8]) -> Option<i64> + Send + Sync> Column for F {
    fn value(&self, row: &[u8]) -> Option<i64> {
        self(row)
    }
}

/// Which rows an operator is to see.
pub trait Predicate: Send + Sync {
    /// Whether it sees this one.
    fn holds(&self, row: &[u8]) -> bool;
}

impl<F: Fn(&[u8]) -> bool + Send + Sync> Predicate for F {
    fn holds(&self, row: &[u8]) -> bool {
        self(row)
    }
}

/// A table: some pages one behind the other on a device.
#[derive(Clone)]
pub struct Table {
    device: Arc<dyn Device>,
    pages: Arc<dyn Pages>,
    first_byte: u64,
    count: PageNo,
}

impl Table {
    /// The table of `count` pages from `first_byte` on.
    ///
    /// # Errors
    ///
    /// A place or a page that is not whole sectors, or not on the device.
    pub fn new(
        device: Arc<dyn Device>,
        pages: Arc<dyn Pages>,
        first_byte: u64,
        count: PageNo,
    ) -> Result<Table, Error> {
        let page_bytes = pages.page_bytes() as u64;
        if page_bytes == 0 || !page_bytes.is_multiple_of(SECTOR_SIZE as u64) {
            return Err(Error::Sectors { bytes: page_bytes });
        }
        // Whole pages, so that no page lies across two units of a scan.
        if !first_byte.is_multiple_of(page_bytes) {
            return Err(Error::Sectors { bytes: first_byte });
        }
        let end = first_byte.saturating_add(page_bytes.saturating_mul(u64::from(count)));
        if end > device.len() {
            return Err(Error::PastEnd { end, len: device.len() });
        }
        Ok(Table { device, pages, first_byte, count })
    }

    /// Where it lies.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// How its pages are read.
    #[must_use]
    pub fn pages(&self) -> &Arc<dyn Pages> {
        &self.pages
    }

    /// How many pages it has.
    #[must_use]
    pub fn count(&self) -> PageNo {
        self.count
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.pages.page_bytes() as u64
    }

    /// Its first byte on the device.
    #[must_use]
    pub fn first_byte(&self) -> u64 {
        self.first_byte
    }

    /// Where a page begins on the device.
    pub(crate) fn offset(&self, page: PageNo) -> u64 {
        self.first_byte + u64::from(page) * self.page_bytes()
    }

    /// What `bytes` hold as page `page`.
    pub(crate) fn check(&self, page: PageNo, bytes: &[u8]) -> Result<Checked, Error> {
        self.pages.check(page, bytes).ok_or(Error::Corrupt { page })
    }
}

/// A column as operators store its values.
#[derive(Clone)]
pub struct Attribute {
    /// Where its values are.
    pub column: Arc<dyn Column>,
    /// Bytes that each of them fits in, as a signed number: 1 to 8.
    pub bytes: u8,
}

/// What an operator reads: some rows of a table, by one of their columns.
#[derive(Clone)]
pub struct Input {
    /// The table.
    pub table: Table,
    /// The column.
    pub attribute: Attribute,
    /// Which rows; all if there is none.
    pub predicate: Option<Arc<dyn Predicate>>,
}

impl Input {
    /// Whether the operator sees this row.
    #[must_use]
    pub fn sees(&self, row: &[u8]) -> bool {
        self.predicate.as_ref().is_none_or(|predicate| predicate.holds(row))
    }

    /// The row's value.
    #[must_use]
    pub fn value(&self, row: &[u8]) -> Option<i64> {
        self.attribute.column.value(row)
    }
}
