//! When requests to home and flash are served, in a closed system: each of a fixed number of
//! clients waits for the page that it requested, and then requests the next.
//!
//! ```text
//!              +--> disk --+
//!   ask --wait-+--> disk --+--> the client is free, and asks again
//!     |        +--> flash -+
//!     +-- not waited for: pages on their way home, pages that are written to flash
//! ```
//!
//! - Q1: time goes on as clients become free: a miss is asked for when the first of them is.
//! - Q2: each disk of home, and the flash, serves one request after the other, in their order.
//! - Q3: what goes to several disks together is done when the last of them has served it: the more
//!   disks, the longer is the longest queue.
//! - Assumes: a request takes as long as one of a loaded device does on average; nothing else is
//!   waited for, neither the log nor a processor.
//! - Cost: a few comparisons for each request.
//! - Not for: replays in which one request follows the other, without clients.

use super::FlashSetup;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use terrace_page::PageId;

/// When something happens, in nanoseconds since the first request.
pub type Moment = u64;

/// Misses of each client of which it is known when they were asked for.
const ASKED_PER_CLIENT: usize = 16;

/// The disks of home.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HomeArray {
    /// How many there are.
    pub disks: u32,
    /// Pages that one holds before the next one's turn.
    pub stripe_pages: u64,
    /// Share of all requests that are replayed: of a sample. The others keep the devices busy, too.
    pub share: f64,
}

impl HomeArray {
    /// A device without parts.
    pub const ONE: HomeArray = HomeArray { disks: 1, stripe_pages: 1, share: 1.0 };

    /// For a sample of a share `rate` of the pages, on fewer disks, which leave as much to the
    /// others.
    pub(super) fn scaled(&self, rate: f64) -> HomeArray {
        let disks = ((f64::from(self.disks) * rate).round() as u32).max(1);
        HomeArray { disks, share: self.share * rate, ..*self }
    }
}

/// Clients, and the queues that they wait in.
pub struct Queues {
    now: Moment,
    /// When each client that waits is free.
    clients: BinaryHeap<Reverse<Moment>>,
    /// Whether a client has asked, and is not in a queue yet.
    asks: bool,
    /// When the last misses were asked for, in their order.
    asked: VecDeque<Moment>,
    asked_max: usize,
    /// When each disk of home has served all that it was asked for.
    disks: Vec<Moment>,
    stripe_pages: u64,
    flash: Moment,
    /// Share of all requests that are replayed.
    share: f64,
    home_read: Moment,
    home_write: Moment,
    flash_read: Moment,
    flash_write: Moment,
}

impl Queues {
    /// `clients` clients, none of which has a request yet, on the devices of `setup`.
    pub fn new(clients: u32, setup: &FlashSetup) -> Queues {
        let (array, busy) = (setup.home_array, &setup.busy);
        // A disk serves its share of the requests.
        let of_disk = |seconds: f64| moment(seconds * f64::from(array.disks) / array.share);
        Queues {
            now: 0,
            clients: (0..clients).map(|_| Reverse(0)).collect(),
            asks: false,
            asked: VecDeque::new(),
            asked_max: clients as usize * ASKED_PER_CLIENT,
            disks: vec![0; array.disks as usize],
            stripe_pages: array.stripe_pages,
            flash: 0,
            share: array.share,
            home_read: of_disk(busy.home_read),
            home_write: of_disk(busy.home_write),
            flash_read: moment(busy.flash_read / array.share),
            flash_write: moment(busy.flash_write / array.share),
        }
    }

    /// When the last miss was asked for.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// When the devices have served all that they were asked for.
    pub fn served_at(&self) -> Moment {
        self.disks.iter().copied().fold(self.flash, Moment::max)
    }

    /// No client requests a page before `moment`.
    pub fn wait_until(&mut self, moment: Moment) {
        self.now = self.now.max(moment);
    }

    /// All clients wait until `moment`. For how long home, on average over its disks, and the flash
    /// have nothing to do by then, counted by the share of the requests that are replayed.
    pub fn all_wait_until(&mut self, moment: Moment) -> [Moment; 2] {
        let from = self.now;
        self.wait_until(moment);
        let idle = |served: Moment| moment.saturating_sub(served.max(from));
        let disks = self.disks.iter().map(|&served| idle(served)).sum::<Moment>();
        [disks / self.disks.len() as Moment, idle(self.flash)]
            .map(|idle| (idle as f64 * self.share) as Moment)
    }

