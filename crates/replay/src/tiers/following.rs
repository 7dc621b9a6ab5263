//! Two tiers that are told of chunks of references: for traces that are read twice and not kept.
//!
//! - The counts are those of a replay of kept references (a test).
//! - Cost: what `bytes` says, beside the places; none for a reference.
//! - Not for: OPT, nor for requests kept in their order, of which there is one for each reference.

use super::run::Replay;
use super::start::{TierVisitor, with_tier};
use super::{FlashSetup, FlashTier, Memory, TierCounts};
use crate::places::Places;
use crate::streaming::Reference;

/// Memory and a flash tier.
pub struct FollowingTiers<'a> {
    tiers: Box<dyn Feed + 'a>,
    setup: FlashSetup,
}

trait Feed {
    fn feed(&mut self, references: &[Reference]);
    fn counts(&self) -> TierCounts;
    fn bytes(&self) -> usize;
}

impl<'a> FollowingTiers<'a> {
    /// Empty tiers for a trace of the given number of pages, which lie at `places`.
    ///
    /// # Panics
    ///
    /// As [`replay`](super::replay); if the flash is under OPT.
    #[must_use]
    pub fn new(
        pages_count: u32,
        places: &'a Places,
        memory: Memory,
        setup: &FlashSetup,
    ) -> FollowingTiers<'a> {
        let begin = Begin { pages_count, places, memory, setup };
        let tiers = with_tier(pages_count, places, memory, setup, begin);
        FollowingTiers { tiers, setup: *setup }
    }

    /// The next references.
    pub fn feed(&mut self, references: &[Reference]) {
        self.tiers.feed(references);
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> TierCounts {
        self.tiers.counts().as_of(&self.setup)
    }

    /// Bytes allocated, by tiers and policies.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.tiers.bytes()
    }
}

struct Begin<'a, 'b> {
    pages_count: u32,
    places: &'a Places,
    memory: Memory,
    setup: &'b FlashSetup,
}

impl<'a> TierVisitor<'a> for Begin<'a, '_> {
    type Output = Box<dyn Feed + 'a>;

    fn visit<F: FlashTier + 'a>(self, flash: F) -> Self::Output {
        Box::new(Replay::new(self.places, self.pages_count, self.memory, self.setup, flash))
    }
}

impl<F: FlashTier> Feed for Replay<'_, F> {
    fn feed(&mut self, references: &[Reference]) {
        for &Reference { page, is_write, has_waited, is_ahead } in references {
            if is_ahead {
                self.announce(page);
                continue;
            }
            if has_waited {
                self.wait(page);
            }
            self.reference(page, is_write);
        }
    }

    fn counts(&self) -> TierCounts {
        Replay::counts(self)
    }

    fn bytes(&self) -> usize {
        self.memory.bytes() + self.flash.bytes()
    }
}
