//! Which process has a file or a block device that cannot be opened, as far as the system tells.
//!
//! It only helps a message, and the decision whether to wait a moment: where the kernel does not
//! tell, or the holder is in another process namespace, no process is named.
//!
//! ```text
//! /proc/locks    1: FLOCK  ADVISORY  WRITE 4242 fe:01:1048577 0 EOF
//!                   kind             mode  pid  device:inode
//! ```

use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::unanswered::Unanswered;

/// The process that has a file or a block device in use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Holder {
    /// A process, which may be this one.
    Process {
        /// Its id.
        pid: u32,
    },
    /// An earlier opening in this process, which has closed it: the device has yet to answer
    /// requests of that.
    Unanswered,
    /// A process that was killed, or is about to end: the device has yet to answer its requests.
    Ending {
        /// Its id.
        pid: u32,
    },
    /// A fork of a process that had it open, and has ended.
    Fork {
        /// The process that has ended.
        of: u32,
        /// The fork, if the system tells.
        pid: Option<u32>,
    },
    /// It is mounted, or a partition of it is.
    Mount {
        /// The folder.
        at: PathBuf,
    },
    /// It is swap space in use, or a partition of it is.
    Swap,
    /// Another block device is made of it: of an array, a volume group, an encrypted volume.
    Device {
        /// Its name in the kernel.
        name: Box<str>,
    },
    /// The system does not tell.
    Unknown,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Process { pid } if *pid == std::process::id() => {
                write!(f, "this process ({pid})")
            }
            Holder::Process { pid } => write!(f, "process {pid}"),
            Holder::Unanswered => f.write_str(
                "an earlier opening in this process, requests of which its device has not answered",
            ),
            Holder::Ending { pid } => write!(
                f,
                "process {pid}, which has ended but for requests that its device has not answered, \
                 or a fork of it",
            ),
            Holder::Fork { of, pid: Some(pid) } => {
                write!(f, "process {pid}, a fork of process {of}, which has ended")
            }
            Holder::Fork { of, pid: None } => {
                write!(f, "a fork of process {of}, which has ended")
            }
            Holder::Mount { at } => write!(f, "the file system mounted at {}", at.display()),
            Holder::Swap => f.write_str("the system, as swap space"),
            Holder::Device { name } => write!(f, "the device {name}, which is made of it"),
            Holder::Unknown => f.write_str("another opener"),
        }
    }
}

impl Holder {
    /// The process that holds the file or device that `found` describes.
    pub(super) fn of(found: &Metadata) -> Holder {
        let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
        if let Some(pid) = locker(&locks, found.dev(), found.ino()) {
            let is_closed = pid == std::process::id() && Unanswered::has(identity(found));
            return if is_closed { Holder::Unanswered } else { Holder::Process { pid } };
        }
        if !found.file_type().is_block_device() {
            return Holder::Unknown;
        }
        let devices = with_partitions(found.rdev());
        let above = || devices.iter().find_map(|&device| above(device));
        let is_it = |it: &Metadata| it.file_type().is_block_device() && it.rdev() == found.rdev();
        let process = || opener(is_it).map(|pid| Holder::Process { pid });
        mounted(&devices)
            .or_else(|| swapped(&devices))
            .or_else(above)
            .or_else(process)
            .unwrap_or(Holder::Unknown)
    }

    /// The same, after a wait: a process that has ended does not hold a lock for long, unless a
    /// fork of it has it, too, or the kernel waits for an answer to its requests.
    pub(super) fn after_wait(self, found: &Metadata) -> Holder {
        let Holder::Process { pid: of } = self else { return self };
        if !self.is_going() {
            return self;
        }
        let opener = opener(|it| identity(it) == identity(found));
        match opener.filter(|&pid| pid != std::process::id() && pid != of) {
            None if is_there(of) => Holder::Ending { pid: of },
            pid => Holder::Fork { of, pid },
        }
    }

    /// Whether it is a process that has ended, or is about to: then the kernel only has to end its
    /// requests.
    pub(super) fn is_going(&self) -> bool {
        const EXITING: u64 = 4;
        let Holder::Process { pid } = self else { return false };
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            // Where there is no /proc no process is named.
            return true;
        };
        // The name, in brackets, may have any byte in it.
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        let mut fields = after.split_whitespace();
        let is_dead = matches!(fields.next(), Some("Z" | "X" | "x"));
        let flags: u64 = fields.nth(5).and_then(|flags| flags.parse().ok()).unwrap_or(0);
        is_dead || flags & EXITING != 0
    }
}