    /// The first client that is free asks for a page: it waits for the next request.
    pub fn ask(&mut self) {
        self.answered();
        let Reverse(free) = self.clients.pop().expect("a client that waits");
        self.now = self.now.max(free);
        self.asks = true;
        if self.asked.len() == self.asked_max {
            self.asked.pop_front();
        }
        self.asked.push_back(self.now);
    }

    /// Clients, beside the one that asks, that wait for a page.
    pub fn in_flight(&self) -> u32 {
        self.clients.iter().filter(|free| free.0 > self.now).count() as u32
    }

    /// The client that asked got the page without a request to a device, if it still waits for one.
    fn answered(&mut self) {
        if std::mem::take(&mut self.asks) {
            self.clients.push(Reverse(self.now));
        }
    }

    /// Misses of other clients until home, or flash, has served a read of `place`: the number of
    /// misses in an equal time before.
    pub fn misses_meanwhile(&self, place: PageId, is_on_flash: bool) -> u64 {
        let (queue, takes) = match is_on_flash {
            true => (self.flash, self.flash_read),
            false => (self.disks[self.disk(place)], self.home_read),
        };
        let waits = queue.max(self.now) + takes - self.now;
        let before = self.asked.partition_point(|&asked| asked + waits <= self.now);
        (self.asked.len() - before).saturating_sub(1) as u64
    }

    /// Home reads `place`.
    pub fn read_home(&mut self, place: PageId) {
        self.ask_home(place, self.home_read);
    }

    /// Home writes `place`. When it has.
    pub fn write_home(&mut self, place: PageId) -> Moment {
        self.ask_home(place, self.home_write)
    }

    /// The flash reads a page.
    pub fn read_flash(&mut self) {
        self.ask_flash(self.flash_read);
    }

    /// The flash writes a page.
    pub fn write_flash(&mut self) {
        self.ask_flash(self.flash_write);
    }

    fn disk(&self, place: PageId) -> usize {
        (place.0 / self.stripe_pages % self.disks.len() as u64) as usize
    }

    fn ask_home(&mut self, place: PageId, takes: Moment) -> Moment {
        let disk = self.disk(place);
        let done = self.disks[disk].max(self.now) + takes;
        self.disks[disk] = done;
        self.begin(done);
        done
    }

    fn ask_flash(&mut self, takes: Moment) {
        self.flash = self.flash.max(self.now) + takes;
        self.begin(self.flash);
    }

    /// A request is done at `done`. The client that has asked waits for it.
    fn begin(&mut self, done: Moment) {
        if std::mem::take(&mut self.asks) {
            self.clients.push(Reverse(done));
        }
    }
}

