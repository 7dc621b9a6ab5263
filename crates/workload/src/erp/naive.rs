//! The answers without a database: every row is made again and looked at.

use std::collections::BTreeMap;

use super::Config;
use super::queries::{Answer, QUERIES};
use super::rows::{Dimension, Fact};

/// The answers to all queries on the database of `config`.
pub(super) fn answers(config: &Config) -> Vec<Answer> {
    let mut sums = vec![BTreeMap::<u16, (u64, i64)>::new(); QUERIES.len()];
    let stored = |dimension: Dimension, fact: &Fact| {
        let member = fact.members[dimension as usize];
        dimension.member(member, dimension.members(config.facts))
    };
    for number in 0..config.facts {
        let fact = Fact::at(config, number);
        for (query, sums) in QUERIES.iter().zip(&mut sums) {
            let is_wanted = query
                .choices()
                .iter()
                .all(|(dimension, nodes)| nodes.contains(&stored(*dimension, &fact).node));
            if is_wanted {
                let sum = sums.entry(stored(query.by, &fact).group).or_default();
                *sum = (sum.0 + 1, sum.1 + fact.measures[query.measure]);
            }
        }
    }
    let answer = |sums: BTreeMap<u16, (u64, i64)>| {
        sums.into_iter().map(|(group, (count, sum))| (group, count, sum)).collect()
    };
    sums.into_iter().map(answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_query_has_facts_and_the_long_ones_most() {
        let facts = |answer: &Answer| answer.iter().map(|(_, count, _)| count).sum::<u64>();
        let found: Vec<u64> =
            answers(&Config { seed: 1, facts: 100_000 }).iter().map(facts).collect();
        let (short, long) = found.split_at(QUERIES.len() - 2);
        assert!(short.iter().all(|count| *count > 0), "{found:?}");
        assert!(long.iter().all(|count| count > short.iter().max().expect("ten")), "{found:?}");
    }
}
