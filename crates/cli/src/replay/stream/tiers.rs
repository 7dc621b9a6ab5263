//! Two tiers, told of one reference after the other: every design and policy beside the others.

use super::super::sizes::sizes;
use super::super::source::failed;
use super::super::tiers;
use super::super::tiers::{TierOutcome, Tried, parameters, setting, setup, text};
use super::passes::{Done, Stream, refused};
use crate::command::Replay;
use crate::failure::Failure;
use serde_json::{Value, json};
use std::time::Instant;
use terrace_replay::tiers::{Flash, FollowingTiers};
use terrace_replay::{Policy, Reference};

/// The flash tiers that are asked for.
///
/// # Errors
///
/// One that knows the future.
pub fn flashes(options: &Replay) -> Result<Vec<Tried>, Failure> {
    let mut flashes = tiers::flashes(options)?;
    let asked = options.policy.as_ref().map_or(&[][..], |list| &list.0);
    let opt = asked.iter().find(|policy| matches!(policy, Policy::Opt(_)));
    match opt {
        // Of `all` it is left out.
        Some(policy) if asked.len() < Policy::all().len() => Err(refused(policy.name())),
        _ => {
            flashes.retain(|tried| !matches!(tried.flash, Flash::Opt(_)));
            Ok(flashes)
        }
    }
}

/// Replays the trace.
///
/// # Errors
///
/// What the reader met; sizes that make no sense.
pub fn replay(stream: &Stream<'_>, flashes: &[Tried]) -> Result<Done, Failure> {
    let (options, numbered, scope) = (stream.options, &stream.numbered, stream.scope());
    let setting = setting(options, &scope)?;
    let places = numbered.places();
    let mut all = Vec::new();
    for slots in sizes("--flash", &options.tiers.flash, &scope)? {
        for &tried in flashes {
            let (memory, setup) =
                (setting.memory_of(&tried.flash), setup(options, &setting, tried, slots));
            let tiers = FollowingTiers::new(scope.pages, &places, memory, &setup);
            all.push(((tried, memory, slots), tiers, 0.0));
        }
    }
    let mut again = stream.again()?;
    let feed = |references: &[Reference]| {
        for (_, tiers, wall_s) in &mut all {
            let began = Instant::now();
            tiers.feed(references);
            *wall_s += began.elapsed().as_secs_f64();
        }
    };
    numbered.replay_references(again.requests(), scope.paging, feed).map_err(failed)?;
    let outcomes: Vec<TierOutcome> = all
        .iter()
        .map(|&(what, ref tiers, wall_s)| TierOutcome::of_stream(what, tiers, scope.pages, wall_s))
        .collect();
    let text = text(options, &stream.about(), &setting, &outcomes, &[]);
    let results: Vec<Value> = outcomes.iter().map(|outcome| outcome.json(&setting)).collect();
    let more = json!({ "results": results });
    Ok(Done { text, more, tiers: Some(parameters(options, &setting)) })
}
