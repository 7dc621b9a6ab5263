//! The parts of a database in the file system: what is made, what is opened, what is refused.
//!
//! ```text
//!  claim home, flash, log: open and locked, made where nothing was   | a failure takes away
//!  look: blank, ours, or foreign?                                    | what was made, and
//!  clear what may be overwritten, grow, label the flash              v changes nothing else
//!  devices
//! ```
//!
//! - P1: nothing that was there changes before all three parts are claimed and looked at.
//! - P2: a creation that was cut short leaves each part missing, empty, blank, or in the case of
//!   the log and the flash with a header alone: another one takes that for its own.
//! - P3: a flash file that flash needs for nothing, since it is a cache, never keeps a database
//!   from opening: what is left of it starts cold, and one that does not answer, has failed or has
//!   no room is done without. What is no flash tier of ours is refused.
//! - P4: an opening that is refused leaves no flash file that it has made, and no byte of a file
//!   has changed. Home and flash may have to be longer before it is known; then they get as short
//!   again as they were. What they hold changes only where the engine writes (open.O2). The label
//!   of a flash that held something comes after that; of one that held nothing it comes first, and
//!   goes again.
//!
//! Direct I/O is used where the file system has it, else the page cache unless that is refused: it
//! costs memory, nothing else, since durability comes from `fdatasync` in both.

mod flash;
mod made;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use terrace_device::contents::{self, ReadAt};
use terrace_device::{
    Access, Contents, Device, FileClaim, FileDevice, FileOptions, OpenError, Refusal, Room,
};
use terrace_page::PAGE_SIZE;
use terrace_pool::{ColdStart, FlashNeed};
use terrace_rt::Nanos;

pub(crate) use self::flash::Label;
use self::flash::{FlashFound, FlashOpening, OpenedFlash};
pub(crate) use self::made::Made;
use self::made::Was;
use crate::api::DirectIo;
use crate::error::{Places, error_path};
use crate::log::{Aligned, BLOCK, LogShape, header};
use crate::superblock::{self, Superblock};
use crate::{Action, BadCopy, Devices, Error, ErrorPath, Part};

const PAGE: u64 = PAGE_SIZE as u64;
/// The limit of a home for which no size was given.
const HOME_BYTES: u64 = 64 << 30;
/// The most links to links that are followed, as in the kernel.
const LINKS_MAX: usize = 40;

/// What may be destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overwrite {
    No,
    /// What stands where the flash is to be.
    FlashOnly,
    Yes,
}

impl Overwrite {
    fn allows(self, part: Part) -> bool {
        match self {
            Overwrite::No => false,
            Overwrite::FlashOnly => part == Part::Flash,
            Overwrite::Yes => true,
        }
    }
}

/// Where the parts of a database are. The path of the home has no symbolic link in it: the log is
/// beside what a link leads to.
pub(crate) struct Files {
    home: Place,
    log: Place,
    flash: Option<(Place, u64)>,
    /// How long the file system of the flash may be silent; zero: for ever.
    flash_limit: Nanos,
    direct_io: DirectIo,
    overwrite: Overwrite,
}

#[derive(Clone)]
struct Place {
    part: Part,
    path: PathBuf,
}

/// Bytes of the parts that are created.
pub(crate) struct Sizes {
    /// Of the home, reserved; without, it is sparse.
    pub(crate) home: Option<u64>,
    /// Of a log of fixed size; without, it grows.
    pub(crate) log: Option<u64>,
}

pub(crate) struct Opened {
    pub(crate) devices: Devices,
    /// Why the flash starts cold, whatever its header says.
    pub(crate) flash_doubt: Option<ColdStart>,
    /// Whether the flash holds what may be destroyed.
    pub(crate) is_flash_foreign: bool,
    pub(crate) label: Option<Label>,
    pub(crate) bad_label: Option<BadCopy>,
}

