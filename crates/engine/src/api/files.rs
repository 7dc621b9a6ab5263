//! Where the parts of a database lie in the file system.
//!
//! Direct I/O is used where the file system has it, else the page cache unless that is refused: it
//! costs memory, nothing else, since durability comes from `fdatasync` in both.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use terrace_device::{Access, Device, FileDevice, FileOptions, lock_holder};
use terrace_page::PAGE_SIZE;
use terrace_rt::World;

use crate::api::DirectIo;
use crate::error::error_path;
use crate::{Action, Error, ErrorPath, Part};

/// How the last page of a flash file or device begins.
const FLASH_LABEL: [u8; 16] = *b"terrace flash 1\n";

/// A part of a database in the file system.
pub(crate) struct Place {
    part: Part,
    path: PathBuf,
    /// Bytes, reserved when it is created.
    bytes: Option<u64>,
    /// Bytes of a sparse file.
    sparse_bytes: u64,
}

/// A file that was not there before, open and so locked.
pub(crate) struct Made {
    path: PathBuf,
    _device: Arc<dyn Device>,
}

impl Made {
    /// Removes it: what it was made for has failed.
    pub(crate) fn take_away(self) {
        // Why the rest failed is what the caller is told; a file left behind is refused later.
        let _removed = fs::remove_file(&self.path);
    }
}

impl Place {
    /// The home.
    pub(crate) fn home(path: &Path, bytes: Option<u64>, sparse_bytes: u64) -> Place {
        Place { part: Part::Home, path: path.to_path_buf(), bytes: whole(bytes), sparse_bytes }
    }

    /// The log: beside the home unless it has a path of its own.
    pub(crate) fn log(home: &Path, path: Option<&Path>, bytes: Option<u64>) -> Place {
        let beside = || {
            let mut name = home.as_os_str().to_os_string();
            name.push(".log");
            PathBuf::from(name)
        };
        let path = path.map_or_else(beside, Path::to_path_buf);
        Place { part: Part::Log, path, bytes: whole(bytes), sparse_bytes: 0 }
    }

    /// The flash tier: slots of `bytes` in all, and the label.
    pub(crate) fn flash(path: &Path, bytes: u64) -> Place {
        let bytes = whole(Some(bytes.saturating_add(PAGE_SIZE as u64)));
        Place { part: Part::Flash, path: path.to_path_buf(), bytes, sparse_bytes: 0 }
    }

    /// Opens it, and makes it if it is not there: then it is added to `made`.
    ///
    /// # Errors
    ///
    /// `AlreadyOpen`, `Device`.
    pub(crate) fn create(
        &self,
        direct_io: DirectIo,
        made: &mut Vec<Made>,
    ) -> Result<Arc<dyn Device>, Error> {
        let is_new = !self.path.exists();
        if self.part == Part::Flash {
            check_label(&self.path)?;
        }
        let is_sparse = self.bytes.is_none() && !is_device(&self.path);
        if is_sparse {
            self.make_sparse().map_err(|source| self.not_made(source))?;
        }
        // A block device has its own size.
        let size = self.bytes.filter(|_| !is_device(&self.path) || self.part == Part::Flash);
        let options = FileOptions { size, create: true, ..FileOptions::default() };
        let device = self.device(&options, direct_io).map_err(|source| {
            if is_sparse && source.kind() != ErrorKind::ResourceBusy {
                // Nobody has it open, and it holds nothing yet.
                let _removed = fs::remove_file(&self.path);
            }
            self.not_made(source)
        })?;
        if self.part == Part::Flash {
            put_label(&self.path).map_err(|source| self.not_made(source))?;
        }
        if is_new {
            made.push(Made { path: self.path.clone(), _device: Arc::clone(&device) });
        }
        Ok(device)
    }

    /// Makes a file of holes where there is nothing.
    fn make_sparse(&self) -> io::Result<()> {
        let file = OpenOptions::new().write(true).create_new(true).open(&self.path);
        file.and_then(|file| file.set_len(self.sparse_bytes)).map_err(|source| {
            io::Error::new(source.kind(), format!("{}: {source}", self.path.display()))
        })
    }

    /// Opens it as it is.
    ///
    /// # Errors
    ///
    /// `Missing`, `AlreadyOpen`, `NotADatabase`, `Device`.
    pub(crate) fn open(
        &self,
        direct_io: DirectIo,
        access: Access,
    ) -> Result<Arc<dyn Device>, Error> {
        let metadata = fs::metadata(&self.path).map_err(|source| self.failed(source))?;
        let is_short = metadata.is_file() && metadata.len() < 2 * PAGE_SIZE as u64;
        if metadata.is_dir() || is_short {
            let what = "it is a folder, or too short";
            return Err(Error::NotADatabase { part: self.part, path: self.error_path(), what });
        }
        let options = FileOptions { access, ..FileOptions::default() };
        self.device(&options, direct_io).map_err(|source| self.failed(source))
    }

