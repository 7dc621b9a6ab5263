//! The trees of a database: the catalog, and the tables that it names.
//!
//! ```text
//!           alone                    alone                   in the transaction
//!   nothing -----> 'D', no pages yet -----> 'D', empty tree <=================> 'T' name
//!      ^                 |                      |       |                         |
//!      |                 |                      |       +== makes: 'T' then no 'D' +
//!      |                 |                      |          drops: 'D' then no 'T'
//!      |                 |                      |          renames: drops, then makes
//!      +-----------------+----------------------+
//!        the reclaim task, once no transaction that is open names the tree
//! ```
//!
//! - N1: a tree's pages are made, and freed, by transactions of their own, which take no locks,
//!   commit at once and touch no name. Meanwhile it is garbage: 'D' has its number before it has a
//!   page.
//! - N2: all changes of names belong to the transaction that asks for them, and to its undo: it
//!   makes a table by 'T' and the end of 'D', and drops one by 'D' and the end of 'T'. A new name
//!   is a drop and a making. So at any moment, and after any undo, a tree has an entry: what is not
//!   named when a transaction ends is garbage, whatever became of it on the way.
//! - N3: a name is made, and dropped, under its lock, Exclusive, which is kept until the
//!   transaction ends; so is the lock of the tree's 'D'. The names as a whole are locked like a
//!   table. So `names` in memory is what the lock's holder may see. A transaction that drops a
//!   table also holds all of it Exclusive: so a table opened before is found again without its
//!   name, by a lock of the table (`opened`).
//! - N4: `by_id` has every tree that any undo may name. A tree leaves it when the reclaim task
//!   begins to free it.
//! - N5: the reclaim task learns of a tree only from the transaction that made or dropped it, after
//!   its end, or from the opening: it never meets a 'D' that may still be undone.
//! - N6: a load writes pages that no undo takes back. It is made only into a tree that its
//!   transaction made, and is freed as a whole with it.

mod compaction;
mod garbage;
mod seen;
mod tables;

pub(crate) use tables::Age;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use terrace_device::Device;
use terrace_page::{Damage, PageId, PageKind, TxnId, kind};
use terrace_pool::{BufferPool, Recovered};
use terrace_rt::LeafMutex;

use crate::api::TableStats;
use crate::btree::{Batch, Direction, Scan, Tree};
use crate::catalog::{self, Damaged, Entry, Key, garbage_key, table_key};
use crate::counts::Counts;
use crate::opened::Described;
use crate::schema::{Asked, Schema, TableInfo};
use crate::space::{EXTENT_PAGES, Space};
use crate::superblock::Creation;
use crate::writer::{Reader, Step, Undo};
use crate::{Error, LockMode, LockOutcome, LockRequest, Part, TreeId, TypeNames};

/// The catalog.
pub(crate) const CATALOG: TreeId = TreeId(0);
/// Where its header is.
pub(crate) const CATALOG_HEADER: PageId = PageId(EXTENT_PAGES);
/// The first allocation map.
const FIRST_MAP: PageId = PageId(2);
const BATCH: usize = 64;

/// A table that is live.
#[derive(Clone)]
struct OpenTable {
    tree: Tree,
    types: Arc<str>,
    schema: Option<Arc<Schema>>,
    damaged: Option<Arc<Damaged>>,
}

impl OpenTable {
    fn entry(&self) -> Entry {
        let garbage = Entry::garbage(self.tree.id(), self.tree.header());
        let (types, schema) = (Arc::clone(&self.types), self.schema.clone());
        Entry { types, schema, damaged: self.damaged.clone(), ..garbage }
    }

    fn described(&self) -> Described {
        Described { types: Arc::clone(&self.types), schema: self.schema.clone() }
    }

    fn info(&self, name: &str) -> TableInfo {
        self.entry().info(name)
    }
}

/// The trees of a database.
pub(crate) struct Trees {
    pool: Arc<BufferPool>,
    pub(crate) space: Arc<Space>,
    catalog: Tree,
    names: LeafMutex<BTreeMap<String, OpenTable>>,
    /// Another after each change of `names`.
    version: AtomicU64,
    by_id: LeafMutex<BTreeMap<TreeId, Tree>>,
    next: AtomicU32,
    home_pages: u64,
    /// Trees that were dropped, and by which transaction: snapshots may still read them.
    dropped: LeafMutex<BTreeMap<TreeId, TxnId>>,
}

/// Reads without locks: no other transaction runs, or what is read is locked otherwise.
struct Unlocked;

