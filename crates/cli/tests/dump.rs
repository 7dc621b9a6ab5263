//! Looking at databases, saving and loading them, as users of the command meet it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use terrace::{Builder, Checkpoint, Database, Error, FlashRole, TableDef};
use terrace_policy::designs;
use terrace_rt::Prng;

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const NAMES: TableDef<&str, &str> = TableDef::new("names");
const PAGE: u64 = 8192;

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
    command.args(arguments).current_dir(folder).env_remove("RUST_BACKTRACE");
    command
}

fn terrace(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn small(folder: &Path) -> Builder {
    let flash = folder.join("flash");
    Database::builder().memory(1 << 20).home_size(8 << 20).log_size(8 << 20).flash(flash, 2 << 20)
}

fn make(folder: &Path) -> Database {
    let db = small(folder).create(folder.join("db")).expect("made");
    let filled = db.write(|txn| {
        let (mut rows, mut names) = (txn.open_table(ROWS)?, txn.open_table(NAMES)?);
        for key in 0..2_000 {
            rows.insert(key, &[key as u8; 200])?;
        }
        rows.insert(5_000, &vec![9; 100_000])?;
        names.insert("one", "1")?;
        names.insert("two", "2")
    });
    filled.expect("room");
    // What is at home only is lost with it.
    db.checkpoint(Checkpoint::Sharp).expect("room");
    db.write(|txn| txn.open_table(NAMES)?.insert("three", "3")).expect("room");
    db
}

/// The bug: `terrace stat db --json db` put a text in the place of the database.
#[test]
fn nothing_is_written_over_a_database() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    make(at).close().expect("closed");
    fs::hard_link(at.join("db"), at.join("same")).expect("a link");
    std::os::unix::fs::symlink("db.log", at.join("link")).expect("a link");
    let before = files(at);
    for file in ["db", "db.log", "same", "link"] {
        for words in [
            &["stat", "db", "--json", file][..],
            &["check", "db", "--json", file],
            &["trace", "make", file, "--ids", "10", "--requests", "100"],
        ] {
            let ran = terrace(at, words);
            assert!(!ran.status.success(), "{words:?}");
        }
        assert_eq!(files(at), before, "{file}");
    }
    // What the command wrote itself is replaced, through a link, too.
    for name in ["out.json", "out.json"] {
        let ran = terrace(at, &["stat", "db", "--json", name]);
        assert!(ran.status.success(), "{}", text(&ran.stderr));
    }
    std::os::unix::fs::symlink("out.json", at.join("through")).expect("a link");
    assert!(terrace(at, &["check", "db", "--json", "through"]).status.success());
    let kept = fs::read_to_string(at.join("out.json")).expect("a text");
    assert!(kept.starts_with('{'), "{kept}");
    assert!(at.join("through").is_symlink());
}

/// The bug: a database whose cache had vanished could not be looked at with the options that it was
/// used with: "No such file or directory".
#[test]
fn a_database_is_looked_at_without_its_cache() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    make(at).close().expect("closed");
    fs::remove_file(at.join("flash")).expect("a file");
    for words in [&["stat", "db"][..], &["check", "db"], &["dump", "db"]] {
        let ran = terrace(at, &[words, &["--flash-device", "flash"]].concat());
        assert!(ran.status.success(), "{words:?}: {}", text(&ran.stderr));
        assert!(!at.join("flash").exists());
    }
    // The bugs: one that was cut short was refused, and a pipe was waited for.
    fs::write(at.join("flash"), [7; 4096]).expect("room");
    assert!(Command::new("mkfifo").arg(at.join("pipe")).status().is_ok_and(|it| it.success()));
    for (flash, status) in [("flash", 0), ("pipe", 1)] {
        let ran = terrace(at, &["stat", "db", "--flash-device", flash]);
        assert_eq!(ran.status.code(), Some(status), "{}", text(&ran.stderr));
    }
}

