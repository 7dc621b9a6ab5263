//! Allocation of pages: extents of 32 pages belong to trees, maps say which of their pages are
//! used.
//!
//! ```text
//! home:   group 0 (1020 extents)        | group 1 ...
//!         extent 0: 2 super pages, map 0 | extent 0: map 1 in the same place
//!
//! map page: header, kind Map
//! offset size field
//!     24    8 groups   in map 0: how many groups have a map; else 0
//!     32      entries  8 bytes for each extent of the group
//!
//! entry:  4 owner (tree number + 1, 0 none, 2^32-1 the maps; 2^31 more if it has the tree's
//!           blocks, see `btree::blocks`), 4 bits (page i is bit i)
//! ```
//!
//! An extent is 256 KiB, one stripe unit of the arrays that we model: what lies in one is read by
//! one request. Extents go to a tree one after another where there is room, and in longer runs as
//! the tree grows, so that neighbours on disk belong to the same tree. A page goes into the extent
//! of the page that it was split from, else into any of the tree's, else into a new one.
//!
//! - S1: a map changes in the nested top action that uses or unlinks the page, and stays latched
//!   until that has ended; a task holds at most one map, but for the two of a page that moves, the
//!   lower one first, and takes no other latch meanwhile but that of a page which no other task can
//!   reach.
//! - S2: an extent with a used page has an owner. One whose last page is freed has none.
//! - S3: forward operations leave the end of home alone. An undo needs no page (leaf_room.R1),
//!   but for those in a log that an earlier version has written.
//! - S4: the device has promised room for an extent before it belongs to a tree: so a full file
//!   system under a sparse home is met here, where nothing has changed yet, and not when a page is
//!   written home. That of a free extent may be given back (`holes`), and is asked for again.
//! - S5: what was in use before is used again before home grows, in shorter runs if there are no
//!   longer ones: a sparse home stays about as large as what it held at most.
//! - The hints in memory are lower bounds: below them there is nothing to find. Losing them costs
//!   one search.

mod blocks;
mod books;

pub(crate) use books::check_map;
mod claims;
mod freeing;
mod holes;
mod moves;
mod runs;
mod used;
mod vacate;
mod whole;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_device::Device;
use terrace_page::{HEADER_SIZE, PAGE_SIZE, PageBuf, PageId, PageKind, kind};
use terrace_pool::{BufferPool, PageMut};
use terrace_rt::LeafMutex;

use crate::change::{BODY_AT, Change};
use crate::room::Room;
use crate::writer::{Undo, Writer};
use crate::{Error, Part, TreeId};

pub(crate) use self::blocks::{SweepAt, TREES_MAX, Unreferenced, blocks_of};
pub(crate) use self::claims::Claim;
pub(crate) use self::used::{Holder, InUse, group_number};
pub(crate) use self::vacate::{KEPT_FROM, Vacated};

/// Pages of an extent.
pub(crate) const EXTENT_PAGES: u64 = 32;
const ENTRIES_AT: usize = HEADER_SIZE;
const ENTRY: usize = 8;
const EXTENTS_PER_MAP: u64 = ((PAGE_SIZE - ENTRIES_AT) / ENTRY) as u64;
const GROUP_PAGES: u64 = EXTENTS_PER_MAP * EXTENT_PAGES;
const MAP_IN_GROUP: u64 = 2;
const NOBODY: u32 = 0;
const MAPS: u32 = u32::MAX;
const FULL: u32 = u32::MAX;
/// The super pages and the map itself.
const MAP_BITS: u32 = 0b111;
/// The longest run of extents that a growing tree gets at once: 4 MiB.
const RUN_MAX: u64 = 16;
/// Extents that one nested action gives back: some 20 KiB of log.
const FREED_MAX: usize = 256;
/// Tries to find room before the answer is that there is none. Each failure but the last has
/// added a group.
const SEARCHES_MAX: u32 = 4;

const _: () = assert!(EXTENTS_PER_MAP == 1020);

