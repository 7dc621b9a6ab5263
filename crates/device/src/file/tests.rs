//! Both methods, with and without the page cache, on a file next to the test program.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;

use rt::{Prng, Real, Task};
use tempfile::TempDir;
use terrace_rt as rt;

use super::*;
use crate::{IoBuf, MemoryOwner, read, write, write_shared};

mod atomic_writes;
mod each;
mod groups;
mod refused_ring;
mod silent;

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
        let request = Request { op, offset: from + at as u64, bufs: &bufs, owner: None };
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
                Request { op: Op::Read, offset, bufs: buf, owner: None }
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
            let request = Request { op: Op::Read, offset: 0, bufs: &pieces, owner: None };
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
            let requests: Vec<_> = bufs
                .iter()
                .map(|bufs| Request { op: Op::Read, offset: 0, bufs, owner: None })
                .collect();
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
            let _ticket = unsafe {
                other.submit(&[Request { op: Op::Read, offset: 0, bufs: &bufs, owner: None }])
            };
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
        let answered = Arc::clone(&device.0);
        drop(device);
        let file = std::fs::File::open(&path).expect("there");
        file.try_lock().expect("free at once");
        drop((held, answered));
    }
}

/// What a test of this file has a process of its own do: the variable names the file.
const IN_CHILD: &str = "TERRACE_DEVICE_TEST_PATH";

