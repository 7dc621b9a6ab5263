//! The bytes of a trace that are in memory: from the first that was not consumed to the last that
//! was read.
//!
//! - W1: `start <= end <= buffer.len()`; `start..end` are unconsumed bytes.
//! - W2: the buffer grows to what a caller asks for at once, and callers bound that.

use crate::error::{BadField, Place, TraceError};
use crate::unpack::Packing;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 1 << 18;

/// The window over an unpacked file.
pub struct Window {
    path: Arc<Path>,
    packing: Packing,
    source: Box<dyn Read>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes of the file before `start`.
    consumed: u64,
    ended: bool,
    /// Why the file ends here, until a caller wants more than is there.
    failure: Option<TraceError>,
}

impl Window {
    /// A window over `source`, the unpacked bytes of `path`.
    pub fn new(path: Arc<Path>, packing: Packing, source: Box<dyn Read>) -> Window {
        let buffer = vec![0; CHUNK_BYTES];
        let (start, end, consumed) = (0, 0, 0);
        Window { path, packing, source, buffer, start, end, consumed, ended: false, failure: None }
    }

    /// The bytes that are there.
    pub fn available(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Where in the unpacked file the first of them is.
    pub fn offset(&self) -> u64 {
        self.consumed
    }

    /// Lets go of the first `bytes`.
    pub fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.end - self.start, "only what is there can be consumed");
        self.start += bytes;
        self.consumed += bytes as u64;
    }

    /// Reads until at least `bytes` are there or the file ends, and returns how many are.
    ///
    /// # Errors
    ///
    /// The file cannot be read or unpacked, and fewer are there. They stay there, and the file ends
    /// behind them for later calls.
    pub fn fill(&mut self, bytes: usize) -> Result<usize, TraceError> {
        let there = self.look_ahead(bytes);
        match self.failure.take() {
            Some(error) if there < bytes => Err(error),
            failure => {
                self.failure = failure;
                Ok(there)
            }
        }
    }

    /// As [`Window::fill`], but leaves an error to the next `fill`.
    pub fn look_ahead(&mut self, bytes: usize) -> usize {
        while self.end - self.start < bytes && !self.ended {
            self.make_room(bytes);
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.ended = true;
                    self.failure = Some(self.failed(error));
                }
            }
        }
        self.end - self.start
    }

    /// Makes sure of room behind `end`, and for `bytes` from `start` on.
    fn make_room(&mut self, bytes: usize) {
        if self.start > 0 && (self.buffer.len() == self.end || self.start == self.end) {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let wanted = self.start + bytes;
        if self.buffer.len() < wanted || self.buffer.len() == self.end {
            self.buffer.resize(wanted.max(self.end) + CHUNK_BYTES, 0);
        }
    }

    fn failed(&self, source: io::Error) -> TraceError {
        let (path, offset) = (self.path.clone(), self.consumed + (self.end - self.start) as u64);
        // Decoders make errors of their own; the system's have a number.
        if self.packing == Packing::Plain || source.raw_os_error().is_some() {
            TraceError::Read { path, offset, source }
        } else {
            TraceError::Packed { path, offset, source }
        }
    }

    /// Something at `place` that breaks the format.
    pub fn bad(&self, place: Place, what: BadField) -> TraceError {
        TraceError::Bad { path: self.path.clone(), place, what }
    }
}