impl Files {
    /// The parts of the database whose home is at `home`: its log is beside it unless it has a path
    /// of its own. It waits for the file system of the flash for at most `flash_limit`.
    ///
    /// # Errors
    ///
    /// `LogPlace` for a block device without a path for its log, `InvalidOption` if two of the
    /// paths are the same.
    pub(crate) fn at(
        home: &Path,
        log: Option<&Path>,
        flash: Option<(&Path, u64)>,
        flash_limit: Nanos,
        (direct_io, overwrite): (DirectIo, Overwrite),
    ) -> Result<Files, Error> {
        let home = Place { part: Part::Home, path: resolve(home) };
        let log = match log {
            Some(path) => resolve(path),
            None if is_block_device(&home.path) => {
                return Err(Error::LogPlace { home: error_path(&home.path) });
            }
            None => {
                let mut name = home.path.as_os_str().to_os_string();
                name.push(".log");
                resolve(Path::new(&name))
            }
        };
        let log = Place { part: Part::Log, path: log };
        let flash = flash.map(|(given, bytes)| {
            let asked = given.to_path_buf();
            let path = terrace_rt::within(flash_limit, move || resolve(&asked));
            // The one that was asked for is silent, too.
            let path = path.unwrap_or_else(|| given.to_path_buf());
            // Beside the slots there is the label.
            (Place { part: Part::Flash, path }, whole(bytes.saturating_add(PAGE)))
        });
        let what = "home, log and flash must be three files or devices";
        if log.path == home.path {
            return Err(Error::InvalidOption { option: "log", what });
        }
        if flash.as_ref().is_some_and(|(it, _)| it.path == home.path || it.path == log.path) {
            return Err(Error::InvalidOption { option: "flash", what });
        }
        Ok(Files { home, log, flash, flash_limit, direct_io, overwrite })
    }

    /// The paths, for errors.
    pub(crate) fn places(&self) -> Places {
        let flash = self.flash.as_ref().and_then(|(flash, _)| flash.error_path());
        Places { home: self.home.error_path(), flash, log: self.log.error_path() }
    }

    /// Whether there is something at the path of the home that could be a database: neither
    /// nothing, nor something blank.
    pub(crate) fn may_be_there(&self) -> bool {
        let Ok(found) = fs::metadata(&self.home.path) else { return false };
        let is_block_device = is_block_device(&self.home.path);
        // Whatever is wrong with another kind, opening it tells.
        if !found.is_file() && !is_block_device {
            return true;
        }
        let mut head = Vec::new();
        let read =
            File::open(&self.home.path).and_then(|file| file.take(2 * PAGE).read_to_end(&mut head));
        read.is_err() || head.iter().any(|&byte| byte != 0)
    }

    /// Makes the files, and takes the block devices, of a new database. `step` is called after each
    /// thing that changes the file system.
    ///
    /// # Errors
    ///
    /// `NotBlank`, `Exists`, `AlreadyOpen`, `NoRoom`, `NotAFile`, `Device`: then nothing has
    /// changed.
    pub(crate) fn create(
        &self,
        sizes: &Sizes,
        step: &dyn Fn(),
    ) -> Result<(Devices, LogShape, Made), Error> {
        let claim = |place: &Place| {
            let claim = place.claim(Access::ReadWrite, true)?;
            step();
            place.check_direct(&claim, self.direct_io)?;
            place.check_free(&claim, self.overwrite)?;
            Ok::<_, Error>(claim)
        };
        let home = claim(&self.home)?;
        let flash = self.flash.as_ref();
        let flash = flash.map(|(place, bytes)| Ok::<_, Error>((place, *bytes, claim(place)?)));
        let flash = flash.transpose()?;
        let log = claim(&self.log)?;

        // P1: all of them may be used.
        let sparse = (HOME_BYTES, Room::Sparse);
        let (bytes, room) = sizes.home.map_or(sparse, |bytes| (whole(bytes), Room::Reserved));
        self.home.prepare(&home, bytes, room, step)?;
        if let Some((place, bytes, claim)) = &flash {
            place.prepare(claim, *bytes, Room::Reserved, step)?;
            place.label(claim)?;
            step();
        }
        let (shape, bytes) = match sizes.log {
            None if !log.is_block_device() => (LogShape::Growing, header::GROWING_BYTES_MIN),
            bytes => (LogShape::Fixed, whole(bytes.unwrap_or(0))),
        };
        self.log.prepare(&log, bytes, Room::Reserved, step)?;

        let mut made = Made::default();
        let devices = self.use_all(home, flash, log, &mut made);
        match devices {
            Ok(devices) => {
                step();
                Ok((devices, shape, made))
            }
            Err(error) => {
                made.take_away();
                Err(error)
            }
        }
    }

