//! How many rows each table has: exact at every snapshot, without a look at the rows.
//!
//! ```text
//!   a transaction    its difference for each table, kept up to date by its changes and their undo
//!        | COMMIT carries the differences
//!        v
//!   a lane           differences of the commits of some threads: by position, until no snapshot
//!        |           tells them apart, then summed up
//!        v
//!   a count          what the table had when the database was opened, and all lanes up to the
//!                    snapshot's position
//! ```
//!
//! A commit writes to its own lane alone, so that threads share no line for it; a count reads all
//! lanes. COUNTS records of a checkpoint list the counts at a position; recovery takes those of the
//! last checkpoint that has ended, and adds what COMMITs from that position on carry.
//!
//! - C1: a lane is locked from before the append of a COMMIT until its differences are in. So a
//!   task that locks the lane after a position of the log was its end finds all that was committed
//!   before that.
//! - C2: two differences become one only if every snapshot, and the checkpoint under way, sees both
//!   or neither.
//! - C3: a table is *known* if its count at the opening is: one that was made since has had none.
//!   What was counted by an older version is not known, and is counted when it is asked for first.
//! - C4: a table that is not known is never guessed: a list that is cut short, or has no room for
//!   all, leaves out tables.
//! - C5: recovery takes a table that is not listed for one that was made later, without rows then,
//!   only from the next tree's number on. A checkpoint reads that number after the counts: a table
//!   that is made in between is not known, even if the list has no room for it.
//! - C6: a checkpoint that lists nothing leaves the list before it in force, and COMMITs since.
//!   So a checkpoint lists the counts only if the log has room for them beside what other
//!   checkpoints and rollbacks need, and only if recovery would not read an earlier list anyway.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_page::Lsn;
use terrace_pool::{Mutation, Mutations};
use terrace_rt::{LeafGuard, LeafMutex, lane, maybe_switch};

use crate::TreeId;
use crate::trees::CATALOG;
use crate::versions::Horizon;

/// Lanes: threads beyond this share one.
const LANES: usize = 16;
/// Differences of a lane before it is looked through.
const RECENT_MIN: usize = 64;
/// No checkpoint is under way.
const NO_PIN: u64 = u64::MAX;

/// The difference that one commit, or several, made to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Difference {
    /// The COMMIT, or the last of them.
    at: Lsn,
    tree: TreeId,
    rows: i64,
}

/// What threads of one lane have committed.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane(LeafMutex<Committed>);

#[derive(Debug, Default)]
struct Committed {
    /// What every snapshot sees.
    sums: BTreeMap<TreeId, i64>,
    /// What some may not see, in the order of the log.
    recent: Vec<Difference>,
    /// How many of these are looked through.
    due: usize,
}

impl Committed {
    /// Sums up what no snapshot, of now or later, tells apart (C2).
    fn sum_up(&mut self, horizon: &Horizon) {
        let first = horizon.first();
        // The last that is kept of each table. What is kept moves to the front, in the same memory.
        let (mut last, mut kept) = (BTreeMap::<TreeId, usize>::new(), 0);
        for at in 0..self.recent.len() {
            let difference = self.recent[at];
            if difference.at < first {
                *self.sums.entry(difference.tree).or_default() += difference.rows;
                continue;
            }
            match last.get(&difference.tree).map(|&at| &mut self.recent[at]) {
                Some(before) if !horizon.may_see(before.at, difference.at) => {
                    before.at = difference.at;
                    before.rows += difference.rows;
                }
                _ => {
                    last.insert(difference.tree, kept);
                    self.recent[kept] = difference;
                    kept += 1;
                }
            }
        }
        self.recent.truncate(kept);
        self.due = RECENT_MIN.max(2 * kept);
    }

    fn rows_before(&self, tree: TreeId, at: Lsn) -> i64 {
        let recent = self.recent.iter().filter(|one| one.tree == tree && one.at < at);
        self.sums.get(&tree).copied().unwrap_or_default() + recent.map(|one| one.rows).sum::<i64>()
    }
}

/// On cache lines of its own: `Counts` lies beside what threads write.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Known(LeafMutex<BTreeMap<TreeId, i64>>);

