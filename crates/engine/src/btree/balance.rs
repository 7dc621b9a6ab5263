//! Balance: leaves that deletions have thinned share their rows with one page fewer.
//!
//! If the rows of up to five neighbours of a parent fit into one page fewer, and leave 15% of the
//! pages free, they are put there: so neither a split nor another merge follows at once. That is
//! looked for when a purge, or a shorter value, has left room in a leaf.
//!
//! - B1: with all neighbours looked at, no five of a parent are left whose rows fit like that. Let
//!   the same rows, loaded anew in order, take m leaves, and take the leaves here in groups of
//!   five. The rows of a group either fit into no four pages, so at least four of the m leaves end
//!   within it; or they have more bytes than 3.4 pages. A group of the second kind ends at least
//!   three, j of them in a row more than 3.4 j - 1. The worst there is, two of the second kind for
//!   each of the first, has fifteen leaves for ten: 1.5 times as many, whatever the sizes of the
//!   rows. Rows of one size have 5 / 3.4 = 1.47 times as many at most.
//! - B2: parents with few children have leaves that are in no group. Separators are as short as can
//!   be, so this matters only where keys of hundreds of bytes differ in their last ones.
//! - B3: neighbours that are not in memory are read only if the leaf is less than two thirds full,
//!   or has just got one eighth of a page emptier: not for every purge. B1 holds for trees in
//!   memory; of others a leaf that no purge has looked at since may be emptier.
//! - B4: one nested action; all that can fail comes before. Before it, pages whose free bytes are
//!   scattered are packed, which changes no row and is never undone: so what the action must log
//!   for its own undo is small. What it logs, and what an opening logs to undo it, has room in the
//!   log before it begins (`BALANCE_LOGS`).
//! - B5: no lock is asked for. Rows, ghosts among them, move under the latches of all the leaves
//!   and of their parent, as when a node is split.

mod rows;

use terrace_page::{PAGE_SIZE, PageBuf, PageId};
use terrace_pool::{PageMut, PageRef};

use self::rows::{Plan, Rows};
use super::Tree;
use super::cells::Cells;
use super::descend::Seek;
use super::merge::{Merged, is_underfull};
use super::node::{self, Node};
use super::splice::{Splice, splice};
use crate::Error;
use crate::change::{Change, FREE};
use crate::log::encode_difference;
use crate::writer::{Undo, Writer};

/// Neighbours that share their rows, at most.
const SHARING_MAX: usize = 5;
/// Of the pages that they have then, so much stays free, in percent.
pub(super) const FREE_PERCENT: usize = 15;
/// One balance moves no more bytes of rows.
const MOVED_MAX: usize = 2 * PAGE_SIZE;
/// And logs no more, with the bytes that an opening logs if it has to undo it.
pub(crate) const BALANCE_LOGS: usize = 96 << 10;
/// About what a record has beside its change.
const RECORD_BYTES: usize = 128;
/// A prefix that would save no more than this stays as it is, and cells stay in place.
const SAVED_MIN: usize = 256;

/// Whether to look at neighbours that are not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    InMemory,
    Everywhere,
}

/// Whether a leaf is less than two thirds full.
pub(super) fn is_light(node: &Node<'_>) -> bool {
    node.len() == 0 || node.used() < 2 * node.free()
}

/// What to look at after `removed` bytes have gone from a leaf.
pub(super) fn look_after(node: &Node<'_>, removed: usize) -> Look {
    const STEP: usize = PAGE_SIZE / 8;
    let has_crossed = (node.free() - removed.min(node.free())) / STEP < node.free() / STEP;
    if is_light(node) || has_crossed { Look::Everywhere } else { Look::InMemory }
}

/// Neighbours that should share: how many are before the leaf of the key, and how many in all.
#[derive(Clone, Copy, Debug)]
struct Window {
    before: usize,
    count: usize,
}

