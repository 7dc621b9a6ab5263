//! Records of a hash join, all of one length for a table.
//!
//! ```text
//!  of RIDs    | attribute, 1 to 8 bytes | page, as many as the table needs | slot, 1 or 2 |
//!             | version, 8, of probed rows only                                           |
//!  of rows    | length, 2 | row, as long as the longest                                   |
//! ```
//!
//! - K1: a record gives back what was put into it.

use std::sync::Arc;

use crate::Error;
use crate::table::{Column, Input, Rid, Version};

/// What a join keeps of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carry {
    /// Its attribute and its RID: ParaHashJoin.
    Rids,
    /// All of it: a traditional hash join.
    Rows,
}

/// How the records of a table are laid out.
#[derive(Clone)]
pub(super) struct Layout {
    carry: Carry,
    column: Arc<dyn Column>,
    attribute: usize,
    page: usize,
    slot: usize,
    version: usize,
    width: usize,
}

const ROW_LENGTH_BYTES: usize = 2;

/// The fewest bytes that `most` fits in.
fn bytes_for(most: u64) -> usize {
    (64 - most.leading_zeros() as usize).div_ceil(8).max(1)
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Layout {
    /// Of the rows of `input`; with versions for the side that is probed with.
    pub(super) fn new(carry: Carry, input: &Input, has_version: bool) -> Layout {
        let pages = input.table.pages();
        let attribute = usize::from(input.attribute.bytes.clamp(1, 8));
        let page = bytes_for(u64::from(input.table.count().saturating_sub(1)));
        let slot = bytes_for(u64::from(pages.rows_max().saturating_sub(1)));
        let version = if has_version { size_of::<Version>() } else { 0 };
        let width = match carry {
            Carry::Rids => attribute + page + slot + version,
            Carry::Rows => ROW_LENGTH_BYTES + pages.row_bytes_max(),
        };
        let column = Arc::clone(&input.attribute.column);
        Layout { carry, column, attribute, page, slot, version, width }
    }

    /// Bytes of a record.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Puts a row's record into `out`.
    pub(super) fn put(
        &self,
        (value, rid, version): (i64, Rid, Version),
        row: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        out.clear();
        match self.carry {
            Carry::Rids => {
                if !self.fits(value) {
                    return Err(Error::Attribute { value, bytes: self.attribute as u8 });
                }
                out.extend_from_slice(&value.to_le_bytes()[..self.attribute]);
                out.extend_from_slice(&rid.page.to_le_bytes()[..self.page]);
                out.extend_from_slice(&rid.slot.to_le_bytes()[..self.slot]);
                out.extend_from_slice(&version.to_le_bytes()[..self.version]);
            }
            Carry::Rows => {
                assert!(row.len() + ROW_LENGTH_BYTES <= self.width, "a row of {}", row.len());
                out.extend_from_slice(&(row.len() as u16).to_le_bytes());
                out.extend_from_slice(row);
                out.resize(self.width, 0);
            }
        }
        Ok(())
    }

    /// The value of a record's attribute.
    pub(super) fn value(&self, record: &[u8]) -> i64 {
        match self.carry {
            Carry::Rids => {
                let unused = 64 - 8 * self.attribute as u32;
                ((number(&record[..self.attribute]) << unused) as i64) >> unused
            }
            Carry::Rows => self.column.value(self.row(record)).expect("null is never kept"),
        }
    }

    /// Whether a record may have this value.
    pub(super) fn fits(&self, value: i64) -> bool {
        let unused = 64 - 8 * self.attribute as u32;
        self.carry == Carry::Rows || (value << unused) >> unused == value
    }

    /// Whether the record at byte `at` of `held` has this value, which fits.
    pub(super) fn is_same(&self, held: &[u8], at: usize, value: i64) -> bool {
        match self.carry {
            Carry::Rids => {
                // One load, but at the end of a bucket.
                let word = held.get(at..at + 8).map_or_else(
                    || number(&held[at..at + self.attribute]),
                    |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")),
                );
                let unused = 64 - 8 * self.attribute as u32;
                (word ^ value as u64) << unused == 0
            }
            Carry::Rows => self.value(&held[at..at + self.width]) == value,
        }
    }

    /// The RID of a record, and the version of its page; 0 without one.
    pub(super) fn rid(&self, record: &[u8]) -> (Rid, Version) {
        let (page, rest) = record[self.attribute..].split_at(self.page);
        let (slot, rest) = rest.split_at(self.slot);
        let rid = Rid { page: number(page) as u32, slot: number(slot) as u16 };
        (rid, number(&rest[..self.version]))
    }

    /// The row of a record.
    pub(super) fn row<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        let (length, row) = record.split_at(ROW_LENGTH_BYTES);
        &row[..number(length) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RowPages;
    use crate::table::{Attribute, Table};
    use terrace_device::model::{Preset, build};
    use terrace_device::{Keep, Store};
    use terrace_rt::{Prng, World};

    fn input(bytes: u8, count: u32) -> Input {
        let device = build(Preset::Ram, World::current(), Store::new(1 << 30, Keep::Plain));
        let pages = Arc::new(RowPages::new(4096, 40).expect("whole sectors"));
        let table = Table::new(device, pages, 0, count).expect("it fits");
        let column = |row: &[u8]| Some(i64::from_le_bytes(row[..8].try_into().expect("eight")));
        Input { table, attribute: Attribute { column: Arc::new(column), bytes }, predicate: None }
    }

    #[test]
    fn records_give_back_what_was_put_into_them() {
        let mut prng = Prng::from_seed(1);
        let mut record = Vec::new();
        for bytes in 1..=8_u8 {
            for count in [1, 256, 257, 65_536, 65_537] {
                let input = input(bytes, count);
                let [rids, probed] = [false, true].map(|it| Layout::new(Carry::Rids, &input, it));
                let rows = Layout::new(Carry::Rows, &input, false);
                assert_eq!(rids.width() + 8, probed.width());
                for _ in 0..50 {
                    let value = (prng.next_u64() as i64) >> (64 - 8 * u32::from(bytes));
                    let page = prng.below(u64::from(count)) as u32;
                    let (rid, version) =
                        (Rid { page, slot: prng.below(101) as u16 }, prng.next_u64());
                    let mut row = vec![0; 8 + prng.below(33) as usize];
                    row[..8].copy_from_slice(&value.to_le_bytes());
                    for (layout, kept) in [(&rids, 0), (&probed, version)] {
                        layout.put((value, rid, version), &row, &mut record).expect("it fits");
                        assert_eq!(record.len(), layout.width());
                        assert_eq!(
                            (layout.value(&record), layout.rid(&record)),
                            (value, (rid, kept))
                        );
                        assert!(layout.is_same(&record, 0, value));
                    }
                    rows.put((value, rid, version), &row, &mut record).expect("it fits");
                    assert_eq!((rows.value(&record), rows.row(&record)), (value, &row[..]));
                    assert!(!rows.is_same(&record, 0, value.wrapping_add(1)));
                }
            }
        }
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused() {
        let layout = Layout::new(Carry::Rids, &input(2, 10), false);
        for (value, fits) in [(32_767, true), (32_768, false), (-32_768, true), (-32_769, false)] {
            let put = layout.put((value, Rid::default(), 0), &[], &mut Vec::new());
            assert_eq!(put.is_ok(), fits, "{value}");
            if let Err(error) = put {
                assert!(error.to_string().contains("2 bytes"), "{error}");
            }
        }
    }
}
