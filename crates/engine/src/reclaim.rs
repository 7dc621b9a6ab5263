//! Background reclaim: one task that gives back what transactions have left behind.
//!
//! ```text
//!   offer --> leaves (bounded) ----+
//!   offer --> chains, trees -------+--> perform, a piece at a time --> done
//!   survey (at opening, and after  |           |           |
//!   leaves overflowed) ------------+           |           +-- more left: back into its queue
//!                          `ended` <-- blocked: a transaction may still want it undone
//! ```
//!
//! The queues are hints. All garbage is recorded in pages: an emptied leaf in its tree, chains of
//! large values in the list of their tree's header, dropped trees in the catalog; of blocks a mark
//! in the header. The task looks through all headers once after opening, sweeps the trees that are
//! marked, and looks at the leaves that the log of a crash tells of, so a crash, an error or a full
//! queue loses nothing but a leaf that waited longer than from one checkpoint to a crash. Closing
//! waits for the queue, for a time.
//!
//! A compaction takes its steps in turn with the task ([`Reclaim::lend`]): one of both is at work.
//!
//! - R1: the task asks for no transaction lock and holds no latch while it waits. Each piece of
//!   work is a transaction of its own that commits at once.
//! - R2: it waits for a signal, or after an error for a time; it never spins.
//! - R3: once `stop` has returned, no piece of work is under way and none begins.
//! - R4: garbage that an open transaction may undo, or an open snapshot sees, waits in `blocked`
//!   until `ended` says that all transactions up to the one that made it are over, and `seen` that
//!   all snapshots see that.
//! - R5: a leaf waits once, whichever transactions offer it, with the least and the greatest key
//!   that it was offered with: if it was split meanwhile, all that lies between is looked at. Kinds
//!   of work are served in turn. A transaction that leaves removed keys behind faster than they are
//!   purged waits, like one that puts large values faster than they are freed.
//! - R6: an operation that finds home full waits as long as the task frees something, and is tried
//!   again ([`Reclaim::frees_more`]). Not for garbage that its own transaction holds up: for that
//!   `Database::write` ends the transaction, and runs it again ([`Reclaim::held_up`]).

mod space_wait;
mod task;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use terrace_page::{PageId, TxnId};
use terrace_rt::{LeafMutex, Nanos, Signal, Waited, dead, now};

pub(crate) use self::space_wait::{HeldUp, SpaceWait};
use crate::{Error, TreeId};

/// Leaves that wait. What comes on top is found again by a scan or by the next opening.
const LEAVES_MAX: usize = 4096;
/// Bytes of large values that may wait to be freed before a transaction that puts another one
/// waits, too.
const BEHIND_MAX: u64 = 512 << 10;
/// Leaves that may wait before a transaction that adds another one waits, too.
const LEAVES_BEHIND_MAX: usize = 96;
/// The longest such wait, and that for the queue at closing.
const PACE: Nanos = Nanos::from_secs(1);
/// How long another task that has had its turn lets the task begin before it takes the next one.
const GIVES_WAY: Nanos = Nanos::from_millis(5);
const NOTHING_BLOCKED: u64 = u64::MAX;

/// A piece of garbage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    /// The leaves from one key to another: removed keys to purge, or merges that are worth it.
    Leaf(TreeId, Box<[u8]>, Box<[u8]>),
    /// All leaves of a tree from that of a key on: too many to be queued one by one.
    Sweep(TreeId, Box<[u8]>),
    /// The leaf in a page, if it is one: a crash came between a removal and its purge.
    Page(PageId),
    /// Large values of a tree that were given up.
    Chains(TreeId),
    /// Pages of a tree's blocks that no record refers to.
    Blocks(TreeId),
    /// Those that it would keep for its next blocks, too: home is full.
    Spare(TreeId),
    /// A tree that a committed transaction dropped.
    Tree(TreeId),
    /// All trees: what of them is garbage.
    Survey,
}

