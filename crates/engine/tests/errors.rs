//! What errors say: what is wrong, where, and what to do, in fields and in words.

use std::fs::OpenOptions;
use std::path::Path;

use terrace::{
    Builder, Database, Durability, Error, Part, SavepointFlaw, TableDef, WriteTransaction,
};

const ROWS: TableDef<u64, &str> = TableDef::new("rows");
const NUMBERS: TableDef<u64, u64> = TableDef::new("rows");
const NAMES: TableDef<&str, u64> = TableDef::new("names");
const HOME_BYTES: u64 = 8 << 20;

fn small() -> Builder {
    Database::builder().memory(1 << 20).home_size(HOME_BYTES).log_size(1 << 20)
}

/// What `error` says, which has each of `words`.
fn says(error: &Error, words: &[&str]) {
    let said = error.to_string();
    for word in words {
        assert!(said.contains(word), "no {word:?} in: {said}");
    }
}

/// What a transaction of a database with one row runs into.
fn in_transaction<T>(run: impl Fn(&WriteTransaction) -> Result<T, Error>) -> Error {
    let folder = tempfile::tempdir().expect("a folder");
    let db = small().create(folder.path().join("db")).expect("a new path");
    db.write(|txn| txn.open_table(ROWS)?.insert(1, "one")).expect("room");
    let txn = db.begin_write().expect("open");
    run(&txn).err().expect("it must fail")
}

/// The bug: "no database here", "something is at the path", "already open", without a path.
#[test]
fn an_error_of_opening_names_the_path() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let told = |error: &Error, part: Part, at: &Path| match error {
        Error::Missing { part: p, path: Some(path) }
        | Error::Exists { part: p, path: Some(path) }
        | Error::AlreadyOpen { part: p, path: Some(path), .. }
        | Error::NotADatabase { part: p, path: Some(path), .. } => {
            assert_eq!((*p, &***path), (part, at), "{error:?}");
            says(error, &[at.to_str().expect("text")]);
        }
        other => panic!("{other:?}"),
    };
    let failed = |opened: Result<Database, Error>| opened.expect_err("it must fail");
    told(&failed(small().open(&path)), Part::Home, &path);
    let db = small().create(&path).expect("a new path");
    told(&failed(small().open(&path)), Part::Home, &path);
    told(&failed(small().create(&path)), Part::Home, &path);
    db.close().expect("a good disk");
    let log = folder.path().join("db.log");
    std::fs::rename(&log, folder.path().join("elsewhere")).expect("it is there");
    told(&failed(small().open(&path)), Part::Log, &log);
    std::fs::write(&path, [7; 1 << 20]).expect("a good disk");
    told(&failed(small().open(&path)), Part::Home, &path);
}

/// The bug: any file of less than 16 KiB, and any blank log, was reported as missing, with advice
/// to create it.
#[test]
fn a_file_that_is_there_is_not_told_to_be_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).expect("a good disk");
        let opened = small().open(&path).expect_err("no database");
        let read = small().read_only().open(&path).expect_err("no database");
        assert_eq!(opened.to_string(), read.to_string());
        opened
    };
    for len in [1, 6, 8_191, 8_192, 16_383, 16_384, 40_000] {
        let error = refused(&b"root:x:0:".repeat(5_000)[..len]);
        assert!(matches!(error, Error::NotADatabase { part: Part::Home, .. }), "{len}: {error}");
        says(&error, &["is not a database: it ", "nothing was changed"]);
        let error = refused(&vec![0; len]);
        assert!(matches!(error, Error::Missing { part: Part::Home, .. }), "{len}: {error}");
        says(&error, &["does not exist or is blank", "create the database"]);
    }
    let error = refused(&[&[0; 30_000][..], b"data"].concat());
    assert!(matches!(error, Error::NotADatabase { part: Part::Home, .. }), "{error}");
    let mut sqlite = vec![7; 8_192];
    sqlite[..16].copy_from_slice(b"SQLite format 3\0");
    says(&refused(&sqlite), &["is not a database: it"]);

    // A home without its log is no reason to create anything.
    std::fs::remove_file(&path).expect("it is there");
    small().create(&path).expect("a new path").close().expect("a good disk");
    let log = folder.path().join("db.log");
    let whole = std::fs::read(&log).expect("it is there");
    let lost = |bytes: Option<&[u8]>| {
        match bytes {
            Some(bytes) => std::fs::write(&log, bytes).expect("a good disk"),
            None => std::fs::remove_file(&log).expect("it is there"),
        }
        let error = small().open(&path).expect_err("no log");
        assert!(matches!(error, Error::Missing { part: Part::Log, .. }), "{error}");
        let log = log.to_str().expect("text");
        says(&error, &["does not exist or is blank", "`terrace dump --salvage`", log]);
        assert!(!error.to_string().contains("create"), "{error}");
    };
    lost(None);
    lost(Some(b""));
    lost(Some(&[0; 100]));
    lost(Some(&vec![0; whole.len()]));
    for left in [9_000, whole.len() / 2, whole.len() - 4_096] {
        std::fs::write(&log, &whole[..left]).expect("a good disk");
        let cut = small().open(&path).expect_err("no log");
        let Error::Truncated { part: Part::Log, needed, found, .. } = cut else { panic!("{cut}") };
        assert!(found == left as u64 && needed > found, "{left}: {cut}");
    }
    std::fs::write(&log, &whole).expect("a good disk");
    small().open(&path).expect("nothing was changed");
    // What is left of a home is reported as that.
    let home = std::fs::read(&path).expect("it is there");
    let cut = refused(&home[..8_192]);
    assert!(matches!(cut, Error::Truncated { part: Part::Home, found: 8_192, .. }), "{cut}");
}

