//! Opening: a claim first, which changes nothing that was there, then a device.
//!
//! ```text
//! FileClaim::take --> open, made if there is nothing (O_EXCL, 0600), locked, its kind known
//!       |             contents: what it holds; clear, grow, write_at: once that is known
//!       v
//! into_device ------> direct I/O, length, alignment; the names of what was made are durable
//! ```
//!
//! - O1: between the look at what a file holds and its use no other process can put something
//!   there: both are done with one open file, which is locked. A block device is opened exclusively
//!   (`O_EXCL`), so it is not mounted, no part of another device, and not open by another node.
//! - O2: after the lock was taken the path still leads to the file that was locked.
//! - O3: a claim that made its file and is dropped takes it away again.
//! - O4: that another process has the file open is reported at once, unless that process has ended:
//!   then it may take the kernel a moment to end its requests, which hold its files, and so its
//!   locks.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use rt::{LeafMutex, Nanos};
use terrace_rt as rt;

use super::atomic::AtomicWrites;
use super::gauge::Gauge;
use super::group::Groups;
use super::held::{Holder, identity};
use super::refused::{OpenError, Refusal};
use super::ring;
use super::shared::Shared;
use super::space::reserve;
use super::spare::Spare;
use super::syncs::Syncs;
use super::{Access, FileDevice, FileOptions, Method};
use crate::SECTOR_SIZE;
use crate::contents::{Contents, ReadAt};
use crate::time_limit::TimeLimit;

mod nameless;

/// How often a path is looked at again that changes meanwhile.
const LOOKS_MAX: usize = 16;
/// What is written at once where a block device is cleared, in bytes.
const CLEARED_BYTES: u64 = 1 << 20;

pub(super) fn open(path: &Path, options: &FileOptions) -> io::Result<FileDevice> {
    let claim = FileClaim::take(path, options.access, options.create)?;
    if let Some(size) = options.size.filter(|&size| options.create && size > claim.len()) {
        claim.grow(size, Room::Reserved)?;
    }
    Ok(claim.into_device(options)?)
}

/// How a file gets longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Its room is reserved, so that a full disk is found out now; a file system without
    /// reservations gets a sparse file.
    Reserved,
    /// It is sparse.
    Sparse,
}

/// A file or a block device that is open and locked, and not yet used as a device. What it made is
/// taken away when it is dropped.
#[derive(Debug)]
pub struct FileClaim {
    /// Dropped before `file`: what was made is taken away while it is locked.
    made: Option<Made>,
    path: PathBuf,
    file: File,
    kind: Kind,
    access: Access,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    BlockDevice,
}

impl FileClaim {
    /// Opens and locks the file or block device at `path`; with `create` it makes an empty file if
    /// there is nothing, for its user alone.
    ///
    /// # Errors
    ///
    /// [`OpenError`], with the path.
    pub fn take(path: &Path, access: Access, create: bool) -> Result<FileClaim, OpenError> {
        take(path, access, create).map_err(|why| refused(path, why))
    }