fn moment(seconds: f64) -> Moment {
    (seconds * 1e9).round() as Moment
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiers::{Flash, FlashSetup};
    use terrace_policy::designs;
    use terrace_tier::BusyCosts;

    fn setup(disks: u32, busy: [f64; 4]) -> FlashSetup {
        let none = Flash::Design(designs::find("no-ssd").expect("a design"));
        let [home_read, home_write, flash_read, flash_write] = busy;
        let home_clean = home_write;
        FlashSetup {
            busy: BusyCosts { home_read, home_write, home_clean, flash_read, flash_write },
            home_array: HomeArray { disks, stripe_pages: 2, share: 1.0 },
            ..FlashSetup::new(none, 1, 0)
        }
    }

    /// The same from lists: every request with the moment at which it was there, what serves it,
    /// and how long that takes; the client that waits for it, if any.
    #[derive(Default)]
    struct Naive {
        requests: Vec<(usize, Moment, Moment)>,
        clients: Vec<Moment>,
        asked: Vec<Moment>,
        now: Moment,
        asker: Option<usize>,
    }

    impl Naive {
        fn ask(&mut self) {
            let at = (0..self.clients.len()).min_by_key(|&at| (self.clients[at], at));
            self.asker = at;
            self.now = self.now.max(self.clients[at.expect("a client")]);
            self.clients[at.expect("a client")] = self.now;
            self.asked.push(self.now);
        }

        /// When `server` has served all that it was asked for.
        fn idle_at(&self, server: usize) -> Moment {
            let mine = self.requests.iter().filter(|row| row.0 == server);
            mine.fold(0, |idle, &(_, there, takes)| idle.max(there) + takes)
        }

        fn request(&mut self, server: usize, takes: Moment) -> Moment {
            self.requests.push((server, self.now, takes));
            let done = self.idle_at(server);
            if let Some(asker) = self.asker.take() {
                self.clients[asker] = done;
            }
            done
        }
    }

    #[test]
    fn queues_agree_with_lists() {
        for seed in 0..30 {
            let mut prng = fastrand::Rng::with_seed(seed);
            let (disks, clients) = (prng.usize(1..5), prng.usize(1..8));
            let mut queues =
                Queues::new(clients as u32, &setup(disks as u32, [4e-9, 6e-9, 1e-9, 2e-9]));
            let mut naive = Naive { clients: vec![0; clients], ..Naive::default() };
            let of_disk = disks as u64;
            for step in 0..400 {
                let place = prng.u64(..40);
                let disk = (place / 2 % of_disk) as usize;
                let is_on_flash = prng.bool();
                queues.ask();
                naive.ask();
                assert_eq!(queues.now(), naive.now, "seed {seed} step {step}");
                let waiting = naive.clients.iter().filter(|&&free| free > naive.now).count();
                assert_eq!(queues.in_flight() as usize, waiting, "seed {seed} step {step}");
                let (server, takes) = if is_on_flash { (99, 1) } else { (disk, 4 * of_disk) };
                let waits = naive.idle_at(server).max(naive.now) + takes - naive.now;
                let kept = naive.asked.len().saturating_sub(clients * ASKED_PER_CLIENT);
                let recent = naive.asked[kept..].iter().filter(|&&at| at + waits > naive.now);
                let meanwhile = queues.misses_meanwhile(PageId(place), is_on_flash);
                assert_eq!(meanwhile, recent.count() as u64 - 1, "seed {seed} step {step}");
                match is_on_flash {
                    true => queues.read_flash(),
                    false => queues.read_home(PageId(place)),
                }
                naive.request(server, takes);
                if prng.bool() {
                    let written = queues.write_home(PageId(place));
                    assert_eq!(
                        written,
                        naive.request(disk, 6 * of_disk),
                        "seed {seed} step {step}"
                    );
                }
                if prng.bool() {
                    queues.write_flash();
                    naive.request(99, 2);
                }
                if prng.u8(..20) == 0 {
                    let later = queues.now() + prng.u64(..50);
                    queues.wait_until(later);
                    naive.now = naive.now.max(later);
                }
            }
        }
    }

    #[test]
    fn a_batch_waits_for_the_longest_queue() {
        let mut queues = Queues::new(1, &setup(2, [1e-9, 1e-9, 1e-9, 1e-9]));
        let written = [0, 2, 4, 1].map(|place| queues.write_home(PageId(place)));
        assert_eq!(written, [2, 2, 4, 6], "one of the disks has three");
    }

    #[test]
    fn devices_without_work_are_idle_while_all_wait() {
        let mut queues = Queues::new(1, &setup(2, [1e-9, 1e-9, 1e-9, 5e-9]));
        queues.write_home(PageId(0));
        queues.write_flash();
        // One disk has served its write at 2, the other has none, the flash has at 5.
        assert_eq!(queues.all_wait_until(8), [(6 + 8) / 2, 3]);
        assert_eq!(queues.now(), 8);
        assert_eq!(queues.all_wait_until(8), [0, 0], "no time has passed");
        assert_eq!(queues.all_wait_until(4), [0, 0], "that is over");
    }

    #[test]
    fn a_page_of_flash_comes_before_others_are_asked_for() {
        let mut queues = Queues::new(10, &setup(1, [1e-3, 1e-3, 1e-6, 1e-6]));
        for _ in 0..500 {
            queues.ask();
            queues.read_home(PageId(0));
        }
        queues.ask();
        assert_eq!(queues.misses_meanwhile(PageId(0), true), 0);
        assert_eq!(queues.misses_meanwhile(PageId(0), false), 9, "one of each other client");
    }
}
