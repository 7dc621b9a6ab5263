//! The exact curve of LRU, drawn in one pass.

use super::super::curve::{Line, capacities};
use super::super::source::failed;
use super::passes::{Done, Stream, refused};
use crate::command::Replay;
use crate::failure::Failure;
use serde_json::json;
use std::time::Instant;
use terrace_replay::Policy;
use terrace_replay::curve::ExactCurve;

/// Whether no curve but that of LRU is asked for.
///
/// # Errors
///
/// Another is.
pub fn check(options: &Replay) -> Result<(), Failure> {
    let asked = options.policy.as_ref().map_or(&[][..], |list| &list.0);
    let other = asked.iter().find(|policy| policy.name() != "lru");
    other.map_or(Ok(()), |policy: &Policy| Err(refused(policy.name())))
}

/// Draws it.
///
/// # Errors
///
/// What the reader met; sizes that make no sense.
pub fn draw(stream: &Stream<'_>) -> Result<Done, Failure> {
    let capacities = capacities(stream.options, &stream.scope())?;
    let numbered = &stream.numbered;
    let mut curve = ExactCurve::new(numbered.pages_count());
    let mut again = stream.again()?;
    let began = Instant::now();
    let feed = |pages: &[u32]| curve.feed(pages);
    numbered.replay(again.requests(), stream.opened.paging, feed).map_err(failed)?;
    let ratios = curve.curve().miss_ratios(&capacities);
    let line = Line::exact("lru", ratios, began.elapsed().as_secs_f64());
    let text = format!("{}\n\n{}", stream.about(), line.text(&capacities));
    let mut json = line.json(&capacities);
    json["host"]["bytes_per_page"] = json!(stream.each(curve.bytes()));
    Ok(Done { text, more: json!({ "curves": [json] }), tiers: None })
}
