//! Dumps: what goes through one comes back, and what can be read of a damaged database is saved.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use terrace::dump::{Event, LoadError, Loss, Reader, SaveError, Saved, State, Writer, load};
use terrace::{Builder, Database, Durability, Error, TableDef, TableInfo};
use terrace_rt::Prng;

const NUMBERS: TableDef<u64, &[u8]> = TableDef::new("numbers");
const WORDS: TableDef<(u32, &str), &str> = TableDef::new("words");
const LARGE: TableDef<&[u8], &[u8]> = TableDef::new("large");
const EMPTY: TableDef<u8, u8> = TableDef::new("empty");
const DROPPED: TableDef<u64, u64> = TableDef::new("dropped");
const PAGE: u64 = 8192;

fn small() -> Builder {
    Database::builder().memory(1 << 20).home_size(16 << 20).log_size(16 << 20)
}

/// Tables of several types, values of all sizes, rows and a table that are gone.
fn fill(db: &Database, prng: &mut Prng) {
    let filled = db.write_with(Durability::None, |txn| {
        txn.open_table(EMPTY)?;
        let mut dropped = txn.open_table(DROPPED)?;
        (0..500).try_for_each(|key| dropped.insert(key, key))?;
        let mut numbers = txn.open_table(NUMBERS)?;
        for key in 0..2_000 {
            numbers.insert(key * 7, &vec![key as u8; 20 + prng.below(150) as usize])?;
        }
        for key in (0..2_000).step_by(3) {
            numbers.remove(key * 7)?;
        }
        let mut words = txn.open_table(WORDS)?;
        for key in 0..400_u32 {
            words.insert((key % 5, &format!("word {key}")), &"w".repeat(key as usize % 90))?;
        }
        Ok::<_, Error>(())
    });
    filled.expect("room");
    let large = db.write(|txn| {
        let mut large = txn.open_table(LARGE)?;
        for key in 0..30_u8 {
            let len = [2_048, 9_000, 40_000, 100_000][usize::from(key % 4)];
            large.insert(&[key], &vec![key; len])?;
        }
        large.remove(&[3])?;
        large.insert(&[7], &vec![77; 70_000])?;
        txn.delete_table("dropped").map(drop)
    });
    large.expect("room");
}

fn make(path: &Path, seed: u64) {
    let db = small().create(path).expect("made");
    fill(&db, &mut Prng::from_seed(seed));
    db.close().expect("closed");
}

/// The dump of the database at `path`, whether it is whole, and what is said to be lost.
fn dump(path: &Path) -> Result<(Vec<u8>, State, Vec<String>), Error> {
    let saved = Saved::salvage(small(), path)?;
    let mut told: Vec<String> = saved.losses().iter().map(Loss::to_string).collect();
    let mut out = Vec::new();
    let (_, state) = saved
        .dump(&[], &mut out, &mut |loss| told.push(loss.to_string()))
        .expect("memory takes it");
    Ok((out, state, told))
}

type Rows = BTreeMap<(String, Vec<u8>), Vec<u8>>;

fn rows(bytes: &[u8]) -> Rows {
    let mut reader = Reader::new(bytes).expect("a dump");
    let (mut rows, mut table) = (Rows::new(), String::new());
    loop {
        match reader.next_event().expect("whole frames") {
            Event::Table(info) => table = info.name,
            Event::Row { key, value } => {
                let old = rows.insert((table.clone(), key.to_vec()), value.to_vec());
                assert!(old.is_none(), "a row twice");
            }
            Event::TableEnd(_) => {}
            Event::End(_) => return rows,
        }
    }
}

#[test]
fn a_dump_of_what_was_loaded_from_a_dump_is_the_same() {
    for seed in 0..4 {
        let folder = tempfile::tempdir().expect("a folder");
        let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
        make(&first, seed);
        let (bytes, state, told) = dump(&first).expect("opens");
        assert_eq!((state, told), (State::Whole, Vec::new()));
        // Rows that were removed are not in it, whatever their pages still have.
        let numbers = rows(&bytes).into_keys().filter(|(table, _)| table == "numbers").count();
        assert_eq!(numbers, 2_000 - 667);
        let db = small().create(&second).expect("made");
        let loaded = load(&db, &bytes[..]).expect("loads");
        assert_eq!((loaded.tables, loaded.state), (4, State::Whole));
        db.check().expect("sound");
        // By its types, as before.
        let found = db.read(|txn| {
            let words = txn.open_table(WORDS)?;
            Ok::<_, Error>(words.get((2, "word 17"))?.expect("there").value().to_string())
        });
        assert_eq!(found.expect("readable"), "w".repeat(17));
        db.close().expect("closed");
        let (again, state, _) = dump(&second).expect("opens");
        assert!(again == bytes && state == State::Whole, "seed {seed}");
    }
}

