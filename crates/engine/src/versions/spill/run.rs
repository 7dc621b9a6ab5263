//! A run: old versions in the order of tree, key and end, written once.
//!
//! ```text
//! memory   fences: the first key of each block | filter
//! file     block 0 | block 1 | ...                        in one piece
//! ```
//!
//! - N1: of the entries of one row, all that a snapshot may need are in the runs that were not
//!   dropped, those taken out of the parts, and the parts; which of them has it does not matter. A
//!   snapshot sees the one whose change ended first, of those that ended after it was opened.
//! - N2: a run is in use as long as someone has an `Arc` of it; its room is given back after that.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use terrace_page::Lsn;

use super::block::{
    BLOCK_MAX, BLOCK_MIN, Block, BlockWriter, Cursor, ENTRIES_AT, ENTRY_BYTES, Item, WHOLE_KEY_MAX,
    parts_of,
};
use super::cache::Cache;
use super::chunk::{Chunk, Order, Wanted};
use super::filter::Filter;
use super::room::Room;
use crate::log::Aligned;
use crate::versions::part::Row;

/// About how many blocks a run has, if blocks of this number are not too small or too large.
const BLOCKS: u64 = 8192;

/// The first key of each block.
#[derive(Debug, Default)]
struct Fences {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Fences {
    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len() as u32);
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn key(&self, block: usize) -> &[u8] {
        let from = block.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.bytes[from..self.ends[block] as usize]
    }

