//! `--record`: a bench's own page references as a trace.
//!
//! - R1: a file has what one run of one design asked for, in the order in which it was served.
//! - R2: what cannot be written stops the recording, not the run; the file is then without a
//!   trailer, and `finish` says why.

use super::Out;
use crate::command::{RecordAt, RecordOptions};
use crate::failure::Failure;
use crate::output::Sinks;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use terrace::{PageEvent, PageId, PageObserver};
use terrace_trace::{Addressing, Clock, CompactHeader, Kind, PageBytes, Paging, Request};
use terrace_workload::PageRecording;

/// Writes page references to a file while clients work.
pub struct Recorder {
    at: RecordAt,
    is_on: AtomicBool,
    state: Mutex<State>,
}

struct State {
    /// None when it is finished, or has failed.
    out: Option<Out>,
    failure: Option<Failure>,
    requests: u64,
}

impl Recorder {
    /// Begins the file that is asked for, if one is, of a bench of the given number of runs, which
    /// records to `recording`.
    ///
    /// # Errors
    ///
    /// More than one run. A file that cannot be written.
    pub fn begin(
        options: &RecordOptions,
        runs: usize,
        recording: &mut Option<Arc<dyn PageRecording>>,
    ) -> Result<Option<Arc<Recorder>>, Failure> {
        let Some(path) = &options.record else { return Ok(None) };
        if runs != 1 {
            return Err(Failure::usage(format!(
                "--record takes one run, and these are {runs}: name one --design, --restart and \
                 number of --streams, and one seed"
            )));
        }
        let paging = Paging::Split(PageBytes::DEFAULT);
        let out = Out::begin(
            path,
            CompactHeader { addressing: Addressing::Bytes, paging, clock: Clock::Kept },
        )?;
        let state = Mutex::new(State { out: Some(out), failure: None, requests: 0 });
        let recorder =
            Arc::new(Recorder { at: options.record_at, is_on: AtomicBool::new(false), state });
        *recording = Some(Arc::clone(&recorder) as Arc<dyn PageRecording>);
        Ok(Some(recorder))
    }

    /// Ends the file of `recorder`, if there is one, and shows what it has.
    ///
    /// # Errors
    ///
    /// What could not be written.
    pub fn end(recorder: Option<Arc<Recorder>>, sinks: &Sinks) -> Result<(), Failure> {
        if let Some(recorder) = recorder {
            sinks.show(&recorder.finish()?);
        }
        Ok(())
    }

    fn finish(&self) -> Result<String, Failure> {
        let mut state = self.state();
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        let out = state.out.take().expect("finished once");
        let path = out.path.display().to_string();
        out.finish()?;
        Ok(format!("{} requests recorded in {path}\n", state.requests))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while recording")
    }

    /// What `event` is in a trace that is recorded here.
    fn kind(&self, event: PageEvent) -> Option<Kind> {
        match (self.at, event) {
            (RecordAt::References, PageEvent::Read) => Some(Kind::Read),
            (RecordAt::References, PageEvent::Change) => Some(Kind::Write),
            (RecordAt::References, PageEvent::Ahead) => Some(Kind::Ahead),
            (RecordAt::Misses, PageEvent::Fetch) => Some(Kind::Read),
            (RecordAt::Misses, PageEvent::WriteOut) => Some(Kind::Write),
            _ => None,
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorder({:?})", self.at)
    }
}

impl PageObserver for Recorder {
    fn saw(&self, page: PageId, event: PageEvent) {
        if !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        let Some(kind) = self.kind(event) else { return };
        let bytes = PageBytes::DEFAULT.get();
        let (address, length) = (page.0 * bytes, bytes as u32);
        let request = Request { time_ns: terrace_rt::now().0, address, length, file: 0, kind };
        let mut state = self.state();
        let Some(out) = &mut state.out else { return };
        match out.write(request) {
            Ok(()) => state.requests += 1,
            Err(failure) => (state.out, state.failure) = (None, Some(failure)),
        }
    }
}

impl PageRecording for Recorder {
    fn begin(&self) {
        self.is_on.store(true, Ordering::Relaxed);
    }

    fn end(&self) {
        self.is_on.store(false, Ordering::Relaxed);
    }
}
