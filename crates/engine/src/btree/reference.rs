//! References: what the record of a large value holds.
//!
//! ```text
//! record's value
//! offset size field
//!      0    1 kind      1: a chain; 2: a chain and a tail; 3: a chain that lists runs of pages,
//!                       see `runs`; 4: no chain, but one page, see `blocks`
//!      1    7 reserved  zero
//!      8    8 len       bytes of the value, those of the tail included
//!     16    8 stamp     in each page of the chain, too, and in no page of any other value
//!     24    8 first     the first page, or 0 if it has none yet
//!     32      tail      kind 2: the last bytes of the value, one at least; kind 4: those that
//!                       follow a full page, if there are any
//! ```
//!
//! **Tails.** The chain of a value of a few pages ends with a full page, and what is left over is
//! in the record, if a cell can hold it ([`tail_len`]): a page of its own would be nearly empty for
//! most sizes. In longer values it wastes little, and leaves have more keys without tails.

use terrace_page::{HEADER_SIZE, PageBuf, PageId, PageKind, kind};

use super::Tree;
use super::node::{CELL_MAX, LEAF_CELL, SLOT};
use super::overflow::DATA_MAX;
use super::runs::RAW_DATA;
use crate::Error;

/// A reference's kind: a chain of pages.
const CHAIN: u8 = 1;
/// A chain of full pages, and behind the reference what is left over.
const CHAIN_AND_TAIL: u8 = 2;
/// A chain that lists runs of pages, in which the value is.
const RUNS: u8 = 3;
/// One page, and behind the reference what is left over.
const BLOCK: u8 = 4;
/// Where a raw page repeats the stamp.
pub(super) const RAW_STAMP_AT: usize = HEADER_SIZE - 8;
const REFERENCE: usize = 32;
pub(super) const FIRST_IN_REFERENCE: usize = 24;

/// A value of more full pages has no tail: a last page of its own wastes 7% of them at most.
pub(super) const TAIL_PAGES_MAX: usize = 15;
/// Bytes of a cell with a tail, its slot included, beside key and tail.
pub(super) const TAIL_CELL: usize = SLOT + LEAF_CELL + REFERENCE;

const _: () = assert!(FIRST_IN_REFERENCE + 8 == REFERENCE);

/// Bytes of a large value that its record holds, the last ones.
pub(super) fn tail_len(key: &[u8], value: &[u8]) -> usize {
    let (pages, rest) = (value.len() / DATA_MAX, value.len() % DATA_MAX);
    let has_room = TAIL_CELL + key.len() + rest <= CELL_MAX;
    if has_room && (1..=TAIL_PAGES_MAX).contains(&pages) { rest } else { 0 }
}

/// What a record holds in place of a large value, but for the bytes of the tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    /// Bytes of the value.
    pub(super) len: u64,
    /// What each of its pages repeats.
    pub(super) stamp: u64,
    /// The first page, or 0 if it has none yet.
    pub(super) first: PageId,
    pub(super) form: Form,
}

/// What the first page of a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The head of a chain with the value's bytes.
    Chain,
    /// The head of a chain that lists the pages of the value.
    Lists,
    /// The only one, see `blocks`.
    Block,
}

/// The chain that a record leads to, and the bytes that follow it.
pub(super) struct Parts<'r> {
    /// Bytes of the value in the chain.
    pub(super) chain_len: u64,
    pub(super) tail: &'r [u8],
}

