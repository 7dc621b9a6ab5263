//! What the devices of two tiers are asked for.
//!
//! - T1: a request for the page just after the last one of the same kind is sequential: the device
//!   reads on, or writes on.
//! - T2: on flash no request is sequential, as slots are where room was, but for the pages of a
//!   group that is appended, or read to leave, together.

use super::queues::{Moment, Queues};
use crate::places::Places;
use crate::service::ServiceTimes;
use crate::timed::{Ask, Asked};

/// Requests to a device, of one page each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTraffic {
    /// Reads.
    pub reads: u64,
    /// Of them, sequential.
    pub sequential_reads: u64,
    /// Of these, pages of a large read that are not its first.
    pub run_reads: u64,
    /// Writes.
    pub writes: u64,
    /// Of them, sequential.
    pub sequential_writes: u64,
    /// Of these, pages of a large write that are not its first.
    pub run_writes: u64,
    /// For how long it had nothing to do since all clients waited for slots, in nanoseconds.
    pub blocked_ns: u64,
}

/// The same, for each of something.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceRates {
    /// Reads.
    pub reads: f64,
    /// Of them, sequential.
    pub sequential_reads: f64,
    /// Of these, pages of a large read that are not its first.
    pub run_reads: f64,
    /// Writes.
    pub writes: f64,
    /// Of them, sequential.
    pub sequential_writes: f64,
    /// Of these, pages of a large write that are not its first.
    pub run_writes: f64,
    /// Seconds for which it had nothing to do since all clients waited for slots.
    pub blocked_s: f64,
}

impl DeviceTraffic {
    /// Requests since `before`.
    pub(super) fn since(&self, before: &DeviceTraffic) -> DeviceTraffic {
        DeviceTraffic {
            reads: self.reads - before.reads,
            sequential_reads: self.sequential_reads - before.sequential_reads,
            run_reads: self.run_reads - before.run_reads,
            writes: self.writes - before.writes,
            sequential_writes: self.sequential_writes - before.sequential_writes,
            run_writes: self.run_writes - before.run_writes,
            blocked_ns: self.blocked_ns - before.blocked_ns,
        }
    }

    /// Requests for each of `count`.
    #[must_use]
    pub fn per(&self, count: f64) -> DeviceRates {
        DeviceRates {
            reads: self.reads as f64 / count,
            sequential_reads: self.sequential_reads as f64 / count,
            run_reads: self.run_reads as f64 / count,
            writes: self.writes as f64 / count,
            sequential_writes: self.sequential_writes as f64 / count,
            run_writes: self.run_writes as f64 / count,
            blocked_s: self.blocked_ns as f64 / 1e9 / count,
        }
    }

    /// Seconds that the device is busy with them, one at a time.
    #[must_use]
    pub fn time_s(&self, times: &ServiceTimes) -> f64 {
        self.per(1.0).time_s(times)
    }
}

