//! Until when rows are spilled: what is remembered of rows whose versions the parts have given
//! away.
//!
//! The next change of such a row needs no version if no snapshot is between the end of the change
//! before and its own end. Without the first of these, each row that is changed again and again
//! would be spilled again and again, for nothing.
//!
//! - E1: an entry is a fact: the row was changed by a transaction that ended there, and what the
//!   row was before is spilled. An entry that is forgotten costs a version that nobody needs.
//! - E2: a row is known by its set and a hash of 64 bits that has nothing to do with the hash that
//!   gives the set: rows that agree in both, in more than 80 bits, are taken for one.
//! - E3: it is read and changed without a lock. A name is stored as its difference from the end, so
//!   a name and an end that do not belong together are nobody's, but for one chance in 2^64 (Hyatt
//!   and Mann, "A Lockless Transposition-Table Implementation for Parallel Search", ICGA 2002).

use std::sync::atomic::{AtomicU64, Ordering};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
use terrace_page::Lsn;
use terrace_pool::prefetch_line;

use super::part::Row;

const SECRETS: RapidSecrets = RapidSecrets::seed_cpp(0x51ab_12c9);
/// Rows that a set has room for.
const WAYS: usize = 4;

#[derive(Debug, Default)]
struct End {
    /// The name of the row, in which the bits of `ended` are turned (E3).
    turned: AtomicU64,
    /// Zero for none.
    ended: AtomicU64,
}

impl End {
    fn get(&self) -> (u64, Lsn) {
        let ended = self.ended.load(Ordering::Relaxed);
        (self.turned.load(Ordering::Relaxed) ^ ended, Lsn(ended))
    }

    fn set(&self, name: u64, ended: Lsn) {
        self.turned.store(name ^ ended.0, Ordering::Relaxed);
        self.ended.store(ended.0, Ordering::Relaxed);
    }
}

/// Ends that share a cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Set([End; WAYS]);

/// A cache of the ends of rows, of a fixed size.
#[derive(Debug, Default)]
pub(super) struct Ends {
    sets: Box<[Set]>,
}

impl Ends {
    /// Takes memory for rows, up to `bytes`.
    pub(super) fn new(bytes: u64) -> Ends {
        let count = bytes / size_of::<Set>() as u64;
        Ends { sets: (0..count).map(|_| Set::default()).collect() }
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.sets)
    }

    /// Whether it has no memory.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    fn name(row: &Row<'_>) -> u64 {
        let own = rapidhash_v3_seeded(row.key, &SECRETS);
        own ^ u64::from(row.tree.0).wrapping_mul(0xd6e8_feb8_6659_fd93)
    }

    /// Where a row may be; it has memory.
    #[inline]
    fn set(&self, hash: u64) -> &Set {
        let share = u128::from(hash as u32) * self.sets.len() as u128;
        &self.sets[(share >> u32::BITS) as usize]
    }

    /// Has the processor ask memory for what `of` will look at.
    #[inline]
    pub(super) fn look_ahead(&self, hash: u64) {
        if !self.is_empty() {
            prefetch_line(std::ptr::from_ref(self.set(hash)).cast());
        }
    }

    /// The end of the row's last change that was spilled.
    #[inline]
    pub(super) fn of(&self, row: &Row<'_>) -> Option<Lsn> {
        if self.is_empty() {
            return None;
        }
        let name = Ends::name(row);
        let mut ends = self.set(row.hash).0.iter().map(End::get);
        ends.find(|end| end.0 == name && end.1 != Lsn::ZERO).map(|end| end.1)
    }

    /// The row is spilled up to a change that ended there.
    pub(super) fn note(&self, row: &Row<'_>, ended: Lsn) {
        if self.is_empty() {
            return;
        }
        let (name, ways) = (Ends::name(row), &self.set(row.hash).0);
        let own = ways.iter().find(|end| end.get().0 == name);
        let oldest = || ways.iter().min_by_key(|end| end.get().1).expect("some ways");
        own.unwrap_or_else(oldest).set(name, ended);
    }
}
