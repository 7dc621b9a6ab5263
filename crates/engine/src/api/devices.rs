//! The devices of a database, and overlays over them for callers that must not change it.

use std::sync::Arc;

use terrace_device::{Device, Fuse, OnLoss, Overlay, OverlayMemory, Withholding};

use super::options::IoTimeouts;
use crate::Part;

/// The devices of a database: for modelled and faulty devices, or a storage of your own.
///
/// # Examples
///
/// In memory, for tests:
///
/// ```
/// use terrace_device::model::{Preset, build};
/// use terrace_device::{Keep, Store};
///
/// let memory = |bytes| {
///     let world = terrace::World::current();
///     build(Preset::Ram, world, Store::new(bytes, Keep::Plain)) as _
/// };
/// let devices =
///     terrace::Devices { home: memory(32 << 20), flash: None, log: memory(8 << 20) };
/// let db = terrace::Database::builder().devices(devices).create_on_devices()?;
/// db.close()?;
/// # Ok::<(), terrace::Error>(())
/// ```
#[derive(Clone)]
pub struct Devices {
    /// Where every page has its permanent place.
    pub home: Arc<dyn Device>,
    /// The flash tier, if there is one.
    pub flash: Option<Arc<dyn Device>>,
    /// The log.
    pub log: Arc<dyn Device>,
}

impl Devices {
    /// These, waited for no longer than `limits` allow; the flash is given up the first time that
    /// it does not answer, and home and log are written no more.
    pub(crate) fn within(self, limits: IoTimeouts) -> Devices {
        self.home.set_time_limit(limits.home);
        self.log.set_time_limit(limits.log);
        let fused = |flash| -> Arc<dyn Device> { Fuse::new(flash) };
        let flash = self.flash.map(fused);
        flash.iter().for_each(|flash| flash.set_time_limit(limits.flash));
        Devices { home: Fuse::for_writes(self.home), flash, log: Fuse::for_writes(self.log) }
    }

    /// The order in which `withheld` adds to a group.
    pub(crate) const WITHHELD: [Part; 3] = [Part::Home, Part::Log, Part::Flash];

    /// These, with what is written withheld until `group` lets it go. A flash that fails then
    /// ends that, and is given up, unless it is a part of the database.
    pub(crate) fn withheld(self, group: &Arc<Withholding>, needs_flash: bool) -> Devices {
        let over = |device, on_loss| -> Arc<dyn Device> { Arc::new(group.over(device, on_loss)) };
        let home = over(self.home, OnLoss::Stop);
        let log = over(self.log, OnLoss::Stop);
        let on_loss = if needs_flash { OnLoss::Stop } else { OnLoss::GiveUp };
        Devices { home, log, flash: self.flash.map(|flash| over(flash, on_loss)) }
    }

    /// These, below devices that keep what is written to themselves.
    pub(crate) fn read_only(self, memory: &Arc<OverlayMemory>) -> Devices {
        let over = |device| -> Arc<dyn Device> { Overlay::new(device, memory) };
        Devices { home: over(self.home), flash: self.flash.map(over), log: over(self.log) }
    }
}
