//! Replacement policies, told of one reference after the other.

use super::super::sizes::{CAPACITY_DEFAULT, sizes};
use super::super::source::failed;
use super::passes::{Done, Stream, refused};
use crate::command::{CacheSize, Replay};
use crate::failure::Failure;
use crate::interval::rounded;
use crate::table::{Table, thousands};
use serde_json::json;
use terrace_policy::replacement::ReplacementRow;
use terrace_replay::{Following, Policy};

/// The policies asked for, which know the past alone.
///
/// # Errors
///
/// One that does not.
pub fn rows(options: &Replay) -> Result<Vec<ReplacementRow>, Failure> {
    let mut rows = Vec::new();
    for policy in super::super::policies(options) {
        match policy {
            Policy::Online(row) => rows.push(row),
            other if options.policy.is_some() => return Err(refused(other.name())),
            _ => {}
        }
    }
    Ok(rows)
}

/// Replays the trace.
///
/// # Errors
///
/// What the reader met; sizes that make no sense.
pub fn replay(stream: &Stream<'_>, rows: &[ReplacementRow]) -> Result<Done, Failure> {
    let (options, numbered) = (stream.options, &stream.numbered);
    let default = [CAPACITY_DEFAULT];
    let asked: &[CacheSize] =
        if options.capacity.is_empty() { &default } else { &options.capacity };
    let count = numbered.pages_count();
    let mut tried: Vec<(ReplacementRow, u32, Following)> = Vec::new();
    for capacity in sizes("--capacity", asked, &stream.scope())? {
        let following = |row| Following::new(row, capacity, count, options.seed);
        tried.extend(rows.iter().map(|&row| (row, capacity, following(row))));
    }
    let mut again = stream.again()?;
    let feed = |pages: &[u32]| tried.iter_mut().for_each(|(_, _, one)| one.feed(pages));
    numbered.replay(again.requests(), stream.opened.paging, feed).map_err(failed)?;
    let requests = numbered.references();
    let mut table = Table::new(["policy", "capacity", "misses", "miss ratio", "bytes/page"]);
    let mut results = Vec::new();
    for (row, capacity, following) in &tried {
        let ratio = following.misses() as f64 / requests as f64;
        let each = stream.each(following.bytes());
        table.row([
            row.name.into(),
            thousands(f64::from(*capacity)),
            thousands(following.misses() as f64),
            format!("{ratio:.4}"),
            format!("{each:.1}"),
        ]);
        results.push(json!({
            "policy": row.name,
            "capacity_pages": capacity,
            "requests": requests,
            "misses": following.misses(),
            "miss_ratio": rounded(ratio),
            "host": { "bytes_per_page": rounded(each) },
        }));
    }
    let text = format!("{}\n\n{}", stream.about(), table.text());
    Ok(Done { text, more: json!({ "results": results }), tiers: None })
}
