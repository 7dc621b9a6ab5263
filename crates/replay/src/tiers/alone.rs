//! A flash tier with no memory above.

use terrace_policy::Tick;

use super::residents::Residents;
use super::start::{TierVisitor, with_tier};
use super::{FlashSetup, FlashTier, Memory, Miss, Need, Traffic};
use crate::References;
use crate::places::Places;

/// References that TAC alone would have missed, reads and writes alike, with no memory above.
#[must_use]
pub fn temperature_misses(references: &References, places: &Places, setup: &FlashSetup) -> u64 {
    let alone = Memory { policy: None, near_is_sequential: false, outstanding: 0, counted_from: 0 };
    let fetches = Fetches { references, places };
    with_tier(references.pages_count(), places, alone, setup, fetches)
}

/// Every reference is fetched from a tier. How many it misses.
struct Fetches<'a> {
    references: &'a References,
    places: &'a Places,
}

impl<'a> TierVisitor<'a> for Fetches<'a> {
    type Output = u64;

    fn visit<F: FlashTier + 'a>(self, mut flash: F) -> u64 {
        let mut io = Traffic::new(self.places);
        let mut now = Tick(0);
        let mut nobody = Residents::new(0);
        let missed = self.references.pages().iter().filter(|&&page| {
            now.0 += 1;
            let miss = Miss { page, need: Need::Now, now, tick: now, requests: 1 };
            flash.fetch(&miss, &mut nobody, &mut io).is_none()
        });
        missed.count() as u64
    }
}
