//! A device in memory with random service times, which watches how it is used.
//!
//! - The buffer of a write is compared at submission and completion: no task may change it.
//! - No two writes of one page may be in flight at once, unless the test allows it.
//! - Faults: pages whose reads fail or return rot; writes and syncs that fail from a moment on; a
//!   power cut that keeps a random subset of what was not synced.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use terrace_device::{Completion, Counters, Device, IoBuf, Op, Request, Ticket};
use terrace_page::{PAGE_SIZE, PageBuf, PageId};
use terrace_rt::{LeafMutex, Nanos, Prng, Timer, World};

/// Where bytes are.
pub struct RamDevice {
    world: World,
    itself: std::sync::Weak<RamDevice>,
    state: LeafMutex<State>,
    queued: AtomicUsize,
    /// Two writes of one page may be in flight.
    pub allows_overlap: AtomicBool,
    pub fails_writes: AtomicBool,
    pub fails_syncs: AtomicBool,
    latency_ns_max: u64,
}

struct State {
    pages: Vec<Box<PageBuf>>,
    /// Versions since the last sync, oldest first; the first is durable.
    unsynced: BTreeMap<u64, VecDeque<Box<PageBuf>>>,
    pending: BTreeMap<u64, Pending>,
    writing: BTreeSet<u64>,
    next_token: u64,
    /// The first page of each write, in the order in which they came.
    writes: Vec<u64>,
    prng: Prng,
    counters: Counters,
    bad_reads: BTreeSet<u64>,
}

struct Pending {
    op: Op,
    first: u64,
    bufs: Vec<IoBuf>,
    index: usize,
    completion: Arc<Completion>,
    written: Vec<Box<PageBuf>>,
}

impl RamDevice {
    pub fn new(world: &World, pages: u64, latency_ns_max: u64, seed: u64) -> Arc<RamDevice> {
        let state = State {
            pages: (0..pages).map(|_| Box::new([0; PAGE_SIZE])).collect(),
            unsynced: BTreeMap::new(),
            pending: BTreeMap::new(),
            writing: BTreeSet::new(),
            next_token: 0,
            writes: Vec::new(),
            prng: Prng::from_seed(seed),
            counters: Counters::default(),
            bad_reads: BTreeSet::new(),
        };
        Arc::new_cyclic(|itself| RamDevice {
            world: world.clone(),
            itself: itself.clone(),
            state: LeafMutex::new(state),
            queued: AtomicUsize::new(0),
            allows_overlap: AtomicBool::new(false),
            fails_writes: AtomicBool::new(false),
            fails_syncs: AtomicBool::new(false),
            latency_ns_max,
        })
    }

    pub fn page(&self, page: u64) -> Box<PageBuf> {
        self.state.lock().pages[page as usize].clone()
    }

    pub fn set_page(&self, page: u64, bytes: &PageBuf) {
        *self.state.lock().pages[page as usize] = *bytes;
    }

    /// The first page of each write, in the order in which they came.
    pub fn writes(&self) -> Vec<u64> {
        self.state.lock().writes.clone()
    }

    /// Flips a bit of a stored page.
    pub fn rot(&self, page: u64) {
        self.state.lock().pages[page as usize][4000] ^= 4;
    }

    /// Reads of `page` fail from now on.
    pub fn fail_reads_of(&self, page: u64) {
        self.state.lock().bad_reads.insert(page);
    }

    /// What is left after a power cut: of each page some version that was not older than the last
    /// synced one, or a torn mixture of two.
    pub fn after_power_cut(&self, prng: &mut Prng) -> Vec<Box<PageBuf>> {
        let mut state = self.state.lock();
        let mut pages = state.pages.clone();
        let mut versions = std::mem::take(&mut state.unsynced);
        let in_flight = state.pending.values().filter(|pending| pending.op == Op::Write);
        for pending in in_flight {
            for (at, bytes) in pending.written.iter().enumerate() {
                let page = pending.first + at as u64;
                let stored = state.pages[page as usize].clone();
                versions.entry(page).or_insert_with(|| [stored].into()).push_back(bytes.clone());
            }
        }
        for (page, versions) in versions {
            let chosen = prng.below(versions.len() as u64) as usize;
            let mut bytes = versions[chosen].clone();
            if prng.chance(4) {
                let other = prng.below(versions.len() as u64) as usize;
                let sectors = prng.below(16) as usize;
                bytes[..sectors * 512].copy_from_slice(&versions[other][..sectors * 512]);
            }
            pages[page as usize] = bytes;
        }
        pages
    }

