//! Databases in files: what is opened, what is refused, and that nothing refused is changed.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use terrace::{
    Action, Builder, ColdStart, Contents, Database, Devices, DirectIo, Error, Holder, Part,
    TableDef,
};
use terrace_device::{FileDevice, FileOptions};

const ROWS: TableDef<u64, u64> = TableDef::new("rows");

fn small() -> Builder {
    Database::builder().memory(1 << 20).home_size(4 << 20).log_size(2 << 20)
}

fn make(path: &Path) {
    let db = small().create(path).expect("a good place");
    db.write(|txn| txn.open_table(ROWS)?.insert(1, 2)).expect("room");
    db.close().expect("a good place");
}

#[test]
fn a_database_in_files_comes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    make(&path);
    let db = small().open(&path).expect("there");
    assert!(matches!(small().open(&path), Err(Error::AlreadyOpen { .. })));
    assert!(matches!(small().create(&path), Err(Error::AlreadyOpen { .. })));
    // Dropped, not closed by name.
    drop(db);
    assert!(matches!(small().create(&path), Err(Error::Exists { .. })));
    let db = small().open_or_create(&path).expect("there");
    assert_eq!(db.read(|txn| txn.open_table(ROWS)?.get(1)).expect("it").expect("it").value(), 2);
    assert_eq!(db.check().expect("whole").entries, 2);
}

/// `HomeFull` advised to enlarge the home, and there was no way to.
#[test]
fn a_full_home_is_opened_with_a_larger_size_and_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    const VALUES: TableDef<u64, &[u8]> = TableDef::new("values");
    let sized = |bytes: u64| Database::builder().memory(1 << 20).log_size(2 << 20).home_size(bytes);
    let fill = |db: &Database, from: u64| {
        let put = |key| db.write(|txn| txn.open_table(VALUES)?.insert(key, &[key as u8; 5000]));
        let refused = (from..from + 5000).find_map(|key| put(key).err().map(|error| (key, error)));
        let Some((full_at, Error::HomeFull { .. })) = refused else { panic!("{refused:?}") };
        full_at
    };
    let db = sized(2 << 20).create(&path).expect("a good place");
    let mut rows = fill(&db, 0);
    let text = fill_error(&db, rows);
    assert!(text.contains("`home_size`"), "{text}");
    db.close().expect("a good place");
    // By its option, and by extending the file by hand.
    for (bytes, by_hand) in [(4u64 << 20, false), (7 << 20, true)] {
        if by_hand {
            let file = fs::OpenOptions::new().write(true).open(&path).expect("there");
            file.set_len(bytes).expect("room");
        }
        let db = sized(if by_hand { 1 << 20 } else { bytes }).open(&path).expect("there");
        assert_eq!(fs::metadata(&path).expect("there").len(), bytes);
        let more = fill(&db, rows);
        assert!(more > rows + 100, "{more} rows of 5 KB after {rows}");
        rows = more;
        db.check().expect("whole");
        db.close().expect("a good place");
    }
    let db = Database::builder().memory(1 << 20).open(&path).expect("there");
    let count = db.read(|txn| Ok::<_, Error>(txn.open_table(VALUES)?.range(..)?.count()));
    assert_eq!(count.expect("readable") as u64, rows);
    db.close().expect("a good place");
    // One that lost its end does not get another.
    fs::OpenOptions::new().write(true).open(&path).expect("there").set_len(3 << 20).expect("short");
    assert!(matches!(sized(9 << 20).open(&path), Err(Error::Truncated { .. })));
    assert_eq!(fs::metadata(&path).expect("there").len(), 3 << 20);
}

/// The error that putting `key` into a full home returns.
fn fill_error(db: &Database, key: u64) -> String {
    const VALUES: TableDef<u64, &[u8]> = TableDef::new("values");
    // More than what extents that are in use may have left.
    let value = vec![0; 250_000];
    let put = db.write(|txn| txn.open_table(VALUES)?.insert(key, &value));
    put.expect_err("it is full").to_string()
}

