//! Which designs and restarts have the paths of the scripts.

use terrace_policy::{Design, Restart, RestartKind};

pub(super) fn flash(design: &Design, _: &Restart) -> bool {
    design.uses_flash()
}

pub(super) fn takes_clean(design: &Design, _: &Restart) -> bool {
    design.takes_clean_pages()
}

pub(super) fn any(_: &Design, _: &Restart) -> bool {
    true
}

pub(super) fn lazy(design: &Design, _: &Restart) -> bool {
    design.keeps_dirty_on_flash()
}

pub(super) fn appended(design: &Design, _: &Restart) -> bool {
    design.batch().is_some()
}

/// Whether the restart brings its table up to date on flash at a checkpoint: FASC_T's is, always.
pub(super) fn keeps_table(restart: &Restart) -> bool {
    match restart.kind {
        RestartKind::MapThrough => false,
        kind => kind == RestartKind::LazyVerification || kind.is_journalled(),
    }
}

/// Whether its table says some things later than at a checkpoint.
pub(super) fn keeps_back(restart: &Restart) -> bool {
    [RestartKind::MapSegments, RestartKind::MapZone].contains(&restart.kind)
}
