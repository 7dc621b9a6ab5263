//! The bytes of the journalled table: entries, pages of the base copy, blocks of the journal.
//!
//! ```text
//! entry, 16 bytes                          record of the journal, 20 bytes
//! offset size field                        offset size field
//!      0    4 page    all ones: free            0    4 slot
//!      4    6 lsn     version of the copy       4   16 entry
//!     10    2 age     see below
//!     12    4 rec     0: clean; else the first change that home lacks, narrowed (`terrace_page`);
//!                     widened near the LSN, or the log's beginning if it is far from that
//!
//! page of the base copy                    block of the journal
//! offset size field                        offset size field
//!      0    4 checksum  CRC-32C of the rest     0    4 checksum
//!      4    2 count     entries                 4    2 count     records
//!      6    2 kind      1                       6    2 kind      2
//!      8    8 table     stamp                   8    8 table     stamp
//!     16    8 number    which base copy        16    8 number    which block
//!     24    8 now       clock of the policies  24    8 now
//!     32      entries                          32    8 base      the newest whole base copy
//!                                              40    8 tail      the first block it lacks
//!                                              48    4 before   the checksum of the block before
//!                                              52      records
//! ```
//!
//! - E1: an age is the clock minus the use before the last, or the last if there was but one (the
//!   highest bit says so), rounded down to ten significant bits: power of two, nine bits after it.
//! - E2: a record whose LSN is all ones says that home has the slot's page too now.
//! - E3: decoders never panic, whatever the bytes.
//! - E4: `before` ties a block to the one that it goes on after. A session may be cut with a block
//!   lost and a later one written; the next session goes on at the lost one, and what it writes
//!   must not lead into the later one, which is of another past.

use terrace_page::{LOG_BYTES_MAX, LSN_MAX, Lsn, PAGE_SIZE, PageBuf, PageId, narrow, widen};
use terrace_policy::{History, Tick};

use crate::Image;
use crate::layout::PAGE_ENTRIES;

pub(super) const ENTRY_BYTES: usize = 16;
pub(super) const RECORD_BYTES: usize = 4 + ENTRY_BYTES;
const ENTRIES_HEADER: usize = 32;
const BLOCK_HEADER: usize = 52;
/// Records in a block.
pub(super) const BLOCK_RECORDS: usize = (PAGE_SIZE - BLOCK_HEADER) / RECORD_BYTES;

const _: () = assert!(ENTRIES_HEADER + PAGE_ENTRIES as usize * ENTRY_BYTES == PAGE_SIZE);

const KIND_ENTRIES: u16 = 1;
const KIND_BLOCK: u16 = 2;
/// A log page of a chunk: see `chunks`.
pub(super) const KIND_LOG_PAGE: u16 = 3;
const NO_PAGE: u32 = u32::MAX;
const LSN_BITS: u32 = 48;
const CLEANED: u64 = (1 << LSN_BITS) - 1;
const _: () = assert!(LSN_MAX.0 < CLEANED);
const ONCE: u16 = 1 << 15;
const MANTISSA_BITS: u32 = 9;

/// An entry as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry([u8; ENTRY_BYTES]);

impl Entry {
    /// Of a slot that holds nothing.
    pub const FREE: Entry = Entry([0xff; ENTRY_BYTES]);

    /// The same, of a slot that has held something: a frontier wants to know.
    pub const DROPPED: Entry = {
        let mut bytes = [0; ENTRY_BYTES];
        let mut at = 0;
        while at < size_of_val(&NO_PAGE) {
            bytes[at] = 0xff;
            at += 1;
        }
        Entry(bytes)
    };

    /// Whether it is that of a slot of which nothing was ever told.
    pub fn is_of_never_filled(&self) -> bool {
        self.page().is_none() && self.lsn().0 == CLEANED
    }

