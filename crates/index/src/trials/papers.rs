//! The figures of Roh et al. (2014), section 4, measured.

use std::sync::Arc;

use terrace_device::model::SimDevice;
use terrace_device::{Device, Keep as KeepBytes, Store};
use terrace_rt::{Virtual, VirtualConfig};

use super::drives::Drive;
use super::setup::{Loaded, Scale, Setup};
use super::tuning::{Tuned, tune};
use super::workload::{Measured, Workload, measure};
use crate::cost::{self, Demand, Estimate, Latencies};
use crate::load::Fill;
use crate::{BTreeOptions, Error, Keep, Kind, PioOptions};

/// Sizes of ranges in entries: 1K to 32M in the papers, as far as a tenth of what is loaded.
const SPANS: [u64; 6] = [1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 22, 1 << 25];
/// Ranges of each size in the papers.
const RANGES: u64 = 100;
/// Ranges of each size at least, and entries read of a size at most, to bound the time.
const RANGES_MIN: u64 = 4;
const RANGE_ENTRIES_MAX: u64 = 1 << 22;
/// Queue sizes in pages of the 4,096 of memory; 1, 1024 and 4041 are the papers'.
pub const QUEUES: [u64; 5] = [1, 1024, 2048, 3072, 4041];
/// Leaf sizes of the tables, in pages.
const LEAVES: [u32; 5] = [1, 2, 4, 8, 16];
/// Inserts, and then searches, in the papers.
const INSERTS: u64 = 5_000_000;
/// Operations of a mix in the papers.
const MIXED: u64 = 10_000_000;
/// Of a hundred operations, those that insert: the papers do not say which five mixes they ran.
pub const MIXES: [u64; 5] = [90, 70, 50, 30, 10];
/// The search for parameters runs this part of a mix.
const TUNING_PART: u64 = 4;
/// How full leaves are loaded.
pub const FILLS: [f64; 4] = [0.55, 0.7, 0.85, 1.0];
/// Bytes of the drive that latencies are measured on.
const PROBE_BYTES: u64 = 256 << 20;

/// What is measured, and on what.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The drive.
    pub drive: Drive,
    /// How large all is.
    pub scale: Scale,
    /// All chance follows from it.
    pub seed: u64,
}

/// Times of a range of a size, in ns.
#[derive(Clone, Copy, Debug)]
pub struct RangeRow {
    /// Entries of the range.
    pub entries: u64,
    /// Along the chain of leaves of the B+-tree.
    pub btree_ns: f64,
    /// Of prange.
    pub pio_ns: f64,
}

/// Times of an insert and of a search, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// Of an insert.
    pub insert_ns: f64,
    /// Of a search.
    pub search_ns: f64,
}

/// A PIO B-tree with a queue of a size.
#[derive(Clone, Copy, Debug)]
pub struct QueueRow {
    /// Pages of a leaf.
    pub segments: u32,
    /// Pages of the queue, of 4,096.
    pub queue: u64,
    /// Measured.
    pub measured: Pair,
    /// What the cost model says.
    pub estimate: Estimate,
}

/// Both trees with leaves that are loaded so far.
#[derive(Clone, Copy, Debug)]
pub struct FillRow {
    /// Share of a leaf.
    pub fill: f64,
    /// The B+-tree.
    pub btree: Pair,
    /// The PIO B-tree with a queue of a quarter of memory.
    pub pio: Pair,
}

/// What was measured beside the mixes.
#[derive(Clone, Debug)]
pub struct Basics {
    /// Of the drive.
    pub latencies: Latencies,
    /// The leaf size that the cost model picks for as many inserts as searches, for each queue.
    pub segments: [u32; QUEUES.len()],
    /// The B+-tree.
    pub btree: Pair,
    /// Ranges.
    pub ranges: Vec<RangeRow>,
    /// All leaf and queue sizes.
    pub queues: Vec<QueueRow>,
    /// How full leaves are.
    pub fills: Vec<FillRow>,
    /// Searches of the B+-tree one at a time, and of the PIO B-tree 10,000 together, in ns each.
    pub many_ns: (f64, f64),
}

