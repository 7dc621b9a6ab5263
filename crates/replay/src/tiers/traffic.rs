//! What the devices of two tiers are asked for.
//!
//! - T1: a request for the page just after the last one of the same kind is sequential: the device
//!   reads on, or writes on.
//! - T2: on flash no request is sequential: slots are where room was.

use crate::places::Places;
use crate::service::ServiceTimes;

/// Requests to a device, of one page each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTraffic {
    /// Reads.
    pub reads: u64,
    /// Of them, sequential.
    pub sequential_reads: u64,
    /// Writes.
    pub writes: u64,
    /// Of them, sequential.
    pub sequential_writes: u64,
}

impl DeviceTraffic {
    /// Seconds that the device is busy with them, one at a time.
    #[must_use]
    pub fn time_s(&self, times: &ServiceTimes) -> f64 {
        let of = |all: u64, sequential: u64, random_s: f64, sequential_s: f64| {
            (all - sequential) as f64 * random_s + sequential as f64 * sequential_s
        };
        of(self.reads, self.sequential_reads, times.random_read_s, times.sequential_read_s)
            + of(
                self.writes,
                self.sequential_writes,
                times.random_write_s,
                times.sequential_write_s,
            )
    }
}

/// Requests to home and flash.
pub struct Traffic<'a> {
    places: &'a Places,
    /// Home.
    pub home: DeviceTraffic,
    /// The flash device.
    pub flash: DeviceTraffic,
    /// The place after the last home read, and after the last home write.
    next_read: Option<u64>,
    next_write: Option<u64>,
}

impl<'a> Traffic<'a> {
    /// None yet, for pages that lie at `places`.
    #[must_use]
    pub fn new(places: &'a Places) -> Traffic<'a> {
        let (home, flash) = Default::default();
        Traffic { places, home, flash, next_read: None, next_write: None }
    }

    /// Home reads `page`.
    pub fn read_home(&mut self, page: u32) {
        let place = self.places.of(page).0;
        self.home.reads += 1;
        self.home.sequential_reads += u64::from(self.next_read == Some(place));
        self.next_read = place.checked_add(1);
    }

    /// Home writes `page`.
    pub fn write_home(&mut self, page: u32) {
        let place = self.places.of(page).0;
        self.home.writes += 1;
        self.home.sequential_writes += u64::from(self.next_write == Some(place));
        self.next_write = place.checked_add(1);
    }

    /// Flash reads a page.
    pub fn read_flash(&mut self) {
        self.flash.reads += 1;
    }

    /// Flash writes a page.
    pub fn write_flash(&mut self) {
        self.flash.writes += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::References;

    #[test]
    fn what_follows_is_sequential() {
        let references = References::of_reads([10, 11, 12, 50]);
        let places = Places::new(&references);
        let mut traffic = Traffic::new(&places);
        [0, 1, 3, 2, 3].into_iter().for_each(|page| traffic.read_home(page));
        [1, 2].into_iter().for_each(|page| traffic.write_home(page));
        let expected =
            DeviceTraffic { reads: 5, sequential_reads: 1, writes: 2, sequential_writes: 1 };
        assert_eq!(traffic.home, expected);
        let times = ServiceTimes {
            random_read_s: 1.0,
            sequential_read_s: 0.1,
            random_write_s: 10.0,
            sequential_write_s: 0.5,
            write_amplification: 1.0,
        };
        assert!((traffic.home.time_s(&times) - 14.6).abs() < 1e-9);
    }
}