#[test]
fn what_is_missing_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let missing =
        |part| move |error: Error| matches!(error, Error::Missing { part: p, .. } if p == part);
    assert!(small().open(&path).is_err_and(missing(Part::Home)));
    let nowhere = folder.path().join("no").join("db");
    assert!(small().create(&nowhere).is_err());
    make(&path);
    fs::rename(folder.path().join("db.log"), folder.path().join("elsewhere")).expect("renamed");
    assert!(small().open(&path).is_err_and(missing(Part::Log)));
    let db = small().log(folder.path().join("elsewhere")).open(&path).expect("found");
    db.close().expect("a good place");
}

#[test]
fn what_is_not_a_database_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notes");
    let notes = "not a database\n".repeat(5_000);
    fs::write(&path, &notes).expect("written");
    assert!(matches!(
        small().open(&path),
        Err(Error::NotADatabase { part: Part::Home, .. })
            | Err(Error::Missing { part: Part::Log, .. })
    ));
    let text = Contents::Data { offset: 0 };
    let created = small().create(&path);
    assert!(
        matches!(&created, Err(Error::NotBlank { found, .. }) if *found == text),
        "{created:?}"
    );
    assert!(small().open_or_create(&path).is_err());
    // What may be overwritten is for `create` to say, not for an opening of what is there.
    assert!(small().overwrite(true).open_or_create(&path).is_err());
    let other = folder.path().join("db");
    assert!(matches!(
        small().log(&path).create(&other),
        Err(Error::NotBlank { part: Part::Log, .. })
    ));
    assert!(small().open(folder.path()).is_err());
    assert_eq!(fs::read_to_string(&path).expect("there"), notes);
}

#[test]
fn a_foreign_log_a_newer_format_and_a_corrupt_header_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    make(&one);
    make(&two);
    let foreign = small().log(folder.path().join("two.log")).open(&one);
    assert!(matches!(foreign, Err(Error::NotADatabase { part: Part::Log, .. })), "{foreign:?}");

    let mut bytes = fs::read(&one).expect("there");
    for page in bytes[..2 * 8192].chunks_mut(8192) {
        page[3000] ^= 1;
    }
    fs::write(&one, &bytes).expect("written");
    let corrupt = small().open(&one);
    assert!(matches!(corrupt, Err(Error::Corrupt { part: Part::Home, .. })), "{corrupt:?}");
    assert_eq!(fs::read(&one).expect("there"), bytes, "nothing was written");

    let mut bytes = fs::read(&two).expect("there");
    for (id, page) in bytes[..2 * 8192].chunks_mut(8192).enumerate() {
        page[40] = 9;
        let mut sealed: terrace_page::PageBuf = (&*page).try_into().expect("a page");
        terrace_page::set_page_id(&mut sealed, terrace_page::PageId(id as u64));
        terrace_page::seal(&mut sealed);
        page.copy_from_slice(&sealed);
    }
    fs::write(&two, &bytes).expect("written");
    let newer = small().open(&two);
    assert!(matches!(newer, Err(Error::NewerFormat { found: 9, .. })), "{newer:?}");
    assert_eq!(fs::read(&two).expect("there"), bytes, "nothing was written");
}

#[test]
fn what_lies_in_the_page_cache_is_said_or_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name, direct| {
        let options =
            FileOptions { size: Some(2 << 20), create: true, direct, ..Default::default() };
        FileDevice::open(folder.path().join(name), &options).map(|device| Arc::new(device) as _)
    };
    let (home, log) = (file("home", false).expect("a file"), file("log", false).expect("a file"));
    let devices = Devices { home, flash: None, log };
    let db = Database::builder().devices(devices).create_on_devices().expect("good files");
    let cached = db.stats().cached;
    assert!(cached.home && cached.log && !cached.flash, "{cached:?}");
    db.close().expect("good files");
    // A file of the kernel's own has no direct I/O, wherever the test runs.
    let path = folder.path().join("db");
    let refused = small().log("/proc/self/comm").direct_io(DirectIo::Required).create(&path);
    let refused = refused.map(drop).expect_err("no direct I/O");
    let Error::Device { part: Part::Log, action: Action::Open, source, .. } = &refused else {
        panic!("{refused:?}");
    };
    assert_eq!(source.kind(), ErrorKind::InvalidInput, "{refused:?}");
    assert!(!path.exists(), "what was made before is taken away");
}

