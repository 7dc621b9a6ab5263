//! Saving a database as one stream of bytes, and making one from it.
//!
//! - `format`: the bytes of a dump.
//! - `source`: a database to be saved, recovered in memory or as it is.
//! - `loading`: tables made of raw rows.
//! - `loss`: what could not be saved.
//!
//! Tables are known here by names and types that are found at run time, and rows as raw bytes.

mod format;
mod loading;
mod loss;
mod source;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use terrace_page::PageId;

pub use self::format::{DumpError, Event, Reader, State, Writer};
pub use self::loading::{LoadError, Loaded, load};
pub use self::loss::Loss;
use self::source::Source;
use crate::btree::{Flaw, Sink, Tree};
use crate::catalog::{self, Entry, Key};
use crate::recovery::NotUndone;
use crate::{Builder, Error, TableInfo, TreeId};

pub(crate) use self::format::fuzz;
pub(crate) use self::loading::TableLoad;

/// What a dump consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dumped {
    /// Tables.
    pub tables: u64,
    /// Rows in them.
    pub rows: u64,
    /// Losses that were reported.
    pub losses: u64,
}

/// Why a dump could not be written.
#[derive(Debug)]
pub enum SaveError {
    /// The output failed.
    Output(io::Error),
    /// There is no table of this name.
    NoSuchTable(String),
    /// Something is lost, which was reported, and salvage was not asked for. What was written is no
    /// whole dump.
    Lost,
}

/// A database that can be dumped, whole or damaged.
pub struct Saved {
    source: Source,
    wanted: Wanted,
    tables: BTreeMap<String, (TableInfo, Tree)>,
    losses: Vec<Loss>,
}

/// What the caller of a dump is content with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// All of the database.
    Whole,
    /// What is left of it.
    Salvage,
}

/// Takes the rows of the catalog.
#[derive(Default)]
struct Names {
    entries: Vec<(Vec<u8>, Vec<u8>)>,
    flaws: Vec<Flaw>,
}

impl Sink for Names {
    fn row(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.entries.push((key.to_vec(), value.to_vec()));
        Ok(())
    }

    fn flaw(&mut self, flaw: Flaw) {
        self.flaws.push(flaw);
    }
}

/// Takes the rows of a table.
struct Rows<'a, 'w, W: Write> {
    name: &'a str,
    writer: &'w mut Writer<W>,
    told: &'w mut dyn FnMut(&Loss),
    dumped: &'w mut Dumped,
    state: State,
}

impl<W: Write> Sink for Rows<'_, '_, W> {
    fn row(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.dumped.rows += 1;
        self.writer.row(key, value)
    }

    fn flaw(&mut self, flaw: Flaw) {
        if !matches!(flaw, Flaw::Node { .. }) {
            self.state = State::Partial;
        }
        self.dumped.losses += 1;
        (self.told)(&Loss::InTable { table: self.name.to_string(), flaw });
    }
}

impl Saved {
    /// Opens the database at `path` to be saved as a whole: `builder` says where its log and its
    /// flash are. Nothing of it is changed.
    ///
    /// # Errors
    ///
    /// Those of [`Builder::open`].
    pub fn open(builder: Builder, path: impl AsRef<Path>) -> Result<Saved, Error> {
        Ok(Saved::of(Source::open(builder, path.as_ref())?, Wanted::Whole))
    }

    /// Opens what is left of the database at `path`. Nothing of it is changed. If transactions that
    /// a crash cut off cannot be rolled back, their changes are left out as rows are read; if the
    /// database cannot be recovered at all, what its home has is saved, as it is.
    ///
    /// # Errors
    ///
    /// Those of [`Builder::open`], if there is nothing to be saved, or it is in use.
    pub fn salvage(builder: Builder, path: impl AsRef<Path>) -> Result<Saved, Error> {
        Ok(Saved::of(Source::salvage(builder, path.as_ref())?, Wanted::Salvage))
    }

    /// Opens the database at `path` as [`Saved::salvage`] does where nothing can be rolled back.
    ///
    /// # Errors
    ///
    /// Those of [`Builder::open`].
    pub fn with_losers(builder: Builder, path: impl AsRef<Path>) -> Result<Saved, Error> {
        let database = builder.open_with_losers(path.as_ref())?;
        Ok(Saved::of(Source::with_losers(database, Error::STOPPED), Wanted::Salvage))
    }

    fn of(mut source: Source, wanted: Wanted) -> Saved {
        let mut losses = Vec::new();
        losses.extend(source.unrecovered.take().map(Loss::Unrecovered));
        let mut names = Names::default();
        source.catalog().salvage(source.not_undone(), &mut names).expect("memory takes it");
        let mut saved = Saved { source, wanted, tables: BTreeMap::new(), losses };
        let mut known = vec![crate::trees::CATALOG];
        let mut is_whole = names.flaws.is_empty();
        saved.losses.extend(names.flaws.into_iter().map(Loss::InCatalog));
        for (key, value) in names.entries {
            match saved.add(&key, &value) {
                Ok(tree) => known.push(tree),
                Err(what) => {
                    is_whole = false;
                    saved.losses.push(Loss::Entry { key, what });
                }
            }
        }
        if !is_whole {
            saved.add_nameless(&known);
        }
        saved
    }

