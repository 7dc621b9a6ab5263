//! Whether a file or a block device is blank, and what it holds if it is not.
//!
//! Creating a database destroys what was there, so that is looked at first, in this order:
//!
//! 1. every row of `signatures`: what the tools of other systems write to be known by;
//! 2. the first and the last MiB, every byte;
//! 3. between them one page in each of [`SAMPLES`] equal stretches, drawn by a seed that the length
//!    fixes, so that a second look at the same bytes gives the same answer.
//!
//! - C1: [`Contents::Blank`] means that none of the three found a byte other than zero. Data that
//!   covers a share `s` of the middle is missed with a chance of `(1 - s)` to the power of
//!   [`SAMPLES`]: one byte in a hundred is found, but for one device in 20,000.
//! - C2: nothing is written, and what cannot be read is an error, never blank.
//!
//! Not for telling which file system it is for sure: a signature is a few bytes at a place.

mod signatures;

use std::fmt;
use std::io;

use self::signatures::SIGNATURES;
pub use self::signatures::{DATABASE, FLASH, FLASH_PART, LOG};

/// This many bytes at both ends are looked at.
const END_BYTES: u64 = 1 << 20;
/// Pages looked at between the ends.
pub const SAMPLES: u64 = 1000;
const PAGE: usize = 4096;
const SEED: u64 = 0x7e77_ace0_b1a2_c5ed;

/// Bytes that can be read at any place.
pub trait ReadAt {
    /// How many there are.
    fn len(&self) -> u64;
    /// Fills `into` with what begins at `offset`: the caller stays within the length.
    ///
    /// # Errors
    ///
    /// What the device says.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
    /// Whether there is no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a file or a block device holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Contents {
    /// Nothing but zeroes, as far as was looked.
    Blank,
    /// What this signature says, with its article: "a btrfs file system".
    Signature(&'static str),
    /// Something that is not known.
    Data {
        /// Of the first byte found that is not zero.
        offset: u64,
    },
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contents::Blank => f.write_str("nothing but zeroes"),
            Contents::Signature(name) => f.write_str(name),
            Contents::Data { offset } => write!(f, "data, at byte {offset} for instance"),
        }
    }
}

impl Contents {
    /// Looks at `source`.
    ///
    /// # Errors
    ///
    /// What reading says.
    pub fn of(source: &dyn ReadAt) -> io::Result<Contents> {
        if let Some(name) = Contents::signature(source)? {
            return Ok(Contents::Signature(name));
        }
        let found = match first_byte(source)? {
            Some(offset) => Contents::Data { offset },
            None => Contents::Blank,
        };
        Ok(found)
    }

    /// The first row of the table of signatures that fits `source`.
    ///
    /// # Errors
    ///
    /// What reading says.
    pub fn signature(source: &dyn ReadAt) -> io::Result<Option<&'static str>> {
        let mut ends = Ends { source, head: None, tail: None };
        for signature in SIGNATURES {
            for offset in signature.at.offsets(source.len(), signature.magic.len() as u64) {
                if ends.has(offset, signature.magic)? {
                    return Ok(Some(signature.name));
                }
            }
        }
        Ok(None)
    }
}

/// The source, with its first and its last MiB in memory once one of them is asked for: nearly all
/// signatures lie there.
struct Ends<'a> {
    source: &'a dyn ReadAt,
    head: Option<Vec<u8>>,
    tail: Option<Vec<u8>>,
}

impl Ends<'_> {
    /// Whether `magic` stands at `offset`, which with it lies within the length.
    fn has(&mut self, offset: u64, magic: &[u8]) -> io::Result<bool> {
        let len = self.source.len();
        let size = END_BYTES.min(len);
        let end = offset + magic.len() as u64;
        let (kept, from) = if end <= size {
            (&mut self.head, 0)
        } else if offset >= len - size {
            (&mut self.tail, len - size)
        } else {
            let mut found = vec![0; magic.len()];
            self.source.read_at(offset, &mut found)?;
            return Ok(found == magic);
        };
        if kept.is_none() {
            let mut bytes = vec![0; size as usize];
            self.source.read_at(from, &mut bytes)?;
            *kept = Some(bytes);
        }
        let bytes = kept.as_deref().unwrap_or_default();
        let at = (offset - from) as usize;
        Ok(bytes[at..at + magic.len()] == *magic)
    }
}

/// Where the first byte that is not zero was found.
fn first_byte(source: &dyn ReadAt) -> io::Result<Option<u64>> {
    let len = source.len();
    let size = END_BYTES.min(len);
    for from in [0, len - size] {
        let found = byte_within(source, from, size as usize)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    // Whole pages that no end has covered.
    let (from, to) = (size, (len - size).max(size));
    let pages = (to - from) / PAGE as u64;
    let stretches = SAMPLES.min(pages);
    let mut seed = SEED ^ len;
    for stretch in 0..stretches {
        let first = page_of(stretch, pages, stretches);
        let width = page_of(stretch + 1, pages, stretches) - first;
        let page = first + next(&mut seed) % width;
        let found = byte_within(source, from + page * PAGE as u64, PAGE)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The first page of a stretch.
fn page_of(stretch: u64, pages: u64, stretches: u64) -> u64 {
    (u128::from(stretch) * u128::from(pages) / u128::from(stretches)) as u64
}

fn byte_within(source: &dyn ReadAt, from: u64, size: usize) -> io::Result<Option<u64>> {
    let mut bytes = vec![0; size];
    source.read_at(from, &mut bytes)?;
    let at = bytes.iter().position(|&byte| byte != 0);
    Ok(at.map(|at| from + at as u64))
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests;
