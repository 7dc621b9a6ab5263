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
//! - V2: every part of the key space is either in leaves that were read or reported as lost.
//! - V3: a leaf that no parent leads to counts only within a gap, and only while a map that is
//!   whole has its page in use, for this tree: so what was freed does not come back. Where a map is
//!   damaged too, its leaves count, and are reported as doubtful.
//! - Nothing is latched while a row is handed out, and no other task may change the tree.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::io;
use std::ops::Range;

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

/// Receives what is found.
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
    /// Which of two that overlap counts.
    fn rank(&self) -> (Claim, u64, PageId) {
        (self.claim, self.lsn, self.page)
    }
}

/// A part of a gap, and the leaf that counts there, if there is one.
struct Part<'s> {
    stray: Option<&'s Stray>,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

/// The parts of `gap`, in order: in each the newest leaf that covers it. `strays` are in the order
/// of their lower fences. Each is looked at once, and then in the order of their age: a table may
/// have millions of them.
fn parts<'s>(gap: &Expected, strays: &'s [Stray]) -> Vec<Part<'s>> {
    let is_before = |key: &[u8], end: Option<&[u8]>| end.is_none_or(|end| key < end);
    let mut to_come = strays.iter().filter(|stray| {
        is_before(&stray.lower, gap.upper.as_deref())
            && is_before(&gap.lower, stray.upper.as_deref())
    });
    let mut next = to_come.next();
    // Those that began, the best one first.
    let mut begun: BinaryHeap<Ranked<'s>> = BinaryHeap::new();
    let (mut parts, mut at) = (Vec::new(), gap.lower.clone());
    loop {
        while let Some(stray) = next.filter(|stray| stray.lower <= at) {
            begun.push(Ranked(stray));
            next = to_come.next();
        }
        while begun.peek().is_some_and(|Ranked(stray)| !is_before(&at, stray.upper.as_deref())) {
            begun.pop();
        }
        let newest = begun.peek().map(|Ranked(stray)| *stray);
        let own = newest.and_then(|stray| stray.upper.as_ref()).or(gap.upper.as_ref());
        let own = own.filter(|own| is_before(own, gap.upper.as_deref())).or(gap.upper.as_ref());
        // It ends where a better one begins. Those that are not better have begun by its end.
        let mut end = own;
        while let Some(stray) = next.filter(|stray| is_before(&stray.lower, own.map(|end| &**end)))
        {
            if newest.is_none_or(|newest| newest.rank() < stray.rank()) {
                end = Some(&stray.lower);
                break;
            }
            begun.push(Ranked(stray));
            next = to_come.next();
        }
        let (lower, upper) = (std::mem::take(&mut at), end.cloned());
        parts.push(Part { stray: newest, lower, upper });
        match end {
            Some(end) if is_before(end, gap.upper.as_deref()) => at.clone_from(end),
            _ => return parts,
        }
    }
}

/// A stray by its rank.
struct Ranked<'s>(&'s Stray);

impl PartialEq for Ranked<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ranked<'_> {}

impl PartialOrd for Ranked<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.rank().cmp(&other.0.rank())
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
        let mut is_whole = true;
        for Part { stray, lower, upper } in parts(gap, strays) {
            let is_saved = match stray {
                Some(stray) => self.stray(stray, &lower, upper.as_deref())?,
                None => false,
            };
            if !is_saved {
                is_whole = false;
                self.sink.flaw(Flaw::Keys { lower, upper, page: gap.page, what });
            }
        }
        if is_whole {
            self.sink.flaw(Flaw::Node { page: gap.page, what });
        }
        Ok(())
    }

    /// The rows of a leaf that was found by itself. Whether it could be read once more.
    fn stray(&mut self, stray: &Stray, lower: &[u8], upper: Option<&[u8]>) -> io::Result<bool> {
        let Ok(page) = self.tree.whole_node(stray.page) else { return Ok(false) };
        if stray.claim == Claim::Unknown {
            let (lower, upper) = (lower.to_vec(), upper.map(<[u8]>::to_vec));
            self.sink.flaw(Flaw::Doubtful { lower, upper, page: stray.page });
        }
        let node = Node::open(&page).expect("checked");
        self.rows(stray.page, &node, lower, upper).map(|()| true)
    }

    /// All whole leaves that may be the tree's.
    fn find_strays(&self) -> Vec<Stray> {
        let mut strays: Vec<Stray> = Vec::new();
        let mut listed: Vec<Range<u64>> = Vec::new();
        self.tree.space.claims_of(self.tree.id, |id, claim| {
            let Ok(page) = self.tree.whole_node(id) else {
                return listed.extend(self.tree.listed_in(id));
            };
            let node = Node::open(&page).expect("checked");
            if node.is_leaf() {
                let (lower, upper) = (node.lower().to_vec(), node.upper().map(<[u8]>::to_vec));
                strays.push(Stray { page: id, lsn: lsn(&page).0, lower, upper, claim });
            }
        });
        // A large value may have these pages, and a power cut may have come before they were
        // written: then home still has what they were before.
        listed.sort_by_key(|pages| pages.start);
        let mut end = 0;
        for pages in &mut listed {
            end = pages.end.max(end);
            pages.end = end;
        }
        let is_listed = |page: PageId| {
            let before = listed.partition_point(|pages| pages.start <= page.0);
            before > 0 && listed[before - 1].end > page.0
        };
        strays.iter_mut().filter(|stray| is_listed(stray.page)).for_each(|stray| {
            stray.claim = Claim::Unknown;
        });
        strays.sort_by(|a, b| a.lower.cmp(&b.lower));
        strays
    }
}

