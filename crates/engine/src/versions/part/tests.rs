//! A part beside a leaf and copies of what was committed: random changes, snapshots and spilling.

use std::collections::{BTreeMap, BTreeSet};

use std::sync::Arc;

use terrace_rt::Prng;

use super::*;
use crate::log::Fate;
use crate::versions::ends::Ends;
use crate::versions::horizon::Horizon;

const TREE: TreeId = TreeId(1);
const ROWS: u64 = 12;

type Rows = BTreeMap<u64, Vec<u8>>;

/// A transaction that is open: what it has changed, and what that was.
struct Open {
    fate: Arc<Fate>,
    undo: Vec<(Lsn, u64, Option<Vec<u8>>)>,
    /// Rows that no other task may change until it ends.
    locked: BTreeSet<u64>,
}

/// A row, what it was, and who has changed it where.
type Waiting = (u64, Option<(u8, Vec<u8>)>, Arc<Fate>, Lsn, Toward);

/// A part beside the leaf that it belongs to, and copies of what was committed.
struct Case {
    part: Part,
    prng: Prng,
    now: u64,
    /// Changes whose versions are to be kept.
    waiting: Vec<Waiting>,
    /// What the leaf has: rows, and ghosts.
    leaf: BTreeMap<u64, (u8, Vec<u8>)>,
    graves: Vec<u64>,
    committed: Rows,
    open: Vec<Open>,
    snapshots: Vec<(Lsn, Rows)>,
    /// What was taken out, to be spilled.
    taken: Vec<Taken>,
    ends: Arc<Ends>,
    /// Its entries, by key and end.
    spilled: BTreeMap<(Vec<u8>, Lsn), Option<Vec<u8>>>,
    /// Versions are kept; before that, undo is only listed.
    is_on: bool,
}

impl Case {
    fn tick(&mut self) -> Lsn {
        self.now += 1;
        Lsn(self.now)
    }

