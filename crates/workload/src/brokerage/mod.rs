//! A read-intensive workload, a synthetic stand-in for TPC-E: its read:write ratio, a skew, and a
//! working set of about the flash's size at its usual size. It is not TPC-E.
//!
//! What is taken from TPC-E, and what is not:
//!
//! - Of every 10.7 accesses to a row or a run of rows of a customer, 9.7 read and one writes, which
//!   is TPC-E's measured ratio of page reads to page writes. It is kept here where the workload
//!   asks; what reaches the devices depends on the tiers (without flash, at 20,000 customers, 12.5
//!   page reads for each page write). The market's rows are few, hot, read only, and not counted.
//! - The skew is stated, not TPC-E's: half of the requests are for a tenth of the customers, 45%
//!   for the next six tenths, 5% for the rest; uniform within each. Hot customers are spread over
//!   the tables.
//! - So 95% of the requests are for 70% of the database: at 20,000 customers (about 2 GiB, a
//!   hundredth of TPC-E's 20K-customer point) as much as the flash of ICDE 2013 at 1/100 holds.
//! - Customers have 100 KiB each instead of TPC-E's 10 MB, so the same bytes hold a hundred times
//!   the number of customers.
//! - Five kinds of transactions stand for TPC-E's ten; throughput counts all of them.
//!
//! Modules in reading order: `rows`, what is stored; `loading`; `transactions`; `clients`, which
//! run them; `consistency`, what must hold.

mod clients;
mod consistency;
mod loading;
mod rows;
mod transactions;

pub use rows::{ACCOUNTS_PER_CUSTOMER, TRADES_PER_ACCOUNT};
pub use transactions::Kind;

use terrace::Database;
use terrace_page::PAGE_SIZE;
use terrace_rt::{Nanos, Prng, World};

use crate::Error;
use crate::clients::{Clients, Consistency, Part, Workload};

/// Reads of customers' rows for each write.
pub const READS_PER_WRITE: f64 = 9.7;

/// The skew, in words.
pub const SKEW: &str = "50% of requests to 10% of customers, 45% to the next 60%, 5% to the rest";

/// Shares of requests, and of customers, by class: the most requested first, in percent.
const CLASSES: [(u64, u64); 3] = [(50, 10), (45, 60), (5, 30)];

/// All that decides the database and what is asked of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Decides the database and the transactions.
    pub seed: u64,
    /// Customers: 20,000. At least 10.
    pub customers: u32,
    /// Share of a page that the load fills: 0.7.
    pub fill: f64,
    /// Clients: 50.
    pub clients: u32,
    /// Tasks beside the clients that read all trades in order, again and again: none.
    pub scanners: u32,
    /// Time after which other customers are the popular ones, and clients want other things:
    /// never.
    pub shift_every: Option<Nanos>,
    /// Whether accounts are held against their trades after load and run.
    pub checks: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            seed: 1,
            customers: 20_000,
            fill: 0.7,
            clients: 50,
            scanners: 0,
            shift_every: None,
            checks: true,
        }
    }
}

impl Workload for Config {
    fn home_bytes(&self) -> u64 {
        const ROOM_BYTES: u64 = 64 << 20;
        let loaded = loading::estimated_bytes(self);
        (loaded * 3 / 2 + ROOM_BYTES).next_multiple_of(PAGE_SIZE as u64)
    }

    fn load(&self, db: &Database, progress: &mut dyn FnMut(u64, u64)) -> Result<(), Error> {
        loading::populate(db, self, progress)
    }

    fn start(&self, db: &Database, part: Part, world: &World) -> Box<dyn Clients> {
        Box::new(clients::Desks::start(db, self, part, world))
    }

    fn check(&self, db: &Database) -> Result<Consistency, Error> {
        if !self.checks {
            return Ok(Consistency::Unchecked);
        }
        consistency::check(db, self.customers)
    }
}

/// The part of a run that a request is drawn in: which customers are popular, and what is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Phase(u64);

impl Phase {
    /// The phase after `passed`, if there are several.
    fn after(passed: Nanos, every: Option<Nanos>) -> Phase {
        Phase(every.map_or(0, |every| passed.0 / every.0.max(1)))
    }

    /// Whether most clients want to trade.
    fn trades(self) -> bool {
        self.0 % 2 == 1
    }
}

/// Draws a customer of `customers` as the skew has it. In each phase two fifths of all customers
/// are popular in the stead of two fifths that were.
fn draw_customer(prng: &mut Prng, customers: u32, phase: Phase) -> u32 {
    let (mut left, mut first) = (prng.below(100), 0);
    let count = u64::from(customers);
    let moved = count * 2 / 5 * phase.0;
    for (requests, share) in CLASSES {
        let in_class = count * share / 100;
        if left < requests {
            return spread(first + prng.below(in_class.max(1)) + moved, count);
        }
        (left, first) = (left - requests, first + in_class);
    }
    unreachable!("the classes are all of the requests")
}

/// The customer of popularity `rank` among `count`: neighbours in rank are none in the tables. Each
/// rank has one of its own.
pub(crate) fn spread(rank: u64, count: u64) -> u32 {
    /// Prime, so that no number of customers but its multiples shares a factor with it.
    const STRIDE: u64 = 2_654_435_761;
    assert!(!count.is_multiple_of(STRIDE));
    (rank % count * (STRIDE % count) % count) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_go_to_the_classes_as_stated() {
        const CUSTOMERS: u32 = 1_000;
        const DRAWS: u32 = 100_000;
        let mut prng = Prng::from_seed(3);
        let mut counts = [0u32; CUSTOMERS as usize];
        for _ in 0..DRAWS {
            counts[draw_customer(&mut prng, CUSTOMERS, Phase::default()) as usize] += 1;
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let share = |to: usize| f64::from(counts[..to].iter().sum::<u32>()) / f64::from(DRAWS);
        assert!((share(100) - 0.50).abs() < 0.01, "{}", share(100));
        assert!((share(700) - 0.95).abs() < 0.01, "{}", share(700));
        assert!(counts[999] > 0, "everybody is asked for");
    }

    #[test]
    fn others_are_popular_in_the_next_phase() {
        const CUSTOMERS: u32 = 1_000;
        let popular = |phase: u64| {
            let mut prng = Prng::from_seed(5);
            let mut counts = [0u32; CUSTOMERS as usize];
            for _ in 0..100_000 {
                counts[draw_customer(&mut prng, CUSTOMERS, Phase(phase)) as usize] += 1;
            }
            (0..CUSTOMERS as usize).filter(|&at| counts[at] > 250).collect::<Vec<_>>()
        };
        let (first, second) = (popular(0), popular(1));
        assert_eq!((first.len(), second.len()), (100, 100));
        assert!(first.iter().all(|customer| !second.contains(customer)));
        let every = Some(Nanos::from_secs(30));
        assert_eq!(Phase::after(Nanos::from_secs(75), every), Phase(2));
        assert_eq!(Phase::after(Nanos::from_secs(75), None), Phase(0));
    }

    #[test]
    fn every_rank_is_another_customer() {
        for count in [10, 11, 64, 1_000, 20_000] {
            let mut customers: Vec<u32> = (0..count).map(|rank| spread(rank, count)).collect();
            customers.sort_unstable();
            assert!(customers.iter().enumerate().all(|(at, customer)| at == *customer as usize));
        }
    }
}
