//! Writes that the kernel keeps whole (`RWF_ATOMIC`, Linux 6.11).
//!
//! ```text
//!   write        |---------+---------+---------+-----|      units of `len` bytes
//!   requests     |  whole  |       whole       | rest       each a power of two, at a multiple of it
//! ```
//!
//! - V1: a request that is kept whole has a power of two of bytes, begins at a multiple of that, and
//!   is no longer than the kernel allows for the file: the kernel refuses any other.
//! - V2: what a write covers only in part is written as ever.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Request;

/// What a file offers, and what its owner asked for.
#[derive(Debug)]
pub(super) struct Whole {
    /// The lengths that the kernel keeps whole, from and to; zero if none.
    offered: (u64, u64),
    /// The unit that is kept whole; zero: none.
    len: AtomicU64,
    /// How the kernel is told.
    flag: i32,
}

/// A part of a write: one request to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) is_whole: bool,
}

impl Whole {
    /// Of a file that direct I/O is used for, or not.
    pub(super) fn of(file: &File, direct: bool) -> Whole {
        Whole::with(if direct { offered(file) } else { (0, 0) }, libc::RWF_ATOMIC)
    }

    fn with(offered: (u64, u64), flag: i32) -> Whole {
        Whole { offered, len: AtomicU64::new(0), flag }
    }

    /// Of a file of which it is not asked what it offers: the kernel is asked for nothing.
    #[cfg(test)]
    pub(super) fn untold(offered: (u64, u64)) -> Whole {
        Whole::with(offered, 0)
    }

    /// Of a file of which it is not asked what it offers: the kernel is asked to keep it whole.
    #[cfg(test)]
    pub(super) fn telling(offered: (u64, u64)) -> Whole {
        Whole::with(offered, libc::RWF_ATOMIC)
    }

    /// What the kernel is asked for what is kept whole.
    pub(super) fn flag(&self) -> i32 {
        self.flag
    }

    /// Keeps units of `len` bytes whole from now on, if that is offered.
    pub(super) fn keep(&self, len: u64) -> bool {
        let (least, most) = self.offered;
        let can = len.is_power_of_two() && (least..=most).contains(&len);
        if can {
            self.len.fetch_max(len, Ordering::Relaxed);
        }
        can
    }

    /// Whether writes are cut into parts.
    pub(super) fn is_on(&self) -> bool {
        self.len.load(Ordering::Relaxed) > 0
    }

    /// The parts of a write, in order.
    pub(super) fn parts(&self, offset: u64, len: u64) -> Parts {
        let end = offset + len;
        let units = match self.len.load(Ordering::Relaxed) {
            0 => return Parts::one(offset, len),
            unit => (offset.next_multiple_of(unit), end / unit * unit),
        };
        Parts { at: offset, end, units, most: self.offered.1 }
    }
}

impl Part {
    /// All of a request, which need not be whole.
    pub(super) fn of(request: &Request<'_>) -> Part {
        Part { offset: request.offset, len: request.len(), is_whole: false }
    }
}

/// See [`Whole::parts`].
pub(super) struct Parts {
    at: u64,
    end: u64,
    /// Where the units begin that are covered, and where they end.
    units: (u64, u64),
    most: u64,
}

impl Parts {
    /// All in one part, which need not be whole.
    pub(super) fn one(offset: u64, len: u64) -> Parts {
        let end = offset + len;
        Parts { at: offset, end, units: (end, end), most: 0 }
    }
}

impl Iterator for Parts {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        let (offset, (first, last)) = (self.at, self.units);
        if offset >= self.end {
            return None;
        }
        let is_whole = (first..last).contains(&offset);
        let len = if is_whole {
            let aligned = if offset == 0 { u64::MAX } else { 1 << offset.trailing_zeros() };
            let fits = 1 << (last - offset).ilog2();
            aligned.min(fits).min(self.most)
        } else if offset < first && first < last {
            first - offset
        } else {
            self.end - offset
        };
        self.at += len;
        Some(Part { offset, len, is_whole })
    }
}

/// The least and the greatest length that the kernel keeps whole; zeroes if it keeps none.
fn offered(file: &File) -> (u64, u64) {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let (fd, flags) = (file.as_raw_fd(), libc::AT_EMPTY_PATH);
    let mask = libc::STATX_WRITE_ATOMIC;
    // SAFETY: the path is an empty C string, and `found` outlives the call.
    let result = unsafe { libc::statx(fd, c"".as_ptr(), flags, mask, &raw mut found) };
    let most = found.stx_atomic_write_unit_max;
    if result == 0 && found.stx_mask & mask != 0 && most.is_power_of_two() {
        (u64::from(found.stx_atomic_write_unit_min), u64::from(most))
    } else {
        (0, 0)
    }
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
            let whole = Whole::untold((512, most));
            let (offset, len) = (512 * prng.below(300), 512 * (1 + prng.below(300)));
            let one = Part { offset, len, is_whole: false };
            assert!(whole.parts(offset, len).eq([one]), "nothing was asked for");
            assert!(!whole.keep(2 * most) && !whole.keep(unit + 1) && whole.keep(unit));
            let (mut at, mut covered) = (offset, 0);
            for part in whole.parts(offset, len) {
                assert_eq!(part.offset, at, "seed {seed}");
                assert!(part.len > 0);
                if part.is_whole {
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
