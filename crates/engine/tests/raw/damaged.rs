//! A table whose types or schema were damaged in the catalog, in a page whose checksum is right:
//! that costs the table these, and no other table anything.

use std::fs;
use std::path::Path;

use terrace::dump::{Loaded, Loss, SaveError, Saved, State, load};
use terrace::{Builder, Database, Error, Schema, TableDef, TableInfo};
use terrace_page::{PAGE_SIZE, PageBuf, seal, verify};

use super::schema;

const HARMED: TableDef<u64, &str> = TableDef::new("harmed");
const SOUND: TableDef<u64, &str> = TableDef::new("sound");
const PLAIN: TableDef<u64, &str> = TableDef::new("plain");
/// The first column of the harmed table.
const COLUMN: &[u8] = b"first of harmed";
/// Bytes from the beginning of a schema to the name of its first column.
const TO_NAME: usize = 11;
/// Bytes from the beginning of the names `u64\0str` to their end.
const TYPES: usize = 7;

fn small() -> Builder {
    Database::builder().memory(1 << 20).home_size(16 << 20).log_size(8 << 20)
}

fn schemas() -> [Schema; 2] {
    [schema(&["first of harmed", "b"]), schema(&["first of sound", "b"])]
}

/// The message of the error has the texts.
fn says(error: &Error, texts: &[&str]) {
    let message = error.to_string();
    texts.iter().for_each(|text| assert!(message.contains(text), "{message} lacks {text}"));
}

/// A database of three tables that was closed.
fn make(path: &Path) {
    let db = small().create(path).expect("made");
    let [harmed, sound] = schemas();
    let filled = db.write(|txn| {
        txn.open_table_with(HARMED, &harmed)?.insert(1, "one")?;
        txn.open_table_with(SOUND, &sound)?.insert(2, "two")?;
        txn.open_table(PLAIN)?.insert(3, "three")
    });
    filled.expect("room");
    db.close().expect("closed");
}

/// Changes bytes of the harmed table's entry, which are found by its first column's name: `change`
/// gets the page and where that name is.
fn harm(path: &Path, change: &dyn Fn(&mut PageBuf, usize)) {
    let mut home = fs::read(path).expect("there");
    let mut harmed = 0;
    for page in home.chunks_exact_mut(PAGE_SIZE) {
        let page: &mut PageBuf = page.try_into().expect("a page");
        let Some(at) = page.windows(COLUMN.len()).position(|bytes| bytes == COLUMN) else {
            continue;
        };
        change(page, at);
        seal(page);
        let id = terrace_page::page_id(page);
        assert!(verify(page, id).is_ok());
        harmed += 1;
    }
    assert!(harmed > 0, "no page has the schema");
    fs::write(path, home).expect("written");
}

