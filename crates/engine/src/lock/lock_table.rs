//! The lock table: which owners hold and wait for what, and which wait in a cycle.
//!
//! - T1: a resource has one partition, by its hash. An uncontended lock costs one short critical
//!   section there, and no memory but the request's, which is used again.
//! - T2: an owner that must wait enters the wait list, under its mutex, before it looks for a
//!   cycle. So the last one to close a cycle sees all of it: the owner that closes a cycle finds
//!   it, and gives way. An owner that does not wait touches none of this.
//! - T3: a circle may be seen that has just been broken by a release; then a transaction is run
//!   again needlessly.
//! - T4: first come, first served: an owner that requests a lock that conflicts with an earlier
//!   request waits behind it, unless it holds that resource already.
//! - T5: an owner gets a lock only by asking for it, so never while it waits for another: a new
//!   edge towards a waiting owner arises only from a request, and the owner that makes it then
//!   looks for a cycle.
//! - T6: owners of one task stand for each other: while one waits, none of them goes on. So a cycle
//!   may lead through two of them; an owner that would close it by waiting for an owner of its own
//!   task gets that error, not one that names others.
//!
//! The order of mutexes is: wait list, then one partition, or lists of free owners in their order.
//! None of them is held while waiting.

use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_page::TxnId;
use terrace_rt::{LeafMutex, Nanos, Waited, dead, lane, now, wait_until, wake_all};

use super::part::{Acquired, OwnerId, PART_BITS, Part};
use super::{Modes, Resource, TreeId};
use crate::{Error, TransactionId};

/// Transactions that can be open at once.
pub(crate) const OWNERS_MAX: usize = 1 << 16;
/// Lists of free owners: threads use different ones.
const OWNER_LISTS: usize = 16;
/// The table of owners grows by this number, and is never made smaller.
const OWNERS_CHUNK: usize = 1024;

/// `OwnerState::task` of an owner whose task has panicked.
const ORPHANED: u64 = u64::MAX;
const PARTS: usize = 1 << PART_BITS;
/// Bytes of a request with its share of the buckets.
const REQUEST_BYTES: u64 = 40;

const RUNNING: u64 = 0;
const WAITING: u64 = 1;
/// It was waiting, and its request is gone.
const INTERRUPTED: u64 = 2;

/// One open transaction, as locks know it.
#[derive(Debug)]
struct OwnerState {
    /// `RUNNING`, `WAITING` or `INTERRUPTED`, and the word to wait on.
    word: AtomicU64,
    /// The number of its transaction in the log, zero before that has written.
    txn: AtomicU64,
    /// What users call its transaction, zero until it is first asked for.
    number: AtomicU64,
    /// The key that it waits for, or waited for last.
    key: LeafMutex<Vec<u8>>,
    /// What it runs in, if that is one task or thread for as long as it lasts; else zero.
    task: AtomicU64,
}

/// A partition, alone on its cache lines: threads take different ones at the same time.
#[derive(Debug)]
#[repr(align(128))]
struct Line<T>(T);

/// The right to hold locks. Give it back with `LockTable::leave`.
#[derive(Debug)]
pub(crate) struct Owner {
    id: OwnerId,
}

/// How often locks were waited for, and how many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LockCounts {
    /// Requests that had to wait.
    pub(crate) waits: u64,
    /// Of those, how many closed a circle.
    pub(crate) deadlocks: u64,
    /// And how many ended at their time limit.
    pub(crate) timeouts: u64,
    /// Requests stored now.
    pub(crate) stored: u64,
}

/// All locks of a database.
#[derive(Debug)]
pub(crate) struct LockTable {
    parts: Vec<Line<LeafMutex<Part>>>,
    /// Chunks of `OWNERS_CHUNK`, made when all before are taken.
    owners: Vec<OnceLock<Box<[Line<OwnerState>]>>>,
    /// A list for each lane of threads.
    free_owners: Vec<Line<LeafMutex<Vec<OwnerId>>>>,
    /// For each owner of the chunks that are made, what it waits for.
    waiting: LeafMutex<Vec<Option<Resource>>>,
    /// Numbers of transactions given out.
    numbers: AtomicU64,
    waits: AtomicU64,
    deadlocks: AtomicU64,
    timeouts: AtomicU64,
}