    /// The path that it was taken by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this claim made it.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.made.is_some()
    }

    /// Whether it is a block device: of a length that is fixed.
    #[must_use]
    pub fn is_block_device(&self) -> bool {
        self.kind == Kind::BlockDevice
    }

    /// Device and inode, which no other file has while this one is open.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn identity(&self) -> Result<(u64, u64), OpenError> {
        let found = self.file.metadata();
        found.map(|it| identity(&it)).map_err(|source| self.failed("cannot look at it", source))
    }

    /// What it holds.
    ///
    /// # Errors
    ///
    /// What reading says.
    pub fn contents(&self) -> Result<Contents, OpenError> {
        Contents::of(self).map_err(|source| self.failed("cannot read what it holds", source))
    }

    /// Makes an end of what it holds: a file is empty after it, and of a block device the first and
    /// the last MiB are zeroes.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn clear(&self) -> Result<(), OpenError> {
        let clear = || {
            if self.kind == Kind::File {
                self.file.set_len(0)?;
            } else {
                let size = CLEARED_BYTES.min(self.len());
                let zeroes = vec![0; size as usize];
                self.file.write_all_at(&zeroes, 0)?;
                self.file.write_all_at(&zeroes, self.len() - size)?;
            }
            self.file.sync_all()
        };
        clear().map_err(|source| self.failed("cannot clear it", source))
    }

    /// Makes a file `len` bytes long, at least as long as it is.
    ///
    /// # Errors
    ///
    /// `NoRoom`: then the file is as long as before; `TooShort` for a block device.
    pub fn grow(&self, len: u64, room: Room) -> Result<(), OpenError> {
        let found = self.len();
        if len <= found {
            return Ok(());
        }
        if self.kind == Kind::BlockDevice {
            return Err(refused(&self.path, Refusal::TooShort { found, wanted: len }));
        }
        let grown = match room {
            Room::Sparse => self.file.set_len(len),
            Room::Reserved => match reserve(&self.file, found, len - found) {
                Err(error) if error.kind() == ErrorKind::Unsupported => self.file.set_len(len),
                reserved => reserved,
            },
        };
        grown.and_then(|()| self.file.sync_all()).map_err(|source| {
            // Of what was reserved before it failed nothing is kept.
            let _shortened = self.file.set_len(found);
            let full = [libc::ENOSPC, libc::EDQUOT, libc::EFBIG].map(Some);
            if full.contains(&source.raw_os_error()) {
                refused(&self.path, Refusal::NoRoom { wanted: len, source })
            } else {
                self.failed("cannot make it longer", source)
            }
        })
    }

    /// Writes `bytes` at `offset`, durably. A file may get longer by it.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), OpenError> {
        let written = self.file.write_all_at(bytes, offset).and_then(|()| self.file.sync_all());
        written.map_err(|source| self.failed("cannot write", source))
    }

    /// Whether its file system has direct I/O.
    #[must_use]
    pub fn has_direct_io(&self) -> bool {
        let fd = self.file.as_raw_fd();
        // SAFETY: a plain system call on an open file.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        let has_it = set_direct(&self.file);
        if has_it {
            // SAFETY: as above.
            unsafe { libc::fcntl(fd, libc::F_SETFL, flags) };
        }
        has_it
    }

    /// The device, as `options` say but for `create` and `access`, which the claim has seen to.
    ///
    /// # Errors
    ///
    /// `NoDirectIo`, `NoUring`, `Length`, `TooShort`: what the claim made is gone then.
    pub fn into_device(self, options: &FileOptions) -> Result<FileDevice, OpenError> {
        let fail = |why| Err(refused(&self.path, why));
        let seat = Seat::of(&self.file, self.kind);
        let method = choose_method(options.method, seat).map_err(|why| refused(&self.path, why))?;
        if options.direct && !set_direct(&self.file) {
            return fail(Refusal::NoDirectIo);
        }
        let whole = self.len();
        let len = options.size.unwrap_or(whole - whole % SECTOR_SIZE as u64);
        if len == 0 || !len.is_multiple_of(SECTOR_SIZE as u64) {
            return fail(Refusal::Length { len });
        }
        if len > whole {
            return fail(Refusal::TooShort { found: whole, wanted: len });
        }
        if self.kind == Kind::File && self.access == Access::ReadWrite {
            self.sync_folder()?;
        }
        let found = self.file.metadata();
        let found = found.map_err(|source| self.failed("cannot look at it", source))?;
        let never_waits = seat == Seat::Memory && method == Method::Positioned;
        // A file system in memory that takes `O_DIRECT` copies as it does without.
        let memory_align = match options.direct && !never_waits {
            true => direct_alignment(&self.file),
            false => 1,
        };
        let atomic = AtomicWrites::of(&self.file, options.direct && !never_waits);
        self.made.into_iter().for_each(Made::keep);
        Ok(FileDevice::new(Shared {
            time_limit: TimeLimit::new(self.path.display().to_string()),
            file: self.file,
            path: self.path,
            len: AtomicU64::new(len),
            is_block_device: self.kind == Kind::BlockDevice,
            is_fixed: self.kind == Kind::BlockDevice || options.size.is_some(),
            method,
            never_waits,
            batches: AtomicU64::new(0),
            direct: options.direct,
            memory_align,
            atomic,
            owner: std::process::id(),
            gauge: Gauge::default(),
            helpers: Arc::default(),
            identity: identity(&found),
            unanswered: LeafMutex::new(None),
            syncs: Syncs::default(),
            groups: Groups::default(),
            spare: Spare::default(),
            released: AtomicBool::new(false),
        }))
    }

    /// Makes its name durable. Also one that was found: the process that created it may have ended
    /// before that.
    fn sync_folder(&self) -> Result<(), OpenError> {
        let whole = fs::canonicalize(&self.path);
        let synced = whole.and_then(|path| {
            let folder = path.parent().unwrap_or(Path::new("/"));
            File::open(folder)?.sync_all()
        });
        match synced {
            // A folder that this user may pass and not read.
            Err(source) if !self.is_new() && source.kind() == ErrorKind::PermissionDenied => Ok(()),
            synced => synced.map_err(|source| self.failed("cannot sync its folder", source)),
        }
    }

    fn failed(&self, what: &'static str, source: io::Error) -> OpenError {
        refused(&self.path, Refusal::System { what, source })
    }
}

