//! Which pages of blocks no record refers to, as memory knows them: those that were taken from the
//! map ahead, and those that were given up. See `btree::blocks`, which says what is durable.
//!
//! ```text
//!            add                take              attach
//!   map -----------> free ---------------> out ----------> (a record refers to it)
//!    ^                ^  ^                  |                     |          ^
//!    |                |  +------------------+ put_back            | give     | regain
//!    |                |                                           v          |
//!    |                +------------------------------------------ given -----+
//!    |                      refill, once nothing wants it back      |
//!    +--------------------------------------------------------------+
//!                 release ... released
//! ```
//!
//! - P1: a page that a transaction gave up is used again, or freed, once that number is below
//!   `Writer::oldest_active`: until then its undo, or a snapshot, may want it back.
//! - P2: what came through here since the opening is `touched`: a sweep leaves it alone.
//! - P3: a page leaves `given` only if its map has it as a block of the tree, in use. The record
//!   that gave it up may have been of an older day, which a device brought back, and the page
//!   another table's by now: it is left alone then, and forgotten.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use terrace_page::{PageId, TxnId};
use terrace_pool::{Mutation, Mutations};

use super::{EXTENT_PAGES, Extent, Space, entry, extent_of, group_of, owner};
use crate::{Error, TreeId};

/// The bit of an owner's number that tells extents of blocks from those of the tree's other pages.
const BLOCKS: u32 = 1 << 31;
/// Trees have numbers below this: neither they nor the owners of their blocks are the maps, or
/// nobody.
pub(crate) const TREES_MAX: u32 = BLOCKS - 2;
/// Pages that come back from those given up at a time.
const REFILL: usize = 32;

/// The owner of a tree's blocks, in the maps.
pub(crate) fn blocks_of(tree: TreeId) -> TreeId {
    TreeId(tree.0 | BLOCKS)
}

/// The tree that an owner is, or has the blocks of.
pub(super) fn tree_of(owner: TreeId) -> TreeId {
    TreeId(owner.0 & !BLOCKS)
}

/// Pages, by extent.
#[derive(Debug, Default)]
pub(crate) struct PageSet(BTreeMap<u64, u32>);

impl PageSet {
    pub(crate) fn insert(&mut self, page: PageId) {
        *self.0.entry(extent_of(page)).or_default() |= 1 << (page.0 % EXTENT_PAGES);
    }

    /// The used pages of an extent that are not in the set.
    fn rest_of(&self, extent: &Extent) -> u32 {
        extent.used & !self.0.get(&extent_of(extent.first)).copied().unwrap_or(0)
    }
}

/// How far the search has come for what an earlier opening left over.
#[derive(Debug)]
enum Sweep {
    /// There is nothing, or all is freed.
    Done,
    /// There is more to do.
    At(SweepAt),
    /// A leaf cannot be read: what is left over stays.
    GivenUp,
}

/// Where a sweep goes on.
#[derive(Clone, Debug)]
pub(crate) enum SweepAt {
    /// From this key on records are still to be looked at.
    Key(Vec<u8>),
    /// All were. From that of this page on extents may have pages that none refers to.
    Extent(PageId),
}

/// The blocks of a tree.
struct Blocks {
    free: VecDeque<PageId>,
    out: BTreeSet<PageId>,
    given: BTreeMap<PageId, TxnId>,
    order: BTreeSet<(TxnId, PageId)>,
    sweep: Sweep,
    /// P2, and what records refer to, while there is a sweep.
    touched: PageSet,
    /// How often a transaction has relied on being known: see `forget_blocks`.
    uses: u64,
}

impl Blocks {
    /// P2.
    fn touch(&mut self, page: PageId, mutations: Mutations) {
        if matches!(self.sweep, Sweep::At(_)) && !mutations.has(Mutation::SweepTouched) {
            self.touched.insert(page);
        }
    }

    /// Whether the page was still there, as given up by that transaction, and is no more.
    fn take_given(&mut self, (txn, page): (TxnId, PageId)) -> bool {
        let was_there = self.order.remove(&(txn, page));
        if was_there {
            self.given.remove(&page);
        }
        was_there
    }

    /// Whether a page is there to be used. Given up all the same, it was by a record of an older
    /// day.
    fn is_spare(&self, page: PageId) -> bool {
        self.out.contains(&page) || self.free.contains(&page)
    }
}

