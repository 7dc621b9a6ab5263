//! The lazy cleaner: pages that are newer on flash are written home, in runs of neighbours [S0
//! 3.3.5]. It has no time of its own here: what it does is done at once.

use super::Traffic;
use crate::places::Places;

/// The cleaner stops so far below lambda [S0 2.3.3].
const LAMBDA_SLACK: f64 = 0.0001;

/// When the lazy cleaner works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cleaning {
    /// Share of the slots that may be newer than home.
    pub lambda: f64,
    /// Pages of one cleaning write at most.
    pub alpha: u32,
    /// Writes of a sweep that are under way at a time.
    pub writes: u32,
}

impl Cleaning {
    /// Whether `dirty` slots are too many.
    pub(super) fn is_due(&self, dirty: u32, slots: u32) -> bool {
        f64::from(dirty) > self.lambda * f64::from(slots)
    }

    /// Whether `dirty` slots still are too many, once there were too many.
    pub(super) fn goes_on(&self, dirty: u32, slots: u32) -> bool {
        f64::from(dirty) > (self.lambda - LAMBDA_SLACK).max(0.0) * f64::from(slots)
    }

    /// Fills `run` with up to alpha neighbours around `page` that are dirty on flash, in order.
    pub(super) fn run_around(
        &self,
        places: &Places,
        page: u32,
        is_dirty: impl Fn(u32) -> bool,
        run: &mut Vec<u32>,
    ) {
        let most = self.alpha as usize;
        let is_dirty = |page: &u32| is_dirty(*page);
        run.clear();
        run.push(page);
        while run.len() < most
            && let Some(before) = places.before(run[run.len() - 1]).filter(is_dirty)
        {
            run.push(before);
        }
        run.reverse();
        while run.len() < most
            && let Some(after) = places.after(run[run.len() - 1]).filter(is_dirty)
        {
            run.push(after);
        }
    }
}

/// A run of neighbours is read from flash and written home, in one write. A page that just left
/// memory may be among them: it has left, and its frame does not wait for this.
pub(super) fn take_home(run: &[u32], io: &mut Traffic) {
    let last_written = io.last_written;
    for (at, &page) in run.iter().enumerate() {
        io.read_flash();
        if at == 0 {
            io.write_home(page);
        } else {
            io.write_home_along(page);
        }
    }
    io.last_written = last_written;
}