impl ReadAt for FileClaim {
    /// Zero if the system does not tell.
    fn len(&self) -> u64 {
        (&self.file).seek(SeekFrom::End(0)).unwrap_or(0)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }
}

fn refused(path: &Path, why: Refusal) -> OpenError {
    OpenError { path: path.to_owned(), why }
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> Refusal {
    move |source| match source.kind() {
        ErrorKind::NotFound => Refusal::Missing,
        _ => Refusal::System { what, source },
    }
}

fn take(path: &Path, access: Access, create: bool) -> Result<FileClaim, Refusal> {
    for _ in 0..LOOKS_MAX {
        let kind = match fs::metadata(path) {
            Err(source) if source.kind() == ErrorKind::NotFound && create => None,
            looked => Some(kind_of(&looked.map_err(system("cannot look at it"))?)?),
        };
        let opened = match kind {
            None => make(path),
            Some(kind) => open_found(path, kind, access),
        };
        let file = match (opened, kind) {
            (Ok(file), _) => file,
            // Another process has created it since, or removed it.
            (Err(Refusal::System { source, .. }), None)
                if source.kind() == ErrorKind::AlreadyExists =>
            {
                continue;
            }
            (Err(Refusal::Missing), Some(_)) if create => continue,
            (Err(why), _) => return Err(why),
        };
        let found = file.metadata().map_err(system("cannot look at it"))?;
        let made = kind.is_none().then(|| Made::new(path, &found));
        let now = kind_of(&found)?;
        if kind.is_some_and(|kind| kind != now) {
            continue;
        }
        if let Err(why) = lock(&file, &found, access) {
            // It is the locker's now.
            made.into_iter().for_each(Made::keep);
            return Err(why);
        }
        if leads_to(path, &found) {
            return Ok(FileClaim { path: path.to_owned(), file, kind: now, made, access });
        }
    }
    let source = io::Error::from(ErrorKind::AlreadyExists);
    Err(Refusal::System { what: "it is a link to nothing, or changes all the time", source })
}

/// What may be opened. A pipe would have the opener wait, and a character device may act.
fn kind_of(found: &Metadata) -> Result<Kind, Refusal> {
    let kind = found.file_type();
    let found = match kind {
        _ if kind.is_file() => return Ok(Kind::File),
        _ if kind.is_block_device() => return Ok(Kind::BlockDevice),
        _ if kind.is_dir() => "a folder",
        _ if kind.is_char_device() => "a character device",
        _ if kind.is_fifo() => "a pipe",
        _ if kind.is_socket() => "a socket",
        _ => "of an unknown kind",
    };
    Err(Refusal::Kind { found })
}

/// Makes a file where there is nothing, for its user alone.
fn make(path: &Path) -> Result<File, Refusal> {
    let mut flags = OpenOptions::new();
    flags.read(true).write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOCTTY);
    flags.open(path).map_err(system("cannot make it"))
}

