//! The command as its users meet it: what it refuses, and how it says so.
//!
//! Whatever is wrong is one line on standard error, with exit status 2 for what makes no sense and
//! 1 for what did not work; and nothing is written that was not asked for.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

use terrace::{Database, TableDef};
use terrace_policy::{DESIGNS, MEMORY_POLICIES};
use terrace_workload::torture::matrix::SCRIPTS;

fn terrace(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
    command.args(arguments).current_dir(folder).env_remove("RUST_BACKTRACE");
    command.output().expect("the command starts")
}

/// Runs the command, which must refuse with `status`, and returns its one line.
fn refused(folder: &Path, arguments: &[&str], status: i32) -> String {
    let output = terrace(folder, arguments);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    assert!(said.starts_with("terrace: "), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    said
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder for the test")
}

#[test]
fn unknown_names_are_answered_with_the_known() {
    let folder = folder();
    let said = refused(folder.path(), &["bench", "tpcc", "--design", "lc,lx"], 2);
    assert!(
        said.contains("`lx`") && said.contains(&DESIGNS.map(|it| it.name).join(", ")),
        "{said}"
    );
    let said = refused(folder.path(), &["bench", "tpcc", "--memory-policy", "mru"], 2);
    assert!(said.contains(&MEMORY_POLICIES.map(|(name, _)| name).join(", ")), "{said}");
    let said = refused(folder.path(), &["bench", "tpcc", "--world", "dream"], 2);
    assert!(said.contains("virtual, real"), "{said}");
    refused(folder.path(), &["bench", "tpcx"], 2);
    refused(folder.path(), &["bench", "tpcc", "--no-such-option"], 2);
}

#[test]
fn names_are_read_as_people_write_them_and_typos_are_answered() {
    let folder = folder();
    let said = refused(folder.path(), &["bench", "tpcc", "--design", "exclusve"], 2);
    assert!(said.contains("did you mean `exclusive`?"), "{said}");
    let said = refused(folder.path(), &["bench", "tpcc", "--desgin", "lc"], 2);
    assert!(said.contains("'--design'"), "{said}");
    let said = refused(folder.path(), &["bnech"], 2);
    assert!(said.contains("'bench'"), "{said}");
    let said = refused(folder.path(), &["bench", "tpcc", "--set", "alhpa=8"], 2);
    assert!(said.contains("did you mean `alpha`?"), "{said}");
    // What is wrong is found behind names in any spelling.
    let names = ["--design", "No_SSD,LC", "--world", "VIRTUAL", "--memory-policy", "Lru2"];
    let said =
        refused(folder.path(), &[&["bench", "tpcc"], &names[..], &["--dram", "1p"]].concat(), 2);
    assert!(!said.contains("unknown"), "{said}");
}

#[test]
fn help_is_short_and_ends_with_a_table_of_experiments() {
    let folder = folder();
    let output = terrace(folder.path(), &["bench", "tpcc", "--help"]);
    let help = String::from_utf8(output.stdout).expect("text");
    let (options, table) = help.split_once("Options of experiments").expect("a table");
    let shown = options.lines().filter(|line| line.trim_start().starts_with("--")).count();
    assert!(shown <= 40, "{shown} options");
    assert!(options.contains("--set <NAME=VALUE>") && !options.contains("--face-group"));
    assert!(table.lines().any(|line| line.trim_start().starts_with("face-group ")), "{table}");
    // Both spellings say the same.
    for alpha in [&["--alpha", "0"][..], &["--set", "alpha=0"], &["--set=alpha=0"]] {
        let said = refused(folder.path(), &[&["bench", "tpcc"], alpha].concat(), 2);
        assert!(said.contains("--alpha"), "{said}");
    }
}

#[test]
fn shells_and_readers_of_manuals_are_served() {
    let folder = folder();
    for shell in ["bash", "zsh", "fish"] {
        let output = terrace(folder.path(), &["completions", shell]);
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(output.status.success() && text.contains("terrace") && text.contains("tpcc"));
    }
    let output = terrace(folder.path(), &["man"]);
    assert!(String::from_utf8(output.stdout).expect("text").contains(".TH terrace"));
    for _ in 0..2 {
        assert!(terrace(folder.path(), &["man", "--out", "."]).status.success());
    }
    let page = std::fs::read_to_string(folder.path().join("terrace-bench-tpcc.1"));
    assert!(page.expect("a page").contains("face\\-group"));
}

#[test]
fn what_does_not_fit_is_left_out_of_all() {
    let folder = folder();
    // One that is named is refused.
    let bench = ["bench", "restart", "--design", "face", "--restart"];
    let said = refused(folder.path(), &[&bench[..], &["mmr"]].concat(), 2);
    assert!(said.contains("face with mmr"), "{said}");
    // Of all, the others go on: to the next thing that is wrong.
    let said = refused(folder.path(), &[&bench[..], &["all", "--record", "t"]].concat(), 2);
    assert!(said.contains("these are 8"), "{said}");
    let designs = ["bench", "restart", "--design", "all", "--restart", "map-segments"];
    let said = refused(folder.path(), &[&designs[..], &["--record", "t"]].concat(), 2);
    assert!(said.contains("these are 3"), "{said}");
    let none = ["bench", "restart", "--design", "no-ssd", "--restart", "warm"];
    refused(folder.path(), &none, 2);
}

#[test]
fn pages_are_placed_at_least_cost() {
    let folder = folder();
    let output = terrace(folder.path(), &["placement"]);
    assert!(output.status.success());
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(said.contains("1.167"), "{said}");
    let output = terrace(folder.path(), &["placement", "--costs", "12,12.5,12,12.5"]);
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success() && said.contains("1.000"), "{said}");
    for options in [["--costs", "1,2,3"], ["--costs", "1,2,3,-4"], ["--side", "1"]] {
        refused(folder.path(), &["placement", options[0], options[1]], 2);
    }
}

