//! Storages that break one rule each, and how a device stands what they do.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use terrace_rt::{Nanos, Real, Virtual, VirtualConfig};

use super::conformance::conformance_within;
use super::*;
use crate::{Device, DeviceError, Operation, read, write};

/// Which rule a storage breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// It moves a part of what it is asked for, at times a part of a sector: allowed.
    Short,
    /// At times it is interrupted: allowed.
    Interrupted,
    /// Its length is fixed: allowed, if it is long enough.
    Fixed,
    FailsRead,
    FailsSync,
    PanicsInWrite,
    HangsInSync,
    CountsTooMuch,
    CountsNothing,
    ReadsPastTheEnd,
    LengthWavers,
    Shortens,
    DoesNotGrow,
    GrowsWithGarbage,
    WritesBeside,
    LosesThirdWrites,
    KeepsOldReads,
    PunchesMore,
    PunchShortens,
    PunchFills,
    ForgetsAtClosing,
    OnePosition,
    TearsSectors,
}

/// What is left of a storage when it is closed.
#[derive(Default)]
struct Medium {
    bytes: RwLock<Vec<u8>>,
    /// As of the last sync.
    synced: RwLock<Vec<u8>>,
}

struct Wrong {
    fault: Fault,
    medium: Arc<Medium>,
    calls: AtomicU64,
    position: AtomicU64,
    stuck: Arc<Stuck>,
}

/// Where calls hang until the test is over.
#[derive(Default)]
struct Stuck(Mutex<bool>, Condvar);

impl Stuck {
    fn hang(&self) {
        let free = self.0.lock().expect("no panic");
        drop(self.1.wait_while(free, |free| !*free).expect("no panic"));
    }

    fn free(&self) {
        *self.0.lock().expect("no panic") = true;
        self.1.notify_all();
    }
}

impl Wrong {
    fn new(fault: Fault, medium: &Arc<Medium>, stuck: &Arc<Stuck>) -> Wrong {
        if fault == Fault::ForgetsAtClosing {
            *medium.bytes.write().expect("no panic") = medium.synced.read().expect("none").clone();
        }
        let (medium, stuck) = (Arc::clone(medium), Arc::clone(stuck));
        let [calls, position] = [0, 0].map(AtomicU64::new);
        Wrong { fault, medium, calls, position, stuck }
    }

    fn blank(fault: Fault, len: usize) -> Wrong {
        let medium = Arc::<Medium>::default();
        medium.bytes.write().expect("no panic").resize(len, 0);
        Wrong::new(fault, &medium, &Arc::default())
    }

    /// Whether it is time, once in `one_in` calls.
    fn is_time(&self, one_in: u64) -> bool {
        self.calls.fetch_add(1, Ordering::Relaxed) % one_in == one_in - 1
    }

    /// Where a call begins whose storage has one position for all.
    fn seek(&self, offset: u64) -> u64 {
        if self.fault != Fault::OnePosition {
            return offset;
        }
        self.position.store(offset, Ordering::Relaxed);
        thread::yield_now();
        self.position.load(Ordering::Relaxed)
    }

    fn part(&self, len: usize) -> usize {
        match self.fault {
            Fault::Short if self.is_time(2) => len.div_ceil(3),
            _ => len,
        }
    }
}

