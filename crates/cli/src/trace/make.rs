//! `terrace trace make`: requests that are drawn, or those of queries on made-up tables.

use super::Out;
use crate::command::{QueriesName, TraceMake};
use crate::failure::Failure;
use terrace_trace::tpch::TpchWorkload;
use terrace_trace::{
    Addressing, BadOption, Clock, CompactHeader, Paging, Popularity, Request, Scans, Synthetic,
    SyntheticOptions, Tpch, TpchOptions, WorkingSet,
};

/// Between the numbers that stand for times, unless an interval is asked for.
const INTERVAL_NS: u64 = 1_000;

/// Makes up a trace.
///
/// # Errors
///
/// Options that make no sense; a file that cannot be written.
pub fn make(options: &TraceMake) -> Result<(), Failure> {
    match options.workload {
        Some(workload) => write(options, Tpch::new(tpch(options, workload)).map_err(wrong)?),
        None => write(options, Synthetic::new(synthetic(options)).map_err(wrong)?),
    }
}

fn write(options: &TraceMake, made: impl Iterator<Item = Request>) -> Result<(), Failure> {
    let paging = Paging::Split(options.page);
    // Requests that follow each other at no stated interval tell nothing of a pace.
    let clock = if options.interval.is_some() { Clock::Kept } else { Clock::Absent };
    let header = CompactHeader { addressing: Addressing::Bytes, paging, clock };
    let mut out = Out::begin(&options.out, header)?;
    for request in made {
        out.write(request)?;
    }
    out.finish()
}

/// The failure that an option which makes no sense is.
pub fn wrong(bad: BadOption) -> Failure {
    Failure::usage(format!("--{} has to be {}", bad.option, bad.rule))
}

fn interval_ns(options: &TraceMake) -> u64 {
    options.interval.map_or(INTERVAL_NS, |interval| (interval.0 * 1e9).round() as u64)
}

fn synthetic(options: &TraceMake) -> SyntheticOptions {
    let popularity = match (options.uniform, options.cycle) {
        (true, _) => Popularity::Uniform,
        (_, true) => Popularity::Loop,
        _ => Popularity::Zipf(options.zipf),
    };
    let requests = options.shift_every;
    let scans = Scans { share: options.scan.0, pages: options.scan_pages };
    SyntheticOptions {
        popularity,
        ids: options.ids,
        requests: options.requests,
        seed: options.seed,
        writes: options.writes.0,
        working_set: options.working_set.map(|ids| WorkingSet { ids, requests }),
        scans: (scans.share > 0.0).then_some(scans),
        page_bytes: options.page,
        interval_ns: interval_ns(options),
    }
}

fn tpch(options: &TraceMake, workload: QueriesName) -> TpchOptions {
    let queries = options.tpch.queries.unwrap_or(workload.usual_queries());
    let workload = match workload {
        QueriesName::OdsTpch => {
            let (narrowest, widest) = options.tpch.widths;
            TpchWorkload::Ods { narrowest, widest }
        }
        QueriesName::ZipfTpch => TpchWorkload::Dates(options.zipf),
    };
    TpchOptions {
        workload,
        scale: options.tpch.scale,
        queries,
        seed: options.seed,
        page_bytes: options.page,
        interval_ns: interval_ns(options),
    }
}
