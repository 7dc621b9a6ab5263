//! What a design that picks itself picks from.

use terrace_policy::{AdmissionRule, AgeOrder, Design, DirtyLeave};

/// What is chosen. All choices share the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What is admitted; `Nothing` for a tier that is left to itself.
    pub admission: AdmissionRule,
    /// Which slot is reused.
    pub order: AgeOrder,
    /// What becomes of changed pages that leave memory.
    pub dirty: DirtyLeave,
}

const fn choice(admission: AdmissionRule, order: AgeOrder, dirty: DirtyLeave) -> Choice {
    Choice { admission, order, dirty }
}

use {AdmissionRule as Admit, DirtyLeave as Dirty};

/// The choices that there are. The first is the one to begin with.
pub const CHOICES: [Choice; 14] = [
    choice(Admit::RandomClass, AgeOrder::Reuse, Dirty::Flash),
    choice(Admit::RandomClass, AgeOrder::Reuse, Dirty::FlashAndHome),
    choice(Admit::RandomClass, AgeOrder::Recency, Dirty::Flash),
    choice(Admit::RandomClass, AgeOrder::Recency, Dirty::FlashAndHome),
    choice(Admit::All, AgeOrder::Reuse, Dirty::Flash),
    choice(Admit::All, AgeOrder::Reuse, Dirty::FlashAndHome),
    choice(Admit::Frequency, AgeOrder::Reuse, Dirty::Flash),
    choice(Admit::Frequency, AgeOrder::Reuse, Dirty::FlashAndHome),
    choice(Admit::Frequency, AgeOrder::Recency, Dirty::Flash),
    choice(Admit::Frequency, AgeOrder::Recency, Dirty::FlashAndHome),
    choice(Admit::RandomClass, AgeOrder::Reuse, Dirty::Home),
    choice(Admit::Frequency, AgeOrder::Reuse, Dirty::Home),
    choice(Admit::RandomClass, AgeOrder::Recency, Dirty::Home),
    choice(Admit::Nothing, AgeOrder::Recency, Dirty::Home),
];

impl Choice {
    /// The row `design` with these answers.
    #[must_use]
    pub fn of(&self, design: Design) -> Design {
        Design { dirty_leave: self.dirty, admission: self.admission, ..design }
    }

    /// In a few words, for people.
    #[must_use]
    pub fn title(&self) -> String {
        let admission = match self.admission {
            AdmissionRule::Nothing => return "no admission".into(),
            rule => rule.name(),
        };
        let order = match self.order {
            AgeOrder::Recency => "recency",
            AgeOrder::Reuse => "reuse",
        };
        let dirty = match self.dirty {
            DirtyLeave::Flash => "write-back",
            DirtyLeave::FlashAndHome => "write-through",
            _ => "clean pages",
        };
        format!("{admission}, {order}, {dirty}")
    }
}
