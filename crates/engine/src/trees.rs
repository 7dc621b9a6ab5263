//! The trees of a database: the catalog, and the tables that it names.
//!
//! ```text
//! catalog: a tree whose header is the first page of the first extent for data
//! key      'T' name             'D' tree (4, big-endian)
//! value    state 1 (0 made, 1 live), tree 4, header 8, types
//! types    key type name, a zero, value type name
//! ```
//!
//! ```text
//!             made                   live (in a transaction)         dropped (in a transaction)
//!   nothing --'D'---> 'T' made -------------------------> 'T' live -------------------> 'D'
//!      ^    (alone)      ^                                   |                           |
//!      |                 +---------- rollback ---------------+                           |
//!      +------------------------- freed (alone, after the commit, or when opened) -------+
//! ```
//!
//! - N1: a tree is made, and freed, by a transaction of its own, that takes no locks and commits at
//!   once: what a rolled-back transaction made is an empty tree that nobody sees, for the next one
//!   who wants a table of that name.
//! - N2: who opens a table holds its name Shared, who makes it live or drops it Exclusive; the
//!   names as a whole are locked like a table. So `names` in memory is what the lock's holder may
//!   see. Who drops a table also holds all of it Exclusive: so a table opened before is found
//!   again without its name, by a lock of the table (`opened`).
//! - N3: a load writes pages that no undo takes back. It is made only into a tree that its
//!   transaction makes live, and a tree that is not live is emptied before it is used again.
//! - N4: `by_id` has every tree that any undo may name.
//! - N5: a tree that is being made is garbage by its number until it has its name: making its pages
//!   is not undone, and after a crash nothing else would tell that they are nobody's.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use terrace_device::Device;
use terrace_page::{Damage, PageId, PageKind, kind};
use terrace_pool::{BufferPool, Recovered};
use terrace_rt::{LeafMutex, Mutex};

use crate::api::{CheckReport, Durability};
use crate::btree::{Batch, Direction, Put, Scan, Tree};
use crate::context::{Context, Locking};
use crate::engine::Engine;
use crate::opened::Types;
use crate::reclaim::{Progress, Work};
use crate::space::{EXTENT_PAGES, Space};
use crate::writer::{Reader, Step, Undo};
use crate::{Error, KeyHash, LockMode, LockOutcome, LockRequest, Part, TreeId};

/// The catalog.
pub(crate) const CATALOG: TreeId = TreeId(0);
const CATALOG_HEADER: PageId = PageId(EXTENT_PAGES);
/// The first allocation map.
const FIRST_MAP: PageId = PageId(2);
const BATCH: usize = 64;
/// Nested actions that one piece of the reclaim task spends on large values.
const CHAIN_STEPS: u32 = 64;

const MADE: u8 = 0;
const LIVE: u8 = 1;

/// Whether a table was there before the transaction that opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// It was live.
    Old,
    /// This transaction makes it live.
    New,
}

/// A table that is live.
#[derive(Clone)]
struct OpenTable {
    tree: Tree,
    types: Arc<str>,
}

#[derive(Clone)]
struct Entry {
    state: u8,
    table: OpenTable,
}

/// The trees of a database.
pub(crate) struct Trees {
    pool: Arc<BufferPool>,
    space: Arc<Space>,
    catalog: Tree,
    names: LeafMutex<BTreeMap<String, Entry>>,
    /// Another after each change of `names`.
    version: AtomicU64,
    by_id: LeafMutex<BTreeMap<TreeId, Tree>>,
    next: AtomicU32,
    /// Held by who makes or frees a tree.
    making: Mutex<()>,
}

/// Reads without locks: nobody else is there, or what is read is locked otherwise.
struct Unlocked;

impl Reader for Unlocked {
    fn try_lock(&mut self, _request: LockRequest) -> Result<LockOutcome, Error> {
        Ok(LockOutcome::Granted)
    }

