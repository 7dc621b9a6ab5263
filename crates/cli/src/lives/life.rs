//! One life of a tortured database, in a process of its own: opens it, holds it against the
//! ledger, and lets threads change it until the process is killed or its time is over.
//!
//! What it finds it says in one line of standard output each, which the parent reads:
//!
//! ```text
//! opened        it is open
//! verified      its rows are what the ledger allows
//! alive N F H   N transactions so far, F faults of devices, H refused since home is full
//! refused TEXT  opening told an error                           exit 10
//! wrong TEXT    rows are missing, or not what they must be      exit 11
//! hang TEXT     no transaction ended for a long time            exit 12
//! told TEXT     checking, reading or writing told an error      exit 13
//! odd TEXT      an error that no device that fails explains     exit 14
//! foreign TEXT  the flash holds something, and nothing of ours  exit 15
//! full TEXT     the disk has no room for what must be written   exit 16
//! ```
//!
//! - E1: after an error was reported, what can still be read is held against the ledger: it is
//!   never what was not committed.

use super::fault::is_of_a_device;
use super::ledger::{self, Ledger};
use super::model::{self, CLIENTS, Flaw};
use crate::command::Life;
use std::process::exit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use terrace::{Checkpoints, Database, Durability, Error, FlashRole, Nanos, Part};
use terrace_device::FaultyDevice;
use terrace_rt::Prng;

/// Exit status: opening returned an error.
pub const REFUSED: i32 = 10;
/// Rows are wrong.
pub const WRONG: i32 = 11;
/// Nothing happens any more.
pub const HANGS: i32 = 12;
/// The engine returned an error.
pub const TOLD: i32 = 13;
/// It returned one that no fault of a device explains.
pub const ODD: i32 = 14;
/// Opening left a flash alone in which it found nothing of its own.
pub const FOREIGN: i32 = 15;

/// The disk has no room for what must be written.
pub const FULL: i32 = 16;

/// Checkpoints of an idle database: the log then has a witness of what was forced last.
const REST: Duration = Duration::from_millis(120);
const ENOSPC: i32 = 28;
const STANDSTILL: Duration = Duration::from_secs(8);
const SAY_EVERY: Duration = Duration::from_millis(5);
/// Between two attempts to change a database whose home is full.
const FULL_PAUSE: Duration = Duration::from_millis(1);
/// One in this number of commits is durable, the others are not forced.
const DURABLE_ONE_IN: u64 = 3;
/// A few frames, so that the pages of the tables move.
const MEMORY: u64 = 24 * 8192;
/// Each table has extents of its own, of 512 KiB.
const HOME_BYTES: u64 = 32 << 20;
const LOG_BYTES: u64 = 2 << 20;
/// Bytes of the flash.
pub const FLASH_BYTES: u64 = 1 << 20;

/// A life, and the device of it that fails.
struct Alive<'a> {
    life: &'a Life,
    faulty: Arc<OnceLock<Arc<FaultyDevice>>>,
    is_over: AtomicBool,
    done: AtomicU64,
    refused: AtomicU64,
}

/// Lives; does not return if anything is wrong.
pub fn live(life: &Life) {
    let alive = Alive {
        life,
        faulty: Arc::default(),
        is_over: AtomicBool::new(false),
        done: AtomicU64::new(0),
        refused: AtomicU64::new(0),
    };
    let db = match alive.open() {
        Ok(db) => db,
        Err(error @ Error::NotBlank { part: Part::Flash, .. }) => {
            alive.end("foreign", &error.to_string(), FOREIGN)
        }
        Err(error) => alive.tell("refused", &error, REFUSED),
    };
    println!("opened");
    let numbers = match model::check(&db) {
        Ok(numbers) => numbers,
        Err(Flaw::Told(error)) => alive.tell("told", &error, TOLD),
        Err(Flaw::Wrong(what)) => alive.end("wrong", &what, WRONG),
    };
    alive.compare(numbers);
    println!("verified");
    if life.runs_ms > 0
        && let Err(error) = alive.run(&db, numbers)
    {
        alive.look_after(&db);
        alive.tell("told", &error, TOLD);
    }
    if life.rests {
        thread::sleep(REST);
        alive.say();
        exit(0);
    }
    if let Err(error) = db.close() {
        alive.tell("told", &error, TOLD);
    }
    alive.say();
}