    fn current(&self, row: u64) -> Option<Record<'_>> {
        self.leaf.get(&row).map(|(flags, value)| (*flags, &value[..]))
    }

    fn shown(&self, row: u64) -> Option<Vec<u8>> {
        self.leaf.get(&row).filter(|found| found.0 & GHOST == 0).map(|found| found.1.clone())
    }

    fn keep(&mut self, row: u64, (fate, lsn): (&Arc<Fate>, Lsn), toward: Toward) {
        let current = self.leaf.get(&row).cloned();
        self.waiting.push((row, current, Arc::clone(fate), lsn, toward));
    }

    fn horizon(&self) -> Horizon {
        let mut open: Vec<Lsn> = self.snapshots.iter().map(|snapshot| snapshot.0).collect();
        open.sort_unstable();
        Horizon { as_of: Lsn(self.now + 1), open }
    }

    fn needs(&self) -> Needs {
        Needs { horizon: self.horizon(), ends: Arc::clone(&self.ends) }
    }

    fn sort_in(&mut self) {
        let needs = self.needs();
        for (row, current, fate, lsn, toward) in std::mem::take(&mut self.waiting) {
            let key = row.to_be_bytes();
            let current = current.as_ref().map(|(flags, value)| (*flags, &value[..]));
            let (row, writer) = (Row::new(TREE, &key), &Author::new(&fate));
            let change = Change { row, current, writer, lsn, toward };
            if !needs.is_unneeded(&change) {
                self.part.mark(&change, &needs.horizon, 3);
                self.part.keep(&change, &needs, true);
            }
        }
    }

    /// Changes a row that no other transaction has changed.
    fn change(&mut self) {
        if self.open.len() < 3 && self.prng.chance(4) || self.open.is_empty() {
            let (fate, undo, locked) = (Arc::default(), Vec::new(), BTreeSet::new());
            self.open.push(Open { fate, undo, locked });
        }
        let at = self.prng.below(self.open.len() as u64) as usize;
        let row = self.prng.below(ROWS);
        let is_locked = |(other, open): (usize, &Open)| other != at && open.locked.contains(&row);
        if self.open.iter().enumerate().any(is_locked) {
            return;
        }
        let (lsn, fate) = (self.tick(), Arc::clone(&self.open[at].fate));
        let before = self.shown(row);
        let is_last = self.leaf.range(row..).next().is_none();
        let is_remove = self.prng.chance(3);
        let toward = if is_last && !is_remove { Toward::Append } else { Toward::Forward };
        if self.is_on {
            self.keep(row, (&fate, lsn), toward);
        }
        self.open[at].undo.push((lsn, row, before));
        self.open[at].locked.insert(row);
        let value = vec![self.prng.below(256) as u8; self.prng.below(20) as usize];
        match is_remove {
            true if !self.leaf.contains_key(&row) => drop(self.open[at].undo.pop()),
            true => self.leaf.get_mut(&row).expect("there").0 |= GHOST,
            false => drop(self.leaf.insert(row, (0, value))),
        }
    }

    /// Undoes the newest change of a transaction.
    fn undo(&mut self, at: usize) {
        let Some((_, row, before)) = self.open[at].undo.pop() else { return };
        let (lsn, fate) = (self.tick(), Arc::clone(&self.open[at].fate));
        if self.is_on {
            self.keep(row, (&fate, lsn), Toward::Back);
        }
        match before {
            Some(before) => drop(self.leaf.insert(row, (0, before))),
            None => self.leaf.get_mut(&row).expect("it was put").0 |= GHOST,
        }
    }

    fn end(&mut self) {
        let Some(at) = self.open.len().checked_sub(1) else { return };
        if self.prng.chance(3) {
            while !self.open[at].undo.is_empty() {
                self.undo(at);
            }
        }
        let open = self.open.swap_remove(at);
        open.fate.end_for_tests(self.tick());
        for (_, row, _) in open.undo {
            match self.shown(row) {
                Some(value) => self.committed.insert(row, value),
                None => self.committed.remove(&row),
            };
        }
    }

    /// Versions are kept from now on.
    fn switch_on(&mut self) {
        self.is_on = true;
        for open in &self.open {
            for (lsn, row, before) in &open.undo {
                let key = row.to_be_bytes();
                let before = match before {
                    Some(value) => Before::Record((0, value)),
                    None => Before::Absent,
                };
                let writer = &Author::new(&open.fate);
                self.part.index(&Row::new(TREE, &key), before, (writer, *lsn));
            }
        }
    }

    fn purge(&mut self) {
        let row = self.prng.below(ROWS);
        let is_locked = self.open.iter().any(|open| open.locked.contains(&row));
        let Some((flags, value)) = self.leaf.get(&row).cloned() else { return };
        if flags & GHOST == 0 || is_locked {
            return;
        }
        self.sort_in();
        let key = row.to_be_bytes();
        if self.part.bury(&Row::new(TREE, &key), (flags, &value)) {
            self.graves.push(row);
        }
        self.leaf.remove(&row);
    }

    fn collect(&mut self) {
        self.sort_in();
        let needs = self.needs();
        let graves = &mut self.graves;
        self.part.collect(&needs, |_, key| {
            graves.retain(|row| row.to_be_bytes() != *key);
        });
        if self.snapshots.is_empty() && self.open.is_empty() {
            assert_eq!((self.part.entries.len(), self.graves.len()), (0, 0));
        }
    }

    /// Rows that stand for themselves go where spilled ones are.
    fn take(&mut self) {
        self.sort_in();
        let to = Lsn(self.now + 1);
        if self.ends.is_empty() {
            self.ends = Arc::new(Ends::new(if self.now.is_multiple_of(2) { 64 } else { 1 << 10 }));
        }
        let Some(mut taken) = self.part.take_ended(to, &self.ends) else { return };
        for (_, key) in taken.take_graves() {
            self.graves.retain(|row| row.to_be_bytes() != *key);
        }
        for number in taken.numbers() {
            let Old { row, ended, before } = taken.entry(number);
            let place = (row.key.to_vec(), ended);
            let before = self.spilled.insert(place, before.map(<[u8]>::to_vec));
            assert!(before.is_none(), "two entries of a row have the same end");
        }
        self.taken.push(taken);
    }

    /// What a snapshot sees of a row that was taken out, if its change ended before `bound`: by
    /// what was taken out, and by the ends alone, as runs know them.
    fn find_taken(&self, at: Lsn, row: u64, bound: Lsn) -> Option<Option<Vec<u8>>> {
        let key = row.to_be_bytes();
        let row = Row::new(TREE, &key);
        let all = self.taken.iter().filter_map(|taken| taken.find(at, &row));
        let first = all.min_by_key(|old| old.ended);
        let of_row = (key.to_vec(), at)..=(key.to_vec(), Lsn::MAX);
        let by_end = self.spilled.range(of_row).next();
        let found = first.map(|old| (old.ended, old.before.map(<[u8]>::to_vec)));
        assert_eq!(found, by_end.map(|((_, ended), before)| (*ended, before.clone())));
        found.filter(|(ended, _)| *ended < bound).map(|(_, before)| before)
    }

    /// Every snapshot sees what was committed when it was opened.
    fn check(&mut self) {
        self.sort_in();
        for (at, rows) in &self.snapshots {
            for row in 0..ROWS {
                let (key, mut out) = (row.to_be_bytes(), Vec::new());
                let current = self.current(row);
                let seen = self.part.see(*at, &Row::new(TREE, &key), current, &mut out);
                let (seen, bound) = seen.expect("all that it may see is kept");
                let here = match seen {
                    Seen::Current => self.shown(row),
                    Seen::Older => Some(out[1..].to_vec()),
                    Seen::Absent => None,
                };
                let taken = self.find_taken(*at, row, bound);
                let is_taken = taken.is_some();
                let found = taken.map_or(here, |record| record.map(|record| record[1..].to_vec()));
                assert_eq!(found.as_ref(), rows.get(&row), "row {row} at {at:?}");
                let is_known =
                    is_taken || self.leaf.contains_key(&row) || self.graves.contains(&row);
                assert!(found.is_none() || is_known, "row {row} is in no scan");
            }
        }
    }

    fn step(&mut self) {
        match self.prng.below(21) {
            20 if self.is_on => self.take(),
            0..10 => self.change(),
            10 if !self.open.is_empty() => {
                let at = self.prng.below(self.open.len() as u64) as usize;
                self.undo(at);
            }
            10..13 => self.end(),
            13..15 if self.is_on && self.snapshots.len() < 4 => {
                let at = self.tick();
                self.snapshots.push((at, self.committed.clone()));
            }
            15 if !self.snapshots.is_empty() => {
                let at = self.prng.below(self.snapshots.len() as u64) as usize;
                self.snapshots.swap_remove(at);
            }
            16..18 => self.purge(),
            18 if self.is_on => self.collect(),
            19 if !self.is_on => self.switch_on(),
            _ => (),
        }
    }
}

#[test]
fn rows_are_seen_as_they_were_committed() {
    for seed in 0..600 {
        let mut case = Case {
            part: Part::default(),
            prng: Prng::from_seed(seed),
            now: 1,
            waiting: Vec::new(),
            leaf: BTreeMap::new(),
            graves: Vec::new(),
            committed: Rows::new(),
            open: Vec::new(),
            snapshots: Vec::new(),
            taken: Vec::new(),
            ends: Arc::default(),
            spilled: BTreeMap::new(),
            is_on: false,
        };
        for _ in 0..400 {
            case.step();
            if case.prng.chance(3) {
                case.check();
            }
        }
        case.snapshots.clear();
        while !case.open.is_empty() {
            case.end();
        }
        case.collect();
    }
}
