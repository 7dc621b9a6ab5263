//! All rows of a tree that can still be read, in key order, and what cannot.
//!
//! ```text
//!   from the root down, as far as nodes are whole and say what their parents say
//!        |
//!        +-- a leaf: its rows
//!        +-- a node that is not whole: a gap from its lower fence to its upper one
//!                 |
//!                 +-- leaves of this tree, in use by the maps, whose fences reach into the gap:
//!                 |   their rows; of two that overlap, the one with the higher LSN counts
//!                 +-- the rest of the gap: lost
//! ```
//!
//! - V1: rows come in ascending order, each key once.
//! - V2: every part of the key space is either in leaves that were read or told as lost.
//! - V3: a leaf that no parent leads to counts only within a gap, and only while a map that is
//!   whole has its page in use, for this tree: so what was freed does not come back. Where a map is
//!   damaged too, its leaves count, and are told as doubtful.
//! - Nothing is latched while a row is handed out, and nobody else may change the tree.

use std::io;

use terrace_page::{PageBuf, PageId, lsn};

use super::Tree;
use super::node::{self, Node, OVERFLOW};
use crate::recovery::NotUndone;
use crate::space::Claim;

/// What could not be read, or not be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// No leaf is left for these keys.
    Keys {
        /// The least of them.
        lower: Vec<u8>,
        /// They are below this one.
        upper: Option<Vec<u8>>,
        /// The node that led to them.
        page: PageId,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The row is there, its value is not.
    Value {
        /// Its key.
        key: Vec<u8>,
        /// The leaf that has it.
        leaf: PageId,
        /// Why it cannot be read.
        what: String,
    },
    /// A node is damaged, and what lay below it was found without it.
    Node {
        /// The node.
        page: PageId,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Rows that may be of an older day: their leaf was found by itself, under a damaged map.
    Doubtful {
        /// The least of them.
        lower: Vec<u8>,
        /// They are below this one.
        upper: Option<Vec<u8>>,
        /// The leaf.
        page: PageId,
    },
}

/// Who takes what is found.
pub(crate) trait Sink {
    /// A row.
    ///
    /// # Errors
    ///
    /// Whatever shall end the walk.
    fn row(&mut self, key: &[u8], value: &[u8]) -> io::Result<()>;

    /// Something that is lost.
    fn flaw(&mut self, flaw: Flaw);
}

/// What a parent says of a child.
struct Expected {
    page: PageId,
    /// None of the root.
    level: Option<u8>,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

/// A leaf that was found by itself.
struct Stray {
    page: PageId,
    lsn: u64,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    claim: Claim,
}

impl Stray {
    fn covers(&self, key: &[u8]) -> bool {
        *self.lower <= *key && self.upper.as_deref().is_none_or(|upper| key < upper)
    }
}

struct Walk<'t, 's> {
    tree: &'t Tree,
    /// What is taken back of the rows that are read.
    not_undone: Option<&'t NotUndone>,
    sink: &'s mut dyn Sink,
    /// All whole leaves of the tree, by lower fence, once they were needed.
    strays: Option<Vec<Stray>>,
}

impl Tree {
    /// Hands all rows that can be read to `sink`, in order, without the changes that are
    /// `not_undone`, and what cannot be read.
    ///
    /// # Errors
    ///
    /// Those of the sink.
    pub(crate) fn salvage(
        &self,
        not_undone: Option<&NotUndone>,
        sink: &mut dyn Sink,
    ) -> io::Result<()> {
        let mut walk = Walk { tree: self, not_undone, sink, strays: None };
        let root = Expected { page: self.root(), level: None, lower: Vec::new(), upper: None };
        // Depth first, left to right: the rightmost waits at the bottom.
        let mut stack = vec![root];
        while let Some(expected) = stack.pop() {
            walk.node(expected, &mut stack)?;
        }
        Ok(())
    }

    /// Whether a load into the tree was not finished: its nodes are not to be trusted.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.header_fields().is_ok_and(|fields| fields.loading)
    }

    /// A copy of a page that is a whole node of this tree.
    fn whole_node(&self, id: PageId) -> Result<Box<PageBuf>, &'static str> {
        let page = match self.pool.read(id) {
            Ok(page) => Box::new(*page),
            Err(_) => return Err("it cannot be read, or its bytes are not the page"),
        };
        node::check(&page)?;
        match Node::open(&page) {
            Some(node) if node.tree() == self.id.0 => Ok(page),
            _ => Err("it is a node of another tree"),
        }
    }
}

impl Walk<'_, '_> {
    fn node(&mut self, expected: Expected, stack: &mut Vec<Expected>) -> io::Result<()> {
        let page = match self.tree.whole_node(expected.page) {
            Ok(page) => page,
            Err(what) => return self.gap(&expected, what),
        };
        let node = Node::open(&page).expect("checked");
        let fences = (node.lower(), node.upper()) == (&expected.lower, expected.upper.as_deref());
        if !fences || expected.level.is_some_and(|level| level != node.level()) {
            return self.gap(&expected, "it is not the node that its parent says");
        }
        if node.is_leaf() {
            return self.rows(expected.page, &node, &expected.lower, expected.upper.as_deref());
        }
        let mut upper = expected.upper;
        for index in (0..=node.len()).rev() {
            let lower = match index.checked_sub(1) {
                Some(separator) => node.key(separator).to_vec(),
                None => expected.lower.clone(),
            };
            let below = upper.replace(lower.clone());
            let (page, level) = (node.child(index), Some(node.level() - 1));
            stack.push(Expected { page, level, lower, upper: below });
        }
        Ok(())
    }