/// The counts of an open database.
#[derive(Debug)]
pub(crate) struct Counts {
    lanes: Vec<Lane>,
    /// What each table had when the database was opened, as far as that is known.
    known: Known,
    /// Where the checkpoint under way takes the counts; zero before it has decided.
    pin: AtomicU64,
    /// Where the last checkpoint began that listed them and has ended; zero if none has.
    listed: AtomicU64,
    mutations: Mutations,
}

impl Counts {
    /// Of a database of which no table is known yet.
    pub(crate) fn new(mutations: Mutations) -> Counts {
        Counts {
            lanes: (0..LANES).map(|_| Lane::default()).collect(),
            known: Known::default(),
            pin: AtomicU64::new(NO_PIN),
            listed: AtomicU64::new(0),
            mutations,
        }
    }

    /// A table was made: it has no rows.
    pub(crate) fn made(&self, tree: TreeId) {
        self.known.0.lock().insert(tree, 0);
    }

    /// A table is gone for good.
    pub(crate) fn forget(&self, tree: TreeId) {
        self.known.0.lock().remove(&tree);
        for lane in &self.lanes {
            let mut lane = lane.0.lock();
            lane.sums.remove(&tree);
            lane.recent.retain(|one| one.tree != tree);
        }
    }

    /// Appends a COMMIT by `append`, which returns where it is, and takes its `differences` (C1).
    /// `horizon` tells which snapshots are open.
    pub(crate) fn commit<E>(
        &self,
        differences: &[(TreeId, i64)],
        append: impl FnOnce() -> Result<Lsn, E>,
        horizon: impl FnOnce() -> Horizon,
    ) -> Result<Lsn, E> {
        let mut lane = self.lanes[lane() % LANES].0.lock();
        let at = append()?;
        let changed = differences.iter().filter(|(_, rows)| *rows != 0);
        lane.recent.extend(changed.map(|&(tree, rows)| Difference { at, tree, rows }));
        if lane.recent.len() >= lane.due.max(RECENT_MIN) {
            self.sum_up(&mut lane, horizon());
        }
        Ok(at)
    }

    /// `horizon` was made before: a checkpoint that pins its position later does so behind all that
    /// is summed up.
    fn sum_up(&self, lane: &mut Committed, mut horizon: Horizon) {
        match self.pin.load(Ordering::SeqCst) {
            0 => return,
            NO_PIN => {}
            pin => horizon.keep(Lsn(pin)),
        }
        if self.mutations.has(Mutation::SumUpUnseenRows) {
            horizon = Horizon::new(Lsn::MAX, Vec::new());
        }
        lane.sum_up(&horizon);
    }

    fn committed_before(&self, tree: TreeId, at: Lsn) -> i64 {
        self.lanes.iter().map(|lane| lane.0.lock().rows_before(tree, at)).sum()
    }

    /// The rows that were committed before `at`, which is a snapshot's position, or beyond all. The
    /// caller has read that position before. `None` if the table is not known.
    pub(crate) fn rows(&self, tree: TreeId, at: Lsn) -> Option<i64> {
        let opened = *self.known.0.lock().get(&tree)?;
        Some(opened + self.committed_before(tree, at))
    }

    /// The rows of a table of all that is committed now; `None` if it is not known. At one moment
    /// for all lanes, as `rows_now`: nothing keeps others from committing meanwhile.
    pub(crate) fn rows_of_now(&self, tree: TreeId) -> Option<i64> {
        let opened = *self.known.0.lock().get(&tree)?;
        let lanes: Vec<LeafGuard<'_, Committed>> =
            self.lanes.iter().map(|lane| lane.0.lock()).collect();
        Some(opened + lanes.iter().map(|lane| lane.rows_before(tree, Lsn::MAX)).sum::<i64>())
    }

