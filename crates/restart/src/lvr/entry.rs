//! Entries of LVR's table: what a slot held when its chunk was hardened, and when that was.
//!
//! ```text
//! offset size field
//!      0    4 checksum   CRC-32C of bytes 4..64 and of the slot's number
//!      4    4 page       the page that the slot held; all ones: FREE
//!      8    8 table      the stamp of the cold start at which the table was begun
//!     16    8 lsn        pageLSN of the copy
//!     24    8 newer      recLSN if the copy was newer than home; all ones: CLEAN
//!     32    8 hardened   beforeHardeningLSN: the log was durable up to here before the slot was
//!                        looked at
//!     40    8 last       tick of the last use
//!     48    8 previous   tick of the use before; all ones: none
//!     56    8 reserved   zero
//! ```
//!
//! The paper's list of fields lacks pageLSN and recLSN, which its algorithms use [sources.D9].
//! A blank entry is zeroes: its checksum is wrong.

use terrace_page::{Lsn, PageId};
use terrace_policy::{History, Tick};

use crate::layout::FLUSHED_ENTRY_BYTES;
use terrace_tier::Image;

const CHECKSUM_AT: usize = 0;
const PAGE_AT: usize = 4;
const NUMBERS_AT: usize = 8;
const NUMBERS: usize = 6;
const RESERVED_AT: usize = 56;

const _: () = assert!(CHECKSUM_AT + 4 == PAGE_AT);
const _: () = assert!(NUMBERS_AT + 8 * NUMBERS == RESERVED_AT);
const _: () = assert!(RESERVED_AT + 8 == FLUSHED_ENTRY_BYTES);
const _: () = assert!(terrace_device::SECTOR_SIZE.is_multiple_of(FLUSHED_ENTRY_BYTES));

const NO_PAGE: u32 = u32::MAX;
const NONE: u64 = u64::MAX;

/// An entry's bytes.
pub(super) type Bytes = [u8; FLUSHED_ENTRY_BYTES];

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LvrEntry {
    /// It was never written, is damaged, or is of another table.
    Blank,
    /// The slot held nothing.
    Free,
    /// The slot held this page, with an LSN, at a time when the log was durable up to `hardened`.
    Filled { image: Image, hardened: Lsn },
}

fn checksum(bytes: &Bytes, slot: u32) -> u32 {
    crc32c::crc32c_append(slot, &bytes[PAGE_AT..])
}

/// The entry of `slot`, which holds `image`, in the table that was begun at `table`.
pub(super) fn encode(image: Option<&Image>, hardened: Lsn, slot: u32, table: u64) -> Bytes {
    let mut bytes = [0; FLUSHED_ENTRY_BYTES];
    let page = image.map_or(NO_PAGE, |image| image.page.0 as u32);
    bytes[PAGE_AT..NUMBERS_AT].copy_from_slice(&page.to_le_bytes());
    let mut numbers = [table, 0, NONE, hardened.0, 0, NONE];
    if let Some(image) = image {
        numbers[1] = image.lsn.expect("LVR keeps whole LSNs").0;
        numbers[2] = image.newer.map_or(NONE, |lsn| lsn.0);
        numbers[4] = image.history.last.0;
        numbers[5] = image.history.previous.map_or(NONE, |tick| tick.0);
    }
    for (number, at) in numbers.iter().zip((NUMBERS_AT..).step_by(8)) {
        bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    let checksum = checksum(&bytes, slot);
    bytes[..PAGE_AT].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// What the entry of `slot` says in the table that was begun at `table`.
pub(super) fn decode(bytes: &Bytes, slot: u32, table: u64) -> LvrEntry {
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
    let number = |index: usize| {
        let at = NUMBERS_AT + 8 * index;
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"))
    };
    if u32_at(CHECKSUM_AT) != checksum(bytes, slot) || number(0) != table {
        return LvrEntry::Blank;
    }
    let page = u32_at(PAGE_AT);
    if page == NO_PAGE {
        return LvrEntry::Free;
    }
    let some = |number: u64| (number != NONE).then_some(number);
    let image = Image {
        page: PageId(u64::from(page)),
        lsn: Some(Lsn(number(1))),
        newer: some(number(2)).map(Lsn),
        history: History { last: Tick(number(4)), previous: some(number(5)).map(Tick) },
    };
    LvrEntry::Filled { image, hardened: Lsn(number(3)) }
}

/// Decodes whatever is there; for fuzzing.
pub(crate) fn fuzz(bytes: &[u8]) {
    for (slot, entry) in (0..).zip(bytes.as_chunks::<FLUSHED_ENTRY_BYTES>().0) {
        let table = u64::from_le_bytes(entry[8..16].try_into().expect("eight"));
        let mut entry = *entry;
        let _as_it_is = decode(&entry, slot, table);
        let checksum = checksum(&entry, slot);
        entry[..PAGE_AT].copy_from_slice(&checksum.to_le_bytes());
        let decoded = decode(&entry, slot, table);
        if let LvrEntry::Filled { image, hardened } = decoded {
            assert_eq!(decode(&encode(Some(&image), hardened, 7, table), 7, table), decoded);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_rt::Prng;

    fn some_image(prng: &mut Prng) -> Option<Image> {
        let image = Image {
            page: PageId(prng.below(u64::from(NO_PAGE))),
            lsn: Some(Lsn(prng.below(1 << 50))),
            newer: prng.chance(3).then(|| Lsn(prng.below(1 << 50))),
            history: History {
                last: Tick(prng.below(1 << 50)),
                previous: prng.chance(2).then(|| Tick(prng.below(1 << 50))),
            },
        };
        (!prng.chance(4)).then_some(image)
    }

    #[test]
    fn an_entry_survives_in_its_place_only() {
        let mut prng = Prng::from_seed(1);
        for _ in 0..2_000 {
            let (image, hardened) = (some_image(&mut prng), Lsn(prng.below(1 << 50)));
            let (slot, table) = (prng.below(1 << 30) as u32, prng.next_u64());
            let bytes = encode(image.as_ref(), hardened, slot, table);
            let expected =
                image.map_or(LvrEntry::Free, |image| LvrEntry::Filled { image, hardened });
            assert_eq!(decode(&bytes, slot, table), expected);
            assert_eq!(decode(&bytes, slot ^ 1, table), LvrEntry::Blank, "another slot's");
            assert_eq!(decode(&bytes, slot, table ^ 1), LvrEntry::Blank, "another table's");
            let mut flipped = bytes;
            flipped[prng.below(FLUSHED_ENTRY_BYTES as u64) as usize] ^= 1 << prng.below(8);
            assert_eq!(decode(&flipped, slot, table), LvrEntry::Blank, "a flipped bit");
        }
        assert_eq!(decode(&[0; FLUSHED_ENTRY_BYTES], 0, 0), LvrEntry::Blank, "a blank device");
    }

    #[test]
    fn garbage_is_survived() {
        let mut prng = Prng::from_seed(2);
        for _ in 0..2_000 {
            let bytes: Vec<u8> = (0..prng.below(500)).map(|_| prng.next_u64() as u8).collect();
            fuzz(&bytes);
        }
    }
}
