//! The names and types of tables.

use std::any::TypeId;
use std::marker::PhantomData;

use crate::opened::Types;
use crate::schema::type_names;
use crate::{Key, KeyPart, Value};

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

/// The name and the types of a multimap: see [`Multimap`](crate::Multimap).
pub struct MultimapDef<'n, K: KeyPart, V: Key> {
    name: &'n str,
    types: PhantomData<fn() -> (K, V)>,
}

impl<'n, K: KeyPart, V: Key> MultimapDef<'n, K, V> {
    /// The multimap `name`.
    pub const fn new(name: &'n str) -> MultimapDef<'n, K, V> {
        MultimapDef { name, types: PhantomData }
    }

    /// Its name.
    pub const fn name(&self) -> &'n str {
        self.name
    }

    /// The table that it is.
    pub const fn table(&self) -> TableDef<'n, (K, V), ()> {
        TableDef::new(self.name)
    }
}

impl<K: KeyPart, V: Key> Clone for MultimapDef<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: KeyPart, V: Key> Copy for MultimapDef<'_, K, V> {}

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
