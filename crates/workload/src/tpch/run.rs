//! Loads the database once and runs the queries on it, in a world of its own for each run.

use std::convert::Infallible;
use std::sync::Arc;

use terrace::Database;
use terrace_page::PAGE_SIZE;
use terrace_policy::Design;
use terrace_rt::{Nanos, now, sleep};
use terrace_trace::tpch::{Answer, Answers, Computed, Query, Shape};

use super::Config;
use super::loading::{self, TablePages};
use super::steps::Reads;
use crate::Error;
use crate::clients::Consistency;
use crate::sampling::{Averages, Committed, Sampler, Window, home_pages};
use crate::system::{Stores, System};

/// A loaded database: cheap to clone, and each run starts from its own copy.
#[derive(Clone)]
pub struct Loaded {
    stores: Stores,
    config: Config,
    /// Pages in use at home.
    pub home_pages: u64,
    table_pages: TablePages,
    /// What the queries must answer.
    expected: Arc<Vec<Answer>>,
}

/// A query that was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Which, and over which range.
    pub query: Query,
    /// How long it took.
    pub elapsed: Nanos,
    /// Rows and entries of the index that were read.
    pub rows_read: u64,
    /// Rows that the answer is of.
    pub rows_answered: u64,
    /// Pages that it asked for.
    pub references: u64,
    /// Pages that it asked for and memory lacked.
    pub misses: u64,
}

/// What a run found.
#[derive(Clone, Debug)]
pub struct TpchResult {
    /// Name of the design.
    pub design: &'static str,
    /// The queries in their order.
    pub queries: Vec<Answered>,
    /// All of the run.
    pub whole: Averages,
    /// Whether every answer was right.
    pub consistency: Consistency,
}

impl TpchResult {
    /// From the first query's beginning to the last one's answer.
    #[must_use]
    pub fn elapsed(&self) -> Nanos {
        self.whole.span
    }
}

/// Loads the database of `config`, to be run on `system`.
///
/// # Errors
///
/// Those of the engine; devices that are not known.
pub fn load(
    config: &Config,
    system: &System,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Loaded, Error> {
    // The recording is not told of the load.
    let system = System { recording: None, ..system.clone() };
    let fill = |db: Database| {
        let table_pages = loading::populate(&db, &config.rows, config.workload, progress)?;
        let home_pages = home_pages(&db.stats());
        db.close()?;
        Ok((home_pages, table_pages))
    };
    let ((home_pages, table_pages), stores) =
        Stores::load(&system, config.seed, config.home_bytes(), fill)?;
    let (expected, config) = (Arc::new(answers(config)), config.clone());
    Ok(Loaded { stores, config, home_pages, table_pages, expected })
}

/// The answers to all queries, without a database.
fn answers(config: &Config) -> Vec<Answer> {
    let shape = Shape::new(&config.rows.sizes, PAGE_SIZE as u64);
    let computed = |query: &Query| {
        let mut steps = Computed::new(&shape, &config.rows, Answers::Wanted);
        let Ok::<_, Infallible>(answer) = query.run(&mut steps);
        answer
    };
    config.queries.iter().map(computed).collect()
}

impl Loaded {
    /// The same, but what the queries must answer is what they must on `other`: for tests of the
    /// comparison.
    #[doc(hidden)]
    #[must_use]
    pub fn expecting(self, other: &Loaded) -> Loaded {
        Loaded { expected: Arc::clone(&other.expected), ..self }
    }
}

/// Runs the queries, one after the other, with `design` on a copy of `loaded`. Blocks, and uses
/// this thread only. `progress` is called with the time that has passed and how many queries were
/// answered.
///
/// # Errors
///
/// Whatever stops the engine; a wrong answer is no error but a result.
pub fn run(
    loaded: &Loaded,
    system: &System,
    design: Design,
    progress: &mut dyn FnMut(Nanos, usize),
) -> Result<TpchResult, Error> {
    let world = system.world(loaded.config.seed);
    let devices = loaded.stores.devices(system, design, &world.world())?.devices();
    let (result, db) = world.run(|| {
        let db = system.builder(design, world.world()).devices(devices).open_on_devices()?;
        system.begin_recording();
        let result = run_all(&db, loaded, design, progress)?;
        system.end_recording();
        Ok::<_, Error>((result, db))
    })??;
    // Nothing was written that is read again: the power is cut.
    world.cut_at_event(world.world().events());
    let _ = world.run(|| sleep(Nanos::from_secs(1)));
    drop(db);
    Ok(result)
}

fn run_all(
    db: &Database,
    loaded: &Loaded,
    design: Design,
    progress: &mut dyn FnMut(Nanos, usize),
) -> Result<TpchResult, Error> {
    // Reads the map of home: before the span begins.
    let mut before = db.stats().pool;
    let mut sampler = Sampler::new(db);
    let mut queries: Vec<Answered> = Vec::new();
    let mut wrong = Vec::new();
    for (query, expected) in loaded.config.queries.iter().zip(&*loaded.expected) {
        let begun = now();
        let (answer, rows_read) = answer(db, loaded, query)?;
        if answer != *expected {
            wrong.push(format!("wrong answer to {:?} over {:?}", query.name, query.range));
        }
        let done = queries.len() as u64 + 1;
        let committed = Committed { counted: done, transactions: done };
        let Window { pool, end, .. } = sampler.end_window(db, committed).0;
        let misses = pool.misses - before.misses;
        queries.push(Answered {
            query: query.clone(),
            elapsed: now() - begun,
            rows_read,
            rows_answered: answer.rows(),
            references: misses + pool.hits - before.hits,
            misses,
        });
        before = pool;
        progress(end, queries.len());
    }
    let whole = Averages::of_last(sampler.windows(), queries.len());
    let consistency = if wrong.is_empty() { Consistency::Ok } else { Consistency::Broken(wrong) };
    Ok(TpchResult { design: design.name, queries, whole, consistency })
}

/// The answer to a query, and how many rows were read for it.
fn answer(db: &Database, loaded: &Loaded, query: &Query) -> Result<(Answer, u64), Error> {
    let txn = db.begin_read()?;
    let (rows, pages) = (&loaded.config.rows, &loaded.table_pages);
    let mut reads = Reads { txn: &txn, rows, pages, read: 0 };
    let answer = query.run(&mut reads)?;
    Ok((answer, reads.read))
}
