//! Which policies and sizes are asked for.

use super::{Scope, Source};
use crate::command::{CacheSize, Replay};
use crate::failure::Failure;
use terrace_replay::Policy;

/// The capacity of a cache unless another is asked for.
pub(super) const CAPACITY_DEFAULT: CacheSize = CacheSize::Share(0.1);

/// The policies asked for.
pub(super) fn policies(options: &Replay) -> Vec<Policy> {
    options.policy.as_ref().map_or_else(Policy::all, |list| list.0.clone())
}

/// The capacities asked for, in pages, ascending.
pub(super) fn capacities(
    options: &Replay,
    source: &Source,
    default: CacheSize,
) -> Result<Vec<u32>, Failure> {
    let asked = if options.capacity.is_empty() { &[default][..] } else { &options.capacity[..] };
    sizes("--capacity", asked, &source.scope())
}

/// Sizes in pages, ascending.
///
/// # Errors
///
/// Sizes that make no sense, named by their option.
pub fn sizes(option: &str, asked: &[CacheSize], scope: &Scope) -> Result<Vec<u32>, Failure> {
    let pages = asked.iter().map(|size| size.pages(scope.paging, scope.pages));
    let pages = pages.collect::<Result<Vec<u32>, String>>();
    let mut pages = pages.map_err(|wrong| Failure::usage(format!("{option} {wrong}")))?;
    pages.sort_unstable();
    pages.dedup();
    Ok(pages)
}