impl DeviceRates {
    /// Seconds that the device is busy with them, if each takes as long as `times` has it, or has
    /// nothing to do since all clients wait for slots: that time is as good as lost.
    #[must_use]
    pub fn time_s(&self, times: &ServiceTimes) -> f64 {
        let random_writes = self.writes - self.sequential_writes;
        let lone_writes = self.sequential_writes - self.run_writes;
        (self.reads - self.sequential_reads) * times.random_read_s
            + (self.sequential_reads - self.run_reads) * times.sequential_read_s
            + self.run_reads * times.run_read_s
            + random_writes * times.random_write_s
            + lone_writes * times.sequential_write_s
            + self.run_writes * times.run_write_s
            + self.blocked_s
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
    /// Whether home reads go along with the one before, in one request.
    reads_along: bool,
    next_write: Option<u64>,
    /// The slot after the last that was appended.
    next_slot: Option<u32>,
    /// When requests are served, if clients ask for them.
    queues: Option<Queues>,
    /// When home has served the last write, and all since `begin_batch`.
    written_at: Moment,
    batch_written_at: Moment,
    /// What was asked for, if it is kept.
    asked: Option<Asked>,
    /// The page that began the last write home.
    pub(super) last_written: Option<u32>,
    /// Every page that was written home, for tests.
    #[cfg(test)]
    pub(super) written_home: Vec<u32>,
}

impl<'a> Traffic<'a> {
    /// None yet, for pages that lie at `places`.
    #[must_use]
    pub fn new(places: &'a Places) -> Traffic<'a> {
        let (home, flash) = Default::default();
        Traffic {
            places,
            home,
            flash,
            next_read: None,
            reads_along: false,
            next_write: None,
            next_slot: None,
            queues: None,
            written_at: 0,
            batch_written_at: 0,
            asked: None,
            last_written: None,
            #[cfg(test)]
            written_home: Vec::new(),
        }
    }

    /// The same, which keeps each request in its order.
    #[must_use]
    pub fn kept(places: &'a Places) -> Traffic<'a> {
        Traffic { asked: Some(Asked::default()), ..Traffic::new(places) }
    }

    /// The requests, if they were kept.
    pub fn take_asked(&mut self) -> Option<Asked> {
        self.asked.take()
    }

    fn keep(&mut self, ask: Ask) {
        if let Some(asked) = &mut self.asked {
            asked.push(ask);
        }
    }

    /// Nothing was asked for so far.
    pub fn forget_counts(&mut self) {
        (self.home, self.flash) = Default::default();
        self.asked = self.asked.is_some().then(Asked::default);
    }

    /// The next read follows on from none.
    pub fn cut_reads(&mut self) {
        self.next_read = None;
    }

    /// Clients ask for pages.
    pub(super) fn queue(&mut self, queues: Queues) {
        self.queues = Some(queues);
    }

    /// The time, if there is one.
    pub(super) fn now(&self) -> Moment {
        self.queues.as_ref().map_or(0, Queues::now)
    }

    /// When all requests are served; at once, if nothing takes time.
    pub(super) fn served_at(&self) -> Moment {
        self.queues.as_ref().map_or(0, Queues::served_at)
    }

    /// Pages that other clients wait for; none, if nothing takes time.
    pub(super) fn in_flight(&self) -> u32 {
        self.queues.as_ref().map_or(0, Queues::in_flight)
    }

    /// A client waits until `moment`.
    pub(super) fn wait_until(&mut self, moment: Moment) {
        self.queues.iter_mut().for_each(|queues| queues.wait_until(moment));
    }

    /// All clients wait until `moment`: until then nobody gives the devices work.
    pub(super) fn all_wait_until(&mut self, moment: Moment) {
        let Some(queues) = &mut self.queues else { return };
        let [home, flash] = queues.all_wait_until(moment);
        self.home.blocked_ns += home;
        self.flash.blocked_ns += flash;
    }

    /// A client misses `page`, which flash has or has not: the next request is its read. How many
    /// other misses are asked for before it is served.
    #[inline]
    pub(super) fn ask(&mut self, page: u32, is_on_flash: bool) -> u64 {
        let Some(queues) = &mut self.queues else { return 0 };
        let place = self.places.of(page);
        queues.ask();
        queues.misses_meanwhile(place, is_on_flash)
    }

    /// When home has served the last write.
    pub(super) fn written_at(&self) -> Moment {
        self.written_at
    }

    /// Writes home from here on are done together.
    pub(super) fn begin_batch(&mut self) {
        self.batch_written_at = self.now();
    }

    /// When home has served the last of them.
    pub(super) fn batch_written_at(&self) -> Moment {
        self.batch_written_at
    }

    /// Home reads `page`.
    pub fn read_home(&mut self, page: u32) {
        self.keep(Ask::ReadHome(page));
        if self.reads_along {
            return self.read_home_along(page);
        }
        let place = self.places.of(page);
        self.queues.iter_mut().for_each(|queues| queues.read_home(place));
        let place = place.0;
        self.home.reads += 1;
        self.home.sequential_reads += u64::from(self.next_read == Some(place));
        self.next_read = place.checked_add(1);
    }

    /// Pages that home reads from here on are of one request: those behind the first go along.
    pub(super) fn read_along(&mut self) {
        self.reads_along = true;
    }

    /// The next read of home is a request of its own.
    pub(super) fn end_run(&mut self) {
        self.reads_along = false;
    }

    /// Home reads `page` in the request of the page before it, which memory may drop.
    pub(super) fn read_home_along(&mut self, page: u32) {
        self.home.reads += 1;
        self.home.sequential_reads += 1;
        self.home.run_reads += 1;
        self.next_read = self.places.of(page).0.checked_add(1);
    }

    /// Home writes `page`.
    pub fn write_home(&mut self, page: u32) {
        self.keep(Ask::WriteHome(page));
        let place = self.places.of(page);
        if let Some(queues) = &mut self.queues {
            self.written_at = queues.write_home(place);
            self.batch_written_at = self.batch_written_at.max(self.written_at);
        }
        let place = place.0;
        self.home.writes += 1;
        self.home.sequential_writes += u64::from(self.next_write == Some(place));
        self.last_written = Some(page);
        self.note_written(page);
        self.next_write = place.checked_add(1);
    }

    /// Home writes `page` in one request with the page just before it.
    pub fn write_home_along(&mut self, page: u32) {
        self.keep(Ask::WriteHomeAlong(page));
        self.home.writes += 1;
        self.home.sequential_writes += 1;
        self.home.run_writes += 1;
        self.note_written(page);
        self.next_write = self.places.of(page).0.checked_add(1);
    }

    #[cfg(test)]
    fn note_written(&mut self, page: u32) {
        self.written_home.push(page);
    }

    #[cfg(not(test))]
    fn note_written(&mut self, _: u32) {}

    /// Flash reads a page.
    pub fn read_flash(&mut self) {
        self.keep(Ask::ReadFlash);
        self.queues.iter_mut().for_each(Queues::read_flash);
        self.flash.reads += 1;
    }

    /// Flash reads `pages` pages in one request.
    pub fn read_flash_run(&mut self, pages: u64) {
        (0..pages).for_each(|at| {
            self.keep(if at == 0 { Ask::ReadFlash } else { Ask::ReadFlashAlong });
            self.queues.iter_mut().for_each(Queues::read_flash);
        });
        self.flash.reads += pages;
        self.flash.sequential_reads += pages.saturating_sub(1);
    }

    /// Flash writes a page.
    pub fn write_flash(&mut self) {
        self.keep(Ask::WriteFlash);
        self.queues.iter_mut().for_each(Queues::write_flash);
        self.flash.writes += 1;
    }

    /// Flash writes `pages` pages from slot `first` on, in one request.
    pub fn write_flash_run(&mut self, first: u32, pages: u64) {
        (0..pages).for_each(|at| {
            self.keep(if at == 0 { Ask::AppendFlash } else { Ask::AppendFlashAlong });
            self.queues.iter_mut().for_each(Queues::write_flash);
        });
        let follows_on = u64::from(self.next_slot == Some(first));
        self.flash.writes += pages;
        self.flash.sequential_writes += follows_on + pages.saturating_sub(1);
        self.flash.run_writes += pages.saturating_sub(1);
        self.next_slot = u32::try_from(u64::from(first) + pages).ok();
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
        traffic.read_along();
        [0, 1].into_iter().for_each(|page| traffic.read_home(page));
        traffic.end_run();
        [1, 2].into_iter().for_each(|page| traffic.write_home(page));
        traffic.write_home(0);
        traffic.write_home_along(1);
        let expected = DeviceTraffic {
            reads: 7,
            sequential_reads: 3,
            run_reads: 2,
            writes: 4,
            sequential_writes: 2,
            run_writes: 1,
            blocked_ns: 0,
        };
        assert_eq!(traffic.home, expected);
        let times = ServiceTimes {
            random_read_s: 1.0,
            sequential_read_s: 0.1,
            run_read_s: 0.01,
            random_write_s: 10.0,
            sequential_write_s: 0.5,
            run_write_s: 0.25,
            write_amplification: 1.0,
        };
        assert!((traffic.home.time_s(&times) - 24.87).abs() < 1e-9);
    }
}
