//! `terrace dump` and `terrace load`: a database as a stream of bytes, and back.

use crate::command::{Dump, Load, NewDatabase};
use crate::database::{blank_flash, builder};
use crate::failure::{Failure, in_options};
use crate::new_place::NewPlace;
use crate::quantity::Size;
use crate::standard_output;
use crate::table::thousands;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal, Read};
use std::path::Path;
use terrace::dump::{LoadError, Loaded, SaveError, Saved, State};
use terrace::{Builder, Database, Part};

/// The limit of a home for which no size was given.
pub const HOME_BYTES: u64 = 64 << 30;
const BUFFER_BYTES: usize = 256 << 10;

/// Writes a dump to standard output.
///
/// # Errors
///
/// A database that cannot be read at all, an output that cannot be written; `Partial` if something
/// is lost.
pub fn dump(options: &Dump) -> Result<(), Failure> {
    let out = standard_output::open();
    let out = out.map_err(|error| Failure::failed("cannot write the dump", error))?;
    if out.is_terminal() {
        return Err(Failure::usage("a dump is no text: send it to a file or a pipe"));
    }
    let path = options.at.path.display();
    let builder = builder(&options.at, blank_flash(&options.at)?)?;
    let open = if options.salvage { Saved::salvage } else { Saved::open };
    let saved = open(builder, &options.at.path).map_err(|error| refused(options, &error))?;
    saved.not_undone().iter().for_each(|line| eprintln!("{path}: {line}"));
    saved.losses().iter().for_each(|loss| eprintln!("{path}: {loss}"));
    let out = BufWriter::with_capacity(BUFFER_BYTES, out.lock());
    let dumped = saved.dump(&options.table, out, &mut |loss| eprintln!("{path}: {loss}"));
    let (dumped, state) = dumped.map_err(|error| match error {
        SaveError::Output(source) => Failure::failed("cannot write the dump", source),
        SaveError::NoSuchTable(name) => {
            Failure::failed(&path, format!("it has no table \"{}\"", name.escape_debug()))
        }
        SaveError::Lost => {
            let what = "some of it cannot be read, as told above, and the dump was not finished";
            Failure::failed(&path, format!("{what}: {}", salvage(options)))
        }
    })?;
    eprintln!("{path}: {} saved", rows_of_tables(dumped.rows, dumped.tables));
    match state {
        State::Whole => Ok(()),
        State::Partial => {
            let what = "some of it could not be read, as told above; the rest is saved";
            Err(Failure::Partial(format!("{path}: {what}")))
        }
    }
}

/// Why a database cannot be dumped as a whole, and what to do.
fn refused(options: &Dump, error: &terrace::Error) -> Failure {
    use terrace::Error::{
        Corrupt, CorruptLog, Failed, FlashNeeded, HomeFull, LogFull, Missing, NotADatabase, RedoGap,
    };
    let path = options.at.path.display();
    let lost = format!(
        "if that is lost: {}, which then has what is at home: without the last changes, perhaps, \
         and with some that were never committed",
        salvage(options)
    );
    let remedy = match error {
        _ if options.salvage => return Failure::of_engine(path, error),
        FlashNeeded { .. } => format!(
            "name it with --flash-device FILE --persistent-flash, and --design, --restart and \
             --dram if they were not the defaults; {lost}"
        ),
        Missing { part: Part::Log, .. } | NotADatabase { part: Part::Log, .. } => {
            format!("name its log with --log FILE; {lost}")
        }
        Corrupt { .. }
        | CorruptLog { .. }
        | RedoGap { .. }
        | HomeFull { .. }
        | LogFull { .. }
        | Failed { .. } => salvage(options),
        _ => return Failure::of_engine(path, error),
    };
    Failure::failed(path, format!("{}; {remedy}", in_options(error)))
}

fn salvage(options: &Dump) -> String {
    format!("`terrace dump {} --salvage > FILE` saves what can be read", options.at.path.display())
}

/// `20,000 rows of 1 table`.
pub fn rows_of_tables(rows: u64, tables: u64) -> String {
    let count = |count: u64, what: &str| {
        format!("{} {what}{}", thousands(count as f64), if count == 1 { "" } else { "s" })
    };
    format!("{} of {}", count(rows, "row"), count(tables, "table"))
}

