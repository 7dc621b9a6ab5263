//! The cost model of the PIO B-tree: leaf and queue sizes from the latencies of psync I/O and the
//! mix of operations (Roh et al., VLDB 2011).
//!
//! ```text
//!   search  = misses of inner nodes * read(1, 1) + read(1, segments in use)
//!             by segments: + a group of a page and half of the segments for operations
//!   insert  = (inner nodes a batch reads, by groups + its leaves: a segment read and one written
//!              + shrinking: a leaf read and written each time its room for operations is used up)
//!             / operations of a batch that meet in a leaf
//! ```
//!
//! A model of uniform keys in the steady state: leaves are as full as after a load.

use std::sync::Arc;

use terrace_device::{Device, SECTOR_SIZE};
use terrace_rt::{Nanos, Prng, now};

use super::{LeafRead, PioOptions};
use crate::Error;
use crate::entry::{ENTRY_BYTES, OP_BYTES};
use crate::group::{self, ReadRun, WriteRun};
use crate::page::{HEADER_BYTES, Page, PageKind};

/// Leaf sizes that are tried, in pages.
pub const SEGMENTS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Segments for operations that are tried where a search reads segments.
pub const OPERATIONS: [u32; 5] = [1, 2, 4, 8, 16];
/// Bytes that LSMap has for a leaf beside a byte for each segment, where a search reads segments.
const DIRECTORY_BYTES: f64 = 6.0;
/// Groups that are timed for each latency.
const ROUNDS: u64 = 8;

/// Latencies of psync groups of a device, in ns for a request of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies {
    /// One request at a time, of as many pages as `SEGMENTS` says.
    pub read_alone: [f64; SEGMENTS.len()],
    /// A page and such a request together, both of them.
    pub read_pair: [f64; SEGMENTS.len()],
    /// PioMax requests together.
    pub read_group: [f64; SEGMENTS.len()],
    /// The same of writes.
    pub write_group: [f64; SEGMENTS.len()],
}

impl Latencies {
    /// Times random requests over the whole device, which loses what it holds.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn measure(
        device: &Arc<dyn Device>,
        page_bytes: usize,
        pio_max: usize,
        seed: u64,
    ) -> Result<Latencies, Error> {
        assert!(page_bytes.is_multiple_of(SECTOR_SIZE), "pages are whole sectors");
        let mut prng = Prng::from_seed(seed);
        let mut timed = |group: &[Part], writes: Writes| -> Result<Times, Error> {
            let mut times = Times::default();
            for (latency, pages) in times.iter_mut().zip(SEGMENTS) {
                let pages: Vec<u32> = group.iter().map(|part| part.pages(pages)).collect();
                let span = time(&**device, (page_bytes, &pages), writes, &mut prng)?;
                *latency = span.0 as f64 / ROUNDS as f64;
            }
            Ok(times)
        };
        let each = |times: Times| times.map(|latency| latency / pio_max as f64);
        let together = vec![Part::Size; pio_max];
        Ok(Latencies {
            read_alone: timed(&[Part::Size], Writes::No)?,
            read_pair: timed(&[Part::Page, Part::Size], Writes::No)?,
            read_group: each(timed(&together, Writes::No)?),
            write_group: each(timed(&together, Writes::Yes)?),
        })
    }
}

type Times = [f64; SEGMENTS.len()];

/// A request of a group.
#[derive(Clone, Copy)]
enum Part {
    /// One page.
    Page,
    /// The size that is timed.
    Size,
}

