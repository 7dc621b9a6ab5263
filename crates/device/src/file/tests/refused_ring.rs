//! A kernel that refuses the use of rings.

use rt::{Calls, refuse_calls};

use super::*;

/// Runs `test`, which is named `name`, in a process of its own.
fn alone(name: &str, test: impl FnOnce()) {
    const ALONE: &str = "TERRACE_REFUSED_RING";
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    let name = format!("file::tests::refused_ring::{name}");
    let program = std::env::current_exe().expect("this program");
    let ended = Command::new(program).args(["--exact", &name]).env(ALONE, "yes").output();
    let ended = ended.expect("it runs");
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && said.contains("1 passed"), "{said}");
}

/// Has the kernel refuse the use of rings from now on; false if it cannot.
fn refuse() -> bool {
    refuse_calls(Calls::UseOfRings, libc::EPERM).is_ok()
}

#[test]
fn a_ring_that_may_not_be_used_is_not_there() {
    alone("a_ring_that_may_not_be_used_is_not_there", || {
        if ring::ask().is_ok() && refuse() {
            let error = ring::ask().expect_err("it is refused");
            assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        }
    });
}

/// The bug: the executor panicked, and with it the process.
#[test]
fn requests_of_a_ring_that_is_refused_later_are_made_by_blocking_calls() {
    alone("requests_of_a_ring_that_is_refused_later_are_made_by_blocking_calls", || {
        let folder = folder();
        let [direct, cached] = [true, false].map(|direct| {
            let path = folder.path().join(format!("device {direct}"));
            FileDevice::open(&path, &options(Method::Uring, direct))
        });
        let Ok(cached) = cached else { return };
        let (_writer, silent) = silent::silent();
        let devices: Vec<_> = direct.into_iter().chain([cached]).collect();
        devices.iter().chain([&silent]).for_each(|it| it.set_time_limit(Nanos::from_secs(30)));
        Real::new(1).run(|| {
            devices.iter().for_each(|it| write(it, 0, &[1; PAGE]).expect("a good file"));
            let mut memory = [0; 512];
            let bufs = [IoBuf::from_mut(&mut memory)];
            let request = Request { op: Op::Read, offset: 0, bufs: &bufs, owner: None };
            // SAFETY: the memory is not touched until the ticket has been waited for.
            let unanswered = unsafe { silent.submit(&[request]) };
            rt::sleep(Nanos::from_millis(1));
            if !refuse() {
                return;
            }
            // Enough that another ring is tried, too.
            for round in 0..5000 {
                for device in &devices {
                    let (at, byte) = (round % 64 * PAGE as u64, round as u8);
                    write(device, at, &[byte; PAGE]).expect("a good file");
                    let mut found = [0; PAGE];
                    read(device, at, &mut found).expect("a good file");
                    assert_eq!(found, [byte; PAGE]);
                }
            }
            devices.iter().for_each(|it| it.sync().expect("a good file"));
            // The read of the pipe is made again, by a call that pipes refuse.
            let failure = silent.wait(unanswered).expect_err("no file");
            assert_eq!(crate::errno(&failure.source), Some(libc::ESPIPE));
        });
    });
}

/// What the kernel has taken before it refuses the ring: a write may come late, so that it is not
/// made again, and its memory stays.
#[test]
fn a_write_that_a_refused_ring_has_fails_and_no_other_does() {
    alone("a_write_that_a_refused_ring_has_fails_and_no_other_does", || {
        const PIPE: usize = 64 << 10;
        if ring::availability().is_err() {
            return;
        }
        let (_reader, mut writer) = std::io::pipe().expect("a pipe");
        std::io::Write::write_all(&mut writer, &[0; PIPE]).expect("it has room for that");
        let full = silent::of(File::from(std::os::fd::OwnedFd::from(writer)));
        full.set_time_limit(Nanos::from_secs(30));
        Real::new(1).run(|| {
            let memory = [1; PAGE];
            let bufs = [IoBuf::from_ref(&memory)];
            let request = Request { op: Op::Write, offset: 0, bufs: &bufs, owner: None };
            // SAFETY: the memory is not written until the ticket has been waited for.
            let unanswered = unsafe { full.submit(&[request]) };
            rt::sleep(Nanos::from_millis(1));
            if !refuse() {
                return;
            }
            full.sync().expect_err("no file");
            let failure = full.wait(unanswered).expect_err("it is unknown").source;
            assert_eq!(failure.kind(), ErrorKind::TimedOut);
            assert!(failure.to_string().contains("io_uring_enter was refused"), "{failure}");
            assert!(full.queued() > 0, "it has no answer");
        });
    });
}