/// Runs the test `name` again, in a process of its own that finds `path`.
fn child(name: &str, path: &Path) -> Child {
    Command::new(std::env::current_exe().expect("a test program"))
        .args(["--exact", &format!("file::tests::{name}"), "--nocapture"])
        .env(IN_CHILD, path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process")
}

/// The bug: two seconds passed before an opener got the error that another process has the file.
#[test]
fn who_has_a_file_open_is_told_at_once() {
    const NAME: &str = "who_has_a_file_open_is_told_at_once";
    let read_write = options(Method::Positioned, false);
    if let Some(path) = std::env::var_os(IN_CHILD) {
        let _device = FileDevice::open(path, &read_write).expect("free");
        println!("\nlocked");
        let mut rest = String::new();
        std::io::stdin().read_line(&mut rest).expect("a pipe");
        return;
    }
    let folder = folder();
    let path = folder.path().join("device");
    let mut other = Command::new(std::env::current_exe().expect("a test program"));
    other.args(["--exact", &format!("file::tests::{NAME}"), "--nocapture"]);
    other.env(IN_CHILD, &path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut other = other.spawn().expect("a process");
    let mut said = BufReader::new(other.stdout.take().expect("a pipe")).lines();
    assert!(said.any(|line| line.expect("text") == "locked"));
    let began = std::time::Instant::now();
    let refused = FileClaim::take(&path, Access::ReadWrite, true).expect_err("in use");
    // Of the two seconds that it took a quarter is left, for machines that have much else to do.
    assert!(began.elapsed() < std::time::Duration::from_millis(500), "{:?}", began.elapsed());
    let pid = other.id();
    let by = Holder::Process { pid };
    assert!(matches!(&refused.why, Refusal::InUse { holder } if *holder == by), "{refused}");
    assert!(refused.to_string().contains(&format!("process {pid}")), "{refused}");
    drop(other.stdin.take());
    assert!(other.wait().expect("a child").success());
    drop(FileDevice::open(&path, &read_write).expect("free again"));
    let here = FileDevice::open(&path, &read_write).expect("free again");
    let refused = FileClaim::take(&path, Access::ReadWrite, true).expect_err("in use");
    assert!(refused.to_string().contains("this process"), "{refused}");
    drop(here);
}

/// The kernel ends the requests of a process after it was waited for, and a child of it may have
/// its files for a moment: the lock is held by a process that is no more.
#[test]
fn an_opener_waits_for_one_that_has_ended() {
    const NAME: &str = "an_opener_waits_for_one_that_has_ended";
    if let Some(path) = std::env::var_os(IN_CHILD) {
        let device = FileDevice::open(&path, &options(Method::Positioned, false)).expect("free");
        let file = device.0.file.try_clone().expect("another handle of the same opening");
        let mut heir = Command::new("sh");
        let script = "until [ -e \"$0.go\" ]; do sleep 0.02; done; sleep 0.1";
        heir.args(["-c", script]).arg(path).stdin(file).stdout(Stdio::null());
        heir.spawn().expect("a process");
        // No destructor runs: the heir keeps the lock.
        std::process::abort();
    }
    let folder = folder();
    let path = folder.path().join("device");
    child(NAME, &path).wait().expect("a child");
    let free = std::fs::File::open(&path).expect("made").try_lock().is_ok();
    assert!(!free, "the heir holds the lock");
    std::fs::write(folder.path().join("device.go"), []).expect("room");
    drop(FileDevice::open(&path, &options(Method::Positioned, false)).expect("free in time"));
}

/// A fork's child that dropped the device unlocked it for its parent, and wrote beside it.
#[test]
fn a_fork_of_its_process_cannot_use_a_device_nor_unlock_it() {
    let (_folder, path, device) = devices().remove(0);
    // SAFETY: the child makes system calls, and ends without a destructor of this process.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut sector = [0; 512];
        let used = write(&device, 0, &sector).is_ok()
            || read(&device, 0, &mut sector).is_ok()
            || device.sync().is_ok();
        drop(device);
        // SAFETY: ends this process.
        unsafe { libc::_exit(i32::from(used)) };
    }
    let mut status = 0;
    // SAFETY: a system call on a child of this process.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child has used it");
    let file = std::fs::File::open(&path).expect("there");
    assert!(file.try_lock().is_err(), "still locked");
    write(&device, 0, &[1; 512]).expect("its own process may");
}

/// The bug: files were readable by every user.
#[test]
fn files_are_made_for_their_user_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (_folder, path, _device) = devices().remove(0);
    let mode = std::fs::metadata(path).expect("made").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_claim_that_is_dropped_takes_away_what_it_made_and_nothing_else() {
    let folder = folder();
    let path = folder.path().join("device");
    let take = || FileClaim::take(&path, Access::ReadWrite, true).expect("a good place");
    let claim = take();
    assert!(claim.is_new() && path.exists());
    claim.grow(LEN, Room::Sparse).expect("holes");
    drop(claim);
    assert!(!path.exists());
    // What another process has put there meanwhile stays.
    let claim = take();
    std::fs::remove_file(&path).expect("made");
    std::fs::write(&path, "another").expect("a good place");
    drop(claim);
    assert!(path.exists());
    let claim = take();
    assert!(!claim.is_new());
    drop(claim);
    assert_eq!(std::fs::read_to_string(&path).expect("there"), "another");
}

/// Between the opening of a file and its lock another opener that failed takes it away: the lock is
/// then that of a file without a name, and what is written to it is lost.
#[test]
fn a_file_that_was_taken_away_before_it_was_locked_is_not_used() {
    let folder = folder();
    let path = folder.path().join("device");
    let stop = Arc::new(AtomicBool::new(false));
    let maker = {
        let (path, stop) = (path.clone(), Arc::clone(&stop));
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                drop(FileClaim::take(&path, Access::ReadWrite, true));
            }
        })
    };
    for _ in 0..300 {
        if let Ok(claim) = FileClaim::take(&path, Access::ReadWrite, true) {
            claim.write_at(0, b"kept").expect("room");
            assert_eq!(std::fs::read(&path).expect("under its name"), b"kept");
        }
    }
    stop.store(true, Ordering::Relaxed);
    maker.join().expect("no panic");
}

