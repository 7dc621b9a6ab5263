//! The devices of a case: their bytes between two worlds, and what becomes of them while the power
//! is off.
//!
//! | fate | home and log | flash | may be found warm |
//! |---|---|---|---|
//! | `kept` | what the cut left | what the cut left | yes |
//! | `wiped` | what the cut left | zeroes | no |
//! | `half-wiped` | what the cut left | half of its pages zeroes | in part |
//! | `old-hour` | what the cut left | as when the path began | in part |
//! | `old-day` | what the cut left | of an earlier day | no |
//! | `foreign` | what the cut left | of another database | no |
//! | `restored` | of an earlier day | what the cut left | no |
//! | `forked` | of an earlier day, and used since with another flash | what the cut left | no |
//! | `flipped` | what the cut left | bits flipped in its first pages | in part |
//! | `rotten` | what the cut left | bits flipped all over | in part |
//! | `shrunk` | what the cut left | its first half, as a smaller device | no |
//! | `newer` | what the cut left | with the header of a newer version | no |
//!
//! - D1: whatever the fate, home and log are one database, and it is the ledger of that day that
//!   must be found: the flash may cost time, never a page.
//!   Where flash is a part of the database, case.K3 holds.
//! - D2: a tier that must not be found warm has no page in a slot before one was admitted.

use std::sync::Arc;

use terrace::Devices;
use terrace_device::model::{Faults, Mark, Preset, SimDevice, Spec};
use terrace_device::{Device, Keep, SECTOR_SIZE, Store};
use terrace_page::PAGE_SIZE;
use terrace_rt::{Prng, World};

/// Pages at home, and in the log.
pub(super) const PAGES: u64 = 512;
/// Pages of the flash device beside its slots: room for the table of any restart.
const TABLE_PAGES: u64 = 64;
/// How many of the first pages of a flash device `flipped` damages: header and table.
const FRONT_PAGES: u64 = 32;
/// Where the flash device says which version it is: see `terrace_pool::restart::header`.
const MAGIC: [u8; 8] = *b"TERRFLSH";
const MAGIC_AT: usize = 8;
const VERSION_AT: usize = 4;
const HEADER_BYTES: usize = 64;
/// Flipped bits, at most.
const FLIPS_MAX: u64 = 24;

/// What happened while the power was off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Nothing but the cut.
    Kept,
    /// The flash device was replaced by a blank one.
    Wiped,
    /// Half of its pages, drawn at random, are zeroes.
    HalfWiped,
    /// The flash device is as it was when the path began.
    OldHour,
    /// The flash device is of an earlier day.
    OldDay,
    /// The flash device is that of another database.
    Foreign,
    /// Home and log are of an earlier day, the flash device is not.
    Restored,
    /// As `Restored`, and the restored database was used with another flash device since.
    Forked,
    /// Bits are flipped in the flash device's first pages, where header and table are.
    Flipped,
    /// Bits are flipped all over the flash device.
    Rotten,
    /// The flash device has lost its second half.
    Shrunk,
    /// The header of the flash device is whole, and of a newer version.
    Newer,
}

impl Fate {
    /// All, in the order in which they are run.
    pub const ALL: [Fate; 12] = [
        Fate::Kept,
        Fate::Wiped,
        Fate::HalfWiped,
        Fate::OldHour,
        Fate::OldDay,
        Fate::Foreign,
        Fate::Restored,
        Fate::Forked,
        Fate::Flipped,
        Fate::Rotten,
        Fate::Shrunk,
        Fate::Newer,
    ];

    /// Its name in the command and its output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Fate::Kept => "kept",
            Fate::Wiped => "wiped",
            Fate::HalfWiped => "half-wiped",
            Fate::OldHour => "old-hour",
            Fate::OldDay => "old-day",
            Fate::Foreign => "foreign",
            Fate::Restored => "restored",
            Fate::Forked => "forked",
            Fate::Flipped => "flipped",
            Fate::Rotten => "rotten",
            Fate::Shrunk => "shrunk",
            Fate::Newer => "newer",
        }
    }

    /// Whether the flash device is one whose slots may not be believed (D2).
    pub(super) fn is_cold(self) -> bool {
        match self {
            Fate::Kept | Fate::HalfWiped | Fate::OldHour | Fate::Flipped | Fate::Rotten => false,
            Fate::Wiped | Fate::OldDay | Fate::Foreign | Fate::Restored | Fate::Forked => true,
            Fate::Shrunk | Fate::Newer => true,
        }
    }

    /// Whether the device is this session's, and has lost some of what it had acknowledged.
    pub(super) fn damages(self) -> bool {
        matches!(self, Fate::HalfWiped | Fate::OldHour | Fate::Flipped | Fate::Rotten)
    }

    /// The fate of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Fate> {
        Fate::ALL.into_iter().find(|fate| fate.name() == name)
    }
}

