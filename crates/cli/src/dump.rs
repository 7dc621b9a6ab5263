//! `terrace dump` and `terrace load`: a database as a stream of bytes, and back.

use crate::command::{Dump, Load, NewDatabase};
use crate::database::{blank_flash, builder};
use crate::failure::Failure;
use crate::quantity::Size;
use crate::table::thousands;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, IsTerminal, Read};
use std::path::{Path, PathBuf};
use terrace::dump::{Loaded, SaveError, Saved, State};
use terrace::{Builder, Database, Part};

const BUFFER_BYTES: usize = 256 << 10;

/// Writes a dump to standard output.
///
/// # Errors
///
/// A database that cannot be read at all, an output that cannot be written; `Partial` if something
/// is lost.
pub fn dump(options: &Dump) -> Result<(), Failure> {
    let out = io::stdout();
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
        _ if options.salvage => return Failure::failed(path, error),
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
        _ => return Failure::failed(path, error),
    };
    Failure::failed(path, format!("{error}; {remedy}"))
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
    let loaded = fill(builder, place.home(), BufReader::with_capacity(BUFFER_BYTES, input))
        .map_err(|error| Failure::failed(path.display(), error))?;
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
    let builder = Database::builder()
        .memory(options.dram.pages(0) * 8192)
        .log_size(bytes(options.log_size, "--log-size")?);
    Ok(match options.home_size {
        Some(size) => builder.home_size(bytes(size, "--home-size")?),
        None => builder,
    })
}

fn fill(builder: Builder, home: &Path, input: impl Read) -> Result<Loaded, String> {
    let database = builder.create(home).map_err(|error| error.to_string())?;
    let loaded = terrace::dump::load(&database, input).map_err(|error| error.to_string())?;
    database.close().map_err(|error| error.to_string())?;
    Ok(loaded)
}

/// A database that is made under another name, and gets its own once it is whole.
pub struct NewPlace {
    path: PathBuf,
    home: PathBuf,
    is_put: bool,
}

/// `path` with `suffix` behind it.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

impl NewPlace {
    /// A place for a new database at `path`, where there must be nothing.
    ///
    /// # Errors
    ///
    /// Something is there.
    pub fn at(path: &Path) -> Result<NewPlace, Failure> {
        NewPlace::unless_taken(path, &[path, &with_suffix(path, ".log")])
    }

    /// A place for one that is to replace what is at `path`, once that is gone.
    ///
    /// # Errors
    ///
    /// Something is where it is to be made.
    pub fn instead_of(path: &Path) -> Result<NewPlace, Failure> {
        NewPlace::unless_taken(path, &[])
    }

    fn unless_taken(path: &Path, taken: &[&Path]) -> Result<NewPlace, Failure> {
        let home = with_suffix(path, ".new");
        let log = with_suffix(&home, ".log");
        for taken in taken.iter().copied().chain([&*home, &*log]) {
            if fs::symlink_metadata(taken).is_ok() {
                let what = "something is there already, and stays: choose another place";
                return Err(Failure::failed(taken.display(), what));
            }
        }
        Ok(NewPlace { path: path.to_path_buf(), home, is_put: false })
    }

    /// Where it is made.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Gives it its name, durably: the log first, since a database is there once its home is.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn put(mut self) -> io::Result<()> {
        fs::rename(with_suffix(&self.home, ".log"), with_suffix(&self.path, ".log"))?;
        fs::rename(&self.home, &self.path)?;
        self.is_put = true;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for NewPlace {
    fn drop(&mut self) {
        if !self.is_put {
            // What was half made is of no use; why it failed is told.
            let _home = fs::remove_file(&self.home);
            let _log = fs::remove_file(with_suffix(&self.home, ".log"));
        }
    }
}
