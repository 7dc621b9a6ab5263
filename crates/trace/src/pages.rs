//! Requests as references to pages: each request touches the pages that its bytes lie in.
//!
//! - P1: pages come in the order of requests, and within a request in ascending order.
//! - P2: a page that a request covers in part is touched like any other.
//! - P3: a request of zero bytes touches no page.
//! - P4: the name of a page is its file and number; pages of different sizes are not to be mixed.

use crate::request::{Kind, Request};

/// Bytes of a page, a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageBytes {
    shift: u32,
}

impl PageBytes {
    /// Pages of 8 KiB, Terrace's own.
    pub const DEFAULT: PageBytes = PageBytes { shift: 13 };
    /// Pages of 512 bytes: sectors.
    pub const SECTOR: PageBytes = PageBytes { shift: 9 };

    /// Pages of `bytes`; none unless that is a power of two of at most 1 GiB.
    pub fn new(bytes: u64) -> Option<PageBytes> {
        let fits = bytes.is_power_of_two() && bytes <= 1 << 30;
        fits.then(|| PageBytes { shift: bytes.trailing_zeros() })
    }

    /// The number of bytes.
    pub fn get(self) -> u64 {
        1 << self.shift
    }
}

/// How requests become pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paging {
    /// Pages of this size, at multiples of it.
    Split(PageBytes),
    /// Each request is one page, whatever its length: that of its file and address.
    Whole,
}

/// The name of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageKey {
    /// The file or device.
    pub file: u32,
    /// Which of its pages; with [`Paging::Whole`], the address.
    pub number: u64,
}

/// A reference to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// When the request came, in nanoseconds.
    pub time_ns: u64,
    /// The page.
    pub page: PageKey,
    /// Whether it is read, written, or wanted soon.
    pub kind: Kind,
}

/// The pages of requests that come from `I`: an iterator over requests, or over requests and
/// errors, which are passed on.
pub struct Pages<I> {
    requests: I,
    paging: Paging,
    /// The request that is being split.
    time_ns: u64,
    file: u32,
    kind: Kind,
    next: u64,
    /// Pages of it that are left.
    left: u64,
}

impl<I> Pages<I> {
    /// Splits `requests` as `paging` says.
    pub fn new(requests: I, paging: Paging) -> Pages<I> {
        Pages { requests, paging, time_ns: 0, file: 0, kind: Kind::Read, next: 0, left: 0 }
    }

    /// Where the requests come from.
    pub fn requests(&self) -> &I {
        &self.requests
    }

    #[inline]
    fn begin(&mut self, request: Request) {
        (self.time_ns, self.file, self.kind) = (request.time_ns, request.file, request.kind);
        match self.paging {
            _ if request.length == 0 => self.left = 0,
            Paging::Whole => (self.next, self.left) = (request.address, 1),
            Paging::Split(PageBytes { shift }) => {
                self.next = request.address >> shift;
                // An object that is split after all may lie at the end of all numbers.
                let last = request.address.saturating_add(u64::from(request.length) - 1);
                self.left = (last >> shift) - self.next + 1;
            }
        }
    }
}

impl<I, E> Iterator for Pages<I>
where
    I: Iterator<Item = Result<Request, E>>,
{
    type Item = Result<PageRequest, E>;

    #[inline]
    fn next(&mut self) -> Option<Result<PageRequest, E>> {
        while self.left == 0 {
            match self.requests.next()? {
                Ok(request) => self.begin(request),
                Err(error) => return Some(Err(error)),
            }
        }
        let page = PageKey { file: self.file, number: self.next };
        self.left -= 1;
        self.next = self.next.wrapping_add(1);
        Some(Ok(PageRequest { time_ns: self.time_ns, page, kind: self.kind }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn pages(paging: Paging, requests: &[(u64, u32)]) -> Vec<u64> {
        let requests = requests.iter().map(|&(address, length)| {
            let kind = Kind::Write;
            Ok::<_, Infallible>(Request { time_ns: 5, address, length, file: 3, kind })
        });
        let split = Pages::new(requests, paging).map(|page| page.expect("no error"));
        split
            .map(|page| {
                assert_eq!((page.time_ns, page.page.file, page.kind), (5, 3, Kind::Write));
                page.page.number
            })
            .collect()
    }

    #[test]
    fn a_request_touches_the_pages_that_its_bytes_lie_in() {
        let eight = Paging::Split(PageBytes::DEFAULT);
        assert_eq!(pages(eight, &[(0, 8192)]), [0]);
        assert_eq!(pages(eight, &[(8191, 1), (8191, 2)]), [0, 0, 1]);
        assert_eq!(pages(eight, &[(8192, 63), (16_000, 20_000)]), [1, 1, 2, 3, 4]);
        assert_eq!(pages(Paging::Split(PageBytes::SECTOR), &[(512, 1024)]), [1, 2]);
    }

    #[test]
    fn a_request_of_nothing_touches_no_page() {
        assert_eq!(pages(Paging::Split(PageBytes::DEFAULT), &[(9000, 0), (1, 1)]), [0]);
        assert_eq!(pages(Paging::Whole, &[(9000, 0)]), []);
    }

    #[test]
    fn a_whole_request_is_one_page_whatever_its_address() {
        assert_eq!(pages(Paging::Whole, &[(77, 1 << 30), (u64::MAX, 9)]), [77, u64::MAX]);
        let top = pages(Paging::Split(PageBytes::DEFAULT), &[(u64::MAX, 9)]);
        assert_eq!(top, [u64::MAX >> 13]);
    }

    #[test]
    fn pages_agree_with_a_byte_by_byte_model() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..2_000 {
            let (address, length) = (random.u64(..10_000), random.u32(..3_000));
            let size = 1_u64 << random.u32(0..13);
            let mut touched: Vec<u64> =
                (address..address + u64::from(length)).map(|byte| byte / size).collect();
            touched.dedup();
            let paging = Paging::Split(PageBytes::new(size).expect("a power of two"));
            assert_eq!(pages(paging, &[(address, length)]), touched);
        }
    }

    #[test]
    fn page_sizes_are_powers_of_two() {
        assert_eq!(PageBytes::new(4096).map(PageBytes::get), Some(4096));
        for bytes in [0, 3, 1000, 1 << 31] {
            assert_eq!(PageBytes::new(bytes), None);
        }
    }
}
