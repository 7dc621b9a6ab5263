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
//! - L2: a claimed page has a registered home write, so nobody else writes it home before this
//!   write has ended, even if its slot is invalidated [sources.D3].
//! - L3: a page joins a BUF_WRITE batch under the partition's lock, and only if its slot is still
//!   valid: modifying a page invalidates its slot before the record is appended [sources.D1,
//!   sources.D2].
//! - L4: a page that is owed is not cleaned before it is redone: its copy lacks what the log has of
//!   it, which a BUF_WRITE would then take for written, and is the base of changes that have no
//!   image in the log.
//! - A slot whose bytes are damaged keeps its entry: the log has to keep what only it can tell.

use std::sync::atomic::Ordering;

use terrace_page::{Lsn, PageBuf, PageId, lsn, verify};
use terrace_policy::{CleanKey, Cleaning};
use terrace_tier::{Claim, Cleaned, Ended, Mutation, Root, UntilSync};

use crate::durability::dirty::Logged;
use crate::durability::ledger::DirtyLsns;
use crate::flow::homeward::home_runs;
use crate::io::{self, PageIo};
use crate::memory::frames::Staging;
use crate::memory::{Books, Place};
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

impl BufferPool {
    /// Claims runs and has them cleaned: the life of the cleaner.
    pub(crate) fn run_cleaner(&self) {
        let mut is_cleaning = false;
        while !self.background.is_closing() {
            let seen = self.cleaning.news.seen();
            let dirty = self.flash_dirty();
            let low = match self.durability.is_sharp() {
                true => 0,
                false => self.dirty_share(self.lambda() - BELOW_LAMBDA),
            };
            is_cleaning |= self.durability.is_sharp() || dirty > self.dirty_share(self.lambda());
            is_cleaning &= dirty > low && self.durability.check_writable().is_ok();
            let is_begun = match self.cleaning.rule {
                Cleaning::Sweeps => self.is_sweeping() && self.start_run(Start::Sweep),
                _ => {
                    is_cleaning
                        && self.has_more_than(low)
                        && self.start_run(Start::Tier(Root::First))
                }
            };
            if is_begun {
                continue;
            }
            let is_wanted = self.cleaning.rule == Cleaning::WhenWanted;
            if is_wanted
                && self.durability.check_writable().is_ok()
                && self.start_run(Start::Tier(Root::Wanted))
            {
                continue;
            }
            let floor = self.durability.age_floor();
            if floor > Lsn::ZERO
                && self.durability.check_writable().is_ok()
                && self.start_run(Start::Tier(Root::Below(floor)))
            {
                continue;
            }
            self.cleaning.news.wait(seen);
        }
    }

    /// Whether pages of a sweep are still to go home; begins one if it is time.
    fn is_sweeping(&self) -> bool {
        if self.durability.check_writable().is_err() {
            return false;
        }
        let share = if self.durability.is_sharp() { 0 } else { self.dirty_share(self.lambda()) };
        if self.cleaning.sweep.lock().is_over() && self.has_more_than(share) {
            for partition in &self.memory.partitions {
                let books = partition.books.lock();
                self.cleaning.sweep.lock().add(books.slots.cleanable_pages());
            }
            self.cleaning.sweep.lock().begin();
        }
        !self.cleaning.sweep.lock().is_over()
    }

    /// The next page of the sweep that is still to be cleaned.
    fn claim_swept(&self) -> Option<Claim> {
        loop {
            let page = self.cleaning.sweep.lock().next()?;
            let claim = self.claim(page);
            if claim.is_some() {
                return claim;
            }
        }
    }

