//! The table of designs: one row each, read by the pool, the command, the tests and the docs.
//!
//! A design says what happens to a page that leaves memory, what is admitted to flash, which slot
//! is reused, and what happens to a copy that is no longer current. A new design is one row here,
//! and a new variant only for a behaviour that no other design has.
//!
//! - D1: names are unique, lower case, and stay: they are part of the command and of its output.
//! - D2: every design is safe to discard where flash is a cache: the log has redo for each page
//!   that is not at home, so the flash device may vanish at any instant.

pub(crate) mod combine;
pub(crate) mod flash_role;
pub mod restarts;

use crate::MemoryPolicy;
use crate::replacement::ReplacementKind;
use std::fmt;

/// What happens to an unchanged page that leaves memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanLeave {
    /// Nothing.
    Dropped,
    /// It is written to flash if it is not there and is admitted.
    Flash,
    /// Nothing: it was written to flash when it was read from home, if it was admitted then.
    WrittenWhenRead,
    /// It is written to flash, even if it is there.
    FlashAnew,
}

/// What happens to a changed page that leaves memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirtyLeave {
    /// It is written home.
    Home,
    /// It is written home and, if admitted, to flash, at the same time.
    FlashAndHome,
    /// It is written to flash alone if admitted, else home; a cleaner brings it home later.
    Flash,
    /// It is written home, and to its slot on flash if it still owns one.
    HomeAndOwnSlot,
}

/// What is admitted to flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionRule {
    /// Nothing.
    Nothing,
    /// Pages of the random class, and all while filling.
    RandomClass,
    /// Pages of extents that are warmer than the coldest extent with a page on flash.
    Temperature,
    /// All.
    All,
    /// Pages of more benefit than the page on flash of least benefit; all while a slot is free.
    Benefit,
    /// Pages requested more often recently than the page in the slot that would be reused, and all
    /// while there are free slots (TinyLFU).
    Frequency,
    /// One of the above, which `auto` may change at any time.
    Chosen,
}

/// Which slot is reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// There are no slots.
    Nothing,
    /// The clean slot whose use before the last is oldest.
    Lru2,
    /// The slot whose extent is coldest.
    Temperature,
    /// The slot that was filled first.
    Fifo,
    /// The same, but a page that was requested since it was written is written again at the rear.
    FifoSecondChance,
    /// The slot that was filled first. If its page is in memory and newer than home, the frame
    /// takes over the dirty entry, and the copy is overwritten.
    Rotating,
    /// The slots of the block of least weight: seldom used, many holes, few dirty pages; but a page
    /// that was requested recently is written again.
    BlockWeight,
    /// The slot whose page has the least benefit, by the requests counted so far.
    Benefit,
    /// The same, by the requests that are expected once the page has come to flash or left it.
    AnticipatedBenefit,
    /// The clean slot whose last use is oldest, by age in eighths of the tier's turnover.
    Recency,
    /// The clean slot that a replacement policy names.
    Policy(ReplacementKind),
    /// The clean slot that is first in one of two orders by age, which `auto` may change at any
    /// time.
    Chosen,
}

impl Replacement {
    /// Whether the number of requests for a page that memory served matters.
    #[must_use]
    #[inline]
    pub fn counts_hits(self) -> bool {
        matches!(self, Replacement::Temperature | Replacement::AnticipatedBenefit)
    }

    /// Whether slots are ranked by the benefit of their pages.
    #[must_use]
    pub fn is_by_benefit(self) -> bool {
        matches!(self, Replacement::Benefit | Replacement::AnticipatedBenefit)
    }
}

/// Where on the flash device a page is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Nowhere.
    Nothing,
    /// In the slot that was chosen for it.
    InPlace,
    /// In a run of free slots: an append log of pages, which may have several versions of a page,
    /// of which the newest counts.
    Append(Batch),
}

/// How many pages are appended, and leave, together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// One page. The slots are used in order, as a ring.
    Page,
    /// A group, whose size is configured. The slots are used in order, as a ring.
    Group,
    /// A block. Blocks are used in any order.
    Block,
}

/// What happens to the flash copy when its page is changed in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// There is no flash copy.
    Nothing,
    /// Its slot is free at once.
    Physical,
    /// It keeps its slot, invalid, until its page is written there again.
    Logical,
}

/// What flash has of a page while it is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inclusion {
    /// The copy that it had: it stays until its page changes or its slot is reused.
    Free,
    /// A slot, from the moment the page comes into memory until it leaves: the page is written
    /// there when it was read from home, and no other page gets the slot meanwhile.
    Inclusive,
    /// Nothing: the copy is freed when the page is read. If it was newer than home, the page is
    /// dirty in memory from then on.
    Exclusive,
}