/// How far a piece of work got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// To its end.
    Done,
    /// There is more to do.
    More,
    /// No further before this transaction, and all older ones, have ended.
    Blocked(TxnId),
}

/// The leaves of a page, and of what was split from it.
struct Leaves {
    tree: TreeId,
    least: Box<[u8]>,
    /// None if it is the least.
    greatest: Option<Box<[u8]>>,
}

impl Leaves {
    fn extend(&mut self, key: Box<[u8]>) {
        let greatest = self.greatest.as_ref().unwrap_or(&self.least);
        if key > *greatest {
            self.greatest = Some(key);
        } else if key < self.least {
            let least = std::mem::replace(&mut self.least, key);
            self.greatest.get_or_insert(least);
        }
    }

    fn into_work(self) -> Work {
        let greatest = self.greatest.unwrap_or_else(|| self.least.clone());
        Work::Leaf(self.tree, self.least, greatest)
    }
}

/// The kind of `Work::Blocks`.
const BLOCKS: usize = 6;
/// Kinds of work, by `kind`. Leaves are of one of them when they are tried again.
const KINDS: usize = 8;

#[derive(Default)]
struct Queue {
    /// Pages of leaves, in the order in which they were offered.
    order: VecDeque<PageId>,
    leaves: BTreeMap<PageId, Leaves>,
    /// Trees that are being swept, and whether leaves found no place since their sweeps began.
    sweeps: BTreeMap<TreeId, bool>,
    /// Of a kind at most one per tree, but for pages after a crash.
    others: [BTreeSet<Work>; KINDS],
    /// The kind that is served next; `KINDS` is leaves that were offered.
    turn: usize,
    /// With the transaction whose end each piece waits for.
    blocked: BTreeMap<Work, TxnId>,
    /// The task is at work.
    is_busy: bool,
    /// Another one is, which has its turn.
    is_lent: bool,
    /// Others wait for a turn, and had the last one.
    turns_wanted: u32,
    was_lent: bool,
    is_stopped: bool,
    /// It has met errors for long.
    is_resting: bool,
    /// How many pieces of work were performed, and whether the last one met an error.
    performed: u64,
    has_met_error: bool,
    /// The number of readers of what the task would change.
    pauses: u32,
    /// Leaves found no place: look through the trees once the queue is empty.
    has_overflowed: bool,
}

impl Queue {
    fn push(&mut self, work: Work) {
        self.others[kind(&work)].insert(work);
    }

    fn push_leaf(&mut self, tree: TreeId, page: PageId, key: Box<[u8]>) {
        if let Some(leaves) = self.leaves.get_mut(&page).filter(|leaves| leaves.tree == tree) {
            leaves.extend(key);
        } else if self.leaves.len() < LEAVES_MAX && !self.leaves.contains_key(&page) {
            self.order.push_back(page);
            self.leaves.insert(page, Leaves { tree, least: key, greatest: None });
        } else {
            self.sweep(tree);
            self.has_overflowed = true;
        }
    }

    fn sweep(&mut self, tree: TreeId) {
        if let Some(again) = self.sweeps.get_mut(&tree) {
            *again = true;
        } else {
            self.sweeps.insert(tree, false);
            self.push(Work::Sweep(tree, Box::default()));
        }
    }

    /// Whether it makes no sense to wait for the task.
    fn goes_on_alone(&self) -> bool {
        self.is_stopped || self.is_resting || self.pauses > 0
    }

    /// Neither the task nor a borrower of its turn is at work.
    fn is_idle(&self) -> bool {
        !self.is_busy && !self.is_lent
    }

    /// Whether anything waits that the task can do at once.
    fn has_work(&self) -> bool {
        self.is_busy || self.is_lent || self.has_others() || !self.order.is_empty()
    }

    fn has_others(&self) -> bool {
        self.others.iter().any(|works| !works.is_empty())
    }

