//! What befell tortured databases, and what came of it, by kind.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What came of a mishap, a kill or a fault, once the database was opened and held against the
/// ledger again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// All was there, or was made good.
    Repaired,
    /// An error reported it.
    Told,
    /// An error of opening reported it, and the files are as they were.
    Refused,
    /// A durable commit is gone.
    Lost,
    /// Rows are not what they must be, or an error says what is not so.
    Wrong,
    /// It stood still.
    Hung,
    /// It panicked, or died otherwise.
    Panicked,
    /// An error reported it where the engine must go on.
    Stopped,
    /// Opening was refused, and changed the files.
    Changed,
}

impl Outcome {
    const ALL: [Outcome; 9] = [
        Outcome::Repaired,
        Outcome::Told,
        Outcome::Refused,
        Outcome::Lost,
        Outcome::Wrong,
        Outcome::Hung,
        Outcome::Panicked,
        Outcome::Stopped,
        Outcome::Changed,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Repaired => "repaired",
            Outcome::Told => "told",
            Outcome::Refused => "refused",
            Outcome::Lost => "lost",
            Outcome::Wrong => "wrong",
            Outcome::Hung => "hung",
            Outcome::Panicked => "panicked",
            Outcome::Stopped => "stopped",
            Outcome::Changed => "changed",
        }
    }

    /// Whether it may be.
    pub fn is_fine(self) -> bool {
        self <= Outcome::Refused
    }
}

/// What a run found.
#[derive(Default)]
pub struct Report {
    pub lives: u64,
    pub verified: u64,
    pub transactions: u64,
    /// Transactions that got the error that home is full.
    pub full: u64,
    /// Seeds of each design, and of each restart method.
    pub settings: BTreeMap<String, u64>,
    /// Damages of each kind, wherever they were.
    pub damages: BTreeMap<&'static str, u64>,
    by_kind: BTreeMap<(String, Outcome), u64>,
    pub failures: Vec<(u64, String)>,
}

/// How a kill is called.
pub const KILL: &str = "kill -9";

impl Report {
    /// Counts what came of something that befell.
    pub fn count(&mut self, kind: impl Into<String>, outcome: Outcome) {
        *self.by_kind.entry((kind.into(), outcome)).or_default() += 1;
    }

    pub fn fail(&mut self, seed: u64, what: String) {
        self.failures.push((seed, what));
    }

    pub fn add(&mut self, other: Report) {
        self.lives += other.lives;
        self.verified += other.verified;
        self.transactions += other.transactions;
        self.full += other.full;
        for (name, count) in other.settings {
            *self.settings.entry(name).or_default() += count;
        }
        for (name, count) in other.damages {
            *self.damages.entry(name).or_default() += count;
        }
        for (kind, count) in other.by_kind {
            *self.by_kind.entry(kind).or_default() += count;
        }
        self.failures.extend(other.failures);
    }

    fn kinds(&self) -> Vec<&str> {
        let mut kinds: Vec<&str> = self.by_kind.keys().map(|(kind, _)| kind.as_str()).collect();
        kinds.dedup();
        kinds
    }

    fn of(&self, kind: &str, outcome: Outcome) -> u64 {
        self.by_kind.get(&(kind.to_string(), outcome)).copied().unwrap_or_default()
    }

    /// How often something ended so, whatever befell.
    pub fn all(&self, outcome: Outcome) -> u64 {
        self.by_kind.iter().filter(|((_, one), _)| *one == outcome).map(|(_, count)| count).sum()
    }

    pub fn kills(&self) -> u64 {
        Outcome::ALL.iter().map(|&outcome| self.of(KILL, outcome)).sum()
    }

    /// All that befell but kills.
    pub fn faults(&self) -> u64 {
        self.by_kind.values().sum::<u64>() - self.kills()
    }

    /// By kind, with a count of all, and of each outcome.
    pub fn by_kind(&self) -> Vec<(&str, u64, [u64; 9])> {
        let row = |kind| {
            let counts = Outcome::ALL.map(|outcome| self.of(kind, outcome));
            (kind, counts.iter().sum(), counts)
        };
        self.kinds().into_iter().map(row).collect()
    }

    /// The same as JSON.
    pub fn by_kind_json(&self) -> Value {
        let mut object = serde_json::Map::new();
        for (kind, all, counts) in self.by_kind() {
            let mut row = json!({ "all": all });
            for (outcome, count) in Outcome::ALL.iter().zip(counts) {
                row[outcome.name()] = count.into();
            }
            object.insert(kind.to_string(), row);
        }
        object.into()
    }

    /// Names of the outcomes, in the order of `by_kind`.
    pub fn outcomes() -> [&'static str; 9] {
        Outcome::ALL.map(Outcome::name)
    }
}
