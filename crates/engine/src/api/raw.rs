//! Tables whose types only the running program knows: their rows as bytes, and what the catalog
//! keeps of them.
//!
//! - A1: a raw table is a [`Table`] of byte strings over the same tree, so that each operation has
//!   one implementation.
//! - A2: a table keeps the types and the schema that it was made with until it is deleted.

use std::sync::Arc;

use crate::api::core::Sealed;
use crate::api::def::raw_types;
use crate::api::loader::{Bulk, FILL};
use crate::api::types;
use crate::opened::Types;
use crate::schema::Asked;
use crate::{
    Database, Error, Key, Loader, ReadTable, ReadTransaction, Schema, Table, TableDef, TableInfo,
    TableSpec, Value, WriteTransaction,
};

/// A table opened by its name alone, whatever its types are: keys and values are their encoded
/// bytes. It has all that a [`Table`] has.
///
/// Keys sort as byte strings, which is how typed tables sort too. Nothing checks that what is put
/// into a table encodes its types: a reader that opens it with types gets [`Error::Undecodable`]
/// for bytes that do not. [`Key`] and [`Value`] describe the encodings.
///
/// # Examples
///
/// ```
/// use terrace::{Error, RawTable, TableDef, Transaction};
///
/// /// Bytes of keys and values, of any table.
/// fn bytes<T: Transaction>(table: &RawTable<'_, T>) -> Result<usize, Error> {
///     table.range(..)?.try_fold(0, |sum, entry| {
///         let entry = entry?;
///         Ok(sum + entry.key().len() + entry.value().len())
///     })
/// }
///
/// # let db = terrace::doc_test::database();
/// const STOCK: TableDef<u16, &str> = TableDef::new("stock");
/// db.write(|txn| txn.open_table(STOCK)?.insert(7, "apples"))?;
/// db.read(|txn| {
///     let stock = txn.open_raw("stock")?;
///     assert_eq!(stock.get(&[0, 7])?.expect("there").value(), b"apples");
///     assert_eq!(bytes(&stock)?, 8);
///     Ok::<_, Error>(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
pub type RawTable<'t, T = WriteTransaction> = Table<'t, &'static [u8], &'static [u8], T>;

impl WriteTransaction {
    /// Opens a table that there is, whatever its types are.
    ///
    /// # Errors
    ///
    /// `NoSuchTable`, `Conflict`, and those of devices.
    pub fn open_raw<'t>(&'t self, name: &'t str) -> Result<RawTable<'t>, Error> {
        let tree = self.core().run(|context| {
            if let Some(tree) = context.opened(name, raw_types(), Asked::ANY)? {
                return Ok(tree);
            }
            let engine = Arc::clone(context.engine());
            engine.trees.open(context, name, (raw_types(), None))
        })?;
        Ok(Table::new(self, tree, name))
    }

