//! What leaves flash in the driver without devices: cleaned pages, and groups of an append log.

use terrace_page::{Lsn, PageId};
use terrace_tier::{
    Claim, Cleaned, Ended, Front, Goes, Gone, Leaver, Moved, Purpose, Root, SlotState, UntilSync,
};

use crate::{Dice, GROUP, Transfer, World};

/// A group that leaves, and what of it is under way.
pub struct Group {
    pub front: Front,
    pub moving: Vec<(Leaver, Lsn)>,
    pub homeward: Vec<(Claim, Lsn)>,
    pub at_home: Vec<(PageId, u32)>,
}

impl World {
    pub fn claim(&mut self) {
        let root = [Root::First, Root::Wanted, Root::Below(Lsn(u64::MAX / 2))]
            [self.prng.below(3) as usize];
        let going_home = &self.going_home;
        let Some((slot, _)) = self.tier.root(root, |page| !going_home.contains(&page)) else {
            return;
        };
        let claim = self.tier.claim_root(slot);
        let version = self.version_in(claim.page(), slot);
        assert!(self.going_home.insert(claim.page()));
        self.claims.push((claim, version));
    }

    /// Ends a claim. Whether home has the page.
    pub fn end_claim(&mut self, (claim, version): (Claim, Lsn)) -> bool {
        let (page, slot) = (claim.page(), claim.slot());
        let is_at_home = self.prng.below(8) > 0;
        if is_at_home {
            self.write_home(page, version);
        }
        assert!(self.going_home.remove(&page));
        let how = if is_at_home { Cleaned::AtHome } else { Cleaned::NotYet };
        let until_sync = [UntilSync::Reusable, UntilSync::Pinned][usize::from(self.keeps_bases)];
        let ended = self.tier.cleaned(claim, how, until_sync);
        assert_eq!(ended == Ended::Clean, self.tier.state(slot) == SlotState::Clean);
        is_at_home
    }

    /// Pages of memory are appended.
    pub fn append(&mut self) {
        if self.design.batch().is_none() {
            return;
        }
        let wanted: Vec<PageId> = (0..GROUP).filter_map(|_| self.any_unlatched()).collect();
        let mut appending = {
            let dice = dice!(self);
            self.tier.append(wanted.len() as u32, &dice)
        };
        if let Some(front) = appending.front.take() {
            self.begin_group(front);
        }
        for page in wanted {
            if self.is_latched(page) || !self.memory.contains_key(&page) {
                continue;
            }
            let candidate = self.candidate(page);
            let has_copy = candidate.slot.is_some_and(|slot| self.tier.is_valid(slot));
            let put = {
                let dice = dice!(self);
                self.tier.put(&mut appending, &candidate, &dice)
            };
            let Some((writing, changed)) = put else { break };
            assert_eq!(changed.is_some(), has_copy, "{page}");
            if let Some(changed) = changed {
                self.was_changed(page, (changed.newer, changed.slot));
            }
            let frame = self.memory[&page];
            self.transfers.push(Transfer { writing, purpose: Purpose::Evict, frame });
        }
    }

    fn begin_group(&mut self, mut front: Front) {
        let leavers = std::mem::take(&mut front.leavers);
        while let Some(displaced) = self.tier.drop_next(&mut front) {
            self.lost(displaced);
        }
        let (moving, homeward, at_home) = (Vec::new(), Vec::new(), Vec::new());
        let mut group = Group { front, moving, homeward, at_home };
        for leaver in leavers {
            let (page, slot) = (leaver.page(), leaver.slot());
            let version = self.version_in(page, slot);
            let is_here = self.memory.contains_key(&page) && !self.is_latched(page);
            match leaver.goes() {
                Goes::Home if self.tier.rotates() && is_here => self.take_over(page, slot),
                Goes::Home => {
                    group.homeward.push((self.tier.claim_leaver(slot), version));
                    assert!(self.going_home.insert(page));
                }
                Goes::To(_) => group.moving.push((leaver, version)),
            }
        }
        self.groups.push(group);
    }

    /// A group goes on: second chances have moved, then what must be written home is there, then it
    /// is gone.
    pub fn go_on(&mut self) {
        if self.groups.is_empty() {
            return;
        }
        let at = self.prng.below(self.groups.len() as u64) as usize;
        let mut group = self.groups.swap_remove(at);
        if let Some((leaver, version)) = group.moving.pop() {
            if self.tier.is_read(leaver.slot()) {
                group.moving.push((leaver, version));
            } else {
                self.move_on(&mut group, leaver, version);
            }
        } else if let Some(claim) = group.homeward.pop() {
            let (page, slot) = (claim.0.page(), claim.0.slot());
            if self.end_claim(claim) {
                group.at_home.push((page, slot));
            }
        } else if let Some((page, slot)) = group.at_home.pop() {
            match self.tier.is_read(slot) {
                true => group.at_home.push((page, slot)),
                false => {
                    let is_needed = self.tier.is_pinned(slot);
                    let dropped = self.tier.dropped(page, slot);
                    assert!(dropped.is_none() || !is_needed, "{page} is dropped before a sync");
                    dropped.into_iter().for_each(|it| self.lost(it));
                }
            }
        } else {
            let run = group.front.run();
            let is_free = self.tier.is_free_run(run);
            assert_eq!(self.tier.gone(group.front) == Gone::Free, is_free);
            return;
        }
        self.groups.push(group);
    }

    fn move_on(&mut self, group: &mut Group, leaver: Leaver, version: Lsn) {
        let (page, from) = (leaver.page(), leaver.slot());
        let is_written = self.prng.below(8) > 0;
        let Goes::To(to) = leaver.goes() else { unreachable!("it moves") };
        if let (Some(to), true) = (to, is_written) {
            self.flash[to as usize] = Some((page, version));
        }
        match self.tier.moved(leaver, is_written) {
            Moved::On { to, is_base, newer } => {
                assert_eq!(self.slot(page), Some(from));
                assert!(!is_base || newer.is_some());
                self.slots[page.0 as usize] = Some(to);
                if self.keeps_bases {
                    self.retired.push(from);
                }
            }
            Moved::Home(claim) => {
                assert!(self.going_home.insert(page), "{page}");
                group.homeward.push((claim, version));
            }
            Moved::Dropped(displaced) => self.lost(displaced),
            Moved::Stays => {}
        }
    }
}