/// A page that was given up, by which transaction, and whether the map has it as the tree's.
struct GivenUp {
    given: (TxnId, PageId),
    is_owned: bool,
}

/// What is known of a tree's blocks.
#[derive(Default)]
pub(super) struct Known(BTreeMap<TreeId, Blocks>);

/// What a check wants to know.
#[derive(Debug, Default)]
pub(crate) struct Unreferenced {
    /// Pages in use that no record refers to.
    pub(crate) pages: BTreeSet<PageId>,
    /// There may be others.
    pub(crate) may_be_more: bool,
}

impl Space {
    fn with_blocks<T>(&self, tree: TreeId, work: impl FnOnce(&mut Blocks) -> T) -> Option<T> {
        self.blocks.lock().0.get_mut(&tree).map(work)
    }

    /// Whether anything is known. A transaction that is registered may rely on it until its end.
    pub(crate) fn knows_blocks(&self, tree: TreeId) -> bool {
        self.with_blocks(tree, |blocks| blocks.uses += 1).is_some()
    }

    /// How often a transaction has relied on it that the tree is known, if it is.
    pub(crate) fn uses_of_blocks(&self, tree: TreeId) -> Option<u64> {
        self.with_blocks(tree, |blocks| blocks.uses)
    }

    /// The trees of which anything is known.
    pub(crate) fn known_blocks(&self) -> Vec<TreeId> {
        self.blocks.lock().0.keys().copied().collect()
    }

    /// The trees that keep pages for their next blocks which may be freed now.
    pub(crate) fn trees_with_spare(&self, oldest: TxnId) -> Vec<TreeId> {
        let known = self.blocks.lock();
        let may_go = |given: &(TxnId, PageId)| given.0 < oldest;
        let keeps =
            |blocks: &Blocks| !blocks.free.is_empty() || blocks.order.first().is_some_and(may_go);
        let trees = known.0.iter().filter(|(_, blocks)| keeps(blocks));
        trees.map(|(tree, _)| *tree).collect()
    }

    /// From here on what becomes of the tree's blocks is noted. An earlier opening may have left
    /// some over.
    pub(crate) fn know_blocks(&self, tree: TreeId, is_sweep_due: bool) {
        let sweep = if is_sweep_due { Sweep::At(SweepAt::Key(Vec::new())) } else { Sweep::Done };
        self.blocks.lock().0.entry(tree).or_insert_with(|| Blocks {
            free: VecDeque::new(),
            out: BTreeSet::new(),
            given: BTreeMap::new(),
            order: BTreeSet::new(),
            sweep,
            touched: PageSet::default(),
            uses: 0,
        });
    }

    /// Forgets a tree of which no page is left over, unless a transaction has relied on it since
    /// there were `uses`: after that number was read, none was registered. Whether it was so.
    pub(crate) fn forget_blocks(&self, tree: TreeId, uses: u64) -> bool {
        let mut known = self.blocks.lock();
        let is_tidy = known.0.get(&tree).is_none_or(|blocks| {
            let is_empty =
                blocks.free.is_empty() && blocks.out.is_empty() && blocks.given.is_empty();
            matches!(blocks.sweep, Sweep::Done) && is_empty && blocks.uses == uses
        });
        if is_tidy {
            known.0.remove(&tree);
        }
        is_tidy
    }

    /// The tree is gone.
    pub(super) fn drop_blocks(&self, tree: TreeId) {
        self.blocks.lock().0.remove(&tree);
    }

    /// A page to use, if one is free.
    pub(crate) fn take_block(&self, tree: TreeId) -> Option<PageId> {
        self.with_blocks(tree, |blocks| {
            let page = blocks.free.pop_front()?;
            blocks.out.insert(page);
            Some(page)
        })
        .flatten()
    }

    /// Frees pages that were given up, for which the map need not change. Whether there were any.
    ///
    /// # Errors
    ///
    /// Those of the pool.
    pub(crate) fn refill_blocks(&self, tree: TreeId, oldest: TxnId) -> Result<bool, Error> {
        if self.vacated(blocks_of(tree)).is_some() {
            // They may be of extents that blocks leave.
            return Ok(false);
        }
        let given = self.given_up(tree, oldest, (0, REFILL))?;
        self.with_blocks(tree, |blocks| {
            for &GivenUp { given, is_owned } in &given {
                let is_usable = is_owned && !blocks.is_spare(given.1);
                if blocks.take_given(given) && is_usable {
                    blocks.free.push_back(given.1);
                }
            }
        });
        Ok(!given.is_empty())
    }