    /// What is served next: the kinds in turn.
    fn pop(&mut self) -> Option<Work> {
        for _ in 0..=KINDS {
            let turn = self.turn;
            self.turn = (turn + 1) % (KINDS + 1);
            let work = match self.others.get_mut(turn) {
                Some(works) => works.pop_first(),
                None => self.order.pop_front().map(|page| {
                    let leaves = self.leaves.remove(&page).expect("its order has each once");
                    leaves.into_work()
                }),
            };
            if work.is_some() {
                return work;
            }
        }
        None
    }

    /// What is left to do of a piece of work. Returns the transaction that it waits for, if it
    /// does.
    fn put_back(&mut self, work: Work, performed: Result<Progress, Error>) -> Option<TxnId> {
        match performed {
            Ok(Progress::Done) => {}
            Ok(Progress::More) => self.push(work),
            Ok(Progress::Blocked(txn)) => {
                self.blocked.insert(work, txn);
                return Some(txn);
            }
            Err(error) if may_pass(&error) => self.push(work),
            // A damaged page: its reader gets the error, and the next opening tries again.
            Err(_) => {
                if let Work::Sweep(tree, _) = work {
                    self.has_swept(tree);
                }
            }
        }
        None
    }

    /// A sweep has come to the end of its tree, or no further.
    fn has_swept(&mut self, tree: TreeId) {
        match self.sweeps.get_mut(&tree) {
            Some(again) if *again => {
                *again = false;
                self.push(Work::Sweep(tree, Box::default()));
            }
            _ => drop(self.sweeps.remove(&tree)),
        }
    }
}

/// The queue of the reclaim task.
pub(crate) struct Reclaim {
    queue: LeafMutex<Queue>,
    wanted: Signal,
    idle: Signal,
    /// Given when another task may have its turn.
    turn: Signal,
    /// The least transaction that blocked work waits for.
    blocked_until: AtomicU64,
    /// The least that an open snapshot may not see, or less: some may have been closed since.
    seen_until: AtomicU64,
    /// Bytes of large values that wait to be freed, about.
    behind: AtomicU64,
    /// Leaves that wait, about.
    leaves_behind: AtomicUsize,
}

impl Reclaim {
    pub(crate) fn new() -> Reclaim {
        Reclaim {
            queue: LeafMutex::new(Queue::default()),
            wanted: Signal::new(),
            idle: Signal::new(),
            turn: Signal::new(),
            blocked_until: AtomicU64::new(NOTHING_BLOCKED),
            seen_until: AtomicU64::new(u64::MAX),
            behind: AtomicU64::new(0),
            leaves_behind: AtomicUsize::new(0),
        }
    }

    /// Hands work to the task. Never waits.
    pub(crate) fn offer(&self, work: Work) {
        self.queue.lock().push(work);
        self.wanted.notify_all();
    }

    /// Hands over leaves in which a transaction that has ended left removed keys. Never waits: if
    /// there is no place, their tree is swept.
    pub(crate) fn offer_leaves(&self, leaves: impl Iterator<Item = (TreeId, PageId, Box<[u8]>)>) {
        {
            let mut queue = self.queue.lock();
            leaves.for_each(|(tree, page, key)| queue.push_leaf(tree, page, key));
            self.leaves_behind.store(queue.leaves.len(), Ordering::Relaxed);
        }
        self.wanted.notify_all();
    }

    /// Hands over a tree in which a transaction that has ended gave up large values of `bytes`.
    pub(crate) fn offer_chains(&self, tree: TreeId, bytes: u64) {
        self.behind.fetch_add(bytes, Ordering::Relaxed);
        self.offer(Work::Chains(tree));
    }

    /// Large values of `bytes`, or a part of them, are freed.
    pub(crate) fn freed(&self, bytes: u64) {
        let behind = self.behind.load(Ordering::Relaxed);
        self.behind.store(behind.saturating_sub(bytes), Ordering::Relaxed);
    }

