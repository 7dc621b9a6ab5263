//! The names and types of tables.

use std::any::TypeId;
use std::marker::PhantomData;

use crate::opened::Types;
use crate::schema::type_names_of;
use crate::{Key, Value};

/// The name and the types of a table.
///
/// # Examples
///
/// ```
/// use terrace::TableDef;
///
/// const ORDERS: TableDef<(u32, u32, &str), &[u8]> = TableDef::new("orders");
/// assert_eq!(ORDERS.name(), "orders");
/// ```
///
/// A name that is known only when the program runs:
///
/// ```
/// # use terrace::{Error, TableDef};
/// # let db = terrace::doc_test::database();
/// for year in 2024..2027 {
///     let name = format!("orders of {year}");
///     db.write(|txn| txn.open_table(TableDef::<u64, &str>::new(&name))?.insert(1, "tea"))?;
/// }
/// # Ok::<(), Error>(())
/// ```
pub struct TableDef<'n, K: Key, V: Value> {
    name: &'n str,
    types: PhantomData<fn() -> (K, V)>,
}

impl<'n, K: Key, V: Value> TableDef<'n, K, V> {
    /// The table `name`.
    pub const fn new(name: &'n str) -> TableDef<'n, K, V> {
        TableDef { name, types: PhantomData }
    }

    /// Its name.
    pub const fn name(&self) -> &'n str {
        self.name
    }
}

impl<K: Key, V: Value> Clone for TableDef<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Key, V: Value> Copy for TableDef<'_, K, V> {}

/// The names of the types of a table, as the catalog keeps them.
pub(crate) fn type_names<K: Key, V: Value>() -> String {
    type_names_of(&K::type_name(), &V::type_name())
}

/// The types of a table.
pub(crate) fn types<K: Key, V: Value>() -> Types {
    Types { id: TypeId::of::<(K, V)>(), called: Some(type_names::<K, V>) }
}

/// Those of a table that is opened raw.
enum Raw {}

/// Any types.
pub(crate) fn raw_types() -> Types {
    Types { id: TypeId::of::<Raw>(), called: None }
}