/// Opens what was found; a block device that is to be written, exclusively (O1).
fn open_found(path: &Path, kind: Kind, access: Access) -> Result<File, Refusal> {
    let writes = access == Access::ReadWrite;
    let exclusive = if kind == Kind::BlockDevice && writes { libc::O_EXCL } else { 0 };
    let mut flags = OpenOptions::new();
    flags.read(true).write(writes).custom_flags(libc::O_NOCTTY | exclusive);
    let mut patience = Patience::default();
    loop {
        match flags.open(path) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                let found = fs::metadata(path).map_err(system("cannot look at it"))?;
                patience.wait_for(&found)?;
            }
            opened => return opened.map_err(system("cannot open it")),
        }
    }
}

/// Locks it, or returns which process has the lock.
fn lock(file: &File, found: &Metadata, access: Access) -> Result<(), Refusal> {
    let mut patience = Patience::default();
    loop {
        let locked = match access {
            Access::ReadWrite => file.try_lock(),
            Access::ReadOnly => file.try_lock_shared(),
        };
        match locked {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => patience.wait_for(found)?,
            Err(TryLockError::Error(source)) => {
                return Err(Refusal::System { what: "cannot lock it", source });
            }
        }
    }
}

/// How long an opener waits for another one (O4).
#[derive(Default)]
struct Patience {
    tries: u32,
}

impl Patience {
    const LOOK_AGAIN: Nanos = Nanos::from_millis(20);
    /// For a process that has ended.
    const TRIES: u32 = 100;
    /// For one that is not known: it may have gone between the two questions.
    const TRIES_UNKNOWN: u32 = 5;
    /// For requests of an earlier opening: a device that is well answers within that.
    const TRIES_UNANSWERED: u32 = 25;

    /// Waits for the holder of what `found` describes, if there is hope.
    fn wait_for(&mut self, found: &Metadata) -> Result<(), Refusal> {
        let holder = Holder::of(found);
        let tries = match holder {
            Holder::Unknown => Patience::TRIES_UNKNOWN,
            Holder::Unanswered => Patience::TRIES_UNANSWERED,
            _ if holder.is_going() => Patience::TRIES,
            _ => 0,
        };
        if self.tries >= tries {
            return Err(Refusal::InUse { holder: holder.after_wait(found) });
        }
        self.tries += 1;
        rt::sleep(Patience::LOOK_AGAIN);
        Ok(())
    }
}

/// Whether `path` leads to the file or device that `found` describes.
fn leads_to(path: &Path, found: &Metadata) -> bool {
    fs::metadata(path).is_ok_and(|it| (it.dev(), it.ino()) == (found.dev(), found.ino()))
}

/// A file that was made, and goes when this is dropped (O3).
#[derive(Debug)]
struct Made {
    path: PathBuf,
    found: Metadata,
    stays: bool,
}

impl Made {
    fn new(path: &Path, found: &Metadata) -> Made {
        Made { path: path.to_owned(), found: found.clone(), stays: false }
    }

    fn keep(mut self) {
        self.stays = true;
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if !self.stays && leads_to(&self.path, &self.found) {
            // The caller gets the error for which the rest failed; what is left is empty or blank.
            let _removed = fs::remove_file(&self.path);
        }
    }
}

/// What holds the bytes of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seat {
    /// Memory of this machine (tmpfs): every request is a copy, which waits for no device. A ring
    /// has it made by a thread of the kernel, whose waking takes longer than the copy.
    Memory,
    /// A server in user space (FUSE), which says that it can do without waiting, and waits: handing
    /// a request to a ring may take as long as its answer.
    Server,
    Drive,
}

impl Seat {
    fn of(file: &File, kind: Kind) -> Seat {
        // Its node is in memory; the device is not.
        if kind == Kind::BlockDevice {
            return Seat::Drive;
        }
        // SAFETY: all-zero is a valid value of this plain structure.
        let mut found: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: `found` outlives the call.
        let result = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut found) };
        match found.f_type {
            // One that does not even tell what it is has a server, too.
            _ if result != 0 => Seat::Server,
            libc::FUSE_SUPER_MAGIC => Seat::Server,
            libc::TMPFS_MAGIC => Seat::Memory,
            _ => Seat::Drive,
        }
    }
}

