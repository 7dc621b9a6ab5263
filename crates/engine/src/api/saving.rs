//! Openings that save what is left of a database.

use std::path::Path;
use std::sync::Arc;

use terrace_device::{Access, Device};

use super::files;
use crate::open::Losers;
use crate::{Builder, Database, Error};

impl Builder {
    /// Opens the database at `path` to be read only, and keeps the changes of transactions that
    /// cannot be rolled back apart.
    pub(crate) fn open_with_losers(mut self, path: &Path) -> Result<Database, Error> {
        self.access = Access::ReadOnly;
        self.losers = Losers::SetApart;
        self.open(path)
    }

    /// The home at `path`, to be read only, whatever is wrong with the rest.
    pub(crate) fn home_read_only(&self, path: &Path) -> Result<Arc<dyn Device>, Error> {
        files::home_read_only(path, self.direct_io)
    }
}