    fn inherit_gap(&mut self, _: TreeId, _: KeyHash, _: KeyHash) -> Result<(), Error> {
        Ok(())
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

fn table_key(name: &str) -> Vec<u8> {
    [b"T", name.as_bytes()].concat()
}

fn dropped_key(tree: TreeId) -> Vec<u8> {
    [&b"D"[..], &tree.0.to_be_bytes()].concat()
}

fn encode(state: u8, tree: &Tree, types: &str) -> Vec<u8> {
    let mut value = vec![state];
    value.extend_from_slice(&tree.id().0.to_le_bytes());
    value.extend_from_slice(&tree.header().0.to_le_bytes());
    value.extend_from_slice(types.as_bytes());
    value
}

fn name_lock(name: &str) -> KeyHash {
    KeyHash::of(&table_key(name))
}

fn corrupt(what: &'static str) -> Error {
    Error::Corrupt { part: Part::Home, page: CATALOG_HEADER, what }
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
            making: Mutex::new(()),
        }
    }

    /// Has home promise room for all pages up to `page`, which redo will write.
    ///
    /// # Errors
    ///
    /// `HomeFull`, `Device`.
    pub(crate) fn promise_up_to(&self, page: PageId) -> Result<(), Error> {
        self.space.room.promise(PageId(page.0 + 1))
    }

    /// Reads the catalog, after redo: structures are whole, transactions not yet undone.
    ///
    /// # Errors
    ///
    /// `Corrupt`, those of the pool.
    pub(crate) fn load(&self) -> Result<(), Error> {
        if !self.has_catalog()? {
            return Ok(());
        }
        let mut scan =
            Scan::new(Bound::Unbounded, Bound::Unbounded, Direction::Forward, LockMode::Shared);
        let mut batch = Batch::default();
        loop {
            done(scan.next_batch(&self.catalog, &mut Unlocked, BATCH, &mut batch)?);
            if batch.len() == 0 {
                return Ok(());
            }
            for (key, value) in batch.entries() {
                let entry = self.decode(value)?;
                let id = entry.table.tree.id();
                self.next.fetch_max(id.0 + 1, Ordering::Relaxed);
                self.by_id.lock().insert(id, entry.table.tree.clone());
                if let Some(name) = key.strip_prefix(b"T") {
                    let name = std::str::from_utf8(name).map_err(|_| corrupt("a table's name"))?;
                    self.name(name, Some(entry));
                }
            }
        }
    }

    /// Gives `name` to a table, or to none.
    fn name(&self, name: &str, entry: Option<Entry>) {
        let mut names = self.names.lock();
        match entry {
            Some(entry) => names.insert(name.to_string(), entry),
            None => names.remove(name),
        };
        self.version.fetch_add(1, Ordering::Release);
    }

