//! TAC, over the same temperatures and slots as the pool, or slots in bands [S4 3].
//!
//! - H1: a page that is read from home is written to flash if its extent is warm enough: at once,
//!   or as the engine does, by a task that comes after whoever asked for the page. He goes on until
//!   he has to wait: until time passes in the trace, or memory misses. If he has changed the page
//!   by then, it is not written [S0 4.2]. Nothing else is waited for: the flash has no queue here.
//! - H2: a slot whose page was changed stays its page's, out of the heap, until the page is
//!   written home: then it is written there again.

use super::copies::Copies;
use super::ranking::Ranking;
use super::residents::Residents;
use super::{Allocated, FlashSetup, FlashTier, Held, Leaving, Miss, Note, TacWrite, Traffic};
use crate::places::Places;
use terrace_page::{PageId, SlotId};
use terrace_policy::{History, Temperatures};

pub struct TemperatureTier {
    temperatures: Temperatures,
    ranking: Ranking,
    ids: Vec<PageId>,
    copies: Copies,
    when: TacWrite,
    /// A page that was read and is still to be written.
    pending: Option<u32>,
}

impl TemperatureTier {
    pub fn new(places: &Places, setup: &FlashSetup) -> TemperatureTier {
        let ids = places.by_extents();
        let aging = if setup.tac_aging == 0 { u64::from(setup.slots) } else { setup.tac_aging };
        TemperatureTier {
            temperatures: Temperatures::new(setup.saved, aging),
            ranking: Ranking::new(setup.slots, setup.tac_rule, setup.bands),
            copies: Copies::new(ids.len() as u32, setup.slots),
            ids,
            when: setup.tac_write,
            pending: None,
        }
    }

    /// A slot for `page`, if its extent is warm enough; not that of `read`, which is being read.
    fn admitted(&mut self, page: u32, read: Option<SlotId>) -> Option<SlotId> {
        if let Some(slot) = self.ranking.take_free() {
            return Some(slot);
        }
        let (copies, ids) = (&self.copies, &self.ids);
        let id_of = |slot| ids[copies.page(slot).expect("a ranked slot has a page") as usize];
        let open = |slot| Some(slot) != read;
        let (ranking, temperatures) = (&mut self.ranking, &self.temperatures);
        let victim = ranking.victim_for(ids[page as usize], temperatures, id_of, open)?;
        self.ranking.remove(victim);
        self.copies.empty(victim);
        Some(victim)
    }

    /// A page that was read from home is written, if it is admitted.
    fn write_read(&mut self, page: u32, read: Option<SlotId>, io: &mut Traffic) {
        if self.held(page).is_current() {
            return;
        }
        if let Some(slot) = self.copies.slot(page).or_else(|| self.admitted(page, read)) {
            self.write(slot, page, io);
        }
    }

    /// Whoever asked for the page waits, or is done.
    fn write_pending(&mut self, read: Option<SlotId>, io: &mut Traffic) {
        if let Some(page) = self.pending.take() {
            self.write_read(page, read, io);
        }
    }

    fn write(&mut self, slot: SlotId, page: u32, io: &mut Traffic) {
        self.copies.put(page, slot, Held::Clean);
        self.ranking.insert(slot, self.ids[page as usize], &self.temperatures);
        io.write_flash();
    }
}

impl Allocated for TemperatureTier {
    fn bytes(&self) -> usize {
        let ids = self.ids.capacity() * size_of::<PageId>();
        ids + self.temperatures.bytes() + self.ranking.bytes() + self.copies.bytes()
    }
}

impl FlashTier for TemperatureTier {
    fn fetch(&mut self, miss: &Miss, _: &mut Residents, io: &mut Traffic) -> Option<History> {
        let page = miss.page;
        self.temperatures.on_miss(self.ids[page as usize], miss.requests);
        if self.held(page) == Held::Clean {
            io.read_flash();
            let slot = self.copies.slot(page);
            if let Some(slot) = slot {
                self.ranking.hit(slot, self.ids[page as usize], &self.temperatures);
            }
            self.write_pending(slot, io);
            return Some(History::once(miss.now));
        }
        io.read_home(page);
        self.write_pending(None, io);
        match self.when {
            TacWrite::AtOnce => self.write_read(page, None, io),
            TacWrite::Behind => self.pending = Some(page),
        }
        None
    }

    fn note(&mut self, note: Note, io: &mut Traffic) {
        let page = match note {
            Note::TimePasses => return self.write_pending(None, io),
            Note::Changes(page) => page,
        };
        self.pending = self.pending.filter(|&pending| pending != page);
        if let Some(slot) = self.copies.slot(page)
            && self.held(page) == Held::Clean
        {
            self.ranking.remove(slot);
            self.copies.set(page, Held::Stale);
        }
    }

    fn leave(&mut self, leaving: &Leaving, io: &mut Traffic) {
        if !leaving.dirty {
            return;
        }
        io.write_home(leaving.page);
        if let Some(slot) = self.copies.slot(leaving.page) {
            self.write(slot, leaving.page, io);
        }
    }

    #[inline]
    fn held(&self, page: u32) -> Held {
        self.copies.held(page)
    }
}
