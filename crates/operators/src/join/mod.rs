//! Hash joins on one attribute: ParaHashJoin, and the two that it is compared with (Fan et al.,
//! 4.2).
//!
//! ```text
//!  scan the first table ---> ParaHash: buckets, or blocks of the partitions without room
//!  scan the second one ----> MiniJoin: probe the buckets, or put into blocks
//!  for each spilled partition: load its blocks of the first table, as many as fit; probe with
//!                              those of the second; again with the rest of the first
//!  pairs of RIDs ----------> Fetch: the rows of both, sorted by RID, in batches
//! ```
//!
//! - J1: every pair of rows with the same value, of which both predicates hold, is given to the
//!   caller once; null is the same as nothing. A row that is gone when it is fetched (fetch.E2) is
//!   in no pair.
//! - J2: buckets, blocks and matches together stay within the memory. ScanBuffers are beside it.
//! - ParaHashJoin carries RIDs, NewHashJoin rows, both with a task for each domain; TradHashJoin
//!   carries rows with one task.
//! - Differs from the paper: a partition is spilled when memory is full, not all of them; a
//!   partition that does not fit again is loaded in pieces, so that rows which all have one value
//!   are joined in any memory.
//!
//! `spec`: what is joined, and what came of it. `buckets`: ParaHash. `record`: what is kept of
//! rows. `matches`: what MiniJoin found, and Fetch.

mod spec;

mod buckets;
mod matches;
mod record;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace_rt::LeafMutex;

pub use self::record::Carry;
pub use self::spec::{Consumer, Join, Joined, Side};

use self::buckets::{BUCKET_BYTES, Buckets, Room, Side as Of};
use self::matches::{Match, Matches};
use self::record::Layout;
use crate::Error;
use crate::budget::Budget;
use crate::cpu::{Step, Work};
use crate::scan::{PageRows, scan};
use crate::spill::{Block, Space, block_bytes};
use crate::table::Version;
use crate::team;

/// Blocks into which the memory of a join would be divided, if they are not too small for it. RIDs
/// take few blocks, and memory that blocks leave; rows take many, which are to be large.
const BLOCKS_OF_RIDS: u64 = 1024;
/// See `BLOCKS_OF_RIDS`.
const BLOCKS_OF_ROWS: u64 = 256;
/// The part of memory that has matches.
const MATCHES_PART: u64 = 16;
/// Records of a bucket, if the number of buckets is not given: RIDs are searched one behind the
/// other in a few cache lines, rows take several each.
const RIDS_OF_BUCKET: u64 = 64;
/// See `RIDS_OF_BUCKET`.
const ROWS_OF_BUCKET: u64 = 16;
/// The part of memory that buckets without records may take.
const BUCKETS_PART: u64 = 8;
/// Partitions, at least.
const PARTITIONS_MIN: u64 = 8;

/// Memory, divided.
#[derive(Clone, Copy, Debug)]
struct Division {
    buckets: u64,
    partitions: u64,
    block_bytes: u64,
    /// Blocks that are being written or read, and versions of pages.
    taken: u64,
    matches: u64,
}

impl Division {
    fn of(join: &Join, layouts: &[Layout; 2]) -> Result<Division, Error> {
        let (memory, table) = (join.memory, &join.build.input.table);
        if let Some(buckets) = join.buckets.filter(|buckets| !buckets.is_power_of_two()) {
            return Err(Error::Buckets { buckets });
        }
        let tasks = u64::from(join.plan.degree());
        let is_rids = join.carry == Carry::Rids;
        let blocks = if is_rids { BLOCKS_OF_RIDS } else { BLOCKS_OF_ROWS };
        let block_bytes = block_bytes(memory, blocks);
        let versions = if is_rids { 8 * u64::from(table.count()) } else { 0 };
        let matches = if is_rids { memory / MATCHES_PART } else { 0 };
        let width = layouts[0].width() as u64;
        let rows = u64::from(table.count()) * u64::from(table.pages().rows_max());
        let of_bucket = if is_rids { RIDS_OF_BUCKET } else { ROWS_OF_BUCKET };
        let most = (memory / BUCKETS_PART / BUCKET_BYTES).max(1);
        let suited = (rows / of_bucket).clamp(1, most);
        let buckets = join.buckets.unwrap_or(1 << suited.ilog2());
        // Each task has a block in hand, and one more is taken before a partition is written.
        let taken = (tasks + 1) * block_bytes + versions + buckets * BUCKET_BYTES;
        let least = 2 * PARTITIONS_MIN.min(buckets) * (block_bytes + width);
        let needed = taken + matches + least;
        if memory < needed {
            return Err(Error::Memory { needed, given: memory });
        }
        let room = memory - taken - matches;
        // Each partition is to fit into half of what the blocks of all leave.
        let wanted = (4 * rows * (width + 4)).div_ceil(room);
        let fewest = PARTITIONS_MIN.min(buckets);
        let partitions = wanted.clamp(fewest, room / 2 / block_bytes).min(buckets);
        Ok(Division { buckets, partitions, block_bytes, taken, matches })
    }
}