/// Bytes and times of all files of a folder.
fn files(folder: &Path) -> BTreeMap<String, (Vec<u8>, SystemTime)> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file"));
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().expect("text");
            let time = entry.metadata().and_then(|found| found.modified()).expect("a time");
            (name, (fs::read(entry.path()).expect("readable"), time))
        })
        .collect()
}

fn copy(from: &Path, to: &Path) {
    for (name, (bytes, _)) in files(from) {
        fs::write(to.join(name), bytes).expect("room");
    }
}

/// Zeroes a page that has rows.
fn damage(folder: &Path) {
    let home = File::options().read(true).write(true).open(folder.join("db")).expect("there");
    let mut page = [0; PAGE as usize];
    let leaves = (64..400).filter(|&number| {
        home.read_exact_at(&mut page, number * PAGE).expect("there");
        page[4] == 2
    });
    for number in leaves.collect::<Vec<u64>>().into_iter().skip(4).step_by(9).take(2) {
        home.write_all_at(&[0; PAGE as usize], number * PAGE).expect("room");
    }
}

/// `terrace stat` rewrote the log, and the flash tier was cold afterwards.
#[test]
fn stat_check_and_dump_change_no_byte_of_a_closed_a_crashed_or_a_damaged_database() {
    let folders = [(); 3].map(|()| tempfile::tempdir().expect("a folder"));
    let [closed, crashed, damaged] = [0, 1, 2].map(|number: usize| folders[number].path());
    let db = make(closed);
    copy(closed, crashed);
    db.close().expect("closed");
    copy(closed, damaged);
    damage(damaged);
    for (folder, expected) in [(closed, [0, 0, 0]), (crashed, [0, 0, 0]), (damaged, [0, 1, 1])] {
        let before = files(folder);
        for tier in [&[][..], &["--flash-device", "flash"]] {
            let runs = ["stat", "check", "dump"].into_iter().zip(expected);
            for (number, (command, status)) in runs.enumerate() {
                let output = terrace(folder, &[&[command, "db"], tier].concat());
                let said = text(&output.stderr);
                // What flash has of a damaged page of home is read from there.
                let fits = output.status.code() == Some(status);
                let is_mended = !tier.is_empty() && folder == damaged && number > 0;
                assert!(fits || is_mended, "{command} {tier:?}: {said}");
            }
        }
        assert!(files(folder) == before, "looking has changed a file");
    }
    for folder in [closed, crashed] {
        let db = small(folder).open(folder.join("db")).expect("opens");
        assert_eq!(db.cold_start(), None, "the flash tier is cold");
    }
}

/// `stat` showed no size of a table, and printed names raw, which may move the cursor.
#[test]
fn stat_shows_tables_with_their_sizes_and_how_the_database_was_left() {
    let (closed, crashed) = (tempfile::tempdir(), tempfile::tempdir());
    let (closed, crashed) = (closed.expect("a folder"), crashed.expect("a folder"));
    let db = make(closed.path());
    const ODD: TableDef<u64, u64> = TableDef::new("odd\n\u{1b}[2J");
    db.write(|txn| txn.open_table(ODD)?.insert(1, 1)).expect("room");
    copy(closed.path(), crashed.path());
    db.close().expect("closed");
    for (folder, state) in [(&closed, "closed in good order"), (&crashed, "not closed")] {
        let output = terrace(folder.path(), &["stat", "db", "--json", "report"]);
        let shown = text(&output.stdout);
        assert!(shown.contains("format 3, id ") && shown.contains(state), "{shown}");
        assert!(shown.contains("odd\\n\\u{1b}[2J") && !shown.contains('\u{1b}'), "{shown}");
        let row = shown.lines().find_map(|line| line.strip_prefix("  rows ")).expect("a line");
        let bytes = row.split_whitespace().next().map(|cell| cell.replace(',', "").parse());
        assert!(matches!(bytes, Some(Ok(500_000..2_097_152))), "{row}");
        let report = fs::read_to_string(folder.path().join("report")).expect("written");
        assert!(report.contains("\"table_bytes\""), "{report}");
    }
}

