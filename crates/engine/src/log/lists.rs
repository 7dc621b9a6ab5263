//! Parts of log records: lists of numbers, runs of bytes, and how they are read.
//!
//! - P1: a list has whole items, and the runs of a page lie within it, before it is made: what
//!   reads one never panics, whatever the bytes were.

use terrace_page::{Lsn, PAGE_SIZE, PageBuf, PageId, TxnId};

use crate::TreeId;

/// A tree with a number of rows.
pub(crate) const ROWS_BYTES: usize = 12;

/// Runs of bytes of a page, encoded; checked when decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pieces<'a>(pub(super) &'a [u8]);

/// Page ids, encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageList<'a>(pub(super) &'a [u8]);

/// Trees, each with a number of rows, encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowsList<'a>(pub(super) &'a [u8]);

/// Transactions with their first and last records, encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TxnList<'a>(pub(super) &'a [u8]);

/// Reads numbers and runs from the front of bytes; nothing left is `None`.
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    pub(super) fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.chunk().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.chunk().map(u64::from_le_bytes)
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

impl<'a> Pieces<'a> {
    /// As they are stored.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Pieces<'a>> {
        let mut input = Input(bytes);
        while !input.0.is_empty() {
            let (at, len) = (usize::from(input.u16()?), usize::from(input.u16()?));
            if at + len > PAGE_SIZE {
                return None;
            }
            input.take(len)?;
        }
        Some(Pieces(bytes))
    }

    /// Puts the runs where they belong.
    pub(crate) fn apply(self, page: &mut PageBuf) {
        let mut input = Input(self.0);
        while let (Some(at), Some(len)) = (input.u16(), input.u16()) {
            let (at, len) = (usize::from(at), usize::from(len));
            page[at..at + len].copy_from_slice(input.take(len).expect("checked when decoded"));
        }
    }
}

impl<'a> PageList<'a> {
    /// The pages.
    pub(crate) fn iter(self) -> impl Iterator<Item = PageId> + 'a {
        self.0.as_chunks::<8>().0.iter().map(|id| PageId(u64::from_le_bytes(*id)))
    }
}

impl<'a> RowsList<'a> {
    /// The trees, each with its number.
    pub(crate) fn iter(self) -> impl Iterator<Item = (TreeId, i64)> + 'a {
        self.0.as_chunks::<ROWS_BYTES>().0.iter().map(|entry| {
            let (tree, rows) = entry.split_at(4);
            let tree = TreeId(u32::from_le_bytes(tree.try_into().expect("four bytes")));
            (tree, i64::from_le_bytes(rows.try_into().expect("eight bytes")))
        })
    }
}

impl<'a> TxnList<'a> {
    /// The transactions, each with the LSNs of its first and last record.
    pub(crate) fn iter(self) -> impl Iterator<Item = (TxnId, Lsn, Lsn)> + 'a {
        let number = |bytes: &[u8; 24], at: usize| {
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
        };
        self.0
            .as_chunks::<24>()
            .0
            .iter()
            .map(move |e| (TxnId(number(e, 0)), Lsn(number(e, 8)), Lsn(number(e, 16))))
    }
}

/// Encodes a tree with a number of rows.
pub(super) fn encode_rows((tree, rows): (TreeId, i64), out: &mut Vec<u8>) {
    out.extend_from_slice(&tree.0.to_le_bytes());
    out.extend_from_slice(&rows.to_le_bytes());
}

/// The bytes, if they are whole items.
pub(super) fn whole_items(bytes: &[u8], item: usize) -> Option<&[u8]> {
    bytes.len().is_multiple_of(item).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::record::{Body, COUNTS_MAX, Draft, decode};
    use super::*;
    use crate::counts::CountsHead;

    fn bytes(mut draft: Draft) -> Vec<u8> {
        let checksum = draft.close(1, 0, 4_096);
        draft.seal(checksum, Lsn(4_096), 7).to_vec()
    }

    fn committed(differences: &[(TreeId, i64)]) -> Vec<(TreeId, i64)> {
        let mut draft = Draft::default();
        draft.commit(TxnId(7), Lsn(64), differences);
        let bytes = bytes(draft);
        let Body::Commit { rows } = decode(&bytes).expect("just encoded").body else {
            panic!("another kind")
        };
        rows.iter().collect()
    }

    #[test]
    fn a_commit_carries_the_differences_that_are_not_zero() {
        assert_eq!(committed(&[]), []);
        let some = [(TreeId(1), 5), (TreeId(2), 0), (TreeId(9), -7)];
        assert_eq!(committed(&some), [some[0], some[2]]);
        let many: Vec<_> = (1..=COUNTS_MAX as u32).map(|tree| (TreeId(tree), -1)).collect();
        assert_eq!(committed(&many), many);
        let too_many = [&many[..], &[(TreeId(50_000), 3)]].concat();
        assert_eq!(committed(&too_many), [(TreeId(0), 0)]);
    }

    #[test]
    fn counts_come_back() {
        let head = CountsHead { at: Lsn(70), next_tree: 9, records: 2 };
        let all = [(TreeId(1), 5), (TreeId(2), 0)];
        let mut draft = Draft::default();
        draft.counts(head, &all);
        let mut bytes = bytes(draft);
        let record = decode(&bytes).expect("just encoded");
        let Body::Counts { head: found, rows } = record.body else { panic!("another kind") };
        assert_eq!((found, rows.iter().collect::<Vec<_>>()), (head, all.to_vec()));
        bytes.pop();
        assert_eq!(decode(&bytes), None);
    }
}
