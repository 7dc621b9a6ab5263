//! Backups of files: what is cut, damaged or foreign is refused, by its place; a full disk;
//! threads.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use terrace::{
    BackupError, BackupMark, BackupOptions, Builder, Database, Durability, Error, RestoreError,
    TableDef,
};
use terrace_rt::Prng;

const TABLE: TableDef<u64, &[u8]> = TableDef::new("table");
/// How long threads write beside a backup at most.
const LIMIT: Duration = Duration::from_secs(300);

fn small() -> Builder {
    Database::builder().home_size(8 << 20).memory(1 << 20)
}

fn fill(db: &Database, keys: std::ops::Range<u64>, byte: u8) {
    db.write(|txn| {
        let mut table = txn.open_table(TABLE)?;
        keys.clone().try_for_each(|key| table.insert(key, &[byte; 90]).map(drop))
    })
    .expect("room");
}

fn backup(db: &Database, options: &BackupOptions) -> (Vec<u8>, Option<BackupMark>) {
    let mut bytes = Vec::new();
    let taken = db.backup(&mut bytes, options).expect("memory");
    assert_eq!(taken.bytes, bytes.len() as u64);
    (bytes, taken.mark)
}

fn restore(path: &Path, backups: &[&[u8]]) -> Result<(), RestoreError> {
    let mut inputs: Vec<&[u8]> = backups.to_vec();
    let mut inputs: Vec<&mut dyn Read> = inputs.iter_mut().map(|it| it as _).collect();
    small().restore(path, &mut inputs).map(drop)
}

fn sum(path: &Path) -> (u64, u64) {
    let db = small().open(path).expect("restored");
    db.check().expect("sound");
    let found = db.read(|txn| {
        let mut found = (0, 0);
        for entry in txn.open_table(TABLE)?.range(..)? {
            let entry = entry?;
            found = (found.0 + 1, found.1 + u64::from(entry.value()[0]));
        }
        Ok::<_, Error>(found)
    });
    db.close().expect("no error");
    found.expect("readable")
}

#[test]
fn backups_are_restored_in_their_order_and_in_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = small().create(folder.path().join("db")).expect("a new path");
    fill(&db, 0..1_000, 1);
    let (whole, mark) = backup(&db, &BackupOptions::new());
    fill(&db, 500..600, 2);
    let (second, next) = backup(&db, &BackupOptions::new().since(mark.expect("one")));
    assert!(second.len() * 2 < whole.len(), "{} bytes of {}", second.len(), whole.len());
    fill(&db, 900..1_100, 3);
    let (third, _) = backup(&db, &BackupOptions::new().since(next.expect("one")));
    let told = BackupMark::read(io::Cursor::new(&second)).expect("whole");
    assert_eq!(told, next);

    let path = |name: &str| folder.path().join(name);
    restore(&path("one"), &[&whole]).expect("whole");
    assert_eq!(sum(&path("one")), (1_000, 1_000));
    restore(&path("two"), &[&whole, &second]).expect("in order");
    assert_eq!(sum(&path("two")), (1_000, 1_100));
    restore(&path("three"), &[&whole, &second, &third]).expect("in order");
    assert_eq!(sum(&path("three")), (1_100, 900 + 100 + 600));

    let other = small().create(path("other")).expect("a new path");
    let foreign = other.backup(&mut Vec::new(), &BackupOptions::new().since(mark.expect("one")));
    assert!(matches!(foreign, Err(BackupError::Foreign)));
    let (elsewhere, _) = backup(&other, &BackupOptions::new());
    for (index, wrong) in [
        (0, vec![&second[..]]),
        (1, vec![&whole, &third]),
        (1, vec![&whole, &elsewhere]),
        (1, vec![&elsewhere, &second]),
        (2, vec![&whole, &second, &second]),
    ] {
        let refused = restore(&path("wrong"), &wrong);
        assert!(
            matches!(refused, Err(RestoreError::Chain { index: found }) if found == index),
            "{refused:?}"
        );
        assert!(!path("wrong").exists() && !path("wrong.log").exists());
    }
    // The copy is a database of its own.
    let copy = small().open(path("three")).expect("restored");
    assert_ne!(copy.id(), db.id());
    let foreign = copy.backup(&mut Vec::new(), &BackupOptions::new().since(mark.expect("one")));
    assert!(matches!(foreign, Err(BackupError::Foreign)));
}

#[test]
fn a_restore_overwrites_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let db = small().create(&path).expect("a new path");
    fill(&db, 0..100, 1);
    let (whole, _) = backup(&db, &BackupOptions::new());
    db.close().expect("no error");
    let refused = restore(&path, &[&whole]);
    assert!(matches!(refused, Err(RestoreError::Database(Error::Exists { .. }))), "{refused:?}");
    assert_eq!(sum(&path), (100, 100));
    let beside = folder.path().join("beside");
    std::fs::write(folder.path().join("beside.log"), b"a log of something else").expect("room");
    let refused = restore(&beside, &[&whole]);
    assert!(matches!(refused, Err(RestoreError::Database(Error::NotBlank { .. }))), "{refused:?}");
}

