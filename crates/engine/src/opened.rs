//! Tables that were opened before: found again without the catalog, its locks and its names.
//!
//! A transaction's buffers go from one transaction to the next, and these go with them.
//!
//! - O1: what is remembered is true as long as `Trees::version` is what it was then: any catalog
//!   change increments it, while the transaction that makes the change holds the table locked as a
//!   whole, or the name is of a table that no transaction remembers.
//! - O2: so a transaction that has locked the table, and then sees the same version, has the table
//!   by its name until it releases the lock.

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;

use crate::btree::Tree;
use crate::schema::{Asked, Schema};
use crate::share::Share;

/// The types of a table: quickly compared, and their names if need be.
#[derive(Clone, Copy)]
pub(crate) struct Types {
    /// Tells them from others.
    pub(crate) id: TypeId,
    /// What the catalog calls them; `None` for those of a table that is opened whatever they are.
    pub(crate) called: Option<fn() -> String>,
}

impl Types {
    /// What the catalog calls them.
    pub(crate) fn names(self) -> Option<String> {
        self.called.map(|called| called())
    }
}

/// What the catalog says of a table that was opened.
#[derive(Clone)]
pub(crate) struct Described {
    /// The names of its types.
    pub(crate) types: Arc<str>,
    /// Its schema, if it has one.
    pub(crate) schema: Option<Arc<Schema>>,
}

impl Described {
    /// Whether it is what is asked for.
    fn is(&self, asked: Asked<'_>) -> bool {
        asked.types.is_none_or(|types| *types == *self.types)
            && asked.schema.is_none_or(|schema| self.schema.as_deref() == Some(schema))
    }
}

/// A table that was opened.
struct Known {
    name: Box<str>,
    types: TypeId,
    described: Described,
    tree: Arc<Share<Tree>>,
}

/// Tables that were opened while the names had one version.
#[derive(Default)]
pub(crate) struct Opened {
    version: u64,
    tables: Vec<Known>,
}

/// Remembering more would not pay: transactions seldom open more.
const TABLES_MAX: usize = 64;

impl Opened {
    /// The version that these are of.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The table `name` with these types, if it was opened and is what is asked for.
    pub(crate) fn find(
        &self,
        name: &str,
        types: TypeId,
        asked: Asked<'_>,
    ) -> Option<&Arc<Share<Tree>>> {
        let is = |known: &&Known| known.types == types && *known.name == *name;
        let known = self.tables.iter().find(is)?;
        known.described.is(asked).then_some(&known.tree)
    }

    /// Remembers a table that had this name and these types in `version`, and was not found here.
    pub(crate) fn add(
        &mut self,
        version: u64,
        (name, types): (&str, TypeId),
        described: Described,
        tree: &Arc<Share<Tree>>,
    ) {
        if version != self.version || self.tables.len() == TABLES_MAX {
            self.tables.clear();
            self.version = version;
        }
        self.tables.retain(|known| known.types != types || *known.name != *name);
        let tree = Arc::clone(tree);
        self.tables.push(Known { name: name.into(), types, described, tree });
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("version", &self.version).finish_non_exhaustive()
    }
}
