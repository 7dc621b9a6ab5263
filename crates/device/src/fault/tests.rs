//! Faults by a plan, and how they are waited for, tried again and reported.

use std::io::ErrorKind;

use terrace_rt::{Real, Virtual, VirtualConfig, World, now};

use super::*;
use crate::model::{Preset, build};
use crate::{Fuse, Keep, Store, errno, read, write};

const SECONDS_5: Nanos = Nanos::from_secs(5);

fn memory() -> Arc<dyn Device> {
    build(Preset::Ram, World::current(), Store::new(1 << 20, Keep::Plain))
}

fn in_world(run: impl FnOnce()) {
    let config = VirtualConfig { seed: 1, switch_one_in: 0, cores: 1, stack_bytes: 256 << 10 };
    Virtual::new(config).run(run).expect("nobody waits for ever");
}

#[test]
fn a_silent_device_is_waited_for_no_longer_than_its_limit() {
    in_world(|| {
        let device = FaultyDevice::new(memory(), FaultPlan::default());
        device.set_time_limit(SECONDS_5);
        write(&*device, 0, &[7; 512]).expect("memory");
        device.set_silent(true);
        let began = now();
        let mut bytes = [1; 512];
        let error = read(&*device, 0, &mut bytes).expect_err("silent");
        assert_eq!((error.kind(), bytes), (ErrorKind::TimedOut, [1; 512]));
        assert_eq!(now() - began, SECONDS_5);
        assert_eq!(device.sync().expect_err("silent").kind(), ErrorKind::TimedOut);
        assert_eq!(now() - began, SECONDS_5 * 2);
        assert_eq!(device.counts().silent, 2);
        device.set_silent(false);
        read(&*device, 0, &mut bytes).expect("it is back");
        assert_eq!(bytes, [7; 512]);
    });
}

#[test]
fn a_thread_waits_for_a_silent_device_no_longer_than_its_limit() {
    for on_executor in [false, true] {
        let run = || {
            let device = FaultyDevice::new(memory(), FaultPlan::default());
            device.set_time_limit(Nanos::from_millis(20));
            device.set_silent(true);
            read(&*device, 0, &mut [0; 512]).expect_err("silent").kind()
        };
        let kind = if on_executor { Real::new(1).run(run) } else { run() };
        assert_eq!(kind, ErrorKind::TimedOut);
    }
}

#[test]
fn a_write_that_fails_in_part_leaves_whole_sectors_from_its_front() {
    in_world(|| {
        let plan = FaultPlan { seed: 7, partial_error_one_in: 1, ..FaultPlan::default() };
        let device = FaultyDevice::new(memory(), plan);
        let mut lengths = std::collections::BTreeSet::new();
        for at in 0..64_u64 {
            let error = write(&*device, at * 4096, &[9; 4096]).expect_err("in part");
            assert_eq!(errno(&error), Some(libc::EIO));
            device.set_plan(FaultPlan::default());
            let mut bytes = [0; 4096];
            read(&*device, at * 4096, &mut bytes).expect("memory");
            let done = bytes.iter().take_while(|&&byte| byte == 9).count();
            assert!(bytes[done..].iter().all(|&byte| byte == 0) && done % 512 == 0, "{done}");
            lengths.insert(done);
            device.set_plan(FaultPlan {
                seed: at,
                partial_error_one_in: 1,
                ..FaultPlan::default()
            });
        }
        assert!(lengths.len() > 4 && !lengths.contains(&4096), "{lengths:?}");
    });
}

