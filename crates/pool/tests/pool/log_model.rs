//! A log of page changes, kept in memory: the pool's journal, and enough of recovery to judge it.
//!
//! A record sets the value of a page. Recovery is that of [S3 II-A3]: analysis with BUF_WRITE
//! records, then redo, which finds exactly the version that it expects. A torn page is repaired by
//! the first record after it became dirty, which counts as a full image.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace_page::{Lsn, PAGE_SIZE, PageBuf, PageId, PageKind};
use terrace_page::{lsn, seal, set_kind, set_lsn, set_page_id, verify};
use terrace_pool::{Journal, PoolError};
use terrace_rt::{LeafMutex, Nanos, Prng, sleep};

/// Bytes of log for a record.
const RECORD_BYTES: u64 = 100;

/// A record.
#[derive(Clone, Debug)]
pub enum Record {
    Update {
        page: PageId,
        previous: Lsn,
        value: u64,
        is_image: bool,
    },
    BufWrite {
        pages: Vec<PageId>,
        eol: Lsn,
    },
    /// A checkpoint begins.
    Begin,
    /// Something of the flash tier's own.
    Flash {
        payload: Vec<u8>,
    },
}

/// The log.
pub struct LogModel {
    last: AtomicU64,
    durable: AtomicU64,
    /// What `last_lsn` answers while records are redone, or zero.
    redone: AtomicU64,
    records: LeafMutex<BTreeMap<u64, Record>>,
    /// Every update ever appended: what recovery must arrive at.
    updates: LeafMutex<Vec<(u64, PageId, u64)>>,
    prng: LeafMutex<Prng>,
    /// How long it takes to make records durable, at most.
    force_ns_max: u64,
    /// One in this number of records of the flash tier finds no room; zero is none.
    pub full_one_in: AtomicU64,
    /// It has nothing of any page, and takes what is whole for repaired.
    pub is_cut: AtomicBool,
}

impl LogModel {
    pub fn new(seed: u64) -> LogModel {
        LogModel {
            last: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            redone: AtomicU64::new(0),
            records: LeafMutex::new(BTreeMap::new()),
            updates: LeafMutex::new(Vec::new()),
            prng: LeafMutex::new(Prng::from_seed(seed)),
            force_ns_max: 200_000,
            full_one_in: AtomicU64::new(0),
            is_cut: AtomicBool::new(false),
        }
    }

    /// A log that is durable at once.
    pub fn untimed(seed: u64) -> LogModel {
        LogModel { force_ns_max: 1, ..LogModel::new(seed) }
    }

    pub fn append(&self, record: Record) -> Lsn {
        let mut records = self.records.lock();
        let lsn = self.last.load(Ordering::Relaxed) + RECORD_BYTES;
        if let Record::Update { page, value, .. } = record {
            self.updates.lock().push((lsn, page, value));
        }
        records.insert(lsn, record);
        self.last.store(lsn, Ordering::Relaxed);
        Lsn(lsn)
    }

    /// A page with the recLSN `lsn` is redone next; none is if it is zero.
    pub fn redo_at(&self, lsn: u64) {
        self.redone.store(lsn.saturating_sub(1), Ordering::Relaxed);
    }

    /// Loses what a power cut takes; the log goes on after what was durable.
    pub fn lose_tail(&self) {
        let durable = self.durable.load(Ordering::Relaxed);
        *self.records.lock() = self.after_power_cut();
        self.updates.lock().retain(|&(lsn, ..)| lsn <= durable);
        self.last.store(durable, Ordering::Relaxed);
        self.redone.store(0, Ordering::Relaxed);
    }

    /// All records.
    pub fn records(&self) -> BTreeMap<u64, Record> {
        self.records.lock().clone()
    }

    /// Forgets the records before `lsn`.
    pub fn truncate(&self, lsn: Lsn) {
        let mut records = self.records.lock();
        *records = records.split_off(&lsn.0);
    }

    /// The values of `pages` pages after all durable updates.
    pub fn durable_values(&self, pages: u64) -> Vec<u64> {
        let mut values = vec![0; pages as usize];
        let durable = self.durable.load(Ordering::Relaxed);
        for &(lsn, page, value) in &*self.updates.lock() {
            if lsn <= durable {
                values[page.0 as usize] = value;
            }
        }
        values
    }

