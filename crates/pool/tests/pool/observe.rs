//! What an observer sees, against what the pool counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use terrace_page::PageId;
use terrace_policy::DESIGNS;
use terrace_pool::{PageEvent, PageObserver};
use terrace_rt::{LeafMutex, Prng, Virtual, VirtualConfig};

use crate::bench_world::{Bench, config};

#[derive(Default)]
struct Seen(LeafMutex<Vec<(PageId, PageEvent)>>);

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seen")
    }
}

impl PageObserver for Seen {
    fn saw(&self, page: PageId, event: PageEvent) {
        self.0.lock().push((page, event));
    }
}

#[test]
fn every_request_is_seen_once_and_every_new_version_is_written_out() {
    for name in DESIGNS.map(|design| design.name) {
        let world = Virtual::new(VirtualConfig::default());
        let run = || {
            let seen = Arc::new(Seen::default());
            let observer = Some(Arc::clone(&seen) as Arc<dyn PageObserver>);
            let config = terrace_pool::PoolConfig { observer, ..config(name) };
            let bench = Bench::new(&world.world(), config, 200, 1);
            let mut prng = Prng::from_seed(7);
            let mut asked = Vec::new();
            for value in 0..3_000 {
                let page = prng.below(120);
                match prng.below(3) {
                    0 => bench.change(page, value),
                    _ => bench.read(page),
                }
                asked.push(page);
            }
            bench.pool.flush_all().expect("all is at home");
            let stats = bench.pool.stats();
            let curve = bench.pool.miss_curve();
            assert_eq!(curve.misses(), stats.misses, "{name}");
            // A tier of all pages serves all but the first miss of each; a quarter is sampled.
            let all = 1.0 - 120.0 / stats.misses as f64;
            let said = curve.hit_ratio(120);
            assert!((said - all).abs() < 0.05, "{name}: {said} for {all}");
            assert!(curve.hit_ratio(20) < curve.hit_ratio(60), "{name}");
            let seen = std::mem::take(&mut *seen.0.lock());
            let of = |wanted: &[PageEvent]| {
                let events = seen.iter().filter(|row| wanted.contains(&row.1));
                events.map(|row| row.0.0).collect::<Vec<u64>>()
            };
            assert_eq!(of(&[PageEvent::Read, PageEvent::Change]), asked, "{name}");
            let fetched = of(&[PageEvent::Fetch]).len() as u64;
            assert_eq!(fetched, stats.misses + stats.pages_read_ahead, "{name}");
            // Tiers that give memory back what home lacks have it written out again.
            let takes_back = ["exclusive", "rotating"].contains(&name);
            // Between two changes that are written out there is at least one change.
            let mut waiting: BTreeMap<u64, bool> = BTreeMap::new();
            let mut has_slot = BTreeSet::new();
            for &(page, event) in &seen {
                match event {
                    PageEvent::Change => drop(waiting.insert(page.0, true)),
                    PageEvent::WriteOut => {
                        let is_new = waiting.insert(page.0, false) == Some(true);
                        assert!(is_new || takes_back, "{name} {page}");
                    }
                    PageEvent::Read | PageEvent::Ahead | PageEvent::Fetch => {}
                    PageEvent::SlotTaken => assert!(has_slot.insert(page.0), "{name} {page}"),
                    PageEvent::SlotLost => assert!(has_slot.remove(&page.0), "{name} {page}"),
                }
            }
            for page in 0..200 {
                let copies = bench.pool.copies(PageId(page));
                assert_eq!(copies.has_slot, has_slot.contains(&page), "{name} {page}");
            }
            assert!(waiting.values().all(|waits| !waits), "{name}: all was written out");
            bench.pool.shutdown();
        };
        world.run(run).expect("the world goes on");
    }
}
