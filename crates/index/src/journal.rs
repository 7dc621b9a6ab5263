//! The journal of an index: operations before they are anywhere else, and what pages held before a
//! flush writes over them.
//!
//! ```text
//! device:  chunk | chunk | chunk | torn, or of an older epoch
//! chunk:   checksum 4 | bytes 4 | identity 8 | epoch 8 | number 8 | records ...  padded to sectors
//! record:  1 operation 9 | 2 page 4, image | 3 next 4, covered 1, low 4, high 4, bytes 4, state
//! ```
//!
//! - J1: a chunk is written by one force, behind the last, and never again: what a power cut does
//!   to it harms no older one. The first chunk that is not whole ends the journal.
//! - J2: an image is durable before its page is written (pages.G2).
//! - J3: a mark ends a flush: images before it are void, and of the operations before it those on
//!   the keys that it covers.
//! - J4: an epoch begins at the front again when the superblock of that epoch is durable; it covers
//!   all that was before.
//! - It is not the engine's log, which knows transactions and pages of 8 KiB only; it rests on the
//!   same devices.

use std::sync::Arc;

use terrace_device::{Device, SECTOR_SIZE, read, write};

use crate::Error;
use crate::entry::{Key, OP_BYTES, Op, long, number};
use crate::page::PageNo;

const CHUNK_HEADER_BYTES: usize = 32;
const TAG_OP: u8 = 1;
const TAG_IMAGE: u8 = 2;
const TAG_MARK: u8 = 3;
const MARK_FIXED_BYTES: usize = 17;

/// Keys that a flush has brought to their pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Covered {
    /// The lowest.
    pub(crate) low: Key,
    /// The highest.
    pub(crate) high: Key,
}

/// What a journal says after a crash.
#[derive(Default)]
pub(crate) struct Replay {
    /// The state at the last mark, if there is one, and the first page that was free then.
    pub(crate) mark: Option<(PageNo, Vec<u8>)>,
    /// What pages held at that mark.
    pub(crate) images: Vec<(PageNo, Vec<u8>)>,
    /// Operations that no mark covers.
    pub(crate) ops: Vec<Op>,
}

/// The journal of an open index.
pub(crate) struct Journal {
    device: Arc<dyn Device>,
    identity: u64,
    epoch: u64,
    /// Where the next chunk goes, and its number.
    at: u64,
    number: u64,
    records: Vec<u8>,
}

impl Journal {
    /// An empty journal of `epoch`.
    pub(crate) fn new(device: Arc<dyn Device>, identity: u64, epoch: u64) -> Journal {
        Journal { device, identity, epoch, at: 0, number: 0, records: Vec::new() }
    }

    /// Reads what is there of `epoch`, and goes on behind it.
    pub(crate) fn open(
        device: Arc<dyn Device>,
        identity: u64,
        epoch: u64,
        page_bytes: usize,
    ) -> Result<(Journal, Replay), Error> {
        let mut journal = Journal::new(device, identity, epoch);
        let mut replay = Replay::default();
        while let Some(records) = journal.next_chunk()? {
            replay.take(&records, page_bytes).ok_or(Error::NotAnIndex)?;
        }
        Ok((journal, replay))
    }

    fn next_chunk(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let left = self.device.len() - self.at;
        if left < SECTOR_SIZE as u64 {
            return Ok(None);
        }
        let mut first = vec![0; SECTOR_SIZE];
        read(&*self.device, self.at, &mut first)?;
        let len = number(&first, 4) as usize;
        let padded = chunk_bytes(len);
        let is_next = long(&first, 8) == self.identity
            && long(&first, 16) == self.epoch
            && long(&first, 24) == self.number
            && padded as u64 <= left;
        if !is_next {
            return Ok(None);
        }
        let mut chunk = vec![0; padded];
        read(&*self.device, self.at, &mut chunk)?;
        if number(&chunk, 0) != crc32c::crc32c(&chunk[4..]) {
            return Ok(None);
        }
        self.at += padded as u64;
        self.number += 1;
        Ok(Some(chunk[CHUNK_HEADER_BYTES..CHUNK_HEADER_BYTES + len].to_vec()))
    }

    /// An operation, durable with the next force.
    pub(crate) fn op(&mut self, op: Op) {
        self.records.push(TAG_OP);
        self.records.extend_from_slice(&op.encode());
    }

    /// What a page held at the last mark.
    pub(crate) fn image(&mut self, page: PageNo, bytes: &[u8]) {
        self.records.push(TAG_IMAGE);
        self.records.extend_from_slice(&page.to_le_bytes());
        self.records.extend_from_slice(bytes);
    }

