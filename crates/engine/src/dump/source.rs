//! A database to be saved: recovered in memory; or, where that fails and the caller wants what is
//! left, recovered as far as it can be, or its home as it is.
//!
//! ```text
//!   opened read only --fails--> with the changes of open transactions --fails--> home as it is,
//!                               set apart: all of redo, no rollback              if it is ours
//! ```
//!
//! - S1: nothing of the database is changed: recovery runs on overlays, and the pool over a home
//!   as it is never has a dirty page.

use std::path::Path;
use std::sync::Arc;

use terrace_page::{Lsn, PAGE_SIZE, PageBuf, PageId, PageKind, kind, verify};
use terrace_pool::{BufferPool, Journal, PoolConfig, PoolError};
use terrace_rt::{World, dead};

use crate::btree::Tree;
use crate::recovery::NotUndone;
use crate::space::{Claim, Space, blocks_of};
use crate::superblock::{self, Found};
use crate::trees::{CATALOG, CATALOG_HEADER};
use crate::{Builder, Database, Error, Part, TreeId};

/// Memory for a home that is read as it is.
const FRAMES: u32 = 1024;
/// Pages that a database begins with: one of these tells one whose superblocks are gone.
const FIRST_PAGES: [u64; 3] = [2, 32, 33];

/// What rows are read from.
pub(super) struct Source {
    pool: Arc<BufferPool>,
    space: Arc<Space>,
    /// Keeps the engine that recovered it.
    database: Option<Database>,
    /// Why it could not be recovered.
    pub(super) unrecovered: Option<Error>,
    /// What is not part of it, and why it could not be rolled back.
    pub(super) not_undone: Option<(Arc<NotUndone>, Error)>,
    pub(super) home_pages: u64,
}

/// The log of a pool that writes nothing.
struct NoLog;

impl Journal for NoLog {
    fn last_lsn(&self) -> Lsn {
        Lsn(u64::MAX - 1)
    }

    fn durable_lsn(&self) -> Lsn {
        Lsn(u64::MAX - 1)
    }

    fn make_durable(&self, _upto: Lsn) -> Result<(), PoolError> {
        Err(PoolError::Journal { source: Arc::new(std::io::Error::other("nothing is written")) })
    }

    fn log_buf_write(&self, _pages: &[PageId], _eol: Lsn) {}

    fn log_flash(&self, _payload: &[u8]) -> Option<Lsn> {
        None
    }

    fn repair(
        &self,
        page: PageId,
        _rec: Lsn,
        _bytes: &mut PageBuf,
        _is_whole: bool,
    ) -> Result<(), PoolError> {
        Err(PoolError::Redo { page, what: "the log is not read" })
    }
}

/// Whether the home by itself may still tell something.
fn may_be_saved(error: &Error) -> bool {
    match error {
        Error::Missing { .. }
        | Error::Corrupt { .. }
        | Error::CorruptLog { .. }
        | Error::RedoGap { .. }
        | Error::FlashNeeded { .. }
        | Error::LogFull { .. }
        | Error::HoldsLog { .. }
        | Error::HomeFull { .. }
        | Error::Failed { .. } => true,
        Error::NotADatabase { part, .. }
        | Error::Truncated { part, .. }
        | Error::Device { part, .. } => *part != Part::Home,
        _ => false,
    }
}

impl Source {
    /// Opens the database at `path` to be saved.
    ///
    /// # Errors
    ///
    /// Those of [`Builder::open`].
    pub(super) fn open(builder: Builder, path: &Path) -> Result<Source, Error> {
        builder.read_only().open(path).map(Source::recovered)
    }

