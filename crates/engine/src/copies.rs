//! Headers that are kept twice: a copy that is bad, while the other one stands in for it. So does
//! the header of a flash tier for its label.

use std::fmt;
use std::io::ErrorKind;

use terrace_device::{Device, read};

use crate::{Action, Error, Part};

/// A copy of the superblock or of the log's header that was bad when the database was opened. The
/// other copy is whole, so nothing is lost, and the next opening for writing writes this one anew.
/// Or the label of the flash, which is known by its header, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BadCopy {
    /// The home for a superblock, the log for its header, the flash for its label.
    pub part: Part,
    /// The first byte of the copy.
    pub offset: u64,
    /// What is wrong with it.
    pub flaw: CopyFlaw,
}

/// What is wrong with a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CopyFlaw {
    /// It is all zeroes.
    Blank,
    /// Its bytes are not what was written.
    Damaged,
    /// The device could not read it.
    Unreadable,
}

impl fmt::Display for BadCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.part {
            Part::Home => "copy of the superblock",
            Part::Log => "copy of the header",
            Part::Flash => "label",
        };
        let flaw = match self.flaw {
            CopyFlaw::Blank => "is blank",
            CopyFlaw::Damaged => "is damaged",
            CopyFlaw::Unreadable => "cannot be read",
        };
        write!(f, "the {what} at byte {} of the {} {flaw}", self.offset, self.part)
    }
}

/// Reads one of two copies, at a byte of a part, into `bytes`. The inner error is one of this
/// place, so that the other copy is worth a look.
///
/// # Errors
///
/// `Device` if the device does not answer, or is gone.
pub(crate) fn read_copy(
    device: &dyn Device,
    (part, offset): (Part, u64),
    bytes: &mut [u8],
) -> Result<Result<(), Error>, Error> {
    let Err(source) = read(device, offset, bytes) else { return Ok(Ok(())) };
    let is_gone = matches!(source.kind(), ErrorKind::TimedOut | ErrorKind::NotConnected);
    let error = Error::device(part, Action::Read)(source);
    if is_gone { Err(error) } else { Ok(Err(error)) }
}