#[test]
fn check_tells_all_damage_and_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    make(folder.path()).close().expect("closed");
    damage(folder.path());
    let output = terrace(folder.path(), &["check", "db", "--json", "report"]);
    assert_eq!(output.status.code(), Some(1));
    let (found, said) = (text(&output.stdout), text(&output.stderr));
    let lost = found.lines().filter(|line| line.contains("table \"rows\": lost: keys")).count();
    assert_eq!(lost, 2, "{found}");
    assert_eq!(found.lines().filter(|line| line.ends_with("its bytes are wrong")).count(), 2);
    assert!(
        said.contains("`terrace dump db --salvage > FILE`") && said.lines().count() == 1,
        "{said}"
    );
    let report = fs::read_to_string(folder.path().join("report")).expect("written");
    assert!(report.contains("\"sound\": false"), "{report}");
}

/// A lost log was to be named "with `log`", which is no option of the command.
#[test]
fn a_lost_log_is_told_with_the_option_that_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    make(folder.path()).close().expect("closed");
    fs::rename(folder.path().join("db.log"), folder.path().join("elsewhere")).expect("there");
    for command in ["check", "stat", "dump"] {
        let output = terrace(folder.path(), &[command, "db"]);
        let said = text(&output.stderr);
        assert!(said.contains("`--log`"), "{command}: {said}");
        assert!(!said.contains("`log`"), "{command}: {said}");
        let found = terrace(folder.path(), &[command, "db", "--log", "elsewhere"]);
        assert!(found.status.success(), "{command}: {}", text(&found.stderr));
    }
}

