//! The transaction that made a change: whether a snapshot sees the change depends on it.

use std::sync::Arc;

use terrace_page::Lsn;

use crate::log::Fate;

/// The transaction that has made a change.
#[derive(Clone, Debug)]
pub(super) enum Author {
    /// It has not ended, as far as was seen.
    Open(Arc<Fate>),
    /// This is its last record, which no other transaction has.
    Ended(Lsn),
}

impl Author {
    /// The transaction with this fate, as it is now.
    pub(super) fn new(fate: &Arc<Fate>) -> Author {
        fate.ended().map_or_else(|| Author::Open(Arc::clone(fate)), Author::Ended)
    }

    /// The same, as it is now.
    pub(super) fn again(&self) -> Author {
        match self {
            Author::Open(fate) => Author::new(fate),
            Author::Ended(at) => Author::Ended(*at),
        }
    }

    /// Its last record, once that is appended.
    #[inline]
    pub(super) fn ended(&self) -> Option<Lsn> {
        match self {
            Author::Open(fate) => fate.ended(),
            Author::Ended(at) => Some(*at),
        }
    }

    /// Whether it had ended before `at`, one way or the other: what its rows are now they were then
    /// as far as it is concerned.
    #[inline]
    pub(super) fn ended_before(&self, at: Lsn) -> bool {
        self.ended().is_some_and(|ended| ended < at)
    }

    /// Whether all that it has overwritten is kept until it ends, and it has not ended.
    pub(super) fn is_kept(&self) -> bool {
        matches!(self, Author::Open(fate) if fate.is_kept() && fate.ended().is_none())
    }

    /// Whether both are one transaction.
    pub(super) fn is(&self, other: &Author) -> bool {
        match (self, other) {
            (Author::Open(one), Author::Open(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.ended().is_some() && one.ended() == other.ended(),
        }
    }
}
