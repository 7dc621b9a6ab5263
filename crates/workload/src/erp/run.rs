//! Loads a database once and runs streams on it, in a world of its own for each run.

use std::sync::Arc;

use terrace::{Database, PageId};
use terrace_policy::Design;
use terrace_rt::{LeafMutex, Nanos, Prng, Task, World, now, sleep};

use super::queries::{Answer, Fetch, QUERIES};
use super::touched::Touched;
use super::{Config, loading, naive};
use crate::Error;
use crate::clients::Consistency;
use crate::sampling::{Averages, Committed, Sampler, Window, home_pages};
use crate::system::{Stores, System};

/// A loaded database: cheap to clone, and each run starts from its own copy.
#[derive(Clone)]
pub struct Loaded {
    stores: Stores,
    /// Pages in use at home, of tables and of indexes.
    pub home_pages: u64,
    /// Of them, those of indexes.
    pub index_pages: u64,
    /// Indexes begin at this page, and nothing else comes after it.
    first_index_page: PageId,
    /// The page after the last.
    end_page: PageId,
    /// What the queries must answer.
    expected: Arc<Vec<Answer>>,
}

/// Where the indexes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexes {
    /// At home, as all else is.
    AtHome,
    /// On the flash device, for good: the hottest ones, up to its size.
    OnFlash,
}

/// All that decides a run but its database and its design.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What it runs on.
    pub system: System,
    /// Decides the orders of the queries.
    pub seed: u64,
    /// Streams at once.
    pub streams: u32,
    /// Counters are sampled in windows of this length.
    pub window: Nanos,
    /// Where the indexes are.
    pub indexes: Indexes,
    /// In which order facts are fetched.
    pub fetch: Fetch,
}

/// One stream: each query once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamResult {
    /// From the beginning to its last answer.
    pub elapsed: Nanos,
    /// Queries by their places in `QUERIES`, in the order in which it ran them, and how long each
    /// took.
    pub queries: Vec<(usize, Nanos)>,
}

/// Pages that memory lacked, whichever tier had them, read ahead or requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fetches {
    /// Of facts and dimensions.
    pub of_tables: u64,
    /// Of indexes.
    pub of_indexes: u64,
}

/// What a run found.
#[derive(Clone, Debug)]
pub struct ErpResult {
    /// Name of the design.
    pub design: &'static str,
    /// The streams.
    pub streams: Vec<StreamResult>,
    /// All windows; the last is over when no stream runs.
    pub windows: Vec<Window>,
    /// All of the run.
    pub whole: Averages,
    /// Its last quarter.
    pub last_quarter: Averages,
    /// Pages that were asked for.
    pub touched_pages: u64,
    /// Pages that memory lacked.
    pub fetches: Fetches,
    /// Pages of indexes that were on flash for good.
    pub placed_pages: u64,
    /// Whether every answer was right.
    pub consistency: Consistency,
}

impl ErpResult {
    /// The time of the slowest stream, which is the run's [S4 5.1].
    pub fn elapsed(&self) -> Nanos {
        self.streams.iter().map(|stream| stream.elapsed).max().unwrap_or_default()
    }

    /// Pages written to flash per second in the first and in the last quarter of the run.
    pub fn flash_writes_per_s(&self) -> [f64; 2] {
        let written = |window: &Window| window.pool.flash_writes;
        let Some(last) = self.windows.last() else { return [0.0; 2] };
        let at = |share: f64| {
            let end = Nanos::from_secs_f64(last.end.as_secs_f64() * share);
            let before = self.windows.iter().rfind(|window| window.end <= end);
            before.map_or((0.0, 0), |window| (window.end.as_secs_f64(), written(window)))
        };
        [(0.0, 0.25), (0.75, 1.0)].map(|(from, to)| {
            let ((start, before), (end, after)) = (at(from), at(to));
            if end > start { (after - before) as f64 / (end - start) } else { 0.0 }
        })
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
    let touched = Arc::new(Touched::new(PageId(u64::MAX), None));
    let system = System { recording: Some(touched.clone()), ..system.clone() };
    let fill = |db: Database| {
        loading::populate_tables(&db, config, progress)?;
        let (tables, first_index_page) = (home_pages(&db.stats()), touched.end());
        loading::populate_indexes(&db, config, progress)?;
        let pages = home_pages(&db.stats());
        db.close()?;
        Ok((pages, pages - tables, first_index_page))
    };
    let ((home_pages, index_pages, first_index_page), stores) =
        Stores::load(&system, config.seed, loading::home_bytes(config), fill)?;
    let expected = Arc::new(naive::answers(config));
    let end_page = touched.end();
    Ok(Loaded { stores, home_pages, index_pages, first_index_page, end_page, expected })
}

impl Loaded {
    /// Where the part of home begins that fits on `pages` of flash, if indexes are put there.
    fn placed_from(&self, pages: u32) -> PageId {
        let fits = self.end_page.0.saturating_sub(u64::from(pages));
        self.first_index_page.max(PageId(fits))
    }