/// `check` said that a database is sound of which one superblock was destroyed.
#[test]
fn check_tells_what_another_copy_made_good() {
    let made = tempfile::tempdir().expect("a folder");
    make(made.path()).close().expect("closed");
    let cases = [
        ("db", 0, "superblock at byte 0 of the home is damaged"),
        ("db", PAGE, "superblock at byte 8192 of the home is damaged"),
        ("db.log", 0, "header at byte 0 of the log is damaged"),
        ("db.log", 4096, "header at byte 4096 of the log is damaged"),
        ("flash", 0, "the flash device has no whole header"),
        ("flash", 2 << 20, "the label at byte 2097152 of the flash is damaged"),
    ];
    for (file, at, expected) in cases {
        let folder = tempfile::tempdir().expect("a folder");
        copy(made.path(), folder.path());
        let damaged = File::options().write(true).open(folder.path().join(file)).expect("there");
        damaged.write_all_at(&[7; 4096], at).expect("room");
        let arguments = ["check", "db", "--flash-device", "flash", "--json", "report"];
        let output = terrace(folder.path(), &arguments);
        let (found, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{file} {at}: {said}");
        assert!(found.contains(expected), "{file} {at}: {found}");
        assert!(found.contains("; 3 trees"), "{found}");
        let report = fs::read_to_string(folder.path().join("report")).expect("written");
        assert!(report.contains("\"sound\": false") && report.contains("\"lost\": false"));

        small(folder.path())
            .open(folder.path().join("db"))
            .expect("opens")
            .close()
            .expect("closed");
        let output = terrace(folder.path(), &arguments);
        assert!(output.status.success(), "{file} {at}: {}", text(&output.stderr));
    }
}

#[test]
fn a_database_goes_through_a_pipe() {
    let folder = tempfile::tempdir().expect("a folder");
    make(folder.path()).close().expect("closed");
    let mut dump = command(folder.path(), &["dump", "db"]);
    let mut dump = dump.stdout(Stdio::piped()).spawn().expect("starts");
    let pipe = dump.stdout.take().expect("a pipe");
    let sizes = ["--home-size", "8MiB", "--log-size", "8MiB"];
    let mut load = command(folder.path(), &[&["load", "-", "copy"], &sizes[..]].concat());
    let loaded = load.stdin(pipe).output().expect("starts");
    assert!(dump.wait().expect("ends").success() && loaded.status.success());
    let [first, second] = ["db", "copy"].map(|db| terrace(folder.path(), &["dump", db]).stdout);
    assert!(first == second && first.len() > 400_000, "{} bytes", first.len());
    assert!(terrace(folder.path(), &["check", "copy"]).status.success());
    let db = Database::open(folder.path().join("copy")).expect("opens");
    let name = db.read(|txn| txn.open_table(NAMES)?.get("two")).expect("readable");
    assert_eq!(name.expect("there").value(), "2");
    drop(db);
    // One table of it.
    let names = terrace(folder.path(), &["dump", "db", "--table", "names"]);
    assert!(names.status.success() && names.stdout.len() < 300);
    let missing = terrace(folder.path(), &["dump", "db", "--table", "nobody"]);
    assert_eq!((missing.status.code(), missing.stdout.len()), (Some(1), 0));
}

#[test]
fn what_a_damaged_database_has_is_saved_and_loaded() {
    let folder = tempfile::tempdir().expect("a folder");
    make(folder.path()).close().expect("closed");
    damage(folder.path());
    // Without that it is not saved in part.
    let refused = terrace(folder.path(), &["dump", "db"]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("`terrace dump db --salvage > FILE`"), "{said}");
    fs::write(folder.path().join("part"), &refused.stdout).expect("room");
    let loaded = terrace(folder.path(), &["load", "part", "copy"]);
    assert!(!loaded.status.success(), "{}", text(&loaded.stderr));

    let saved = terrace(folder.path(), &["dump", "db", "--salvage"]);
    assert_eq!(saved.status.code(), Some(3));
    let said = text(&saved.stderr);
    assert!(said.contains("table \"rows\": lost: keys from 0x"), "{said}");
    fs::write(folder.path().join("dump"), &saved.stdout).expect("room");
    let loaded = terrace(folder.path(), &["load", "dump", "copy"]);
    assert_eq!(loaded.status.code(), Some(3), "{}", text(&loaded.stderr));
    let db = Database::open(folder.path().join("copy")).expect("opens");
    let rows = db.read(|txn| {
        let rows = txn.open_table(ROWS)?;
        rows.range(..)?.map(|row| row.map(|row| row.key())).collect::<Result<Vec<_>, Error>>()
    });
    let rows = rows.expect("readable").len();
    assert!((1_850..2_001).contains(&rows), "{rows} rows");
}

/// The bytes of what a load leaves when it is killed, step by step.
#[test]
fn a_load_that_was_killed_begins_again_and_touches_nothing_else() {
    let made = tempfile::tempdir().expect("a folder");
    make(made.path()).close().expect("closed");
    let whole = terrace(made.path(), &["dump", "db"]).stdout;
    fs::write(made.path().join("dump"), &whole).expect("room");
    let sizes = ["--home-size=8MiB", "--log-size=8MiB"];
    let load = |folder: &Path| terrace(folder, &[&["load", "dump", "copy"], &sizes[..]].concat());
    assert!(load(made.path()).status.success());
    let bytes = |file: &str| fs::read(made.path().join(file)).expect("there");
    let (home, log) = (bytes("copy"), bytes("copy.log"));
    let half = home[..home.len() / 2].to_vec();
    let steps: [&[(&str, &[u8])]; 7] = [
        &[("copy.making", b"")],
        &[("copy.making", b"making"), ("copy.new", b"")],
        &[("copy.making", b"making"), ("copy.new", &half), ("copy.new.log", &[0; 4096])],
        &[("copy.making", b"making"), ("copy.new", &home), ("copy.new.log", &log)],
        &[("copy.making", b"put\n"), ("copy.new", &home), ("copy.new.log", &log)],
        &[("copy.making", b"put\n"), ("copy.new", &home), ("copy.log", &log)],
        &[("copy.making", b"put\n"), ("copy", &home), ("copy.log", &log)],
    ];
    for (step, left) in steps.into_iter().enumerate() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("dump"), &whole).expect("room");
        left.iter().for_each(|(file, bytes)| fs::write(folder.path().join(file), bytes).unwrap());
        let output = load(folder.path());
        let said = text(&output.stderr);
        if left.iter().any(|(file, _)| *file == "copy") {
            assert!(said.contains("copy: ") && !output.status.success(), "step {step}: {said}");
        } else {
            assert!(output.status.success(), "step {step}: {said}");
        }
        let names: Vec<String> = files(folder.path()).into_keys().collect();
        assert_eq!(names, ["copy", "copy.log", "dump"], "step {step}");
        let again = terrace(folder.path(), &["dump", "copy"]);
        assert!(again.stdout == whole, "step {step}: {}", text(&again.stderr));
    }
    // What only has such a name stays, as does what another process makes.
    for (file, word) in [("other.new", "remove it"), ("other.making", "another process")] {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("dump"), &whole).expect("room");
        fs::write(folder.path().join("other.new.log"), "mine").expect("room");
        fs::write(folder.path().join(file), "mine, too").expect("room");
        let held = File::options().write(true).open(folder.path().join(file)).expect("there");
        held.try_lock().expect("free");
        let before = files(folder.path());
        let output = terrace(folder.path(), &["load", "dump", "other"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(word), "{}", text(&output.stderr));
        assert!(files(folder.path()) == before, "{file}");
    }
}

