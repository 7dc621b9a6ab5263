//! Progress on a terminal; nothing anywhere else.

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};

/// The bars of one command.
pub struct Bars(MultiProgress);

impl Bars {
    /// No bars yet; none ever if standard error is no terminal.
    pub fn new() -> Bars {
        let target = if stderr().is_terminal() {
            ProgressDrawTarget::stderr_with_hz(8)
        } else {
            ProgressDrawTarget::hidden()
        };
        Bars(MultiProgress::with_draw_target(target))
    }

    /// A bar up to `total`, with a name before it and a message behind.
    pub fn add(&self, name: String, total: u64) -> ProgressBar {
        let style = ProgressStyle::with_template("{prefix:>12} {wide_bar} {percent:>3}% {msg:16}")
            .expect("a template that a test has tried")
            .progress_chars("━╸ ");
        self.0.add(ProgressBar::new(total).with_style(style).with_prefix(name))
    }

    /// Takes all bars away.
    pub fn clear(&self) {
        let _ = self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_made() {
        let bars = Bars::new();
        let bar = bars.add("lc".into(), 10);
        bar.set_position(3);
        bar.finish_and_clear();
        bars.clear();
    }
}
