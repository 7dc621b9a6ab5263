//! Damaged bytes, in every region of home and log, of a database that was closed and of one that
//! crashed: whatever they are, the rows that are read are right, or an error tells, and an opening
//! that refuses has changed nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use terrace::{Checkpoint, CopyFlaw, Database, Devices, Durability, Error, Part, TableDef};
use terrace_device::model::{Preset, SimDevice};
use terrace_device::{Keep, Store};
use terrace_page::PAGE_SIZE;
use terrace_rt::{Prng, Virtual, VirtualConfig, World};

const HOME: u64 = 16 << 20;
const LOG: u64 = 4 << 20;
const SECTOR: usize = 512;
/// The map, and the catalog's header and root.
const MAP: u64 = 2;
const HEADER: u64 = 32;
const ROOT: u64 = 33;
const TABLES: u64 = 36;

type Rows = BTreeMap<u64, Vec<u8>>;

/// The bytes of a database, and what it holds.
#[derive(Clone)]
struct Image {
    home: Store,
    log: Store,
    rows: Rows,
}

fn in_world<T: Send + 'static>(seed: u64, body: impl FnOnce(&World) -> T + Send + 'static) -> T {
    let config = VirtualConfig { seed, switch_one_in: 0, cores: 1, stack_bytes: 512 << 10 };
    let virtual_world = Virtual::new(config);
    let world = virtual_world.world();
    virtual_world.run(move || body(&world)).expect("nobody waits for ever")
}

fn device(world: &World, store: &Store) -> Arc<SimDevice> {
    SimDevice::new(Preset::Ram.spec().with_write_cache(), world.clone(), store.clone())
}

fn open(home: &Arc<SimDevice>, log: &Arc<SimDevice>) -> Result<Database, Error> {
    let devices = Devices { home: home.clone(), flash: None, log: log.clone() };
    Database::builder().memory(512 << 10).devices(devices).open_on_devices()
}

/// Enough of them that the catalog has several nodes.
fn name(table: u64) -> &'static str {
    String::leak(format!("{table:04} {}", "is the number of a table with a long name ".repeat(8)))
}

fn table(table: u64) -> TableDef<'static, u64, &'static [u8]> {
    TableDef::new(name(table))
}

fn value(row: u64) -> Vec<u8> {
    let len = if row.is_multiple_of(17) { 20_000 } else { 200 };
    vec![row as u8; len]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Closed,
    Crashed,
}

fn image(end: End) -> Image {
    in_world(1, move |world| {
        let blank = |bytes| device(world, &Store::new(bytes, Keep::Plain));
        let (home, log) = (blank(HOME), blank(LOG));
        let devices = Devices { home: home.clone(), flash: None, log: log.clone() };
        let db = Database::builder().memory(512 << 10).devices(devices);
        let db = db.create_on_devices().expect("good devices");
        let mut rows = Rows::new();
        let put = |from: u64, to: u64, rows: &mut Rows| {
            db.write(|txn| {
                for row in from..to {
                    txn.open_table(table(row % TABLES))?.insert(row, &value(row))?;
                    rows.insert(row, value(row));
                }
                Ok::<_, Error>(())
            })
        };
        put(0, 500, &mut rows).expect("good devices");
        db.checkpoint(Checkpoint::Sharp).expect("good devices");
        put(500, 560, &mut rows).expect("good devices");
        if end == End::Crashed {
            // One is open, and in the log, with more than a page after what was committed.
            let txn = db.begin_write().expect("open");
            txn.open_table(table(3)).and_then(|mut t| t.insert(3, &[1; 50])).expect("free");
            txn.open_table(table(TABLES)).and_then(|mut t| t.insert(1, &[1; 5])).expect("free");
            db.flush().expect("good devices");
            txn.open_table(table(5)).and_then(|mut t| t.insert(5, &[2; 30_000])).expect("free");
            db.flush().expect("good devices");
            let image = Image { home: home.store(), log: log.store(), rows };
            txn.rollback().expect("good devices");
            db.close().expect("good devices");
            return image;
        }
        db.close().expect("good devices");
        Image { home: home.store(), log: log.store(), rows }
    })
}