#[test]
fn a_load_that_is_killed_at_any_moment_can_be_run_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    make(folder).close().expect("closed");
    let whole = terrace(folder, &["dump", "db"]).stdout;
    fs::write(folder.join("dump"), &whole).expect("room");
    let load = ["load", "dump", "copy", "--home-size=8MiB", "--log-size=8MiB"];
    let mut prng = Prng::from_seed(3);
    let mut killed = 0;
    for round in 0..30 {
        let mut child = command(folder, &load).stderr(Stdio::null()).spawn().expect("starts");
        std::thread::sleep(Duration::from_micros(prng.below(60_000)));
        child.kill().expect("killed, or ended");
        let ended = child.wait().expect("waited for");
        killed += u32::from(!ended.success());
        if !folder.join("copy").exists() {
            let output = terrace(folder, &load);
            assert!(output.status.success(), "round {round}: {}", text(&output.stderr));
        }
        let again = terrace(folder, &["dump", "copy"]);
        assert!(again.stdout == whole, "round {round}: {}", text(&again.stderr));
        for file in ["copy", "copy.log"] {
            fs::remove_file(folder.join(file)).expect("there");
        }
    }
    assert!(killed > 0, "some were killed");
}

/// The target was named where the dump was at fault, and the error of a home that was too small had
/// a path that was not given.
#[test]
fn a_load_names_what_is_at_fault_and_what_to_give() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    make(folder).close().expect("closed");
    let mut dump = terrace(folder, &["dump", "db"]).stdout;
    fs::write(folder.join("dump"), &dump).expect("room");
    dump[1_000] ^= 1;
    fs::write(folder.join("flipped"), &dump).expect("room");
    for (arguments, begin, remedy) in [
        (&["load", "db", "new"][..], "terrace: db: ", "no dump"),
        (&["load", "flipped", "new"], "terrace: flipped: the dump is damaged", "copy it again"),
        (&["load", "dump", "new", "--home-size=512KiB"], "terrace: new: ", "--home-size"),
    ] {
        let output = terrace(folder, arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with(begin) && said.contains(remedy), "{arguments:?}: {said}");
        assert!(!said.contains(".new") && said.lines().count() == 1, "{said}");
    }
}