#[test]
fn a_crashed_database_is_dumped_as_recovery_leaves_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let crashed = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let db = small().create(&path).expect("made");
    fill(&db, &mut Prng::from_seed(8));
    let open = db.begin_write().expect("open");
    open.open_table(NUMBERS).expect("there").insert(1, b"never committed").expect("room");
    db.flush().expect("written");
    for file in ["db", "db.log"] {
        fs::copy(folder.path().join(file), crashed.path().join(file)).expect("room");
    }
    open.rollback().expect("undone");
    db.close().expect("closed");
    let (expected, ..) = dump(&path).expect("opens");
    let (found, state, told) = dump(&crashed.path().join("db")).expect("opens");
    assert!(found == expected, "{state:?} {told:?}");
}

#[test]
fn tables_are_chosen_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    make(&path, 1);
    let saved = Saved::open(small(), &path).expect("opens");
    let names: Vec<_> = saved.tables().map(|table| table.name.clone()).collect();
    assert_eq!(names, ["empty", "large", "numbers", "words"]);
    let mut out = Vec::new();
    let chosen = ["words".to_string()];
    let (dumped, _) = saved.dump(&chosen, &mut out, &mut |_| ()).expect("memory");
    assert_eq!((dumped.tables, dumped.rows, rows(&out).len()), (1, 400, 400));
    let missing = saved.dump(&["nobody".to_string()], &mut out, &mut |_| ());
    assert!(matches!(missing, Err(SaveError::NoSuchTable(name)) if name == "nobody"));
}

#[test]
fn a_dump_that_is_damaged_or_cut_is_not_loaded() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    make(&path, 2);
    let (bytes, ..) = dump(&path).expect("opens");
    for (number, at) in [30, bytes.len() / 2, bytes.len() - 1].into_iter().enumerate() {
        let db = small().create(folder.path().join(format!("to {number}"))).expect("made");
        assert!(matches!(load(&db, &bytes[..at]), Err(LoadError::Dump(_))));
        drop(db);
        let db = small().create(folder.path().join(format!("again {number}"))).expect("made");
        let mut flipped = bytes.clone();
        flipped[at] ^= 4;
        assert!(matches!(load(&db, &flipped[..]), Err(LoadError::Dump(_))));
    }
}

/// Damages page after page of a closed database: nothing panics, no row is made up, what is lost is
/// reported, and most is saved.
#[test]
fn a_damaged_database_is_saved_as_far_as_it_can_be_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    make(&path, 3);
    let (whole, ..) = dump(&path).expect("opens");
    let whole = rows(&whole);
    let home = fs::OpenOptions::new().read(true).write(true).open(&path).expect("there");
    let pages = home.metadata().expect("there").len() / PAGE;
    let mut prng = Prng::from_seed(5);
    let (mut saved, mut partial) = (0, 0);
    for page in 0..pages {
        let mut kept = vec![0; PAGE as usize];
        home.read_exact_at(&mut kept, page * PAGE).expect("there");
        if kept.iter().all(|&byte| byte == 0) {
            continue;
        }
        let mut damaged = kept.clone();
        match prng.below(3) {
            0 => damaged.fill(0),
            1 => damaged[prng.below(PAGE) as usize] ^= 1 << prng.below(8),
            _ => damaged[PAGE as usize / 2..].fill(prng.next_u64() as u8 | 1),
        }
        home.write_all_at(&damaged, page * PAGE).expect("room");
        match dump(&path) {
            Ok((bytes, state, told)) => {
                let found = rows(&bytes);
                let named = |name: &String| !name.starts_with("lost table ");
                for ((table, key), value) in found.iter().filter(|((name, _), _)| named(name)) {
                    let known = whole.get(&(table.clone(), key.clone()));
                    assert!(known == Some(value), "page {page}: a row of {table} is made up");
                }
                let is_less = found.len() < whole.len();
                assert!(!is_less || state == State::Partial, "page {page}: lost without a word");
                assert!(state == State::Whole || !told.is_empty(), "page {page}: nothing is told");
                assert!(found.len() * 4 > whole.len(), "page {page}: {} rows", found.len());
                saved += 1;
                partial += u64::from(state == State::Partial);
            }
            Err(error) => panic!("page {page}: nothing was saved: {error}"),
        }
        home.write_all_at(&kept, page * PAGE).expect("room");
    }
    assert!(saved > 150 && partial > 50, "{saved} saved, {partial} of them in part");
    let (again, state, _) = dump(&path).expect("opens");
    assert!(rows(&again) == whole && state == State::Whole);
}

