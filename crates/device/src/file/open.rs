//! Opening: flags, lock, length, alignment, and errors that say what to do.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use rt::Nanos;
use terrace_rt as rt;

use super::gauge::Gauge;
use super::ring;
use super::{Access, FileOptions, Method, Shared};
use crate::SECTOR_SIZE;

/// An error with the path, what was tried, and the cause.
pub(super) fn explain(path: &Path, what: &str, source: io::Error) -> io::Error {
    io::Error::new(source.kind(), format!("{}: {what}: {source}", path.display()))
}

pub(super) fn open(path: &Path, options: &FileOptions) -> io::Result<Shared> {
    let method = choose_method(path, options.method)?;
    let existed = path.exists();
    let file = open_flags(path, options, !existed)?;
    lock(path, &file, options.access)?;
    let fitted = fit_length(path, &file, options);
    if fitted.is_err() && !existed {
        // Nobody else has it: the lock is held. A failure leaves an empty file, and harms nobody.
        let _removed = std::fs::remove_file(path);
    }
    let len = fitted?;
    if !existed {
        sync_folder(path)?;
    }
    let memory_align = if options.direct { direct_alignment(&file) } else { 1 };
    Ok(Shared {
        file,
        path: path.to_owned(),
        len,
        method,
        direct: options.direct,
        memory_align,
        gauge: Gauge::default(),
        sync_failed: AtomicBool::new(false),
    })
}

fn choose_method(path: &Path, asked: Method) -> io::Result<Method> {
    match (asked, ring::availability()) {
        (Method::Positioned, _) | (Method::Auto, Err(_)) => Ok(Method::Positioned),
        (Method::Uring | Method::Auto, Ok(())) => Ok(Method::Uring),
        (Method::Uring, Err(source)) => {
            let what = "this process may not use io_uring, choose the positioned method";
            Err(explain(path, what, source))
        }
    }
}

fn open_flags(path: &Path, options: &FileOptions, is_new: bool) -> io::Result<File> {
    let mut flags = OpenOptions::new();
    let writes = options.access == Access::ReadWrite;
    flags.read(true).write(writes).create(writes && options.create);
    if options.direct {
        flags.custom_flags(libc::O_DIRECT);
    }
    flags.open(path).map_err(|source| {
        if is_new && source.raw_os_error() == Some(libc::EINVAL) {
            // The kernel makes the file before it finds that it has no direct I/O.
            let _removed = std::fs::remove_file(path);
        }
        let what = match source.raw_os_error() {
            Some(libc::EINVAL) if options.direct => {
                "its file system refuses direct I/O, choose one that has it"
            }
            _ => "cannot open",
        };
        explain(path, what, source)
    })
}

/// Locks it, or waits as long as it may take the kernel to end the requests of a process that is
/// gone: these hold its files, and so its locks, for a moment after it was waited for.
fn lock(path: &Path, file: &File, access: Access) -> io::Result<()> {
    const LOOK_AGAIN: Nanos = Nanos::from_millis(20);
    const TRIES: usize = 100;
    for _ in 0..TRIES {
        let locked = match access {
            Access::ReadWrite => file.try_lock(),
            Access::ReadOnly => file.try_lock_shared(),
        };
        match locked {
            Err(TryLockError::WouldBlock) => rt::sleep(LOOK_AGAIN),
            locked => {
                return locked.map_err(|error| explain(path, "cannot lock", error.into()));
            }
        }
    }
    let source = io::Error::new(ErrorKind::ResourceBusy, "another opener holds its lock");
    Err(explain(path, "in use, close the other database first", source))
}

/// Makes the file as long as asked, and says how long that is.
fn fit_length(path: &Path, mut file: &File, options: &FileOptions) -> io::Result<u64> {
    let refuse = |what: &str| {
        let source = io::Error::from(ErrorKind::InvalidInput);
        Err(explain(path, what, source))
    };
    let metadata = file.metadata().map_err(|source| explain(path, "cannot inspect", source))?;
    let kind = metadata.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return refuse("neither a file nor a block device");
    }
    let whole = file.seek(SeekFrom::End(0)).map_err(|source| explain(path, "no length", source))?;
    let len = options.size.unwrap_or(whole - whole % SECTOR_SIZE as u64);
    if len == 0 || !len.is_multiple_of(SECTOR_SIZE as u64) {
        return refuse(&format!("its length, {len} bytes, must be whole sectors, at least one"));
    }
    if len > whole {
        if !options.create || kind.is_block_device() {
            return refuse(&format!("too short: {whole} bytes, and {len} are asked for"));
        }
        grow(file, whole, len).map_err(|source| {
            // Of what was reserved before it failed nothing is kept.
            let _shortened = file.set_len(whole);
            let what = format!("cannot grow from {whole} to {len} bytes");
            explain(path, &what, source)
        })?;
    }
    Ok(len)
}

/// Reserves space, so that a full disk is found out now; a file system without reservations gets a
/// sparse file.
fn grow(file: &File, from: u64, to: u64) -> io::Result<()> {
    match reserve(file, from, to - from) {
        Err(error) if error.kind() == ErrorKind::Unsupported => file.set_len(to)?,
        reserved => reserved?,
    }
    file.sync_all()
}

/// Reserves the range, and makes the file longer if it ends within.
pub(super) fn reserve(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let number = |at: u64| libc::off_t::try_from(at).map_err(|_| ErrorKind::FileTooLarge);
    // SAFETY: a plain system call on an open file.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, number(offset)?, number(len)?) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes a new name durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|source| explain(folder, "cannot sync the folder", source))
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