impl Reference {
    /// The record's value, with the tail if there is one.
    pub(super) fn encode(&self, tail: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; REFERENCE];
        bytes[0] = match self.form {
            Form::Lists => RUNS,
            Form::Block => BLOCK,
            Form::Chain if tail.is_empty() => CHAIN,
            Form::Chain => CHAIN_AND_TAIL,
        };
        bytes[8..16].copy_from_slice(&self.len.to_le_bytes());
        bytes[16..FIRST_IN_REFERENCE].copy_from_slice(&self.stamp.to_le_bytes());
        bytes[FIRST_IN_REFERENCE..].copy_from_slice(&self.first.0.to_le_bytes());
        bytes.extend_from_slice(tail);
        bytes
    }

    /// The reference and the parts of its value; none for bytes that are no reference.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Reference, Parts<'_>)> {
        let (bytes, tail) = bytes.split_first_chunk::<REFERENCE>()?;
        let word =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let [kind, reserved @ ..] = &bytes[..8] else { return None };
        let chain_len = word(8).checked_sub(tail.len() as u64)?;
        let (form, has_tail) = match *kind {
            CHAIN => (Form::Chain, false),
            CHAIN_AND_TAIL => (Form::Chain, true),
            RUNS => (Form::Lists, false),
            BLOCK if chain_len > RAW_DATA as u64 => return None,
            BLOCK => (Form::Block, chain_len == RAW_DATA as u64 && !tail.is_empty()),
            _ => return None,
        };
        if has_tail == tail.is_empty() || reserved.iter().any(|&byte| byte != 0) {
            return None;
        }
        let first = PageId(word(FIRST_IN_REFERENCE));
        let reference = Reference { len: word(8), stamp: word(16), first, form };
        Some((reference, Parts { chain_len, tail }))
    }

    pub(super) fn lists(&self) -> bool {
        self.form == Form::Lists
    }

    pub(super) fn is_block(&self) -> bool {
        self.form == Form::Block
    }

    /// The reference in a record of the leaf `leaf`.
    pub(super) fn of(leaf: PageId, bytes: &[u8]) -> Result<Reference, Error> {
        Reference::with_parts(leaf, bytes).map(|(reference, _)| reference)
    }

    /// As `of`, and the parts of the value.
    pub(super) fn with_parts(leaf: PageId, bytes: &[u8]) -> Result<(Reference, Parts<'_>), Error> {
        let what = "a record should refer to a large value, and does not";
        Reference::decode(bytes).ok_or_else(|| Tree::corrupt(leaf, what))
    }
}

impl Tree {
    /// Whether `page` is a part of the value with this stamp.
    ///
    /// # Errors
    ///
    /// `Corrupt`.
    pub(super) fn check_raw(&self, id: PageId, page: &PageBuf, stamp: u64) -> Result<(), Error> {
        let found =
            u64::from_le_bytes(page[RAW_STAMP_AT..RAW_STAMP_AT + 8].try_into().expect("eight"));
        if kind(page) != Some(PageKind::Raw) || found != stamp {
            return Err(Tree::corrupt(
                id,
                "it is a part of another large value, or of an older version of this one",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_comes_back_and_others_are_none() {
        let large = Reference { len: 8_192, stamp: 77, first: PageId(40), form: Form::Chain };
        for tail in [&[][..], &[9], &[7; 72]] {
            let bytes = large.encode(tail);
            let (again, parts) = Reference::decode(&bytes).expect("a reference");
            assert_eq!((again, parts.tail), (large, tail));
            assert_eq!(parts.chain_len, 8_192 - tail.len() as u64);
            for at in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 4;
                assert!(Reference::decode(&other).is_none(), "byte {at}");
            }
            assert!(Reference::decode(&bytes[..31]).is_none());
        }
        let block = Reference { form: Form::Block, ..large };
        for (len, tail) in [(8_192, &[3; 32][..]), (8_161, &[1]), (8_160, &[]), (5_000, &[])] {
            let block = Reference { len, ..block };
            let bytes = block.encode(tail);
            let (again, parts) = Reference::decode(&bytes).expect("a reference");
            assert_eq!((again, parts.tail), (block, tail));
            assert_eq!(parts.chain_len, len.min(8_160));
        }
        // A page that is not full, and a tail; one that holds more than a page does.
        assert!(Reference::decode(&Reference { len: 8_160, ..block }.encode(&[1])).is_none());
        assert!(Reference::decode(&Reference { len: 8_161, ..block }.encode(&[])).is_none());
        // A chain with bytes behind it, a tail that is not there, one longer than the value.
        let mut chain = large.encode(&[]);
        chain.push(1);
        assert!(Reference::decode(&chain).is_none());
        assert!(Reference::decode(&large.encode(&[1])[..32]).is_none());
        let short = Reference { len: 3, ..large };
        assert!(Reference::decode(&short.encode(&[1; 4])).is_none());
    }

    #[test]
    fn a_tail_is_what_full_pages_leave_and_a_cell_can_hold() {
        let tail = |key_len: usize, len: usize| tail_len(&vec![1; key_len], &vec![1; len]);
        assert_eq!((tail(8, DATA_MAX), tail(8, DATA_MAX + 1), tail(8, 8_192)), (0, 1, 72));
        let most = CELL_MAX - TAIL_CELL - 100;
        assert_eq!(tail(100, DATA_MAX + most), most);
        assert_eq!(tail(100, DATA_MAX + most + 1), 0);
        let longest = (TAIL_PAGES_MAX + 1) * DATA_MAX - 1;
        assert_eq!(tail(8, TAIL_PAGES_MAX * DATA_MAX + 9), 9);
        assert_eq!((tail(8, longest), tail(8, longest + 10), tail(8, 5_000)), (0, 0, 0));
    }
}
