//! Rows that are taken out of a part, to be spilled.

use terrace_page::Lsn;

use super::{Kind, Part, Row};
use crate::TreeId;
use crate::btree::GHOST;

impl Part {
    /// Takes out the rows of which all that is kept stands for itself, and is of transactions that
    /// ended before `to`: no change of these comes any more. The key of each whose ghost was purged
    /// is told to `forgotten`. `None`: there is none.
    pub(in crate::versions) fn take_ended(
        &mut self,
        to: Lsn,
        ends_bytes: usize,
        forgotten: impl FnMut(TreeId, &[u8]),
    ) -> Option<Taken> {
        if self.entries.is_empty() {
            return None;
        }
        self.ends.prepare(ends_bytes);
        let mut row_entries = Vec::new();
        let (mut taken, mut done) =
            (vec![false; self.entries.len()], vec![false; self.entries.len()]);
        for at in 0..self.entries.len() as u32 {
            if done[at as usize] {
                continue;
            }
            let newest = self.newest(&self.row(at)).expect("it is here");
            self.entries_of_row(newest, &mut row_entries);
            row_entries.iter().for_each(|&entry| done[entry as usize] = true);
            let is_settled = |&at: &u32| {
                let entry = &self.entries[at as usize];
                matches!(entry.kind, Kind::Absent | Kind::Record) && entry.writer.ended_before(to)
            };
            if !row_entries.iter().all(is_settled) {
                continue;
            }
            row_entries.iter().for_each(|&entry| taken[entry as usize] = true);
            let ended = self.entries[newest as usize].writer.ended().expect("it has");
            let mut ends = std::mem::take(&mut self.ends);
            ends.note(&self.row(newest), ended);
            self.ends = ends;
        }
        if !taken.contains(&true) {
            return None;
        }
        let mut part = self.rebuild(&taken, forgotten);
        self.collect_at = 2 * self.entries.len();
        if part.entries.len() < 2 * self.entries.len() {
            // What stays is not to take memory twice.
            let left: Vec<bool> = taken.iter().map(|taken| !taken).collect();
            part.rebuild(&left, |_, _| {});
            taken = vec![true; part.entries.len()];
        }
        Some(Taken { part, taken })
    }
}

/// What was taken out of a part, to be spilled: it changes no more.
#[derive(Debug)]
pub(in crate::versions) struct Taken {
    part: Part,
    /// Which of its entries were taken out: the others are still where they were.
    taken: Vec<bool>,
}

/// An entry that was taken out.
#[derive(Clone, Copy, Debug)]
pub(in crate::versions) struct Old<'e> {
    pub(in crate::versions) row: Row<'e>,
    /// Where its change ended.
    pub(in crate::versions) ended: Lsn,
    /// What the row was, flags first, if it was there.
    pub(in crate::versions) before: Option<&'e [u8]>,
}

impl Taken {
    /// Bytes of memory.
    pub(in crate::versions) fn memory(&self) -> usize {
        self.part.memory() + self.taken.capacity()
    }

    /// Its entries by number.
    pub(in crate::versions) fn numbers(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.taken).filter(|(_, taken)| **taken).map(|(at, _)| at)
    }

    pub(in crate::versions) fn entry(&self, at: u32) -> Old<'_> {
        let entry = &self.part.entries[at as usize];
        let ended = entry.writer.ended().expect("it had ended when it was taken");
        let data = self.part.data(entry);
        let is_there = entry.kind == Kind::Record && data[0] & GHOST == 0;
        Old { row: self.part.row(at), ended, before: is_there.then_some(data) }
    }

    /// What a snapshot at `at` sees of `row`, if that is here.
    pub(in crate::versions) fn find(&self, at: Lsn, row: &Row<'_>) -> Option<Old<'_>> {
        let (mut next, mut found) = (self.part.newest(row), None);
        while let Some(place) = next {
            if self.taken[place as usize] {
                let entry = self.entry(place);
                if entry.ended < at {
                    break;
                }
                found = Some(entry);
            }
            next = self.part.of_row(self.part.entries[place as usize].older, row);
        }
        found
    }
}