    fn device(&self, options: &FileOptions, direct_io: DirectIo) -> io::Result<Arc<dyn Device>> {
        let direct = FileDevice::open(&self.path, options);
        let may_cache = direct_io == DirectIo::Preferred;
        let opened = match direct {
            Err(error) if may_cache && error.kind() == ErrorKind::InvalidInput => {
                FileDevice::open(&self.path, &FileOptions { direct: false, ..options.clone() })
            }
            opened => opened,
        };
        opened.map(|device| Arc::new(device) as _)
    }

    /// Why it could not be made: a folder that is missing is no missing database.
    fn not_made(&self, source: io::Error) -> Error {
        match source.kind() {
            ErrorKind::NotFound => self.device_failed(source),
            _ => self.failed(source),
        }
    }

    fn failed(&self, source: io::Error) -> Error {
        let (part, path) = (self.part, self.error_path());
        match source.kind() {
            ErrorKind::NotFound => Error::Missing { part, path },
            ErrorKind::ResourceBusy | ErrorKind::WouldBlock => {
                Error::AlreadyOpen { part, path, holder: lock_holder(&self.path) }
            }
            ErrorKind::AlreadyExists => Error::Exists { part, path },
            _ => self.device_failed(source),
        }
    }

    fn device_failed(&self, source: io::Error) -> Error {
        let (part, path, action) = (self.part, self.error_path(), Action::Open);
        Error::Device { part, path, action, page: None, source: Arc::new(source) }
    }

    /// Its path, for errors.
    pub(crate) fn error_path(&self) -> ErrorPath {
        error_path(&self.path)
    }
}

fn whole(bytes: Option<u64>) -> Option<u64> {
    bytes.map(|bytes| bytes / PAGE_SIZE as u64 * PAGE_SIZE as u64)
}

fn is_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// Whether there is something at `path` that could be a database.
pub(crate) fn is_there(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => metadata.len() > 0 && !begins_blank(path),
        Ok(_) => !begins_blank(path),
        Err(_) => false,
    }
}

/// Whether the first page is zeroes.
fn begins_blank(path: &Path) -> bool {
    let mut head = [0; 2 * PAGE_SIZE];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head.iter().all(|&byte| byte == 0)
}

/// Checks that nothing is lost by using `path` as flash: it is not there, or blank, or was used so
/// before, as its last page says.
///
/// # Errors
///
/// `NotADatabase`.
fn check_label(path: &Path) -> Result<(), Error> {
    let is_free = match File::open(path) {
        // Whatever is wrong with it, opening it for writing tells.
        Err(_) => true,
        Ok(file) if file.metadata().is_ok_and(|found| found.is_file() && found.len() == 0) => true,
        Ok(file) => is_labelled(&file) || begins_blank(path),
    };
    let what = "it holds something else than a flash tier";
    let (part, path) = (Part::Flash, error_path(path));
    if is_free { Ok(()) } else { Err(Error::NotADatabase { part, path, what }) }
}

fn is_labelled(mut file: &File) -> bool {
    let mut head = [0; FLASH_LABEL.len()];
    let last_page = SeekFrom::End(-(PAGE_SIZE as i64));
    let read = file.seek(last_page).and_then(|_| file.read_exact(&mut head));
    read.is_ok() && head == FLASH_LABEL
}

/// Labels the flash at `path`, whose last page is no slot, unless it is.
fn put_label(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    if !is_labelled(&file) {
        file.seek(SeekFrom::End(-(PAGE_SIZE as i64)))?;
        file.write_all(&FLASH_LABEL)?;
        file.sync_data()?;
    }
    Ok(())
}

/// Checks that nothing is lost by making `place`: it is not there, or empty, or a blank device.
///
/// # Errors
///
/// `Exists`.
pub(crate) fn check_blank(place: &Place) -> Result<(), Error> {
    let Ok(metadata) = fs::metadata(&place.path) else { return Ok(()) };
    let free = is_device(&place.path) && begins_blank(&place.path);
    if free || (metadata.is_file() && metadata.len() == 0 && place.bytes.is_some()) {
        Ok(())
    } else {
        Err(Error::Exists { part: place.part, path: place.error_path() })
    }
}

/// An id for a new database: by chance, but fixed in a virtual world.
pub(crate) fn draw_identity(world: &World) -> u128 {
    const FIXED: u128 = 0x7e44_ace0_0000_0000_0000_0000_0000_0001;
    if world.is_virtual() {
        return FIXED;
    }
    let mut bytes = [0; 16];
    let drawn = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    if drawn.is_ok() { u128::from_le_bytes(bytes) } else { FIXED }
}
