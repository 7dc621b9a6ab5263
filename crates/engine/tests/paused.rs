//! A process that is stopped and goes on, as by Ctrl-Z and `fg`, a debugger, or a snapshot of its
//! machine: the pause is no silence of a device.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use terrace::{Database, Durability, Nanos, TableDef};

const ROWS: TableDef<u64, u64> = TableDef::new("rows");
const WRITERS: u64 = 6;
/// Shorter than the pauses.
const LIMIT: Nanos = Nanos::from_millis(300);
const PAUSE: Duration = Duration::from_millis(800);
const PAUSES: usize = 4;
const CHILD: &str = "TERRACE_PAUSED_DATABASE";

const FAILED: &str = "cannot go on: ";

/// What the child does: writes until there is a file that asks for the end, and says how far it is.
#[test]
fn child() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let db = Database::builder()
        .memory(1 << 20)
        .flash(Path::new(&path).with_extension("flash"), 2 << 20)
        .io_timeout_flash(LIMIT)
        .io_timeout_home(LIMIT)
        .io_timeout_log(LIMIT)
        .create(&path)
        .expect("a good place");
    db.write(|txn| txn.open_table(ROWS).map(drop)).expect("a table");
    thread::scope(|threads| {
        for writer in 0..WRITERS {
            let (db, end) = (&db, Path::new(&path).with_extension("end"));
            threads.spawn(move || {
                for number in 0.. {
                    let written = db.write_with(Durability::Durable, |txn| {
                        txn.open_table(ROWS)?.insert(number * WRITERS + writer, number)
                    });
                    written.unwrap_or_else(|error| {
                        println!("{FAILED}{error}");
                        std::process::exit(1);
                    });
                    println!("row {number}");
                    if number % 16 == 0 && Path::new(&end).exists() {
                        return;
                    }
                }
            });
        }
    });
    assert_eq!(db.stats().pool.flash_faults, 0, "flash was given up");
    db.close().expect("nothing failed");
    println!("well");
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(sent.expect("kill runs").success(), "{name}");
}

/// The bug: after a pause of more than the time limit flash was given up, and the engine stopped:
/// "the device has not answered in time".
#[test]
fn a_pause_of_the_process_is_no_silence_of_a_device() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("db");
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, &path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child runs");
    let mut said = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut last = String::new();
    for _ in 0..PAUSES {
        // It is at work.
        for _ in 0..40 {
            let Some(Ok(line)) = said.next() else { panic!("the child ended: {last}") };
            assert!(!line.contains(FAILED), "{line}");
            last = line;
        }
        signal(&child, "-STOP");
        thread::sleep(PAUSE);
        signal(&child, "-CONT");
    }
    drop(File::create(path.with_extension("end")).expect("a file"));
    let rest: Vec<String> = said.map_while(Result::ok).collect();
    assert_eq!(rest.iter().find(|line| line.contains(FAILED)), None);
    assert!(rest.iter().any(|line| line == "well"), "{last}");
    assert!(child.wait().expect("it ends").success());
}
