//! The twelve queries, and how each is answered.

use std::collections::BTreeMap;
use std::ops::Range;

use terrace::{Database, ReadTransaction};

use super::rows::{Dimension, FACT, Member, member_and_measure};
use crate::Error;

/// Which members of a dimension are chosen: those whose node is one of these.
pub(super) type Choice = (Dimension, Range<u16>);

/// A query: sums of a measure over the facts of some months and some members of two dimensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// What it is called.
    pub name: &'static str,
    /// Months, of 36.
    pub months: Range<u16>,
    /// Members, in thousandths of their dimensions.
    pub(super) chosen: [Choice; 2],
    /// It sums by the groups of this one,
    pub by: Dimension,
    /// and it sums this measure.
    pub measure: usize,
}

/// In which order the facts of an answer are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// As the index of the leading dimension has them: a sweep over the months for each member.
    ByIndex,
    /// In the order of their numbers: one sweep.
    ByNumber,
}

/// Groups in ascending order, each with the number of its facts and their sum.
pub type Answer = Vec<(u16, u64, i64)>;

use Dimension::{Channel, Customer, Day, DocumentType, Material, Organisation, Plant};

/// The queries, the two long ones last. Four ask for a month or a quarter, four for half a year,
/// four for the year.
pub const QUERIES: [Query; 12] = [
    query("month, customers", 35..36, [(Customer, 0..100), (Material, 0..100)], Customer, 0),
    query("month, plants", 35..36, [(Customer, 100..150), (Plant, 0..200)], Plant, 1),
    query("quarter, materials", 33..36, [(Material, 100..150), (Organisation, 0..100)], Day, 2),
    query("quarter, channels", 33..36, [(Customer, 150..250), (Channel, 0..100)], Channel, 3),
    query("quarter before", 30..33, [(Plant, 300..400), (DocumentType, 0..200)], Day, 4),
    query("half, plants", 30..36, [(Material, 150..250), (Plant, 300..400)], Plant, 5),
    query("half, customers", 30..36, [(Customer, 150..250), (Organisation, 100..300)], Day, 6),
    query("half before", 24..30, [(Material, 0..100), (Channel, 250..400)], Material, 7),
    query("year, materials", 24..36, [(Customer, 50..100), (Material, 250..450)], Material, 8),
    query("year, plants", 24..36, [(Plant, 0..100), (Organisation, 300..350)], Day, 9),
    query("long, types", 24..36, [(Channel, 250..450), (DocumentType, 200..400)], Day, 10),
    query("long, organisations", 24..36, [(Material, 250..450), (Organisation, 0..200)], Day, 11),
];

const fn query(
    name: &'static str,
    months: Range<u16>,
    chosen: [Choice; 2],
    by: Dimension,
    measure: usize,
) -> Query {
    Query { name, months, chosen, by, measure }
}

impl Query {
    /// All that it chooses: months first.
    pub(super) fn choices(&self) -> [Choice; 3] {
        let [one, other] = self.chosen.clone();
        [(Day, self.months.clone()), one, other]
    }

    /// Answers it: a star join by index, which fetches facts in the order of `fetch`.
    ///
    /// # Errors
    ///
    /// Those of the engine; malformed rows.
    pub(super) fn run(&self, db: &Database, fetch: Fetch) -> Result<Answer, Error> {
        let txn = db.begin_read()?;
        let groups: Vec<u16> = members(&txn, self.by)?.iter().map(|member| member.group).collect();
        let facts = txn.open_table(FACT)?;
        let mut sums: BTreeMap<u16, (u64, i64)> = BTreeMap::new();
        let mut row = Vec::new();
        for number in self.rows(&txn, fetch)? {
            if !facts.get_into(number, &mut row)? {
                return Err(Error::MissingRow { table: "fact" });
            }
            let (member, measure) = member_and_measure(&row, self.by, self.measure)?;
            let group = groups.get(member).ok_or(Error::MissingRow { table: "a dimension" })?;
            let sum = sums.entry(*group).or_default();
            *sum = (sum.0 + 1, sum.1 + measure);
        }
        Ok(sums.into_iter().map(|(group, (count, sum))| (group, count, sum)).collect())
    }

    /// The facts that it chooses, in the order in which they are fetched.
    fn rows(&self, txn: &ReadTransaction, fetch: Fetch) -> Result<Vec<u32>, Error> {
        let [months, one, other] =
            self.choices().map(|(dimension, nodes)| rows_of(txn, dimension, &nodes));
        let (mut months, one, other) = (months?, one?, other?);
        // The dimension that fewer rows go through leads.
        let (mut leading, mut other) =
            if one.len() <= other.len() { (one, other) } else { (other, one) };
        months.sort_unstable();
        other.sort_unstable();
        let common = both(&months, &other);
        leading.retain(|number| common.binary_search(number).is_ok());
        if fetch == Fetch::ByNumber {
            leading.sort_unstable();
        }
        Ok(leading)
    }
}

/// The members of a dimension, by their numbers.
fn members(txn: &ReadTransaction, dimension: Dimension) -> Result<Vec<Member>, Error> {
    let table = txn.open_table(dimension.table())?;
    table.range(..)?.map(|entry| Member::of(entry?.value())).collect()
}

/// The facts of the members whose nodes are chosen, in the order of the index: by member, then by
/// number. Members that are neighbours are looked up together.
fn rows_of(
    txn: &ReadTransaction,
    dimension: Dimension,
    nodes: &Range<u16>,
) -> Result<Vec<u32>, Error> {
    let index = txn.open_table(dimension.index())?;
    let members = members(txn, dimension)?;
    let chosen = (0u16..).zip(&members).filter(|(_, member)| nodes.contains(&member.node));
    let mut runs: Vec<Range<u16>> = Vec::new();
    for (number, _) in chosen {
        match runs.last_mut() {
            Some(run) if run.end == number => run.end = number + 1,
            _ => runs.push(number..number + 1),
        }
    }
    let mut rows = Vec::new();
    for run in runs {
        for entry in index.range((run.start, 0)..(run.end, 0))? {
            rows.push(entry?.key().1);
        }
    }
    Ok(rows)
}

/// What two ascending lists have in common.
fn both(one: &[u32], other: &[u32]) -> Vec<u32> {
    let (mut common, mut at) = (Vec::new(), 0);
    for number in one {
        while other.get(at).is_some_and(|before| before < number) {
            at += 1;
        }
        if other.get(at) == Some(number) {
            common.push(*number);
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use terrace_rt::Prng;

    use super::*;

    #[test]
    fn lists_have_in_common_what_sets_have() {
        let mut prng = Prng::from_seed(5);
        for _ in 0..200 {
            let mut set = || -> BTreeSet<u32> {
                (0..prng.below(40)).map(|_| prng.below(50) as u32).collect()
            };
            let (one, other) = (set(), set());
            let lists = [&one, &other].map(|set| set.iter().copied().collect::<Vec<_>>());
            let expected: Vec<u32> = one.intersection(&other).copied().collect();
            assert_eq!(both(&lists[0], &lists[1]), expected);
        }
    }
}
