//! The room of a file: reserved, added and given back.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;

/// Reserves the range, and makes the file longer if it ends within.
pub(super) fn reserve(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let number = |at: u64| libc::off_t::try_from(at).map_err(|_| ErrorKind::FileTooLarge);
    // SAFETY: a plain system call on an open file.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, number(offset)?, number(len)?) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the file `len` bytes long, durably.
pub(super) fn grow(file: &File, len: u64) -> io::Result<()> {
    let found = file.metadata()?.len();
    if len > found {
        file.set_len(len)?;
        file.sync_all()?;
    }
    Ok(())
}

/// Gives the room of the range back.
pub(super) fn punch(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let number = |at: u64| libc::off_t::try_from(at).map_err(|_| ErrorKind::FileTooLarge);
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a plain system call on an open file.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), mode, number(offset)?, number(len)?) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
