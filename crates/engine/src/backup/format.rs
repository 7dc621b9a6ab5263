//! The backup format: pages and log in one stream of bytes, as it goes through a pipe.
//!
//! ```text
//! backup: head, frames (see `frames`), with the magic "TERRBACK" and version 1
//!         the frames' salt is the checksum of the backup's id: frames of others do not pass
//!
//! kind      payload
//! 1 begin   offset size field
//!                0   16 database     id of the database
//!               16   16 backup       random id of this backup
//!               32   16 parent       id of the backup that it stands upon, or zero: it is whole
//!               48    8 since        it has the pages with this LSN or a higher one; 0: all
//!               56    8 home_pages   pages that the home may have
//!               64    4 format       format of the database
//!               68    4 reserved     zero
//!               72   24 features     compatible, read_only, incompatible, as in the superblock
//! 2 pages        0    8 first        the first of pages that are next to each other
//!                8      pages        1 to 128, whole and with their checksums
//! 3 log          0    8 position     where the first record begins
//!                8      records      whole ones, one after another
//! 4 freed     each   16              8 page, 8 LSN: it was freed before it was copied
//! 5 end          0    8 log_start    where the first record of the log begins
//!                8    8 checkpoint   BEGIN_CHKPT: the pages have all that comes before
//!               16    8 checkpoint_end  where the record END_CHKPT ends
//!               24    8 oldest_txn   oldestTxLSN, all ones if there was none
//!               32    8 end          where the log ends: the moment of the copy
//!               40    8 next_txn
//!               48    8 mark         pages changed later have this LSN or a higher one; all ones
//!                                    if no backup can stand upon this one
//!               56    8 pages        frames of pages have so many
//!               64    8 frames       frames before this one
//!               72    4 epoch
//!               76    4 reserved     zero
//!
//! backup = begin (pages | log | freed)* end
//! ```
//!
//! - B1: log frames follow each other without gaps, from `log_start` to `end`.
//! - B2: a page may come more than once, in frames of pages or as one that was freed: the last one
//!   counts.
//! - B3: a backup without `end` was cut short. `end` has a fixed length and tells its own number,
//!   so that it can be read from the end of a file.

use std::io::{self, Read, Seek, SeekFrom, Write};

use terrace_page::{Lsn, PAGE_SIZE, PageId, TxnId};

use crate::frames::{FRAME_HEAD, FRAME_TAIL, FrameReader, FrameWriter, StreamKind, checksum};
use crate::superblock::Features;

use super::error::RestoreError;

/// Pages in one frame at most.
pub(super) const PAGES_MAX: usize = 128;
/// Bytes of records in one frame at most.
pub(super) const LOG_MAX: usize = PAGES_MAX * PAGE_SIZE;
/// Freed pages in one frame at most.
pub(super) const FREED_MAX: usize = 4096;
pub(super) const BACKUP: StreamKind =
    StreamKind { magic: *b"TERRBACK", version: 1, payload_max: 8 + PAGES_MAX * PAGE_SIZE };

const BEGIN: u8 = 1;
const PAGES: u8 = 2;
const LOG: u8 = 3;
const FREED: u8 = 4;
const END: u8 = 5;
const BEGIN_BYTES: usize = 96;
const END_BYTES: usize = 80;
const FREED_BYTES: usize = 16;
const _: () = assert!(FREED_MAX * FREED_BYTES <= BACKUP.payload_max);

/// What a backup is of, and what it stands upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begin {
    pub(super) database: u128,
    pub(super) backup: u128,
    pub(super) parent: u128,
    pub(super) since: Lsn,
    pub(super) home_pages: u64,
    pub(super) format: u32,
    pub(super) features: Features,
}

/// What the superblock of a copy says, and what the stream must have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) log_start: Lsn,
    pub(super) checkpoint: Lsn,
    pub(super) checkpoint_end: Lsn,
    pub(super) oldest_txn: Lsn,
    pub(super) end: Lsn,
    pub(super) next_txn: TxnId,
    pub(super) mark: Lsn,
    pub(super) pages: u64,
    pub(super) frames: u64,
    pub(super) epoch: u32,
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u128_at(bytes: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(bytes[at..at + 16].try_into().expect("sixteen bytes"))
}

/// Of the frames of a backup.
fn salt_of(backup: u128) -> u32 {
    crc32c::crc32c(&backup.to_le_bytes())
}

