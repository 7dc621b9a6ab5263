//! What both kinds of transaction are within: the context of their operations, and how they fail.
//!
//! - C1: an operation runs with the context borrowed; code of a caller that asks for another one
//!   within it is refused.
//! - C2: an operation that fails with more than a complaint about its arguments dooms the
//!   transaction: it may have been done in part, and can only be rolled back.

use std::cell::{Cell, OnceCell, RefCell};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_rt::Nanos;

use super::emptied::Emptied;
use crate::btree::{Batch, Tree};
use crate::context::{Buffers, Context};
use crate::engine::Engine;
use crate::reclaim::HeldUp;
use crate::share::Share;
use crate::writer::Step;
use crate::{Error, TransactionId};

/// What both kinds of transaction are within.
pub struct Core {
    pub(super) context: RefCell<Context>,
    /// The failure that dooms it.
    pub(super) doomed: OnceCell<Arc<Error>>,
    /// It stays in its task or thread, so that a wait for another one of the same is seen.
    stays: PhantomData<*const ()>,
    /// Why to run it again, if an operation said so.
    again: Cell<Again>,
    /// Loads that were begun and not finished.
    loads: Cell<u32>,
    /// Whether it took names away from tables: those that it has open may be gone.
    pub(super) has_unnamed: Cell<bool>,
    /// What it has emptied, for its searches.
    pub(super) emptied: RefCell<Emptied>,
}

/// Keeps `Transaction` to the two kinds that there are.
pub trait Sealed {
    /// What the transaction is within.
    fn core(&self) -> &Core;
}

/// Whether a transaction gave way to others, so that it is to be run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    /// It did not.
    No,
    /// It met a conflict.
    Conflict,
    /// It was open for so long that the log was full.
    HeldLog,
    /// There was no frame of memory for it.
    NoFrame,
    /// Home was full, and space was held up.
    HomeFull(HeldUp),
}

/// A transaction that meets this many conflicts in a row gives up.
const RUNS_MAX: u32 = 1000;
/// One that held a full log as often as this is too slow for it.
const RUNS_HOLDING_LOG: u32 = 5;
/// One that finds no frame as often as this may need more than there are.
const RUNS_WITHOUT_FRAME: u32 = 100;
/// One that finds home full as often as this takes space as fast as others free it.
const RUNS_WITHOUT_SPACE: u32 = 10;
/// From the next run on it pauses first, longer each time.
const RUNS_WITHOUT_PAUSE: u32 = 3;
const PAUSE: Nanos = Nanos::from_micros(50);
/// As a pause, long enough that others end with the frames that there are.
const PAUSE_WITHOUT_FRAME: Nanos = Nanos::from_millis(20);
/// The most such pauses in a row.
const PAUSES_MAX: u64 = 40;
/// Batches that a transaction keeps for later scans.
const BATCHES_KEPT: usize = 4;
/// Bytes of the largest of them.
const BATCH_BYTES_KEPT: usize = 64 << 10;

#[cold]
fn doomed(cause: &Arc<Error>) -> Error {
    Error::Doomed { cause: Some(Arc::clone(cause)) }
}

/// Whether an error complains of the arguments only, and leaves the transaction as it was.
fn is_harmless(error: &Error) -> bool {
    matches!(
        error,
        Error::KeyTooLong { .. }
            | Error::ValueTooLong { .. }
            | Error::TableTypes { .. }
            | Error::TableSchema { .. }
            | Error::DamagedSchema { .. }
            | Error::NoSuchTable { .. }
            | Error::TableExists { .. }
            | Error::NotAscending { .. }
            | Error::NotEmpty { .. }
            | Error::Savepoint { .. }
            | Error::Reentrant
    )
}

/// What comes before a transaction that gave way is run again.
pub(crate) struct Before {
    pause: Nanos,
    why: Again,
}

