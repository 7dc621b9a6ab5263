//! `terrace replay --stream`: the trace is read twice, and none of its references is kept.

mod curve;
mod policies;
mod tiers;

use super::source::{Opened, Scope, failed, paging_name};
use crate::command::Replay;
use crate::failure::Failure;
use crate::interval::rounded;
use crate::output::{Sinks, Stopwatch};
use crate::results::Host;
use crate::table::thousands;
use serde_json::{Value, json};
use std::path::Path;
use terrace_replay::Numbered;

/// Runs it.
///
/// # Errors
///
/// A trace that cannot be read, or not twice; a policy that needs the future; sizes that make no
/// sense; a file that cannot be written.
pub fn stream(
    options: &Replay,
    path: &Path,
    sinks: &Sinks,
    watch: &Stopwatch,
) -> Result<(), Failure> {
    let what = What::asked(options)?;
    if path.as_os_str() == "-" {
        return Err(Failure::usage("--stream reads the trace twice: give a file"));
    }
    let mut opened = Opened::new(path, &options.source)?;
    let paging = opened.paging;
    let numbered = Numbered::read(opened.requests(), paging).map_err(failed)?;
    if numbered.references() == 0 {
        return Err(Failure::Failed(format!("{}: no requests for pages", path.display())));
    }
    let read_s = watch.seconds();
    let stream = Stream { options, path, opened, numbered };
    let Done { text, more, tiers } = match what {
        What::Policies(rows) => policies::replay(&stream, &rows)?,
        What::Tiers(flashes) => tiers::replay(&stream, &flashes)?,
        What::Curve => curve::draw(&stream)?,
    };
    sinks.show(&text);
    let mut object = stream.json();
    if let Some(tiers) = tiers {
        object["parameters"]["tiers"] = tiers;
    }
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object["host"] = json!(Host::of(watch, 0.0));
    object["host"]["bytes"] = json!(stream.numbered.bytes());
    object["host"]["bytes_per_page"] = json!(rounded(stream.each(stream.numbered.bytes())));
    object["host"]["read_s"] = json!(rounded(read_s));
    object["host"]["replay_s"] = json!(rounded(watch.seconds() - read_s));
    sinks.write(&object)
}

/// What is to be told of the references.
enum What {
    Policies(Vec<terrace_policy::replacement::ReplacementRow>),
    Tiers(Vec<super::tiers::Tried>),
    Curve,
}

impl What {
    fn asked(options: &Replay) -> Result<What, Failure> {
        if !options.tiers.flash.is_empty() {
            return tiers::flashes(options).map(What::Tiers);
        }
        if options.curve.curve {
            return curve::check(options).map(|()| What::Curve);
        }
        policies::rows(options).map(What::Policies)
    }
}

/// What came out.
struct Done {
    /// For people.
    text: String,
    /// The same as JSON.
    more: Value,
    /// The parameters of tiers.
    tiers: Option<Value>,
}

/// A trace that was read once.
struct Stream<'a> {
    options: &'a Replay,
    path: &'a Path,
    opened: Opened,
    numbered: Numbered,
}

impl Stream<'_> {
    fn again(&self) -> Result<Opened, Failure> {
        Opened::new(self.path, &self.options.source)
    }

    fn scope(&self) -> Scope {
        let (pages, span_s) = (self.numbered.pages_count(), self.numbered.span_s());
        Scope { paging: self.opened.paging, pages, span_s }
    }

    /// Bytes for each page.
    fn each(&self, bytes: usize) -> f64 {
        bytes as f64 / f64::from(self.numbered.pages_count())
    }

    fn about(&self) -> String {
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

    fn json(&self) -> Value {
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
                "span_s": numbered.span_s(),
            },
            "host": {},
        })
    }
}

/// A policy that knows more than the past cannot be told of one reference after the other.
fn refused(name: &str) -> Failure {
    Failure::usage(format!(
        "--stream: {name} wants more of a reference than its page; replay it without"
    ))
}