    /// P3: pages that were given up and that nothing wants back, all but `keep` and at most `most`,
    /// and whether the map has them as the tree's.
    fn given_up(
        &self,
        tree: TreeId,
        oldest: TxnId,
        (keep, most): (usize, usize),
    ) -> Result<Vec<GivenUp>, Error> {
        let given = self.with_blocks(tree, |blocks| {
            let count = blocks.given.len().saturating_sub(keep).min(most);
            let ended = blocks.order.iter().take_while(|(txn, _)| *txn < oldest);
            ended.take(count).copied().collect::<Vec<_>>()
        });
        let mut given = given.unwrap_or_default();
        given.sort_by_key(|(_, page)| *page);
        let is_trusted = self.pool.mutations().has(Mutation::TrustGiven);
        let mut reviewed = Vec::with_capacity(given.len());
        for given in given.chunk_by(|(_, a), (_, b)| group_of(*a) == group_of(*b)) {
            let pages: Vec<_> = given.iter().map(|(_, page)| *page).collect();
            let are_owned = self.are_used(blocks_of(tree), &pages)?;
            let are_owned = are_owned.into_iter().map(|is_owned| is_owned || is_trusted);
            let with_map = |(&given, is_owned)| GivenUp { given, is_owned };
            reviewed.extend(given.iter().zip(are_owned).map(with_map));
        }
        Ok(reviewed)
    }

    /// Pages that are about to be used in the map, before it changes.
    pub(crate) fn touch_blocks(&self, tree: TreeId, pages: &[PageId]) {
        let mutations = self.pool.mutations();
        let touch = |blocks: &mut Blocks, page: &PageId| blocks.touch(*page, mutations);
        self.with_blocks(tree, |blocks| pages.iter().for_each(|page| touch(blocks, page)));
    }

    /// Pages that the map has as used from now on.
    pub(crate) fn add_blocks(&self, tree: TreeId, pages: &[PageId]) {
        self.with_blocks(tree, |blocks| blocks.free.extend(pages));
    }

    /// Of pages of one group, which are used and `tree`'s. Of no group that there is, none is.
    ///
    /// # Errors
    ///
    /// Those of the pool.
    fn are_used(&self, tree: TreeId, pages: &[PageId]) -> Result<Vec<bool>, Error> {
        let group = group_of(pages[0]);
        if group >= self.groups()? {
            return Ok(vec![false; pages.len()]);
        }
        let map = self.open_map(group)?;
        let is_used = |page: &PageId| {
            let (owned_by, used) = entry(&map, extent_of(*page));
            owned_by == owner(tree) && used & 1 << (page.0 % EXTENT_PAGES) != 0
        };
        Ok(pages.iter().map(is_used).collect())
    }

    /// A page that was taken is not used after all, unless a record refers to it. It is the last
    /// to be tried again: it may be one that cannot be written.
    pub(crate) fn put_back_block(&self, tree: TreeId, page: PageId) {
        self.with_blocks(tree, |blocks| {
            if blocks.out.remove(&page) {
                blocks.free.push_back(page);
            }
        });
    }

    /// The map refused to free pages that were taken: they are used no more. Those of them that are
    /// the tree's are left over, for the sweep of the next opening.
    pub(crate) fn abandon_blocks(&self, tree: TreeId, pages: &[PageId]) {
        self.with_blocks(tree, |blocks| {
            blocks.out.retain(|page| !pages.contains(page));
            blocks.sweep = Sweep::GivenUp;
            blocks.touched = PageSet::default();
        });
    }

    /// A record refers to a page that was taken, or the map has it as free.
    pub(crate) fn attach_block(&self, tree: TreeId, page: PageId) {
        self.with_blocks(tree, |blocks| blocks.out.remove(&page));
    }

    /// A record refers to a page no more, by a change of `txn`. How many were given up so.
    pub(crate) fn give_block(&self, tree: TreeId, page: PageId, txn: TxnId) -> usize {
        let mutations = self.pool.mutations();
        self.with_blocks(tree, |blocks| {
            blocks.touch(page, mutations);
            // An undo that an error has stopped begins anew.
            if let Entry::Vacant(place) = blocks.given.entry(page) {
                place.insert(txn);
                blocks.order.insert((txn, page));
            }
            blocks.given.len()
        })
        .unwrap_or(0)
    }

