//! Devices that do not answer, and what becomes of the others.

use rt::LeafMutex;

use super::gauge::Gauge;
use super::syncs::Syncs;
use super::*;
use crate::time_limit::TimeLimit;

/// A device that never answers: reads of a pipe into which no process writes.
pub(super) fn silent() -> (std::io::PipeWriter, FileDevice) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    (writer, of(File::from(std::os::fd::OwnedFd::from(reader))))
}

/// A pipe as a device.
pub(super) fn of(file: File) -> FileDevice {
    FileDevice::new(Shared {
        file,
        path: PathBuf::from("a pipe"),
        len: LEN.into(),
        is_block_device: false,
        is_fixed: true,
        method: Method::Uring,
        never_waits: false,
        batches: 0.into(),
        direct: false,
        memory_align: 1,
        atomic: atomic::AtomicWrites::unasked((0, 0)),
        owner: std::process::id(),
        gauge: Gauge::default(),
        helpers: Arc::default(),
        identity: (0, 0),
        unanswered: LeafMutex::new(None),
        syncs: Syncs::default(),
        groups: group::Groups::default(),
        spare: spare::Spare::default(),
        released: AtomicBool::new(false),
        time_limit: TimeLimit::new(String::from("a pipe")),
    })
}

#[test]
fn a_device_that_does_not_answer_leaves_its_executor_to_the_others() {
    // A thousand requests without an answer were all that a ring had in flight: no other device of
    // the executor, the log say, got a request through any more.
    if ring::availability().is_err() {
        return;
    }
    for (_folder, _path, device) in devices() {
        let (writer, silent) = silent();
        let (device, silent) = (Arc::new(device), Arc::new(silent));
        silent.set_time_limit(Nanos::from_secs(600));
        device.set_time_limit(Nanos::from_secs(30));
        Real::new(1).run(|| {
            let reader = Arc::clone(&silent);
            let waiting = rt::spawn("reads", move || {
                let mut memory = vec![0; 2000 * 512];
                let bufs: Vec<_> = memory.chunks_mut(512).map(|it| [IoBuf::from_mut(it)]).collect();
                let request = |bufs| Request { op: Op::Read, offset: 0, bufs, owner: None };
                let requests: Vec<_> = bufs.iter().map(|bufs| request(bufs)).collect();
                // SAFETY: the memory is not touched until the ticket has been waited for.
                let ticket = unsafe { reader.submit(&requests) };
                reader.wait(ticket).expect_err("it is empty");
            });
            while silent.queued() == 0 {
                rt::yield_now();
            }
            for round in 0..50 {
                write(&*device, 0, &[round; PAGE]).expect("a good file");
                device.sync().expect("a good file");
            }
            assert!(!waiting.is_done(), "they were outstanding all the time");
            // The end of the pipe is an answer.
            drop(writer);
            waiting.join();
        });
    }
}

