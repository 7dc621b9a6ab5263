//! Home's own copies of pages, which nothing reads while flash has them.
//!
//! - C1: a page whose changes are all at home has a whole copy there, of the same version.
//! - C2: of a page that is newer in memory or on flash home has an older whole copy, or none that
//!   was ever written, for redo to begin from. Where flash is a part of the database it may be
//!   anything: what is on flash takes its place.
//! - C3: a page of a large value that is not finished may be anything: it is not written yet, and
//!   nothing leads to it.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use terrace_device::read;
use terrace_page::{Damage, Lsn, PAGE_SIZE, PageBuf, PageId, lsn, verify};
use terrace_pool::PoolError;
use terrace_rt::{Nanos, sleep};

use crate::engine::Engine;
use crate::{Action, Database, Error, Part};

/// How often a page is looked at that may be on its way home meanwhile.
const LOOKS_MAX: u32 = 4;
const PAUSE: Nanos = Nanos::from_micros(500);

impl Database {
    /// Reads home's own copy of every page that is in use, and returns those pages of which it is
    /// bad. [`Database::check`] reads pages as transactions do, from memory or flash where these
    /// have them. A page that it finds whole and that is bad at home is lost with the flash.
    ///
    /// # Errors
    ///
    /// `Device` if home does not answer, or is gone; `Closed`, `Failed`.
    pub fn damaged_at_home(&self) -> Result<Vec<PageId>, Error> {
        let engine = self.engine();
        engine.check_beginning()?;
        engine.check_running()?;
        let found = unsound(engine, |_| true).and_then(|found| match found.is_empty() {
            true => Ok(found),
            // What was such a page a moment ago may be finished by now, or free.
            false => {
                let waiting = engine.trees.waiting_runs()?;
                let found = BTreeSet::from_iter(found);
                let waits = |page: &PageId| waiting.iter().any(|run| run.contains(&page.0));
                unsound(engine, |page| found.contains(page) && !waits(page))
            }
        });
        found.map_err(|error| engine.explain(error))
    }
}

/// The pages in use of which home's copy is bad, among those that `is_asked`.
fn unsound(engine: &Engine, is_asked: impl Fn(&PageId) -> bool) -> Result<Vec<PageId>, Error> {
    let mut found = Vec::new();
    engine.trees.space.pages_in_use(|page| {
        if is_asked(&page) && !is_sound_at_home(engine, page)? {
            found.push(page);
        }
        Ok::<_, Error>(())
    })?;
    Ok(found)
}

/// Whether home's copy of `page` is what it must be.
fn is_sound_at_home(engine: &Engine, page: PageId) -> Result<bool, Error> {
    for look in 0..LOOKS_MAX {
        if look > 0 {
            sleep(PAUSE);
        }
        // What waits to be redone is by this.
        let newest = match engine.pool.read(page) {
            Ok(newest) => lsn(&newest),
            // What is bad wherever it is, `check` tells, if anything leads there: pages of a load
            // that was interrupted wait to be freed.
            Err(PoolError::Damaged { .. } | PoolError::Redo { .. }) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        let was_newer = engine.pool.is_newer_than_home(page);
        let mut bytes: Box<PageBuf> = Box::new([0; PAGE_SIZE]);
        let found = match read(&*engine.home, page.0 * PAGE_SIZE as u64, &mut bytes[..]) {
            Ok(()) => verify(&bytes, page).map(|()| lsn(&bytes)),
            Err(source)
                if matches!(source.kind(), ErrorKind::TimedOut | ErrorKind::NotConnected) =>
            {
                return Err(Error::device(Part::Home, Action::Read)(source));
            }
            Err(_) => return Ok(false),
        };
        let is_newer = was_newer || engine.pool.is_newer_than_home(page);
        let is_sound = match found {
            Ok(lsn) => is_newer || lsn == newest,
            Err(Damage::Blank) => is_newer || newest == Lsn::ZERO,
            Err(_) => is_newer && engine.flash_role.is_persistent(),
        };
        if is_sound {
            return Ok(true);
        }
    }
    Ok(false)
}
