//! The system pages of a database, looked at before an opening writes its first byte.
//!
//! ```text
//! superblock --> log: the last checkpoint --> home: maps, catalog --> flaw? --> log: is it dirty?
//!                                                                       | no          |
//!                                                 open <----------------+-- yes ------+
//!                                                 refuse, nothing written <----- no --+
//! ```
//!
//! Home alone is read, past the pool: it may lack what the log or flash has. So a page that does
//! not make sense is a flaw only if no record that redo would apply changes it, or a page that
//! leads to it. The log is asked only then: a sound database pays for a few reads.
//!
//! - Y1: nothing is written here.
//! - Y2: a page that redo changes is checked after redo, by `Trees::load`, before any transaction
//!   is undone. Home has then what redo has made of other pages; opening again finds the same.
//! - Y3: a database whose log is kept from what flash lacks is checked after redo alone: home may
//!   be torn where flash has the page.

use std::collections::BTreeSet;

use terrace_device::{Device, read};
use terrace_page::{Damage, Lsn, PAGE_SIZE, PageBuf, PageId, PageKind, kind, verify};
use terrace_pool::{FlashRecovery, PoolConfig, home_versions};

use crate::btree::node::{self, Node};
use crate::catalog::{self, Entry};
use crate::error::Action;
use crate::log::{Aligned, LogMap, LogReader};
use crate::recovery::{OwedChanges, analyse};
use crate::space::{check_map, map_page, maps_told};
use crate::superblock::{Creation, LogFrom, Superblock};
use crate::trees::{CATALOG, CATALOG_HEADER};
use crate::{Error, Part};

/// Pages of the catalog that are looked at: more are left to the checks after redo.
const PAGES_MAX: usize = 4096;

/// Refuses a database whose checkpoint or system pages are not what they were.
///
/// # Errors
///
/// `CorruptLog`, `Corrupt`, `Device`.
pub(crate) fn check(
    home: &dyn Device,
    log: (&dyn Device, &LogMap),
    boot: &Superblock,
    pool: &PoolConfig,
) -> Result<(), Error> {
    check_checkpoint(log, boot)?;
    if boot.creation == Creation::Begun || boot.log_from == LogFrom::Flash {
        return Ok(());
    }
    let mut walk = Walk { home, home_pages: boot.home_pages, flaws: Vec::new() };
    walk.maps();
    walk.catalog();
    if walk.flaws.is_empty() {
        return Ok(());
    }
    let from = boot.oldest_dirty.min(boot.begin_checkpoint);
    let limit = log.1.end(boot.log_start());
    let mut reader = LogReader::new(log.0, log.1.clone(), from, limit);
    let mut nothing = FlashRecovery::nothing(&pool.of_restart());
    let (mut owed, told) = (OwedChanges::new(0), (boot, pool.mutations));
    let (analysis, _) = analyse((None, &mut reader), told, &mut nothing, &mut owed)?;
    let is_redone = |page: &PageId| analysis.dirty.contains_key(page);
    let real = walk.flaws.into_iter().find(|flaw| !flaw.path.iter().any(is_redone));
    real.map_or(Ok(()), |flaw| Err(flaw.error))
}

/// The log holds the checkpoint that the superblock names, from its first record to its last.
fn check_checkpoint(log: (&dyn Device, &LogMap), boot: &Superblock) -> Result<(), Error> {
    let (from, to) = (boot.begin_checkpoint, boot.end_checkpoint);
    let mut reader = LogReader::new(log.0, log.1.clone(), from, to);
    while reader.end().position < boot.end_checkpoint && reader.next()?.is_some() {}
    let position = reader.end().position;
    if position < boot.end_checkpoint {
        return Err(Error::corrupt_log(position, "it ends before its last checkpoint did"));
    }
    Ok(())
}

/// What is wrong with a page, unless one of `path` is redone.
struct Flaw {
    path: Vec<PageId>,
    error: Error,
}

