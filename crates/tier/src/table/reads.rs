//! Reads of slots: whether flash serves a page that memory has missed, and the end of the read.

use terrace_page::{Lsn, SlotId};
use terrace_policy::Tick;

use super::{READING, SlotTable};
use crate::{Shares, SlotOrder};

/// Which copies a page request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Any.
    Copy,
    /// Only a copy that is newer than home: otherwise home is read.
    OnlyNewer,
}

/// The devices, as a driver sees them when memory misses a page. Asked only where the answer
/// counts.
pub trait Devices {
    /// Whether the flash is to be spared, or gone: pages that home has are read there.
    fn is_flash_spared(&self) -> bool;
    /// Whether home serves reads of pages that both have, since requests wait for the flash.
    fn spills(&self) -> bool;
}

/// Devices that serve every request.
#[derive(Clone, Copy, Debug)]
pub struct IdleDevices;

impl Devices for IdleDevices {
    fn is_flash_spared(&self) -> bool {
        false
    }

    fn spills(&self) -> bool {
        false
    }
}

/// Which device serves a page that has a slot.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub enum Missed {
    /// Home: the slot has no copy of the kind that is wanted.
    Home,
    /// Home: the flash is to be spared.
    Spared,
    /// Home, though flash has the page: its use counts.
    Spilled,
    /// Flash.
    Flash(Reading),
}

/// A read of a slot, under way: it ends with `read_ended`.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct Reading {
    slot: u32,
    is_newer: bool,
}

impl Reading {
    /// The slot.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Whether home lacked changes of the copy when the read began.
    pub fn is_newer(&self) -> bool {
        self.is_newer
    }
}

/// What was read from a slot.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HasRead {
    /// Whether it may be the version that was written there.
    pub is_version: bool,
    /// Whether home lacked changes of the copy when the read began, and lacks them still.
    pub is_newer: bool,
}

impl<O: SlotOrder, S: Shares> SlotTable<O, S> {
    /// Memory has missed the page that `slot` holds, or is kept for.
    pub fn missed(
        &mut self,
        slot: u32,
        wanted: Wanted,
        now: Tick,
        devices: &impl Devices,
    ) -> Missed {
        let is_newer = self.is_newer(slot);
        if !self.is_valid(slot) || (wanted == Wanted::OnlyNewer && !is_newer) {
            return Missed::Home;
        }
        if !is_newer && devices.is_flash_spared() {
            return Missed::Spared;
        }
        self.order.hit(SlotId(slot), now);
        if !is_newer && devices.spills() {
            return Missed::Spilled;
        }
        self.states[slot as usize] |= READING;
        Missed::Flash(Reading { slot, is_newer })
    }

    /// A read has ended, with a page of this LSN if it is one.
    pub fn read_ended(&mut self, reading: Reading, lsn: Lsn) -> HasRead {
        let Reading { slot, is_newer } = reading;
        assert!(self.has(slot, READING), "nobody reads slot {slot}");
        self.states[slot as usize] &= !READING;
        HasRead { is_version: self.may_be(slot, lsn), is_newer: is_newer && self.is_newer(slot) }
    }
}