    /// An undo has a record refer to a page again.
    pub(crate) fn regain_block(&self, tree: TreeId, page: PageId) {
        let mutations = self.pool.mutations();
        self.with_blocks(tree, |blocks| {
            blocks.touch(page, mutations);
            if let Some(txn) = blocks.given.remove(&page) {
                blocks.order.remove(&(txn, page));
            }
        });
    }

    /// Takes pages that are to be freed, at most `most`, in ascending order: of those given up all
    /// but `keep`, and of the others all if nothing is to be kept.
    ///
    /// # Errors
    ///
    /// Those of the pool.
    pub(crate) fn release_blocks(
        &self,
        tree: TreeId,
        oldest: TxnId,
        (keep, most): (usize, usize),
    ) -> Result<Vec<PageId>, Error> {
        let given = self.given_up(tree, oldest, (keep, most))?;
        let pages = self.with_blocks(tree, |blocks| {
            let mut pages = Vec::new();
            for &GivenUp { given, is_owned } in &given {
                let is_usable = is_owned && !blocks.is_spare(given.1);
                if blocks.take_given(given) && is_usable {
                    pages.push(given.1);
                }
            }
            let others = if keep == 0 { blocks.free.len().min(most - pages.len()) } else { 0 };
            pages.extend(blocks.free.split_off(blocks.free.len() - others));
            blocks.out.extend(&pages);
            pages.sort();
            pages
        });
        Ok(pages.unwrap_or_default())
    }

    /// How many pages of the tree's blocks no record refers to.
    pub(crate) fn unreferenced_count(&self, tree: TreeId) -> usize {
        self.with_blocks(tree, |blocks| blocks.given.len() + blocks.free.len()).unwrap_or(0)
    }

    /// The least transaction whose end the tree's pages wait for, if more than `keep` wait.
    pub(crate) fn blocks_wait_for(&self, tree: TreeId, keep: usize) -> Option<TxnId> {
        self.with_blocks(tree, |blocks| {
            let first = blocks.order.first().filter(|_| blocks.given.len() > keep);
            first.map(|(txn, _)| *txn)
        })
        .flatten()
    }

    /// Where a sweep is to go on, if there is one.
    pub(crate) fn sweep_from(&self, tree: TreeId) -> Option<SweepAt> {
        self.with_blocks(tree, |blocks| match &blocks.sweep {
            Sweep::At(at) => Some(at.clone()),
            Sweep::Done | Sweep::GivenUp => None,
        })
        .flatten()
    }

    /// The sweep has found these pages referred to, and goes on at `next`.
    pub(crate) fn swept_to(&self, tree: TreeId, pages: &[PageId], next: SweepAt) {
        self.with_blocks(tree, |blocks| {
            pages.iter().for_each(|&page| blocks.touched.insert(page));
            blocks.sweep = Sweep::At(next);
        });
    }

    /// The pages of `extents` that the sweep found left over.
    pub(crate) fn left_over(&self, tree: TreeId, extent: &Extent) -> Vec<PageId> {
        let rest = self.with_blocks(tree, |blocks| blocks.touched.rest_of(extent)).unwrap_or(0);
        let is_left = |bit: &u64| rest & 1 << bit != 0;
        (0..EXTENT_PAGES).filter(is_left).map(|bit| extent.first.plus(bit)).collect()
    }

    /// The sweep has come to its end, or cannot.
    pub(crate) fn end_sweep(&self, tree: TreeId, has_freed_all: bool) {
        self.with_blocks(tree, |blocks| {
            blocks.sweep = if has_freed_all { Sweep::Done } else { Sweep::GivenUp };
            blocks.touched = PageSet::default();
        });
    }

    /// The pages of blocks that no record refers to, while no transaction changes the tree.
    pub(crate) fn unreferenced_blocks(&self, tree: TreeId) -> Option<Unreferenced> {
        self.with_blocks(tree, |blocks| Unreferenced {
            pages: blocks
                .free
                .iter()
                .chain(&blocks.out)
                .chain(blocks.given.keys())
                .copied()
                .collect(),
            may_be_more: !matches!(blocks.sweep, Sweep::Done),
        })
    }
}
