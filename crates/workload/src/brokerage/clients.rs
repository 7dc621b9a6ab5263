//! Clients: tasks that draw transactions, run each until it meets no conflict, and count.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace::Database;
use terrace_rt::{LeafMutex, Nanos, Prng, Task, World, now, yield_now};

use super::transactions::{CUSTOMERS_SCANNED, Request};
use super::{Config, Phase};
use crate::Error;
use crate::clients::{Clients, Part};
use crate::sampling::Committed;

/// How often a transaction is run before the run is given up: never, but in a livelock.
const ATTEMPTS_MAX: u32 = 100_000;

/// What the clients of a run share.
struct Floor {
    db: Database,
    customers: u32,
    shift_every: Option<Nanos>,
    begun: Nanos,
    is_closed: AtomicBool,
    committed: AtomicU64,
    failure: LeafMutex<Option<Error>>,
}

/// Clients at work.
pub(super) struct Desks {
    floor: Arc<Floor>,
    tasks: Vec<Task>,
}

impl Desks {
    /// Spawns the clients of `part`.
    pub(super) fn start(db: &Database, config: &Config, part: Part, world: &World) -> Desks {
        let mut prng = Prng::from_seed(config.seed ^ 0x00C1_1E57);
        for _ in 0..part.number {
            prng = prng.fork();
        }
        let floor = Arc::new(Floor {
            db: db.clone(),
            customers: config.customers,
            shift_every: config.shift_every,
            begun: now(),
            is_closed: AtomicBool::new(false),
            committed: AtomicU64::new(0),
            failure: LeafMutex::new(None),
        });
        let spawn = |_| {
            let (floor, prng) = (Arc::clone(&floor), prng.fork());
            world.spawn("client", move || floor.serve(prng))
        };
        let mut tasks: Vec<Task> = (0..config.clients).map(spawn).collect();
        for number in 0..config.scanners {
            let floor = Arc::clone(&floor);
            // They begin apart.
            let first = config.customers / config.scanners * number;
            tasks.push(world.spawn("scanner", move || floor.scan(first)));
        }
        Desks { floor, tasks }
    }
}

impl Floor {
    /// Runs transactions until the floor is closed.
    fn serve(&self, mut prng: Prng) {
        let mut row = Vec::new();
        while !self.is_closed.load(Ordering::Relaxed) {
            let phase = Phase::after(now() - self.begun, self.shift_every);
            let request = Request::draw(&mut prng, self.customers, phase);
            match self.until_no_conflict(|| request.run(&self.db, &mut row)) {
                Ok(()) => {
                    self.committed.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => self.fail(error),
            }
            // Nothing blocks a client whose pages are all in memory: let the others run.
            yield_now();
        }
    }

    fn fail(&self, error: Error) {
        self.failure.lock().get_or_insert(error);
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Reads all trades in order, again and again, until the floor is closed.
    fn scan(&self, mut first: u32) {
        while !self.is_closed.load(Ordering::Relaxed) {
            if let Err(error) = self.until_no_conflict(|| Request::scan(&self.db, first)) {
                self.fail(error);
            }
            first = first.saturating_add(CUSTOMERS_SCANNED);
            if first >= self.customers {
                first = 0;
            }
            yield_now();
        }
    }

    fn until_no_conflict(&self, mut run: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
        for _ in 0..ATTEMPTS_MAX {
            match run() {
                Err(Error::Engine(error)) if error.is_transient() => yield_now(),
                other => return other,
            }
        }
        Err(Error::AlwaysConflicts { attempts: ATTEMPTS_MAX })
    }
}

impl Clients for Desks {
    fn committed(&self) -> Committed {
        let transactions = self.floor.committed.load(Ordering::Relaxed);
        Committed { counted: transactions, transactions }
    }

    fn has_failed(&self) -> bool {
        self.floor.failure.lock().is_some()
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.floor.is_closed.store(true, Ordering::Relaxed);
        self.tasks.drain(..).for_each(Task::join);
        self.floor.failure.lock().take().map_or(Ok(()), Err)
    }
}