#[cfg(test)]
mod tests {
    use terrace_rt::{Nanos, Prng, now};

    use super::*;

    const KEYS: u64 = 60;

    fn key(number: u64) -> Vec<u8> {
        number.to_be_bytes().to_vec()
    }

    fn gap(lower: u64, upper: Option<u64>) -> Expected {
        Expected { page: PageId(1), level: None, lower: key(lower), upper: upper.map(key) }
    }

    fn stray(page: u64, lower: u64, upper: Option<u64>, prng: &mut Prng) -> Stray {
        let claim = if prng.chance(4) { Claim::Unknown } else { Claim::Used };
        let (lower, upper) = (key(lower), upper.map(key));
        Stray { page: PageId(page), lsn: prng.below(8), lower, upper, claim }
    }

    #[test]
    fn in_each_part_of_a_gap_the_newest_leaf_counts() {
        for seed in 0..2_000 {
            let mut prng = Prng::from_seed(seed);
            let mut range = |most: u64| {
                let lower = prng.below(most);
                let upper = (!prng.chance(10)).then(|| lower + 1 + prng.below(most - lower));
                (lower, upper)
            };
            let (from, to) = range(KEYS);
            let ranges: Vec<_> = (0..seed % 30).map(|_| range(KEYS)).collect();
            let each = |(page, (lower, upper))| stray(page, lower, upper, &mut prng);
            let mut strays: Vec<Stray> = (2..).zip(ranges).map(each).collect();
            strays.sort_by(|a, b| a.lower.cmp(&b.lower));
            let found = parts(&gap(from, to), &strays);
            let mut at = Some(key(from));
            for part in &found {
                assert_eq!(Some(&part.lower), at.as_ref(), "seed {seed}: no key is left out");
                at = part.upper.clone();
            }
            assert_eq!(at, to.map(key), "seed {seed}");
            for number in from..to.unwrap_or(KEYS + 5) {
                let key = key(number);
                let covers = |lower: &Vec<u8>, upper: &Option<Vec<u8>>| {
                    *lower <= key && upper.as_ref().is_none_or(|upper| key < *upper)
                };
                let newest = strays.iter().filter(|stray| covers(&stray.lower, &stray.upper));
                let newest = newest.max_by_key(|stray| stray.rank()).map(|stray| stray.page);
                let part = found.iter().find(|part| covers(&part.lower, &part.upper));
                let part = part.expect("it is in a part").stray.map(|stray| stray.page);
                assert_eq!(part, newest, "seed {seed}, key {number}");
            }
        }
    }

    /// The bug: for each leaf of a gap all leaves of the table were looked at. Below a damaged root
    /// of a table of some GiB that took hours.
    #[test]
    fn the_leaves_of_a_large_table_are_put_in_their_places_in_no_time() {
        const LEAVES: u64 = 60_000;
        let mut prng = Prng::from_seed(1);
        let leaf = |at| stray(at + 2, at, Some(at + 1), &mut prng);
        let strays: Vec<Stray> = (0..LEAVES).map(leaf).collect();
        let began = now();
        assert_eq!(parts(&gap(0, None), &strays).len() as u64, LEAVES + 1);
        assert!(now().saturating_sub(began) < Nanos::from_secs(20));
    }
}
