//! What is known of rows beside their versions: until when they are spilled, and since when their
//! tree has no such key.

use terrace_page::Lsn;

use super::{Part, Row, Toward};
use crate::versions::author::Author;
use crate::versions::backlog::Change;
use crate::versions::horizon::Horizon;
use crate::versions::needs::Needs;

impl Part {
    /// Whether a snapshot may see what a row was before the change `lsn` of `writer`, where the
    /// change before, if one is kept, is of `older`.
    pub(super) fn is_between(
        &self,
        row: &Row<'_>,
        older: Option<&Author>,
        (writer, lsn): (&Author, Lsn),
        needs: &Needs,
    ) -> bool {
        let known = match older {
            Some(older) => older.ended(),
            None => needs.ends.of(row),
        };
        let absent = self.marks.last(row, lsn);
        match (known.max(absent), writer.ended()) {
            (Some(older), Some(newer)) => needs.horizon.may_see(older, newer),
            _ => true,
        }
    }

    /// What is spilled counts for a snapshot at `at` if its change ended before this (marks.M2).
    pub(in crate::versions) fn bound(&self, at: Lsn, row: &Row<'_>) -> Lsn {
        self.marks.first(row, at).unwrap_or(Lsn::MAX)
    }

    /// Notes that `change` puts its row behind all others of its tree, if it does.
    pub(in crate::versions) fn mark(
        &mut self,
        change: &Change<'_>,
        horizon: &Horizon,
        count_max: usize,
    ) {
        if change.toward == Toward::Append {
            self.marks.note(&change.row, change.lsn, horizon, count_max);
        }
    }

    /// When its tree last had no such key before the change of `at`, as far as is known.
    pub(super) fn absent_before(&self, at: u32) -> Option<Lsn> {
        self.marks.last(&self.row(at), self.entries[at as usize].lsn)
    }
}
