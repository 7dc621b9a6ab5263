//! ParaScan: a task and a ScanBuffer for each domain (Fan et al., 4.1).
//!
//! - S1: every page is read once, checked, and given to the caller once, with all its rows.
//! - S2: a task reads a unit into its ScanBuffer, lets the caller look at all its pages, and then
//!   reads the next one there.
//! - Not for: rows in an order; many scans of one device, which share its domains without knowing.

use std::sync::Arc;

use terrace_device::read;

use crate::Error;
use crate::cpu::{Cpu, Step, Work};
use crate::feed::Feed;
use crate::plan::{Group, Piece, Plan};
use crate::table::{Checked, PageNo, Rid, Table, Version};
use crate::team::{self, Stop};

/// Direct I/O copies what is not aligned to this.
const ALIGNMENT: usize = 4096;

/// Memory for a unit, aligned.
pub(crate) struct ScanBuffer {
    bytes: Vec<u8>,
    begin: usize,
}

impl ScanBuffer {
    pub(crate) fn new(bytes: u64) -> ScanBuffer {
        let bytes = vec![0; bytes as usize + ALIGNMENT];
        let begin = bytes.as_ptr().align_offset(ALIGNMENT);
        ScanBuffer { bytes, begin }
    }

    /// Reads the pages of a piece.
    pub(crate) fn fill(&mut self, table: &Table, piece: Piece) -> Result<&[u8], Error> {
        let len = piece.pages as usize * table.page_bytes() as usize;
        let bytes = &mut self.bytes[self.begin..self.begin + len];
        read(&**table.device(), table.offset(piece.first), bytes)?;
        Ok(bytes)
    }
}

/// The rows of a page that was read.
pub struct PageRows<'a> {
    table: &'a Table,
    page: PageNo,
    checked: Checked,
    bytes: &'a [u8],
}

impl<'a> PageRows<'a> {
    pub(crate) fn new(
        table: &'a Table,
        page: PageNo,
        bytes: &'a [u8],
    ) -> Result<PageRows<'a>, Error> {
        let checked = table.check(page, bytes)?;
        Ok(PageRows { table, page, checked, bytes })
    }

    /// Which page.
    #[must_use]
    pub fn page(&self) -> PageNo {
        self.page
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.checked.version
    }

    /// How many rows it has.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.checked.rows
    }

    /// A row, if there is one in this slot.
    #[must_use]
    pub fn row(&self, slot: u16) -> Option<&'a [u8]> {
        (slot < self.checked.rows).then(|| self.table.pages().row(self.bytes, slot))
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = (Rid, &'a [u8])> + '_ {
        let row = |slot| self.table.pages().row(self.bytes, slot);
        (0..self.checked.rows).map(move |slot| (Rid { page: self.page, slot }, row(slot)))
    }
}

/// Scans a table: `each` sees every page once, with what its task has, which `make` makes from the
/// task's number. Returns what the tasks have, in the order of their numbers. `each` adds what its
/// work costs beyond a page and its rows.
///
/// ```
/// use std::sync::Arc;
/// use terrace_device::model::{Preset, build};
/// use terrace_device::{Keep, Store, write};
/// use terrace_operators::{Cpu, Plan, RowPages, Table, scan};
/// use terrace_rt::World;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // A table of 40 pages with three rows each.
/// let device = build(Preset::Ram, World::current(), Store::new(1 << 20, Keep::Plain));
/// let pages = RowPages::new(4096, 100)?;
/// let mut bytes = [0; 4096];
/// for page in 0..40 {
///     pages.fill(page, 1, 3, &mut bytes, |slot, row| row[0] = slot as u8);
///     write(&*device, u64::from(page) * 4096, &bytes)?;
/// }
/// let table = Table::new(device, Arc::new(pages), 0, 40)?;
///
/// // 20 domains of 4 KiB, a queue of 32, 8 threads: 8 tasks.
/// let plan = Plan::striped(20, 4096, 32, 8)?;
/// let counts = scan(&table, &plan, &Cpu::free(), |_task| 0, |count, page, _work| {
///     *count += page.rows().filter(|(_, row)| row[0] > 0).count();
///     Ok(())
/// })?;
/// assert_eq!((counts.len(), counts.iter().sum::<usize>()), (8, 80));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// The first error of the device, of a page, or of `each`; the other tasks stop.
pub fn scan<S: Send + 'static>(
    table: &Table,
    plan: &Plan,
    cpu: &Cpu,
    make: impl Fn(u32) -> S + Send + Sync + 'static,
    each: impl Fn(&mut S, &PageRows<'_>, &mut Work) -> Result<(), Error> + Send + Sync + 'static,
) -> Result<Vec<S>, Error> {
    let (tasks, buffer_bytes) = plan.buffers(table.page_bytes());
    let feed = Arc::new(Feed::new(Group::all(table, plan)));
    let (table, cpu) = (table.clone(), cpu.clone());
    team::run(tasks, move |task, stop| {
        let mut has = make(task);
        let mut buffer = ScanBuffer::new(buffer_bytes);
        pages_of(&feed, &table, &cpu, (&mut buffer, stop), |page, work| each(&mut has, page, work))
            .map(|()| has)
    })
}

/// What one task of a scan does: it takes pieces from the feed until there are none.
pub(crate) fn pages_of<G: Iterator<Item = Piece>>(
    feed: &Feed<G>,
    table: &Table,
    cpu: &Cpu,
    (buffer, stop): (&mut ScanBuffer, &Stop),
    mut each: impl FnMut(&PageRows<'_>, &mut Work) -> Result<(), Error>,
) -> Result<(), Error> {
    let page_bytes = table.page_bytes() as usize;
    while let Some((group, piece)) = feed.take() {
        if stop.is_asked() {
            break;
        }
        let bytes = buffer.fill(table, piece)?;
        // Its domains are free while the rows are worked on.
        feed.give(group);
        let mut work = Work::default();
        work.add(Step::Request, 1);
        for (page, bytes) in (piece.first..).zip(bytes.chunks_exact(page_bytes)) {
            let page = PageRows::new(table, page, bytes)?;
            work.add(Step::Page, 1);
            work.add(Step::Row, u64::from(page.count()));
            each(&page, &mut work)?;
        }
        cpu.charge(work);
    }
    Ok(())
}