    fn use_all(
        &self,
        home: FileClaim,
        flash: Option<(&Place, u64, FileClaim)>,
        log: FileClaim,
        made: &mut Made,
    ) -> Result<Devices, Error> {
        let mut take = |place: &Place, claim: FileClaim, size| {
            let is_new = claim.is_new();
            let device = place.device(claim, size, self.direct_io)?;
            if is_new {
                made.0.push((place.path.clone(), Was::Missing, Arc::clone(&device)));
            }
            Ok::<_, Error>(device)
        };
        Ok(Devices {
            home: take(&self.home, home, None)?,
            flash: flash.map(|(place, size, claim)| take(place, claim, Some(size))).transpose()?,
            log: take(&self.log, log, None)?,
        })
    }

    /// Opens the home, which must be there, and notes in `made` what it was if it got longer.
    ///
    /// # Errors
    ///
    /// `Missing`, `AlreadyOpen`, `NotAFile`, `NoRoom`, `Device`.
    pub(crate) fn open_home(
        &self,
        access: Access,
        wanted: Option<u64>,
        made: &mut Made,
    ) -> Result<Arc<dyn Device>, Error> {
        let (home, was) = self.home.open_home(access, self.direct_io, wanted)?;
        made.0.extend(was.map(|was| (self.home.path.clone(), was, Arc::clone(&home))));
        Ok(home)
    }

    /// What the home holds instead of a database, if the error is that it holds none.
    pub(crate) fn foreign(&self, error: Error) -> Error {
        let (Error::NotADatabase { part: Part::Home, .. } | Error::Missing { .. }) = error else {
            return error;
        };
        // The home is still open, and locked: it is only read here.
        let found = File::open(&self.home.path).and_then(|file| Contents::of(&Plain(file)));
        let what = match (found, &error) {
            (Ok(Contents::Signature(what)), _) => what,
            (Ok(Contents::Data { .. }), Error::Missing { .. }) => {
                "it begins with blank pages, and holds something else behind them"
            }
            _ => return error,
        };
        Error::NotADatabase { part: Part::Home, path: self.home.error_path(), what }
    }

    /// The folder of the home, if that is a file.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        let folder = self.home.path.parent()?;
        (!is_block_device(&self.home.path)).then(|| folder.to_path_buf())
    }

    /// Opens the log and the flash of the database on `home`, whose superblock says whether it
    /// needs what is on flash, and notes in `made` what the flash was if it changes.
    ///
    /// # Errors
    ///
    /// `Missing`, `AlreadyOpen`, `NotADatabase`, `NotBlank`, `NotAFile`, `FlashNeeded`, `NoRoom`,
    /// `Device`.
    pub(crate) fn open(
        &self,
        home: Arc<dyn Device>,
        access: Access,
        boot: &Superblock,
        made: &mut Made,
    ) -> Result<Opened, Error> {
        let need = if boot.needs_flash() { FlashNeed::Needed } else { FlashNeed::Optional };
        let log = self.log.claim(access, false)?;
        if log.len() < 2 * PAGE {
            return Err(self.log.no_database(&log)?);
        }
        let log = self.log.device(log, None, self.direct_io)?;
        let opening = |(place, size): &(Place, u64)| FlashOpening {
            place: place.clone(),
            size: *size,
            access,
            need,
            database: boot.database,
            may_overwrite: self.overwrite.allows(Part::Flash),
            direct_io: self.direct_io,
        };
        let flash = match &self.flash {
            Some(flash) => opening(flash).open_within(self.flash_limit)?,
            None => OpenedFlash::default(),
        };
        let was = flash.was.zip(flash.device.clone());
        made.0.extend(was.map(|((path, was), device)| (path, was, device)));
        Ok(Opened {
            devices: Devices { home, flash: flash.device, log },
            flash_doubt: flash.doubt,
            is_flash_foreign: flash.is_foreign,
            label: flash.label,
            bad_label: flash.bad_label,
        })
    }
}

/// The home at `path` without the rest of its database, to be read only.
pub(crate) fn home_read_only(path: &Path, direct_io: DirectIo) -> Result<Arc<dyn Device>, Error> {
    let home = Place { part: Part::Home, path: resolve(path) };
    home.open_home(Access::ReadOnly, direct_io, None).map(|(home, _)| home)
}

