//! Every device that grows and gives room back does so alike: against a model of bytes and of
//! ranges whose contents are undefined.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use terrace_device::model::{Preset, build};
use terrace_device::{
    Device, DeviceError, FaultPlan, FaultyDevice, FileDevice, FileOptions, Fuse, Keep, Method,
    OnLoss, Operation, Overlay, OverlayMemory, Punched, Store, Withholding, read, write,
};
use terrace_rt::{Nanos, Prng, World};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 16;
const BLOCKS_MAX: u64 = 256;

fn memory() -> Arc<dyn Device> {
    build(Preset::Ram, World::current(), Store::new(BLOCKS * BLOCK, Keep::Plain))
}

fn file(path: &Path, method: Method, limit: Nanos) -> Arc<dyn Device> {
    let made = FileOptions {
        size: Some(BLOCKS * BLOCK),
        create: true,
        direct: false,
        method,
        ..FileOptions::default()
    };
    drop(FileDevice::open(path, &made).expect("room"));
    let whole = FileOptions { size: None, create: false, ..made };
    let device = FileDevice::open(path, &whole).expect("just made");
    device.set_time_limit(limit);
    Arc::new(device)
}

/// What each block holds; `None`: undefined.
struct Model(Vec<Option<u8>>);

impl Model {
    fn check(&self, device: &dyn Device, case: &str) {
        assert_eq!(device.len(), self.0.len() as u64 * BLOCK, "{case}");
        let mut bytes = vec![7; self.0.len() * BLOCK as usize];
        read(device, 0, &mut bytes).expect("it reads");
        for (found, wanted) in bytes.chunks(BLOCK as usize).zip(&self.0) {
            if let Some(wanted) = wanted {
                assert!(found.iter().all(|byte| byte == wanted), "{case}");
            }
        }
    }

    /// Does one thing, to both.
    fn step(&mut self, device: &dyn Device, prng: &mut Prng, case: &str) {
        let blocks = self.0.len() as u64;
        let first = prng.below(blocks);
        let count = 1 + prng.below((blocks - first).min(12));
        let range = first as usize..(first + count) as usize;
        match prng.below(8) {
            0 if blocks < BLOCKS_MAX => {
                let more = prng.below(16);
                device.grow((blocks + more) * BLOCK).expect("it grows");
                self.0.resize((blocks + more) as usize, Some(0));
            }
            1 => device.grow(first * BLOCK).expect("it is longer already"),
            2 | 3 => {
                device.punch(first * BLOCK, count * BLOCK).expect("told, or done");
                self.0[range].fill(None);
            }
            4 => {
                device.reserve(first * BLOCK, count * BLOCK).expect("room");
            }
            5 => device.sync().expect("it syncs"),
            _ => {
                let value = 1 + prng.below(255) as u8;
                let bytes = vec![value; (count * BLOCK) as usize];
                write(device, first * BLOCK, &bytes).expect("it writes");
                self.0[range].fill(Some(value));
            }
        }
        if prng.chance(6) {
            self.check(device, case);
        }
    }
}

fn run(device: &dyn Device, model: &mut Model, prng: &mut Prng, case: &str) {
    for _ in 0..80 {
        model.step(device, prng, case);
    }
    model.check(device, case);
}

fn blank() -> Model {
    Model(vec![Some(0); BLOCKS as usize])
}

#[test]
fn all_devices_that_grow_do_so_alike() {
    let folder = tempfile::tempdir().expect("a folder");
    let limit = Nanos::from_secs(20);
    for seed in 0..12 {
        let mut prng = Prng::from_seed(seed);
        let path = |name: &str| folder.path().join(format!("{name}-{seed}"));
        let spill = OverlayMemory::new(prng.below(40) * BLOCK);
        let devices: [(&str, Arc<dyn Device>); 8] = [
            ("memory", memory()),
            ("faults", FaultyDevice::new(memory(), FaultPlan::default())),
            ("fuse", Fuse::for_writes(memory())),
            ("overlay", Overlay::new(memory(), &spill)),
            ("file", file(&path("auto"), Method::Auto, Nanos::ZERO)),
            ("file, positioned", file(&path("plain"), Method::Positioned, Nanos::ZERO)),
            ("file, limited", file(&path("limited"), Method::Auto, limit)),
            ("overlay on a file", Overlay::new(file(&path("o"), Method::Auto, limit), &spill)),
        ];
        for (name, device) in devices {
            run(&*device, &mut blank(), &mut prng, &format!("{name}, seed {seed}"));
        }
    }
}