/// The bug: a home file that was cut short was reported as a full home.
#[test]
fn a_home_that_was_cut_short_is_told_with_its_lengths() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    small().create(&path).expect("a new path").close().expect("a good disk");
    let file = OpenOptions::new().write(true).open(&path).expect("it is there");
    file.set_len(HOME_BYTES / 2).expect("a good disk");
    let error = small().open(&path).expect_err("it must fail");
    says(&error, &[path.to_str().expect("text"), "4194304 bytes of 8388608", "backup"]);
    let Error::Truncated { part: Part::Home, path: Some(at), needed, found } = error else {
        panic!("{error:?}")
    };
    assert_eq!((at.as_path(), needed, found), (&*path, HOME_BYTES, HOME_BYTES / 2));
    file.set_len(HOME_BYTES).expect("a good disk");
    small().open(&path).expect("nothing was changed");
}

/// The bug: "the table (tree 1) has other types", "no such table", and neither name nor types.
#[test]
fn an_error_of_a_table_names_it_and_its_types() {
    let types = in_transaction(|txn| txn.open_table(NUMBERS).map(drop));
    let Error::TableTypes { table, stored, asked } = &types else { panic!("{types:?}") };
    assert_eq!(table.name(), Some("rows"));
    assert_eq!((stored.value == asked.value, stored.key == asked.key), (false, true));
    says(&types, &["table \"rows\"", &stored.value, &asked.value]);

    let long = in_transaction(|txn| txn.open_table(NAMES)?.insert(&"x".repeat(5_000), 1));
    let Error::KeyTooLong { table, .. } = &long else { panic!("{long:?}") };
    assert_eq!((table.name(), table.to_string()), (Some("names"), "table \"names\"".into()));
    let name = "x".repeat(2_000).leak();
    let long = in_transaction(|txn| txn.open_table(TableDef::<u64, u64>::new(name)).map(drop));
    says(&long, &["a name of 2000 bytes", "for a table", "at most"]);
    let full = in_transaction(|txn| txn.bulk_load(ROWS).map(drop));
    assert!(matches!(&full, Error::NotEmpty { table } if table.name() == Some("rows")), "{full:?}");
    says(&full, &["table \"rows\"", "insert"]);

    let folder = tempfile::tempdir().expect("a folder");
    let db = small().create(folder.path().join("db")).expect("a new path");
    let missing = db.read(|txn| txn.open_table(ROWS).map(drop)).expect_err("there is none");
    assert!(matches!(&missing, Error::NoSuchTable { name } if &**name == "rows"), "{missing:?}");
    says(&missing, &["\"rows\""]);
    // Of a name of any length only the beginning.
    let long = "ä".repeat(5_000);
    let missing = db.read(|txn| txn.open_raw(&long).map(drop)).expect_err("there is none");
    says(&missing, &[&format!("\"{}...\"", "ä".repeat(100))]);
    assert!(missing.to_string().len() < 400);
}

#[test]
fn a_doomed_transaction_tells_what_doomed_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let db = small().create(folder.path().join("db")).expect("a new path");
    let txn = db.begin_write().expect("open");
    let rows = || txn.open_table(ROWS);
    let value = "x".repeat(64 << 10);
    let full = (0..).find_map(|key| rows().and_then(|mut rows| rows.insert(key, &value)).err());
    let (first, again) = (full.expect("it has an end"), rows().map(drop).expect_err("doomed"));
    let Error::Doomed { cause: Some(cause) } = &again else { panic!("{again:?}") };
    assert_eq!(cause.to_string(), first.to_string());
    says(&again, &[&first.to_string()]);
    let refused = txn.commit(Durability::None);
    assert!(matches!(refused, Err(Error::Doomed { .. })), "{refused:?}");
}

#[test]
fn an_option_is_named_by_its_method() {
    let refused = Database::builder().memory(1).create("nowhere").expect_err("too little");
    assert!(matches!(refused, Error::InvalidOption { option: "memory", .. }), "{refused:?}");
    says(&refused, &["memory", "128 KiB"]);
}

#[test]
fn only_what_may_go_better_next_time_is_transient() {
    assert!(Error::Conflict.is_transient());
    let doomed = |cause| Error::Doomed { cause: Some(std::sync::Arc::new(cause)) };
    assert!(doomed(Error::Conflict).is_transient());
    for lasting in [
        doomed(Error::Closed),
        Error::Closed,
        Error::ReadOnly,
        Error::Forked { pid: 1 },
        Error::Savepoint { flaw: SavepointFlaw::RolledBack },
        Error::Failed { cause: None },
    ] {
        assert!(!lasting.is_transient(), "{lasting:?}");
    }
}
