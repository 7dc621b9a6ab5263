//! An opening that is refused, for whatever reason and beside whatever flash, changes no byte.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use terrace::{Builder, Checkpoint, Checkpoints, Database, Error, FlashRole, TableDef};
use terrace_page::{PAGE_SIZE, PageBuf, seal};
use terrace_policy::Restart;

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const FLASH_BYTES: u64 = 1 << 20;
const LABEL_AT: usize = FLASH_BYTES as usize - PAGE_SIZE;
/// Behind the copies of the log's header.
const RECORDS_AT: usize = 8192;

/// The files of a database by name.
type Files = BTreeMap<String, Vec<u8>>;

/// Home and flash are to be larger than they were.
fn larger(folder: &Path, role: FlashRole) -> Builder {
    builder(folder, role).home_size(6 << 20).flash(folder.join("flash"), 2 * FLASH_BYTES)
}

fn builder(folder: &Path, role: FlashRole) -> Builder {
    let builder = Database::builder().memory(1 << 20).home_size(4 << 20).log_size(2 << 20);
    let design = terrace::designs::find("lc").expect("a design");
    let builder = builder.checkpoints(Checkpoints::Off).flash_role(role).design(design);
    builder.flash(folder.join("flash"), FLASH_BYTES)
}

fn read_all(folder: &Path) -> Files {
    let entries = fs::read_dir(folder).expect("a folder");
    let file = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.expect("readable").path();
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        (name, fs::read(path).expect("readable"))
    };
    entries.map(file).collect()
}

fn write_all(folder: &Path, files: &Files) {
    for entry in fs::read_dir(folder).expect("a folder") {
        fs::remove_file(entry.expect("readable").path()).expect("it goes");
    }
    files.iter().for_each(|(name, bytes)| fs::write(folder.join(name), bytes).expect("room"));
}

/// The files of a database that has crashed after a sharp checkpoint, so that flash is not needed,
/// and where its last records lie.
fn crashed(role: FlashRole) -> (Files, usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let db = builder(folder.path(), role).create(folder.path().join("db")).expect("a good place");
    let fill = |byte: u8| {
        db.write(|txn| {
            let mut rows = txn.open_table(ROWS)?;
            (0..300).try_for_each(|key| rows.insert(key, &[byte; 500]))
        })
        .expect("room");
    };
    fill(1);
    db.checkpoint(Checkpoint::Sharp).expect("good files");
    let before = read_all(folder.path());
    (2..4).for_each(fill);
    let after = read_all(folder.path());
    db.close().expect("good files");
    let logs = before["db.log"].iter().zip(&after["db.log"]);
    let changed = logs.enumerate().filter(|(_, (old, new))| old != new);
    let last = changed.map(|(at, _)| at).max().expect("records were written");
    (after, last)
}

type Change = fn(&mut Files);

/// What stands where the flash was when the database is opened again.
const FLASHES: [(&str, Change); 8] = [
    ("whole", |_| ()),
    ("none", |files| drop(files.remove("flash"))),
    ("empty", |files| flash(files).clear()),
    ("blank", |files| flash(files).fill(0)),
    ("cut short", |files| flash(files).truncate(FLASH_BYTES as usize / 2)),
    ("without label", |files| flash(files)[LABEL_AT..LABEL_AT + 16].fill(0)),
    ("without header", |files| flash(files)[..512].fill(0xa5)),
    ("of somebody else", |files| flash(files).fill(0xd8)),
];

fn flash(files: &mut Files) -> &mut Vec<u8> {
    files.get_mut("flash").expect("there")
}

fn home(files: &mut Files) -> &mut Vec<u8> {
    files.get_mut("db").expect("there")
}

fn log(files: &mut Files) -> &mut Vec<u8> {
    files.get_mut("db.log").expect("there")
}

/// Changes a byte of both superblocks, which stay whole. A random id may have had that byte.
fn in_superblocks(files: &mut Files, at: usize, byte: u8) {
    for page in home(files).chunks_exact_mut(PAGE_SIZE).take(2) {
        let page: &mut PageBuf = page.try_into().expect("a page");
        page[at] = if page[at] == byte { !byte } else { byte };
        seal(page);
    }
}

/// Why an opening is refused: what is done to the files, and what the builder is asked for. They
/// get the place of the last records.
struct Refusal {
    what: &'static str,
    files: fn(&mut Files, usize),
    builder: fn(Builder) -> Builder,
}

