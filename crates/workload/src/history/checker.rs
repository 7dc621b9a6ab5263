//! Decides whether a recorded history is strictly serializable (Adya, 1999; Elle, VLDB 2020).
//!
//! A snapshot reads without locks: an absence that it found may be older than the last one before
//! it, and is explained by any that was there at some moment while the snapshot was being taken.
//! All that holds for each of them is in the graph.
//!
//! Every written value is unique, so a read names the version that it saw. A range scan reads
//! every key of its range, the absent ones too, so a phantom is an anti-dependency like any other.
//! Versions of a key are ordered by the moment of their last write; that order is a witness, not
//! an assumption: if the graph built on it has no cycle, then the history is serializable in that
//! order, however the order was found.
//!
//! ```text
//! edge   from                        to
//! ww     writer of a version         writer of the next version
//! wr     writer of a version         its reader
//! rw     reader of a version         writer of the next version
//! time   one that had ended           one that began later (strict; through a chain of moments)
//! ```
//!
//! - H1: a read never sees an aborted transaction, nor a value that its writer replaced later.
//! - H2: a transaction sees its own writes.
//! - H3: the graph of ww, wr, rw and time has no cycle.
//!
//! Not for histories with lost acknowledgements: every transaction must be known to have committed
//! or not.

use std::collections::BTreeMap;

/// A key of the checked table.
pub type Key = u64;
/// A written value, unique in a history. Absent is `None`.
pub type Value = u64;

/// What a transaction did, and when: `at` counts all operations of a history in order of their
/// returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Looked a key up.
    Read {
        /// The key.
        key: Key,
        /// What was there.
        found: Option<Value>,
        /// When.
        at: u64,
    },
    /// Inserted, replaced or (with `None`) removed.
    Write {
        /// The key.
        key: Key,
        /// What is there now.
        value: Option<Value>,
        /// When.
        at: u64,
    },
    /// Read all keys in `low..high`.
    Scan {
        /// First key of the range.
        low: Key,
        /// First key after the range.
        high: Key,
        /// What was there.
        found: Vec<(Key, Value)>,
        /// When.
        at: u64,
    },
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its commit returned.
    Committed,
    /// It was rolled back, by itself or because of a conflict.
    Aborted,
}

/// One transaction of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// When it began.
    pub begin: u64,
    /// When its commit or rollback returned.
    pub end: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// What it did, in order.
    pub ops: Vec<Op>,
    /// If it read through a snapshot and wrote nothing: when the snapshot was there. It may be of
    /// any moment between the transaction's begin and that.
    pub snapshot: Option<u64>,
}

/// All that happened to a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// What was in the table before.
    pub initial: BTreeMap<Key, Value>,
    /// Every transaction. Its place here is its name.
    pub transactions: Vec<Transaction>,
}

/// Why one transaction must come before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependency {
    /// It wrote the version before.
    WriteWrite(Key),
    /// It wrote what the other read.
    WriteRead(Key),
    /// It read what the other replaced.
    ReadWrite(Key),
    /// It had ended before the other began.
    Time,
}

/// Why a history is not serializable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Anomaly {
    /// A value was read that no transaction wrote.
    UnknownValue {
        /// The transaction that read it.
        reader: usize,
        /// Where.
        key: Key,
    },
    /// A value was read whose writer was rolled back.
    AbortedRead {
        /// The transaction that read it.
        reader: usize,
        /// The transaction that wrote it.
        writer: usize,
        /// Where.
        key: Key,
    },
    /// A value was read that its writer replaced before it committed.
    IntermediateRead {
        /// The transaction that read it.
        reader: usize,
        /// The transaction that wrote it.
        writer: usize,
        /// Where.
        key: Key,
    },
    /// A transaction did not see its own write.
    OwnWriteLost {
        /// Which.
        reader: usize,
        /// Where.
        key: Key,
    },
    /// A key was found absent that never was.
    NeverAbsent {
        /// The transaction that read it.
        reader: usize,
        /// Where.
        key: Key,
    },
    /// A scan returned a key twice, out of order, or out of its range.
    BadScan {
        /// The transaction that scanned.
        reader: usize,
        /// From where.
        low: Key,
    },
    /// Each must come before the next, and the last before the first.
    Cycle(Vec<(usize, Dependency)>),
}

