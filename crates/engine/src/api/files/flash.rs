//! The flash tier in the file system: whose it is, and what may be done with it.
//!
//! ```text
//!   label (last page)        \                   a cache: as it is, or cold
//!   header (first sector)     > FlashFound -->
//!   any sealed page          /                   a part: as it is, or refused
//! ```

use std::io;
use std::sync::Arc;

use terrace_device::contents::{self, ReadAt};
use terrace_device::{Access, Contents, Device, FileClaim, Room, SECTOR_SIZE};
use terrace_page::{PAGE_SIZE, PageBuf, page_id, verify};
use terrace_pool::{ColdStart, FlashNeed, flash_part_of};

use super::{Files, PAGE, Place};
use crate::{Error, Part};

pub(super) type OpenedFlash = (Option<Arc<dyn Device>>, Option<ColdStart>);

/// How the last page of a flash file or device begins.
const FLASH_LABEL: [u8; 16] = *b"terrace flash 1\n";
/// Pages of a flash without label and header that are looked at: any of ours tells whose it is.
const PAGES_LOOKED_AT: u64 = 256;

/// What stands where a flash tier should.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FlashFound {
    Blank,
    Labelled,
    /// Ours, by its header or its pages, without the label at its end.
    Unlabelled,
    Foreign(Contents),
}

impl Files {
    /// The flash of `database`, which can do without: made if it is not there, begun anew if it is
    /// not whole (P3).
    pub(super) fn open_cache(
        &self,
        place: &Place,
        size: u64,
        database: u128,
    ) -> Result<(Arc<dyn Device>, Option<ColdStart>), Error> {
        let claim = place.claim(Access::ReadWrite, true)?;
        if !self.overwrite.allows(Part::Flash) {
            place.check_no_part(&claim, |other| other == database)?;
        }
        let found = place.flash_found(&claim)?;
        let is_short = claim.len() < size && !claim.is_block_device();
        let doubt = match found {
            FlashFound::Blank => None,
            FlashFound::Labelled if is_short => Some(ColdStart::OtherShape),
            FlashFound::Labelled => None,
            FlashFound::Unlabelled if is_short => Some(ColdStart::CutShort),
            FlashFound::Unlabelled => Some(ColdStart::Label),
            FlashFound::Foreign(_) if self.overwrite.allows(Part::Flash) => Some(ColdStart::Blank),
            FlashFound::Foreign(found) => return Err(place.not_blank(found)),
        };
        if is_short || matches!(found, FlashFound::Foreign(_)) {
            place.prepare(&claim, size, Room::Reserved, &|| ())?;
        }
        if found != FlashFound::Labelled || is_short {
            place.label(&claim)?;
        }
        Ok((place.device(claim, Some(size), self.direct_io)?, doubt))
    }

    /// The flash of a database that needs it, or that is only read: nothing of it changes.
    pub(super) fn open_as_it_is(
        &self,
        place: &Place,
        size: u64,
        access: Access,
        need: FlashNeed,
    ) -> Result<OpenedFlash, Error> {
        let refuse = |why| match need {
            FlashNeed::Needed => Err(Error::FlashNeeded { path: place.error_path(), why }),
            FlashNeed::Optional => Ok((None, Some(why))),
        };
        let claim = match place.claim(access, false) {
            Err(Error::Missing { .. }) => return refuse(ColdStart::NoDevice),
            claim => claim?,
        };
        match place.flash_found(&claim)? {
            FlashFound::Foreign(found) => return Err(place.not_blank(found)),
            FlashFound::Blank => return refuse(ColdStart::Blank),
            FlashFound::Labelled if claim.len() < size => return refuse(ColdStart::OtherShape),
            FlashFound::Unlabelled if claim.len() < size => return refuse(ColdStart::CutShort),
            // What is left is whole: header and table tell whose it is.
            FlashFound::Labelled | FlashFound::Unlabelled => (),
        }
        Ok((Some(place.device(claim, Some(size), self.direct_io)?), None))
    }
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

    pub(super) fn flash_found(&self, claim: &FileClaim) -> Result<FlashFound, Error> {
        let failed = |source| self.device_failed(source);
        if claim.is_empty() {
            return Ok(FlashFound::Blank);
        }
        if is_labelled(claim).map_err(failed)? {
            return Ok(FlashFound::Labelled);
        }
        Ok(match claim.contents().map_err(|error| self.failed(error))? {
            Contents::Blank => FlashFound::Blank,
            Contents::Signature(contents::FLASH) => FlashFound::Unlabelled,
            Contents::Data { .. } if has_page(claim).map_err(failed)? => FlashFound::Unlabelled,
            found => FlashFound::Foreign(found),
        })
    }

    /// Labels the flash, whose last page is no slot.
    pub(super) fn label(&self, claim: &FileClaim) -> Result<(), Error> {
        let last = claim.len().saturating_sub(PAGE);
        claim.write_at(last, &FLASH_LABEL).map_err(|error| self.failed(error))
    }
}

fn is_labelled(claim: &FileClaim) -> io::Result<bool> {
    let mut head = [0; FLASH_LABEL.len()];
    let Some(last) = claim.len().checked_sub(PAGE) else { return Ok(false) };
    claim.read_at(last, &mut head)?;
    Ok(head == FLASH_LABEL)
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
