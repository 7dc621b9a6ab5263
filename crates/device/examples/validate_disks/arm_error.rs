//! How well a mean seek curve predicts when the head is ready, from a trace with nothing queued.
//!
//! When a read ends, its last sector has just passed the head: the angle of the platter is known.
//! So the layout tells when the next random read ends, but for whole turns: a turn later than
//! predicted if the head was late for a sector that it was to reach, a turn earlier if it was in
//! time for one that it was to miss. Sectors come by evenly over a turn, so the mean absolute error
//! of the head's arrival is the share of such reads times a turn. The bias that makes the share
//! least is taken off first: firmware would learn it. What is wrong with the model of the disk adds
//! to the error, so it is an upper bound.

use std::path::Path;

use terrace_device::Op;
use terrace_device::disk::{DiskAccess, Drive};

use crate::disksim::{self, Traced};

/// Reads of sectors so near to one of the last requests may be in the buffer.
const NEAR_SECTORS: u64 = 1_024;
/// How many requests the buffer may remember.
const REMEMBERED: usize = 64;
/// Ends no farther apart than this share of a turn are the same place on the track.
const SAME_PLACE: f64 = 0.1;
/// Share of reads that end in the same place by chance.
pub const BY_CHANCE: f64 = 2.0 * SAME_PLACE;
/// Biases tried, ns.
const BIAS_STEP: f64 = 20e3;
const BIAS_STEPS: i32 = 60;

/// What a trace says about the arrival of the head.
pub struct ArmError {
    /// Pairs of random reads.
    pub pairs: usize,
    /// Share of them that end where the layout says, but for whole turns.
    pub explained: f64,
    /// Shares of the explained ones that took a turn more, and a turn less, than predicted.
    pub missed: f64,
    pub made: f64,
    /// Mean absolute error of the head's arrival, ms.
    pub mean_error_ms: f64,
}

struct Pair {
    first: DiskAccess,
    second: DiskAccess,
    think: f64,
    /// From the end of the first read to the end of the second, ns.
    measured: f64,
}

/// Measures disk `name`, whose files are under `folder`.
pub fn measure(folder: &Path, name: &str) -> ArmError {
    let trace = disksim::load_trace(folder, name);
    let drive = disksim::load_drive(folder, name);
    let pairs = pairs(&drive, &trace);
    let step = |step: i32| f64::from(step) * BIAS_STEP;
    let biases = (-BIAS_STEPS..=BIAS_STEPS).map(step);
    let tried = biases.map(|bias| with_bias(&drive, &pairs, bias));
    tried.min_by(|a, b| a.mean_error_ms.total_cmp(&b.mean_error_ms)).expect("biases are tried")
}

fn pairs(drive: &Drive, trace: &[Traced]) -> Vec<Pair> {
    let cylinder = |access: DiskAccess| drive.mechanism().geometry().locate(access.sector).cylinder;
    let absent = |at: usize| {
        let sector = trace[at].access.sector;
        let before = &trace[at.saturating_sub(REMEMBERED)..at];
        trace[at].access.op == Op::Read
            && before.iter().all(|past| past.access.sector.abs_diff(sector) > NEAR_SECTORS)
    };
    let far = |at: usize| cylinder(trace[at].access).abs_diff(cylinder(trace[at - 1].access)) > 1;
    (1..trace.len())
        .filter(|&at| absent(at - 1) && absent(at) && far(at))
        .map(|at| Pair {
            first: trace[at - 1].access,
            second: trace[at].access,
            think: trace[at - 1].think,
            measured: trace[at - 1].think + trace[at].measured,
        })
        .collect()
}

fn with_bias(drive: &Drive, pairs: &[Pair], bias: f64) -> ArmError {
    let period = drive.mechanism().period();
    let (mut missed, mut made, mut explained) = (0u32, 0u32, 0u32);
    for pair in pairs {
        let mut drive = drive.clone();
        let first = drive.serve(0.0, pair.first).finished;
        let second = drive.serve(first + pair.think + bias, pair.second).finished;
        let turns = (pair.measured - (second - first)) / period;
        let residual = turns - turns.round();
        if residual.abs() > SAME_PLACE || turns.round().abs() > 1.0 {
            continue;
        }
        explained += 1;
        missed += u32::from(turns.round() > 0.0);
        made += u32::from(turns.round() < 0.0);
    }
    let share = |count: u32| f64::from(count) / f64::from(explained);
    let period_ms = period / 1e6;
    ArmError {
        pairs: pairs.len(),
        explained: f64::from(explained) / pairs.len() as f64,
        missed: share(missed),
        made: share(made),
        mean_error_ms: share(missed + made) * period_ms,
    }
}
