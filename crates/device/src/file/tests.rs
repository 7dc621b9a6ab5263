//! Both methods, with and without the page cache, on a file next to the test program.

use std::io::ErrorKind;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;

use rt::{Prng, Real, Task};
use tempfile::TempDir;
use terrace_rt as rt;

use super::*;
use crate::{read, write};

const LEN: u64 = 1 << 20;
const PAGE: usize = 8192;

fn folder() -> TempDir {
    let program = std::env::current_exe().expect("a test program");
    TempDir::new_in(program.parent().expect("in a folder")).expect("a temporary folder")
}

fn options(method: Method, direct: bool) -> FileOptions {
    FileOptions { size: Some(LEN), create: true, method, direct, ..FileOptions::default() }
}

/// A device for each method that works here, with and without direct I/O.
fn devices() -> Vec<(TempDir, PathBuf, FileDevice)> {
    let mut devices = Vec::new();
    for method in [Method::Uring, Method::Positioned] {
        for direct in [true, false] {
            let folder = folder();
            let path = folder.path().join("device");
            match FileDevice::open(&path, &options(method, direct)) {
                Ok(device) => devices.push((folder, path, device)),
                Err(error) => println!("not tested: {error}"),
            }
        }
    }
    assert!(!devices.is_empty());
    devices
}

#[test]
fn room_is_reserved_and_what_is_stored_stays() {
    use std::os::unix::fs::MetadataExt;
    for (_folder, path, device) in devices() {
        drop(device);
        std::fs::remove_file(&path).expect("its only opener has gone");
        std::fs::File::create(&path).and_then(|file| file.set_len(LEN)).expect("a sparse file");
        let real = Real::new(1);
        real.run(|| {
            let device = FileDevice::open(&path, &FileOptions::default())
                .or_else(|_| FileDevice::open(&path, &options(Method::Auto, false)))
                .expect("it opens");
            write(&device, 0, &[7; PAGE]).expect("written");
            device.reserve(0, LEN / 2).expect("room");
            device.reserve(LEN / 4, LEN / 4).expect("reserved twice");
            let mut bytes = vec![0; 2 * PAGE];
            read(&device, 0, &mut bytes).expect("read");
            assert!(bytes[..PAGE] == [7; PAGE] && bytes[PAGE..] == [0; PAGE]);
            assert_eq!(device.counters().writes, 1);
        });
        let stored = std::fs::metadata(&path).expect("there").blocks() * 512;
        assert!((LEN / 2..LEN).contains(&stored), "{stored} bytes");
    }
}

/// Random reads and writes of one task in its own part of the device, against plain memory.
fn exercise(device: &FileDevice, from: u64, len: usize, seed: u64) {
    let mut prng = Prng::from_seed(seed);
    let mut model = vec![0; len];
    for _ in 0..60 {
        let sectors = 1 + prng.below(40) as usize;
        let size = sectors * 512;
        let at = prng.below(((len - size) / 512) as u64 + 1) as usize * 512;
        // An odd start now and then, and pieces that are no whole sectors.
        let shift = prng.below(2) as usize * prng.below(512) as usize;
        let cut = prng.below(2) as usize * prng.below(size as u64) as usize;
        let mut memory = vec![0; size + shift];
        let bytes = &mut memory[shift..];
        let is_write = prng.chance(2);
        if is_write {
            prng.fill(bytes);
            model[at..at + size].copy_from_slice(bytes);
        }
        let (one, two) = bytes.split_at_mut(cut);
        let bufs = [IoBuf::from_mut(one), IoBuf::from_mut(two)];
        let op = if is_write { Op::Write } else { Op::Read };
        let request = Request { op, offset: from + at as u64, bufs: &bufs };
        // SAFETY: the memory is not touched until the ticket has been waited for.
        let ticket = unsafe { device.submit(&[request]) };
        device.wait(ticket).expect("a healthy disk");
        assert_eq!(bytes, &model[at..at + size], "seed {seed}");
    }
    let mut all = vec![1; len];
    read(device, from, &mut all).expect("a healthy disk");
    assert_eq!(all, model);
}

