//! Closures that run on threads of the engine, each with a future for its caller.
//!
//! ```text
//!             polled: a turn is free              the closure has ended
//!   Waiting --------------------------> Running ------------------------> Answered -> Taken
//!      | dropped: never runs               | dropped: runs to its end, nobody is told
//! ```
//!
//! - R1: a closure begins only within `poll`, and only with a turn (`turns`). So what waits to
//!   begin is in its future, and the engine holds no more than there are turns.
//! - R2: one that has begun goes on to its end, whatever becomes of its future.
//! - R3: the task's handle on the database is gone before the answer is given: what the caller
//!   drops then may be the last one.
//! - R4: a closure has a thread of its own while it runs. It may hold a latch, a lock or the lead
//!   of a force while it waits for a device, and others wait for that: no code of another caller
//!   may come in between.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use terrace_rt::{LeafMutex, dead, wake_future};

use super::turns::{Turn, Turns};
use crate::{Database, Error};

type Work<T, E> = Box<dyn FnOnce(&Database) -> Result<T, E> + Send>;

/// What a closure returned, or what it panicked with.
type Outcome<T, E> = Result<Result<T, E>, Box<dyn Any + Send>>;

/// The future of [`Database::run`].
#[must_use = "the closure runs once the future is polled: await it"]
pub struct Run<T, E> {
    state: State<T, E>,
}

enum State<T, E> {
    Waiting(Waiting<T, E>),
    Running(Arc<Slot<T, E>>),
    Taken,
}

/// A closure that has not begun.
struct Waiting<T, E> {
    place: Place,
    work: Work<T, E>,
    database: Database,
}

/// A place in the line, if it has one.
struct Place {
    turns: Arc<Turns>,
    number: Option<u64>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(number) = self.number.take() {
            self.turns.leave(number);
        }
    }
}

/// Where the answer comes.
struct Slot<T, E>(LeafMutex<Answer<T, E>>);

enum Answer<T, E> {
    Awaited(Waker),
    Given(Outcome<T, E>),
    /// The world ended before the closure did.
    Lost,
}

/// The task's end of a slot: dropped without an answer, it says so.
struct Giver<T, E>(Option<Arc<Slot<T, E>>>);

impl<T, E> Giver<T, E> {
    fn give(mut self, outcome: Outcome<T, E>) {
        let slot = self.0.take().expect("it gives once");
        slot.put(Answer::Given(outcome));
    }
}

impl<T, E> Drop for Giver<T, E> {
    fn drop(&mut self) {
        if let Some(slot) = self.0.take() {
            slot.put(Answer::Lost);
        }
    }
}

impl<T, E> Slot<T, E> {
    fn put(&self, answer: Answer<T, E>) {
        let before = std::mem::replace(&mut *self.0.lock(), answer);
        if let Answer::Awaited(waker) = before {
            wake_future(waker);
        }
    }

    /// The answer, once.
    fn poll(&self, context: &mut Context<'_>) -> Poll<Option<Outcome<T, E>>> {
        let waker = context.waker().clone();
        let before = std::mem::replace(&mut *self.0.lock(), Answer::Awaited(waker));
        // Between these two nobody but the task touches it, and it gives an answer once: if that
        // came before, it is here, and else it finds the waker.
        match before {
            Answer::Awaited(_) => Poll::Pending,
            Answer::Given(outcome) => Poll::Ready(Some(outcome)),
            Answer::Lost => Poll::Ready(None),
        }
    }
}