    /// Called before a large value is put, without latches: waits while the task has much to free
    /// that nothing blocks, so that garbage does not outgrow what is live. Never waits for long.
    #[inline]
    pub(crate) fn keep_pace(&self) {
        if self.behind.load(Ordering::Relaxed) > BEHIND_MAX {
            self.wait_while(|queue| {
                let has_work = queue.is_busy || queue.has_others();
                has_work && self.behind.load(Ordering::Relaxed) > BEHIND_MAX
            });
        }
    }

    /// Called after a transaction has left removed keys in leaves, without locks and latches: waits
    /// while many leaves wait. Never waits for long.
    #[inline]
    pub(crate) fn keep_pace_with_leaves(&self) {
        if self.leaves_behind.load(Ordering::Relaxed) > LEAVES_BEHIND_MAX {
            self.wait_while(|queue| queue.leaves.len() > LEAVES_BEHIND_MAX / 2);
        }
    }

    #[cold]
    fn wait_while(&self, is_behind: impl Fn(&Queue) -> bool) {
        let deadline = now().saturating_add(PACE);
        loop {
            let seen = self.idle.seen();
            let goes_on = {
                let queue = self.queue.lock();
                queue.goes_on_alone() || !is_behind(&queue)
            };
            if goes_on || dead() || self.idle.wait_until(seen, deadline) == Waited::TimedOut {
                return;
            }
        }
    }

    /// All transactions below `oldest` have ended.
    #[inline]
    pub(crate) fn ended(&self, oldest: TxnId) {
        let blocked = self.blocked_until.load(Ordering::Acquire);
        if oldest.0 > blocked && self.seen_until.load(Ordering::Acquire) > blocked {
            self.unblock();
        }
    }