#[test]
fn tasks_and_threads_read_what_they_wrote() {
    for (_folder, path, device) in devices() {
        let device = Arc::new(device);
        let part = LEN / 8;
        let real = Real::new(2);
        let tasks: Vec<_> = (0..7)
            .map(|id| {
                let device = Arc::clone(&device);
                let work = move || exercise(&device, id * part, part as usize, id);
                real.world().spawn("exercise", work)
            })
            .collect();
        exercise(&device, 7 * part, part as usize, 7);
        tasks.into_iter().for_each(Task::join);
        device.sync().expect("a healthy disk");
        real.run(|| device.sync()).expect("a healthy disk");
        let counters = device.counters();
        assert_eq!(counters.reads + counters.writes, 8 * 61);
        assert_eq!(counters.syncs, 2);
        assert!(counters.busy_ns > 0 && device.queued() == 0);
        assert_eq!(std::fs::metadata(path).expect("there").len(), LEN);
    }
}

#[test]
fn large_batches_come_back_whole() {
    for (_folder, _path, device) in devices() {
        let check = || {
            let pages = (LEN as usize) / PAGE;
            let mut image = vec![0; LEN as usize];
            Prng::from_seed(1).fill(&mut image);
            write(&device, 0, &image).expect("a healthy disk");
            // Many requests, each page some times, and more pieces than the kernel takes at once.
            let mut memory = vec![0u8; 20 * LEN as usize];
            let bufs: Vec<_> =
                memory.chunks_mut(PAGE).map(|page| [IoBuf::from_mut(page)]).collect();
            let request = |(at, buf)| {
                let offset = (at % pages * PAGE) as u64;
                Request { op: Op::Read, offset, bufs: buf }
            };
            let requests: Vec<_> =
                bufs.iter().map(<[IoBuf; 1]>::as_slice).enumerate().map(request).collect();
            // SAFETY: the memory is not touched until the ticket has been waited for.
            let ticket = unsafe { device.submit(&requests) };
            device.wait(ticket).expect("a healthy disk");
            assert!(memory.chunks(image.len()).all(|copy| copy == image));
            memory.fill(0);
            let pieces: Vec<_> =
                memory[..image.len()].chunks_mut(512).map(IoBuf::from_mut).collect();
            assert!(pieces.len() > transfer::PIECES_MAX);
            let request = Request { op: Op::Read, offset: 0, bufs: &pieces };
            // SAFETY: as above.
            let ticket = unsafe { device.submit(&[request]) };
            device.wait(ticket).expect("a healthy disk");
            assert_eq!(&memory[..image.len()], &image);
        };
        Real::new(1).run(check);
        check();
    }
}

/// Submits reads and forgets about them in every way there is; memory is checked by its use after.
#[test]
fn dropped_tickets_are_waited_for() {
    for (_folder, _path, device) in devices() {
        let device = Arc::new(device);
        let real = Real::new(1);
        let submit = |memory: &mut [u8]| {
            let bufs: Vec<_> =
                memory.chunks_mut(PAGE).map(|page| [IoBuf::from_mut(page)]).collect();
            let requests: Vec<_> =
                bufs.iter().map(|bufs| Request { op: Op::Read, offset: 0, bufs }).collect();
            // SAFETY: each caller drops the ticket before the memory.
            unsafe { device.submit(&requests) }
        };
        real.run(|| drop(submit(&mut vec![0; 8 * PAGE])));
        assert_eq!(device.queued(), 0);
        let panicked = panic::catch_unwind(AssertUnwindSafe(|| {
            real.run(|| {
                let mut memory = vec![0; 8 * PAGE];
                let _ticket = submit(&mut memory);
                panic::resume_unwind(Box::new("planted"));
            });
        }));
        assert!(panicked.is_err());
        assert_eq!(device.queued(), 0);
        let other = Arc::clone(&device);
        let task = real.world().spawn("waits for ever", move || {
            let mut memory = vec![0; PAGE];
            let bufs = [IoBuf::from_mut(&mut memory)];
            // SAFETY: the ticket is dropped before the memory.
            let _ticket =
                unsafe { other.submit(&[Request { op: Op::Read, offset: 0, bufs: &bufs }]) };
            rt::Event::new().wait();
        });
        drop(real);
        task.join();
        assert_eq!(device.queued(), 0);
    }
}

