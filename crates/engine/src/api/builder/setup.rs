//! What a builder makes of its options once the devices are known.

use std::path::Path;
use std::sync::Arc;

use terrace_device::{Access, Device};
use terrace_page::{LOG_BYTES_MAX, PAGE_SIZE};
use terrace_policy::{FlashRole, Restart, designs, restarts};
use terrace_pool::{FlashLayout, PoolConfig, PoolError};
use terrace_rt::{Nanos, World};

use super::{Builder, FRAMES_MIN};
use crate::Error;
use crate::api::{Checkpoints, Devices, Misses, TornPages};
use crate::open::Setup;
use crate::versions::{
    SpillTo, VERSION_BYTES_MAX, VERSION_BYTES_MIN, VERSION_LIMIT_MIN, VersionRoom,
};

impl Builder {
    pub(super) fn given(&self) -> Result<Devices, Error> {
        let what = "devices must be given, or a path";
        let given = self.devices.clone().ok_or(Error::InvalidOption { option: "devices", what })?;
        Ok(given.within(self.io_timeouts))
    }

    /// Checks what can be checked before anything is touched.
    pub(super) fn check(&self) -> Result<(), Error> {
        let bad = |option, what| Err(Error::InvalidOption { option, what });
        let page = PAGE_SIZE as u64;
        match self {
            _ if terrace_rt::in_callback() => Err(Error::Reentrant),
            _ if self.memory_bytes < FRAMES_MIN * page => {
                bad("memory", "memory must be at least 128 KiB")
            }
            _ if self.memory_bytes / page > u64::from(u32::MAX) => {
                bad("memory", "memory must be less than 32 TiB")
            }
            _ if self.log_bytes.is_some_and(|bytes| bytes < 1 << 20) => {
                bad("log_size", "the log must have at least 1 MiB")
            }
            _ if self.log_bytes.is_some_and(|bytes| bytes >= LOG_BYTES_MAX) => {
                bad("log_size", "the log must have less than 4 TiB")
            }
            _ if self.log_max.is_some_and(|bytes| bytes < 1 << 20) => {
                bad("log_max", "the log must have at least 1 MiB")
            }
            _ if self.log_max.is_some_and(|bytes| bytes >= LOG_BYTES_MAX) => {
                bad("log_max", "the log must have less than 4 TiB")
            }
            _ if self.home_bytes.is_some_and(|bytes| bytes < 64 * page) => {
                bad("home_size", "the home must have at least 512 KiB")
            }
            _ if self.flash.as_ref().is_some_and(|(_, bytes)| *bytes < 64 * page) => {
                bad("flash", "the flash must have at least 512 KiB")
            }
            _ if self.misses_path.as_ref().is_some_and(|path| !takes_misses(path)) => {
                bad("keep_misses", "the path must be that of a file of misses, or of no file")
            }
            _ if self.lock_limits.escalate_at == 0 => {
                bad("lock_escalation", "locks must escalate at one row or more")
            }
            _ if self.run_limit == 0 => bad("run_limit", "at least one closure must run at once"),
            _ if matches!(self.checkpoints, Checkpoints::Every(Nanos(0))) => {
                bad("checkpoints", "the time between checkpoints must not be zero")
            }
            _ if self.world.is_some() => Ok(()),
            _ => terrace_rt::start_default_world()
                .map_err(|source| Error::NoThread { source: Arc::new(source) }),
        }
    }

