//! Versions: what rows were before they were changed, for as long as a snapshot may see that.
//!
//! ```text
//!   Off ---- a snapshot is opened: `switch_on` ----> On ---- none is open: `close` ----> Off
//!            number, lists of undo                           number gone, all dropped
//! ```
//!
//! A snapshot at `at` sees what was committed before that position of the log. COMMIT is appended
//! before any lock goes, so the order of these records is a serial order of all writers, and what a
//! snapshot sees is a beginning of it: the end of the log as of the last transaction that has told
//! here that it has ended (V8). It reads the pages as they are, under their latches, and
//! asks here what rows were that have been changed by transactions which it does not see. Versions
//! are kept off the pages (Freitag et al., "Memory-Optimized Multi-Version Concurrency Control for
//! Disk-Based Database Systems", VLDB 2022), by row, in memory.
//!
//! - V1: while versions are kept under a number, a transaction that changes a row, under the latch
//!   of its leaf and between appending the record and changing the page, first keeps what it was:
//!   in a list, which is sorted in before versions are looked for (`backlog`). Of the changes of a
//!   row by one transaction the first counts.
//! - V2: whether and under which number, the log says at each append. The task that turns versions
//!   on tells the log first. Then it looks through the undo of each open transaction, which has all
//!   changes whose append was not told; only then may a snapshot take its moment. A transaction
//!   that is told a new number before that is done for it does it itself, before it lists or undoes
//!   anything more. Once writers have kept, while no snapshot was open, about as much as turning
//!   versions on costs, versions are turned off. So short snapshots cost at most about twice what
//!   the better way would: to keep all for the next one, or to look through the undo again.
//! - V3: all that a snapshot does not see has LSNs from `low` on, which is read before `at`. So a
//!   page with a lower LSN has every row as the snapshot sees it, and no row is looked up. Every
//!   change of a page raises its LSN, also one that moves rows there.
//! - V4: a version goes, or is not sorted in, when no snapshot, open or to come, is between the end
//!   of the change before and the end of its own (`horizon`).
//! - V5: a ghost may be purged while a snapshot sees its row: its key goes to the graves first, by
//!   which scans find it.
//! - V6: what is kept is bounded, in memory and, where versions are spilled (`spill`), on disk.
//!   Above a bound, the oldest snapshots are ended: each is marked so before what it needs is
//!   dropped, and checks the mark after each look, which may find anything then. Writers never
//!   wait.
//! - V7: the undo of a transaction stays in memory for the task that turns versions on. If it
//!   outgrows that while they are on, all of it is kept here until the transaction ends. If it does
//!   while they are off, or if what is kept of it is too much, nothing is known of it: as long as
//!   it is open versions stay off, and readers take locks.
//! - V8: a transaction tells that it has ended behind its last record, and before it gives up its
//!   locks or returns to its caller: `note_ended` takes the end of the log, in the order in which
//!   it is called. So a snapshot that is opened after that sees it, and all whose records are ahead
//!   of its own. All that a snapshot begins with is in one cache line, which a writer writes once
//!   in each transaction. A transaction that was found to have ended while versions were turned on
//!   may not have told yet, and nothing of it is kept: so that task asks for the moment to be told
//!   before any snapshot is opened.

mod author;
mod backlog;
mod ends;
mod graves;
mod horizon;
mod marks;
mod needs;
mod part;
mod parts;
mod snapshots;
mod spill;
mod spilling;
mod switch;
mod view;
mod writing;

pub(crate) use horizon::Horizon;
pub(crate) use part::{Record, Row, Seen, Toward};
pub(crate) use snapshots::Snapshot;
pub(crate) use spill::{Chunk, Order, SpillTo};
pub(crate) use view::View;
pub(crate) use writing::{UndoList, Writing};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace_page::{Lsn, TxnId};
use terrace_pool::{Mutation, Mutations};
use terrace_rt::{LeafMutex, Mutex};

use self::author::Author;
use self::backlog::{Backlog, Change, Cut, Lane, Put};
use self::ends::Ends;
use self::marks::Marks;
use self::needs::Needs;
use self::part::{Before, Part};
use self::parts::Line;
use self::snapshots::Snapshots;
use self::spill::Spill;
use crate::TreeId;
use crate::btree::old;
use crate::log::record::{StoredUndo, decode_undo};
use crate::log::{Fate, Log};
use crate::share::Apart;
use crate::writer::Undo;

