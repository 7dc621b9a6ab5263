//! Writing: the reservation buffer goes to pages of units, and nodes with too many of these are
//! compacted, and split if they are too full.

use super::Bftl;
use super::unit::{self, NodeId, Unit};
use crate::Error;
use crate::entry::{Key, Op, Pointer};
use crate::page::{Page, PageKind, PageNo};
use crate::pages::{Keep, Undo};

/// A node that is split is filled so far.
const SPLIT_SHARE: f64 = 0.7;

/// Writes all units that wait; those that splits make wait for the next call.
pub(super) fn write_units(tree: &mut Bftl) -> Result<(), Error> {
    let mut units = std::mem::take(&mut tree.buffer);
    // Stable, so the units of a node stay in the order of time.
    units.sort_by_key(|unit| unit.node);
    let capacity = unit::capacity(tree.pages.room().page_bytes);
    let mut touched = Vec::new();
    for part in units.chunks(capacity) {
        let mut nodes: Vec<NodeId> = part.iter().map(|unit| unit.node).collect();
        nodes.dedup();
        let link = tree.next_link(0)?;
        let page = unit::build(tree.pages.room().page_bytes, part, link);
        let no = write_page(tree, page)?;
        tree.table.append(no, &nodes);
        touched.extend(nodes);
    }
    touched.dedup();
    for node in touched {
        if tree.table.list(node).len() + 1 > tree.options.list_max {
            compact(tree, node)?;
        }
    }
    tree.share_memory()
}

/// Writes a page to a free place.
fn write_page(tree: &mut Bftl, page: Page) -> Result<PageNo, Error> {
    let no = match tree.free.pop() {
        Some(no) => no,
        None => tree.pages.allocate(1, 1)?,
    };
    tree.pages.write(vec![(no, page)], Undo::Unwanted, Keep::Lru)?;
    Ok(no)
}

/// Writes all of a node into one page, or into several nodes.
fn compact(tree: &mut Bftl, node: NodeId) -> Result<(), Error> {
    let view = tree.view(node)?;
    let level = view.level();
    let entries = view.entries(&tree.buffer);
    // The page has them now.
    tree.buffer.retain(|unit| unit.node != node);
    let capacity = Page::capacity(tree.pages.room().page_bytes);
    let nodes = match entries.len() {
        count if count <= capacity => 1,
        count => count.div_ceil((capacity as f64 * SPLIT_SHARE) as usize),
    };
    let share = entries.len().div_ceil(nodes).max(1);
    let mut parts = entries.chunks(share);
    let base = write_base(tree, node, level, parts.next().unwrap_or_default())?;
    let freed = tree.table.compact(node, base);
    tree.release(freed);
    let mut added = Vec::new();
    for part in parts {
        let id = tree.table.nodes();
        let base = write_base(tree, id, level, part)?;
        assert_eq!(tree.table.add(base), id, "nodes are numbered in order");
        added.push((part[0].0, id));
    }
    if added.is_empty() { Ok(()) } else { link(tree, node, usize::from(level), &added) }
}

fn write_base(
    tree: &mut Bftl,
    node: NodeId,
    level: u8,
    entries: &[(Key, Pointer)],
) -> Result<PageNo, Error> {
    let mut page = Page::new(tree.pages.room().page_bytes, PageKind::Node, level);
    entries.iter().for_each(|entry| page.push_entry(*entry));
    page.set_link(tree.next_link(node)?);
    write_page(tree, page)
}

/// Tells the parent of `node` about the nodes that it was split into.
fn link(tree: &mut Bftl, node: NodeId, level: usize, added: &[(Key, NodeId)]) -> Result<(), Error> {
    if node == tree.root {
        let id = tree.table.nodes();
        let mut entries = vec![(0, node)];
        entries.extend_from_slice(added);
        let base = write_base(tree, id, level as u8 + 1, &entries)?;
        assert_eq!(tree.table.add(base), id, "nodes are numbered in order");
        (tree.root, tree.height) = (id, tree.height + 1);
        return Ok(());
    }
    for (key, child) in added {
        // Their keys are in the range of `node` still, so the way to it leads to its parent.
        let (parent, above) = tree.node_above(*key, level)?;
        let op = Op::insert(*key, *child);
        tree.buffer.push(Unit { node: parent, parent: above, op, is_leaf: false });
    }
    Ok(())
}
