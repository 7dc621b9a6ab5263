//! What the clients know: the oracle that a recovered database is held against.
//!
//! The ledger is kept outside the engine and survives every power cut. A client notes each write
//! when it returns, each commit when it is asked for and again when it is acknowledged. Two-phase
//! locking makes the order of notes on one place the order of its versions. Each transaction
//! inserts a marker row of its own, so that after a restart it is plain which transactions are
//! there, without trust in anything else.
//!
//! ```text
//!            begin            ask                 acknowledge
//!  (nothing) -----> Running ---------> Asked(d) --------------> Acknowledged(d)
//!                      | give_up
//!                      v
//!                   GivenUp
//! ```
//!
//! After a power cut (`verify`):
//!
//! - L1: an acknowledged durable transaction is there.
//! - L2: one that was asked for is there whole or not at all.
//! - L3: one that ran or was given up is not there.
//! - L4: those that are there are a prefix: if one is, so is each that was acknowledged before it
//!   was asked for, and each that wrote earlier to a place that it wrote to.
//! - L5: the tables hold exactly what those that are there wrote, in order, and nothing else.
//!
//! Before any cut (`check_read`):
//!
//! - L6: a read sees the newest version of its place.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Which row of which table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowPlace {
    /// Number of the table.
    pub table: u8,
    /// Key in it.
    pub key: u32,
}

/// Names one write: the contents of a value follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// The transaction that wrote: its number in the ledger.
    pub transaction: u32,
    /// Which of its writes.
    pub write: u32,
    /// Bytes of the value, at least [`STAMP_SIZE`].
    pub length: u32,
}

/// Bytes of a stamp at the front of a value.
pub const STAMP_SIZE: usize = 12;

impl Stamp {
    /// The value that this stamp names: the stamp, then bytes that follow from it.
    pub fn value(&self, place: RowPlace) -> Vec<u8> {
        assert!(self.length as usize >= STAMP_SIZE);
        let mut value = vec![0; self.length as usize];
        let (front, rest) = value.split_at_mut(STAMP_SIZE);
        let words = [self.transaction, self.write, self.length];
        for (at, word) in front.chunks_exact_mut(4).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        let mut state = u64::from(self.transaction) << 32 | u64::from(self.write);
        state ^= u64::from(place.key) << 8 | u64::from(place.table);
        for bytes in rest.chunks_mut(8) {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            let word = (state ^ state >> 32).to_le_bytes();
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
        value
    }

    /// The stamp that `value` carries at its front.
    pub fn of(value: &[u8]) -> Option<Stamp> {
        let word = |at: usize| {
            Some(u32::from_le_bytes(value.get(at..at + 4)?.try_into().expect("four bytes")))
        };
        Some(Stamp { transaction: word(0)?, write: word(4)?, length: word(8)? })
    }
}

/// What a client asked of its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// It may be lost in a power cut, with all that came later.
    Buffered,
    /// Once acknowledged it is there.
    Durable,
}

/// Name of a transaction in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Asked {
        at: u64,
    },
    Acknowledged {
        promise: Promise,
        asked: u64,
        at: u64,
    },
    GivenUp,
    /// Found after a restart, and part of the base since.
    Settled,
}

#[derive(Clone, Debug)]
struct Record {
    state: State,
    /// Whether a call into the engine is on its way: it may be rolling back.
    is_calling: bool,
    places: BTreeSet<RowPlace>,
    /// Writes so far.
    writes: u32,
}

#[derive(Clone, Copy, Debug)]
struct Version {
    writer: Entry,
    /// Which of its writes.
    number: u32,
    stamp: Option<Stamp>,
}

/// How many writes a transaction had noted.
#[derive(Clone, Copy, Debug)]
pub struct Mark(u32);

/// The time of the ledger before a snapshot was opened, and once it was.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    before: u64,
    after: u64,
}