    /// The rows of each table that is known, of all that is committed: at one moment for all lanes,
    /// so that none lacks what another one's commits have put in before.
    pub(crate) fn rows_now(&self) -> BTreeMap<TreeId, i64> {
        let mut rows = self.known.0.lock().clone();
        let lanes: Vec<LeafGuard<'_, Committed>> =
            self.lanes.iter().map(|lane| lane.0.lock()).collect();
        for lane in lanes {
            let recent = lane.recent.iter().map(|one| (one.tree, one.rows));
            for (tree, difference) in
                lane.sums.iter().map(|(tree, sum)| (*tree, *sum)).chain(recent)
            {
                if let Some(rows) = rows.get_mut(&tree) {
                    *rows += difference;
                }
            }
        }
        rows
    }

    /// What a table had at the opening that has `rows` before `at`.
    pub(crate) fn at_opening(&self, tree: TreeId, at: Lsn, rows: i64) -> i64 {
        rows - self.committed_before(tree, at)
    }

    /// A table that was not known was found to have had `opened` rows at the opening (C3).
    pub(crate) fn learn(&self, tree: TreeId, opened: i64) {
        self.known.0.lock().entry(tree).or_insert(opened);
    }

    /// The tables that there are after recovery: one that the log has counted and that is not
    /// there was dropped; one that was made after the last checkpoint and that no COMMIT speaks of
    /// has no rows.
    pub(crate) fn recovered(&self, logged: &LoggedCounts, trees: &BTreeSet<TreeId>) {
        let mut known = logged.known();
        known.retain(|tree, _| trees.contains(tree));
        if let Some(next) = logged.next_tree() {
            for tree in trees.range(TreeId(next)..) {
                known.entry(*tree).or_insert(0);
            }
        }
        *self.known.0.lock() = known;
    }

    /// Whether a recovery that reads the log from `start` finds a list of counts there.
    pub(crate) fn is_listed_since(&self, start: Lsn) -> bool {
        let listed = self.listed.load(Ordering::Relaxed);
        listed != 0 && listed >= start.0
    }

    /// The checkpoint that began at `begin` has listed the counts, and has ended.
    pub(crate) fn listed(&self, begin: Lsn) {
        self.listed.store(begin.0, Ordering::Relaxed);
    }

    /// What a checkpoint lists: the counts at the position that it reads from the log by `end`, of
    /// at most `most` tables, and the next tree's number by `next_tree`, read last (C5).
    pub(crate) fn checkpoint(
        &self,
        end: impl FnOnce() -> Lsn,
        next_tree: impl Fn() -> u32,
        most: usize,
    ) -> List {
        let is_early = self.mutations.has(Mutation::NextTreeBeforeCounts);
        let early = is_early.then(&next_tree);
        maybe_switch();
        self.pin.store(0, Ordering::SeqCst);
        let at = end();
        self.pin.store(at.0, Ordering::SeqCst);
        let mut rows: BTreeMap<TreeId, i64> =
            self.known.0.lock().iter().take(most).map(|(tree, rows)| (*tree, *rows)).collect();
        for lane in &self.lanes {
            // Copied: commits of these threads wait for the lane.
            let (sums, recent) = {
                let lane = lane.0.lock();
                let recent = lane.recent.iter().filter(|one| one.at < at);
                let recent: Vec<_> = recent.map(|one| (one.tree, one.rows)).collect();
                (lane.sums.clone(), recent)
            };
            for (tree, difference) in sums.into_iter().chain(recent) {
                if let Some(rows) = rows.get_mut(&tree) {
                    *rows += difference;
                }
            }
        }
        self.pin.store(NO_PIN, Ordering::SeqCst);
        maybe_switch();
        let next_tree = early.unwrap_or_else(next_tree);
        List { at, next_tree, rows: rows.into_iter().collect() }
    }
}

/// The counts that a checkpoint lists.
#[derive(Debug)]
pub(crate) struct List {
    /// Their position.
    pub(crate) at: Lsn,
    /// The number of the next tree to be made.
    pub(crate) next_tree: u32,
    /// Tables, and their rows.
    pub(crate) rows: Vec<(TreeId, i64)>,
}

/// What the log says of counts, read from before its last checkpoint began.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LoggedCounts {
    /// The counts that the last checkpoint that has ended took, and the next tree's number then.
    taken: Option<Taken>,
    /// What was committed since they were taken.
    since: BTreeMap<TreeId, i64>,
    /// A checkpoint that has begun.
    begun: Option<Begun>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Taken {
    at: Lsn,
    next: u32,
    rows: BTreeMap<TreeId, i64>,
    /// Records of it.
    records: u32,
    records_max: u32,
}

