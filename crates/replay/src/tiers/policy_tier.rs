//! A flash tier under any replacement policy: every page that leaves memory is welcome.
//!
//! - P1: a page that is changed in memory keeps its slot, stale, until it leaves memory and is
//!   written there again, or the policy gives the slot away.
//! - P2: with write-back a page that leaves the flash newer than home is read and written home.

use super::residents::Residents;
use super::{Allocated, FlashSetup, FlashTier, Held, Leaving, Miss, Note, Traffic};
use terrace_page::PageId;
use terrace_policy::History;
use terrace_policy::replacement::{
    Forgetting, Key, Look, Replace, ReplacementPolicy, ReplacementRow, Setup,
};

/// Where a changed page goes when it leaves memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// To flash alone; home has it when it leaves the flash.
    Back,
    /// To both.
    Through,
    /// Home alone.
    Around,
    /// Home, and flash if it has a copy.
    Update,
}

/// A tier under a replacement policy.
pub struct PolicyTier {
    policy: ReplacementPolicy,
    mode: WriteMode,
    copies: Vec<Held>,
}

impl PolicyTier {
    pub fn new(
        pages_count: u32,
        row: ReplacementRow,
        mode: WriteMode,
        setup: &FlashSetup,
    ) -> PolicyTier {
        let (capacity, seed, forgetting) = (setup.slots, setup.seed, Forgetting::Silent);
        let setup = Setup { capacity, keys_count: pages_count, forgetting, seed };
        let policy = ReplacementPolicy::new(row.kind, setup);
        PolicyTier { policy, mode, copies: vec![Held::Nothing; pages_count as usize] }
    }

    fn write(&mut self, page: u32, copy: Held, io: &mut Traffic) {
        if !self.policy.is_cached(Key(page)) {
            let left = self.policy.insert(Key(page), PageId(u64::from(page)), |_| true);
            if let Ok(Some(Key(victim))) = left {
                if victim == page {
                    // The policy would rather have it elsewhere.
                    if copy == Held::Dirty {
                        io.write_home(page);
                    }
                    return;
                }
                let was = std::mem::take(&mut self.copies[victim as usize]);
                if was == Held::Dirty {
                    io.read_flash();
                    io.write_home(victim);
                }
            }
        }
        self.copies[page as usize] = copy;
        io.write_flash();
    }
}

impl Allocated for PolicyTier {
    fn bytes(&self) -> usize {
        self.policy.bytes() + self.copies.capacity() * size_of::<Held>()
    }
}

impl FlashTier for PolicyTier {
    fn fetch(&mut self, miss: &Miss, _: &mut Residents, io: &mut Traffic) -> Option<History> {
        if self.held(miss.page).is_current() && self.policy.hit(Key(miss.page)) {
            io.read_flash();
            return Some(History::once(miss.now));
        }
        io.read_home(miss.page);
        None
    }

    fn note(&mut self, note: Note, _: &mut Traffic) {
        if let Note::Changes(page) = note {
            let copy = &mut self.copies[page as usize];
            *copy = if copy.has_slot() { Held::Stale } else { Held::Nothing };
        }
    }

    fn leave(&mut self, leaving: &Leaving, io: &mut Traffic) {
        let page = leaving.page;
        match (leaving.dirty, self.mode) {
            (false, _) if self.held(page).is_current() => {}
            (false, _) => self.write(page, Held::Clean, io),
            (true, WriteMode::Back) => self.write(page, Held::Dirty, io),
            (true, WriteMode::Through) => {
                io.write_home(page);
                self.write(page, Held::Clean, io);
            }
            (true, WriteMode::Update) => {
                io.write_home(page);
                if self.policy.is_cached(Key(page)) {
                    self.write(page, Held::Clean, io);
                }
            }
            (true, WriteMode::Around) => {
                io.write_home(page);
                if self.policy.is_cached(Key(page)) {
                    self.policy.remove(Key(page));
                }
                self.copies[page as usize] = Held::Nothing;
            }
        }
    }

    #[inline]
    fn held(&self, page: u32) -> Held {
        self.copies[page as usize]
    }
}