/// What a sound history held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Committed transactions.
    pub committed: usize,
    /// Of these, snapshots.
    pub snapshots: usize,
    /// Edges of the graph, but those of time.
    pub dependencies: usize,
}

/// Checks `history`.
///
/// # Errors
///
/// The first anomaly found.
pub fn check(history: &History) -> Result<Summary, Anomaly> {
    let versions = Versions::build(history);
    let mut graph = Graph::new(history);
    graph.add_writes(&versions);
    for (reader, transaction) in history.transactions.iter().enumerate() {
        if transaction.outcome == Outcome::Committed {
            add_reads(&mut graph, &versions, reader, transaction)?;
        }
    }
    let summary = Summary {
        committed: graph.committed,
        snapshots: history.transactions.iter().filter(|one| one.snapshot.is_some()).count(),
        dependencies: graph.edges.iter().map(Vec::len).sum(),
    };
    graph.add_time(history);
    match graph.cycle() {
        Some(cycle) => Err(Anomaly::Cycle(cycle)),
        None => Ok(summary),
    }
}

/// One version of a key: its writer (none for the initial one), value, and moment.
#[derive(Clone, Copy, Debug)]
struct Version {
    writer: Option<usize>,
    value: Option<Value>,
    at: u64,
    /// When its writer's commit returned.
    end: u64,
}

/// Which versions of a key a read may have seen: one between the two.
type Candidates = (usize, usize);

/// When a read was, or between when and when the snapshot was taken that it went through.
#[derive(Clone, Copy)]
enum Moment {
    Read(u64),
    Snapshot(u64, u64),
}

/// The writer of a value, and whether it is a version or was replaced or rolled back.
#[derive(Clone, Copy, Debug)]
enum Origin {
    Version(usize),
    Intermediate(usize),
    Aborted(usize),
}

#[derive(Default)]
struct Versions {
    of_key: BTreeMap<Key, Vec<Version>>,
    origins: BTreeMap<Value, (Key, Origin)>,
}

impl Versions {
    fn build(history: &History) -> Versions {
        let mut versions = Versions::default();
        for (writer, transaction) in history.transactions.iter().enumerate() {
            let mut last: BTreeMap<Key, Version> = BTreeMap::new();
            for op in &transaction.ops {
                let &Op::Write { key, value, at } = op else { continue };
                if let Some(value) = value {
                    let origin = match transaction.outcome {
                        Outcome::Committed => Origin::Intermediate(writer),
                        Outcome::Aborted => Origin::Aborted(writer),
                    };
                    let twice = versions.origins.insert(value, (key, origin));
                    assert!(twice.is_none(), "value {value} was written twice");
                }
                let end = transaction.end;
                last.insert(key, Version { writer: Some(writer), value, at, end });
            }
            if transaction.outcome == Outcome::Committed {
                for (key, version) in last {
                    versions.of_key(history, key).push(version);
                }
            }
        }
        for key in history.initial.keys() {
            versions.of_key(history, *key);
        }
        for (&key, list) in &mut versions.of_key {
            list[1..].sort_by_key(|version| version.at);
            for (index, version) in list.iter().enumerate() {
                if let Some(value) = version.value {
                    versions.origins.insert(value, (key, Origin::Version(index)));
                }
            }
        }
        versions
    }

    fn of_key(&mut self, history: &History, key: Key) -> &mut Vec<Version> {
        self.of_key.entry(key).or_insert_with(|| {
            let value = history.initial.get(&key).copied();
            vec![Version { writer: None, value, at: 0, end: 0 }]
        })
    }