impl Before {
    /// Waits for those that it gave way to. Call it with the transaction ended, whose first run
    /// began at the instant `began`. Whether it may succeed now.
    pub(super) fn wait(self, engine: &Engine, began: Nanos) -> bool {
        if self.pause > Nanos::ZERO {
            terrace_rt::sleep(self.pause);
        }
        let limit = engine.lock_limits.timeout;
        match self.why {
            Again::HeldLog => engine.wait_for_others(limit),
            Again::NoFrame => engine.frame_room.wait_for_rollbacks(limit),
            Again::HomeFull(held_up) => {
                let until = began.saturating_add(limit);
                return terrace_rt::now() < until && engine.reclaim.has_freed_since(held_up, until);
            }
            Again::No | Again::Conflict => {}
        }
        true
    }
}

impl Core {
    #[inline]
    pub(super) fn begin(engine: &Arc<Share<Engine>>) -> Result<Core, Error> {
        engine.check_running()?;
        engine.check_beginning()?;
        Ok(Core::new(Context::begin_in_task(engine, terrace_rt::task_id())?))
    }

    /// A transaction that reads, through a snapshot if there can be one.
    #[inline]
    pub(super) fn begin_read(engine: &Arc<Share<Engine>>) -> Result<Core, Error> {
        engine.check_beginning()?;
        engine.check_running()?;
        Ok(Core::new(Context::begin_snapshot(engine, terrace_rt::task_id())?))
    }

    #[inline]
    fn new(context: Context) -> Core {
        Core {
            context: RefCell::new(context),
            doomed: OnceCell::new(),
            stays: PhantomData,
            again: Cell::new(Again::No),
            loads: Cell::new(0),
            has_unnamed: Cell::new(false),
            emptied: RefCell::default(),
        }
    }

    /// What to wait for before it is run again, after `runs` runs, if it is to be.
    pub(super) fn run_again(&self, runs: u32) -> Option<Before> {
        let why = self.again.get();
        let (runs_max, runs_without, pause) = match why {
            Again::No => return None,
            Again::Conflict => (RUNS_MAX, RUNS_WITHOUT_PAUSE, PAUSE),
            Again::HeldLog => (RUNS_HOLDING_LOG, RUNS_WITHOUT_PAUSE, PAUSE),
            Again::NoFrame => (RUNS_WITHOUT_FRAME, 0, PAUSE_WITHOUT_FRAME),
            Again::HomeFull(_) => (RUNS_WITHOUT_SPACE, RUNS_WITHOUT_PAUSE, PAUSE),
        };
        let pauses = if runs > runs_without { u64::from(runs).min(PAUSES_MAX) } else { 0 };
        (runs < runs_max).then(|| Before { pause: pause * pauses, why })
    }

    /// What users call it.
    pub(super) fn id(&self) -> TransactionId {
        self.context.borrow().id()
    }

    /// A table is being loaded: no commit until `end_load`.
    pub(crate) fn begin_load(&self) {
        self.loads.set(self.loads.get() + 1);
    }

    /// The table is loaded.
    pub(crate) fn end_load(&self) {
        self.loads.set(self.loads.get() - 1);
    }

    /// # Errors
    ///
    /// `UnfinishedLoad` if a table is being loaded.
    pub(super) fn check_loads(&self) -> Result<(), Error> {
        if self.loads.get() > 0 { Err(Error::UnfinishedLoad) } else { Ok(()) }
    }

    /// Whether the table that was opened as `name` still is one, for this transaction.
    ///
    /// # Errors
    ///
    /// `NoSuchTable`.
    #[inline]
    pub(crate) fn check_table(&self, tree: &Tree, name: &str) -> Result<(), Error> {
        if self.has_unnamed.get() { self.look_for_table(tree, name) } else { Ok(()) }
    }

    #[cold]
    fn look_for_table(&self, tree: &Tree, name: &str) -> Result<(), Error> {
        let context = self.context.try_borrow().map_err(|_| Error::Reentrant)?;
        match context.engine().trees.name_of(tree.id()) {
            Some(_) => Ok(()),
            None => Err(Error::NoSuchTable { name: name.into() }),
        }
    }

    /// Memory for an encoded key.
    pub(crate) fn take_key(&self) -> Vec<u8> {
        self.take(|buffers| &mut buffers.key)
    }

