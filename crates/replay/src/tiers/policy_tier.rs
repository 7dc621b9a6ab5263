//! A flash tier under any replacement policy: every page that leaves memory is welcome.
//!
//! - P1: a page that is changed in memory keeps its slot, stale, until it leaves memory and is
//!   written there again, or the policy gives the slot away.
//! - P2: with write-back a page that leaves the flash newer than home is read and written home.

use super::{FlashSetup, FlashTier, Leaving, Miss, Traffic};
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
}

/// What a copy is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Copy {
    /// Older than the page in memory, or none.
    #[default]
    Stale,
    /// What home has.
    Clean,
    /// Newer than home.
    Dirty,
}

pub struct PolicyTier {
    policy: ReplacementPolicy,
    mode: WriteMode,
    copies: Vec<Copy>,
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
        PolicyTier { policy, mode, copies: vec![Copy::Stale; pages_count as usize] }
    }

    fn write(&mut self, page: u32, copy: Copy, io: &mut Traffic) {
        if !self.policy.is_cached(Key(page)) {
            let left = self.policy.insert(Key(page), PageId(u64::from(page)), |_| true);
            if let Ok(Some(Key(victim))) = left {
                let was = std::mem::take(&mut self.copies[victim as usize]);
                if was == Copy::Dirty {
                    io.read_flash();
                    io.write_home(victim);
                }
            }
        }
        self.copies[page as usize] = copy;
        io.write_flash();
    }
}

impl FlashTier for PolicyTier {
    fn fetch(&mut self, miss: &Miss, io: &mut Traffic) -> Option<History> {
        if self.holds(miss.page) && self.policy.hit(Key(miss.page)) {
            io.read_flash();
            return Some(History::once(miss.now));
        }
        io.read_home(miss.page);
        None
    }

    fn change(&mut self, page: u32) {
        self.copies[page as usize] = Copy::Stale;
    }

    fn leave(&mut self, leaving: &Leaving, io: &mut Traffic) {
        let page = leaving.page;
        match (leaving.dirty, self.mode) {
            (false, _) if self.holds(page) => {}
            (false, _) => self.write(page, Copy::Clean, io),
            (true, WriteMode::Back) => self.write(page, Copy::Dirty, io),
            (true, WriteMode::Through) => {
                io.write_home(page);
                self.write(page, Copy::Clean, io);
            }
            (true, WriteMode::Around) => {
                io.write_home(page);
                if self.policy.is_cached(Key(page)) {
                    self.policy.remove(Key(page));
                }
            }
        }
    }

    fn holds(&self, page: u32) -> bool {
        self.copies[page as usize] != Copy::Stale
    }
}
