//! Pages of rows of one length: the tables of tests and trials.
//!
//! ```text
//! offset size field
//!      0    4 checksum   CRC-32C of bytes 4..
//!      4    4 number     catches a misdirected read or write
//!      8    8 version    every change of the page raises it
//!     16    2 rows       how many
//!     18    2 row_bytes  of each
//!     20    4 reserved   zero
//!
//! 0        24                                  page
//! +--------+------------------------+----------+
//! | header | rows, row_bytes each   |   free   |
//! +--------+------------------------+----------+
//! ```
//!
//! - R1: `HEADER_BYTES + rows * row_bytes <= page`.

use crate::Error;
use crate::table::{Checked, PageNo, Pages, Version};

const NUMBER_AT: usize = 4;
const VERSION_AT: usize = NUMBER_AT + 4;
const ROWS_AT: usize = VERSION_AT + 8;
const ROW_BYTES_AT: usize = ROWS_AT + 2;
const RESERVED_AT: usize = ROW_BYTES_AT + 2;
/// Bytes of the header.
const HEADER_BYTES: usize = RESERVED_AT + 4;
const _: () = assert!(HEADER_BYTES == 24);

/// Pages of `page_bytes` bytes with rows of `row_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPages {
    page_bytes: u16,
    row_bytes: u16,
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

impl RowPages {
    /// Such pages.
    ///
    /// # Errors
    ///
    /// Pages that are not whole sectors, or have no room for a row.
    pub fn new(page_bytes: u16, row_bytes: u16) -> Result<RowPages, Error> {
        let bytes = u64::from(page_bytes);
        let pages = RowPages { page_bytes, row_bytes };
        let room = usize::from(page_bytes).saturating_sub(HEADER_BYTES);
        let fits = row_bytes > 0 && usize::from(row_bytes) <= room;
        if fits && bytes.is_multiple_of(terrace_device::SECTOR_SIZE as u64) {
            Ok(pages)
        } else {
            Err(Error::Sectors { bytes })
        }
    }

    /// Makes page `page` of `rows` rows, each of which `fill` writes over zeroes.
    ///
    /// # Panics
    ///
    /// If the rows or the bytes are not those of such a page.
    pub fn fill(
        &self,
        page: PageNo,
        version: Version,
        rows: u16,
        bytes: &mut [u8],
        mut fill: impl FnMut(u16, &mut [u8]),
    ) {
        assert!(bytes.len() == usize::from(self.page_bytes), "a page of {} bytes", bytes.len());
        assert!(rows <= self.rows_max(), "{rows} rows in a page");
        bytes.fill(0);
        bytes[NUMBER_AT..VERSION_AT].copy_from_slice(&page.to_le_bytes());
        bytes[VERSION_AT..ROWS_AT].copy_from_slice(&version.to_le_bytes());
        bytes[ROWS_AT..ROW_BYTES_AT].copy_from_slice(&rows.to_le_bytes());
        bytes[ROW_BYTES_AT..RESERVED_AT].copy_from_slice(&self.row_bytes.to_le_bytes());
        let body = bytes[HEADER_BYTES..].chunks_exact_mut(usize::from(self.row_bytes));
        for (slot, row) in (0..rows).zip(body) {
            fill(slot, row);
        }
        let checksum = crc32c::crc32c(&bytes[NUMBER_AT..]);
        bytes[..NUMBER_AT].copy_from_slice(&checksum.to_le_bytes());
    }
}

impl Pages for RowPages {
    fn page_bytes(&self) -> usize {
        usize::from(self.page_bytes)
    }

    fn row_bytes_max(&self) -> usize {
        usize::from(self.row_bytes)
    }

    fn rows_max(&self) -> u16 {
        ((usize::from(self.page_bytes) - HEADER_BYTES) / usize::from(self.row_bytes)) as u16
    }

    fn check(&self, page: PageNo, bytes: &[u8]) -> Option<Checked> {
        let whole = bytes.len() == usize::from(self.page_bytes)
            && number(bytes, 0) == crc32c::crc32c(&bytes[NUMBER_AT..])
            && number(bytes, NUMBER_AT) == page
            && short(bytes, ROW_BYTES_AT) == self.row_bytes;
        let rows = if whole { short(bytes, ROWS_AT) } else { return None };
        let version = &bytes[VERSION_AT..ROWS_AT];
        let version = u64::from_le_bytes(version.try_into().expect("eight bytes"));
        (rows <= self.rows_max()).then_some(Checked { version, rows })
    }

    fn row<'a>(&self, bytes: &'a [u8], slot: u16) -> &'a [u8] {
        let begin = HEADER_BYTES + usize::from(slot) * usize::from(self.row_bytes);
        &bytes[begin..begin + usize::from(self.row_bytes)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> (RowPages, Vec<u8>) {
        let pages = RowPages::new(512, 40).expect("whole sectors");
        let mut bytes = vec![0; 512];
        pages.fill(7, 3, 12, &mut bytes, |slot, row| row[0] = slot as u8 + 1);
        (pages, bytes)
    }

    #[test]
    fn a_page_reads_back_what_it_was_filled_with() {
        let (pages, bytes) = page();
        assert_eq!(pages.rows_max(), 12);
        assert_eq!(pages.check(7, &bytes), Some(Checked { version: 3, rows: 12 }));
        for slot in 0..12 {
            assert_eq!(pages.row(&bytes, slot)[0], slot as u8 + 1);
        }
    }

    #[test]
    fn another_page_and_every_flipped_bit_is_seen() {
        let (pages, mut bytes) = page();
        assert_eq!(pages.check(8, &bytes), None);
        for at in 0..512 {
            bytes[at] ^= 1 << (at % 8);
            assert_eq!(pages.check(7, &bytes), None, "byte {at}");
            bytes[at] ^= 1 << (at % 8);
        }
        assert_eq!(pages.check(7, &[0; 512]), None, "a page that was never written");
    }

    #[test]
    fn pages_without_room_for_a_row_or_of_half_a_sector_are_refused() {
        for (page, row) in [(512, 489), (512, 0), (700, 8), (0, 8)] {
            assert!(RowPages::new(page, row).is_err(), "{page} {row}");
        }
        assert!(RowPages::new(512, 488).is_ok());
    }
}
