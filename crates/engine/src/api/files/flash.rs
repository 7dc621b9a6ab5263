//! The flash tier in the file system: which database it belongs to, and what may be done with it.
//!
//! ```text
//!   labels (page 1, last)    \                   a cache: as it is, or cold
//!   header (first sector)     > FlashFound -->
//!   any sealed page          /                   a part: as it is, or refused
//! ```

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;

use terrace_device::contents::{self, ReadAt};
use terrace_device::{Access, Contents, Device, FileClaim, Holder, Room, SECTOR_SIZE, has_failed};
use terrace_page::{PAGE_SIZE, PageBuf, page_id, verify};
use terrace_pool::{ColdStart, FlashNeed, flash_part_of};
use terrace_rt::Nanos;

use super::{Bytes, PAGE, Place, Was};
use crate::api::DirectIo;
use crate::{BadCopy, CopyFlaw, Error};

/// A flash as it was found.
#[derive(Default)]
pub(super) struct OpenedFlash {
    pub(super) device: Option<Arc<dyn Device>>,
    /// What the file was before, if it was made, or made longer, or has got its label.
    pub(super) was: Option<(PathBuf, Was)>,
    pub(super) doubt: Option<ColdStart>,
    /// Whether it holds foreign data that may be destroyed.
    pub(super) is_foreign: bool,
    /// The label that it has to get.
    pub(super) label: Option<Label>,
    /// What is wrong with the label of a flash that is known by its header or its pages.
    pub(super) bad_label: Option<BadCopy>,
}

/// A label that is missing, or is not what was written.
#[derive(Clone)]
pub(crate) struct Label {
    path: PathBuf,
    /// Device and inode of the file.
    identity: (u64, u64),
    offsets: [u64; 2],
}

impl Label {
    /// Writes it, once the database is open, and so has the flash locked. If that fails, the
    /// database does without: the tier is known by its header and its pages. Waits up to `limit`.
    pub(crate) fn put(self, limit: Nanos) {
        let _written = terrace_rt::within(limit, move || self.write());
    }

    fn write(&self) -> io::Result<()> {
        let file = File::options().write(true).open(&self.path)?;
        if identity(&file.metadata()?) != self.identity {
            return Err(io::Error::other("another file has its path"));
        }
        self.offsets.iter().try_for_each(|&at| file.write_all_at(&FLASH_LABEL, at))?;
        file.sync_all()
    }
}

fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// How the last page of a flash file or device begins. Page 1, of which the tier uses nothing,
/// begins so, too: one that is cut short before the tier has written anything is known by that.
/// Only the last one tells that the flash is whole.
pub(super) const FLASH_LABEL: [u8; 16] = *b"terrace flash 1\n";
/// Pages of a flash without label and header that are looked at: any page of ours tells which
/// database the flash belongs to.
const PAGES_LOOKED_AT: u64 = 256;

/// Bytes at the beginning of a flash in which the tier has its header and nothing else.
const HEAD_BYTES: u64 = 64 << 10;

/// What stands where a flash tier should.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FlashFound {
    Blank,
    Labelled,
    /// Ours, by its header or its pages, without the label at its end.
    Unlabelled,
    Foreign(Contents),
}

/// How the flash of a database that exists is opened.
pub(super) struct FlashOpening {
    pub(super) place: Place,
    pub(super) size: u64,
    pub(super) access: Access,
    pub(super) need: FlashNeed,
    /// The database that it is of.
    pub(super) database: u128,
    pub(super) may_overwrite: bool,
    pub(super) direct_io: DirectIo,
}

impl FlashOpening {
    /// Opens it, and waits for the file system no longer than `limit`. What a database can do
    /// without is left out if it is silent or has failed (files.P3).
    ///
    /// # Errors
    ///
    /// `FlashNeeded`, `AlreadyOpen`, `NotBlank`, `NotAFile`, `NoRoom`, `Device`.
    pub(super) fn open_within(self, limit: Nanos) -> Result<OpenedFlash, Error> {
        let (need, path) = (self.need, self.place.error_path());
        let why = match terrace_rt::within(limit, move || self.open()) {
            None => ColdStart::Device(ErrorKind::TimedOut),
            Some(Err(error)) if need == FlashNeed::Optional => failure_of(&error).ok_or(error)?,
            Some(opened) => return opened,
        };
        match need {
            FlashNeed::Needed => Err(Error::FlashNeeded { path, why }),
            FlashNeed::Optional => Ok(OpenedFlash::without(why)),
        }
    }