/// What is done to the entry.
type Harm = (&'static str, fn(&mut PageBuf, usize));

const SCHEMA: &str = "its schema does not decode";
const NAMES: &str = "the names of its types are no text";

const HARMS: [Harm; 6] = [
    (SCHEMA, |page, at| page[at - TO_NAME] = 2),
    (SCHEMA, |page, at| page[at - TO_NAME + 2] = 3),
    (SCHEMA, |page, at| page[at - TO_NAME + 4] = 9),
    (SCHEMA, |page, at| page[at] = 0xff),
    (SCHEMA, |page, at| page[at - TO_NAME..at].fill(0)),
    (NAMES, |page, at| page[at - TO_NAME - TYPES] = 0xff),
];

/// The tables that are there, but for the harmed one, and what is told of that.
fn tables(db: &Database) -> (TableInfo, Vec<(String, Option<Schema>)>) {
    let (harmed, others): (Vec<_>, Vec<_>) =
        db.tables().expect("readable").into_iter().partition(|table| table.damage.is_some());
    let [harmed] = harmed.try_into().expect("one");
    (harmed, others.into_iter().map(|table| (table.name, table.schema)).collect())
}

fn use_it(db: &Database, what: &'static str) -> Result<(), Error> {
    let [harmed, sound] = schemas();
    let (told, others) = tables(db);
    assert_eq!((&*told.name, told.damage), ("harmed", Some(what)));
    assert_eq!(told.schema, (what == NAMES).then(|| harmed.clone()));
    assert_eq!(others, [("plain".into(), None), ("sound".into(), Some(sound.clone()))]);
    db.read(|txn| {
        assert!(txn.open_table_with(SOUND, &sound)?.contains(2)?);
        assert!(txn.open_table(PLAIN)?.contains(3)?);
        assert_eq!(txn.open_raw("harmed")?.first()?.expect("a row").value(), b"one");
        match txn.open_table_with(HARMED, &harmed) {
            Err(Error::TableTypes { .. }) if what == NAMES => {}
            opened => {
                let error = opened.expect_err("its schema is lost");
                assert!(matches!(error, Error::DamagedSchema { .. }), "{error:?}");
                says(&error, &["\"harmed\"", what]);
            }
        }
        match txn.open_table(HARMED) {
            Ok(table) if what == SCHEMA => assert_eq!(table.len()?, 1),
            other => assert!(what == NAMES, "{other:?}"),
        }
        Ok::<_, Error>(())
    })?;
    let error = db.check().expect_err("it is damaged");
    assert!(matches!(error, Error::DamagedSchema { .. }), "{error:?}");
    says(&error, &["\"harmed\"", what]);
    Ok(())
}

/// What the message of the error advises: its rows go to another table.
fn mend(db: &Database) -> Result<(), Error> {
    let [harmed, _] = schemas();
    db.write(|txn| {
        assert!(txn.rename_table("harmed", "old")?);
        let old = txn.open_raw("old")?;
        let mut new = txn.open_table_with(HARMED, &harmed)?;
        for row in old.range(..)? {
            let row = row?;
            let key = u64::from_be_bytes(row.key().try_into().expect("eight"));
            new.insert(key, std::str::from_utf8(row.value()).expect("text"))?;
        }
        Ok(())
    })
}

#[test]
fn a_damaged_schema_costs_one_table_its_schema() -> Result<(), Error> {
    let folder = tempfile::tempdir().expect("a folder");
    for (number, (what, change)) in HARMS.iter().enumerate() {
        let path = folder.path().join(format!("db {number}"));
        make(&path);
        harm(&path, change);
        let db = small().read_only().open(&path)?;
        use_it(&db, what)?;
        db.close()?;
        // Its bytes are kept: through a new name and a new opening it stays as damaged as it was.
        let db = small().open(&path)?;
        use_it(&db, what)?;
        mend(&db)?;
        db.close()?;
        let db = small().open(&path)?;
        let (told, _) = tables(&db);
        assert_eq!((&*told.name, told.damage), ("old", Some(*what)), "harm {number}");
        let [harmed, _] = schemas();
        db.read(|txn| txn.open_table_with(HARMED, &harmed)?.first().map(drop))?;
        assert!(db.write(|txn| txn.delete_table("old"))?);
        db.check()?;
        db.close()?;
    }
    Ok(())
}

#[test]
fn what_is_dumped_of_a_damaged_schema_is_its_rows() {
    let folder = tempfile::tempdir().expect("a folder");
    for (number, (what, change)) in HARMS.iter().enumerate() {
        let path = folder.path().join(format!("db {number}"));
        make(&path);
        harm(&path, change);
        let told = |saved: &Saved, only: &[String], out: &mut Vec<u8>| {
            let mut told = Vec::new();
            let dumped = saved.dump(only, out, &mut |loss| match loss {
                Loss::Schema { table, what } => told.push((table.clone(), *what)),
                other => panic!("{other}"),
            });
            (dumped, told)
        };
        let saved = Saved::open(small(), &path).expect("it opens");
        let all_told = [("harmed".to_string(), *what)];
        let (dumped, losses) = told(&saved, &[], &mut Vec::new());
        assert!(matches!(dumped, Err(SaveError::Lost)) && losses == all_told, "{losses:?}");
        let sound = ["plain".into(), "sound".into()];
        let (dumped, losses) = told(&saved, &sound, &mut Vec::new());
        assert!(losses.is_empty());
        assert_eq!(dumped.expect("nothing of these is lost").1, State::Whole);
        drop(saved);
        let saved = Saved::salvage(small(), &path).expect("it opens");
        let mut out = Vec::new();
        let (dumped, losses) = told(&saved, &[], &mut out);
        let (dumped, state) = dumped.expect("memory takes it");
        assert_eq!((losses, state), (all_told.to_vec(), State::Partial));
        assert_eq!((dumped.tables, dumped.rows), (3, 3));
        let copy = small().create(folder.path().join(format!("copy {number}"))).expect("made");
        let loaded = load(&copy, &out[..]).expect("it loads");
        assert_eq!(loaded, Loaded { tables: 3, rows: 3, state: State::Partial });
        let rows = copy.read(|txn| txn.open_raw("harmed")?.len());
        assert_eq!(rows.expect("there"), 1);
        copy.check().expect("nothing is damaged there");
    }
}
