//! Terminals: tasks that draw transactions, run them until they commit, and count.
//!
//! ```text
//!  terminal: draw -> [keying time] -> run until no conflict -> [think time] -> draw ...
//!                        | Delivery
//!                        v
//!                      queue -> delivery task: a transaction for each district
//! ```
//!
//! - T1: a transaction that meets a conflict is run again with the same inputs.
//! - T2: dates of one terminal's payments ascend strictly, which makes the keys of HISTORY unique.
//! - T3: the queue of deliveries is bounded; a terminal that finds it full waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use terrace::Database;
use terrace_rt::{LeafMutex, Nanos, Prng, Queue, charge, now, sleep, yield_now};

use super::config::{Config, Pacing, StockLevelScope, WarehouseChoice};
use super::input::{Delivery, Input, Kind, Source, StockLevel};
use super::random::Constants;
use super::results::KindCounts;
use super::transactions::{self, Delivered, Ending, Scratch};
use crate::Error;

/// Deliveries that may be queued.
const DELIVERIES_QUEUED_MAX: usize = 1000;

/// How often a transaction is run before the run is given up: never, but in a livelock.
const ATTEMPTS_MAX: u32 = 100_000;
/// The pause before a third attempt, and the growth of it with each more, at most.
const PAUSE_NS: u64 = 50_000;
/// How often the pause grows.
const PAUSES_MAX: u64 = 100;

/// What the terminals and delivery tasks of a run share.
pub struct Floor {
    db: Database,
    config: Config,
    deliveries: Queue<(Delivery, Nanos)>,
    is_closed: AtomicBool,
    new_orders: AtomicU64,
    transactions: AtomicU64,
    skipped: AtomicU64,
    kinds: LeafMutex<[KindCounts; 5]>,
    failure: LeafMutex<Option<Error>>,
    /// Date at the start of the world.
    epoch: u64,
}

impl Floor {
    /// A floor without terminals, on `db`, at the date `epoch`.
    pub fn new(db: Database, config: Config, epoch: u64) -> Floor {
        Floor {
            db,
            config,
            deliveries: Queue::new(DELIVERIES_QUEUED_MAX),
            is_closed: AtomicBool::new(false),
            new_orders: AtomicU64::new(0),
            transactions: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            kinds: LeafMutex::new(std::array::from_fn(|_| KindCounts::new())),
            failure: LeafMutex::new(None),
            epoch: epoch - now().0,
        }
    }

    /// Ends terminals and delivery tasks after what they are doing.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.deliveries.close();
    }

    /// Committed so far: New-Orders, and all.
    pub fn committed(&self) -> (u64, u64) {
        (self.new_orders.load(Ordering::Relaxed), self.transactions.load(Ordering::Relaxed))
    }

    /// Districts that had nothing to deliver.
    pub fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// What was counted so far.
    pub fn kinds(&self) -> [KindCounts; 5] {
        self.kinds.lock().clone()
    }

    /// Why a terminal stopped, once.
    pub fn take_failure(&self) -> Option<Error> {
        self.failure.lock().take()
    }

    /// Whether a terminal has stopped because of an error.
    pub fn has_failed(&self) -> bool {
        self.failure.lock().is_some()
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    fn fail(&self, error: Error) {
        self.failure.lock().get_or_insert(error);
        self.close();
    }

    fn count(&self, kind: Kind, ending: Ending, begun: Nanos) {
        let mut kinds = self.kinds.lock();
        let counts = &mut kinds[kind as usize];
        match ending {
            Ending::RollBack => counts.rolled_back += 1,
            Ending::Commit => {
                counts.committed += 1;
                counts.latency_ns.saturating_record(now().0 - begun.0);
                self.transactions.fetch_add(1, Ordering::Relaxed);
                let is_new_order = kind == Kind::NewOrder;
                self.new_orders.fetch_add(u64::from(is_new_order), Ordering::Relaxed);
            }
        }
    }
}

/// One terminal, or one delivery task.
pub struct Terminal {
    floor: Arc<Floor>,
    number: u16,
    source: Source,
    scratch: Scratch,
    /// Date of its last payment (T2).
    last_date: u64,
}

impl Terminal {
    /// Terminal `number`, with a generator of its own.
    pub fn new(floor: Arc<Floor>, number: u16, prng: Prng, constants: Constants) -> Terminal {
        let source = Source::new(prng, floor.config.scale, constants);
        Terminal { floor, number, source, scratch: Scratch::default(), last_date: 0 }
    }

    /// Runs transactions until the floor closes.
    pub fn run(mut self) {
        let floor = Arc::clone(&self.floor);
        while !floor.is_closed() {
            if let Err(error) = self.step() {
                floor.fail(error);
            }
            // Nothing blocks a terminal whose pages are all in memory: let the others run.
            yield_now();
        }
    }

    /// Executes queued deliveries until the floor closes.
    pub fn run_deliveries(mut self) {
        let floor = Arc::clone(&self.floor);
        while let Some((delivery, queued)) = floor.deliveries.pop() {
            if floor.is_closed() {
                return;
            }
            match self.deliver_all(&delivery) {
                Ok(()) => floor.count(Kind::Delivery, Ending::Commit, queued),
                Err(error) => floor.fail(error),
            }
        }
    }

