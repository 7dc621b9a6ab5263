//! What is stored: the fact table, its indexes, the dimensions; and the rows as functions of the
//! seed.
//!
//! ```text
//! FACT       row u32              176 bytes  0 seven members u32, 28 document u32,
//!                                            32 sixteen measures of nine bytes
//! UNIQUE     all seven, document    4 bytes  the row: an index of many parts
//! by NAME    member u16, row u32    0 bytes  seven indexes, one for each dimension
//! NAME       member u16           120 bytes  0 node u16, 2 group u16, padding
//! ```
//!
//! A measure has the width of a packed decimal of 17 digits; its first eight bytes are an integer.
//! Of a member, `node` is its place in the hierarchy that queries choose from, in thousandths (of
//! a day: its month), and `group` what they sum by.

use terrace::TableDef;
use terrace_rt::Prng;

use super::Config;
use crate::Error;
use crate::brokerage::spread;

/// A stored row.
pub(super) type Row = &'static [u8];

/// The fact table, by the number of the row.
pub(super) const FACT: TableDef<u32, Row> = TableDef::new("fact");
/// The index of many parts.
pub(super) const UNIQUE: TableDef<UniqueKey, u32> = TableDef::new("fact_unique");

/// The members of all dimensions, two bytes each, and the document, the greatest byte first.
pub(super) type UniqueKey = [u8; 2 * DIMENSIONS + 4];

/// Dimensions of the star.
pub(super) const DIMENSIONS: usize = 7;
/// Measures of a fact.
pub(super) const MEASURES: usize = 16;
/// Bytes of a measure.
const MEASURE_BYTES: usize = 9;
/// Where the document is in the row of a fact, and the measures.
const DOCUMENT_AT: usize = 4 * DIMENSIONS;
const MEASURES_AT: usize = DOCUMENT_AT + 4;
/// Bytes of a fact.
pub(super) const FACT_BYTES: usize = MEASURES_AT + MEASURES * MEASURE_BYTES;
const _: () = assert!(FACT_BYTES == 176);

/// Bytes of a member's row.
pub(super) const MEMBER_BYTES: usize = 120;

/// Months of the history.
pub(super) const MONTHS: u16 = 36;
const DAYS_PER_MONTH: u16 = 30;
const DAYS: u16 = MONTHS * DAYS_PER_MONTH;
/// One in this number of rows was posted late.
const LATE_ONE_IN: u64 = 10;
/// Members choose their node from this number.
pub(super) const NODES: u16 = 1000;
/// Groups of a dimension.
const GROUPS: u16 = 16;

/// A dimension of the star.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// When.
    Day,
    /// The customer.
    Customer,
    /// What.
    Material,
    /// From where.
    Plant,
    /// The selling organisation.
    Organisation,
    /// Through what.
    Channel,
    /// In what kind of document.
    DocumentType,
}

impl Dimension {
    /// All of them, as they stand in a row.
    pub const ALL: [Dimension; DIMENSIONS] = [
        Dimension::Day,
        Dimension::Customer,
        Dimension::Material,
        Dimension::Plant,
        Dimension::Organisation,
        Dimension::Channel,
        Dimension::DocumentType,
    ];

    /// How many members it has beside a fact table of `facts` rows.
    pub fn members(self, facts: u32) -> u16 {
        let growing = |rows_each: u32| (facts / rows_each).clamp(20, u32::from(u16::MAX)) as u16;
        match self {
            Dimension::Day => DAYS,
            Dimension::Customer => growing(800),
            Dimension::Material => growing(1_600),
            Dimension::Plant => 500,
            Dimension::Organisation => 100,
            Dimension::Channel => 20,
            Dimension::DocumentType => 40,
        }
    }

    /// Its table.
    pub(super) const fn table(self) -> TableDef<'static, u16, Row> {
        TableDef::new(match self {
            Dimension::Day => "day",
            Dimension::Customer => "customer",
            Dimension::Material => "material",
            Dimension::Plant => "plant",
            Dimension::Organisation => "organisation",
            Dimension::Channel => "channel",
            Dimension::DocumentType => "document_type",
        })
    }

    /// The index of the fact table on it: member and row.
    pub(super) const fn index(self) -> TableDef<'static, (u16, u32), ()> {
        TableDef::new(match self {
            Dimension::Day => "fact_by_day",
            Dimension::Customer => "fact_by_customer",
            Dimension::Material => "fact_by_material",
            Dimension::Plant => "fact_by_plant",
            Dimension::Organisation => "fact_by_organisation",
            Dimension::Channel => "fact_by_channel",
            Dimension::DocumentType => "fact_by_document_type",
        })
    }

    /// What is stored of `member`, one of `members`. Days lie together in their months; the nodes
    /// of the others are spread, so that a node's members are none of each other's neighbours.
    pub(super) fn member(self, member: u16, members: u16) -> Member {
        if self == Dimension::Day {
            let month = member / DAYS_PER_MONTH;
            return Member { node: month, group: month };
        }
        let rank = u64::from(spread(u64::from(member), u64::from(members)));
        let node = (rank * u64::from(NODES) / u64::from(members)) as u16;
        Member { node, group: member % GROUPS }
    }
}

/// What is stored of a member of a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) node: u16,
    pub(super) group: u16,
}

