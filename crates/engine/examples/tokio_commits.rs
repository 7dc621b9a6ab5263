//! Durable commits of many callers: one thread, threads, and tasks of tokio on one thread, beside
//! what the log's file does by itself. A timer of that thread says how late it is called meanwhile.
//!
//! ```text
//! cargo run --release --example tokio_commits [FOLDER] [SECONDS]
//! ```

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use terrace::{Database, Error, TableDef};

const ROWS: TableDef<u64, u64> = TableDef::new("rows");
const CALLERS: u64 = 64;
const BLOCK: usize = 4096;

type Anything<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Anything<()> {
    let mut arguments = std::env::args().skip(1);
    let parent = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let span = Duration::from_secs_f64(arguments.next().map_or(Ok(0.5), |text| text.parse())?);
    let folder = tempfile::tempdir_in(parent)?;
    let home = folder.path().join("db");
    let db = Database::builder().memory(32 << 20).home_size(64 << 20).log_size(64 << 20);
    let db = db.create(&home)?;
    db.write(|txn| txn.open_table(ROWS).map(drop))?;

    println!("{:<44} {:>9} {:>9}", "durable commits of one row", "a second", "forces");
    report(&db, "1 thread", || threads(&db, 1, span))?;
    report(&db, "64 threads", || threads(&db, CALLERS, span))?;
    report(&db, "64 tasks on 1 thread, run(write)", || tasks(&db, span, durable_write))?;
    report(&db, "64 tasks on 1 thread, run(write_async)", || tasks(&db, span, awaited_token))?;
    report(&db, "1 task, 64 commits to a token", || batches(&db, span))?;
    db.close()?;

    let log = folder.path().join("db.log");
    println!("{:<44} {:>9.0}", "writes of 4 KiB and fdatasync, same file", syncs(&log, span)?);
    Ok(())
}

/// Says how many commits `run` makes in a second, and how many forces of the log they took.
fn report(db: &Database, what: &str, run: impl FnOnce() -> Anything<u64>) -> Anything<()> {
    let (begun, forces) = (Instant::now(), db.stats().log.forces);
    let commits = run()?;
    let (seconds, forces) = (begun.elapsed().as_secs_f64(), db.stats().log.forces - forces);
    println!("{what:<44} {:>9.0} {:>9.0}", commits as f64 / seconds, forces as f64 / seconds);
    Ok(())
}

fn threads(db: &Database, callers: u64, span: Duration) -> Anything<u64> {
    let (begun, commits) = (Instant::now(), AtomicU64::new(0));
    std::thread::scope(|threads| {
        for caller in 0..callers {
            let commits = &commits;
            threads.spawn(move || {
                while begun.elapsed() < span {
                    let key = caller << 32 | commits.fetch_add(1, Ordering::Relaxed);
                    db.write(|txn| txn.open_table(ROWS)?.insert(key, key)).expect("room");
                }
            });
        }
    });
    Ok(commits.into_inner())
}

/// Waits in the closure, on an executor of the engine.
async fn durable_write(db: Database, key: u64) -> Result<(), Error> {
    db.run(move |db| db.write(|txn| txn.open_table(ROWS)?.insert(key, key))).await
}

/// Waits for the token, in the task.
async fn awaited_token(db: Database, key: u64) -> Result<(), Error> {
    let insert = move |db: &Database| db.write_async(|txn| txn.open_table(ROWS)?.insert(key, key));
    let ((), token) = db.run(insert).await?;
    token.await
}

/// Sleeps for 1 ms again and again, and returns how late the latest was.
async fn lateness(until: Instant) -> Duration {
    const NAP: Duration = Duration::from_millis(1);
    let mut latest = Duration::ZERO;
    while Instant::now() < until {
        let begun = Instant::now();
        tokio::time::sleep(NAP).await;
        latest = latest.max(begun.elapsed().saturating_sub(NAP));
    }
    latest
}

/// Tasks on this thread, each with one commit after the other, beside a timer.
fn tasks<F>(
    db: &Database,
    span: Duration,
    commit: impl Fn(Database, u64) -> F + Copy + Send + 'static,
) -> Anything<u64>
where
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let until = Instant::now() + span;
    let (commits, latest) = runtime.block_on(async {
        let timer = tokio::spawn(lateness(until));
        let callers = (0..CALLERS).map(|caller| {
            let db = db.clone();
            tokio::spawn(async move {
                let mut commits = 0;
                while Instant::now() < until {
                    commit(db.clone(), caller << 32 | 1 << 31 | commits).await?;
                    commits += 1;
                }
                Ok::<_, Error>(commits)
            })
        });
        let mut commits = 0;
        for caller in callers.collect::<Vec<_>>() {
            commits += caller.await??;
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>((commits, timer.await?))
    })?;
    println!("    a timer of 1 ms was at most {:.2} ms late", latest.as_secs_f64() * 1e3);
    Ok(commits)
}

/// One task, which awaits the last token of many.
fn batches(db: &Database, span: Duration) -> Anything<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let until = Instant::now() + span;
    runtime.block_on(async {
        let mut commits = 0;
        while Instant::now() < until {
            let many = db.run(move |db| {
                let mut last = db.durable();
                for key in commits..commits + CALLERS {
                    let ((), token) =
                        db.write_async(|txn| txn.open_table(ROWS)?.insert(key, key))?;
                    last = last.later(token);
                }
                Ok::<_, Error>(last)
            });
            many.await?.await?;
            commits += CALLERS;
        }
        Ok(commits)
    })
}

/// Blocks written to the log's file one after the other, each made durable, in a second.
fn syncs(path: &Path, span: Duration) -> Anything<f64> {
    let mut options = File::options();
    let direct = options.write(true).custom_flags(libc::O_DIRECT).open(path);
    // A file in memory knows no direct I/O.
    let file = direct.or_else(|_| File::options().write(true).open(path))?;
    let bytes = vec![7; 2 * BLOCK];
    let from = bytes.as_ptr().align_offset(BLOCK);
    let (begun, mut count) = (Instant::now(), 0_u32);
    while begun.elapsed() < span {
        let offset = u64::from(count % 8_000) * BLOCK as u64;
        file.write_all_at(&bytes[from..from + BLOCK], offset)?;
        file.sync_data()?;
        count += 1;
    }
    Ok(f64::from(count) / begun.elapsed().as_secs_f64())
}