    /// Draws a transaction and runs it.
    fn step(&mut self) -> Result<(), Error> {
        let Config { mix, warehouse_choice, pacing, costs, scale, .. } = self.floor.config;
        let kind = mix.draw(&mut self.source.prng);
        let warehouse = match warehouse_choice {
            WarehouseChoice::PerTransaction => self.source.warehouse(),
            WarehouseChoice::PerTerminal => u32::from(self.number) % scale.warehouses + 1,
        };
        let input = self.source.draw(kind, warehouse);
        if pacing != Pacing::None {
            sleep(pacing.keying(kind));
        }
        let begun = now();
        if let Input::Delivery(delivery) = input {
            // A refusal says that the floor is closed.
            let _ = self.floor.deliveries.push((delivery, begun));
        } else {
            charge_if_any(costs.of(kind));
            let ending = self.until_no_conflict(kind, |terminal| terminal.attempt(&input))?;
            self.floor.count(kind, ending, begun);
        }
        match pacing {
            // With all in memory nothing else waits, and tasks share their thread by turns.
            Pacing::None => yield_now(),
            _ => sleep(self.think_time(kind)),
        }
        Ok(())
    }

    /// An exponentially distributed think time, cut at ten times its mean (clause 5.2.5.4).
    fn think_time(&mut self, kind: Kind) -> Nanos {
        let mean = self.floor.config.pacing.mean_think(kind).as_secs_f64();
        let drawn = -(1.0 - self.source.prng.f64()).ln() * mean;
        Nanos::from_secs_f64(drawn.min(mean * 10.0))
    }

    /// Waits a little before a transaction is run again, longer each time: two that are run again
    /// at once can stand in each other's way at the same instant for ever.
    fn step_aside(&mut self, attempts: u64) {
        match attempts {
            0..=2 => yield_now(),
            _ => sleep(Nanos(self.source.prng.below(PAUSE_NS * attempts.min(PAUSES_MAX)) + 1)),
        }
    }

    /// Runs `attempt` again as long as it meets conflicts (T1).
    fn until_no_conflict<T>(
        &mut self,
        kind: Kind,
        mut attempt: impl FnMut(&mut Terminal) -> Result<T, Error>,
    ) -> Result<T, Error> {
        for attempts in 1..=u64::from(ATTEMPTS_MAX) {
            match attempt(self) {
                Err(Error::Engine(error)) if error.is_transient() => {
                    self.floor.kinds.lock()[kind as usize].conflicts += 1;
                    self.step_aside(attempts);
                }
                other => return other,
            }
        }
        Err(Error::AlwaysConflicts { attempts: ATTEMPTS_MAX })
    }

    /// The date, later than that of this terminal's last payment (T2).
    fn date(&mut self) -> u64 {
        self.last_date = (self.floor.epoch + now().0).max(self.last_date + 1);
        self.last_date
    }

    /// Runs the transaction `input` once.
    fn attempt(&mut self, input: &Input) -> Result<Ending, Error> {
        let floor = Arc::clone(&self.floor);
        let scratch = &mut self.scratch;
        match input {
            Input::OrderStatus(input) => {
                transactions::order_status(&floor.db.begin_read()?, input, scratch)?;
                return Ok(Ending::Commit);
            }
            Input::StockLevel(input) => {
                self.stock_level(input)?;
                return Ok(Ending::Commit);
            }
            _ => {}
        }
        let date = self.date();
        let txn = floor.db.begin_write()?;
        let ending = match input {
            Input::NewOrder(input) => {
                transactions::new_order(&txn, input, date, &mut self.scratch)?.0
            }
            Input::Payment(input) => {
                transactions::payment(&txn, input, self.number, date, &mut self.scratch)?;
                Ending::Commit
            }
            _ => unreachable!("read-only and deferred transactions are handled elsewhere"),
        };
        match ending {
            Ending::Commit => txn.commit(self.floor.config.durability)?,
            Ending::RollBack => txn.rollback()?,
        }
        Ok(ending)
    }

    fn stock_level(&mut self, input: &StockLevel) -> Result<u32, Error> {
        /// Stocks read by one of the transactions that Stock-Level is split into.
        const STOCKS_IN_GROUP: usize = 20;
        let (db, scratch) = (&self.floor.db, &mut self.scratch);
        match self.floor.config.stock_level {
            StockLevelScope::OneTransaction => {
                transactions::stock_level(&db.begin_read()?, input, scratch)
            }
            StockLevelScope::Split => {
                let items = transactions::recent_items(&db.begin_read()?, input, scratch)?;
                let mut low = 0;
                for group in items.chunks(STOCKS_IN_GROUP) {
                    low += transactions::count_low(&db.begin_read()?, input, group, scratch)?;
                }
                Ok(low)
            }
        }
    }

    /// A transaction for each district of the warehouse.
    fn deliver_all(&mut self, delivery: &Delivery) -> Result<(), Error> {
        let Config { scale, costs, .. } = self.floor.config;
        charge_if_any(costs.of(Kind::Delivery));
        for district in 1..=scale.districts {
            let place = (delivery.warehouse, district);
            let carrier = delivery.carrier;
            let delivered = self.until_no_conflict(Kind::Delivery, |terminal| {
                let date = terminal.date();
                let txn = terminal.floor.db.begin_write()?;
                let scratch = &mut terminal.scratch;
                let delivered = transactions::deliver(&txn, place, carrier, date, scratch)?;
                txn.commit(terminal.floor.config.durability)?;
                Ok(delivered)
            })?;
            if delivered == Delivered::Nothing {
                self.floor.skipped.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

fn charge_if_any(cost: Nanos) {
    if cost != Nanos::ZERO {
        charge(cost);
    }
}