/// A structure on a mix, with its best parameters.
#[derive(Clone, Copy, Debug)]
pub struct KindRow {
    /// The structure.
    pub kind: Kind,
    /// The search for its parameters.
    pub tuned: Tuned,
    /// The whole mix with them.
    pub measured: Measured,
    /// As many deletes, updates and inserts as the mix has operations, a third each.
    pub changes: Measured,
}

/// A mix.
#[derive(Clone, Debug)]
pub struct MixRow {
    /// Of a hundred operations, those that insert.
    pub inserts: u64,
    /// The structures.
    pub kinds: Vec<KindRow>,
    /// The PIO B-tree whose searches read segments of leaves.
    pub by_segments: KindRow,
}

impl Trial {
    /// Latencies of groups on the drive.
    ///
    /// # Errors
    ///
    /// Those of the drive.
    pub fn latencies(&self) -> Result<Latencies, Error> {
        let world = Virtual::new(VirtualConfig { seed: self.seed, ..VirtualConfig::default() });
        let store = Store::new(PROBE_BYTES, KeepBytes::Plain);
        let spec = self.drive.spec.clone();
        let device: Arc<dyn Device> = SimDevice::new(spec, world.world(), store);
        let room = self.scale.room();
        let measure = || Latencies::measure(&device, room.page_bytes, room.pio_max, self.seed);
        world.run(measure).expect("nothing stops it")
    }

    fn run(&self, setup: &Setup, loaded: &Loaded, workload: Workload) -> Result<Measured, Error> {
        measure(&self.drive, setup, loaded, workload, self.seed)
    }

    /// Inserts on one load, and searches on another.
    fn pair(&self, setup: &Setup, loaded: &Loaded) -> Result<Pair, Error> {
        let count = self.scale.ops(INSERTS);
        let inserts = self.run(setup, loaded, Workload::Inserts { count })?;
        let searches = self.run(setup, loaded, Workload::Searches { count })?;
        Ok(Pair { insert_ns: inserts.op_ns(), search_ns: searches.op_ns() })
    }

    fn btree(&self, fill: f64) -> Setup {
        let (room, fill) = (self.scale.room(), Fill(fill));
        Setup::BTree(BTreeOptions { room, keep_leaves: Keep::Lru, fill })
    }

    /// Ranges, inserts and searches (4.1, 4.2), and what stands beside them.
    ///
    /// # Errors
    ///
    /// Those of the structures.
    pub fn basics(&self) -> Result<Basics, Error> {
        let latencies = self.latencies()?;
        let demand = Demand { entries: self.scale.entries(), insert_share: 0.5 };
        let room = self.scale.room();
        let cheapest = |queue: u64| {
            let all = LEAVES.map(|segments| Setup::pio(room, self.scale.pages(queue), segments));
            let cost =
                |options: &PioOptions| cost::estimate(&latencies, &demand, options).of_mix(&demand);
            let best = all.into_iter().min_by(|one, other| cost(one).total_cmp(&cost(other)));
            best.expect("there are leaf sizes").segments
        };
        let segments = QUEUES.map(cheapest);
        let setup = self.btree(Fill::default().0);
        let loaded = Loaded::new(&setup, self.scale)?;
        let btree = self.pair(&setup, &loaded)?;
        let mut queues = Vec::new();
        let mut ranges = Vec::new();
        let mut many_ns = (btree.search_ns, 0.0);
        for size in LEAVES {
            let pio = Loaded::new(&Setup::Pio(Setup::pio(room, 1, size)), self.scale)?;
            for queue in QUEUES {
                let options = Setup::pio(room, self.scale.pages(queue), size);
                let measured = self.pair(&Setup::Pio(options), &pio)?;
                let estimate = cost::estimate(&latencies, &demand, &options);
                queues.push(QueueRow { segments: size, queue, measured, estimate });
            }
            if size == segments[0] {
                let options = Setup::Pio(Setup::pio(room, 1, size));
                ranges = self.ranges((&setup, &loaded), (&options, &pio))?;
                let count = self.scale.ops(INSERTS);
                let batches = Workload::Batches { count, keys: 10_000 };
                let measured = self.run(&options, &pio, batches)?;
                many_ns.1 = measured.elapsed.0 as f64 / count as f64;
            }
        }
        let fills = self.fills(segments[1])?;
        Ok(Basics { latencies, segments, btree, ranges, queues, fills, many_ns })
    }