/// The least bytes that versions may have.
pub(crate) const VERSION_BYTES_MIN: u64 = 64 << 10;
/// The least bytes that they may have on disk, if any.
pub(crate) const VERSION_LIMIT_MIN: u64 = 1 << 20;
/// The most: places in a part have 32 bits.
pub(crate) const VERSION_BYTES_MAX: u64 = 64 << 30;

/// What `register` and `unregister` keep up to date for snapshots to begin with.
#[derive(Debug)]
#[repr(align(128))]
struct Oldest {
    /// No change of a transaction that has not ended is below this.
    low: AtomicU64,
    /// All transactions below this have ended.
    xmin: AtomicU64,
    /// The moment of a snapshot that is opened now: the log had ended here when a transaction that
    /// writes was last forgotten.
    moment: AtomicU64,
}

/// When versions are of no more use: see versions.V2.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Idle {
    /// Changes that were kept while no snapshot was open, since versions were turned on.
    changes: AtomicU64,
    /// The number of changes that turns versions off: about what turning them on had to look
    /// through.
    changes_max: AtomicU64,
}

/// Turning versions on costs about as much as keeping this number of changes, beside those that it
/// keeps.
const SWITCH_CHANGES: u64 = 1024;
/// After this number of changes in a lane its writer looks whether any snapshot is open.
const CHANGES_BETWEEN_LOOKS: u64 = 64;
/// The last snapshot that is closed leaves no more than this, about.
const IDLE_BYTES: u64 = 1 << 20;

/// What a transaction whose undo outgrows its memory is lent at a time.
const LOAN_BYTES: u64 = 4 << 20;

/// What versions may take.
#[derive(Clone)]
pub(crate) struct VersionRoom {
    /// Bytes of memory.
    pub(crate) memory: u64,
    /// Bytes on disk, and where they are.
    pub(crate) disk: u64,
    pub(crate) spill_to: SpillTo,
}

/// Memory of a grave, about.
fn grave_bytes(key: &[u8]) -> u64 {
    const NODE_BYTES: u64 = 48;
    key.len() as u64 + NODE_BYTES
}

/// The versions of an open database.
pub(crate) struct Versions {
    log: Arc<Log>,
    backlog: Backlog,
    parts: Vec<Line>,
    snapshots: Snapshots,
    graves: LeafMutex<BTreeMap<TreeId, BTreeSet<Box<[u8]>>>>,
    /// Until when rows are spilled; no memory is taken before any is.
    ends: LeafMutex<Arc<Ends>>,
    /// Its memory was needed for something else: it takes none before versions are turned off.
    is_without_ends: AtomicBool,
    oldest: Oldest,
    /// Under which number snapshots are opened; zero for none.
    number: AtomicU64,
    /// Under which number versions are kept; zero for none.
    keeping: AtomicU64,
    /// The upper bits of a row's hash, from this one on, say which part it is in.
    part_shift: u32,
    /// A bit for each part that has entries. It is set and cleared with the part held.
    in_use: Vec<Apart<AtomicU64>>,
    /// The last number given. Held by the task that turns versions on or off, or makes room.
    switch: Mutex<u64>,
    /// Bytes that versions take, and may take.
    bytes: Apart<AtomicU64>,
    bytes_max: u64,
    /// Once they take more, there is something for `do_chores`.
    chores_at: AtomicU64,
    /// Where those go for which there is no room in memory, if they go anywhere.
    spill: Option<Spill>,
    /// Bytes lent to transactions for their undo: at most `bytes_max`, in addition.
    lent: AtomicU64,
    /// They take too much, or are of no more use.
    has_chores: AtomicBool,
    /// Open transactions of which nothing is known (V7).
    lost: AtomicU64,
    idle: Idle,
    mutations: Mutations,
}

impl Versions {
    /// No snapshot is open. All transactions before `xmin` have ended.
    pub(crate) fn new(
        log: Arc<Log>,
        xmin: TxnId,
        room: VersionRoom,
        mutations: Mutations,
    ) -> Versions {
        let bytes_max = room.memory;
        let spill = Spill::new(room.spill_to, room.disk, bytes_max, mutations);
        let chores_at = spill.as_ref().map_or(bytes_max, |spill| spill.spill_at());
        let parts = parts::count(bytes_max);
        let end = log.end().0;
        let oldest = Oldest {
            low: AtomicU64::new(end),
            xmin: AtomicU64::new(xmin.0),
            moment: AtomicU64::new(end),
        };
        Versions {
            log,
            backlog: Backlog::new(),
            parts: (0..parts).map(|_| Line::default()).collect(),
            part_shift: u64::BITS - parts.ilog2(),
            snapshots: Snapshots::new(),
            graves: LeafMutex::default(),
            ends: LeafMutex::default(),
            is_without_ends: AtomicBool::new(false),
            oldest,
            number: AtomicU64::new(0),
            keeping: AtomicU64::new(0),
            in_use: (0..parts / 64).map(|_| Apart::default()).collect(),
            switch: Mutex::new(0),
            bytes: Apart::default(),
            bytes_max,
            chores_at: AtomicU64::new(chores_at),
            spill,
            lent: AtomicU64::new(0),
            has_chores: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            idle: Idle::default(),
            mutations,
        }
    }

