//! A transaction layer just large enough to test trees: a log in memory, locks on keys, rollback.
//!
//! The log keeps every change as encoded, and can be replayed into empty pages: what it gives must
//! be what the pool has. It checks the rules that the tree owes its writer: no lock in a nested
//! action, pages formatted before anything else, undo outside of nested actions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_device::model::{Preset, build};
use terrace_device::{Device, Keep, Store};
use terrace_page::{
    Damage, Lsn, PAGE_SIZE, PageBuf, PageId, PageKind, TxnId, kind, set_lsn, set_page_id,
};
use terrace_pool::{BufferPool, Journal, Mutations, PageMut, PoolConfig, PoolError};
use terrace_rt::{LeafMutex, World};

use super::Tree;
use crate::change::Change;
use crate::leaf_room::{LeafRoom, RowHash};
use crate::reclaim::Progress;
use crate::space::{Space, blocks_of};
use crate::writer::{Nested, Reader, Undo, Writer};
use crate::{Error, KeyHash, LockMode, LockOutcome, LockRequest, TreeId};

#[derive(Default)]
pub(super) struct Log {
    last: AtomicU64,
    records: LeafMutex<Vec<(PageId, Vec<u8>)>>,
}

impl Journal for Log {
    fn last_lsn(&self) -> Lsn {
        Lsn(self.last.load(Ordering::Relaxed))
    }

    fn durable_lsn(&self) -> Lsn {
        self.last_lsn()
    }

    fn make_durable(&self, _upto: Lsn) -> Result<(), PoolError> {
        Ok(())
    }

    fn log_buf_write(&self, _pages: &[PageId], _eol: Lsn) {
        self.last.fetch_add(1, Ordering::Relaxed);
    }

    fn log_flash(&self, _payload: &[u8]) -> Option<Lsn> {
        None
    }

    fn repair(
        &self,
        page: PageId,
        _rec: Lsn,
        _bytes: &mut terrace_page::PageBuf,
        _is_whole: bool,
    ) -> Result<(), PoolError> {
        Err(PoolError::Redo { page, what: "this log repairs nothing" })
    }
}

/// Which transaction has which key.
#[derive(Default)]
struct Locks {
    keys: BTreeMap<(TreeId, KeyHash), TxnId>,
    active: BTreeMap<TxnId, ()>,
    /// Keys of leaves with ghosts.
    met: Vec<Vec<u8>>,
}

/// A database of trees.
#[derive(Clone)]
pub(super) struct Bench {
    pub(super) pool: Arc<BufferPool>,
    pub(super) space: Arc<Space>,
    home: Arc<dyn Device>,
    pub(super) log: Arc<Log>,
    locks: Arc<LeafMutex<Locks>>,
    txns: Arc<AtomicU64>,
    pub(super) leaf_room: Arc<LeafRoom>,
}

enum OwnedUndo {
    Insert(Vec<u8>),
    Delete(Vec<u8>, Vec<u8>),
    Update(Vec<u8>, Vec<u8>),
}

/// A transaction.
pub(super) struct Txn {
    bench: Bench,
    id: TxnId,
    undo: Vec<OwnedUndo>,
    depth: u32,
    undoing: bool,
    kept: Vec<(RowHash, usize)>,
}

impl Bench {
    pub(super) fn new(world: World, home_pages: u64, frames: u32) -> Bench {
        Bench::mutated(world, home_pages, frames, Mutations::NONE)
    }

    pub(super) fn mutated(
        world: World,
        home_pages: u64,
        frames: u32,
        mutations: Mutations,
    ) -> Bench {
        let store = Store::new(home_pages * PAGE_SIZE as u64, Keep::Plain);
        let home = build(Preset::IoDrive, world.clone(), store);
        let log = Arc::new(Log::default());
        let config = PoolConfig { frames, partitions: 4, mutations, ..PoolConfig::default() };
        let pool = BufferPool::open(config, world, home.clone(), None, Arc::clone(&log) as Arc<_>);
        let pool = pool.expect("a pool");
        let home: Arc<dyn Device> = home;
        let space = Arc::new(Space::new(Arc::clone(&pool), Arc::clone(&home), home_pages));
        let locks = Arc::new(LeafMutex::new(Locks::default()));
        let (txns, leaf_room) = (Arc::new(AtomicU64::new(1)), Arc::new(LeafRoom::new()));
        let bench = Bench { pool, space, home, log, locks, txns, leaf_room };
        let mut txn = bench.begin();
        bench.space.format(&mut txn).expect("room for a map");
        txn.commit();
        bench
    }

