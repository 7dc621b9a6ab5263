//! Splices: cells of a node replaced by others, and its fences with them.
//!
//! Neighbours that share their rows anew lose some at one end and gain some at the other. A splice
//! leaves the cells that stay at their offsets if the prefix stays and the new ones have room
//! beside them. So what a nested action logs to undo it is little: slots, and not the cells. A
//! splice that changes neither cells nor fences packs the node, with any prefix that its keys have.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use terrace_rt::Prng;

    use super::*;
    use crate::btree::edit::format;

    /// Keys of which some begin with more bytes in common than others.
    fn key(prng: &mut Prng) -> Vec<u8> {
        let shared = [3, 3, 3, 2][prng.below(4) as usize];
        let mut key = vec![b'k'; shared];
        key.extend_from_slice(&(prng.below(400) as u16).to_be_bytes());
        key
    }

    /// Rows of at most `len` bytes beside their keys, half of them ghosts.
    fn rows(prng: &mut Prng, len: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut model = BTreeMap::new();
        for _ in 0..prng.below(8_000 / (len + 20)) {
            let record = vec![prng.below(2) as u8 * node::GHOST; 1 + prng.below(len) as usize];
            model.insert(key(prng), record);
        }
        model
    }

    #[test]
    fn a_splice_replaces_what_it_says_and_nothing_else() {
        let (mut in_place, mut packed, mut refused) = (0, 0, 0);
        for seed in 0..4_000 {
            let mut prng = Prng::from_seed(seed);
            let len = [10, 60, 300][prng.below(3) as usize];
            let model = rows(&mut prng, len);
            let (lower, right, first_child) = (b"", PageId(0), PageId(0));
            let shape = Shape { level: 0, tree: 1, lower, upper: None, right, first_child };
            let mut cells = Vec::new();
            model.iter().for_each(|(key, record)| Cells::push(&mut cells, key, &[record]));
            let mut page = [0xa5; PAGE_SIZE];
            format(&mut page, &shape, Cells(&cells)).expect("they fit");
            let rows: Vec<_> = model.into_iter().collect();
            let at = prng.below(rows.len() as u64 + 1) as usize;
            let cut = prng.below((rows.len() - at) as u64 + 1) as usize;
            // What comes sorts between its neighbours.
            let mut after = rows[..at].to_vec();
            for number in 0..prng.below(30) {
                let mut next =
                    rows.get(at.wrapping_sub(1)).map_or(vec![b'k'; 2], |row| row.0.clone());
                next.push(number as u8);
                // A neighbour may begin with the key before it.
                if rows.get(at + cut).is_some_and(|row| row.0 <= next) {
                    break;
                }
                after.push((next, vec![0; 1 + prng.below(len) as usize]));
            }
            let come = at..after.len();
            after.extend_from_slice(&rows[at + cut..]);
            let shared = match &after[..] {
                [] => 0,
                [only] => only.0.len(),
                [first, .., last] => node::common_prefix(&first.0, &last.0),
            };
            let prefix = shared - prng.below(2).min(shared as u64) as usize;
            let prefix_of = |row: &(Vec<u8>, Vec<u8>)| row.0[..prefix].to_vec();
            let prefix = after.first().map_or(Vec::new(), prefix_of);
            let mut cells = Vec::new();
            for (key, record) in &after[come] {
                Cells::push(&mut cells, &key[prefix.len()..], &[record]);
            }
            let change = Splice {
                at: at as u16,
                cut: cut as u16,
                right: PageId(9),
                lower: b"",
                upper: Some(b"z"),
                prefix: &prefix,
                cells: Cells(&cells),
            };
            let before = page;
            let was_prefix = Node::open(&before).expect("a node").prefix().to_vec();
            if splice(&mut page, &change).is_err() {
                refused += 1;
                assert!(page == before, "an error changes nothing");
                continue;
            }
            assert_eq!(node::check(&page), Ok(()), "seed {seed}");
            let node = Node::open(&page).expect("a node");
            assert_eq!(node.len(), after.len(), "seed {seed}");
            for (slot, (key, record)) in after.iter().enumerate() {
                assert_eq!(node.search(key), Ok(slot), "seed {seed}");
                assert_eq!((node.record(slot).0, node.record(slot).1), (record[0], &record[1..]));
            }
            let ghosts = after.iter().filter(|(_, record)| record[0] == node::GHOST).count();
            assert_eq!(node.ghosts(), ghosts, "seed {seed}");
            if prefix == was_prefix { in_place += 1 } else { packed += 1 }
        }
        assert!(in_place > 500 && packed > 500 && refused > 5, "{in_place} {packed} {refused}");
    }
}