    /// Opens what is left of the database at `path`.
    ///
    /// # Errors
    ///
    /// Those of [`Builder::open`], if there is nothing to be saved, or nothing is wrong with it.
    pub(super) fn salvage(builder: Builder, path: &Path) -> Result<Source, Error> {
        let why = match Source::open(builder.clone(), path) {
            Err(why) if may_be_saved(&why) => why,
            opened => return opened,
        };
        if let Ok(database) = builder.clone().open_with_losers(path) {
            return Ok(Source::with_losers(database, why));
        }
        let Ok(home) = builder.home_read_only(path) else { return Err(why) };
        let home_pages = home.len() / PAGE_SIZE as u64;
        match superblock::find(&*home) {
            Ok(Found::Database(..)) => {}
            _ if FIRST_PAGES.into_iter().any(|page| is_ours(&*home, PageId(page))) => {}
            _ => return Err(why),
        }
        let config = PoolConfig { frames: FRAMES, ..PoolConfig::default() };
        let world = World::current();
        let pool = BufferPool::open(config, world, Arc::clone(&home), None, Arc::new(NoLog))?;
        let space = Arc::new(Space::new(Arc::clone(&pool), home, home_pages));
        Ok(Source {
            pool,
            space,
            database: None,
            unrecovered: Some(why),
            not_undone: None,
            home_pages,
        })
    }

    /// A database that was opened with the changes that could not be rolled back.
    pub(super) fn with_losers(database: Database, why: Error) -> Source {
        let not_undone = database.engine().not_undone.lock().clone();
        let mut source = Source::recovered(database);
        source.not_undone = not_undone.map(|not_undone| (not_undone, why));
        source
    }

    /// A database that is open.
    pub(super) fn recovered(database: Database) -> Source {
        let engine = database.engine();
        let (pool, home) = (Arc::clone(&engine.pool), Arc::clone(&engine.home));
        let home_pages = home.len() / PAGE_SIZE as u64;
        let space = Arc::new(Space::new(Arc::clone(&pool), home, home_pages));
        Source {
            pool,
            space,
            database: Some(database),
            unrecovered: None,
            not_undone: None,
            home_pages,
        }
    }

    /// What the trees have and the database has not.
    pub(super) fn not_undone(&self) -> Option<&NotUndone> {
        self.not_undone.as_ref().map(|(not_undone, _)| &**not_undone)
    }

    pub(super) fn catalog(&self) -> Tree {
        self.tree(CATALOG, CATALOG_HEADER)
    }

    pub(super) fn tree(&self, id: TreeId, header: PageId) -> Tree {
        Tree::open(id, header, Arc::clone(&self.pool), Arc::clone(&self.space))
    }

    /// Pages that are in use, and cannot be read, and maps that cannot.
    pub(super) fn damaged_pages(&self) -> Vec<PageId> {
        let mut damaged = self.space.damaged_maps();
        for tree in self.space.owners().into_iter().flat_map(|tree| [tree, blocks_of(tree)]) {
            self.space.claims_of(tree, |id, claim| {
                if claim == Claim::Used && self.pool.read(id).is_err() {
                    damaged.push(id);
                }
            });
        }
        damaged.sort();
        damaged
    }

    /// The headers of trees that own pages.
    pub(super) fn owners(&self) -> Vec<(TreeId, PageId)> {
        let owners = self.space.owners().into_iter();
        let header_of = |tree| {
            let mut header = PageId(0);
            self.space.claims_of(tree, |id, _| {
                // A tree's header is the first page of an extent.
                let is_first = id.0.is_multiple_of(crate::space::EXTENT_PAGES);
                let is_header = |page: &PageBuf| kind(page) == Some(PageKind::Tree);
                if is_first && self.pool.read(id).is_ok_and(|page| is_header(&page)) {
                    header = id;
                }
            });
            (tree, header)
        };
        owners.map(header_of).collect()
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if self.database.is_none() && !dead() {
            self.pool.shutdown();
        }
    }
}

/// Whether page `id` of `home` is a whole map, header or node.
fn is_ours(home: &dyn terrace_device::Device, id: PageId) -> bool {
    let mut page: Box<PageBuf> = Box::new([0; PAGE_SIZE]);
    let offset = id.0 * PAGE_SIZE as u64;
    let fits = offset + PAGE_SIZE as u64 <= home.len();
    let is_read = fits && terrace_device::read(home, offset, &mut page[..]).is_ok();
    let kinds = [PageKind::Map, PageKind::Tree, PageKind::Leaf, PageKind::Inner];
    is_read && verify(&page, id).is_ok() && kind(&page).is_some_and(|kind| kinds.contains(&kind))
}
