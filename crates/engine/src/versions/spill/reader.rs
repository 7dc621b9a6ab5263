//! Reads runs from their first entry to their last, for merges.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::sync::Arc;

use terrace_page::Lsn;

use super::block::{Block, Cursor, Item};
use super::run::Run;
use super::segment::{Place, Segment};

/// Reads one run.
struct RunReader {
    /// What is not read yet: of the first of these, the blocks from `next_block` on.
    segments: VecDeque<Arc<Segment>>,
    next_block: usize,
    block: Option<(Block, Cursor)>,
}

impl RunReader {
    fn new(run: &Run) -> RunReader {
        let segments: VecDeque<_> = run.segments().iter().cloned().collect();
        let next_block = segments.front().map_or(0, |first| first.first_block());
        RunReader { segments, next_block, block: None }
    }

    /// Goes on to the next entry; its key goes to `key`, and what the row was to `before`.
    fn next(&mut self, key: &mut Vec<u8>, before: &mut Vec<u8>) -> io::Result<Option<(Lsn, bool)>> {
        while let Some(segment) = self.segments.front() {
            if let Some((block, cursor)) = &mut self.block {
                while let Some(item) = cursor.next(block)? {
                    if !segment.has((cursor.key(), item.ended)) {
                        continue;
                    }
                    key.clear();
                    key.extend_from_slice(cursor.key());
                    before.clear();
                    before.extend_from_slice(item.before.unwrap_or_default());
                    return Ok(Some((item.ended, item.before.is_some())));
                }
            }
            if self.next_block == segment.blocks() {
                self.segments.pop_front();
                self.block = None;
                self.next_block = self.segments.front().map_or(0, |next| next.first_block());
                continue;
            }
            let block = segment.read_to_merge(self.next_block)?;
            let cursor = block.cursor();
            self.block = Some((block, cursor));
            self.next_block += 1;
        }
        Ok(None)
    }

    /// What is in front of `place` is needed no more: all of it was read.
    fn release(&mut self, place: Place<'_>) {
        if let Some(first) = self.segments.front_mut()
            && let Some(left) = first.from(place)
        {
            *first = Arc::new(left);
        }
    }
}

/// The next entry of each of some runs, the first in their order on top.
pub(super) struct Sources {
    readers: Vec<RunReader>,
    /// Key, end, and the number of the reader.
    heap: BinaryHeap<Reverse<(Vec<u8>, Lsn, usize)>>,
    /// What the row was, of the next entry of each.
    befores: Vec<(Vec<u8>, bool)>,
}

impl Sources {
    /// # Errors
    ///
    /// As `Segment::read`, here and below.
    pub(super) fn new(runs: &[Arc<Run>]) -> io::Result<Sources> {
        let readers = runs.iter().map(|run| RunReader::new(run)).collect();
        let befores = runs.iter().map(|_| (Vec::new(), false)).collect();
        let mut sources = Sources { readers, heap: BinaryHeap::new(), befores };
        (0..runs.len()).try_for_each(|number| sources.refill(number, Vec::new()))?;
        Ok(sources)
    }

    fn refill(&mut self, number: usize, mut key: Vec<u8>) -> io::Result<()> {
        let (before, is_there) = &mut self.befores[number];
        if let Some((ended, has_before)) = self.readers[number].next(&mut key, before)? {
            *is_there = has_before;
            self.heap.push(Reverse((key, ended, number)));
        }
        Ok(())
    }

    /// The first of all entries that were not passed.
    pub(super) fn first(&self) -> Option<(&[u8], Item<'_>)> {
        let Reverse((key, ended, number)) = self.heap.peek()?;
        let (before, is_there) = &self.befores[*number];
        Some((key, Item { ended: *ended, before: is_there.then_some(&before[..]) }))
    }

    /// Goes on to the next one.
    pub(super) fn pass(&mut self) -> io::Result<()> {
        let Some(Reverse((key, _, number))) = self.heap.pop() else { return Ok(()) };
        self.refill(number, key)
    }

    /// What is in front of the first entry is needed no more.
    pub(super) fn release(&mut self) {
        let Some(Reverse((key, ended, _))) = self.heap.peek() else { return };
        let place = (key.clone(), *ended);
        self.readers.iter_mut().for_each(|reader| reader.release((&place.0, place.1)));
    }
}