impl Part {
    fn pages(self, size: u32) -> u32 {
        match self {
            Part::Page => 1,
            Part::Size => size,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Writes {
    Yes,
    No,
}

/// How long `ROUNDS` groups of requests of so many pages take.
fn time(
    device: &dyn Device,
    (page_bytes, group): (usize, &[u32]),
    writes: Writes,
    prng: &mut Prng,
) -> Result<Nanos, Error> {
    let page = Page::new(page_bytes, PageKind::Node, 0);
    let begin = now();
    for _ in 0..ROUNDS {
        let place = |pages: &u32| {
            let bytes = u64::from(*pages) * page_bytes as u64;
            (prng.below(device.len() / bytes) * bytes, *pages as usize)
        };
        let places: Vec<(u64, usize)> = group.iter().map(place).collect();
        if writes == Writes::Yes {
            let run =
                |(offset, pages): &(u64, usize)| -> WriteRun<'_> { (*offset, vec![&page; *pages]) };
            group::write(device, &places.iter().map(run).collect::<Vec<_>>())?;
        } else {
            let run = |(offset, pages): &(u64, usize)| -> ReadRun {
                (*offset, vec![page.clone(); *pages])
            };
            group::read(device, &mut places.iter().map(run).collect::<Vec<_>>())?;
        }
    }
    Ok(now().saturating_sub(begin))
}

/// What is asked of an index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Entries.
    pub entries: u64,
    /// Share of the operations that insert.
    pub insert_share: f64,
}

/// Time of a search and of an insert, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Of a search.
    pub search: f64,
    /// Of an insert.
    pub insert: f64,
}

impl Estimate {
    /// Of an operation of the mix.
    #[must_use]
    pub fn of_mix(self, demand: &Demand) -> f64 {
        demand.insert_share * self.insert + (1.0 - demand.insert_share) * self.search
    }
}

/// What `options` cost, by the model.
///
/// # Panics
///
/// If `options.segments` is none of `SEGMENTS`.
#[must_use]
pub fn estimate(latencies: &Latencies, demand: &Demand, options: &PioOptions) -> Estimate {
    assert!(SEGMENTS.contains(&options.segments), "a leaf size of the table");
    let segments = f64::from(options.segments);
    let page_bytes = options.room.page_bytes as f64;
    let body = page_bytes - HEADER_BYTES as f64;
    let leaf_bytes = body * segments;
    let full_bytes = leaf_bytes * options.fill.0;
    let leaves = (demand.entries as f64 * ENTRY_BYTES as f64 / full_bytes).max(1.0);
    let fanout = body / ENTRY_BYTES as f64 * options.fill.0;

    let map_pages = leaves * leaf_map(options) / page_bytes;
    let pool_pages =
        (options.room.memory_pages as f64 - options.queue_pages as f64 - map_pages).max(1.0);
    let mut inner = Vec::new();
    let mut nodes = leaves;
    while nodes > 1.0 {
        nodes = (nodes / fanout).ceil();
        inner.push(nodes);
    }
    let misses = misses(&inner, pool_pages);

    let spare_bytes = leaf_bytes - full_bytes;
    let (leaf_read, shrunk, room_bytes) = match options.leaf_read {
        LeafRead::Whole => {
            let used = (segments * (options.fill.0 + 1.0) / 2.0).ceil();
            (latencies.read_alone[at_least(used)], segments, spare_bytes)
        }
        LeafRead::Segment { operations } => {
            let room_bytes = spare_bytes.min(f64::from(operations) * body);
            let appended = (room_bytes / body / 2.0).ceil();
            let shrunk = (full_bytes / body).ceil();
            (latencies.read_pair[at_least(appended)], shrunk, room_bytes)
        }
    };
    let search = misses * latencies.read_alone[0] + leaf_read;

    let queued = options.queue_pages as f64 * page_bytes / OP_BYTES as f64;
    // Of `queued` random keys, those that are first in their leaf.
    let meet = |places: f64| places * -f64::exp_m1(-queued / places);
    let touched = meet(leaves);
    let inner_reads: f64 =
        inner.iter().map(|nodes| meet(*nodes) * (1.0 - (pool_pages / nodes).min(1.0))).sum();
    let batch = inner_reads * latencies.read_group[0]
        + touched * (latencies.read_group[0] + latencies.write_group[0]);
    // Room for operations until a leaf shrinks.
    let room_ops = (room_bytes / OP_BYTES as f64).max(1.0);
    let size = at_least(shrunk);
    let shrink = (latencies.read_group[size] + latencies.write_group[size]) / room_ops;
    Estimate { search, insert: batch / queued + shrink }
}

/// Bytes of LSMap for a leaf.
fn leaf_map(options: &PioOptions) -> f64 {
    match options.leaf_read {
        LeafRead::Whole => 1.0,
        LeafRead::Segment { .. } => f64::from(options.segments) + DIRECTORY_BYTES,
    }
}

/// Whether memory has room for the queue, LSMap over `entries`, and a page of the pool. The
/// smallest queue always does: with less than that there is no index.
#[must_use]
pub fn fits(entries: u64, options: &PioOptions) -> bool {
    let body = (options.room.page_bytes - HEADER_BYTES) as f64;
    let per_leaf = body / ENTRY_BYTES as f64 * f64::from(options.segments) * options.fill.0;
    let map_bytes = (entries as f64 / per_leaf).ceil() * leaf_map(options);
    let map_pages = (map_bytes / options.room.page_bytes as f64).ceil() as usize;
    options.queue_pages == 1 || options.queue_pages + map_pages < options.room.memory_pages
}

/// The place in `SEGMENTS` of the least size that has `pages`.
fn at_least(pages: f64) -> usize {
    let enough = SEGMENTS.iter().position(|size| f64::from(*size) >= pages);
    enough.unwrap_or(SEGMENTS.len() - 1)
}

/// Inner nodes that a search reads: the pool has the upper levels, and a share of the first that
/// does not fit.
fn misses(inner: &[f64], pool_pages: f64) -> f64 {
    let mut left = pool_pages;
    let mut misses = 0.0;
    for nodes in inner.iter().rev() {
        let here = left.min(*nodes);
        left -= here;
        misses += 1.0 - here / nodes;
    }
    misses
}

/// The sizes with the least cost, by the model: of all `SEGMENTS`, of queues from a page to all of
/// memory but a page, and of all `OPERATIONS` if a search reads segments.
#[must_use]
pub fn choose(latencies: &Latencies, demand: &Demand, options: &PioOptions) -> PioOptions {
    let most = options.room.memory_pages.saturating_sub(1).max(1);
    let queues = (0..=16).map(|part| (most * part / 16).max(1));
    let reads: Vec<LeafRead> = match options.leaf_read {
        LeafRead::Whole => vec![LeafRead::Whole],
        LeafRead::Segment { .. } => {
            OPERATIONS.map(|operations| LeafRead::Segment { operations }).into()
        }
    };
    let all = queues.flat_map(|queue_pages| {
        let reads = reads.iter();
        reads.flat_map(move |leaf_read| {
            let leaf_read = *leaf_read;
            SEGMENTS.map(|segments| PioOptions { queue_pages, segments, leaf_read, ..*options })
        })
    });
    let cost = |options: &PioOptions| estimate(latencies, demand, options).of_mix(demand);
    all.filter(|options| fits(demand.entries, options))
        .min_by(|one, other| cost(one).total_cmp(&cost(other)))
        .expect("there are sizes")
}