    /// The oldest transaction that has not ended is `xmin`, and no change of it, or of any that
    /// comes, is below `low`. Called as `note_ended` is, ahead of that.
    #[inline]
    pub(crate) fn note_oldest(&self, low: Lsn, xmin: TxnId) {
        self.oldest.low.store(low.0, Ordering::Release);
        self.oldest.xmin.store(xmin.0, Ordering::Release);
    }

    /// The log ends at `moment`, behind the last record of a transaction that has ended (V8).
    /// Called by one task at a time, each with an end that is no less than the one before.
    #[inline]
    pub(crate) fn note_ended(&self, moment: Lsn) {
        self.oldest.moment.store(moment.0, Ordering::Release);
    }

    /// What was committed before this, a snapshot that is opened now sees, or later ones.
    #[inline]
    fn moment(&self) -> Lsn {
        Lsn(self.oldest.moment.load(Ordering::Acquire))
    }

    /// The least transaction that an open snapshot may not see, if any is open.
    pub(crate) fn xmin(&self) -> Option<TxnId> {
        self.snapshots.xmin()
    }

    /// Whether another task has a snapshot open.
    pub(crate) fn is_open_beside(&self, task: u64) -> bool {
        self.snapshots.is_open_beside(task)
    }

    /// Snapshots that are open.
    pub(crate) fn open_count(&self) -> u64 {
        self.snapshots.open_count()
    }

    /// Bytes of memory that versions take.
    pub(crate) fn bytes(&self) -> u64 {
        self.own_bytes() + self.spill.as_ref().map_or(0, |spill| spill.memory())
    }

    /// Of these, those of versions that are not in runs.
    fn own_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Changes a part, and keeps count of its bytes.
    #[inline]
    fn change<T>(&self, part: &mut Part, change: impl FnOnce(&mut Part) -> T) -> T {
        let before = part.memory();
        let changed = change(part);
        self.account(before, part.memory());
        changed
    }