    fn ranges(
        &self,
        btree: (&Setup, &Loaded),
        pio: (&Setup, &Loaded),
    ) -> Result<Vec<RangeRow>, Error> {
        let fitting = SPANS.into_iter().filter(|entries| *entries <= self.scale.entries() / 2);
        let row = |entries: u64| {
            let count = RANGES.min(RANGE_ENTRIES_MAX / entries).max(RANGES_MIN);
            let workload = Workload::Ranges { count, entries };
            let btree = self.run(btree.0, btree.1, workload)?;
            let pio = self.run(pio.0, pio.1, workload)?;
            Ok(RangeRow { entries, btree_ns: btree.op_ns(), pio_ns: pio.op_ns() })
        };
        fitting.map(row).collect()
    }

    fn fills(&self, segments: u32) -> Result<Vec<FillRow>, Error> {
        let row = |fill: f64| {
            let setup = self.btree(fill);
            let btree = self.pair(&setup, &Loaded::new(&setup, self.scale)?)?;
            let options = Setup::pio(self.scale.room(), self.scale.pages(QUEUES[1]), segments);
            let setup = Setup::Pio(PioOptions { fill: Fill(fill), ..options });
            let pio = self.pair(&setup, &Loaded::new(&setup, self.scale)?)?;
            Ok(FillRow { fill, btree, pio })
        };
        FILLS.into_iter().map(row).collect()
    }

    /// One mix (4.3): each structure with its best parameters.
    ///
    /// # Errors
    ///
    /// Those of the structures.
    pub fn mix(&self, inserts: u64) -> Result<MixRow, Error> {
        let latencies = self.latencies()?;
        let count = self.scale.ops(MIXED);
        let short = Workload::Mixed { count: (count / TUNING_PART).max(1), inserts };
        let share = inserts as f64 / 100.0;
        let row = |kind: Kind, first: Setup| {
            let tuned = tune(&self.drive, first, self.scale, short, self.seed)?;
            let loaded = Loaded::new(&tuned.setup, self.scale)?;
            let measured = self.run(&tuned.setup, &loaded, Workload::Mixed { count, inserts })?;
            let changes = Workload::Changes { count: (count / TUNING_PART).max(1) };
            let changes = self.run(&tuned.setup, &loaded, changes)?;
            Ok(KindRow { kind, tuned, measured, changes })
        };
        let of_kind = |kind| row(kind, Setup::first(kind, self.scale, &latencies, share));
        let kinds = Kind::ALL.into_iter().map(of_kind).collect::<Result<_, Error>>()?;
        let first = Setup::first_by_segments(self.scale, &latencies, share);
        Ok(MixRow { inserts, kinds, by_segments: row(Kind::Pio, first)? })
    }
}

impl MixRow {
    /// Time of an operation of a structure, in ns.
    #[must_use]
    pub fn op_ns(&self, kind: Kind) -> f64 {
        let row = self.kinds.iter().find(|row| row.kind == kind);
        row.map_or(f64::NAN, |row| row.measured.op_ns())
    }

    /// The same of the PIO B-tree, whichever way it reads leaves that takes less.
    #[must_use]
    pub fn either_pio_ns(&self) -> f64 {
        self.op_ns(Kind::Pio).min(self.by_segments.measured.op_ns())
    }
}
