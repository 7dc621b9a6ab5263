//! What a restart took, and what it cost.

use terrace::Stats;
use terrace_pool::PoolStats;
use terrace_rt::Nanos;

use crate::clients::Consistency;
use crate::sampling::{Averages, Window, per_second};

/// Windows over which throughput must be back for `RestartResult::ramp_up_held`.
const WINDOWS_HELD: usize = 10;

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// On its way to the peak, and at it.
    Peak,
    /// Stopping, or without power, or recovering.
    Down,
    /// On its way back to the peak, and at it.
    Back,
}

/// How far a run is, for a progress display.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Where it is.
    pub phase: Phase,
    /// Time passed with clients at work.
    pub done: Nanos,
    /// Of about this much.
    pub total: Nanos,
    /// What the workload counts, per second in the last window.
    pub counted_per_s: f64,
}

/// What a run found. Times are of the virtual worlds.
#[derive(Clone, Debug)]
pub struct RestartResult {
    /// Name of the design.
    pub design: &'static str,
    /// Name of the restart method.
    pub restart: &'static str,
    /// The first part, since its clients began.
    pub before: Vec<Window>,
    /// When the last client had finished, or the power was cut, since the clients began.
    pub ended: Nanos,
    /// What closing took; zero after a power cut.
    pub shutdown: Nanos,
    /// What opening took.
    pub recovery: Nanos,
    /// The second part, since the database was open again.
    pub after: Vec<Window>,
    /// The end of the first part: the peak.
    pub peak: Averages,
    /// The end of the second part.
    pub steady: Averages,
    /// From the end of recovery to the end of the first window at the peak, if there was one.
    pub ramp_up: Option<Nanos>,
    /// The same for the first ten windows that are at the peak on average: to the end of their
    /// first. A single short window may be at it by chance.
    pub ramp_up_held: Option<Nanos>,
    /// Counters when the first part ended, since the database was opened.
    pub at_event: Stats,
    /// Counters when the database was open again: what recovery did.
    pub at_open: Stats,
    /// Counters at the end.
    pub at_end: Stats,
    /// The checks of the workload, after all.
    pub consistency: Consistency,
    /// Events of both virtual worlds.
    pub events: u64,
}

impl RestartResult {
    /// Shutdown, recovery and ramp-up.
    pub fn peak_to_peak(&self) -> Option<Nanos> {
        Some(self.shutdown + self.recovery + self.ramp_up?)
    }

    /// Valid flash pages right after opening over those right before the event; none if there were
    /// none. What recovery itself brought to flash was not kept, and does not count.
    pub fn flash_pages_kept_share(&self) -> Option<f64> {
        let valid = |pool: &PoolStats| pool.slots_used - pool.slots_invalid;
        let had = valid(&self.at_event.pool);
        let kept = valid(&self.at_open.pool).saturating_sub(self.at_open.pool.admissions);
        (had > 0).then(|| kept as f64 / had as f64)
    }
}

/// The ends of the first window at `level` per second or above, and of the first of the windows
/// that are there on average.
pub(super) fn ramp_up(windows: &[Window], level: f64) -> (Option<Nanos>, Option<Nanos>) {
    let start = |at: usize| at.checked_sub(1).map_or(Nanos::ZERO, |before| windows[before].end);
    let is_back = |first: usize, count: usize| {
        let those = &windows[first..first + count];
        let counted = those.iter().map(|window| window.counted).sum();
        per_second(counted, windows[first + count - 1].end.saturating_sub(start(first))) >= level
    };
    let first = |count: usize| {
        let starts = 0..(windows.len() + 1).saturating_sub(count);
        starts.into_iter().find(|at| is_back(*at, count)).map(|at| windows[at].end)
    };
    (first(1), first(WINDOWS_HELD))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(counts: &[u64]) -> Vec<Window> {
        let window = |(at, counted): (usize, &u64)| Window {
            end: Nanos::from_secs(at as u64 + 1),
            counted: *counted,
            ..Window::default()
        };
        counts.iter().enumerate().map(window).collect()
    }

    #[test]
    fn a_ramp_ends_with_the_first_window_at_the_peak() {
        let mut counts = vec![10, 40, 96, 50, 60];
        counts.extend([97; 10]);
        let (first, held) = ramp_up(&windows(&counts), 95.0);
        assert_eq!(first, Some(Nanos::from_secs(3)));
        assert_eq!(held, Some(Nanos::from_secs(6)), "one window does not hold it");
        assert_eq!(ramp_up(&windows(&[10, 20]), 95.0), (None, None));
        assert_eq!(ramp_up(&[], 95.0), (None, None));
    }
}