/// A checkpoint between its first record and its last.
#[derive(Debug, Default, PartialEq, Eq)]
struct Begun {
    taken: Option<Taken>,
    /// What was committed since it began, while it has taken nothing.
    commits: Vec<(Lsn, TreeId, i64)>,
    /// What was committed since what it has taken.
    since: BTreeMap<TreeId, i64>,
}

/// Where a COUNTS record stands among those of its checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountsHead {
    /// The position of the counts.
    pub(crate) at: Lsn,
    /// The number of the next tree to be made.
    pub(crate) next_tree: u32,
    /// How many records there are.
    pub(crate) records: u32,
}

impl LoggedCounts {
    /// A checkpoint begins.
    pub(crate) fn begin(&mut self) {
        self.begun = Some(Begun::default());
    }

    /// Its counts, or some of them.
    pub(crate) fn counts(
        &mut self,
        (head, mutations): (CountsHead, Mutations),
        rows: impl Iterator<Item = (TreeId, i64)>,
    ) {
        let Some(begun) = &mut self.begun else { return };
        for (at, tree, rows) in begun.commits.drain(..) {
            if at >= head.at || mutations.has(Mutation::CountTwice) {
                *begun.since.entry(tree).or_default() += rows;
            }
        }
        let taken = begun.taken.get_or_insert_with(|| Taken {
            at: head.at,
            next: head.next_tree,
            records_max: head.records,
            ..Taken::default()
        });
        taken.records += 1;
        taken.rows.extend(rows);
    }

    /// It has ended: what it has taken counts, if it is whole; else what counted before (C6).
    pub(crate) fn end(&mut self) {
        let Some(Begun { taken: Some(taken), since, .. }) = self.begun.take() else { return };
        if taken.records == taken.records_max {
            (self.since, self.taken) = (since, Some(taken));
        }
    }

    /// A COMMIT at `at` carries `rows`; the catalog's number stands for all tables.
    pub(crate) fn commit(&mut self, at: Lsn, rows: impl Iterator<Item = (TreeId, i64)>) {
        for (tree, rows) in rows {
            *self.since.entry(tree).or_default() += rows;
            match &mut self.begun {
                Some(begun) if begun.taken.is_some() => {
                    *begun.since.entry(tree).or_default() += rows;
                }
                Some(begun) => begun.commits.push((at, tree, rows)),
                None => {}
            }
        }
    }

    /// Trees from this number on were made since the counts were taken; `None` if none are known.
    fn next_tree(&self) -> Option<u32> {
        let is_whole = !self.since.contains_key(&CATALOG);
        self.taken.as_ref().filter(|_| is_whole).map(|taken| taken.next)
    }