    /// The rows of a leaf from `lower` up to `upper`.
    fn rows(
        &mut self,
        id: PageId,
        leaf: &Node<'_>,
        lower: &[u8],
        upper: Option<&[u8]>,
    ) -> io::Result<()> {
        let mut large = Vec::new();
        for slot in 0..leaf.len() {
            let key = leaf.key(slot);
            if *key < *lower || upper.is_some_and(|upper| *key >= *upper) {
                continue;
            }
            let (flags, value) = leaf.record(slot);
            let before = self.not_undone.map(|not_undone| {
                let record = [&[flags], value].concat();
                not_undone.before(self.tree.id, &key, record)
            });
            let before = match before {
                Some(None) => {
                    let what = "what it was before its last transaction cannot be told";
                    let (key, what) = (key.to_vec(), what.to_string());
                    self.sink.flaw(Flaw::Value { key, leaf: id, what });
                    continue;
                }
                before => before.flatten(),
            };
            let (flags, value) = match &before {
                Some(before) => (before[0], &before[1..]),
                None => (flags, value),
            };
            if flags & !OVERFLOW != 0 {
                // A key that was removed, and stays until no lock can be on it.
                continue;
            }
            if flags & OVERFLOW == 0 {
                self.sink.row(&key, value)?;
                continue;
            }
            large.clear();
            match self.tree.read_large(id, value, &mut large) {
                Ok(()) => self.sink.row(&key, &large)?,
                Err(error) => {
                    let what = error.to_string();
                    self.sink.flaw(Flaw::Value { key: key.to_vec(), leaf: id, what });
                }
            }
        }
        Ok(())
    }

    /// What lay below a node that is not whole.
    fn gap(&mut self, gap: &Expected, what: &'static str) -> io::Result<()> {
        let strays = self.strays.take().unwrap_or_else(|| self.find_strays());
        let filled = self.fill(gap, what, &strays);
        self.strays = Some(strays);
        filled
    }

    fn fill(&mut self, gap: &Expected, what: &'static str, strays: &[Stray]) -> io::Result<()> {
        let is_before = |key: &[u8], end: Option<&[u8]>| end.is_none_or(|end| key < end);
        let mut at = gap.lower.clone();
        let mut is_whole = true;
        loop {
            let newest = strays.iter().filter(|stray| stray.covers(&at));
            let newest = newest.max_by_key(|stray| (stray.claim, stray.lsn));
            // Where the next part begins: the end of this leaf, or before it that of a better one.
            let rank = newest.map(|stray| (stray.claim, stray.lsn));
            let better = strays.iter().filter(|stray| Some((stray.claim, stray.lsn)) > rank);
            let begins = better.map(|stray| &stray.lower).filter(|lower| **lower > at).min();
            let own = newest.map_or(gap.upper.as_ref(), |stray| {
                let ends = stray.upper.as_ref().or(gap.upper.as_ref());
                if ends.is_some_and(|end| is_before(end, gap.upper.as_deref())) {
                    ends
                } else {
                    gap.upper.as_ref()
                }
            });
            let end = match (begins, own) {
                (Some(begins), own) if is_before(begins, own.map(Vec::as_slice)) => Some(begins),
                (_, own) => own,
            };
            let end = end.cloned();
            match newest {
                Some(stray) => self.stray(stray, &at, end.as_deref())?,
                None => {
                    is_whole = false;
                    let (lower, upper) = (at.clone(), end.clone());
                    self.sink.flaw(Flaw::Keys { lower, upper, page: gap.page, what });
                }
            }
            match end {
                Some(end) if is_before(&end, gap.upper.as_deref()) => at = end,
                _ => break,
            }
        }
        if is_whole {
            self.sink.flaw(Flaw::Node { page: gap.page, what });
        }
        Ok(())
    }

    fn stray(&mut self, stray: &Stray, lower: &[u8], upper: Option<&[u8]>) -> io::Result<()> {
        let Ok(page) = self.tree.whole_node(stray.page) else { return Ok(()) };
        if stray.claim == Claim::Unknown {
            let (lower, upper) = (lower.to_vec(), upper.map(<[u8]>::to_vec));
            self.sink.flaw(Flaw::Doubtful { lower, upper, page: stray.page });
        }
        let node = Node::open(&page).expect("checked");
        self.rows(stray.page, &node, lower, upper)
    }

    /// All whole leaves that may be the tree's.
    fn find_strays(&self) -> Vec<Stray> {
        let mut strays = Vec::new();
        self.tree.space.claims_of(self.tree.id, |id, claim| {
            let Ok(page) = self.tree.whole_node(id) else { return };
            let node = Node::open(&page).expect("checked");
            if node.is_leaf() {
                let (lower, upper) = (node.lower().to_vec(), node.upper().map(<[u8]>::to_vec));
                strays.push(Stray { page: id, lsn: lsn(&page).0, lower, upper, claim });
            }
        });
        strays
    }
}
