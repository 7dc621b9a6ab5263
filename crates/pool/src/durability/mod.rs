//! What is newer than home, and how it gets there for good.
//!
//! `dirty` is the order of a change, `ledger` the books of one partition; `flush` and `age` bring
//! old changes home, `doublewrite` keeps a page whole while it is written there; `stop` is what a
//! failed write or sync leaves. `journal` is the log as the pool sees it.

pub(crate) mod age;
pub(crate) mod dirty;
pub(crate) mod doublewrite;
pub(crate) mod flush;
pub(crate) mod flush_page;
pub(crate) mod home_versions;
pub(crate) mod journal;
pub(crate) mod ledger;
pub(crate) mod stop;
