//! Designs put together from a row of the table and other answers: another admission, another
//! replacement, another layout.
//!
//! - C1: an append log reuses its slots in the order in which they were filled, and takes whatever
//!   leaves memory. `fifo` and `clock` are the same order on both layouts: a second chance is a
//!   page that is passed over in place, and taken in again in a log [S2 2].

use crate::designs::{
    self, AdmissionRule, Batch, CleanLeave, DESIGNS, Design, Inclusion, Layout, Replacement,
    UnknownName,
};
use crate::replacement::{self, ReplacementKind};
use std::fmt;

/// Admissions by name: the list that command, tests and docs read.
pub const ADMISSIONS: [(&str, AdmissionRule); 3] = [
    ("random-class", AdmissionRule::RandomClass),
    ("everything", AdmissionRule::All),
    ("tinylfu", AdmissionRule::Frequency),
];

/// Layouts by name. The blocks of `fasc` go with its weights alone.
pub const LAYOUTS: [(&str, Layout); 3] = [
    ("in-place", Layout::InPlace),
    ("append-page", Layout::Append(Batch::Page)),
    ("append-group", Layout::Append(Batch::Group)),
];

/// The layout called `name`.
///
/// # Errors
///
/// An unknown name; the message lists the known.
pub fn find_layout(name: &str) -> Result<Layout, UnknownName> {
    designs::find_in("layout", &LAYOUTS, |row| row.0, name).map(|row| row.1)
}

/// The admission called `name`.
///
/// # Errors
///
/// An unknown name; the message lists the known.
pub fn find_admission(name: &str) -> Result<AdmissionRule, UnknownName> {
    designs::find_in("admission", &ADMISSIONS, |row| row.0, name).map(|row| row.1)
}

/// The replacement of slots called `name`.
///
/// # Errors
///
/// An unknown name; the message lists the known.
pub fn find_replacement(name: &str) -> Result<Replacement, UnknownName> {
    let row = replacement::find(name)?;
    Ok(match row.kind {
        // The same rule, in the structure that the published designs share.
        ReplacementKind::Lru2 => Replacement::Lru2,
        kind => Replacement::Policy(kind),
    })
}

impl AdmissionRule {
    /// The rule's name in commands and their output; "by design" if it cannot be asked for.
    #[must_use]
    pub fn name(self) -> &'static str {
        let row = ADMISSIONS.iter().find(|row| row.1 == self);
        row.map_or("by design", |row| row.0)
    }
}

impl Layout {
    /// The layout's name in commands and their output; "by design" if it cannot be asked for.
    #[must_use]
    pub fn name(self) -> &'static str {
        let row = LAYOUTS.iter().find(|row| row.1 == self);
        row.map_or("by design", |row| row.0)
    }
}

impl Replacement {
    /// The policy's name in commands and their output; "by design" if it cannot be asked for.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Replacement::Lru2 => ReplacementKind::Lru2.row().name,
            Replacement::Policy(kind) => kind.row().name,
            _ => "by design",
        }
    }
}

/// Why answers do not go together, and what does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSuchDesign {
    /// There is no flash.
    NoFlash(&'static str),
    /// Admission and replacement of the design are one rule.
    OneRule(&'static str),
    /// The policy admits by frequency itself.
    FrequencyTwice,
    /// The design does not keep what home lacks in a slot of any order.
    NoLog(&'static str),
    /// An append log has an order of its own.
    LogInOrder,
    /// An append log takes all.
    LogTakesAll,
}

/// What is asked for in the place of a row's own answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// What is admitted to flash.
    pub admission: Option<AdmissionRule>,
    /// Which slot is reused.
    pub replacement: Option<Replacement>,
    /// Where on the flash device a page is written.
    pub layout: Option<Layout>,
}

impl fmt::Display for NoSuchDesign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoSuchDesign::NoFlash(name) => write!(
                f,
                "`{name}` has no flash to admit to; take cw, dw or lc with this admission, \
                 replacement or layout"
            ),
            NoSuchDesign::OneRule(name) => write!(
                f,
                "`{name}` admits and replaces by one rule of its own; take cw, dw or lc with this \
                 admission or replacement, and lazy with this layout"
            ),
            NoSuchDesign::FrequencyTwice => f.write_str(
                "the replacement `w-tinylfu` admits by frequency itself: take it with the \
                 admission `everything`, or `tinylfu` with another replacement",
            ),
            NoSuchDesign::NoLog(name) => write!(
                f,
                "`{name}` cannot append: its changed pages go home at once, or its copies leave as \
                 they are read; take lazy with this layout"
            ),
            NoSuchDesign::LogInOrder => f.write_str(
                "an append log reuses its slots in the order in which they were filled: take it \
                 with the replacement `fifo`, or with `clock`, which is its second chance",
            ),
            NoSuchDesign::LogTakesAll => f.write_str(
                "an append log takes whatever leaves memory: take it with the admission \
                 `everything`",
            ),
        }
    }
}

