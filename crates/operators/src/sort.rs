//! ParaSort: rows in the order of a column (Fan et al., 5).
//!
//! ```text
//!  scan --> SubSort, one for each task: keys and RIDs, sorted when their room is full
//!                | all fit                         | else: runs of blocks
//!                v                                 v
//!           TolSort merges what they have    TolSort merges runs, in rounds if there are many
//!                |                                 |
//!                `------------> Fetch, by batches of rows in order ----> caller
//! ```
//!
//! - O1: the caller gets the rows in ascending order of the column, null first, rows of one value
//!   in the order of their RIDs; a row that is gone (fetch.E2) is left out.
//! - O2: half of the memory has keys and RIDs, or the blocks of a merge; the other half what Fetch
//!   brings. ScanBuffers are beside it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use terrace_rt::LeafMutex;

use crate::Error;
use crate::cpu::{Cpu, Step, Work};
use crate::fetch::{Freshness, Projection, WANTED_BYTES, Wanted, fetch};
use crate::plan::Plan;
use crate::scan::scan;
use crate::spill::{BLOCK_MIN, Block, HEADER_BYTES, Space, Spill, block_bytes, empty_block};
use crate::table::{Input, Rid};

/// Blocks into which the memory of a merge is divided, if they are not too small for it.
const BLOCKS: u64 = 64;

/// What is sorted.
#[derive(Clone)]
pub struct Sort {
    /// The rows, and the column.
    pub input: Input,
    /// What the caller wants of each row.
    pub projection: Arc<dyn Projection>,
    /// How the table is scanned, and rows are fetched.
    pub plan: Plan,
    /// The processor.
    pub cpu: Cpu,
    /// Memory in bytes.
    pub memory: u64,
    /// Where runs go.
    pub spill: Spill,
}

/// What a sort has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sorted {
    /// Rows that the caller got.
    pub rows: u64,
    /// Runs that were written by SubSorts.
    pub runs: u64,
    /// Bytes that were written in all.
    pub spilled_bytes: u64,
    /// How rows were found.
    pub freshness: Freshness,
}

/// A key and a RID. The order of the fields is that of the sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    key: Option<i64>,
    rid: Rid,
    version: u64,
}

/// Bytes of an entry on the device.
const STORED_BYTES: usize = 1 + 8 + 4 + 2 + 8;

impl Entry {
    fn store(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.key.is_some()));
        out.extend(self.key.unwrap_or_default().to_le_bytes());
        out.extend(self.rid.page.to_le_bytes());
        out.extend(self.rid.slot.to_le_bytes());
        out.extend(self.version.to_le_bytes());
    }

    fn stored(bytes: &[u8]) -> Entry {
        let key = i64::from_le_bytes(bytes[1..9].try_into().expect("eight bytes"));
        let page = u32::from_le_bytes(bytes[9..13].try_into().expect("four bytes"));
        let slot = u16::from_le_bytes(bytes[13..15].try_into().expect("two bytes"));
        let version = u64::from_le_bytes(bytes[15..23].try_into().expect("eight bytes"));
        Entry { key: (bytes[0] == 1).then_some(key), rid: Rid { page, slot }, version }
    }
}

/// Blocks with entries in order.
type Run = Vec<Block>;

/// Memory, divided.
#[derive(Clone, Copy)]
struct Division {
    block_bytes: u64,
    /// Entries that each SubSort keeps.
    entries: usize,
    /// Runs that are merged at once.
    fan_in: usize,
    /// Rows that are fetched at once.
    batch: usize,
}

impl Division {
    fn of(sort: &Sort) -> Result<Division, Error> {
        let (tasks, _) = sort.plan.buffers(sort.input.table.page_bytes());
        let half = sort.memory / 2;
        // A SubSort keeps a block of entries at least, and needs another one to write.
        let needed = 2 * BLOCK_MIN * (2 * u64::from(tasks)).max(3);
        if sort.memory < needed {
            return Err(Error::Memory { needed, given: sort.memory });
        }
        let block_bytes = block_bytes(half, BLOCKS.max(3 * u64::from(tasks)));
        let room = half / u64::from(tasks) - block_bytes;
        let row = WANTED_BYTES + size_of::<Entry>() as u64 + sort.projection.bytes_max() as u64;
        Ok(Division {
            block_bytes,
            entries: room as usize / size_of::<Entry>(),
            // One block is for what a round of merges writes.
            fan_in: (half / block_bytes - 1) as usize,
            batch: ((half / row) as usize).clamp(1, u32::MAX as usize),
        })
    }
}

