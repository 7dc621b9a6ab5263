//! What all workloads have in common for the code that runs them: a database, and clients that use
//! it.

use terrace::Database;
use terrace_rt::{Nanos, World};

use crate::Error;
use crate::sampling::Committed;

/// A workload: what its database holds, and which client requests what.
pub trait Workload: Sync {
    /// Bytes of a home with room for what a run adds.
    fn home_bytes(&self) -> u64;

    /// Fills the empty database `db`. `progress` is called with rows loaded and rows in all.
    ///
    /// # Errors
    ///
    /// Those of the engine.
    fn load(&self, db: &Database, progress: &mut dyn FnMut(u64, u64)) -> Result<(), Error>;

    /// Starts the clients of `part` on `db`, in `world`.
    fn start(&self, db: &Database, part: Part, world: &World) -> Box<dyn Clients>;

    /// Checks what must hold in `db` when no client runs, if the workload is told to.
    ///
    /// # Errors
    ///
    /// Those of the engine; what does not hold is no error but a result.
    fn check(&self, db: &Database) -> Result<Consistency, Error>;
}

/// Clients at work. They begin at once, on whatever the memory then holds.
pub trait Clients {
    /// What they have committed since they began.
    fn committed(&self) -> Committed;

    /// Whether one of them has stopped because of an error.
    fn has_failed(&self) -> bool;

    /// Lets them finish what they are doing, and returns when they have.
    ///
    /// # Errors
    ///
    /// What stopped one of them.
    fn stop(&mut self) -> Result<(), Error>;
}

/// One of the parts of a run, between which the database was closed. Clients of different parts
/// draw different transactions from the same distributions.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Its number, from zero.
    pub number: u32,
    /// When it begins, counted from the beginning of the first: past all that happened before.
    pub since: Nanos,
}

/// Outcome of the checks of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// Not checked.
    Unchecked,
    /// All conditions hold.
    Ok,
    /// Broken: the first few, in words.
    Broken(Vec<String>),
}

impl Consistency {
    /// `ok`, `unchecked`, or the first violation.
    pub fn summary(&self) -> &str {
        match self {
            Consistency::Unchecked => "unchecked",
            Consistency::Ok => "ok",
            Consistency::Broken(found) => found.first().map_or("broken", String::as_str),
        }
    }
}
