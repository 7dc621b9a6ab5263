//! Old row versions: their background tasks, and what is counted of them.

use std::sync::Arc;

use terrace_rt::{Task, World};

use crate::TransactionStats;
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

/// What is counted of snapshots and versions.
pub(super) fn stats(engine: &Engine) -> TransactionStats {
    let (version_disk_bytes, version_runs) = engine.versions.spilled();
    TransactionStats {
        snapshots: engine.versions.open_count(),
        oldest_snapshot: engine.versions.oldest_age(),
        version_bytes: engine.versions.bytes(),
        version_disk_bytes,
        version_runs,
        ..TransactionStats::default()
    }
}
