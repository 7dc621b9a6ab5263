//! The ledger of a tortured database, outside of it: one file for each client, to which the client
//! appends a line before it begins a transaction, and one after its durable commit returned.
//!
//! A line is in the file once `write` has returned, whatever becomes of the process: the machine
//! stays on. A line cut short is none.

use super::model::CLIENTS;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What a client wrote down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The last transaction that it began.
    pub begun: u64,
    /// The last that was acknowledged as durable.
    pub durable: u64,
}

/// The end of a client's ledger, to be written.
pub struct Ledger {
    file: File,
}

fn path(folder: &Path, client: u64) -> PathBuf {
    folder.join(format!("ledger-{client}"))
}

impl Ledger {
    /// The ledger of `client`.
    ///
    /// # Errors
    ///
    /// Those of the file.
    pub fn open(folder: &Path, client: u64) -> io::Result<Ledger> {
        let file = OpenOptions::new().append(true).create(true).open(path(folder, client))?;
        Ok(Ledger { file })
    }

    /// Notes that `number` is about to begin.
    ///
    /// # Errors
    ///
    /// Those of the file.
    pub fn begins(&mut self, number: u64) -> io::Result<()> {
        self.file.write_all(format!("b {number}\n").as_bytes())
    }

    /// Notes that `number` was acknowledged as durable.
    ///
    /// # Errors
    ///
    /// Those of the file.
    pub fn is_durable(&mut self, number: u64) -> io::Result<()> {
        self.file.write_all(format!("d {number}\n").as_bytes())
    }
}

/// What all clients wrote down.
///
/// # Errors
///
/// Those of the files.
pub fn known(folder: &Path) -> io::Result<[Known; CLIENTS as usize]> {
    let mut all = [Known::default(); CLIENTS as usize];
    for (client, known) in (0..).zip(&mut all) {
        let text = match fs::read_to_string(path(folder, client)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            text => text?,
        };
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            match line.trim_end().split_once(' ').map(|(what, n)| (what, n.parse())) {
                Some(("b", Ok(number))) => known.begun = number,
                Some(("d", Ok(number))) => known.durable = number,
                _ => return Err(io::Error::other("a line of the ledger makes no sense")),
            }
        }
    }
    Ok(all)
}