    /// Whether work waits for the end of a transaction or of a snapshot.
    #[inline]
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked_until.load(Ordering::Acquire) != NOTHING_BLOCKED
    }

    /// Open snapshots may not see `least`, nor what came later.
    pub(crate) fn seen(&self, least: Option<TxnId>, oldest: TxnId) {
        self.seen_until.store(least.map_or(u64::MAX, |least| least.0), Ordering::Release);
        self.ended(oldest);
    }

    #[cold]
    fn unblock(&self) {
        {
            let mut queue = self.queue.lock();
            std::mem::take(&mut queue.blocked).into_keys().for_each(|work| queue.push(work));
            self.blocked_until.store(NOTHING_BLOCKED, Ordering::Release);
        }
        self.wanted.notify_all();
    }

    /// Waits until no leaf and no block waits, but no longer than a second: at closing, when no
    /// transaction is open any more.
    pub(crate) fn settle(&self) {
        let deadline = now().saturating_add(PACE);
        loop {
            let seen = self.idle.seen();
            let is_settled = {
                let queue = self.queue.lock();
                let is_done = queue.leaves.is_empty() && queue.others[BLOCKS].is_empty();
                queue.goes_on_alone() || (is_done && queue.is_idle())
            };
            if is_settled || dead() || self.idle.wait_until(seen, deadline) == Waited::TimedOut {
                return;
            }
        }
    }

    /// As `stop`, but waits for a second at most.
    pub(crate) fn stop_soon(&self) {
        self.queue.lock().is_stopped = true;
        self.wanted.notify_all();
        let deadline = now().saturating_add(PACE);
        loop {
            let seen = self.idle.seen();
            let is_idle = self.queue.lock().is_idle();
            if is_idle || dead() || self.idle.wait_until(seen, deadline) == Waited::TimedOut {
                return;
            }
        }
    }

    /// Lets the piece of work under way end, and begins no other.
    pub(crate) fn stop(&self) {
        self.queue.lock().is_stopped = true;
        self.wanted.notify_all();
        self.wait_until_idle();
    }

    /// Holds the task back until what is returned is dropped: for a check, which reads trees as a
    /// whole. Its holder waits for devices only.
    pub(crate) fn pause(&self) -> Paused<'_> {
        self.queue.lock().pauses += 1;
        self.wait_until_idle();
        Paused(self)
    }

    /// Runs `step` while the task does nothing: a piece of work of another task, which is held back
    /// and stopped as the task is. Waits for its turn, which comes after one piece of work.
    ///
    /// # Errors
    ///
    /// `Closed` once the task is to stop; those of `step`.
    pub(crate) fn lend<T>(&self, step: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let gives_way = now().saturating_add(GIVES_WAY);
        self.queue.lock().turns_wanted += 1;
        loop {
            let seen = self.turn.seen();
            {
                let mut queue = self.queue.lock();
                if queue.is_stopped || dead() {
                    queue.turns_wanted -= 1;
                    return Err(Error::Closed);
                }
                // The task may be about to begin, or pause after an error.
                let has_work = queue.has_others() || !queue.order.is_empty();
                let is_next = !queue.was_lent || !has_work || now() >= gives_way;
                if queue.is_idle() && queue.pauses == 0 && is_next {
                    queue.turns_wanted -= 1;
                    (queue.is_lent, queue.was_lent) = (true, true);
                    break;
                }
            }
            let _waited = self.turn.wait_until(seen, now().saturating_add(GIVES_WAY));
        }
        let _lent = Lent(self);
        step()
    }

    fn wait_until_idle(&self) {
        loop {
            let seen = self.idle.seen();
            if self.queue.lock().is_idle() || dead() {
                return;
            }
            self.idle.wait(seen);
        }
    }

    /// Whether the task is to stop or pause: a long piece of work looks between its steps.
    pub(crate) fn is_held(&self) -> bool {
        let queue = self.queue.lock();
        dead() || queue.is_stopped || queue.pauses > 0
    }

    /// The next piece of work for the task.
    fn take(&self) -> Next {
        let mut queue = self.queue.lock();
        if queue.is_stopped {
            return Next::Stop;
        }
        if queue.pauses > 0 || queue.is_lent || (queue.turns_wanted > 0 && !queue.was_lent) {
            return Next::Wait;
        }
        let mut work = queue.pop();
        if work.is_none() && std::mem::take(&mut queue.has_overflowed) {
            work = Some(Work::Survey);
        }
        queue.is_busy = work.is_some();
        queue.was_lent &= work.is_none();
        work.map_or(Next::Wait, Next::Work)
    }

    /// Takes a piece of work back from the task, with how far it got. Whether it is blocked: what
    /// blocks it may have ended before this was known, and the task has to look again.
    fn put_back(&self, work: Work, performed: Result<Progress, Error>) -> bool {
        let blocked = {
            let mut queue = self.queue.lock();
            queue.is_busy = false;
            queue.has_met_error = performed.is_err();
            queue.performed += u64::from(performed.is_ok());
            if queue.turns_wanted > 0 {
                self.turn.notify_all();
            }
            self.leaves_behind.store(queue.leaves.len(), Ordering::Relaxed);
            let is_done = matches!(performed, Ok(Progress::Done));
            if is_done && !queue.has_others() && queue.blocked.is_empty() {
                self.behind.store(0, Ordering::Relaxed);
            }
            let blocked = queue.put_back(work, performed);
            if let Some(txn) = blocked {
                let least = txn.0.min(self.blocked_until.load(Ordering::Relaxed));
                self.blocked_until.store(least, Ordering::Release);
            }
            blocked
        };
        self.idle.notify_all();
        blocked.is_some()
    }
}

/// Another task has its turn.
struct Lent<'r>(&'r Reclaim);

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.0.queue.lock().is_lent = false;
        self.0.idle.notify_all();
        self.0.wanted.notify_all();
        self.0.turn.notify_all();
    }
}

/// The reclaim task is held back.
pub(crate) struct Paused<'r>(&'r Reclaim);

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.0.queue.lock().pauses -= 1;
        self.0.wanted.notify_all();
        self.0.turn.notify_all();
    }
}

