//! Files without a name, as devices.

use std::io;
use std::path::Path;

use super::{FileClaim, Kind};
use crate::file::{Access, FileDevice, FileOptions};

impl FileDevice {
    /// Makes a sparse file of `len` bytes in `folder`, which has no name: it vanishes with the
    /// process, however that ends. By direct I/O, if the file system has it.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn nameless(folder: &Path, len: u64) -> io::Result<FileDevice> {
        let file = crate::nameless::file(folder)?;
        file.set_len(len)?;
        // It has no name to be made durable, as if it were only read.
        let access = Access::ReadOnly;
        let path = folder.join("(old row versions)");
        let claim = FileClaim { made: None, path, file, kind: Kind::File, access };
        let direct = claim.has_direct_io();
        Ok(claim.into_device(&FileOptions { direct, ..FileOptions::default() })?)
    }
}