/// A splice with what it borrows.
struct Moving {
    at: usize,
    cut: usize,
    right: PageId,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    prefix: Vec<u8>,
    cells: Vec<u8>,
}

impl Moving {
    /// About the bytes of its record.
    fn len(&self) -> usize {
        let upper = self.upper.as_ref().map_or(0, Vec::len);
        RECORD_BYTES + self.lower.len() + upper + self.prefix.len() + self.cells.len()
    }

    fn splice(&self) -> Splice<'_> {
        Splice {
            at: self.at as u16,
            cut: self.cut as u16,
            right: self.right,
            lower: &self.lower,
            upper: self.upper.as_deref(),
            prefix: &self.prefix,
            cells: Cells(&self.cells),
        }
    }
}

/// What happens to a page: packed first, if that is needed, then spliced.
#[derive(Default)]
struct Steps {
    packed: Option<Moving>,
    spliced: Vec<Moving>,
}

impl Steps {
    /// The bytes that all of it logs, and logs again if it is undone; `None` if it does not fit.
    fn logged(&self, page: &PageBuf) -> Option<usize> {
        let mut copy = *page;
        let mut logged = 0;
        let mut undo = Vec::new();
        if let Some(packed) = &self.packed {
            splice(&mut copy, &packed.splice()).ok()?;
            logged += packed.len();
        }
        for spliced in &self.spliced {
            let before = copy;
            splice(&mut copy, &spliced.splice()).ok()?;
            undo.clear();
            encode_difference(&before, &copy, &mut undo);
            logged += spliced.len() + 2 * undo.len();
        }
        Some(logged)
    }

    /// Packs the node first, with `prefix`, if what comes needs more room than lies in one piece.
    fn pack_for(&mut self, node: &Node<'_>, prefix: &[u8]) {
        let coming: usize = self.spliced.iter().map(|step| step.cells.len()).sum();
        let is_scattered = coming > 0 && node.gap() < 2 * coming;
        if node.len() == 0 || (prefix == node.prefix() && !is_scattered) {
            return;
        }
        let packed = Moving {
            at: 0,
            cut: 0,
            right: node.right(),
            lower: node.lower().to_vec(),
            upper: node.upper().map(<[u8]>::to_vec),
            prefix: prefix.to_vec(),
            cells: Vec::new(),
        };
        let mut copy = *node.page();
        if splice(&mut copy, &packed.splice()).is_ok() {
            self.packed = Some(packed);
        }
    }
}

impl Tree {
    /// Has the leaf of `key` and its neighbours share their rows with one page fewer, if they fit.
    ///
    /// # Errors
    ///
    /// `Corrupt`, those of the pool and of `Writer::change`.
    pub(super) fn balance<W: Writer>(
        &self,
        w: &mut W,
        key: &[u8],
        look: Look,
    ) -> Result<Merged, Error> {
        let shared = match self.window(w, key, look) {
            Ok(Some(window)) => self.share(w, key, window),
            Ok(None) => Ok(Merged::No),
            Err(error) => Err(error),
        };
        match shared {
            // There are few frames: it is tried again when more rows have gone.
            Err(Error::AllPinned) => Ok(Merged::No),
            shared => shared,
        }
    }

