//! The flash device at an opening: whose it is, and what the log says of its pages.
//!
//! ```text
//! look: header        boot page: stamps      adopt: header      analysis      settle: images
//! (read only)    ---> (old, new), durable --> new stamp   -----> shows   ----> to the pool
//! ```
//!
//! - F1: home names the new stamp before the device has it, and keeps naming the old one until the
//!   next opening: a cut between the two leaves a device that is still believed.
//! - F2: while the database runs without a flash device, home names none.

use std::sync::Arc;

use terrace_device::Device;
use terrace_page::Lsn;
use terrace_pool::{FlashRecovery, LogFacts};
use terrace_rt::World;

use crate::Devices;
use crate::open::Setup;
use crate::recovery::Analysis;
use crate::superblock::Superblock;

/// The flash device, if the database has one, and what was found on it.
pub(crate) struct FoundFlash {
    device: Option<Arc<dyn Device>>,
    pub(crate) recovery: FlashRecovery,
}

impl FoundFlash {
    /// Looks at the device without writing.
    pub(crate) fn look(setup: &Setup, devices: &Devices, boot: &Superblock) -> FoundFlash {
        let device = devices.flash.clone().filter(|_| setup.pool.design.uses_flash());
        let recovery = match &device {
            Some(flash) => FlashRecovery::look(
                &setup.pool,
                &**flash,
                boot.database,
                boot.flash.stamps,
                boot.clean,
            ),
            None => FlashRecovery::nothing(&setup.pool),
        };
        FoundFlash { device, recovery }
    }

    /// Whether the device is this database's, as far as its header tells.
    pub(crate) fn is_believed(&self) -> bool {
        self.recovery.stamp() != 0
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

    /// Gives the device the stamp that home names next, and reads its table.
    pub(crate) fn adopt(&mut self, boot: &Superblock) {
        if let Some(device) = &self.device {
            self.recovery.adopt(&**device, boot.flash.stamps[1]);
            self.recovery.load(&**device, boot.flash.journal);
        }
    }

    /// Holds what was found against the log, which ends at `end`.
    pub(crate) fn settle(&mut self, analysis: &Analysis, boot: &Superblock, end: Lsn) {
        let Some(device) = &self.device else { return };
        let facts = LogFacts {
            start: boot.log_start(),
            end,
            dirty: &|page| analysis.dirty.get(&page).map(|entry| (entry.rec_lsn, entry.last_lsn)),
            redo_base: &|_| None,
        };
        self.recovery.settle(&**device, &facts);
    }
}