fn choose_method(asked: Method, seat: Seat) -> Result<Method, Refusal> {
    match (asked, ring::availability()) {
        (Method::Positioned, _) | (Method::Auto, Err(_)) => Ok(Method::Positioned),
        (Method::Auto, Ok(())) if seat != Seat::Drive => Ok(Method::Positioned),
        (Method::Uring | Method::Auto, Ok(())) => Ok(Method::Uring),
        (Method::Uring, Err(source)) => Err(Refusal::NoUring { source }),
    }
}

/// Has the page cache bypassed from now on. `false` if the file system cannot.
fn set_direct(file: &File) -> bool {
    let fd = file.as_raw_fd();
    // SAFETY: a plain system call on an open file.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: as above.
    flags >= 0 && unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_DIRECT) } == 0
}

/// What the kernel asks of memory for direct I/O, at least a sector.
fn direct_alignment(file: &File) -> usize {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let (fd, flags) = (file.as_raw_fd(), libc::AT_EMPTY_PATH);
    // SAFETY: the path is an empty C string, and `found` outlives the call.
    let result =
        unsafe { libc::statx(fd, c"".as_ptr(), flags, libc::STATX_DIOALIGN, &raw mut found) };
    let known = result == 0 && found.stx_mask & libc::STATX_DIOALIGN != 0;
    let asked = if known { found.stx_dio_mem_align as usize } else { 0 };
    asked.max(SECTOR_SIZE)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_file_in_memory_needs_no_ring_and_a_block_device_is_not_its_node() {
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
            println!("not tested: no /dev/shm");
            return;
        };
        let path = folder.path().join("file");
        let made = File::create(&path).and_then(|file| file.set_len(1 << 20).map(|()| file));
        let file = made.expect("a file");
        if Seat::of(&file, Kind::File) != Seat::Memory {
            println!("not tested: /dev/shm is no tmpfs");
            return;
        }
        assert!(Seat::of(&file, Kind::BlockDevice) == Seat::Drive, "a node under /dev");
        let folder = tempfile::tempdir_in(".").expect("a folder");
        let beside = File::create(folder.path().join("file")).expect("a file");
        assert_eq!(Seat::of(&beside, Kind::File) == Seat::Memory, is_in_memory(folder.path()));

        for (asked, limited) in [(Method::Auto, false), (Method::Uring, true)] {
            let options = FileOptions { method: asked, direct: false, ..FileOptions::default() };
            let device = match FileDevice::open(&path, &options) {
                Err(error) if asked == Method::Uring => {
                    println!("not tested: {error}");
                    continue;
                }
                opened => opened.expect("free"),
            };
            crate::Device::set_time_limit(&device, Nanos::from_secs(1));
            let uses_ring = device.method() == Method::Uring;
            assert_eq!((uses_ring, device.0.is_limited()), (limited, limited), "{asked:?}");
        }
    }

    #[test]
    fn a_task_whose_device_never_waits_lets_the_others_run() {
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
        let options = FileOptions {
            size: Some(1 << 20),
            create: true,
            direct: false,
            ..FileOptions::default()
        };
        let device = FileDevice::open(folder.path().join("file"), &options).expect("room");
        rt::Real::new(1).run(|| {
            let has_run = Arc::new(AtomicBool::new(false));
            let other = Arc::clone(&has_run);
            let task = rt::spawn("other", move || other.store(true, Ordering::Release));
            let mut page = vec![0; 8192];
            for _ in 0..1000 {
                crate::read(&device, 0, &mut page).expect("a good file");
            }
            assert!(has_run.load(Ordering::Acquire), "1,000 reads had the executor alone");
            task.join();
        });
    }

    /// By the words of `stat`, of coreutils.
    fn is_in_memory(path: &Path) -> bool {
        let told = std::process::Command::new("stat").args(["-f", "-c", "%T"]).arg(path).output();
        told.is_ok_and(|told| told.stdout.starts_with(b"tmpfs"))
    }
}