/// A flash that was not named, a log that was mistyped: 40% of the rows were left out, or rows of
/// home alone were saved, and uncommitted ones among them.
#[test]
fn what_the_caller_has_mistaken_is_refused_with_the_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let lc = designs::find("lc").expect("a row");
    // Longer than the tier that it will have.
    let flash = fs::File::create(folder.join("flash")).expect("room");
    flash.set_len(9 << 20).expect("room");
    let db = small(folder).home_size(32 << 20).flash(folder.join("flash"), 8 << 20);
    let db = db.design(lc).flash_role(FlashRole::Persistent);
    let db = db.create(folder.join("db")).expect("made");
    // The log is cut before what home lacks.
    for round in 0..40 {
        let fill = db.write(|txn| {
            let mut rows = txn.open_table(ROWS)?;
            (0..2_000).try_for_each(|key| rows.insert(key * 40 + round, &[2; 8]))
        });
        fill.expect("room");
    }
    // While it is open here.
    let refused = terrace(folder, &["dump", "db", "--salvage"]);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("in use by"), "{}", text(&refused.stderr));
    db.close().expect("closed");
    let before = files(folder);
    for (arguments, remedy) in [
        (&["dump", "db"][..], "name it with --flash-device FILE --persistent-flash"),
        (&["dump", "db", "--log", "nolog"], "name its log with --log FILE"),
        (&["dump", "db", "--log", "flash"], "name its log with --log FILE"),
        (&["dump", "nodb"], "no database here: the home"),
        (&["dump", "nodb", "--salvage"], "no database here: the home"),
    ] {
        let output = terrace(folder, arguments);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{said}");
        assert!(said.contains(remedy) && said.lines().count() == 1, "{arguments:?}: {said}");
    }
    let tier = [
        "--flash-device=flash",
        "--flash=8MiB",
        "--persistent-flash",
        "--dram=1MiB",
        "--design=lc",
    ];
    let whole = terrace(folder, &[&["dump", "db"][..], &tier].concat());
    assert!(whole.status.success(), "{}", text(&whole.stderr));
    assert!(
        text(&whole.stderr).contains("80,000 rows of 1 table saved"),
        "{}",
        text(&whole.stderr)
    );
    let home = terrace(folder, &["dump", "db", "--salvage"]);
    let said = text(&home.stderr);
    assert_eq!(home.status.code(), Some(3), "{said}");
    assert!(files(folder) == before, "looking has changed a file");
}

#[test]
fn a_load_that_fails_leaves_nothing_and_overwrites_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    make(folder.path()).close().expect("closed");
    let dump = terrace(folder.path(), &["dump", "db"]).stdout;
    fs::write(folder.path().join("dump"), &dump).expect("room");
    fs::write(folder.path().join("short"), &dump[..dump.len() - 9]).expect("room");
    fs::write(folder.path().join("notes"), "my notes").expect("room");
    let before = files(folder.path());
    for (arguments, word) in [
        (["load", "short", "new"], "ends too early"),
        (["load", "notes", "new"], "no dump"),
        (["load", "nowhere", "new"], "nowhere"),
        (["load", "dump", "db"], "something is there already"),
        (["load", "dump", "no/db"], "no/db"),
    ] {
        let output = terrace(folder.path(), &arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains(word) && said.lines().count() == 1, "{arguments:?}: {said}");
    }
    assert!(files(folder.path()) == before);
}

