//! Streams of frames, as dumps and backups are: each frame with a kind, a length and a checksum.
//!
//! ```text
//! head:   8 magic, 4 version, 4 reserved (zero), 4 checksum of these 16 bytes
//! frame:  1 kind, 4 length, payload, 4 checksum of: salt, 8 number of the frame, kind, length,
//!         payload
//! ```
//!
//! Numbers are little-endian; checksums are CRC-32C. The salt is zero, or the checksum of something
//! that tells one stream from others of its kind.
//!
//! - F1: a frame's checksum covers its number, so that a frame that is missing, twice, or elsewhere
//!   is seen, and one of another stream if the streams have salts.
//! - F2: a reader takes no more memory for a frame than the longest frame of its kind of stream.

use std::io::{self, ErrorKind, Read, Write};

/// Bytes of a stream before its first frame.
pub(crate) const HEAD: usize = 20;
/// Bytes of a frame before its payload, and behind it.
pub(crate) const FRAME_HEAD: usize = 5;
pub(crate) const FRAME_TAIL: usize = 4;

/// What tells a kind of stream.
pub(crate) struct StreamKind {
    pub(crate) magic: [u8; 8],
    /// The version that is written, and the newest that is read.
    pub(crate) version: u32,
    /// No payload is longer.
    pub(crate) payload_max: usize,
}

/// Why frames cannot be read.
#[derive(Debug)]
pub(crate) enum FrameError {
    /// Reading failed.
    Io(io::Error),
    /// The stream is of another kind.
    Foreign,
    /// Of a newer version.
    Newer { found: u32 },
    /// It ends early, after so many bytes.
    Cut { at: u64 },
    /// The frame that begins there is not what was written.
    Damaged { at: u64, what: &'static str },
}

/// The checksum of a frame.
pub(crate) fn checksum(salt: u32, number: u64, head: &[u8], payload: &[u8]) -> u32 {
    let sum = crc32c::crc32c_append(salt, &number.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(sum, head), payload)
}

/// The head of a stream.
pub(crate) fn head(kind: &StreamKind) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&kind.magic);
    head[8..12].copy_from_slice(&kind.version.to_le_bytes());
    let sum = crc32c::crc32c(&head[..16]);
    head[16..].copy_from_slice(&sum.to_le_bytes());
    head
}

/// Writes frames.
pub(crate) struct FrameWriter<W: Write> {
    pub(crate) out: W,
    /// Of the frames to come.
    pub(crate) salt: u32,
    frames: u64,
    bytes: u64,
}

impl<W: Write> FrameWriter<W> {
    /// Begins a stream.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub(crate) fn new(mut out: W, kind: &StreamKind) -> io::Result<FrameWriter<W>> {
        out.write_all(&head(kind))?;
        Ok(FrameWriter { out, salt: 0, frames: 0, bytes: HEAD as u64 })
    }

    /// Writes a frame, whose payload comes in parts.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub(crate) fn frame(&mut self, kind: u8, payload: &[&[u8]]) -> io::Result<()> {
        let len: usize = payload.iter().map(|part| part.len()).sum();
        let mut head = [kind; FRAME_HEAD];
        head[1..].copy_from_slice(&(len as u32).to_le_bytes());
        let sum = checksum(self.salt, self.frames, &head, &[]);
        let sum = payload.iter().fold(sum, |sum, part| crc32c::crc32c_append(sum, part));
        self.frames += 1;
        self.bytes += (FRAME_HEAD + len + FRAME_TAIL) as u64;
        self.out.write_all(&head)?;
        payload.iter().try_for_each(|part| self.out.write_all(part))?;
        self.out.write_all(&sum.to_le_bytes())
    }

    /// Frames written so far: the number of the next one.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// Bytes written so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Reads frames.
pub(crate) struct FrameReader<R: Read> {
    input: R,
    /// Of the frames to come.
    pub(crate) salt: u32,
    payload_max: usize,
    /// Bytes read, frames read, and where the last one began.
    at: u64,
    frames: u64,
    began: u64,
    payload: Vec<u8>,
}

impl<R: Read> FrameReader<R> {
    /// Begins to read a stream.
    ///
    /// # Errors
    ///
    /// See [`FrameError`].
    pub(crate) fn new(mut input: R, kind: &StreamKind) -> Result<FrameReader<R>, FrameError> {
        let mut head = [0; HEAD];
        let read = fill(&mut input, &mut head).map_err(FrameError::Io)?;
        if head[..8] != kind.magic {
            return Err(FrameError::Foreign);
        }
        if read < HEAD {
            return Err(FrameError::Cut { at: read as u64 });
        }
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four"));
        if word(16) != crc32c::crc32c(&head[..16]) {
            return Err(FrameError::Damaged { at: 0, what: "its head has another checksum" });
        }
        if word(8) > kind.version {
            return Err(FrameError::Newer { found: word(8) });
        }
        let (at, payload) = (HEAD as u64, Vec::new());
        let payload_max = kind.payload_max;
        Ok(FrameReader { input, salt: 0, payload_max, at, frames: 0, began: 0, payload })
    }

    /// The next frame's kind. Its payload is then in `payload`.
    ///
    /// # Errors
    ///
    /// `Io`, `Cut`, `Damaged`.
    pub(crate) fn next_frame(&mut self) -> Result<u8, FrameError> {
        self.read_frame(|_| None)
    }

    /// As `next_frame`; `salt` says which salt the stream has from this frame on, if its payload
    /// tells.
    ///
    /// # Errors
    ///
    /// As `next_frame`.
    pub(crate) fn read_frame(
        &mut self,
        salt: impl FnOnce(&[u8]) -> Option<u32>,
    ) -> Result<u8, FrameError> {
        self.began = self.at;
        let mut head = [0; FRAME_HEAD];
        self.take(&mut head)?;
        let len = u32::from_le_bytes(head[1..].try_into().expect("four bytes")) as usize;
        if len > self.payload_max {
            return Err(self.damaged("a frame is too long"));
        }
        let mut payload = std::mem::take(&mut self.payload);
        payload.resize(len, 0);
        let taken = self.take(&mut payload);
        self.payload = payload;
        taken?;
        let mut sum = [0; FRAME_TAIL];
        self.take(&mut sum)?;
        let salt = salt(&self.payload).unwrap_or(self.salt);
        if u32::from_le_bytes(sum) != checksum(salt, self.frames, &head, &self.payload) {
            return Err(self.damaged("a frame has another checksum"));
        }
        self.salt = salt;
        self.frames += 1;
        Ok(head[0])
    }

    /// Of the last frame.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Frames read so far.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// Something is wrong with the last frame.
    pub(crate) fn damaged(&self, what: &'static str) -> FrameError {
        FrameError::Damaged { at: self.began, what }
    }

    /// Nothing follows.
    ///
    /// # Errors
    ///
    /// `Io`, `Damaged`.
    pub(crate) fn check_end(&mut self) -> Result<(), FrameError> {
        let mut more = [0];
        match fill(&mut self.input, &mut more).map_err(FrameError::Io)? {
            0 => Ok(()),
            _ => Err(self.damaged("something follows its end")),
        }
    }

    fn take(&mut self, bytes: &mut [u8]) -> Result<(), FrameError> {
        let read = fill(&mut self.input, bytes).map_err(FrameError::Io)?;
        self.at += read as u64;
        if read < bytes.len() { Err(FrameError::Cut { at: self.at }) } else { Ok(()) }
    }
}

/// Reads until `bytes` are full or the input ends; returns how many were read.
fn fill(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match input.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
