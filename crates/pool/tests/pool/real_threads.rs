//! Threads at once, in the real world: what the virtual world, with its one thread, cannot show.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_device::{Completion, Counters, Device, Op, Request, Ticket};
use terrace_page::{PAGE_SIZE, PageBuf, PageId};
use terrace_policy::DESIGNS;
use terrace_pool::{BufferPool, Dirtied, PoolConfig};
use terrace_rt::{LeafMutex, Prng, Real};

use crate::bench_world::config;
use crate::log_model::{LogModel, Record, fresh_page, set_value, value};

const PAGES: u64 = 400;
const THREADS: u64 = 4;
const STEPS: u64 = 15_000;

/// A device that is done as soon as it is asked.
struct Instant {
    pages: LeafMutex<Vec<Box<PageBuf>>>,
}

impl Instant {
    fn new(pages: u64) -> Arc<Instant> {
        Arc::new(Instant { pages: LeafMutex::new((0..pages).map(fresh_page).collect()) })
    }
}

impl Device for Instant {
    fn len(&self) -> u64 {
        (self.pages.lock().len() * PAGE_SIZE) as u64
    }

    unsafe fn submit(&self, requests: &[Request<'_>]) -> Ticket {
        let completion = Completion::new(requests.len());
        for (index, request) in requests.iter().enumerate() {
            let first = request.offset as usize / PAGE_SIZE;
            for (at, buf) in request.bufs.iter().enumerate() {
                let mut pages = self.pages.lock();
                let stored: *mut u8 = pages[first + at].as_mut_ptr();
                // SAFETY: the submitter lends a page-sized buffer, and the stored page is locked.
                unsafe {
                    match request.op {
                        Op::Read => buf.ptr().copy_from_nonoverlapping(stored, PAGE_SIZE),
                        Op::Write => stored.copy_from_nonoverlapping(buf.ptr(), PAGE_SIZE),
                    }
                }
            }
            completion.finish(index, Ok(()));
        }
        completion.ticket()
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn queued(&self) -> usize {
        0
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

fn work(pool: &BufferPool, log: &LogModel, model: &[AtomicU64], seed: u64) {
    let mut prng = Prng::from_seed(seed);
    for _ in 0..STEPS {
        let spread = if prng.chance(3) { PAGES } else { PAGES / 8 };
        let page = prng.below(spread);
        let expected = &model[page as usize];
        match prng.below(100) {
            0..70 => {
                let guard = pool.read(PageId(page)).expect("a page");
                assert_eq!(value(&guard), expected.load(Ordering::Relaxed));
            }
            70..99 => {
                let mut guard = pool.write(PageId(page)).expect("a page");
                assert_eq!(value(&guard), expected.load(Ordering::Relaxed));
                let is_image = guard.dirty() == Dirtied::Fresh;
                let (id, new) = (guard.id(), prng.next_u64());
                let previous = terrace_page::lsn(&guard);
                let at = log.append(Record::Update { page: id, previous, value: new, is_image });
                guard.apply(at, |bytes| set_value(bytes, new));
                expected.store(new, Ordering::Relaxed);
            }
            _ => pool.read_ahead(PageId(page), 8),
        }
    }
}

#[test]
fn threads_agree_with_the_model_under_every_design() {
    for design in DESIGNS {
        let real = Real::new(1);
        let config = PoolConfig {
            frames: 130,
            partitions: 2,
            flash_slots: if design.uses_flash() { 150 } else { 0 },
            ..config(design.name)
        };
        let home = Instant::new(PAGES);
        let flash: Arc<dyn Device> = Instant::new(158);
        let log = Arc::new(LogModel::untimed(1));
        let pool = BufferPool::open(config, real.world(), home.clone(), Some(flash), log.clone());
        let pool = pool.expect("a pool opens");
        let model: Vec<AtomicU64> = (0..PAGES).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (pool, log, model) = (&pool, &log, &model);
                scope.spawn(move || work(pool, log, model, thread));
            }
            for _ in 0..50 {
                pool.check();
                std::thread::yield_now();
            }
        });
        pool.flush_all().expect("a checkpoint");
        pool.shutdown();
        pool.check();
        for (page, expected) in home.pages.lock().iter().zip(&model) {
            assert_eq!(value(page), expected.load(Ordering::Relaxed), "{}", design.name);
        }
    }
}