    fn open(&self) -> Result<OpenedFlash, Error> {
        match (self.access, self.need) {
            (Access::ReadWrite, FlashNeed::Optional) => self.open_cache(),
            _ => self.open_as_it_is(),
        }
    }

    /// One that the database can do without: made if it is not there, to be begun anew if it is not
    /// whole (files.P3). It gets as long as it must, and nothing that it holds changes (files.P4).
    fn open_cache(&self) -> Result<OpenedFlash, Error> {
        let (place, size) = (&self.place, self.size);
        let claim = place.claim(Access::ReadWrite, true)?;
        if !self.may_overwrite {
            place.check_no_part(&claim, |other| other == self.database)?;
        }
        let found = place.flash_found(&claim, self.need)?;
        let is_short = claim.len() < size;
        if is_short && claim.is_block_device() && found == FlashFound::Unlabelled {
            // It was longer: its end, where the label was, is gone.
            return Ok(OpenedFlash::without(ColdStart::CutShort));
        }
        let is_short = is_short && !claim.is_block_device();
        let doubt = match found {
            FlashFound::Blank => None,
            FlashFound::Labelled if is_short => Some(ColdStart::OtherShape),
            FlashFound::Labelled => None,
            FlashFound::Unlabelled if is_short => Some(ColdStart::CutShort),
            FlashFound::Unlabelled => Some(ColdStart::Label),
            FlashFound::Foreign(_) if self.may_overwrite => Some(ColdStart::Blank),
            FlashFound::Foreign(found) => return Err(place.not_blank(found)),
        };
        place.check_direct(&claim, self.direct_io)?;
        let (is_new, bytes) = (claim.is_new(), claim.len());
        if is_short {
            claim.grow(size, Room::Reserved).map_err(|error| place.failed(error))?;
        }
        let was = match found {
            _ if is_new => Some(Was::Missing),
            FlashFound::Blank => Some(Was::Blank { bytes }),
            _ if is_short => Some(Was::Shorter { bytes }),
            _ => None,
        };
        // Where nothing was it comes at once, and goes again if the opening is refused: a process
        // that is killed soon leaves a flash that is known for ours.
        let is_foreign = matches!(found, FlashFound::Foreign(_));
        let label = match (found, was) {
            (FlashFound::Labelled, _) if !is_short => None,
            (_, Some(Was::Missing | Was::Blank { .. })) => place.label(&claim).map(|()| None)?,
            // What it holds otherwise stays as it is.
            (_, Some(Was::Shorter { bytes })) if bytes <= label_at(&claim) && !is_foreign => {
                place.label_end(&claim).map(|()| None)?
            }
            _ => Some(place.label_of(&claim)?),
        };
        let was = was.map(|was| (place.path.clone(), was));
        let is_file = !claim.is_block_device();
        let device = match place.device(claim, Some(size), self.direct_io) {
            // Another process has cut it since.
            Err(Error::NoRoom { .. }) if is_file => {
                return Ok(OpenedFlash::without(ColdStart::CutShort));
            }
            device => Some(device?),
        };
        Ok(OpenedFlash { device, was, doubt, is_foreign, label, bad_label: None })
    }

    /// One that the database needs, or that is only read: nothing of it changes.
    fn open_as_it_is(&self) -> Result<OpenedFlash, Error> {
        let (place, size) = (&self.place, self.size);
        let refuse = |why| match self.need {
            FlashNeed::Needed => Err(Error::FlashNeeded { path: place.error_path(), why }),
            FlashNeed::Optional => Ok(OpenedFlash::without(why)),
        };
        let claim = match place.claim(self.access, false) {
            Err(Error::Missing { .. }) => return refuse(ColdStart::NoDevice),
            claim => claim?,
        };
        let found = place.flash_found(&claim, self.need)?;
        match found {
            FlashFound::Foreign(found) => return Err(place.not_blank(found)),
            FlashFound::Blank => return refuse(ColdStart::Blank),
            FlashFound::Labelled if claim.len() < size => return refuse(ColdStart::OtherShape),
            FlashFound::Unlabelled if claim.len() < size => return refuse(ColdStart::CutShort),
            // What is left is whole: header and table tell which database it belongs to.
            FlashFound::Labelled | FlashFound::Unlabelled => (),
        }
        let mut opened = OpenedFlash::default();
        if found != FlashFound::Labelled {
            opened.label = Some(place.label_of(&claim)?);
            opened.bad_label = Some(place.bad_label(&claim)?);
        }
        opened.device = Some(place.device(claim, Some(size), self.direct_io)?);
        Ok(opened)
    }
}

