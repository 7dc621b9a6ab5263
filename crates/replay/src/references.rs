//! A trace as a simulator wants it: page numbers in the order of their requests, read once.
//!
//! - Idea: pages are numbered as they first appear, so that all that is known of a page stands in
//!   arrays, and nothing is hashed while policies run.
//! - R1: every number is below `pages_count`.
//! - R2: reads that a scan announces are no references: they stand beside them.
//! - Cost: 4 bytes and two bits for each reference, 8 bytes for each announced read, at most 27
//!   bytes for each page.
//! - Not for: traces whose references do not fit memory.

use terrace_trace::{Interner, Kind, PageKey, PageRequest, Pages, Paging, Request, TraceError};

/// A trace, as page numbers.
pub struct References {
    pages: Vec<u32>,
    /// A bit for each reference.
    writes: Vec<u64>,
    /// The same: whether time had passed since the one before.
    waits: Vec<u64>,
    last_ns: u64,
    /// The references that were cut off from those before them, ascending.
    cuts: Vec<u32>,
    /// Pages that were announced, and the references before which they were, ascending.
    aheads: Vec<(u32, u32)>,
    names: Interner,
    span_ns: Option<(u64, u64)>,
}

impl References {
    /// Reads `requests` to their end, split into pages as `paging` says.
    ///
    /// # Errors
    ///
    /// What the reader met.
    pub fn read(
        requests: impl Iterator<Item = Result<Request, TraceError>>,
        paging: Paging,
    ) -> Result<References, TraceError> {
        let mut references = References::default();
        for request in Pages::new(requests, paging) {
            references.push(request?);
        }
        Ok(references)
    }

    /// Reads of these pages, named by their numbers.
    #[must_use]
    pub fn of_reads(pages: impl IntoIterator<Item = u64>) -> References {
        let mut references = References::default();
        for number in pages {
            let page = PageKey { file: 0, number };
            references.push(PageRequest { time_ns: 0, page, kind: Kind::Read });
        }
        references
    }

    /// Adds a reference, or what announces one.
    pub fn push(&mut self, request: PageRequest) {
        let at = self.pages.len();
        let page = self.names.intern(request.page);
        if request.kind == Kind::Ahead {
            self.aheads.push((at as u32, page));
            return;
        }
        self.pages.push(page);
        if at.is_multiple_of(64) {
            self.writes.push(0);
            self.waits.push(0);
        }
        if request.time_ns > self.last_ns {
            self.waits[at / 64] |= 1 << (at % 64);
            self.last_ns = request.time_ns;
        }
        if request.kind == Kind::Write {
            self.writes[at / 64] |= 1 << (at % 64);
        }
        let (first, last) = self.span_ns.unwrap_or((request.time_ns, request.time_ns));
        self.span_ns = Some((first.min(request.time_ns), last.max(request.time_ns)));
    }

    /// The next reference does not follow on from the last: something came between them.
    pub fn cut(&mut self) {
        self.cuts.push(self.pages.len() as u32);
    }

    /// The references that [`References::cut`] came before, ascending.
    #[must_use]
    pub fn cuts(&self) -> &[u32] {
        &self.cuts
    }

    /// Reads that a scan announced: the reference before which it did, ascending, and the page.
    #[must_use]
    pub fn aheads(&self) -> &[(u32, u32)] {
        &self.aheads
    }

    /// The number of the page of each reference.
    #[must_use]
    pub fn pages(&self) -> &[u32] {
        &self.pages
    }

    /// How many pages there are.
    #[must_use]
    pub fn pages_count(&self) -> u32 {
        self.names.len() as u32
    }

    /// Whether reference `at` writes.
    #[must_use]
    #[inline]
    pub fn is_write(&self, at: usize) -> bool {
        self.writes[at / 64] & (1 << (at % 64)) != 0
    }

    /// Whether time passed between the reference before and reference `at`.
    #[must_use]
    #[inline]
    pub fn has_waited(&self, at: usize) -> bool {
        self.waits[at / 64] & (1 << (at % 64)) != 0
    }

    /// The pages of 64 references at a time, and for each of these, from the lowest bit on, whether
    /// it writes, and whether time passed before it.
    pub fn by_word(&self) -> impl Iterator<Item = (&[u32], [u64; 2])> {
        let words = self.writes.iter().zip(&self.waits).map(|(&writes, &waits)| [writes, waits]);
        self.pages.chunks(64).zip(words)
    }

    /// How many references write.
    #[must_use]
    pub fn writes_count(&self) -> u64 {
        self.writes.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// The page with this number.
    #[must_use]
    pub fn name(&self, page: u32) -> PageKey {
        self.names.page(page)
    }

    /// Seconds from the earliest request to the latest.
    #[must_use]
    pub fn span_s(&self) -> f64 {
        self.span_ns.map_or(0.0, |(first, last)| (last - first) as f64 / 1e9)
    }

    /// Bytes allocated.
    #[must_use]
    pub fn bytes(&self) -> usize {
        4 * (self.pages.capacity() + self.cuts.capacity() + 2 * self.aheads.capacity())
            + 8 * (self.writes.capacity() + self.waits.capacity())
            + self.names.allocated_bytes()
    }
}

impl Default for References {
    fn default() -> References {
        References {
            pages: Vec::new(),
            writes: Vec::new(),
            waits: Vec::new(),
            last_ns: 0,
            cuts: Vec::new(),
            aheads: Vec::new(),
            names: Interner::new(),
            span_ns: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_trace::{ReadOptions, Reader};

    #[test]
    fn pages_are_numbered_as_they_appear() {
        let text = "ts_us,op,lba_bytes,size,file\n5,W,16384,8192,1\n2,R,8192,16384,1\n\
                    9,W,16384,8192,2\n";
        let reader = Reader::from_bytes("a.csv", text, &ReadOptions::default()).unwrap();
        let paging = reader.paging();
        let references = References::read(reader, paging).unwrap();
        assert_eq!(references.pages(), [0, 1, 0, 2]);
        assert_eq!((references.pages_count(), references.writes_count()), (3, 2));
        let writes: Vec<bool> = (0..4).map(|at| references.is_write(at)).collect();
        assert_eq!(writes, [true, false, false, true]);
        // Nor does it when times go back, or within a request of two pages.
        let waits: Vec<bool> = (0..4).map(|at| references.has_waited(at)).collect();
        assert_eq!(waits, [true, false, false, true]);
        let words: Vec<_> = references.by_word().collect();
        assert_eq!(words, [(references.pages(), [0b1001, 0b1001])]);
        assert_eq!(references.name(2), PageKey { file: 2, number: 2 });
        assert_eq!(references.span_s(), 7e-6);
    }
}