struct Walk<'d> {
    home: &'d dyn Device,
    home_pages: u64,
    flaws: Vec<Flaw>,
}

impl Walk<'_> {
    fn flaw(&mut self, path: &[PageId], what: &'static str) {
        let page = *path.last().expect("a path ends at its page");
        let error = Error::corrupt(Part::Home, page, what);
        self.flaws.push(Flaw { path: path.to_vec(), error });
    }

    /// The page at the end of `path`, if it is whole.
    fn page(&mut self, path: &[PageId]) -> Option<Box<PageBuf>> {
        let id = *path.last().expect("a path ends at its page");
        if id.0 >= self.home_pages {
            self.flaw(path, "a page of the catalog leads past the end of home");
            return None;
        }
        let mut bytes = Aligned::zeroed(PAGE_SIZE);
        if let Err(source) = read(self.home, id.0 * PAGE_SIZE as u64, &mut bytes) {
            let error = Error::device(Part::Home, Action::Read)(source);
            self.flaws.push(Flaw { path: path.to_vec(), error });
            return None;
        }
        let page: Box<PageBuf> = Box::new((&bytes[..]).try_into().expect("a page"));
        match verify(&page, id) {
            Ok(()) => return Some(page),
            Err(Damage::Blank) => self.flaw(path, "a page that every opening needs is blank"),
            Err(_) => self.flaw(path, "a page that every opening needs is damaged"),
        }
        None
    }

    fn maps(&mut self) {
        let first = map_page(0);
        let Some(map) = self.page(&[first]) else { return };
        if let Err(what) = check_map(&map, 0) {
            return self.flaw(&[first], what);
        }
        let pages: Vec<PageId> = (1..maps_told(&map)).map(map_page).collect();
        if pages.last().is_some_and(|last| last.0 >= self.home_pages) {
            return self.flaw(&[first], "it tells of more maps than home has pages for");
        }
        let versions: Vec<Option<Lsn>> = home_versions(self.home, &pages);
        for (page, version) in pages.iter().zip(versions) {
            if version.is_none() {
                // Tells whether it is damaged or cannot be read.
                self.page(&[first, *page]);
            }
        }
    }

    fn catalog(&mut self) {
        if let Some(header) = self.page(&[CATALOG_HEADER])
            && kind(&header) != Some(PageKind::Tree)
        {
            self.flaw(&[CATALOG_HEADER], "it should be the header of the catalog");
        }
        let mut seen = BTreeSet::new();
        let mut paths = vec![vec![CATALOG_HEADER.plus(1)]];
        while let Some(path) = paths.pop() {
            let id = *path.last().expect("a path ends at its page");
            if !seen.insert(id) || path.len() > usize::from(node::LEVEL_MAX) {
                self.flaw(&path, "it is in two places of the catalog");
            } else if seen.len() <= PAGES_MAX
                && let Some(page) = self.page(&path)
            {
                self.node(&path, &page, &mut paths);
            }
        }
    }

    fn node(&mut self, path: &[PageId], page: &PageBuf, paths: &mut Vec<Vec<PageId>>) {
        if let Err(what) = node::check(page) {
            return self.flaw(path, what);
        }
        let Some(node) = Node::open(page).filter(|node| node.tree() == CATALOG.0) else {
            return self.flaw(path, "it should be a node of the catalog");
        };
        if !node.is_leaf() {
            let child = |index| [path, &[node.child(index)]].concat();
            return paths.extend((0..=node.len()).map(child));
        }
        for slot in 0..node.len() {
            let (flags, value) = node.record(slot);
            if flags != 0 {
                // In overflow pages, or of a kind that `Tree::check` knows.
                continue;
            }
            let key = node.key(slot);
            let decoded = catalog::decode_key(&key)
                .and_then(|key| Entry::decode(key, value, self.home_pages));
            if let Err(what) = decoded {
                self.flaw(path, what);
            }
        }
    }
}