#[test]
fn a_second_opener_is_refused() {
    let (_folder, path, device) = devices().remove(0);
    let again = || FileDevice::open(&path, &options(Method::Positioned, false));
    let error = again().err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::ResourceBusy);
    assert!(error.to_string().contains("in use"), "{error}");
    assert!(error.to_string().contains(path.to_str().expect("a plain path")), "{error}");
    drop(device);
    assert_eq!(again().expect("free again").len(), LEN);
}

/// As a request that the kernel has yet to put away does, and a process between `fork` and `exec`.
#[test]
fn what_holds_a_closed_file_open_does_not_hold_its_lock() {
    for (_folder, path, device) in devices() {
        let held = device.0.file.try_clone().expect("another handle of the same opening");
        drop(device);
        let file = std::fs::File::open(&path).expect("there");
        file.try_lock().expect("free at once");
        drop(held);
    }
}

#[test]
fn an_opener_waits_for_one_that_is_going() {
    let (_folder, path, device) = devices().remove(0);
    Real::new(1).run(|| {
        let opener = rt::spawn("opener", move || {
            let opened = FileDevice::open(&path, &options(Method::Positioned, false));
            assert_eq!(opened.expect("free in time").len(), LEN);
        });
        rt::sleep(rt::Nanos::from_millis(100));
        drop(device);
        opener.join();
    });
}

#[test]
fn lengths_are_checked() {
    let folder = folder();
    let path = folder.path().join("device");
    let open = |size, create| {
        let method = Method::Positioned;
        let options =
            FileOptions { size, create, method, direct: false, access: Access::ReadWrite };
        FileDevice::open(&path, &options)
    };
    let kind = |opened: io::Result<FileDevice>| opened.err().map(|error| error.kind());
    assert_eq!(kind(open(None, false)), Some(ErrorKind::NotFound));
    assert_eq!(kind(open(None, true)), Some(ErrorKind::InvalidInput));
    assert_eq!(kind(open(Some(1000), true)), Some(ErrorKind::InvalidInput));
    assert_eq!(open(Some(4096), true).expect("made").len(), 4096);
    assert_eq!(kind(open(Some(8192), false)), Some(ErrorKind::InvalidInput));
    assert_eq!(open(Some(8192), true).expect("grown").len(), 8192);
    assert_eq!(open(Some(512), false).expect("a part").len(), 512);
    assert_eq!(open(None, false).expect("all").len(), 8192);
    let folder = FileDevice::open(folder.path(), &FileOptions::default());
    assert!(folder.is_err());
}

#[test]
fn errors_say_where_and_what() {
    for (_folder, path, device) in devices() {
        std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .expect("there")
            .set_len(0)
            .expect("cut");
        for error in [
            read(&device, 4096, &mut [0; 512]).expect_err("past the end"),
            Real::new(1).run(|| read(&device, 4096, &mut [0; 512])).expect_err("past the end"),
        ] {
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
            assert!(error.to_string().contains("Read of 512 bytes at 4096"), "{error}");
        }
    }
}

#[test]
fn readers_share_a_file_that_they_cannot_change() {
    let folder = folder();
    let path = folder.path().join("device");
    let read_write = FileOptions { direct: false, ..options(Method::Auto, false) };
    let writer = FileDevice::open(&path, &read_write).expect("made");
    write(&writer, 0, &[3; PAGE]).expect("room");
    let read_only = FileOptions { access: Access::ReadOnly, create: false, ..read_write.clone() };
    let kind = |opened: io::Result<FileDevice>| opened.err().map(|error| error.kind());
    assert_eq!(kind(FileDevice::open(&path, &read_only)), Some(ErrorKind::ResourceBusy));
    drop(writer);
    let readers = [(); 2].map(|()| FileDevice::open(&path, &read_only).expect("shared"));
    for reader in &readers {
        let mut bytes = [0; PAGE];
        read(reader, 0, &mut bytes).expect("there");
        assert_eq!(bytes, [3; PAGE]);
        assert!(write(reader, 0, &[4; PAGE]).is_err());
    }
    assert_eq!(kind(FileDevice::open(&path, &read_write)), Some(ErrorKind::ResourceBusy));
    drop(readers);
    drop(FileDevice::open(&path, &read_write).expect("free"));
}