#[test]
fn absurd_sizes_are_refused_before_anything_is_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let builders = [
        small().memory(0),
        small().memory(u64::MAX),
        small().log_size(0),
        small().home_size(1),
        small().flash(folder.path().join("flash"), 0),
        small().lock_escalation(0),
    ];
    for builder in builders {
        let refused = builder.create(&path);
        assert!(matches!(refused, Err(Error::InvalidOption { .. })), "{refused:?}");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<_> = entries.map(|entry| name(entry.expect("an entry"))).collect();
    names.sort();
    names
}

fn holds_a_row(db: &Database) -> bool {
    db.read(|txn| Ok::<_, Error>(txn.open_table(ROWS)?.get(1)?.is_some_and(|row| row.value() == 2)))
        .expect("a sound database")
}

const WITH_FLASH: u64 = 1 << 20;

/// The step that a process of its own ends after, and the path that it creates a database at.
const STOP_AFTER: &str = "TERRACE_TEST_STOP_AFTER";
const STOP_AT_PATH: &str = "TERRACE_TEST_PATH";

/// An empty or a sparse file that a creation had left kept both `create` and `open` from their work
/// for ever.
#[test]
fn a_creation_that_ends_anywhere_leaves_what_can_be_created_or_opened() {
    const NAME: &str = "a_creation_that_ends_anywhere_leaves_what_can_be_created_or_opened";
    static STEPS: AtomicU32 = AtomicU32::new(0);
    fn step() {
        let stop = std::env::var(STOP_AFTER).expect("set").parse().expect("a number");
        if STEPS.fetch_add(1, Ordering::Relaxed) == stop {
            std::process::abort();
        }
    }
    let builder = |path: &Path, home: bool| {
        let flash = path.with_extension("flash");
        let builder = Database::builder().memory(1 << 20).log_size(2 << 20);
        let builder = builder.flash(flash, WITH_FLASH);
        if home { builder.home_size(4 << 20) } else { builder }
    };
    if let Some(path) = std::env::var_os(STOP_AT_PATH) {
        let path = Path::new(&path);
        let home = path.ends_with("sized");
        builder(path, home).on_create_step(step).create(path).expect("room").close().expect("room");
        return;
    }
    let mut ends = 0;
    for (home, name) in [(true, "sized"), (false, "sparse")] {
        for stop in 0.. {
            assert!(stop < 100, "creation ends");
            let mut ended = true;
            for (at, next) in ["create", "open", "open_or_create", "larger"].iter().enumerate() {
                let folder = tempfile::tempdir().expect("a folder");
                let path = folder.path().join(name);
                let child = Command::new(std::env::current_exe().expect("a test program"))
                    .args(["--exact", NAME])
                    .env(STOP_AFTER, stop.to_string())
                    .env(STOP_AT_PATH, &path)
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status()
                    .expect("a process");
                ended &= !child.success();
                let opened = builder(&path, home).open(&path);
                let there = opened.is_ok();
                if let Err(error) = &opened {
                    let told = error.to_string();
                    assert!(matches!(error, Error::Missing { .. }), "{stop}: {told}");
                    assert!(told.contains(name), "{told}");
                }
                drop(opened);
                let again = match at {
                    _ if there => builder(&path, home).open_or_create(&path),
                    0 => builder(&path, home).create(&path),
                    3 => builder(&path, home).home_size(8 << 20).log_size(3 << 20).create(&path),
                    _ => builder(&path, home).open_or_create(&path),
                };
                let db = again.unwrap_or_else(|error| panic!("{next} after {stop}: {error}"));
                db.write(|txn| txn.open_table(ROWS)?.insert(1, 2)).expect("room");
                assert!(holds_a_row(&db) && db.check().is_ok());
                db.close().expect("room");
            }
            if !ended {
                break;
            }
            ends += 1;
        }
    }
    assert!(ends > 10, "{ends} places to end at");
}

