//! What survives a power cut: completed writes that no barrier has covered, kept until one does.
//!
//! - U1: `before` holds each page that an uncovered write touched, as it is on the medium.
//! - U2: the medium is the store with all pages of `before` put back; applying the uncovered writes
//!   in order of completion gives the store.
//! - With the write cache off nothing is ever uncovered.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use terrace_rt::Prng;

use crate::slab::{IMAGE_SIZE, Image};
use crate::store::{Piece, Store};

/// What a power cut did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutReport {
    /// Writes that were in flight or not covered by a barrier.
    pub exposed: u64,
    /// Pieces of them (pages, or parts of one) that are on the medium, whole.
    pub kept: u64,
    /// Pieces that are not.
    pub dropped: u64,
    /// Pieces of which some sectors are.
    pub torn: u64,
}

/// The uncovered writes of a device.
#[derive(Default)]
pub(super) struct Uncovered {
    before: BTreeMap<u64, Option<Arc<Image>>>,
    /// Number of completion and pieces, in order.
    writes: VecDeque<(u64, Vec<Piece>)>,
    completed: u64,
}

impl Uncovered {
    /// Applies a completed write to `store`, remembering what it covers.
    pub(super) fn apply(&mut self, store: &mut Store, pieces: Vec<Piece>) {
        for piece in &pieces {
            let page = piece.page();
            self.before.entry(page).or_insert_with(|| store.page_image(page));
            store.apply(piece);
        }
        self.completed += 1;
        self.writes.push_back((self.completed, pieces));
    }

    /// The number of the last completed write: what a barrier that begins now covers.
    pub(super) fn mark(&self) -> u64 {
        self.completed
    }

    /// A barrier has covered all writes up to `mark`.
    pub(super) fn cover(&mut self, mark: u64, store: &Store) {
        if self.writes.back().is_none_or(|(number, _)| *number <= mark) {
            self.writes.clear();
            self.before.clear();
            return;
        }
        let mut medium = store.blank();
        for (page, image) in &self.before {
            medium.restore(*page, image.clone());
        }
        while self.writes.front().is_some_and(|(number, _)| *number <= mark) {
            let (_, pieces) = self.writes.pop_front().expect("just seen");
            pieces.iter().for_each(|piece| medium.apply(piece));
        }
        let touched = self.writes.iter().flat_map(|(_, pieces)| pieces.iter().map(Piece::page));
        self.before = touched.map(|page| (page, medium.page_image(page))).collect();
    }

    /// Makes `store` what a cut leaves, given the writes that were in flight.
    pub(super) fn cut(
        &mut self,
        store: &mut Store,
        in_flight: Vec<Vec<Piece>>,
        tearing: Tearing,
        prng: &mut Prng,
    ) -> CutReport {
        for (page, image) in std::mem::take(&mut self.before) {
            store.restore(page, image);
        }
        let uncovered = std::mem::take(&mut self.writes).into_iter().map(|(_, pieces)| pieces);
        let mut exposed: Vec<Vec<Piece>> = uncovered.chain(in_flight).collect();
        let mut report = CutReport { exposed: exposed.len() as u64, ..CutReport::default() };
        let mood = Mood::roll(prng);
        if mood == Mood::Mixed {
            prng.shuffle(&mut exposed);
        }
        for piece in exposed.iter().flatten() {
            strike(store, piece, (mood, tearing), prng, &mut report);
        }
        report
    }
}

/// Where a power cut may end a write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tearing {
    /// Between any two sectors.
    Sectors,
    /// Between two pages only.
    Pages,
}

/// How a whole cut goes: the extremes are likely enough to be tested.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    AllKept,
    AllDropped,
    Mixed,
}

impl Mood {
    fn roll(prng: &mut Prng) -> Mood {
        match prng.below(6) {
            0 => Mood::AllKept,
            1 => Mood::AllDropped,
            _ => Mood::Mixed,
        }
    }
}

fn strike(
    store: &mut Store,
    piece: &Piece,
    (mood, tearing): (Mood, Tearing),
    prng: &mut Prng,
    report: &mut CutReport,
) {
    let whole = ((1u32 << piece.sectors()) - 1) as u16;
    let mask = match (mood, prng.below(3)) {
        (Mood::AllKept, _) | (Mood::Mixed, 0) => whole,
        (Mood::AllDropped, _) | (Mood::Mixed, 1) => 0,
        _ if tearing == Tearing::Pages => whole * prng.below(2) as u16,
        _ => prng.next_u64() as u16 & whole,
    };
    if mask == whole {
        store.apply(piece);
        report.kept += 1;
    } else if mask == 0 {
        report.dropped += 1;
    } else {
        store.apply_torn(piece, mask);
        report.torn += 1;
    }
}

/// Flips one bit of the page at `offset`.
pub(super) fn rot(store: &mut Store, offset: u64, prng: &mut Prng) {
    let page = offset / IMAGE_SIZE as u64;
    let first = page * IMAGE_SIZE as u64;
    let len = (store.len() - first).min(IMAGE_SIZE as u64) as usize;
    let mut bytes = vec![0; len];
    if store.read(first, &mut bytes).is_ok() {
        let bit = prng.below(8 * len as u64) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
        store.write(first, &bytes);
    }
}
