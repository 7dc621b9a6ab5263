//! Blocks under threads of the system, beside snapshots, rollbacks, compactions and checks.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use terrace::{Builder, Error};

use super::*;

const WRITERS: u64 = 3;
/// Blocks of a writer come in pairs that are equal.
const PAIRS: u64 = 60;
/// How long the threads run.
const SPAN: Duration = Duration::from_secs(2);
/// Far longer than they take to end.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs `work` in a thread of its own; fails if it does not end.
fn watched(work: impl FnOnce() + Send + 'static) {
    let (send, receive) = mpsc::channel();
    let thread = thread::spawn(move || {
        work();
        send.send(()).expect("somebody waits");
    });
    match receive.recv_timeout(PATIENCE) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it stands still"),
        _ => thread.join().expect("no error"),
    }
}

fn keys_of(writer: u64, pair: u64) -> [u64; 2] {
    let first = pair * WRITERS + writer;
    [first, first + PAIRS * WRITERS]
}

/// Changes pairs, and returns what it has committed.
fn write(db: &Database, me: u64, is_over: &AtomicBool) -> BTreeMap<u64, u64> {
    let (mut prng, mut own) = (Prng::from_seed(me), BTreeMap::new());
    while !is_over.load(Ordering::Relaxed) {
        let changed: BTreeMap<u64, Option<u64>> = (0..1 + prng.below(6))
            .map(|_| {
                let mark = (prng.below(8) != 0).then(|| prng.next_u64());
                (prng.below(PAIRS), mark)
            })
            .collect();
        let txn = db.begin_write().expect("open");
        let put = || {
            let mut volume = txn.open_table(VOLUME)?;
            for (pair, mark) in &changed {
                for key in keys_of(me, *pair) {
                    match mark {
                        Some(mark) => volume.insert(key, block(*mark))?,
                        None => drop(volume.remove(key)?),
                    }
                }
            }
            Ok::<_, Error>(())
        };
        let done = put();
        if let Err(error) = &done {
            assert!(error.is_transient(), "{error}");
        }
        if done.is_err() || prng.below(4) == 0 {
            txn.rollback().expect("no error");
            continue;
        }
        txn.commit(Durability::None).expect("committed");
        for (pair, mark) in changed {
            match mark {
                Some(mark) => drop(own.insert(pair, mark)),
                None => drop(own.remove(&pair)),
            }
        }
    }
    own
}

fn block(mark: u64) -> [u8; 8192] {
    let mut block = [0; 8192];
    block.as_chunks_mut::<8>().0.iter_mut().for_each(|word| *word = mark.to_le_bytes());
    block
}

/// The marks of all pairs, by writer: each block is of one mark, and both of a pair are equal.
fn read(db: &Database) -> Result<Vec<BTreeMap<u64, u64>>, Error> {
    db.read(|txn| {
        let volume = txn.open_table(VOLUME)?;
        let mark = |key| -> Result<Option<u64>, Error> {
            let Some(found) = volume.get(key)? else { return Ok(None) };
            let words = found.value();
            let first = words.as_chunks::<8>().0[0];
            assert!(words.as_chunks::<8>().0.iter().all(|word| *word == first), "a torn block");
            Ok(Some(u64::from_le_bytes(first)))
        };
        (0..WRITERS)
            .map(|writer| {
                let mut marks = BTreeMap::new();
                for pair in 0..PAIRS {
                    let [first, second] = keys_of(writer, pair).map(mark);
                    let (first, second) = (first?, second?);
                    assert_eq!(first, second, "a pair of one moment");
                    first.map(|mark| marks.insert(pair, mark));
                }
                Ok(marks)
            })
            .collect()
    })
}

fn beside(builder: &Builder, path: &Path) {
    let db = builder.clone().create(path).expect("a new path");
    db.write(|txn| txn.open_table(VOLUME).map(drop)).expect("made");
    let is_over = AtomicBool::new(false);
    let written: Vec<_> = thread::scope(|scope| {
        let writer = |me| {
            let (db, is_over) = (&db, &is_over);
            scope.spawn(move || write(db, me, is_over))
        };
        let writers: Vec<_> = (0..WRITERS).map(writer).collect();
        let reader = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                match read(&db) {
                    Ok(_) | Err(Error::SnapshotTooOld) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        let began = Instant::now();
        while began.elapsed() < SPAN {
            db.compact().expect("no error");
            db.checkpoint(Checkpoint::Indirect).expect("no error");
            db.check().expect("sound");
        }
        is_over.store(true, Ordering::Relaxed);
        reader.join().expect("no panic");
        writers.into_iter().map(|writer| writer.join().expect("no panic")).collect()
    });
    assert!(written.iter().all(|own| !own.is_empty()));
    assert_eq!(read(&db).expect("readable"), written);
    db.close().expect("closed");
    let db = builder.clone().open(path).expect("its own");
    db.check().expect("sound");
    assert_eq!(read(&db).expect("readable"), written);
}

#[test]
fn threads_see_whole_blocks_of_one_moment() {
    watched(|| {
        for (design, role) in [
            ("no-ssd", FlashRole::Cache),
            ("lc", FlashRole::Cache),
            ("face", FlashRole::Persistent),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            let mut builder = Database::builder().memory(1 << 20).log_size(32 << 20);
            if design != "no-ssd" {
                let design = designs::find(design).expect("a row of the table");
                builder = builder.design(design).flash_role(role);
                builder = builder.flash(folder.path().join("flash"), 4 << 20);
            }
            beside(&builder, &folder.path().join("db"));
        }
    });
}