    /// Of a slot with a copy of `page`.
    pub fn of(page: PageId, lsn: Lsn, newer: Option<Lsn>, history: History, now: Tick) -> Entry {
        assert!(lsn.0 < CLEANED, "the log ends before {LSN_MAX}");
        let page = u32::try_from(page.0).expect("slots keep 32 bits");
        Entry::encode(page, lsn.0, age_of(history, now), narrow_beside(lsn, newer))
    }

    /// Of a slot whose page home has too now.
    pub fn cleaned(page: PageId) -> Entry {
        Entry::encode(page.0 as u32, CLEANED, 0, 0)
    }

    /// No entry has this LSN.
    pub const LSN_MAX: u64 = CLEANED;

    /// The same copy, with its first change that home lacks at `newer`.
    pub fn since(self, newer: Option<Lsn>) -> Entry {
        let rec = narrow_beside(self.lsn(), newer);
        Entry::encode(self.u32_at(0), self.lsn().0, self.age(), rec)
    }

    /// Of a record that is none of a slot's: see `frontier`.
    pub fn mark(kind: u16, lsn: u64, first: u32, len: u32) -> Entry {
        Entry::encode(first, lsn, kind, len)
    }

    /// The parts of a mark.
    pub fn as_mark(&self) -> (u16, u64, u32, u32) {
        (self.age(), self.lsn().0, self.u32_at(0), self.u32_at(12))
    }

    /// Whether a record with it says that its slot was filled.
    pub fn is_fill(&self) -> bool {
        self.page().is_some() && self.lsn().0 != CLEANED
    }

    fn encode(page: u32, lsn: u64, age: u16, rec: u32) -> Entry {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..4].copy_from_slice(&page.to_le_bytes());
        bytes[4..10].copy_from_slice(&lsn.to_le_bytes()[..6]);
        bytes[10..12].copy_from_slice(&age.to_le_bytes());
        bytes[12..].copy_from_slice(&rec.to_le_bytes());
        Entry(bytes)
    }

    fn u32_at(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("four"))
    }

    pub fn page(&self) -> Option<PageId> {
        let page = self.u32_at(0);
        (page != NO_PAGE).then_some(PageId(u64::from(page)))
    }

    pub fn lsn(&self) -> Lsn {
        let mut bytes = [0; 8];
        bytes[..6].copy_from_slice(&self.0[4..10]);
        Lsn(u64::from_le_bytes(bytes))
    }

    pub fn is_newer(&self) -> bool {
        self.u32_at(12) != 0
    }

    /// The first change that home lacks, rounded down.
    fn newer(&self) -> Option<Lsn> {
        widen(self.u32_at(12), self.lsn())
    }

    fn age(&self) -> u16 {
        u16::from_le_bytes([self.0[10], self.0[11]])
    }

    /// The same entry when the clock has moved from `then` to `now`.
    pub fn aged(self, then: u64, now: u64) -> Entry {
        if then == now {
            return self;
        }
        let (once, age) = (self.age() & ONCE, decode_age(self.age()));
        let age = encode_age(age.saturating_add(now.saturating_sub(then)));
        Entry::encode(self.u32_at(0), self.lsn().0, once | age, self.u32_at(12))
    }

    /// The entry after a record of its slot.
    pub fn after(self, record: Entry) -> Entry {
        if record.lsn().0 != CLEANED || record.page().is_none() {
            record
        } else if record.page() == self.page() {
            Entry::encode(self.u32_at(0), self.lsn().0, self.age(), 0)
        } else {
            self
        }
    }

    /// What it says of its slot, with the clock at `now`.
    pub fn image(&self, now: u64) -> Option<Image> {
        let (page, age) = (self.page()?, decode_age(self.age()));
        let used = Tick(now.saturating_sub(age).max(1));
        let history = match self.age() & ONCE {
            0 => History { last: Tick(now.max(1)), previous: Some(used) },
            _ => History::once(used),
        };
        Some(Image { page, lsn: Some(self.lsn()), newer: self.newer(), history })
    }
}