    /// Which version of `key` a reader saw that found `found` at `at`.
    fn seen(
        &self,
        reader: usize,
        key: Key,
        found: Option<Value>,
        at: Moment,
    ) -> Result<Candidates, Anomaly> {
        let Some(value) = found else {
            return match at {
                Moment::Read(at) => self.seen_absent(reader, key, at).map(|index| (index, index)),
                Moment::Snapshot(begin, at) => self.absent_between(reader, key, (begin, at)),
            };
        };
        match self.origins.get(&value) {
            Some(&(home, origin)) if home == key => match origin {
                Origin::Version(index) => Ok((index, index)),
                Origin::Intermediate(writer) => {
                    Err(Anomaly::IntermediateRead { reader, writer, key })
                }
                Origin::Aborted(writer) => Err(Anomaly::AbortedRead { reader, writer, key }),
            },
            _ => Err(Anomaly::UnknownValue { reader, key }),
        }
    }

    /// The absences that a snapshot may have seen which was taken between `begin` and `at`: not one
    /// whose successor was committed before, nor one that was written after.
    fn absent_between(
        &self,
        reader: usize,
        key: Key,
        (begin, at): (u64, u64),
    ) -> Result<Candidates, Anomaly> {
        let Some(list) = self.of_key.get(&key) else { return Ok((0, 0)) };
        let is_absent = |&index: &usize| list[index].value.is_none();
        let first = list.iter().rposition(|version| version.end < begin).unwrap_or(0);
        let end = list.partition_point(|version| version.at <= at);
        let mut candidates = (first..end.max(first + 1)).filter(is_absent);
        let first = candidates.next().ok_or(Anomaly::NeverAbsent { reader, key })?;
        Ok((first, candidates.next_back().unwrap_or(first)))
    }

    /// The last absence before `at`, or else the first after it: any of them explains the read.
    fn seen_absent(&self, reader: usize, key: Key, at: u64) -> Result<usize, Anomaly> {
        let Some(list) = self.of_key.get(&key) else { return Ok(0) };
        let is_absent = |&index: &usize| list[index].value.is_none();
        let later = list.partition_point(|version| version.at <= at);
        let last = (0..later).rev().find(is_absent);
        last.or_else(|| (later..list.len()).find(is_absent))
            .ok_or(Anomaly::NeverAbsent { reader, key })
    }
}

fn add_reads(
    graph: &mut Graph,
    versions: &Versions,
    reader: usize,
    transaction: &Transaction,
) -> Result<(), Anomaly> {
    let mut own: BTreeMap<Key, Option<Value>> = BTreeMap::new();
    let moment = |at| match transaction.snapshot {
        Some(there) => Moment::Snapshot(transaction.begin, there),
        None => Moment::Read(at),
    };
    for op in &transaction.ops {
        match *op {
            Op::Write { key, value, .. } => {
                own.insert(key, value);
            }
            Op::Read { key, found, at } => {
                graph.add_read(versions, &own, reader, (key, found, moment(at)))?;
            }
            Op::Scan { low, high, ref found, at } => {
                let is_in_order = found.is_sorted_by(|one, other| one.0 < other.0)
                    || found.is_sorted_by(|one, other| one.0 > other.0);
                if !is_in_order || found.iter().any(|(key, _)| !(low..high).contains(key)) {
                    return Err(Anomaly::BadScan { reader, low });
                }
                let present: BTreeMap<Key, Value> = found.iter().copied().collect();
                let written = own.range(low..high).map(|(&key, _)| key);
                let known = versions.of_key.range(low..high).map(|(&key, _)| key);
                let mut keys: Vec<Key> = written.chain(known).collect();
                keys.extend(present.keys());
                keys.sort_unstable();
                keys.dedup();
                for key in keys {
                    let found = present.get(&key).copied();
                    graph.add_read(versions, &own, reader, (key, found, moment(at)))?;
                }
            }
        }
    }
    Ok(())
}

/// Nodes `0..n` are transactions, `n..` the moments at which one ended.
struct Graph {
    edges: Vec<Vec<(usize, Dependency)>>,
    transactions: usize,
    committed: usize,
}

impl Graph {
    fn new(history: &History) -> Graph {
        let transactions = history.transactions.len();
        let committed =
            history.transactions.iter().filter(|one| one.outcome == Outcome::Committed).count();
        Graph { edges: vec![Vec::new(); transactions + committed], transactions, committed }
    }