impl Database {
    /// Runs `work` on a thread of the engine, and returns a future for what it returns: for
    /// asynchronous code, of which nothing here blocks a thread of its runtime. In `work` all of
    /// this crate may be used as in any thread, and whatever else blocks.
    ///
    /// The future works in any runtime, and is `Send` if `T` and `E` are. It does nothing until it
    /// is polled. At most [`Builder::run_limit`](crate::Builder::run_limit) closures of a database
    /// run at once; the futures of others wait in the order in which they were first polled.
    ///
    /// - **Dropped futures.** A closure that has not begun when its future is dropped never runs.
    ///   One that has begun goes on to its end: its transactions are committed or rolled back as it
    ///   says, never half of them.
    /// - **Panics.** A panic in `work` rolls back the transactions that it has open, as everywhere,
    ///   and comes out of the future's `poll`.
    /// - **Closing.** Once [`Database::close`] was called, closures that have not begun do not run,
    ///   and their futures are ready with `Closed`. Those that have begun get `Closed` from their
    ///   operations. The future holds a handle on the database until `work` begins, and the task of
    ///   `work` until it ends.
    /// - **Threads.** Each closure that runs has a thread, which holds up nothing else however long
    ///   it blocks or computes. All databases of the process share the threads; one that has had
    ///   nothing to do for ten seconds ends. With [`Builder::world`](crate::Builder::world) `work`
    ///   is a task of that world, which has to let others run.
    ///
    /// # Errors
    ///
    /// What `work` returns; `Closed`, `Forked`, `Reentrant`, `Failed`, `NoThread` if it could not
    /// begin.
    ///
    /// # Panics
    ///
    /// The future panics with the panic of `work`, and if it is polled after it was ready.
    ///
    /// # Examples
    ///
    /// With tokio:
    ///
    /// ```
    /// use terrace::{Database, Error, TableDef};
    ///
    /// const ACCOUNTS: TableDef<u64, u64> = TableDef::new("accounts");
    ///
    /// async fn deposit(db: &Database, account: u64, sum: u64) -> Result<u64, Error> {
    ///     db.run(move |db| {
    ///         db.write(|txn| {
    ///             let mut accounts = txn.open_table(ACCOUNTS)?;
    ///             let held = accounts.get(account)?.map_or(0, |held| held.value());
    ///             accounts.insert(account, held + sum)?;
    ///             Ok(held + sum)
    ///         })
    ///     })
    ///     .await // committed, and durable
    /// }
    ///
    /// # let db = terrace::doc_test::database();
    /// let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    /// let held = runtime.block_on(async {
    ///     deposit(&db, 7, 30).await?;
    ///     deposit(&db, 7, 12).await
    /// })?;
    /// assert_eq!(held, 42);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn run<T, E>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, E> + Send + 'static,
    ) -> Run<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let place = Place { turns: Arc::clone(self.turns()), number: None };
        let (database, work) = (self.clone(), Box::new(work));
        Run { state: State::Waiting(Waiting { place, work, database }) }
    }
}

impl<T, E> Waiting<T, E>
where
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    /// Begins the closure (R4).
    fn begin(self, turn: Turn, waker: Waker) -> Result<Arc<Slot<T, E>>, Error> {
        let world = self.database.world().clone();
        let slot = Arc::new(Slot(LeafMutex::new(Answer::Awaited(waker))));
        let giver = Giver(Some(Arc::clone(&slot)));
        let Waiting { work, database, .. } = self;
        let task = move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| work(&database)));
            // R3
            drop(database);
            drop(turn);
            match outcome {
                // What ends the tasks of a world ends here, too, and no caller is told of it.
                Err(payload) if dead() => resume_unwind(payload),
                outcome => giver.give(outcome),
            }
        };
        let begun = world.spawn_blocking("run", task);
        begun.map_err(|source| Error::NoThread { source: Arc::new(source) }).map(|()| slot)
    }
}

impl<T, E> Future for Run<T, E>
where
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, E>> {
        if let State::Waiting(waiting) = &mut self.state {
            let engine = waiting.database.engine();
            let may_begin = engine.check_beginning().and_then(|()| engine.check_running());
            let turn = match may_begin {
                Ok(()) => {
                    let Place { turns, number } = &mut waiting.place;
                    match turns.poll(number, context) {
                        Poll::Ready(turn) => Ok(turn),
                        Poll::Pending => return Poll::Pending,
                    }
                }
                Err(error) => Err(error),
            };
            let before = std::mem::replace(&mut self.state, State::Taken);
            let State::Waiting(waiting) = before else { unreachable!("seen above") };
            match turn.and_then(|turn| waiting.begin(turn, context.waker().clone())) {
                Ok(slot) => self.state = State::Running(slot),
                Err(error) => return Poll::Ready(Err(E::from(error))),
            }
        }
        let State::Running(slot) = &self.state else { panic!("polled after it was ready") };
        let Poll::Ready(answer) = slot.poll(context) else { return Poll::Pending };
        self.state = State::Taken;
        match answer {
            Some(Ok(returned)) => Poll::Ready(returned),
            Some(Err(payload)) => resume_unwind(payload),
            None => Poll::Ready(Err(E::from(Error::Closed))),
        }
    }
}

impl<T, E> fmt::Debug for Run<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Waiting(_) => "Run(waiting)",
            State::Running(_) => "Run(running)",
            State::Taken => "Run(ended)",
        })
    }
}
