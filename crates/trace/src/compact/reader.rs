//! Reads a file of the format, block by block.
//!
//! - R1: a block is decoded only if its checksum holds; all of its requests come, or none.
//! - R2: behind damage the next header with a checksum that holds is looked for; what lies between
//!   is one bad block.

use super::layout::{
    BLOCK_MAGIC, BlockHeader, CompactHeader, FILE_MAGIC, HEADER_BYTES, HeaderBytes, TRAILER_MAGIC,
    Trailer,
};
use super::record;
use crate::error::{BadField, Place, Problem, TraceError};
use crate::reader::{Decode, More, Opened, ReadOptions};
use crate::request::{Addressing, Request};
use crate::tally::Tally;
use crate::window::Window;
use memchr::memchr;

/// Whether `head` begins a file of the format.
pub fn is_compact(head: &[u8]) -> bool {
    head.starts_with(&FILE_MAGIC)
}

/// Reads the header of the file.
///
/// # Errors
///
/// It is not there, or damaged, which nothing can skip.
pub fn open(mut window: Window, _: &ReadOptions) -> Result<Opened, TraceError> {
    window.fill(HEADER_BYTES)?;
    let place = Place::Block { number: 0, offset: 0 };
    let Some(bytes) = window.available().first_chunk::<HEADER_BYTES>() else {
        let what = BadField { field: "file header", problem: Problem::Missing };
        return Err(window.bad(place, what));
    };
    let header = CompactHeader::decode(bytes).map_err(|what| window.bad(place, what))?;
    window.consume(HEADER_BYTES);
    let CompactHeader { addressing, paging, clock } = header;
    let decoder = Box::new(CompactDecoder { window, addressing, requests: 0, blocks: 0 });
    Ok(Opened { decoder, addressing, paging, clock })
}

struct CompactDecoder {
    window: Window,
    addressing: Addressing,
    /// Requests of the blocks so far, those of bad blocks included where that is known.
    requests: u64,
    /// Blocks so far.
    blocks: u64,
}

enum Header {
    Block(BlockHeader),
    Trailer(Trailer),
}

impl CompactDecoder {
    fn place(&self) -> Place {
        Place::Block { number: self.blocks, offset: self.window.offset() }
    }

    fn bad(&self, place: Place, field: &'static str, problem: Problem) -> TraceError {
        self.window.bad(place, BadField { field, problem })
    }

    /// The header at the start of the window.
    fn header(&self) -> Option<Header> {
        let bytes: &HeaderBytes = self.window.available().first_chunk()?;
        let block = BlockHeader::decode(bytes).map(Header::Block);
        block.or_else(|| Trailer::decode(bytes).map(Header::Trailer))
    }

    /// Consumes until the next header. Returns whether there is one.
    fn find_header(&mut self) -> Result<bool, TraceError> {
        const FIRST: u8 = BLOCK_MAGIC[0];
        const _: () = assert!(BLOCK_MAGIC[0] == TRAILER_MAGIC[0]);
        while self.window.fill(HEADER_BYTES)? >= HEADER_BYTES {
            if self.header().is_some() {
                return Ok(true);
            }
            let available = self.window.available();
            let skipped = memchr(FIRST, &available[1..]).map_or(available.len(), |at| at + 1);
            self.window.consume(skipped);
        }
        Ok(false)
    }

    /// Decodes the block that follows `header`.
    fn block(
        &mut self,
        header: BlockHeader,
        place: Place,
        batch: &mut Vec<Request>,
        tally: &mut Tally,
    ) -> Result<More, TraceError> {
        let bytes = header.record_bytes as usize;
        self.window.consume(HEADER_BYTES);
        if self.window.fill(bytes)? < bytes {
            self.window.consume(self.window.available().len());
            tally.bad(self.bad(place, "requests", Problem::Missing))?;
            return Ok(More::No);
        }
        let out_of_place = header.first != self.requests;
        self.requests = header.first.saturating_add(u64::from(header.requests));
        let records = &self.window.available()[..bytes];
        let decoded = if crc32c::crc32c(records) == header.record_crc {
            record::decode(records, header.requests, self.addressing, batch)
        } else {
            Err(BadField { field: "requests", problem: Problem::Checksum })
        };
        if decoded.is_err() {
            // R1: a caller that refuses bad input gets the error for the block, not half of its
            // requests.
            batch.clear();
        }
        self.window.consume(bytes);
        if let Err(what) = decoded {
            tally.bad(self.window.bad(place, what))?;
        } else if out_of_place && tally.skipped == 0 {
            // A block is missing without a trace of it.
            tally.bad(self.bad(place, "first request", Problem::Contradiction))?;
        }
        Ok(More::Yes)
    }

    /// Checks the end of the file.
    fn trailer(
        &mut self,
        trailer: Trailer,
        place: Place,
        tally: &mut Tally,
    ) -> Result<More, TraceError> {
        self.window.consume(HEADER_BYTES);
        let agrees = (trailer.requests, trailer.blocks) == (self.requests, self.blocks - 1);
        if !agrees && tally.skipped == 0 {
            tally.bad(self.bad(place, "trailer", Problem::Contradiction))?;
        }
        if self.window.fill(1)? > 0 {
            tally.bad(self.bad(place, "trailer", Problem::Extra))?;
        }
        Ok(More::No)
    }
}

impl Decode for CompactDecoder {
    fn decode(&mut self, batch: &mut Vec<Request>, tally: &mut Tally) -> Result<More, TraceError> {
        self.blocks += 1;
        let place = self.place();
        if self.window.fill(HEADER_BYTES)? < HEADER_BYTES {
            tally.bad(self.bad(place, "trailer", Problem::Missing))?;
            return Ok(More::No);
        }
        match self.header() {
            Some(Header::Block(header)) => self.block(header, place, batch, tally),
            Some(Header::Trailer(trailer)) => self.trailer(trailer, place, tally),
            None => {
                tally.bad(self.bad(place, "block header", Problem::Checksum))?;
                Ok(if self.find_header()? { More::Yes } else { More::No })
            }
        }
    }
}
