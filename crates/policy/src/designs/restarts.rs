//! The table of restart methods: what a flash tier remembers when the database is opened again. The
//! other axis beside the designs; a pair of the two is a run of the ICDE 2013 paper.
//!
//! - T1: names are unique, lower case, and stay: they are part of the command and of its output.
//! - T2: a restart method decides how much of the flash is used again, never what the database
//!   holds.
//!
//! | restart | the table of slots is kept | used again after a power cut |
//! |---|---|---|
//! | `forget` | nowhere | nothing |
//! | `mmr` | in a file, entry by entry, as it changes | what the file says |
//! | `lbr` | in the log, and whole at each checkpoint | what the log says |
//! | `lvr` | in a file, in passes of a flusher | what proves current, all read once |
//! | `warm` | in a file, by a journal of its changes | what the log does not contradict, checked when used |
//! | `map-log` | as `warm` | the same, but the log is redone before the database is open |
//! | `map-segments` | in segments, written when full (FaCE) | as `map-log`, and what the slots tell |
//! | `map-zone` | whole, when the slots of an eviction zone are used up (CAC) | the same |
//! | `map-chunks` | in chunks, each with a log page of its own (FASC) | as `map-log` |
//! | `map-through` | the same, each change at once (FASC_T) | as `map-log` |
// Source: [S3 III].

use crate::designs::{Batch, Cleaning, Design, Replacement, UnknownName, find_in};

/// How the flash tier is found again when the database is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartKind {
    /// It starts cold (SSDBP).
    // Source: [S3 I].
    Forget,
    /// Entries hardened one by one, as by a memory-mapped file (MMR).
    // Source: [S3 III-B].
    MemoryMapped,
    /// Entries rebuilt from records in the log (LBR).
    // Source: [S3 III-C].
    LogBased,
    /// Entries hardened in passes, and verified (LVR).
    // Source: [S3 III-D].
    LazyVerification,
    /// Entries hardened by a journal of their own, pages verified on first use, changes redone on
    /// first use: no paper has it.
    Warm,
    /// The table of `Warm`, and the log redone over a warm tier before the database is open: what
    /// FaCE, FASC and CAC do after a crash.
    // Source: [S2 6; sources.U1, sources.U2].
    MapLog,
    /// The same with FaCE's segments: appended slots are told of when a segment is full, and
    /// an opening reads what is in the slots behind.
    // Source: [sources.U1].
    MapSegments,
    /// The same with CAC's eviction zone: only its slots are reused before the next begins, and an
    /// opening reads what is in them.
    // Source: [sources.U2].
    MapZone,
    /// The same over FASC's map: chunks of the table, changes appended to a log page of each, one
    /// append for each block that is written.
    // Source: [S2 6; sources.R16].
    MapChunks,
    /// FASC's map with each change written at once (FASC_T).
    // Source: [S2 6, 7.2].
    MapThrough,
}

impl RestartKind {
    /// Whether the table is kept on flash by its changes, with the version of each copy: redo
    /// starts from what is there.
    #[must_use]
    pub fn is_journalled(self) -> bool {
        use RestartKind::{MapChunks, MapLog, MapSegments, MapThrough, MapZone, Warm};
        matches!(self, Warm | MapLog | MapSegments | MapZone | MapChunks | MapThrough)
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// The name by which it is chosen and printed.
    pub name: &'static str,
    /// What it is, in a few words.
    pub title: &'static str,
    /// What it does.
    pub kind: RestartKind,
}

/// The restarts, in the order in which they are listed and run.
pub const RESTARTS: [Restart; 10] = [
    row("forget", "starts cold (SSDBP), ICDE 2013", RestartKind::Forget),
    row("mmr", "memory-mapped restart, ICDE 2013", RestartKind::MemoryMapped),
    row("lbr", "log-based restart, ICDE 2013", RestartKind::LogBased),
    row("lvr", "lazy verification restart, ICDE 2013", RestartKind::LazyVerification),
    row("warm", "journalled table, verified and redone on first use", RestartKind::Warm),
    row("map-log", "journalled table, redone before opening", RestartKind::MapLog),
    row("map-segments", "segments of appended slots, FaCE 2012", RestartKind::MapSegments),
    row("map-zone", "an eviction zone, CAC 2013", RestartKind::MapZone),
    row("map-chunks", "chunks with log pages, FASC 2015", RestartKind::MapChunks),
    row("map-through", "the same, each change written at once (FASC_T)", RestartKind::MapThrough),
];

const fn row(name: &'static str, title: &'static str, kind: RestartKind) -> Restart {
    Restart { name, title, kind }
}

impl Restart {
    /// The baseline, which every design can have.
    #[must_use]
    pub fn forget() -> Restart {
        RESTARTS[0]
    }

    /// Why `design` cannot have this restart, if it cannot.
    ///
    /// ```
    /// use terrace_policy::{designs, restarts};
    ///
    /// let mmr = restarts::find("mmr").unwrap();
    /// assert_eq!(mmr.refusal(&designs::find("dw").unwrap()), None);
    /// assert!(mmr.refusal(&designs::find("no-ssd").unwrap()).is_some());
    /// assert!(mmr.refusal(&designs::find("face").unwrap()).is_some());
    /// ```
    #[must_use]
    pub fn refusal(&self, design: &Design) -> Option<&'static str> {
        let keeps = self.kind != RestartKind::Forget;
        if keeps && !design.uses_flash() {
            return Some("a design without flash has nothing to find again; use `forget`");
        }
        let is_ring = matches!(design.batch(), Some(Batch::Group | Batch::Page))
            && design.cleaning == Cleaning::AtFront
            && design.replacement != Replacement::Rotating;
        if self.kind == RestartKind::MapSegments && !is_ring {
            return Some(
                "segments are of slots that are appended one after the other, as FaCE's are; \
                 `map-chunks` takes them in any order",
            );
        }
        let has_least =
            matches!(design.replacement, Replacement::Benefit | Replacement::AnticipatedBenefit);
        if self.kind == RestartKind::MapZone && !has_least {
            return Some(
                "an eviction zone is of the slots whose pages benefit least, which `cc` and `cac` \
                 know; `map-log` takes slots in any order",
            );
        }
        // A mapped entry must be durably free before its page changes, under the page's latch.
        let is_mapped = self.kind == RestartKind::MemoryMapped;
        (is_mapped && design.batch().is_some()).then_some(
            "an append log frees slots while their pages are in use, before a mapped table can say \
             so; use `warm`, `lvr` or `lbr`",
        )
    }
}

/// The restart called `name`.
///
/// # Errors
///
/// An unknown name; the message lists the known.
pub fn find(name: &str) -> Result<Restart, UnknownName> {
    find_in("restart", &RESTARTS, |restart| restart.name, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lead_to_their_rows() {
        for restart in RESTARTS {
            assert_eq!(find(restart.name), Ok(restart));
            assert_eq!(RESTARTS.iter().filter(|other| other.name == restart.name).count(), 1);
        }
        let error = find("MMR").unwrap_err();
        assert_eq!(error.known, RESTARTS.map(|restart| restart.name));
    }
}
