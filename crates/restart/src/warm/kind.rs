//! The forms to choose from: which one is opened, and which one reads.

use super::chunks::{self, ChunkTable, Chunks};
use super::form::{Form, Loaded};
use super::journal::{self, Journal, Position};
use crate::recover::{ColdStart, Place};
use terrace_tier::Mutations;

use crate::FlashLayout;

/// Which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FormKind {
    /// One ring of blocks for all slots, and base copies of the table.
    Journal,
    /// The same, with a frontier.
    Frontier,
    /// Chunks of the table, each with a log page of its own.
    Chunks,
}

/// Where a form goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resumed {
    Journal(Position),
    Chunks(Chunks),
}

impl FormKind {
    /// The form, which goes on at `resumed`, or begins.
    pub(super) fn open(self, layout: &FlashLayout, resumed: Option<Resumed>) -> Box<dyn Form> {
        match (self, resumed) {
            (FormKind::Journal | FormKind::Frontier, Some(Resumed::Journal(at))) => {
                Box::new(Journal::new(at))
            }
            (FormKind::Journal | FormKind::Frontier, _) => {
                Box::new(Journal::new(Position::default()))
            }
            (FormKind::Chunks, Some(Resumed::Chunks(chunks))) => {
                Box::new(ChunkTable::new(layout, chunks))
            }
            (FormKind::Chunks, _) => Box::new(ChunkTable::new(layout, Chunks::new(layout))),
        }
    }

    /// Reads the table that reaches to `position` at least.
    pub(super) fn read(
        self,
        place: &Place<'_>,
        position: u64,
        mutations: Mutations,
    ) -> Result<Loaded<Resumed>, ColdStart> {
        match self {
            FormKind::Journal | FormKind::Frontier => {
                Ok(journal::read(place, position)?.map(Resumed::Journal))
            }
            FormKind::Chunks => Ok(chunks::read(place, position, mutations)?.map(Resumed::Chunks)),
        }
    }
}
