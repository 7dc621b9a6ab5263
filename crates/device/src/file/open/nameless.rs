//! Files without a name, as devices.

use std::io;
use std::path::Path;

use super::{FileClaim, Kind};
use crate::file::{Access, FileDevice, FileOptions};

/// Makes a sparse file of `len` bytes without a name in `folder`, as a device.
pub(in crate::file) fn nameless(folder: &Path, len: u64) -> io::Result<FileDevice> {
    let file = crate::nameless::file(folder)?;
    file.set_len(len)?;
    // It has no name to be made durable, as if it were only read.
    let access = Access::ReadOnly;
    let path = folder.join("(old row versions)");
    let claim = FileClaim { made: None, path, file, kind: Kind::File, access };
    let direct = claim.has_direct_io();
    Ok(claim.into_device(&FileOptions { direct, ..FileOptions::default() })?)
}
