//! The node translation table: where the parts of each node are.
//!
//! - T1: a node has a base page, and pages of units that are newer, oldest first.
//! - T2: a page of units counts the nodes that need it; with none it is free.

use rapidhash::RapidHashMap;

use super::unit::NodeId;
use crate::page::PageNo;

/// Bytes of a list of pages of units beside the pages' numbers, as a hash table has it.
const LIST_BYTES: u64 = 32;
/// Bytes of the count of a page of units.
const COUNT_BYTES: u64 = 8;

/// The table.
#[derive(Default)]
pub(super) struct NodeTable {
    bases: Vec<PageNo>,
    lists: RapidHashMap<NodeId, Vec<PageNo>>,
    listed: u64,
    needed: RapidHashMap<PageNo, u32>,
}

impl NodeTable {
    /// The table of loaded nodes, which have a page each from `first` on.
    pub(super) fn loaded(first: PageNo, nodes: u64) -> NodeTable {
        let bases = (first..first + nodes as PageNo).collect();
        NodeTable { bases, ..NodeTable::default() }
    }

    /// A table of `nodes` nodes of which nothing is known, all with base page `none`.
    pub(super) fn unknown(nodes: NodeId, none: PageNo) -> NodeTable {
        NodeTable { bases: vec![none; nodes as usize], ..NodeTable::default() }
    }

    pub(super) fn nodes(&self) -> NodeId {
        self.bases.len() as NodeId
    }

    pub(super) fn base(&self, node: NodeId) -> PageNo {
        self.bases[node as usize]
    }

    /// The pages of units of a node.
    pub(super) fn list(&self, node: NodeId) -> &[PageNo] {
        self.lists.get(&node).map_or(&[], Vec::as_slice)
    }

    /// A new node.
    pub(super) fn add(&mut self, base: PageNo) -> NodeId {
        self.bases.push(base);
        self.nodes() - 1
    }

    /// A page of units of `nodes`, each once, was written.
    pub(super) fn append(&mut self, page: PageNo, nodes: &[NodeId]) {
        self.needed.insert(page, nodes.len() as u32);
        for node in nodes {
            self.lists.entry(*node).or_default().push(page);
        }
        self.listed += nodes.len() as u64;
    }

    /// The node is in `base` alone now; gives the pages that are free.
    pub(super) fn compact(&mut self, node: NodeId, base: PageNo) -> Vec<PageNo> {
        let mut free = vec![std::mem::replace(&mut self.bases[node as usize], base)];
        let list = self.lists.remove(&node).unwrap_or_default();
        self.listed -= list.len() as u64;
        for page in list {
            let needed = self.needed.get_mut(&page).expect("a page of a list is counted");
            *needed -= 1;
            if *needed == 0 {
                self.needed.remove(&page);
                free.push(page);
            }
        }
        free
    }

    pub(super) fn set_base(&mut self, node: NodeId, base: PageNo) {
        self.bases[node as usize] = base;
    }

    /// Whether a page of units is needed.
    pub(super) fn needs(&self, page: PageNo) -> bool {
        self.needed.contains_key(&page)
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> u64 {
        let numbers = self.bases.len() as u64 + self.listed;
        numbers * size_of::<PageNo>() as u64
            + self.lists.len() as u64 * LIST_BYTES
            + self.needed.len() as u64 * COUNT_BYTES
    }
}