/// On whose behalf pages are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// An operation of a transaction going forward.
    Forward,
    /// A rollback: may use what forward operations leave.
    Undo,
}

/// An extent of a tree, and its used pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Its first page.
    pub(crate) first: PageId,
    /// Page i is bit i.
    pub(crate) used: u32,
}

#[derive(Default)]
struct Hints {
    /// No extent below is free.
    free: u64,
    /// How often something was freed: a search moves a hint up only if nothing was meanwhile.
    frees: u64,
    /// No extent from here on was in use since the database was opened, or then, once it is known.
    used_end: Option<u64>,
    /// Extents that trees got since `holes` last looked for free ones to punch.
    given: Option<BTreeSet<u64>>,
    /// Whether the device was asked for the room of all that was in use at the opening.
    is_promised: bool,
    trees: BTreeMap<TreeId, TreeHint>,
    /// Extents of owners that are being vacated.
    vacated: BTreeMap<TreeId, Vacated>,
}

#[derive(Clone, Copy, Default)]
struct TreeHint {
    /// No extent of the tree below has a free page.
    cursor: u64,
    /// Extents that the tree was given since the database was opened.
    taken: u64,
}

/// The pages of home, and the trees that they belong to.
pub(crate) struct Space {
    pool: Arc<BufferPool>,
    /// What the device has promised of them.
    pub(crate) room: Room,
    /// Pages of home.
    capacity: AtomicU64,
    hints: LeafMutex<Hints>,
    blocks: LeafMutex<blocks::Known>,
}

/// Pages that will be allocated: their map is latched, nothing has changed yet.
pub(crate) struct Reserved<'s> {
    map: PageMut<'s>,
    first_entry: u64,
    entries: Vec<(u32, u32)>,
    pages: Vec<PageId>,
}

fn owner(tree: TreeId) -> u32 {
    tree.0 + 1
}

fn extent_of(page: PageId) -> u64 {
    page.0 / EXTENT_PAGES
}

/// The group whose map has the page.
fn group_of(page: PageId) -> u64 {
    extent_of(page) / EXTENTS_PER_MAP
}

pub(crate) fn map_page(group: u64) -> PageId {
    PageId(group * GROUP_PAGES + MAP_IN_GROUP)
}

fn entry_at(extent: u64) -> usize {
    ENTRIES_AT + ENTRY * (extent % EXTENTS_PER_MAP) as usize
}

fn entry(map: &PageBuf, extent: u64) -> (u32, u32) {
    let number = |at| u32::from_le_bytes([map[at], map[at + 1], map[at + 2], map[at + 3]]);
    let at = entry_at(extent);
    (number(at), number(at + 4))
}

/// How many maps there are, as the first one tells.
pub(crate) fn maps_told(map: &PageBuf) -> u64 {
    u64::from_le_bytes(map[BODY_AT..BODY_AT + 8].try_into().expect("eight bytes"))
}

fn put_entries<W: Writer>(
    w: &mut W,
    map: &mut PageMut<'_>,
    first: u64,
    entries: &[(u32, u32)],
) -> Result<(), Error> {
    let bytes: Vec<u8> = entries
        .iter()
        .flat_map(|(owner, bits)| [owner.to_le_bytes(), bits.to_le_bytes()])
        .flatten()
        .collect();
    let change = Change::Bytes { at: entry_at(first) as u16, bytes: &bytes };
    w.change(map, &change, Undo::None)
}

impl Reserved<'_> {
    /// The pages.
    pub(crate) fn pages(&self) -> &[PageId] {
        &self.pages
    }

    /// Marks them used, within the nested action that uses them. Keep it until that has ended.
    ///
    /// # Errors
    ///
    /// As `Writer::change`.
    pub(crate) fn take<W: Writer>(&mut self, w: &mut W) -> Result<(), Error> {
        put_entries(w, &mut self.map, self.first_entry, &self.entries)
    }
}

