//! A run: old versions in the order of tree, key and end, in segments that follow each other.
//!
//! - U1: of the entries of one row, all that a snapshot may need are in the runs that were not
//!   dropped, those taken out of the parts, and the parts; which of them has it does not matter. A
//!   snapshot sees the one whose change ended first, of those that ended after it was opened.
//! - U2: a row may be in two segments that follow each other, and in more: its entries are in the
//!   order of their ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use terrace_page::Lsn;

use super::cache::Cache;
use super::chunk::{Chunk, Order, Spilled, Wanted};
use super::segment::{Place, Segment};
use crate::versions::part::Row;

/// Whether a run has nothing but what a snapshot needs, as far as is known: of all copies of it.
pub(super) type Squeezed = Arc<AtomicBool>;

/// A run. See the module.
#[derive(Clone, Default)]
pub(super) struct Run {
    pub(super) number: u64,
    segments: Vec<Arc<Segment>>,
    pub(super) is_squeezed: Squeezed,
    sums: Sums,
}

/// Sums over the segments of a run.
#[derive(Clone, Copy, Default)]
pub(super) struct Sums {
    /// Bytes of the file.
    pub(super) file_bytes: u64,
    /// Bytes of memory, and those of filters among them.
    pub(super) memory: usize,
    pub(super) filter_memory: usize,
    pub(super) entries: u64,
    /// Bytes of entries.
    pub(super) entry_bytes: u64,
    /// The last of its changes ended here.
    pub(super) last_end: Lsn,
    pub(super) is_bad: bool,
}

impl Sums {
    pub(super) fn and(self, other: Sums) -> Sums {
        Sums {
            file_bytes: self.file_bytes + other.file_bytes,
            memory: self.memory + other.memory,
            filter_memory: self.filter_memory + other.filter_memory,
            entries: self.entries + other.entries,
            entry_bytes: self.entry_bytes + other.entry_bytes,
            last_end: self.last_end.max(other.last_end),
            is_bad: self.is_bad | other.is_bad,
        }
    }

    fn of(segment: &Segment) -> Sums {
        Sums {
            file_bytes: segment.file_bytes(),
            memory: segment.memory() + size_of::<Arc<Segment>>(),
            filter_memory: segment.filter_memory(),
            entries: segment.entries(),
            entry_bytes: segment.entry_bytes(),
            last_end: segment.last_end(),
            is_bad: false,
        }
    }
}

impl Run {
    pub(super) fn new(number: u64, is_squeezed: Squeezed, segments: Vec<Arc<Segment>>) -> Run {
        let own = Sums { memory: size_of::<Run>(), ..Sums::default() };
        let sums = segments.iter().fold(own, |sums, segment| sums.and(Sums::of(segment)));
        Run { number, segments, is_squeezed, sums }
    }

    /// It with one more segment, behind all others.
    pub(super) fn with(&self, segment: Option<Segment>) -> Run {
        let segments = self.segments.iter().cloned().chain(segment.map(Arc::new)).collect();
        Run::new(self.number, Arc::clone(&self.is_squeezed), segments)
    }

    /// What is left of it from a place on, if anything is.
    pub(super) fn from(&self, place: Place<'_>) -> Option<Run> {
        let left = |segment: &Arc<Segment>| match segment.first_key() > place.0 {
            true => Some(Arc::clone(segment)),
            false => segment.from(place).map(Arc::new),
        };
        let segments: Vec<_> = self.segments.iter().filter_map(left).collect();
        (!segments.is_empty())
            .then(|| Run::new(self.number, Arc::clone(&self.is_squeezed), segments))
    }

    pub(super) fn segments(&self) -> &[Arc<Segment>] {
        &self.segments
    }

    pub(super) fn sums(&self) -> Sums {
        let is_bad = self.segments.iter().any(|segment| segment.is_bad());
        Sums { is_bad, ..self.sums }
    }

    /// The segments from the first one on that may have keys from `key` on.
    fn segments_from(&self, key: &[u8]) -> &[Arc<Segment>] {
        &self.segments[self.segments.partition_point(|segment| segment.last_key() < key)..]
    }

