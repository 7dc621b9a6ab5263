//! A modelled device as its users see it: bytes, barriers, counters, faults and power cuts.

use std::io;
use std::sync::Arc;

use terrace_device::model::{Faults, MarkKind, Preset, SimDevice, Spec};
use terrace_device::{Device, IoBuf, Keep, Op, Request, SECTOR_SIZE, Slab, Store, read, write};
use terrace_rt::{Nanos, Prng, Stopped, Virtual, VirtualConfig, World};

const PAGE: usize = 8192;
const PAGES: u64 = 256;
const LEN: u64 = PAGES * PAGE as u64;

fn world(seed: u64) -> Virtual {
    Virtual::new(VirtualConfig { seed, ..VirtualConfig::default() })
}

fn store() -> Store {
    Store::new(LEN, Keep::Shared(Slab::new()))
}

fn in_world<T>(run: impl FnOnce(World) -> T) -> T {
    let virtual_world = world(1);
    let handle = virtual_world.world();
    virtual_world.run(move || run(handle)).expect("nothing cuts the power")
}

fn at(page: u64) -> u64 {
    page * PAGE as u64
}

#[test]
fn every_preset_keeps_its_bytes_under_random_operations() {
    for row in Preset::TABLE {
        in_world(|world| {
            let device = SimDevice::new(row.preset.spec(), world, store());
            let mut model = vec![0; LEN as usize];
            let mut prng = Prng::from_seed(7);
            for _ in 0..300 {
                let sector = prng.below(LEN / SECTOR_SIZE as u64 - 64) as usize;
                let (from, len) =
                    (sector * SECTOR_SIZE, (1 + prng.below(64) as usize) * SECTOR_SIZE);
                if prng.chance(2) {
                    let bytes = vec![prng.below(5) as u8; len];
                    write(&*device, from as u64, &bytes).expect("no faults");
                    model[from..from + len].copy_from_slice(&bytes);
                } else {
                    let mut bytes = vec![0xEE; len];
                    read(&*device, from as u64, &mut bytes).expect("no faults");
                    assert!(bytes == model[from..from + len], "{}", row.name);
                }
            }
        });
    }
}

#[test]
fn memory_works_in_the_real_world_too() {
    let device = SimDevice::new(Preset::Ram.spec(), World::current(), store());
    write(&*device, at(2), &[3; PAGE]).expect("no faults");
    let mut bytes = vec![0; PAGE];
    read(&*device, at(2), &mut bytes).expect("no faults");
    assert_eq!(bytes, [3; PAGE]);
}

#[test]
fn scattered_buffers_are_filled_in_order() {
    in_world(|world| {
        let device = SimDevice::new(Preset::Sigmod2011Hdd.spec(), world, store());
        let (one, two) = (vec![1; PAGE], vec![2; PAGE]);
        let bufs = [IoBuf::from_ref(&one), IoBuf::from_ref(&two)];
        let request = Request { op: Op::Write, offset: at(3), bufs: &bufs, owner: None };
        // SAFETY: the buffers live, unchanged, until the wait below.
        let ticket = unsafe { device.submit(&[request]) };
        assert_eq!(device.queued(), 1);
        device.wait(ticket).expect("no faults");
        let mut bytes = vec![0; PAGE];
        read(&*device, at(4), &mut bytes).expect("no faults");
        assert_eq!(bytes, two);
    });
}

#[test]
fn utilisation_is_the_share_of_time_with_a_request_in_service() {
    in_world(|world| {
        let device = SimDevice::new(Preset::IoDrive.spec(), world, store());
        let mut bytes = vec![0; PAGE];
        for _ in 0..10 {
            read(&*device, at(9), &mut bytes).expect("no faults");
            terrace_rt::sleep(Nanos(82_088));
        }
        let counters = device.counters();
        assert_eq!((counters.reads, counters.read_bytes), (10, 10 * PAGE as u64));
        assert_eq!(counters.busy_ns * 2, terrace_rt::now().0);
    });
}

#[test]
fn an_array_is_busy_as_its_members_are_on_average() {
    in_world(|world| {
        let device = SimDevice::new(Preset::Sigmod2011Hdd.spec(), world, store());
        let mut bytes = vec![0; PAGE];
        for _ in 0..20 {
            read(&*device, at(5), &mut bytes).expect("no faults");
        }
        let share = device.counters().busy_ns as f64 / terrace_rt::now().0 as f64;
        assert!((share - 1.0 / 8.0).abs() < 1e-3, "one of eight disks works: {share}");
    });
}