impl Space {
    /// The space of a home with `capacity` pages.
    pub(crate) fn new(pool: Arc<BufferPool>, home: Arc<dyn Device>, capacity: u64) -> Space {
        let (room, hints) =
            (Room::new(home, capacity, EXTENT_PAGES), LeafMutex::new(Hints::default()));
        let (capacity, blocks) = (AtomicU64::new(capacity), LeafMutex::default());
        Space { pool, room, capacity, hints, blocks }
    }

    /// Makes the first map of a new database.
    ///
    /// # Errors
    ///
    /// `HomeFull` if home has no room for one extent of data, and those of `Writer::change`.
    pub(crate) fn format<W: Writer>(&self, w: &mut W) -> Result<(), Error> {
        if self.extents(Purpose::Undo) < 2 {
            return Err(Error::HOME_FULL);
        }
        self.room.promise(0..2)?;
        let mut map = self.pool.create(map_page(0))?;
        let nested = w.begin_nested();
        format_map(w, &mut map, 1)?;
        w.end_nested(nested)
    }

    /// How many extents may be used.
    fn extents(&self, purpose: Purpose) -> u64 {
        let extents = self.capacity.load(Ordering::Relaxed) / EXTENT_PAGES;
        match purpose {
            Purpose::Forward if extents >= 16 => extents - (extents / 64).clamp(2, 64),
            _ => extents,
        }
    }