impl Reader for Unlocked {
    fn try_lock(&mut self, _request: LockRequest) -> Result<LockOutcome, Error> {
        Ok(LockOutcome::Granted)
    }

    fn covers(&self, _: TreeId, _: LockMode) -> bool {
        true
    }
}

fn done<T>(step: Step<T>) -> T {
    match step {
        Step::Done(value) => value,
        Step::Wait(request) => unreachable!("nobody is asked for {request:?}"),
    }
}

fn corrupt(what: &'static str) -> Error {
    Error::corrupt(Part::Home, CATALOG_HEADER, what)
}

/// A count of rows as users get it.
///
/// # Errors
///
/// `Corrupt` if it is below zero.
pub(crate) fn told(rows: i64) -> Result<u64, Error> {
    u64::try_from(rows).map_err(|_| corrupt("a table's count of rows is below zero"))
}

/// # Errors
///
/// `TableTypes` or `TableSchema` if a table has others than it is opened with; `DamagedSchema`.
fn check_asked(table: &OpenTable, asked: Asked<'_>) -> Result<(), Error> {
    let id = table.tree.id();
    if let Some(types) = asked.types.filter(|types| **types != *table.types) {
        let (stored, asked) = (TypeNames::decode(&table.types), TypeNames::decode(types));
        return Err(Error::TableTypes { table: id.into(), stored, asked });
    }
    match (asked.schema, &table.damaged) {
        (Some(_), Some(damaged)) => {
            Err(Error::DamagedSchema { table: id.into(), what: damaged.what })
        }
        (Some(schema), _) if table.schema.as_deref() != Some(schema) => {
            let stored = Box::new(table.schema.as_deref().cloned());
            Err(Error::TableSchema { table: id.into(), stored, asked: Box::new(schema.clone()) })
        }
        _ => Ok(()),
    }
}

impl Trees {
    /// The trees of a home of `home_pages`, of which only the catalog is known yet.
    pub(crate) fn new(pool: &Arc<BufferPool>, home: &Arc<dyn Device>, home_pages: u64) -> Trees {
        let space = Arc::new(Space::new(Arc::clone(pool), Arc::clone(home), home_pages));
        let catalog = Tree::open(CATALOG, CATALOG_HEADER, Arc::clone(pool), Arc::clone(&space));
        Trees {
            pool: Arc::clone(pool),
            space,
            by_id: LeafMutex::new(BTreeMap::from([(CATALOG, catalog.clone())])),
            catalog,
            names: LeafMutex::new(BTreeMap::new()),
            version: AtomicU64::new(1),
            next: AtomicU32::new(CATALOG.0 + 1),
            home_pages,
            dropped: LeafMutex::new(BTreeMap::new()),
        }
    }

    /// Has home promise room for `pages`, in ascending order, which redo will write.
    ///
    /// # Errors
    ///
    /// `HomeFull`, `Device`.
    pub(crate) fn promise_pages(&self, pages: impl Iterator<Item = PageId>) -> Result<(), Error> {
        self.space.room.promise_pages(pages)
    }

    /// Reads the catalog, after redo: structures are whole, transactions not yet undone. Returns
    /// the trees that are garbage.
    ///
    /// # Errors
    ///
    /// `Corrupt`, those of the pool.
    pub(crate) fn load(&self, creation: Creation) -> Result<Vec<TreeId>, Error> {
        if creation == Creation::Begun && !self.has_catalog()? {
            return Ok(Vec::new());
        }
        self.space.check_maps()?;
        self.catalog.check()?;
        self.names.lock().clear();
        self.version.fetch_add(1, Ordering::Release);
        let mut scan =
            Scan::new(Bound::Unbounded, Bound::Unbounded, Direction::Forward, LockMode::Shared);
        let mut batch = Batch::default();
        let mut garbage = Vec::new();
        let mut headers = BTreeSet::new();
        loop {
            done(scan.next_batch(&self.catalog, &mut Unlocked, BATCH, &mut batch)?);
            if batch.len() == 0 {
                return Ok(garbage);
            }
            for (key, value) in batch.entries() {
                let key = catalog::decode_key(key).map_err(corrupt)?;
                let entry = Entry::decode(key, value, self.home_pages).map_err(corrupt)?;
                self.next.fetch_max(entry.tree.0 + 1, Ordering::Relaxed);
                let table = self.open_table(&entry);
                if entry.header != PageId(0) {
                    self.by_id.lock().insert(entry.tree, table.tree.clone());
                }
                match key {
                    Key::Garbage(tree) => garbage.push(tree),
                    Key::Table(_) if !headers.insert(entry.header) => {
                        return Err(corrupt("two tables of the catalog have one tree"));
                    }
                    Key::Table(name) => self.name(name, Some(table)),
                }
            }
        }
    }