/// Writes before the barrier, the barrier, a write after it: completions never cross it.
#[test]
fn no_request_crosses_a_barrier() {
    in_world(|world| {
        let spec = Preset::Sigmod2011Hdd.spec().with_write_cache();
        let device = SimDevice::new(spec, world, store());
        device.record_writes();
        let mut tasks = Vec::new();
        for number in 0..60 {
            let device = Arc::clone(&device);
            tasks.push(terrace_rt::spawn("client", move || {
                if number % 10 == 9 {
                    device.sync().expect("no faults");
                } else {
                    write(&*device, at(number * 37 % PAGES), &[1; PAGE]).expect("no faults");
                }
            }));
        }
        tasks.into_iter().for_each(terrace_rt::Task::join);
        let (mut completed, mut barriers) = (0, 0);
        for mark in device.marks() {
            match mark.kind {
                MarkKind::WriteSubmitted => {}
                MarkKind::WriteCompleted => completed += 1,
                MarkKind::Synced => {
                    barriers += 1;
                    assert_eq!(completed, 9 * barriers, "barrier {barriers}");
                }
            }
        }
        assert_eq!(barriers, 6);
    });
}

/// Rounds of synced writes to known pages, cut at some event. Returns the device and the last round
/// whose `sync` returned.
fn write_until_cut(spec: Spec, seed: u64, event: u64) -> (Arc<SimDevice>, u64) {
    let virtual_world = world(seed);
    let device = SimDevice::new(spec, virtual_world.world(), store());
    let durable = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let (writer, reached) = (Arc::clone(&device), Arc::clone(&durable));
    virtual_world.cut_at_event(event);
    let end = virtual_world.run(move || {
        for round in 1..=200u64 {
            for page in 0..4 {
                write(&*writer, at(page), &[round as u8; PAGE]).expect("no faults");
            }
            writer.sync().expect("no faults");
            reached.store(round, std::sync::atomic::Ordering::Relaxed);
        }
    });
    assert!(matches!(end, Err(Stopped::PowerCut { .. })), "event {event} comes in the run");
    (device, durable.load(std::sync::atomic::Ordering::Relaxed))
}

#[test]
fn what_was_synced_survives_every_cut_and_the_rest_may_be_torn() {
    let (mut torn, mut dropped) = (0, 0);
    for cached in [false, true] {
        for seed in 0..300 {
            let spec = Preset::Sigmod2011Hdd.spec();
            let spec = if cached { spec.with_write_cache() } else { spec };
            let (device, durable) = write_until_cut(spec, seed, 20 + seed);
            let report = device.power_cut(&mut Prng::from_seed(seed));
            torn += report.torn;
            dropped += report.dropped;
            let mut bytes = vec![0; 4 * PAGE];
            device.store().read(0, &mut bytes).expect("kept");
            let (sectors, _) = bytes.as_chunks::<SECTOR_SIZE>();
            for sector in sectors {
                let round = u64::from(sector[0]);
                assert!(sector.iter().all(|byte| *byte == sector[0]), "sectors are whole");
                assert!(round >= durable, "seed {seed}: round {durable} was synced");
                assert!(round <= durable + 1, "seed {seed}: nobody wrote round {round}");
            }
        }
    }
    assert!(torn > 0, "some write was torn");
    assert!(dropped > 0, "some write was dropped");
}

#[test]
fn a_cut_without_a_cache_keeps_completed_writes() {
    let virtual_world = world(3);
    let device = SimDevice::new(Preset::Sigmod2011Hdd.spec(), virtual_world.world(), store());
    let writer = Arc::clone(&device);
    virtual_world
        .run(move || write(&*writer, at(1), &[7; PAGE]).expect("no faults"))
        .expect("nothing cuts the power");
    assert_eq!(device.power_cut(&mut Prng::from_seed(1)).exposed, 0);
    let again = world(4);
    let device = device.reopen(again.world());
    let mut bytes = vec![0; PAGE];
    again.run(|| read(&*device, at(1), &mut bytes).expect("no faults")).expect("no cut");
    assert_eq!(bytes, [7; PAGE]);
    assert_eq!(device.counters().writes, 0, "counters start anew");
}

#[test]
fn a_cut_between_pages_tears_none() {
    let (mut old, mut new) = (0, 0);
    for seed in 0..20 {
        let virtual_world = world(seed);
        let device = SimDevice::new(Preset::Sigmod2011Hdd.spec(), virtual_world.world(), store());
        let writer = Arc::clone(&device);
        virtual_world.cut_at(Nanos::from_millis(1));
        let end = virtual_world.run(move || {
            write(&*writer, at(8), &[7; 8 * PAGE]).expect("no faults");
        });
        assert!(matches!(end, Err(Stopped::PowerCut { .. })), "a disk is not so fast");
        let report = device.power_cut_between_pages(&mut Prng::from_seed(seed));
        assert_eq!((report.exposed, report.torn), (1, 0), "seed {seed}");
        for page in 8..16 {
            let bytes = page_of(&device, page);
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "seed {seed}: page {page}");
            *(if bytes[0] == 7 { &mut new } else { &mut old }) += 1;
        }
    }
    assert!(old > 20 && new > 20, "{old} old and {new} new pages");
}

#[test]
fn a_dead_world_gives_back_its_bytes() {
    let slab = Slab::new();
    let virtual_world = world(3);
    let bytes = Store::new(LEN, Keep::Shared(Arc::clone(&slab)));
    let device = SimDevice::new(Preset::Sigmod2011Hdd.spec(), virtual_world.world(), bytes);
    virtual_world.cut_at(Nanos::from_millis(40));
    let end = virtual_world.run(move || {
        for page in 0..PAGES {
            write(&*device, at(page), &[page as u8; PAGE]).expect("no faults");
        }
    });
    assert!(end.is_err());
    drop(virtual_world);
    assert_eq!(slab.images(), 0);
}