#[test]
fn what_is_cut_or_damaged_is_refused_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = small().create(folder.path().join("db")).expect("a new path");
    fill(&db, 0..200, 1);
    let (whole, _) = backup(&db, &BackupOptions::new());
    let path = folder.path().join("copy");
    let refused = |bytes: &[u8], what: &str| {
        let error = restore(&path, &[bytes]).expect_err(what);
        assert!(!path.exists() && !folder.path().join("copy.log").exists(), "{what}");
        assert!(!error.to_string().is_empty());
        error
    };
    let mut prng = Prng::from_seed(1);
    let ends = [0, 7, 19, 20, 24, 25, 121, 124, whole.len() - 1, whole.len() - 89];
    let random: Vec<usize> = (0..40).map(|_| prng.below(whole.len() as u64) as usize).collect();
    for &at in ends.iter().chain(&random) {
        let error = refused(&whole[..at], "cut");
        let is_told = matches!(error, RestoreError::Cut { at: found } if found == at as u64);
        assert!(is_told || at < 8, "cut at {at}: {error:?}");
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << prng.below(8);
        let error = refused(&flipped, "flipped");
        let place = match error {
            RestoreError::Damaged { at, .. } | RestoreError::Cut { at } => at,
            RestoreError::NotABackup | RestoreError::Newer { .. } => 0,
            other => panic!("{other:?}"),
        };
        assert!(place <= at as u64 || place >= whole.len() as u64 - 200, "{at}: {place}");
    }
    refused(&[&whole[..], b"x"].concat(), "longer");
    refused(b"TERRDUMP and more", "a dump");
}

/// An output that has room for so many bytes.
struct Full(u64);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 < bytes.len() as u64 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0 -= bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn threads_go_on_beside_backups_to_a_full_disk_and_to_a_slow_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let builder = Database::builder().home_size(64 << 20).memory(2 << 20).log_max(2 << 20);
    let db = builder.create(folder.path().join("db")).expect("a new path");
    fill(&db, 0..2_000, 1);
    let (is_over, began) = (AtomicBool::new(false), Instant::now());
    thread::scope(|scope| {
        let writers: Vec<_> = (0..3u64)
            .map(|me| {
                let (db, is_over) = (&db, &is_over);
                scope.spawn(move || {
                    let mut prng = Prng::from_seed(me);
                    let mut commits = 0u64;
                    while !is_over.load(Ordering::Relaxed) {
                        let key = prng.below(2_000);
                        let put = |txn: &terrace::WriteTransaction| {
                            txn.open_table(TABLE)?.insert(key, &[me as u8; 900]).map(drop)
                        };
                        db.write_with(Durability::None, put).expect("no writer fails");
                        commits += 1;
                    }
                    commits
                })
            })
            .collect();
        let full = db.backup(&mut Full(100_000), &BackupOptions::new());
        assert!(matches!(full, Err(BackupError::Output(_))), "{full:?}");
        // The log is full many times before the end: it keeps up with that, or is told.
        let slow = db.backup(&mut io::sink(), &BackupOptions::new().rate(1 << 20));
        let is_told = matches!(slow, Err(BackupError::Behind) | Ok(_));
        assert!(is_told, "{slow:?}");
        let mut whole = Vec::new();
        db.backup(&mut whole, &BackupOptions::new()).expect("memory is fast");
        is_over.store(true, Ordering::Relaxed);
        for writer in writers {
            assert!(writer.join().expect("no panic") > 0);
        }
        let path = folder.path().join("copy");
        let mut input = &whole[..];
        Database::builder().restore(&path, &mut [&mut input]).expect("whole");
        let copy = Database::open(&path).expect("restored");
        copy.check().expect("sound");
        copy.close().expect("no error");
    });
    assert!(began.elapsed() < LIMIT, "{:?}", began.elapsed());
    db.check().expect("sound");
}

/// The bug: what was allocated while the backup was taken is in its log alone, and nobody looked
/// whether home has room for it: what was restored did not open.
#[test]
fn a_home_that_is_smaller_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = small().home_size(16 << 20).create(folder.path().join("db")).expect("a new path");
    fill(&db, 0..100, 1);
    let (whole, _) = backup(&db, &BackupOptions::new());
    let path = folder.path().join("copy");
    for mib in [2, 8, 15] {
        let made = small().home_size(mib << 20).restore(&path, &mut [&mut &whole[..]]);
        let Err(RestoreError::HomeTooSmall { bytes, needed }) = made else { panic!("{made:?}") };
        assert_eq!((bytes, needed), (mib << 20, 16 << 20));
        assert!(!path.exists());
    }
    for mib in [16, 32] {
        let path = folder.path().join(format!("copy {mib}"));
        small().home_size(mib << 20).restore(&path, &mut [&mut &whole[..]]).expect("room");
        assert_eq!(sum(&path).0, 100);
    }
}