/// When, and in which order, pages that are newer on flash are written home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleaning {
    /// Never: no page on flash is newer than at home.
    Nothing,
    /// While more than lambda of the slots are dirty: the page that is first in the cleaner's
    /// order, and its neighbours at home.
    AboveShare,
    /// When more than lambda of the slots are dirty: all dirty pages, in the order of their places
    /// at home.
    Sweeps,
    /// A few pages before their slots are needed, those of least benefit.
    WhenWanted,
    /// When they come to the front of an append log, or their block leaves.
    AtFront,
}

impl Cleaning {
    /// Whether it begins when more than lambda of the slots are dirty.
    #[must_use]
    pub fn is_by_share(self) -> bool {
        matches!(self, Cleaning::AboveShare | Cleaning::Sweeps)
    }
}

/// Which device the home of a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HomeDevice {
    /// The home device.
    Home,
    /// The flash device, which other designs use for the flash tier.
    Flash,
}

/// Which memory policies go with the design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryRule {
    /// Any; LRU-2 unless another is asked for.
    Any,
    /// Any; this one unless another is asked for.
    Prefers(MemoryPolicy),
}

impl MemoryRule {
    /// The policy that goes with the design if `asked` is asked for.
    #[must_use]
    pub fn policy(self, asked: Option<MemoryPolicy>) -> MemoryPolicy {
        match (self, asked) {
            (_, Some(asked)) => asked,
            (MemoryRule::Any, None) => MemoryPolicy::Lru2,
            (MemoryRule::Prefers(own), None) => own,
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Design {
    /// The name in the command, its output and the docs.
    pub name: &'static str,
    /// What it is, and where it was published, in a few words.
    pub title: &'static str,
    /// What happens to an unchanged page that leaves memory.
    pub clean_leave: CleanLeave,
    /// What happens to a changed page that leaves memory.
    pub dirty_leave: DirtyLeave,
    /// What is admitted to flash.
    pub admission: AdmissionRule,
    /// Which slot is reused.
    pub replacement: Replacement,
    /// Where on the flash device a page is written.
    pub layout: Layout,
    /// What happens to the flash copy when its page is changed.
    pub invalidation: Invalidation,
    /// What flash has of a page while it is in memory.
    pub inclusion: Inclusion,
    /// When, and in which order, pages that are newer on flash are written home.
    pub cleaning: Cleaning,
    /// Which memory policies go with it.
    pub memory: MemoryRule,
    /// Which device is the home of a benchmark run. The pool uses the devices that it is given.
    pub home: HomeDevice,
    /// Whether reads of pages that are the same on flash and at home spill to home while requests
    /// wait for the flash.
    pub spills: bool,
    /// Whether the flash device may vanish without loss while the log is whole (D2).
    pub safe_to_discard: bool,
}

impl Design {
    const fn preferring(self, memory: MemoryPolicy) -> Design {
        Design { memory: MemoryRule::Prefers(memory), ..self }
    }

    const fn spilling(self) -> Design {
        Design { spills: true, ..self }
    }

    const fn including(self, inclusion: Inclusion) -> Design {
        Design { inclusion, ..self }
    }

    const fn cleaned(self, cleaning: Cleaning) -> Design {
        Design { cleaning, ..self }
    }

    const fn at_home_on_flash(self) -> Design {
        Design { home: HomeDevice::Flash, ..self }
    }

    /// The usual `cleaning` of designs with these settings.
    pub(crate) fn usual_cleaning(&self) -> Cleaning {
        usual_cleaning(self.dirty_leave, self.replacement, self.layout)
    }

    /// Whether the design has a flash tier.
    #[must_use]
    pub fn uses_flash(&self) -> bool {
        self.layout != Layout::Nothing
    }

    /// Whether a page is written to flash when it was read from home.
    #[must_use]
    pub fn writes_what_is_read(&self) -> bool {
        let is_inclusive = self.inclusion == Inclusion::Inclusive;
        is_inclusive || self.clean_leave == CleanLeave::WrittenWhenRead
    }

    /// Whether pages that were not changed are written to flash.
    #[must_use]
    pub fn takes_clean_pages(&self) -> bool {
        self.uses_flash() && self.clean_leave != CleanLeave::Dropped
    }

    /// Whether a page that leaves memory is appended, if it `has_slot`, where the layout appends.
    #[must_use]
    #[inline]
    pub fn appends(&self, is_dirty: bool, has_slot: bool) -> bool {
        let takes_clean = self.takes_clean_pages() && !has_slot;
        is_dirty || takes_clean || self.clean_leave == CleanLeave::FlashAnew
    }

    /// Whether a page on flash may be newer than at home, so that the cleaner is needed.
    #[must_use]
    pub fn keeps_dirty_on_flash(&self) -> bool {
        self.dirty_leave == DirtyLeave::Flash
    }

    /// The batch that is appended together, if the layout is an append log.
    #[must_use]
    pub fn batch(&self) -> Option<Batch> {
        match self.layout {
            Layout::Append(batch) => Some(batch),
            Layout::Nothing | Layout::InPlace => None,
        }
    }
}

use {
    AdmissionRule as Admit, CleanLeave as Clean, DirtyLeave as Dirty, Invalidation as Invalid,
    Replacement as Reuse,
};

/// The designs, in the order in which they are listed and run. A row is: name, title; where a clean
/// and a dirty page go when they leave memory; admission, replacement, layout, invalidation.
/// Methods after a row set inclusion, cleaning, memory policy, home and spilling where they are
/// unusual.
#[rustfmt::skip]
pub const DESIGNS: [Design; 18] = [
    row("no-ssd", "no flash tier", (Clean::Dropped, Dirty::Home),
        Admit::Nothing, Reuse::Nothing, Layout::Nothing, Invalid::Nothing),
    row("cw", "clean write, SIGMOD 2011", (Clean::Flash, Dirty::Home),
        Admit::RandomClass, Reuse::Lru2, Layout::InPlace, Invalid::Physical),
    row("dw", "dual write, SIGMOD 2011", (Clean::Flash, Dirty::FlashAndHome),
        Admit::RandomClass, Reuse::Lru2, Layout::InPlace, Invalid::Physical),
    row("lc", "lazy cleaning, SIGMOD 2011", (Clean::Flash, Dirty::Flash),
        Admit::RandomClass, Reuse::Lru2, Layout::InPlace, Invalid::Physical),
    row("tac", "temperature-aware, VLDB 2010", (Clean::WrittenWhenRead, Dirty::HomeAndOwnSlot),
        Admit::Temperature, Reuse::Temperature, Layout::InPlace, Invalid::Logical),
    row("lazy", "written when it leaves memory, kept, ADBIS 2011", (Clean::Flash, Dirty::Flash),
        Admit::All, Reuse::Recency, Layout::InPlace, Invalid::Physical),
    row("inclusive", "a slot for each page in memory, ADBIS 2011", (Clean::Flash, Dirty::Flash),
        Admit::All, Reuse::Recency, Layout::InPlace, Invalid::Logical)
        .including(Inclusion::Inclusive),
    row("exclusive", "in memory or on flash, ADBIS 2011", (Clean::Flash, Dirty::Flash),
        Admit::All, Reuse::Recency, Layout::InPlace, Invalid::Physical)
        .including(Inclusion::Exclusive),
    row("hetero", "HeteroDrive, sorted write-back, IWSSPS 2009", (Clean::Dropped, Dirty::Flash),
        Admit::All, Reuse::Fifo, Layout::Append(Batch::Group), Invalid::Physical)
        .cleaned(Cleaning::Sweeps),
    row("face", "FaCE, group second chance, VLDB 2012", (Clean::Flash, Dirty::Flash),
        Admit::All, Reuse::FifoSecondChance, Layout::Append(Batch::Group), Invalid::Physical),
    row("face-gr", "FaCE, group replacement, VLDB 2012", (Clean::Flash, Dirty::Flash),
        Admit::All, Reuse::Fifo, Layout::Append(Batch::Group), Invalid::Physical),
    row("face-base", "FaCE, page by page, VLDB 2012", (Clean::Flash, Dirty::Flash),
        Admit::All, Reuse::Fifo, Layout::Append(Batch::Page), Invalid::Physical),
    row("rotating", "rotating frames, Holloway 2009", (Clean::FlashAnew, Dirty::Flash),
        Admit::All, Reuse::Rotating, Layout::Append(Batch::Page), Invalid::Physical),
    row("fasc", "FASC, blocks by weight, DASFAA 2015", (Clean::Flash, Dirty::Flash),
        Admit::All, Reuse::BlockWeight, Layout::Append(Batch::Block), Invalid::Physical)
        .preferring(MemoryPolicy::Fasc),
    row("cc", "cost-based caching, PVLDB 2013", (Clean::Flash, Dirty::Flash),
        Admit::Benefit, Reuse::Benefit, Layout::InPlace, Invalid::Logical)
        .preferring(MemoryPolicy::Lru),
    row("cac", "cost-adjusted caching, PVLDB 2013", (Clean::Flash, Dirty::Flash),
        Admit::Benefit, Reuse::AnticipatedBenefit, Layout::InPlace, Invalid::Logical)
        .preferring(MemoryPolicy::Gd2l),
    row("ssd-only", "home is the flash device, FASC's upper bound", (Clean::Dropped, Dirty::Home),
        Admit::Nothing, Reuse::Nothing, Layout::Nothing, Invalid::Nothing)
        .at_home_on_flash(),
    row("auto", "picks itself while it runs", (Clean::Flash, Dirty::Flash),
        Admit::Chosen, Reuse::Chosen, Layout::InPlace, Invalid::Physical)
        .preferring(MemoryPolicy::Priced)
        .spilling(),
];

const fn row(
    name: &'static str,
    title: &'static str,
    (clean_leave, dirty_leave): (CleanLeave, DirtyLeave),
    admission: AdmissionRule,
    replacement: Replacement,
    layout: Layout,
    invalidation: Invalidation,
) -> Design {
    Design {
        name,
        title,
        clean_leave,
        dirty_leave,
        admission,
        replacement,
        layout,
        invalidation,
        inclusion: Inclusion::Free,
        cleaning: usual_cleaning(dirty_leave, replacement, layout),
        memory: MemoryRule::Any,
        home: HomeDevice::Home,
        spills: false,
        safe_to_discard: true,
    }
}

const fn usual_cleaning(dirty: Dirty, replacement: Replacement, layout: Layout) -> Cleaning {
    match (dirty, layout, replacement) {
        (Dirty::Flash, Layout::Append(_), _) => Cleaning::AtFront,
        (Dirty::Flash, _, Reuse::Benefit | Reuse::AnticipatedBenefit) => Cleaning::WhenWanted,
        (Dirty::Flash, ..) => Cleaning::AboveShare,
        _ => Cleaning::Nothing,
    }
}

/// A name that no row of a list has. The message lists the known names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    /// What was looked for: "design", "memory policy".
    pub what: &'static str,
    /// The name.
    pub name: Box<str>,
    /// The names that there are.
    pub known: Vec<&'static str>,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown {} `{}`; known: {}", self.what, self.name, self.known.join(", "))
    }
}

impl std::error::Error for UnknownName {}

/// The design called `name`.
///
/// # Errors
///
/// An unknown name; the message lists the known.
pub fn find(name: &str) -> Result<Design, UnknownName> {
    find_in("design", &DESIGNS, |design| design.name, name)
}

/// The row of `rows` called `name`.
///
/// # Errors
///
/// An unknown name; the message lists the known.
pub fn find_in<Row: Copy>(
    what: &'static str,
    rows: &[Row],
    name_of: impl Fn(&Row) -> &'static str,
    name: &str,
) -> Result<Row, UnknownName> {
    rows.iter().find(|row| name_of(row) == name).copied().ok_or_else(|| UnknownName {
        what,
        name: name.into(),
        known: rows.iter().map(name_of).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lead_to_their_rows() {
        for design in DESIGNS {
            assert_eq!(find(design.name), Ok(design));
            assert_eq!(DESIGNS.iter().filter(|other| other.name == design.name).count(), 1);
            assert_eq!(design.name, design.name.to_lowercase());
        }
    }

    #[test]
    fn only_a_design_with_slots_replaces_and_admits() {
        for design in DESIGNS {
            let uses = design.uses_flash();
            assert_eq!(design.replacement != Replacement::Nothing, uses, "{}", design.name);
            assert_eq!(design.admission != AdmissionRule::Nothing, uses, "{}", design.name);
            assert_eq!(design.invalidation != Invalidation::Nothing, uses, "{}", design.name);
            assert!(design.safe_to_discard, "{}", design.name);
            let cleans = design.cleaning != Cleaning::Nothing;
            assert_eq!(design.keeps_dirty_on_flash(), cleans, "{}", design.name);
            // A design with a slot for each page in memory keeps the slots of pages that change.
            let is_inclusive = design.inclusion == Inclusion::Inclusive;
            assert!(!is_inclusive || design.invalidation == Invalidation::Logical);
        }
    }

    #[test]
    fn an_unknown_design_is_answered_with_the_known() {
        let error = find("LC").unwrap_err();
        assert_eq!(error.known, DESIGNS.map(|design| design.name));
        let said = error.to_string();
        assert!(said.contains("`LC`") && said.ends_with(&error.known.join(", ")), "{said}");
    }
}