    /// Opens a table whose types have the names of `spec`, and that has its schema if it has one;
    /// creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// `TableTypes`, `TableSchema`, `DamagedSchema`; `InvalidOption` if `spec` is too long;
    /// `KeyTooLong` if the name is; `Conflict`, `HomeFull`, and those of devices.
    ///
    /// # Examples
    ///
    /// ```
    /// # use terrace::{Error, TableSpec};
    /// # let db = terrace::doc_test::database();
    /// db.write(|txn| {
    ///     let mut notes = txn.open_raw_with("notes", &TableSpec::bytes())?;
    ///     notes.insert(b"a", b"1")?;
    ///     notes.insert(b"ab", b"2")?;
    ///     notes.insert(b"b", b"3")?;
    ///     assert_eq!(notes.prefix(&b"a"[..])?.count(), 2);
    ///     let other = TableSpec::new("u64", "str")?;
    ///     assert!(matches!(txn.open_raw_with("notes", &other), Err(Error::TableTypes { .. })));
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn open_raw_with<'t>(
        &'t self,
        name: &'t str,
        spec: &TableSpec,
    ) -> Result<RawTable<'t>, Error> {
        let asked = spec.asked()?;
        let tree = self.core().run(|context| {
            if let Some(tree) = context.opened(name, raw_types(), asked)? {
                return Ok(tree);
            }
            let engine = Arc::clone(context.engine());
            engine.trees.open_for_write(context, (name, raw_types()), asked)
        })?;
        Ok(Table::new(self, tree, name))
    }

    /// As [`WriteTransaction::open_table`], of a table with this schema: it is created with it, or
    /// must have it.
    ///
    /// # Errors
    ///
    /// `TableSchema`, `DamagedSchema`; `InvalidOption` if schema and names of types are too long
    /// together; those of `open_table`.
    pub fn open_table_with<'t, K: Key, V: Value>(
        &'t self,
        table: TableDef<'t, K, V>,
        schema: &Schema,
    ) -> Result<Table<'t, K, V>, Error> {
        let types = check_description(types::<K, V>(), schema)?;
        let asked = Asked { types: None, schema: Some(schema) };
        let tree = self.core().run(|context| {
            if let Some(tree) = context.opened(table.name(), types, asked)? {
                return Ok(tree);
            }
            let engine = Arc::clone(context.engine());
            engine.trees.open_for_write(context, (table.name(), types), asked)
        })?;
        Ok(Table::new(self, tree, table.name()))
    }

    /// As [`WriteTransaction::bulk_load`], of bytes into a table of `spec`.
    ///
    /// # Errors
    ///
    /// `NotEmpty`; those of `open_raw_with`.
    pub fn bulk_load_raw<'t>(
        &'t self,
        name: &'t str,
        spec: &TableSpec,
    ) -> Result<Loader<'t, &'static [u8], &'static [u8]>, Error> {
        let asked = spec.asked()?;
        let (tree, age) = self.core().run(|context| {
            let engine = Arc::clone(context.engine());
            engine.trees.open_or_make(context, name, asked)
        })?;
        let bulk = Bulk::begin(self.core(), tree, age, FILL)?;
        Ok(Loader::new(self.core(), bulk, name))
    }

    /// The names of all tables, in order.
    ///
    /// # Errors
    ///
    /// `Conflict`, and those of devices.
    pub fn table_names(&self) -> Result<Vec<String>, Error> {
        Ok(self.tables()?.into_iter().map(|table| table.name).collect())
    }

    /// All tables, in the order of their names.
    ///
    /// # Errors
    ///
    /// `Conflict`, and those of devices.
    pub fn tables(&self) -> Result<Vec<TableInfo>, Error> {
        self.core().run(|context| Arc::clone(context.engine()).trees.infos(context))
    }
}

impl ReadTransaction {
    /// Opens a table, whatever its types are.
    ///
    /// # Errors
    ///
    /// `NoSuchTable`, `Conflict`, and those of devices.
    pub fn open_raw<'t>(&'t self, name: &'t str) -> Result<RawTable<'t, ReadTransaction>, Error> {
        let tree = self.find_table(name, (raw_types(), None))?;
        Ok(Table::new(self, tree, name))
    }

    /// Opens a table that must have this schema.
    ///
    /// # Errors
    ///
    /// `TableSchema`, `DamagedSchema`; those of [`ReadTransaction::open_table`].
    pub fn open_table_with<'t, K: Key, V: Value>(
        &'t self,
        table: TableDef<'t, K, V>,
        schema: &Schema,
    ) -> Result<ReadTable<'t, K, V>, Error> {
        let tree = self.find_table(table.name(), (types::<K, V>(), Some(schema)))?;
        Ok(Table::new(self, tree, table.name()))
    }

    /// The names of all tables, in order.
    ///
    /// # Errors
    ///
    /// `Conflict`, and those of devices.
    pub fn table_names(&self) -> Result<Vec<String>, Error> {
        Ok(self.tables()?.into_iter().map(|table| table.name).collect())
    }

    /// All tables, in the order of their names.
    ///
    /// # Errors
    ///
    /// `Conflict`, and those of devices.
    pub fn tables(&self) -> Result<Vec<TableInfo>, Error> {
        self.core().run(|context| {
            let engine = Arc::clone(context.engine());
            match context.snapshot_at() {
                Some(_) => engine.trees.infos_seen(context),
                None => engine.trees.infos(context),
            }
        })
    }
}

impl Database {
    /// The tables that are committed, in the order of their names: the names of their types, and
    /// their schemas.
    ///
    /// # Errors
    ///
    /// Those of [`Database::read`].
    pub fn tables(&self) -> Result<Vec<TableInfo>, Error> {
        self.read(ReadTransaction::tables)
    }
}

/// The types, if a table of them can have the schema.
fn check_description(types: Types, schema: &Schema) -> Result<Types, Error> {
    let names = types.names();
    Asked { types: names.as_deref(), schema: Some(schema) }.checked().map(|_| types)
}