#[test]
fn what_is_no_file_is_refused_without_an_opening() {
    use std::os::unix::net::UnixListener;
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let _socket = UnixListener::bind(path("socket")).expect("a socket");
    let fifo = std::ffi::CString::new(path("pipe").into_os_string().into_encoded_bytes());
    // SAFETY: a system call with a C string.
    let made = unsafe { libc::mkfifo(fifo.expect("no zero").as_ptr(), 0o600) };
    assert_eq!(made, 0);
    std::os::unix::fs::symlink(path("nowhere"), path("link")).expect("a link");
    let long = "x".repeat(10_000);
    let cases = [
        (folder.path().to_path_buf(), "a folder"),
        (path("pipe"), "a pipe"),
        (path("socket"), "a socket"),
        ("/dev/null".into(), "a character device"),
        (path("link"), "a link to nothing"),
        (path("no").join("file"), "there is no such file"),
        (path(&long), "too long"),
        (path(&"/x".repeat(5_000)), "too long"),
    ];
    for (path, what) in cases {
        let refused = FileClaim::take(&path, Access::ReadWrite, true).expect_err("refused");
        assert!(refused.to_string().contains(what), "{refused}");
        assert_eq!(refused.path, path);
        let refused = FileClaim::take(&path, Access::ReadOnly, false).expect_err("refused");
        assert!(!refused.to_string().is_empty());
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 3);
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
            assert!(error.to_string().contains("read of 512 bytes at 4096"), "{error}");
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

#[test]
fn under_a_time_limit_bytes_go_both_ways_on_tasks_and_threads() {
    for (_folder, _path, device) in devices() {
        device.set_time_limit(Nanos::from_secs(30));
        let work = |start: u64| {
            for round in 0..20_u64 {
                let bytes = [(start + round) as u8; 1536];
                write(&device, start, &bytes).expect("a good file");
                let mut found = [0; 1536];
                read(&device, start, &mut found).expect("a good file");
                assert!(found == bytes);
            }
            device.sync().expect("a good file");
        };
        work(0);
        Real::new(1).run(|| work(4096));
        assert_eq!(device.queued(), 0);
    }
}

/// Each log write was copied, since it might outlive its wait: the memory was not its own.
#[test]
fn a_shared_write_is_not_copied_and_keeps_its_memory_until_it_is_answered() {
    for (_folder, path, device) in devices() {
        device.set_time_limit(Nanos::from_secs(30));
        let pages = vec![PageBytes([9; PAGE]), PageBytes([8; PAGE])];
        let memory = Arc::new(Pages(pages));
        write_shared(&device, 0, &memory, PAGE..2 * PAGE).expect("a healthy disk");
        let mut memory = Arc::into_inner(memory).expect("answered, so nobody shares it");
        let mut bytes = vec![0; PAGE];
        read(&device, 0, &mut bytes).expect("a healthy disk");
        assert_eq!(bytes, [8; PAGE]);

        memory.0[0] = PageBytes([7; PAGE]);
        let memory = Arc::new(memory);
        let owner: MemoryOwner = Arc::clone(&memory) as _;
        let bufs = [IoBuf::from_ref(&memory.as_ref().as_ref()[..PAGE])];
        let request =
            Request { op: Op::Write, offset: PAGE as u64, bufs: &bufs, owner: Some(&owner) };
        let completion = device.0.completion(1, Job::Write, None);
        let ticket = completion.ticket();
        device.0.gauge.start(1);
        let transfer = Transfer::new(&device.0, &completion, 0, Job::Write, &request);
        drop(owner);
        assert_eq!(transfer.pieces()[0].iov_base.cast_const().cast(), memory.0.as_ptr());
        assert!(transfer.is_detached() && Arc::strong_count(&memory) == 2);
        transfer.run_here();
        ticket.wait().expect("a healthy disk");
        assert_eq!(Arc::strong_count(&memory), 1);
        assert_eq!(std::fs::read(path).expect("there")[PAGE..2 * PAGE], [7; PAGE]);
    }
}

#[repr(C, align(4096))]
struct PageBytes([u8; PAGE]);

struct Pages(Vec<PageBytes>);

impl AsRef<[u8]> for Pages {
    fn as_ref(&self) -> &[u8] {
        let start = self.0.as_ptr().cast();
        // SAFETY: the pages lie one after the other, without gaps.
        unsafe { std::slice::from_raw_parts(start, self.0.len() * PAGE) }
    }
}
