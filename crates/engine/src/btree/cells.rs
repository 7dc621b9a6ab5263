//! Cells outside of a page: how a change carries those of a whole node.
//!
//! ```text
//! cell:   2 key_len, 2 body_len, key, body       one after another, to the end of the bytes
//! body of a leaf's cell: 1 flags, value          of an inner node's: 8 child
//! ```

use std::ops::Range;

use super::node::{KEY_MAX, Node};

/// Encoded cells, in key order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cells<'a>(pub(crate) &'a [u8]);

impl<'a> Cells<'a> {
    /// Appends a cell.
    pub(crate) fn push(out: &mut Vec<u8>, key: &[u8], body: &[&[u8]]) {
        let body_len: usize = body.iter().map(|part| part.len()).sum();
        assert!(key.len() <= KEY_MAX && body_len <= usize::from(u16::MAX));
        out.extend_from_slice(&(key.len() as u16).to_le_bytes());
        out.extend_from_slice(&(body_len as u16).to_le_bytes());
        out.extend_from_slice(key);
        for part in body {
            out.extend_from_slice(part);
        }
    }

    /// About the bytes of all cells of `node`: with whole keys, which may be much more than a page.
    pub(crate) fn len_of(node: &Node<'_>) -> usize {
        node.used() + node.len() * (4 + node.prefix().len())
    }

    /// Appends the cells of `node` from `first` on.
    pub(crate) fn push_from(out: &mut Vec<u8>, node: &Node<'_>, first: usize) {
        Cells::push_some(out, node, first..node.len());
    }

    /// Appends some cells of `node`.
    pub(crate) fn push_some(out: &mut Vec<u8>, node: &Node<'_>, some: Range<usize>) {
        for index in some {
            let key = node.key(index);
            if node.is_leaf() {
                let (flags, value) = node.record(index);
                Cells::push(out, &key, &[&[flags], value]);
            } else {
                Cells::push(out, &key, &[&node.child(index + 1).0.to_le_bytes()]);
            }
        }
    }

    /// The first and the last key, if the bytes are cells to their end.
    pub(crate) fn ends(self) -> Option<(&'a [u8], &'a [u8])> {
        let mut ends = None;
        for cell in self {
            let (key, _) = cell?;
            ends = Some((ends.map_or(key, |(first, _)| first), key));
        }
        ends
    }
}

/// Each cell's key and body; `None`, and then nothing more, where the bytes are no cell.
pub(crate) struct Iter<'a>(&'a [u8]);

impl<'a> IntoIterator for Cells<'a> {
    type Item = Option<(&'a [u8], &'a [u8])>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        Iter(self.0)
    }
}

fn split_cell(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    let key_len = usize::from(u16::from_le_bytes([head[0], head[1]]));
    let body_len = usize::from(u16::from_le_bytes([head[2], head[3]]));
    let (key, rest) = rest.split_at_checked(key_len)?;
    let (body, rest) = rest.split_at_checked(body_len)?;
    (key_len <= KEY_MAX).then_some((key, body, rest))
}

impl<'a> Iterator for Iter<'a> {
    type Item = Option<(&'a [u8], &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let cell = split_cell(self.0);
        self.0 = cell.map_or(&[], |(_, _, rest)| rest);
        Some(cell.map(|(key, body, _)| (key, body)))
    }
}