    /// Starts to clean one run, from `start`. Whether it did.
    fn start_run(&self, start: Start) -> bool {
        if self.cleaning.runs.load(Ordering::Relaxed) >= self.runs_max() {
            return false;
        }
        let run = self.claim_run(start);
        if run.is_empty() {
            return false;
        }
        let Some(pool) = self.background.pool() else { return false };
        self.cleaning.runs.fetch_add(1, Ordering::Relaxed);
        self.background.spawn("cleaner run", pool, move |pool| {
            pool.clean(run);
            pool.cleaning.runs.fetch_sub(1, Ordering::Relaxed);
            pool.cleaning.news.notify_all();
            pool.cleaning.run_ended.notify_all();
        });
        true
    }

    /// Cleans one run in the calling task, when there is no cleaner any more. Whether it found one.
    pub(crate) fn clean_one_run(&self) -> bool {
        let run = self.claim_run(Start::Tier(Root::First));
        let is_found = !run.is_empty();
        if is_found {
            self.clean(run);
        }
        is_found
    }

    /// Claims the dirty page that `start` says, and its dirty neighbours at home.
    fn claim_run(&self, start: Start) -> Vec<Claim> {
        let root = match start {
            Start::Sweep => self.claim_swept(),
            Start::Tier(root) => self.claim_root(root),
        };
        let Some(root) = root else { return Vec::new() };
        let alpha = self.config.alpha as usize;
        let mut after = Vec::new();
        while after.len() + 1 < alpha {
            match self.claim(root.page().plus(after.len() as u64 + 1)) {
                Some(claim) => after.push(claim),
                None => break,
            }
        }
        let mut before = Vec::new();
        while before.len() + 1 + after.len() < alpha {
            let page = root.page().0.checked_sub(before.len() as u64 + 1);
            match page.and_then(|page| self.claim(PageId(page))) {
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
    fn claim_root(&self, root: Root) -> Option<Claim> {
        let mut best: Option<(terrace_rt::LeafGuard<'_, Books>, u32, CleanKey)> = None;
        // Locks are taken in order of partitions; the best one's is kept.
        for partition in &self.memory.partitions {
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

    /// Claims `page` if it is dirty on flash and nobody uses the slot.
    fn claim(&self, page: PageId) -> Option<Claim> {
        let partition = self.memory.partition(page);
        let mut books = partition.books.lock();
        let slot = match partition.find(&books, &self.memory.frames, page) {
            Place::Memory(id) => self.memory.frames.frame(id).slot()?,
            Place::Flash(slot) => slot,
            Place::Nowhere => return None,
        };
        if !books.ledger.may_go_home(page) {
            return None;
        }
        let claim = books.slots.claim(slot)?;
        Some(register(&mut books, claim))
    }

    /// Cleans a run of consecutive pages.
    fn clean(&self, run: Vec<Claim>) {
        let mut staging = Staging::new(run.len());
        let whole = self.stage(&run, &mut staging);
        let at_home = self.write_staged(&run, &whole, &staging).is_ok();
        let slots: Vec<u32> = run.iter().map(|claim| self.slot_number(claim)).collect();
        for (claim, whole) in run.into_iter().zip(whole) {
            self.end_claim(
                claim,
                match (whole, at_home) {
                    (Staged::Whole, true) => Cleaned::AtHome,
                    (Staged::Damaged, _) => Cleaned::Damaged,
                    (Staged::Whole, false) => Cleaned::NotYet,
                },
            );
        }
        self.restart.harden(self, &slots);
        // A failed sync stops the pool, and the next writer reports it.
        let _failed: Result<(), PoolError> = self.log_buf_writes(Logged::Full);
    }

    /// The slot of a claim, over all partitions.
    fn slot_number(&self, claim: &Claim) -> u32 {
        self.memory.partition(claim.page()).first_slot + claim.slot()
    }

    /// Reads the run from flash; says which pages are whole.
    fn stage(&self, run: &[Claim], staging: &mut Staging) -> Vec<Staged> {
        let flash = self.devices.flash();
        let ios = run.iter().zip(staging.pages_mut()).map(|(claim, bytes)| {
            PageIo::read(self.memory.partition(claim.page()).slot_page(claim.slot()), [bytes])
        });
        if io::run(flash, ios.collect()).is_err() {
            self.devices.count_fault();
            // One bad sector must not keep the others from home: one by one, then.
            return run
                .iter()
                .zip(staging.pages_mut())
                .map(|row| self.stage_one(row.0, row.1))
                .collect();
        }
        let judge = |(claim, bytes): (&Claim, &PageBuf)| {
            let is_whole =
                self.config.mutations.has(Mutation::SkipVerify) || self.is_copy(claim, bytes);
            if is_whole { Staged::Whole } else { Staged::Damaged }
        };
        run.iter().zip(staging.pages()).map(judge).collect()
    }

    /// Whether what was read from the slot is the page, in the version that was written there.
    fn is_copy(&self, claim: &Claim, bytes: &PageBuf) -> bool {
        self.is_copy_of(claim.page(), claim.slot(), bytes)
    }

    /// Whether `bytes` are `page` in the version that was written into `slot`.
    pub(crate) fn is_copy_of(&self, page: PageId, slot: u32, bytes: &PageBuf) -> bool {
        let books = self.memory.partition(page).books.lock();
        let is_version =
            !self.config.mutations.checks_versions() || books.slots.may_be(slot, lsn(bytes));
        verify(bytes, page).is_ok() && is_version
    }

    fn stage_one(&self, claim: &Claim, bytes: &mut PageBuf) -> Staged {
        let flash = self.devices.flash();
        let number = self.memory.partition(claim.page()).slot_page(claim.slot());
        match io::run(flash, vec![PageIo::read(number, [&mut *bytes])]) {
            Err(_) => Staged::Damaged,
            Ok(()) if !self.is_copy(claim, bytes) => Staged::Damaged,
            Ok(()) => Staged::Whole,
        }
    }

    /// Writes the whole pages home, one write for each unbroken run of them.
    fn write_staged(
        &self,
        run: &[Claim],
        staged: &[Staged],
        staging: &Staging,
    ) -> Result<(), PoolError> {
        let whole = (0..run.len()).filter(|&at| staged[at] == Staged::Whole);
        let whole: Vec<(PageId, &PageBuf)> =
            whole.map(|at| (run[at].page(), &staging.pages()[at])).collect();
        self.devices.count_cleaning(&whole, run.len());
        self.durability.write_shielded(&whole, |part| io::run(&*self.devices.home, home_runs(part)))
    }

    pub(crate) fn end_claim(&self, claim: Claim, cleaned: Cleaned) {
        let (page, slot, rec_lsn) = (claim.page(), claim.slot(), claim.rec_lsn());
        let partition = self.memory.partition(page);
        let mut books = partition.books.lock();
        // Until home is synced the copy on flash stands for the page.
        let until_sync =
            if self.restart.rules.keeps_bases { UntilSync::Pinned } else { UntilSync::Reusable };
        let ended = books.slots.cleaned(claim, cleaned, until_sync);
        if ended == Ended::Clean {
            let mut lsns = DirtyLsns::at(rec_lsn);
            if until_sync == UntilSync::Pinned {
                lsns.base = Lsn::MAX;
                books.ledger.keep_until_sync(slot, page);
            } else {
                self.restart.cleaned(self, partition.first_slot + slot, page);
            }
            self.written_home(&mut books, page, lsns);
        } else if cleaned == Cleaned::AtHome && self.config.mutations.has(Mutation::JoinModified) {
            self.durability.join_buf_write(page);
        }
        books.ledger.home_write_ends(page);
        drop(books);
        partition.home_write_ended.notify_all();
    }
}

/// What staging a page came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Staged {
    Whole,
    Damaged,
}

/// L2: the home write of a claimed page begins.
pub(crate) fn register(books: &mut Books, claim: Claim) -> Claim {
    books.ledger.home_write_begins(claim.page());
    claim
}