/// `newer`, of a copy of version `lsn`, as it is stored: of a change that no log can have any more
/// only that it is old.
fn narrow_beside(lsn: Lsn, newer: Option<Lsn>) -> u32 {
    let is_near = |newer: &Lsn| lsn.0.saturating_sub(newer.0) < LOG_BYTES_MAX;
    newer.map_or(0, |newer| narrow(Some(newer).filter(is_near).unwrap_or(Lsn::ZERO)))
}

fn age_of(history: History, now: Tick) -> u16 {
    let (used, once) = match history.previous {
        Some(previous) => (previous, 0),
        None => (history.last, ONCE),
    };
    once | encode_age(now.0.saturating_sub(used.0))
}

fn encode_age(age: u64) -> u16 {
    let age = age.saturating_add(1);
    let power = age.ilog2();
    let fraction = if power >= MANTISSA_BITS {
        age >> (power - MANTISSA_BITS)
    } else {
        age << (MANTISSA_BITS - power)
    };
    let mantissa = (fraction & ((1 << MANTISSA_BITS) - 1)) as u16;
    ((power as u16) << MANTISSA_BITS) | mantissa
}

fn decode_age(code: u16) -> u64 {
    let code = code & !ONCE;
    let power = u32::from(code >> MANTISSA_BITS);
    let fraction = (1 << MANTISSA_BITS) | u64::from(code & ((1 << MANTISSA_BITS) - 1));
    let age = if power >= MANTISSA_BITS {
        fraction << (power - MANTISSA_BITS)
    } else {
        fraction >> (MANTISSA_BITS - power)
    };
    age - 1
}

pub(super) fn put(page: &mut PageBuf, at: usize, number: u64) {
    page[at..at + 8].copy_from_slice(&number.to_le_bytes());
}

pub(super) fn get(page: &PageBuf, at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().expect("eight"))
}

pub(super) fn seal(page: &mut PageBuf, count: usize, kind: u16) {
    page[4..6].copy_from_slice(&(count as u16).to_le_bytes());
    page[6..8].copy_from_slice(&kind.to_le_bytes());
    let checksum = crc32c::crc32c(&page[4..]);
    page[..4].copy_from_slice(&checksum.to_le_bytes());
}

/// The count of a page of `kind`, of `table` and with `number`, whose checksum is right.
pub(super) fn judge(page: &PageBuf, kind: u16, table: u64, number: u64) -> Option<usize> {
    let is_whole = page[..4] == crc32c::crc32c(&page[4..]).to_le_bytes();
    let is_it =
        page[6..8] == kind.to_le_bytes() && get(page, 8) == table && get(page, 16) == number;
    (is_whole && is_it).then(|| usize::from(u16::from_le_bytes([page[4], page[5]])))
}

/// Writes `entries` as a page of base copy `number`.
pub(super) fn write_entries(
    page: &mut PageBuf,
    entries: &[Entry],
    table: u64,
    number: u64,
    now: u64,
) {
    page.fill(0);
    put(page, 8, table);
    put(page, 16, number);
    put(page, 24, now);
    for (at, entry) in (ENTRIES_HEADER..).step_by(ENTRY_BYTES).zip(entries) {
        page[at..at + ENTRY_BYTES].copy_from_slice(&entry.0);
    }
    seal(page, entries.len(), KIND_ENTRIES);
}

/// The entries of a page of base copy `number`, and their clock.
pub(super) fn read_entries(
    page: &PageBuf,
    table: u64,
    number: u64,
) -> Option<(impl Iterator<Item = Entry>, u64)> {
    let count = judge(page, KIND_ENTRIES, table, number)?;
    let (entries, _) = page[ENTRIES_HEADER..].as_chunks::<ENTRY_BYTES>();
    Some((entries.get(..count)?.iter().map(|bytes| Entry(*bytes)), get(page, 24)))
}

/// What the header of a block says beside its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHeader {
    pub table: u64,
    pub number: u64,
    pub now: u64,
    pub base: u64,
    pub tail: u64,
    /// The checksum of the block before it; any for the first.
    pub before: u32,
}