/// A join under way.
struct Run {
    join: Join,
    buckets: Buckets,
    /// Of the pages of the first table.
    versions: Vec<AtomicU64>,
    matches: Matches,
    consumer: Arc<dyn Consumer>,
    rows: AtomicU64,
}

/// Joins two tables.
///
/// # Errors
///
/// The first error of a device, of a page, or of `consumer`; a number of buckets that is no power
/// of two; too little memory, or too little room for what does not fit in it; a value that does not
/// fit in the bytes of its attribute.
pub fn hash_join(join: &Join, consumer: Arc<dyn Consumer>) -> Result<Joined, Error> {
    let layouts = [(&join.build, false), (&join.probe, true)]
        .map(|(side, has_version)| Layout::new(join.carry, &side.input, has_version));
    let division = Division::of(join, &layouts)?;
    let budget = Budget::new(join.memory);
    assert!(budget.take(division.taken + division.matches), "as the division says");
    let space = Space::new(join.spill.clone(), division.block_bytes)?;
    let counts = (division.buckets, division.partitions);
    let pages = if join.carry == Carry::Rids { join.build.input.table.count() } else { 0 };
    let run = Arc::new(Run {
        join: join.clone(),
        buckets: Buckets::new(counts, layouts, budget, space),
        versions: (0..pages).map(|_| AtomicU64::new(0)).collect(),
        matches: Matches::new(division.matches),
        consumer,
        rows: AtomicU64::new(0),
    });
    run.scan(Of::Build)?;
    run.scan(Of::Probe)?;
    let mut joined = Joined { partitions: division.partitions, ..Joined::default() };
    joined.spilled = run.buckets.spilled().count() as u64;
    run.buckets.clear_all();
    for partition in run.buckets.spilled() {
        joined.loads += run.join_partition(partition)?;
    }
    // Buckets are empty now: all memory is for what is fetched.
    let (space, consumer) = (run.buckets.space(), &*run.consumer);
    let (rows, freshness) = run.matches.fetch(space, join, join.memory, consumer)?;
    joined.rows = rows + run.rows.load(Ordering::Relaxed);
    joined.freshness = freshness;
    joined.spilled_bytes = space.written();
    joined.peak_bytes = run.buckets.budget().peak();
    Ok(joined)
}

/// Blocks with records that are not loaded, from a place in each on.
type Rest = VecDeque<(Block, usize)>;

/// What a task of a join has.
#[derive(Default)]
struct Hand {
    record: Vec<u8>,
    matches: Vec<Match>,
    rows: Vec<u8>,
}

impl Run {
    fn side(&self, of: Of) -> &Side {
        match of {
            Of::Build => &self.join.build,
            Of::Probe => &self.join.probe,
        }
    }

    fn scan(self: &Arc<Run>, of: Of) -> Result<(), Error> {
        let run = Arc::clone(self);
        let table = &self.side(of).input.table;
        let make = |_| Hand::default();
        scan(table, &self.join.plan, &self.join.cpu, make, move |hand, page, work| {
            run.page(of, hand, page, work)
        })?;
        self.buckets.finish(of)
    }

    fn page(
        &self,
        of: Of,
        hand: &mut Hand,
        page: &PageRows<'_>,
        work: &mut Work,
    ) -> Result<(), Error> {
        let input = &self.side(of).input;
        if let (Of::Build, Some(version)) = (of, self.versions.get(page.page() as usize)) {
            version.store(page.version(), Ordering::Relaxed);
        }
        let mut rows = 0;
        for (rid, row) in page.rows().filter(|(_, row)| input.sees(row)) {
            let Some(value) = input.value(row) else { continue };
            let mut record = std::mem::take(&mut hand.record);
            let row_of = (value, rid, page.version());
            self.buckets.layout(of).put(row_of, row, &mut record)?;
            rows += 1;
            match of {
                Of::Build => self.buckets.insert(&record)?,
                Of::Probe => {
                    let mut from = Some(0);
                    while let Some(at) = from {
                        let found = |other: &[u8]| self.found(hand, other, &record);
                        from = self.buckets.probe(&record, at, found)?;
                        self.hand_on(hand, &record)?;
                    }
                }
            }
            hand.record = record;
        }
        work.add(if of == Of::Build { Step::Insert } else { Step::Probe }, rows);
        Ok(())
    }

    /// Notes a pair, under the lock of its bucket.
    fn found(&self, hand: &mut Hand, build: &[u8], probe: &[u8]) {
        let [of_build, of_probe] = [Of::Build, Of::Probe].map(|of| self.buckets.layout(of));
        match self.join.carry {
            Carry::Rids => {
                let (rid, _) = of_build.rid(build);
                let version: Version = self.versions[rid.page as usize].load(Ordering::Relaxed);
                let value = of_probe.value(probe);
                let probe = of_probe.rid(probe);
                hand.matches.push(Match { value, build: (rid, version), probe });
            }
            Carry::Rows => hand.rows.extend_from_slice(build),
        }
    }