impl OpenedFlash {
    /// None, because of `why`.
    fn without(why: ColdStart) -> OpenedFlash {
        OpenedFlash { doubt: Some(why), ..OpenedFlash::default() }
    }
}

/// What has become of a flash device, if `error` tells that it is silent, has failed or has no
/// room, and not that it was asked for what cannot be.
fn failure_of(error: &Error) -> Option<ColdStart> {
    match error {
        // It was given up by an earlier opening, and does not answer yet.
        Error::AlreadyOpen { holder, .. } if **holder == Holder::Unanswered => {
            Some(ColdStart::Device(ErrorKind::TimedOut))
        }
        Error::NoRoom { source, .. } | Error::Device { source, .. } if is_full(source) => {
            Some(ColdStart::NoRoom)
        }
        Error::Device { source, .. } if has_failed(source) => {
            Some(ColdStart::Device(source.kind()))
        }
        // It was longer a moment ago.
        Error::Device { source, .. } if source.kind() == ErrorKind::UnexpectedEof => {
            Some(ColdStart::CutShort)
        }
        _ => None,
    }
}

/// Whether a file system has no room. A block device that is too short has no such number.
fn is_full(error: &io::Error) -> bool {
    let full = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::FileTooLarge];
    full.contains(&error.kind())
}

impl Place {
    /// Refuses a flash that is part of a database other than those that are `ours`: without it that
    /// one does not open.
    pub(super) fn check_no_part(
        &self,
        claim: &FileClaim,
        ours: impl FnOnce(u128) -> bool,
    ) -> Result<(), Error> {
        let mut sector = [0; SECTOR_SIZE];
        if claim.len() < SECTOR_SIZE as u64 {
            return Ok(());
        }
        claim.read_at(0, &mut sector).map_err(|source| self.device_failed(source))?;
        match flash_part_of(&sector) {
            Some(database) if !ours(database) => {
                Err(self.not_blank(Contents::Signature(contents::FLASH_PART)))
            }
            _ => Ok(()),
        }
    }

    /// What the claim is, of a flash that is needed or not: without one that is needed its database
    /// does not open, whatever else may be on it.
    pub(super) fn flash_found(
        &self,
        claim: &FileClaim,
        need: FlashNeed,
    ) -> Result<FlashFound, Error> {
        let failed = |source| self.device_failed(source);
        if claim.is_empty() {
            return Ok(FlashFound::Blank);
        }
        if need == FlashNeed::Optional {
            // Another system may have begun to use it, and have left our header and labels.
            let head = Bytes { claim, range: 0..HEAD_BYTES };
            let other = Contents::signature_but(&head, contents::FLASH).map_err(failed)?;
            if let Some(other) = other {
                return Ok(FlashFound::Foreign(Contents::Signature(other)));
            }
        }
        if is_labelled(claim).map_err(failed)? {
            return Ok(FlashFound::Labelled);
        }
        if is_begun(claim).map_err(failed)? {
            return Ok(FlashFound::Unlabelled);
        }
        Ok(match claim.contents().map_err(|error| self.failed(error))? {
            Contents::Blank => FlashFound::Blank,
            Contents::Signature(contents::FLASH) => FlashFound::Unlabelled,
            Contents::Data { .. } if has_page(claim).map_err(failed)? => FlashFound::Unlabelled,
            found => FlashFound::Foreign(found),
        })
    }

    /// What is wrong with the label of a flash that is ours.
    fn bad_label(&self, claim: &FileClaim) -> Result<BadCopy, Error> {
        let offset = label_at(claim);
        let mut found = [0; FLASH_LABEL.len()];
        claim.read_at(offset, &mut found).map_err(|source| self.device_failed(source))?;
        let is_blank = found.iter().all(|&byte| byte == 0);
        let flaw = if is_blank { CopyFlaw::Blank } else { CopyFlaw::Damaged };
        Ok(BadCopy { part: self.part, offset, flaw })
    }