/// Sorts rows, and gives them to `each` with their value, one after the other.
///
/// # Errors
///
/// The first error of a device, of a page, or of `each`; too little memory, or too little room for
/// runs.
pub fn sort(
    sort: &Sort,
    each: impl FnMut(Option<i64>, &[u8]) -> Result<(), Error>,
) -> Result<Sorted, Error> {
    let division = Division::of(sort)?;
    let space = Arc::new(Space::new(sort.spill.clone(), division.block_bytes)?);
    let runs = Arc::new(LeafMutex::new(Vec::new()));
    let parts = sub_sort(sort, division, &space, &runs)?;
    let runs = std::mem::take(&mut *runs.lock());
    let count = runs.len() as u64;
    let merge = Merge { cpu: &sort.cpu, division, space: &space };
    let sources = if runs.is_empty() {
        parts.into_iter().map(Source::in_memory).collect()
    } else {
        merge.until_few(runs)?
    };
    let mut sorted = Sorted { runs: count, ..Sorted::default() };
    deliver(sort, division.batch, &mut merge.heap(sources)?, &mut sorted, each)?;
    sorted.spilled_bytes = space.written();
    Ok(sorted)
}

/// SubSort: what the tasks keep, or nothing if there are runs.
fn sub_sort(
    sort: &Sort,
    division: Division,
    space: &Arc<Space>,
    runs: &Arc<LeafMutex<Vec<Run>>>,
) -> Result<Vec<Vec<Entry>>, Error> {
    let input = sort.input.clone();
    let (own_space, own_runs) = (Arc::clone(space), Arc::clone(runs));
    let make = |_| Vec::new();
    let parts = scan(&sort.input.table, &sort.plan, &sort.cpu, make, move |kept, page, work| {
        for (rid, row) in page.rows().filter(|(_, row)| input.sees(row)) {
            if kept.len() == division.entries {
                order(kept, work);
                let run = write_run(&own_space, kept)?;
                own_runs.lock().push(run);
                kept.clear();
            }
            if kept.is_empty() {
                kept.reserve_exact(division.entries);
            }
            kept.push(Entry { key: input.value(row), rid, version: page.version() });
        }
        Ok(())
    })?;
    // The last ones are sorted in parallel, too.
    let parts: Vec<_> = parts.into_iter().map(|part| LeafMutex::new(Some(part))).collect();
    let (tasks, spilled) = (parts.len() as u32, !runs.lock().is_empty());
    let (cpu, space, runs) = (sort.cpu.clone(), Arc::clone(space), Arc::clone(runs));
    crate::team::run(tasks, move |task, _| {
        let mut part = parts[task as usize].lock().take().expect("each is taken once");
        let mut work = Work::default();
        order(&mut part, &mut work);
        if spilled && !part.is_empty() {
            let run = write_run(&space, &part)?;
            runs.lock().push(run);
            part = Vec::new();
        }
        cpu.charge(work);
        Ok(part)
    })
}

fn order(entries: &mut [Entry], work: &mut Work) {
    let count = entries.len() as u64;
    work.add(Step::Compare, count * u64::from(count.max(1).ilog2() + 1));
    entries.sort_unstable();
}

fn write_run(space: &Space, entries: &[Entry]) -> Result<Run, Error> {
    let mut block = empty_block(space.block_bytes());
    let of_block = (space.block_bytes() as usize - HEADER_BYTES) / STORED_BYTES;
    let mut run = Run::new();
    for entries in entries.chunks(of_block) {
        entries.iter().for_each(|entry| entry.store(&mut block));
        run.push(space.write(&mut block)?);
    }
    Ok(run)
}

/// Entries in order, from memory or from a run.
struct Source {
    entries: VecDeque<Entry>,
    blocks: std::vec::IntoIter<Block>,
}

impl Source {
    fn in_memory(entries: Vec<Entry>) -> Source {
        Source { entries: entries.into(), blocks: Vec::new().into_iter() }
    }

