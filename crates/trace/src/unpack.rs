//! Compressed files, recognized by their first bytes and unpacked while they are read.
//!
//! - U1: a file is several compressed streams one after the other, or one; all are unpacked.
//! - U2: what a stream asks for in memory is bounded: [`WINDOW_KIB_MAX`].
//! - U3: checksums of the streams are verified where the streams have them.
//! - U4: an error comes after all bytes that could be unpacked before it.
//!
//! Zstandard (RFC 8878) by `ruzstd`, gzip (RFC 1952) by `flate2`, xz by `lzma-rust2`: all are plain
//! Rust.

use lzma_rust2::{Action, Status, XzStream};
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufRead, BufReader, Read};

/// Most memory for the window of an xz stream, in KiB; `ruzstd` has a bound of 100 MiB.
const WINDOW_KIB_MAX: u32 = 256 * 1024;
/// Bytes of packed data that are read at a time.
const PACKED_BYTES: usize = 1 << 16;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// Zstandard.
    Zstd,
    /// Gzip.
    Gzip,
    /// Xz.
    Xz,
}

impl Packing {
    /// What the first bytes of a file say.
    pub fn of(head: &[u8]) -> Packing {
        match head {
            [0x28, 0xB5, 0x2F, 0xFD, ..] => Packing::Zstd,
            [0x50..=0x5F, 0x2A, 0x4D, 0x18, ..] => Packing::Zstd,
            [0x1F, 0x8B, 8, ..] => Packing::Gzip,
            [0xFD, b'7', b'z', b'X', b'Z', 0, ..] => Packing::Xz,
            _ => Packing::Plain,
        }
    }

    /// Its name: `plain`, `zstd`, `gzip` or `xz`.
    pub fn name(self) -> &'static str {
        match self {
            Packing::Plain => "plain",
            Packing::Zstd => "zstd",
            Packing::Gzip => "gzip",
            Packing::Xz => "xz",
        }
    }
}

impl Packing {
    /// How names of files end that are compressed so.
    pub fn ending(self) -> &'static str {
        match self {
            Packing::Plain => "",
            Packing::Zstd => ".zst",
            Packing::Gzip => ".gz",
            Packing::Xz => ".xz",
        }
    }
}

/// Tells how `packed` is compressed, and unpacks it.
///
/// # Errors
///
/// The first bytes cannot be read.
pub fn unpack(mut packed: Box<dyn Read>) -> io::Result<(Packing, Box<dyn Read>)> {
    let mut head = Vec::new();
    packed.by_ref().take(8).read_to_end(&mut head)?;
    let packing = Packing::of(&head);
    let whole = io::Cursor::new(head).chain(packed);
    if packing == Packing::Plain {
        return Ok((packing, Box::new(whole)));
    }
    let buffered = BufReader::with_capacity(PACKED_BYTES, whole);
    Ok((
        packing,
        match packing {
            Packing::Zstd => Box::new(ZstdReader::new(buffered)),
            Packing::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(buffered)),
            _ => Box::new(XzUnpacker::new(buffered)),
        },
    ))
}

/// Unpacks streams of xz until there are no more.
struct XzUnpacker<R> {
    packed: R,
    stream: XzStream,
    ended: bool,
}

/// Bytes that are unpacked at a time: those of a step that fails are lost.
const XZ_STEP_BYTES: usize = 1 << 12;

impl<R: BufRead> XzUnpacker<R> {
    fn new(packed: R) -> XzUnpacker<R> {
        XzUnpacker { packed, stream: XzStream::new_mem_limit(true, WINDOW_KIB_MAX), ended: false }
    }
}

impl<R: BufRead> Read for XzUnpacker<R> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let step = target.len().min(XZ_STEP_BYTES);
        let target = &mut target[..step];
        while !self.ended && !target.is_empty() {
            let packed = self.packed.fill_buf()?;
            let action = if packed.is_empty() { Action::Finish } else { Action::Run };
            let done = self.stream.process(packed, target, action)?;
            let is_stuck = done.bytes_consumed == 0 && done.bytes_produced == 0;
            self.packed.consume(done.bytes_consumed);
            self.ended = done.status == Status::StreamEnd;
            if done.bytes_produced > 0 {
                return Ok(done.bytes_produced);
            }
            if is_stuck && !self.ended {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(0)
    }
}

/// Unpacks frames of Zstandard until there are no more.
struct ZstdReader<R> {
    packed: R,
    decoder: FrameDecoder,
    /// Whether `decoder` is inside a frame.
    open: bool,
    /// Why the frame breaks off, until what was unpacked of it is read.
    failure: Option<io::Error>,
}

/// A last block without bytes, and a checksum. The decoder holds back as many bytes as later blocks
/// may refer to, until it has seen the last block.
const LAST_BLOCK: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

impl<R: BufRead> ZstdReader<R> {
    fn new(packed: R) -> ZstdReader<R> {
        ZstdReader { packed, decoder: FrameDecoder::new(), open: false, failure: None }
    }

    /// Begins the next frame, over skippable ones. Returns whether there is one.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.packed.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.packed) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = self.packed.by_ref().take(u64::from(length));
                    if io::copy(&mut skipped, &mut io::sink())? < u64::from(length) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(_) => return Err(self.flaw()?),
            }
        }
        Ok(false)
    }

    /// Why a frame cannot be decoded, in words: the decoder's own error is a nest of types.
    fn flaw(&mut self) -> io::Result<io::Error> {
        Ok(match self.packed.fill_buf()?.is_empty() {
            true => io::ErrorKind::UnexpectedEof.into(),
            false => io::Error::new(io::ErrorKind::InvalidData, "a frame cannot be decoded"),
        })
    }

    /// Ends a frame that breaks off, so that what was unpacked can be read.
    fn break_off(&mut self) -> io::Result<()> {
        let error = self.flaw()?;
        match self.decoder.decode_blocks(&LAST_BLOCK[..], BlockDecodingStrategy::UptoBlocks(1)) {
            Ok(_) => {
                self.failure = Some(error);
                Ok(())
            }
            Err(_) => Err(error),
        }
    }

    fn check_sum(&self) -> io::Result<()> {
        match self.decoder.get_checksum_from_data() {
            Some(sum) if self.decoder.get_calculated_checksum() != Some(sum) => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "a frame has another checksum"))
            }
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Read for ZstdReader<R> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.open {
                self.open = self.next_frame()?;
                if !self.open {
                    return Ok(0);
                }
            }
            let found = self.decoder.read(target)?;
            if found > 0 || target.is_empty() {
                return Ok(found);
            }
            if self.decoder.is_finished() {
                self.open = false;
                match self.failure.take() {
                    Some(error) => return Err(error),
                    None => self.check_sum()?,
                }
                continue;
            }
            let most = BlockDecodingStrategy::UptoBytes(target.len());
            if self.decoder.decode_blocks(&mut self.packed, most).is_err() {
                self.break_off()?;
            }
        }
    }
}
