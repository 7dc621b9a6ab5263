//! What requests cost, for the policies that weigh flash against home: as configured, or measured
//! on the devices at hand when the pool is opened.
//!
//! - One page is read at a time, at places spread over the part that the tiers can hold: what a
//!   miss waits for on an idle device.
//! - A write is taken to cost what a read does: nothing may be written for the sake of measuring.
//! - A place that was never written, as in a new file, may be read sooner than one that was.

use terrace_device::Device;
use terrace_page::PAGE_SIZE;
use terrace_policy::Costs;
use terrace_rt::now;

use crate::io::{self, PageIo};
use crate::memory::frames::Staging;

/// Reads of a device.
const SAMPLES: u64 = 16;
/// The least that a request costs: devices in memory take no time.
const COST_MIN_MS: f64 = 0.001;
/// The fraction of the golden ratio: its multiples are spread evenly, however many there are.
const GOLDEN: f64 = 0.618_033_988_749_895;

/// What requests cost, measured over the part of the devices that these numbers of frames and slots
/// can hold.
pub(crate) fn measured(
    frames: u32,
    slots: u32,
    home: &dyn Device,
    flash: Option<&dyn Device>,
) -> Costs {
    let pages = u64::from(slots.max(frames));
    let Some(home_ms) = read_ms(home, pages) else { return Costs::PUBLISHED };
    let flash_ms = flash.and_then(|flash| read_ms(flash, u64::from(slots)));
    let flash_ms = flash_ms.unwrap_or(home_ms);
    Costs { home_read: home_ms, home_write: home_ms, flash_read: flash_ms, flash_write: flash_ms }
}

/// The mean time of a random read among the first `pages`, in ms. `None` if all failed: the next
/// request that needs the device meets the error, and reports it.
fn read_ms(device: &dyn Device, pages: u64) -> Option<f64> {
    let pages = pages.min(device.len() / PAGE_SIZE as u64);
    let mut staging = Staging::new(1);
    let (mut sum, mut count) = (0.0, 0.0);
    for sample in 1..=SAMPLES {
        let page = (pages as f64 * (sample as f64 * GOLDEN).fract()) as u64;
        let began = now();
        let read = io::run(device, vec![PageIo::read(page, staging.pages_mut())]);
        if read.is_ok() {
            sum += (now() - began).as_secs_f64() * 1e3;
            count += 1.0;
        }
    }
    (count > 0.0).then(|| (sum / count).max(COST_MIN_MS))
}
