//! An append log: what is written at its rear, and what leaves at its front to make room for it
//! [S2 2; S0 5].
//!
//! ```text
//!              append          the driver reads         moved                     dropped, gone
//! drop_next:   FREE
//! Goes::To     (another slot)  what goes somewhere      the other slot CLEAN|DIRTY
//! Goes::Home   claim_leaver    and writes it home       cleaned                   FREE
//!                                                                      the group has left
//! ```
//!
//! - O1: a slot that is in a group that is leaving is not the cleaner's: the task that lets the
//!   group leave writes home what must be written there.
//! - O2: a page that moves on is in its old slot until its new one is written, and from then on in
//!   the new one: entry, version and mark move in one call.
//! - O3: a page that cannot get its second chance is written home, if home lacks it, or is dropped.
//!   A base that cannot move keeps its group.
//! - O4: a group of which a slot still holds something when it is `gone` is stuck: the log takes it
//!   back when the next group is appended, or later, as soon as all its slots are free.
//! - O5: slots are taken in the order in which pages are `put`, behind the second chances.

use terrace_page::{Lsn, PageId, SlotId};
use terrace_policy::{Leave, Replacement};

use super::leaving::{Candidate, Writing};
use super::{BaseRule, Changed, Claim, FREE, SlotTable};
use crate::order::Leaving;
use crate::{Around, Displaced, Shares, SlotOrder};

/// What can be appended now.
#[must_use]
#[derive(Debug)]
pub struct Appending {
    /// Slots that leave to make room, if some do.
    pub front: Option<Front>,
    /// Whether groups that were stuck have left: slots are free.
    pub has_freed: bool,
    /// Slots that `put` may still take.
    room: u32,
    is_blocked: bool,
}

impl Appending {
    /// Pages that may still be `put`.
    pub fn room(&self) -> u32 {
        self.room
    }

    /// Whether nothing can be written, and nothing leaves that would make room.
    pub fn is_blocked(&self) -> bool {
        self.is_blocked
    }
}

/// A group of slots that is leaving: it ends with `gone`.
#[must_use]
#[derive(Debug)]
pub struct Front {
    run: Run,
    /// Pages that home has, the first one last: they lose their slots one by one, so that a driver
    /// finds each of the others where it was.
    dropping: Vec<Displaced>,
    /// Pages that go somewhere, in the order of their slots: each ends by itself.
    pub leavers: Vec<Leaver>,
}

impl Front {
    /// Its slots.
    pub fn run(&self) -> Run {
        self.run
    }
}

/// Slots next to each other, of a table where the first follows the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    first: u32,
    slots: u32,
    count: u32,
    is_given_away: bool,
}

impl Run {
    /// The slots, in order.
    pub fn slots(self) -> impl Iterator<Item = u32> {
        (0..self.slots).map(move |at| (self.first + at) % self.count)
    }
}

/// A page that leaves its slot for somewhere else.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct Leaver {
    page: PageId,
    slot: u32,
    goes: Goes,
}

/// Where a page goes that leaves its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goes {
    /// Home: `claim_leaver`, or `changes` if memory takes over what home lacks.
    Home,
    /// To the rear, into a slot in WRITING, if one was left for it: `moved`.
    To(Option<u32>),
}

impl Leaver {
    /// The page.
    pub fn page(&self) -> PageId {
        self.page
    }

    /// The slot that it leaves.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Where it goes.
    pub fn goes(&self) -> Goes {
        self.goes
    }
}

/// What became of a page that was to move to the rear.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub enum Moved {
    /// It is in slot `to`: the driver writes down that it has that one.
    On {
        /// Its slot from now on.
        to: u32,
        /// Lower bound of its first change that home lacks, if there is one.
        newer: Option<Lsn>,
        /// Whether it is a base of its page.
        is_base: bool,
    },
    /// It could not move, and is written home (O3).
    Home(Claim),
    /// It could not move, and home has it: it lost its slot.
    Dropped(Displaced),
    /// It is no longer there, or a base that cannot move.
    Stays,
}