/// What is wrong with a recovered, or a running, database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// L1.
    DurableLost(u32),
    /// L3.
    GhostFound(u32),
    /// L4: `earlier` is missing although `later` is there.
    Hole {
        /// Missing.
        earlier: u32,
        /// There.
        later: u32,
    },
    /// L5 and L6: a place holds something else than it should.
    WrongValue {
        /// Where.
        place: RowPlace,
        /// What should be there.
        expected: Option<Stamp>,
        /// What is there, if it carries a stamp.
        found: Option<Stamp>,
        /// Whether the bytes are what their stamp names.
        is_whole: bool,
    },
    /// A marker that no transaction wrote.
    UnknownMarker(u32),
    /// A call into the engine failed with something else than a conflict.
    Error(String),
    /// Every task waits, and nothing is to come.
    Stuck(String),
    /// The database takes more of home than its rows need.
    Space {
        /// Bytes that it takes.
        used: u64,
        /// Bytes that a new one of the same rows takes.
        new: u64,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::DurableLost(one) => write!(f, "durable transaction {one} is lost"),
            Failure::GhostFound(one) => {
                write!(f, "transaction {one} is there and never asked to commit")
            }
            Failure::Hole { earlier, later } => {
                write!(f, "transaction {earlier} is lost and {later}, which came after it, is not")
            }
            Failure::WrongValue { place, expected, found, is_whole } => write!(
                f,
                "table {} key {}: expected {expected:?}, found {found:?}{}",
                place.table,
                place.key,
                if *is_whole { "" } else { ", mangled" },
            ),
            Failure::UnknownMarker(one) => write!(f, "a marker of transaction {one}, unknown"),
            Failure::Error(error) => write!(f, "the engine failed: {error}"),
            Failure::Space { used, new } => {
                write!(f, "{used} bytes of home are in use, of which the rows need {new}")
            }
            Failure::Stuck(who) => write!(f, "all stands still: {who}"),
        }
    }
}

/// What a restarted database holds, read with scans.
#[derive(Debug, Default)]
pub struct Found {
    /// Markers: the transactions that are there.
    pub markers: BTreeSet<u32>,
    /// All rows.
    pub rows: BTreeMap<RowPlace, Vec<u8>>,
}

/// The ledger of one torture.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    clock: u64,
    records: Vec<Record>,
    base: BTreeMap<RowPlace, Stamp>,
    /// Versions since the base, oldest first.
    versions: BTreeMap<RowPlace, Vec<Version>>,
    /// Transactions before this one were settled by an earlier restart.
    first_open: usize,
    acknowledged: u64,
    lost: u64,
}

impl Ledger {
    /// A new transaction.
    pub fn begin(&mut self) -> Entry {
        let (state, places) = (State::Running, BTreeSet::new());
        self.records.push(Record { state, is_calling: false, places, writes: 0 });
        Entry(self.records.len() as u32 - 1)
    }

    /// Notes that `entry` calls into the engine, or that the call has returned.
    pub fn set_calling(&mut self, entry: Entry, is_calling: bool) {
        self.records[entry.0 as usize].is_calling = is_calling;
    }

    /// Notes that a write has returned.
    pub fn wrote(&mut self, entry: Entry, place: RowPlace, stamp: Option<Stamp>) {
        let record = &mut self.records[entry.0 as usize];
        assert_eq!(record.state, State::Running);
        record.places.insert(place);
        let version = Version { writer: entry, number: record.writes, stamp };
        record.writes += 1;
        self.versions.entry(place).or_default().push(version);
    }

    /// Notes that `entry` has emptied a table.
    pub fn emptied(&mut self, entry: Entry, table: u8) {
        let places: BTreeSet<RowPlace> =
            self.base.keys().chain(self.versions.keys()).copied().collect();
        for place in places.into_iter().filter(|place| place.table == table) {
            self.wrote(entry, place, None);
        }
    }

    /// The writes of `entry` so far, to go back to.
    pub fn mark(&self, entry: Entry) -> Mark {
        Mark(self.records[entry.0 as usize].writes)
    }

    /// Notes that `entry` has undone what it wrote since `mark`.
    pub fn went_back(&mut self, entry: Entry, mark: Mark) {
        for place in &self.records[entry.0 as usize].places {
            let versions = self.versions.get_mut(place).expect("a place that was written");
            versions.retain(|version| version.writer != entry || version.number < mark.0);
        }
    }

