//! The lazy cleaner: brings pages that are newer on flash home, in runs of neighbours [S0 2.3.3,
//! 3.3.5; S3 II-B].
//!
//! ```text
//! wake when dirty > lambda * S, until dirty <= (lambda - 0.0001) * S,
//! and while the first slot in order by recLSN is below the floor of `age`:
//!   claim:  the first slot of all partitions' dirty orders, up to alpha dirty neighbours at home
//!   clean:  read the slots into staging, one write home, then each slot CLEAN, or FREE if its page
//!           was modified meanwhile
//! ```
//!
//! Designs that sweep take all that is dirty, in the order of home (`sweep`), instead of the first.
//!
//! Designs that rank slots by benefit have no lambda: dirty slots whose pages benefit least are
//! cleaned when they are next to be reused, a few ahead, so that a victim is at home when it is
//! wanted [S1e 5].
//!
//! - L1: one task claims; each run is cleaned by a task of its own, up to `cleaner_ios` at a time:
//!   the whole excess is on its way at once, as deep a queue as the disks can use.
//! - L2: a claimed page has a registered home write, so no other task writes it home before this
//!   write has ended, even if its slot is invalidated [sources.D3].
//! - L3: a page joins a BUF_WRITE batch under the partition's lock, and only if its slot is still
//!   valid: modifying a page invalidates its slot before the record is appended [sources.D1,
//!   sources.D2].
//! - L4: a page with pending redo is not cleaned before it is redone: its copy lacks changes that
//!   the log has, and that a BUF_WRITE would then call written; and the copy is the base of these
//!   changes.
//! - A slot whose bytes are damaged keeps its dirty entry, so that the log keeps the changes.

use terrace_page::{Lsn, PageBuf, PageId, lsn, verify};
use terrace_policy::{CleanKey, Cleaning};
use terrace_rt::LeafGuard;
use terrace_tier::{Claim, Cleaned, Ended, Mutation, Root, UntilSync};

use crate::durability::dirty::Logged;
use crate::durability::ledger::DirtyLsns;
use crate::flow::homeward::{bring_home, read_copies};
use crate::io::PageIo;
use crate::memory::Section;
use crate::memory::frames::Staging;
use crate::memory::{Books, Memory, Place};
use crate::{BufferPool, PoolError};

/// How far below lambda the cleaner goes, as a share of the slots [S0 2.3.3].
const BELOW_LAMBDA: f64 = 0.0001;

/// Where a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// With a dirty slot of the tier's choice.
    Tier(Root),
    /// With the next page of the sweep.
    Sweep,
}

/// The task that claims runs and has them cleaned.
struct Cleaner<'p> {
    pool: &'p BufferPool,
    /// Too much was dirty, and is still above the lower bound.
    is_cleaning: bool,
}

/// The life of the cleaner.
pub(crate) fn run_cleaner(pool: &BufferPool) {
    let mut cleaner = Cleaner { pool, is_cleaning: false };
    while !pool.background.is_closing() {
        let seen = pool.cleaning.news.seen();
        if !cleaner.begins() {
            pool.cleaning.news.wait(seen);
        }
    }
}

impl Cleaner<'_> {
    /// Begins a run, if there is one to begin.
    fn begins(&mut self) -> bool {
        let BufferPool { cleaning, durability, .. } = self.pool;
        let (dirty, is_sharp) = (cleaning.dirty(), durability.is_sharp());
        let low = if is_sharp { 0 } else { cleaning.dirty_max(BELOW_LAMBDA) };
        self.is_cleaning |= is_sharp || dirty > cleaning.dirty_max(0.0);
        self.is_cleaning &= dirty > low && durability.check_writable().is_ok();
        let is_begun = match cleaning.rule {
            Cleaning::Sweeps => self.is_sweeping() && self.start_run(Start::Sweep),
            _ => {
                let has_more = self.is_cleaning && cleaning.has_more_than(low);
                has_more && self.start_run(Start::Tier(Root::First))
            }
        };
        if is_begun || durability.check_writable().is_err() {
            return is_begun;
        }
        if cleaning.rule == Cleaning::WhenWanted && self.start_run(Start::Tier(Root::Wanted)) {
            return true;
        }
        let floor = durability.age_floor();
        floor > Lsn::ZERO && self.start_run(Start::Tier(Root::Below(floor)))
    }

    /// Whether pages of a sweep are still to be written home; begins a sweep if it is time.
    fn is_sweeping(&self) -> bool {
        let BufferPool { cleaning, durability, .. } = self.pool;
        if durability.check_writable().is_err() {
            return false;
        }
        let share = if durability.is_sharp() { 0 } else { cleaning.dirty_max(0.0) };
        if cleaning.sweep.lock().is_over() && cleaning.has_more_than(share) {
            for partition in &self.pool.memory.partitions {
                let books = partition.books.lock();
                cleaning.sweep.lock().add(books.slots.cleanable_pages());
            }
            cleaning.sweep.lock().begin();
        }
        !cleaning.sweep.lock().is_over()
    }

    /// Starts to clean one run, from `start`. Whether it did.
    fn start_run(&self, start: Start) -> bool {
        if !self.pool.cleaning.may_begin() {
            return false;
        }
        let claims = claim_run(self.pool, start);
        if claims.is_empty() {
            return false;
        }
        spawn_run(self.pool, "cleaner run", move |pool| Run::new(pool, claims).clean());
        true
    }
}

