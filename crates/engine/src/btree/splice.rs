//! Splices: cells of a node replaced by others, and its fences with them.
//!
//! Neighbours that share their rows anew lose some at one end and gain some at the other. A splice
//! leaves the cells that stay at their offsets if the prefix stays and the new ones have room beside
//! them. So what a nested action logs to undo it is little: slots, and not the cells. A splice that
//! changes neither cells nor fences packs the node, with any prefix that its keys have.
//!
//! - S1: forward and in redo it is the same function of the page and the arguments, offsets of
//!   cells included. On an error the page is unchanged.

use terrace_page::{PAGE_SIZE, PageBuf, PageId};

use super::cells::Cells;
use super::edit::{Body, Builder, Edit, Shape};
use super::node::{self, Node, SLOT};
use crate::change::BadChange;

/// What comes into a node, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Splice<'a> {
    /// The first slot that is replaced.
    pub(crate) at: u16,
    /// How many are.
    pub(crate) cut: u16,
    /// The node's right neighbour afterwards.
    pub(crate) right: PageId,
    /// Its lower fence.
    pub(crate) lower: &'a [u8],
    /// Its upper fence, if it has one.
    pub(crate) upper: Option<&'a [u8]>,
    /// What all its keys begin with.
    pub(crate) prefix: &'a [u8],
    /// What comes in place of the cells that go: keys without the prefix.
    pub(crate) cells: Cells<'a>,
}

/// Replaces cells and fences.
pub(crate) fn splice(page: &mut PageBuf, splice: &Splice<'_>) -> Edit {
    let old = *page;
    let node = Node::open(&old).ok_or(BadChange)?;
    let (at, cut) = (usize::from(splice.at), usize::from(splice.cut));
    if at + cut > node.len() {
        return Err(BadChange);
    }
    let &Splice { lower, upper, right, prefix, .. } = splice;
    let shape = Shape { lower, upper, right, ..Shape::of(&node) };
    let mut builder = Builder::new(&old, &shape, prefix)?;
    let kept = || (0..at).chain(at + cut..node.len());
    let packs = cut == 0
        && splice.cells.0.is_empty()
        && (lower, upper, right) == (node.lower(), node.upper(), node.right());
    let stays = prefix == node.prefix() && !packs;
    let floor = kept().map(|slot| node.cell_at(slot)).min().unwrap_or(PAGE_SIZE);
    let (count, len) = sizes(&node, splice.cells)?;
    let slots_end = builder.slots_end + SLOT * (node.len() - cut + count);
    if stays && slots_end + len <= floor && floor >= node.cells_start() {
        builder.keep_cells(&old, slots_end.max(node.cells_start()), floor);
        (0..at).for_each(|slot| builder.keep_slot(&node, slot));
        push_cells(&mut builder, &node, splice.cells)?;
        (at + cut..node.len()).for_each(|slot| builder.keep_slot(&node, slot));
        builder.finish_with_holes(page);
        return Ok(());
    }
    for slot in 0..at {
        builder.push_old(&node, slot)?;
    }
    push_cells(&mut builder, &node, splice.cells)?;
    for slot in at + cut..node.len() {
        builder.push_old(&node, slot)?;
    }
    builder.finish(page);
    Ok(())
}

/// How many cells come, and their bytes in the node.
fn sizes(node: &Node<'_>, cells: Cells<'_>) -> Result<(usize, usize), BadChange> {
    let (mut count, mut len) = (0, 0);
    for cell in cells {
        let (suffix, body) = cell.ok_or(BadChange)?;
        let beside = if node.is_leaf() { node::LEAF_CELL - 1 } else { 0 };
        count += 1;
        len += beside + suffix.len() + body.len();
    }
    Ok((count, len))
}

fn push_cells(builder: &mut Builder, node: &Node<'_>, cells: Cells<'_>) -> Edit {
    for cell in cells {
        let (suffix, body) = cell.ok_or(BadChange)?;
        builder.push([suffix, &[]], &Body::decode(node.level(), body)?)?;
    }
    Ok(())
}