/// The log header is written before the superblock: a home that is blank beside such a log.
#[test]
fn a_log_is_taken_only_if_it_is_what_a_creation_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    make(&one);
    let log = folder.path().join("one.log");
    let before = fs::read(&log).expect("there");
    // A database that is closed needs its log, too.
    let taken = small().log(&log).create(&two);
    assert!(matches!(taken, Err(Error::Exists { part: Part::Log, .. })), "{taken:?}");
    assert!(fs::read(&log).expect("there") == before && !two.exists());
    // Either copy of the header may be there, or both.
    for kept in [0..4096, 4096..8192, 0..8192, 0..0] {
        let mut header = vec![0; before.len()];
        header[kept.clone()].copy_from_slice(&before[kept.clone()]);
        fs::write(folder.path().join("two.log"), header).expect("room");
        fs::File::create(&two).and_then(|file| file.set_len(64 << 30)).expect("holes");
        small().create(&two).expect("a leftover").close().expect("room");
        assert_eq!(fs::metadata(&two).expect("there").len(), 4 << 20, "{kept:?}");
        fs::remove_file(&two).expect("there");
    }
    let mut more = before;
    more[8192..].fill(0);
    more[100_000] = 1;
    fs::write(folder.path().join("two.log"), more).expect("room");
    let taken = small().create(&two);
    assert!(matches!(taken, Err(Error::Exists { part: Part::Log, .. })), "{taken:?}");
}

/// A btrfs file system begins at 64 KiB: with nothing before, it was destroyed.
#[test]
fn what_holds_a_file_system_is_named_and_left_alone_unless_it_may_be_destroyed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let image = |name: &str| {
        let mut bytes = vec![0; 3 << 20];
        bytes[0x1_0040..0x1_0048].copy_from_slice(b"_BHRfS_M");
        fs::write(path(name), &bytes).expect("room");
        bytes
    };
    let images = ["home", "flash", "log"].map(image);
    let cases = [
        (Part::Home, small(), "home"),
        (Part::Flash, small().flash(path("flash"), 2 << 20), "db"),
        (Part::Log, small().log(path("log")), "db"),
    ];
    let before = names(folder.path());
    for (part, builder, home) in &cases {
        let Err(error) = builder.clone().create(path(home)) else { panic!("{part} was taken") };
        let told = error.to_string();
        assert!(matches!(error, Error::NotBlank { part: p, .. } if p == *part), "{told}");
        assert!(told.contains("btrfs") && told.contains("overwrite"), "{told}");
        assert!(told.contains(folder.path().to_str().expect("a plain path")), "{told}");
    }
    assert_eq!(names(folder.path()), before);
    for (name, image) in ["home", "flash", "log"].iter().zip(images) {
        assert!(fs::read(path(name)).expect("there") == image, "{name} was changed");
    }
    let (_, builder, _) = &cases[1];
    make(&path("db"));
    let opened = builder.clone().open(path("db"));
    assert!(matches!(opened, Err(Error::NotBlank { part: Part::Flash, .. })), "{opened:?}");
    let opened = small().open(path("home"));
    let told = opened.map(drop).expect_err("no database").to_string();
    assert!(told.contains("btrfs"), "{told}");
    let db = builder.clone().overwrite(true).open(path("db")).expect("it may be destroyed");
    assert!(holds_a_row(&db) && db.cold_start() == Some(ColdStart::Blank));
    db.close().expect("room");
    for (_, builder, home) in &cases {
        let db = builder.clone().overwrite(true).create(path(home)).expect("it may be destroyed");
        db.close().expect("room");
        let db = builder.clone().open(path(home)).expect("its own");
        assert!(db.check().is_ok());
    }
}

