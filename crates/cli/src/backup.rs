//! `terrace backup` and `terrace restore`: a copy of a database as a stream of bytes, and a
//! database made of it.

use crate::command::{Backup, Restore};
use crate::database::{blank_flash, builder};
use crate::failure::{Failure, in_options};
use crate::new_place::{NewPlace, with_suffix};
use crate::output::{Sinks, Stopwatch};
use crate::standard_output;
use crate::table::thousands;
use serde_json::json;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufReader, BufWriter, IsTerminal, Read};
use std::path::{Path, PathBuf};
use terrace::{BackedUp, BackupError, BackupMark, BackupOptions, Database, RestoreError};

const BUFFER_BYTES: usize = 1 << 20;

/// Writes a backup of a database that no process has open.
///
/// # Errors
///
/// A database that cannot be opened, or is damaged; an output that is there already, or cannot be
/// written. Then no file is left.
pub fn backup(options: &Backup) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let path = options.at.path.display();
    let to_output = options.file.as_os_str() == "-";
    if to_output && options.shown.json.as_ref().is_some_and(|json| json.as_os_str() == "-") {
        return Err(Failure::usage("the backup and --json cannot both go to standard output"));
    }
    let mut how = BackupOptions::new();
    if let Some(rate) = options.rate {
        how = how.rate(rate);
    }
    if let Some(since) = &options.since {
        how = how.since(mark(since)?);
    }
    let out = match to_output {
        true => None,
        false => Some(NewFile::at(&options.file)?),
    };
    let builder = builder(&options.at, blank_flash(&options.at)?)?.read_only();
    let database = builder.open(&options.at.path).map_err(|error| refused(options, &error))?;
    let taken = match &out {
        None => to_standard_output(&database, &how),
        Some(out) => {
            let mut buffered = BufWriter::with_capacity(BUFFER_BYTES, &out.file);
            database.backup(&mut buffered, &how)
        }
    };
    let taken = taken.map_err(|error| match error {
        BackupError::Output(source) if !to_output => {
            Failure::failed(format!("cannot write {}", options.file.display()), source)
        }
        BackupError::Foreign => {
            let what = "the backup given with --since is of another database, or of a later moment";
            Failure::failed(&path, format!("{what}: take a whole one, without --since"))
        }
        error => Failure::failed(&path, in_options(error)),
    })?;
    database.close().map_err(|error| Failure::of_engine(&path, &error))?;
    if let Some(out) = out {
        let put = out.put();
        put.map_err(|error| Failure::failed(options.file.display(), error))?;
    }
    let said = format!("{path}: {}\n", in_words(&taken));
    if to_output {
        eprint!("{said}")
    } else {
        sinks.show(&said)
    }
    sinks.write(&json!({
        "command": "backup",
        "version": env!("CARGO_PKG_VERSION"),
        "whole": options.since.is_none(),
        "bytes": taken.bytes,
        "pages": taken.pages,
        "log_bytes": taken.log_bytes,
        "can_be_built_upon": taken.mark.is_some(),
        "host": { "wall_s": watch.seconds() },
    }))
}

fn in_words(taken: &BackedUp) -> String {
    let [bytes, pages, log] =
        [taken.bytes, taken.pages, taken.log_bytes].map(|count| thousands(count as f64));
    format!("{bytes} bytes saved: {pages} pages, {log} bytes of log")
}

fn to_standard_output(database: &Database, how: &BackupOptions) -> Result<BackedUp, BackupError> {
    let out = standard_output::open().map_err(BackupError::Output)?;
    if out.is_terminal() {
        let what = "a backup is no text: send it to a file or a pipe";
        return Err(BackupError::Output(io::Error::other(what)));
    }
    database.backup(&mut BufWriter::with_capacity(BUFFER_BYTES, out.lock()), how)
}

/// The mark of the backup in a file.
fn mark(path: &Path) -> Result<BackupMark, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::failed(path.display(), error);
    let file = File::open(path).map_err(|error| failed(&error))?;
    let mark = BackupMark::read(BufReader::new(file)).map_err(|error| failed(&error))?;
    mark.ok_or_else(|| {
        let what = "no other backup can stand upon it: it was taken after a crash, of a database \
                    that had not been opened for writing since";
        failed(&format!("{what}; take a whole one, without --since"))
    })
}