/// Why a lock was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// To wait would close a circle.
    Circle,
    /// The table is full.
    Full,
    /// The world has lost its power.
    Dead,
    /// The time limit has passed. `holder` is the transaction that holds the lock; `queued` is the
    /// one that waits before this one, if this one conflicts with its request and not with what is
    /// held.
    TimedOut { holder: Option<TransactionId>, queued: Option<TransactionId> },
    /// Another task has ended the wait: the transaction is to give way.
    Interrupted,
    /// A transaction of the same task holds it, or its holders wait for that one.
    Nested { holder: TransactionId },
}

impl OwnerState {
    fn new() -> OwnerState {
        OwnerState {
            word: AtomicU64::new(RUNNING),
            txn: AtomicU64::new(0),
            number: AtomicU64::new(0),
            key: LeafMutex::new(Vec::new()),
            task: AtomicU64::new(0),
        }
    }
}

impl LockTable {
    /// A table that takes at most about `bytes` of memory, as it needs it.
    pub(crate) fn new(bytes: u64) -> LockTable {
        let requests = (bytes / REQUEST_BYTES / PARTS as u64).max(16) as usize;
        LockTable {
            parts: (0..PARTS).map(|_| Line(LeafMutex::new(Part::new(requests)))).collect(),
            owners: (0..OWNERS_MAX / OWNERS_CHUNK).map(|_| OnceLock::new()).collect(),
            free_owners: (0..OWNER_LISTS).map(|_| Line(LeafMutex::default())).collect(),
            waiting: LeafMutex::new(Vec::new()),
            numbers: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            deadlocks: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
        }
    }

    /// A new owner, which holds nothing. `task` is zero, or names the task or thread in which it
    /// begins and ends: owners of one task wait for each other in vain.
    ///
    /// # Errors
    ///
    /// `TooManyTransactions` if `OWNERS_MAX` transactions are open.
    pub(crate) fn enter(&self, task: u64) -> Result<Owner, Error> {
        let free = self.free_list().lock().pop();
        let id = free.map_or_else(|| self.find_owner(), Ok)?;
        let state = self.owner(id);
        state.txn.store(0, Ordering::Relaxed);
        state.number.store(0, Ordering::Relaxed);
        state.task.store(task, Ordering::Relaxed);
        Ok(Owner { id })
    }

    /// The free owners of the calling thread's lane.
    #[inline]
    fn free_list(&self) -> &LeafMutex<Vec<OwnerId>> {
        &self.free_owners[lane() % OWNER_LISTS].0
    }

    /// An owner from another list; if all are empty, the table of owners is made larger first.
    #[cold]
    fn find_owner(&self) -> Result<OwnerId, Error> {
        // The wait list has an entry for each owner, so it grows before the owners do.
        let mut waiting = self.waiting.lock();
        if let Some(id) = self.free_owners.iter().find_map(|list| list.0.lock().pop()) {
            return Ok(id);
        }
        let mut free = self.free_list().lock();
        let made = waiting.len();
        let many = Error::TooManyTransactions { max: OWNERS_MAX };
        let chunk = self.owners.get(made / OWNERS_CHUNK).ok_or(many)?;
        let fresh = chunk.set((0..OWNERS_CHUNK).map(|_| Line(OwnerState::new())).collect());
        assert!(fresh.is_ok(), "chunks of owners are made in order, each once");
        waiting.resize(made + OWNERS_CHUNK, None);
        free.extend((made as u32..(made + OWNERS_CHUNK) as u32).rev().map(OwnerId));
        Ok(free.pop().expect("just made"))
    }

    #[inline]
    fn owner(&self, id: OwnerId) -> &OwnerState {
        let at = id.0 as usize;
        let chunk = self.owners[at / OWNERS_CHUNK].get().expect("an owner was made before it is");
        &chunk[at % OWNERS_CHUNK].0
    }

    /// All that are made, whether they are in use or not.
    fn all_owners(&self) -> impl Iterator<Item = &OwnerState> {
        self.owners.iter().map_while(|chunk| chunk.get()).flatten().map(|owner| &owner.0)
    }

    /// The owner goes on in another task than the one it began in, and waits for no owner there.
    pub(crate) fn leave_task(&self, owner: &Owner) {
        self.owner(owner.id).task.store(ORPHANED, Ordering::Relaxed);
    }

