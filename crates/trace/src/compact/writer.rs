//! Writes a file of the format.

use super::layout::{BLOCK_REQUESTS_MAX, BlockHeader, CompactHeader, RECORD_BYTES_MAX, Trailer};
use super::record;
use crate::request::Request;
use std::io::{self, Write};

/// Writes requests to `W`. Without [`CompactWriter::finish`] the file has no trailer, and its
/// readers will report that it is cut off.
pub struct CompactWriter<W> {
    out: W,
    block: Vec<Request>,
    records: Vec<u8>,
    requests: u64,
    blocks: u64,
}

/// A request takes at most a tag, two varints of ten bytes and two of five.
const _: () = assert!(2 + BLOCK_REQUESTS_MAX * (1 + 2 * 10 + 2 * 5) <= RECORD_BYTES_MAX);

impl<W: Write> CompactWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    ///
    /// `out` cannot be written.
    pub fn new(mut out: W, header: CompactHeader) -> io::Result<CompactWriter<W>> {
        out.write_all(&header.encode())?;
        let block = Vec::with_capacity(BLOCK_REQUESTS_MAX as usize);
        Ok(CompactWriter { out, block, records: Vec::new(), requests: 0, blocks: 0 })
    }

    /// Writes `request`.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn write(&mut self, request: Request) -> io::Result<()> {
        self.block.push(request);
        if self.block.len() == BLOCK_REQUESTS_MAX as usize {
            self.write_block()?;
        }
        Ok(())
    }

    fn write_block(&mut self) -> io::Result<()> {
        self.records.clear();
        record::encode(&self.block, &mut self.records);
        let header = BlockHeader {
            record_bytes: self.records.len() as u32,
            requests: self.block.len() as u32,
            record_crc: crc32c::crc32c(&self.records),
            first: self.requests,
        };
        self.out.write_all(&header.encode())?;
        self.out.write_all(&self.records)?;
        self.requests += self.block.len() as u64;
        self.blocks += 1;
        self.block.clear();
        Ok(())
    }

    /// Ends the file, and returns what it was written to.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        if !self.block.is_empty() {
            self.write_block()?;
        }
        let trailer = Trailer { requests: self.requests, blocks: self.blocks };
        self.out.write_all(&trailer.encode())?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// A file of one block of `requests` in these `records`, whatever they are, with the right
/// checksums: for the fuzzer, which does not guess them.
pub fn file_of(header: CompactHeader, requests: u32, records: &[u8]) -> Vec<u8> {
    let block = BlockHeader {
        record_bytes: records.len() as u32,
        requests,
        record_crc: crc32c::crc32c(records),
        first: 0,
    };
    let trailer = Trailer { requests: u64::from(requests), blocks: 1 };
    [&header.encode()[..], &block.encode(), records, &trailer.encode()].concat()
}