/// Flips a bit of a leaf of a tree that has several; returns its page.
fn damage_a_leaf(path: &Path) -> u64 {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().read(true).write(true).open(path).expect("there");
    let mut damaged = None;
    for page in (40..400_u64).rev() {
        let mut bytes = [0; 8192];
        file.read_exact_at(&mut bytes, page * 8192).expect("there");
        if bytes[4] == 2 && bytes[24..32] != [0; 8] {
            bytes[5_000] ^= 1;
            file.write_all_at(&bytes, page * 8192).expect("room");
            damaged = Some(page);
            break;
        }
    }
    damaged.expect("there are leaves")
}

#[test]
fn a_page_that_is_damaged_at_home_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let db = small().create(&path).expect("a new path");
    fill(&db, 0..3_000, 1);
    db.close().expect("no error");
    let damaged = damage_a_leaf(&path);
    let db = small().open(&path).expect("opens");
    let told = db.backup(&mut Vec::new(), &BackupOptions::new());
    let Err(BackupError::Database(Error::Corrupt { page, .. })) = told else { panic!("{told:?}") };
    assert_eq!(page.0, damaged);
    // Nothing is left of it: the next one may begin.
    assert!(!matches!(
        db.backup(&mut Vec::new(), &BackupOptions::new()),
        Err(BackupError::Busy) | Ok(_)
    ));
}

/// A backup that met a damaged page returned `Conflict` if its check of all tables was chosen to
/// end a deadlock with a writer.
#[test]
fn a_damaged_page_is_named_beside_transactions_that_deadlock_with_the_check() {
    const SMALL: [&str; 4] = ["first", "second", "third", "fourth"];
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let db = small().create(&path).expect("a new path");
    let put = |db: &Database, names: &[&str]| {
        db.write(|txn| {
            for name in names {
                let table = TableDef::<u64, u64>::new(name);
                txn.open_table(table)?.insert(1, 1)?;
                thread::sleep(Duration::from_millis(1));
            }
            Ok::<_, Error>(())
        })
    };
    put(&db, &SMALL).expect("room");
    fill(&db, 0..3_000, 1);
    db.close().expect("no error");
    let damaged = damage_a_leaf(&path);
    let db = small().open(&path).expect("opens");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..4 {
            let (db, put, is_over) = (&db, &put, &is_over);
            scope.spawn(move || {
                let mut prng = Prng::from_seed(seed);
                while !is_over.load(Ordering::Acquire) {
                    let mut names = SMALL;
                    (0..4).for_each(|at| names.swap(at, prng.below(4) as usize));
                    // In any order, one of them may meet a thousand deadlocks in a row.
                    match put(db, &names) {
                        Ok(()) | Err(Error::Conflict) => (),
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        let backups: Vec<_> =
            (0..30).map(|_| db.backup(&mut Vec::new(), &BackupOptions::new())).collect();
        is_over.store(true, Ordering::Release);
        for told in backups {
            let Err(BackupError::Database(Error::Corrupt { page, .. })) = told else {
                panic!("{told:?}")
            };
            assert_eq!(page.0, damaged);
        }
    });
}

#[test]
fn a_restore_whose_input_panics_leaves_nothing() {
    struct Panics<'b>(&'b [u8]);
    impl Read for Panics<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            assert!(!self.0.is_empty(), "the end of what it has");
            self.0.read(out)
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let db = small().create(folder.path().join("db")).expect("a new path");
    fill(&db, 0..500, 1);
    let (whole, _) = backup(&db, &BackupOptions::new());
    let path = folder.path().join("copy");
    let mut input = Panics(&whole[..whole.len() / 2]);
    let restore = || small().restore(&path, &mut [&mut input]).map(drop);
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(restore));
    assert!(ended.is_err() && !path.exists() && !folder.path().join("copy.log").exists());
    self::restore(&path, &[&whole]).expect("nothing is in the way");
    assert_eq!(sum(&path).0, 500);
}

#[test]
fn a_restore_that_is_cut_short_leaves_what_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = small().create(folder.path().join("db")).expect("a new path");
    fill(&db, 0..500, 1);
    let (whole, _) = backup(&db, &BackupOptions::new());
    /// Looks at the home that is being made, half way.
    struct Looks<'p>(&'p [u8], usize, &'p Path, Option<String>);
    impl Read for Looks<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            if self.0.len() < self.1 && self.3.is_none() {
                let half = self.2.with_extension("half");
                std::fs::copy(self.2, &half)?;
                std::fs::copy(self.2.with_extension("log"), half.with_extension("half.log"))?;
                let refused = Database::open(&half).expect_err("no database");
                self.3 = Some(refused.to_string());
            }
            let len = out.len().min(4_000);
            self.0.read(&mut out[..len])
        }
    }
    let path = folder.path().join("copy");
    let mut input = Looks(&whole, whole.len() / 2, &path, None);
    let builder = small().log(path.with_extension("log"));
    builder.restore(&path, &mut [&mut input]).expect("whole");
    let said = input.3.expect("it was looked at");
    assert!(said.contains("it holds a restore that was cut short: delete"), "{said}");
}