    fn begin(&self, request: &Request<'_>, index: usize, completion: &Arc<Completion>) {
        request.validate(self.len());
        assert!(request.offset.is_multiple_of(PAGE_SIZE as u64));
        let mut state = self.state.lock();
        let first = request.offset / PAGE_SIZE as u64;
        let mut written = Vec::new();
        if request.op == Op::Write {
            state.writes.push(first);
            for (at, buf) in request.bufs.iter().enumerate() {
                let page = first + at as u64;
                let is_alone = state.writing.insert(page);
                let may = self.allows_overlap.load(Ordering::Relaxed);
                assert!(is_alone || may, "{} has two writes in flight", PageId(page));
                written.push(copy_of(buf));
            }
        }
        let token = state.next_token;
        state.next_token += 1;
        let pending = Pending {
            op: request.op,
            first,
            bufs: request.bufs.to_vec(),
            index,
            completion: Arc::clone(completion),
            written,
        };
        state.pending.insert(token, pending);
        let latency = Nanos(1 + state.prng.below(self.latency_ns_max));
        drop(state);
        self.queued.fetch_add(1, Ordering::Relaxed);
        let timer = self.itself.upgrade().expect("the device lives");
        self.world.call_at(self.world.now() + latency, timer, token);
    }

    fn end_read(&self, state: &mut State, pending: &Pending) -> io::Result<()> {
        for (at, buf) in pending.bufs.iter().enumerate() {
            let page = pending.first + at as u64;
            if state.bad_reads.contains(&page) {
                return Err(io::Error::other("a bad sector"));
            }
            let bytes = &state.pages[page as usize];
            // SAFETY: the submitter keeps the buffer valid and untouched until it is told.
            unsafe { buf.ptr().cast::<PageBuf>().copy_from_nonoverlapping(&**bytes, 1) };
        }
        Ok(())
    }

    fn end_write(&self, state: &mut State, pending: &Pending) -> io::Result<()> {
        for (at, buf) in pending.bufs.iter().enumerate() {
            let page = pending.first + at as u64;
            assert!(copy_of(buf) == pending.written[at], "{} changed in flight", PageId(page));
            state.writing.remove(&page);
            if self.fails_writes.load(Ordering::Relaxed) {
                // All of the request has ended.
                continue;
            }
            let before = state.pages[page as usize].clone();
            let versions = state.unsynced.entry(page).or_insert_with(|| [before].into());
            versions.push_back(pending.written[at].clone());
            state.pages[page as usize] = pending.written[at].clone();
        }
        match self.fails_writes.load(Ordering::Relaxed) {
            true => Err(io::Error::other("no more writes")),
            false => Ok(()),
        }
    }
}

fn copy_of(buf: &IoBuf) -> Box<PageBuf> {
    assert_eq!(buf.len(), PAGE_SIZE);
    let mut bytes = Box::new([0; PAGE_SIZE]);
    // SAFETY: the submitter keeps the buffer valid until it is told that the request is done.
    unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(buf.ptr(), PAGE_SIZE) };
    bytes
}

impl Timer for RamDevice {
    fn fire(self: Arc<Self>, token: u64) {
        let mut state = self.state.lock();
        let pending = state.pending.remove(&token).expect("a request in flight");
        if pending.completion.is_abandoned() {
            return;
        }
        let result = match pending.op {
            Op::Read => {
                state.counters.reads += 1;
                self.end_read(&mut state, &pending)
            }
            Op::Write => {
                state.counters.writes += 1;
                state.counters.written_bytes += PAGE_SIZE as u64 * pending.bufs.len() as u64;
                self.end_write(&mut state, &pending)
            }
        };
        drop(state);
        self.queued.fetch_sub(1, Ordering::Relaxed);
        pending.completion.finish(pending.index, result);
    }
}

impl Device for RamDevice {
    fn len(&self) -> u64 {
        (self.state.lock().pages.len() * PAGE_SIZE) as u64
    }

    unsafe fn submit(&self, requests: &[Request<'_>]) -> Ticket {
        let completion = Completion::new(requests.len());
        for (index, request) in requests.iter().enumerate() {
            self.begin(request, index, &completion);
        }
        completion.ticket()
    }

    fn sync(&self) -> io::Result<()> {
        let covered: Vec<(u64, Box<PageBuf>)> = {
            let state = self.state.lock();
            state.unsynced.keys().map(|&page| (page, state.pages[page as usize].clone())).collect()
        };
        terrace_rt::sleep(Nanos(self.latency_ns_max / 16));
        if self.fails_syncs.load(Ordering::Relaxed) {
            return Err(io::Error::other("no more syncs"));
        }
        let mut state = self.state.lock();
        for (page, bytes) in covered {
            let versions = state.unsynced.get_mut(&page);
            let Some(versions) = versions else { continue };
            // Versions before the one that was current when the sync began cannot come back.
            if let Some(at) = versions.iter().rposition(|version| *version == bytes) {
                versions.drain(..at);
                if versions.len() == 1 {
                    state.unsynced.remove(&page);
                }
            }
        }
        Ok(())
    }

    fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    fn counters(&self) -> Counters {
        self.state.lock().counters
    }
}