impl Place {
    /// A file that holds a database is made `wanted` bytes long, if it is shorter; then comes what
    /// it was.
    fn open_home(
        &self,
        access: Access,
        direct_io: DirectIo,
        wanted: Option<u64>,
    ) -> Result<(Arc<dyn Device>, Option<Was>), Error> {
        let claim = self.claim(access, false)?;
        if claim.len() < 2 * PAGE {
            return Err(self.no_database(&claim)?);
        }
        self.check_direct(&claim, direct_io)?;
        let (wanted, bytes) = (wanted.map_or(0, whole), claim.len());
        let mut was = None;
        if access == Access::ReadWrite && claim.len() < wanted && !claim.is_block_device() {
            let told = superblock::pages_told(&claim).map_err(|error| self.device_failed(error))?;
            // One that was cut short is refused later, as it is.
            if told.is_some_and(|pages| pages * PAGE <= claim.len()) {
                claim.grow(wanted, Room::Reserved).map_err(|error| self.failed(error))?;
                was = Some(Was::Shorter { bytes });
            }
        }
        Ok((self.device(claim, None, direct_io)?, was))
    }

    /// What is wrong with a file that is too short for its part: it is blank, or something else.
    fn no_database(&self, claim: &FileClaim) -> Result<Error, Error> {
        let (part, path) = (self.part, self.error_path());
        let what = match claim.contents().map_err(|error| self.failed(error))? {
            Contents::Blank => return Ok(Error::Missing { part, path }),
            Contents::Signature(own)
                if (part, own) == (Part::Home, contents::DATABASE)
                    || (part, own) == (Part::Log, contents::LOG) =>
            {
                let (needed, found) = (2 * PAGE, claim.len());
                return Ok(Error::Truncated { part, path, needed, found });
            }
            Contents::Signature(what) => what,
            _ if part == Part::Log => "it is too short to be a log",
            _ => "it is too short to be a database, and not blank",
        };
        Ok(Error::NotADatabase { part, path, what })
    }

    fn error_path(&self) -> ErrorPath {
        error_path(&self.path)
    }

    fn claim(&self, access: Access, create: bool) -> Result<FileClaim, Error> {
        FileClaim::take(&self.path, access, create).map_err(|error| match error.why {
            Refusal::Missing if create => {
                let what = "its folder does not exist";
                self.device_failed(io::Error::new(ErrorKind::NotFound, what))
            }
            _ => self.failed(error),
        })
    }

    fn check_direct(&self, claim: &FileClaim, direct_io: DirectIo) -> Result<(), Error> {
        if direct_io == DirectIo::Preferred || claim.has_direct_io() {
            return Ok(());
        }
        let path = claim.path().to_path_buf();
        Err(self.failed(OpenError { path, why: Refusal::NoDirectIo }))
    }

    /// Refuses to use what is neither blank, nor what a creation that was cut short has left, nor
    /// may be overwritten.
    fn check_free(&self, claim: &FileClaim, overwrite: Overwrite) -> Result<(), Error> {
        if claim.is_empty() || overwrite.allows(self.part) {
            return Ok(());
        }
        if self.part == Part::Flash {
            self.check_no_part(claim, |_| false)?;
            return match self.flash_found(claim, FlashNeed::Optional)? {
                FlashFound::Foreign(found) => Err(self.not_blank(found)),
                _ => Ok(()),
            };
        }
        if self.part == Part::Log && self.is_begun_log(claim)? {
            return Ok(());
        }
        match claim.contents().map_err(|error| self.failed(error))? {
            Contents::Blank => Ok(()),
            Contents::Signature(contents::DATABASE) if self.part == Part::Home => {
                Err(Error::Exists { part: self.part, path: self.error_path() })
            }
            Contents::Signature(contents::LOG) if self.part == Part::Log => {
                Err(Error::Exists { part: self.part, path: self.error_path() })
            }
            found => Err(self.not_blank(found)),
        }
    }

