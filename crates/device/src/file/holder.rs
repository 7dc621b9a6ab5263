//! Who holds the lock of a file: what `/proc/locks` says of it.
//!
//! ```text
//! 1: FLOCK  ADVISORY  WRITE 4242 fe:01:1048577 0 EOF
//!    kind             mode  pid  device:inode
//! ```
//!
//! It only helps a message: where the kernel does not tell, or the holder is in another process
//! namespace, nobody is named.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The process that holds a lock of the file or device at `path`, if the kernel tells.
#[must_use]
pub fn lock_holder(path: &Path) -> Option<u32> {
    let inode = std::fs::metadata(path).ok()?;
    let (device, inode) = (inode.dev(), inode.ino());
    let named = (libc::major(device), libc::minor(device), inode);
    find(&std::fs::read_to_string("/proc/locks").ok()?, named)
}

/// The holder of the lock of an inode, by device and number, in the text of `/proc/locks`.
fn find(locks: &str, inode: (u32, u32, u64)) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        // A waiting process has an arrow behind the number.
        let kind = fields.nth(1)?;
        let (_advisory, _mode, pid, place) =
            (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let mut parts = place.split(':');
        let major = u32::from_str_radix(parts.next()?, 16).ok()?;
        let minor = u32::from_str_radix(parts.next()?, 16).ok()?;
        let number = parts.next()?.parse().ok()?;
        let pid: u32 = pid.parse().ok()?;
        (kind == "FLOCK" && (major, minor, number) == inode && pid > 0).then_some(pid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_read_from_the_kernels_list() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:01:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 22 fe:01:78 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 33 fe:01:79 0 EOF\n\
                     garbage\n\
                     3: FLOCK  ADVISORY  READ  44 fe:01:77 0 EOF\n\
                     4: FLOCK  ADVISORY  READ  -1 fe:01:80 0 EOF\n";
        let found = [77, 78, 79, 80].map(|inode| find(locks, (0xfe, 1, inode)));
        assert_eq!(found, [Some(44), Some(22), None, None]);
        assert_eq!(find(locks, (0xfd, 1, 77)), None);
    }
}