/// What the task does next.
enum Next {
    Work(Work),
    Wait,
    Stop,
}

/// Which of the sets of other work a piece is in.
fn kind(work: &Work) -> usize {
    match work {
        Work::Sweep(..) => 0,
        Work::Page(_) => 1,
        Work::Chains(_) => 2,
        Work::Tree(_) => 3,
        Work::Survey => 4,
        Work::Leaf(..) => 5,
        Work::Blocks(_) => BLOCKS,
        Work::Spare(_) => 7,
    }
}

/// Whether the same work may well succeed later.
pub(crate) fn may_pass(error: &Error) -> bool {
    matches!(
        error,
        Error::LogFull { .. }
            | Error::HoldsLog { .. }
            | Error::LogHeld { .. }
            | Error::HomeFull { .. }
            | Error::AllPinned
            | Error::Conflict
    )
}

#[cfg(test)]
mod tests {
    use terrace_rt::Prng;

    use super::*;

    fn page_of(key: &[u8]) -> u64 {
        u64::from(key[7] % 50)
    }

    /// Whether a key of the page of both lies between them.
    fn is_within(key: &[u8], least: &[u8], greatest: &[u8]) -> bool {
        assert_eq!(page_of(least), page_of(greatest));
        page_of(key) == page_of(least) && least <= key && key <= greatest
    }

    /// Leaves wait once each, with all keys that they were offered with in their range, and other
    /// kinds of work are served between them, whatever is offered meanwhile.
    #[test]
    fn nothing_that_was_offered_is_lost_or_starves() {
        let mut prng = Prng::from_seed(7);
        let mut queue = Queue::default();
        let mut offered: BTreeSet<Box<[u8]>> = BTreeSet::new();
        let (mut leaves, mut since_chains) = (0, 0);
        for _ in 0..20_000 {
            let key = prng.below(5_000).to_be_bytes();
            queue.push_leaf(TreeId(1), PageId(page_of(&key)), key.as_slice().into());
            offered.insert(key.as_slice().into());
            queue.push(Work::Chains(TreeId(2)));
            queue.sweep(TreeId(3));
            assert!(queue.leaves.len() <= 50 && queue.order.len() == queue.leaves.len());
            since_chains += 1;
            match queue.pop().expect("there is work") {
                Work::Leaf(_, least, greatest) => {
                    leaves += 1;
                    assert!(offered.contains(&least) && offered.contains(&greatest));
                    offered.retain(|key| !is_within(key, &least, &greatest));
                }
                Work::Chains(_) => since_chains = 0,
                Work::Sweep(tree, _) => queue.has_swept(tree),
                other => panic!("{other:?} was not offered"),
            }
            assert!(since_chains <= KINDS as u64, "chains starve");
        }
        assert!(leaves > 1_000);
        while let Some(work) = queue.pop() {
            if let Work::Leaf(_, least, greatest) = work {
                offered.retain(|key| !is_within(key, &least, &greatest));
            } else if let Work::Sweep(tree, _) = work {
                queue.sweeps.insert(tree, false);
                queue.has_swept(tree);
            }
        }
        assert!(offered.is_empty(), "{} keys were forgotten", offered.len());
    }

    /// The bug: once a page could not be read in a sweep, its tree was never swept again.
    #[test]
    fn a_tree_whose_sweep_failed_is_swept_again_when_leaves_are_offered() {
        let mut queue = Queue::default();
        for _ in 0..3 {
            queue.sweep(TreeId(3));
            let work = queue.pop().expect("there is work");
            assert_eq!(work, Work::Sweep(TreeId(3), Box::default()));
            let damaged = Error::corrupt(crate::Part::Home, PageId(40), "for a test");
            assert_eq!(queue.put_back(work, Err(damaged)), None);
            assert_eq!(queue.pop(), None, "it waits for news");
        }
    }
}