    /// One of the buffers, or a new one within another operation, which will be refused.
    fn take<T: Default>(&self, which: impl FnOnce(&mut Buffers) -> &mut T) -> T {
        match self.context.try_borrow_mut() {
            Ok(mut context) => std::mem::take(which(context.buffers())),
            Err(_) => T::default(),
        }
    }

    /// Memory for an encoded value.
    pub(crate) fn take_value(&self) -> Vec<u8> {
        self.take(|buffers| &mut buffers.value)
    }

    /// Takes back what `take_key` gave, and what `take_value` gave if it was asked.
    pub(crate) fn keep_encoded(&self, key: Vec<u8>, value: Vec<u8>) {
        // Not within another operation, nor while one that has it panics.
        let Ok(mut context) = self.context.try_borrow_mut() else { return };
        let buffers = context.buffers();
        buffers.key = key;
        if value.capacity() > 0 {
            buffers.value = value;
        }
    }

    /// Memory for the entries of a scan.
    pub(crate) fn take_batch(&self) -> Arc<Batch> {
        match self.context.try_borrow_mut() {
            Ok(mut context) => context.buffers().batches.pop().unwrap_or_default(),
            Err(_) => Arc::default(),
        }
    }

    /// Takes back what `take_batch` gave, if no entry shares it.
    pub(crate) fn keep_batch(&self, mut batch: Arc<Batch>) {
        let Ok(mut context) = self.context.try_borrow_mut() else { return };
        let batches = &mut context.buffers().batches;
        let is_small = batch.bytes() <= BATCH_BYTES_KEPT;
        if batches.len() < BATCHES_KEPT && is_small && Arc::get_mut(&mut batch).is_some() {
            batches.push(batch);
        }
    }

    /// Runs `work`; an error of more than the arguments dooms the transaction.
    pub(crate) fn run<T>(
        &self,
        work: impl FnOnce(&mut Context) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut context = self.context.try_borrow_mut().map_err(|_| Error::Reentrant)?;
        context.engine().check_running()?;
        if let Err(ended) = context.check_snapshot() {
            return Err(context.engine().explain(ended));
        }
        self.check_doomed()?;
        let worked = work(&mut context);
        // What an ended snapshot has read may be of any moment.
        let worked = context.check_snapshot().and(worked);
        // Locks of transactions that could not be rolled back go once the engine has stopped: what
        // was read under such a lock must not be shown, nor taken for damage.
        if worked.is_ok() && context.engine().is_running() {
            return worked;
        }
        let worked = match worked {
            Ok(_) | Err(Error::Corrupt { .. }) => context.engine().check_running().and(worked),
            other => other,
        };
        drop(context);
        worked.map_err(|error| self.failed(error))
    }

    /// # Errors
    ///
    /// `Doomed` if an operation failed before.
    pub(super) fn check_doomed(&self) -> Result<(), Error> {
        match self.doomed.get() {
            Some(cause) => Err(doomed(cause)),
            None => Ok(()),
        }
    }

    /// An operation failed: the transaction is doomed unless the error is harmless.
    #[cold]
    fn failed(&self, error: Error) -> Error {
        let error = self.context.borrow().first_cause(error);
        let error = self.explain(self.held_up(error));
        if !is_harmless(&error) {
            self.doomed.get_or_init(|| Arc::new(error.clone()));
        }
        if matches!(error, Error::Conflict) && self.again.replace(Again::Conflict) == Again::No {
            let context = self.context.borrow();
            context.engine().tally.conflicts.fetch_add(1, Ordering::Relaxed);
        }
        if matches!(error, Error::HoldsLog { .. }) && self.again.get() == Again::No {
            self.again.set(Again::HeldLog);
        }
        if matches!(error, Error::AllPinned) && self.again.get() == Again::No {
            self.again.set(Again::NoFrame);
        }
        error
    }

    /// A full home with whether space is held up, and the transaction to be run again if it is.
    fn held_up(&self, error: Error) -> Error {
        let Error::HomeFull { path, .. } = error else { return error };
        let held_up = self.context.borrow().space_held_up();
        if let (Some(held_up), Again::No) = (held_up, self.again.get()) {
            self.again.set(Again::HomeFull(held_up));
        }
        Error::HomeFull { path, is_held_up: held_up.is_some() }
    }

