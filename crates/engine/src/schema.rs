//! Schemas: what the catalog keeps of a table for those that know it by its name only.
//!
//! ```text
//! offset size field
//!      0    1 version      1
//!      1    1 reserved     zero
//!      2    2 columns      how many there are
//!      4    2 key_columns  how many of them, the first ones, make the key
//!      6      then for each column:
//!           1 flags        bit 0: it may be null
//!           2 name_len
//!           2 type_len
//!             name, type   UTF-8
//! ```
//!
//! Numbers are little-endian.
//!
//! - H1: columns have names, which differ; no more columns make the key than there are.
//! - H2: nothing is believed that does not decode to its last byte, nor that breaks H1: what
//!   decodes encodes to the same bytes.
//! - H3: with the names of its types a schema takes at most `DESCRIPTION_MAX` bytes, so that the
//!   catalog's entry of a table with the longest name fits into a leaf.

use std::collections::BTreeSet;
use std::fmt;

use crate::{Error, Key, Value};

const VERSION: u8 = 1;
const COLUMNS_AT: usize = 2;
const KEY_COLUMNS_AT: usize = 4;
const HEAD: usize = 6;
const COLUMN_HEAD: usize = 5;
const NULLABLE: u8 = 1;

const _: () = assert!(COLUMNS_AT + 2 == KEY_COLUMNS_AT && KEY_COLUMNS_AT + 2 == HEAD);
const _: () = assert!(DESCRIPTION_MAX - HEAD == 2_894, "as messages say");

/// Bytes of the names of a table's types and of its schema, at most (H3).
const DESCRIPTION_MAX: usize = 2_900;

/// A column of a [`Schema`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, one character or more.
    pub name: String,
    /// What its user calls its type. Terrace keeps it, and does not look at it.
    pub type_name: String,
    /// Whether it may be null.
    pub is_nullable: bool,
}

/// The columns of a table, the key's first. Terrace stores them with the table and gives them back;
/// how keys and values encode them is the matter of those that use them.
///
/// # Examples
///
/// ```
/// use terrace::{Column, Schema, TableDef};
///
/// # let db = terrace::doc_test::database();
/// const PEOPLE: TableDef<u64, (String, Option<u8>)> = TableDef::new("people");
/// let column = |name: &str, type_name: &str, is_nullable| Column {
///     name: name.into(),
///     type_name: type_name.into(),
///     is_nullable,
/// };
/// let columns = vec![
///     column("id", "BIGINT", false),
///     column("name", "TEXT", false),
///     column("age", "TINYINT", true),
/// ];
/// let schema = Schema::new(columns, 1)?;
/// db.write(|txn| txn.open_table_with(PEOPLE, &schema)?.insert(7, ("Ada", Some(36))))?;
/// let tables = db.tables()?;
/// assert_eq!((tables[0].name.as_str(), tables[0].key_type.as_str()), ("people", "u64"));
/// assert_eq!(tables[0].schema, Some(schema));
/// # Ok::<(), terrace::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    columns: Vec<Column>,
    key_columns: usize,
}

impl Schema {
    /// A table of `columns`, of which the first `key_columns` make the key.
    ///
    /// # Errors
    ///
    /// `InvalidOption` if a column has no name or that of another one, if there are fewer columns
    /// than the key has, or if they take more than 2,894 bytes: 5 for each and its two names.
    pub fn new(columns: Vec<Column>, key_columns: usize) -> Result<Schema, Error> {
        let schema = Schema { columns, key_columns };
        match schema.flaw() {
            None => Ok(schema),
            Some(what) => Err(Error::InvalidOption { option: "schema", what }),
        }
    }

    fn flaw(&self) -> Option<&'static str> {
        let mut names = BTreeSet::new();
        if self.key_columns > self.columns.len() {
            return Some("the key has no more columns than the table");
        }
        if self.columns.iter().any(|column| column.name.is_empty()) {
            return Some("each column has a name");
        }
        if !self.columns.iter().all(|column| names.insert(&column.name)) {
            return Some("no two columns have one name");
        }
        (self.encoded_len() > DESCRIPTION_MAX).then_some("its columns take at most 2,894 bytes")
    }

    /// The columns, those of the key first.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// How many of the columns make the key.
    pub fn key_columns(&self) -> usize {
        self.key_columns
    }

    fn encoded_len(&self) -> usize {
        let len = |column: &Column| COLUMN_HEAD + column.name.len() + column.type_name.len();
        HEAD + self.columns.iter().map(len).sum::<usize>()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, 0];
        bytes.extend_from_slice(&(self.columns.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&(self.key_columns as u16).to_le_bytes());
        for Column { name, type_name, is_nullable } in &self.columns {
            bytes.push(if *is_nullable { NULLABLE } else { 0 });
            bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
            bytes.extend_from_slice(&(type_name.len() as u16).to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(type_name.as_bytes());
        }
        bytes
    }

    /// Decodes a schema (H2).
    pub(crate) fn decode(bytes: &[u8]) -> Option<Schema> {
        let (head, mut rest) = bytes.split_first_chunk::<HEAD>()?;
        let u16_at = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
        if head[0] != VERSION || head[1] != 0 {
            return None;
        }
        let mut columns = Vec::new();
        for _ in 0..u16_at(COLUMNS_AT) {
            let (column, after) = decode_column(rest)?;
            columns.push(column);
            rest = after;
        }
        let schema = Schema { columns, key_columns: u16_at(KEY_COLUMNS_AT) };
        (rest.is_empty() && schema.flaw().is_none()).then_some(schema)
    }
}

