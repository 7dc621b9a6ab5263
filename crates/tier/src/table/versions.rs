//! Which version of its page each slot holds: checked on every read of a slot, so that a copy that
//! a device lost, or brought back, is known for what it is.

use terrace_page::Lsn;

/// How much of a copy's LSN is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionBits {
    /// Nothing: a copy is known by its page id and checksum.
    None,
    /// The lower half: two versions of a page look the same only with exactly a multiple of 4 GiB
    /// of log between them.
    Low,
    /// All of it.
    Full,
}

/// The versions of all slots of a table.
pub(super) enum Versions {
    None,
    Low(Box<[u32]>),
    Full(Box<[u64]>),
}

impl Versions {
    pub fn new(count: u32, bits: VersionBits) -> Versions {
        match bits {
            VersionBits::None => Versions::None,
            VersionBits::Low => Versions::Low(vec![0; count as usize].into()),
            VersionBits::Full => Versions::Full(vec![0; count as usize].into()),
        }
    }

    pub fn bytes(&self) -> usize {
        match self {
            Versions::None => 0,
            Versions::Low(lows) => size_of_val::<[u32]>(lows),
            Versions::Full(lsns) => size_of_val::<[u64]>(lsns),
        }
    }

    pub fn set(&mut self, slot: u32, lsn: Lsn) {
        match self {
            Versions::None => {}
            Versions::Low(lows) => lows[slot as usize] = lsn.0 as u32,
            Versions::Full(lsns) => lsns[slot as usize] = lsn.0,
        }
    }

    /// Slot `to` has the bytes of `from`.
    pub fn copy(&mut self, from: u32, to: u32) {
        match self {
            Versions::None => {}
            Versions::Low(lows) => lows[to as usize] = lows[from as usize],
            Versions::Full(lsns) => lsns[to as usize] = lsns[from as usize],
        }
    }

    /// Whether a copy with `lsn` may be what was written into the slot.
    pub fn may_be(&self, slot: u32, lsn: Lsn) -> bool {
        match self {
            Versions::None => true,
            Versions::Low(lows) => lows[slot as usize] == lsn.0 as u32,
            Versions::Full(lsns) => lsns[slot as usize] == lsn.0,
        }
    }

    /// The version, if all of it is kept.
    pub fn full(&self, slot: u32) -> Option<Lsn> {
        match self {
            Versions::Full(lsns) => Some(Lsn(lsns[slot as usize])),
            Versions::None | Versions::Low(_) => None,
        }
    }
}
