//! What memory missed since a database was opened: enough to tell what a flash tier of any size
//! would serve. A text, so that it can be printed, logged or kept, and given to `terrace advise`.
//!
//! ```text
//! terrace misses 1
//! seconds 3600.000
//! requests 120000000      page requests, misses included
//! misses 3000000
//! flash_hits 0
//! dirty_leaves 800000     pages that left memory changed
//! frames 25600
//! slots 0
//! pages 183000            of the home, in use
//! sampled 41000           of the misses
//! step 17 1024.5          misses by step of distance, scaled up from the sample
//! ...
//! end
//! ```

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::str::FromStr;

use terrace_policy::MissCurve;

/// The first line.
const HEAD: &str = "terrace misses 1";
/// The last: without it the text was cut off.
const END: &str = "end";
/// Numbers before the steps, in their order.
const FIELDS: [&str; 9] = [
    "seconds",
    "requests",
    "misses",
    "flash_hits",
    "dirty_leaves",
    "frames",
    "slots",
    "pages",
    "sampled",
];

/// What memory missed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Misses {
    /// Since the database was opened.
    pub seconds: f64,
    /// Page requests.
    pub requests: u64,
    /// Of the misses, those that the flash tier served.
    pub flash_hits: u64,
    /// Pages that left memory changed.
    pub dirty_leaves: u64,
    /// Frames of memory.
    pub frames: u64,
    /// Slots of the flash tier.
    pub slots: u64,
    /// Pages of the home in use.
    pub pages: u64,
    /// What flash tiers of any size would have served.
    pub curve: MissCurve,
}

/// Why a text is not what memory missed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadMisses {
    /// It does not begin with `terrace misses 1`.
    NoHead,
    /// It has no last line: it was cut off.
    CutOff,
    /// A line, counted from 1, is not what should stand there.
    Line {
        /// Its number.
        line: usize,
        /// What should stand there.
        wanted: &'static str,
    },
}

impl fmt::Display for BadMisses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadMisses::NoHead => write!(f, "the first line is not `{HEAD}`"),
            BadMisses::CutOff => write!(f, "cut off: the last line is not `{END}`; print it again"),
            BadMisses::Line { line, wanted } => {
                write!(f, "line {line}: field `{wanted}` and a number should stand here")
            }
        }
    }
}

impl std::error::Error for BadMisses {}

impl Misses {
    /// Whether `bytes` begin as such a text does.
    #[must_use]
    pub fn begins(bytes: &[u8]) -> bool {
        bytes.starts_with(HEAD.as_bytes())
    }

    /// Whether such a text may go to `path`: nothing is there, an empty file, or such a text.
    pub(crate) fn may_go_to(path: &Path) -> io::Result<bool> {
        let mut head = [0; HEAD.len()];
        let mut file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
            opened => opened?,
        };
        if !file.metadata()?.is_file() {
            return Ok(false);
        }
        match file.read_exact(&mut head) {
            Ok(()) => Ok(Misses::begins(&head)),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Ok(file.metadata()?.len() == 0)
            }
            Err(error) => Err(error),
        }
    }

    /// Puts the text at `path`, in the place of an earlier one. A file of anything else stays, and
    /// so does what another name or a link leads to.
    pub(crate) fn keep(&self, path: &Path) -> io::Result<()> {
        if !Misses::may_go_to(path)? {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        // What a process that was killed left there is of the same kind.
        if !Misses::may_go_to(Path::new(&beside))? {
            return Err(ErrorKind::AlreadyExists.into());
        }
        fs::write(&beside, self.to_string())?;
        fs::rename(&beside, path)
    }

    fn numbers(&self) -> [f64; 9] {
        let counts = [
            self.requests,
            self.curve.misses(),
            self.flash_hits,
            self.dirty_leaves,
            self.frames,
            self.slots,
            self.pages,
            self.curve.sampled(),
        ];
        let mut numbers = [self.seconds; 9];
        for (number, count) in numbers[1..].iter_mut().zip(counts) {
            *number = count as f64;
        }
        numbers
    }
}