/// Runs `work`, which brings pages home, in a task of its own, unless the pool is being dropped.
pub(super) fn spawn_run(
    pool: &BufferPool,
    name: &'static str,
    work: impl FnOnce(&BufferPool) + Send + 'static,
) {
    let Some(owned) = pool.background.pool() else { return work(pool) };
    pool.cleaning.run_begins();
    pool.background.spawn(name, owned, move |pool| {
        work(pool);
        pool.cleaning.run_ends();
    });
}

/// Cleans one run in the calling task, when there is no cleaner any more. Whether it found one.
pub(crate) fn clean_one_run(pool: &BufferPool) -> bool {
    let claims = claim_run(pool, Start::Tier(Root::First));
    let is_found = !claims.is_empty();
    if is_found {
        Run::new(pool, claims).clean();
    }
    is_found
}

/// Claims the dirty page that `start` says, and its dirty neighbours at home.
fn claim_run(pool: &BufferPool, start: Start) -> Vec<Claim> {
    let memory = &pool.memory;
    let root = match start {
        Start::Sweep => loop {
            // The next page of the sweep that is still to be cleaned.
            let Some(page) = pool.cleaning.sweep.lock().next() else { break None };
            if let Some(claim) = claim(memory, page) {
                break Some(claim);
            }
        },
        Start::Tier(root) => claim_root(memory, root),
    };
    let Some(root) = root else { return Vec::new() };
    let alpha = pool.config.alpha as usize;
    let mut after = Vec::new();
    while after.len() + 1 < alpha {
        match claim(memory, root.page().plus(after.len() as u64 + 1)) {
            Some(claim) => after.push(claim),
            None => break,
        }
    }
    let mut before = Vec::new();
    while before.len() + 1 + after.len() < alpha {
        let page = root.page().0.checked_sub(before.len() as u64 + 1);
        match page.and_then(|page| claim(memory, PageId(page))) {
            Some(claim) => before.push(claim),
            None => break,
        }
    }
    before.reverse();
    before.push(root);
    before.append(&mut after);
    before
}

/// The first of the partitions' first dirty slots, lambda being global [sources.R3].
fn claim_root(memory: &Memory, root: Root) -> Option<Claim> {
    let mut best: Option<(LeafGuard<'_, Books>, u32, CleanKey)> = None;
    // Locks are taken in order of partitions; the best one's is kept.
    for partition in &memory.partitions {
        let mut books = partition.books.lock();
        let Books { slots, ledger, .. } = &mut *books;
        let may = |page| ledger.may_go_home(page);
        let Some((slot, key)) = slots.root(root, may) else { continue };
        if best.as_ref().is_none_or(|&(_, _, least)| key < least) {
            best = Some((books, slot, key));
        }
    }
    let (mut books, slot, _) = best?;
    let claim = books.slots.claim_root(slot);
    Some(register(&mut books, claim))
}

/// Claims `page` if it is dirty on flash and no task uses the slot.
fn claim(memory: &Memory, page: PageId) -> Option<Claim> {
    let partition = memory.partition(page);
    let mut books = partition.books.lock();
    let slot = match partition.find(&books, &memory.frames, page) {
        Place::Memory(id) => memory.frames.frame(id).slot()?,
        Place::Flash(slot) => slot,
        Place::Nowhere => return None,
    };
    if !books.ledger.may_go_home(page) {
        return None;
    }
    let claim = books.slots.claim(slot)?;
    Some(register(&mut books, claim))
}

/// L2: the home write of a claimed page begins.
pub(crate) fn register(books: &mut Books, claim: Claim) -> Claim {
    books.ledger.home_write_begins(claim.page());
    claim
}

/// Consecutive pages that are being cleaned.
struct Run<'p> {
    pool: &'p BufferPool,
    claims: Vec<Claim>,
    /// Their bytes, once they are read.
    staging: Staging,
}