    fn next(&mut self, space: &Space) -> Result<Option<Entry>, Error> {
        if let Some(entry) = self.entries.pop_front() {
            return Ok(Some(entry));
        }
        let Some(block) = self.blocks.next() else { return Ok(None) };
        let mut bytes = Vec::new();
        let stored = space.read(block, &mut bytes)?;
        self.entries = stored.chunks_exact(STORED_BYTES).map(Entry::stored).collect();
        space.free(block);
        Ok(self.entries.pop_front())
    }
}

/// TolSort.
struct Merge<'a> {
    cpu: &'a Cpu,
    division: Division,
    space: &'a Space,
}

/// A merge under way.
struct Heap<'a> {
    cpu: &'a Cpu,
    space: &'a Space,
    sources: Vec<Source>,
    first: BinaryHeap<Reverse<(Entry, usize)>>,
    work: Work,
    /// Entries since the work was charged.
    since: u32,
}

/// Entries after which the work of a merge is charged.
const CHARGE_EVERY: u32 = 1024;

impl<'a> Merge<'a> {
    /// Merges runs in rounds until there are few enough to merge them at once.
    fn until_few(&self, mut runs: Vec<Run>) -> Result<Vec<Source>, Error> {
        while runs.len() > self.division.fan_in {
            let rest = runs.split_off(self.division.fan_in);
            let mut heap = self.heap(self.open(runs))?;
            let mut block = empty_block(self.space.block_bytes());
            let mut run = Run::new();
            while let Some(entry) = heap.next()? {
                if block.len() + STORED_BYTES > self.space.block_bytes() as usize {
                    run.push(self.space.write(&mut block)?);
                }
                entry.store(&mut block);
            }
            if block.len() > HEADER_BYTES {
                run.push(self.space.write(&mut block)?);
            }
            runs = rest;
            runs.push(run);
        }
        Ok(self.open(runs))
    }

    fn open(&self, runs: Vec<Run>) -> Vec<Source> {
        let open = |run: Run| Source { entries: VecDeque::new(), blocks: run.into_iter() };
        runs.into_iter().map(open).collect()
    }

    fn heap(&self, sources: Vec<Source>) -> Result<Heap<'a>, Error> {
        let (first, work) = (BinaryHeap::with_capacity(sources.len()), Work::default());
        let mut heap = Heap { cpu: self.cpu, space: self.space, sources, first, work, since: 0 };
        for at in 0..heap.sources.len() {
            heap.refill(at)?;
        }
        Ok(heap)
    }
}

impl Heap<'_> {
    fn refill(&mut self, at: usize) -> Result<(), Error> {
        if let Some(entry) = self.sources[at].next(self.space)? {
            self.first.push(Reverse((entry, at)));
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Entry>, Error> {
        let Some(Reverse((entry, at))) = self.first.pop() else {
            self.cpu.charge(std::mem::take(&mut self.work));
            return Ok(None);
        };
        self.work.add(Step::Compare, u64::from(self.sources.len().ilog2() + 1));
        self.since += 1;
        if self.since == CHARGE_EVERY {
            self.since = 0;
            self.cpu.charge(std::mem::take(&mut self.work));
        }
        self.refill(at)?;
        Ok(Some(entry))
    }
}

/// Fetches rows by batches, and gives them on in order.
fn deliver(
    sort: &Sort,
    batch: usize,
    heap: &mut Heap<'_>,
    sorted: &mut Sorted,
    mut each: impl FnMut(Option<i64>, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    loop {
        let mut entries = Vec::new();
        while entries.len() < batch {
            let Some(entry) = heap.next()? else { break };
            entries.push(entry);
        }
        if entries.is_empty() {
            return Ok(());
        }
        let wanted = (0..).zip(&entries).map(|(at, entry): (u32, &Entry)| {
            let Entry { key, rid, version } = *entry;
            Wanted { rid, version, value: key, at }
        });
        let (wanted, how) = (wanted.collect(), (&sort.plan, &sort.cpu));
        let fetched = fetch(&sort.input, &sort.projection, how, wanted)?;
        sorted.freshness.add(fetched.freshness);
        for (at, entry) in entries.iter().enumerate() {
            if let Some(row) = fetched.get(at) {
                each(entry.key, row)?;
                sorted.rows += 1;
            }
        }
    }
}