    /// The error with its names and paths.
    pub(crate) fn explain(&self, error: Error) -> Error {
        match self.context.try_borrow() {
            Ok(context) => context.engine().explain(error),
            // Within another operation: it goes without names.
            Err(_) => error,
        }
    }

    /// Checks that bytes of `tree` were decoded.
    #[inline]
    pub(crate) fn check_decoded<V>(
        &self,
        decoded: Option<V>,
        tree: &Tree,
        type_name: &'static str,
    ) -> Result<(), Error> {
        if decoded.is_some() { Ok(()) } else { Err(self.undecodable(tree, type_name)) }
    }

    /// The error for bytes of `tree` that are no value of a type.
    #[cold]
    pub(crate) fn undecodable(&self, tree: &Tree, type_name: &'static str) -> Error {
        self.explain(Error::Undecodable { table: tree.id().into(), type_name })
    }

    /// Runs an operation that reads, again after each lock that it has to wait for.
    pub(crate) fn read<T>(
        &self,
        mut work: impl FnMut(&mut Context) -> Result<Step<T>, Error>,
    ) -> Result<T, Error> {
        self.run(|context| {
            loop {
                match work(context)? {
                    Step::Done(value) => return Ok(value),
                    Step::Wait(request) => context.wait_for(request)?,
                }
            }
        })
    }

    /// Runs an operation that changes a key and value of `bytes`.
    pub(crate) fn change<T>(
        &self,
        bytes: usize,
        mut work: impl FnMut(&mut Context) -> Result<Step<T>, Error>,
    ) -> Result<T, Error> {
        self.run(|context| {
            context.begin_operation(bytes)?;
            let done = with_locks(context, &mut work);
            context.end_operation();
            done
        })
    }

    /// As `change`, of an operation that may be called again after `HomeFull`, as long as it has
    /// changed no row: it waits for space that is being freed.
    pub(crate) fn change_with_space<T>(
        &self,
        bytes: usize,
        mut work: impl FnMut(&mut Context) -> Result<Step<T>, Error>,
    ) -> Result<T, Error> {
        self.run(|context| context.with_space(bytes, |context| with_locks(context, &mut work)))
    }
}

/// Calls `work` again after each lock that it has to wait for.
fn with_locks<T>(
    context: &mut Context,
    work: &mut impl FnMut(&mut Context) -> Result<Step<T>, Error>,
) -> Result<T, Error> {
    loop {
        match work(context)? {
            Step::Done(value) => return Ok(value),
            Step::Wait(request) => context.wait_for(request)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use terrace_page::PageId;
    use terrace_rt::{Virtual, VirtualConfig};

    use super::*;
    use crate::Part;

    /// A reader met a row that a rollback had left half undone when it stopped the engine, and
    /// reported a damaged page.
    #[test]
    fn what_a_reader_meets_after_a_stop_is_no_damage() {
        let world = Virtual::new(VirtualConfig::default());
        let work = || {
            let db = crate::doc_test::database();
            let engine = db.begin_read().expect("open").core().context.borrow().engine().clone();
            let engine = Share::new(engine);
            let met = || Error::corrupt(Part::Home, PageId(145), "a large value ends early");
            let core = Core::begin(&engine).expect("open");
            let damaged: Result<(), Error> = core.run(|_| Err(met()));
            assert!(matches!(damaged, Err(Error::Corrupt { .. })), "{damaged:?}");
            drop(core);
            let core = Core::begin(&engine).expect("open");
            let stopped: Result<(), Error> = core.run(|context| {
                context.engine().log.fail(Error::HOME_FULL);
                Err(met())
            });
            let Err(Error::Failed { cause: Some(cause) }) = stopped else { panic!("{stopped:?}") };
            assert!(matches!(*cause, Error::HomeFull { .. }), "{cause:?}");
        };
        world.run(work).expect("nobody waits for ever");
    }
}