    /// The smallest window around the leaf of `key` whose rows fit into one page fewer. Reads what
    /// is not in memory while no latch is held.
    fn window<W: Writer>(&self, w: &W, key: &[u8], look: Look) -> Result<Option<Window>, Error> {
        if look == Look::Everywhere {
            let Some(parent) = self.node_shared(Seek::Key(key), 1)? else { return Ok(None) };
            let node = self.node(parent.id(), &parent)?;
            let near: Vec<_> = near(&node, key).map(|child| node.child(child)).collect();
            drop(parent);
            self.pool.prefetch(&near);
        }
        let Some(parent) = self.node_shared(Seek::Key(key), 1)? else { return Ok(None) };
        let above = self.node(parent.id(), &parent)?;
        let own = above.child_of(key);
        let wanted = if look == Look::Everywhere { near(&above, key) } else { own..own + 1 };
        let is_known =
            |child: &usize| wanted.contains(child) || self.pool.is_in_memory(above.child(*child));
        let first = own + 1 - (0..=own).rev().take(SHARING_MAX).take_while(is_known).count();
        let end = own + (own..=above.len()).take(SHARING_MAX).take_while(is_known).count();
        let mut pages: Vec<PageRef<'_>> = Vec::with_capacity(end - first);
        for child in first..end {
            pages.push(self.pool.read(above.child(child))?);
        }
        let pages: Vec<(PageId, &PageBuf)> =
            pages.iter().map(|page| (page.id(), &**page)).collect();
        let nodes = self.neighbours(&pages)?;
        let own = own - first;
        for count in 2..=SHARING_MAX.min(nodes.len()) {
            for start in (own + 1).saturating_sub(count)..=own.min(nodes.len() - count) {
                let some = &nodes[start..start + count];
                if may_fit(some) && self.plan(w, some).is_some() {
                    return Ok(Some(Window { before: own - start, count }));
                }
            }
        }
        Ok(None)
    }

    /// The leaves in these pages, which should be neighbours.
    fn neighbours<'p>(&self, pages: &[(PageId, &'p PageBuf)]) -> Result<Vec<Node<'p>>, Error> {
        let mut nodes: Vec<Node<'_>> = Vec::with_capacity(pages.len());
        for (index, (id, page)) in pages.iter().enumerate() {
            let node = self.node(*id, page)?;
            let meets = nodes
                .last()
                .is_none_or(|left| left.upper() == Some(node.lower()) && left.right() == *id);
            if !node.is_leaf() || !meets {
                return Err(Tree::corrupt(pages[index.saturating_sub(1)].0, DO_NOT_MEET));
            }
            nodes.push(node);
        }
        Ok(nodes)
    }

    fn plan<W: Writer>(&self, w: &W, nodes: &[Node<'_>]) -> Option<(Rows, Plan)> {
        let kept: Vec<_> = nodes.iter().map(|node| self.all_kept(w, node)).collect();
        let rows = Rows::new(nodes, &kept);
        let plan = rows.plan()?;
        Some((rows, plan))
    }

    fn share<W: Writer>(&self, w: &mut W, key: &[u8], window: Window) -> Result<Merged, Error> {
        let Some(mut parent) = self.node_exclusive(Seek::Key(key), 1)? else {
            return Ok(Merged::No);
        };
        let above = self.node(parent.id(), &parent)?;
        let own = above.child_of(key);
        let (Some(first), count) = (own.checked_sub(window.before), window.count) else {
            return Ok(Merged::No);
        };
        if first + count > above.len() + 1 {
            return Ok(Merged::No);
        }
        let mut pages: Vec<PageMut<'_>> = Vec::with_capacity(count);
        for child in first..first + count {
            pages.push(self.pool.write(above.child(child))?);
        }
        let Some((steps, steps_above, gone)) = self.steps(w, &above, first, &pages)? else {
            return Ok(Merged::No);
        };
        let mut freeing = self.space.freeing(self.id, &[pages[gone].id()])?;
        let change = |moving: &Moving, w: &mut W, page: &mut PageMut<'_>| {
            w.change(page, &Change::Splice(moving.splice()), Undo::None)
        };
        for (page, steps) in pages.iter_mut().zip(&steps) {
            steps.packed.iter().try_for_each(|packed| change(packed, w, page))?;
        }
        steps_above.packed.iter().try_for_each(|packed| change(packed, w, &mut parent))?;
        let nested = w.begin_nested();
        for (page, steps) in pages.iter_mut().zip(&steps) {
            steps.spliced.iter().try_for_each(|spliced| change(spliced, w, page))?;
        }
        w.change(&mut pages[gone], &FREE, Undo::None)?;
        steps_above.spliced.iter().try_for_each(|spliced| change(spliced, w, &mut parent))?;
        freeing.free(w)?;
        w.end_nested(nested)?;
        drop(pages);
        freeing.done();
        let node = self.node(parent.id(), &parent)?;
        if node.len() == 0 {
            return self.collapse(w, parent);
        }
        let is_thin = parent.id() != self.root() && is_underfull(&node);
        Ok(if is_thin { Merged::AndThin } else { Merged::Yes })
    }

    /// What is to be done with each of the leaves and with their parent, of whose children they are
    /// those from `first` on; and which leaf goes.
    fn steps<W: Writer>(
        &self,
        w: &W,
        above: &Node<'_>,
        first: usize,
        pages: &[PageMut<'_>],
    ) -> Result<Option<(Vec<Steps>, Steps, usize)>, Error> {
        let pages: Vec<(PageId, &PageBuf)> =
            pages.iter().map(|page| (page.id(), &**page)).collect();
        let nodes = self.neighbours(&pages)?;
        let Some((rows, plan)) = self.plan(w, &nodes) else { return Ok(None) };
        let stay: Vec<usize> = (0..nodes.len()).filter(|leaf| *leaf != plan.gone).collect();
        let mut steps: Vec<Steps> = nodes.iter().map(|_| Steps::default()).collect();
        for (part, &leaf) in stay.iter().enumerate() {
            let right = match stay.get(part + 1) {
                Some(next) => pages[*next].0,
                None => nodes[nodes.len() - 1].right(),
            };
            steps[leaf] = leaf_steps(&rows, &nodes, leaf, plan.part(part), right);
        }
        let moved: usize =
            steps.iter().flat_map(|steps| &steps.spliced).map(|m| m.cells.len()).sum();
        let children: Vec<PageId> = stay.iter().map(|leaf| pages[*leaf].0).collect();
        let steps_above = parent_steps(above, first, nodes.len(), &children, &rows, &plan);
        // The page that goes is logged as a whole.
        let mut logged = steps_above.logged(above.page()).map(|above| above + 2 * PAGE_SIZE);
        for (steps, (_, page)) in steps.iter().zip(&pages) {
            logged = logged.and_then(|logged| Some(logged + steps.logged(page)?));
        }
        let fits = moved <= MOVED_MAX && logged.is_some_and(|logged| logged <= BALANCE_LOGS);
        Ok(fits.then_some((steps, steps_above, plan.gone)))
    }
}