    fn open_map(&self, group: u64) -> Result<PageMut<'_>, Error> {
        let page = map_page(group);
        let map = self.pool.write(page)?;
        if kind(&map) != Some(PageKind::Map) {
            let what = "it should be an allocation map";
            return Err(Error::corrupt(Part::Home, page, what));
        }
        Ok(map)
    }

    fn groups(&self) -> Result<u64, Error> {
        let page = self.pool.read(map_page(0))?;
        Ok(maps_told(&page))
    }

    /// The tree's hint, and `Hints::frees`.
    fn hint(&self, tree: TreeId) -> (TreeHint, u64) {
        let hints = self.hints.lock();
        (hints.trees.get(&tree).copied().unwrap_or_default(), hints.frees)
    }

    /// Finds `count` free pages of one extent (at most 32) for `tree`, near the page `near`, and
    /// latches their map. Nothing has changed until `Reserved::take`.
    ///
    /// # Errors
    ///
    /// `HomeFull`, and those of the pool.
    pub(crate) fn reserve<W: Writer>(
        &self,
        w: &mut W,
        tree: TreeId,
        near: PageId,
        count: u32,
        purpose: Purpose,
    ) -> Result<Reserved<'_>, Error> {
        self.reserve_up_to(w, tree, near, (count, count), purpose)
    }

    /// As `reserve`: at least as many pages as the first of two numbers, and at most the second, as
    /// their extent has.
    ///
    /// # Errors
    ///
    /// As `reserve`.
    pub(crate) fn reserve_up_to<W: Writer>(
        &self,
        w: &mut W,
        tree: TreeId,
        near: PageId,
        (count, most): (u32, u32),
        purpose: Purpose,
    ) -> Result<Reserved<'_>, Error> {
        assert!(count >= 1 && (count..=FULL.count_ones()).contains(&most));
        for _ in 0..SEARCHES_MAX {
            if let Some(found) = self.in_extent(tree, near, (count, most))? {
                return Ok(found);
            }
            if let Some(vacated) = self.vacated(tree)
                && let Some(found) = self.in_extents_of(tree, (count, most), Some(&vacated))?
            {
                return Ok(found);
            }
            if let Some(found) = self.in_extents_of(tree, (count, most), None)? {
                return Ok(found);
            }
            let run = (1 + self.hint(tree).0.taken / 4).min(RUN_MAX);
            if let Some((map, run)) = self.promised_run(run, purpose)? {
                return Ok(self.first_of_run(map, run, tree, most));
            }
            self.add_group(w, purpose)?;
        }
        Err(Error::HOME_FULL)
    }

    /// In the extent of `near`, the free pages after it first.
    fn in_extent(
        &self,
        tree: TreeId,
        near: PageId,
        (count, most): (u32, u32),
    ) -> Result<Option<Reserved<'_>>, Error> {
        let extent = extent_of(near);
        let map = self.open_map(extent / EXTENTS_PER_MAP)?;
        let (owned_by, used) = entry(&map, extent);
        if owned_by != owner(tree) || used.count_zeros() < count {
            return Ok(None);
        }
        if self.vacated(tree).is_some_and(|vacated| vacated.has_extent(extent)) {
            return Ok(None);
        }
        let near = (near.0 % EXTENT_PAGES) as u32;
        let count = used.count_zeros().min(most);
        Ok(Some(Reserved::in_extent(map, extent, (owned_by, used), count, near)))
    }

    /// In an extent of `tree`, but for those of `vacated`.
    fn in_extents_of(
        &self,
        tree: TreeId,
        (count, most): (u32, u32),
        vacated: Option<&Vacated>,
    ) -> Result<Option<Reserved<'_>>, Error> {
        let (TreeHint { cursor: start, .. }, frees) = self.hint(tree);
        let is_passed_by = |extent| vacated.is_some_and(|vacated| vacated.has_extent(extent));
        // See vacate.V2.
        let move_cursor = |extent| {
            if vacated.is_none() {
                self.move_cursor(tree, frees, extent, count);
            }
        };
        let groups = self.groups()?;
        for group in start / EXTENTS_PER_MAP..groups {
            let map = self.open_map(group)?;
            let first = (group * EXTENTS_PER_MAP).max(start);
            for extent in first..(group + 1) * EXTENTS_PER_MAP {
                let found = entry(&map, extent);
                let has_room = found.0 == owner(tree) && found.1.count_zeros() >= count;
                if has_room && !is_passed_by(extent) {
                    move_cursor(extent);
                    let count = found.1.count_zeros().min(most);
                    return Ok(Some(Reserved::in_extent(map, extent, found, count, 0)));
                }
            }
        }
        move_cursor(groups * EXTENTS_PER_MAP);
        Ok(None)
    }

    /// Below `to` there is no free page of the tree, unless one was freed since.
    fn move_cursor(&self, tree: TreeId, frees: u64, to: u64, count: u32) {
        let mut hints = self.hints.lock();
        if count == 1 && hints.frees == frees {
            let hint = hints.trees.entry(tree).or_default();
            hint.cursor = hint.cursor.max(to);
        }
    }

    fn first_of_run<'s>(
        &'s self,
        map: PageMut<'s>,
        run: Range<u64>,
        tree: TreeId,
        count: u32,
    ) -> Reserved<'s> {
        let mut reserved = Reserved::in_extent(map, run.start, (owner(tree), 0), count, 0);
        reserved.entries.resize((run.end - run.start) as usize, (owner(tree), 0));
        self.give(tree, &run);
        reserved
    }

    /// The tree gets a run of extents; a search finds their pages from then on.
    fn give(&self, tree: TreeId, run: &Range<u64>) {
        let mut hints = self.hints.lock();
        hints.frees += 1;
        hints.used_end = hints.used_end.map(|end| end.max(run.end));
        if let Some(given) = &mut hints.given {
            given.extend(run.clone());
        }
        let hint = hints.trees.entry(tree).or_default();
        hint.taken += run.end - run.start;
        hint.cursor = hint.cursor.min(run.start);
    }

    /// Takes a run of at most `length` whole extents for `tree`, all their pages used, or none if
    /// they are for growth: a nested action of its own. Returns the extents.
    ///
    /// # Errors
    ///
    /// `HomeFull`, those of the pool and of `Writer::change`.
    pub(crate) fn take_run<W: Writer>(
        &self,
        w: &mut W,
        tree: TreeId,
        length: u64,
        used: u32,
    ) -> Result<Vec<PageId>, Error> {
        for _ in 0..SEARCHES_MAX {
            let length = length.clamp(1, EXTENTS_PER_MAP / 2);
            if let Some((mut map, run)) = self.promised_run(length, Purpose::Forward)? {
                let nested = w.begin_nested();
                let entries = vec![(owner(tree), used); (run.end - run.start) as usize];
                put_entries(w, &mut map, run.start, &entries)?;
                w.end_nested(nested)?;
                self.give(tree, &run);
                return Ok(run.map(extent_page).collect());
            }
            self.add_group(w, Purpose::Forward)?;
        }
        Err(Error::HOME_FULL)
    }

    /// Sets which pages of the extent that begins at `first` are used: a nested action of its own.
    ///
    /// # Errors
    ///
    /// Those of the pool and of `Writer::change`.
    pub(crate) fn set_used<W: Writer>(
        &self,
        w: &mut W,
        tree: TreeId,
        first: PageId,
        used: u32,
    ) -> Result<(), Error> {
        let extent = extent_of(first);
        let mut map = self.open_map(extent / EXTENTS_PER_MAP)?;
        assert_eq!(entry(&map, extent).0, owner(tree), "an extent of this tree");
        let nested = w.begin_nested();
        put_entries(w, &mut map, extent, &[(owner(tree), used)])?;
        w.end_nested(nested)?;
        drop(map);
        let mut hints = self.hints.lock();
        hints.frees += 1;
        let hint = hints.trees.entry(tree).or_default();
        hint.cursor = hint.cursor.min(extent);
        Ok(())
    }

    /// Makes the map of the next group.
    fn add_group<W: Writer>(&self, w: &mut W, purpose: Purpose) -> Result<(), Error> {
        let mut first = self.open_map(0)?;
        let group = maps_told(&first);
        if group * EXTENTS_PER_MAP + 2 > self.extents(purpose) {
            return Err(Error::HOME_FULL);
        }
        let begin = group * EXTENTS_PER_MAP;
        self.room.promise(begin..begin + 2)?;
        let mut map = self.pool.create(map_page(group))?;
        let nested = w.begin_nested();
        format_map(w, &mut map, 0)?;
        let count = (group + 1).to_le_bytes();
        w.change(&mut first, &Change::Bytes { at: BODY_AT as u16, bytes: &count }, Undo::None)?;
        w.end_nested(nested)?;
        let mut hints = self.hints.lock();
        hints.used_end = hints.used_end.map(|end| end.max(group * EXTENTS_PER_MAP + 1));
        Ok(())
    }

    /// Forgets a tree whose extents are free.
    pub(crate) fn forget(&self, tree: TreeId) {
        self.hints.lock().trees.remove(&tree);
        self.drop_blocks(tree);
    }
}

fn extent_page(extent: u64) -> PageId {
    PageId(extent * EXTENT_PAGES)
}

fn format_map<W: Writer>(w: &mut W, map: &mut PageMut<'_>, groups: u64) -> Result<(), Error> {
    let mut bytes = groups.to_le_bytes().to_vec();
    bytes.extend_from_slice(&MAPS.to_le_bytes());
    bytes.extend_from_slice(&MAP_BITS.to_le_bytes());
    w.change(map, &Change::Page { kind: PageKind::Map, bytes: &bytes }, Undo::None)
}

impl<'s> Reserved<'s> {
    fn in_extent(
        map: PageMut<'s>,
        extent: u64,
        (owned_by, mut used): (u32, u32),
        count: u32,
        near: u32,
    ) -> Reserved<'s> {
        let mut pages = Vec::with_capacity(count as usize);
        while pages.len() < count as usize {
            let after = !used & (FULL << near);
            let free = if after != 0 { after } else { !used };
            let bit = free.trailing_zeros();
            used |= 1 << bit;
            pages.push(PageId(extent * EXTENT_PAGES + u64::from(bit)));
        }
        Reserved { map, first_entry: extent, entries: vec![(owned_by, used)], pages }
    }
}