    /// Whether it is what a creation that was cut short has left of a log: copies of its header,
    /// either of which may have come alone, and nothing behind them.
    fn is_begun_log(&self, claim: &FileClaim) -> Result<bool, Error> {
        let failed = |source| self.device_failed(source);
        if claim.len() < header::HEADERS_BYTES {
            return Ok(false);
        }
        let rest = Bytes { claim, range: header::HEADERS_BYTES..u64::MAX };
        let mut headers = Aligned::zeroed(header::HEADERS_BYTES as usize);
        claim.read_at(0, &mut headers).map_err(failed)?;
        let is_begun = headers.chunks(BLOCK).all(header::is_header_or_blank);
        Ok(is_begun && Contents::of(&rest).map_err(failed)? == Contents::Blank)
    }

    /// Makes it blank, and a file `bytes` long. A block device has its own size.
    fn prepare(
        &self,
        claim: &FileClaim,
        bytes: u64,
        room: Room,
        step: &dyn Fn(),
    ) -> Result<(), Error> {
        if !claim.is_empty() && !self.is_blank_device(claim)? {
            claim.clear().map_err(|error| self.failed(error))?;
            step();
        }
        if !claim.is_block_device() || self.part == Part::Flash {
            claim.grow(bytes, room).map_err(|error| self.failed(error))?;
            step();
        }
        Ok(())
    }

    fn is_blank_device(&self, claim: &FileClaim) -> Result<bool, Error> {
        let contents = || claim.contents().map_err(|error| self.failed(error));
        Ok(claim.is_block_device() && contents()? == Contents::Blank)
    }

    fn device(
        &self,
        claim: FileClaim,
        size: Option<u64>,
        direct_io: DirectIo,
    ) -> Result<Arc<dyn Device>, Error> {
        let direct = direct_io == DirectIo::Required || claim.has_direct_io();
        let options = FileOptions { size, direct, ..FileOptions::default() };
        let opened: Result<FileDevice, _> = claim.into_device(&options);
        opened.map(|device| Arc::new(device) as _).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: OpenError) -> Error {
        let (part, path, kind) = (self.part, self.error_path(), error.kind());
        match error.why {
            Refusal::Missing => Error::Missing { part, path },
            Refusal::InUse { holder } => {
                Error::AlreadyOpen { part, path, holder: Box::new(holder) }
            }
            Refusal::Kind { found } => Error::NotAFile { part, path, found },
            Refusal::NoRoom { wanted, source } => {
                Error::NoRoom { part, path, needed: wanted, source: Arc::new(source) }
            }
            Refusal::TooShort { wanted, .. } => {
                let source = io::Error::new(kind, error.why.to_string());
                Error::NoRoom { part, path, needed: wanted, source: Arc::new(source) }
            }
            // As the kernel said it, with its number.
            Refusal::System { source, .. } => self.device_failed(source),
            why => self.device_failed(io::Error::new(kind, why.to_string())),
        }
    }

    fn device_failed(&self, source: io::Error) -> Error {
        let (part, path, action) = (self.part, self.error_path(), Action::Open);
        Error::Device { part, path, action, page: None, source: Arc::new(source) }
    }

    fn not_blank(&self, found: Contents) -> Error {
        Error::NotBlank { part: self.part, path: self.error_path(), found }
    }
}

/// Bytes of a claim.
struct Bytes<'a> {
    claim: &'a FileClaim,
    /// May end behind the claim.
    range: Range<u64>,
}

impl ReadAt for Bytes<'_> {
    fn len(&self) -> u64 {
        self.claim.len().min(self.range.end).saturating_sub(self.range.start)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.claim.read_at(self.range.start + offset, into)
    }
}

/// A file that is only looked at.
struct Plain(File);

impl ReadAt for Plain {
    fn len(&self) -> u64 {
        use std::io::{Seek, SeekFrom};
        (&self.0).seek(SeekFrom::End(0)).unwrap_or(0)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.0, into, offset)
    }
}

/// `path` without symbolic links, as far as it is there. A link to nothing leads to where a file is
/// to be made.
fn resolve(path: &Path) -> PathBuf {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        if let Ok(whole) = fs::canonicalize(&path) {
            return whole;
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = fs::canonicalize(folder.unwrap_or(Path::new(".")));
        let (Ok(folder), Some(name)) = (folder, path.file_name()) else { break };
        let named = folder.join(name);
        match fs::read_link(&named) {
            Ok(target) => path = folder.join(target),
            Err(_) => return named,
        }
    }
    path
}

fn whole(bytes: u64) -> u64 {
    bytes / PAGE * PAGE
}

fn is_block_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}
