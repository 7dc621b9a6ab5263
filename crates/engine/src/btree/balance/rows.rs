//! The rows of some neighbours, and how they come into one page fewer.

use std::ops::Range;

use terrace_page::PAGE_SIZE;

use super::{FREE_PERCENT, SAVED_MIN};
use crate::btree::cells::Cells;
use crate::btree::node::{self, NODE_HEADER, Node, SLOT};

/// Up to so many rows, every place is looked at where they may be parted.
const ALL_PLACES: usize = 48;
/// Else so many on either side of where pages would be equally full: first the few nearest, then,
/// if the rows do not fit like that, more.
const PLACES_AROUND: [usize; 2] = [3, 16];

/// All rows, in key order.
pub(super) struct Rows {
    keys: Vec<u8>,
    /// Where each key ends.
    key_ends: Vec<usize>,
    /// The bytes of all rows before each one, and of all: slots, whole keys, and what is kept.
    lens: Vec<usize>,
    /// The first row of each leaf, and how many there are.
    firsts: Vec<usize>,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

/// How rows are shared out: each page has those between two of `cuts`.
#[derive(Debug)]
pub(super) struct Plan {
    cuts: Vec<usize>,
    /// The leaf that goes, never the first.
    pub(super) gone: usize,
}

impl Plan {
    /// The rows of a page.
    pub(super) fn part(&self, index: usize) -> Range<usize> {
        self.cuts[index]..self.cuts[index + 1]
    }
}

/// The best way to a cut: the bytes of the emptiest page, and the cut before.
#[derive(Clone, Copy)]
struct Best {
    cut: usize,
    emptiest: usize,
    before: usize,
}

impl Rows {
    /// The rows of neighbours, with the bytes to be kept free for each of them, or none.
    pub(super) fn new(nodes: &[Node<'_>], kept: &[Vec<usize>]) -> Rows {
        let last = &nodes[nodes.len() - 1];
        let mut rows = Rows {
            keys: Vec::new(),
            key_ends: Vec::new(),
            lens: vec![0],
            firsts: vec![0],
            lower: nodes[0].lower().to_vec(),
            upper: last.upper().map(<[u8]>::to_vec),
        };
        let mut len = 0;
        for (node, kept) in nodes.iter().zip(kept) {
            for slot in 0..node.len() {
                node.push_key(slot, &mut rows.keys);
                rows.key_ends.push(rows.keys.len());
                len += SLOT + node.cell_len(slot) + node.prefix().len();
                len += kept.get(slot).copied().unwrap_or(0);
                rows.lens.push(len);
            }
            rows.firsts.push(rows.key_ends.len());
        }
        rows
    }

    fn len(&self) -> usize {
        self.key_ends.len()
    }

    fn key(&self, row: usize) -> &[u8] {
        let from = row.checked_sub(1).map_or(0, |before| self.key_ends[before]);
        &self.keys[from..self.key_ends[row]]
    }

    /// The rows of a leaf.
    pub(super) fn of_leaf(&self, leaf: usize) -> Range<usize> {
        self.firsts[leaf]..self.firsts[leaf + 1]
    }

    /// The fence below a row, which is not the first.
    pub(super) fn fence(&self, row: usize) -> &[u8] {
        node::separator(self.key(row - 1), self.key(row))
    }

    /// The fences of a page with these rows.
    pub(super) fn fences(&self, part: &Range<usize>) -> (&[u8], Option<&[u8]>) {
        let lower = if part.start == 0 { &self.lower } else { self.fence(part.start) };
        let is_last = part.end == self.len();
        let upper = if is_last { self.upper.as_deref() } else { Some(self.fence(part.end)) };
        (lower, upper)
    }

    /// What the keys of these rows begin with.
    pub(super) fn prefix(&self, part: &Range<usize>) -> &[u8] {
        if part.len() < 2 {
            return &[];
        }
        let (first, last) = (self.key(part.start), self.key(part.end - 1));
        &first[..node::common_prefix(first, last)]
    }

    /// The first `len` bytes of the keys of these rows, which have them in common.
    pub(super) fn prefix_of_len(&self, part: &Range<usize>, len: usize) -> &[u8] {
        if part.is_empty() { &[] } else { &self.key(part.start)[..len] }
    }

    /// Whether a page with these rows may go on with a prefix of `len` bytes of its keys.
    pub(super) fn keeps_prefix(&self, part: &Range<usize>, len: usize) -> bool {
        let best = match part.len() {
            0 => 0,
            1 => self.key(part.start).len(),
            _ => self.prefix(part).len(),
        };
        let saves = best.saturating_sub(len) * part.len();
        len <= best && saves <= SAVED_MIN && self.page_len_with(part, len) <= PAGE_SIZE
    }

    /// Whether a page with the rows `own` may have the prefix of `part` before it has those.
    pub(super) fn may_pack(&self, own: &Range<usize>, part: &Range<usize>) -> bool {
        let len = self.prefix(part).len();
        own.len() > 1 && len <= self.prefix(own).len() && {
            let shared = self.key(own.start).get(..len) == Some(self.prefix(part));
            shared && self.page_len_with(own, len) <= PAGE_SIZE
        }
    }

    fn page_len_with(&self, part: &Range<usize>, prefix: usize) -> usize {
        let (lower, upper) = self.fences(part);
        let fences = lower.len() + upper.map_or(0, <[u8]>::len) + prefix;
        let cells = self.lens[part.end] - self.lens[part.start] - part.len() * prefix;
        (NODE_HEADER + fences).next_multiple_of(SLOT) + cells
    }

    /// Bytes of a page with these rows.
    fn page_len(&self, part: &Range<usize>) -> usize {
        self.page_len_with(part, self.prefix(part).len())
    }

    /// Appends rows as cells, without the first bytes of their keys.
    pub(super) fn push_cells(
        &self,
        nodes: &[Node<'_>],
        rows: Range<usize>,
        prefix: usize,
        out: &mut Vec<u8>,
    ) {
        for row in rows {
            let leaf = self.firsts.partition_point(|first| *first <= row) - 1;
            let (flags, value) = nodes[leaf].record(row - self.firsts[leaf]);
            Cells::push(out, &self.key(row)[prefix..], &[&[flags], value]);
        }
    }

    /// How the rows go into one page fewer, if they leave enough of it free.
    pub(super) fn plan(&self) -> Option<Plan> {
        let pages = self.firsts.len() - 2;
        let has_empty = (0..=pages).any(|leaf| self.of_leaf(leaf).is_empty());
        let cuts = PLACES_AROUND.into_iter().find_map(|around| self.cuts(pages, around))?;
        let len: usize = cuts.windows(2).map(|cut| self.page_len(&(cut[0]..cut[1]))).sum();
        // With one that is empty, nothing comes together that a split would part again.
        let is_free = pages == 1 && has_empty;
        let len_max = pages * PAGE_SIZE * (100 - FREE_PERCENT) / 100;
        (is_free || len <= len_max).then(|| {
            let gone = self.least_moved(&cuts);
            Plan { cuts, gone }
        })
    }

    /// Where to part the rows so that each page has room, and the emptiest is as full as can be.
    fn cuts(&self, pages: usize, around: usize) -> Option<Vec<usize>> {
        let fits = |part: &Range<usize>| Some(self.page_len(part)).filter(|len| *len <= PAGE_SIZE);
        let all = self.len();
        if pages == 1 {
            return fits(&(0..all)).map(|_| vec![0, all]);
        }
        let mut layers = vec![vec![Best { cut: 0, emptiest: PAGE_SIZE, before: 0 }]];
        for page in 1..=pages {
            let ends = if page == pages { all..all + 1 } else { self.places(page, pages, around) };
            let from = &layers[page - 1];
            let best_to = |cut: usize| {
                let ways = from.iter().enumerate().filter(|(_, way)| way.cut < cut);
                let ways = ways.filter_map(|(before, way)| {
                    let emptiest = fits(&(way.cut..cut))?.min(way.emptiest);
                    Some(Best { cut, emptiest, before })
                });
                ways.max_by_key(|best| best.emptiest)
            };
            let layer: Vec<Best> = ends.filter_map(best_to).collect();
            layers.push(layer);
        }
        let mut at = 0;
        let mut cuts = Vec::with_capacity(pages + 1);
        for layer in layers.iter().rev() {
            let best = layer.get(at)?;
            cuts.push(best.cut);
            at = best.before;
        }
        cuts.reverse();
        Some(cuts)
    }

    /// Where page `page` of `pages` may end.
    fn places(&self, page: usize, pages: usize, around: usize) -> Range<usize> {
        let all = self.len();
        if all <= ALL_PLACES {
            return 1..all.max(1);
        }
        let equal = self.lens[all] * page / pages;
        let middle = self.lens.partition_point(|len| *len < equal);
        middle.saturating_sub(around).max(1)..(middle + around).min(all)
    }

    /// The leaf without which the others keep most of their rows.
    fn least_moved(&self, cuts: &[usize]) -> usize {
        let kept = |gone: usize| -> usize {
            let stay = (0..cuts.len()).filter(|leaf| *leaf != gone);
            let parts = stay.zip(cuts.windows(2)).map(|(leaf, cut)| {
                let own = self.of_leaf(leaf);
                let (start, end) = (own.start.max(cut[0]), own.end.min(cut[1]));
                self.lens[end.max(start)] - self.lens[start]
            });
            parts.sum()
        };
        (1..cuts.len()).max_by_key(|gone| kept(*gone)).expect("two leaves or more")
    }
}