    pub(super) fn begin(&self) -> Txn {
        let id = TxnId(self.txns.fetch_add(1, Ordering::Relaxed));
        self.locks.lock().active.insert(id, ());
        let (undo, kept) = (Vec::new(), Vec::new());
        Txn { bench: self.clone(), id, undo, depth: 0, undoing: false, kept }
    }

    pub(super) fn tree(&self, id: u32) -> Tree {
        let mut txn = self.begin();
        let (pool, space) = (Arc::clone(&self.pool), Arc::clone(&self.space));
        let tree = Tree::create(&mut txn, TreeId(id), pool, space).expect("room for a tree");
        txn.commit();
        tree
    }

    /// This database and `tree`, as another opening knows them.
    pub(super) fn reopened(&self, tree: &Tree) -> (Bench, Tree) {
        let pages = self.home.len() / PAGE_SIZE as u64;
        let space = Arc::new(Space::new(Arc::clone(&self.pool), Arc::clone(&self.home), pages));
        let pool = Arc::clone(&self.pool);
        let tree = Tree::open(tree.id(), tree.header(), pool, Arc::clone(&space));
        (Bench { space, ..self.clone() }, tree)
    }

    /// Gives all pages of a tree back.
    pub(super) fn free(&self, txn: &mut Txn, tree: &Tree) {
        for owner in [blocks_of(tree.id()), tree.id()] {
            let mut from = Some(0);
            while let Some(extent) = from {
                from = self.space.free_some(txn, owner, extent).expect("no error");
            }
            self.space.forget(owner);
        }
        let (owners, _) = self.space.used().expect("no error");
        assert!(!owners.contains(&tree.id()), "an extent is left");
    }

    /// Purges the leaves where transactions have met ghosts.
    pub(super) fn purge(&self, tree: &Tree) {
        let met = std::mem::take(&mut self.locks.lock().met);
        let mut txn = self.begin();
        for key in met {
            while tree.purge_leaf(&mut txn, &key).expect("no error") == Progress::More {}
        }
        txn.commit();
    }

    /// Redoes the whole log, and compares every page with the pool's.
    pub(super) fn replay(&self) {
        let mut pages: BTreeMap<PageId, Box<PageBuf>> = BTreeMap::new();
        for (id, bytes) in self.log.records.lock().iter() {
            let change = Change::decode(bytes).expect("encoded by the writer");
            let page = pages.entry(*id).or_insert_with(|| {
                assert!(change.formats(), "{id} begins with {change:?}");
                Box::new([0xee; PAGE_SIZE])
            });
            change.apply(page).expect("it was applied before");
        }
        for (id, mut page) in pages {
            let held = match self.pool.read(id) {
                // The room of its extent was given back.
                Err(PoolError::Damaged { damage: Damage::Blank, .. }) => {
                    assert_eq!(kind(&page), Some(PageKind::Free), "{id} is in a hole");
                    continue;
                }
                held => held.expect("a page that was changed"),
            };
            set_lsn(&mut page, terrace_page::lsn(&held));
            set_page_id(&mut page, id);
            assert!(held[4..] == page[4..], "{id} differs after redo");
        }
    }
}

impl Txn {
    fn end(&mut self) {
        let mut locks = self.bench.locks.lock();
        let id = self.id;
        locks.keys.retain(|_, owner| *owner != id);
        locks.active.remove(&id);
        for (row, freed) in self.kept.drain(..) {
            self.bench.leaf_room.release(row, freed);
        }
    }

    pub(super) fn commit(mut self) {
        self.end();
    }

    /// Takes back all changes from the newest to the one with number `to`.
    pub(super) fn roll_back_to(&mut self, tree: &Tree, to: usize) {
        self.undoing = true;
        let id = tree.id();
        while self.undo.len() > to {
            let undo = self.undo.pop().expect("one is left");
            let undo = match &undo {
                OwnedUndo::Insert(key) => Undo::Insert { tree: id, key },
                OwnedUndo::Delete(key, record) => Undo::Delete { tree: id, key, record },
                OwnedUndo::Update(key, old) => Undo::Update { tree: id, key, old },
            };
            tree.undo(self, &undo).expect("an undo never fails");
        }
        self.undoing = false;
    }