#[test]
fn the_kernel_makes_workers_for_all_that_may_block() {
    // There were four for each processor. Writes to a frozen file system, or an NFS server that is
    // gone, occupied them, and no sync of any other device was begun any more.
    if ring::availability().is_err() {
        return;
    }
    let mut limits: libc::rlimit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limits` lives until the call returns.
    unsafe { libc::getrlimit(libc::RLIMIT_NPROC, &raw mut limits) };
    let expected = limits.rlim_cur.min(32 * 128) as u32;
    assert_eq!(Ring::of_executor().expect("available").workers_max(), expected);
}

#[test]
fn a_read_of_a_thread_ends_with_its_time_limit_and_those_of_others_go_on() {
    // Such a read went through a helper thread, which cost two switches of context.
    if ring::availability().is_err() {
        return;
    }
    for (_folder, _path, device) in devices() {
        let (writer, silent) = silent();
        silent.set_time_limit(Nanos::from_millis(50));
        device.set_time_limit(Nanos::from_secs(30));
        write(&device, 0, &[7; PAGE]).expect("a good file");
        for _ in 0..3 {
            let mut memory = [3; PAGE];
            let failure = read(&silent, 0, &mut memory).expect_err("nobody answers");
            assert_eq!(failure.kind(), ErrorKind::TimedOut, "{failure}");
            assert_eq!(memory, [3; PAGE], "no answer comes late");
            read(&device, 0, &mut memory).expect("a good file");
            assert_eq!(memory, [7; PAGE]);
        }
        assert_eq!(silent.queued(), 3);
        drop(writer);
        let mut memory = [0; PAGE];
        read(&silent, 0, &mut memory).expect_err("the end");
    }
}

#[test]
fn a_fork_reads_through_a_ring_of_its_own() {
    let folder = folder();
    let open = |name| {
        let options = options(Method::Auto, true);
        let device = FileDevice::open(folder.path().join(name), &options).expect("a file");
        device.set_time_limit(Nanos::from_secs(30));
        device
    };
    let bytes = [9; PAGE];
    std::fs::write(folder.path().join("child"), vec![9; LEN as usize]).expect("room");
    let device = open("parent");
    let mut memory = [1; PAGE];
    read(&device, 0, &mut memory).expect("zeroes");
    let code = rt::in_fork(|| {
        let device = open("child");
        let mut memory = [1; PAGE];
        let answer = read(&device, 0, &mut memory);
        u8::from(answer.is_ok() && memory == bytes)
    });
    assert_eq!(code, 1, "the child read its file");
    read(&device, 0, &mut memory).expect("zeroes");
    assert_eq!(memory, [0; PAGE]);
}

#[test]
fn a_file_that_was_closed_with_requests_outstanding_is_told_from_an_open_one() {
    // "in use by this process: end that first", which had closed it.
    for (_folder, path, device) in devices() {
        let holder = || match FileClaim::take(&path, Access::ReadWrite, false) {
            Err(OpenError { why: Refusal::InUse { holder }, .. }) => Some(holder),
            Err(error) => panic!("{error}"),
            Ok(_) => None,
        };
        let own = Holder::Process { pid: std::process::id() };
        let is_told = |wanted: &Holder| {
            // Where the system does not tell which process has a lock, none is named.
            holder().is_some_and(|it| it == *wanted || it == Holder::Unknown)
        };
        assert!(is_told(&own));
        device.0.gauge.start(1);
        device.release();
        assert!(is_told(&Holder::Unanswered));
        device.0.gauge.finish(Job::Sync, 0);
        drop(device);
        assert_eq!(holder(), None);
    }
}

#[test]
fn a_fork_that_keeps_the_file_of_a_process_that_has_ended_is_named() {
    // The process that had ended was, to be ended first.
    use std::io::Read;
    let folder = folder();
    let path = folder.path().join("device");
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let mut writer = Some(writer);
    let code = rt::in_fork(|| {
        let options = options(Method::Positioned, false);
        let Ok(device) = FileDevice::open(&path, &options) else { return 1 };
        // SAFETY: the child waits for the end of the pipe and ends at once.
        if unsafe { libc::fork() } == 0 {
            drop(writer.take());
            let _ended = reader.read(&mut [0]);
            // SAFETY: it does not return.
            unsafe { libc::_exit(0) }
        }
        std::mem::forget(device);
        0
    });
    assert_eq!(code, 0);
    let claimed = FileClaim::take(&path, Access::ReadWrite, false).map(drop);
    drop(writer);
    let Err(OpenError { why: Refusal::InUse { holder }, .. }) = claimed else {
        panic!("a fork has it: {claimed:?}")
    };
    match holder {
        Holder::Fork { of, pid: Some(pid) } => assert!(of != pid && pid != std::process::id()),
        holder => assert_eq!(holder, Holder::Unknown, "or the system does not tell"),
    }
}

/// The bug: such a request has no buffers, and the error named 0 bytes.
#[test]
fn an_error_of_what_moves_no_bytes_tells_the_whole_range() {
    let (_writer, pipe) = silent();
    let reserved = pipe.reserve(4096, 8192).expect_err("a pipe has no room");
    let punched = pipe.punch(4096, 8192).expect_err("a pipe has no room");
    for error in [reserved, punched] {
        assert!(error.to_string().contains("of 8192 bytes at 4096"), "{error}");
    }
}