/// The bytes of the three devices while the power is off. Cloning is cheap.
#[derive(Clone)]
pub(super) struct Disks {
    pub home: Store,
    pub flash: Option<Store>,
    pub log: Store,
    /// Pages of the flash device that are slots.
    pub slots: u32,
}

impl Disks {
    /// Blank devices; no flash device if there are no slots.
    pub fn blank(slots: u32) -> Disks {
        Disks::sized(slots, PAGES)
    }

    /// The same, with `pages` at home and in the log.
    pub fn sized(slots: u32, pages: u64) -> Disks {
        let store = |pages: u64| Store::new(pages * PAGE_SIZE as u64, Keep::Plain);
        Disks {
            home: store(pages),
            flash: (slots > 0).then(|| store(u64::from(slots) + TABLE_PAGES)),
            log: store(pages),
            slots,
        }
    }

    /// The same home and log with a blank flash device.
    #[must_use]
    pub fn with_blank_flash(&self) -> Disks {
        Disks { flash: Disks::blank(self.slots).flash, ..self.clone() }
    }

    /// Zeroes half of the flash pages.
    pub fn wipe_half(&mut self, prng: &mut Prng) {
        let Some(flash) = &mut self.flash else { return };
        for page in 0..flash.len() / PAGE_SIZE as u64 {
            if prng.chance(2) {
                flash.write(page * PAGE_SIZE as u64, &[0; PAGE_SIZE]);
            }
        }
    }

    /// Flips up to `FLIPS_MAX` bits in the first `pages` of the flash device that are not zeroes.
    pub fn flip(&mut self, pages: u64, prng: &mut Prng) {
        let Some(flash) = &mut self.flash else { return };
        let pages = pages.min(flash.len() / PAGE_SIZE as u64);
        let mut bytes = [0; PAGE_SIZE];
        let mut is_written = |page: &u64| {
            flash.read(page * PAGE_SIZE as u64, &mut bytes).is_ok()
                && bytes.iter().any(|&byte| byte != 0)
        };
        let written: Vec<u64> = (0..pages).filter(&mut is_written).collect();
        if written.is_empty() {
            return;
        }
        for _ in 0..=prng.below(FLIPS_MAX) {
            let page = written[prng.below(written.len() as u64) as usize] * PAGE_SIZE as u64;
            flash.read(page, &mut bytes).expect("a plain store keeps all");
            // Most of a table page may be zeroes: one flip in two hits the front of the page.
            let span = if prng.chance(2) { 64 } else { PAGE_SIZE as u64 };
            let bit = prng.below(8 * span) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
            flash.write(page, &bytes);
        }
    }

    /// Flips bits where header and table are.
    pub fn flip_front(&mut self, prng: &mut Prng) {
        self.flip(FRONT_PAGES, prng);
    }

    /// Makes the flash device half as long, with half of the slots.
    pub fn shrink(&mut self) {
        let Some(flash) = &mut self.flash else { return };
        self.slots /= 2;
        let len = (u64::from(self.slots) + TABLE_PAGES) * PAGE_SIZE as u64;
        let mut half = Store::new(len, Keep::Plain);
        let mut bytes = [0; PAGE_SIZE];
        for at in (0..len).step_by(PAGE_SIZE) {
            flash.read(at, &mut bytes).expect("a plain store keeps all");
            half.write(at, &bytes);
        }
        *flash = half;
    }

    /// Makes the flash device one of a newer version, as that version might have left it.
    pub fn renew_version(&mut self) {
        let Some(flash) = &mut self.flash else { return };
        let mut sector = [0; SECTOR_SIZE];
        flash.read(0, &mut sector).expect("a plain store keeps all");
        let header = &mut sector[..HEADER_BYTES];
        if header[MAGIC_AT..MAGIC_AT + MAGIC.len()] != MAGIC {
            return;
        }
        header[VERSION_AT] += 1;
        let checksum = crc32c::crc32c(&header[VERSION_AT..]);
        header[..VERSION_AT].copy_from_slice(&checksum.to_le_bytes());
        flash.write(0, &sector);
    }