impl Member {
    /// Reads the row of a member.
    ///
    /// # Errors
    ///
    /// `MalformedRow`.
    pub(super) fn of(row: &[u8]) -> Result<Member, Error> {
        if row.len() != MEMBER_BYTES {
            return Err(Error::MalformedRow { table: "a dimension" });
        }
        let at = |at: usize| u16::from_le_bytes([row[at], row[at + 1]]);
        Ok(Member { node: at(0), group: at(2) })
    }

    /// Writes it into its row.
    pub(super) fn put(self, row: &mut [u8]) {
        row[..2].copy_from_slice(&self.node.to_le_bytes());
        row[2..4].copy_from_slice(&self.group.to_le_bytes());
    }
}

/// A row of the fact table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fact {
    /// In the order of `Dimension::ALL`.
    pub(super) members: [u16; DIMENSIONS],
    pub(super) document: u32,
    pub(super) measures: [i64; MEASURES],
}

impl Fact {
    /// Row `number` of the database of `config`.
    pub(super) fn at(config: &Config, number: u32) -> Fact {
        let mut prng = Prng::from_seed(config.seed ^ (u64::from(number) << 24) ^ 0xE2B);
        let on_time = u64::from(number) * u64::from(DAYS) / u64::from(config.facts);
        let is_late = prng.chance(LATE_ONE_IN);
        let late = if is_late { prng.below(u64::from(DAYS_PER_MONTH)) } else { 0 };
        let members = Dimension::ALL.map(|dimension| match dimension {
            Dimension::Day => on_time.saturating_sub(late) as u16,
            other => prng.below(u64::from(other.members(config.facts))) as u16,
        });
        let measures = std::array::from_fn(|_| prng.below(200_001) as i64 - 50_000);
        Fact { members, document: number ^ 0x5A5A, measures }
    }

    /// Writes it into its row.
    pub(super) fn put(&self, row: &mut [u8; FACT_BYTES]) {
        for (at, member) in self.members.iter().enumerate() {
            row[4 * at..4 * at + 4].copy_from_slice(&u32::from(*member).to_le_bytes());
        }
        row[DOCUMENT_AT..MEASURES_AT].copy_from_slice(&self.document.to_le_bytes());
        for (at, measure) in self.measures.iter().enumerate() {
            let at = MEASURES_AT + MEASURE_BYTES * at;
            row[at..at + 8].copy_from_slice(&measure.to_le_bytes());
            row[at + 8] = if *measure < 0 { 0xFF } else { 0 };
        }
    }

    /// Its key in the index of many parts.
    pub(super) fn unique_key(&self) -> UniqueKey {
        let mut key = UniqueKey::default();
        for (bytes, member) in key.chunks_exact_mut(2).zip(self.members) {
            bytes.copy_from_slice(&member.to_be_bytes());
        }
        key[2 * DIMENSIONS..].copy_from_slice(&self.document.to_be_bytes());
        key
    }
}

/// Of the row of a fact: the member of `dimension`, and one of the measures.
///
/// # Errors
///
/// `MalformedRow`.
pub(super) fn member_and_measure(
    row: &[u8],
    dimension: Dimension,
    measure: usize,
) -> Result<(usize, i64), Error> {
    if row.len() != FACT_BYTES {
        return Err(Error::MalformedRow { table: "fact" });
    }
    let (at, from) = (4 * dimension as usize, MEASURES_AT + MEASURE_BYTES * measure);
    let member = u32::from_le_bytes(row[at..at + 4].try_into().expect("four bytes"));
    let measure = i64::from_le_bytes(row[from..from + 8].try_into().expect("eight bytes"));
    Ok((member as usize, measure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_as_they_were_put() {
        let config = Config { seed: 3, facts: 1_000 };
        for number in 0..config.facts {
            let fact = Fact::at(&config, number);
            let mut row = [0; FACT_BYTES];
            fact.put(&mut row);
            for dimension in Dimension::ALL {
                let measure = number as usize % MEASURES;
                let member = usize::from(fact.members[dimension as usize]);
                let found = member_and_measure(&row, dimension, measure).expect("a fact");
                assert_eq!(found, (member, fact.measures[measure]));
                assert!(member < usize::from(dimension.members(config.facts)));
            }
        }
        assert!(member_and_measure(&[0; 175], Dimension::Day, 0).is_err());
    }

    #[test]
    fn a_share_of_the_nodes_has_that_share_of_the_members() {
        for dimension in Dimension::ALL.into_iter().filter(|other| *other != Dimension::Day) {
            let members = dimension.members(1_600_000);
            let nodes = (0..members).map(|member| dimension.member(member, members).node);
            let low = nodes.filter(|node| (100..350).contains(node)).count();
            assert_eq!(low, usize::from(members) / 4, "{dimension:?}");
        }
    }

    #[test]
    fn rows_come_in_the_order_of_time_but_for_the_late_ones() {
        let config = Config { seed: 1, facts: 100_000 };
        let day = |number| Fact::at(&config, number).members[0];
        let on_time = |number: u32| u64::from(number) * u64::from(DAYS) / 100_000;
        let late = (0..config.facts).filter(|&n| u64::from(day(n)) < on_time(n)).count();
        assert!((9_000..10_500).contains(&late), "{late}");
        assert!((0..config.facts).all(|n| u64::from(day(n)) + 30 > on_time(n)));
    }
}
