//! The token of a commit whose durability is awaited later.
//!
//! - D1: commits become durable in their order, so one token stands for all commits before it.
//! - D2: a token is no more than a position in the log: the log is forced for its commit whether or
//!   not the token is awaited, cloned or dropped.

mod number;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use terrace_page::Lsn;
use terrace_pool::{Mutation, Mutations};

use self::number::OwnNumber;
use crate::engine::Engine;
use crate::error::{Places, is_of_closing};
use crate::log::{Level, Log};
use crate::{Database, Error, WriteTransaction};

/// Tells when a commit, and every commit before it, is durable: a future, which is ready then.
///
/// [`WriteTransaction::commit_async`], [`Database::write_async`] and [`Database::durable`] return
/// one. Commits become durable in their order, so the last token of many stands for all of them:
/// [`Durable::later`] gives it. A token may be polled in any runtime, sent to another thread,
/// cloned, and kept after the database was closed.
///
/// The log's own task forces the log for such commits, a group at a time, beginning at once: it
/// does not wait for a token to be awaited. Dropping a token takes nothing back, and its commit
/// becomes durable as if it were there.
///
/// It is ready with `Failed` if the log could not be written, or with `Closed` if the database was
/// closed before the log was forced, by a checkpoint that failed or while the commit was under way:
/// whether the commit is durable is known after reopening. What was durable before stays `Ok`.
///
/// # Examples
///
/// ```
/// use terrace::{Database, Durable, TableDef};
///
/// const ORDERS: TableDef<u64, &str> = TableDef::new("orders");
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
/// # runtime.block_on(async {
/// # let db = terrace::doc_test::database();
/// let mut last = db.durable();
/// for number in 0..10 {
///     let ((), token) = db
///         .run(move |db| db.write_async(|txn| txn.open_table(ORDERS)?.insert(number, "new")))
///         .await?; // committed: others see it
///     last = last.later(token);
/// }
/// last.await?; // all ten are durable
/// # Ok::<(), terrace::Error>(())
/// # })?;
/// # Ok::<(), terrace::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "the commit may not be durable yet: await the token, or drop it with `drop`"]
pub struct Durable {
    log: Arc<Log>,
    /// For errors.
    places: Arc<Places>,
    at: Lsn,
    /// Stands for the waker that it has put down.
    number: OwnNumber,
    /// The process that it is of, and how many forks that is.
    process: (u32, u64),
    mutations: Mutations,
}

impl Durable {
    fn new(engine: &Engine, at: Lsn) -> Durable {
        let (log, places) = (Arc::clone(&engine.log), Arc::clone(&engine.places));
        Durable {
            log,
            places,
            at,
            number: OwnNumber::default(),
            process: engine.opened_by(),
            mutations: engine.pool.mutations(),
        }
    }

    /// Whether the commit is durable: it survives a power cut, if the log's device keeps what it
    /// has reported as synced. It never becomes false again.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.log.durable_end() >= self.at || self.mutations.has(Mutation::ReadyBeforeForce)
    }

    /// The one of the two that is ready last: it stands for both.
    ///
    /// # Panics
    ///
    /// If they are of different openings of databases.
    pub fn later(self, other: Durable) -> Durable {
        assert!(Arc::ptr_eq(&self.log, &other.log), "tokens of different databases");
        if self.at >= other.at { self } else { other }
    }

    /// Blocks the calling thread, or task of the engine, until the commit is durable.
    ///
    /// # Errors
    ///
    /// `Failed`, `Closed`, `Reentrant`; `Forked` in a fork of the process.
    pub fn wait(self) -> Result<(), Error> {
        if self.is_durable() {
            return Ok(());
        }
        self.check_process()?;
        if terrace_rt::in_callback() {
            return Err(Error::Reentrant);
        }
        self.log.force(self.at, Level::Durable).map_err(|error| self.told(error))
    }

    /// Whether this is no fork of the process that it is of: what the log has in memory in a fork
    /// is the parent's to write, and whoever held its mutexes is not there.
    fn check_process(&self) -> Result<(), Error> {
        let (pid, forks) = self.process;
        if forks == terrace_rt::forks() { Ok(()) } else { Err(Error::Forked { pid }) }
    }

    /// The error with its paths.
    fn told(&self, error: Error) -> Error {
        if is_of_closing(&error) { Error::Closed } else { self.places.explain(error) }
    }

    fn forget_waker(&mut self) {
        if let Some(number) = self.number.0.take()
            && self.check_process().is_ok()
        {
            self.log.forget_waker(self.at, number);
        }
    }
}

impl Future for Durable {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.is_durable() {
            return Poll::Ready(Ok(()));
        }
        self.check_process()?;
        let Durable { log, at, number, .. } = &mut *self;
        let ready = log.poll_durable(*at, &mut number.0, context);
        ready.map_err(|error| self.told(error))
    }
}

impl Drop for Durable {
    fn drop(&mut self) {
        self.forget_waker();
    }
}

impl fmt::Debug for Durable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_durable = self.is_durable();
        f.debug_struct("Durable").field("at", &self.at).field("is_durable", &is_durable).finish()
    }
}

impl WriteTransaction {
    /// Makes the changes permanent, and visible to others, without waiting for the log's device:
    /// the token that is returned tells when they are durable. The log's own task forces the log,
    /// beginning at once.
    ///
    /// Until the token is ready a power cut may undo the commit, together with all commits after
    /// it. See [`Database::run`] for use in asynchronous code: this call, and the operations of the
    /// transaction before it, may wait for locks, pages and space in the log.
    ///
    /// # Errors
    ///
    /// As [`WriteTransaction::commit`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use terrace::{Database, TableDef};
    /// # let db = terrace::doc_test::database();
    /// const STOCK: TableDef<&str, u32> = TableDef::new("stock");
    /// let txn = db.begin_write()?;
    /// txn.open_table(STOCK)?.insert("apples", 3)?;
    /// let token = txn.commit_async()?;
    /// assert!(db.read(|txn| txn.open_table(STOCK)?.contains("apples"))?);
    /// token.wait()?; // or `token.await?`
    /// # Ok::<(), terrace::Error>(())
    /// ```
    pub fn commit_async(self) -> Result<Durable, Error> {
        let engine = self.engine();
        let at = self.commit_visibly()?;
        engine.log.count_durable_commit();
        engine.want_durable(at);
        Ok(Durable::new(&engine, at))
    }
}

impl Database {
    /// As [`Database::write`], without waiting for the log's device: what `run` returned comes with
    /// a token that tells when the commit is durable, as that of
    /// [`WriteTransaction::commit_async`] does.
    ///
    /// # Errors
    ///
    /// As [`Database::write`].
    pub fn write_async<T, E: From<Error>>(
        &self,
        run: impl FnMut(&WriteTransaction) -> Result<T, E>,
    ) -> Result<(T, Durable), E> {
        self.write_and(run, WriteTransaction::commit_async)
    }

    /// A token for everything that is committed now: [`Database::flush`] as a future.
    pub fn durable(&self) -> Durable {
        let engine = self.engine();
        let at = engine.log.committed_end();
        if !engine.is_forked() {
            engine.want_durable(at);
        }
        Durable::new(engine, at)
    }
}