#[test]
fn a_table_unit_that_no_device_writes_is_refused() {
    let folder = folder();
    for unit in ["0", "100", "16384", "many"] {
        let options = ["bench", "restart", "--mmr-unit", unit];
        let said = refused(folder.path(), &options, 2);
        assert!(said.contains("--mmr-unit"), "{said}");
    }
    refused(folder.path(), &["bench", "restart", "--lbr-group", "0"], 2);
}

#[test]
fn answers_that_do_not_go_together_are_refused_with_what_does() {
    let folder = folder();
    for (design, option, name, said) in [
        ("tac", "--replacement", "sieve", "`tac` admits and replaces by one rule of its own; take"),
        ("no-ssd", "--admission", "everything", "`no-ssd` has no flash to admit to; take cw, dw"),
        ("lc", "--replacement", "mru", "unknown replacement policy `mru`; known: lru, fifo"),
        ("lc", "--admission", "some", "unknown admission `some`; known: random-class"),
    ] {
        let said_so =
            refused(folder.path(), &["bench", "tpcc", "--design", design, option, name], 2);
        assert!(said_so.contains(said), "{said_so}");
    }
    let both = ["--admission", "tinylfu", "--replacement", "w-tinylfu"];
    let bench = ["bench", "tpcc", "--design", "no-ssd,lc"];
    let said = refused(folder.path(), &[&bench[..], &both[..]].concat(), 2);
    assert!(said.contains("`w-tinylfu` admits by frequency itself"), "{said}");
}

