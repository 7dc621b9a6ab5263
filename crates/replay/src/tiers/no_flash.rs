//! No flash: `no-ssd`, and `ssd-only`, whose home is the flash device.

use super::residents::Residents;
use super::{Allocated, FlashTier, Held, Leaving, Miss, Note, Traffic};
use terrace_policy::History;

/// A tier that has nothing.
pub struct NoFlash;

impl Allocated for NoFlash {
    fn bytes(&self) -> usize {
        0
    }
}

impl FlashTier for NoFlash {
    fn fetch(&mut self, miss: &Miss, _: &mut Residents, io: &mut Traffic) -> Option<History> {
        io.read_home(miss.page);
        None
    }

    fn note(&mut self, _: Note, _: &mut Traffic) {}

    fn leave(&mut self, leaving: &Leaving, io: &mut Traffic) {
        if leaving.dirty {
            io.write_home(leaving.page);
        }
    }

    fn held(&self, _: u32) -> Held {
        Held::Nothing
    }
}
