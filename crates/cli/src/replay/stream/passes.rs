//! A trace that is read twice, and what the second pass gives.

use super::super::source::{Opened, Scope, paging_name, span_s};
use crate::command::Replay;
use crate::failure::Failure;
use crate::table::thousands;
use serde_json::{Value, json};
use std::path::Path;
use terrace_replay::Numbered;

/// What came out.
pub(super) struct Done {
    /// For people.
    pub(super) text: String,
    /// The same as JSON.
    pub(super) more: Value,
    /// The parameters of tiers.
    pub(super) tiers: Option<Value>,
}

/// A trace that was read once.
pub(super) struct Stream<'a> {
    pub(super) options: &'a Replay,
    pub(super) path: &'a Path,
    pub(super) opened: Opened,
    pub(super) numbered: Numbered,
}

impl Stream<'_> {
    pub(super) fn again(&self) -> Result<Opened, Failure> {
        Opened::new(self.path, &self.options.source)
    }

    pub(super) fn scope(&self) -> Scope {
        let (pages, span_s) = (self.numbered.pages_count(), self.span_s());
        Scope { paging: self.opened.paging, pages, span_s }
    }

    fn span_s(&self) -> Option<f64> {
        span_s(self.opened.reader.clock(), self.numbered.span_s())
    }

    /// Bytes for each page.
    pub(super) fn each(&self, bytes: usize) -> f64 {
        bytes as f64 / f64::from(self.numbered.pages_count())
    }

    pub(super) fn about(&self) -> String {
        let numbered = &self.numbered;
        format!(
            "{} ({}), read twice: {} references ({} writes) to {} pages, {:.1} bytes for each \
             beside the policies",
            self.path.display(),
            self.opened.reader.format().name(),
            thousands(numbered.references() as f64),
            thousands(numbered.writes() as f64),
            thousands(f64::from(numbered.pages_count())),
            self.each(numbered.bytes()),
        )
    }

    pub(super) fn object(&self) -> Value {
        let (numbered, opened) = (&self.numbered, &self.opened);
        json!({
            "command": "replay",
            "version": env!("CARGO_PKG_VERSION"),
            "seed": self.options.seed,
            "parameters": {
                "trace": self.path.display().to_string(),
                "format": opened.reader.format().name(),
                "page": paging_name(opened.paging),
                "left_out_files": opened.left_out,
                "left_out_requests": opened.without,
                "skipped": opened.reader.tally().skipped,
                "stream": true,
            },
            "trace": {
                "references": numbered.references(),
                "writes": numbered.writes(),
                "pages": numbered.pages_count(),
                "span_s": self.span_s(),
            },
            "host": {},
        })
    }
}

/// A policy that knows more than the past cannot be told of one reference after the other.
pub(super) fn refused(name: &str) -> Failure {
    Failure::usage(format!(
        "--stream: {name} wants more of a reference than its page; replay it without"
    ))
}