#[test]
fn sizes_and_shares_that_make_no_sense_are_refused() {
    let folder = folder();
    for options in [
        ["--dram", "0MiB"],
        ["--dram", "100"],
        ["--dram", "-1GiB"],
        ["--dram", "900000TiB"],
        ["--flash", "1p"],
        ["--flash", "0%"],
        ["--lambda", "150%"],
        ["--tau", "nan"],
        ["--fill", "0%"],
        ["--warehouses", "0"],
        ["--warehouses", "99999999"],
        ["--clients", "0"],
        ["--duration", "0s"],
        ["--duration", "yesterday"],
        ["--window", "1h"],
        ["--averaged", "0%"],
        ["--seeds", "0"],
        ["--partitions", "0"],
        ["--clean-age", "0"],
        ["--clean-age", "32KiB"],
        ["--clean-age", "10%"],
        ["--flash-writes-per-day", "0"],
        ["--flash-writes-per-day", "10%"],
    ] {
        refused(folder.path(), &["bench", "tpcc", options[0], options[1]], 2);
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
}

#[test]
fn the_real_world_needs_its_places() {
    let folder = folder();
    let said = refused(folder.path(), &["bench", "tpcc", "--world", "real"], 2);
    assert!(said.contains("--home"), "{said}");
    let home = ["bench", "tpcc", "--world", "real", "--home", "h", "--log-device", "l"];
    let said = refused(folder.path(), &home, 2);
    assert!(said.contains("--flash-device"), "{said}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
}

#[test]
fn places_that_cannot_be_written_are_found_before_the_work() {
    let folder = folder();
    for option in ["--json", "--report"] {
        let said = refused(folder.path(), &["bench", "tpcc", option, "missing/file"], 1);
        assert!(said.contains("missing/file"), "{said}");
    }
}

#[test]
fn help_is_no_failure() {
    let folder = folder();
    for arguments in [&["--help"][..], &["bench", "tpcc", "--help"], &["--version"]] {
        let output = terrace(folder.path(), arguments);
        assert!(output.status.success());
        assert!(!output.stdout.is_empty() && output.stderr.is_empty());
    }
    assert_eq!(terrace(folder.path(), &[]).status.code(), Some(2));
}

/// A small real bench in `folder`, with more options.
const REAL: [&str; 17] = [
    "bench",
    "tpcc",
    "--world",
    "real",
    "--rows",
    "tiny",
    "--warehouses",
    "1",
    "--dram",
    "64p",
    "--partitions",
    "1",
    "--duration",
    "1s",
    "--clients",
    "2",
    "--no-report",
];

fn real<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&REAL[..], more].concat()
}

/// Names in `folder`, and how the files begin.
fn contents(folder: &Path) -> Vec<(OsString, Vec<u8>)> {
    const BYTES_MAX: u64 = 1 << 20;
    let entries = std::fs::read_dir(folder).expect("the folder");
    let mut all: Vec<_> = entries
        .map(|entry| {
            let entry = entry.expect("an entry");
            let mut bytes = Vec::new();
            let file = File::open(entry.path()).expect("a file");
            file.take(BYTES_MAX).read_to_end(&mut bytes).expect("readable");
            (entry.file_name(), bytes)
        })
        .collect();
    all.sort();
    all
}

