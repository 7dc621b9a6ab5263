//! ParaScan sees every row once, whatever the plan, and ends with the device's error.

use std::sync::Arc;

use terrace_device::inside::Search;
use terrace_device::model::{Faults, Preset, build};
use terrace_device::{Device, Keep, Store};
use terrace_rt::{Prng, Virtual, VirtualConfig, World, now};

use super::tables::{self, Keys, Row, Wish, id, key};
use crate::{Cpu, Error, Found, Plan, choose, scan};

const DRIVE_BYTES: u64 = 8 << 20;

fn world(seed: u64) -> Virtual {
    Virtual::new(VirtualConfig { seed, cores: 4, ..VirtualConfig::default() })
}

#[test]
fn every_row_is_seen_once_with_any_plan_on_any_device() {
    for seed in 0..60 {
        let mut prng = Prng::from_seed(seed);
        let preset =
            [Preset::Ram, Preset::SsdS, Preset::SsdM, Preset::Hdd7200][prng.below(4) as usize];
        let run = || {
            let device: Arc<dyn Device> = tables::device(preset, DRIVE_BYTES, Faults::default());
            let wish = tables::wish(&mut prng, 2_000);
            let first = u64::from(wish.page_bytes) * prng.below(50);
            let made = tables::make(&device, first, wish, &mut prng);
            let plan = tables::plan(&mut prng);
            let table = &made.input.table;
            let cpu = if prng.chance(2) { Cpu::free() } else { Cpu::with_cores(2, 4) };
            let seen = scan(
                table,
                &plan,
                &cpu,
                |_| Vec::new(),
                |seen, page, _| {
                    seen.extend(page.rows().map(|(rid, row)| Row {
                        key: key(row),
                        rid,
                        id: id(row),
                    }));
                    assert_eq!(page.rows().count(), usize::from(page.count()));
                    assert!(page.row(page.count()).is_none() && page.version() == 1);
                    Ok(())
                },
            );
            let seen = seen.expect("no faults");
            let (tasks, _) = plan.buffers(table.page_bytes());
            assert_eq!(seen.len(), tasks as usize);
            let mut seen: Vec<Row> = seen.into_iter().flatten().collect();
            seen.sort_by_key(|row| row.rid);
            assert_eq!(seen, made.rows, "seed {seed}");
        };
        world(seed).run(run).expect("it ends");
    }
}

#[test]
fn a_device_that_fails_ends_the_scan_with_its_error() {
    for seed in 0..40 {
        let run = || {
            let mut prng = Prng::from_seed(seed);
            let store = Store::new(DRIVE_BYTES, Keep::Plain);
            let clean: Arc<dyn Device> = build(Preset::Ram, World::current(), store);
            let wish = Wish { keys: Keys::Spread, rows: 3_000, span: 100, page_bytes: 512 };
            drop(tables::make(&clean, 0, wish, &mut prng));
            let dies_after = Some(prng.below(50));
            let faults = Faults { seed, dies_after, ..Faults::default() };
            let bad: Arc<dyn Device> = tables::device(Preset::SsdS, DRIVE_BYTES, faults);
            let pages = crate::RowPages::new(512, 17).expect("whole sectors");
            let table = crate::Table::new(bad, Arc::new(pages), 0, 200).expect("it fits");
            let plan = tables::plan(&mut prng);
            scan(&table, &plan, &Cpu::free(), |_| (), |(), _, _| Ok(())).map(drop)
        };
        let found = world(seed).run(run).expect("it does not hang");
        // The drive was never written: what it returned before it died is no page.
        let is_told = matches!(found, Err(Error::Device(_) | Error::Corrupt { .. }));
        assert!(is_told, "seed {seed}: {found:?}");
    }
}

#[test]
fn an_error_of_the_caller_ends_the_scan() {
    let run = || {
        let device: Arc<dyn Device> = tables::device(Preset::SsdS, DRIVE_BYTES, Faults::default());
        let wish = Wish { keys: Keys::Spread, rows: 5_000, span: 100, page_bytes: 512 };
        let made = tables::make(&device, 0, wish, &mut Prng::from_seed(1));
        let plan = Plan::striped(20, 4096, 32, 20).expect("it has domains");
        scan(
            &made.input.table,
            &plan,
            &Cpu::free(),
            |_| (),
            |(), page, _| {
                if page.page() == 60 { Err(Error::OneDomain) } else { Ok(()) }
            },
        )
        .map(drop)
    };
    let found = world(1).run(run).expect("it ends");
    assert!(matches!(found, Err(Error::OneDomain)), "{found:?}");
}

/// Time of a scan of 4 MiB in virtual seconds.
fn seconds(preset: Preset, plan: Plan) -> f64 {
    let run = || {
        let device: Arc<dyn Device> = tables::device(preset, DRIVE_BYTES, Faults::default());
        let pages = crate::RowPages::new(4096, 100).expect("whole sectors");
        let mut bytes = [0; 4096];
        for page in 0..1024 {
            pages.fill(page, 1, 30, &mut bytes, |_, _| ());
            terrace_device::write(&*device, u64::from(page) * 4096, &bytes).expect("it writes");
        }
        let table = crate::Table::new(device, Arc::new(pages), 0, 1024).expect("it fits");
        let begin = now();
        scan(&table, &plan, &Cpu::free(), |_| (), |(), _, _| Ok(())).expect("no faults");
        now().saturating_sub(begin).as_secs_f64()
    };
    world(1).run(run).expect("it ends")
}

#[test]
fn a_task_for_each_domain_scans_several_times_as_fast_as_one() {
    let all = Plan::striped(20, 4096, 32, 32).expect("it has domains");
    let one = all.with_degree(1).expect("a task");
    let gain = seconds(Preset::SsdS, one) / seconds(Preset::SsdS, all);
    assert!(gain > 4.0, "{gain}");
    // On a disk there is nothing to win.
    let disk = seconds(Preset::Hdd7200, Plan::ordinary()) / seconds(Preset::Hdd7200, all);
    assert!(disk < 1.05, "{disk}");
}

#[test]
fn the_choice_follows_the_domains_and_leaves_a_disk_to_the_ordinary_scan() {
    let look = |preset| {
        let run = move || {
            let len = 256 << 20;
            let store = Store::new(len, Keep::Plain);
            let device: Arc<dyn Device> = build(preset, World::current(), store);
            let search = Search { seed: 1, stride_max: 1 << 20 };
            choose(&device, len, &search, (32, 4)).expect("no faults")
        };
        world(1).run(run).expect("it ends")
    };
    let found = look(Preset::SsdS);
    assert_eq!(found.found, Found::Domains { domains: 20, chunk_bytes: 4096 });
    assert_eq!((found.plan.degree(), found.plan.domains()), (4, 20));
    let found = look(Preset::Hdd7200);
    assert!(matches!(found.found, Found::Ordinary { gain: Some(gain) } if gain < 1.1), "{found:?}");
    assert_eq!(found.plan, Plan::ordinary());
    // A drive that places pages anywhere shows no domains; its queue is worth using all the same.
    let found = look(Preset::DcNvme);
    assert!(matches!(found.found, Found::Lanes { .. }), "{found:?}");
}
