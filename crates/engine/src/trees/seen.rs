//! Tables as a snapshot sees them: the catalog's tree tells, not the names in memory, which change
//! before their transaction commits.

use std::ops::Bound;
use std::sync::Arc;

use super::{OpenTable, Trees, check_asked, corrupt, done};
use crate::btree::{Batch, Direction, Scan, Tree};
use crate::catalog::{self, Entry, Key, table_key};
use crate::context::Context;
use crate::opened::Types;
use crate::schema::{Asked, Schema, TableInfo};
use crate::share::Share;
use crate::{Error, LockMode};

/// Names that are read at a time.
const NAMES: usize = 64;

impl Trees {
    /// The table `name`, as a snapshot sees it.
    ///
    /// # Errors
    ///
    /// `NoSuchTable`, `TableTypes`, `TableSchema`, those of the pool.
    pub(crate) fn open_seen(
        &self,
        context: &mut Context,
        name: &str,
        (types, schema): (Types, Option<&Schema>),
    ) -> Result<Arc<Share<Tree>>, Error> {
        let version = self.version();
        let key = table_key(name);
        let found = self.catalog.get(context, &key, LockMode::Shared, <[u8]>::to_vec)?;
        let Some(value) = done(found) else {
            return Err(Error::NoSuchTable { name: name.into() });
        };
        let key = catalog::decode_key(&key).map_err(corrupt)?;
        let entry = Entry::decode(key, &value, self.home_pages).map_err(corrupt)?;
        let (table, names) = (self.open_table(&entry), types.names());
        check_asked(&table, Asked { types: names.as_deref(), schema })?;
        let described = table.described();
        let tree = Share::new(Arc::new(table.tree));
        let own: &Tree = &tree;
        let is_same = |table: &OpenTable| table.tree.id() == own.id();
        let is_still = self.names.lock().get(name).is_some_and(is_same);
        if is_still && self.version() == version {
            // It had this name before the snapshot, and has had it from then on.
            context.remember(version, (name, types), described, &tree);
        }
        Ok(tree)
    }

    /// The tables that a snapshot sees, in the order of their names.
    ///
    /// # Errors
    ///
    /// Those of the pool, `Corrupt`.
    pub(crate) fn infos_seen(&self, context: &mut Context) -> Result<Vec<TableInfo>, Error> {
        let (first, end) = (table_key(""), vec![b'T' + 1]);
        let (lower, upper) = (Bound::Included(first), Bound::Excluded(end));
        let mut scan = Scan::new(lower, upper, Direction::Forward, LockMode::Shared);
        let (mut batch, mut infos) = (Batch::default(), Vec::new());
        loop {
            done(scan.next_batch(&self.catalog, context, NAMES, &mut batch)?);
            if batch.len() == 0 {
                return Ok(infos);
            }
            for (key, value) in batch.entries() {
                let key = catalog::decode_key(key).map_err(corrupt)?;
                if let Key::Table(name) = key {
                    let entry = Entry::decode(key, value, self.home_pages).map_err(corrupt)?;
                    infos.push(entry.info(name));
                }
            }
        }
    }
}