    /// The same, but what the queries must answer is what they must on `other`: for tests of the
    /// comparison.
    #[doc(hidden)]
    #[must_use]
    pub fn expecting(self, other: &Loaded) -> Loaded {
        Loaded { expected: Arc::clone(&other.expected), ..self }
    }
}

/// Runs `plan` with `design` on a copy of `loaded`. Blocks, and uses this thread only. `progress`
/// is called with the time that has passed and the share of the queries that was answered.
///
/// # Errors
///
/// Whatever stops the engine or a stream; a wrong answer is no error but a result.
pub fn run(
    loaded: &Loaded,
    plan: &Plan,
    design: Design,
    progress: &mut dyn FnMut(Nanos, f64),
) -> Result<ErpResult, Error> {
    let also = plan.system.recording.clone();
    let touched = Arc::new(Touched::new(loaded.first_index_page, also));
    let mut system = System { recording: Some(touched.clone()), ..plan.system.clone() };
    if plan.indexes == Indexes::OnFlash {
        system.home_on_flash_from = Some(loaded.placed_from(system.flash_pages));
    }
    let world = system.world(plan.seed);
    let devices = loaded.stores.devices(&system, design, &world.world())?.devices();
    let (streams, windows, db) = world.run(|| {
        let db = system.builder(design, world.world()).devices(devices).open_on_devices()?;
        system.begin_recording();
        let (streams, windows) = watch(&db, loaded, plan, &world.world(), progress)?;
        system.end_recording();
        Ok::<_, Error>((streams, windows, db))
    })??;
    // Nothing was written that is read again: the power is cut.
    world.cut_at_event(world.world().events());
    let _ = world.run(|| sleep(Nanos::from_secs(1)));
    drop(db);
    let wrong = streams.iter().find_map(|stream| stream.wrong.clone());
    let placed = system.home_on_flash_from.map_or(0, |from| loaded.end_page.0 - from.0);
    Ok(ErpResult {
        design: design.name,
        streams: streams.into_iter().map(|stream| stream.result).collect(),
        whole: Averages::of_last(&windows, windows.len()),
        last_quarter: Averages::of_last(&windows, windows.len().div_ceil(4)),
        windows,
        touched_pages: touched.pages(),
        fetches: touched.fetches(),
        placed_pages: placed,
        consistency: wrong.map_or(Consistency::Ok, |wrong| Consistency::Broken(vec![wrong])),
    })
}

/// What a stream has done so far.
#[derive(Default)]
struct Progressed {
    result: StreamResult,
    /// Its first wrong answer, in words.
    wrong: Option<String>,
    failure: Option<Error>,
    is_done: bool,
}

/// Starts the streams and samples until all are done.
fn watch(
    db: &Database,
    loaded: &Loaded,
    plan: &Plan,
    world: &World,
    progress: &mut dyn FnMut(Nanos, f64),
) -> Result<(Vec<Progressed>, Vec<Window>), Error> {
    let none = (0..plan.streams).map(|_| Progressed::default()).collect();
    let all: Arc<LeafMutex<Vec<Progressed>>> = Arc::new(LeafMutex::new(none));
    let mut prng = Prng::from_seed(plan.seed ^ 0x0E_2B57);
    let begun = now();
    let start = |number: usize| {
        let mut order: Vec<usize> = (0..QUERIES.len()).collect();
        prng.fork().shuffle(&mut order);
        let (db, all, expected) = (db.clone(), Arc::clone(&all), Arc::clone(&loaded.expected));
        let run = Stream { db, order, expected, fetch: plan.fetch, number, begun };
        world.spawn("stream", move || run.run(&all))
    };
    let tasks: Vec<Task> = (0..plan.streams as usize).map(start).collect();
    let mut sampler = Sampler::new(db);
    loop {
        sampler.sleep_until(sampler.elapsed() + plan.window);
        let (answered, is_done) = {
            let all = all.lock();
            let answered: usize = all.iter().map(|stream| stream.result.queries.len()).sum();
            (answered as u64, all.iter().all(|stream| stream.is_done))
        };
        let committed = Committed { counted: answered, transactions: answered };
        let (window, _) = sampler.end_window(db, committed);
        let wanted = plan.streams as usize * QUERIES.len();
        progress(window.end, answered as f64 / wanted as f64);
        if is_done {
            break;
        }
    }
    tasks.into_iter().for_each(Task::join);
    let mut all = std::mem::take(&mut *all.lock());
    match all.iter_mut().find_map(|stream| stream.failure.take()) {
        Some(failure) => Err(failure),
        None => Ok((all, sampler.into_windows())),
    }
}

/// A stream: runs each query once.
struct Stream {
    db: Database,
    order: Vec<usize>,
    expected: Arc<Vec<Answer>>,
    fetch: Fetch,
    number: usize,
    begun: Nanos,
}

impl Stream {
    fn run(&self, all: &LeafMutex<Vec<Progressed>>) {
        for &at in &self.order {
            let before = now();
            let answer = QUERIES[at].run(&self.db, self.fetch);
            let mut all = all.lock();
            let mine = &mut all[self.number];
            match answer {
                Ok(answer) if answer != self.expected[at] => {
                    let name = QUERIES[at].name;
                    let what = || format!("stream {}: wrong answer to {name:?}", self.number);
                    mine.wrong.get_or_insert_with(what);
                }
                Ok(_) => {}
                Err(error) => {
                    mine.failure = Some(error);
                    break;
                }
            }
            mine.result.queries.push((at, now() - before));
            mine.result.elapsed = now() - self.begun;
        }
        all.lock()[self.number].is_done = true;
    }
}
