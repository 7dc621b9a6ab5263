//! Scans that announce their reads.

use super::*;

const LRU_2: MemoryRule = MemoryRule::Pool(MemoryPolicy::Lru2);

struct Made(References);

impl Made {
    fn new() -> Made {
        Made(References::default())
    }

    fn push(&mut self, time_ns: u64, number: u64, kind: Kind) {
        self.0.push(PageRequest { time_ns, page: PageKey { file: 0, number }, kind });
    }

    fn replayed(&self, design: &str, frames: u32, slots: u32) -> TierCounts {
        let places = Places::new(&self.0);
        let memory = Memory {
            policy: Some((LRU_2, frames)),
            near_is_sequential: false,
            outstanding: 0,
            counted_from: 0,
        };
        let flash = Flash::Design(designs::find(design).expect("a design"));
        replay(&self.0, &places, memory, &setup(flash, slots))
    }
}

/// A scan of 200 pages, read ahead 20 at a time, half of them before the last are passed.
#[test]
fn a_scan_reads_each_page_once_and_most_along() {
    let mut made = Made::new();
    for number in 0..200 {
        if number % 20 == 0 {
            (number..number + 20).for_each(|ahead| made.push(number, ahead, Kind::Ahead));
        }
        made.push(number, number, Kind::Read);
    }
    let counts = made.replayed("no-ssd", 60, 1);
    // The first of each 20 is missed; the others are read in one request.
    assert_eq!((counts.requests, counts.misses(), counts.ahead), (200, 200, 190));
    let home = counts.home;
    assert_eq!((home.reads, home.reads - home.run_reads), (200, 20));
    let unannounced = References::of_reads(0..200);
    let counts = Made(unannounced).replayed("no-ssd", 60, 1);
    assert_eq!((counts.misses(), counts.ahead, counts.home.run_reads), (200, 0, 0));
}

/// Pages that come from flash with uses of long ago were the first victims of the next run, before
/// the scan reached them: four of five were read twice.
#[test]
fn what_is_in_flight_stays_until_it_is_there() {
    let mut made = Made::new();
    let mut time = 0;
    // Used twice with misses between, so that they go to flash with both uses.
    for _ in 0..2 {
        for number in (0..40).chain(1_000..1_200) {
            time += 1;
            made.push(time, number, Kind::Read);
        }
    }
    let before = made.replayed("lc", 100, 2_000);
    // All of memory was used twice lately.
    for _ in 0..2 {
        for number in 1_000..1_090 {
            time += 1;
            made.push(time, number, Kind::Read);
        }
    }
    let filled = made.replayed("lc", 100, 2_000);
    time += 1;
    (0..10).for_each(|ahead| made.push(time, ahead, Kind::Ahead));
    made.push(time, 1_100, Kind::Read);
    (10..20).for_each(|ahead| made.push(time, ahead, Kind::Ahead));
    made.push(time, 1_101, Kind::Read);
    for number in 0..20 {
        time += 1;
        made.push(time, number, Kind::Read);
    }
    let counts = made.replayed("lc", 100, 2_000);
    assert!(filled.flash.reads > before.flash.reads, "they came from flash");
    assert_eq!(counts.ahead, 20);
    assert_eq!(counts.flash.reads - filled.flash.reads, 22, "each was read once");
}
