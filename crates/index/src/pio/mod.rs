//! The PIO B-tree (Roh et al., VLDB 2011; Data Engineering Bulletin, June 2014): a B+-tree whose
//! one task keeps the whole queue of a flash drive full.
//!
//! ```text
//!   insert, update, remove --> queue (memory) --full--> batch --MPSearch--> leaves, by groups
//!   get, get_many, range   --> queue, then the tree by MPSearch
//! ```
//!
//! `queue` has the operations that wait, `update` applies them, `leaf` has the pages of a leaf,
//! `map` what is known of them in memory (LSMap), `read` the two ways to read them, `cost` picks
//! the sizes.
//!
//! - O1: a key's newest operation is in the queue, or it has reached the key's leaf.
//! - O2: batches are bracketed: a crash in one puts its pages back, and its operations wait again.
//! - O3: at most PioMax nodes of each level are in memory beside the pool.
//! - Differs from the paper: segments that lie side by side are read and written by one request;
//!   the log is the crate's journal, on a device of its own; with `LeafRead::Segment` a search
//!   reads the part of a leaf that its key can be in.
//! - Not for: writes that must be seen on the device at once; see `flush`.

pub mod cost;
mod leaf;
mod map;
mod queue;
mod read;
mod update;

use std::ops::Range;
use std::sync::Arc;

use self::map::{Directory, SEGMENTS_MAX, SegmentMap, Shape};
use self::queue::Queue;
pub use self::read::LeafRead;
use self::read::{Leaves, Lookup, Scan};
use crate::Error;
use crate::entry::{Key, Op, Pointer, Source, number, overlay};
use crate::index::{Index, Memory};
use crate::journal::Covered;
use crate::load::{Fill, Naming, TreeLayout};
use crate::page::PageNo;
use crate::pages::{Devices, Keep, Pages, Room, Traffic};
use crate::search::{in_order, search, sorted};
use crate::superblock::Kind;

/// Parameters of a PIO B-tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PioOptions {
    /// Pages, memory and groups.
    pub room: Room,
    /// Pages of memory for the queue (OPQ).
    pub queue_pages: usize,
    /// Operations after which the queue is sorted (`speriod`).
    pub sort_every: usize,
    /// Operations that a batch has at most (`bcnt`).
    pub batch_ops: usize,
    /// Pages of a leaf (L), at most 255.
    pub segments: u32,
    /// What a search reads of a leaf.
    pub leaf_read: LeafRead,
    /// Whether leaves stay in memory, beside the inner nodes.
    pub keep_leaves: Keep,
    /// How full a load makes leaves and nodes.
    pub fill: Fill,
}

/// The PIO B-tree.
pub struct PioTree {
    pages: Pages,
    options: PioOptions,
    queue: Queue,
    map: SegmentMap,
    root: PageNo,
    height: usize,
}

const STATE_BYTES: usize = 12;

fn check_segments(segments: u32) -> Result<(), Error> {
    if (1..=SEGMENTS_MAX).contains(&segments) {
        return Ok(());
    }
    Err(Error::Segments { segments, most: SEGMENTS_MAX })
}

/// Whether a batch is bracketed by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bracket {
    /// A mark ends it.
    Own,
    /// It ends with the settling that follows.
    Settling,
}

impl PioTree {
    /// The layout of a load.
    #[must_use]
    pub fn layout(source: Arc<dyn Source>, options: &PioOptions) -> TreeLayout {
        let PioOptions { room, segments, fill, .. } = *options;
        TreeLayout::new(source, room.page_bytes, segments, fill, Naming::Pages)
    }

    /// Loads `source`, and settles.
    ///
    /// # Errors
    ///
    /// Keys out of order; too little memory for a search; a device that failed or has no room.
    pub fn load(
        devices: Devices,
        source: Arc<dyn Source>,
        options: PioOptions,
    ) -> Result<PioTree, Error> {
        check_segments(options.segments)?;
        let layout = PioTree::layout(source, &options);
        let mut pages = Pages::create(devices, Kind::Pio, options.room)?;
        layout.write(&mut pages)?;
        PioTree::loaded(pages, &layout, options)
    }

    /// As `load`, on a device that holds the pages of `layout` already.
    ///
    /// # Errors
    ///
    /// As `load`.
    pub fn adopt(
        devices: Devices,
        layout: &TreeLayout,
        options: PioOptions,
    ) -> Result<PioTree, Error> {
        let mut pages = Pages::create(devices, Kind::Pio, options.room)?;
        pages.claim(layout.end())?;
        PioTree::loaded(pages, layout, options)
    }

    fn loaded(pages: Pages, layout: &TreeLayout, options: PioOptions) -> Result<PioTree, Error> {
        let mut tree = PioTree::with(pages, options, layout.root(), layout.height())?;
        for leaf in 0..layout.leaves() {
            let first = layout.first_leaf() + leaf as PageNo * options.segments;
            let firsts = layout.segment_keys(leaf);
            let used = firsts.len() as u32 + 1;
            tree.map.set(first, &Shape { used, operations: used, firsts });
        }
        tree.share_memory()?;
        tree.flush()?;
        Ok(tree)
    }

    fn with(
        pages: Pages,
        options: PioOptions,
        root: PageNo,
        height: usize,
    ) -> Result<PioTree, Error> {
        pages.check_search(height)?;
        let queue_bytes = options.queue_pages * pages.room().page_bytes;
        let queue = Queue::new(queue_bytes, options.sort_every);
        let directory = match options.leaf_read {
            LeafRead::Whole => Directory::Not,
            LeafRead::Segment { .. } => Directory::Kept,
        };
        let map = SegmentMap::new(options.segments, directory);
        Ok(PioTree { pages, options, queue, map, root, height })
    }

