//! How long a modelled device takes for a request when it has nothing else to do: measured once, in
//! a virtual world of its own.
//!
//! - S1: one request at a time. A deeper queue serves more requests in the same time, from disks
//!   and flash drives alike; what is summed up from these times is an upper bound on device time.
//! - S2: random means anywhere on the first gigabyte of each member disk.

use std::sync::Arc;
use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Device, Keep, Op, Store, read, write};
use terrace_rt::{Prng, Virtual, VirtualConfig};

/// Requests of each kind that are measured.
const REQUESTS: u64 = 2_000;
/// Bytes of each member disk that requests go to.
const MEMBER_BYTES: u64 = 1 << 30;

/// Seconds for a request of one page, alone at the device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServiceTimes {
    /// A read anywhere.
    pub random_read_s: f64,
    /// A read just after the last.
    pub sequential_read_s: f64,
    /// A write anywhere.
    pub random_write_s: f64,
    /// A write just after the last.
    pub sequential_write_s: f64,
    /// Bytes that flash takes for each byte of random writes; 1 for what is not flash.
    pub write_amplification: f64,
}

impl ServiceTimes {
    /// Measures `preset` with requests of `page_bytes`.
    ///
    /// # Panics
    ///
    /// If pages are not sectors, or larger than what is measured.
    #[must_use]
    pub fn of(preset: Preset, page_bytes: u64) -> ServiceTimes {
        assert!(page_bytes > 0 && page_bytes <= MEMBER_BYTES / REQUESTS);
        let time = |op, random| measure(preset, page_bytes, op, random);
        let (random_write_s, write_amplification) = time(Op::Write, true);
        ServiceTimes {
            random_read_s: time(Op::Read, true).0,
            sequential_read_s: time(Op::Read, false).0,
            random_write_s,
            sequential_write_s: time(Op::Write, false).0,
            write_amplification,
        }
    }
}

/// Seconds for a request, and the write amplification so far.
fn measure(preset: Preset, page_bytes: u64, op: Op, random: bool) -> (f64, f64) {
    let spec = preset.spec();
    let len = u64::from(spec.members) * MEMBER_BYTES;
    let world = Virtual::new(VirtualConfig::default());
    let store = Store::new(len, Keep::Recent { pages: 64 });
    let device = SimDevice::new(spec, world.world(), store);
    let shared = Arc::clone(&device);
    let elapsed = world
        .run(move || {
            let mut prng = Prng::from_seed(1);
            let mut bytes = vec![0; page_bytes as usize];
            for number in 0..REQUESTS {
                let page = if random { prng.below(len / page_bytes) } else { number };
                let done = match op {
                    Op::Read => read(&*shared, page * page_bytes, &mut bytes),
                    Op::Write => write(&*shared, page * page_bytes, &bytes),
                };
                done.expect("no faults");
            }
            terrace_rt::now()
        })
        .expect("nothing cuts the power");
    debug_assert_eq!(device.counters().reads + device.counters().writes, REQUESTS);
    let amplification = device.wear().map_or(1.0, |wear| wear.amplification());
    (elapsed.as_secs_f64() / REQUESTS as f64, amplification)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_of_measured_times_gives_them_back() {
        let times = ServiceTimes::of(Preset::IoDrive, 8 << 10);
        for (got, iops) in [
            (times.random_read_s, 12_182.0),
            (times.sequential_read_s, 15_980.0),
            (times.random_write_s, 12_374.0),
            (times.sequential_write_s, 14_965.0),
        ] {
            assert!((got * iops - 1.0).abs() < 0.03, "{got} s for {iops} a second");
        }
        assert_eq!(times.write_amplification, 1.0);
    }

    #[test]
    fn a_disk_reads_on_faster_than_anywhere() {
        let times = ServiceTimes::of(Preset::Hdd7200, 8 << 10);
        assert!(times.random_read_s > 20.0 * times.sequential_read_s, "{times:?}");
    }
}