    fn add(&mut self, from: Option<usize>, to: Option<usize>, why: Dependency) {
        if let (Some(from), Some(to)) = (from, to)
            && from != to
        {
            self.edges[from].push((to, why));
        }
    }

    fn add_writes(&mut self, versions: &Versions) {
        for (&key, list) in &versions.of_key {
            for pair in list.windows(2) {
                self.add(pair[0].writer, pair[1].writer, Dependency::WriteWrite(key));
            }
        }
    }

    fn add_read(
        &mut self,
        versions: &Versions,
        own: &BTreeMap<Key, Option<Value>>,
        reader: usize,
        (key, found, at): (Key, Option<Value>, Moment),
    ) -> Result<(), Anomaly> {
        if let Some(written) = own.get(&key) {
            let sees_itself = *written == found;
            return if sees_itself { Ok(()) } else { Err(Anomaly::OwnWriteLost { reader, key }) };
        }
        let (first, last) = versions.seen(reader, key, found, at)?;
        let Some(list) = versions.of_key.get(&key) else { return Ok(()) };
        self.add(list[first].writer, Some(reader), Dependency::WriteRead(key));
        if let Some(next) = list.get(last + 1) {
            self.add(Some(reader), next.writer, Dependency::ReadWrite(key));
        }
        Ok(())
    }

    /// A chain of the moments at which transactions ended: each leads to all that began after it.
    fn add_time(&mut self, history: &History) {
        let committed = |index: &usize| history.transactions[*index].outcome == Outcome::Committed;
        let mut order: Vec<usize> = (0..self.transactions).filter(committed).collect();
        order.sort_by_key(|&index| history.transactions[index].end);
        let ends: Vec<u64> = order.iter().map(|&index| history.transactions[index].end).collect();
        for (place, &index) in order.iter().enumerate() {
            let moment = self.transactions + place;
            self.add(Some(index), Some(moment), Dependency::Time);
            if place + 1 < order.len() {
                self.add(Some(moment), Some(moment + 1), Dependency::Time);
            }
            let ended = ends.partition_point(|&end| end < history.transactions[index].begin);
            if ended > 0 {
                self.add(Some(self.transactions + ended - 1), Some(index), Dependency::Time);
            }
        }
    }

    /// A cycle, if there is one: transactions with the dependency that leads on to the next.
    fn cycle(&self) -> Option<Vec<(usize, Dependency)>> {
        const NEW: u8 = 0;
        const OPEN: u8 = 1;
        const DONE: u8 = 2;
        let mut state = vec![NEW; self.edges.len()];
        for root in 0..self.edges.len() {
            if state[root] != NEW {
                continue;
            }
            let mut path = vec![(root, 0)];
            state[root] = OPEN;
            while let Some(top) = path.last_mut() {
                let (node, next) = *top;
                top.1 += 1;
                match self.edges[node].get(next) {
                    None => {
                        state[node] = DONE;
                        path.pop();
                    }
                    Some(&(to, _)) if state[to] == OPEN => return Some(self.name(&path, to)),
                    Some(&(to, _)) if state[to] == NEW => {
                        state[to] = OPEN;
                        path.push((to, 0));
                    }
                    Some(_) => {}
                }
            }
        }
        None
    }

