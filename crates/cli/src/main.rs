//! The `terrace` command: measures the engine, tortures it, checks and shows databases.
//!
//! Modules in reading order:
//!
//! - `command`: what can be asked for. `quantity`: sizes, shares and times as they are written.
//! - `bench`: TPC-C on every design, restarts, and the engine's own speed. `torture`: power cuts at
//!   random moments; `matrix`: at every event of scripted paths; `lives`: killed processes,
//!   and files that come to harm; `histories`: transactions of threads.
//! - `replay`: traces through policies. `advise`: what a flash tier would buy.
//!   `probe`: what a device gives.
//! - `placement`: where pages belong if their requests were known.
//! - `trace`: traces of storage requests: look into them, convert them, make them up,
//!   record them.
//! - `database`: check and show a database. `dump`: save one, and make one from what was saved.
//!   `upgrade`: convert one of an older format. `new_place`: where both make a new one.
//!   `compact`: give back the room that one does not use. `backup`: copy one, and restore it.
//! - `shell`: completions and manual pages.
//! - `results`, `interval`: what a bench found. `table`, `report`, `output`: how it is shown;
//!   `standard_output`: that it was.
//! - `progress`, `side_by_side`, `scratch`: while it runs. `interrupt`: when it is to end early.
//!   `failure`: when it does not run.
//!
//! Exit status: 0, or 1 if something went wrong, or 2 if what was asked for makes no sense, or 3 if
//! only a part could be saved; then there is one line on standard error.

#![deny(unsafe_code)]

mod command;
mod quantity;

mod advise;
mod backup;
mod bench;
mod compact;
mod database;
mod dump;
mod histories;
mod lives;
mod matrix;
mod new_place;
mod placement;
mod probe;
mod replay;
mod shell;
mod torture;
mod trace;
mod upgrade;

mod interval;
mod output;
mod report;
mod results;
mod standard_output;
mod table;

mod failure;
mod interrupt;
mod progress;
mod scratch;
mod side_by_side;

use clap::error::ErrorKind;
use command::{Command, Trace};
use failure::Failure;
use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let result = match command::parse() {
        Ok(terrace) => {
            if terrace.force {
                output::force();
            }
            run(terrace.command)
        }
        Err(error) if shows_help(error.kind()) => standard_output::check().map(|()| {
            standard_output::note(error.print().and_then(|()| io::stdout().flush()));
        }),
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            return ExitCode::from(2);
        }
        Err(error) => Err(Failure::Usage(in_one_line(&error.to_string()))),
    };
    match result.and_then(|()| standard_output::end()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("terrace: {failure}");
            failure.status()
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Bench(command) => bench::bench(command),
        Command::Placement(options) => placement::placement(&options),
        Command::Advise(options) => advise::advise(&options),
        Command::Probe(options) => probe::probe(&options),
        Command::Replay(options) => replay::replay(&options),
        Command::Trace(Trace::Convert(options)) => trace::convert(&options),
        Command::Trace(Trace::Info(options)) => trace::info(&options),
        Command::Trace(Trace::Head(options)) => trace::head(&options),
        Command::Trace(Trace::Make(options)) => trace::make(&options),
        Command::Trace(Trace::Filter(options)) => trace::filter(&options),
        Command::Trace(Trace::Capture(options)) => trace::capture(&options),
        Command::Torture(options) => torture::torture(&options),
        Command::TortureLife(life) => {
            lives::live(&life);
            Ok(())
        }
        Command::Check(options) => database::check(&options),
        Command::Stat(options) => database::stat(&options),
        Command::Compact(options) => compact::compact(&options),
        Command::Backup(options) => backup::backup(&options),
        Command::Restore(options) => backup::restore(&options),
        Command::Dump(options) => dump::dump(&options),
        Command::Load(options) => dump::load(&options),
        Command::Upgrade(options) => upgrade::upgrade(&options),
        Command::Completions(options) => shell::completions(&options),
        Command::Man(options) => shell::man(&options),
    }
}

fn shows_help(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
}

/// What the parser says and its tip, without the usage that follows.
fn in_one_line(message: &str) -> String {
    let mut parts = message
        .trim_start_matches("error: ")
        .split("\n\n")
        .map(|part| part.lines().map(str::trim).collect::<Vec<_>>().join(" "));
    let said = parts.next().unwrap_or_default();
    match parts.find(|part| part.starts_with("tip: ")) {
        Some(tip) => format!("{}; {}", said.trim(), tip.trim_start_matches("tip: ")),
        None => said.trim().to_string(),
    }
}
