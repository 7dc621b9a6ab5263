//! Formats of lines, one file each.

mod arc;
mod blkparse;
mod block;
mod fio;
mod pg15;
mod simulators;
mod strace;
mod tectonic;

pub use arc::Arc;
pub use blkparse::Blkparse;
pub use block::{Alibaba, Msr, Spc, Tencent};
pub use fio::Fio;
pub use pg15::Pg15;
pub use simulators::{Disksim, Mqsim};
pub use strace::Strace;
pub use tectonic::Tectonic;