/// Why a database cannot be backed up, and what to do.
fn refused(options: &Backup, error: &terrace::Error) -> Failure {
    let path = options.at.path.display();
    match error {
        terrace::Error::AlreadyOpen { .. } => {
            let what = "a database that is open is backed up by the process that has it open, with \
                        `Database::backup`";
            Failure::failed(path, format!("{}; {what}", in_options(error)))
        }
        error => Failure::of_engine(path, error),
    }
}

/// A file that gets its name once it is whole: until then it has `.part` behind it.
struct NewFile {
    path: PathBuf,
    part: PathBuf,
    /// Locked, so that another process can tell a leftover.
    file: File,
    is_put: bool,
}

impl NewFile {
    fn at(path: &Path) -> Result<NewFile, Failure> {
        if fs::symlink_metadata(path).is_ok() {
            let what = "something is there already, and was not changed: choose another name";
            return Err(Failure::failed(path.display(), what));
        }
        let part = with_suffix(path, ".part");
        let failed = |error: &dyn std::fmt::Display| Failure::failed(part.display(), error);
        let open = File::options().write(true).create(true).truncate(false).open(&part);
        let file = open.map_err(|error| failed(&error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(failed(&"another process is writing it: choose another name"));
            }
            Err(TryLockError::Error(error)) => return Err(failed(&error)),
        }
        if !is_part(&part).map_err(|error| failed(&error))? {
            let what = "it exists and is not a backup that was cut short: choose another name";
            return Err(failed(&what));
        }
        file.set_len(0).map_err(|error| failed(&error))?;
        Ok(NewFile { path: path.to_path_buf(), part, file, is_put: false })
    }

    /// Gives it its name, durably.
    fn put(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        // Unlike a rename it replaces nothing.
        match fs::hard_link(&self.part, &self.path) {
            Ok(()) => fs::remove_file(&self.part)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) => fs::rename(&self.part, &self.path)?,
        }
        self.is_put = true;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_put {
            // It is of no use; the error says why.
            let _removed = fs::remove_file(&self.part);
        }
    }
}

/// Whether a file is empty, or begins like a backup.
fn is_part(path: &Path) -> io::Result<bool> {
    let mut head = Vec::new();
    File::open(path)?.take(8).read_to_end(&mut head)?;
    Ok(b"TERRBACK".starts_with(&head))
}

/// Makes a database of backups.
///
/// # Errors
///
/// Backups that cannot be read, or do not stand upon each other; a place that cannot be written or
/// holds something. Then nothing is left.
pub fn restore(options: &Restore) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let path = options.path.display();
    let files: Vec<&Path> =
        [&options.file].into_iter().chain(&options.then).map(|it| &**it).collect();
    let builder = crate::dump::new_builder(&options.made)?;
    let mut inputs = Vec::new();
    for file in &files {
        inputs.push(input(file)?);
    }
    let mut inputs: Vec<&mut dyn Read> = inputs.iter_mut().map(|it| &mut **it as _).collect();
    let place = NewPlace::at(&options.path)?;
    let restored = builder.restore(place.home(), &mut inputs);
    let restored = restored.map_err(|error| not_restored(options, &files, &error))?;
    place.put().map_err(|error| Failure::failed(&path, error))?;
    let [pages, log] = [restored.pages, restored.log_bytes].map(|count| thousands(count as f64));
    sinks.show(&format!(
        "{path}: restored; {pages} pages, and {log} bytes of log for the first opening\n"
    ));
    sinks.write(&json!({
        "command": "restore",
        "version": env!("CARGO_PKG_VERSION"),
        "backups": files.len(),
        "pages": restored.pages,
        "log_bytes": restored.log_bytes,
        "id": format!("{:032x}", restored.id),
        "original": format!("{:032x}", restored.original),
        "host": { "wall_s": watch.seconds() },
    }))
}

fn input(path: &Path) -> Result<Box<dyn Read>, Failure> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(path).map_err(|error| Failure::failed(path.display(), error))?;
    Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, file)))
}

/// Names the backups if they are at fault, else the place of the new database.
fn not_restored(options: &Restore, files: &[&Path], error: &RestoreError) -> Failure {
    let named: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    match error {
        RestoreError::Chain { index } => Failure::failed(
            &named[*index],
            "it does not stand upon the one before: give a whole backup first, then with --then \
             each that was made upon the one before",
        ),
        RestoreError::Database(error) => Failure::of_engine(options.path.display(), error),
        error => Failure::failed(named.join(", "), error),
    }
}