#[test]
fn files_are_their_users_alone_and_a_link_has_its_log_beside_what_it_leads_to() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().expect("a folder");
    let (data, links) = (folder.path().join("data"), folder.path().join("links"));
    fs::create_dir(&data).and_then(|()| fs::create_dir(&links)).expect("room");
    let builder = || small().flash(data.join("flash"), WITH_FLASH);
    builder().create(data.join("db")).expect("room").close().expect("room");
    assert_eq!(names(&data), ["db", "db.log", "flash"]);
    for name in names(&data) {
        let mode = fs::metadata(data.join(&name)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    symlink(data.join("db"), links.join("db")).expect("room");
    builder().open(links.join("db")).expect("its log is beside it").close().expect("room");
    let created = small().create(links.join("db"));
    assert!(matches!(created, Err(Error::Exists { .. })), "{created:?}");
    symlink("broken", links.join("first")).expect("room");
    symlink("../data/made", links.join("broken")).expect("room");
    small().create(links.join("first")).expect("it leads to a place").close().expect("room");
    assert_eq!(names(&data), ["db", "db.log", "flash", "made", "made.log"]);
    symlink("circle", links.join("circle")).expect("room");
    let created = small().create(links.join("circle"));
    assert!(matches!(created, Err(Error::Device { part: Part::Home, .. })), "{created:?}");
    assert_eq!((names(&data).len(), names(&links).len()), (5, 4));
}

#[test]
fn what_is_neither_a_file_nor_a_block_device_is_refused_and_nothing_is_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let _socket = std::os::unix::net::UnixListener::bind(path("socket")).expect("a socket");
    let made = Command::new("mkfifo").arg(path("pipe")).status();
    assert!(made.is_ok_and(|status| status.success()));
    fs::create_dir(path("folder")).expect("room");
    let long = "x".repeat(10_000);
    let before = names(folder.path());
    let odd = [
        (path("folder"), "a folder"),
        (path("pipe"), "a pipe"),
        (path("socket"), "a socket"),
        ("/dev/null".into(), "a character device"),
        (path(&long), "too long"),
        (path("no").join("such").join("folder"), "does not exist"),
        (path("socket").join("within"), "Not a directory"),
    ];
    for (odd, what) in &odd {
        let refusals = [
            small().create(odd),
            small().log(odd).create(path("db")),
            small().flash(odd, WITH_FLASH).create(path("db")),
            small().open(odd),
            small().open_or_create(odd),
            Database::open_read_only(odd),
        ];
        for (at, refused) in refusals.into_iter().enumerate() {
            let error = refused.map(drop).expect_err("no place for a database");
            let told = error.to_string();
            let missing = matches!(error, Error::Missing { .. });
            assert!(told.contains(what) || missing, "{at} of {}: {told}", odd.display());
        }
        assert_eq!(names(folder.path()), before, "{}", odd.display());
    }
}

#[test]
fn one_path_for_two_parts_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let builders = [
        small().log(path("db")),
        small().log(folder.path().join(".").join("db")),
        small().flash(path("db"), WITH_FLASH),
        small().flash(path("db.log"), WITH_FLASH),
    ];
    for builder in builders {
        let refused = builder.create(path("db"));
        assert!(matches!(refused, Err(Error::InvalidOption { .. })), "{refused:?}");
    }
    // Two names of one file are seen when it is locked.
    fs::write(path("one"), "")
        .and_then(|()| fs::hard_link(path("one"), path("two")))
        .expect("room");
    let refused = small().log(path("two")).create(path("one"));
    let own = Holder::Process { pid: std::process::id() };
    let told = matches!(&refused, Err(Error::AlreadyOpen { part: Part::Log, holder, .. })
        if **holder == own || **holder == Holder::Unknown);
    assert!(told, "{refused:?}");
    assert_eq!(names(folder.path()), ["one", "two"]);
}

#[test]
fn a_full_disk_is_told_with_what_was_wanted_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    // No file system has as much; for the log it is the most that may be asked for.
    let (bytes, log_bytes) = (1 << 60, (1 << 42) - (1 << 20));
    let builders = [
        (Part::Home, bytes, small().home_size(bytes)),
        (Part::Log, log_bytes, small().log_size(log_bytes)),
        (Part::Flash, bytes, small().flash(folder.path().join("flash"), bytes)),
    ];
    for (part, bytes, builder) in builders {
        let Err(error) = builder.create(&path) else { panic!("{part}: no room for it") };
        let told = error.to_string();
        let right = matches!(&error, Error::NoRoom { part: p, needed, path: Some(_), .. }
            if *p == part && *needed >= bytes);
        assert!(right && told.contains(&bytes.to_string()[..4]), "{told}");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0, "{part}");
    }
}