impl<'p> Run<'p> {
    fn new(pool: &'p BufferPool, claims: Vec<Claim>) -> Run<'p> {
        Run { pool, staging: Staging::new(claims.len()), claims }
    }

    fn clean(mut self) {
        let whole = self.stage();
        let at_home = self.write_home(&whole).is_ok();
        let number =
            |claim: &Claim| self.pool.memory.partition(claim.page()).first_slot + claim.slot();
        let slots: Vec<u32> = self.claims.iter().map(number).collect();
        for (claim, is_whole) in self.claims.into_iter().zip(whole) {
            let cleaned = match (is_whole, at_home) {
                (true, true) => Cleaned::AtHome,
                (false, _) => Cleaned::Damaged,
                (true, false) => Cleaned::NotYet,
            };
            end_claim(self.pool, claim, cleaned);
        }
        self.pool.restart.harden(self.pool, &slots);
        // A failed sync stops the pool, and the next writer reports it.
        let _failed: Result<(), PoolError> = self.pool.log_buf_writes(Logged::Full);
    }

    /// Reads the run from flash; says which pages are whole.
    fn stage(&mut self) -> Vec<bool> {
        let BufferPool { memory, config, .. } = self.pool;
        let number = |claim: &Claim| memory.partition(claim.page()).slot_page(claim.slot());
        let numbers: Vec<u64> = self.claims.iter().map(number).collect();
        let places = numbers.iter().copied().enumerate();
        let is_read = read_copies(self.pool, &mut self.staging, places, |staging| {
            let pages = numbers.iter().zip(staging.pages_mut());
            pages.map(|(&number, bytes)| PageIo::read(number, [bytes])).collect()
        });
        let is_whole = |(claim, bytes): (&Claim, &PageBuf)| {
            (is_read && config.mutations.has(Mutation::SkipVerify))
                || is_copy_of(self.pool, claim.page(), claim.slot(), bytes)
        };
        self.claims.iter().zip(self.staging.pages()).map(is_whole).collect()
    }

    /// Writes the whole pages home, one write for each unbroken run of them.
    fn write_home(&self, whole: &[bool]) -> Result<(), PoolError> {
        let at_once = whole.len();
        let whole = (0..whole.len()).filter(|&at| whole[at]);
        let whole: Vec<(PageId, &PageBuf)> =
            whole.map(|at| (self.claims[at].page(), &self.staging.pages()[at])).collect();
        bring_home(self.pool, &whole, at_once)
    }
}

/// Whether `bytes` are `page` in the version that was written into `slot`.
pub(crate) fn is_copy_of(pool: &BufferPool, page: PageId, slot: u32, bytes: &PageBuf) -> bool {
    let books = pool.memory.partition(page).books.lock();
    let checks = pool.config.mutations.checks_versions();
    verify(bytes, page).is_ok() && (!checks || books.slots.may_be(slot, lsn(bytes)))
}

/// The cleaning of a claimed page has come to this.
pub(crate) fn end_claim(pool: &BufferPool, claim: Claim, cleaned: Cleaned) {
    let (page, slot, rec_lsn) = (claim.page(), claim.slot(), claim.rec_lsn());
    let partition = pool.memory.partition(page);
    let mut section = Section::enter(pool, partition);
    // Until home is synced the copy on flash stands for the page.
    let until_sync =
        if pool.restart.rules.keeps_bases { UntilSync::Pinned } else { UntilSync::Reusable };
    let ended = section.books.slots.cleaned(claim, cleaned, until_sync);
    if ended == Ended::Clean {
        let mut lsns = DirtyLsns::at(rec_lsn);
        if until_sync == UntilSync::Pinned {
            lsns.base = Lsn::MAX;
            section.books.ledger.keep_until_sync(slot, page);
        } else {
            pool.restart.cleaned(pool, section.number(slot), page);
        }
        section.written_home(page, lsns);
    } else if cleaned == Cleaned::AtHome && pool.config.mutations.has(Mutation::JoinModified) {
        pool.durability.join_buf_write(page);
    }
    section.books.ledger.home_write_ends(page);
    drop(section);
    partition.home_write_ended.notify_all();
}