#[test]
fn errors_that_pass_are_tried_again_and_others_are_told() {
    in_world(|| {
        let passing = FaultPlan { seed: 3, passing_error_one_in: 3, ..FaultPlan::default() };
        let device = FaultyDevice::new(memory(), passing);
        for at in 0..500 {
            write(&*device, at * 512, &[at as u8; 512]).expect("tried again");
            let mut bytes = [0; 512];
            read(&*device, at * 512, &mut bytes).expect("tried again");
            assert_eq!(bytes, [at as u8; 512]);
        }
        assert!(device.counts().passing > 100, "{:?}", device.counts());
        let once = FaultPlan { read_error_one_in: 20, ..FaultPlan::default() };
        device.set_plan(once);
        for at in 0..500 {
            read(&*device, at * 512, &mut [0; 512]).expect("tried again");
        }
        let always = FaultPlan { write_error_one_in: 1, ..FaultPlan::default() };
        device.set_plan(always);
        let error = write(&*device, 1024, &[0; 512]).expect_err("always");
        assert_eq!(errno(&error), Some(libc::EIO));
        let told = DeviceError::of(&error).expect("it tells");
        assert_eq!((told.operation, told.range), (Operation::Write, Some((1024, 512))));
    });
}

#[test]
fn what_cannot_be_written_stays_as_it_was_and_the_rest_is_written() {
    in_world(|| {
        let device = FaultyDevice::new(memory(), FaultPlan::default());
        write(&*device, 0, &[1; 2048]).expect("memory");
        device.set_unwritable(Some(512..1024));
        for (at, is_written) in [(0, true), (512, false), (1024, true)] {
            assert_eq!(write(&*device, at, &[2; 512]).is_ok(), is_written, "at {at}");
            let mut bytes = [0; 512];
            read(&*device, at, &mut bytes).expect("it can be read");
            assert_eq!(bytes, [1 + u8::from(is_written); 512], "at {at}");
        }
        device.set_unwritable(None);
        write(&*device, 512, &[3; 512]).expect("memory");
    });
}

#[test]
fn a_fuse_waits_for_a_silent_device_once() {
    in_world(|| {
        let faulty = FaultyDevice::new(memory(), FaultPlan::default());
        let fuse = Fuse::new(Arc::clone(&faulty) as Arc<dyn Device>);
        fuse.set_time_limit(SECONDS_5);
        write(&*fuse, 0, &[7; 512]).expect("memory");
        assert!(!fuse.is_given_up());
        faulty.set_silent(true);
        let began = now();
        let error = read(&*fuse, 0, &mut [0; 512]).expect_err("silent");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(fuse.is_given_up());
        // It may answer again: it is given up all the same.
        faulty.set_silent(false);
        for _ in 0..10 {
            assert_eq!(read(&*fuse, 0, &mut [0; 512]).expect_err("given up").kind(), GIVEN_UP);
            assert_eq!(write(&*fuse, 0, &[0; 512]).expect_err("given up").kind(), GIVEN_UP);
            assert_eq!(fuse.sync().expect_err("given up").kind(), GIVEN_UP);
        }
        assert_eq!(now() - began, SECONDS_5);
    });
}

const GIVEN_UP: ErrorKind = ErrorKind::NotConnected;

/// The bug: a cache that was silent ended what an opening withheld of home, too, and home's fuse
/// took that for a silence of home.
#[test]
fn a_fuse_learns_nothing_from_what_a_wrapper_has_answered() {
    let fuse = Fuse::for_writes(memory());
    let silent = std::iter::once(Err(std::io::Error::from(ErrorKind::TimedOut)));
    let waited = fuse.wait(crate::Completion::answered(silent));
    assert_eq!(waited.expect_err("as answered").source.kind(), ErrorKind::TimedOut);
    write(&*fuse, 0, &[7; 512]).expect("memory");
}

#[test]
fn the_same_plan_makes_the_same_faults() {
    let run = || {
        let plan = FaultPlan {
            seed: 9,
            read_error_one_in: 5,
            passing_error_one_in: 7,
            dies_after: Some(150),
            ..FaultPlan::default()
        };
        let device = FaultyDevice::new(memory(), plan);
        let kinds: Vec<_> = (0..300)
            .map(|_| read(&*device, 0, &mut [0; 512]).err().map(|error| error.kind()))
            .collect();
        (kinds, device.counts())
    };
    in_world(|| {
        let first = run();
        assert_eq!(first, run());
        assert!(first.1.dead > 0 && first.1.errors > 0 && first.1.passing > 0);
    });
}
