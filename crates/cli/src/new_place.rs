//! A database that is made under another name, and gets its own once it is whole.
//!
//! ```text
//!   PATH.making, locked --> PATH.new, PATH.new.log --whole--> "put" in PATH.making, durable
//!                                                             (upgrade: PATH -> PATH.old, ...)
//!   PATH.making removed <-- PATH.new -> PATH <-- PATH.new.log -> PATH.log
//! ```
//!
//! - P1: while PATH.making is there, PATH.new and PATH.new.log are leftovers of ours: it is made
//!   only where neither was. Where it is not there, whatever has these names stays.
//! - P2: its lock tells whether the process that made it still works.
//! - P3: a load that was cut short begins again. Its PATH.log is a leftover, too, as long as there
//!   is no PATH: neither was there when it began.
//! - P4: an upgrade that was cut short before "put" begins again, and after that is brought to its
//!   end: each step does nothing where it was done.

use crate::failure::Failure;
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// What PATH.making says once the new database is whole.
const PUT: &str = "put\n";
const IN_USE: &str = "another process is making a database here, see";
const TAKEN: &str = "something is there already, and was not changed: choose another path";
const NEW_TAKEN: &str = "something is there already, and was not changed; the database is made \
                         there first: if you do not need it, remove it and try again";

/// What becomes of what is at PATH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// There is nothing.
    Free,
    /// It is kept as PATH.old.
    Replaced,
}

/// See the module.
pub struct NewPlace {
    path: PathBuf,
    place: Place,
    /// Open, and so locked.
    making: File,
    is_put: bool,
}

/// What is found where an upgrade is to begin.
pub enum Begun {
    /// Nothing is half done.
    New(NewPlace),
    /// An earlier one had converted all, and has its names now.
    Ended,
}

/// `path` with `suffix` behind it.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Renames `from`, unless that was done already.
fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    if is_there(from) { fs::rename(from, to) } else { Ok(()) }
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn failed(path: &Path) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::failed(path.display(), error)
}

fn taken(paths: &[PathBuf], what: &str) -> Result<(), Failure> {
    let there = paths.iter().find(|path| is_there(path));
    there.map_or(Ok(()), |path| Err(Failure::failed(path.display(), what)))
}

/// The mark of a process that was cut short, with what it says. `None`: there is none.
fn leftover(path: &Path) -> Result<Option<(File, String)>, Failure> {
    let mark = with_suffix(path, ".making");
    let mut making = match File::options().read(true).write(true).open(&mark) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed(&mark))?,
    };
    match making.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(Failure::failed(path.display(), format!("{IN_USE} {}", mark.display())));
        }
        Err(TryLockError::Error(error)) => return Err(failed(&mark)(error)),
    }
    let mut said = String::new();
    // A mark that is not text says nothing.
    let _read = making.read_to_string(&mut said);
    Ok(Some((making, said)))
}

impl NewPlace {
    /// A place for a new database at `path`, where there must be nothing.
    ///
    /// # Errors
    ///
    /// Something is there; another process is at work.
    pub fn at(path: &Path) -> Result<NewPlace, Failure> {
        let [log, new, new_log] = [".log", ".new", ".new.log"].map(|it| with_suffix(path, it));
        if let Some((_making, _)) = leftover(path)? {
            // P3. With PATH there, all of it has its names.
            let ours = [Some(&new), Some(&new_log), (!is_there(path)).then_some(&log)];
            let removed = ours.into_iter().flatten().try_for_each(|path| remove_if_there(path));
            removed.map_err(failed(path))?;
            remove_if_there(&with_suffix(path, ".making")).map_err(failed(path))?;
        }
        taken(&[path.to_path_buf(), log], TAKEN)?;
        taken(&[new, new_log], NEW_TAKEN)?;
        NewPlace::mark(path, Place::Free)
    }

    /// A place for one that is to replace what is at `path`, which is kept.
    ///
    /// # Errors
    ///
    /// Something is where it is to be made, or where the old one is to be kept; another process is
    /// at work.
    pub fn instead_of(path: &Path) -> Result<Begun, Failure> {
        let new = [".new", ".new.log"].map(|suffix| with_suffix(path, suffix));
        if let Some((making, said)) = leftover(path)? {
            if said == PUT {
                let place = Place::Replaced;
                let begun = NewPlace { path: path.to_path_buf(), place, making, is_put: true };
                begun.name_all().map_err(failed(path))?;
                return Ok(Begun::Ended);
            }
            let removed = new.iter().try_for_each(|path| remove_if_there(path));
            removed.map_err(failed(path))?;
            remove_if_there(&with_suffix(path, ".making")).map_err(failed(path))?;
        }
        let kept = [".old", ".old.log"].map(|suffix| with_suffix(path, suffix));
        taken(&kept, "something is there, where the old database is to be kept: move it")?;
        taken(&new, NEW_TAKEN)?;
        NewPlace::mark(path, Place::Replaced).map(Begun::New)
    }

    fn mark(path: &Path, place: Place) -> Result<NewPlace, Failure> {
        let mark = with_suffix(path, ".making");
        let making = File::options().write(true).create_new(true).open(&mark);
        let making = making.map_err(failed(&mark))?;
        making.try_lock().map_err(|error| Failure::failed(mark.display(), error))?;
        let text = "a database is being made here: leave this file to `terrace`\n";
        let written = (&making).write_all(text.as_bytes()).and_then(|()| making.sync_all());
        let made = NewPlace { path: path.to_path_buf(), place, making, is_put: false };
        // P1: it is there before what it tells of.
        written.and_then(|()| sync_folder_of(path)).map_err(failed(&mark))?;
        Ok(made)
    }

    /// Where it is made.
    pub fn home(&self) -> PathBuf {
        with_suffix(&self.path, ".new")
    }

    /// Gives it its name, durably.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn put(mut self) -> io::Result<()> {
        self.making.set_len(0)?;
        std::os::unix::fs::FileExt::write_all_at(&self.making, PUT.as_bytes(), 0)?;
        self.making.sync_all()?;
        self.is_put = true;
        self.name_all()
    }

    /// P4. The log first, since a database is there once its home is.
    fn name_all(&self) -> io::Result<()> {
        let path = &self.path;
        let [log, new, new_log] = [".log", ".new", ".new.log"].map(|it| with_suffix(path, it));
        if self.place == Place::Replaced && is_there(&new) {
            keep(path, is_there(&new_log))?;
        }
        rename_if_there(&new_log, &log)?;
        rename_if_there(&new, path)?;
        sync_folder_of(path)?;
        remove_if_there(&with_suffix(path, ".making"))?;
        sync_folder_of(path)
    }
}

/// Gives the old database a second name, and its log another one, as long as PATH.log is its log.
fn keep(old: &Path, has_log: bool) -> io::Result<()> {
    let kept = with_suffix(old, ".old");
    if !is_there(&kept) {
        fs::hard_link(old, &kept).or_else(|_| {
            // No second names on this file system: for a moment there is nothing at the old one.
            fs::rename(old, &kept)
        })?;
    }
    if has_log {
        rename_if_there(&with_suffix(old, ".log"), &with_suffix(&kept, ".log"))?;
    }
    Ok(())
}

impl Drop for NewPlace {
    fn drop(&mut self) {
        if !self.is_put {
            // What was half made is of no use; the error says why it failed.
            for suffix in [".new", ".new.log", ".making"] {
                let _removed = fs::remove_file(with_suffix(&self.path, suffix));
            }
        }
    }
}
