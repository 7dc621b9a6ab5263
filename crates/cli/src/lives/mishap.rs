//! What befalls the files of a database between two lives.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use terrace_rt::Prng;

pub const SECTOR: u64 = 512;
pub const PAGE: u64 = 8192;

/// What becomes of the flash, which is a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// Nothing.
    Spared,
    /// The file is gone.
    Deleted,
    /// The file ends early.
    Cut,
    /// It is that of an earlier life.
    Older,
    /// It is that of another database.
    Foreign,
    /// A few bits are others.
    Flipped,
    /// A range is zero.
    Zeroed,
}

impl Mishap {
    /// All of them.
    pub const ALL: [Mishap; 7] = [
        Mishap::Spared,
        Mishap::Deleted,
        Mishap::Cut,
        Mishap::Older,
        Mishap::Foreign,
        Mishap::Flipped,
        Mishap::Zeroed,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Mishap::Spared => "flash spared",
            Mishap::Deleted => "flash deleted",
            Mishap::Cut => "flash cut short",
            Mishap::Older => "flash of an earlier life",
            Mishap::Foreign => "flash of another database",
            Mishap::Flipped => "bits of flash flipped",
            Mishap::Zeroed => "flash zeroed in part",
        }
    }

    /// Lets it befall `flash`; `older` and `foreign` are other flash files, if they exist.
    ///
    /// # Errors
    ///
    /// Those of the files.
    pub fn befall(
        self,
        flash: &Path,
        older: &Path,
        foreign: &Path,
        prng: &mut Prng,
    ) -> io::Result<()> {
        let Ok(len) = fs::metadata(flash).map(|it| it.len()) else { return Ok(()) };
        match self {
            Mishap::Spared => Ok(()),
            Mishap::Deleted => fs::remove_file(flash),
            Mishap::Cut => {
                OpenOptions::new().write(true).open(flash)?.set_len(prng.below(len.max(1)))
            }
            Mishap::Older if older.exists() => fs::copy(older, flash).map(drop),
            Mishap::Foreign if foreign.exists() => fs::copy(foreign, flash).map(drop),
            Mishap::Older | Mishap::Foreign => Ok(()),
            Mishap::Flipped => {
                (0..=prng.below(20)).try_for_each(|_| Damage::Bit(prng.below(len)).to(flash))
            }
            Mishap::Zeroed => {
                let from = prng.below(len) / SECTOR * SECTOR;
                Damage::Zeroes(from, 1 + prng.below(len - from)).to(flash)
            }
        }
    }
}

/// Damage to one place of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// One bit of the byte at this offset is the other.
    Bit(u64),
    /// From an offset on, a number of bytes are zero.
    Zeroes(u64, u64),
}

impl Damage {
    /// Draws damage to the part of a file that holds data, `at` or after.
    pub fn draw(data: &[u64], prng: &mut Prng) -> Damage {
        let sector = data[prng.below(data.len() as u64) as usize] * SECTOR;
        match prng.below(3) {
            0 => Damage::Bit(sector + prng.below(SECTOR)),
            1 => Damage::Zeroes(sector, SECTOR),
            _ => Damage::Zeroes(sector / PAGE * PAGE, PAGE),
        }
    }

    /// Where it begins.
    pub fn at(self) -> u64 {
        match self {
            Damage::Bit(at) | Damage::Zeroes(at, _) => at,
        }
    }

    /// What it is, in a word or two.
    pub fn name(self) -> &'static str {
        match self {
            Damage::Bit(_) => "bit flipped",
            Damage::Zeroes(_, SECTOR) => "sector zeroed",
            Damage::Zeroes(..) => "page zeroed",
        }
    }

    /// Does it to `file`.
    ///
    /// # Errors
    ///
    /// Those of the file.
    pub fn to(self, file: &Path) -> io::Result<()> {
        let opened = OpenOptions::new().read(true).write(true).open(file)?;
        let len = opened.metadata()?.len();
        match self {
            Damage::Bit(at) => {
                let mut byte = [0];
                opened.read_exact_at(&mut byte, at)?;
                byte[0] ^= 1 << (at % 8);
                opened.write_all_at(&byte, at)
            }
            Damage::Zeroes(from, count) => {
                let count = count.min(len.saturating_sub(from));
                opened.write_all_at(&vec![0; count as usize], from)
            }
        }
    }
}

/// The sectors of `file` that are not all zero.
///
/// # Errors
///
/// Those of the file.
pub fn sectors_with_data(file: &Path) -> io::Result<Vec<u64>> {
    let bytes = fs::read(file)?;
    let sectors = bytes.chunks(SECTOR as usize).enumerate();
    let with_data = sectors.filter(|(_, sector)| sector.iter().any(|&byte| byte != 0));
    Ok(with_data.map(|(at, _)| at as u64).collect())
}

/// Whether `file` is as `kept`, which `damage` came to: both are missing, or have the same bytes.
pub fn is_as_it_was(file: &Path, kept: &Path, damage: Option<Damage>) -> bool {
    let mut expected = fs::read(kept).ok();
    if let (Some(bytes), Some(damage)) = (&mut expected, damage) {
        match damage {
            Damage::Bit(at) => bytes[at as usize] ^= 1 << (at % 8),
            Damage::Zeroes(from, count) => {
                let to = (from + count).min(bytes.len() as u64);
                bytes[from as usize..to as usize].fill(0);
            }
        }
    }
    expected == fs::read(file).ok()
}
