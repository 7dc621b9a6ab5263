//! The flash device at an opening: which database it belongs to, and what the log says of its
//! pages.
//!
//! ```text
//! look: header    superblock: stamps      adopt: header   superblock   analysis    settle: images
//! (read only) --> (old, new), durable --> new stamp ----> (new) -----> shows ----> to the pool
//! ```
//!
//! - F1: home names the new stamp before the device has it, and the old one until then: a cut
//!   between the two leaves a device that is still believed. Nothing else changes on home, log or
//!   flash meanwhile; once something may, a copy of the device from before the opening is refused.
//! - F2: while the database runs without a flash device, home names none.
//! - F3: a database that needs what is on its flash is not opened without it, and a device that is
//!   refused is left as it was, as are home and log.
//! - F4: the last opening may have counted on copies that this one's design does not keep. Then all
//!   that home lacks is redone, and home says so: the next opening cannot count on them either.

use std::sync::Arc;

use terrace_device::Device;
use terrace_page::{Lsn, PAGE_SIZE};
use terrace_policy::RestartKind;
use terrace_pool::{ColdStart, FlashNeed, FlashRecovery, LogFacts, PoolConfig, ScanFrom};
use terrace_rt::World;

use crate::open::Setup;
use crate::recovery::Analysis;
use crate::superblock::{FlashMark, Superblock};
use crate::{Devices, Error};

/// Bytes of changes that may wait in memory to be redone, for each frame of it: half as much again.
const OWED_BYTES_PER_FRAME: usize = PAGE_SIZE / 2;

/// The flash device, if the database has one, and what was found on it.
pub(crate) struct FoundFlash {
    device: Option<Arc<dyn Device>>,
    pub(crate) recovery: FlashRecovery,
}

impl FoundFlash {
    /// Looks at the device without writing. The pool is divided as the tier is that it has.
    pub(crate) fn look(setup: &mut Setup, devices: &Devices, boot: &Superblock) -> FoundFlash {
        let device = devices.flash.clone().filter(|_| setup.pool.design.uses_flash());
        if let Some(flash) = &device {
            setup.pool.divide_as(&**flash, boot.database, boot.needs_flash());
        }
        let mut recovery = match &device {
            Some(flash) => FlashRecovery::look(
                &setup.pool.of_restart(),
                &**flash,
                boot.database,
                boot.flash.stamps,
                (boot.clean, need_of(boot)),
            ),
            None => FlashRecovery::nothing(&setup.pool.of_restart()),
        };
        if let Some(why) = setup.flash_doubt.filter(|_| need_of(boot) == FlashNeed::Optional) {
            recovery.doubt(why);
        }
        FoundFlash { device, recovery }
    }

    /// Refuses to go on where flash is needed and is not what it was (F3).
    ///
    /// # Errors
    ///
    /// `FlashNeeded`.
    pub(crate) fn check(&self, setup: &Setup, boot: &Superblock) -> Result<(), Error> {
        let role = setup.pool.flash_role;
        let why = match self.recovery.cold() {
            Some(why) if need_of(boot) == FlashNeed::Needed => why,
            None if need_of(boot) == FlashNeed::Needed && !role.is_persistent() => {
                ColdStart::NotPersistent
            }
            // A device that could not be stamped cannot be a part of the database.
            Some(why @ ColdStart::Device(_)) if role.is_persistent() => why,
            _ => return Ok(()),
        };
        Err(Error::FlashNeeded { path: None, why })
    }

    /// Whether the device is this database's, as far as its header tells.
    pub(crate) fn is_believed(&self) -> bool {
        self.recovery.stamp() != 0
    }

    /// Bytes of changes that may be kept in memory, for pages that are redone when they are first
    /// read: none unless the restart method is `warm`, and analysis begins late enough.
    pub(crate) fn owed_bytes(&self, pool: &PoolConfig) -> usize {
        let is_warm = pool.restart.kind == RestartKind::Warm;
        match self.recovery.scan_from() {
            ScanFrom::OldestBase if is_warm => pool.frames as usize * OWED_BYTES_PER_FRAME,
            _ => 0,
        }
    }

    /// The stamps that home is to name from now on: the device's, and a new one.
    pub(crate) fn stamps(&self, world: &World, epoch: u32) -> [u64; 2] {
        match self.device {
            Some(_) => {
                let drawn = world.draw().wrapping_add(u64::from(epoch) << 32);
                [self.recovery.stamp(), drawn.max(1)]
            }
            None => [0, 0],
        }
    }

    /// Gives the device the stamp that home names next, has home forget the old one, and reads the
    /// device's table.
    ///
    /// # Errors
    ///
    /// `Device` if home cannot be written; `FlashNeeded`.
    pub(crate) fn adopt(
        &mut self,
        setup: &Setup,
        home: &dyn Device,
        boot: &mut Superblock,
    ) -> Result<(), Error> {
        let Some(device) = &self.device else { return Ok(()) };
        self.recovery.adopt(&**device, boot.flash.stamps[1]);
        self.check(setup, boot)?;
        // Zero if the device could not be written: then home is to know none.
        let stamps = [self.recovery.adopted(); 2];
        boot.sequence += 1;
        boot.flash = FlashMark { stamps, ..boot.flash };
        if !setup.pool.keeps_bases() {
            // F4.
            boot.oldest_base = boot.oldest_base.min(boot.oldest_dirty);
        }
        boot.write(home)?;
        self.recovery.load(&**device, boot.flash.journal, boot.begin_checkpoint);
        self.check(setup, boot)
    }

    /// Holds what was found against the log, which ends at `end`.
    ///
    /// # Errors
    ///
    /// `FlashNeeded`; with `LogLost` it is of a later moment, and the opening is to begin anew, in
    /// doubt of it, if the database can do without.
    pub(crate) fn settle(
        &mut self,
        setup: &Setup,
        analysis: &Analysis,
        boot: &Superblock,
        end: Lsn,
    ) -> Result<(), Error> {
        let Some(device) = self.device.as_ref().filter(|_| self.is_believed()) else {
            return Ok(());
        };
        let facts = LogFacts {
            start: boot.log_start(),
            end,
            dirty: &|page| analysis.dirty.get(&page).map(|entry| (entry.rec_lsn, entry.last_lsn)),
            redo_base: &|page| analysis.dirty.get(&page).map(|entry| entry.base),
        };
        self.recovery.settle(&**device, &facts);
        match self.recovery.cold() {
            Some(why @ ColdStart::LogLost) => Err(Error::FlashNeeded { path: None, why }),
            _ => self.check(setup, boot),
        }
    }
}

fn need_of(boot: &Superblock) -> FlashNeed {
    if boot.needs_flash() { FlashNeed::Needed } else { FlashNeed::Optional }
}