/// Whether a group has left.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// Its slots are free.
    Free,
    /// Some still hold something (O4).
    Stuck,
}

impl<O: SlotOrder, S: Shares> SlotTable<O, S> {
    /// Slots that the next pages to be appended get as one run; none if a group must leave first.
    pub fn run_ahead(&self) -> u32 {
        self.log().map_or(0, |log| log.run(self.sizes.group))
    }

    /// Whether a page that leaves memory is appended, if it `has_slot`.
    #[inline]
    pub fn wants(&self, is_dirty: bool, has_slot: bool) -> bool {
        self.design.appends(is_dirty, has_slot)
    }

    /// Whether memory takes over what home lacks of a page that leaves the log while it is there.
    pub fn rotates(&self) -> bool {
        self.design.replacement == Replacement::Rotating
    }

    /// `waiting` pages are to be appended: lets a group leave if few slots are free.
    ///
    /// # Panics
    ///
    /// If the slots are not those of an append log.
    pub fn append(&mut self, waiting: u32, around: &impl Around) -> Appending {
        let has_freed = self.end_stuck();
        let group = self.sizes.group;
        let ahead = self.sizes.ahead + waiting.min(group);
        let log = self.log_mut();
        let (free, leaving) = log.free_and_leaving();
        let run = log.run(group);
        let front = match free + leaving < ahead {
            true => self.begin_front(free.min(run), around),
            false => None,
        };
        let is_second = |leaver: &&Leaver| matches!(leaver.goes, Goes::To(_));
        let leavers = front.iter().flat_map(|front| &front.leavers);
        let again = leavers.filter(is_second).count() as u32;
        let is_stuck = leaving == 0 || !self.stuck.is_empty();
        let is_blocked = front.is_none() && free == 0 && is_stuck;
        Appending { front, has_freed, room: run.saturating_sub(again), is_blocked }
    }

    /// Takes the next slot at the rear for a page in memory, and forgets the copy that it has: what
    /// that had and home lacks is its driver's from now on. `None` if there is no room.
    #[must_use]
    pub fn put(
        &mut self,
        appending: &mut Appending,
        page: &Candidate,
        around: &impl Around,
    ) -> Option<(Writing, Option<Changed>)> {
        appending.room = appending.room.checked_sub(1)?;
        let to = self.alloc(page.page, around.now())?;
        self.issue(to);
        self.admissions.admitted += 1;
        // A base stays until the new copy is there.
        let valid = page.slot.filter(|&slot| self.is_valid(slot));
        let changed = valid.map(|slot| self.changes(slot, self.any_base()));
        let is_newer = changed.is_some_and(|changed| changed.newer.is_some());
        Some((Writing::into_slot(page.page, to, page.is_dirty || is_newer), changed))
    }

    /// Which copies are needed while home may lack changes of theirs.
    fn any_base(&self) -> BaseRule {
        if self.keeps_bases { BaseRule::ALL } else { BaseRule::Never }
    }

    /// Begins to let a group leave, of which up to `room` pages may go to the rear.
    fn begin_front(&mut self, room: u32, around: &impl Around) -> Option<Front> {
        around.was_full();
        let leaving = Leaving { group: self.sizes.group, room, now: around.now() };
        let mut answers = std::mem::take(&mut self.answers);
        self.leave_into(&leaving, |page| around.may_go_home(page), &mut answers);
        let front = answers.first().map(|&(first, _)| {
            let (slots, count) = (answers.len() as u32, self.count());
            let run = Run { first: first.0, slots, count, is_given_away: false };
            let mut dropping = Vec::with_capacity(answers.len());
            let mut leavers = Vec::with_capacity(answers.len());
            for &(SlotId(slot), leave) in &answers {
                let Some(page) = self.page(slot) else { continue };
                let goes = match leave {
                    Leave::Dropped => {
                        dropping.push(Displaced { page, slot });
                        continue;
                    }
                    Leave::Home => Goes::Home,
                    Leave::Again => Goes::To(self.alloc(page, around.now())),
                };
                if let Goes::To(Some(to)) = goes {
                    self.issue(to);
                }
                leavers.push(Leaver { page, slot, goes });
            }
            dropping.reverse();
            Front { run, dropping, leavers }
        });
        answers.clear();
        self.answers = answers;
        front
    }