/// The column that `bytes` begin with, and the rest of them.
fn decode_column(bytes: &[u8]) -> Option<(Column, &[u8])> {
    let ([flags, a, b, c, d], rest) = bytes.split_first_chunk::<COLUMN_HEAD>()?;
    let is_nullable = match *flags {
        0 => false,
        NULLABLE => true,
        _ => return None,
    };
    let (name, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([*a, *b])))?;
    let (type_name, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([*c, *d])))?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    Some((Column { name: text(name)?, type_name: text(type_name)?, is_nullable }, rest))
}

impl fmt::Display for Schema {
    /// `(id BIGINT; name TEXT, age TINYINT?)`: the key's columns end with a semicolon, the
    /// types of columns that may be null with a question mark.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        for (index, column) in self.columns.iter().enumerate() {
            f.write_str(match index {
                0 => "",
                _ if index == self.key_columns => "; ",
                _ => ", ",
            })?;
            let mark = if column.is_nullable { "?" } else { "" };
            let (name, type_name) = (column.name.escape_debug(), column.type_name.escape_debug());
            write!(f, "{name} {type_name}{mark}")?;
        }
        f.write_str(")")
    }
}

/// What a table is made with when only the running program knows its types: their names, and
/// optionally a schema.
///
/// # Examples
///
/// ```
/// use terrace::{TableDef, TableSpec};
///
/// # let db = terrace::doc_test::database();
/// db.write(|txn| {
///     // Made without types at hand, and opened with them.
///     let spec = TableSpec::new("u16", "str")?;
///     txn.open_raw_with("names", &spec)?.insert(&[0, 7], b"seven")?;
///     let names = txn.open_table(TableDef::<u16, &str>::new("names"))?;
///     assert_eq!(names.get(7)?.expect("just inserted").value(), "seven");
///     Ok::<_, terrace::Error>(())
/// })?;
/// # Ok::<(), terrace::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSpec {
    types: String,
    schema: Option<Schema>,
}

impl TableSpec {
    /// A table whose types have these names: those of [`Key::type_name`] and [`Value::type_name`]
    /// if it is to be opened with types, or any others.
    ///
    /// # Errors
    ///
    /// `InvalidOption` if a name has a zero byte, or both have more than 2,899 bytes.
    pub fn new(key_type: &str, value_type: &str) -> Result<TableSpec, Error> {
        let invalid = |what| Err(Error::InvalidOption { option: "types", what });
        if key_type.contains('\0') || value_type.contains('\0') {
            return invalid("names of types have no zero byte");
        }
        if key_type.len() + value_type.len() >= DESCRIPTION_MAX {
            return invalid("the names of a table's types take at most 2,899 bytes");
        }
        Ok(TableSpec { types: type_names_of(key_type, value_type), schema: None })
    }

    /// A table of bytes: of keys and values of the type `&[u8]`.
    pub fn bytes() -> TableSpec {
        TableSpec::of::<&'static [u8], &'static [u8]>()
    }

    /// A table with keys and values of these types.
    pub fn of<K: Key, V: Value>() -> TableSpec {
        TableSpec { types: type_names::<K, V>(), schema: None }
    }

    /// The same with a schema.
    #[must_use]
    pub fn schema(self, schema: Schema) -> TableSpec {
        TableSpec { schema: Some(schema), ..self }
    }

    /// What the catalog is asked for.
    pub(crate) fn asked(&self) -> Result<Asked<'_>, Error> {
        Asked { types: Some(&self.types), schema: self.schema.as_ref() }.checked()
    }
}

/// The names of the types of a table, as the catalog keeps them.
pub(crate) fn type_names<K: Key, V: Value>() -> String {
    type_names_of(&K::type_name(), &V::type_name())
}

/// The names of two types, as the catalog keeps them.
pub(crate) fn type_names_of(key_type: &str, value_type: &str) -> String {
    format!("{key_type}\0{value_type}")
}

/// What the opener of a table asks of it, and what it is made with if there is none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// The names of its types; `None` for any.
    pub(crate) types: Option<&'a str>,
    /// Its schema; `None` for any, or for none if it is made.
    pub(crate) schema: Option<&'a Schema>,
}

impl<'a> Asked<'a> {
    /// Any table.
    pub(crate) const ANY: Asked<'static> = Asked { types: None, schema: None };

    /// The same, if a table can be made of it (H3).
    ///
    /// # Errors
    ///
    /// `InvalidOption`.
    pub(crate) fn checked(self) -> Result<Asked<'a>, Error> {
        let types = self.types.map_or(0, str::len);
        match self.schema {
            Some(schema) if types + schema.encoded_len() > DESCRIPTION_MAX => {
                let what = "with the names of the types it takes at most 2,900 bytes";
                Err(Error::InvalidOption { option: "schema", what })
            }
            _ => Ok(self),
        }
    }
}