    /// What a snapshot at `at` sees of `row`, whose whole key is `key`, if it is here: where the
    /// change ended, and what the row was.
    ///
    /// # Errors
    ///
    /// What the device says; `InvalidData` if a block is not what was written.
    pub(super) fn find(
        &self,
        at: Lsn,
        row: (&Row<'_>, &[u8]),
        cache: &Cache,
    ) -> io::Result<Option<Spilled>> {
        for segment in self.segments_from(row.1) {
            if segment.first_key() > row.1 {
                break;
            }
            // The order of the entries is that of their ends (U2).
            if let Some(found) = segment.find(at, row, cache)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Puts to `chunk` what a snapshot at `at` sees of rows in a range.
    ///
    /// # Errors
    ///
    /// As `find`.
    pub(super) fn range(
        &self,
        at: Lsn,
        wanted: &Wanted<'_>,
        cache: &Cache,
        chunk: &mut Chunk,
    ) -> io::Result<()> {
        match wanted.order {
            _ if self.sums.last_end < at => Ok(()),
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
        for segment in self.segments_from(wanted.lower()) {
            for number in segment.first_with(wanted.lower())..segment.blocks() {
                let fence = segment.fence(number);
                if !wanted.is_below_end(fence) {
                    return Ok(());
                }
                // All rows before the fence have come whole.
                if bytes >= wanted.bytes_max && chunk.has_before(fence) {
                    chunk.cut_from(fence);
                    return Ok(());
                }
                bytes += segment.put(number, (at, wanted), cache, chunk)?;
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
        for segment in self.segments.iter().rev() {
            let end = segment.end(|fence| wanted.is_below_end(fence));
            for number in (segment.first_block()..end).rev() {
                bytes += segment.put(number, (at, wanted), cache, chunk)?;
                let fence = segment.fence(number);
                if fence < wanted.lower() {
                    return Ok(());
                }
                // The row at the fence may have older versions in the block before.
                if bytes >= wanted.bytes_max && chunk.has_behind(fence) {
                    chunk.cut_to(fence);
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::Bound;

    use terrace_device::model::{Preset, build};
    use terrace_device::{Keep, Store};
    use terrace_rt::{Prng, World};

    use super::super::block::{Item, parts_of, whole_key};
    use super::super::chunk::{Order, Spilled, whole_bounds};
    use super::super::reader::Sources;
    use super::super::room::{Purpose, Room, SpillTo};
    use super::super::writer::{Pushed, SegmentMemory, SegmentWriter};
    use super::*;
    use crate::TreeId;

    /// By whole key and end.
    type Model = BTreeMap<(Vec<u8>, Lsn), Option<Vec<u8>>>;

    /// No other model has an entry of the same end.
    fn entries(prng: &mut Prng, count: u64, model_number: u64) -> Model {
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
            model.insert((key, Lsn(1 + 4 * prng.below(250) + model_number)), before);
        }
        model
    }

    fn written(room: &Arc<Room>, number: u64, model: &Model, memory: SegmentMemory) -> Run {
        let writer = || SegmentWriter::new(room, Purpose::Merge, memory).expect("memory");
        let (mut own, mut run) =
            (writer().expect("room"), Run::new(number, Squeezed::default(), Vec::new()));
        for ((key, ended), before) in model {
            let item = Item { ended: *ended, before: before.as_deref() };
            if own.push(key, item).expect("memory") == Pushed::Full {
                let full = std::mem::replace(&mut own, writer().expect("room"));
                run = run.with(full.finish().expect("memory"));
                assert_eq!(own.push(key, item).expect("memory"), Pushed::Done);
            }
        }
        run.with(own.finish().expect("memory"))
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
                .map(|number| {
                    let count = 1 + prng.below(3_000);
                    entries(&mut prng, count, number)
                })
                .collect();
            let memory = SegmentMemory {
                rows: 1_000,
                filter_bytes: [0, 1 << 20][prng.below(2) as usize],
                buffer_bytes: [0, 1 << 16][seed as usize % 2],
            };
            let mut runs: Vec<Arc<Run>> = (1..)
                .zip(&models)
                .map(|(number, model)| Arc::new(written(&room, number, model, memory)))
                .collect();
            let cache = Cache::new([0, 1 << 20][prng.below(2) as usize]);
            for _ in 0..10 {
                let at = Lsn(prng.below(1_000));
                let seen = seen(&models, at);
                check_rows(&runs, &cache, at, &seen);
                check_ranges(&runs, &cache, at, &seen, &mut prng);
                merge_on(&room, &mut runs, memory, prng.below(1_500));
            }
            drop(runs);
            room.punch(0);
            assert_eq!(room.used(), 0, "seed {seed}");
        }
    }

    /// Merges the first entries of all runs to a new one, as a merge that is under way has.
    fn merge_on(room: &Arc<Room>, runs: &mut Vec<Arc<Run>>, memory: SegmentMemory, count: u64) {
        let mut sources = Sources::new(runs).expect("memory");
        let mut first = Model::new();
        for _ in 0..count {
            let Some((key, item)) = sources.first() else { break };
            first.insert((key.to_vec(), item.ended), item.before.map(<[u8]>::to_vec));
            sources.pass().expect("memory");
        }
        sources.release();
        let place = sources.first().map(|(key, item)| (key.to_vec(), item.ended));
        let left = |run: &Arc<Run>| run.from((&place.as_ref()?.0, place.as_ref()?.1)).map(Arc::new);
        let file_bytes =
            |runs: &[Arc<Run>]| -> u64 { runs.iter().map(|run| run.sums().file_bytes).sum() };
        let before = file_bytes(runs);
        *runs = runs.iter().filter_map(left).collect();
        assert!(file_bytes(runs) <= before);
        if !first.is_empty() {
            runs.push(Arc::new(written(room, 1 + runs.len() as u64, &first, memory)));
        }
        let mut rest = 0;
        while sources.first().is_some() {
            sources.pass().expect("what is left can be read");
            rest += 1;
        }
        assert!(rest > 0 || place.is_none());
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