impl Alive<'_> {
    /// How far it has come.
    fn say(&self) {
        let faults = self.faulty.get().map_or(0, |device| device.counts().faults());
        let done = self.done.load(Ordering::Relaxed);
        println!("alive {done} {faults} {}", self.refused.load(Ordering::Relaxed));
    }

    fn end(&self, what: &str, text: &str, status: i32) -> ! {
        self.say();
        println!("{what} {}", text.replace('\n', " | "));
        exit(status)
    }

    fn tell(&self, what: &str, error: &Error, status: i32) -> ! {
        if self.life.grows && is_for_want_of_room(error) {
            self.end("full", &error.to_string(), FULL);
        }
        if self.life.fault.is_some() && !is_of_a_device(error) {
            self.end("odd", &format!("{what}: {error}"), ODD);
        }
        self.end(what, &error.to_string(), status)
    }

    fn open(&self) -> Result<Database, Error> {
        let life = self.life;
        let role = if life.persistent_flash { FlashRole::Persistent } else { FlashRole::Cache };
        let mut builder = Database::builder()
            .memory(MEMORY)
            .design(life.design)
            .restart(life.restart)
            .flash_role(role)
            .checkpoints(Checkpoints::Every(Nanos::from_millis(30)));
        if life.design.uses_flash() {
            builder = builder.flash(life.folder.join("flash"), FLASH_BYTES);
        }
        builder = match life.grows {
            true => builder.log_max(LOG_BYTES),
            false => builder.home_size(HOME_BYTES).log_size(LOG_BYTES),
        };
        if let Some(fault) = life.fault {
            builder = fault.put(builder, &self.faulty);
        }
        let path = life.folder.join("db");
        if life.is_first { builder.open_or_create(path) } else { builder.open(path) }
    }

    /// Holds what the rows say against the ledger.
    fn compare(&self, numbers: [u64; CLIENTS as usize]) {
        let known = ledger::known(&self.life.ledger)
            .unwrap_or_else(|it| self.end("odd", &it.to_string(), ODD));
        for (client, (number, known)) in numbers.iter().zip(known).enumerate() {
            if *number < known.durable || *number > known.begun {
                let what = format!("client {client} is at {number}, and its ledger says {known:?}");
                self.end("wrong", &what, WRONG);
            }
        }
    }

    /// E1.
    fn look_after(&self, db: &Database) {
        match model::numbers(db) {
            Ok(numbers) => self.compare(numbers),
            Err(Flaw::Wrong(what)) => {
                self.end("wrong", &format!("after an error was told: {what}"), WRONG)
            }
            Err(Flaw::Told(_)) => (),
        }
    }

    /// Runs the clients, and watches over them; the first error ends them all.
    fn run(&self, db: &Database, numbers: [u64; CLIENTS as usize]) -> Result<(), Error> {
        thread::scope(|threads| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let number = numbers[client as usize];
                    threads.spawn(move || {
                        let outcome = self.run_client(db, client, number);
                        if outcome.is_err() {
                            self.is_over.store(true, Ordering::Relaxed);
                        }
                        outcome
                    })
                })
                .collect();
            self.watch(db, || clients.iter().all(|client| client.is_finished()));
            let mut outcomes = clients.into_iter().map(|client| client.join());
            outcomes.try_for_each(|outcome| outcome.expect("no client panics"))
        })
    }

    fn watch(&self, db: &Database, is_done: impl Fn() -> bool) {
        let progress = || self.done.load(Ordering::Relaxed) + self.refused.load(Ordering::Relaxed);
        let (begun, mut last, mut since) = (Instant::now(), 0, Instant::now());
        while !is_done() {
            thread::sleep(SAY_EVERY);
            self.say();
            let now = progress();
            if now != last {
                (last, since) = (now, Instant::now());
            }
            if since.elapsed() > STANDSTILL {
                self.end("hang", &db.debug_waits(), HANGS);
            }
            if begun.elapsed() > Duration::from_millis(self.life.runs_ms) {
                self.is_over.store(true, Ordering::Relaxed);
            }
        }
    }

    fn run_client(&self, db: &Database, client: u64, mut number: u64) -> Result<(), Error> {
        let mut prng = Prng::from_seed(self.life.seed.wrapping_mul(31) ^ client);
        let mut ledger = Ledger::open(&self.life.ledger, client)
            .unwrap_or_else(|it| self.end("odd", &it.to_string(), ODD));
        let noted = |outcome: std::io::Result<()>| {
            outcome.unwrap_or_else(|it| self.end("odd", &it.to_string(), ODD));
        };
        while !self.is_over.load(Ordering::Relaxed) {
            number += 1;
            noted(ledger.begins(number));
            let is_durable = prng.below(DURABLE_ONE_IN) == 0;
            let durability = if is_durable { Durability::Durable } else { Durability::None };
            loop {
                match model::transact(db, client, number, &mut prng, durability) {
                    Ok(()) => break,
                    Err(Error::HomeFull { .. }) if self.life.grows => {
                        self.refused.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(FULL_PAUSE);
                        if self.is_over.load(Ordering::Relaxed) {
                            return Ok(());
                        }
                    }
                    Err(error) if error.is_transient() => (),
                    Err(Error::LogFull { .. }) => (),
                    Err(error) => return Err(error),
                }
            }
            if is_durable {
                noted(ledger.is_durable(number));
            }
            self.done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Whether `error` says that the disk is full.
fn is_for_want_of_room(error: &Error) -> bool {
    match error {
        Error::HomeFull { .. } | Error::NoRoom { .. } => true,
        Error::Failed { cause: Some(cause) } | Error::Doomed { cause: Some(cause) } => {
            is_for_want_of_room(cause)
        }
        _ => error.errno() == Some(ENOSPC),
    }
}
