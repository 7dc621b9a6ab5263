//! One life of a tortured database, in a process of its own: opens it, holds it against the
//! ledger, and lets threads change it until the process is killed or its time is over.
//!
//! What it finds it says in one line of standard output each, which the parent reads:
//!
//! ```text
//! opened        it is open
//! verified      its rows are what the ledger allows
//! alive N       N transactions so far
//! wrong TEXT    rows are missing, or not what they must be      exit 11
//! hang TEXT     no transaction ended for a long time            exit 12
//! refused TEXT  opening told an error                           exit 10
//! told TEXT     checking, reading or writing told an error      exit 13
//! ```

use super::ledger::{self, Ledger};
use super::model::{self, CLIENTS, Flaw};
use crate::command::Life;
use std::path::Path;
use std::process::exit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use terrace::{Checkpoints, Database, Durability, Error, FlashRole, Nanos};
use terrace_rt::Prng;

/// Exit status: opening told an error.
pub const REFUSED: i32 = 10;
/// Rows are wrong.
pub const WRONG: i32 = 11;
/// Nothing happens any more.
pub const HANGS: i32 = 12;
/// The engine told an error.
pub const TOLD: i32 = 13;

const STANDSTILL: Duration = Duration::from_secs(8);
const SAY_EVERY: Duration = Duration::from_millis(20);
/// One in so many commits is durable, the others are not forced.
const DURABLE_ONE_IN: u64 = 3;
const MEMORY: u64 = 512 << 10;
const HOME_BYTES: u64 = 16 << 20;
const LOG_BYTES: u64 = 2 << 20;
const FLASH_BYTES: u64 = 1 << 20;

/// Lives; does not return if anything is wrong.
pub fn live(life: &Life) {
    let db = match open(life) {
        Ok(db) => db,
        Err(error) => end("refused", &error.to_string(), REFUSED),
    };
    println!("opened");
    let numbers = match model::check(&db) {
        Ok(numbers) => numbers,
        Err(Flaw::Told(error)) => end("told", &error.to_string(), TOLD),
        Err(Flaw::Wrong(what)) => end("wrong", &what, WRONG),
    };
    let known = ledger::known(&life.folder).unwrap_or_else(|it| end("told", &it.to_string(), TOLD));
    for (client, (number, known)) in numbers.iter().zip(known).enumerate() {
        if *number < known.durable || *number > known.begun {
            let what = format!("client {client} is at {number}, and its ledger says {known:?}");
            end("wrong", &what, WRONG);
        }
    }
    println!("verified");
    if life.runs_ms > 0 {
        run(life, &db, numbers);
    }
    if let Err(error) = db.close() {
        end("told", &error.to_string(), TOLD);
    }
}

fn end(what: &str, text: &str, status: i32) -> ! {
    println!("{what} {}", text.replace('\n', " | "));
    exit(status)
}

fn open(life: &Life) -> Result<Database, Error> {
    let role = if life.persistent_flash { FlashRole::Persistent } else { FlashRole::Cache };
    let builder = Database::builder()
        .memory(MEMORY)
        .home_size(HOME_BYTES)
        .log_size(LOG_BYTES)
        .flash(life.folder.join("flash"), FLASH_BYTES)
        .design(life.design)
        .restart(life.restart)
        .flash_role(role)
        .checkpoints(Checkpoints::Every(Nanos::from_millis(30)));
    let path = life.folder.join("db");
    if life.is_first { builder.open_or_create(path) } else { builder.open(path) }
}

/// Runs the clients, and watches over them.
fn run(life: &Life, db: &Database, numbers: [u64; CLIENTS as usize]) {
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|threads| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (is_over, done) = (&is_over, &done);
                let number = numbers[client as usize];
                threads.spawn(move || run_client(life, db, client, number, is_over, done))
            })
            .collect();
        let (begun, mut last, mut since) = (Instant::now(), 0, Instant::now());
        while clients.iter().any(|client| !client.is_finished()) {
            thread::sleep(SAY_EVERY);
            let now = done.load(Ordering::Relaxed);
            println!("alive {now}");
            if now != last {
                (last, since) = (now, Instant::now());
            }
            if since.elapsed() > STANDSTILL {
                end("hang", &db.debug_waits(), HANGS);
            }
            if begun.elapsed() > Duration::from_millis(life.runs_ms) {
                is_over.store(true, Ordering::Relaxed);
            }
        }
    });
}

fn run_client(
    life: &Life,
    db: &Database,
    client: u64,
    mut number: u64,
    is_over: &AtomicBool,
    done: &AtomicU64,
) {
    let mut prng = Prng::from_seed(life.seed.wrapping_mul(31) ^ client);
    let mut ledger = ledger_of(&life.folder, client);
    while !is_over.load(Ordering::Relaxed) {
        number += 1;
        let failed = |error: std::io::Error| end("told", &error.to_string(), TOLD);
        ledger.begins(number).unwrap_or_else(failed);
        let is_durable = prng.below(DURABLE_ONE_IN) == 0;
        let durability = if is_durable { Durability::Durable } else { Durability::None };
        loop {
            match model::transact(db, client, number, &mut prng, durability) {
                Ok(()) => break,
                Err(Error::Conflict | Error::LogFull { .. } | Error::LogHeld { .. }) => (),
                Err(error) => end("told", &error.to_string(), TOLD),
            }
        }
        if is_durable {
            ledger.is_durable(number).unwrap_or_else(failed);
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
}

fn ledger_of(folder: &Path, client: u64) -> Ledger {
    Ledger::open(folder, client).unwrap_or_else(|error| end("told", &error.to_string(), TOLD))
}
