//! When a capture ends: after a time, or when it is interrupted.

use crate::command::TraceCapture;
use crate::interrupt::Interrupt;
use std::time::{Duration, Instant};

/// How often it is looked whether to stop.
pub(super) const POLL: Duration = Duration::from_millis(50);

/// When to stop watching.
pub(super) struct End<'a> {
    at: Option<Instant>,
    pub(super) interrupt: &'a Interrupt,
}

impl End<'_> {
    pub(super) fn of<'a>(options: &TraceCapture, interrupt: &'a Interrupt) -> End<'a> {
        let span = options.span.map(|span| Duration::from_secs_f64(span.0));
        End { at: span.map(|span| Instant::now() + span), interrupt }
    }

    pub(super) fn has_come(&self) -> bool {
        self.interrupt.is_asked() || self.at.is_some_and(|at| Instant::now() >= at)
    }
}
