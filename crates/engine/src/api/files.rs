//! Where the parts of a database lie in the file system.
//!
//! Direct I/O is used where the file system has it, else the page cache: it costs memory, nothing
//! else, since durability comes from `fdatasync` in both.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use terrace_device::{Device, FileDevice, FileOptions};
use terrace_page::PAGE_SIZE;
use terrace_rt::World;

use crate::{Error, Part};

/// A part of a database in the file system.
pub(crate) struct Place {
    part: Part,
    path: PathBuf,
    /// Bytes, reserved when it is created.
    bytes: Option<u64>,
    /// Bytes of a sparse file.
    sparse_bytes: u64,
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

    /// The flash tier.
    pub(crate) fn flash(path: &Path, bytes: u64) -> Place {
        let bytes = whole(Some(bytes));
        Place { part: Part::Flash, path: path.to_path_buf(), bytes, sparse_bytes: 0 }
    }

    /// Opens it, and makes it if it is not there.
    ///
    /// # Errors
    ///
    /// `AlreadyOpen`, `Device`.
    pub(crate) fn create(&self) -> Result<Arc<dyn Device>, Error> {
        if self.bytes.is_none() && !is_device(&self.path) {
            let file = OpenOptions::new().write(true).create_new(true).open(&self.path);
            let sized = file.and_then(|file| file.set_len(self.sparse_bytes));
            sized.map_err(|source| self.failed(source))?;
        }
        // A block device has its own size.
        let size = self.bytes.filter(|_| !is_device(&self.path) || self.part == Part::Flash);
        self.device(&FileOptions { size, create: true, ..FileOptions::default() })
    }

    /// Opens it as it is.
    ///
    /// # Errors
    ///
    /// `Missing`, `AlreadyOpen`, `NotADatabase`, `Device`.
    pub(crate) fn open(&self) -> Result<Arc<dyn Device>, Error> {
        let metadata = fs::metadata(&self.path).map_err(|source| self.failed(source))?;
        let is_short = metadata.is_file() && metadata.len() < 2 * PAGE_SIZE as u64;
        if metadata.is_dir() || is_short {
            let what = "it is a folder, or too short";
            return Err(Error::NotADatabase { part: self.part, what });
        }
        self.device(&FileOptions::default())
    }

    fn device(&self, options: &FileOptions) -> Result<Arc<dyn Device>, Error> {
        let direct = FileDevice::open(&self.path, options);
        let opened = match direct {
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                FileDevice::open(&self.path, &FileOptions { direct: false, ..options.clone() })
            }
            opened => opened,
        };
        match opened {
            Ok(device) => Ok(Arc::new(device)),
            Err(source) => Err(self.failed(source)),
        }
    }

    fn failed(&self, source: io::Error) -> Error {
        match source.kind() {
            ErrorKind::NotFound => Error::Missing { part: self.part },
            ErrorKind::ResourceBusy | ErrorKind::WouldBlock => Error::AlreadyOpen,
            ErrorKind::AlreadyExists => Error::Exists,
            _ => Error::Device { part: self.part, source },
        }
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
        Err(Error::Exists)
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