/// A change of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub slot: u32,
    pub entry: Entry,
}

/// Writes a block; returns its checksum.
pub(super) fn write_block(page: &mut PageBuf, header: &BlockHeader, records: &[Record]) -> u32 {
    assert!(records.len() <= BLOCK_RECORDS);
    page.fill(0);
    let BlockHeader { table, number, now, base, tail, before } = *header;
    for (at, field) in (8..).step_by(8).zip([table, number, now, base, tail]) {
        put(page, at, field);
    }
    page[BLOCK_HEADER - 4..BLOCK_HEADER].copy_from_slice(&before.to_le_bytes());
    put_records(page, BLOCK_HEADER, records.iter().copied());
    seal(page, records.len(), KIND_BLOCK);
    checksum_of(page)
}

/// Writes `records` from byte `from` of a page on.
pub(super) fn put_records(page: &mut PageBuf, from: usize, records: impl Iterator<Item = Record>) {
    for (at, record) in (from..).step_by(RECORD_BYTES).zip(records) {
        page[at..at + 4].copy_from_slice(&record.slot.to_le_bytes());
        page[at + 4..at + RECORD_BYTES].copy_from_slice(&record.entry.0);
    }
}

/// The first `count` records from byte `from` of a page on, if the page has room for that many.
pub(super) fn get_records(
    page: &PageBuf,
    from: usize,
    count: usize,
) -> Option<impl Iterator<Item = Record>> {
    let (records, _) = page[from..].as_chunks::<RECORD_BYTES>();
    Some(records.get(..count)?.iter().map(|bytes| Record {
        slot: u32::from_le_bytes(bytes[..4].try_into().expect("four")),
        entry: Entry(bytes[4..].try_into().expect("sixteen")),
    }))
}

/// The checksum that a page of the table says it has.
pub(super) fn checksum_of(page: &PageBuf) -> u32 {
    u32::from_le_bytes(page[..4].try_into().expect("four"))
}

/// The number of the block of `table` that `page` is, if it is one.
pub(super) fn block_number(page: &PageBuf, table: u64) -> Option<u64> {
    let number = get(page, 16);
    judge(page, KIND_BLOCK, table, number).map(|_| number)
}

/// Block `number` of `table`, if that is what `page` is.
pub(super) fn read_block(
    page: &PageBuf,
    table: u64,
    number: u64,
) -> Option<(BlockHeader, impl Iterator<Item = Record>)> {
    let count = judge(page, KIND_BLOCK, table, number)?;
    let (now, base, tail) = (get(page, 24), get(page, 32), get(page, 40));
    let before = page[BLOCK_HEADER - 4..BLOCK_HEADER].try_into().expect("four");
    let before = u32::from_le_bytes(before);
    let records = get_records(page, BLOCK_HEADER, count)?;
    let is_sane = tail <= number;
    is_sane.then_some((BlockHeader { table, number, now, base, tail, before }, records))
}

