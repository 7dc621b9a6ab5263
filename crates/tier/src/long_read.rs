//! Which pages of a long read come from home, and which from flash [S0 3.3.3].
//!
//! A long read is not split at every page that flash or memory has: it is trimmed at both ends, and
//! the middle is read from home in one piece. Pages of the middle that are newer on flash are read
//! there, too, and what home has of them is dropped. Six pages, the 3rd and 5th on flash:
//!
//! ```text
//! pages   0    1    2    3    4    5
//!        home home FLSH home FLSH home      split: 3 reads from home, 2 from flash
//!        [---------- one read -------]      trimmed: 1 read from home
//! ```
//!
//! - L1: the first and the last page of the read from home are at home only.
//! - L2: every page that is not in memory is read, once.

use std::ops::Range;

/// Where a page of a long read is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residence {
    /// In memory.
    Memory,
    /// On flash, the same as at home.
    FlashClean,
    /// On flash, newer than at home.
    FlashNewer,
    /// At home only, or on a flash that is throttled.
    Home,
}

/// Positions of a long read.
#[derive(Debug, PartialEq, Eq)]
pub struct Trimmed {
    /// One read from home; maybe empty.
    pub home: Range<usize>,
    /// Reads from flash.
    pub flash: Vec<usize>,
}

/// Decides a long read of `pages`, which lie next to one another at home.
#[must_use]
pub fn trim(pages: &[Residence]) -> Trimmed {
    let is_home = |page: &Residence| *page == Residence::Home;
    let first = pages.iter().position(is_home).unwrap_or(pages.len());
    let last = pages.iter().rposition(is_home).map_or(first, |last| last + 1);
    let home = first..last;
    let is_read = |at: &usize| match pages[*at] {
        Residence::FlashNewer => true,
        Residence::FlashClean => !home.contains(at),
        Residence::Memory | Residence::Home => false,
    };
    Trimmed { flash: (0..pages.len()).filter(is_read).collect(), home }
}

#[cfg(test)]
mod tests {
    use super::Residence::{FlashClean, FlashNewer, Home, Memory};
    use super::*;

    /// Six pages, the 3rd and the 5th on flash: one read from home, not five [S0 3.3.3].
    #[test]
    fn a_long_read_is_not_split_in_the_middle() {
        let pages = [Home, Home, FlashClean, Home, FlashClean, Home];
        assert_eq!(trim(&pages), Trimmed { home: 0..6, flash: vec![] });
    }

    #[test]
    fn a_long_read_is_trimmed_at_both_ends() {
        let pages = [FlashClean, Memory, Home, FlashClean, Home, FlashNewer, FlashClean];
        assert_eq!(trim(&pages), Trimmed { home: 2..5, flash: vec![0, 5, 6] });
    }

    #[test]
    fn newer_pages_in_the_middle_are_read_from_flash_too() {
        let pages = [Home, FlashNewer, Memory, Home];
        assert_eq!(trim(&pages), Trimmed { home: 0..4, flash: vec![1] });
    }

    #[test]
    fn a_run_that_is_not_at_home_alone_reads_nothing_there() {
        assert_eq!(trim(&[Memory, FlashClean]), Trimmed { home: 2..2, flash: vec![1] });
    }
}