impl Begin {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BEGIN_BYTES);
        for id in [self.database, self.backup, self.parent] {
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes.extend_from_slice(&self.since.0.to_le_bytes());
        bytes.extend_from_slice(&self.home_pages.to_le_bytes());
        bytes.extend_from_slice(&self.format.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        let Features { compatible, read_only, incompatible } = self.features;
        for bits in [compatible, read_only, incompatible] {
            bytes.extend_from_slice(&bits.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Begin> {
        if bytes.len() != BEGIN_BYTES {
            return None;
        }
        Some(Begin {
            database: u128_at(bytes, 0),
            backup: u128_at(bytes, 16),
            parent: u128_at(bytes, 32),
            since: Lsn(u64_at(bytes, 48)),
            home_pages: u64_at(bytes, 56),
            format: u32_at(bytes, 64),
            features: Features {
                compatible: u64_at(bytes, 72),
                read_only: u64_at(bytes, 80),
                incompatible: u64_at(bytes, 88),
            },
        })
    }
}

impl End {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(END_BYTES);
        let numbers = [
            self.log_start.0,
            self.checkpoint.0,
            self.checkpoint_end.0,
            self.oldest_txn.0,
            self.end.0,
            self.next_txn.0,
            self.mark.0,
            self.pages,
            self.frames,
        ];
        for number in numbers {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.epoch.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<End> {
        if bytes.len() != END_BYTES {
            return None;
        }
        let end = End {
            log_start: Lsn(u64_at(bytes, 0)),
            checkpoint: Lsn(u64_at(bytes, 8)),
            checkpoint_end: Lsn(u64_at(bytes, 16)),
            oldest_txn: Lsn(u64_at(bytes, 24)),
            end: Lsn(u64_at(bytes, 32)),
            next_txn: TxnId(u64_at(bytes, 40)),
            mark: Lsn(u64_at(bytes, 48)),
            pages: u64_at(bytes, 56),
            frames: u64_at(bytes, 64),
            epoch: u32_at(bytes, 72),
        };
        let is_ordered = end.log_start == end.checkpoint.min(end.oldest_txn)
            && end.checkpoint < end.checkpoint_end
            && end.checkpoint_end <= end.end;
        is_ordered.then_some(end)
    }
}

/// Writes a backup.
pub(super) struct Writer<W: Write> {
    frames: FrameWriter<W>,
    pub(super) pages: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a backup.
    ///
    /// # Errors
    ///
    /// Those of `out`; so for all that is written.
    pub(super) fn new(out: W, begin: &Begin) -> io::Result<Writer<W>> {
        let mut frames = FrameWriter::new(out, &BACKUP)?;
        frames.salt = salt_of(begin.backup);
        frames.frame(BEGIN, &[&begin.encode()])?;
        Ok(Writer { frames, pages: 0 })
    }

    /// Adds pages that are next to each other.
    pub(super) fn pages(&mut self, first: PageId, pages: &[u8]) -> io::Result<()> {
        self.pages += (pages.len() / PAGE_SIZE) as u64;
        self.frames.frame(PAGES, &[&first.0.to_le_bytes(), pages])
    }

    /// Adds records.
    pub(super) fn log(&mut self, position: Lsn, records: &[u8]) -> io::Result<()> {
        self.frames.frame(LOG, &[&position.0.to_le_bytes(), records])
    }

    /// Adds freed pages.
    pub(super) fn freed(&mut self, freed: &[(PageId, Lsn)]) -> io::Result<()> {
        let bytes =
            freed.iter().flat_map(|(page, lsn)| [page.0.to_le_bytes(), lsn.0.to_le_bytes()]);
        self.frames.frame(FREED, &[&bytes.flatten().collect::<Vec<u8>>()])
    }

    /// Ends the backup. Returns how many bytes it has.
    pub(super) fn end(mut self, end: End) -> io::Result<u64> {
        let end = End { pages: self.pages, frames: self.frames.frames(), ..end };
        self.frames.frame(END, &[&end.encode()])?;
        self.frames.out.flush()?;
        Ok(self.frames.bytes())
    }
}

/// What a reader meets behind `begin`, in order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    Pages { first: PageId, pages: &'a [[u8; PAGE_SIZE]] },
    Log { position: Lsn, records: &'a [u8] },
    Freed(&'a [u8]),
    End(End),
}

/// The page and the LSN of each entry of a frame of freed pages.
pub(super) fn freed_in(bytes: &[u8]) -> impl Iterator<Item = (PageId, Lsn)> {
    let entries = bytes.as_chunks::<FREED_BYTES>().0.iter();
    entries.map(|entry| (PageId(u64_at(entry, 0)), Lsn(u64_at(entry, 8))))
}

/// Reads a backup.
pub(super) struct Reader<R: Read> {
    frames: FrameReader<R>,
    pub(super) begin: Begin,
    pages: u64,
}

impl<R: Read> Reader<R> {
    /// Begins to read.
    ///
    /// # Errors
    ///
    /// `Input`, `NotABackup`, `Newer`, `Cut`, `Damaged`.
    pub(super) fn new(input: R) -> Result<Reader<R>, RestoreError> {
        let mut frames = FrameReader::new(input, &BACKUP)?;
        let salt = |payload: &[u8]| Some(salt_of(Begin::decode(payload)?.backup));
        let kind = frames.read_frame(salt)?;
        let begin = Begin::decode(frames.payload()).filter(|_| kind == BEGIN);
        let begin = begin.ok_or_else(|| frames.damaged("it does not begin like a backup"))?;
        Ok(Reader { frames, begin, pages: 0 })
    }

    /// What comes next. After `End` there is nothing: it must not be asked again.
    ///
    /// # Errors
    ///
    /// `Input`, `Cut`, `Damaged`.
    pub(super) fn next_part(&mut self) -> Result<Part<'_>, RestoreError> {
        let kind = self.frames.next_frame()?;
        if kind == END {
            let (pages, frames) = (self.pages, self.frames.frames() - 1);
            let counts = |end: &End| end.pages == pages && end.frames == frames;
            let end = End::decode(self.frames.payload()).filter(counts);
            let end = end.ok_or_else(|| self.damaged("its end makes no sense"))?;
            self.frames.check_end()?;
            return Ok(Part::End(end));
        }
        let bad = self.damaged("a frame makes no sense");
        let payload = self.frames.payload();
        if kind == FREED {
            let is_whole = !payload.is_empty() && payload.len().is_multiple_of(FREED_BYTES);
            return if is_whole { Ok(Part::Freed(payload)) } else { Err(bad) };
        }
        let Some((first, rest)) = payload.split_first_chunk::<8>() else { return Err(bad) };
        let first = u64::from_le_bytes(*first);
        match (kind, rest.as_chunks::<PAGE_SIZE>()) {
            (PAGES, ([_, ..], [])) => {
                let pages = rest.as_chunks::<PAGE_SIZE>().0;
                if first.checked_add(pages.len() as u64).is_none() {
                    return Err(bad);
                }
                self.pages += pages.len() as u64;
                Ok(Part::Pages { first: PageId(first), pages })
            }
            (LOG, _) if !rest.is_empty() => Ok(Part::Log { position: Lsn(first), records: rest }),
            _ => Err(bad),
        }
    }

    /// Something is wrong with what was read last.
    pub(super) fn damaged(&self, what: &'static str) -> RestoreError {
        self.frames.damaged(what).into()
    }
}

/// What the beginning and the end of a whole backup say.
///
/// # Errors
///
/// `Input`, `NotABackup`, `Newer`, `Cut`, `Damaged`.
pub(super) fn ends(mut input: impl Read + Seek) -> Result<(Begin, End), RestoreError> {
    let begin = Reader::new(&mut input)?.begin;
    let bytes = (FRAME_HEAD + END_BYTES + FRAME_TAIL) as u64;
    let len = input.seek(SeekFrom::End(0)).map_err(RestoreError::Input)?;
    let cut = || RestoreError::Cut { at: len };
    let at = len.checked_sub(bytes).ok_or_else(cut)?;
    input.seek(SeekFrom::Start(at)).map_err(RestoreError::Input)?;
    let mut frame = [0; FRAME_HEAD + END_BYTES + FRAME_TAIL];
    input.read_exact(&mut frame).map_err(RestoreError::Input)?;
    let (head, rest) = frame.split_at(FRAME_HEAD);
    let (payload, sum) = rest.split_at(END_BYTES);
    let frames = u64_at(payload, 64);
    if head[0] != END || checksum(salt_of(begin.backup), frames, head, payload) != u32_at(sum, 0) {
        return Err(cut());
    }
    let what = "its end makes no sense";
    let end = End::decode(payload).ok_or(RestoreError::Damaged { at, what })?;
    Ok((begin, end))
}