impl fmt::Display for Misses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        for (name, number) in FIELDS.into_iter().zip(self.numbers()) {
            let digits = if name == "seconds" { 3 } else { 0 };
            writeln!(f, "{name} {number:.digits$}")?;
        }
        for (step, hits) in self.curve.steps() {
            writeln!(f, "step {step} {hits:.3}")?;
        }
        writeln!(f, "{END}")
    }
}

impl FromStr for Misses {
    type Err = BadMisses;

    fn from_str(text: &str) -> Result<Misses, BadMisses> {
        let mut lines = text.lines().map(str::trim).zip(1..);
        if lines.next().is_none_or(|(line, _)| line != HEAD) {
            return Err(BadMisses::NoHead);
        }
        let mut numbers = [0.0; 9];
        for (wanted, number) in FIELDS.into_iter().zip(&mut numbers) {
            let (line, at) = lines.next().ok_or(BadMisses::CutOff)?;
            let text = line.strip_prefix(wanted).and_then(|rest| rest.strip_prefix(' '));
            let parsed = text.and_then(|text| text.parse::<f64>().ok());
            let usual = parsed.filter(|number| (0.0..1e18).contains(number));
            *number = usual.ok_or(BadMisses::Line { line: at, wanted })?;
        }
        let (mut steps, mut is_whole) = (Vec::new(), false);
        for (line, at) in lines {
            if line == END {
                is_whole = true;
                break;
            }
            let mut words = line.split(' ');
            let bad = BadMisses::Line { line: at, wanted: "step" };
            let parsed = match (words.next(), words.next(), words.next(), words.next()) {
                (Some("step"), Some(step), Some(hits), None) => {
                    step.parse::<u32>().ok().zip(hits.parse::<f64>().ok())
                }
                _ => None,
            };
            steps.push(parsed.filter(|row| row.1.abs() < 1e18).ok_or(bad)?);
        }
        if !is_whole {
            return Err(BadMisses::CutOff);
        }
        let count = |at: usize| numbers[at] as u64;
        let curve = MissCurve::from_steps(count(2), count(8), steps)
            .map_err(|_| BadMisses::Line { line: FIELDS.len() + 2, wanted: "step" })?;
        Ok(Misses {
            seconds: numbers[0],
            requests: count(1),
            flash_hits: count(3),
            dirty_leaves: count(4),
            frames: count(5),
            slots: count(6),
            pages: count(7),
            curve,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_page::PageId;
    use terrace_policy::MissSampler;

    fn misses() -> Misses {
        let mut sampler = MissSampler::new(50);
        (0..5_000u64).for_each(|at| sampler.miss(PageId(at * at % 397)));
        Misses {
            seconds: 12.5,
            requests: 90_000,
            flash_hits: 7,
            dirty_leaves: 300,
            frames: 100,
            slots: 64,
            pages: 400,
            curve: sampler.curve(5_000),
        }
    }

    #[test]
    fn the_text_is_read_again() {
        let misses = misses();
        let again: Misses = misses.to_string().parse().expect("its own text");
        assert_eq!(again.to_string(), misses.to_string());
        for slots in [1, 50, 400] {
            let off = again.curve.hit_ratio(slots) - misses.curve.hit_ratio(slots);
            assert!(off.abs() < 1e-6, "{slots}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_by_line_and_field() {
        let text = misses().to_string();
        let parse = |text: &str| text.parse::<Misses>().unwrap_err();
        assert_eq!(parse(""), BadMisses::NoHead);
        assert_eq!(parse(text.trim_end_matches("end\n")), BadMisses::CutOff);
        let bad = parse(&text.replace("frames 100", "frames many"));
        assert_eq!(bad, BadMisses::Line { line: 7, wanted: "frames" });
        assert!(bad.to_string().contains("line 7: field `frames`"));
        for garbage in ["step 1\nend", "step 99999 1\nend", "step 1 nan\nend"] {
            let garbage = text.replacen("step", &format!("{garbage}\nstep"), 1);
            assert!(matches!(parse(&garbage), BadMisses::Line { wanted: "step", .. }));
        }
    }
}