const DO_NOT_MEET: &str = "two children do not meet";

/// The children of a parent that are read for the leaf of `key`.
fn near(parent: &Node<'_>, key: &[u8]) -> std::ops::Range<usize> {
    let (own, count) = (parent.child_of(key), parent.len() + 1);
    let first = own.saturating_sub(SHARING_MAX / 2).min(count.saturating_sub(SHARING_MAX));
    first..(first + SHARING_MAX).min(count)
}

/// Whether rows may fit into one page fewer, by their bytes.
fn may_fit(nodes: &[Node<'_>]) -> bool {
    let is_empty = nodes.len() == 2 && nodes.iter().any(|node| node.len() == 0);
    let room = nodes.iter().map(|node| node.used() + node.free()).max().unwrap_or(0);
    let used: usize = nodes.iter().map(Node::used).sum();
    is_empty || used <= room * (nodes.len() - 1) * (100 - FREE_PERCENT) / 100
}

/// How a leaf comes to have the rows of `part`: what goes at either end goes before what comes.
fn leaf_steps(
    rows: &Rows,
    nodes: &[Node<'_>],
    leaf: usize,
    part: std::ops::Range<usize>,
    right: PageId,
) -> Steps {
    let (node, own) = (&nodes[leaf], rows.of_leaf(leaf));
    // The rows that stay, or none, where the others come.
    let stay = if part.start.max(own.start) < part.end.min(own.end) {
        part.start.max(own.start)..part.end.min(own.end)
    } else {
        let at = if own.start >= part.end { own.start } else { own.end };
        at..at
    };
    let cuts = (stay.start - own.start, own.end - stay.end);
    let comes = if stay.is_empty() {
        (0..0, part.clone())
    } else {
        (part.start..stay.start, stay.end..part.end)
    };
    let mut current = node.prefix().to_vec();
    let best = rows.prefix(&part);
    if rows.may_pack(&own, &part) && !rows.keeps_prefix(&part, current.len()) {
        current = best.to_vec();
    }
    let (mut steps, mut has) = (Steps::default(), own.clone());
    let packing = current.clone();
    let mut sides = [(true, cuts.0, comes.0), (false, cuts.1, comes.1)];
    // What cuts comes first.
    sides.sort_by_key(|(_, cut, _)| *cut == 0);
    for (index, (is_head, cut, coming)) in sides.into_iter().enumerate() {
        let is_last = index == 1;
        if cut == 0 && coming.is_empty() && !(is_last && steps.spliced.is_empty()) {
            continue;
        }
        let at = if is_head { 0 } else { has.len() - cut };
        has = match is_head {
            _ if stay.is_empty() && !coming.is_empty() => coming.clone(),
            true => has.start + cut - coming.len()..has.end,
            false => has.start..has.end - cut + coming.len(),
        };
        let keeps = if has == part {
            rows.keeps_prefix(&has, current.len())
        } else {
            current.len() <= rows.prefix(&has).len()
        };
        let prefix =
            if keeps { rows.prefix_of_len(&has, current.len()) } else { rows.prefix(&has) };
        current = prefix.to_vec();
        let mut cells = Vec::new();
        rows.push_cells(nodes, coming, prefix.len(), &mut cells);
        let (lower, upper) = rows.fences(&part);
        steps.spliced.push(Moving {
            at,
            cut,
            right,
            lower: lower.to_vec(),
            upper: upper.map(<[u8]>::to_vec),
            prefix: current.clone(),
            cells,
        });
    }
    steps.pack_for(node, &packing);
    steps
}

/// How the parent comes to have the new separators.
fn parent_steps(
    above: &Node<'_>,
    first: usize,
    count: usize,
    children: &[PageId],
    rows: &Rows,
    plan: &Plan,
) -> Steps {
    let cut = count - 1;
    let fences: Vec<&[u8]> =
        (1..children.len()).map(|part| rows.fence(plan.part(part).start)).collect();
    let mut keys = Vec::new();
    let ends = [(first > 0).then_some(0), (first + cut < above.len()).then(|| above.len() - 1)];
    let [least, greatest] = ends.map(|slot| slot.map(|slot| above.key(slot).to_vec()));
    keys.extend(least.as_deref());
    keys.extend(&fences);
    keys.extend(greatest.as_deref());
    let shared = match (keys.first(), keys.last()) {
        (Some(first), Some(last)) => node::common_prefix(first, last),
        _ => 0,
    };
    let prefix: Vec<u8> = keys
        .first()
        .map_or(&[][..], |key| {
            &key[..if above.prefix().len() <= shared { above.prefix().len() } else { shared }]
        })
        .to_vec();
    let mut cells = Vec::new();
    for (fence, child) in fences.iter().zip(&children[1..]) {
        Cells::push(&mut cells, &fence[prefix.len()..], &[&child.0.to_le_bytes()]);
    }
    let mut steps = Steps::default();
    let packing = above.prefix()[..prefix.len().min(above.prefix().len())].to_vec();
    steps.spliced.push(Moving {
        at: first,
        cut,
        right: above.right(),
        lower: above.lower().to_vec(),
        upper: above.upper().map(<[u8]>::to_vec),
        prefix,
        cells,
    });
    steps.pack_for(above, &packing);
    steps
}