#[test]
fn sizes_that_no_machine_has_are_refused_before_the_work() {
    let folder = folder();
    for options in [
        &["--warehouses", "20000"][..],
        &["--dram", "31TiB"],
        &["--flash", "31TiB"],
        &["--clients", "4000000000"],
        &["--clients", "20000", "--jobs", "2"],
        &["--window", "1us"],
        &["--fill", "1%"],
        &["--partitions", "5000"],
        &["--cores", "0"],
        &["--jobs", "0"],
    ] {
        refused(folder.path(), &[&["bench", "tpcc"], options].concat(), 2);
    }
    let last = u64::MAX.to_string();
    refused(folder.path(), &["bench", "tpcc", "--seed", &last, "--seeds", "2"], 2);
    for options in [
        ["--rows", "0"],
        ["--value-bytes", "0"],
        ["--value-bytes", "1000000"],
        ["--dram", "1p"],
        ["--dram", "31TiB"],
        ["--duration", "0s"],
        ["--tasks", "0"],
        ["--tasks", "1000000"],
        ["--threads", "0"],
        ["--batch", "0"],
        ["--world", "virtual"],
    ] {
        refused(folder.path(), &["bench", "reads", options[0], options[1]], 2);
    }
    for options in [["--seeds", "0"], ["--jobs", "0"], ["--design", "lx"], ["--seed", "x"]] {
        refused(folder.path(), &["torture", options[0], options[1]], 2);
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
}

#[test]
fn unknown_presets_are_answered_with_the_known() {
    let folder = folder();
    for option in ["--home", "--flash-device", "--log-device"] {
        let said = refused(folder.path(), &["bench", "tpcc", option, "floppy"], 2);
        assert!(said.contains("floppy") && said.contains("sigmod2011-hdd"), "{said}");
    }
}

#[test]
fn a_place_without_direct_io_is_refused_by_the_benches() {
    let folder = folder();
    // A file of the kernel's own: it can be opened and written, but not past the page cache.
    let log = "/proc/self/comm";
    let arguments = real(&["--design", "no-ssd", "--home", "home", "--log-device", log]);
    let said = refused(folder.path(), &arguments, 1);
    assert!(said.contains("direct I/O") && said.contains("/comm"), "{said}");
    assert_eq!(contents(folder.path()), [], "what was made before is taken away");
}

#[test]
fn places_in_the_real_world_are_checked_before_the_load() {
    let folder = folder();
    let places = |home, flash, log| {
        real(&["--home", home, "--flash-device", flash, "--flash", "64p", "--log-device", log])
    };
    // A folder that is not there.
    for arguments in [
        places("no/home", "flash", "log"),
        places("home", "no/flash", "log"),
        places("home", "flash", "no/log"),
    ] {
        let said = refused(folder.path(), &arguments, 1);
        assert!(said.contains("no/"), "the path is named: {said}");
        assert_eq!(contents(folder.path()), [], "{arguments:?}");
    }
    // The same place twice, and a flash smaller than it can be.
    refused(folder.path(), &places("home", "home", "log"), 2);
    refused(folder.path(), &places("home", "flash", "home"), 2);
    let tiny = real(&["--home", "h", "--flash-device", "f", "--log-device", "l", "--flash", "63p"]);
    let said = refused(folder.path(), &tiny, 2);
    assert!(said.contains("at least 64"), "{said}");
    // What holds something else stays as it is.
    let notes = "my notes\n".repeat(10_000);
    std::fs::write(folder.path().join("notes"), &notes).expect("written");
    std::fs::write(folder.path().join("short"), "my notes").expect("written");
    let before = contents(folder.path());
    for other in ["notes", "short", "/dev/null", "."] {
        refused(folder.path(), &places(other, "flash", "log"), 1);
        refused(folder.path(), &places("home", other, "log"), 1);
        refused(folder.path(), &places("home", "flash", other), 1);
        assert_eq!(contents(folder.path()), before, "{other}");
    }
}

#[test]
fn a_home_that_does_not_fit_leaves_nothing() {
    let folder = folder();
    // More than any file system has: what a full one says, on any machine.
    let rows = ["bench", "reads", "--rows", "1000000000", "--value-bytes", "60000"];
    refused(folder.path(), &[&rows[..], &["--path", "db", "--dram", "64p"]].concat(), 1);
    assert_eq!(contents(folder.path()), []);
}

/// A database of a thousand rows, made by the bench.
fn make(folder: &Path) {
    let rows = ["bench", "reads", "--rows", "1000", "--path", "db", "--duration", "100ms"];
    assert!(terrace(folder, &rows).status.success());
}

#[test]
fn what_is_no_database_is_said_and_left_alone() {
    let folder = folder();
    std::fs::write(folder.path().join("notes"), "my notes\n".repeat(10_000)).expect("written");
    std::fs::write(folder.path().join("empty"), "").expect("written");
    let before = contents(folder.path());
    for path in ["nothing", "notes", "empty", ".", "/dev/null", "no/db"] {
        for command in ["check", "stat"] {
            refused(folder.path(), &[command, path], 1);
        }
    }
    for path in ["notes", ".", "/dev/null", "no/db"] {
        refused(folder.path(), &["bench", "reads", "--rows", "1000", "--path", path], 1);
    }
    assert_eq!(contents(folder.path()), before);
}

/// The bug: an option that the engine refused was reported as an "option pool" that the command
/// does not have.
#[test]
fn an_option_is_refused_by_the_name_that_it_was_given() {
    let folder = folder();
    let builder = Database::builder().flash(folder.path().join("flash"), 4 << 20);
    let builder = builder.home_size(8 << 20).log_size(1 << 20).memory(1 << 20);
    let db = builder.create(folder.path().join("db")).expect("a new path");
    db.close().expect("a good disk");
    let flash = ["stat", "db", "--flash-device", "flash"];
    let said = |more: &[&str]| refused(folder.path(), &[&flash[..], more].concat(), 2);
    assert!(said(&["--design", "no-ssd"]).starts_with("terrace: --flash-device: "));
    let restart = said(&["--design", "cw", "--restart", "map-segments"]);
    assert!(restart.starts_with("terrace: --restart: "), "{restart}");
    let role = said(&["--design", "cw", "--persistent-flash"]);
    assert!(role.starts_with("terrace: --persistent-flash: "), "{role}");
}

/// The bug: the name of a table could forge lines of the list, and steer the terminal.
#[test]
fn names_of_tables_are_listed_without_their_control_characters() {
    let folder = folder();
    let table = TableDef::<u64, u64>::new("rows\n  forged\u{1b}[2J");
    let builder = Database::builder().home_size(8 << 20).log_size(1 << 20);
    let db = builder.create(folder.path().join("db")).expect("a new path");
    db.write(|txn| txn.open_table(table)?.insert(1, 1)).expect("room");
    db.close().expect("a good disk");
    let output = terrace(folder.path(), &["stat", "db"]);
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(said.contains("\n1 table\n") && !said.contains('\u{1b}'), "{said}");
    assert!(said.contains("\n  rows\\n  forged\\u{1b}[2J "), "{said}");
}

#[test]
fn a_database_that_is_open_or_of_another_size_is_refused() {
    let folder = folder();
    make(folder.path());
    let other = ["bench", "reads", "--rows", "2000", "--path", "db", "--duration", "100ms"];
    refused(folder.path(), &other, 1);
    let open = terrace::Database::builder().open(folder.path().join("db")).expect("it is there");
    for arguments in [&["check", "db"][..], &["stat", "db"], &other] {
        let said = refused(folder.path(), arguments, 1);
        assert!(said.contains(&std::process::id().to_string()), "the holder is named: {said}");
    }
    drop(open);
    assert!(terrace(folder.path(), &["check", "db"]).status.success());
}

#[test]
fn a_flash_tier_is_found_or_said_to_be_cold() {
    const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
    let folder = folder();
    let (home, flash) = (folder.path().join("db"), folder.path().join("flash"));
    let builder = || Database::builder().memory(1 << 20).flash(&flash, 16 << 20);
    let db = builder().home_size(64 << 20).create(&home).expect("made");
    let grown = db.write(|txn| {
        let mut rows = txn.open_table(ROWS)?;
        (0..3000).try_for_each(|key| rows.insert(key, &[7; 1000]))
    });
    grown.expect("written");
    db.close().expect("closed");
    let said = |command: &str| {
        let tier = ["--flash-device", "flash", "--dram", "1MiB"];
        let output = terrace(folder.path(), &[&[command, "db"], &tier[..]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stdout).expect("text");
        said.lines().find(|line| line.starts_with("flash tier: ")).expect("a line").to_string()
    };
    for command in ["stat", "check"] {
        let line = said(command);
        assert!(line.starts_with("flash tier: warm, "), "{line}");
        assert!(!line.contains("warm, 0 of"), "{line}");
    }
    // By looking without it, the tier became cold.
    assert!(terrace(folder.path(), &["stat", "db"]).status.success());
    assert!(said("stat").starts_with("flash tier: warm, "));
    let file = File::options().write(true).open(&flash).expect("it is there");
    file.write_all_at(&[0xab; 8], 40).expect("written");
    let damaged = said("stat");
    assert!(damaged.starts_with("flash tier: cold, "), "{damaged}");
    assert!(terrace(folder.path(), &["stat", "db"]).status.success());
    // Looking without the tier leaves it as it was.
    assert_eq!(said("stat"), damaged);
    let looked = terrace(folder.path(), &["stat", "db", "--flash-device", "nowhere"]);
    let line = String::from_utf8(looked.stdout).expect("text");
    assert!(line.contains("flash tier: cold, "), "{line}");
    assert!(!folder.path().join("nowhere").exists());
}

/// A file that holds nothing became a flash tier, labelled, by being looked at.
#[test]
fn a_blank_flash_file_is_said_to_be_one_and_left_alone() {
    let folder = folder();
    make(folder.path());
    for (bytes, expected) in [
        (0, "flash tier: cold, because the file is empty: a new tier"),
        (1 << 20, "flash tier: cold, because the file is blank: a new tier"),
    ] {
        let blank = folder.path().join("blank");
        std::fs::write(&blank, vec![0; bytes]).expect("written");
        for command in ["stat", "check"] {
            let output = terrace(folder.path(), &[command, "db", "--flash-device", "blank"]);
            let said = String::from_utf8(output.stdout).expect("text");
            assert!(said.lines().any(|line| line == expected), "{command}: {said}");
            assert_eq!(std::fs::read(&blank).expect("there"), vec![0; bytes], "{command}");
        }
    }
}

#[test]
fn a_header_that_is_corrupt_or_newer_is_refused_and_left_alone() {
    let folder = folder();
    make(folder.path());
    let path = folder.path().join("db");
    let file = File::options().read(true).write(true).open(&path).expect("it is there");
    let mut whole = vec![0; 2 * 8192];
    file.read_exact_at(&mut whole, 0).expect("two superblocks");
    // A version is refused only if the rest of the page is whole: both copies are sealed again.
    let mut newer = whole.clone();
    for (id, page) in newer.chunks_mut(8192).enumerate() {
        page[40] = 200;
        let page: &mut terrace_page::PageBuf = page.try_into().expect("a page");
        terrace_page::set_page_id(page, terrace_page::PageId(id as u64));
        terrace_page::seal(page);
    }
    let mut corrupt = whole.clone();
    corrupt.chunks_mut(8192).for_each(|page| page[100] ^= 1);
    for (bytes, what) in [(newer, "200"), (corrupt, "damaged")] {
        file.write_all_at(&bytes, 0).expect("written");
        for arguments in [
            &["check", "db"][..],
            &["stat", "db"],
            &["bench", "reads", "--rows", "1000", "--path", "db"],
        ] {
            // `check` lists on standard output all that is damaged.
            let output = terrace(folder.path(), arguments);
            let said = String::from_utf8(output.stderr).expect("text");
            assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
            assert!(said.contains(what), "{said}");
        }
        let mut after = vec![0; 2 * 8192];
        file.read_exact_at(&mut after, 0).expect("two superblocks");
        assert!(after == bytes, "nothing was written");
    }
    // One copy is enough.
    whole[100] ^= 1;
    file.write_all_at(&whole, 0).expect("written");
    assert!(terrace(folder.path(), &["stat", "db"]).status.success());
    let checked = terrace(folder.path(), &["check", "db"]);
    let said = String::from_utf8(checked.stderr).expect("text");
    assert_eq!(checked.status.code(), Some(1), "{said}");
    // The log of another, or none.
    std::fs::rename(folder.path().join("db.log"), folder.path().join("log")).expect("renamed");
    let said = refused(folder.path(), &["check", "db"], 1);
    assert!(said.contains("db.log") && said.contains("terrace dump"), "{said}");
    let log = File::options().write(true).open(folder.path().join("log")).expect("there");
    log.write_all_at(&[7; 8], 20).expect("written");
    let looked = terrace(folder.path(), &["stat", "db", "--log", "log"]);
    assert!(looked.status.success(), "one copy of its header is enough");
    log.write_all_at(&[7; 8], 4096 + 20).expect("written");
    refused(folder.path(), &["check", "db", "--log", "log"], 1);
}

#[test]
fn results_that_cannot_be_kept_are_a_failure() {
    let folder = folder();
    make(folder.path());
    let output = terrace(folder.path(), &["stat", "db", "--json", "/dev/full"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.lines().count() == 1 && said.contains("/dev/full"), "{said}");
}

#[test]
fn a_case_of_the_matrix_is_repeated_alone() {
    let folder = folder();
    let case =
        ["torture", "--matrix", "--script", "close", "--design", "lc", "--restart", "forget"];
    let cut = |event: &'static str| {
        [&case[..], &["--fate", "half-wiped", "--json", "-", "--cut", event]].concat()
    };
    let output = terrace(folder.path(), &cut("300"));
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{said}");
    let found: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    for (name, count) in [("cuts", 1), ("losses", 0), ("first_cuts", 1), ("verified", 2)] {
        assert_eq!(found[name], count, "{name}: {said}");
    }
    let output = terrace(folder.path(), &cut("90000000"));
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("--cut 90000000"), "{said}");
    let said = refused(folder.path(), &["torture", "--matrix", "--script", "closing"], 2);
    let scripts: Vec<&str> = SCRIPTS.iter().map(|script| script.name).collect();
    assert!(said.contains("`closing`") && said.contains(&scripts.join(", ")), "{said}");
    refused(folder.path(), &["torture", "--script", "close"], 2);
    refused(folder.path(), &["torture", "--matrix", "--cut", "7"], 2);
}
