//! What is known of which versions are needed.

use std::sync::Arc;

use super::backlog::Change;
use super::ends::Ends;
use super::horizon::Horizon;
use super::part::Toward;
use crate::btree::GHOST;

/// Which snapshots are open, and the ends of rows that are spilled.
pub(super) struct Needs {
    pub(super) horizon: Horizon,
    pub(super) ends: Arc<Ends>,
}

impl Needs {
    /// Whether no snapshot, of now or later, needs what `change` has overwritten, as can be told
    /// without the row's part: it has changed a row that was there, since a spilled change no
    /// snapshot has been opened, and its transaction has ended.
    ///
    /// All that the part had of such a row went with the spilled change, so no difference is there
    /// that needs this one's record (versions/part.P3). And a row that was there is behind no mark,
    /// and has not been purged.
    #[inline]
    pub(super) fn is_unneeded(&self, change: &Change<'_>) -> bool {
        let was_there = change.current.is_some_and(|(flags, _)| flags & GHOST == 0);
        if !was_there || change.toward != Toward::Forward {
            return false;
        }
        let Some(ended) = change.writer.ended() else { return false };
        let older = self.ends.of(&change.row);
        older.is_some_and(|older| !self.horizon.may_see(older, ended))
    }
}
