//! How a scan is divided: domains, chunks, tasks.
//!
//! ```text
//!  device    | chunk 0 | chunk 1 | chunk 2 | ...     chunk c lies in domain c modulo their number
//!  unit      the shortest run of whole chunks and whole pages: what one request reads
//!  group     the units that lie in the same domains
//! ```
//!
//! A page of 8 KiB is two chunks of a drive with 20 domains of 4 KiB: a unit has one page in two
//! domains, and there are 10 groups. It is half a chunk of 16 KiB: a unit has two pages in one
//! domain, and there are 20 groups.
//!
//! - P1: units of different groups share no domain, unless units are more chunks than there are
//!   domains, or the domains are no multiple of the chunks of a unit.
//! - P2: in the order of their addresses the units of a table belong to its groups in turn, so all
//!   groups have as many, or one more.

use crate::Error;
use crate::table::{PageNo, Table};

use terrace_device::SECTOR_SIZE;

/// What one request of an ordinary scan reads, in bytes.
const ORDINARY_BYTES: u64 = 256 << 10;

/// How many domains are scanned at once: one for each domain, as far as the drive's queue has
/// places, and the processor threads.
#[must_use]
pub fn degree(domains: u32, queue: u32, threads: u32) -> u32 {
    domains.min(queue).min(threads)
}

/// How a scan is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    domains: u32,
    chunk_bytes: u64,
    degree: u32,
}

/// Pages that one request reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The first of them.
    pub(crate) first: PageNo,
    /// How many.
    pub(crate) pages: PageNo,
}

impl Plan {
    /// One task that reads in the order of addresses.
    #[must_use]
    pub fn ordinary() -> Plan {
        Plan { domains: 1, chunk_bytes: ORDINARY_BYTES, degree: 1 }
    }

    /// The same with requests of `bytes`, of a page at least.
    ///
    /// # Errors
    ///
    /// Requests that are not whole sectors.
    pub fn in_order(bytes: u64) -> Result<Plan, Error> {
        if bytes == 0 || !bytes.is_multiple_of(SECTOR_SIZE as u64) {
            return Err(Error::Sectors { bytes });
        }
        Ok(Plan { chunk_bytes: bytes, ..Plan::ordinary() })
    }

    /// Chunks of `chunk_bytes` over `domains`, on a drive that takes `queue` requests at once and a
    /// processor of `threads`.
    ///
    /// # Errors
    ///
    /// A drive with one domain; a queue or a processor of none; chunks that are not whole sectors.
    pub fn striped(
        domains: u32,
        chunk_bytes: u64,
        queue: u32,
        threads: u32,
    ) -> Result<Plan, Error> {
        if domains < 2 {
            return Err(Error::OneDomain);
        }
        if chunk_bytes == 0 || !chunk_bytes.is_multiple_of(SECTOR_SIZE as u64) {
            return Err(Error::Sectors { bytes: chunk_bytes });
        }
        Plan { domains, chunk_bytes, degree: 1 }.with_degree(degree(domains, queue, threads))
    }

    /// The same with another number of tasks. A table with fewer groups has as many tasks.
    ///
    /// # Errors
    ///
    /// No task.
    pub fn with_degree(self, degree: u32) -> Result<Plan, Error> {
        if degree == 0 { Err(Error::NoTask) } else { Ok(Plan { degree, ..self }) }
    }

    /// Tasks at once.
    #[must_use]
    pub fn degree(&self) -> u32 {
        self.degree
    }

    /// Domains that it counts on.
    #[must_use]
    pub fn domains(&self) -> u32 {
        self.domains
    }

    /// Bytes of a chunk.
    #[must_use]
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// Tasks that scan pages of this size at once, and the bytes of each one's ScanBuffer.
    #[must_use]
    pub fn buffers(&self, page_bytes: u64) -> (u32, u64) {
        let units = Units::of(self, page_bytes);
        (self.degree.min(units.groups), units.bytes)
    }

    /// Which group of a table's units a page is in, from 0.
    #[must_use]
    pub fn group_of(&self, table: &Table, page: PageNo) -> u32 {
        let units = Units::of(self, table.page_bytes());
        let unit = table.offset(page) / units.bytes - table.first_byte() / units.bytes;
        (unit % u64::from(units.groups)) as u32
    }
}

/// Units of a plan for pages of a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Units {
    bytes: u64,
    groups: u32,
}

fn common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { common_divisor(other, one % other) }
}

impl Units {
    fn of(plan: &Plan, page_bytes: u64) -> Units {
        let bytes = plan.chunk_bytes / common_divisor(plan.chunk_bytes, page_bytes) * page_bytes;
        let chunks = bytes / plan.chunk_bytes;
        let groups = plan.domains / common_divisor(u64::from(plan.domains), chunks) as u32;
        Units { bytes, groups }
    }
}

/// The pages of a group, unit by unit.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    next: u64,
    step: u64,
    unit_bytes: u64,
    page_bytes: u64,
    table: (u64, u64),
}