/// The log of a home on a block device went into the memory file system of the device nodes.
#[test]
fn a_block_device_needs_a_place_for_its_log() {
    use std::os::unix::fs::FileTypeExt;
    let is_block_device =
        |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_block_device());
    let mut nodes = fs::read_dir("/dev").expect("a folder").flatten();
    let Some(node) = nodes.find(is_block_device) else {
        println!("not tested: no block device here");
        return;
    };
    let refused = [small().create(node.path()), small().open(node.path())];
    for refused in refused {
        let Err(error) = refused else { panic!("a device was taken") };
        assert!(matches!(error, Error::LogPlace { .. }), "{error}");
        assert!(error.to_string().contains("`log`"), "{error}");
    }
}

/// Growing was preferred to what had been freed: values of 29 MB that were replaced over and over
/// left a file of 140 MB.
#[test]
fn a_sparse_home_stays_about_as_large_as_what_it_held() {
    use std::os::unix::fs::MetadataExt;
    const VALUES: TableDef<u64, &[u8]> = TableDef::new("values");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let db = Database::builder().memory(8 << 20).log_size(64 << 20).create(&path).expect("there");
    let blocks = || fs::metadata(&path).expect("there").blocks() * 512;
    let mut prng = terrace_rt::Prng::from_seed(6);
    let (mut most_used, mut live) = (0, 0);
    for round in 0..40u64 {
        live = 0;
        for key in 0..12 {
            // From 1 KB to 8 MiB, never twice the same.
            let len = (1024u64 << key.min(12)) * (50 + prng.below(51)) / 100;
            let value = vec![(round + key) as u8; len as usize * if key == 11 { 4 } else { 1 }];
            live += value.len() as u64;
            db.write_with(terrace::Durability::None, |txn| {
                let put = txn.open_table(VALUES)?.insert(key, &value[..]);
                // The value that it replaces is there until the transaction has ended.
                most_used = most_used.max(db.stats().home_used_bytes);
                put
            })
            .expect("room");
        }
    }
    let held = blocks();
    // Between two looks one more of the largest values may have waited to be freed.
    most_used += 8 << 20;
    assert!(
        held * 2 <= most_used * 3,
        "{held} bytes of blocks, {most_used} used at most, {live} live"
    );
    db.check().expect("whole");
    db.close().expect("a good place");
}

/// The bug: `keep_misses` wrote over whatever was at its path when the database was closed, its own
/// home included.
#[test]
fn misses_are_kept_in_the_place_of_misses_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let (home, log, misses) = (path("db"), path("db.log"), path("db.misses"));
    let close = |builder: Builder| builder.open(&home).expect("it opens").close();
    // The home is not there yet when its path is given.
    assert!(small().keep_misses(&home).create(&home).is_err());
    assert!(!home.exists() && !log.exists(), "nothing is left behind");
    small().create(&home).expect("a good place").close().expect("nothing failed");
    fs::write(path("text"), "not misses").expect("written");
    std::os::unix::fs::symlink(&home, path("link")).expect("made");
    fs::hard_link(&log, path("hard")).expect("made");
    for taken in ["db", "db.log", "text", "link", "hard", "."] {
        let refused = small().keep_misses(path(taken)).open(&home);
        let is_refused = matches!(refused, Err(Error::InvalidOption { option: "keep_misses", .. }));
        assert!(is_refused, "{taken}: {refused:?}");
    }
    for _ in 0..2 {
        close(small().keep_misses(&misses)).expect("nothing failed");
        let text = fs::read_to_string(&misses).expect("kept");
        text.parse::<terrace::Misses>().expect("whole");
    }
    // A link to misses is replaced, and not what it leads to.
    std::os::unix::fs::symlink(&misses, path("other")).expect("made");
    close(small().keep_misses(path("other"))).expect("nothing failed");
    assert!(fs::symlink_metadata(path("other")).expect("there").is_file());
    assert_eq!(fs::read(path("text")).expect("there"), b"not misses");
    close(small()).expect("the database is whole");
}