/// Several pages at once, the superblocks and the log among them.
#[test]
fn a_badly_damaged_database_never_makes_dump_panic() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    make(&path, 4);
    let (whole, ..) = dump(&path).expect("opens");
    let whole = rows(&whole);
    let files = ["db", "db.log"].map(|file| fs::read(folder.path().join(file)).expect("there"));
    let mut prng = Prng::from_seed(6);
    let mut saved = 0;
    for round in 0..120 {
        let damaged = tempfile::tempdir().expect("a folder");
        let mut copies = files.clone();
        for _ in 0..1 + prng.below(12) {
            // The first pages tell most.
            let most = if prng.chance(2) { 80 } else { copies[0].len() as u64 / PAGE };
            let at = prng.below(most) as usize * PAGE as usize;
            let len = PAGE as usize >> prng.below(4);
            let fill = if prng.chance(2) { 0 } else { prng.next_u64() as u8 };
            copies[0][at..at + len].fill(fill);
        }
        if round % 3 == 0 {
            copies[1][..4096].fill(prng.next_u64() as u8);
        }
        if round % 7 == 0 {
            let cut = copies[0].len() / 2 / 8192 * 8192;
            copies[0].truncate(cut);
        }
        for (file, bytes) in ["db", "db.log"].into_iter().zip(&copies) {
            if file == "db" || round % 5 != 0 {
                fs::write(damaged.path().join(file), bytes).expect("room");
            }
        }
        let path = damaged.path().join("db");
        if let Ok((bytes, ..)) = dump(&path) {
            saved += 1;
            for ((table, key), value) in rows(&bytes) {
                if !table.starts_with("lost table ") {
                    let known = whole.get(&(table.clone(), key));
                    assert!(known == Some(&value), "round {round}: a row of {table} is made up");
                }
            }
        }
        assert!(fs::read(&path).expect("there") == copies[0], "round {round}: home was changed");
    }
    assert!(saved > 80, "{saved} of 120 saved");
}

/// What `dump` says of a database whose rollbacks failed at a full home: nothing was saved of it.
#[test]
fn what_cannot_be_rolled_back_is_left_out_of_what_is_saved() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let db = small().create(&path).expect("made");
    fill(&db, &mut Prng::from_seed(9));
    let (expected, ..) = {
        let copy = snapshot(&db, folder.path());
        dump(&copy.path().join("db")).expect("opens")
    };
    // Of every kind of change, some of one row again and again, and a table made and one dropped.
    let open = db.begin_write().expect("open");
    {
        let mut numbers = open.open_table(NUMBERS).expect("there");
        for key in 0..2_000_u64 {
            let number = key * 7;
            match key % 5 {
                0 => numbers.insert(number, b"short").expect("room"),
                1 => assert!(numbers.remove(number).is_ok()),
                2 => numbers.insert(number + 1, &[9; 300]).expect("room"),
                3 => {
                    numbers.remove(number).expect("room");
                    numbers.insert(number, &[7; 3_000]).expect("room");
                    numbers.insert(number, &[8; 10]).expect("room");
                }
                _ => {}
            }
        }
        let mut large = open.open_table(LARGE).expect("there");
        large.insert(&[1], &[1; 90_000]).expect("room");
        large.insert(&[2], &[2; 5]).expect("room");
        large.remove(&[5]).expect("room");
    }
    open.open_table(DROPPED).expect("made").insert(1, 1).expect("room");
    open.delete_table("empty").expect("dropped");
    db.flush().expect("written");
    let crashed = snapshot(&db, folder.path());
    let path = crashed.path().join("db");

    let (rolled_back, state, told) = dump(&path).expect("opens");
    assert!(rolled_back == expected && state == State::Whole, "{told:?}");
    let apart = Saved::with_losers(small(), &path).expect("opens");
    let mut out = Vec::new();
    let mut told: Vec<String> = apart.losses().iter().map(Loss::to_string).collect();
    let dumped = apart.dump(&[], &mut out, &mut |loss| told.push(loss.to_string()));
    let (_, state) = dumped.expect("memory takes it");
    assert!(state == State::Whole && told.is_empty(), "{told:?}");
    assert!(rows(&out) == rows(&expected), "rows that were never committed");
    assert!(out == expected, "tables that were never committed");
    open.rollback().expect("undone");
    db.close().expect("closed");
}

