//! Formats of lines, one file each.

mod arc;
mod blkparse;
mod block;
mod csv;
mod fio;
mod fio_log;
mod ftrace;
mod pg15;
mod simulators;
mod strace;
mod tectonic;

pub use arc::Arc;
pub use blkparse::Blkparse;
pub use block::{Alibaba, Msr, Spc, Tencent};
pub use csv::{BadColumns, Columns, Csv, Ids, NumberIds};
pub use fio::Fio;
pub use fio_log::FioLog;
pub use ftrace::Ftrace;
pub use pg15::Pg15;
pub use simulators::{Disksim, Mqsim};
pub use strace::Strace;
pub use tectonic::Tectonic;