    /// Devices with these bytes in `world`, whose figures and write caches `prng` draws.
    pub fn power_on(&self, world: &World, prng: &mut Prng) -> Powered {
        let mut device = |store: &Store| {
            let faults = Faults { seed: prng.next_u64(), ..Faults::default() };
            SimDevice::with_faults(spec(prng), world.clone(), store.clone(), faults)
        };
        Powered {
            home: device(&self.home),
            log: device(&self.log),
            flash: self.flash.as_ref().map(device),
            slots: self.slots,
        }
    }
}

/// A device that finishes requests in varying order; mostly with a volatile write cache.
pub(in super::super) fn spec(prng: &mut Prng) -> Spec {
    let preset = match prng.below(3) {
        0 => Preset::Nvme,
        1 => Preset::Gp3,
        _ => Preset::Hdd7200,
    };
    match prng.chance(4) {
        true => preset.spec(),
        false => preset.spec().with_write_cache(),
    }
}

/// Which of the three devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Home,
    Flash,
    Log,
}

/// The devices while the power is on.
pub(super) struct Powered {
    home: Arc<SimDevice>,
    flash: Option<Arc<SimDevice>>,
    log: Arc<SimDevice>,
    slots: u32,
}

impl Powered {
    fn all(&self) -> impl Iterator<Item = (Part, &Arc<SimDevice>)> {
        let flash = self.flash.iter().map(|flash| (Part::Flash, flash));
        [(Part::Home, &self.home), (Part::Log, &self.log)].into_iter().chain(flash)
    }

    /// As the engine takes them.
    pub fn devices(&self) -> Devices {
        Devices {
            home: self.home.clone(),
            flash: self.flash.clone().map(|flash| flash as Arc<dyn Device>),
            log: self.log.clone(),
        }
    }

    /// The flash as its readers see it now.
    pub fn flash_now(&self) -> Option<Store> {
        self.flash.as_ref().map(|flash| flash.store())
    }

    pub fn record_writes(&self) {
        self.all().for_each(|(_, device)| device.record_writes());
    }

    /// Every write and barrier since `record_writes`.
    pub fn marks(&self) -> Vec<(Part, Mark)> {
        let marks = self
            .all()
            .flat_map(|(part, device)| device.marks().into_iter().map(move |mark| (part, mark)));
        let mut marks: Vec<_> = marks.collect();
        marks.sort_by_key(|(part, mark)| (mark.event, *part));
        marks
    }

    /// What is on the devices after an orderly end.
    pub fn power_off(&self) -> Disks {
        Disks {
            home: self.home.store(),
            flash: self.flash_now(),
            log: self.log.store(),
            slots: self.slots,
        }
    }

    /// What a power cut leaves. The world must be dead.
    pub fn cut(&self, prng: &mut Prng) -> (Disks, Torn) {
        let mut torn = Torn::default();
        for (_, device) in self.all() {
            let report = device.power_cut(prng);
            torn.exposed += report.exposed;
            torn.dropped += report.dropped;
            torn.torn += report.torn;
        }
        (self.power_off(), torn)
    }
}

/// What power cuts took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Torn {
    /// Writes that were in flight, or in a volatile cache.
    pub exposed: u64,
    /// Pages, or parts of one, of those writes that did not reach the medium.
    pub dropped: u64,
    /// Of which some sectors did.
    pub torn: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_fates() {
        for fate in Fate::ALL {
            assert_eq!(Fate::find(fate.name()), Some(fate));
        }
        assert_eq!(Fate::find("lost"), None);
    }

    #[test]
    fn damage_is_done_to_the_flash_alone() {
        let mut disks = Disks::blank(8);
        let flash = disks.flash.as_mut().expect("slots");
        (0..72).for_each(|page| flash.write(page * PAGE_SIZE as u64, &[7; PAGE_SIZE]));
        let before = disks.clone();
        let changed = |disks: &Disks, page: u64| {
            let mut bytes = [0; PAGE_SIZE];
            disks.flash.as_ref().unwrap().read(page * PAGE_SIZE as u64, &mut bytes).unwrap();
            bytes != [7; PAGE_SIZE]
        };
        disks.flip_front(&mut Prng::from_seed(1));
        assert!((0..FRONT_PAGES).any(|page| changed(&disks, page)));
        assert!(!(FRONT_PAGES..72).any(|page| changed(&disks, page)));
        disks = before.clone();
        disks.wipe_half(&mut Prng::from_seed(1));
        let wiped = (0..72).filter(|&page| changed(&disks, page)).count();
        assert!((20..52).contains(&wiped), "{wiped}");
        disks = before;
        disks.shrink();
        assert_eq!((disks.slots, disks.flash.unwrap().len()), (4, 68 * PAGE_SIZE as u64));
    }
}