/// Whether the process has an entry in `/proc` yet, be it that of a zombie whose threads wait for
/// a device.
fn is_there(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// What no other file has.
pub(super) fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// The process that holds the lock of an inode, in the text of `/proc/locks`.
fn locker(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let device = (u64::from(libc::major(device)), u64::from(libc::minor(device)));
    locks.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        // A process that waits has an arrow behind the number.
        let kind = fields.nth(1)?;
        let (_advisory, _mode, pid, place) =
            (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let mut parts = place.split(':');
        let major = u64::from_str_radix(parts.next()?, 16).ok()?;
        let minor = u64::from_str_radix(parts.next()?, 16).ok()?;
        let number: u64 = parts.next()?.parse().ok()?;
        // One that this process cannot see is zero, or below.
        let pid: u32 = pid.parse().ok().filter(|&pid| pid > 0)?;
        (kind == "FLOCK" && (major, minor) == device && number == inode).then_some(pid)
    })
}

/// The folder of the kernel's description of a block device.
fn description(device: u64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device)))
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// The device, and its partitions.
fn with_partitions(device: u64) -> Vec<u64> {
    let number = |folder: PathBuf| {
        let text = fs::read_to_string(folder.join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
    };
    let parts = entries(&description(device)).filter(|folder| folder.join("partition").exists());
    [device].into_iter().chain(parts.filter_map(number)).collect()
}

/// Whether the file at `path` is one of the devices.
fn is_one(path: &str, devices: &[u64]) -> bool {
    let found = fs::metadata(path);
    found.is_ok_and(|it| it.file_type().is_block_device() && devices.contains(&it.rdev()))
}

fn mounted(devices: &[u64]) -> Option<Holder> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut fields = left.split(' ').skip(2);
        let (major, minor) = fields.next()?.split_once(':')?;
        let device = libc::makedev(major.parse().ok()?, minor.parse().ok()?);
        let at = fields.nth(1)?;
        // Some file systems have a device number of their own, and name the real one.
        let source = right.split(' ').nth(1)?;
        let holds = devices.contains(&device) || is_one(source, devices);
        holds.then(|| Holder::Mount { at: PathBuf::from(at) })
    })
}

fn swapped(devices: &[u64]) -> Option<Holder> {
    let swaps = fs::read_to_string("/proc/swaps").ok()?;
    let mut paths = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    paths.any(|path| is_one(path, devices)).then_some(Holder::Swap)
}

/// A device that is made of this one.
fn above(device: u64) -> Option<Holder> {
    let first = entries(&description(device).join("holders")).next()?;
    Some(Holder::Device { name: first.file_name()?.to_string_lossy().into() })
}

/// A process that has a file open which `is_it`, this one last.
fn opener(is_it: impl Fn(&Metadata) -> bool) -> Option<u32> {
    let has_it = |process: &PathBuf| {
        entries(&process.join("fd")).any(|file| fs::metadata(file).is_ok_and(|it| is_it(&it)))
    };
    let pid = |process: &PathBuf| process.file_name()?.to_str()?.parse::<u32>().ok();
    let mut processes: Vec<PathBuf> =
        entries(Path::new("/proc")).filter(|process| pid(process).is_some()).collect();
    processes.sort_by_key(|process| pid(process) == Some(std::process::id()));
    processes.into_iter().find(has_it).as_ref().and_then(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_read_from_the_kernels_list() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:01:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 22 fe:01:78 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 33 fe:01:79 0 EOF\n\
                     garbage\n\
                     3: FLOCK  ADVISORY  READ  44 fe:01:77 0 EOF\n\
                     4: FLOCK  ADVISORY  READ  -1 fe:01:80 0 EOF\n";
        let device = libc::makedev(0xfe, 1);
        let found = [77, 78, 79, 80].map(|inode| locker(locks, device, inode));
        assert_eq!(found, [Some(44), Some(22), None, None]);
        assert_eq!(locker(locks, libc::makedev(0xfd, 1), 77), None);
    }

    #[test]
    fn a_process_that_has_ended_is_told_from_one_that_runs() {
        let going = |pid| Holder::Process { pid }.is_going();
        assert!(!going(std::process::id()));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a child");
        assert!(!going(child.id()));
        child.kill().expect("a child of ours");
        while !going(child.id()) {
            std::thread::yield_now();
        }
        let file = tempfile::NamedTempFile::new().expect("a place for files");
        let found = fs::metadata(file.path()).expect("it is there");
        let of = child.id();
        let held_by = |pid| Holder::Process { pid }.after_wait(&found);
        // As one is that was killed while a thread of it waits for a device.
        assert_eq!(held_by(of), Holder::Ending { pid: of });
        child.wait().expect("a child of ours");
        assert!(going(child.id()), "and no more a zombie");
        assert_eq!(held_by(of), Holder::Fork { of, pid: None });
        assert!(!Holder::Unknown.is_going());
    }
}