    /// Sets the log's id of the owner's transaction, for owners that wait for it.
    pub(crate) fn set_txn(&self, owner: &Owner, txn: TxnId) {
        self.owner(owner.id).txn.store(txn.0, Ordering::Relaxed);
    }

    /// Removes an owner, which must have released everything.
    pub(crate) fn leave(&self, owner: Owner) {
        self.owner(owner.id).task.store(0, Ordering::Relaxed);
        self.free_list().lock().push(owner.id);
    }

    /// Whether a transaction is open in another task than `task`.
    pub(crate) fn is_open_beside(&self, task: u64) -> bool {
        let tasks = self.all_owners().map(|owner| owner.task.load(Ordering::Relaxed));
        tasks.filter(|&other| other != 0 && other != task).count() > 0
    }

    /// Owners there are.
    pub(crate) fn owners_count(&self) -> u64 {
        // With all lists held, no owner is on its way from one to another.
        let free: [_; OWNER_LISTS] = std::array::from_fn(|list| self.free_owners[list].0.lock());
        let made = self.owners.iter().take_while(|chunk| chunk.get().is_some()).count();
        (made * OWNERS_CHUNK - free.iter().map(|list| list.len()).sum::<usize>()) as u64
    }

    /// Locks `resource` if no owner is in the way; returns whether it did. Does not wait.
    ///
    /// # Errors
    ///
    /// `TooManyLocks` if the table is full.
    #[inline]
    pub(crate) fn try_acquire(
        &self,
        owner: &Owner,
        resource: Resource,
        modes: Modes,
    ) -> Result<bool, Error> {
        let acquired = self.part(resource).lock().acquire(resource, owner.id, modes);
        match acquired {
            Acquired::Granted => Ok(true),
            Acquired::Busy => Ok(false),
            Acquired::Full => Err(Error::TooManyLocks),
        }
    }

    /// Whether `owner` could lock `resource` now.
    pub(crate) fn is_free(&self, owner: &Owner, resource: Resource, modes: Modes) -> bool {
        self.part(resource).lock().is_free(resource, owner.id, modes)
    }

    /// Whether no owner holds `resource` or waits for it.
    pub(crate) fn is_unused(&self, resource: Resource) -> bool {
        self.part(resource).lock().is_unused(resource)
    }

    /// Whether an owner holds one of `modes` of `resource`.
    pub(crate) fn is_held(&self, resource: Resource, modes: Modes) -> bool {
        self.part(resource).lock().is_held(resource, modes)
    }

    /// Sets the key that the owner is about to wait for, for diagnostics.
    pub(crate) fn show_key(&self, owner: &Owner, key: &[u8]) {
        let mut shown = self.owner(owner.id).key.lock();
        shown.clear();
        shown.extend_from_slice(key);
    }

    /// Locks `resource`, waiting for others, for `limit` at most.
    ///
    /// # Errors
    ///
    /// Why it is not locked; then nothing of the request is left.
    pub(crate) fn acquire(
        &self,
        owner: &Owner,
        resource: Resource,
        modes: Modes,
        limit: Nanos,
    ) -> Result<(), Refused> {
        if self.enqueue(owner.id, resource, modes)? {
            return Ok(());
        }
        let word = &self.owner(owner.id).word;
        let deadline = now().saturating_add(limit);
        while word.load(Ordering::Acquire) == WAITING {
            if dead() {
                return Err(Refused::Dead);
            }
            if wait_until(word, WAITING, deadline) == Waited::TimedOut && now() >= deadline {
                return self.give_up(owner.id, resource);
            }
        }
        let mut waiting = self.waiting.lock();
        waiting[owner.id.0 as usize] = None;
        if word.swap(RUNNING, Ordering::AcqRel) == INTERRUPTED {
            return Err(Refused::Interrupted);
        }
        Ok(())
    }

    /// Ends the wait of the transaction that the log calls `txn`, if it waits for a lock: the
    /// transactions that it is to make way for may be those that it waits for.
    pub(crate) fn interrupt(&self, txn: TxnId) {
        let mut waiting = self.waiting.lock();
        for (owner, waits) in (0..).map(OwnerId).zip(waiting.iter_mut()) {
            let state = self.owner(owner);
            let Some(resource) = *waits else { continue };
            if state.txn.load(Ordering::Relaxed) != txn.0 {
                continue;
            }
            let mut part = self.part(resource).lock();
            if state.word.load(Ordering::Acquire) == WAITING {
                part.cancel(resource, owner, |granted| self.wake(granted));
                *waits = None;
                state.word.store(INTERRUPTED, Ordering::Release);
                wake_all(&state.word);
            }
        }
    }

