//! The answer to a query: groups, each with how many rows it is of and their sum.

use std::collections::BTreeMap;

/// Groups by what tells them apart, in ascending order; none is of no row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer(pub BTreeMap<u64, Group>);

/// A group of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Rows that it is of.
    pub rows: u64,
    /// What the query sums, in the query's unit.
    pub sum: i64,
}

impl Group {
    /// Adds a row.
    pub fn add(&mut self, value: i64) {
        self.rows += 1;
        self.sum += value;
    }
}

impl Answer {
    /// Adds a row to a group.
    pub fn add(&mut self, group: u64, value: i64) {
        self.0.entry(group).or_default().add(value);
    }

    /// Adds some rows to a group.
    pub fn merge(&mut self, group: u64, some: Group) {
        if some.rows > 0 {
            let group = self.0.entry(group).or_default();
            group.rows += some.rows;
            group.sum += some.sum;
        }
    }

    /// Rows of all groups.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.0.values().map(|group| group.rows).sum()
    }
}