/// What is done to the bytes.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Bit,
    Sector,
    Page,
}

fn damage(store: &mut Store, page: u64, kind: Damage, prng: &mut Prng) {
    let mut bytes = vec![0; PAGE_SIZE];
    let at = page * PAGE_SIZE as u64;
    store.read(at, &mut bytes).expect("kept");
    let start = prng.below((PAGE_SIZE / SECTOR) as u64) as usize * SECTOR;
    match kind {
        Damage::Bit => bytes[prng.below(PAGE_SIZE as u64) as usize] ^= 1 << prng.below(8),
        Damage::Sector => bytes[start..start + SECTOR].fill(0),
        Damage::Page => bytes.fill(0),
    }
    store.write(at, &bytes);
}

fn bytes(store: &Store) -> Vec<u8> {
    let mut bytes = vec![0; store.len() as usize];
    store.read(0, &mut bytes).expect("kept");
    bytes
}

/// Reads every row; how many could not be read. What is read must be right.
fn read_all(db: &Database, rows: &Rows, case: &str) -> u64 {
    let mut errors = 0;
    for (row, value) in rows {
        let got = db.read(|txn| {
            let table = txn.open_table(table(row % TABLES))?;
            Ok::<_, Error>(table.get(*row)?.map(|value| value.value().to_vec()))
        });
        match got {
            Ok(Some(got)) => assert!(got == *value, "{case}: row {row} is another"),
            Ok(None) | Err(Error::NoSuchTable { .. }) => {
                panic!("{case}: row {row} is gone without a word");
            }
            Err(_) => errors += 1,
        }
    }
    errors
}

/// What came of a damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Repaired,
    Told,
    Refused,
}

/// Opens what is damaged, and reads all of it.
fn attempt(image: Image, case: String) -> Fate {
    in_world(2, move |world| {
        let (home, log) = (device(world, &image.home), device(world, &image.log));
        match open(&home, &log) {
            Err(error) => {
                let is_same = bytes(&home.store()) == bytes(&image.home)
                    && bytes(&log.store()) == bytes(&image.log);
                let said = error.to_string();
                // To open again, which that one advises, would end in the same way for ever.
                assert!(!matches!(error, Error::Failed { .. }), "{case}: {said}");
                assert!(is_same, "{case}: refused, and changed: {said}");
                let again = open(&home, &log).expect_err("refused before");
                assert_eq!(again.to_string(), said, "{case}");
                Fate::Refused
            }
            Ok(db) => {
                let errors = read_all(&db, &image.rows, &case);
                let checked = db.check();
                assert!(errors == 0 || checked.is_err(), "{case}: {errors}, and check says sound");
                let _closed = db.close();
                if errors == 0 && checked.is_ok() { Fate::Repaired } else { Fate::Told }
            }
        }
    })
}

const KINDS: [Damage; 3] = [Damage::Bit, Damage::Sector, Damage::Page];

fn used_pages(store: &Store) -> Vec<u64> {
    let bytes = bytes(store);
    let (pages, _) = bytes.as_chunks::<PAGE_SIZE>();
    let is_used = |page: &u64| pages[*page as usize].iter().any(|&byte| byte != 0);
    (0..pages.len() as u64).filter(is_used).collect()
}

/// A row was removed before the first page of its large value was found to be damaged, and its
/// rollback needed that page: the engine stopped, and once the log was flushed no opening came
/// through.
#[test]
fn a_row_whose_large_value_is_damaged_refuses_its_removal_and_all_else_goes_on() {
    let image = image(End::Closed);
    let is_overflow = |page: &u64| {
        let mut bytes = [0; PAGE_SIZE];
        image.home.read(page * PAGE_SIZE as u64, &mut bytes).expect("kept");
        terrace_page::kind(&bytes) == Some(terrace_page::PageKind::Overflow)
    };
    let pages: Vec<u64> = used_pages(&image.home).into_iter().filter(is_overflow).collect();
    let mut refused = 0;
    for page in pages {
        let mut image = image.clone();
        damage(&mut image.home, page, Damage::Sector, &mut Prng::from_seed(page));
        refused += in_world(3, move |world| {
            let (home, log) = (device(world, &image.home), device(world, &image.log));
            let refused = remove_large_rows(open(&home, &log).expect("its pages are whole"));
            let (home, log) = (device(world, &home.store()), device(world, &log.store()));
            let db = open(&home, &log).expect("nothing is left to be rolled back");
            let is_there =
                db.read(|txn| txn.open_table(table(1))?.get(9_999).map(|it| it.is_some()));
            assert!(is_there.is_ok_and(|it| it));
            db.close().expect("good devices");
            refused
        });
    }
    assert!(refused > 0, "a first page was damaged");
}

