//! A file of a file system in user space (FUSE) that does not answer. It has one file, which is its
//! root; only a privileged user may mount it.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rt::Real;
use tempfile::TempDir;
use terrace_device::{Device, FileDevice, FileOptions, read};
use terrace_rt::{self as rt, Nanos};

const LEN: u64 = 1 << 20;
const PAGE: usize = 8192;

const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const RELEASE: u32 = 18;
const INIT: u32 = 26;
/// Those that have no answer.
const FORGET: u32 = 2;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

/// Reads are answered after this time at the latest, so that a test that fails ends.
const PATIENCE: Duration = Duration::from_secs(20);

/// The file system is there while this lives.
struct Mounted {
    path: PathBuf,
    /// Reads are answered once it is gone.
    silence: Option<Sender<()>>,
}

impl Mounted {
    /// Over the file at `path`; `None` where that is not allowed.
    fn over(path: PathBuf) -> Option<Mounted> {
        File::create(&path).expect("a writable folder");
        let channel = File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let fd = channel.as_raw_fd();
        let options = format!("fd={fd},rootmode=100000,user_id=0,group_id=0\0");
        let target = [path.as_os_str().as_bytes(), b"\0"].concat();
        // SAFETY: all are C strings, which outlive the call.
        let mounted = unsafe {
            let (name, target) = (c"terrace-test".as_ptr(), target.as_ptr().cast());
            libc::mount(name, target, c"fuse".as_ptr(), 0, options.as_ptr().cast())
        };
        if mounted != 0 {
            return None;
        }
        let (silence, broken) = mpsc::channel();
        thread::spawn(move || serve(&channel, broken));
        Some(Mounted { path, silence: Some(silence) })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(self.silence.take());
        let target = [self.path.as_os_str().as_bytes(), b"\0"].concat();
        // SAFETY: a C string, which outlives the call.
        unsafe { libc::umount2(target.as_ptr().cast(), libc::MNT_DETACH) };
    }
}

fn serve(channel: &File, broken: Receiver<()>) {
    let mut request = vec![0; 1 << 20];
    let broken = Arc::new(Mutex::new(broken));
    // An error: it was unmounted.
    while let Ok(len) = (&*channel).read(&mut request) {
        let number = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().expect("4"));
        let (opcode, unique) = (number(4), request[8..16].to_vec());
        assert!(len >= 40, "no header");
        match opcode {
            FORGET | INTERRUPT | BATCH_FORGET => (),
            READ => {
                let (channel, len) = (channel.try_clone().expect("another one"), number(56));
                let broken = Arc::clone(&broken);
                thread::spawn(move || {
                    let broken = broken.lock().expect("nobody panics");
                    let _ended = broken.recv_timeout(PATIENCE);
                    answer(&channel, &unique, 0, &vec![7; len as usize]);
                });
            }
            INIT => answer(channel, &unique, 0, &started()),
            GETATTR => answer(channel, &unique, 0, &[&[0; 16][..], &attributes()].concat()),
            OPEN => answer(channel, &unique, 0, &[0; 16]),
            RELEASE => answer(channel, &unique, 0, &[]),
            _ => answer(channel, &unique, -libc::ENOSYS, &[]),
        }
    }
}

fn answer(mut channel: &File, unique: &[u8], error: i32, body: &[u8]) {
    let len = 16 + body.len() as u32;
    let all = [&len.to_ne_bytes()[..], &error.to_ne_bytes(), unique, body].concat();
    // The asker may be gone.
    let _written = channel.write(&all);
}

/// Version 7.31, and as much as is allowed written at once.
fn started() -> Vec<u8> {
    let mut body = vec![0; 64];
    let fields = [(0, 7_u32), (4, 31), (20, 1 << 17), (24, 1)];
    fields.iter().for_each(|(at, it)| body[*at..*at + 4].copy_from_slice(&it.to_ne_bytes()));
    body
}

/// A file of `LEN` bytes.
fn attributes() -> Vec<u8> {
    let mut body = vec![0; 88];
    body[0..8].copy_from_slice(&1_u64.to_ne_bytes());
    body[8..16].copy_from_slice(&LEN.to_ne_bytes());
    body[60..64].copy_from_slice(&(libc::S_IFREG | 0o600).to_ne_bytes());
    body[64..68].copy_from_slice(&1_u32.to_ne_bytes());
    body
}

/// The bug: FUSE tells the kernel that it can do without waiting, and waits. So handing a read to
/// io_uring took as long as the answer did: no time limit counted, and an executor stood still.
#[test]
fn a_silent_file_system_in_user_space_is_waited_for_no_longer_than_its_limit() {
    for direct in [false, true] {
        let folder = TempDir::new().expect("a temporary folder");
        let Some(mounted) = Mounted::over(folder.path().join("device")) else { return };
        let options = FileOptions { direct, ..FileOptions::default() };
        let device = Arc::new(FileDevice::open(&mounted.path, &options).expect("it is there"));
        device.set_time_limit(Nanos::from_millis(100));
        let times_out = |device: &FileDevice| {
            let mut memory = [3; PAGE];
            let failure = read(device, 0, &mut memory).expect_err("nobody answers");
            assert_eq!((failure.kind(), memory), (ErrorKind::TimedOut, [3; PAGE]), "{failure}");
        };
        times_out(&device);
        Real::new(1).run(|| {
            let reader = Arc::clone(&device);
            let reading = rt::spawn("reads", move || times_out(&reader));
            reading.join();
        });
        drop(mounted);
    }
}
