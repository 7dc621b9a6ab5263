//! Formats of lines, one file each.

mod arc;
mod block;
mod pg15;
mod simulators;

pub use arc::Arc;
pub use block::{Alibaba, Msr, Spc, Tencent};
pub use pg15::Pg15;
pub use simulators::{Disksim, Mqsim};