/// Removes and replaces the rows that cannot be read, and rolls back; how often that was refused.
fn remove_large_rows(db: Database) -> u64 {
    let mut refused = 0;
    for row in (0..560).step_by(17) {
        if db.read(|txn| txn.open_table(table(row % TABLES))?.get(row).map(drop)).is_ok() {
            continue;
        }
        for replaces in [false, true] {
            let txn = db.begin_write().expect("open");
            let mut rows = txn.open_table(table(row % TABLES)).expect("whole");
            let done = match replaces {
                true => rows.insert(row, &[1; 9]).map(drop),
                false => rows.remove(row).map(drop),
            };
            drop(rows);
            // As the commit of any other transaction does.
            db.flush().expect("good devices");
            refused += u64::from(matches!(done, Err(Error::Corrupt { .. })));
            txn.rollback().expect("it needs no damaged page");
        }
    }
    db.write(|txn| txn.open_table(table(1))?.insert(9_999, &[1; 9]).map(drop))
        .expect("all else goes on");
    db.close().expect("good devices");
    refused
}

/// Damages pages of home and log at random, and counts what came of it.
fn damage_at_random(end: End, seeds: std::ops::Range<u64>) {
    let whole = image(end);
    let (home_pages, log_pages) = (used_pages(&whole.home), used_pages(&whole.log));
    let mut fates: BTreeMap<Fate, u64> = BTreeMap::new();
    for seed in seeds {
        let mut prng = Prng::from_seed(seed);
        let mut image = whole.clone();
        let is_log = prng.chance(4);
        let kind = KINDS[prng.below(3) as usize];
        let pick = |pages: &[u64], prng: &mut Prng| pages[prng.below(pages.len() as u64) as usize];
        let page = match is_log {
            true => pick(&log_pages, &mut prng),
            // Every second time one of the first: superblocks, map, catalog, and what is near.
            false if prng.chance(2) => home_pages[prng.below(12) as usize],
            false => pick(&home_pages, &mut prng),
        };
        let store = if is_log { &mut image.log } else { &mut image.home };
        damage(store, page, kind, &mut prng);
        let part = if is_log { "log" } else { "home" };
        let case = format!("{end:?} {seed}: {kind:?} of page {page} of {part}");
        *fates.entry(attempt(image, case)).or_default() += 1;
    }

    assert!(fates.len() == 3, "each fate is met: {fates:?}");
}

#[test]
fn damage_to_a_closed_database_is_repaired_or_told() {
    damage_at_random(End::Closed, 0..250);
}

#[test]
fn damage_to_a_crashed_database_is_repaired_or_told() {
    damage_at_random(End::Crashed, 1_000..1_250);
}

/// Page 2 zeroed on a closed database: opening made an empty catalog, and `check` said sound. A
/// damaged page of the catalog: a panic at every opening, each of which changed the database.
#[test]
fn a_system_page_that_is_lost_refuses_the_opening_and_nothing_is_written() {
    let whole = image(End::Closed);
    let mut prng = Prng::from_seed(7);
    let catalog = (HEADER..HEADER + 32).filter(|page| used_pages(&whole.home).contains(page));
    let pages: Vec<u64> = [MAP].into_iter().chain(catalog).collect();
    assert!(pages.len() > 4 && pages.contains(&ROOT), "the catalog has several nodes: {pages:?}");
    for page in pages {
        for kind in KINDS {
            let mut image = whole.clone();
            damage(&mut image.home, page, kind, &mut prng);
            if bytes(&image.home) == bytes(&whole.home) {
                continue;
            }
            let case = format!("{kind:?} of page {page}");
            let fate = attempt(image, case.clone());
            // A page that was freed is not needed.
            let is_live = page <= ROOT;
            assert!(!is_live || fate == Fate::Refused, "{case}: {fate:?}");
        }
    }
}