    /// Notes that a commit is about to be asked for.
    pub fn ask(&mut self, entry: Entry) {
        self.clock += 1;
        let record = &mut self.records[entry.0 as usize];
        assert_eq!(record.state, State::Running);
        record.state = State::Asked { at: self.clock };
    }

    /// Notes that a commit has returned.
    pub fn acknowledge(&mut self, entry: Entry, promise: Promise) {
        self.clock += 1;
        self.acknowledged += 1;
        let record = &mut self.records[entry.0 as usize];
        let State::Asked { at: asked } = record.state else { panic!("never asked for") };
        record.state = State::Acknowledged { promise, asked, at: self.clock };
    }

    /// Notes that a transaction was rolled back, or is about to be.
    pub fn give_up(&mut self, entry: Entry) {
        let record = &mut self.records[entry.0 as usize];
        record.state = State::GivenUp;
        for place in std::mem::take(&mut record.places) {
            let versions = self.versions.get_mut(&place).expect("a place that was written");
            versions.retain(|version| version.writer != entry);
        }
    }

    /// Transactions acknowledged so far, and those that a restart lost as it may.
    pub fn totals(&self) -> (u64, u64) {
        (self.acknowledged, self.lost)
    }

    /// Checks what `reader` found at `place` (L6).
    ///
    /// # Errors
    ///
    /// What is there differs from the newest version.
    pub fn check_read(
        &self,
        reader: Entry,
        place: RowPlace,
        found: Option<&[u8]>,
    ) -> Result<(), Failure> {
        let mut expected = self.base.get(&place).copied();
        for version in self.versions.get(&place).into_iter().flatten().rev() {
            let writer = &self.records[version.writer.0 as usize];
            let may_be_rolling_back = writer.state == State::Running && writer.is_calling;
            if version.writer == reader || !may_be_rolling_back {
                expected = version.stamp;
                break;
            }
        }
        compare(place, expected, found)
    }

    /// The time.
    pub fn now(&self) -> u64 {
        self.clock
    }

    /// A snapshot was opened; before that it was `before`.
    pub fn opened(&self, before: u64) -> Opened {
        Opened { before, after: self.clock }
    }

    /// Checks what a snapshot found at `place`: the newest version that was committed before it was
    /// opened, or one whose commit was under way then.
    ///
    /// # Errors
    ///
    /// What is there is none of these.
    pub fn check_seen(
        &self,
        opened: Opened,
        place: RowPlace,
        found: Option<&[u8]>,
    ) -> Result<(), Failure> {
        let versions = self.versions.get(&place).map_or(&[][..], Vec::as_slice);
        let mut newer = None;
        for version in versions.iter().rev() {
            let (may_be_seen, must_be_seen) = match self.records[version.writer.0 as usize].state {
                State::Running | State::GivenUp => (false, false),
                State::Asked { at } => (at <= opened.after, false),
                State::Acknowledged { asked, at, .. } => {
                    (asked <= opened.after, at <= opened.before)
                }
                State::Settled => (true, true),
            };
            // The last one that a transaction wrote counts.
            if !may_be_seen || newer.replace(version.writer) == Some(version.writer) {
                continue;
            }
            let compared = compare(place, version.stamp, found);
            if compared.is_ok() || must_be_seen {
                return compared;
            }
        }
        compare(place, self.base.get(&place).copied(), found)
    }

    /// Holds `found`, what a restarted database contains, against the ledger, and makes it the new
    /// base.
    pub fn verify(&mut self, found: &Found) -> Vec<Failure> {
        let mut failures = self.check_presence(&found.markers);
        self.check_order(&found.markers, &mut failures);
        self.settle(&found.markers);
        let places: BTreeSet<RowPlace> =
            self.base.keys().copied().chain(found.rows.keys().copied()).collect();
        for place in places {
            let row = found.rows.get(&place).map(Vec::as_slice);
            let expected = self.base.get(&place).copied();
            failures.extend(compare(place, expected, row).err());
        }
        failures
    }

