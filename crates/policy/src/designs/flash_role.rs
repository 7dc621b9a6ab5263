//! What the flash tier is to its database: a cache that may vanish, or a part of it, as FaCE, FASC
//! and CAC are published [S2 2; S1e; sources.U1, sources.U2].
//!
//! - R1: in a cache, redo for every page that is not at home is in the log. In a persistent tier a
//!   page is as safe on flash as at home, so that it does not hold the log.
//! - R2: whichever it is, no design and no restart behaves otherwise while the devices are whole.

use crate::designs::Design;
use crate::designs::restarts::{Restart, RestartKind};
use crate::{DirtyLeave, Inclusion, Replacement};

/// What the flash tier is to its database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlashRole {
    /// It may vanish at any instant, and nothing is lost.
    #[default]
    Cache,
    /// It has pages that neither home nor the log has: without it the database does not open.
    Persistent,
}

impl FlashRole {
    /// Whether the database needs what is on flash.
    #[must_use]
    #[inline]
    pub fn is_persistent(self) -> bool {
        self == FlashRole::Persistent
    }

    /// Why flash cannot be that to a database under `design` and `restart`, if it cannot; and the
    /// nearest that can.
    ///
    /// ```
    /// use terrace_policy::{FlashRole, designs, restarts};
    ///
    /// let (face, dw) = (designs::find("face").unwrap(), designs::find("dw").unwrap());
    /// let (warm, forget) = (restarts::find("warm").unwrap(), restarts::find("forget").unwrap());
    /// assert_eq!(FlashRole::Persistent.refusal(&face, &warm), None);
    /// assert!(FlashRole::Persistent.refusal(&face, &forget).is_some());
    /// assert!(FlashRole::Persistent.refusal(&dw, &warm).is_some());
    /// assert_eq!(FlashRole::Cache.refusal(&dw, &forget), None);
    /// ```
    #[must_use]
    pub fn refusal(self, design: &Design, restart: &Restart) -> Option<&'static str> {
        if self == FlashRole::Cache {
            return None;
        }
        match (design.dirty_leave, design.replacement, restart.kind) {
            _ if !design.uses_flash() => {
                Some("persistent flash wants a design with a flash tier; `face` is the nearest")
            }
            (leave, ..) if leave != DirtyLeave::Flash => Some(
                "persistent flash wants a design that keeps changed pages there: this one writes \
                 each home as well, so its flash has nothing that home lacks; use `lc`, or leave \
                 persistent flash out",
            ),
            (_, Replacement::Rotating, _) => Some(
                "persistent flash cannot be `rotating`, which overwrites the only copy of a page \
                 that is in memory; use `face-base`, which brings it home first",
            ),
            _ if design.inclusion == Inclusion::Exclusive => Some(
                "persistent flash cannot be `exclusive`, which lets go of a copy as its page is \
                 read, though it may be the only one; use `lazy`, which keeps it",
            ),
            _ if design.inclusion == Inclusion::Inclusive => Some(
                "persistent flash cannot be `inclusive`, whose copies of pages that were just read \
                 count as clean before home was synced with them; use `lazy`, which writes them \
                 when they leave",
            ),
            (.., RestartKind::Forget) => Some(
                "persistent flash cannot go with the restart `forget`, which would forget what \
                 only flash has; use `warm`",
            ),
            (.., RestartKind::MemoryMapped | RestartKind::LogBased) => Some(
                "persistent flash wants a restart whose table says which version a slot holds, \
                 and keeps the copy that a change was made on: `mmr` and `lbr` do not; use `warm`",
            ),
            (.., RestartKind::LazyVerification) => Some(
                "persistent flash cannot go with `lvr`, whose table may be older than the slots \
                 and drops what it cannot prove; use `warm`",
            ),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DESIGNS, RESTARTS};

    /// Every refusal names something to use, and what it names is not refused.
    #[test]
    fn what_is_refused_is_told_what_can_be() {
        let persistent = FlashRole::Persistent;
        let mut accepted = Vec::new();
        for design in DESIGNS {
            for restart in RESTARTS {
                let refusal = persistent.refusal(&design, &restart);
                match refusal.or_else(|| restart.refusal(&design)) {
                    None => accepted.push((design.name, restart.name)),
                    Some(why) => assert!(why.contains('`'), "{why}"),
                }
                assert_eq!(FlashRole::Cache.refusal(&design, &restart), None);
            }
        }
        let designs =
            ["lc", "lazy", "hetero", "face", "face-gr", "face-base", "fasc", "cc", "cac", "auto"];
        for name in designs {
            for restart in ["warm", "map-log", "map-chunks", "map-through"] {
                assert!(accepted.contains(&(name, restart)), "{name} with {restart}");
            }
            let is_face = name.starts_with("face");
            assert_eq!(accepted.contains(&(name, "map-segments")), is_face, "{name}");
            let is_by_benefit = ["cc", "cac"].contains(&name);
            assert_eq!(accepted.contains(&(name, "map-zone")), is_by_benefit, "{name}");
        }
        // Home has all that matters, or flash calls clean what home may lose.
        let refused = ["no-ssd", "cw", "dw", "tac", "inclusive", "exclusive", "rotating"];
        assert!(!accepted.iter().any(|(name, _)| refused.contains(name)), "{accepted:?}");
    }
}