impl std::error::Error for NoSuchDesign {}

impl Design {
    /// Whether other answers can take the place of the row's own.
    #[must_use]
    fn can_vary(&self) -> bool {
        self.clean_leave == CleanLeave::Flash
            // A policy that has named a victim has dropped it, and cannot be asked for another.
            && self.inclusion != Inclusion::Inclusive
            && matches!(
                self.replacement,
                Replacement::Lru2
                    | Replacement::Recency
                    | Replacement::Policy(_)
                    | Replacement::Fifo
                    | Replacement::FifoSecondChance
            )
    }

    /// Whether any admission and replacement can take the place of the row's own.
    #[must_use]
    pub fn can_combine(&self) -> bool {
        self.layout == Layout::InPlace && self.can_vary()
    }

    /// The design with what is asked for instead of its own.
    ///
    /// # Errors
    ///
    /// Why they do not go together.
    ///
    /// # Examples
    ///
    /// ```
    /// use terrace_policy::{Asked, designs, find_layout, find_replacement};
    ///
    /// let log = Asked {
    ///     layout: Some(find_layout("append-group").unwrap()),
    ///     replacement: Some(find_replacement("clock").unwrap()),
    ///     ..Asked::default()
    /// };
    /// let (lazy, face) = (designs::find("lazy").unwrap(), designs::find("face").unwrap());
    /// assert_eq!(lazy.combined(log).unwrap().layout, face.layout);
    /// assert!(designs::find("dw").unwrap().combined(log).is_err());
    /// ```
    pub fn combined(self, asked: Asked) -> Result<Design, NoSuchDesign> {
        if asked == Asked::default() {
            return Ok(self);
        }
        if !self.uses_flash() {
            return Err(NoSuchDesign::NoFlash(self.name));
        }
        if !self.can_vary() {
            return Err(NoSuchDesign::OneRule(self.name));
        }
        let layout = asked.layout.unwrap_or(self.layout);
        let replacement = asked.replacement.unwrap_or(self.replacement);
        let design = Design {
            admission: asked.admission.unwrap_or(self.admission),
            replacement: in_order(replacement, layout).ok_or(NoSuchDesign::LogInOrder)?,
            layout,
            ..self
        };
        let design = Design { cleaning: design.usual_cleaning(), ..design };
        let is_its_own = design.replacement == Replacement::Policy(ReplacementKind::WTinyLfu);
        match layout {
            Layout::Append(_) if !self.keeps_dirty_on_flash() => {
                Err(NoSuchDesign::NoLog(self.name))
            }
            Layout::Append(_) if self.inclusion != Inclusion::Free => {
                Err(NoSuchDesign::NoLog(self.name))
            }
            Layout::Append(_) if design.admission != AdmissionRule::All => {
                Err(NoSuchDesign::LogTakesAll)
            }
            _ if design.admission == AdmissionRule::Frequency && is_its_own => {
                Err(NoSuchDesign::FrequencyTwice)
            }
            _ => Ok(design),
        }
    }
}

/// What `replacement` is on `layout` (C1); `None` if a log has no such order.
fn in_order(replacement: Replacement, layout: Layout) -> Option<Replacement> {
    use Replacement::{Fifo, FifoSecondChance, Policy};
    let is_log = matches!(layout, Layout::Append(_));
    match replacement {
        Fifo | Policy(ReplacementKind::Fifo) if is_log => Some(Fifo),
        FifoSecondChance | Policy(ReplacementKind::Clock) if is_log => Some(FifoSecondChance),
        Fifo => Some(Policy(ReplacementKind::Fifo)),
        FifoSecondChance => Some(Policy(ReplacementKind::Clock)),
        other => Some(other).filter(|_| !is_log),
    }
}

