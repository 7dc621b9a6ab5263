//! Random transactions by concurrent clients, and the checker that says whether they were
//! serializable.

pub mod checker;

mod record;

pub use record::{HistoryClient, Left, Options, Recording, record};
