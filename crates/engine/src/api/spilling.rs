//! The background tasks of old row versions.

use std::sync::Arc;

use terrace_rt::{Task, World};

use crate::engine::Engine;

/// The tasks that spill versions and merge what was spilled, if versions are to be spilled.
pub(super) fn start(engine: &Arc<Engine>, world: &World) -> Vec<Task> {
    if !engine.versions.spills() {
        return Vec::new();
    }
    let (spiller, merger) = (Arc::clone(engine), Arc::clone(engine));
    let spill = move || {
        let is_over = || spiller.check_open().is_err();
        spiller.versions.spill_until(is_over, || spiller.tell_reclaim());
    };
    let merge = move || merger.versions.merge_runs_until(|| merger.check_open().is_err());
    vec![world.spawn("versions", spill), world.spawn("version runs", merge)]
}
