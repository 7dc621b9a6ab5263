//! Index units: a change of one node each, several nodes' packed in a page.
//!
//! ```text
//! offset size field
//!      0    4 data pointer   of a leaf's key
//!      4    4 parent         node above, when the unit was made
//!      8    4 key
//!     12    4 left           zero
//!     16    4 right          of an inner node's key: the child
//!     20    4 identifier     of the node
//!     24    1 change         1 insert, 2 update, 3 remove
//! ```

use crate::entry::{Key, Op, number};
pub(super) use crate::page::UNIT_BYTES;
use crate::page::{HEADER_BYTES, Page, PageKind};

/// Number of a node.
pub(super) type NodeId = u32;

const PARENT_AT: usize = 4;
const KEY_AT: usize = PARENT_AT + 4;
const LEFT_AT: usize = KEY_AT + 4;
const RIGHT_AT: usize = LEFT_AT + 4;
const NODE_AT: usize = RIGHT_AT + 4;
const CHANGE_AT: usize = NODE_AT + 4;
const _: () = assert!(CHANGE_AT + 1 == UNIT_BYTES);

/// A change of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) node: NodeId,
    pub(super) parent: NodeId,
    /// Its pointer is a record's place in a leaf, a child elsewhere.
    pub(super) op: Op,
    pub(super) is_leaf: bool,
}

/// Units that a page of `bytes` holds.
pub(super) fn capacity(bytes: usize) -> usize {
    (bytes - HEADER_BYTES) / UNIT_BYTES
}

/// A page with `units`.
pub(super) fn build(page_bytes: usize, units: &[Unit], link: u64) -> Page {
    let mut page = Page::new(page_bytes, PageKind::Units, 0);
    page.set_entries(units.len());
    page.set_link(link);
    for (place, unit) in page.body_mut().chunks_exact_mut(UNIT_BYTES).zip(units) {
        let op = unit.op.encode();
        let pointer_at = if unit.is_leaf { 0 } else { RIGHT_AT };
        place[pointer_at..pointer_at + 4].copy_from_slice(&op[4..8]);
        place[PARENT_AT..KEY_AT].copy_from_slice(&unit.parent.to_le_bytes());
        place[KEY_AT..LEFT_AT].copy_from_slice(&op[..4]);
        place[NODE_AT..CHANGE_AT].copy_from_slice(&unit.node.to_le_bytes());
        place[CHANGE_AT] = op[8];
    }
    page
}

fn place(page: &Page, at: usize) -> &[u8] {
    &page.body()[at * UNIT_BYTES..(at + 1) * UNIT_BYTES]
}

/// The node of unit number `at`.
pub(super) fn node(page: &Page, at: usize) -> NodeId {
    number(place(page, at), NODE_AT)
}

/// The key of unit number `at`.
fn key(page: &Page, at: usize) -> Key {
    number(place(page, at), KEY_AT)
}

/// The change of unit number `at`, in a leaf or not.
fn op(page: &Page, at: usize, is_leaf: bool) -> Op {
    let place = place(page, at);
    let mut bytes = [0; crate::entry::OP_BYTES];
    bytes[..4].copy_from_slice(&key(page, at).to_le_bytes());
    let pointer_at = if is_leaf { 0 } else { RIGHT_AT };
    bytes[4..8].copy_from_slice(&place[pointer_at..pointer_at + 4]);
    bytes[8] = place[CHANGE_AT];
    Op::decode(&bytes).expect("a page that was verified")
}

/// The changes of `node` in a page, oldest first.
pub(super) fn ops_of(
    page: &Page,
    wanted: NodeId,
    is_leaf: bool,
) -> impl DoubleEndedIterator<Item = Op> + '_ {
    (0..page.entries())
        .filter(move |at| node(page, *at) == wanted)
        .map(move |at| op(page, at, is_leaf))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_gives_back_the_units_of_a_node() {
        let unit = |node, op, is_leaf| Unit { node, parent: 9, op, is_leaf };
        let units = [
            unit(1, Op::insert(5, 50), true),
            unit(2, Op::insert(6, 60), false),
            unit(1, Op::remove(7), true),
        ];
        let page = build(512, &units, 3 << 32);
        assert!(ops_of(&page, 1, true).eq([Op::insert(5, 50), Op::remove(7)]));
        assert!(ops_of(&page, 2, false).eq([Op::insert(6, 60)]));
        assert_eq!((ops_of(&page, 3, true).count(), page.link()), (0, 3 << 32));
    }
}
