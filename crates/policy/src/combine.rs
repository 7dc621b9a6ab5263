//! Designs put together from a row of the table and other answers: another admission, another
//! replacement.

use crate::designs::{
    self, AdmissionRule, CleanLeave, DESIGNS, Design, Inclusion, Layout, Replacement, UnknownName,
};
use crate::replacement::{self, ReplacementKind};
use std::fmt;

/// Admissions by name: the list that command, tests and docs read.
pub const ADMISSIONS: [(&str, AdmissionRule); 3] = [
    ("random-class", AdmissionRule::RandomClass),
    ("everything", AdmissionRule::All),
    ("tinylfu", AdmissionRule::Frequency),
];

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
}

impl fmt::Display for NoSuchDesign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoSuchDesign::NoFlash(name) => write!(
                f,
                "`{name}` has no flash to admit to; take cw, dw or lc with this admission or \
                 replacement"
            ),
            NoSuchDesign::OneRule(name) => write!(
                f,
                "`{name}` admits and replaces by one rule of its own; take cw, dw or lc with this \
                 admission or replacement"
            ),
            NoSuchDesign::FrequencyTwice => f.write_str(
                "the replacement `w-tinylfu` admits by frequency itself: take it with the \
                 admission `everything`, or `tinylfu` with another replacement",
            ),
        }
    }
}

impl std::error::Error for NoSuchDesign {}

impl Design {
    /// Whether other answers can take the place of the row's admission and replacement.
    #[must_use]
    pub fn can_combine(&self) -> bool {
        self.layout == Layout::InPlace
            && self.clean_leave == CleanLeave::Flash
            // A policy that was asked who leaves has let it go: it cannot be asked for another.
            && self.inclusion != Inclusion::Inclusive
            && matches!(
                self.replacement,
                Replacement::Lru2 | Replacement::Recency | Replacement::Policy(_)
            )
    }

    /// The design with these answers instead of its own.
    ///
    /// # Errors
    ///
    /// Why they do not go together.
    pub fn combined(
        self,
        admission: Option<AdmissionRule>,
        replacement: Option<Replacement>,
    ) -> Result<Design, NoSuchDesign> {
        if admission.is_none() && replacement.is_none() {
            return Ok(self);
        }
        if !self.uses_flash() {
            return Err(NoSuchDesign::NoFlash(self.name));
        }
        if !self.can_combine() {
            return Err(NoSuchDesign::OneRule(self.name));
        }
        let design = Design {
            admission: admission.unwrap_or(self.admission),
            replacement: replacement.unwrap_or(self.replacement),
            ..self
        };
        let is_its_own = design.replacement == Replacement::Policy(ReplacementKind::WTinyLfu);
        if design.admission == AdmissionRule::Frequency && is_its_own {
            return Err(NoSuchDesign::FrequencyTwice);
        }
        Ok(design)
    }
}

/// The designs that other admissions and replacements go with.
pub fn combinable() -> impl Iterator<Item = Design> {
    DESIGNS.into_iter().filter(Design::can_combine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::designs::find;

    #[test]
    fn answers_take_the_place_of_a_rows() {
        let names: Vec<&str> = combinable().map(|design| design.name).collect();
        assert_eq!(names, ["cw", "dw", "lc", "lazy", "exclusive"]);
        let sieve = find_replacement("sieve").expect("a row");
        let lc = find("lc").expect("a row");
        let combined = lc.combined(Some(AdmissionRule::All), Some(sieve)).expect("a design");
        assert_eq!(combined.replacement, Replacement::Policy(ReplacementKind::Sieve));
        assert_eq!(combined.dirty_leave, lc.dirty_leave);
        assert_eq!(find_replacement("lru-2"), Ok(Replacement::Lru2));
        assert_eq!(lc.combined(None, None), Ok(lc));
    }

    #[test]
    fn what_does_not_go_together_is_refused_with_what_does() {
        let sieve = find_replacement("sieve").expect("a row");
        let w_tinylfu = find_replacement("w-tinylfu").expect("a row");
        for (name, admission, replacement, said) in [
            ("no-ssd", None, Some(sieve), "take cw, dw or lc"),
            ("tac", Some(AdmissionRule::All), None, "take cw, dw or lc"),
            ("dw", Some(AdmissionRule::Frequency), Some(w_tinylfu), "admits by frequency itself"),
        ] {
            let design = find(name).expect("a row");
            let refused = design.combined(admission, replacement).unwrap_err().to_string();
            assert!(refused.contains(said), "{refused}");
        }
    }
}