fn faulty(world: World, faults: Faults) -> Arc<SimDevice> {
    SimDevice::with_faults(Preset::Ram.spec(), world, store(), Faults { seed: 5, ..faults })
}

#[test]
fn a_full_device_refuses_and_changes_nothing() {
    in_world(|world| {
        let faults = Faults { full_from: Some(at(8)), ..Faults::default() };
        let device = faulty(world, faults);
        write(&*device, at(7), &[1; PAGE]).expect("there is room");
        let error = write(&*device, at(8), &[1; PAGE]).expect_err("there is no room");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let mut bytes = vec![9; PAGE];
        read(&*device, at(8), &mut bytes).expect("reading is fine");
        assert_eq!(bytes, [0; PAGE]);
    });
}

#[test]
fn a_latent_error_stays_until_the_page_is_written() {
    in_world(|world| {
        let device = faulty(world, Faults { latent_error_one_in: 1, ..Faults::default() });
        let mut bytes = vec![0; PAGE];
        assert!(read(&*device, at(2), &mut bytes).is_err());
        write(&*device, at(2), &[3; PAGE]).expect("writing mends");
        let whole = device.reopen(World::current());
        assert!(read(&*whole, at(2), &mut bytes).is_err(), "every read makes a new one");
    });
}

#[test]
fn lost_and_misdirected_writes_are_reported_complete() {
    in_world(|world| {
        let device = faulty(world.clone(), Faults { lost_write_one_in: 1, ..Faults::default() });
        write(&*device, at(2), &[3; PAGE]).expect("reported complete");
        assert!(page_of(&device, 2).iter().all(|byte| *byte == 0));

        let faults = Faults { misdirected_write_one_in: 1, ..Faults::default() };
        let device = faulty(world, faults);
        write(&*device, at(2), &[3; PAGE]).expect("reported complete");
        let hit = (0..PAGES).filter(|page| page_of(&device, *page)[0] == 3).count();
        assert_eq!(hit, 1);
        assert_ne!(page_of(&device, 2)[0], 3, "this seed sends it elsewhere");
    });
}

fn page_of(device: &SimDevice, page: u64) -> Vec<u8> {
    let mut bytes = vec![0; PAGE];
    device.store().read(at(page), &mut bytes).expect("kept");
    bytes
}

#[test]
fn bit_rot_flips_one_bit_for_good() {
    in_world(|world| {
        let device = faulty(world, Faults { bit_rot_one_in: 1, ..Faults::default() });
        let mut bytes = vec![0; PAGE];
        read(&*device, at(2), &mut bytes).expect("it does not know");
        let flipped: u32 = bytes.iter().map(|byte| byte.count_ones()).sum();
        assert_eq!(flipped, 1);
        assert_eq!(page_of(&device, 2), bytes);
    });
}

#[test]
fn a_dead_device_fails_everything_until_it_comes_back() {
    in_world(|world| {
        let device = faulty(world, Faults { dies_after: Some(1), ..Faults::default() });
        write(&*device, at(2), &[3; PAGE]).expect("still alive");
        let error = write(&*device, at(2), &[4; PAGE]).expect_err("dead");
        assert_eq!(error.kind(), io::ErrorKind::NotConnected);
        assert!(device.sync().is_err());
        assert_eq!(page_of(&device, 2)[0], 3);
    });
}

#[test]
fn a_stall_takes_longer() {
    in_world(|world| {
        let stall = Nanos::from_millis(500);
        let device = faulty(world, Faults { stall_one_in: 1, stall, ..Faults::default() });
        write(&*device, at(2), &[3; PAGE]).expect("in the end");
        assert_eq!(terrace_rt::now(), stall);
    });
}

#[test]
fn two_worlds_on_two_threads_share_one_database() {
    let slab = Slab::new();
    let mut loaded = Store::new(LEN, Keep::Shared(Arc::clone(&slab)));
    for page in 0..PAGES {
        loaded.write(at(page), &[page as u8 % 200 + 1; PAGE]);
    }
    let images = slab.images();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let copy = loaded.clone();
            scope.spawn(move || {
                let virtual_world = world(thread);
                let device = SimDevice::new(Preset::Ram.spec(), virtual_world.world(), copy);
                let end = virtual_world.run(|| {
                    for page in 0..PAGES {
                        write(&*device, at(page), &[thread as u8 + 1; PAGE]).expect("no faults");
                    }
                    let mut bytes = vec![0; PAGE];
                    read(&*device, at(100), &mut bytes).expect("no faults");
                    assert_eq!(bytes[0], thread as u8 + 1);
                });
                end.expect("nothing cuts the power");
            });
        }
    });
    assert_eq!(slab.images(), images, "the copies are gone");
    let mut bytes = vec![0; PAGE];
    loaded.read(at(100), &mut bytes).expect("kept");
    assert_eq!(bytes[0], 101);
}