impl Storage for Wrong {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        match self.fault {
            Fault::FailsRead if self.is_time(40) => return Err(io::Error::other("a bad sector")),
            Fault::Interrupted if self.is_time(3) => return Err(ErrorKind::Interrupted.into()),
            Fault::KeepsOldReads if self.is_time(50) => return Ok(bytes.len()),
            _ => (),
        }
        let offset = self.seek(offset) as usize;
        let held = self.medium.bytes.read().expect("no panic");
        let rest = held.get(offset..).unwrap_or_default();
        let len = self.part(rest.len().min(bytes.len()));
        bytes[..len].copy_from_slice(&rest[..len]);
        match self.fault {
            Fault::CountsTooMuch => Ok(len + 1),
            Fault::CountsNothing => Ok(0),
            Fault::ReadsPastTheEnd => Ok(bytes.len()),
            _ => Ok(len),
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let len = self.part(bytes.len());
        let mut offset = self.seek(offset) as usize;
        match self.fault {
            Fault::PanicsInWrite => panic!("a bug of the user"),
            Fault::Interrupted if self.is_time(3) => return Err(ErrorKind::WouldBlock.into()),
            Fault::LosesThirdWrites if self.is_time(30) => return Ok(len),
            Fault::WritesBeside if self.is_time(30) => offset = offset.saturating_sub(512),
            Fault::TearsSectors => {
                for (at, part) in bytes.chunks(256).enumerate() {
                    let mut held = self.medium.bytes.write().expect("no panic");
                    held[offset + at * 256..][..part.len()].copy_from_slice(part);
                    drop(held);
                    thread::yield_now();
                }
                return Ok(len);
            }
            _ => (),
        }
        let mut held = self.medium.bytes.write().expect("no panic");
        let len = len.min(held.len() - offset);
        held[offset..][..len].copy_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn sync(&self) -> io::Result<()> {
        match self.fault {
            Fault::FailsSync => return Err(io::Error::from_raw_os_error(libc::EIO)),
            Fault::HangsInSync => self.stuck.hang(),
            // All but the first.
            Fault::ForgetsAtClosing if self.calls.fetch_add(1, Ordering::Relaxed) > 0 => {
                return Ok(());
            }
            _ => (),
        }
        let held = self.medium.bytes.read().expect("no panic").clone();
        *self.medium.synced.write().expect("no panic") = held;
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let len = self.medium.bytes.read().expect("no panic").len() as u64;
        let wavers = self.fault == Fault::LengthWavers && self.is_time(2);
        Ok(if wavers { len + 512 } else { len })
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        if self.fault == Fault::Fixed {
            return Err(ErrorKind::Unsupported.into());
        }
        let mut held = self.medium.bytes.write().expect("no panic");
        let filler = u8::from(self.fault == Fault::GrowsWithGarbage);
        match self.fault {
            Fault::DoesNotGrow => (),
            Fault::Shortens => held.resize(len as usize, 0),
            _ if len as usize > held.len() => held.resize(len as usize, filler),
            _ => (),
        }
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<Punched> {
        let mut held = self.medium.bytes.write().expect("no panic");
        let (mut from, mut to) = (offset as usize, (offset + len) as usize);
        match self.fault {
            Fault::Short => return Ok(Punched::Kept),
            Fault::PunchesMore => (from, to) = (from / 4096 * 4096, to.next_multiple_of(4096)),
            Fault::PunchShortens if to > held.len() / 2 => held.truncate(from),
            _ => (),
        }
        let end = to.min(held.len());
        let filler = if self.fault == Fault::PunchFills { 0xee } else { 0 };
        held[from.min(end)..end].fill(filler);
        Ok(Punched::Freed { bytes: len })
    }

    fn name(&self) -> String {
        String::from("the storage")
    }
}

fn tested(fault: Fault) -> Result<(), Broken> {
    let (medium, stuck) = (Arc::<Medium>::default(), Arc::<Stuck>::default());
    let begins_with = if fault == Fault::Fixed { 2 << 20 } else { 0 };
    medium.bytes.write().expect("no panic").resize(begins_with, 0);
    let limit = match fault {
        Fault::HangsInSync => Nanos::from_millis(200),
        _ => Nanos::from_secs(60),
    };
    let open = || Wrong::new(fault, &medium, &stuck);
    let tested = conformance_within(limit, open);
    stuck.free();
    tested
}

#[test]
fn storages_that_keep_the_rules_pass() {
    for fault in [Fault::None, Fault::Short, Fault::Interrupted, Fault::Fixed] {
        let tested = tested(fault);
        assert!(tested.is_ok(), "{fault:?}: {}", tested.expect_err("just seen"));
    }
}

#[test]
fn each_rule_that_is_broken_is_found() {
    let found = |fault| tested(fault).expect_err(&format!("{fault:?} is not found"));
    let contents = |fault, expected: &str| match found(fault) {
        Broken::Contents { after, .. } if after.contains(expected) => (),
        broken => panic!("{fault:?}: {broken}"),
    };
    assert!(matches!(found(Fault::FailsRead), Broken::Failed { call: "read_at", .. }));
    assert!(matches!(found(Fault::FailsSync), Broken::Failed { call: "sync", .. }));
    assert!(matches!(found(Fault::PanicsInWrite), Broken::Panicked { call: "write_at" }));
    assert!(matches!(found(Fault::HangsInSync), Broken::Silent { call: "sync", .. }));
    assert!(matches!(found(Fault::CountsTooMuch), Broken::Count { .. }));
    assert!(matches!(found(Fault::CountsNothing), Broken::Count { told: 0, .. }));
    assert!(matches!(found(Fault::ReadsPastTheEnd), Broken::PastEnd { .. }));
    for fault in [Fault::LengthWavers, Fault::Shortens, Fault::DoesNotGrow, Fault::PunchShortens] {
        let broken = found(fault);
        assert!(matches!(broken, Broken::Length { .. }), "{fault:?}: {broken}");
    }
    contents(Fault::GrowsWithGarbage, "grown");
    contents(Fault::WritesBeside, "write");
    contents(Fault::LosesThirdWrites, "write");
    contents(Fault::PunchesMore, "punch");
    contents(Fault::PunchFills, "punch");
    contents(Fault::ForgetsAtClosing, "opened again");
    assert!(matches!(found(Fault::KeepsOldReads), Broken::Contents { .. }));
    assert!(matches!(found(Fault::TearsSectors), Broken::TornSector { .. }));
    // Whether a call comes in between is chance; a hundred times sixty writes are enough.
    let beside = found(Fault::OnePosition);
    assert!(!matches!(beside, Broken::Silent { .. }), "{beside}");
}

#[test]
fn a_storage_that_is_too_short_is_no_broken_one() {
    let medium = Arc::<Medium>::default();
    medium.bytes.write().expect("no panic").resize(4096, 0);
    let open = || Wrong::new(Fault::Fixed, &medium, &Arc::default());
    assert!(matches!(conformance(open), Err(Broken::TooShort { len: 4096, .. })));
}

fn device(fault: Fault) -> StorageDevice {
    let storage = Arc::new(Wrong::blank(fault, 1 << 16));
    StorageDevice::open(storage, Nanos::from_secs(60)).expect("it tells its length")
}

/// In a thread, in a task of the real world, and in the virtual one.
fn everywhere(run: impl Fn() + Send + Sync) {
    run();
    Real::new(1).run(&run);
    Virtual::new(VirtualConfig::default()).run(run).expect("nobody waits for ever");
}

/// A fork's child wrote what it had of its parent's memory beside what the parent wrote.
#[test]
fn a_fork_of_its_process_makes_no_call() {
    let device = device(Fault::None);
    write(&device, 4096, &[1; 4096]).expect("a good storage");
    let used = terrace_rt::in_fork(|| {
        let mut page = [0; 4096];
        let calls = [
            write(&device, 4096, &[2; 4096]).is_ok(),
            read(&device, 4096, &mut page).is_ok(),
            device.sync().is_ok(),
            device.grow(1 << 17).is_ok(),
        ];
        calls.iter().position(|used| *used).map_or(0, |at| at as u8 + 1)
    });
    assert_eq!(used, 0, "the call of this number was made");
    device.sync().expect("the parent goes on");
}

#[test]
fn a_device_moves_the_rest_of_what_was_cut_short() {
    everywhere(|| {
        for fault in [Fault::None, Fault::Short, Fault::Interrupted] {
            let device = device(fault);
            let bytes: Vec<u8> = (0..8192_u32).map(|at| ((at * 7) >> 3) as u8).collect();
            write(&device, 4096, &bytes).expect("a good storage");
            device.sync().expect("a good storage");
            let mut found = vec![0; 8192];
            read(&device, 4096, &mut found).expect("a good storage");
            assert_eq!(found, bytes, "{fault:?}");
            let counters = device.counters();
            assert_eq!((counters.read_bytes, counters.written_bytes), (8192, 8192));
            assert_eq!((counters.syncs, device.queued()), (1, 0));
            device.grow(1 << 17).expect("a good storage");
            assert_eq!(device.len(), 1 << 17);
            device.punch(4096, 4096).expect("a good storage");
        }
    });
}

#[test]
fn what_a_storage_tells_is_checked_and_errors_say_where() {
    everywhere(|| {
        let told = |error: io::Error| {
            let told = DeviceError::of(&error).expect("it says where");
            assert_eq!(told.device, "the storage");
            (told.operation, told.range, told.source.to_string())
        };
        let mut bytes = [0; 1024];
        let failed = |fault, error: io::Error, expected: &str| {
            let (operation, range, source) = told(error);
            assert!(source.contains(expected), "{fault:?}: {source}");
            (operation, range)
        };
        let at = Some((512, 1024));
        for (fault, expected) in
            [(Fault::CountsTooMuch, "1025 bytes of 1024"), (Fault::CountsNothing, "")]
        {
            let device = device(fault);
            let error = (0..60).find_map(|_| read(&device, 512, &mut bytes).err());
            assert_eq!(failed(fault, error.expect("found"), expected), (Operation::Read, at));
        }
        let fault = Fault::PanicsInWrite;
        let error = write(&device(fault), 512, &bytes).expect_err("it panics");
        assert_eq!(failed(fault, error, "panicked"), (Operation::Write, at));
        let fault = Fault::DoesNotGrow;
        let error = device(fault).grow(1 << 17).expect_err("it does not");
        assert_eq!(
            failed(fault, error, "and has 65536"),
            (Operation::Grow, Some((1 << 16, 1 << 16)))
        );
        let fixed = device(Fault::Fixed).grow(1 << 17).expect_err("it is fixed");
        assert_eq!(fixed.kind(), ErrorKind::Unsupported);
        let device = device(Fault::FailsSync);
        assert_eq!(
            failed(Fault::FailsSync, device.sync().expect_err("it fails"), ""),
            (Operation::Sync, None)
        );
        assert!(device.sync().expect_err("for good").to_string().contains("earlier sync"));
        device.release();
        let error = read(&device, 512, &mut bytes).expect_err("it is closed");
        assert!(DeviceError::of(&error).is_some_and(DeviceError::is_released));
    });
}

#[test]
fn a_storage_that_hangs_is_waited_for_no_longer_than_the_limit() {
    let stuck = Arc::<Stuck>::default();
    let medium = Arc::<Medium>::default();
    medium.bytes.write().expect("no panic").resize(1 << 16, 0);
    let storage = Arc::new(Wrong::new(Fault::HangsInSync, &medium, &stuck));
    let device = StorageDevice::open(storage, Nanos::from_secs(60)).expect("it tells its length");
    device.set_time_limit(Nanos::from_millis(200));
    let begun = Instant::now();
    let error = device.sync().expect_err("it hangs");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(begun.elapsed() < Duration::from_secs(60));
    // Its other calls are answered meanwhile, and it is the call's until that has returned.
    write(&device, 0, &[7; 512]).expect("it takes writes");
    assert_eq!(device.queued(), 1);
    device.release();
    stuck.free();
    while device.queued() > 0 {
        thread::yield_now();
    }
}