/// The files of a database as a crash would leave them now.
fn snapshot(db: &Database, folder: &Path) -> tempfile::TempDir {
    db.flush().expect("written");
    let copy = tempfile::tempdir().expect("a folder");
    for file in ["db", "db.log"] {
        fs::copy(folder.join(file), copy.path().join(file)).expect("room");
    }
    copy
}

/// The bug: a table that had lost its name was saved as "lost table 3", in the place of a table of
/// this name: of what an earlier salvage had saved, say.
#[test]
fn a_table_that_lost_its_name_takes_no_other_tables_place() {
    const SAVED: TableDef<u64, u64> = TableDef::new("lost table 3");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let db = small().home_size(64 << 20).create(&path).expect("made");
    // Their names fill several leaves of the catalog.
    let names: Vec<&'static str> =
        (0..80).map(|at| &*format!("{at:02}{}", "a".repeat(400)).leak()).collect();
    for name in names {
        let made = db.write(|txn| txn.open_table(TableDef::<u64, u64>::new(name))?.insert(1, 1));
        made.expect("room");
    }
    db.write(|txn| txn.open_table(SAVED)?.insert(7, 8)).expect("room");
    db.close().expect("closed");
    let file = fs::File::options().read(true).write(true).open(&path).expect("there");
    let mut page = [0; PAGE as usize];
    let is_leaf_of = |page: &[u8], name: &[u8]| page.windows(name.len()).any(|it| it == name);
    let damaged = (34..64).filter(|at| {
        file.read_exact_at(&mut page, at * PAGE).expect("there");
        let is_lost = is_leaf_of(&page, &[b'a'; 400]) && !is_leaf_of(&page, b"lost table 3");
        if is_lost {
            file.write_all_at(&[0; PAGE as usize], at * PAGE).expect("room");
        }
        is_lost
    });
    assert!(damaged.count() > 1);
    let (bytes, state, told) = dump(&path).expect("there is something left");
    let rows = rows(&bytes);
    assert_eq!(state, State::Partial, "{told:?}");
    let value = rows.get(&("lost table 3".to_string(), 7_u64.to_be_bytes().to_vec()));
    assert!(value.is_some_and(|value| **value == 8_u64.to_le_bytes()), "{told:?}");
    let lost = rows.get(&("lost table 3 (again)".to_string(), 1_u64.to_be_bytes().to_vec()));
    assert!(lost.is_some(), "{told:?}");
}

/// The bug: a table with type names of more than 64 KiB was loaded, and the database never opened
/// again.
#[test]
fn names_of_types_that_no_catalog_takes_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let mut writer = Writer::new(Vec::new()).expect("memory");
    let key_type = "k".repeat(66_000);
    let info = TableInfo { name: "t".into(), key_type, ..TableInfo::default() };
    writer.table(&info).expect("memory");
    writer.end_table(State::Whole).expect("memory");
    let bytes = writer.finish(State::Whole).expect("memory");
    let db = small().create(&path).expect("made");
    let loaded = load(&db, &bytes[..]);
    assert!(matches!(loaded, Err(LoadError::Dump(_))), "{loaded:?}");
    db.close().expect("closed");
    small().open(&path).expect("it is whole").close().expect("closed");
}
