//! Raw tables and stored schemas: rows as bytes held against a map and against the typed table,
//! schemas through snapshots, renames, dumps and power cuts, and what is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use terrace::dump::{Saved, State, load};
use terrace::{
    Column, Database, Durability, Error, RawTable, Schema, TableDef, TableInfo, TableSpec,
};
use terrace_rt::{LeafMutex, Prng, Stopped, Virtual, VirtualConfig};

mod rig;

use rig::Rig;

#[path = "raw/damaged.rs"]
mod damaged;

const PAIRS: TableDef<(u8, &[u8]), &[u8]> = TableDef::new("pairs");

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn column(name: &str, type_name: &str, is_nullable: bool) -> Column {
    Column { name: name.into(), type_name: type_name.into(), is_nullable }
}

fn schema(names: &[&str]) -> Schema {
    let columns = names.iter().map(|name| column(name, "INT", name.len() % 2 == 0)).collect();
    Schema::new(columns, 1).expect("sound")
}

/// A key of the typed table, too: not empty.
fn key(prng: &mut Prng) -> Vec<u8> {
    (0..1 + prng.below(4)).map(|_| [0, 7, 254, 255][prng.below(4) as usize]).collect()
}

fn value(prng: &mut Prng) -> Vec<u8> {
    let len = if prng.chance(12) { 4_000 + prng.below(20_000) } else { prng.below(60) };
    vec![prng.next_u64() as u8; len as usize]
}

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

fn bounds(prng: &mut Prng) -> Bounds {
    let mut bound = || match prng.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Excluded(key(prng)),
        _ => Bound::Included(key(prng)),
    };
    (bound(), bound())
}

fn refer((lower, upper): &Bounds) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (lower.as_ref().map(|key| &key[..]), upper.as_ref().map(|key| &key[..]))
}

fn within(model: &Model, (lower, upper): &Bounds) -> Vec<Vec<u8>> {
    let above = |key: &Vec<u8>| match lower {
        Bound::Unbounded => true,
        Bound::Included(bound) => key >= bound,
        Bound::Excluded(bound) => key > bound,
    };
    let below = |key: &Vec<u8>| match upper {
        Bound::Unbounded => true,
        Bound::Included(bound) => key <= bound,
        Bound::Excluded(bound) => key < bound,
    };
    model.keys().filter(|key| above(key) && below(key)).cloned().collect()
}

fn changes(raw: &mut RawTable<'_>, model: &mut Model, prng: &mut Prng) -> Result<(), Error> {
    let (key, value) = (key(prng), value(prng));
    match prng.below(8) {
        0 => {
            raw.insert(&key, &value)?;
            model.insert(key, value);
        }
        1 => {
            let is_new = raw.insert_new(&key, &value)?;
            assert_eq!(is_new, !model.contains_key(&key));
            model.entry(key).or_insert(value);
        }
        2 => {
            let is_there = raw.update(&key, &value)?;
            assert_eq!(is_there, model.contains_key(&key));
            model.entry(key).and_modify(|old| *old = value);
        }
        3 => {
            let old = raw.replace(&key, &value)?.map(|old| old.value().to_vec());
            assert_eq!(old, model.insert(key, value));
        }
        4 => assert_eq!(raw.remove(&key)?, model.remove(&key).is_some()),
        5 => {
            let taken = raw.take(&key)?.map(|old| old.value().to_vec());
            assert_eq!(taken, model.remove(&key));
        }
        6 => {
            let mut row = Vec::new();
            let found = raw.modify(&key, &mut row, |row| {
                row.push(7);
                Ok::<_, Error>(())
            })?;
            assert_eq!(found, model.contains_key(&key));
            model.entry(key).and_modify(|old| old.push(7));
        }
        _ => assert_eq!(
            raw.get_for_update(&key)?.map(|found| found.value().to_vec()),
            model.get(&key).cloned(),
        ),
    }
    Ok(())
}