    pub(super) fn roll_back(mut self, tree: &Tree) {
        self.roll_back_to(tree, 0);
        self.end();
    }

    pub(super) fn changes(&self) -> usize {
        self.undo.len()
    }
}

impl Reader for Txn {
    fn try_lock(&mut self, request: LockRequest) -> Result<LockOutcome, Error> {
        assert_eq!(self.depth, 0, "locks come before nested actions");
        assert!(!self.undoing, "an undo needs no lock");
        if matches!(request.mode, LockMode::GapScan | LockMode::GapInsert) {
            return Ok(LockOutcome::Granted);
        }
        let mut locks = self.bench.locks.lock();
        let owner = locks.keys.entry((request.tree, request.key)).or_insert(self.id);
        Ok(if *owner == self.id { LockOutcome::Granted } else { LockOutcome::Busy })
    }

    fn may_hold(&self, tree: TreeId, key: KeyHash) -> bool {
        self.bench.locks.lock().keys.get(&(tree, key)) == Some(&self.id)
    }

    fn met_ghosts(&mut self, _tree: TreeId, _leaf: PageId, key: &[u8]) {
        self.bench.locks.lock().met.push(key.to_vec());
    }
}

impl Writer for Txn {
    fn change(
        &mut self,
        page: &mut PageMut<'_>,
        change: &Change<'_>,
        undo: Undo<'_>,
    ) -> Result<(), Error> {
        assert!(
            !self.undoing || !matches!(change, Change::Truncate { .. }),
            "an undo splits a leaf"
        );
        let _ = page.dirty();
        let mut bytes = Vec::new();
        change.encode(&mut bytes);
        let lsn = Lsn(self.bench.log.last.fetch_add(1, Ordering::Relaxed) + 1);
        let decoded = Change::decode(&bytes).expect("just encoded");
        page.apply(lsn, |page| {
            assert!(decoded.apply(page).is_ok(), "a change does not fit its page");
        });
        self.bench.log.records.lock().push((page.id(), bytes));
        let own = match undo {
            Undo::None => return Ok(()),
            Undo::Insert { key, .. } => OwnedUndo::Insert(key.to_vec()),
            Undo::Delete { key, record, .. } => OwnedUndo::Delete(key.to_vec(), record.to_vec()),
            Undo::Update { key, old, .. } => OwnedUndo::Update(key.to_vec(), old.to_vec()),
        };
        assert!(!self.undoing && self.depth == 0, "a logical undo stands for itself");
        self.undo.push(own);
        Ok(())
    }

    fn unlogged(&mut self, page: &mut PageMut<'_>, change: &Change<'_>) -> Result<(), Error> {
        assert!(change.formats() && self.depth == 0);
        let _ = page.dirty();
        let mut bytes = Vec::new();
        change.encode(&mut bytes);
        page.apply(self.bench.log.last_lsn(), |page| change.apply(page).expect("it fits"));
        // Not a record, but what a replay begins with.
        self.bench.log.records.lock().push((page.id(), bytes));
        Ok(())
    }

    fn txn(&self) -> TxnId {
        self.id
    }

    fn stamp(&self) -> u64 {
        self.bench.log.last_lsn().0 + 1
    }

    fn oldest_active(&self) -> TxnId {
        *self.bench.locks.lock().active.keys().next().expect("at least this one")
    }

    fn leaf_room(&self) -> &LeafRoom {
        &self.bench.leaf_room
    }

    fn keep_room(&mut self, row: RowHash, from: usize, freed: usize) {
        assert!(!self.undoing, "what is undone needs no undo");
        self.bench.leaf_room.keep(row, from, freed);
        self.kept.push((row, freed));
    }

    fn begin_nested(&mut self) -> Nested {
        self.depth += 1;
        Nested { undo_next: Lsn(0), depth: self.depth - 1, log: None }
    }

    fn end_nested(&mut self, nested: Nested) -> Result<(), Error> {
        self.depth -= 1;
        assert_eq!(self.depth, nested.depth);
        Ok(())
    }

    fn may_purge(&self, _tree: TreeId) -> bool {
        !self.undoing
    }

    fn is_unlocked(&self, tree: TreeId, key: KeyHash) -> bool {
        !self.bench.locks.lock().keys.contains_key(&(tree, key))
    }
}
