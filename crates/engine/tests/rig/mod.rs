//! A home and a log that go from world to world.

use std::sync::Arc;

use terrace::{Builder, Database, Devices, Error};
use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Keep, Store};
use terrace_rt::{Prng, World};

/// The devices of one history.
pub struct Rig {
    home: Arc<SimDevice>,
    log: Arc<SimDevice>,
}

impl Rig {
    /// Blank ones of 16 and 4 MiB.
    pub fn blank(world: &World) -> Rig {
        Rig::with(world, 16 << 20, 4 << 20)
    }

    /// Blank ones of these bytes.
    pub fn with(world: &World, home_bytes: u64, log_bytes: u64) -> Rig {
        let device = |bytes| {
            let spec = Preset::Ram.spec().with_write_cache();
            SimDevice::new(spec, world.clone(), Store::new(bytes, Keep::Plain))
        };
        Rig { home: device(home_bytes), log: device(log_bytes) }
    }

    /// The power is cut.
    pub fn cut(&self, prng: &mut Prng) {
        self.home.power_cut(prng);
        self.log.power_cut(prng);
    }

    /// What they hold, in another world.
    pub fn in_world(&self, world: &World) -> Rig {
        Rig { home: self.home.reopen(world.clone()), log: self.log.reopen(world.clone()) }
    }

    /// The database that is on them, or a new one.
    pub fn open(&self, builder: Builder) -> Result<Database, Error> {
        let (home, log) = (Arc::clone(&self.home), Arc::clone(&self.log));
        builder.devices(Devices { home, flash: None, log }).open_or_create_on_devices()
    }
}
