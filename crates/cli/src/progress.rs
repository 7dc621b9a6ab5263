//! Progress: bars with the time that is left on a terminal, a line every few seconds elsewhere.
//!
//! - B1: what is done before the first line is due says nothing.

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// The bars of one command.
pub struct Bars {
    bars: MultiProgress,
    /// Where there is no terminal.
    lines: Option<Lines>,
}

impl Bars {
    /// No bars yet.
    pub fn new() -> Bars {
        let is_terminal = stderr().is_terminal();
        let target = match is_terminal {
            true => ProgressDrawTarget::stderr_with_hz(8),
            false => ProgressDrawTarget::hidden(),
        };
        let lines = (!is_terminal).then(|| Lines::every(LINE_EVERY, |line| eprintln!("{line}")));
        Bars { bars: MultiProgress::with_draw_target(target), lines }
    }

    /// A bar up to `total`, with a name before it and a message behind.
    pub fn add(&self, name: String, total: u64) -> ProgressBar {
        let template = "{prefix:>12} {wide_bar} {percent:>3}% {eta:>4} left {msg:16}";
        let style = ProgressStyle::with_template(template)
            .expect("a template that a test has tried")
            .progress_chars("━╸ ");
        let bar = ProgressBar::new(total).with_style(style).with_prefix(name.clone());
        let bar = self.bars.add(bar);
        if let Some(lines) = &self.lines {
            let bar = bar.clone();
            lines.shown.lock().expect("no line panics").push(Shown::new(name, bar));
        }
        bar
    }

    /// Takes all bars away.
    pub fn clear(&self) {
        let _ = self.bars.clear();
        if let Some(lines) = &self.lines {
            lines.shown.lock().expect("no line panics").clear();
        }
    }
}

/// A bar that is shown in lines.
struct Shown {
    name: String,
    bar: ProgressBar,
    since: Instant,
}

impl Shown {
    fn new(name: String, bar: ProgressBar) -> Shown {
        Shown { name, bar, since: Instant::now() }
    }

    /// How far it is, and how long it will take at the pace so far.
    fn line(&self) -> Option<String> {
        let (done, total) = (self.bar.position(), self.bar.length().unwrap_or_default());
        if self.bar.is_finished() || done == 0 || done >= total {
            return None;
        }
        let share = done as f64 / total as f64;
        let left = self.since.elapsed().as_secs_f64() * (1.0 - share) / share;
        let message = self.bar.message();
        let message = if message.is_empty() { message } else { format!(", {message}") };
        let percent = (100.0 * share) as u64;
        Some(format!("{}: {percent}%, {} left{message}", self.name, duration(left)))
    }
}

/// A span of time, as coarse as an estimate is.
fn duration(seconds: f64) -> String {
    match seconds.round() as u64 {
        short @ 0..100 => format!("{short} s"),
        long @ 100..6_000 => format!("{} min", long.div_ceil(60)),
        longer => format!("{:.1} h", longer as f64 / 3_600.0),
    }
}

/// A thread that says from time to time how far bars are.
struct Lines {
    shown: Arc<Mutex<Vec<Shown>>>,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Lines {
    fn every(pause: Duration, say: impl Fn(&str) + Send + 'static) -> Lines {
        let shown: Arc<Mutex<Vec<Shown>>> = Arc::default();
        let (end, ended) = channel();
        let bars = Arc::clone(&shown);
        let thread = std::thread::spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(pause) {
                let mut bars = bars.lock().expect("no bar panics");
                bars.retain(|shown| !shown.bar.is_finished());
                bars.iter().filter_map(Shown::line).for_each(|line| say(&line));
            }
        });
        Lines { shown, end: Some(end), thread: Some(thread) }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
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

    #[test]
    fn lines_say_how_far_bars_are() {
        let (said, saying) = channel();
        let lines = Lines::every(Duration::from_millis(1), move |line| {
            let _ = said.send(line.to_string());
        });
        let bar = ProgressBar::with_draw_target(Some(10), ProgressDrawTarget::hidden());
        lines.shown.lock().expect("alone").push(Shown::new("lc".into(), bar.clone()));
        bar.set_message("7 tpmC");
        bar.set_position(5);
        let line = saying.recv().expect("a line");
        assert!(line.starts_with("lc: 50%, ") && line.ends_with(" left, 7 tpmC"), "{line}");
        bar.finish();
        drop(lines);
        assert_eq!((duration(3.4), duration(121.0)), ("3 s".to_string(), "3 min".to_string()));
    }
}
