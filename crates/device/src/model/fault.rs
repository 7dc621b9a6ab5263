//! The faults of modelled devices, and which data must survive each.
//!
//! - **Power cut, write cache off.** Writes in flight are absent, whole, or torn at 512-byte
//!   sectors, in any order. Every completed write must survive.
//! - **Power cut, write cache on.** The same for every write that no `sync` has covered. Every
//!   write completed before a `sync` that returned `Ok` must survive.
//! - **Read error**: the read fails once. All data survive; reading again succeeds.
//! - **Latent sector error**: a page cannot be read until it is written again. All others survive.
//! - **Write error**: the write fails. Its range holds the old data, like all the rest.
//! - **Full device**: writes and reservations past a limit fail and change nothing. All data
//!   survive.
//! - **Bit rot**: a bit of a stored page flips while it is read. All other pages survive; a
//!   checksum sees it.
//! - **Lost write**: it is reported complete and never happens. All else survives.
//! - **Misdirected write**: it lands on another page, whose data are gone. All but the two survive.
//! - **Stall**: a request takes much longer. All data survive.
//! - **Silence**: from some request on nothing is answered, `sync` neither, and nothing is written.
//!   What was durable survives, if the device comes back.
//! - **Death**: from some request on everything fails, `sync` too. What was durable survives, if
//!   the device comes back.
//!
//! A lost write leaves an old page with a right checksum and a right page id: only a page LSN from
//! elsewhere tells. Rates are per request; zero switches a fault off. All chance comes from `seed`.

use std::collections::BTreeSet;
use std::io;

use terrace_rt::{Nanos, Prng};

use crate::Op;
use crate::slab::IMAGE_SIZE;

/// Which faults a device makes, and how often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Decides every fault.
    pub seed: u64,
    /// One in this number of reads fails once.
    pub read_error_one_in: u64,
    /// One in this number of reads finds its first page unreadable until it is written again.
    pub latent_error_one_in: u64,
    /// One in this number of reads finds a bit of its first page flipped, for good.
    pub bit_rot_one_in: u64,
    /// One in this number of writes fails.
    pub write_error_one_in: u64,
    /// One in this number of writes is reported complete and never happens.
    pub lost_write_one_in: u64,
    /// One in this number of writes lands on another page.
    pub misdirected_write_one_in: u64,
    /// One in this number of requests takes `stall` longer.
    pub stall_one_in: u64,
    /// How much longer.
    pub stall: Nanos,
    /// Writes and reservations that end past this byte fail as on a full device. `set_full_from`
    /// moves it.
    pub full_from: Option<u64>,
    /// The device dies when it has accepted this number of requests.
    pub dies_after: Option<u64>,
    /// The device falls silent when it has accepted this number of requests.
    pub silent_after: Option<u64>,
}

/// What becomes of a request, decided when it is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Well,
    Fails(io::ErrorKind),
    BitRot,
    Lost,
    Misdirected,
    /// It is never answered.
    Silent,
}

/// The faults and what they have done.
pub(super) struct FaultState {
    faults: Faults,
    prng: Prng,
    accepted: u64,
    dead: bool,
    silent: bool,
    /// Pages that cannot be read.
    unreadable: BTreeSet<u64>,
}

impl FaultState {
    pub(super) fn new(faults: Faults) -> FaultState {
        let prng = Prng::from_seed(faults.seed);
        let unreadable = BTreeSet::new();
        FaultState { faults, prng, accepted: 0, dead: false, silent: false, unreadable }
    }

    pub(super) fn faults(&self) -> &Faults {
        &self.faults
    }

    pub(super) fn prng(&mut self) -> &mut Prng {
        &mut self.prng
    }

    /// Pages that stay unreadable, for the device's next life.
    pub(super) fn unreadable(&self) -> &BTreeSet<u64> {
        &self.unreadable
    }

    pub(super) fn adopt_unreadable(&mut self, pages: &BTreeSet<u64>) {
        self.unreadable.clone_from(pages);
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead
    }

    pub(super) fn set_dead(&mut self, dead: bool) {
        self.dead = dead;
    }

    pub(super) fn is_silent(&self) -> bool {
        self.silent
    }

    pub(super) fn set_silent(&mut self, silent: bool) {
        self.silent = silent;
    }

    pub(super) fn set_full_from(&mut self, limit: Option<u64>) {
        self.faults.full_from = limit;
    }

    /// Whether a write that ends at `end` meets a full device.
    pub(super) fn is_full(&self, end: u64) -> bool {
        self.faults.full_from.is_some_and(|limit| end > limit)
    }

    /// Decides over a request, and how much longer it takes.
    pub(super) fn decide(&mut self, op: Op, offset: u64, len: u64) -> (Fate, Nanos) {
        self.accepted += 1;
        if self.faults.dies_after.is_some_and(|limit| self.accepted > limit) {
            self.dead = true;
        }
        if self.dead {
            return (Fate::Fails(io::ErrorKind::NotConnected), Nanos::ZERO);
        }
        self.silent |= self.faults.silent_after.is_some_and(|limit| self.accepted > limit);
        if self.silent {
            return (Fate::Silent, Nanos::ZERO);
        }
        let stalls = self.hits(self.faults.stall_one_in);
        let stall = if stalls { self.faults.stall } else { Nanos::ZERO };
        let fate = match op {
            Op::Read => self.decide_read(offset, len),
            Op::Write => self.decide_write(offset, len),
        };
        (fate, stall)
    }

    fn decide_read(&mut self, offset: u64, len: u64) -> Fate {
        let first = offset / IMAGE_SIZE as u64;
        if self.hits(self.faults.latent_error_one_in) {
            self.unreadable.insert(first);
        }
        let past = (offset + len).div_ceil(IMAGE_SIZE as u64);
        let unreadable = self.unreadable.range(first..past).next().is_some();
        if unreadable || self.hits(self.faults.read_error_one_in) {
            return Fate::Fails(io::ErrorKind::Other);
        }
        if self.hits(self.faults.bit_rot_one_in) { Fate::BitRot } else { Fate::Well }
    }

    fn decide_write(&mut self, offset: u64, len: u64) -> Fate {
        if self.is_full(offset + len) {
            return Fate::Fails(io::ErrorKind::StorageFull);
        }
        if self.hits(self.faults.write_error_one_in) {
            return Fate::Fails(io::ErrorKind::Other);
        }
        if self.hits(self.faults.lost_write_one_in) {
            return Fate::Lost;
        }
        if self.hits(self.faults.misdirected_write_one_in) {
            return Fate::Misdirected;
        }
        Fate::Well
    }

    /// Takes note that a page was written, which mends it.
    pub(super) fn written(&mut self, page: u64) {
        if !self.unreadable.is_empty() {
            self.unreadable.remove(&page);
        }
    }

    fn hits(&mut self, one_in: u64) -> bool {
        one_in > 0 && self.prng.chance(one_in)
    }
}