/// One superblock of two is enough, whichever it is; none is an error.
#[test]
fn one_superblock_of_two_is_enough() {
    for end in [End::Closed, End::Crashed] {
        let whole = image(end);
        for kind in KINDS {
            for page in 0..2 {
                let mut image = whole.clone();
                let mut prng = Prng::from_seed(page);
                damage(&mut image.home, page, kind, &mut prng);
                let case = format!("{end:?}: {kind:?} of superblock {page}");
                assert_eq!(attempt(image, case), Fate::Repaired);
            }
        }
        let mut image = whole.clone();
        image.home.write(0, &vec![1; 2 * PAGE_SIZE]);
        let case = format!("{end:?}: both superblocks");
        assert_eq!(attempt(image, case), Fate::Refused);
    }
}

/// The bug: damage of a superblock, or of a header of the log, that redundancy hid was never
/// reported, and a header of the log never written anew.
#[test]
fn a_bad_copy_of_a_header_is_told_and_repaired_by_the_next_opening_for_writing() {
    const BLOCK: u64 = 4096;
    for end in [End::Closed, End::Crashed] {
        for (part, at) in [Part::Home, Part::Log].iter().flat_map(|part| [(*part, 0), (*part, 1)]) {
            for kind in [CopyFlaw::Damaged, CopyFlaw::Blank] {
                let mut image = image(end);
                let (store, bytes_each) = match part {
                    Part::Home => (&mut image.home, PAGE_SIZE as u64),
                    _ => (&mut image.log, BLOCK),
                };
                let offset = at * bytes_each;
                store.write(offset, &[if kind == CopyFlaw::Blank { 0 } else { 7 }; 4096]);
                in_world(3, move |world| a_bad_copy(world, &image, (part, offset, kind)));
            }
        }
    }
}

fn a_bad_copy(world: &World, image: &Image, (part, offset, flaw): (Part, u64, CopyFlaw)) {
    let case = format!("{flaw:?} of {part} at {offset}");
    let (home, log) = (device(world, &image.home), device(world, &image.log));
    let told = |db: &Database| {
        assert_eq!(read_all(db, &image.rows, &case), 0, "{case}");
        db.check().unwrap_or_else(|error| panic!("{case}: {error}"));
        let bad: Vec<_> = db.bad_copies().iter().map(|it| (it.part, it.offset, it.flaw)).collect();
        bad
    };
    let devices = Devices { home: home.clone(), flash: None, log: log.clone() };
    let read_only = Database::builder().memory(512 << 10).devices(devices).read_only();
    let db = read_only.open_on_devices().expect("one copy is whole");
    assert_eq!(told(&db), [(part, offset, flaw)], "{case}");
    db.close().expect("nothing is written");
    assert!(bytes(&home.store()) == bytes(&image.home), "{case}: looking has changed it");
    assert!(bytes(&log.store()) == bytes(&image.log), "{case}: looking has changed it");

    let db = open(&home, &log).expect("one copy is whole");
    assert_eq!(told(&db), [(part, offset, flaw)], "{case}");
    db.close().expect("good devices");
    let db = open(&home, &log).expect("whole");
    assert_eq!(told(&db), [], "{case}: repaired");
    db.close().expect("good devices");
}

