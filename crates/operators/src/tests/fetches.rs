//! Fetch beside the rows in memory, and what it tells of pages that have changed meanwhile.

use std::sync::Arc;

use terrace_device::Device;
use terrace_device::model::{Faults, Preset};
use terrace_rt::{Prng, Virtual, VirtualConfig};

use super::tables::{self, Keys, Row, Wish, fetched, ids, put};
use crate::fetch::{Freshness, Wanted, fetch};
use crate::{Cpu, Input, Plan, RowPages};

fn wanted(rows: &[Row]) -> Vec<Wanted> {
    let wanted = |(at, row): (u32, &Row)| Wanted { rid: row.rid, version: 1, value: row.key, at };
    (0..).zip(rows).map(wanted).collect()
}

#[test]
fn rows_come_back_in_the_order_they_were_asked_for_and_no_page_twice() {
    for seed in 0..60 {
        let mut prng = Prng::from_seed(seed);
        let work = || {
            let device: Arc<dyn Device> = tables::device(Preset::SsdM, 4 << 20, Faults::default());
            let wish = tables::wish(&mut prng, 3_000);
            let made = tables::make(&device, 0, wish, &mut prng);
            let mut asked: Vec<Row> =
                made.rows.iter().filter(|_| prng.chance(3)).copied().collect();
            // Some rows twice.
            asked.extend(asked.clone().into_iter().filter(|row| row.id % 5 == 0));
            prng.shuffle(&mut asked);
            let (plan, cpu) = (tables::plan(&mut prng), Cpu::free());
            let found = fetch(&made.input, &ids(), (&plan, &cpu), wanted(&asked));
            let found = found.expect("no faults");
            for (at, row) in asked.iter().enumerate() {
                assert_eq!(found.get(at).map(fetched), Some(row.id), "seed {seed}");
            }
            let mut pages: Vec<u32> = asked.iter().map(|row| row.rid.page).collect();
            pages.sort_unstable();
            pages.dedup();
            let freshness = Freshness { pages: pages.len() as u64, reread: 0, gone: 0 };
            assert_eq!(found.freshness, freshness, "seed {seed}");
        };
        Virtual::new(VirtualConfig { seed, ..VirtualConfig::default() })
            .run(work)
            .expect("it ends");
    }
}

/// fetch.E2: of a page that has changed, a row with the same value is read again; one with another
/// value, one that the predicate does not hold of, and one that is not there are gone. Without a
/// look at the version all but the last would be taken for the rows that were seen.
#[test]
fn rows_of_pages_that_have_changed_are_read_again_and_told() {
    let work = || {
        let device: Arc<dyn Device> = tables::device(Preset::Ram, 1 << 20, Faults::default());
        let pages = RowPages::new(512, 17).expect("whole sectors");
        let wish = Wish { keys: Keys::Equal, rows: 200, span: 1, page_bytes: 512 };
        let made = tables::make(&device, 0, wish, &mut Prng::from_seed(3));
        let page = made.rows[100].rid.page;
        let old: Vec<Row> = made.rows.iter().filter(|row| row.rid.page == page).copied().collect();
        assert!(old.len() > 4, "{} rows", old.len());
        let mut new = old.clone();
        new[0].id = 1_000;
        new[1].key = Some(8);
        new[2].id = 1_001;
        new.pop();
        put(&*device, pages, (0, page, 2), &new);
        let even = |row: &[u8]| tables::id(row) != 1_001;
        let input = Input { predicate: Some(Arc::new(even)), ..made.input.clone() };
        let how = (&Plan::ordinary(), &Cpu::free());
        let found = fetch(&input, &ids(), how, wanted(&made.rows)).expect("no faults");
        let reread = old.len() as u64 - 3;
        assert_eq!((found.freshness.reread, found.freshness.gone), (reread, 3));
        for (at, row) in made.rows.iter().enumerate() {
            let slot = usize::from(row.rid.slot);
            let is = match (row.rid.page == page, slot) {
                (true, 0) => Some(1_000),
                (true, 1 | 2) => None,
                (true, slot) if slot == old.len() - 1 => None,
                _ => Some(row.id),
            };
            assert_eq!(found.get(at).map(fetched), is, "row {at}");
        }
    };
    Virtual::new(VirtualConfig::default()).run(work).expect("it ends");
}
