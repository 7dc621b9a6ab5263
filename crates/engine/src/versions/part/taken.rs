//! Rows that are taken out of a part, to be spilled.
//!
//! - K1: of the entries of a row that one transaction has made, the oldest is taken out and the
//!   others go: it says what the row was before that transaction. A part may have several of them
//!   (`Part::index`), and knows their order by LSN. A run knows an entry by the end of its
//!   transaction alone.

use terrace_page::Lsn;

use super::{Kind, Part, Row};
use crate::TreeId;
use crate::btree::GHOST;
use crate::versions::ends::Ends;

impl Part {
    /// Takes out the rows of which all that is kept stands for itself, and is of transactions that
    /// ended before `to`: no change of these comes any more. `None`: there is none.
    pub(in crate::versions) fn take_ended(&mut self, to: Lsn, ends: &Ends) -> Option<Taken> {
        let rows = self.ended_rows(to);
        if rows.gone.is_empty() {
            return None;
        }
        for &newest in &rows.newest {
            let ended = self.entries[newest as usize].writer.ended().expect("it has");
            ends.note(&self.row(newest), ended);
        }
        let graves = self.graves_of(&rows);
        let mut taken = rows.taken;
        let mut part = self.rebuild(&rows.gone, |_, _| {});
        self.collect_at = 2 * self.entries.len();
        if part.entries.len() < 2 * self.entries.len() {
            // What stays is not to take memory twice.
            let left: Vec<bool> = taken.iter().map(|taken| !taken).collect();
            part.rebuild(&left, |_, _| {});
            taken = vec![true; part.entries.len()];
        }
        Some(Taken { part, taken, graves })
    }

    /// For tests that turn rules off: keys whose graves go with what `take_ended` would take out.
    pub(in crate::versions) fn graves_of_ended(&self, to: Lsn) -> Vec<Grave> {
        self.graves_of(&self.ended_rows(to))
    }

    fn graves_of(&self, rows: &EndedRows) -> Vec<Grave> {
        let gone =
            self.entries.iter().zip(&rows.gone).filter(|(entry, gone)| **gone && entry.has_grave);
        gone.map(|(entry, _)| (entry.tree, self.key(entry).into())).collect()
    }

    /// The rows that `take_ended` takes out.
    fn ended_rows(&self, to: Lsn) -> EndedRows {
        let count = self.entries.len();
        let (mut gone, mut taken) = (vec![false; count], vec![false; count]);
        let (mut row_entries, mut newest_entries) = (Vec::new(), Vec::new());
        let mut done = vec![false; count];
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
            newest_entries.push(newest);
            let ended = |at: u32| self.entries[at as usize].writer.ended();
            for (place, &entry) in row_entries.iter().enumerate() {
                gone[entry as usize] = true;
                // K1: rows are locked, so the entries of one transaction follow each other.
                let older = row_entries.get(place + 1);
                taken[entry as usize] = older.is_none_or(|&older| ended(older) != ended(entry));
            }
        }
        if newest_entries.is_empty() {
            gone.clear();
        }
        EndedRows { gone, taken, newest: newest_entries }
    }
}

/// A row that has a grave.
pub(in crate::versions) type Grave = (TreeId, Box<[u8]>);

/// Rows that are to be taken out of a part.
struct EndedRows {
    /// Which entries leave the part; empty if none does.
    gone: Vec<bool>,
    /// Which of these are taken out: the others are of no more use (K1).
    taken: Vec<bool>,
    /// The newest entry of each row.
    newest: Vec<u32>,
}

/// What was taken out of a part, to be spilled: it changes no more.
#[derive(Debug)]
pub(in crate::versions) struct Taken {
    part: Part,
    /// Which of its entries were taken out: the others are still where they were, or gone (K1).
    taken: Vec<bool>,
    /// Keys of which nothing is left in the part, though they have graves.
    graves: Vec<Grave>,
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

    /// Keys that are to leave the graves, once what was taken out can be seen (frozen.Z2).
    pub(in crate::versions) fn take_graves(&mut self) -> Vec<Grave> {
        std::mem::take(&mut self.graves)
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