/// The designs that any admission and replacement goes with.
pub fn combinable() -> impl Iterator<Item = Design> {
    DESIGNS.into_iter().filter(Design::can_combine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::designs::find;

    #[test]
    fn answers_take_the_place_of_a_rows() {
        let combines = |name: &str| combinable().any(|design| design.name == name);
        assert!(["cw", "dw", "lc", "lazy", "exclusive"].into_iter().all(combines));
        let ruled = ["no-ssd", "tac", "inclusive", "hetero", "face", "fasc", "cc", "auto"];
        assert!(!ruled.into_iter().any(combines), "their rules belong together");
        let sieve = find_replacement("sieve").expect("a row");
        let lc = find("lc").expect("a row");
        let asked = |admission, replacement| Asked { admission, replacement, layout: None };
        let combined = lc.combined(asked(Some(AdmissionRule::All), Some(sieve))).expect("a design");
        assert_eq!(combined.replacement, Replacement::Policy(ReplacementKind::Sieve));
        assert_eq!(combined.dirty_leave, lc.dirty_leave);
        assert_eq!(find_replacement("lru-2"), Ok(Replacement::Lru2));
        assert_eq!(lc.combined(Asked::default()), Ok(lc));
    }

    /// FaCE is a layout and an order of slots: both rows come to the same from either side.
    #[test]
    fn layouts_take_the_place_of_a_rows() {
        let asked = |layout, replacement| Asked {
            layout: Some(find_layout(layout).expect("a row")),
            replacement: Some(find_replacement(replacement).expect("a row")),
            ..Asked::default()
        };
        let lazy = find("lazy").expect("a row");
        for (name, layout, replacement) in [
            ("face", "append-group", "clock"),
            ("face-gr", "append-group", "fifo"),
            ("face-base", "append-page", "fifo"),
        ] {
            let row = find(name).expect("a row");
            let log = lazy.combined(asked(layout, replacement)).expect("a design");
            assert_eq!(Design { name: row.name, title: row.title, ..log }, row);
            let placed = row.combined(asked("in-place", replacement)).expect("a design");
            let same = lazy.combined(asked("in-place", replacement)).expect("a design");
            assert_eq!(Design { name: "lazy", title: lazy.title, ..placed }, same);
            let alone = Asked { layout: Some(Layout::InPlace), ..Asked::default() };
            assert_eq!(row.combined(alone), Ok(placed), "the order is the row's own");
        }
        for (name, layout) in LAYOUTS {
            assert_eq!((find_layout(name), layout.name()), (Ok(layout), name));
        }
    }

    #[test]
    fn what_does_not_go_together_is_refused_with_what_does() {
        let sieve = find_replacement("sieve").expect("a row");
        let w_tinylfu = find_replacement("w-tinylfu").expect("a row");
        let fifo = find_replacement("fifo").expect("a row");
        let group = Some(Layout::Append(Batch::Group));
        let (all, frequency) = (Some(AdmissionRule::All), Some(AdmissionRule::Frequency));
        for (name, admission, replacement, layout, said) in [
            ("no-ssd", None, Some(sieve), None, "take cw, dw or lc"),
            ("tac", all, None, None, "take cw, dw or lc"),
            ("dw", frequency, Some(w_tinylfu), None, "admits by frequency itself"),
            ("lazy", None, None, group, "the replacement `fifo`"),
            ("face", None, Some(sieve), None, "the replacement `fifo`"),
            ("lc", None, Some(fifo), group, "admission `everything`"),
            ("dw", all, Some(fifo), group, "take lazy"),
            ("exclusive", None, Some(fifo), group, "take lazy"),
            ("fasc", None, None, group, "lazy with this layout"),
        ] {
            let design = find(name).expect("a row");
            let asked = Asked { admission, replacement, layout };
            let refused = design.combined(asked).unwrap_err().to_string();
            assert!(refused.contains(said), "{refused}");
        }
    }
}