    fn name(&self, path: &[(usize, usize)], first: usize) -> Vec<(usize, Dependency)> {
        let from = path.iter().position(|&(node, _)| node == first).expect("an open node");
        path[from..]
            .iter()
            .filter(|&&(node, _)| node < self.transactions)
            .map(|&(node, next)| (node, self.edges[node][next - 1].1))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a history from operations in the order in which they happened.
    #[derive(Default)]
    struct Script {
        history: History,
        clock: u64,
    }

    impl Script {
        fn new(initial: &[(Key, Value)]) -> Script {
            let mut script = Script::default();
            script.history.initial = initial.iter().copied().collect();
            script
        }

        fn begin(&mut self) -> usize {
            self.clock += 1;
            let (begin, outcome) = (self.clock, Outcome::Aborted);
            let (end, ops) = (u64::MAX, Vec::new());
            let transaction = Transaction { begin, end, outcome, ops, snapshot: None };
            self.history.transactions.push(transaction);
            self.history.transactions.len() - 1
        }

        /// A snapshot is there.
        fn look(&mut self) -> usize {
            let looker = self.begin();
            self.history.transactions[looker].snapshot = Some(self.at());
            looker
        }

        fn at(&mut self) -> u64 {
            self.clock += 1;
            self.clock
        }

        fn read(&mut self, who: usize, key: Key, found: Option<Value>) {
            let at = self.at();
            self.history.transactions[who].ops.push(Op::Read { key, found, at });
        }

        fn write(&mut self, who: usize, key: Key, value: Option<Value>) {
            let at = self.at();
            self.history.transactions[who].ops.push(Op::Write { key, value, at });
        }

        fn scan(&mut self, who: usize, low: Key, high: Key, found: &[(Key, Value)]) {
            let at = self.at();
            let found = found.to_vec();
            self.history.transactions[who].ops.push(Op::Scan { low, high, found, at });
        }

        fn end(&mut self, who: usize, outcome: Outcome) {
            self.history.transactions[who].end = self.at();
            self.history.transactions[who].outcome = outcome;
        }

        fn commit(&mut self, who: usize) {
            self.end(who, Outcome::Committed);
        }

        fn cycle(&self) -> Vec<usize> {
            match check(&self.history) {
                Err(Anomaly::Cycle(cycle)) => {
                    let mut members: Vec<_> = cycle.into_iter().map(|(one, _)| one).collect();
                    members.sort_unstable();
                    members
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_serial_history_passes() {
        let mut script = Script::new(&[(1, 10), (2, 20)]);
        let one = script.begin();
        script.read(one, 1, Some(10));
        script.write(one, 1, Some(11));
        script.write(one, 2, None);
        script.read(one, 2, None);
        script.commit(one);
        let two = script.begin();
        script.scan(two, 0, 9, &[(1, 11)]);
        script.write(two, 2, Some(21));
        script.commit(two);
        let three = script.begin();
        script.scan(three, 0, 9, &[(1, 11), (2, 21)]);
        script.commit(three);
        assert_eq!(check(&script.history).expect("serial").committed, 3);
    }

    #[test]
    fn a_snapshot_may_be_older_than_what_is_there_and_is_of_one_moment() {
        let mut script = Script::new(&[(1, 10)]);
        let looker = script.look();
        let one = script.begin();
        script.write(one, 1, Some(11));
        script.write(one, 2, Some(21));
        script.commit(one);
        let two = script.begin();
        script.write(two, 2, None);
        script.commit(two);
        script.read(looker, 1, Some(10));
        script.read(looker, 2, None);
        script.commit(looker);
        assert_eq!(check(&script.history).expect("it is of the beginning").snapshots, 1);
        // The first write and not the second.
        script.history.transactions[looker].ops.pop();
        script.history.transactions[looker].ops.pop();
        script.read(looker, 1, Some(11));
        script.scan(looker, 2, 3, &[]);
        assert!(script.cycle().contains(&looker));
    }

    #[test]
    fn what_was_committed_before_a_snapshot_is_in_it() {
        let mut script = Script::new(&[]);
        let one = script.begin();
        script.write(one, 1, Some(11));
        script.commit(one);
        let looker = script.look();
        script.read(looker, 1, None);
        script.commit(looker);
        assert_eq!(check(&script.history), Err(Anomaly::NeverAbsent { reader: looker, key: 1 }));
    }

    #[test]
    fn write_skew_is_a_cycle() {
        let mut script = Script::new(&[(1, 10), (2, 20)]);
        let (one, two) = (script.begin(), script.begin());
        for who in [one, two] {
            script.read(who, 1, Some(10));
            script.read(who, 2, Some(20));
        }
        script.write(one, 1, Some(11));
        script.write(two, 2, Some(21));
        script.commit(one);
        script.commit(two);
        assert_eq!(script.cycle(), [one, two]);
    }

    #[test]
    fn write_skew_through_ranges_is_a_cycle() {
        let mut script = Script::new(&[]);
        let (one, two) = (script.begin(), script.begin());
        script.scan(one, 0, 10, &[]);
        script.scan(two, 0, 10, &[]);
        script.write(one, 3, Some(30));
        script.write(two, 4, Some(40));
        script.commit(one);
        script.commit(two);
        assert_eq!(script.cycle(), [one, two]);
    }

    #[test]
    fn a_phantom_is_a_cycle() {
        let mut script = Script::new(&[(1, 10)]);
        let (one, two) = (script.begin(), script.begin());
        script.scan(one, 0, 10, &[(1, 10)]);
        script.write(two, 5, Some(50));
        script.commit(two);
        script.scan(one, 0, 10, &[(1, 10), (5, 50)]);
        script.commit(one);
        assert_eq!(script.cycle(), [one, two]);
    }

    #[test]
    fn a_lost_update_is_a_cycle() {
        let mut script = Script::new(&[(1, 10)]);
        let (one, two) = (script.begin(), script.begin());
        script.read(one, 1, Some(10));
        script.read(two, 1, Some(10));
        script.write(one, 1, Some(11));
        script.commit(one);
        script.write(two, 1, Some(12));
        script.commit(two);
        assert_eq!(script.cycle(), [one, two]);
    }

    #[test]
    fn a_stale_read_breaks_strictness() {
        let mut script = Script::new(&[(1, 10)]);
        let one = script.begin();
        script.write(one, 1, Some(11));
        script.commit(one);
        let two = script.begin();
        script.read(two, 1, Some(10));
        script.commit(two);
        assert_eq!(script.cycle(), [one, two]);
    }

    #[test]
    fn dirty_reads_have_their_names() {
        let mut script = Script::new(&[]);
        let (one, two) = (script.begin(), script.begin());
        script.write(one, 1, Some(11));
        script.read(two, 1, Some(11));
        script.commit(two);
        script.end(one, Outcome::Aborted);
        let aborted = Anomaly::AbortedRead { reader: two, writer: one, key: 1 };
        assert_eq!(check(&script.history), Err(aborted));
        script.write(one, 1, Some(12));
        script.commit(one);
        let intermediate = Anomaly::IntermediateRead { reader: two, writer: one, key: 1 };
        assert_eq!(check(&script.history), Err(intermediate));
    }

    #[test]
    fn a_scan_must_be_in_order_and_in_its_range() {
        for (found, is_good) in [
            (vec![(2, 20), (1, 10)], true),
            (vec![(1, 10), (1, 10)], false),
            (vec![(1, 10), (3, 30), (2, 20)], false),
            (vec![(1, 10), (9, 90)], false),
        ] {
            let mut script = Script::new(&[(1, 10), (2, 20), (3, 30), (9, 90)]);
            let one = script.begin();
            script.scan(one, 0, if found.len() == 2 { 3 } else { 4 }, &found);
            script.commit(one);
            let outcome = check(&script.history).map(|_| ());
            let bad = Err(Anomaly::BadScan { reader: one, low: 0 });
            assert_eq!(outcome, if is_good { Ok(()) } else { bad }, "{found:?}");
        }
    }

    #[test]
    fn lost_own_writes_and_invented_values_are_seen() {
        let mut script = Script::new(&[(1, 10)]);
        let one = script.begin();
        script.write(one, 1, Some(11));
        script.read(one, 1, Some(10));
        script.commit(one);
        assert_eq!(check(&script.history), Err(Anomaly::OwnWriteLost { reader: one, key: 1 }));
        let mut script = Script::new(&[(1, 10)]);
        let one = script.begin();
        script.read(one, 1, Some(99));
        script.commit(one);
        assert_eq!(check(&script.history), Err(Anomaly::UnknownValue { reader: one, key: 1 }));
        let mut script = Script::new(&[(1, 10)]);
        let one = script.begin();
        script.read(one, 1, None);
        script.commit(one);
        assert_eq!(check(&script.history), Err(Anomaly::NeverAbsent { reader: one, key: 1 }));
    }
}
