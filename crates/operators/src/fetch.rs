//! Fetch: the rows of RIDs, sorted so that no page is read twice (Fan et al., 4.2, after
//! DigestJoin).
//!
//! - E1: each page that is wanted is read once for a call, in the order of addresses within its
//!   domain, and by a task for each domain.
//! - E2: a RID carries the version of its page. Where that is the page's still, the row is the one
//!   that was seen. Where it is not, the slot is read again: a row there that the predicate holds
//!   of and that has the value that was seen is taken, and counted as read again; else the row is
//!   counted as gone. Tables have no index of a key here: who has one asks it for these rows.

use std::ops::Range;
use std::sync::Arc;

use crate::Error;
use crate::cpu::{Cpu, Step, Work};
use crate::feed::Feed;
use crate::plan::{Piece, Plan};
use crate::scan::{PageRows, ScanBuffer};
use crate::table::{Input, PageNo, Rid, Version};
use crate::team;

/// What is wanted of a row.
pub trait Projection: Send + Sync {
    /// The most bytes that it appends.
    fn bytes_max(&self) -> usize;

    /// Appends what is wanted of `row`.
    fn append(&self, row: &[u8], out: &mut Vec<u8>);
}

/// Fields of rows that have them in the same places: ranges of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields(pub Vec<Range<usize>>);

impl Projection for Fields {
    fn bytes_max(&self) -> usize {
        self.0.iter().map(Range::len).sum()
    }

    fn append(&self, row: &[u8], out: &mut Vec<u8>) {
        self.0.iter().for_each(|field| out.extend_from_slice(&row[field.clone()]));
    }
}

/// A row that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wanted {
    pub(crate) rid: Rid,
    pub(crate) version: Version,
    pub(crate) value: Option<i64>,
    /// Its place in the answer.
    pub(crate) at: u32,
}

/// Bytes of memory for a wanted row, and for its place in the answer.
pub(crate) const WANTED_BYTES: u64 = (size_of::<Wanted>() + size_of::<Answer>()) as u64;

/// How rows were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freshness {
    /// Pages that were read.
    pub pages: u64,
    /// Rows that were read again in a page that had changed (E2).
    pub reread: u64,
    /// Rows that were no longer there.
    pub gone: u64,
}

impl Freshness {
    pub(crate) fn add(&mut self, other: Freshness) {
        self.pages += other.pages;
        self.reread += other.reread;
        self.gone += other.gone;
    }
}

/// Where an answer is: of which task, and which bytes of its.
type Answer = Option<(u32, u32, u32)>;

/// What was fetched, by the places that were given.
pub(crate) struct Fetched {
    answers: Vec<Answer>,
    bytes: Vec<Vec<u8>>,
    pub(crate) freshness: Freshness,
}

impl Fetched {
    /// What is wanted of a row; nothing if it is gone.
    pub(crate) fn get(&self, at: usize) -> Option<&[u8]> {
        let (task, begin, end) = self.answers[at]?;
        Some(&self.bytes[task as usize][begin as usize..end as usize])
    }
}

#[derive(Default)]
struct Part {
    found: Vec<(u32, u32, u32)>,
    bytes: Vec<u8>,
    freshness: Freshness,
}

type OfPage = (PageNo, Range<usize>);

/// Fetches `wanted`, whose places are 0 to their number.
pub(crate) fn fetch(
    input: &Input,
    projection: &Arc<dyn Projection>,
    (plan, cpu): (&Plan, &Cpu),
    mut wanted: Vec<Wanted>,
) -> Result<Fetched, Error> {
    wanted.sort_unstable();
    let count = wanted.len();
    let mut work = Work::default();
    work.add(Step::Compare, count as u64 * u64::from(count.max(1).ilog2()));
    cpu.charge(work);
    let feed = Arc::new(Feed::new(by_domain(input, plan, &wanted)));
    let (tasks, _) = plan.buffers(input.table.page_bytes());
    let (input, projection, cpu) = (input.clone(), Arc::clone(projection), cpu.clone());
    let parts = team::run(tasks, move |_, stop| {
        let mut part = Part::default();
        let mut buffer = ScanBuffer::new(input.table.page_bytes());
        while let Some((group, (page, range))) = feed.take() {
            if stop.is_asked() {
                break;
            }
            let bytes = buffer.fill(&input.table, Piece { first: page, pages: 1 })?;
            feed.give(group);
            let rows = PageRows::new(&input.table, page, bytes)?;
            let mut work = Work::default();
            work.add(Step::Request, 1);
            work.add(Step::Page, 1);
            work.add(Step::Fetch, range.len() as u64);
            part.freshness.pages += 1;
            for wanted in &wanted[range] {
                part.take(&input, &*projection, &rows, wanted);
            }
            cpu.charge(work);
        }
        Ok(part)
    })?;
    let mut fetched =
        Fetched { answers: vec![None; count], bytes: Vec::new(), freshness: Freshness::default() };
    for (task, part) in (0..).zip(parts) {
        for (at, begin, end) in part.found {
            fetched.answers[at as usize] = Some((task, begin, end));
        }
        fetched.bytes.push(part.bytes);
        fetched.freshness.add(part.freshness);
    }
    Ok(fetched)
}

/// The pages that are wanted, by the group of their domain, with what is wanted of each.
fn by_domain(input: &Input, plan: &Plan, wanted: &[Wanted]) -> Vec<std::vec::IntoIter<OfPage>> {
    let mut groups: Vec<Vec<OfPage>> = Vec::new();
    let mut from = 0;
    while from < wanted.len() {
        let page = wanted[from].rid.page;
        let len = wanted[from..].iter().take_while(|wanted| wanted.rid.page == page).count();
        let group = plan.group_of(&input.table, page) as usize;
        if groups.len() <= group {
            groups.resize(group + 1, Vec::new());
        }
        groups[group].push((page, from..from + len));
        from += len;
    }
    groups.into_iter().map(Vec::into_iter).collect()
}

impl Part {
    fn take(
        &mut self,
        input: &Input,
        projection: &dyn Projection,
        page: &PageRows<'_>,
        wanted: &Wanted,
    ) {
        let is_same = page.version() == wanted.version;
        let is_still = |row: &&[u8]| input.sees(row) && input.value(row) == wanted.value;
        let row = page.row(wanted.rid.slot).filter(|row| is_same || is_still(row));
        let Some(row) = row else {
            self.freshness.gone += 1;
            return;
        };
        self.freshness.reread += u64::from(!is_same);
        let begin = self.bytes.len() as u32;
        projection.append(row, &mut self.bytes);
        self.found.push((wanted.at, begin, self.bytes.len() as u32));
    }
}