const fn harm(what: &'static str, files: fn(&mut Files, usize)) -> Refusal {
    Refusal { what, files, builder: |builder| builder }
}

const fn ask(what: &'static str, builder: fn(Builder) -> Builder) -> Refusal {
    Refusal { what, files: |_, _| (), builder }
}

const REFUSALS: [Refusal; 16] = [
    harm("no superblock", |files, _| home(files)[..2 * PAGE_SIZE].fill(0xa5)),
    harm("a newer format", |files, _| in_superblocks(files, 40, 9)),
    harm("an unknown feature", |files, _| in_superblocks(files, 182, 1)),
    harm("another database", |files, _| in_superblocks(files, 50, 77)),
    harm("a home cut short", |files, _| home(files).truncate(2 << 20)),
    harm("a home of something else", |files, _| home(files).fill(0xd8)),
    harm("a map that is damaged", |files, _| home(files)[2 * PAGE_SIZE + 100] ^= 1),
    harm("a catalog that is damaged", |files, _| home(files)[32 * PAGE_SIZE + 100] ^= 1),
    harm("no log", |files, _| drop(files.remove("db.log"))),
    harm("a log cut short", |files, _| log(files).truncate(4096)),
    harm("a log that is blank", |files, _| log(files).fill(0)),
    harm("no header of the log", |files, _| log(files)[..RECORDS_AT].fill(0xa5)),
    harm("records that are damaged", |files, at| log(files)[at - 450_000..][..5_000].fill(0xa5)),
    ask("a restart that does not fit", |builder| {
        builder.restart(Restart::forget()).flash_role(FlashRole::Persistent)
    }),
    ask("too little memory for versions", |builder| builder.version_memory(1)),
    ask("too large a flash", |builder| {
        builder.memory(128 << 10).tune(|pool| {
            pool.metadata = terrace::Metadata::Charged;
        })
    }),
];

/// A flash that was cut short was begun anew, and one without a label got one, for openings that
/// were refused; and home stayed as large as was asked for.
#[test]
fn an_opening_that_is_refused_changes_no_byte_of_any_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    for role in [FlashRole::Cache, FlashRole::Persistent] {
        let (files, last) = crashed(role);
        for (flash, change) in FLASHES {
            for refusal in REFUSALS {
                let mut files = files.clone();
                change(&mut files);
                (refusal.files)(&mut files, last);
                for is_larger in [false, true] {
                    let case = format!("{role:?}, flash {flash}, {}, {is_larger}", refusal.what);
                    write_all(folder.path(), &files);
                    let made = if is_larger { larger } else { builder };
                    let builder = made(folder.path(), role).overwrite(true);
                    let refused = (refusal.builder)(builder).open(&path);
                    assert!(refused.is_err(), "{case}");
                    let found = read_all(folder.path());
                    for (name, bytes) in &found {
                        assert!(files.get(name) == Some(bytes), "{case}: {name}: {refused:?}");
                    }
                    assert_eq!(found.len(), files.len(), "{case}: {refused:?}");
                }
            }
        }
    }
}

/// The same files open where nothing refuses them, and what was put off is done then.
#[test]
fn what_a_refused_opening_puts_off_an_opening_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    for role in [FlashRole::Cache, FlashRole::Persistent] {
        let (files, _) = crashed(role);
        for (flash, change) in FLASHES {
            for made in [builder, larger] {
                let mut files = files.clone();
                change(&mut files);
                write_all(folder.path(), &files);
                let open = || made(folder.path(), role).overwrite(true).open(&path);
                let db = open().unwrap_or_else(|error| panic!("{role:?}, {flash}: {error}"));
                let count = |db: &Database| {
                    db.read(|txn| {
                        let rows = txn.open_table(ROWS)?;
                        rows.range(..)?.try_fold(0, |count, row| {
                            assert_eq!(row?.value(), [3; 500], "{role:?}, {flash}");
                            Ok::<u64, Error>(count + 1)
                        })
                    })
                    .expect("whole")
                };
                assert_eq!(count(&db), 300, "{role:?}, {flash}");
                db.close().expect("good files");
                let db = open().unwrap_or_else(|error| panic!("{role:?}, {flash}: {error}"));
                assert_eq!((db.cold_start(), count(&db)), (None, 300), "{role:?}, {flash}");
                assert_eq!(db.bad_copies(), [], "{role:?}, {flash}");
                db.close().expect("good files");
            }
        }
    }
}
