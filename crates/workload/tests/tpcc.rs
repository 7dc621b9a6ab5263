//! TPC-C as a whole, small, in the virtual world: its checks see what is broken, every design
//! keeps it consistent through runs and power cuts, and the same seed gives the same result.

use std::sync::Arc;

use terrace::{Database, Devices, Durability, Error, WriteTransaction};
use terrace_device::model::{Preset, SimDevice, build};
use terrace_device::{Keep, Store};
use terrace_policy::DESIGNS;
use terrace_rt::{Nanos, Prng, Stopped, Virtual, VirtualConfig, World};
use terrace_workload::tpcc::consistency::{self, Condition};
use terrace_workload::tpcc::rows::{Customer, District, History, Order, OrderLine, Warehouse};
use terrace_workload::tpcc::schema::{
    CUSTOMER, CUSTOMER_BY_NAME, DISTRICT, HISTORY, NEW_ORDER, ORDER, ORDER_BY_CUSTOMER, ORDER_LINE,
    WAREHOUSE,
};
use terrace_workload::tpcc::{Config, Kind, Scale, load, populate, run};
use terrace_workload::{Consistency, System};

/// Some 400 pages, three times the memory of `small`.
const SCALE: Scale = Scale { warehouses: 2, districts: 10, customers: 60, items: 1000 };

fn small() -> Config {
    Config {
        seed: 7,
        scale: SCALE,
        system: System {
            memory_pages: 128,
            flash_pages: 256,
            log_bytes: 64 << 20,
            ..System::default()
        },
        clients: 8,
        delivery_tasks: 2,
        duration: Nanos::from_millis(6_000),
        window: Nanos::from_millis(500),
        ..Config::default()
    }
}

fn ram(world: &World, bytes: u64) -> Arc<SimDevice> {
    build(Preset::Ram, world.clone(), Store::new(bytes, Keep::Plain))
}

/// Runs `test` on a freshly loaded database.
fn on_new_database(test: impl FnOnce(&Database)) {
    let world = Virtual::new(VirtualConfig::default());
    let (home, log) = (ram(&world.world(), 64 << 20), ram(&world.world(), 64 << 20));
    let devices = Devices { home, flash: None, log };
    world
        .run(|| {
            let db = Database::builder()
                .memory(16 << 20)
                .world(World::current())
                .devices(devices)
                .create_on_devices()
                .expect("blank devices");
            let config = Config { scale: SCALE, ..Config::default() };
            populate(&db, &config, &mut |_, _| {}).expect("loads");
            test(&db);
            db.close().expect("closes");
        })
        .expect("the power stays on");
}

fn broken(db: &Database) -> Vec<Condition> {
    let found = consistency::check(db, SCALE).expect("reads");
    let mut conditions: Vec<_> = found.iter().map(|violation| violation.condition).collect();
    conditions.sort_unstable();
    conditions.dedup();
    conditions
}

#[test]
fn a_new_database_meets_all_conditions() {
    on_new_database(|db| assert_eq!(broken(db), []));
}

type Break = fn(&WriteTransaction) -> Result<(), Error>;

/// Changes one stored row.
macro_rules! change {
    ($txn:expr, $table:expr, $key:expr, $row:ident, |$changed:ident| $change:expr) => {{
        let mut table = $txn.open_table($table)?;
        let mut bytes = table.get($key)?.expect("a loaded row").value().to_vec();
        let mut $changed = $row::change(&mut bytes).expect("a whole row");
        $change;
        table.insert($key, &bytes)
    }};
}

/// One way to break each condition, and the conditions that see it.
const BREAKS: [(&[Condition], Break); 15] = {
    use Condition::{Clause, NameIndex, OrderIndex, Stray};
    [
        (&[Clause(1), Clause(8)], |txn| {
            change!(txn, WAREHOUSE, 1, Warehouse, |row| row.set_ytd(row.ytd() + 1))
        }),
        (&[Clause(2)], |txn| {
            let key = (1, 1);
            change!(txn, DISTRICT, key, District, |row| row.set_next_order(row.next_order() + 1))
        }),
        (&[Clause(3), Clause(5), Clause(11)], |txn| {
            txn.open_table(NEW_ORDER)?.remove((1, 2, SCALE.first_new_order() + 1)).map(drop)
        }),
        (&[Clause(4), Clause(6)], |txn| {
            change!(txn, ORDER, (2, 1, 1), Order, |row| row.set_lines(row.lines() + 1))
        }),
        (&[Clause(5), Clause(7), Clause(10), Clause(12)], |txn| {
            let key = (1, 1, SCALE.customers);
            let mut order = txn.open_table(ORDER)?;
            let mut bytes = order.get(key)?.expect("a loaded row").value().to_vec();
            Order::change(&mut bytes).expect("a whole row").set_carrier(3);
            order.insert(key, &bytes)
        }),
        (&[Clause(4), Clause(6)], |txn| txn.open_table(ORDER_LINE)?.remove((1, 1, 1, 2)).map(drop)),
        (&[Clause(7)], |txn| {
            change!(txn, ORDER_LINE, (1, 1, 1, 1), OrderLine, |row| row.set_delivery_date(0))
        }),
        (&[Clause(8), Clause(9), Clause(10)], |txn| {
            let key = txn.open_table(HISTORY)?.first()?.expect("a loaded row").key();
            change!(txn, HISTORY, key, History, |row| row.set_amount(row.amount() + 1))
        }),
        (&[Clause(1), Clause(9)], |txn| {
            change!(txn, DISTRICT, (2, 10), District, |row| row.set_ytd(row.ytd() - 5))
        }),
        (&[Clause(10), Clause(12)], |txn| {
            let key = (1, 1, 1);
            change!(txn, CUSTOMER, key, Customer, |row| row.set_balance(row.balance() + 1))
        }),
        (&[Clause(11)], |txn| {
            let key = (1, 1, 2);
            change!(txn, CUSTOMER, key, Customer, |row| row.set_deliveries(row.deliveries() + 1))
        }),
        (&[Clause(12)], |txn| {
            let key = (1, 1, 3);
            change!(txn, CUSTOMER, key, Customer, |row| row.set_ytd_payment(5))
        }),
        (&[NameIndex], |txn| {
            let mut index = txn.open_table(CUSTOMER_BY_NAME)?;
            let key = index.first()?.expect("a loaded row").key();
            index.remove(key).map(drop)
        }),
        (&[OrderIndex], |txn| txn.open_table(ORDER_BY_CUSTOMER)?.insert((1, 1, 1, 9999), ())),
        (&[Stray], |txn| txn.open_table(NEW_ORDER)?.insert((77, 1, 1), ())),
    ]
};

