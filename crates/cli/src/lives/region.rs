//! What stands where in the files of a tortured database, so that all of it comes to harm.
//!
//! The places are those of docs/FORMAT.md, read from the files where a header tells them.

use super::mishap::{PAGE, SECTOR, sectors_with_data};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use terrace::FlashLayout;
use terrace_policy::Restart;
use terrace_rt::Prng;

/// A file of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Home,
    Log,
    Flash,
}

impl Part {
    pub const ALL: [Part; 3] = [Part::Home, Part::Log, Part::Flash];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Part::Home => "home",
            Part::Log => "log",
            Part::Flash => "flash",
        }
    }

    /// Its regions, each with the byte behind its last one.
    fn regions(self, path: &Path, restart: &Restart) -> io::Result<Vec<(&'static str, u64)>> {
        Ok(match self {
            Part::Home => vec![
                ("superblocks", 2 * PAGE),
                ("allocation map", 3 * PAGE),
                ("catalog", 64 * PAGE),
                ("tables", u64::MAX),
            ],
            Part::Log => {
                let [area, half] = [LOG_AREA_AT, LOG_AREA_AT + 8].map(|at| number_at(path, at));
                vec![
                    ("headers", LOG_HEADERS),
                    ("doublewrite area", area? + 2 * half?),
                    ("records", u64::MAX),
                ]
            }
            Part::Flash => {
                let pages = File::open(path)?.metadata()?.len() / PAGE;
                let layout = FlashLayout::fitting(pages, restart.kind);
                vec![
                    ("header", layout.table * PAGE),
                    ("table", layout.journal * PAGE),
                    ("journal", layout.first_slot * PAGE),
                    ("slots", u64::MAX),
                ]
            }
        })
    }
}

/// Two copies of the log's header, one block each.
const LOG_HEADERS: u64 = 8192;
/// Where the header tells the first byte of the doublewrite area, and then the bytes of its halves.
const LOG_AREA_AT: u64 = 40;

fn number_at(path: &Path, at: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open(path)?.read_exact_at(&mut bytes, at)?;
    Ok(u64::from_le_bytes(bytes))
}

/// The sectors of a file that hold data, region by region.
pub struct Regions {
    pub part: Part,
    regions: Vec<(&'static str, Vec<u64>)>,
}

impl Regions {
    /// Those of `part` at `path`, a flash under `restart`.
    ///
    /// # Errors
    ///
    /// Those of the file.
    pub fn of(part: Part, path: &Path, restart: &Restart) -> io::Result<Regions> {
        let sectors = sectors_with_data(path)?;
        let mut regions = Vec::new();
        let mut from = 0;
        for (name, to) in part.regions(path, restart)? {
            let is_here = |&&sector: &&u64| (from..to).contains(&(sector * SECTOR));
            let here: Vec<u64> = sectors.iter().filter(is_here).copied().collect();
            regions.extend((!here.is_empty()).then_some((name, here)));
            from = to;
        }
        Ok(Regions { part, regions })
    }

    /// Whether all of the file is zero.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// A region, and its sectors.
    pub fn draw(&self, prng: &mut Prng) -> (&'static str, &[u64]) {
        let (name, sectors) = &self.regions[prng.below(self.regions.len() as u64) as usize];
        (name, sectors)
    }
}