fn sweeps(raw: &mut RawTable<'_>, model: &mut Model, prng: &mut Prng) -> Result<(), Error> {
    let bounds = bounds(prng);
    let keys = within(model, &bounds);
    match prng.below(6) {
        0 => {
            let first = raw.pop_first(refer(&bounds))?.map(|entry| entry.key().to_vec());
            assert_eq!(first.as_ref(), keys.first());
            first.map(|key| model.remove(&key));
        }
        1 => {
            let last = raw.pop_last(refer(&bounds))?.map(|entry| entry.key().to_vec());
            assert_eq!(last.as_ref(), keys.last());
            last.map(|key| model.remove(&key));
        }
        2 => {
            let drained = raw.drain(refer(&bounds))?.rev().take(3);
            let drained: Result<Vec<_>, Error> =
                drained.map(|entry| entry.map(|entry| entry.key().to_vec())).collect();
            let expected: Vec<_> = keys.iter().rev().take(3).cloned().collect();
            assert_eq!(drained?, expected);
            expected.iter().for_each(|key| drop(model.remove(key)));
        }
        3 => {
            let deleted = raw.retain(refer(&bounds), |key, _| key.len() % 2 == 0)?;
            let gone: Vec<_> = keys.iter().filter(|key| key.len() % 2 == 1).collect();
            assert_eq!(deleted, gone.len() as u64);
            gone.into_iter().for_each(|key| drop(model.remove(key)));
        }
        4 if prng.chance(4) => {
            assert_eq!(raw.remove_range(refer(&bounds))?, keys.len() as u64);
            keys.iter().for_each(|key| drop(model.remove(key)));
        }
        _ => {
            let range = raw.range(refer(&bounds))?.rev();
            let found: Result<Vec<_>, Error> =
                range.map(|entry| entry.map(|entry| entry.key().to_vec())).collect();
            assert_eq!(found?, keys.into_iter().rev().collect::<Vec<_>>());
        }
    }
    Ok(())
}

/// What a table has: as bytes, by prefixes, and as typed rows.
fn compare(db: &Database, model: &Model, prng: &mut Prng) -> Result<(), Error> {
    db.read(|txn| {
        let (raw, pairs) = (txn.open_raw("pairs")?, txn.open_table(PAIRS)?);
        let rows = raw.range(..)?.map(|row| row.map(|row| (row.key().into(), row.value().into())));
        assert_eq!(&rows.collect::<Result<Model, Error>>()?, model);
        let mut typed = pairs.range(..)?;
        for (key, value) in model {
            let entry = typed.next().expect("as many as raw ones")?;
            assert_eq!((entry.key(), entry.value()), ((key[0], &key[1..]), &value[..]));
        }
        let begin = key(prng);
        let expected = model.keys().filter(|key| key.starts_with(&begin)).count();
        assert_eq!(raw.prefix(&begin[..])?.count(), expected);
        let ends = [raw.first()?, raw.last()?].map(|end| end.map(|end| end.key().to_vec()));
        assert_eq!(ends, [model.keys().next().cloned(), model.keys().next_back().cloned()]);
        assert_eq!(raw.is_empty()?, model.is_empty());
        Ok(())
    })
}

