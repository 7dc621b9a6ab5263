//! Options that tests need, of this crate and of others.

use terrace_page::Lsn;

use super::Builder;

impl Builder {
    /// The id of a database to be created, instead of one drawn at random (or a fixed one in a
    /// virtual world): for tests that need two different ones.
    #[doc(hidden)]
    #[must_use]
    pub fn identity(mut self, identity: u128) -> Builder {
        self.identity = Some(identity);
        self
    }

    /// Where the log of a database to be created begins, in whole blocks of 4 KiB: for tests of
    /// positions that take years to come to.
    #[doc(hidden)]
    #[must_use]
    pub fn log_begins_at(mut self, first: Lsn) -> Builder {
        self.first_lsn = first;
        self
    }

    /// Calls `step` after each change that `create` makes in the file system: for tests that end
    /// the process there.
    #[doc(hidden)]
    #[must_use]
    pub fn on_create_step(mut self, step: fn()) -> Builder {
        self.create_step = step;
        self
    }
}
