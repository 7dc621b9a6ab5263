//! The search for the parameters that suit a workload best.
//!
//! Each structure has a grid of parameters. The search goes through one parameter after the other,
//! keeps the value that takes the least time on a shorter run of the same mix, and goes round again
//! until nothing improves, at most `ROUNDS_MAX` times. The PIO B-tree starts from what its cost
//! model picks, all others from the middle of their grids.

use super::drives::Drive;
use super::setup::{Loaded, Scale, Setup};
use super::workload::{Measured, Workload, measure};
use crate::cost::{self, Demand, Latencies};
use crate::load::Fill;
use crate::pages::Keep;
use crate::{BTreeOptions, BftlOptions, Error, FdOptions, Kind, LeafRead, PioOptions, Room};

const ROUNDS_MAX: usize = 2;
/// Parts of memory that queue and head may take, of 16.
const MEMORY_PARTS: [usize; 6] = [1, 4, 8, 12, 14, 15];
const RATIOS: [u64; 4] = [4, 10, 30, 100];
const BUFFERS: [usize; 4] = [60, 160, 480, 1600];
const LISTS: [usize; 4] = [2, 3, 4, 8];
const KEEPS: [Keep; 2] = [Keep::Lru, Keep::Not];

/// The operations after which the papers' queue is sorted, and which a batch has; both only bound
/// the time of one call.
pub(super) const SORT_EVERY: usize = 1024;
/// See `SORT_EVERY`.
pub(super) const BATCH_OPS: usize = 5000;

/// Where a search ended.
#[derive(Clone, Copy, Debug)]
pub struct Tuned {
    /// The best.
    pub setup: Setup,
    /// Its time on the short run.
    pub measured: Measured,
    /// Time of the first on the short run.
    pub first: Measured,
    /// Setups that were measured.
    pub tried: usize,
}

/// Loads that were made, by what they depend on.
#[derive(Default)]
struct Loads(Vec<Loaded>);

impl Loads {
    fn get(&mut self, setup: &Setup, scale: Scale) -> Result<&Loaded, Error> {
        let at = match self.0.iter().position(|loaded| loaded.is_for(setup)) {
            Some(at) => at,
            None => {
                self.0.push(Loaded::new(setup, scale)?);
                self.0.len() - 1
            }
        };
        Ok(&self.0[at])
    }
}

impl Setup {
    /// Where a search begins.
    #[must_use]
    pub fn first(kind: Kind, scale: Scale, latencies: &Latencies, insert_share: f64) -> Setup {
        let room = scale.room();
        let fill = Fill::default();
        match kind {
            Kind::BTree => Setup::BTree(BTreeOptions { room, keep_leaves: Keep::Lru, fill }),
            Kind::Pio => {
                let demand = Demand { entries: scale.entries(), insert_share };
                Setup::Pio(cost::choose(latencies, &demand, &Setup::pio(room, 1, 1)))
            }
            Kind::Fd => Setup::Fd(FdOptions {
                room,
                head_pages: room.memory_pages / 2,
                ratio: 30,
                keep_leaves: Keep::Lru,
            }),
            Kind::Bftl => Setup::Bftl(BftlOptions { room, buffer_units: 60, list_max: 4, fill }),
        }
    }

    /// Where a search for a PIO B-tree begins whose searches read segments of leaves.
    #[must_use]
    pub fn first_by_segments(scale: Scale, latencies: &Latencies, insert_share: f64) -> Setup {
        let demand = Demand { entries: scale.entries(), insert_share };
        let leaf_read = LeafRead::Segment { operations: 1 };
        let options = PioOptions { leaf_read, ..Setup::pio(scale.room(), 1, 1) };
        Setup::Pio(cost::choose(latencies, &demand, &options))
    }

    /// A PIO B-tree of the given sizes, whose searches read whole leaves.
    #[must_use]
    pub fn pio(room: Room, queue_pages: usize, segments: u32) -> PioOptions {
        PioOptions {
            room,
            queue_pages,
            sort_every: SORT_EVERY,
            batch_ops: BATCH_OPS,
            segments,
            leaf_read: LeafRead::Whole,
            keep_leaves: Keep::Not,
            fill: Fill::default(),
        }
    }