    /// The counts at the log's end, of the tables that are known.
    fn known(&self) -> BTreeMap<TreeId, i64> {
        let Some(taken) = self.taken.as_ref().filter(|_| self.next_tree().is_some()) else {
            return BTreeMap::new();
        };
        let mut known = taken.rows.clone();
        for (&tree, rows) in &self.since {
            match known.get_mut(&tree) {
                Some(known) => *known += rows,
                // It was made since.
                None if tree.0 >= taken.next => drop(known.insert(tree, *rows)),
                None => {}
            }
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use terrace_rt::Prng;

    use super::*;

    const TREES: u64 = 3;
    const NONE: Mutations = Mutations::NONE;

    /// Every commit, in order.
    type Model = Vec<(Lsn, TreeId, i64)>;

    fn rows(model: &Model, tree: TreeId, at: Lsn) -> i64 {
        model.iter().filter(|one| one.1 == tree && one.0 < at).map(|one| one.2).sum()
    }

    fn tree(prng: &mut Prng) -> TreeId {
        TreeId(1 + prng.below(TREES) as u32)
    }

    /// Random commits, snapshots that are opened and closed, and checkpoints.
    fn run(seed: u64, mutations: Mutations) -> u64 {
        let (counts, mut prng) = (Counts::new(mutations), Prng::from_seed(seed));
        (1..=TREES as u32).for_each(|tree| counts.made(TreeId(tree)));
        let (mut model, mut open, mut end, mut wrong) = (Model::new(), Vec::new(), 10, 0);
        for _ in 0..3_000 {
            match prng.below(20) {
                0 if open.len() < 5 => open.push(Lsn(end)),
                1 if !open.is_empty() => {
                    open.swap_remove(prng.below(open.len() as u64) as usize);
                    open.sort_unstable();
                }
                2 => {
                    let list = counts.checkpoint(|| Lsn(end), || TREES as u32 + 1, 9);
                    let is_right =
                        |(tree, found): &(TreeId, i64)| *found == rows(&model, *tree, list.at);
                    wrong += u64::from(!list.rows.iter().all(is_right));
                }
                _ => {
                    let differences: Vec<(TreeId, i64)> = (1..=TREES as u32)
                        .map(|tree| (TreeId(tree), prng.below(5) as i64 - 2))
                        .collect();
                    let horizon = || Horizon::new(Lsn(end), open.clone());
                    let committed = counts.commit(&differences, || Ok::<_, ()>(Lsn(end)), horizon);
                    assert_eq!(committed, Ok(Lsn(end)));
                    model
                        .extend(differences.into_iter().map(|(tree, rows)| (Lsn(end), tree, rows)));
                    end += 1 + prng.below(50);
                }
            }
            let now = counts.rows_now();
            wrong += u64::from(now.iter().any(|(tree, now)| *now != rows(&model, *tree, Lsn::MAX)));
            let tree = tree(&mut prng);
            for &at in open.iter().chain([&Lsn::MAX]) {
                wrong += u64::from(counts.rows(tree, at) != Some(rows(&model, tree, at)));
            }
        }
        let kept: usize = counts.lanes.iter().map(|lane| lane.0.lock().recent.len()).sum();
        assert!(kept < 500, "{kept} differences are kept");
        wrong
    }

    #[test]
    fn counts_agree_with_a_list_of_all_commits() {
        for seed in 0..20 {
            assert_eq!(run(seed, Mutations::NONE), 0, "seed {seed}");
        }
        assert!(run(1, Mutation::SumUpUnseenRows.into()) > 0);
    }

    #[test]
    fn a_table_that_is_learnt_late_is_exact_at_each_position() {
        let (counts, mut prng, mut model) =
            (Counts::new(Mutations::NONE), Prng::from_seed(3), Model::new());
        let (tree, before) = (TreeId(7), 1_000);
        for at in 1..200 {
            let rows = prng.below(9) as i64 - 4;
            let horizon = || Horizon::new(Lsn(at), vec![Lsn(50)]);
            counts.commit(&[(tree, rows)], || Ok::<_, ()>(Lsn(at)), horizon).expect("no error");
            model.push((Lsn(at), tree, rows));
        }
        assert_eq!(counts.rows(tree, Lsn::MAX), None);
        let opened = counts.at_opening(tree, Lsn(50), before + rows(&model, tree, Lsn(50)));
        counts.learn(tree, opened);
        for at in [Lsn(50), Lsn::MAX] {
            assert_eq!(counts.rows(tree, at), Some(before + rows(&model, tree, at)));
        }
        counts.forget(tree);
        assert_eq!(counts.rows(tree, Lsn::MAX), None);
    }

    fn known(logged: &LoggedCounts, trees: &[u32]) -> Vec<Option<i64>> {
        let counts = Counts::new(Mutations::NONE);
        counts.recovered(logged, &trees.iter().map(|tree| TreeId(*tree)).collect());
        trees.iter().map(|tree| counts.rows(TreeId(*tree), Lsn::MAX)).collect()
    }

    #[test]
    fn recovery_adds_what_was_committed_since_the_counts_were_taken() {
        let mut logged = LoggedCounts::default();
        let head = |at, records| CountsHead { at: Lsn(at), next_tree: 5, records };
        logged.commit(Lsn(10), [(TreeId(1), 100)].into_iter());
        logged.begin();
        logged.commit(Lsn(20), [(TreeId(1), 7)].into_iter());
        logged.commit(Lsn(30), [(TreeId(1), 2), (TreeId(6), 4)].into_iter());
        logged.counts((head(25, 2), NONE), [(TreeId(1), 50)].into_iter());
        logged.counts((head(25, 2), NONE), [(TreeId(2), 60)].into_iter());
        logged.commit(Lsn(40), [(TreeId(2), -1), (TreeId(3), 9)].into_iter());
        assert_eq!(known(&logged, &[1]), [None], "it has not ended");
        logged.end();
        // One that was cut off takes nothing away.
        logged.begin();
        logged.counts((head(45, 2), NONE), [(TreeId(1), 52)].into_iter());
        logged.commit(Lsn(50), [(TreeId(1), 3)].into_iter());
        // 3 was not listed; 6 and 8 were made later; 1 is counted from 25 on.
        let found = known(&logged, &[1, 2, 3, 6, 8]);
        assert_eq!(found, [Some(55), Some(59), None, Some(4), Some(0)]);
        assert_eq!(known(&logged, &[2]), [Some(59)]);
        // More tables than a COMMIT has room for.
        logged.commit(Lsn(60), [(CATALOG, 0)].into_iter());
        assert_eq!(known(&logged, &[1, 6, 8]), [None; 3]);
    }

    #[test]
    fn a_checkpoint_that_lists_nothing_leaves_the_list_before_it() {
        let mut logged = LoggedCounts::default();
        logged.begin();
        let head = CountsHead { at: Lsn(5), next_tree: 5, records: 1 };
        logged.counts((head, NONE), [(TreeId(1), 50)].into_iter());
        logged.end();
        logged.commit(Lsn(10), [(TreeId(1), 7)].into_iter());
        logged.begin();
        logged.commit(Lsn(20), [(TreeId(1), -2), (TreeId(6), 3)].into_iter());
        logged.end();
        logged.commit(Lsn(30), [(TreeId(6), 4)].into_iter());
        assert_eq!(known(&logged, &[1, 2, 6, 7]), [Some(55), None, Some(7), Some(0)]);
    }

    /// A table is made, and committed to, while a checkpoint with room for one table lists the
    /// counts: what is known of it after a crash.
    fn known_of_one_between(mutations: Mutations) -> Option<i64> {
        let counts = Counts::new(mutations);
        counts.made(TreeId(1));
        let next = AtomicU64::new(2);
        let end = || {
            next.store(3, Ordering::SeqCst);
            counts.made(TreeId(2));
            let horizon = || Horizon::new(Lsn(10), Vec::new());
            let committed = counts.commit(&[(TreeId(2), 9)], || Ok::<_, ()>(Lsn(10)), horizon);
            assert_eq!(committed, Ok(Lsn(10)));
            Lsn(20)
        };
        let list = counts.checkpoint(end, || next.load(Ordering::SeqCst) as u32, 1);
        assert_eq!(list.rows, [(TreeId(1), 0)]);
        let mut logged = LoggedCounts::default();
        logged.begin();
        logged.commit(Lsn(10), [(TreeId(2), 9)].into_iter());
        let head = CountsHead { at: list.at, next_tree: list.next_tree, records: 1 };
        logged.counts((head, NONE), list.rows.into_iter());
        logged.end();
        known(&logged, &[1, 2])[1]
    }

    /// The number of the next tree was read before the counts, and a list that was cut short lacked
    /// a table below the number after them: it counted as empty.
    #[test]
    fn a_table_that_is_made_while_counts_are_listed_is_not_guessed() {
        assert_eq!(known_of_one_between(Mutations::NONE), None);
        assert_eq!(known_of_one_between(Mutation::NextTreeBeforeCounts.into()), Some(0));
    }

    #[test]
    fn counts_of_which_a_record_is_missing_are_not_believed() {
        let mut logged = LoggedCounts::default();
        logged.begin();
        let head = CountsHead { at: Lsn(5), next_tree: 5, records: 2 };
        logged.counts((head, NONE), [(TreeId(1), 50)].into_iter());
        logged.end();
        assert_eq!(known(&logged, &[1, 6]), [None, None]);
    }
}