#[test]
fn every_broken_condition_is_seen() {
    for (index, (expected, damage)) in BREAKS.iter().enumerate() {
        on_new_database(|db| {
            let txn = db.begin_write().expect("begins");
            damage(&txn).expect("a change that the engine allows");
            txn.commit(Durability::None).expect("commits");
            assert_eq!(broken(db), *expected, "break {index}");
        });
    }
}

#[test]
fn every_design_runs_and_stays_consistent() {
    let config = small();
    let loaded = load(&config, &mut |_, _| {}).expect("loads");
    assert_eq!(loaded.consistency, Consistency::Ok);
    for design in DESIGNS {
        let mut calls = 0;
        let result = run(&loaded, &config, design, &mut |_| calls += 1).expect(design.name);
        assert_eq!(result.consistency, Consistency::Ok, "{}", design.name);
        assert_eq!((calls, result.windows.len()), (12, 12));
        for kind in Kind::ALL {
            assert!(result.kind(kind).committed > 0, "{} {}", design.name, kind.name());
        }
        assert!(result.tpmc > 0.0 && result.averages.home.reads + result.averages.home.writes > 0);
    }
}

#[test]
fn a_seed_decides_the_result() {
    let config = Config { durability: Durability::Buffered, ..small() };
    let lc = terrace_policy::designs::find("lc").expect("a row of the table");
    let once = || {
        let loaded = load(&config, &mut |_, _| {}).expect("loads");
        run(&loaded, &config, lc, &mut |_| {}).expect("runs")
    };
    assert_eq!(format!("{:?}", once()), format!("{:?}", once()));
}

#[test]
fn power_cuts_leave_a_consistent_database() {
    for seed in 0..5 {
        let mut prng = Prng::from_seed(seed);
        let design = DESIGNS[seed as usize % DESIGNS.len()];
        let config = Config { seed, ..small() };
        let mut rig: Option<[Arc<SimDevice>; 3]> = None;
        for _ in 0..3 {
            let world = Virtual::new(VirtualConfig { seed, ..VirtualConfig::default() });
            let handle = world.world();
            let (is_new, devices) = match rig.take() {
                None => (
                    true,
                    [64 << 20, 4 << 20, 64 << 20].map(|bytes| {
                        let spec = Preset::Nvme.spec().with_write_cache();
                        SimDevice::new(spec, handle.clone(), Store::new(bytes, Keep::Plain))
                    }),
                ),
                Some(old) => (false, old.map(|device| device.reopen(handle.clone()))),
            };
            let [home, flash, log] = devices.clone();
            let parts = Devices { home, flash: design.uses_flash().then_some(flash as _), log };
            let cut = Nanos::from_millis(20 + prng.below(100));
            let stopped = world.run(|| {
                let builder =
                    Database::builder().memory(1 << 20).design(design).world(handle).devices(parts);
                let db = match is_new {
                    true => builder.create_on_devices(),
                    false => builder.open_on_devices(),
                };
                let db = db.expect("opens");
                if is_new {
                    populate(&db, &config, &mut |_, _| {}).expect("loads");
                    db.flush().expect("flushes");
                }
                assert_eq!(broken(&db), [], "seed {seed} {}", design.name);
                world.cut_at(Nanos(world.world().now().0 + cut.0));
                let date = 2_000_000_000_000_000_000 + world.world().now().0;
                terrace_workload::tpcc::measure(
                    &db,
                    &config,
                    (design.name, date),
                    &world.world(),
                    &mut |_| {},
                )
                .map(drop)
            });
            assert!(matches!(stopped, Err(Stopped::PowerCut { .. })), "seed {seed}: {stopped:?}");
            for device in &devices {
                device.power_cut(&mut prng);
            }
            rig = Some(devices);
        }
    }
}
