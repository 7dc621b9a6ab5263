//! What is in a trace: counts, footprint, span, sequential share, skew.
//!
//! - S1: memory is that of the [`Interner`] and four bytes a page, and of the last request of each
//!   file.

use crate::interner::Interner;
use crate::pages::{PageRequest, Pages, Paging};
use crate::request::{Kind, Request};
use std::collections::BTreeMap;
use std::convert::Infallible;

/// Counts of requests as they come by.
pub struct Summary {
    paging: Paging,
    requests: [u64; 2],
    /// Requests that announce reads.
    ahead: u64,
    bytes: [u64; 2],
    without_bytes: u64,
    times_back: u64,
    sequential: u64,
    first_ns: u64,
    last_ns: u64,
    latest_ns: u64,
    /// Where the last request to each file ended.
    ends: BTreeMap<u32, u64>,
    pages: Interner,
    /// References to each page.
    references: Vec<u32>,
    references_all: u64,
    written: u64,
}

/// The share of references that the most popular pages have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Skew {
    /// The share of the pages.
    pub pages: f64,
    /// The same as a number of pages.
    pub pages_count: u64,
    /// The share of the references that go to them.
    pub references: f64,
}

/// What a [`Summary`] found.
#[derive(Clone, Debug, PartialEq)]
pub struct Findings {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Requests that announce reads.
    pub ahead: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Requests of zero bytes.
    pub without_bytes: u64,
    /// Requests whose time is before that of the request before.
    pub times_back: u64,
    /// Requests that begin where the last request to their file ended.
    pub sequential: u64,
    /// The earliest time, in nanoseconds.
    pub first_ns: u64,
    /// The latest.
    pub last_ns: u64,
    /// Files or devices.
    pub files: u64,
    /// References to pages.
    pub references: u64,
    /// Pages.
    pub pages: u64,
    /// References to the page that has most.
    pub references_max: u64,
    /// Pages with one reference.
    pub pages_once: u64,
    /// References that write.
    pub page_writes: u64,
    /// How references gather on the most popular tenth, hundredth and thousandth of the pages.
    pub skew: Vec<Skew>,
}

const SKEW_SHARES: [f64; 3] = [0.1, 0.01, 0.001];

impl Summary {
    /// Of no requests yet, which will be split as `paging` says.
    pub fn new(paging: Paging) -> Summary {
        Summary {
            paging,
            requests: [0; 2],
            ahead: 0,
            bytes: [0; 2],
            without_bytes: 0,
            times_back: 0,
            sequential: 0,
            first_ns: u64::MAX,
            last_ns: 0,
            latest_ns: 0,
            ends: BTreeMap::new(),
            pages: Interner::new(),
            references: Vec::new(),
            references_all: 0,
            written: 0,
        }
    }

    /// Counts a request. One that announces reads is no more than counted.
    pub fn add(&mut self, request: Request) {
        if request.kind == Kind::Ahead {
            self.ahead += 1;
            return;
        }
        let kind = usize::from(request.kind == Kind::Write);
        self.requests[kind] += 1;
        self.bytes[kind] += u64::from(request.length);
        self.without_bytes += u64::from(request.length == 0);
        self.times_back += u64::from(request.time_ns < self.latest_ns);
        self.latest_ns = request.time_ns;
        self.first_ns = self.first_ns.min(request.time_ns);
        self.last_ns = self.last_ns.max(request.time_ns);
        let end = self.ends.insert(request.file, request.end());
        self.sequential += u64::from(end == Some(request.address));
        let one = std::iter::once(Ok::<_, Infallible>(request));
        for page in Pages::new(one, self.paging) {
            let Ok(page) = page;
            self.add_page(page);
        }
    }

    fn add_page(&mut self, request: PageRequest) {
        let number = self.pages.intern(request.page) as usize;
        if number == self.references.len() {
            self.references.push(0);
        }
        self.references[number] = self.references[number].saturating_add(1);
        self.references_all += 1;
        self.written += u64::from(request.kind == Kind::Write);
    }

    /// What was found.
    pub fn findings(mut self) -> Findings {
        self.references.sort_unstable_by(|a, b| b.cmp(a));
        let pages = self.references.len();
        let share_of = |share: f64| {
            let count = ((pages as f64 * share).ceil() as usize).min(pages);
            let references: u64 = self.references[..count].iter().copied().map(u64::from).sum();
            let references = references as f64 / self.references_all.max(1) as f64;
            Skew { pages: share, pages_count: count as u64, references }
        };
        let once = self.references.partition_point(|references| *references > 1);
        Findings {
            reads: self.requests[0],
            writes: self.requests[1],
            ahead: self.ahead,
            read_bytes: self.bytes[0],
            written_bytes: self.bytes[1],
            without_bytes: self.without_bytes,
            times_back: self.times_back,
            sequential: self.sequential,
            first_ns: self.first_ns.min(self.last_ns),
            last_ns: self.last_ns,
            files: self.ends.len() as u64,
            references: self.references_all,
            pages: pages as u64,
            references_max: self.references.first().copied().map_or(0, u64::from),
            pages_once: (pages - once) as u64,
            page_writes: self.written,
            skew: SKEW_SHARES.map(share_of).to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::PageBytes;

    #[test]
    fn an_empty_trace_has_nothing() {
        let found = Summary::new(Paging::Whole).findings();
        assert_eq!((found.reads, found.pages, found.first_ns, found.last_ns), (0, 0, 0, 0));
        assert_eq!(found.skew[0].references, 0.0);
    }

    #[test]
    fn requests_are_counted() {
        let mut summary = Summary::new(Paging::Split(PageBytes::DEFAULT));
        let mut add = |time_ns, kind, file, address, length| {
            summary.add(Request { time_ns, address, length, file, kind });
        };
        add(10, Kind::Read, 1, 0, 8192);
        add(20, Kind::Read, 1, 8192, 16_384);
        add(15, Kind::Write, 2, 0, 100);
        add(30, Kind::Write, 2, 100, 0);
        add(40, Kind::Read, 1, 24_576, 1);
        add(50, Kind::Read, 1, 0, 1);
        let found = summary.findings();
        assert_eq!((found.reads, found.writes, found.without_bytes), (4, 2, 1));
        assert_eq!((found.read_bytes, found.written_bytes), (24_578, 100));
        assert_eq!((found.times_back, found.sequential, found.files), (1, 3, 2));
        assert_eq!((found.first_ns, found.last_ns), (10, 50));
        assert_eq!((found.references, found.pages, found.page_writes), (6, 5, 1));
        assert_eq!((found.references_max, found.pages_once), (2, 4));
        assert_eq!(found.skew[0], Skew { pages: 0.1, pages_count: 1, references: 2.0 / 6.0 });
    }
}