    fn open_table(&self, entry: &Entry) -> OpenTable {
        let (pool, space) = (Arc::clone(&self.pool), Arc::clone(&self.space));
        let tree = Tree::open(entry.tree, entry.header, pool, space);
        let Entry { types, schema, damaged, .. } = entry.clone();
        OpenTable { tree, types, schema, damaged }
    }

    /// Gives `name` to a table, or to none.
    fn name(&self, name: &str, table: Option<OpenTable>) {
        let mut names = self.names.lock();
        match table {
            Some(table) => names.insert(name.to_string(), table),
            None => names.remove(name),
        };
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Whether the catalog's pages are there. Before the undo they may belong to a creation that
    /// never ended; then it is empty.
    fn has_catalog(&self) -> Result<bool, Error> {
        Ok(self.has_map()? && !self.space.extents_of(CATALOG)?.is_empty() && {
            match self.pool.read_damaged_ok(CATALOG_HEADER)? {
                Recovered::Whole(page) => kind(&page) == Some(PageKind::Tree),
                Recovered::Damaged(..) => false,
            }
        })
    }

    fn has_map(&self) -> Result<bool, Error> {
        match self.pool.read_damaged_ok(FIRST_MAP)? {
            Recovered::Whole(page) => Ok(kind(&page) == Some(PageKind::Map)),
            Recovered::Damaged(_, _, Damage::Blank) => Ok(false),
            Recovered::Damaged(_, tier, _) => {
                let what = "the first allocation map is damaged";
                Err(Error::corrupt(tier.into(), FIRST_MAP, what))
            }
        }
    }

    fn lookup(&self, key: &[u8]) -> Result<Option<Entry>, Error> {
        let mut reader = Unlocked;
        let found = self.catalog.get(&mut reader, key, LockMode::Shared, <[u8]>::to_vec)?;
        let key = catalog::decode_key(key).map_err(corrupt)?;
        let decode = |value: Vec<u8>| Entry::decode(key, &value, self.home_pages).map_err(corrupt);
        done(found).map(decode).transpose()
    }

    /// The name of a tree, if it has one.
    pub(crate) fn name_of(&self, tree: TreeId) -> Option<String> {
        let names = self.names.lock();
        let mut named = names.iter().filter(|(_, table)| table.tree.id() == tree);
        named.next().map(|(name, _)| name.clone())
    }

    /// The name of a table that has one, and the name of the type of its keys.
    pub(crate) fn described(&self, tree: TreeId) -> Option<(String, String)> {
        let names = self.names.lock();
        let (name, table) = names.iter().find(|(_, table)| table.tree.id() == tree)?;
        Some((name.clone(), TypeNames::decode(&table.types).key))
    }

    /// The number of the next tree to be made.
    pub(crate) fn next_number(&self) -> u32 {
        self.next.load(Ordering::SeqCst)
    }

    /// The trees that there are, but for the catalog.
    pub(crate) fn numbers(&self) -> BTreeSet<TreeId> {
        self.by_id.lock().keys().copied().filter(|tree| *tree != CATALOG).collect()
    }

    /// Whether there is such a tree.
    pub(crate) fn has(&self, tree: TreeId) -> bool {
        tree == CATALOG || self.by_id.lock().contains_key(&tree)
    }

    /// Changes with `names`.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn live(&self, name: &str, asked: Asked<'_>) -> Result<Option<OpenTable>, Error> {
        let names = self.names.lock();
        match names.get(name) {
            None => Ok(None),
            Some(table) => check_asked(table, asked).map(|()| Some(table.clone())),
        }
    }

    /// Which of `trees` have no name: asked by the transaction that made or dropped them, before
    /// its locks go.
    pub(crate) fn nameless(&self, trees: &[TreeId]) -> Vec<TreeId> {
        if trees.is_empty() {
            return Vec::new();
        }
        let names = self.names.lock();
        let named: BTreeSet<TreeId> = names.values().map(|table| table.tree.id()).collect();
        trees.iter().copied().filter(|tree| !named.contains(tree)).collect()
    }

    /// The transaction `txn`, which ends, leaves `trees` without a name.
    pub(crate) fn dropped_by(&self, trees: &[TreeId], txn: TxnId) {
        if !trees.is_empty() {
            self.dropped.lock().extend(trees.iter().map(|tree| (*tree, txn)));
        }
    }

