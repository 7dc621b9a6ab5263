//! What the JSON of every replay says.

use super::Source;
use crate::command::Replay;
use crate::interval::rounded;
use crate::output::Stopwatch;
use crate::results::Host;
use serde_json::{Value, json};

/// What the command prints as JSON: `more`, beside what all replays say.
pub(super) fn object(options: &Replay, source: &Source, watch: &Stopwatch, more: Value) -> Value {
    let references = &source.references;
    let mut host = json!(Host::of(watch, 0.0));
    host["bytes"] = json!(references.bytes());
    let each = references.bytes() as f64 / f64::from(references.pages_count().max(1));
    host["bytes_per_page"] = json!(rounded(each));
    host["read_s"] = json!(rounded(source.read_s));
    let read_s = source.read_s.max(1e-3);
    host["read_requests_per_s"] = json!((references.pages().len() as f64 / read_s).round());
    let mut object = json!({
        "command": "replay",
        "version": env!("CARGO_PKG_VERSION"),
        "seed": options.seed,
        "parameters": source.parameters,
        "trace": {
            "references": references.pages().len(),
            "writes": references.writes_count(),
            "pages": references.pages_count(),
            "span_s": source.span_s(),
        },
        "host": host,
    });
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}