/// What the catalog says of a table.
///
/// # Examples
///
/// ```
/// # use terrace::TableDef;
/// # let db = terrace::doc_test::database();
/// const STOCK: TableDef<&str, u32> = TableDef::new("stock");
/// db.write(|txn| txn.open_table(STOCK).map(drop))?;
/// for table in db.tables()? {
///     assert_eq!((&*table.name, &*table.key_type, &*table.value_type), ("stock", "str", "u32"));
///     assert_eq!(table.schema, None);
/// }
/// # Ok::<(), terrace::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableInfo {
    /// Its name.
    pub name: String,
    /// The name of its keys' type; empty in what is left of a damaged database if it was lost.
    pub key_type: String,
    /// The name of its values' type.
    pub value_type: String,
    /// Its schema, if it was made with one.
    pub schema: Option<Schema>,
    /// What of types and schema is damaged: [`Error::DamagedSchema`] says more.
    pub damage: Option<&'static str>,
}

impl TableInfo {
    /// Of a table with these names of types in the catalog.
    pub(crate) fn new(name: &str, types: &str) -> TableInfo {
        let (key_type, value_type) = types.split_once('\0').unwrap_or((types, ""));
        let [name, key_type, value_type] = [name, key_type, value_type].map(str::to_string);
        TableInfo { name, key_type, value_type, schema: None, damage: None }
    }
}

#[cfg(test)]
mod tests {
    use terrace_rt::Prng;

    use super::*;

    fn column(name: &str, type_name: &str, is_nullable: bool) -> Column {
        Column { name: name.into(), type_name: type_name.into(), is_nullable }
    }

    fn random(prng: &mut Prng) -> Schema {
        let columns: Vec<Column> = (0..prng.below(9))
            .map(|at| {
                let name = format!("{at}{}", "ä".repeat(prng.below(9) as usize));
                column(&name, ["", "INT", "TEXT"][prng.below(3) as usize], prng.chance(2))
            })
            .collect();
        let key_columns = prng.below(1 + columns.len() as u64) as usize;
        Schema::new(columns, key_columns).expect("sound")
    }

    #[test]
    fn schemas_come_back() {
        let mut prng = Prng::from_seed(1);
        for _ in 0..500 {
            let schema = random(&mut prng);
            assert_eq!(schema.encode().len(), schema.encoded_len());
            assert_eq!(Schema::decode(&schema.encode()), Some(schema));
        }
    }

    #[test]
    fn no_bytes_make_it_panic_and_none_are_believed_that_say_something_else() {
        let mut prng = Prng::from_seed(2);
        let mut believed = 0;
        for _ in 0..20_000 {
            let mut bytes = random(&mut prng).encode();
            for _ in 0..=prng.below(2) {
                let at = prng.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << prng.below(8);
            }
            bytes.truncate(prng.below(2 * bytes.len() as u64) as usize);
            if let Some(schema) = Schema::decode(&bytes) {
                assert_eq!(schema.encode(), bytes);
                believed += 1;
            }
        }
        assert!(believed > 100, "{believed} decoded");
    }

    #[test]
    fn schemas_that_make_no_sense_are_refused() {
        let refused = |columns: Vec<Column>, key_columns| match Schema::new(columns, key_columns) {
            Err(Error::InvalidOption { option: "schema", what }) => what,
            other => panic!("{other:?}"),
        };
        let a = || column("a", "INT", false);
        assert!(refused(vec![a()], 2).starts_with("the key"));
        assert!(refused(vec![a(), column("", "INT", false)], 1).starts_with("each"));
        assert!(refused(vec![a(), column("a", "TEXT", true)], 1).starts_with("no two"));
        let long = (0..1_000).map(|at| column(&at.to_string(), "INT", false)).collect();
        assert!(refused(long, 1).ends_with("2,894 bytes"));
        assert!(Schema::new(Vec::new(), 0).is_ok());
    }

    #[test]
    fn names_of_types_and_a_schema_fit_together_or_are_refused() {
        assert!(TableSpec::new("a\0", "b").is_err());
        assert!(TableSpec::new("", &"b".repeat(2_900)).is_err());
        let long = TableSpec::new("", &"b".repeat(2_899)).expect("just fits");
        assert_eq!(long.asked().expect("just fits").types.map(str::len), Some(DESCRIPTION_MAX));
        let schema = Schema::new(vec![column("a", "INT", false)], 1).expect("sound");
        assert!(long.schema(schema.clone()).asked().is_err());
        assert!(TableSpec::of::<u64, u64>().schema(schema).asked().is_ok());
    }

    #[test]
    fn a_schema_is_shown_on_one_line() {
        let columns = vec![column("id", "BIGINT", false), column("a\nb", "TEXT", true)];
        let schema = Schema::new(columns, 1).expect("sound");
        assert_eq!(schema.to_string(), "(id BIGINT; a\\nb TEXT?)");
    }
}