impl Group {
    /// The groups of a table, in the order of their first units.
    pub(crate) fn all(table: &Table, plan: &Plan) -> Vec<Group> {
        let page_bytes = table.page_bytes();
        let units = Units::of(plan, page_bytes);
        let begin = table.first_byte();
        let end = begin + u64::from(table.count()) * page_bytes;
        let first = begin / units.bytes;
        let group = |at: u32| Group {
            next: first + u64::from(at),
            step: u64::from(units.groups),
            unit_bytes: units.bytes,
            page_bytes,
            table: (begin, end),
        };
        (0..units.groups).map(group).collect()
    }
}

impl Iterator for Group {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let (begin, end) = self.table;
        let from = (self.next * self.unit_bytes).max(begin);
        let to = ((self.next + 1) * self.unit_bytes).min(end);
        self.next += self.step;
        let pages = |bytes: u64| (bytes / self.page_bytes) as PageNo;
        (from < to).then(|| Piece { first: pages(from - begin), pages: pages(to - from) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row_page::RowPages;
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use terrace_device::model::{Preset, build};
    use terrace_device::{Keep, Store};
    use terrace_rt::{Prng, World};

    fn table(page_bytes: u16, first_byte: u64, count: PageNo) -> Table {
        let store = Store::new(64 << 20, Keep::Plain);
        let device = build(Preset::Ram, World::current(), store);
        let pages = Arc::new(RowPages::new(page_bytes, 100).expect("whole sectors"));
        Table::new(device, pages, first_byte, count).expect("it is on the device")
    }

    #[test]
    fn the_degree_is_the_least_of_domains_queue_and_threads() {
        for (domains, queue, threads, least) in
            [(20, 32, 4, 4), (20, 8, 32, 8), (20, 32, 32, 20), (1, 32, 4, 1)]
        {
            assert_eq!(degree(domains, queue, threads), least);
        }
    }

    #[test]
    fn pages_of_8_kib_are_two_chunks_of_4_or_half_a_chunk_of_16() {
        let plan = |chunk| Plan::striped(20, chunk, 32, 32).expect("it has domains");
        assert_eq!(plan(4 << 10).buffers(8 << 10), (10, 8 << 10));
        assert_eq!(plan(16 << 10).buffers(8 << 10), (20, 16 << 10));
        assert_eq!(plan(4 << 10).buffers(4 << 10), (20, 4 << 10));
        // A page of more chunks than domains is in all of them.
        assert_eq!(plan(4 << 10).buffers(256 << 10), (5, 256 << 10));
        assert_eq!(Plan::ordinary().buffers(8 << 10), (1, ORDINARY_BYTES));
    }

    /// Against a map that is made page by page: each page once, P1 and P2.
    #[test]
    fn groups_have_all_pages_once_and_share_no_domain() {
        let mut prng = Prng::from_seed(4);
        for _ in 0..500 {
            let page_bytes = 512 << prng.below(6);
            let chunk = 512 << prng.below(7);
            let domains = 2 + prng.below(30) as u32;
            let first = prng.below(100) * page_bytes;
            let count = prng.below(400) as PageNo;
            let table = table(page_bytes as u16, first, count);
            let plan = Plan::striped(domains, chunk, 32, 32).expect("it has domains");
            let groups = Group::all(&table, &plan);
            let mut seen = BTreeSet::new();
            let mut units = Vec::new();
            let mut owners: Vec<BTreeSet<u64>> = Vec::new();
            for (at, group) in groups.into_iter().enumerate() {
                let mut own = BTreeSet::new();
                let pieces: Vec<Piece> = group.take(1_000).collect();
                for piece in &pieces {
                    for page in piece.first..piece.first + piece.pages {
                        assert!(seen.insert(page), "page {page} twice");
                        assert_eq!(plan.group_of(&table, page), at as u32);
                        let begin = table.offset(page);
                        let last = begin + page_bytes - 1;
                        own.extend((begin / chunk..=last / chunk).map(|c| c % u64::from(domains)));
                    }
                }
                units.push(pieces.len());
                owners.push(own);
            }
            assert_eq!(seen.len(), count as usize);
            let (least, most) = (units.iter().min(), units.iter().max());
            assert!(most.unwrap_or(&0) - least.unwrap_or(&0) <= 1, "{units:?}");
            let chunks = (page_bytes / chunk).max(1);
            if u64::from(domains).is_multiple_of(chunks) {
                let all: usize = owners.iter().map(BTreeSet::len).sum();
                let apart: BTreeSet<u64> = owners.into_iter().flatten().collect();
                assert_eq!(all, apart.len(), "{domains} of {chunk}, pages of {page_bytes}");
            }
        }
    }

    #[test]
    fn plans_that_make_no_sense_are_refused_in_a_line() {
        for (plan, said) in [
            (Plan::striped(1, 4096, 32, 4), "one domain"),
            (Plan::striped(20, 1000, 32, 4), "whole sectors"),
            (Plan::striped(20, 4096, 0, 4), "a queue or a machine of 0"),
            (Plan::striped(20, 4096, 32, 0), "a queue or a machine of 0"),
        ] {
            let error = plan.expect_err("it makes no sense").to_string();
            assert!(error.contains(said) && !error.contains('\n'), "{error}");
        }
    }
}
