//! `terrace trace filter`: what a memory lets through, as a trace of its own.

use super::{Out, failed, list, open, skipped_text};
use crate::command::TraceFilter;
use crate::failure::Failure;
use crate::output::check_apart;
use crate::table::thousands;
use terrace_replay::{References, filter};
use terrace_trace::{Addressing, CompactHeader, Kind, Pages, Paging, Request};

/// Runs it.
///
/// # Errors
///
/// A trace that cannot be read, or whose pages are objects; a memory without a page; a file that
/// cannot be written.
pub fn run(options: &TraceFilter) -> Result<(), Failure> {
    check_apart(&options.file.trace, &options.out)?;
    let mut reader = open(&options.file)?;
    let paging = options.page.unwrap_or(reader.paging());
    let Paging::Split(page_bytes) = paging else {
        return Err(Failure::usage("--page: memory holds pages; give their size, like 8KiB"));
    };
    let (mut references, mut times_ns) = (References::default(), Vec::new());
    for request in Pages::new(reader.by_ref(), paging) {
        let request = request.map_err(failed)?;
        times_ns.push(request.time_ns);
        references.push(request);
    }
    let frames = options.memory.pages(paging, references.pages_count());
    let frames = frames.map_err(|wrong| Failure::usage(format!("--memory {wrong}")))?;
    let header = CompactHeader { addressing: Addressing::Bytes, paging, clock: reader.clock() };
    let mut out = Out::begin(&options.out, header)?;
    let (mut reads, mut writes, mut first_failure) = (0u64, 0u64, None);
    filter(&references, options.memory_policy, frames, options.seed, |at, page, kind| {
        let name = references.name(page);
        let (address, length) = (name.number * page_bytes.get(), page_bytes.get() as u32);
        let request = Request { time_ns: times_ns[at], address, length, file: name.file, kind };
        if first_failure.is_none() {
            first_failure = out.write(request).err();
        }
        *(if kind == Kind::Read { &mut reads } else { &mut writes }) += 1;
    });
    if let Some(failure) = first_failure {
        return Err(failure);
    }
    out.finish()?;
    eprint!("{}", skipped_text(&reader));
    eprintln!(
        "{} of {} references left behind {} pages of {}: {} reads, {} writes",
        thousands((reads + writes) as f64),
        thousands(references.pages().len() as f64),
        thousands(f64::from(frames)),
        options.memory_policy.name,
        thousands(reads as f64),
        thousands(writes as f64),
    );
    list::carry(&options.file.trace, &reader, &options.out)
}
