//! What one transaction holds: its own map, so that a lock held is found without the lock table.
//!
//! An open-addressing table of indices into a list in order of acquisition. Both keep their memory
//! from one transaction to the next.

use super::{Modes, Resource};

/// The locks of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Held {
    list: Vec<(Resource, Modes)>,
    /// Index into `list` plus one, zero for free; a power of two long, at most half full.
    places: Vec<u32>,
}

/// A resource that was looked for.
#[derive(Debug)]
pub(crate) struct Found {
    resource: Resource,
    place: usize,
    /// The modes in which it is held.
    pub(crate) modes: Modes,
}

/// A transaction that held more gives the memory back.
const KEPT_PLACES: usize = 1 << 14;
/// With fewer than one lock per this number of places, the places are cleared one by one.
const FEW_IN: usize = 16;
const FIRST_PLACES: usize = 64;

impl Held {
    /// The modes in which `resource` is held.
    #[inline]
    pub(crate) fn modes(&self, resource: Resource) -> Modes {
        if self.places.is_empty() {
            return Modes::NONE;
        }
        match self.places[self.place(resource)] {
            0 => Modes::NONE,
            index => self.list[index as usize - 1].1,
        }
    }

    /// Where `resource` is, or would be.
    #[inline]
    pub(crate) fn find(&mut self, resource: Resource) -> Found {
        if self.places.len() < 2 * (self.list.len() + 1) {
            self.widen();
        }
        let place = self.place(resource);
        let modes = match self.places[place] {
            0 => Modes::NONE,
            index => self.list[index as usize - 1].1,
        };
        Found { resource, place, modes }
    }

    /// Notes that `resource` is held in `modes` too.
    #[inline]
    pub(crate) fn add(&mut self, resource: Resource, modes: Modes) {
        let found = self.find(resource);
        self.add_found(&found, modes);
    }

    /// As `add`, for what was looked for, if nothing was added since.
    #[inline]
    pub(crate) fn add_found(&mut self, found: &Found, modes: Modes) {
        match self.places[found.place] {
            0 => {
                self.list.push((found.resource, modes));
                self.places[found.place] = self.list.len() as u32;
            }
            index => {
                let held = &mut self.list[index as usize - 1].1;
                *held = held.and(modes);
            }
        }
    }

    /// How many resources are held.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Every resource, in order of acquisition.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Resource> + '_ {
        self.list.iter().map(|(resource, _)| *resource)
    }

    /// Forgets them all.
    pub(crate) fn clear(&mut self) {
        if self.list.is_empty() && self.places.len() <= KEPT_PLACES {
            // A reader takes no locks. To fill no bytes at no address may cost 70 ns: a store whose
            // mask is empty, to a page that does not exist, takes a microcode assist.
            return;
        }
        if self.places.len() > KEPT_PLACES {
            self.places = Vec::new();
            self.list = Vec::new();
        } else if self.list.len() * FEW_IN < self.places.len() {
            // The last one first: a place is found by those before it.
            while let Some((resource, _)) = self.list.last() {
                let place = self.place(*resource);
                self.places[place] = 0;
                self.list.pop();
            }
        } else {
            self.places.fill(0);
            self.list.clear();
        }
    }

    /// Where `resource` is, or would be put.
    #[inline]
    fn place(&self, resource: Resource) -> usize {
        let mask = self.places.len() - 1;
        let mut at = resource.hash() & mask;
        loop {
            match self.places[at] {
                0 => return at,
                index if self.list[index as usize - 1].0 == resource => return at,
                _ => at = (at + 1) & mask,
            }
        }
    }

    #[cold]
    fn widen(&mut self) {
        let places = (self.places.len() * 2).max(FIRST_PLACES);
        self.places.clear();
        self.places.resize(places, 0);
        for index in 0..self.list.len() {
            let place = self.place(self.list[index].0);
            self.places[place] = index as u32 + 1;
        }
    }
}
