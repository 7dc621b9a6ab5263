//! Tables made of raw rows: what `load` and the conversion of older formats write.

use std::fmt;
use std::io::Read;

use crate::api::{Bulk, FILL, Sealed};
use crate::dump::{DumpError, Event, Reader, State};
use crate::schema::{Asked, type_names_of};
use crate::{Database, Durability, Error, TableInfo, WriteTransaction};

/// Why a dump could not be loaded.
#[derive(Debug)]
pub enum LoadError {
    /// The dump cannot be read.
    Dump(DumpError),
    /// A table cannot be written.
    Table {
        /// Its name.
        table: String,
        /// Why.
        source: Error,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Dump(source) => source.fmt(f),
            LoadError::Table { table, source } => write!(f, "table \"{table}\": {source}"),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LoadError::Dump(source) => Some(source),
            LoadError::Table { source, .. } => Some(source),
        }
    }
}

/// What was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Tables.
    pub tables: u64,
    /// Rows in them.
    pub rows: u64,
    /// Whether the dump said that it is whole.
    pub state: State,
}

/// A table that is being filled.
pub(crate) struct TableLoad {
    name: String,
    transaction: WriteTransaction,
    bulk: Bulk,
}

impl TableLoad {
    /// Makes the table.
    ///
    /// # Errors
    ///
    /// `Table`.
    pub(crate) fn begin(database: &Database, info: &TableInfo) -> Result<TableLoad, LoadError> {
        let name = info.name.clone();
        let begin = || {
            let transaction = database.begin_write()?;
            let types = type_names_of(&info.key_type, &info.value_type);
            let asked = Asked { types: Some(&types), schema: info.schema.as_ref() }.checked()?;
            let core = transaction.core();
            let (tree, age) = core.run(|context| {
                let engine = std::sync::Arc::clone(context.engine());
                engine.trees.open_or_make(context, &info.name, asked)
            })?;
            let bulk = Bulk::begin(core, tree, age, FILL)?;
            Ok((transaction, bulk))
        };
        match begin() {
            Ok((transaction, bulk)) => Ok(TableLoad { name, transaction, bulk }),
            Err(source) => Err(LoadError::Table { table: name, source }),
        }
    }

    fn failed(&self, source: Error) -> LoadError {
        LoadError::Table { table: self.name.clone(), source }
    }

    /// Adds a row.
    ///
    /// # Errors
    ///
    /// `Table`.
    pub(crate) fn row(&mut self, key: &[u8], value: &[u8]) -> Result<(), LoadError> {
        let pushed = self.bulk.push(self.transaction.core(), key, value);
        pushed.map_err(|source| self.failed(source))
    }

    /// Commits the table.
    ///
    /// # Errors
    ///
    /// `Table`.
    pub(crate) fn finish(mut self) -> Result<(), LoadError> {
        let finished = self.bulk.finish(self.transaction.core());
        finished.map_err(|source| self.failed(source))?;
        let TableLoad { name, transaction, .. } = self;
        let committed = transaction.commit(Durability::None);
        committed.map_err(|source| LoadError::Table { table: name, source })
    }
}

/// Makes the tables of a dump in `database`, which has none of them. Durable once the database is
/// closed. After an error it has some of them: throw it away.
///
/// # Errors
///
/// `Dump`, `Table`.
pub fn load(database: &Database, input: impl Read) -> Result<Loaded, LoadError> {
    let mut reader = Reader::new(input).map_err(LoadError::Dump)?;
    let mut loaded = Loaded { tables: 0, rows: 0, state: State::Whole };
    let mut table: Option<TableLoad> = None;
    loop {
        match reader.next_event().map_err(LoadError::Dump)? {
            Event::Table(info) => {
                loaded.tables += 1;
                table = Some(TableLoad::begin(database, &info)?);
            }
            Event::Row { key, value } => {
                loaded.rows += 1;
                table.as_mut().expect("rows come in tables").row(key, value)?;
            }
            Event::TableEnd(_) => table.take().expect("a table ends once").finish()?,
            Event::End(state) => return Ok(Loaded { state, ..loaded }),
        }
    }
}