    /// The end of a flush, after which the structure is in `state`.
    pub(crate) fn mark(&mut self, next: PageNo, covered: Option<Covered>, state: &[u8]) {
        let Covered { low, high } = covered.unwrap_or(Covered { low: 1, high: 0 });
        self.records.push(TAG_MARK);
        self.records.extend_from_slice(&next.to_le_bytes());
        self.records.push(u8::from(covered.is_some()));
        self.records.extend_from_slice(&low.to_le_bytes());
        self.records.extend_from_slice(&high.to_le_bytes());
        self.records.extend_from_slice(&(state.len() as u32).to_le_bytes());
        self.records.extend_from_slice(state);
    }

    /// Makes all records durable.
    pub(crate) fn force(&mut self) -> Result<(), Error> {
        if self.records.is_empty() {
            return Ok(());
        }
        let padded = chunk_bytes(self.records.len());
        let needed = self.at + padded as u64;
        if needed > self.device.len() {
            return Err(Error::JournalFull { needed });
        }
        let mut chunk = vec![0; padded];
        chunk[4..8].copy_from_slice(&(self.records.len() as u32).to_le_bytes());
        chunk[8..16].copy_from_slice(&self.identity.to_le_bytes());
        chunk[16..24].copy_from_slice(&self.epoch.to_le_bytes());
        chunk[24..CHUNK_HEADER_BYTES].copy_from_slice(&self.number.to_le_bytes());
        chunk[CHUNK_HEADER_BYTES..CHUNK_HEADER_BYTES + self.records.len()]
            .copy_from_slice(&self.records);
        let checksum = crc32c::crc32c(&chunk[4..]);
        chunk[..4].copy_from_slice(&checksum.to_le_bytes());
        write(&*self.device, self.at, &chunk)?;
        self.device.sync()?;
        self.at = needed;
        self.number += 1;
        self.records.clear();
        Ok(())
    }

    /// Begins `epoch` at the front.
    pub(crate) fn restart(&mut self, epoch: u64) {
        assert!(epoch > self.epoch, "epochs ascend");
        (self.epoch, self.at, self.number) = (epoch, 0, 0);
        self.records.clear();
    }

    /// Whether it is time to settle: half of the device is used.
    pub(crate) fn is_half_full(&self) -> bool {
        self.at + self.records.len() as u64 > self.device.len() / 2
    }
}

/// Bytes on the device of a chunk with `len` bytes of records.
fn chunk_bytes(len: usize) -> usize {
    (CHUNK_HEADER_BYTES + len).next_multiple_of(SECTOR_SIZE)
}

/// Changes a byte of chunk number `wanted` of a journal, and makes its checksum fit, for fuzzing.
pub(crate) fn edit(journal: &mut [u8], wanted: usize, offset: usize, byte: u8) {
    let mut at = 0;
    for number_of in 0..=wanted {
        let Some(header) = journal.get(at..at + CHUNK_HEADER_BYTES) else { return };
        let len = chunk_bytes(number(header, 4) as usize);
        let Some(chunk) = journal.get_mut(at..at + len) else { return };
        at += len;
        if number_of == wanted {
            // The length stays: another one would leave no chunk.
            let records = &mut chunk[CHUNK_HEADER_BYTES..];
            let place = offset % records.len();
            records[place] = byte;
            let checksum = crc32c::crc32c(&chunk[4..]);
            chunk[..4].copy_from_slice(&checksum.to_le_bytes());
        }
    }
}

impl Replay {
    /// Takes the records of a chunk; `None` if they are none.
    pub(crate) fn take(&mut self, mut records: &[u8], page_bytes: usize) -> Option<()> {
        while let Some((tag, rest)) = records.split_first() {
            records = match *tag {
                TAG_OP => {
                    let (op, rest) = rest.split_first_chunk::<OP_BYTES>()?;
                    self.ops.push(Op::decode(op)?);
                    rest
                }
                TAG_IMAGE => {
                    let (page, rest) = rest.split_at_checked(4)?;
                    let (image, rest) = rest.split_at_checked(page_bytes)?;
                    self.images.push((number(page, 0), image.to_vec()));
                    rest
                }
                TAG_MARK => self.take_mark(rest)?,
                _ => return None,
            };
        }
        Some(())
    }

    fn take_mark<'a>(&mut self, record: &'a [u8]) -> Option<&'a [u8]> {
        let (fixed, rest) = record.split_at_checked(MARK_FIXED_BYTES)?;
        let (state, rest) = rest.split_at_checked(number(fixed, 13) as usize)?;
        if fixed[4] == 1 {
            let covered = number(fixed, 5)..=number(fixed, 9);
            self.ops.retain(|op| !covered.contains(&op.key));
        }
        self.images.clear();
        self.mark = Some((number(fixed, 0), state.to_vec()));
        Some(rest)
    }
}