    /// The next page of a group that begins to leave loses its slot, since home has it. All must
    /// have before anything is read or `put`.
    #[must_use]
    pub fn drop_next(&mut self, front: &mut Front) -> Option<Displaced> {
        let displaced = front.dropping.pop()?;
        self.drop_clean(displaced.slot);
        Some(displaced)
    }

    /// The rear was written, with the bytes of the page that moves on if `is_written`. Not while a
    /// task reads the slot that it leaves.
    pub fn moved(&mut self, leaver: Leaver, is_written: bool) -> Moved {
        let Leaver { page, slot, goes } = leaver;
        let Goes::To(to) = goes else { panic!("{page} moves to the rear") };
        let is_there = self.holds(slot, page);
        match to {
            Some(to) if is_there && is_written => return self.move_to(slot, to),
            Some(to) => self.give_back(to, false),
            None => {}
        }
        if !is_there || self.keeps_base(slot) {
            return Moved::Stays;
        }
        if self.newer(slot).is_some() {
            return Moved::Home(self.claim_leaver(slot));
        }
        self.drop_clean(slot);
        Moved::Dropped(Displaced { page, slot })
    }

    /// The bytes of `from` are in `to` (O2): WRITING -> CLEAN|DIRTY|INVALID, and `from` is FREE, or
    /// RETIRED until the table on flash says where its page is.
    fn move_to(&mut self, from: u32, to: u32) -> Moved {
        if self.keeps_base(from) {
            self.move_base(from, to);
            return Moved::On { to, newer: Some(self.rec(to)), is_base: true };
        }
        self.move_on(from, to, self.waits_for_table);
        Moved::On { to, newer: self.newer(to), is_base: false }
    }

    /// `page`, which left its group for home, is there: its slot is free, unless the page has
    /// changed since, or the copy is still needed. Not while a task reads the slot.
    #[must_use]
    pub fn dropped(&mut self, page: PageId, slot: u32) -> Option<Displaced> {
        let is_copy = self.holds(slot, page) && self.is_valid(slot) && !self.is_pinned(slot);
        is_copy.then(|| {
            self.drop_clean(slot);
            Displaced { page, slot }
        })
    }

    /// Whether none of the slots holds anything.
    pub fn is_free_run(&self, run: Run) -> bool {
        run.slots().all(|slot| self.states[slot as usize] == FREE)
    }

    /// The driver is done with a group.
    pub fn gone(&mut self, front: Front) -> Gone {
        let run = front.run;
        if !self.is_free_run(run) {
            self.stuck.push(run);
            return Gone::Stuck;
        }
        self.end_run(run);
        Gone::Free
    }

    fn end_run(&mut self, run: Run) {
        if !run.is_given_away {
            self.log_mut().left(SlotId(run.first));
        }
    }

    /// Breaks O4 for tests that must notice: the slots of a group are given away at once.
    #[doc(hidden)]
    pub fn give_away(&mut self, front: &mut Front) {
        front.run.is_given_away = true;
        self.log_mut().left(SlotId(front.run.first));
    }

    /// Groups that were stuck have left if nothing is in their slots any more. Whether some have.
    #[must_use]
    pub fn end_stuck(&mut self) -> bool {
        if self.stuck.is_empty() {
            return false;
        }
        let mut stuck = std::mem::take(&mut self.stuck);
        let before = stuck.len();
        stuck.retain(|&run| {
            let is_held = !self.is_free_run(run);
            if !is_held {
                self.end_run(run);
            }
            is_held
        });
        self.stuck = stuck;
        self.stuck.len() < before
    }

    /// The pages of which the slots keep bases.
    pub fn bases_in(&self, run: Run) -> impl Iterator<Item = PageId> + '_ {
        let bases = run.slots().filter(|&slot| self.keeps_base(slot));
        bases.filter_map(|slot| self.page(slot))
    }
}