    /// The records that a power cut leaves.
    pub fn after_power_cut(&self) -> BTreeMap<u64, Record> {
        let mut records = self.records.lock().clone();
        let _lost = records.split_off(&(self.durable.load(Ordering::Relaxed) + 1));
        records
    }
}

impl Journal for LogModel {
    fn last_lsn(&self) -> Lsn {
        match self.redone.load(Ordering::Relaxed) {
            0 => Lsn(self.last.load(Ordering::Relaxed)),
            redone => Lsn(redone),
        }
    }

    fn durable_lsn(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Relaxed))
    }

    fn make_durable(&self, upto: Lsn) -> Result<(), PoolError> {
        assert!(upto.0 <= self.last.load(Ordering::Relaxed), "{upto} was never appended");
        let span = self.prng.lock().below(self.force_ns_max);
        if span > 0 {
            sleep(Nanos(span));
        }
        self.durable.fetch_max(upto.0, Ordering::Relaxed);
        Ok(())
    }

    fn log_buf_write(&self, pages: &[PageId], eol: Lsn) {
        self.append(Record::BufWrite { pages: pages.to_vec(), eol });
    }

    fn log_flash(&self, payload: &[u8]) -> Option<Lsn> {
        let full_one_in = self.full_one_in.load(Ordering::Relaxed);
        if full_one_in > 0 && self.prng.lock().chance(full_one_in) {
            return None;
        }
        self.log_flash_kept(payload)
    }

    fn log_flash_kept(&self, payload: &[u8]) -> Option<Lsn> {
        Some(self.append(Record::Flash { payload: payload.to_vec() }))
    }

    fn repair(
        &self,
        page: PageId,
        _rec: Lsn,
        _bytes: &mut terrace_page::PageBuf,
        is_whole: bool,
    ) -> Result<(), PoolError> {
        if is_whole && self.is_cut.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(PoolError::Redo { page, what: "this log repairs nothing" })
    }
}

/// Where the value of a page stands, twice, so that a mixture is recognized.
const VALUE_AT: [usize; 2] = [40, PAGE_SIZE - 8];

pub fn value(page: &PageBuf) -> u64 {
    let [first, second] =
        VALUE_AT.map(|at| u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes")));
    assert_eq!(first, second, "a page is read half changed");
    first
}

pub fn set_value(page: &mut PageBuf, value: u64) {
    for at in VALUE_AT {
        page[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
}

/// A sealed page with value zero.
pub fn fresh_page(id: u64) -> Box<PageBuf> {
    let mut page = Box::new([0; PAGE_SIZE]);
    set_page_id(&mut page, PageId(id));
    set_kind(&mut page, PageKind::Leaf);
    seal(&mut page);
    page
}

/// What recovery makes of the pages at home; the values, or why redo is impossible.
pub fn recover(
    mut pages: Vec<Box<PageBuf>>,
    records: &BTreeMap<u64, Record>,
) -> Result<Vec<u64>, String> {
    let mut dirty: BTreeMap<PageId, (u64, u64)> = BTreeMap::new();
    for (&lsn, record) in records {
        match record {
            Record::Update { page, .. } => {
                dirty.entry(*page).and_modify(|entry| entry.1 = lsn).or_insert((lsn, lsn));
            }
            Record::BufWrite { pages, eol } => {
                for page in pages {
                    if dirty.get(page).is_some_and(|entry| entry.1 <= eol.0) {
                        dirty.remove(page);
                    }
                }
            }
            Record::Begin | Record::Flash { .. } => {}
        }
    }
    for (&at, record) in records {
        let Record::Update { page: id, previous, value, is_image } = record else { continue };
        if dirty.get(id).is_none_or(|entry| entry.0 > at) {
            continue;
        }
        let page = &mut pages[id.0 as usize];
        let is_whole = verify(page, *id).is_ok();
        if !is_whole && !is_image {
            continue;
        }
        if is_whole && lsn(page).0 >= at {
            continue;
        }
        if is_whole && lsn(page) != *previous {
            return Err(format!("{id} is at {}, redo of {at} expects {previous}", lsn(page)));
        }
        if !is_whole {
            **page = *fresh_page(id.0);
        }
        set_value(page, *value);
        set_lsn(page, Lsn(at));
        seal(page);
    }
    for (id, page) in pages.iter().enumerate() {
        verify(page, PageId(id as u64)).map_err(|damage| format!("page {id} is {damage:?}"))?;
    }
    Ok(pages.iter().map(|page| value(page)).collect())
}