    /// The label that a flash gets once it is certain that it is used.
    fn label_of(&self, claim: &FileClaim) -> Result<Label, Error> {
        let identity = claim.identity().map_err(|error| self.failed(error))?;
        Ok(Label { path: self.path.clone(), identity, offsets: labels_at(claim.len()) })
    }

    /// Labels a blank flash, whose last page is no slot.
    pub(super) fn label(&self, claim: &FileClaim) -> Result<(), Error> {
        let [first, _] = labels_at(claim.len());
        claim.write_at(first, &FLASH_LABEL).map_err(|error| self.failed(error))?;
        self.label_end(claim)
    }

    fn label_end(&self, claim: &FileClaim) -> Result<(), Error> {
        claim.write_at(label_at(claim), &FLASH_LABEL).map_err(|error| self.failed(error))
    }
}

/// The last page begins with the label.
fn label_at(claim: &FileClaim) -> u64 {
    let [_, last] = labels_at(claim.len());
    last
}

/// Where the labels of a flash of `len` bytes are: in page 1, if it has more than two, and in the
/// last page.
pub(super) fn labels_at(len: u64) -> [u64; 2] {
    let last = len.saturating_sub(PAGE);
    [PAGE.min(last), last]
}

fn is_labelled(claim: &FileClaim) -> io::Result<bool> {
    let mut head = [0; FLASH_LABEL.len()];
    let Some(last) = claim.len().checked_sub(PAGE) else { return Ok(false) };
    claim.read_at(last, &mut head)?;
    Ok(head == FLASH_LABEL)
}

/// Whether it has the label of page 1 and no header yet. Where there is something else than a
/// header, another system may have left that label.
fn is_begun(claim: &FileClaim) -> io::Result<bool> {
    let mut start = vec![0; PAGE as usize + FLASH_LABEL.len()];
    if claim.len() < start.len() as u64 {
        return Ok(false);
    }
    claim.read_at(0, &mut start)?;
    let (before, label) = start.split_at(PAGE as usize);
    Ok(label == FLASH_LABEL && before[..SECTOR_SIZE].iter().all(|&byte| byte == 0))
}

