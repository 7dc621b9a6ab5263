//! The page header: what every tier may know of a page without knowing its contents.
//!
//! ```text
//! offset size field
//!      0    4 checksum   CRC-32C of bytes 4..PAGE_SIZE
//!      4    2 kind       PageKind
//!      6    2 reserved   owned by the page's kind
//!      8    8 page_lsn   LSN of the last change to this page
//!     16    8 page_id    catches a misdirected read or write
//!     24    8 owner      owned by the page's kind
//! ```
//!
//! - H1: the checksum is right only on a device: `seal` sets it just before a write, and nothing
//!   else keeps it. A page in memory may carry any value there.
//! - H2: a page of zeroes verifies as `Damage::Blank`, never as a page.
//!
//! Fields are little-endian. The checksum is CRC-32C (Castagnoli).

use crate::{Lsn, PAGE_SIZE, PageBuf, PageId};

const CHECKSUM_AT: usize = 0;
const KIND_AT: usize = 4;
const LSN_AT: usize = 8;
const PAGE_ID_AT: usize = 16;
/// Bytes of the header; the page's kind owns what follows.
pub const HEADER_SIZE: usize = 32;

const _: () = assert!(PAGE_ID_AT + 8 + 8 == HEADER_SIZE);
const _: () = assert!(HEADER_SIZE < PAGE_SIZE);

/// What a page is, as stored in its header. Numbers are part of the file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum PageKind {
    /// Allocated, not yet formatted.
    Free = 0,
    /// The superblock (two copies, pages 0 and 1).
    Super = 1,
    /// A leaf of a B+-tree.
    Leaf = 2,
    /// An inner node of a B+-tree.
    Inner = 3,
    /// A piece of a large value.
    Overflow = 4,
    /// An allocation map.
    Map = 5,
    /// The header of a tree: its root, its extents.
    Tree = 6,
    /// A part of a large value: bytes alone, after a stamp in the header.
    Raw = 7,
}

/// Why stored bytes are not the page that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Never written: all zeroes.
    Blank,
    /// The checksum does not match: torn or rotten.
    Checksum,
    /// Whole, but another page: a misdirected write or read.
    WrongPage {
        /// The page whose bytes these are.
        found: PageId,
    },
    /// Whole, but not the version that was written there last: a lost write, or an old device.
    Version,
}

fn u64_at(page: &PageBuf, at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"))
}

/// The LSN of the last change to `page`.
pub fn lsn(page: &PageBuf) -> Lsn {
    Lsn(u64_at(page, LSN_AT))
}

/// Sets the LSN of the last change to `page`.
pub fn set_lsn(page: &mut PageBuf, lsn: Lsn) {
    page[LSN_AT..LSN_AT + 8].copy_from_slice(&lsn.0.to_le_bytes());
}

/// The id that `page` carries.
pub fn page_id(page: &PageBuf) -> PageId {
    PageId(u64_at(page, PAGE_ID_AT))
}

/// Sets the id that `page` carries.
pub fn set_page_id(page: &mut PageBuf, id: PageId) {
    page[PAGE_ID_AT..PAGE_ID_AT + 8].copy_from_slice(&id.0.to_le_bytes());
}

/// The kind of `page`, or `None` if the stored number names none.
pub fn kind(page: &PageBuf) -> Option<PageKind> {
    Some(match u16::from_le_bytes([page[KIND_AT], page[KIND_AT + 1]]) {
        0 => PageKind::Free,
        1 => PageKind::Super,
        2 => PageKind::Leaf,
        3 => PageKind::Inner,
        4 => PageKind::Overflow,
        5 => PageKind::Map,
        6 => PageKind::Tree,
        7 => PageKind::Raw,
        _ => return None,
    })
}

/// Sets the kind of `page`.
pub fn set_kind(page: &mut PageBuf, kind: PageKind) {
    page[KIND_AT..KIND_AT + 2].copy_from_slice(&(kind as u16).to_le_bytes());
}

fn checksum(page: &PageBuf) -> u32 {
    crc32c::crc32c(&page[KIND_AT..])
}

/// Computes and stores the checksum of `page`, just before it is written to a device.
pub fn seal(page: &mut PageBuf) {
    let sum = checksum(page);
    page[CHECKSUM_AT..KIND_AT].copy_from_slice(&sum.to_le_bytes());
}

/// Checks bytes that a device returned for page `expected`.
///
/// # Errors
///
/// Says how the bytes differ from a whole page `expected`.
pub fn verify(page: &PageBuf, expected: PageId) -> Result<(), Damage> {
    let stored = u32::from_le_bytes(page[CHECKSUM_AT..KIND_AT].try_into().expect("four bytes"));
    if stored != checksum(page) {
        let blank = stored == 0 && page.iter().all(|&byte| byte == 0);
        return Err(if blank { Damage::Blank } else { Damage::Checksum });
    }
    let found = page_id(page);
    if found != expected {
        return Err(Damage::WrongPage { found });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(id: PageId) -> Box<PageBuf> {
        let mut page = Box::new([0; PAGE_SIZE]);
        set_page_id(&mut page, id);
        set_kind(&mut page, PageKind::Leaf);
        set_lsn(&mut page, Lsn(77));
        page[5000] = 9;
        seal(&mut page);
        page
    }

    #[test]
    fn a_sealed_page_verifies() {
        let page = sealed(PageId(3));
        assert_eq!(verify(&page, PageId(3)), Ok(()));
        assert_eq!((lsn(&page), kind(&page)), (Lsn(77), Some(PageKind::Leaf)));
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let mut page = sealed(PageId(3));
        for at in (0..PAGE_SIZE).step_by(61) {
            page[at] ^= 1 << (at % 8);
            assert_eq!(verify(&page, PageId(3)), Err(Damage::Checksum), "byte {at}");
            page[at] ^= 1 << (at % 8);
        }
    }

    #[test]
    fn a_misdirected_and_a_blank_page_are_seen() {
        let page = sealed(PageId(3));
        assert_eq!(verify(&page, PageId(4)), Err(Damage::WrongPage { found: PageId(3) }));
        assert_eq!(verify(&[0; PAGE_SIZE], PageId(4)), Err(Damage::Blank));
    }
}
