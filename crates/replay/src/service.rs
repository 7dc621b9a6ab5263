//! How long a modelled device takes for a request when it has nothing else to do: measured once, in
//! a virtual world of its own.
//!
//! - S1: `of` is for one request at a time. A deeper queue serves more requests in the same time,
//!   from disks and flash drives alike; what is summed up from these times is an upper bound on
//!   device time. `with_queue` keeps random requests outstanding: time is then that of the device,
//!   for each request, and not what a request waits.
//! - S2: random means anywhere on the first gigabyte of each member disk.

use std::sync::Arc;
use terrace_device::model::{Preset, SimDevice, Spec};
use terrace_device::{Device, Keep, Op, Store, read, write};
use terrace_policy::Costs;
use terrace_rt::{Prng, Virtual, VirtualConfig};
use terrace_tier::BusyCosts;

/// Requests of each kind that are measured.
const REQUESTS: u64 = 2_000;
/// Pages of the large requests that are measured: few, so that it stays on one disk of an array.
const RUN_PAGES: u64 = 4;
/// Bytes of each member disk that requests go to.
const MEMBER_BYTES: u64 = 1 << 30;

/// Seconds for a request of one page, alone at the device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServiceTimes {
    /// A read anywhere.
    pub random_read_s: f64,
    /// A read just after the last.
    pub sequential_read_s: f64,
    /// A further page of the same read.
    pub run_read_s: f64,
    /// A write anywhere.
    pub random_write_s: f64,
    /// A write just after the last.
    pub sequential_write_s: f64,
    /// A further page of the same write.
    pub run_write_s: f64,
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
        ServiceTimes::with_queue(preset, page_bytes, 1)
    }

    /// As [`ServiceTimes::of`], of a device in figures.
    ///
    /// # Panics
    ///
    /// As [`ServiceTimes::of`].
    #[must_use]
    pub fn of_spec(spec: &Spec, page_bytes: u64) -> ServiceTimes {
        ServiceTimes::measured(spec, page_bytes, 1)
    }

    /// As [`ServiceTimes::of`], with `outstanding` random requests at the device at any time.
    /// What is sequential is one request after the other.
    ///
    /// # Panics
    ///
    /// As [`ServiceTimes::of`]; if there is no request.
    #[must_use]
    pub fn with_queue(preset: Preset, page_bytes: u64, outstanding: u32) -> ServiceTimes {
        ServiceTimes::measured(&preset.spec(), page_bytes, outstanding)
    }

    /// The same of a device in figures.
    ///
    /// # Panics
    ///
    /// As [`ServiceTimes::with_queue`].
    #[must_use]
    pub fn of_spec_with_queue(spec: &Spec, page_bytes: u64, outstanding: u32) -> ServiceTimes {
        ServiceTimes::measured(spec, page_bytes, outstanding)
    }

    fn measured(spec: &Spec, page_bytes: u64, outstanding: u32) -> ServiceTimes {
        assert!(page_bytes > 0 && page_bytes <= MEMBER_BYTES / REQUESTS / RUN_PAGES);
        assert!(outstanding > 0, "a request at least");
        let random = |op| measure(spec, page_bytes, op, Some(outstanding));
        let sequential = |op| measure(spec, page_bytes, op, None).0;
        let (random_write_s, write_amplification) = random(Op::Write);
        let further = |op, alone_s: f64| {
            let run_s = measure(spec, RUN_PAGES * page_bytes, op, Some(outstanding)).0;
            (run_s - alone_s).max(0.0) / (RUN_PAGES - 1) as f64
        };
        let random_read_s = random(Op::Read).0;
        let alone_s = sequential(Op::Write);
        ServiceTimes {
            random_read_s,
            sequential_read_s: sequential(Op::Read),
            run_read_s: further(Op::Read, random_read_s),
            random_write_s,
            // With others in the queue, no request waits until the next sector comes round again.
            sequential_write_s: if outstanding > 1 { alone_s.min(random_write_s) } else { alone_s },
            run_write_s: further(Op::Write, random_write_s),
            write_amplification,
        }
    }
}

impl ServiceTimes {
    /// What requests to this home cost beside `flash`, in ms: as a pool takes them, which reads
    /// each device at places here and there when it is opened, and writes nothing.
    #[must_use]
    pub fn costs_beside(&self, flash: &ServiceTimes) -> Costs {
        let (home, flash) = (self.random_read_s * 1e3, flash.random_read_s * 1e3);
        Costs { home_read: home, home_write: home, flash_read: flash, flash_write: flash }
    }

    /// What requests keep this home and `flash` busy, in seconds, if the times are those of loaded
    /// devices. A page that is cleaned alone costs what a write does.
    #[must_use]
    pub fn busy_beside(&self, flash: &ServiceTimes) -> BusyCosts {
        BusyCosts {
            home_read: self.random_read_s,
            home_write: self.random_write_s,
            home_clean: self.random_write_s,
            flash_read: flash.random_read_s,
            flash_write: flash.random_write_s,
        }
    }
}

/// Seconds for a request, random with the given number outstanding, or sequential, and the write
/// amplification so far.
fn measure(spec: &Spec, page_bytes: u64, op: Op, random: Option<u32>) -> (f64, f64) {
    let len = u64::from(spec.members) * MEMBER_BYTES;
    let world = Virtual::new(VirtualConfig::default());
    let store = Store::new(len, Keep::Recent { pages: 64 });
    let device = SimDevice::new(spec.clone(), world.world(), store);
    let shared = Arc::clone(&device);
    let count = u64::from(random.unwrap_or(1));
    let requests = REQUESTS.next_multiple_of(count);
    let elapsed = world
        .run(move || {
            let tasks: Vec<_> = (1..=count)
                .map(|task| {
                    let (device, mut prng) = (Arc::clone(&shared), Prng::from_seed(task));
                    let work = move || {
                        for number in 0..requests / count {
                            let random = random.map(|_| prng.below(len / page_bytes));
                            one(&device, op, random.unwrap_or(number), page_bytes);
                        }
                    };
                    terrace_rt::spawn("measure", work)
                })
                .collect();
            tasks.into_iter().for_each(terrace_rt::Task::join);
            terrace_rt::now()
        })
        .expect("nothing cuts the power");
    debug_assert_eq!(device.counters().reads + device.counters().writes, requests);
    let amplification = device.wear().map_or(1.0, |wear| wear.amplification());
    (elapsed.as_secs_f64() / requests as f64, amplification)
}

fn one(device: &SimDevice, op: Op, page: u64, page_bytes: u64) {
    let mut bytes = vec![0; page_bytes as usize];
    let done = match op {
        Op::Read => read(device, page * page_bytes, &mut bytes),
        Op::Write => write(device, page * page_bytes, &bytes),
    };
    done.expect("no faults");
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
    fn an_array_serves_a_queue_with_all_its_disks() {
        let [alone, queued] =
            [1, 64].map(|queue| ServiceTimes::with_queue(Preset::Sigmod2011Hdd, 8 << 10, queue));
        let gain = alone.random_read_s / queued.random_read_s;
        assert!((8.0..24.0).contains(&gain), "eight disks, each with a queue: {gain}");
        assert_eq!(alone.sequential_read_s, queued.sequential_read_s);
        assert!(queued.run_write_s < queued.random_write_s / 4.0, "{queued:?}");
    }

    #[test]
    fn a_disk_reads_on_faster_than_anywhere() {
        let times = ServiceTimes::of(Preset::Hdd7200, 8 << 10);
        assert!(times.random_read_s > 20.0 * times.sequential_read_s, "{times:?}");
    }
}