/// For fuzzing: a page of any bytes.
pub(super) fn fuzz(page: &PageBuf, table: u64, number: u64) {
    let _number = block_number(page, table);
    if let Some((entries, then)) = read_entries(page, table, number) {
        for entry in entries {
            let _image = entry.aged(then, number).image(number);
        }
    }
    if let Some((header, records)) = read_block(page, table, number) {
        for record in records {
            let aged = record.entry.aged(header.now, number);
            let _image = Entry::FREE.after(aged).after(record.entry).image(header.now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(last: u64, previous: Option<u64>) -> History {
        History { last: Tick(last), previous: previous.map(Tick) }
    }

    #[test]
    fn ages_keep_their_order_and_ten_bits() {
        let mut before = 0;
        for age in (0..5000).chain((13..63).map(|power| 1_u64 << power)) {
            let back = decode_age(encode_age(age));
            assert!(back <= age, "{age} became {back}");
            assert!(age - back <= age >> MANTISSA_BITS, "{age} became {back}");
            assert!(encode_age(age) >= before);
            before = encode_age(age);
        }
    }

    #[test]
    fn an_entry_comes_back() {
        let now = Tick(1000);
        let entry =
            Entry::of(PageId(7), Lsn(1 << 40), Some(Lsn(9 << 12)), history(990, Some(900)), now);
        let image = entry.image(1000).expect("a page");
        assert_eq!((image.page, image.lsn), (PageId(7), Some(Lsn(1 << 40))));
        assert_eq!(image.newer, Some(Lsn(9 << 12)));
        assert_eq!(image.history.previous, Some(Tick(900)));
        let cleaned = entry.after(Entry::cleaned(PageId(7)));
        assert!(!cleaned.is_newer());
        assert_eq!(cleaned.lsn(), entry.lsn());
        assert_eq!(entry.after(Entry::cleaned(PageId(8))), entry, "of another page");
        assert_eq!(entry.after(Entry::FREE), Entry::FREE);
        let once = Entry::of(PageId(7), Lsn(5), None, history(990, None), now);
        let later = once.aged(1000, 3000).image(3000).expect("a page").history;
        assert_eq!(later.previous, None);
        assert!(later.last.0.abs_diff(990) < 10);
        assert_eq!(Entry::FREE.image(1000), None);
        assert_eq!(Entry::DROPPED.aged(5, 900).image(1000), None);
        assert!(Entry::FREE.aged(5, 900).is_of_never_filled());
        assert!(!Entry::DROPPED.aged(5, 900).is_of_never_filled());
        assert!(!entry.is_of_never_filled());
        assert_eq!(entry.after(Entry::DROPPED), Entry::DROPPED);
    }

    /// The bug: the first change that home lacks was found again from where the log ended: once
    /// that was eight tebibytes further, it lay ahead.
    #[test]
    fn the_first_change_that_home_lacks_is_told_by_the_entry_alone() {
        let newer = |lsn: u64, rec: u64| {
            let entry = Entry::of(PageId(7), Lsn(lsn), Some(Lsn(rec)), history(9, None), Tick(10));
            entry.image(10).expect("a page").newer
        };
        assert_eq!(newer(9 << 12, 9 << 12), Some(Lsn(9 << 12)));
        assert_eq!(newer(1 << 43, (1 << 43) - (1 << 41)), Some(Lsn((1 << 43) - (1 << 41))));
        for lsn in [1 << 42, 3 << 42, 1 << 44, (1 << 44) + (9 << 12), 1 << 47] {
            let told = newer(lsn + (1 << 20), 9 << 12).expect("home lacks it");
            assert!(told <= Lsn(9 << 12), "{told} of a copy at {lsn}");
        }
        assert_eq!(newer(1 << 40, 0), Some(Lsn::ZERO));
    }

    #[test]
    fn a_block_and_a_page_of_entries_come_back_and_their_neighbours_do_not() {
        let entry = Entry::of(PageId(7), Lsn(80), None, history(9, None), Tick(10));
        let mut page: Box<PageBuf> = Box::new([0; PAGE_SIZE]);
        write_entries(&mut page, &[entry, Entry::FREE], 3, 2, 10);
        let (entries, now) = read_entries(&page, 3, 2).expect("entries");
        assert_eq!((entries.collect::<Vec<_>>(), now), (vec![entry, Entry::FREE], 10));
        assert!(read_entries(&page, 3, 4).is_none());
        assert!(read_entries(&page, 4, 2).is_none());
        let header = BlockHeader { table: 3, number: 9, now: 11, base: 2, tail: 5, before: 6 };
        let records: Vec<Record> =
            (0..BLOCK_RECORDS as u32).map(|slot| Record { slot, entry }).collect();
        write_block(&mut page, &header, &records);
        let (found, back) = read_block(&page, 3, 9).expect("a block");
        assert_eq!((found, back.collect::<Vec<_>>()), (header, records));
        page[4000] ^= 1;
        assert!(read_block(&page, 3, 9).is_none());
        assert!(read_entries(&page, 3, 9).is_none());
    }
}
