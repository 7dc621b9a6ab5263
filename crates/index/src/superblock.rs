//! The first 8 KiB of an index: which structure it is, and its state at the last settling.
//!
//! ```text
//! offset size field
//!      0    4 checksum    CRC-32C of bytes 4..4096
//!      4    8 magic       "TERRIDX1"
//!     12    1 kind        see `Kind`
//!     13    3 reserved    zero
//!     16    4 page_bytes
//!     20    4 next        the first page that is not allocated
//!     24    8 epoch       settlings so far
//!     32    8 identity    the journal carries the same
//!     40    4 state_len
//!     44    . state       of the structure
//! ```
//!
//! Two slots of 4 KiB take turns by the parity of the epoch, so that a torn write leaves the other.

use std::fmt;
use std::ops::RangeInclusive;

use terrace_device::{Device, SECTOR_SIZE, read, write};

use crate::Error;
use crate::entry::{long, number};
use crate::page::{Page, PageKind, PageNo};

const SLOT_BYTES: usize = 4096;
/// Bytes of both slots.
pub(crate) const SLOTS_BYTES: usize = 2 * SLOT_BYTES;
/// Bytes that a page can have.
const PAGE_SIZES: RangeInclusive<usize> = SECTOR_SIZE..=64 << 10;
const MAGIC: &[u8; 8] = b"TERRIDX1";
const MAGIC_AT: usize = 4;
const KIND_AT: usize = MAGIC_AT + 8;
const PAGE_BYTES_AT: usize = KIND_AT + 4;
const NEXT_AT: usize = PAGE_BYTES_AT + 4;
const EPOCH_AT: usize = NEXT_AT + 4;
const IDENTITY_AT: usize = EPOCH_AT + 8;
const STATE_LEN_AT: usize = IDENTITY_AT + 8;
const STATE_AT: usize = STATE_LEN_AT + 4;
const _: () = assert!(STATE_AT == 44);

/// The first page behind the slots.
pub(crate) fn first_page(page_bytes: usize) -> PageNo {
    (2 * SLOT_BYTES).div_ceil(page_bytes) as PageNo
}

/// The structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The B+-tree with chained leaves.
    BTree = 1,
    /// The PIO B-tree.
    Pio = 2,
    /// The FD-tree.
    Fd = 3,
    /// BFTL.
    Bftl = 4,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 4] = [Kind::BTree, Kind::Pio, Kind::Fd, Kind::Bftl];

    fn of(byte: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Whether an index of this structure can have such a page: only leaves of the PIO B-tree have
    /// operations.
    pub(crate) fn has(self, page: &Page) -> bool {
        let is_node = page.is_of(PageKind::Node);
        match self {
            Kind::BTree => is_node && page.ops() == 0,
            Kind::Pio => is_node,
            Kind::Fd => page.is_of(PageKind::Run),
            Kind::Bftl => page.is_of(PageKind::Units) || is_node && page.ops() == 0,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::BTree => "B+-tree",
            Kind::Pio => "PIO B-tree",
            Kind::Fd => "FD-tree",
            Kind::Bftl => "BFTL",
        })
    }
}

/// What a slot says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) kind: Kind,
    pub(crate) page_bytes: usize,
    pub(crate) next: PageNo,
    pub(crate) epoch: u64,
    pub(crate) identity: u64,
    pub(crate) state: Vec<u8>,
}

impl Superblock {
    /// Writes the slot of its epoch. Durable after a sync.
    pub(crate) fn write(&self, device: &dyn Device) -> Result<(), Error> {
        let mut slot = vec![0; SLOT_BYTES];
        slot[MAGIC_AT..KIND_AT].copy_from_slice(MAGIC);
        slot[KIND_AT] = self.kind as u8;
        slot[PAGE_BYTES_AT..NEXT_AT].copy_from_slice(&(self.page_bytes as u32).to_le_bytes());
        slot[NEXT_AT..EPOCH_AT].copy_from_slice(&self.next.to_le_bytes());
        slot[EPOCH_AT..IDENTITY_AT].copy_from_slice(&self.epoch.to_le_bytes());
        slot[IDENTITY_AT..STATE_LEN_AT].copy_from_slice(&self.identity.to_le_bytes());
        slot[STATE_LEN_AT..STATE_AT].copy_from_slice(&(self.state.len() as u32).to_le_bytes());
        slot[STATE_AT..STATE_AT + self.state.len()].copy_from_slice(&self.state);
        let checksum = crc32c::crc32c(&slot[MAGIC_AT..]);
        slot[..MAGIC_AT].copy_from_slice(&checksum.to_le_bytes());
        write(device, self.epoch % 2 * SLOT_BYTES as u64, &slot)?;
        Ok(())
    }

    /// The newer of the two slots that are whole.
    pub(crate) fn read(device: &dyn Device, wanted: Kind) -> Result<Superblock, Error> {
        if device.len() < 2 * SLOT_BYTES as u64 {
            return Err(Error::NotAnIndex);
        }
        let mut slots = vec![0; 2 * SLOT_BYTES];
        read(device, 0, &mut slots)?;
        let whole = slots.chunks(SLOT_BYTES).filter_map(Superblock::decode);
        let newest = whole.max_by_key(|slot| slot.epoch).ok_or(Error::NotAnIndex)?;
        match newest.kind {
            found if found != wanted => Err(Error::OtherStructure { found, wanted }),
            _ => Ok(newest),
        }
    }

    fn decode(slot: &[u8]) -> Option<Superblock> {
        let sound = crc32c::crc32c(&slot[MAGIC_AT..]) == number(slot, 0);
        if !sound || slot[MAGIC_AT..KIND_AT] != MAGIC[..] {
            return None;
        }
        let state_len = number(slot, STATE_LEN_AT) as usize;
        let page_bytes = number(slot, PAGE_BYTES_AT) as usize;
        let is_page = page_bytes.is_multiple_of(SECTOR_SIZE) && PAGE_SIZES.contains(&page_bytes);
        // The next settling counts on.
        if !is_page || long(slot, EPOCH_AT) == u64::MAX {
            return None;
        }
        Some(Superblock {
            kind: Kind::of(slot[KIND_AT])?,
            page_bytes,
            next: number(slot, NEXT_AT),
            epoch: long(slot, EPOCH_AT),
            identity: long(slot, IDENTITY_AT),
            state: slot.get(STATE_AT..STATE_AT + state_len)?.to_vec(),
        })
    }
}

/// A slot of `bytes` with the right magic and checksum, for fuzzing.
pub(crate) fn fitting(bytes: &[u8]) -> Vec<u8> {
    let mut slot = vec![0; SLOT_BYTES];
    let len = bytes.len().min(SLOT_BYTES);
    slot[..len].copy_from_slice(&bytes[..len]);
    slot[MAGIC_AT..KIND_AT].copy_from_slice(MAGIC);
    let checksum = crc32c::crc32c(&slot[MAGIC_AT..]);
    slot[..MAGIC_AT].copy_from_slice(&checksum.to_le_bytes());
    slot
}