    /// Something has `after` bytes that had `before`.
    #[inline]
    fn account(&self, before: usize, after: usize) {
        let (before, after) = (before as u64, after as u64);
        if after > before {
            let bytes = self.bytes.fetch_add(after - before, Ordering::Relaxed) + after - before;
            if bytes > self.chores_at.load(Ordering::Relaxed) {
                self.has_chores.store(true, Ordering::Relaxed);
            }
        } else if after < before {
            self.bytes.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    /// V1: `row`, of which its leaf has `current`, is about to be changed by the record `lsn`,
    /// whose append was told `number`.
    pub(crate) fn keep(
        &self,
        row: &Row<'_>,
        current: Option<Record<'_>>,
        (writer, lsn, number): (&Arc<Fate>, Lsn, u64),
        toward: Toward,
    ) {
        if self.mutations.has(Mutation::SkipVersions) {
            return;
        }
        let mut lane = self.backlog.lane();
        // The task that turns versions off sets `keeping` before it cuts the lanes.
        if !self.is_keeping((writer, number)) {
            return;
        }
        let before = lane.bytes_held();
        let may_be_late = self.mutations.has(Mutation::WaitAfterCut);
        let put = lane.put(row, current, (writer, lsn), toward, may_be_late);
        self.account(before, lane.bytes_held());
        if let Put::Late = put {
            drop(lane);
            let author = &Author::new(writer);
            let change = Change { row: *row, current, writer: author, lsn, toward };
            return self.keep_late(&change, (writer, number));
        }
        let is_look_due = lane.count().is_multiple_of(CHANGES_BETWEEN_LOOKS);
        let is_full = lane.is_due(self.lane_bytes_max()) && {
            lane.drop_unneeded(&self.needs());
            lane.is_looked_through();
            lane.used() > self.lane_bytes_max() / 2
        };
        drop(lane);
        if is_look_due {
            self.note_use();
        }
        if is_full {
            self.sort_in();
        }
    }

    /// backlog.K3.
    #[cold]
    fn keep_late(&self, change: &Change<'_>, kept: (&Fate, u64)) {
        let _cut = self.backlog.hold();
        if let Some(mut part) = self.part_to_keep(&change.row, kept) {
            self.put_in(&mut part, std::slice::from_ref(change), &self.needs());
        }
    }

    fn put_in(&self, part: &mut Part, changes: &[Change<'_>], needs: &Needs) {
        let makes_whole = !self.mutations.has(Mutation::ChangeUnderDifference);
        self.change(part, |part| {
            part.look_ahead(changes);
            for change in changes {
                if self.spills() {
                    part.mark(change, &needs.horizon, self.marks_max());
                }
                part.keep(change, needs, makes_whole);
            }
        });
    }

    /// How many marks a part has, at most.
    fn marks_max(&self) -> usize {
        Marks::count_max(self.bytes_max / self.parts.len() as u64)
    }

    /// A lane that has more bytes is looked through.
    fn lane_bytes_max(&self) -> usize {
        const ONE_IN: u64 = 64;
        const MIN: u64 = 1 << 10;
        const MAX: u64 = 128 << 10;
        (self.bytes_max / ONE_IN).clamp(MIN, MAX) as usize
    }

    /// After this, a task that has a leaf latched that has this LSN finds the versions of its rows.
    #[inline]
    fn sort_in_for(&self, lsn: Lsn) {
        if !self.backlog.is_sorted(lsn) && !self.mutations.has(Mutation::LookBeforeSorting) {
            self.sort_in_up_to(Some(lsn));
        }
    }

    /// Puts all changes that wait to the parts.
    fn sort_in(&self) {
        self.sort_in_up_to(None);
    }

    /// As `sort_in`, unless another task has done it for this LSN meanwhile.
    #[cold]
    fn sort_in_up_to(&self, lsn: Option<Lsn>) {
        let mut cut = self.backlog.hold();
        if lsn.is_some_and(|lsn| self.backlog.is_sorted(lsn)) {
            return;
        }
        self.backlog.cut(&mut cut, || self.log.end());
        let (before, needs) = (cut.memory(), self.needs());
        cut.lanes().for_each(|lane| lane.drop_unneeded(&needs));
        self.put_cut_in(&mut cut, &needs);
        let has_room = self.bytes() <= self.bytes_max;
        self.backlog.is_in(&mut cut, if has_room { 4 * self.lane_bytes_max() } else { 0 });
        self.account(before, cut.memory());
    }

    fn put_cut_in(&self, cut: &mut Cut, needs: &Needs) {
        let group = |row: &Row<'_>| row.hash >> self.part_shift;
        cut.groups(group, |changes| {
            let mut part = self.part_to_fill(&changes[0].row);
            self.put_in(&mut part, changes, needs);
            if part.is_due(self.due_min()) {
                self.change(&mut part, |part| self.collect(part, needs));
            }
        });
    }

    /// Drops all changes that wait but for what is kept of transactions that outgrew memory.
    /// Versions are off.
    fn drop_backlog(&self) {
        const SPARE: usize = 32 << 10;
        let mut cut = self.backlog.hold();
        self.backlog.cut(&mut cut, || self.log.end());
        let before = cut.memory();
        cut.lanes().for_each(Lane::drop_unkept);
        self.put_cut_in(&mut cut, &self.needs());
        self.backlog.is_in(&mut cut, SPARE);
        self.account(before, cut.memory());
        drop(cut);
        self.shrink_backlog(SPARE);
    }

    /// Gives back the memory of empty lanes that have more than `spare` bytes.
    fn shrink_backlog(&self, spare: usize) {
        self.account(self.backlog.shrink(spare), 0);
    }

    /// Closes a snapshot.
    pub(crate) fn close_snapshot(&self, snapshot: &Arc<Snapshot>) {
        self.snapshots.close(snapshot);
        if self.bytes() > IDLE_BYTES && !self.snapshots.is_any_open() {
            self.has_chores.store(true, Ordering::Relaxed);
        }
        if let Some(spill) = &self.spill {
            spill.closed(snapshot.at);
        }
    }

    /// Some changes were kept. Once versions are kept for no snapshot, they are to be turned off.
    fn note_use(&self) {
        if self.snapshots.seem_closed() {
            let more = CHANGES_BETWEEN_LOOKS;
            let changes = self.idle.changes.fetch_add(more, Ordering::Relaxed) + more;
            if changes >= self.idle.changes_max.load(Ordering::Relaxed) {
                self.has_chores.store(true, Ordering::Relaxed);
            }
        }
    }

    /// A part is not looked through before it has this many entries.
    fn due_min(&self) -> usize {
        const MIN: u64 = 2;
        const MAX: u64 = 64;
        (self.bytes_max / (self.parts.len() as u64 * 512)).clamp(MIN, MAX) as usize
    }

    fn collect(&self, part: &mut Part, needs: &Needs) {
        part.collect(needs, |tree, key| self.forget_grave(tree, key));
    }

    /// Which versions are needed.
    fn needs(&self) -> Needs {
        Needs { horizon: self.horizon(), ends: Arc::clone(&self.ends.lock()) }
    }

    /// Which snapshots are open.
    pub(crate) fn horizon(&self) -> Horizon {
        let mut horizon = self.snapshots.horizon(self.moment());
        if self.mutations.has(Mutation::CollectSeenVersions) {
            horizon.open.clear();
        }
        horizon
    }

    /// Keeps what the undo of an open transaction says, under `number` (V2).
    #[cold]
    fn index(&self, writing: &Writing, undo: &mut UndoList, number: u64) {
        let author = Author::new(writing.fate());
        for (lsn, encoded) in undo.iter() {
            let Some(StoredUndo::Logical(one)) = decode_undo(encoded) else {
                unreachable!("the list holds what was encoded")
            };
            let (tree, key, before) = match one {
                Undo::None => continue,
                Undo::Insert { tree, key } => (tree, key, Before::Absent),
                Undo::Delete { tree, key, record } => (tree, key, Before::Unmarked(record[0])),
                Undo::Update { tree, key, old: [old::WHOLE, flags, value @ ..] } => {
                    (tree, key, Before::Record((*flags, value)))
                }
                Undo::Update { tree, key, old } => (tree, key, Before::Patch(old)),
            };
            if undo.has_made(tree) {
                continue;
            }
            let row = Row::new(tree, key);
            if let Some(mut part) = self.part_to_keep(&row, (writing.fate(), number)) {
                self.change(&mut part, |part| part.index(&row, before, (&author, lsn)));
            }
        }
        undo.indexed = number;
    }

    /// V2: the append of a change, or of an undo, of this transaction was told `number`. The list
    /// of one that was lost has not all that it has changed, and never counts as looked through.
    #[inline]
    pub(crate) fn told(&self, writing: &Writing, undo: &mut UndoList, number: u64) {
        if undo.indexed != number
            && !writing.fate().is_kept()
            && !writing.fate().is_lost()
            && !self.mutations.has(Mutation::SkipOwnIndexing)
        {
            self.index(writing, undo, number);
        }
    }

    /// Whether a transaction may keep more undo in memory: some more, which it has until it ends.
    pub(crate) fn lend(&self, writing: &Writing) -> bool {
        let fits = |bytes| Some(bytes + LOAN_BYTES).filter(|bytes| *bytes <= self.bytes_max);
        let is_lent = self.lent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if is_lent {
            writing.lent.fetch_add(LOAN_BYTES, Ordering::Relaxed);
        }
        is_lent
    }

    /// The undo of a transaction outgrows memory, and is about to be dropped. Its last append was
    /// told `number`.
    pub(crate) fn outgrows(&self, writing: &Writing, number: u64) {
        self.take_back(writing);
        let fate = writing.fate();
        if number != 0 {
            // All of it is kept, and stays until it ends, unless versions are being turned off: the
            // task that does that either sees this, or has said so before any is dropped.
            fate.keep();
            if self.number.load(Ordering::SeqCst) == number {
                return;
            }
        }
        self.lose(writing);
    }

    fn take_back(&self, writing: &Writing) {
        let lent = writing.lent.swap(0, Ordering::Relaxed);
        self.lent.fetch_sub(lent, Ordering::Relaxed);
    }

    /// V7.
    pub(crate) fn lose(&self, writing: &Writing) {
        let fate = writing.fate();
        if !fate.is_lost() {
            self.lost.fetch_add(1, Ordering::AcqRel);
            fate.lose();
        }
    }

    /// A transaction has ended.
    #[inline]
    pub(crate) fn no_longer_writes(&self, writing: &Writing) {
        if writing.fate().is_lost() {
            self.lost.fetch_sub(1, Ordering::AcqRel);
        }
        if writing.lent.load(Ordering::Relaxed) != 0 {
            self.take_back(writing);
        }
        if Arc::strong_count(writing.fate()) > 1 {
            self.backlog.lane().settle(writing.fate());
        }
    }
}