/// A damaged page of a closed database, whose newest copy beside the log was damaged, too, came
/// back as an older copy: the row had an old value, and `check` said sound.
#[test]
fn no_older_copy_stands_in_for_a_damaged_page() {
    const ROWS: TableDef<u64, u64> = TableDef::new("rows");
    in_world(5, |world| {
        let blank = |bytes| device(world, &Store::new(bytes, Keep::Plain));
        let (home, log) = (blank(HOME), blank(LOG));
        let devices = Devices { home: home.clone(), flash: None, log: log.clone() };
        let db = Database::builder().memory(512 << 10).devices(devices);
        let db = db.create_on_devices().expect("good devices");
        for value in 0..6 {
            db.write(|txn| txn.open_table(ROWS)?.insert(5, value)).expect("room");
            db.checkpoint(Checkpoint::Sharp).expect("good devices");
        }
        db.close().expect("good devices");
        let (mut home, mut log) = (home.store(), log.store());
        // The leaf: the page of which there are most copies.
        let copies = copies(&log);
        let leaf = copies.iter().max_by_key(|(_, places)| places.len()).expect("some").0;
        let places = &copies[leaf];
        assert!(places.len() >= 6, "{places:?}");
        for damaged in 0..places.len() {
            home.write(leaf * PAGE_SIZE as u64, &[7; 3000]);
            let newest = places.iter().rev().take(damaged);
            newest.for_each(|(_, at)| log.write(*at, &[7; 3000]));
            let (home, log) = (device(world, &home), device(world, &log));
            let db = open(&home, &log).expect("its system pages are whole");
            let row = db.read(|txn| txn.open_table(ROWS)?.get(5));
            let value = row.as_ref().map(|row| row.as_ref().map(terrace::Owned::value));
            assert!(matches!(value, Err(_) | Ok(Some(5))), "{damaged} damaged: {value:?}");
            let sound = db.check().is_ok();
            assert!(!sound || row.is_ok(), "{damaged} damaged: check says sound");
            let _closed = db.close();
        }
    });
}

/// By page, the LSNs and places of the whole pages in a log's doublewrite area.
fn copies(log: &Store) -> BTreeMap<u64, BTreeMap<u64, u64>> {
    let bytes = bytes(log);
    let mut found: BTreeMap<u64, BTreeMap<u64, u64>> = BTreeMap::new();
    for at in (8192..(1 << 20)).step_by(4096) {
        let page: &[u8; PAGE_SIZE] = bytes[at..at + PAGE_SIZE].try_into().expect("a page");
        let id = terrace_page::page_id(page);
        if terrace_page::verify(page, id).is_ok() {
            found.entry(id.0).or_default().insert(terrace_page::lsn(page).0, at as u64);
        }
    }
    found
}

/// What was made and never committed is as good as blank; a creation that was cut short, too.
#[test]
fn a_creation_that_was_cut_short_is_gone_on_with() {
    for event in 1..200 {
        let config =
            |seed| VirtualConfig { seed, switch_one_in: 0, cores: 1, stack_bytes: 512 << 10 };
        let first = Virtual::new(config(event));
        let world = first.world();
        let blank = |bytes| device(&world, &Store::new(bytes, Keep::Plain));
        let (home, log) = (blank(HOME), blank(LOG));
        first.cut_at_event(event);
        let create = |home: &Arc<SimDevice>, log: &Arc<SimDevice>| {
            let devices = Devices { home: home.clone(), flash: None, log: log.clone() };
            let builder = Database::builder().memory(512 << 10).devices(devices);
            builder.open_or_create_on_devices()
        };
        if first.run(|| create(&home, &log).map(drop)).is_ok() {
            assert!(event > 5, "creation has events");
            return;
        }
        let mut prng = Prng::from_seed(event);
        home.power_cut(&mut prng);
        log.power_cut(&mut prng);
        let second = Virtual::new(config(event));
        let world = second.world();
        let (home, log) = (home.reopen(world.clone()), log.reopen(world));
        let opened = second.run(|| {
            let db = create(&home, &log)?;
            let txn = db.begin_write()?;
            txn.open_table(table(1))?.insert(1, &[1])?;
            txn.commit(Durability::Durable)?;
            db.check()?;
            db.close()
        });
        opened.expect("nobody waits for ever").unwrap_or_else(|error| panic!("{event}: {error}"));
    }
}

/// Gives both superblocks another 64-bit field.
fn with_field(store: &mut Store, at: usize, field: u64) {
    for id in 0..2 {
        let mut page = [0; PAGE_SIZE];
        store.read(id * PAGE_SIZE as u64, &mut page).expect("kept");
        page[at..at + 8].copy_from_slice(&field.to_le_bytes());
        terrace_page::seal(&mut page);
        store.write(id * PAGE_SIZE as u64, &page);
    }
}