    /// What the dump leaves out without a loss: changes of transactions that had not ended, and
    /// could not be rolled back.
    pub fn not_undone(&self) -> Option<String> {
        let (not_undone, why) = self.source.not_undone.as_ref()?;
        let names: Vec<_> = not_undone.transactions().iter().map(|txn| txn.0.to_string()).collect();
        Some(format!(
            "transactions that had not ended cannot be rolled back ({why}): {}; the {} rows that \
             they changed are saved as they were before",
            names.join(", "),
            not_undone.rows(),
        ))
    }

    /// Adds what an entry of the catalog names, and returns its tree.
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<TreeId, &'static str> {
        let key = catalog::decode_key(key)?;
        let entry = Entry::decode(key, value, self.source.home_pages)?;
        let Key::Table(name) = key else { return Ok(entry.tree) };
        let info = entry.info(name);
        let tree = self.source.tree(entry.tree, entry.header);
        self.tables.insert(info.name.clone(), (info, tree));
        Ok(entry.tree)
    }

    /// Adds the trees that own pages and that the catalog, which is damaged, does not name.
    fn add_nameless(&mut self, known: &[TreeId]) {
        let owners = self.source.owners();
        for (id, header) in owners.into_iter().filter(|(id, _)| !known.contains(id)) {
            let mut name = format!("lost table {}", id.0);
            // One of this name may have been saved before, and loaded.
            while self.tables.contains_key(&name) {
                name.push_str(" (again)");
            }
            let info = TableInfo { name: name.clone(), ..TableInfo::default() };
            let tree = self.source.tree(id, header);
            self.losses.push(Loss::Name { table: name.clone(), header });
            self.tables.insert(name, (info, tree));
        }
    }

    /// The tables, in the order of their names.
    pub fn tables(&self) -> impl Iterator<Item = &TableInfo> {
        self.tables.values().map(|(info, _)| info)
    }

    /// What is lost of the database as a whole.
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// Pages that are in use, and cannot be read.
    pub fn damaged_pages(&self) -> Vec<PageId> {
        self.source.damaged_pages()
    }

    /// Counts the rows of all tables, and tells what of them is lost.
    pub fn count(&self, told: &mut dyn FnMut(&Loss)) -> Dumped {
        let (dumped, _) = self.dump(&[], io::sink(), told).expect("nothing is written");
        dumped
    }

    /// Writes a dump of the tables named, or of all, and reports what is lost. What is lost of the
    /// database as a whole counts, and is not reported again.
    ///
    /// # Errors
    ///
    /// `NoSuchTable` before anything is written; `Output`; `Lost`.
    pub fn dump<W: Write>(
        &self,
        only: &[String],
        out: W,
        told: &mut dyn FnMut(&Loss),
    ) -> Result<(Dumped, State), SaveError> {
        if let Some(missing) = only.iter().find(|name| !self.tables.contains_key(*name)) {
            return Err(SaveError::NoSuchTable(missing.clone()));
        }
        let mut dumped = Dumped { losses: self.losses.len() as u64, ..Dumped::default() };
        let mut state = if self.losses.is_empty() { State::Whole } else { State::Partial };
        let is_enough = |state| state == State::Whole || self.wanted == Wanted::Salvage;
        if !is_enough(state) {
            return Err(SaveError::Lost);
        }
        let mut writer = Writer::new(out).map_err(SaveError::Output)?;
        let wanted = |info: &TableInfo| only.is_empty() || only.contains(&info.name);
        for (info, tree) in self.tables.values().filter(|(info, _)| wanted(info)) {
            let not_undone = self.source.not_undone();
            let of_table = save_table((info, tree), not_undone, &mut writer, told, &mut dumped);
            if of_table.map_err(SaveError::Output)? == State::Partial {
                state = State::Partial;
            }
            if !is_enough(state) {
                return Err(SaveError::Lost);
            }
        }
        writer.finish(state).map_err(SaveError::Output)?;
        Ok((dumped, state))
    }
}

fn save_table<W: Write>(
    (info, tree): (&TableInfo, &Tree),
    not_undone: Option<&NotUndone>,
    writer: &mut Writer<W>,
    told: &mut dyn FnMut(&Loss),
    dumped: &mut Dumped,
) -> io::Result<State> {
    dumped.tables += 1;
    writer.table(info)?;
    let mut rows = Rows { name: &info.name, writer, told, dumped, state: State::Whole };
    if let Some(what) = info.damage {
        rows.state = State::Partial;
        rows.dumped.losses += 1;
        (rows.told)(&Loss::Schema { table: info.name.clone(), what });
    }
    if tree.is_unfinished() {
        let what = "the table was not loaded to its end";
        let page = PageId(tree.header().0);
        rows.flaw(Flaw::Keys { lower: Vec::new(), upper: None, page, what });
    } else {
        tree.salvage(not_undone, &mut rows)?;
    }
    let state = rows.state;
    writer.end_table(state)?;
    Ok(state)
}