    /// Keeps the pairs that were found for `probe`, or gives the caller their rows.
    fn hand_on(&self, hand: &mut Hand, probe: &[u8]) -> Result<(), Error> {
        if !hand.matches.is_empty() {
            self.matches.add(self.buckets.space(), &mut hand.matches)?;
        }
        if hand.rows.is_empty() {
            return Ok(());
        }
        let [of_build, of_probe] = [Of::Build, Of::Probe].map(|of| self.buckets.layout(of));
        let (mut build, mut row) = (Vec::new(), Vec::new());
        self.join.probe.projection.append(of_probe.row(probe), &mut row);
        for record in hand.rows.chunks_exact(of_build.width()) {
            build.clear();
            self.join.build.projection.append(of_build.row(record), &mut build);
            self.consumer.take(of_probe.value(probe), &build, &row)?;
            self.rows.fetch_add(1, Ordering::Relaxed);
        }
        hand.rows.clear();
        Ok(())
    }

    /// Joins a partition that was spilled; tells how often some of it was loaded.
    fn join_partition(self: &Arc<Run>, partition: usize) -> Result<u64, Error> {
        let probes = self.buckets.take_blocks(partition, Of::Probe);
        let build = self.buckets.take_blocks(partition, Of::Build);
        let mut rest: Rest = build.into_iter().map(|it| (it, 0)).collect();
        let mut loads = 0;
        while !rest.is_empty() && !probes.is_empty() {
            let loaded;
            (loaded, rest) = self.load(rest)?;
            assert!(loaded > 0, "a partition is empty, and there is no memory for a record");
            loads += 1;
            self.probe_with(&probes)?;
            self.buckets.clear(partition);
        }
        let left = rest.into_iter().map(|(block, _)| block);
        left.chain(probes).for_each(|block| self.buckets.space().free(block));
        Ok(loads)
    }

    /// Loads records of blocks, from a place in each, as many as fit. Tells how many; what does not
    /// fit is returned.
    fn load(self: &Arc<Run>, blocks: Rest) -> Result<(usize, Rest), Error> {
        let (run, is_full) = (Arc::clone(self), Arc::new(AtomicBool::new(false)));
        let waiting = Arc::new(LeafMutex::new(blocks));
        let rest = Arc::clone(&waiting);
        let width = self.buckets.layout(Of::Build).width();
        let loaded = team::run(self.join.plan.degree(), move |_, stop| {
            let (mut bytes, mut count) = (Vec::new(), 0);
            while !stop.is_asked() && !is_full.load(Ordering::Relaxed) {
                let next = waiting.lock().pop_front();
                let Some((block, from)) = next else { break };
                let records = run.buckets.space().read(block, &mut bytes)?;
                let all = records[from..].chunks_exact(width);
                let loaded = all.take_while(|it| run.buckets.load(it) == Room::Found).count();
                let to = from + loaded * width;
                count += loaded;
                if to < records.len() {
                    is_full.store(true, Ordering::Relaxed);
                    waiting.lock().push_front((block, to));
                } else {
                    run.buckets.space().free(block);
                }
                run.charge(Step::Insert, loaded);
            }
            Ok(count)
        })?;
        let rest = std::mem::take(&mut *rest.lock());
        Ok((loaded.into_iter().sum(), rest))
    }

    /// Probes what is loaded with the records of blocks, which stay.
    fn probe_with(self: &Arc<Run>, blocks: &[Block]) -> Result<(), Error> {
        let (run, waiting) = (Arc::clone(self), LeafMutex::new(blocks.to_vec()));
        let width = self.buckets.layout(Of::Probe).width();
        team::run(self.join.plan.degree(), move |_, stop| {
            let (mut bytes, mut hand) = (Vec::new(), Hand::default());
            while !stop.is_asked() {
                let next = waiting.lock().pop();
                let Some(block) = next else { break };
                let records = run.buckets.space().read(block, &mut bytes)?;
                for record in records.chunks_exact(width) {
                    let mut from = Some(0);
                    while let Some(at) = from {
                        let found = |other: &[u8]| run.found(&mut hand, other, record);
                        from = run.buckets.probe_loaded(record, at, found);
                        run.hand_on(&mut hand, record)?;
                    }
                }
                run.charge(Step::Probe, records.len() / width);
            }
            Ok(())
        })
        .map(drop)
    }

    fn charge(&self, step: Step, rows: usize) {
        let mut work = Work::default();
        work.add(Step::Request, 1);
        work.add(step, rows as u64);
        self.join.cpu.charge(work);
    }
}
