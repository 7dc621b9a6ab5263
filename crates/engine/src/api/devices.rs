//! The devices of a database, and overlays over them for whoever must not change it.

use std::sync::Arc;

use terrace_device::{Device, Fuse, Overlay, OverlayMemory};

use super::options::IoTimeouts;

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
    /// it does not answer.
    pub(crate) fn within(self, limits: IoTimeouts) -> Devices {
        self.home.set_time_limit(limits.home);
        self.log.set_time_limit(limits.log);
        let fused = |flash| -> Arc<dyn Device> { Fuse::new(flash) };
        let flash = self.flash.map(fused);
        flash.iter().for_each(|flash| flash.set_time_limit(limits.flash));
        Devices { flash, ..self }
    }

    /// These, below devices that keep what is written to themselves.
    pub(crate) fn read_only(self, memory: &Arc<OverlayMemory>) -> Devices {
        let over = |device| -> Arc<dyn Device> { Overlay::new(device, memory) };
        Devices { home: over(self.home), flash: self.flash.map(over), log: over(self.log) }
    }
}