    /// How many blocks begin with a key that is `before` something.
    fn count(&self, before: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if before(self.key(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The block that `key` is in, if it is in any, at the earliest.
    fn first_with(&self, key: &[u8]) -> usize {
        self.count(|fence| fence < key).saturating_sub(1)
    }

    fn memory(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<u32>()
    }
}

/// A range of the file.
#[derive(Debug)]
struct Piece {
    at: u64,
    len: u64,
}

/// A run. See the module.
pub(super) struct Run {
    pub(super) number: u64,
    pub(super) size: RunSize,
    room: Arc<Room>,
    piece: Piece,
    block_bytes: usize,
    fences: Fences,
    filter: Filter,
    /// Between these its changes ended.
    pub(super) first_end: Lsn,
    pub(super) last_end: Lsn,
    /// Reading it has failed: it is not merged.
    pub(super) is_bad: AtomicBool,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.room.give_back(self.piece.at, self.piece.len);
    }
}

impl Run {
    /// Bytes of the file.
    pub(super) fn len(&self) -> u64 {
        self.piece.len
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        size_of::<Run>() + self.fences.memory() + self.filter.memory()
    }

    pub(super) fn filter_memory(&self) -> usize {
        self.filter.memory()
    }

    pub(super) fn blocks(&self) -> usize {
        self.fences.len()
    }

    /// # Errors
    ///
    /// What the device says; `InvalidData` if the block is not what was written.
    fn read(&self, block: usize) -> io::Result<Block> {
        let at = self.piece.at + (block * self.block_bytes) as u64;
        let bytes = self.room.read(at, self.block_bytes)?;
        Block::verified(bytes, self.number, block as u64)
    }

    fn cached(&self, block: usize, cache: &Cache) -> io::Result<Arc<Block>> {
        cache.block((self.number, block), || self.read(block))
    }

    /// What a snapshot at `at` sees of `row`, whose whole key is `key`, if it is here: where the
    /// change ended, and what the row was.
    ///
    /// # Errors
    ///
    /// As `read`.
    pub(super) fn find(
        &self,
        at: Lsn,
        (row, key): (&Row<'_>, &[u8]),
        cache: &Cache,
    ) -> io::Result<Option<(Lsn, Option<Vec<u8>>)>> {
        if self.last_end < at || !self.filter.may_have(row.hash) {
            return Ok(None);
        }
        for number in self.fences.first_with(key)..self.fences.len() {
            if self.fences.key(number) > key {
                break;
            }
            let block = self.cached(number, cache)?;
            let mut cursor = block.cursor();
            while let Some(item) = cursor.next(&block)? {
                if cursor.key() > key {
                    return Ok(None);
                }
                if cursor.key() == key && item.ended >= at {
                    return Ok(Some((item.ended, item.before.map(<[u8]>::to_vec))));
                }
            }
        }
        Ok(None)
    }

    /// Puts to `chunk` what a snapshot at `at` sees of rows in a range.
    ///
    /// # Errors
    ///
    /// As `read`.
    pub(super) fn range(
        &self,
        at: Lsn,
        wanted: &Wanted<'_>,
        cache: &Cache,
        chunk: &mut Chunk,
    ) -> io::Result<()> {
        if self.last_end < at {
            return Ok(());
        }
        match wanted.order {
            Order::Ascending => self.ascend(at, wanted, cache, chunk),
            Order::Descending => self.descend(at, wanted, cache, chunk),
        }
    }

    fn ascend(
        &self,
        at: Lsn,
        wanted: &Wanted<'_>,
        cache: &Cache,
        chunk: &mut Chunk,
    ) -> io::Result<()> {
        let mut bytes = 0;
        for number in self.fences.first_with(wanted.lower())..self.fences.len() {
            let fence = self.fences.key(number);
            if !wanted.is_below_end(fence) {
                break;
            }
            // All rows before the fence have come whole.
            if bytes >= wanted.bytes_max && chunk.has_before(fence) {
                chunk.cut_from(fence);
                break;
            }
            let block = self.cached(number, cache)?;
            let mut cursor = block.cursor();
            while let Some(item) = cursor.next(&block)? {
                if item.ended >= at && wanted.has(cursor.key()) {
                    bytes += chunk.put(cursor.key(), item.ended, item.before);
                }
            }
        }
        Ok(())
    }

    fn descend(
        &self,
        at: Lsn,
        wanted: &Wanted<'_>,
        cache: &Cache,
        chunk: &mut Chunk,
    ) -> io::Result<()> {
        let mut bytes = 0;
        let end = self.fences.count(|fence| wanted.is_below_end(fence));
        for number in (0..end).rev() {
            let block = self.cached(number, cache)?;
            let mut cursor = block.cursor();
            while let Some(item) = cursor.next(&block)? {
                if item.ended >= at && wanted.has(cursor.key()) {
                    bytes += chunk.put(cursor.key(), item.ended, item.before);
                }
            }
            let fence = self.fences.key(number);
            if fence < wanted.lower() {
                break;
            }
            // The row at the fence may have older versions in the block before.
            if bytes >= wanted.bytes_max && number > 0 && chunk.has_behind(fence) {
                chunk.cut_to(fence);
                break;
            }
        }
        Ok(())
    }
}

/// A run that is being written.
pub(super) struct RunWriter {
    run: Run,
    block: BlockWriter,
    /// Whole blocks that are not written yet.
    buffer: Aligned,
    filled: usize,
    written: u64,
    entries: u64,
}

/// How large a run gets, at most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunSize {
    /// Bytes of its entries.
    bytes: u64,
    entries: u64,
    largest: u64,
}

impl RunSize {
    /// Adds an entry with a whole key, and a record if it has one.
    pub(super) fn add(&mut self, key_len: usize, before: Option<&[u8]>) {
        let bytes = (ENTRY_BYTES + key_len + before.map_or(0, <[u8]>::len)) as u64;
        self.bytes += bytes;
        self.entries += 1;
        self.largest = self.largest.max(bytes);
    }

    /// One with the entries of this and another run.
    pub(super) fn and(self, other: RunSize) -> RunSize {
        RunSize {
            bytes: self.bytes + other.bytes,
            entries: self.entries + other.entries,
            largest: self.largest.max(other.largest),
        }
    }

    /// Bytes of a block and of the file. An entry that does not fit a block leaves less free than
    /// it takes itself; and the first one of a block has its key whole.
    fn file(self) -> (usize, u64) {
        let block = (self.bytes / BLOCKS).next_power_of_two();
        let block = block.clamp(BLOCK_MIN as u64, BLOCK_MAX as u64);
        let used_at_least = block - (ENTRIES_AT + WHOLE_KEY_MAX) as u64 - self.largest;
        (block as usize, (self.bytes / used_at_least + 2) * block)
    }
}

impl RunWriter {
    /// One of at most `size`; `None` if there is no room for it.
    ///
    /// # Errors
    ///
    /// What the system says of the file.
    pub(super) fn new(
        number: u64,
        room: &Arc<Room>,
        size: RunSize,
        (filter_bytes, buffer_bytes): (u64, u64),
    ) -> io::Result<Option<RunWriter>> {
        let (block_bytes, len) = size.file();
        let Some(at) = room.take(len)? else { return Ok(None) };
        let run = Run {
            number,
            size: RunSize { bytes: 0, ..size },
            room: Arc::clone(room),
            piece: Piece { at, len },
            block_bytes,
            fences: Fences::default(),
            filter: Filter::new(size.entries, filter_bytes),
            first_end: Lsn::MAX,
            last_end: Lsn::ZERO,
            is_bad: AtomicBool::new(false),
        };
        let buffered = (buffer_bytes as usize / block_bytes).max(1) * block_bytes;
        Ok(Some(RunWriter {
            run,
            block: BlockWriter::new(block_bytes),
            buffer: Aligned::zeroed(buffered),
            filled: 0,
            written: 0,
            entries: 0,
        }))
    }

    /// Appends an entry: they come in their order.
    ///
    /// # Errors
    ///
    /// What the device says.
    pub(super) fn push(&mut self, key: &[u8], item: Item<'_>) -> io::Result<()> {
        let Item { ended, before } = item;
        self.entries += 1;
        let has_room = !self.block.is_empty() && self.block.push(key, ended, before);
        if !has_room {
            if !self.block.is_empty() {
                self.end_block()?;
            }
            self.run.fences.push(key);
            assert!(self.block.push(key, ended, before), "the largest entry fits a block");
        }
        let (tree, key) = parts_of(key);
        self.run.filter.add(Row::new(tree, key).hash);
        self.run.first_end = self.run.first_end.min(ended);
        self.run.last_end = self.run.last_end.max(ended);
        Ok(())
    }

    fn end_block(&mut self) -> io::Result<()> {
        let number = self.run.fences.len() as u64 - 1;
        let size = self.run.block_bytes;
        let out = &mut self.buffer[self.filled..self.filled + size];
        self.run.size.bytes += self.block.finish(self.run.number, number, out) as u64;
        self.filled += size;
        if self.filled == self.buffer.len() {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let end = self.written + self.filled as u64;
        assert!(end <= self.run.piece.len, "a run is no larger than was foretold");
        self.run.room.write(self.run.piece.at + self.written, &self.buffer[..self.filled])?;
        self.written = end;
        self.filled = 0;
        Ok(())
    }

    /// The run, written; room that it does not need is given back. `None` if it has no entry.
    ///
    /// # Errors
    ///
    /// What the device says.
    pub(super) fn finish(mut self) -> io::Result<Option<Run>> {
        if !self.block.is_empty() {
            self.end_block()?;
        }
        if self.filled > 0 {
            self.write()?;
        }
        let mut run = self.run;
        run.size.entries = self.entries;
        let piece = &mut run.piece;
        run.room.give_back(piece.at + self.written, piece.len - self.written);
        piece.len = self.written;
        run.fences.bytes.shrink_to_fit();
        run.fences.ends.shrink_to_fit();
        Ok((run.fences.len() > 0).then_some(run))
    }
}

/// Reads a run from its first entry to its last.
pub(super) struct RunReader {
    run: Arc<Run>,
    next_block: usize,
    block: Option<(Block, Cursor)>,
}

impl RunReader {
    pub(super) fn new(run: &Arc<Run>) -> RunReader {
        RunReader { run: Arc::clone(run), next_block: 0, block: None }
    }

    /// Goes on to the next entry; its key goes to `key`, and what the row was to `before`.
    ///
    /// # Errors
    ///
    /// As `Run::read`.
    pub(super) fn next(
        &mut self,
        key: &mut Vec<u8>,
        before: &mut Vec<u8>,
    ) -> io::Result<Option<(Lsn, bool)>> {
        loop {
            if let Some((block, cursor)) = &mut self.block
                && let Some(item) = cursor.next(block)?
            {
                key.clear();
                key.extend_from_slice(cursor.key());
                before.clear();
                before.extend_from_slice(item.before.unwrap_or_default());
                return Ok(Some((item.ended, item.before.is_some())));
            }
            if self.next_block == self.run.blocks() {
                return Ok(None);
            }
            let read = self.run.read(self.next_block);
            let block = read.inspect_err(|_| self.run.is_bad.store(true, Ordering::Relaxed))?;
            let cursor = block.cursor();
            self.block = Some((block, cursor));
            self.next_block += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::Bound;

    use terrace_device::model::{Preset, build};
    use terrace_device::{Keep, Store};
    use terrace_rt::{Prng, World};

    use super::super::block::whole_key;
    use super::super::chunk::{Order, Spilled, whole_bounds};
    use super::super::room::SpillTo;
    use super::*;
    use crate::TreeId;

    /// By whole key and end.
    type Model = BTreeMap<(Vec<u8>, Lsn), Option<Vec<u8>>>;

    fn entries(prng: &mut Prng, count: u64) -> Model {
        let mut model = Model::new();
        for _ in 0..count {
            let mut key = Vec::new();
            let row = prng.below(count / 3 + 1).to_be_bytes();
            let len = if prng.chance(50) { 900 } else { 8 };
            whole_key(TreeId(1 + prng.below(3) as u32), &row.repeat(len / 8), &mut key);
            let record = vec![prng.below(256) as u8; 1 + prng.below(300) as usize];
            let large = vec![3; 1 + prng.below(8_000) as usize];
            let before = match prng.below(60) {
                0 => Some(large),
                1..30 => Some(record),
                _ => None,
            };
            model.insert((key, Lsn(1 + prng.below(1_000))), before);
        }
        model
    }

    fn written(room: &Arc<Room>, number: u64, model: &Model, memory: (u64, u64)) -> Run {
        let mut size = RunSize::default();
        model.iter().for_each(|((key, _), before)| size.add(key.len(), before.as_deref()));
        let writer = RunWriter::new(number, room, size, memory).expect("memory");
        let mut writer = writer.expect("room");
        for ((key, ended), before) in model {
            let item = Item { ended: *ended, before: before.as_deref() };
            writer.push(key, item).expect("memory");
        }
        writer.finish().expect("memory").expect("entries")
    }

    type Known = BTreeMap<Vec<u8>, Spilled>;

    /// What a snapshot at `at` sees of each row.
    fn seen(models: &[Model], at: Lsn) -> Known {
        let mut seen = Known::new();
        for ((key, ended), before) in models.iter().flatten().filter(|((_, end), _)| *end >= at) {
            let there = seen.entry(key.clone()).or_insert((Lsn::MAX, None));
            if *ended < there.0 {
                *there = (*ended, before.clone());
            }
        }
        seen
    }

    #[test]
    fn runs_agree_with_maps() {
        for seed in 0..30 {
            let mut prng = Prng::from_seed(seed);
            let store = Store::new(64 << 20, Keep::Plain);
            let device = build(Preset::Ram, World::current(), store);
            let room = Arc::new(Room::new(SpillTo::Device(device), 64 << 20));
            let models: Vec<Model> = (0..1 + prng.below(4))
                .map(|_| {
                    let count = 1 + prng.below(3_000);
                    entries(&mut prng, count)
                })
                .collect();
            let memory = ([0, 1 << 20][prng.below(2) as usize], [0, 1 << 16][seed as usize % 2]);
            let runs: Vec<Arc<Run>> = (1..)
                .zip(&models)
                .map(|(number, model)| Arc::new(written(&room, number, model, memory)))
                .collect();
            let cache = Cache::new([0, 1 << 20][prng.below(2) as usize]);
            for _ in 0..10 {
                let at = Lsn(prng.below(1_000));
                let seen = seen(&models, at);
                check_rows(&runs, &cache, at, &seen);
                check_ranges(&runs, &cache, at, &seen, &mut prng);
            }
            drop(runs);
            room.punch();
            assert_eq!(room.used(), 0, "seed {seed}");
        }
    }

    fn check_rows(runs: &[Arc<Run>], cache: &Cache, at: Lsn, seen: &Known) {
        for tree in 1..4 {
            for row in (0..1_000_u64).step_by(13) {
                let own = row.to_be_bytes();
                let (row, mut key) = (Row::new(TreeId(tree), &own), Vec::new());
                whole_key(row.tree, row.key, &mut key);
                let found = runs
                    .iter()
                    .filter_map(|run| run.find(at, (&row, &key), cache).expect("memory"));
                let first = found.min_by_key(|(ended, _)| *ended);
                assert_eq!(first.as_ref(), seen.get(&key));
            }
        }
    }

    fn check_ranges(runs: &[Arc<Run>], cache: &Cache, at: Lsn, seen: &Known, prng: &mut Prng) {
        let tree = TreeId(1 + prng.below(3) as u32);
        let (low, high) = (prng.below(400).to_be_bytes(), prng.below(900).to_be_bytes());
        let order = [Order::Ascending, Order::Descending][prng.below(2) as usize];
        let mut lower: Bound<Vec<u8>> = Bound::Included(low.to_vec());
        let mut upper: Bound<Vec<u8>> =
            if prng.chance(2) { Bound::Unbounded } else { Bound::Excluded(high.to_vec()) };
        let mut found: Vec<(Vec<u8>, Spilled)> = Vec::new();
        let all =
            whole_bounds(tree, (lower.as_ref().map(|k| &k[..]), upper.as_ref().map(|k| &k[..])));
        for _ in 0..10_000 {
            let own = (lower.as_ref().map(|k| &k[..]), upper.as_ref().map(|k| &k[..]));
            let (from, to) = whole_bounds(tree, own);
            let bounds = (from.as_ref().map(|k| &k[..]), to.as_ref().map(|k| &k[..]));
            let wanted = Wanted::new(bounds, order, 4 << 10);
            let mut chunk = Chunk::new();
            runs.iter().for_each(|run| {
                run.range(at, &wanted, cache, &mut chunk).expect("memory");
            });
            chunk.finish();
            let cut = chunk.cut().map(<[u8]>::to_vec);
            let rows = chunk.into_rows();
            match order {
                Order::Ascending => found.extend(rows),
                Order::Descending => found.splice(0..0, rows).for_each(drop),
            }
            let Some(cut) = cut else { break };
            match order {
                Order::Ascending => lower = Bound::Included(cut),
                Order::Descending => upper = Bound::Included(cut),
            }
        }
        let is_in = |key: &[u8]| {
            let bounds = (all.0.as_ref().map(|k| &k[..]), all.1.as_ref().map(|k| &k[..]));
            Wanted::new(bounds, order, 0).has(key)
        };
        let known = seen.iter().filter(|(key, _)| is_in(key));
        let known: Vec<_> =
            known.map(|(key, seen)| (parts_of(key).1.to_vec(), seen.clone())).collect();
        assert!(found == known, "{} rows, not {}", found.len(), known.len());
    }
}
