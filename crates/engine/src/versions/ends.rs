//! Until when rows are spilled: what a part remembers of rows whose versions it has given away.
//!
//! The next change of such a row needs no version if no snapshot is between the end of the change
//! before and its own end. Without the first of these, each row that is changed again and again
//! would be spilled again and again, for nothing.
//!
//! - E1: an entry is a fact: the row was changed by a transaction that ended there, and what the
//!   row was before is spilled. An entry that is forgotten costs a version that nobody needs.
//! - E2: a row is known by its place and a hash of 64 bits that has nothing to do with the hash
//!   that gives the place: rows that agree in both, in more than 80 bits, are taken for one.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
use terrace_page::Lsn;

use super::part::Row;

const SECRETS: RapidSecrets = RapidSecrets::seed_cpp(0x51ab_12c9);
/// Places that a row may have.
const WAYS: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
struct End {
    name: u64,
    /// Zero for none.
    ended: Lsn,
}

/// The ends of a part: a cache of a fixed size.
#[derive(Debug, Default)]
pub(super) struct Ends {
    ends: Vec<End>,
}

impl Ends {
    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.ends.capacity() * size_of::<End>()
    }

    /// Whether it has no memory.
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Takes memory for rows, up to `bytes`, unless it has.
    pub(super) fn prepare(&mut self, bytes: usize) {
        let count = (bytes / size_of::<End>() + 1).next_power_of_two() / 2;
        if self.ends.is_empty() && count >= WAYS {
            self.ends = vec![End::default(); count];
        }
    }

    fn name(row: &Row<'_>) -> u64 {
        let own = rapidhash_v3_seeded(row.key, &SECRETS);
        own ^ u64::from(row.tree.0).wrapping_mul(0xd6e8_feb8_6659_fd93)
    }

    /// Where the places of a row begin.
    fn place(&self, row: &Row<'_>) -> usize {
        row.hash as usize & (self.ends.len() - 1) & !(WAYS - 1)
    }

    /// The end of the row's last change that was spilled.
    #[inline]
    pub(super) fn of(&self, row: &Row<'_>) -> Option<Lsn> {
        if self.ends.is_empty() {
            return None;
        }
        let (name, place) = (Ends::name(row), self.place(row));
        let found = self.ends[place..place + WAYS].iter().find(|end| end.name == name)?;
        (found.ended != Lsn::ZERO).then_some(found.ended)
    }

    /// The row is spilled up to a change that ended there.
    pub(super) fn note(&mut self, row: &Row<'_>, ended: Lsn) {
        if self.ends.is_empty() {
            return;
        }
        let (name, place) = (Ends::name(row), self.place(row));
        let ways = &mut self.ends[place..place + WAYS];
        let at = ways.iter().position(|end| end.name == name);
        let oldest = || (0..WAYS).min_by_key(|&way| ways[way].ended).expect("some ways");
        let at = at.unwrap_or_else(oldest);
        ways[at] = End { name, ended };
    }
}
