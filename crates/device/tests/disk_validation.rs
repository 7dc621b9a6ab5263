//! The modelled disk against five measured ones: the example `validate_disks`, as a test.

#[path = "../examples/validate_disks/disksim.rs"]
mod disksim;

use std::path::Path;

/// Root mean square distances in ms that the model must stay below, in the order of `DISKS`: what
/// it reached when the queue gain was first derived from it, rounded up.
const BOUNDS_MS: [f64; 5] = [0.20, 0.17, 0.35, 0.54, 0.53];

/// Largest relative error of a mean service time.
const MEANS_OFF_MAX: f64 = 0.04;

#[test]
fn service_times_are_those_of_five_measured_disks() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/disksim");
    for ((name, _), bound) in disksim::DISKS.into_iter().zip(BOUNDS_MS) {
        let trace = disksim::load_trace(&folder, name);
        let replay = disksim::replay(&mut disksim::load_drive(&folder, name), &trace);
        let rms = replay.rms_ms();
        assert!(rms < bound, "{name}: {rms} ms");
        let (modelled, measured) = replay.means_ms();
        let off = (modelled / measured - 1.0).abs();
        assert!(off < MEANS_OFF_MAX, "{name}: mean {modelled} ms for {measured} ms");
    }
}