/// The command had no option for how long a log may get.
#[test]
fn a_log_that_grows_has_the_limit_that_was_asked_for() {
    let made = tempfile::tempdir().expect("a folder");
    let folder = made.path();
    let db = Database::create(folder.join("db")).expect("a good place");
    db.close().expect("good files");
    let dump = terrace(folder, &["dump", "db"]).stdout;
    fs::write(folder.join("dump"), dump).expect("room");
    // As the header of the log has it, in either copy.
    let limit = |name: &str| {
        let log = fs::read(folder.join(name)).expect("there");
        let copy = |at: usize| u64::from_le_bytes(log[at + 72..at + 80].try_into().expect("eight"));
        [copy(0), copy(4096)]
    };
    for (option, name, bytes) in [(None, "usual", 1 << 30), (Some("3MiB"), "small", 3 << 20)] {
        let asked = option.map_or(vec![], |size| vec!["--log-max", size]);
        let loaded = terrace(folder, &[&["load", "dump", name], &asked[..]].concat());
        assert!(loaded.status.success(), "{}", text(&loaded.stderr));
        assert_eq!(limit(&format!("{name}.log")), [bytes; 2], "{name}");
    }
    let bench = ["bench", "updates", "--rows", "100", "--duration", "10ms", "--path", "rows"];
    let ran = terrace(folder, &[&bench[..], &["--log-max", "5MiB"]].concat());
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    assert_eq!(limit("rows.log"), [5 << 20; 2]);
    for wrong in [&["--log-max", "10%"][..], &["--log-max", "1p"], &["--log-max", "4TiB"]] {
        let refused = terrace(folder, &[&["load", "dump", "new"], wrong].concat());
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}: {}", text(&refused.stderr));
    }
    let both = ["load", "dump", "new", "--log-max", "2MiB", "--log-size", "2MiB"];
    assert_eq!(terrace(folder, &both).status.code(), Some(2));
}

/// `check` read what is on flash there, and said that a database is sound that was lost with its
/// cache.
#[test]
fn check_reads_home_where_flash_has_a_whole_copy() {
    let made = tempfile::tempdir().expect("a folder");
    let with_flash = |folder: &Path| {
        let builder = Database::builder().memory(512 << 10).home_size(8 << 20);
        builder.flash(folder.join("flash"), 2 << 20)
    };
    let db = with_flash(made.path()).create(made.path().join("db")).expect("made");
    let filled = db.write(|txn| {
        let mut rows = txn.open_table(ROWS)?;
        (0..6_000).try_for_each(|key| rows.insert(key, &[key as u8; 200]))
    });
    filled.expect("room");
    for _ in 0..4 {
        db.check().expect("sound");
    }
    db.checkpoint(Checkpoint::Sharp).expect("room");
    db.close().expect("closed");
    let check = |folder: &Path| {
        terrace(
            folder,
            &["check", "db", "--flash-device", "flash", "--dram", "512KiB", "--json", "report"],
        )
    };
    let output = check(made.path());
    let shown = text(&output.stdout);
    assert!(output.status.success() && shown.contains("warm"), "{shown}");

    let (mut on_flash, mut in_use) = (0, 0);
    for page in (64..208).step_by(3) {
        let folder = tempfile::tempdir().expect("a folder");
        copy(made.path(), folder.path());
        let home = File::options().write(true).open(folder.path().join("db")).expect("there");
        home.write_all_at(&[7; 100], page * PAGE + 1000).expect("room");
        let output = check(folder.path());
        let without = terrace(folder.path(), &["check", "db"]);
        assert_eq!(output.status, without.status, "page {page}: {}", text(&output.stdout));
        in_use += u64::from(!without.status.success());
        let said = text(&output.stderr);
        if !said.contains("as long as its flash is there") {
            continue;
        }
        on_flash += 1;
        let found = text(&output.stdout);
        assert!(found.contains(&format!("page {page}: its copy at home is damaged")), "{found}");
        let report = fs::read_to_string(folder.path().join("report")).expect("written");
        assert!(report.contains("\"sound\": false") && report.contains("\"lost\": false"));
        // What it advises saves all.
        let saved =
            terrace(folder.path(), &["dump", "db", "--flash-device", "flash", "--dram", "512KiB"]);
        assert!(saved.status.success(), "{}", text(&saved.stderr));
    }
    assert!(on_flash > 10 && in_use > on_flash / 2, "{on_flash} of {in_use} pages");
}
