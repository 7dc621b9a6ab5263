//! Pages on their way to a device and back: the memory they lie in, and requests over memory that
//! is borrowed until the device has answered.
//!
//! Modules in reading order: `memory`, aligned memory for pages; `io`, batches of requests; `each`,
//! pages that are read one by one.

mod memory;

mod each;
mod io;

pub use each::{PagePlace, PageRead, PageReads, read_each};
pub use io::{PageIo, PageTarget, run, run_beside, run_both, run_in_turn};
pub use memory::{Memory, PageAhead, Staging, prefetch, prefetch_line};