#[test]
fn a_task_grows_a_file_too() {
    let folder = tempfile::tempdir().expect("a folder");
    for limit in [Nanos::ZERO, Nanos::from_secs(20)] {
        let device = file(&folder.path().join(format!("{}", limit.0)), Method::Auto, limit);
        let work = move || run(&*device, &mut blank(), &mut Prng::from_seed(3), "a task");
        World::current().spawn("grows", work).join();
    }
}

#[test]
fn withheld_growth_happens_when_it_is_let_go_and_not_before() {
    for seed in 0..30 {
        let mut prng = Prng::from_seed(seed);
        let below = memory();
        let group = Withholding::new(if prng.chance(3) { 100 * BLOCK } else { u64::MAX });
        let over = group.over(Arc::clone(&below), OnLoss::Stop);
        let mut model = blank();
        run(&over, &mut model, &mut prng, &format!("withheld, seed {seed}"));
        if prng.chance(3) {
            if group.discard().is_ok() && below.len() == BLOCKS * BLOCK {
                over.grow(BLOCKS_MAX * 2 * BLOCK).expect_err("it was discarded");
            }
            continue;
        }
        group.let_go().expect("memory");
        model.check(&*below, &format!("let go, seed {seed}"));
        run(&over, &mut model, &mut prng, &format!("open, seed {seed}"));
        model.check(&*below, &format!("open, below, seed {seed}"));
    }
}

#[test]
fn what_a_refused_opening_would_have_grown_stays_short() {
    let below = memory();
    let group = Withholding::new(u64::MAX);
    let over = group.over(Arc::clone(&below), OnLoss::Stop);
    over.grow(2 * BLOCKS * BLOCK).expect("it is withheld");
    write(&over, BLOCKS * BLOCK, &[1; BLOCK as usize]).expect("it is withheld");
    group.discard().expect("nothing was done");
    assert_eq!(below.len(), BLOCKS * BLOCK);
}

#[test]
fn a_punched_file_has_fewer_blocks() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    let device = file(&path, Method::Auto, Nanos::ZERO);
    device.grow(256 * BLOCK).expect("it grows");
    let blocks = || std::fs::metadata(&path).expect("it is there").blocks() * 512;
    assert!(blocks() <= BLOCKS * BLOCK + BLOCK, "growth takes no room: {}", blocks());
    device.reserve(0, 256 * BLOCK).expect("room");
    assert!(blocks() >= 256 * BLOCK);
    match device.punch(8 * BLOCK, 240 * BLOCK).expect("told, or done") {
        Punched::Freed { bytes } => {
            assert_eq!(bytes, 240 * BLOCK);
            assert!(blocks() <= 17 * BLOCK, "{} bytes are left", blocks());
            let again = device.punch(8 * BLOCK, 240 * BLOCK).expect("it is a hole");
            assert_eq!(again, Punched::Freed { bytes: 0 });
        }
        Punched::Kept => assert!(blocks() >= 256 * BLOCK),
    }
    assert_eq!(device.len(), 256 * BLOCK);
}

#[test]
fn a_device_that_cannot_grow_says_so_and_stays_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = FileOptions {
        size: Some(BLOCKS * BLOCK),
        create: true,
        direct: false,
        ..FileOptions::default()
    };
    let part = FileDevice::open(folder.path().join("part"), &options).expect("room");
    let sure = FaultPlan { resize_error_one_in: 1, ..FaultPlan::default() };
    let faulty = FaultyDevice::new(memory(), sure.clone());
    let dead = FaultyDevice::new(memory(), FaultPlan { dies_after: Some(0), ..sure });
    let devices: [(&dyn Device, bool); 3] = [(&part, false), (&*faulty, true), (&*dead, true)];
    for (device, fails_punch) in devices {
        let error = device.grow(2 * BLOCKS * BLOCK).expect_err("it cannot");
        let told = DeviceError::of(&error).expect("it tells");
        assert_eq!(told.operation, Operation::Grow);
        assert_eq!(device.len(), BLOCKS * BLOCK);
        device.grow(BLOCKS * BLOCK).map_or_else(|_| assert!(fails_punch), drop);
        assert_eq!(device.punch(0, BLOCK).is_err(), fails_punch);
    }
}

#[test]
fn silence_while_growing_ends_with_the_time_limit_and_blows_the_fuse() {
    let silent = FaultyDevice::new(memory(), FaultPlan::default());
    silent.set_silent(true);
    silent.set_time_limit(Nanos::from_millis(30));
    let fuse = Fuse::for_writes(Arc::clone(&silent) as Arc<dyn Device>);
    let error = fuse.grow(2 * BLOCKS * BLOCK).expect_err("it is silent");
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    silent.set_silent(false);
    fuse.punch(0, BLOCK).expect_err("what it does late would harm");
    write(&*fuse, 0, &[1; 512]).expect_err("so would this");
}
