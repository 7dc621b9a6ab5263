//! `terrace replay --stream`: the trace is read twice, and none of its references is kept.

mod curve;
mod passes;
mod policies;
mod tiers;

use super::source::{Opened, failed};
use crate::command::Replay;
use crate::failure::Failure;
use crate::interval::rounded;
use crate::output::{Sinks, Stopwatch};
use crate::results::Host;
use passes::{Done, Stream};
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
    let mut object = stream.object();
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