    /// The time of a wait is over.
    fn give_up(&self, owner: OwnerId, resource: Resource) -> Result<(), Refused> {
        let mut waiting = self.waiting.lock();
        let mut part = self.part(resource).lock();
        waiting[owner.0 as usize] = None;
        let word = &self.owner(owner).word;
        match word.swap(RUNNING, Ordering::AcqRel) {
            WAITING => {}
            INTERRUPTED => return Err(Refused::Interrupted),
            // Granted at the last moment.
            _ => return Ok(()),
        }
        let (holder, queued) = part.in_the_way(resource, owner);
        part.cancel(resource, owner, |granted| self.wake(granted));
        self.timeouts.fetch_add(1, Ordering::Relaxed);
        let number = |owner: Option<OwnerId>| owner.map(|owner| self.number(owner));
        Err(Refused::TimedOut { holder: number(holder), queued: number(queued) })
    }

    /// The number by which users know an owner's transaction. It is drawn when it is first asked
    /// for.
    fn number(&self, owner: OwnerId) -> TransactionId {
        let number = &self.owner(owner).number;
        let known = number.load(Ordering::Relaxed);
        if known != 0 {
            return TransactionId(known);
        }
        let new = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let swapped = number.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed);
        TransactionId(swapped.map_or_else(|known| known, |_| new))
    }

    /// What users call the owner's transaction.
    pub(crate) fn id(&self, owner: &Owner) -> TransactionId {
        self.number(owner.id)
    }

    /// What users call the transaction that the log calls `txn`, if it locks anything.
    pub(crate) fn id_of(&self, txn: TxnId) -> Option<TransactionId> {
        let mut owners = self.all_owners();
        let at = owners.position(|owner| owner.txn.load(Ordering::Relaxed) == txn.0)?;
        Some(self.number(OwnerId(at as u32)))
    }

    /// Queues a request; true if it was granted at once.
    fn enqueue(&self, owner: OwnerId, resource: Resource, modes: Modes) -> Result<bool, Refused> {
        let mut waiting = self.waiting.lock();
        let mut blockers = Vec::new();
        {
            let mut part = self.part(resource).lock();
            match part.acquire(resource, owner, modes) {
                Acquired::Granted => return Ok(true),
                Acquired::Full => return Err(Refused::Full),
                Acquired::Busy => (),
            }
            if !part.want(resource, owner, modes) {
                return Err(Refused::Full);
            }
            part.blockers(resource, owner, &mut blockers);
            // Before the partition is released: a task that grants the lock must find this state.
            self.owner(owner).word.store(WAITING, Ordering::Release);
        }
        waiting[owner.0 as usize] = Some(resource);
        self.waits.fetch_add(1, Ordering::Relaxed);
        let Some(refused) = self.refused(owner, blockers, &waiting) else { return Ok(false) };
        // It may have been granted meanwhile.
        let word = &self.owner(owner).word;
        let mut part = self.part(resource).lock();
        waiting[owner.0 as usize] = None;
        if word.swap(RUNNING, Ordering::AcqRel) == RUNNING {
            return Ok(true);
        }
        part.cancel(resource, owner, |granted| self.wake(granted));
        if refused == Refused::Circle {
            self.deadlocks.fetch_add(1, Ordering::Relaxed);
        }
        Err(refused)
    }

    /// The task of an owner, zero if it may change.
    fn task(&self, owner: OwnerId) -> u64 {
        self.owner(owner).task.load(Ordering::Relaxed)
    }

    /// Whether two owners run in one task, so that neither goes on while the other waits.
    fn are_of_one_task(&self, one: OwnerId, other: OwnerId) -> bool {
        one != other && self.task(one) != 0 && self.task(one) == self.task(other)
    }

    /// Why `start`, behind `blockers`, would wait in vain: over others, for itself or its own task.
    fn refused(
        &self,
        start: OwnerId,
        blockers: Vec<OwnerId>,
        waiting: &[Option<Resource>],
    ) -> Option<Refused> {
        let mut seen = blockers;
        let mut is_seen = vec![false; waiting.len()];
        seen.iter().for_each(|owner| is_seen[owner.0 as usize] = true);
        let mut next = 0;
        while let Some(&owner) = seen.get(next) {
            next += 1;
            if owner == start {
                return Some(Refused::Circle);
            }
            if self.are_of_one_task(start, owner) {
                return Some(Refused::Nested { holder: self.number(owner) });
            }
            let mut blockers = Vec::new();
            match waiting[owner.0 as usize] {
                Some(resource) => {
                    self.part(resource).lock().blockers(resource, owner, &mut blockers)
                }
                None => blockers.extend(self.waits_for_its_task(owner, waiting)),
            }
            let is_new = |owner: &OwnerId| !std::mem::replace(&mut is_seen[owner.0 as usize], true);
            blockers.retain(is_new);
            seen.append(&mut blockers);
        }
        None
    }

    /// The owner of the task of `owner` that waits, so that `owner` does not go on.
    fn waits_for_its_task(&self, owner: OwnerId, waiting: &[Option<Resource>]) -> Option<OwnerId> {
        let task = self.task(owner);
        if task == 0 || task == ORPHANED {
            return None;
        }
        let all = (0..waiting.len() as u32).map(OwnerId);
        let mut that_wait = all.filter(|other| waiting[other.0 as usize].is_some());
        that_wait.find(|other| self.task(*other) == task)
    }

    /// Gives up one lock.
    #[inline]
    pub(crate) fn release(&self, owner: &Owner, resource: Resource) {
        self.part(resource).lock().release(resource, owner.id, |granted| self.wake(granted));
    }

    /// Which transactions wait for what, and which hold it: a line for each that waits, and one for
    /// each that holds what it waits for, or waits for it as well. `locked` names a key of a tree,
    /// or a whole one.
    pub(crate) fn waits(&self, locked: impl Fn(TreeId, Option<&[u8]>) -> String) -> String {
        let mut lines = String::new();
        let waiting = self.waiting.lock().clone();
        for (index, resource) in waiting.into_iter().enumerate() {
            let Some(resource) = resource else { continue };
            let owner = OwnerId(index as u32);
            let mut blockers = Vec::new();
            let queue = {
                let part = self.part(resource).lock();
                part.blockers(resource, owner, &mut blockers);
                part.describe(resource)
            };
            let blockers: Vec<String> =
                blockers.iter().map(|id| self.number(*id).to_string()).collect();
            let key = self.owner(owner).key.lock().clone();
            let what = locked(resource.tree(), (!resource.is_table()).then_some(&key));
            let _written = writeln!(
                lines,
                "{} waits for the lock of {what}, behind {}",
                self.number(owner),
                blockers.join(", "),
            );
            for (id, held, wanted) in queue {
                let number = self.number(id);
                let _written = match (held.is_none(), wanted.is_none()) {
                    (false, true) => writeln!(lines, "    {number} holds {held}"),
                    (true, _) => writeln!(lines, "    {number} waits for {wanted}"),
                    (false, false) => {
                        writeln!(lines, "    {number} holds {held}, waits for {wanted}")
                    }
                };
            }
        }
        lines
    }

    /// How often locks were waited for, and how many there are.
    pub(crate) fn counts(&self) -> LockCounts {
        LockCounts {
            waits: self.waits.load(Ordering::Relaxed),
            deadlocks: self.deadlocks.load(Ordering::Relaxed),
            timeouts: self.timeouts.load(Ordering::Relaxed),
            stored: self.parts().map(|part| part.lock().used() as u64).sum(),
        }
    }

    /// Asserts what the partitions promise.
    pub(crate) fn check(&self) {
        self.parts().for_each(|part| part.lock().check());
    }

    fn parts(&self) -> impl Iterator<Item = &LeafMutex<Part>> {
        self.parts.iter().map(|line| &line.0)
    }

    #[inline]
    fn part(&self, resource: Resource) -> &LeafMutex<Part> {
        &self.parts[resource.hash() % PARTS].0
    }

    /// Called under the partition of what was granted.
    fn wake(&self, owner: OwnerId) {
        let word = &self.owner(owner).word;
        word.store(RUNNING, Ordering::Release);
        wake_all(word);
    }
}

#[cfg(test)]
mod tests;