    /// The values of parameter number `at`; none after the last.
    fn values(&self, at: usize) -> Vec<Setup> {
        match (*self, at) {
            (Setup::BTree(options), 0) => KEEPS
                .map(|keep_leaves| Setup::BTree(BTreeOptions { keep_leaves, ..options }))
                .into(),
            (Setup::BTree(options), 1) => {
                let sized = |factor: usize| {
                    let (bytes, pages) = (options.room.page_bytes, options.room.memory_pages);
                    let all = bytes * pages;
                    let page_bytes = 4096 * factor;
                    let memory_pages = all / page_bytes;
                    let room = Room { page_bytes, memory_pages, ..options.room };
                    Setup::BTree(BTreeOptions { room, ..options })
                };
                [1, 2, 4].map(sized).into()
            }
            (Setup::Pio(options), 0) => {
                cost::SEGMENTS.map(|segments| Setup::Pio(PioOptions { segments, ..options })).into()
            }
            (Setup::Pio(options), 1) => memory_parts(&options.room)
                .map(|queue_pages| Setup::Pio(PioOptions { queue_pages, ..options }))
                .collect(),
            (Setup::Pio(options), 2) => {
                KEEPS.map(|keep_leaves| Setup::Pio(PioOptions { keep_leaves, ..options })).into()
            }
            (Setup::Pio(options), 3) => match options.leaf_read {
                LeafRead::Whole => Vec::new(),
                LeafRead::Segment { .. } => cost::OPERATIONS
                    .map(|operations| LeafRead::Segment { operations })
                    .map(|leaf_read| Setup::Pio(PioOptions { leaf_read, ..options }))
                    .into(),
            },
            (Setup::Fd(options), 0) => memory_parts(&options.room)
                .map(|head_pages| Setup::Fd(FdOptions { head_pages, ..options }))
                .collect(),
            (Setup::Fd(options), 1) => {
                RATIOS.map(|ratio| Setup::Fd(FdOptions { ratio, ..options })).into()
            }
            (Setup::Fd(options), 2) => {
                KEEPS.map(|keep_leaves| Setup::Fd(FdOptions { keep_leaves, ..options })).into()
            }
            (Setup::Bftl(options), 0) => BUFFERS
                .map(|buffer_units| Setup::Bftl(BftlOptions { buffer_units, ..options }))
                .into(),
            (Setup::Bftl(options), 1) => {
                LISTS.map(|list_max| Setup::Bftl(BftlOptions { list_max, ..options })).into()
            }
            _ => Vec::new(),
        }
    }
}

fn memory_parts(room: &Room) -> impl Iterator<Item = usize> {
    let pages = room.memory_pages;
    MEMORY_PARTS.into_iter().map(move |part| (pages * part / 16).max(1))
}

/// Finds parameters for a structure under a workload. `kinds` of it are loaded as often as loads
/// differ.
///
/// # Errors
///
/// Those of the index.
pub fn tune(
    drive: &Drive,
    first: Setup,
    scale: Scale,
    workload: Workload,
    seed: u64,
) -> Result<Tuned, Error> {
    let mut loads = Loads::default();
    let mut run = |setup: &Setup| -> Result<Measured, Error> {
        measure(drive, setup, loads.get(setup, scale)?, workload, seed)
    };
    let measured = run(&first)?;
    let mut tuned = Tuned { setup: first, measured, first: measured, tried: 1 };
    for _ in 0..ROUNDS_MAX {
        let before = tuned.measured.elapsed;
        for at in 0.. {
            let (values, known) = (tuned.setup.values(at), tuned.setup);
            if values.is_empty() {
                break;
            }
            let fits = |setup: &Setup| match setup {
                Setup::Pio(options) => cost::fits(scale.entries(), options),
                _ => true,
            };
            for setup in values.into_iter().filter(|setup| *setup != known && fits(setup)) {
                let measured = run(&setup)?;
                tuned.tried += 1;
                if measured.elapsed < tuned.measured.elapsed {
                    (tuned.setup, tuned.measured) = (setup, measured);
                }
            }
        }
        if tuned.measured.elapsed == before {
            break;
        }
    }
    Ok(tuned)
}