    /// Opens an index; what a crash had interrupted is undone and done again.
    ///
    /// # Errors
    ///
    /// A device that failed, or that holds no index, or one of another structure; too little memory
    /// for a search.
    pub fn open(devices: Devices, options: PioOptions) -> Result<PioTree, Error> {
        let (pages, state, ops) = Pages::open(devices, Kind::Pio, options.room)?;
        if state.len() != STATE_BYTES {
            return Err(Error::NotAnIndex);
        }
        let (root, height) = (number(&state, 0), Pages::check_height(number(&state, 4) as usize)?);
        let options = PioOptions { segments: number(&state, 8), ..options };
        check_segments(options.segments)?;
        let mut tree = PioTree::with(pages, options, root, height)?;
        tree.share_memory()?;
        // No batch may end before all are in the queue: its mark would cover later ones.
        ops.into_iter().for_each(|op| tree.queue.push(op));
        while !tree.queue.is_empty() {
            tree.apply_batch(Bracket::Settling)?;
        }
        tree.flush()?;
        Ok(tree)
    }

    fn state(&self) -> Vec<u8> {
        let fields = [self.root, self.height as u32, self.options.segments];
        fields.iter().flat_map(|field| field.to_le_bytes()).collect()
    }

    fn share_memory(&mut self) -> Result<(), Error> {
        self.pages.share_memory(self.queue.capacity_bytes() + self.map.bytes(), 1)
    }

    fn apply_batch(&mut self, bracket: Bracket) -> Result<(), Error> {
        let batch = self.queue.batch(self.options.batch_ops);
        update::update(self, &batch)?;
        if let (Bracket::Own, Some(first), Some(last)) = (bracket, batch.first(), batch.last()) {
            let covered = Covered { low: first.key, high: last.key };
            let state = self.state();
            self.pages.mark(&state, Some(covered))?;
        }
        self.queue.done(&batch);
        self.share_memory()
    }
}

impl PioTree {
    fn lookup(&mut self, keys: &[Key]) -> Result<Vec<Option<Pointer>>, Error> {
        let mut answers = vec![None; keys.len()];
        if keys.is_empty() {
            return Ok(answers);
        }
        let PioOptions { segments, leaf_read: read, keep_leaves: keep, .. } = self.options;
        let leaves = Leaves { map: &mut self.map, segments, read, keep };
        let mut lookup = Lookup { keys, answers: &mut answers, leaves };
        let root = [(self.root, 0..keys.len())];
        search(&mut self.pages, &mut lookup, self.height - 1, &root)?;
        Ok(answers)
    }
}

impl Index for PioTree {
    fn get(&mut self, key: Key) -> Result<Option<Pointer>, Error> {
        if let Some(op) = self.queue.find(key) {
            return Ok(op.answer());
        }
        Ok(self.lookup(&[key])?[0])
    }

    fn get_many(&mut self, keys: &[Key]) -> Result<Vec<Option<Pointer>>, Error> {
        let waiting: Vec<Option<Op>> = keys.iter().map(|key| self.queue.find(*key)).collect();
        let asked = keys.iter().zip(&waiting).filter(|(_, op)| op.is_none());
        let asked: Vec<Key> = asked.map(|(key, _)| *key).collect();
        let (order, places) = sorted(&asked);
        let mut found = in_order(&self.lookup(&order)?, &places).into_iter();
        let answer = |op: Option<Op>| match op {
            Some(op) => op.answer(),
            None => found.next().expect("an answer for each that was asked"),
        };
        Ok(waiting.into_iter().map(answer).collect())
    }

    fn apply(&mut self, op: Op) -> Result<(), Error> {
        if self.pages.wants_settling() {
            self.flush()?;
        }
        self.pages.log(op)?;
        self.queue.push(op);
        if self.queue.is_full() {
            self.apply_batch(Bracket::Own)?;
        }
        Ok(())
    }

    fn range(&mut self, keys: Range<Key>) -> Result<Vec<(Key, Pointer)>, Error> {
        if keys.start >= keys.end {
            return Ok(Vec::new());
        }
        let PioOptions { segments, leaf_read: read, keep_leaves: keep, .. } = self.options;
        let leaves = Leaves { map: &mut self.map, segments, read, keep };
        let mut scan = Scan { keys: keys.clone(), found: Vec::new(), leaves };
        let root = [(self.root, 0..usize::MAX)];
        search(&mut self.pages, &mut scan, self.height - 1, &root)?;
        let found = scan.found;
        let waiting = self.queue.range(keys.start, keys.end);
        Ok(overlay(found.into_iter(), waiting))
    }

    fn commit(&mut self) -> Result<(), Error> {
        self.pages.commit()
    }

    fn flush(&mut self) -> Result<(), Error> {
        while !self.queue.is_empty() {
            self.apply_batch(Bracket::Own)?;
        }
        self.pages.settle(self.state())
    }

    fn traffic(&self) -> Traffic {
        self.pages.traffic()
    }

    fn memory(&self) -> Memory {
        let room = self.pages.room();
        Memory {
            pool: self.pages.pool_bytes(),
            queue: self.queue.capacity_bytes(),
            tables: self.map.bytes(),
            search: (room.pio_max * self.height * room.page_bytes) as u64,
        }
    }
}
