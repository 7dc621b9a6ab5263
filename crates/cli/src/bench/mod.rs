//! `terrace bench`: measures.

mod erp;
mod figure;
mod flash_table;
mod index;
mod page_rates;
mod page_trace;
mod parascan;
mod points;
pub mod probe;
mod psync;
pub mod restart;
mod run_of;
mod settings;
mod steady;
mod system;
mod tpcc;
mod tpch;

pub use system::{flash_role, word};

use crate::command::{Bench, BenchCommand};
use crate::failure::Failure;

/// Runs a bench.
///
/// # Errors
///
/// Options that make no sense; whatever stops the engine.
pub fn bench(command: BenchCommand) -> Result<(), Failure> {
    let BenchCommand { bench, recording } = command;
    match bench {
        Bench::Tpcc(options) => tpcc::tpcc(options, &recording),
        Bench::Restart(options) => restart::restart(options, &recording),
        Bench::Steady(options) => steady::steady(options, &recording),
        Bench::Erp(options) => erp::erp(options, &recording),
        Bench::Tpch(options) => tpch::tpch(options, &recording),
        Bench::Index(_) if recording.record.is_some() => {
            Err(Failure::usage("--record: bench index has pages of its own, none of the engine's"))
        }
        Bench::Index(options) => index::index(&options),
        Bench::Parascan(_) if recording.record.is_some() => Err(Failure::usage(
            "--record: bench parascan has pages of its own, none of the engine's",
        )),
        Bench::Parascan(options) => parascan::parascan(&options),
        Bench::Reads(options) => points::points("reads", &options, &recording),
        Bench::Updates(options) => points::points("updates", &options, &recording),
        Bench::Scan(options) => points::points("scan", &options, &recording),
        Bench::Psync(_) if recording.record.is_some() => {
            Err(Failure::usage("--record: psync measures drives and asks for no page"))
        }
        Bench::Psync(options) => psync::psync(&options),
        Bench::FlashTable(_) if recording.record.is_some() => Err(Failure::usage(
            "--record: flash-table fills the table of a flash tier and asks for no page",
        )),
        Bench::FlashTable(options) => flash_table::flash_table(&options),
        Bench::Trace(_) if recording.record.is_some() => Err(Failure::usage(
            "--record: bench trace asks for the pages of a trace, which is a record already",
        )),
        Bench::Trace(options) => page_trace::page_trace(&options),
    }
}
