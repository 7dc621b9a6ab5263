//! The bytes of a log page.
//!
//! ```text
//! offset size field
//!      0    4 checksum  CRC-32C of the rest
//!      4    2 count     records
//!      6    2 kind      3
//!      8    8 table     stamp
//!     16    8 number    which write
//!     24    8 now       clock of the policies
//!     32    8 before    the write that counted before it
//!     40    8 digest    of which write of each chunk counts, this one included
//!     48    8 base      which copy of the chunk it goes on from; zero: none
//!     56    4 chunk
//!     60    4 parts     log pages of this write
//!     64      records   as in the journal
//! ```
//!
//! The entries of a chunk are stored as those of a base copy; the number of such a page is that of
//! the copy, and in the lower half where among the pages of all chunks it stands.

use terrace_page::{PAGE_SIZE, PageBuf};

use super::Logged;
use crate::warm::entry::{
    KIND_LOG_PAGE, RECORD_BYTES, Record, get, get_records, judge, put, put_records, seal,
};

const CHUNK_AT: usize = 56;
const PARTS_AT: usize = 60;
const RECORDS_AT: usize = 64;
/// Records in a log page, at most.
pub(super) const RECORDS_MAX: usize = (PAGE_SIZE - RECORDS_AT) / RECORD_BYTES;
/// And in that of a chunk of a few slots, at least.
pub(super) const RECORDS_MIN: usize = 8;

const _: () = assert!(PARTS_AT + 4 == RECORDS_AT && RECORDS_MIN <= RECORDS_MAX);

/// What a log page says beside its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogPage {
    pub table: u64,
    pub number: u64,
    pub now: u64,
    pub before: u64,
    pub digest: u64,
    pub base: u64,
    pub chunk: u32,
    pub parts: u32,
}

impl LogPage {
    pub fn write(&self, page: &mut PageBuf, records: &[Logged]) {
        assert!(records.len() <= RECORDS_MAX);
        page.fill(0);
        let LogPage { table, number, now, before, digest, base, chunk, parts } = *self;
        for (at, field) in (8..).step_by(8).zip([table, number, now, before, digest, base]) {
            put(page, at, field);
        }
        put(page, CHUNK_AT, u64::from(chunk) | (u64::from(parts) << 32));
        let aged = |logged: &Logged| Record {
            entry: logged.record.entry.aged(logged.then, now),
            ..logged.record
        };
        put_records(page, RECORDS_AT, records.iter().map(aged));
        seal(page, records.len(), KIND_LOG_PAGE);
    }

    /// The log page of `chunk` of `table` that `page` is, if it is one.
    pub fn read(
        page: &PageBuf,
        table: u64,
        chunk: u32,
    ) -> Option<(LogPage, impl Iterator<Item = Record>)> {
        let number = get(page, 16);
        let count = judge(page, KIND_LOG_PAGE, table, number)?;
        let both = get(page, CHUNK_AT);
        let found = LogPage {
            table,
            number,
            now: get(page, 24),
            before: get(page, 32),
            digest: get(page, 40),
            base: get(page, 48),
            chunk: both as u32,
            parts: (both >> 32) as u32,
        };
        let is_sane = found.chunk == chunk && found.before < number && found.parts > 0;
        let records = get_records(page, RECORDS_AT, count)?;
        is_sane.then_some((found, records))
    }
}

/// For fuzzing: a page of any bytes.
pub(in crate::warm) fn fuzz(page: &PageBuf, table: u64, number: u64) {
    if let Some((header, records)) = LogPage::read(page, table, get(page, CHUNK_AT) as u32) {
        for record in records {
            let _image = record.entry.aged(header.now, number).image(number);
        }
    }
}
