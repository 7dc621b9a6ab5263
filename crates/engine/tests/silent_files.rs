//! Flash files whose file system does not answer while a database opens. A lease stands for that: a
//! process that opens a file on which another one has a lease waits in the kernel until it is given
//! back.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use terrace::{Builder, ColdStart, Database, Error, FlashRole, Nanos, TableDef};
use terrace_policy::designs;

const ROWS: TableDef<u64, u64> = TableDef::new("rows");
const PATIENCE: Duration = Duration::from_secs(30);

/// A file that no process can open.
struct Leased(#[expect(dead_code, reason = "it has the lease")] File);

impl Leased {
    /// `None` where the file system has no leases.
    fn take(path: &Path) -> Option<Leased> {
        let file = File::options().read(true).write(true).open(path).expect("there");
        // SAFETY: plain system calls; the signal would end the process.
        let taken = unsafe {
            libc::signal(libc::SIGIO, libc::SIG_IGN);
            libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK)
        };
        (taken == 0).then_some(Leased(file))
    }
}

struct Case {
    _folder: tempfile::TempDir,
    path: PathBuf,
    flash: PathBuf,
}

impl Case {
    fn new(role: FlashRole) -> Case {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, flash) = (folder.path().join("db"), folder.path().join("flash"));
        let case = Case { _folder: folder, path, flash };
        let db = case.builder(role).create(&case.path).expect("room");
        db.write(|txn| txn.open_table(ROWS)?.insert(1, 2)).expect("room");
        db.close().expect("a good disk");
        case
    }

    fn builder(&self, role: FlashRole) -> Builder {
        let builder = Database::builder().memory(1 << 20).home_size(4 << 20).log_size(2 << 20);
        let lc = designs::find("lc").expect("a row of the table");
        let builder = builder.flash(&self.flash, 1 << 20).design(lc).flash_role(role);
        builder.io_timeout_flash(Nanos::from_millis(200))
    }
}

fn watched<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || done.send(run()).is_ok());
    ended.recv_timeout(PATIENCE).expect("it must neither hang nor fail")
}

fn row(db: &Database) -> Option<u64> {
    let row = db.read(|txn| Ok::<_, Error>(txn.open_table(ROWS)?.get(1)?.map(|row| row.value())));
    row.expect("a sound database")
}

/// The bug: what makes, opens or looks at the file of a cache was waited for without a limit. On a
/// file system that was frozen, or whose server was gone, the database never opened.
#[test]
fn a_cache_whose_file_system_does_not_answer_is_done_without() {
    let case = Case::new(FlashRole::Cache);
    let Some(leased) = Leased::take(&case.flash) else { return };
    let (builder, path) = (case.builder(FlashRole::Cache), case.path.clone());
    watched(move || {
        let silent = Some(ColdStart::Device(ErrorKind::TimedOut));
        let reader = builder.clone().read_only().open(&path).expect("home and log are well");
        assert_eq!((reader.cold_start(), row(&reader)), (silent, Some(2)));
        drop(reader);
        let db = builder.clone().open(&path).expect("home and log are well");
        assert_eq!((db.cold_start(), row(&db)), (silent, Some(2)));
        db.write(|txn| txn.open_table(ROWS)?.insert(1, 3)).expect("room");
        db.close().expect("a good disk");
    });
    drop(leased);
    // It answers again. The threads that were left behind let go of it first.
    let begun = Instant::now();
    let db = loop {
        match case.builder(FlashRole::Cache).open(&case.path) {
            Err(Error::AlreadyOpen { .. }) if begun.elapsed() < PATIENCE => thread::yield_now(),
            opened => break opened.expect("all are well"),
        }
    };
    assert_eq!((db.cold_start(), row(&db)), (Some(ColdStart::OtherSession), Some(3)));
    db.close().expect("a good disk");
}

/// A part of the database is waited for no longer, and is not done without.
#[test]
fn a_part_of_the_database_whose_file_system_does_not_answer_is_needed() {
    let case = Case::new(FlashRole::Persistent);
    let Some(leased) = Leased::take(&case.flash) else { return };
    let before = fs::read(&case.path).expect("there");
    let (builder, path) = (case.builder(FlashRole::Persistent), case.path.clone());
    let refused = watched(move || builder.open(&path).map(drop));
    let Err(Error::FlashNeeded { why, path }) = refused else { panic!("{refused:?}") };
    assert_eq!(why, ColdStart::Device(ErrorKind::TimedOut));
    assert_eq!(path.as_deref(), Some(&case.flash));
    assert!(fs::read(&case.path).expect("there") == before, "home was changed");
    drop(leased);
}