    /// L1, L3, and the first half of L4.
    fn check_presence(&self, markers: &BTreeSet<u32>) -> Vec<Failure> {
        let mut failures = Vec::new();
        let mut latest = (0, 0);
        for &marker in markers {
            match self.records.get(marker as usize).map(|record| record.state) {
                None => failures.push(Failure::UnknownMarker(marker)),
                Some(State::Running | State::GivenUp) => {
                    failures.push(Failure::GhostFound(marker));
                }
                Some(State::Asked { at: asked } | State::Acknowledged { asked, .. }) => {
                    latest = latest.max((asked, marker));
                }
                Some(State::Settled) => {}
            }
        }
        for (index, record) in self.records.iter().enumerate() {
            let index = index as u32;
            if markers.contains(&index) {
                continue;
            }
            match record.state {
                State::Settled | State::Acknowledged { promise: Promise::Durable, .. } => {
                    failures.push(Failure::DurableLost(index));
                }
                State::Acknowledged { at, .. } if at < latest.0 => {
                    failures.push(Failure::Hole { earlier: index, later: latest.1 });
                }
                _ => {}
            }
        }
        failures
    }

    /// The second half of L4.
    fn check_order(&self, markers: &BTreeSet<u32>, failures: &mut Vec<Failure>) {
        for versions in self.versions.values() {
            let mut missing = None;
            for version in versions {
                let state = self.records[version.writer.0 as usize].state;
                let is_there = markers.contains(&version.writer.0);
                match (missing, is_there) {
                    (Some(earlier), true) => {
                        failures.push(Failure::Hole { earlier, later: version.writer.0 });
                        break;
                    }
                    (None, false) if state != State::Running => missing = Some(version.writer.0),
                    _ => {}
                }
            }
        }
    }

    /// Makes what is there the base, and forgets the rest.
    fn settle(&mut self, markers: &BTreeSet<u32>) {
        for (place, versions) in std::mem::take(&mut self.versions) {
            let newest = versions.iter().rev().find(|version| markers.contains(&version.writer.0));
            match newest.map(|version| version.stamp) {
                Some(Some(stamp)) => drop(self.base.insert(place, stamp)),
                Some(None) => drop(self.base.remove(&place)),
                None => {}
            }
        }
        for index in self.first_open..self.records.len() {
            let is_there = markers.contains(&(index as u32));
            let record = &mut self.records[index];
            let was_asked =
                matches!(record.state, State::Asked { .. } | State::Acknowledged { .. });
            self.lost += u64::from(was_asked && !is_there);
            record.state = if is_there { State::Settled } else { State::GivenUp };
            record.places.clear();
        }
        self.first_open = self.records.len();
    }
}

