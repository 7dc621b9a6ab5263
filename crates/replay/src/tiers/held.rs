//! What a flash tier has of a page.

/// What a flash tier has of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Held {
    /// Nothing.
    #[default]
    Nothing,
    /// A place that is the page's, with an older version than memory has, or with none yet.
    Stale,
    /// What home has.
    Clean,
    /// A version newer than home's.
    Dirty,
}

impl Held {
    pub fn is_current(self) -> bool {
        matches!(self, Held::Clean | Held::Dirty)
    }

    pub fn has_slot(self) -> bool {
        self != Held::Nothing
    }
}
