//! Atomic writes: the kernel and the drive do all of each or nothing (`RWF_ATOMIC`, Linux 6.13).
//!
//! ```text
//!   write        |---------+---------+---------+-----|      units of `len` bytes
//!   requests     | atomic  |      atomic       | rest     each a power of two, at a multiple
//! ```
//!
//! - V1: an atomic request has a power of two of bytes, begins at a multiple of that, is
//!   no longer than the drive offers for the file, and has its bytes in one piece of memory: the
//!   kernel refuses any other.
//! - V2: what a write covers only in part is written as ever.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Op, Request};

/// What a file offers, and what its owner asked for.
#[derive(Debug)]
pub(super) struct AtomicWrites {
    /// The lengths that can be written atomically, from and to; zero if none.
    offered: (u64, u64),
    /// The unit that is written atomically; zero: none.
    len: AtomicU64,
    /// How the kernel is told.
    flag: i32,
}

/// A part of a write: one request to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) is_atomic: bool,
}

impl AtomicWrites {
    /// Of a file that direct I/O is used for, or not.
    pub(super) fn of(file: &File, direct: bool) -> AtomicWrites {
        AtomicWrites::with(if direct { offered(file) } else { (0, 0) }, libc::RWF_ATOMIC)
    }

    fn with(offered: (u64, u64), flag: i32) -> AtomicWrites {
        AtomicWrites { offered, len: AtomicU64::new(0), flag }
    }

    /// Of a file of which it is not asked what it offers: the kernel is asked for nothing.
    #[cfg(test)]
    pub(super) fn unasked(offered: (u64, u64)) -> AtomicWrites {
        AtomicWrites::with(offered, 0)
    }

    /// Of a file of which it is not asked what it offers: atomic writes are asked for.
    #[cfg(test)]
    pub(super) fn asking(offered: (u64, u64)) -> AtomicWrites {
        AtomicWrites::with(offered, libc::RWF_ATOMIC)
    }

    /// The flag of an atomic request.
    pub(super) fn flag(&self) -> i32 {
        self.flag
    }

    /// Writes units of `len` bytes atomically from now on, if that is offered.
    pub(super) fn keep(&self, len: u64) -> bool {
        let (least, most) = self.offered;
        let can = len.is_power_of_two() && (least..=most).contains(&len);
        if can {
            self.len.fetch_max(len, Ordering::Relaxed);
        }
        can
    }

    /// How writes are cut from now on.
    pub(super) fn cut(&self) -> Cut {
        Cut { unit: self.len.load(Ordering::Relaxed), most: self.offered.1 }
    }

    /// Whether writes are cut at all.
    pub(super) fn is_on(&self) -> bool {
        self.cut().is_on()
    }
}

/// How the writes of a batch are cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Zero: they are not.
    unit: u64,
    most: u64,
}

impl Cut {
    /// Whether any write is cut.
    pub(super) fn is_on(self) -> bool {
        self.unit > 0
    }

    /// What the kernel is asked for a request, in order.
    pub(super) fn of(self, request: &Request<'_>) -> Parts {
        match request.op {
            Op::Write if self.is_on() => self.parts(request.offset, request.len()),
            Op::Read | Op::Write => {
                let (at, end) = (request.offset, request.offset + request.len());
                Parts { at, end, units: (end, end), most: 0 }
            }
        }
    }

    fn parts(self, offset: u64, len: u64) -> Parts {
        let end = offset + len;
        let units = (offset.next_multiple_of(self.unit), end / self.unit * self.unit);
        Parts { at: offset, end, units, most: self.most }
    }
}

impl Part {
    /// All of a request, which need not be atomic.
    pub(super) fn of(request: &Request<'_>) -> Part {
        Part { offset: request.offset, len: request.len(), is_atomic: false }
    }
}

/// The parts of a write.
pub(super) struct Parts {
    at: u64,
    end: u64,
    /// Where the units begin that are covered, and where they end.
    units: (u64, u64),
    most: u64,
}

impl Iterator for Parts {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        let (offset, (first, last)) = (self.at, self.units);
        if offset >= self.end {
            return None;
        }
        let is_atomic = (first..last).contains(&offset);
        let len = if is_atomic {
            let aligned = if offset == 0 { u64::MAX } else { 1 << offset.trailing_zeros() };
            let fits = 1 << (last - offset).ilog2();
            aligned.min(fits).min(self.most)
        } else if offset < first && first < last {
            first - offset
        } else {
            self.end - offset
        };
        self.at += len;
        Some(Part { offset, len, is_atomic })
    }
}

/// The least and the greatest length that the drive writes atomically; zeroes if none. XFS also
/// offers what it makes itself, by writing elsewhere: that needs room, which may not be there.
fn offered(file: &File) -> (u64, u64) {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let (fd, flags) = (file.as_raw_fd(), libc::AT_EMPTY_PATH);
    let mask = libc::STATX_WRITE_ATOMIC;
    // SAFETY: the path is an empty C string, and `found` outlives the call.
    let result = unsafe { libc::statx(fd, c"".as_ptr(), flags, mask, &raw mut found) };
    if result != 0 || found.stx_mask & mask == 0 {
        return (0, 0);
    }
    let (all, by_drive) = (found.stx_atomic_write_unit_max, found.stx_atomic_write_unit_max_opt);
    let most = match by_drive {
        0 if is_on_xfs(file) && all > found.stx_blksize => 0,
        0 => all,
        by_drive => by_drive.min(all),
    };
    let least = found.stx_atomic_write_unit_min;
    if most.is_power_of_two() { (u64::from(least), u64::from(most)) } else { (0, 0) }
}

fn is_on_xfs(file: &File) -> bool {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a plain system call on an open file; `found` outlives it.
    let result = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut found) };
    result == 0 && found.f_type == libc::XFS_SUPER_MAGIC
}

#[cfg(test)]
mod tests {
    use terrace_rt::Prng;

    use super::*;

    #[test]
    fn parts_are_a_write_and_all_units_that_it_covers_are_whole() {
        for seed in 0..2_000 {
            let mut prng = Prng::from_seed(seed);
            let unit = 512 << prng.below(6);
            let most = unit << prng.below(5);
            let atomic = AtomicWrites::unasked((512, most));
            let (offset, len) = (512 * prng.below(300), 512 * (1 + prng.below(300)));
            assert!(!atomic.is_on(), "nothing was asked for");
            assert!(!atomic.keep(2 * most) && !atomic.keep(unit + 1) && atomic.keep(unit));
            let (mut at, mut covered) = (offset, 0);
            for part in atomic.cut().parts(offset, len) {
                assert_eq!(part.offset, at, "seed {seed}");
                assert!(part.len > 0);
                if part.is_atomic {
                    assert!(
                        part.len.is_power_of_two() && part.len <= most,
                        "seed {seed}: {part:?}"
                    );
                    assert!(part.offset.is_multiple_of(part.len), "seed {seed}: {part:?}");
                    assert!(part.len.is_multiple_of(unit), "seed {seed}: {part:?}");
                    covered += part.len / unit;
                }
                at += part.len;
            }
            assert_eq!(at, offset + len, "seed {seed}");
            let units = (at / unit).saturating_sub(offset.div_ceil(unit));
            assert_eq!(covered, units, "seed {seed}: {offset}+{len} in units of {unit}");
        }
    }
}