    fn decode(&self, value: &[u8]) -> Result<Entry, Error> {
        let bad = || corrupt("an entry of the catalog makes no sense");
        let (&state, rest) = value.split_first().ok_or_else(bad)?;
        let (tree, rest) = rest.split_first_chunk::<4>().ok_or_else(bad)?;
        let (header, types) = rest.split_first_chunk::<8>().ok_or_else(bad)?;
        let types = std::str::from_utf8(types).map_err(|_| bad())?;
        let (id, header) = (u32::from_le_bytes(*tree), u64::from_le_bytes(*header));
        let (pool, space) = (Arc::clone(&self.pool), Arc::clone(&self.space));
        let tree = Tree::open(TreeId(id), PageId(header), pool, space);
        Ok(Entry { state, table: OpenTable { tree, types: types.into() } })
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
            Recovered::Damaged(_, Damage::Blank) => Ok(false),
            Recovered::Damaged(..) => {
                let what = "the first allocation map is damaged";
                Err(Error::Corrupt { part: Part::Home, page: FIRST_MAP, what })
            }
        }
    }

    /// After the undo: makes what a new database lacks, reads the catalog again, and frees the
    /// trees that committed transactions dropped.
    ///
    /// # Errors
    ///
    /// `HomeFull`, `Corrupt`, those of the pool and the log.
    pub(crate) fn tidy(&self, engine: &Arc<Engine>) -> Result<(), Error> {
        if !self.has_catalog()? {
            self.alone(engine, |context| {
                if !self.has_map()? {
                    self.space.format(context)?;
                }
                let (pool, space) = (Arc::clone(&self.pool), Arc::clone(&self.space));
                let catalog = Tree::create(context, CATALOG, pool, space)?;
                assert_eq!(catalog.header(), CATALOG_HEADER, "the first extent for data");
                Ok(())
            })?;
        }
        self.names.lock().clear();
        self.version.fetch_add(1, Ordering::Release);
        self.load()?;
        let made: Vec<Tree> = {
            let names = self.names.lock();
            let made = names.values().filter(|entry| entry.state == MADE);
            made.map(|entry| entry.table.tree.clone()).collect()
        };
        for tree in made {
            self.empty(engine, &tree)?;
        }
        let trees: Vec<Tree> = self.by_id.lock().values().cloned().collect();
        let mut garbage = Vec::new();
        for tree in trees {
            if self.lookup(&dropped_key(tree.id()))?.is_some() {
                garbage.push(tree);
            }
        }
        self.free(engine, &garbage)
    }

    fn lookup(&self, key: &[u8]) -> Result<Option<Entry>, Error> {
        let mut reader = Unlocked;
        let found = self.catalog.get(&mut reader, key, LockMode::Shared, <[u8]>::to_vec)?;
        done(found).map(|value| self.decode(&value)).transpose()
    }

    /// Runs `work` in a transaction without locks, and commits it for as long as the log is there.
    fn alone<T>(
        &self,
        engine: &Arc<Engine>,
        work: impl FnOnce(&mut Context) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut context = Context::begin(engine, Locking::Off)?;
        context.begin_operation(0)?;
        let worked = work(&mut context);
        context.end_operation();
        match worked {
            Ok(value) => context.commit(Durability::None).map(|()| value),
            Err(error) => {
                context.rollback()?;
                Err(error)
            }
        }
    }

    /// The live table `name`, for a transaction that reads.
    ///
    /// # Errors
    ///
    /// `NoSuchTable`, `TableTypes`, `Conflict`.
    pub(crate) fn open(
        &self,
        context: &mut Context,
        name: &'static str,
        types: Types,
    ) -> Result<Arc<Tree>, Error> {
        context.lock_key(CATALOG, name_lock(name), LockMode::Shared)?;
        let version = self.version();
        let tree = Arc::new(self.live(name, &(types.names)())?.ok_or(Error::NoSuchTable)?);
        context.buffers().opened.add(version, name, types.id, &tree);
        Ok(tree)
    }

    /// Changes with `names`.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The live table `name`, for a transaction that writes: made, if there is none.
    ///
    /// # Errors
    ///
    /// As `open_or_make`.
    pub(crate) fn open_for_write(
        &self,
        context: &mut Context,
        name: &'static str,
        types: Types,
    ) -> Result<Arc<Tree>, Error> {
        let (tree, age) = self.open_or_make(context, name, &(types.names)())?;
        let tree = Arc::new(tree);
        if age == Age::Old {
            // Under the lock of its name, whatever happens to others.
            let version = self.version();
            context.buffers().opened.add(version, name, types.id, &tree);
        }
        Ok(tree)
    }

    fn live(&self, name: &str, types: &str) -> Result<Option<Tree>, Error> {
        let names = self.names.lock();
        let Some(entry) = names.get(name).filter(|entry| entry.state == LIVE) else {
            return Ok(None);
        };
        if &*entry.table.types == types {
            Ok(Some(entry.table.tree.clone()))
        } else {
            Err(Error::TableTypes { tree: entry.table.tree.id() })
        }
    }

    /// The live table `name`, for a transaction that writes: made, if there is none.
    ///
    /// # Errors
    ///
    /// `TableTypes`, `Conflict`, `HomeFull`, those of the pool and the log.
    pub(crate) fn open_or_make(
        &self,
        context: &mut Context,
        name: &str,
        types: &str,
    ) -> Result<(Tree, Age), Error> {
        context.lock_key(CATALOG, name_lock(name), LockMode::Shared)?;
        if let Some(tree) = self.live(name, types)? {
            return Ok((tree, Age::Old));
        }
        context.lock_key(CATALOG, name_lock(name), LockMode::Exclusive)?;
        if let Some(tree) = self.live(name, types)? {
            return Ok((tree, Age::Old));
        }
        let made = self.names.lock().get(name).map(|entry| entry.table.tree.clone());
        let engine = Arc::clone(context.engine());
        let tree = match made {
            Some(tree) => self.empty(&engine, &tree).map(|()| tree)?,
            None => self.make(&engine, name)?,
        };
        let key = table_key(name);
        context.begin_operation(key.len())?;
        context.touch(name);
        let value = encode(LIVE, &tree, types);
        let put = context
            .without_locks(|context| self.catalog.put(context, &key, &value, Put::Update, None));
        context.end_operation();
        assert!(done(put?), "a table that was made has an entry");
        let table = OpenTable { tree: tree.clone(), types: types.into() };
        self.name(name, Some(Entry { state: LIVE, table }));
        Ok((tree, Age::New))
    }

    /// Takes away what a load has left in a tree that is not live: no undo does.
    ///
    /// # Errors
    ///
    /// Those of the pool and the log.
    pub(crate) fn empty(&self, engine: &Arc<Engine>, tree: &Tree) -> Result<(), Error> {
        let all = Bound::Unbounded;
        let mut scan = Scan::new(all.clone(), all, Direction::Forward, LockMode::Shared);
        let mut batch = Batch::default();
        done(scan.next_batch(tree, &mut Unlocked, 1, &mut batch)?);
        if batch.len() == 0 && !tree.is_loading()? {
            return Ok(());
        }
        self.alone(engine, |context| tree.reset(context))
    }

    fn make(&self, engine: &Arc<Engine>, name: &str) -> Result<Tree, Error> {
        let _making = self.making.lock();
        let id = TreeId(self.next.fetch_add(1, Ordering::Relaxed));
        let space = || (Arc::clone(&self.pool), Arc::clone(&self.space));
        let garbage = dropped_key(id);
        self.alone(engine, |context| {
            let (pool, space) = space();
            let nowhere = Tree::open(id, PageId(0), pool, space);
            let value = encode(LIVE, &nowhere, "");
            self.catalog.put(context, &garbage, &value, Put::Upsert, None).map(done)
        })?;
        let made = self.alone(engine, |context| {
            let (pool, space) = space();
            let tree = Tree::create(context, id, pool, space)?;
            let value = encode(MADE, &tree, "");
            self.by_id.lock().insert(id, tree.clone());
            done(self.catalog.put(context, &table_key(name), &value, Put::InsertNew, None)?);
            done(self.catalog.remove(context, &garbage, None)?);
            Ok(tree)
        });
        let tree = made.inspect_err(|_| drop(self.by_id.lock().remove(&id)))?;
        let table = OpenTable { tree: tree.clone(), types: "".into() };
        self.name(name, Some(Entry { state: MADE, table }));
        Ok(tree)
    }

    /// Drops the table `name`: its pages are freed once the transaction has committed. Returns
    /// whether there was one.
    ///
    /// # Errors
    ///
    /// `Conflict`, those of the pool and the log.
    pub(crate) fn drop_table(&self, context: &mut Context, name: &str) -> Result<bool, Error> {
        context.lock_key(CATALOG, name_lock(name), LockMode::Exclusive)?;
        let entry = self.names.lock().get(name).filter(|entry| entry.state == LIVE).cloned();
        let Some(Entry { table, .. }) = entry else { return Ok(false) };
        context.lock_table(table.tree.id(), LockMode::Exclusive)?;
        context.touch(name);
        let value = encode(LIVE, &table.tree, "");
        context.begin_operation(value.len())?;
        let changed = context.without_locks(|context| {
            done(self.catalog.remove(context, &table_key(name), None)?);
            let key = dropped_key(table.tree.id());
            self.catalog.put(context, &key, &value, Put::Upsert, None).map(done)
        });
        context.end_operation();
        changed?;
        self.name(name, None);
        context.dropped(table.tree);
        Ok(true)
    }

    /// Reads the entries of `names` again, after their changes were undone.
    ///
    /// # Errors
    ///
    /// Those of the pool.
    pub(crate) fn reload(&self, names: &[String]) -> Result<(), Error> {
        for name in names {
            self.name(name, self.lookup(&table_key(name))?);
        }
        Ok(())
    }

    /// Frees trees that a committed transaction dropped.
    ///
    /// # Errors
    ///
    /// Those of the pool and the log: opening the database frees the rest.
    pub(crate) fn free(&self, engine: &Arc<Engine>, trees: &[Tree]) -> Result<(), Error> {
        for tree in trees {
            let _making = self.making.lock();
            self.by_id.lock().remove(&tree.id());
            self.alone(engine, |context| {
                tree.free(context)?;
                done(self.catalog.remove(context, &dropped_key(tree.id()), None)?);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn find(&self, tree: TreeId) -> Option<Tree> {
        self.by_id.lock().get(&tree).cloned()
    }

    /// Purges the leaf of `key`, for the reclaim task.
    ///
    /// # Errors
    ///
    /// Those of the pool and the log, `Corrupt`.
    pub(crate) fn purge_leaf(
        &self,
        engine: &Arc<Engine>,
        tree: TreeId,
        key: &[u8],
    ) -> Result<Progress, Error> {
        let Some(tree) = self.find(tree) else { return Ok(Progress::Done) };
        self.alone(engine, |context| tree.purge_leaf(context, key))
    }

    /// Frees pages of large values of `tree` that no undo wants, a bounded number.
    ///
    /// # Errors
    ///
    /// Those of the pool and the log, `Corrupt`.
    pub(crate) fn free_chains(
        &self,
        engine: &Arc<Engine>,
        tree: TreeId,
    ) -> Result<Progress, Error> {
        let Some(tree) = self.find(tree) else { return Ok(Progress::Done) };
        for _ in 0..CHAIN_STEPS {
            let progress = self.alone(engine, |context| tree.free_chain(context))?;
            if progress != Progress::More {
                return Ok(progress);
            }
        }
        Ok(Progress::More)
    }

    /// Frees a tree that a committed transaction dropped.
    ///
    /// # Errors
    ///
    /// Those of the pool and the log: the next opening frees it.
    pub(crate) fn free_dropped(
        &self,
        engine: &Arc<Engine>,
        tree: TreeId,
    ) -> Result<Progress, Error> {
        let Some(tree) = self.find(tree) else { return Ok(Progress::Done) };
        self.free(engine, &[tree]).map(|()| Progress::Done)
    }

    /// Looks through all trees for garbage.
    ///
    /// # Errors
    ///
    /// Those of the pool, `Corrupt`.
    pub(crate) fn survey(&self, mut offer: impl FnMut(Work)) -> Result<(), Error> {
        let trees: Vec<Tree> = self.by_id.lock().values().cloned().collect();
        for tree in trees {
            if tree.has_pending()? {
                offer(Work::Chains(tree.id()));
            }
        }
        Ok(())
    }

    /// The names of the live tables, in order. The names are locked as a whole.
    ///
    /// # Errors
    ///
    /// `Conflict`.
    pub(crate) fn names(&self, context: &mut Context) -> Result<Vec<String>, Error> {
        context.lock_table(CATALOG, LockMode::Shared)?;
        let names = self.names.lock();
        Ok(names
            .iter()
            .filter(|(_, entry)| entry.state == LIVE)
            .map(|(name, _)| name.clone())
            .collect())
    }

    /// Undoes a change of any tree.
    ///
    /// # Errors
    ///
    /// Those of the tree.
    pub(crate) fn undo(&self, context: &mut Context, undo: Undo<'_>) -> Result<(), Error> {
        let id = match undo {
            Undo::None => return Ok(()),
            Undo::Insert { tree, .. } | Undo::Delete { tree, .. } | Undo::Update { tree, .. } => {
                tree
            }
        };
        let tree = self.by_id.lock().get(&id).cloned();
        tree.ok_or_else(|| corrupt("an undo names a tree that is not there"))?.undo(context, &undo)
    }

    /// Pages in use, in bytes; zero where a map cannot be read.
    pub(crate) fn used_bytes(&self) -> u64 {
        let trees: Vec<TreeId> = self.by_id.lock().keys().copied().collect();
        let pages = |tree| {
            let extents = self.space.extents_of(tree).unwrap_or_default();
            extents.iter().map(|extent| u64::from(extent.used.count_ones())).sum::<u64>()
        };
        trees.into_iter().map(pages).sum::<u64>() * terrace_page::PAGE_SIZE as u64
    }

    /// Checks every tree; each is locked as a whole meanwhile.
    ///
    /// # Errors
    ///
    /// `Corrupt` at the first flaw, `Conflict`, those of the pool.
    pub(crate) fn check(&self, context: &mut Context) -> Result<CheckReport, Error> {
        context.lock_table(CATALOG, LockMode::Shared)?;
        let mut trees = vec![self.catalog.clone()];
        // Not those that wait to be freed: a part of them may be gone.
        trees.extend(self.names.lock().values().map(|entry| entry.table.tree.clone()));
        let mut report = CheckReport::default();
        for tree in trees {
            context.lock_table(tree.id(), LockMode::Shared)?;
            let stats = tree.check()?;
            report.trees += 1;
            report.entries += stats.keys;
            report.pages +=
                1 + stats.leaves + stats.inner_nodes + stats.overflow_pages + stats.pending_pages;
        }
        Ok(report)
    }
}