/// Whether a sealed page is among those that are looked at, evenly spread.
fn has_page(claim: &FileClaim) -> io::Result<bool> {
    let pages = claim.len() / PAGE;
    let looked_at = pages.min(PAGES_LOOKED_AT);
    let mut page: Box<PageBuf> = Box::new([0; PAGE_SIZE]);
    for nth in 0..looked_at {
        claim.read_at(nth * (pages / looked_at) * PAGE, &mut page[..])?;
        let id = page_id(&page);
        if page.iter().any(|&byte| byte != 0) && verify(&page, id).is_ok() {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use crate::api::files::Made;
    use crate::{Action, Part};

    const SIZE: u64 = 64 * PAGE;

    fn opening(path: PathBuf) -> FlashOpening {
        FlashOpening {
            place: Place { part: Part::Flash, path },
            size: SIZE,
            access: Access::ReadWrite,
            need: FlashNeed::Optional,
            database: 1,
            may_overwrite: false,
            direct_io: DirectIo::Preferred,
        }
    }

    /// The bug: a process that was killed before it had labelled a new flash left one that the next
    /// opening took for foreign data.
    #[test]
    fn a_flash_on_which_nothing_was_is_labelled_at_once_and_blank_again_if_it_is_refused() {
        let folder = tempfile::tempdir().expect("a place for files");
        for before in [None, Some(0), Some(2 * PAGE), Some(SIZE)] {
            let path = folder.path().join(format!("flash-{before:?}"));
            if let Some(bytes) = before {
                File::create(&path).and_then(|file| file.set_len(bytes)).expect("room");
            }
            let opened = opening(path.clone()).open_cache().expect("a place of its own");
            let held = fs::read(&path).expect("readable");
            for at in [PAGE, SIZE - PAGE] {
                assert_eq!(held[at as usize..][..FLASH_LABEL.len()], FLASH_LABEL);
            }
            assert!(opened.label.is_none() && opened.doubt.is_none());
            let (path_was, was) = opened.was.expect("it was changed");
            Made(vec![(path_was, was, opened.device.expect("it is open"))]).take_away();
            let after = fs::read(&path).ok();
            assert_eq!(after, before.map(|bytes| vec![0; bytes as usize]));
        }
    }

    /// The bug: a flash that had nothing but its label, was cut short, and had bits flipped was
    /// taken for somebody else's.
    #[test]
    fn a_flash_is_known_by_its_first_label_too_unless_another_system_uses_it() {
        let folder = tempfile::tempdir().expect("a place for files");
        let path = folder.path().join("flash");
        drop(opening(path.clone()).open_cache().expect("a place of its own"));
        let new = fs::read(&path).expect("readable");
        let found_after = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = new.clone();
            change(&mut bytes);
            fs::write(&path, bytes).expect("room");
            let place = Place { part: Part::Flash, path: path.clone() };
            let claim = place.claim(Access::ReadWrite, false).expect("it is free");
            place.flash_found(&claim, FlashNeed::Optional).expect("readable")
        };
        let cut = |bytes: &mut Vec<u8>| {
            bytes.truncate(bytes.len() - 3 * PAGE as usize);
            bytes[20 * PAGE as usize + 7971] = 1;
        };
        let ext4 = |bytes: &mut Vec<u8>| bytes[1080..1082].copy_from_slice(b"\x53\xef");
        assert!(found_after(&|_| ()) == FlashFound::Labelled);
        assert!(found_after(&cut) == FlashFound::Unlabelled);
        // `mkfs` leaves the label at the end, or that in page 1, or both.
        assert!(matches!(found_after(&ext4), FlashFound::Foreign(Contents::Signature(_))));
        let header = |bytes: &mut Vec<u8>| bytes[8..16].copy_from_slice(b"TERRFLSH");
        let raid = |bytes: &mut Vec<u8>| bytes[4096..4100].copy_from_slice(b"\xfc\x4e\x2b\xa9");
        let both = |one: &dyn Fn(&mut Vec<u8>), other: &dyn Fn(&mut Vec<u8>)| {
            found_after(&|bytes| {
                one(bytes);
                other(bytes);
            })
        };
        assert!(both(&header, &cut) == FlashFound::Unlabelled);
        for (ours, others) in
            [(&cut as &dyn Fn(&mut Vec<u8>), &ext4 as &dyn Fn(&mut Vec<u8>)), (&header, &raid)]
        {
            assert!(matches!(both(ours, others), FlashFound::Foreign(Contents::Signature(_))));
        }
        // What was written over the header's place is somebody's.
        let data = |bytes: &mut Vec<u8>| bytes[100] = 1;
        assert!(matches!(both(&cut, &data), FlashFound::Foreign(Contents::Data { .. })));
    }

    /// An opening was refused since its cache did not answer an earlier one, or since its cache
    /// could not be read.
    #[test]
    fn what_tells_of_a_flash_that_fails_is_told_from_what_is_asked_of_it_in_vain() {
        let in_use =
            |holder| Error::AlreadyOpen { part: Part::Flash, path: None, holder: Box::new(holder) };
        let device = |code| {
            let source = io::Error::from_raw_os_error(code);
            Error::device(Part::Flash, Action::Open)(source)
        };
        // ENOSPC, EDQUOT and EFBIG.
        for code in [28, 122, 27] {
            let source = Arc::new(io::Error::from_raw_os_error(code));
            let (part, path, needed) = (Part::Flash, None, 1);
            let no_room = Error::NoRoom { part, path, needed, source };
            assert_eq!(failure_of(&no_room), Some(ColdStart::NoRoom), "{code}");
            assert_eq!(failure_of(&device(code)), Some(ColdStart::NoRoom), "{code}");
        }
        // Another process cut it while it was looked at.
        let source = io::Error::from(ErrorKind::UnexpectedEof);
        let cut = Error::device(Part::Flash, Action::Open)(source);
        assert_eq!(failure_of(&cut), Some(ColdStart::CutShort));
        let silent = Some(ColdStart::Device(ErrorKind::TimedOut));
        assert_eq!(failure_of(&in_use(Holder::Unanswered)), silent);
        assert_eq!(failure_of(&in_use(Holder::Process { pid: 1 })), None);
        // EIO, ENXIO and ENODEV; EACCES, EMFILE and ENOENT.
        for code in [5, 6, 19] {
            assert!(matches!(failure_of(&device(code)), Some(ColdStart::Device(_))), "{code}");
        }
        for code in [13, 24, 2] {
            assert_eq!(failure_of(&device(code)), None, "{code}");
        }
    }
}