#[test]
fn unknown_features_and_other_formats_refuse_and_change_nothing() {
    const VERSION_AT: usize = 40;
    const COMPATIBLE: usize = 160;
    const READ_ONLY: usize = 168;
    const INCOMPATIBLE: usize = 176;
    let whole = image(End::Closed);
    let opens = |at: usize, field: u64, reads_only: bool| {
        let mut image = whole.clone();
        with_field(&mut image.home, at, field);
        in_world(3, move |world| {
            let (home, log) = (device(world, &image.home), device(world, &image.log));
            let devices = Devices { home: home.clone(), flash: None, log: log.clone() };
            let builder = Database::builder().memory(512 << 10).devices(devices);
            let builder = if reads_only { builder.read_only() } else { builder };
            let opened = builder.open_on_devices();
            if opened.is_err() {
                assert!(bytes(&home.store()) == bytes(&image.home));
                assert!(bytes(&log.store()) == bytes(&image.log));
            }
            opened.map(|db| assert_eq!(read_all(&db, &image.rows, "features"), 0))
        })
    };
    opens(COMPATIBLE, u64::MAX, false).expect("nothing that one has to know");
    opens(READ_ONLY, 4, true).expect("it may be read");
    let refused = opens(READ_ONLY, 4, false);
    let expected =
        matches!(refused, Err(Error::UnknownFeatures { incompatible: 0, read_only: 4, .. }));
    assert!(expected, "{refused:?}");
    let refused = opens(INCOMPATIBLE, 1 << 40, true).expect_err("it cannot be read");
    assert!(refused.to_string().contains("0x10000000000"), "it names the bits: {refused}");
    // The page size follows the version.
    let format = |version: u64| version | (PAGE_SIZE as u64) << 32;
    for version in [1, 2] {
        let older = opens(VERSION_AT, format(version), true).expect_err("another format");
        assert!(matches!(older, Error::OlderFormat { supported: 3, .. }), "{older:?}");
        assert!(older.to_string().contains("terrace upgrade"), "{older}");
    }
    let newer = opens(VERSION_AT, format(4), false);
    assert!(matches!(newer, Err(Error::NewerFormat { found: 4, supported: 3, .. })), "{newer:?}");
}

/// A database of format 3 as the versions before wrote it: it has no bits for large cells, values
/// that go home first, splices, blocks and counts, which those versions do not know.
#[test]
fn an_opening_for_writing_tells_of_its_features_first() {
    const INCOMPATIBLE: usize = 176;
    const KNOWN: u8 = 31;
    let told = |store: &Store| [0, 1].map(|copy| bytes(store)[copy * PAGE_SIZE + INCOMPATIBLE]);
    let mut image = image(End::Closed);
    assert_eq!(told(&image.home), [KNOWN; 2], "a new database has it");
    with_field(&mut image.home, INCOMPATIBLE, 0);
    in_world(3, move |world| {
        let (home, log) = (device(world, &image.home), device(world, &image.log));
        let devices = Devices { home: home.clone(), flash: None, log: log.clone() };
        let reader = Database::builder().memory(512 << 10).devices(devices).read_only();
        let db = reader.open_on_devices().expect("a known format");
        assert_eq!(read_all(&db, &image.rows, "without the bit"), 0);
        drop(db);
        assert_eq!(told(&home.store()), [0; 2], "a reader writes nothing");

        let db = open(&home, &log).expect("a known format");
        assert_eq!(told(&home.store()), [KNOWN; 2], "before anything else is written");
        assert_eq!(read_all(&db, &image.rows, "with the bit"), 0);
        let put = |txn: &terrace::WriteTransaction| {
            let mut rows = txn.open_table(table(1))?;
            [4_000, 8_192].iter().try_for_each(|len| rows.insert(*len, &vec![7; *len as usize]))
        };
        db.write(put).expect("good devices");
        db.check().expect("sound");
        db.close().expect("good devices");
        assert_eq!(told(&home.store()), [KNOWN; 2]);
    });
}