#[test]
fn raw_tables_agree_with_a_map_and_with_the_typed_table() {
    for seed in 0..12 {
        agree(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

fn agree(seed: u64) -> Result<(), Error> {
    let db = Database::in_memory()?;
    let (mut prng, mut model) = (Prng::from_seed(seed), Model::new());
    db.write(|txn| txn.open_table(PAIRS).map(drop))?;
    for _ in 0..60 {
        let txn = db.begin_write()?;
        let (mut raw, before) = (txn.open_raw("pairs")?, model.clone());
        for _ in 0..prng.below(30) {
            match prng.chance(4) {
                true => sweeps(&mut raw, &mut model, &mut prng)?,
                false => changes(&mut raw, &mut model, &mut prng)?,
            }
        }
        drop(raw);
        if prng.chance(5) {
            txn.rollback()?;
            model = before;
        } else {
            txn.commit(Durability::None)?;
        }
        compare(&db, &model, &mut prng)?;
    }
    db.check()?;
    Ok(())
}

#[test]
fn large_values_of_raw_tables_are_written_and_read_in_parts() -> Result<(), Error> {
    use std::io::{Read, Write};
    let db = Database::in_memory()?;
    let large: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 1_000) as u8).collect();
    db.write(|txn| {
        let mut raw = txn.open_raw_with("files", &TableSpec::bytes())?;
        let mut writer = raw.writer(b"a")?;
        writer.write_all(&large).expect("room");
        writer.finish()
    })?;
    let txn = db.begin_read()?;
    let mut found = Vec::new();
    let mut reader = txn.open_raw("files")?.reader(b"a")?.expect("just written");
    reader.read_to_end(&mut found).expect("sound");
    assert!(found == large);
    Ok(())
}

#[test]
fn a_raw_load_fills_a_table_that_is_typed() -> Result<(), Error> {
    const NUMBERS: TableDef<u32, u8> = TableDef::new("numbers");
    let db = Database::in_memory()?;
    db.write(|txn| {
        let mut loader = txn.bulk_load_raw("numbers", &TableSpec::of::<u32, u8>())?;
        (0..500_u32).try_for_each(|key| loader.push(&key.to_be_bytes(), &[key as u8]))?;
        loader.finish()
    })?;
    let refused = db.write(|txn| txn.bulk_load_raw("numbers", &TableSpec::bytes()).map(drop));
    assert!(matches!(refused, Err(Error::TableTypes { .. })), "{refused:?}");
    db.read(|txn| {
        let numbers = txn.open_table(NUMBERS)?;
        assert_eq!(numbers.get(300)?.map(|value| value.value()), Some(300_u32 as u8));
        assert_eq!(numbers.range(..)?.count(), 500);
        Ok(())
    })
}

#[test]
fn schemas_are_kept_by_snapshots_names_and_rollbacks() -> Result<(), Error> {
    let db = Database::in_memory()?;
    let (one, other) = (schema(&["id", "age"]), schema(&["id"]));
    let spec = TableSpec::new("i64", "row")?.schema(one.clone());
    db.write(|txn| txn.open_raw_with("people", &spec).map(drop))?;
    let info = |name: &str, schema: &Schema| TableInfo {
        name: name.into(),
        key_type: "i64".into(),
        value_type: "row".into(),
        schema: Some(schema.clone()),
        damage: None,
    };
    let snapshot = db.begin_read()?;
    let txn = db.begin_write()?;
    let savepoint = txn.savepoint()?;
    assert!(txn.rename_table("people", "persons")?);
    assert_eq!(txn.tables()?, [info("persons", &one)]);
    txn.rollback_to(&savepoint)?;
    assert_eq!(txn.tables()?, [info("people", &one)]);
    assert!(txn.delete_table("people")?);
    txn.open_raw_with("people", &TableSpec::new("i64", "row")?.schema(other.clone()))?;
    assert_eq!(txn.tables()?, [info("people", &other)]);
    assert_eq!(db.tables()?, [info("people", &one)]);
    txn.commit(Durability::Durable)?;
    assert_eq!(db.tables()?, [info("people", &other)]);
    assert_eq!(snapshot.tables()?, [info("people", &one)]);
    Ok(())
}

#[test]
fn what_does_not_fit_the_stored_types_or_schema_is_told() -> Result<(), Error> {
    const PEOPLE: TableDef<i64, &str> = TableDef::new("people");
    let db = Database::in_memory()?;
    let (stored, asked) = (schema(&["id", "age"]), schema(&["id", "name"]));
    db.write(|txn| txn.open_table_with(PEOPLE, &stored)?.insert(1, "Ada"))?;
    let txn = db.begin_write()?;
    let says = |error: Error, all: &[&str]| {
        let text = error.to_string();
        all.iter().for_each(|part| assert!(text.contains(part), "{text}"));
        error
    };
    // With the stored schema, and without one, each kind of transaction opens it.
    txn.open_table_with(PEOPLE, &stored)?;
    txn.open_table(PEOPLE)?;
    txn.open_raw_with("people", &TableSpec::of::<i64, &'static str>())?;
    let error = txn.open_table_with(PEOPLE, &asked).expect_err("another schema");
    let texts = ["\"people\"", &stored.to_string(), &asked.to_string()];
    let Error::TableSchema { .. } = says(error, &texts) else { panic!("another error") };
    let spec = TableSpec::new("i64", "bytes")?;
    let error = txn.open_raw_with("people", &spec).expect_err("other types");
    let Error::TableTypes { .. } = says(error, &["<i64, str>", "<i64, bytes>"]) else {
        panic!("another error")
    };
    // None of that doomed the transaction.
    txn.open_table(PEOPLE)?.insert(2, "Bob")?;
    txn.open_raw_with("plain", &TableSpec::bytes())?;
    let spec = TableSpec::bytes().schema(asked.clone());
    let error = txn.open_raw_with("plain", &spec).expect_err("it has none");
    says(error, &["\"plain\" has no schema", &asked.to_string()]);
    txn.commit(Durability::None)?;
    let refused = db.read(|txn| txn.open_table_with(PEOPLE, &asked).map(drop));
    says(refused.expect_err("another schema"), &texts);
    db.read(|txn| txn.open_table_with(PEOPLE, &stored).map(drop))?;
    let missing = db.read(|txn| txn.open_raw("none").map(drop));
    assert!(matches!(missing, Err(Error::NoSuchTable { .. })), "{missing:?}");
    let missing = db.write(|txn| txn.open_raw("none").map(drop));
    assert!(matches!(missing, Err(Error::NoSuchTable { .. })), "{missing:?}");
    Ok(())
}

#[test]
fn names_of_any_length_are_taken_or_refused() -> Result<(), Error> {
    let db = Database::in_memory()?;
    let full = Schema::new(vec![column(&"c".repeat(2_875), "", false)], 0)?;
    let spec = TableSpec::new("k", "v")?.schema(full.clone());
    let (longest, long) = ("n".repeat(1_023), "n".repeat(10_000));
    db.write(|txn| {
        for name in ["", &longest] {
            txn.open_raw_with(name, &spec)?.insert(b"", b"row")?;
        }
        let refused = txn.open_raw_with(&long, &spec).map(drop);
        assert!(matches!(refused, Err(Error::KeyTooLong { .. })), "{refused:?}");
        let missing = txn.open_raw(&long).map(drop);
        assert!(matches!(missing, Err(Error::NoSuchTable { .. })), "{missing:?}");
        Ok::<_, Error>(())
    })?;
    db.check()?;
    let found = db.tables()?;
    let names: Vec<_> = found.iter().map(|table| (&*table.name, &table.schema)).collect();
    assert_eq!(names, [("", &Some(full.clone())), (&longest, &Some(full))]);
    db.write(|txn| {
        assert!(txn.rename_table("", "short")?);
        assert_eq!(txn.open_raw("short")?.get(b"")?.expect("there").value(), b"row");
        assert!(txn.delete_table(&longest)?);
        Ok(())
    })
}

#[test]
fn bytes_that_do_not_encode_the_types_are_told_to_those_who_read_with_types() -> Result<(), Error> {
    const NUMBERS: TableDef<u32, u32> = TableDef::new("numbers");
    let db = Database::in_memory()?;
    db.write(|txn| {
        let mut numbers = txn.open_table(NUMBERS)?;
        numbers.insert(1, 2)?;
        txn.open_raw("numbers")?.insert(b"three", b"4")
    })?;
    let read = db.read(|txn| {
        let numbers = txn.open_table(NUMBERS)?;
        assert_eq!(numbers.get(1)?.map(|value| value.value()), Some(2));
        numbers.last().map(drop)
    });
    assert!(matches!(read, Err(Error::Undecodable { .. })), "{read:?}");
    Ok(())
}

#[test]
fn dumps_keep_schemas_and_so_does_the_home() {
    let folder = tempfile::tempdir().expect("a folder");
    let small = || Database::builder().memory(1 << 20).home_size(16 << 20).log_size(8 << 20);
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
    let db = small().create(&first).expect("made");
    let made = db.write(|txn| {
        let spec = TableSpec::new("i64", "row")?.schema(schema(&["id", "age"]));
        txn.open_raw_with("people", &spec)?.insert(b"key", b"value")?;
        txn.open_raw_with("plain", &TableSpec::bytes()).map(drop)
    });
    made.expect("room");
    let tables = db.tables().expect("readable");
    db.close().expect("closed");
    let dump = |path| {
        let (saved, mut out) = (Saved::open(small(), path).expect("whole"), Vec::new());
        let (_, state) = saved.dump(&[], &mut out, &mut |_| ()).expect("memory takes it");
        assert_eq!(state, State::Whole);
        out
    };
    let bytes = dump(&first);
    let db = small().create(&second).expect("made");
    load(&db, &bytes[..]).expect("loads");
    assert_eq!(db.tables().expect("readable"), tables);
    db.close().expect("closed");
    assert_eq!(dump(&second), bytes);
    let db = small().open(&second).expect("it was closed");
    assert_eq!(db.tables().expect("readable"), tables);
}

fn open(rig: &Rig) -> Result<Database, Error> {
    rig.open(Database::builder().memory(512 << 10))
}

fn world(seed: u64) -> Virtual {
    Virtual::new(VirtualConfig { seed, switch_one_in: 0, cores: 1, stack_bytes: 256 << 10 })
}

/// Tables made with random schemas, given new names and deleted; `told` has what was committed, and
/// what the commit under way would make of that.
fn change_schemas(rig: &Rig, told: &LeafMutex<[Vec<TableInfo>; 2]>) -> Result<(), Error> {
    let db = open(rig)?;
    let mut prng = Prng::from_seed(3);
    for number in 0..12 {
        let txn = db.begin_write()?;
        for _ in 0..1 + prng.below(3) {
            let name = ["a", "b", "c"][prng.below(3) as usize];
            match prng.below(4) {
                0 => drop(txn.delete_table(name)?),
                1 => match txn.rename_table(name, "d") {
                    Ok(_) | Err(Error::TableExists { .. }) => {}
                    Err(error) => return Err(error),
                },
                _ if txn.table_names()?.iter().any(|there| there == name) => {}
                _ => {
                    let names = [format!("{number}"), "x".repeat(1 + prng.below(2_000) as usize)];
                    let schema = schema(&[&names[0], &names[1]]);
                    let spec = TableSpec::new("k", name)?.schema(schema);
                    txn.open_raw_with(name, &spec)?.insert(b"row", b"1")?;
                }
            }
        }
        told.lock()[1] = txn.tables()?;
        txn.commit(Durability::Durable)?;
        let mut told = told.lock();
        told[0] = told[1].clone();
    }
    db.close()
}

#[test]
fn schemas_survive_every_cut() {
    for at in (1..).step_by(3) {
        let first = world(at);
        let rig = Rig::blank(&first.world());
        let told = LeafMutex::new([Vec::new(), Vec::new()]);
        first.cut_at_event(at);
        let mut prng = Prng::from_seed(at);
        match first.run(|| change_schemas(&rig, &told)) {
            Ok(ran) => {
                ran.expect("no error");
                assert!(at > 100, "the history has only {at} events");
                return;
            }
            Err(Stopped::PowerCut { .. }) => {
                rig.cut(&mut prng);
            }
            Err(stopped) => panic!("{stopped:?}"),
        }
        let last = world(at);
        let rig = rig.in_world(&last.world());
        let opened = last.run(|| {
            let db = open(&rig).unwrap_or_else(|error| panic!("event {at}: {error}"));
            db.check().unwrap_or_else(|error| panic!("event {at}: {error}"));
            let (found, told) = (db.tables().expect("readable"), told.lock().clone());
            assert!(told.contains(&found), "event {at}: {found:?}\n{told:?}");
            db.close().expect("good devices");
        });
        opened.expect("nobody waits for ever");
    }
}

/// Threads that make, open and delete tables of the same names with different types and schemas.
#[test]
fn threads_agree_on_the_schemas_of_tables() {
    const SPAN: Duration = Duration::from_secs(2);
    let db = Database::in_memory().expect("memory");
    let (stop, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let schemas = [schema(&["a"]), schema(&["a", "b"])];
    let step = |prng: &mut Prng| {
        let schema = &schemas[prng.below(2) as usize];
        let spec = TableSpec::new("k", "v").expect("short").schema(schema.clone());
        let name = ["one", "two"][prng.below(2) as usize];
        let did = db.write_with(Durability::None, |txn| match prng.below(4) {
            0 => txn.delete_table(name).map(drop),
            1 => match txn.open_raw(name) {
                Ok(mut raw) => raw.insert(b"x", b"1"),
                Err(Error::NoSuchTable { .. }) => Ok(()),
                Err(error) => Err(error),
            },
            _ => match txn.open_raw_with(name, &spec) {
                Ok(_) => {
                    let tables = txn.tables()?;
                    let own = tables.iter().find(|table| table.name == name).expect("just opened");
                    assert_eq!(own.schema.as_ref(), Some(schema));
                    Ok(())
                }
                Err(Error::TableSchema { stored, asked, .. }) => {
                    assert_eq!(*asked, *schema);
                    assert_ne!(stored.as_ref().as_ref(), Some(schema));
                    Ok(())
                }
                Err(error) => Err(error),
            },
        });
        did.expect("conflicts are run again");
        let known: BTreeSet<String> = ["one", "two"].map(String::from).into();
        for table in db.tables().expect("readable") {
            assert!(known.contains(&table.name) && schemas.contains(&table.schema.expect("one")));
        }
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let (stop, step) = (&stop, &step);
                scope.spawn(move || {
                    let mut prng = Prng::from_seed(client);
                    while !stop.load(Ordering::Relaxed) {
                        step(&mut prng);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let began = Instant::now();
            while !ended.load(Ordering::Relaxed) {
                if began.elapsed() > Duration::from_secs(90) {
                    eprintln!("threads stand still:\n{}", db.debug_waits());
                    std::process::abort();
                }
                thread::sleep(Duration::from_millis(20));
            }
        });
        thread::sleep(SPAN);
        stop.store(true, Ordering::Relaxed);
        let joined: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        ended.store(true, Ordering::Relaxed);
        assert!(joined.iter().all(Result::is_ok));
    });
    db.check().expect("sound");
}