    /// Reads the entries of `names` again, after their changes were undone.
    ///
    /// # Errors
    ///
    /// Those of the pool.
    pub(crate) fn reload(&self, names: &[String]) -> Result<(), Error> {
        for name in names {
            let entry = self.lookup(&table_key(name))?;
            self.name(name, entry.map(|entry| self.open_table(&entry)));
        }
        Ok(())
    }

    fn find(&self, tree: TreeId) -> Option<Tree> {
        self.by_id.lock().get(&tree).cloned()
    }

    /// The tree that a rollback changes by `undo`, if it changes one.
    ///
    /// # Errors
    ///
    /// `Corrupt` if there is none of its number.
    pub(crate) fn undone_in(&self, undo: &Undo<'_>) -> Result<Option<Tree>, Error> {
        let (Undo::Insert { tree, .. } | Undo::Delete { tree, .. } | Undo::Update { tree, .. }) =
            *undo
        else {
            return Ok(None);
        };
        let missing = || corrupt("an undo names a tree that is not there");
        self.find(tree).map(Some).ok_or_else(missing)
    }

    /// Pages in use, in bytes; zero where a map cannot be read.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.space.used().map_or(0, |(_, pages)| pages) * terrace_page::PAGE_SIZE as u64
    }

    /// The tables that there are now, and the bytes of the pages that each uses.
    ///
    /// # Errors
    ///
    /// Those of the pool.
    pub(crate) fn table_bytes(&self) -> Result<BTreeMap<String, u64>, Error> {
        let used = self.space.used_by_owner()?;
        let pages = |tree: &Tree| used.get(&tree.id()).copied().unwrap_or_default();
        let names = self.names.lock();
        let bytes = |table: &Tree| pages(table) * terrace_page::PAGE_SIZE as u64;
        Ok(names.iter().map(|(name, table)| (name.clone(), bytes(&table.tree))).collect())
    }

    /// What the tables that there are now take.
    ///
    /// # Errors
    ///
    /// Those of the pool, `Corrupt`.
    pub(crate) fn table_stats(
        &self,
        counts: &Counts,
    ) -> Result<BTreeMap<String, TableStats>, Error> {
        let used = self.space.used_by_owner()?;
        let trees: Vec<(String, Tree)> = {
            let names = self.names.lock();
            names.iter().map(|(name, table)| (name.clone(), table.tree.clone())).collect()
        };
        let rows = counts.rows_now();
        let mut stats = BTreeMap::new();
        for (name, tree) in trees {
            let depth = match tree.depth() {
                Ok(depth) => depth,
                // It was dropped meanwhile, and its pages are gone.
                Err(_) if self.name_of(tree.id()).is_none() => continue,
                Err(error) => return Err(error),
            };
            let pages = used.get(&tree.id()).copied().unwrap_or_default();
            let rows = rows.get(&tree.id()).map(|rows| told(*rows)).transpose()?;
            let bytes = pages * terrace_page::PAGE_SIZE as u64;
            stats.insert(name, TableStats { rows, pages, bytes, depth });
        }
        Ok(stats)
    }

    /// The catalog and the tables: not what waits to be freed, of which a part may be gone.
    fn all(&self) -> Vec<Tree> {
        let names = self.names.lock();
        let mut all = vec![self.catalog.clone()];
        all.extend(names.values().map(|table| table.tree.clone()));
        all
    }

    /// The types and the schema of every table are as they were stored (catalog.E2).
    fn check_descriptions(&self) -> Result<(), Error> {
        let names = self.names.lock();
        let damaged = |table: &OpenTable| Some((table.tree.id(), table.damaged.as_ref()?.what));
        match names.values().find_map(damaged) {
            Some((tree, what)) => Err(Error::DamagedSchema { table: tree.into(), what }),
            None => Ok(()),
        }
    }

    /// Every extent is free or of a tree that the catalog has, while the names are locked.
    fn check_owners(&self) -> Result<(), Error> {
        let named: BTreeSet<TreeId> = self.all().iter().map(Tree::id).collect();
        for tree in self.space.used()?.0.difference(&named) {
            // It may have been freed meanwhile.
            let is_garbage = self.lookup(&garbage_key(*tree))?.is_some();
            if !is_garbage && self.space.used()?.0.contains(tree) {
                return Err(Error::corrupt(
                    Part::Home,
                    FIRST_MAP,
                    "an extent belongs to a tree that the catalog does not have",
                ));
            }
        }
        Ok(())
    }
}