    pub(super) fn setup(&self) -> Result<Setup, Error> {
        let mut pool = self.pool.clone();
        pool.frames = (self.memory_bytes / PAGE_SIZE as u64) as u32;
        let flash = self.given()?.flash.map(|device| device.len());
        self.choose_design(&mut pool, flash.is_some())?;
        let role = pool.flash_role.refusal(&pool.design, &pool.restart);
        let restart = pool.restart.refusal(&pool.design).map(|what| ("restart", what));
        if let Some((option, what)) = restart.or(role.map(|what| ("flash_role", what))) {
            return Err(Error::InvalidOption { option, what });
        }
        let flash_bytes = self.flash.as_ref().map(|(_, bytes)| *bytes).or(flash).unwrap_or(0);
        if pool.flash_slots == 0 && pool.design.uses_flash() {
            if flash_bytes / PAGE_SIZE as u64 >= u64::from(u32::MAX) {
                let what = "the flash must be less than 32 TiB";
                return Err(Error::InvalidOption { option: "flash", what });
            }
            let pages = flash_bytes / PAGE_SIZE as u64;
            pool.flash_slots = FlashLayout::fitting(pages, pool.restart.kind).slots;
        }
        if !(VERSION_BYTES_MIN..=VERSION_BYTES_MAX).contains(&self.version_bytes) {
            let what = "versions must have at least 64 KiB, and at most 64 GiB";
            return Err(Error::InvalidOption { option: "version_memory", what });
        }
        let version_limit = self.version_limit.unwrap_or(match &self.version_device {
            Some(device) => device.len(),
            None => 0,
        });
        let is_small = |device: &Arc<dyn Device>| device.len() < VERSION_LIMIT_MIN;
        if version_limit > 0 && self.version_device.as_ref().is_some_and(is_small) {
            let what = "a device for versions must have at least 1 MiB";
            return Err(Error::InvalidOption { option: "version_device", what });
        }
        if (1..VERSION_LIMIT_MIN).contains(&version_limit) {
            let what = "versions on disk must have at least 1 MiB, or none";
            return Err(Error::InvalidOption { option: "version_limit", what });
        }
        let home = &self.given()?.home;
        let home_pages = home.len() / PAGE_SIZE as u64;
        if let Err(PoolError::Config { what, .. }) = pool.charge(home_pages) {
            return Err(Error::InvalidOption { option: "memory", what });
        }
        // The last of all checks: it cannot be taken back.
        let is_atomic = self.torn_pages == TornPages::Atomic && self.access == Access::ReadWrite;
        if is_atomic && !home.write_atomically(PAGE_SIZE as u64) {
            let what = "the drive or the file system of home does not write 8 KiB atomically \
                (or direct I/O is off): take TornPages::Doublewrite";
            return Err(Error::InvalidOption { option: "torn_pages", what });
        }
        Ok(Setup {
            pool,
            world: self.world.clone().unwrap_or_else(World::current),
            torn_pages: self.torn_pages,
            lock_bytes: self.lock_bytes,
            lock_limits: self.lock_limits,
            version_room: VersionRoom {
                memory: self.version_bytes,
                disk: version_limit,
                spill_to: self.spill_to(),
            },
            places: self.places.clone(),
            access: self.access,
            flash_doubt: self.flash_doubt,
            is_flash_foreign: self.is_flash_foreign,
            bad_label: self.bad_label,
            losers: self.losers,
            log_max: self.log_max,
        })
    }

    /// Where versions go for which memory has no room: a database that is read only has none.
    fn spill_to(&self) -> SpillTo {
        match (&self.version_device, &self.version_folder) {
            _ if self.access == Access::ReadOnly => SpillTo::Memory,
            (Some(device), _) => {
                device.set_time_limit(self.io_timeouts.home);
                SpillTo::Device(Arc::clone(device))
            }
            (None, Some(folder)) => SpillTo::Folder(folder.clone(), self.io_timeouts.home),
            (None, None) => SpillTo::Memory,
        }
    }

    /// The design and the restart method: as asked for, or what suits the devices. A reader may
    /// open the database without its flash, and so may an opening whose flash is silent or has
    /// failed: what needs the flash was refused by then, or is refused when its superblock is read.
    fn choose_design(&self, pool: &mut PoolConfig, has_flash: bool) -> Result<(), Error> {
        let asked = self.design.unwrap_or(pool.design);
        let may_leave_out = self.access == Access::ReadOnly || self.flash_doubt.is_some();
        let is_asked_for = asked.uses_flash() || self.flash.is_some();
        if !has_flash && is_asked_for && may_leave_out {
            pool.design = designs::find("no-ssd").expect("a row of the table");
            (pool.restart, pool.flash_slots) = (Restart::forget(), 0);
            pool.flash_role = FlashRole::Cache;
            return Ok(());
        }
        pool.design = match self.design {
            None if has_flash && !asked.uses_flash() => {
                designs::find("auto").expect("a row of the table")
            }
            _ => asked,
        };
        if pool.design.uses_flash() && !has_flash {
            let what = "the design needs a flash: give its path, or take no-ssd";
            return Err(Error::InvalidOption { option: "flash", what });
        }
        match self.restart {
            Some(restart) => pool.restart = restart,
            None if pool.design.uses_flash() && pool.restart == Restart::forget() => {
                pool.restart = restarts::find("warm").expect("a row of the table");
            }
            None => (),
        }
        Ok(())
    }
}

/// Whether what memory missed may go there, as far as can be told.
fn takes_misses(path: &Path) -> bool {
    Misses::may_go_to(path).unwrap_or(false)
}