fn compare(place: RowPlace, expected: Option<Stamp>, found: Option<&[u8]>) -> Result<(), Failure> {
    let is_right = match (expected, found) {
        (None, None) => true,
        (Some(stamp), Some(value)) => {
            value.len() == stamp.length as usize && value == stamp.value(place)
        }
        _ => false,
    };
    if is_right {
        return Ok(());
    }
    let stamp = found.and_then(Stamp::of);
    let is_whole = match (stamp, found) {
        (Some(stamp), Some(value)) if stamp.length as usize == value.len() => {
            value == stamp.value(place)
        }
        (_, found) => found.is_none(),
    };
    Err(Failure::WrongValue { place, expected, found: stamp, is_whole })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: RowPlace = RowPlace { table: 1, key: 7 };
    const THERE: RowPlace = RowPlace { table: 2, key: 8 };

    fn stamp(entry: Entry, write: u32) -> Stamp {
        Stamp { transaction: entry.0, write, length: 40 }
    }

    fn written(ledger: &mut Ledger, places: &[RowPlace]) -> Entry {
        let entry = ledger.begin();
        for (write, &place) in places.iter().enumerate() {
            ledger.wrote(entry, place, Some(stamp(entry, write as u32)));
        }
        entry
    }

    fn found(markers: &[Entry], rows: &[(RowPlace, Stamp)]) -> Found {
        Found {
            markers: markers.iter().map(|entry| entry.0).collect(),
            rows: rows.iter().map(|&(place, stamp)| (place, stamp.value(place))).collect(),
        }
    }

    #[test]
    fn a_durable_commit_must_be_there() {
        let mut ledger = Ledger::default();
        let one = written(&mut ledger, &[HERE]);
        ledger.ask(one);
        ledger.acknowledge(one, Promise::Durable);
        assert_eq!(ledger.verify(&found(&[], &[])), [Failure::DurableLost(0)]);
    }

    #[test]
    fn a_commit_in_flight_is_whole_or_absent() {
        for is_there in [true, false] {
            let mut ledger = Ledger::default();
            let one = written(&mut ledger, &[HERE, THERE]);
            ledger.ask(one);
            let whole = found(&[one], &[(HERE, stamp(one, 0)), (THERE, stamp(one, 1))]);
            let state = if is_there { whole } else { found(&[], &[]) };
            assert_eq!(ledger.verify(&state), []);
            assert_eq!(ledger.verify(&state), [], "what was found once stays");
        }
        let mut ledger = Ledger::default();
        let one = written(&mut ledger, &[HERE, THERE]);
        ledger.ask(one);
        let half = found(&[one], &[(HERE, stamp(one, 0))]);
        assert!(matches!(ledger.verify(&half)[..], [Failure::WrongValue { place: THERE, .. }]));
    }

    #[test]
    fn buffered_commits_are_a_prefix() {
        let mut ledger = Ledger::default();
        let one = written(&mut ledger, &[HERE]);
        ledger.ask(one);
        ledger.acknowledge(one, Promise::Buffered);
        let two = written(&mut ledger, &[THERE]);
        ledger.ask(two);
        let hole = found(&[two], &[(THERE, stamp(two, 0))]);
        assert_eq!(ledger.verify(&hole), [Failure::Hole { earlier: 0, later: 1 }]);
    }

    #[test]
    fn what_was_rolled_back_is_a_ghost() {
        let mut ledger = Ledger::default();
        let one = written(&mut ledger, &[HERE]);
        ledger.give_up(one);
        let ghost = found(&[one], &[]);
        assert_eq!(ledger.verify(&ghost), [Failure::GhostFound(0)]);
    }

    #[test]
    fn what_a_savepoint_undid_is_gone_and_an_emptied_table_is_empty() {
        let mut ledger = Ledger::default();
        let one = written(&mut ledger, &[HERE]);
        let mark = ledger.mark(one);
        ledger.emptied(one, HERE.table);
        assert_eq!(ledger.check_read(one, HERE, None), Ok(()));
        ledger.wrote(one, THERE, Some(stamp(one, 1)));
        ledger.went_back(one, mark);
        let old = stamp(one, 0).value(HERE);
        assert_eq!(ledger.check_read(one, HERE, Some(&old)), Ok(()));
        assert_eq!(ledger.check_read(one, THERE, None), Ok(()));
        ledger.ask(one);
        ledger.acknowledge(one, Promise::Durable);
        assert_eq!(ledger.verify(&found(&[one], &[(HERE, stamp(one, 0))])), []);
    }

    #[test]
    fn a_settled_commit_must_stay() {
        let mut ledger = Ledger::default();
        let one = written(&mut ledger, &[HERE]);
        ledger.ask(one);
        assert_eq!(ledger.verify(&found(&[one], &[(HERE, stamp(one, 0))])), []);
        assert_eq!(ledger.verify(&found(&[], &[])).len(), 2);
    }

    #[test]
    fn reads_see_the_newest_version() {
        let mut ledger = Ledger::default();
        let one = written(&mut ledger, &[HERE]);
        ledger.ask(one);
        ledger.acknowledge(one, Promise::Buffered);
        let two = written(&mut ledger, &[HERE]);
        let reader = ledger.begin();
        let old = stamp(one, 0).value(HERE);
        let new = stamp(two, 0).value(HERE);
        assert!(ledger.check_read(reader, HERE, Some(&old)).is_err(), "the lock was overtaken");
        assert_eq!(ledger.check_read(two, HERE, Some(&new)), Ok(()));
        ledger.set_calling(two, true);
        assert_eq!(ledger.check_read(reader, HERE, Some(&old)), Ok(()), "it may be rolling back");
        ledger.give_up(two);
        assert_eq!(ledger.check_read(reader, HERE, Some(&old)), Ok(()));
        let mut torn = old.clone();
        torn[20] ^= 1;
        let failure = ledger.check_read(reader, HERE, Some(&torn)).unwrap_err();
        assert!(failure.to_string().ends_with("mangled"), "{failure}");
    }
}