/// Makes a database from a dump.
///
/// # Errors
///
/// A dump that cannot be read, a place that cannot be written or holds something; `Partial` if the
/// dump says that something was lost.
pub fn load(options: &Load) -> Result<(), Failure> {
    let path = &options.path;
    let input: Box<dyn Read> = if options.dump.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(&options.dump);
        Box::new(file.map_err(|error| Failure::failed(options.dump.display(), error))?)
    };
    let builder = new_builder(&options.made)?;
    let place = NewPlace::at(path)?;
    let loaded = fill(builder, &place.home(), BufReader::with_capacity(BUFFER_BYTES, input))
        .map_err(|error| not_loaded(options, &error))?;
    place.put().map_err(|error| Failure::failed(path.display(), error))?;
    eprintln!("{}: {} loaded", path.display(), rows_of_tables(loaded.rows, loaded.tables));
    match loaded.state {
        State::Whole => Ok(()),
        State::Partial => {
            let what = "the dump is of a damaged database: it lacks what was lost there";
            Err(Failure::Partial(format!("{}: {what}", path.display())))
        }
    }
}

/// How a database is made.
///
/// # Errors
///
/// Sizes that make no sense.
pub fn new_builder(options: &NewDatabase) -> Result<Builder, Failure> {
    let bytes = |size: Size, option: &str| {
        let bytes = size.bytes();
        bytes.ok_or_else(|| Failure::usage(format!("{option} must be in bytes, like 1GiB")))
    };
    let builder = Database::builder().memory(options.dram.pages(0) * 8192);
    let builder = match (options.log_size, options.log_max) {
        (Some(size), _) => builder.log_size(bytes(size, "--log-size")?),
        (None, Some(bytes)) => builder.log_max(bytes),
        (None, None) => builder,
    };
    Ok(match options.home_size {
        Some(size) => builder.home_size(bytes(size, "--home-size")?),
        None => builder,
    })
}

/// Why nothing was loaded.
enum NotLoaded {
    /// The dump is at fault, or a table of it.
    Load(LoadError),
    /// The new database is.
    New(terrace::Error),
}

fn fill(builder: Builder, home: &Path, input: impl Read) -> Result<Loaded, NotLoaded> {
    let database = builder.create(home).map_err(NotLoaded::New)?;
    let loaded = terrace::dump::load(&database, input).map_err(NotLoaded::Load)?;
    database.close().map_err(NotLoaded::New)?;
    Ok(loaded)
}

/// Names the dump if that is at fault, else the place of the new database, and what to give if it
/// has no room.
fn not_loaded(options: &Load, error: &NotLoaded) -> Failure {
    let (path, made) = (options.path.display(), &options.made);
    let source = match error {
        NotLoaded::Load(LoadError::Dump(error)) if options.dump.as_os_str() == "-" => {
            return Failure::failed("standard input", error);
        }
        NotLoaded::Load(LoadError::Dump(error)) => {
            return Failure::failed(options.dump.display(), error);
        }
        NotLoaded::Load(LoadError::Table { source, .. }) | NotLoaded::New(source) => Some(source),
    };
    let table = match error {
        NotLoaded::Load(LoadError::Table { table, .. }) => {
            format!(" for table \"{}\"", table.escape_debug())
        }
        _ => String::new(),
    };
    let home = made.home_size.and_then(Size::bytes).unwrap_or(HOME_BYTES);
    match (source, error) {
        (Some(terrace::Error::HomeFull { .. }), _) => Failure::failed(
            path,
            format!(
                "{} bytes have no room{table}: give a larger --home-size, or make room on the \
                 device",
                thousands(home as f64)
            ),
        ),
        (Some(terrace::Error::LogFull { .. }), _) => Failure::failed(
            path,
            format!("the log has no room{table}: give a larger --log-size or --log-max"),
        ),
        (_, NotLoaded::Load(error)) => Failure::failed(path, error),
        (_, NotLoaded::New(error)) => Failure::failed(path, error),
    }
}
