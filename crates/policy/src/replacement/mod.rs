//! Replacement: which page of a full cache leaves. `replace` is what a policy answers; then one
//! file for each policy; here the list makes one enum of them, dispatched statically.
//!
//! A policy works on [`Key`]s, small numbers that its owner gives to pages. A replay numbers all
//! pages of its trace; a pool numbers the pages that it holds and those that the policy still
//! remembers ([`ReplacementRow::keys_count`] are enough), and takes a number back when the policy
//! forgets it. So no policy hashes a page on a hit.
//!
//! ```text
//!              insert                        evict, insert of another
//!   unknown ------------> cached (hit) -------------------------------> ghost
//!      ^  ^                 |    ^                                     |   |
//!      |  +-----------------+    +-------------------------------------+   |
//!      |   evict, remove                         insert                    |
//!      +-------------------------------------------------------------------+
//!                    forgotten by any operation; remove
//! ```
//!
//! - R1: at most `capacity` keys are cached, but for what `insert` was told.
//! - R2: a key that may not leave keeps its place and its marks, and is asked about again.
//! - R3: a key is known from `insert` until it is named by `forgotten` or taken by `remove`; what
//!   was evicted and is no ghost is forgotten, too.
//! - R4: at most `keys_count` keys are known at a time.
//! - Cost: a search passes all keys that may not leave: an owner with many of those at the old end
//!   should take them out, or refuse a few only.

mod arc;
mod arena;
mod clock;
mod fifo;
mod lecar;
mod lirs;
mod lru;
mod lru_2;
mod replace;
mod s3_fifo;
mod sieve;
pub mod sketch;
mod two_q;
mod w_tinylfu;

#[cfg(test)]
mod models;

pub use replace::{Forgetting, Key, Look, NoneMayLeave, Replace, Setup};

use crate::designs::{self, UnknownName};
use terrace_page::PageId;

/// Work for whichever policy a name stands for, compiled for each of them.
pub trait Visitor {
    /// What the work gives.
    type Output;

    /// Does the work with `policy`, which is new.
    fn visit<P: Replace + Look + 'static>(self, policy: P) -> Self::Output;
}

/// The list: a line is a variant, its state, its name and title.
macro_rules! policies {
    ($($variant:ident($state:ty), $name:literal, $title:literal;)+) => {
        /// A replacement policy: a row of [`REPLACEMENTS`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ReplacementKind {
            $(#[doc = $title] $variant,)+
        }

        /// The replacement policies: the list that command, replay, tests and docs read.
        pub const REPLACEMENTS: &[ReplacementRow] = &[
            $(ReplacementRow { kind: ReplacementKind::$variant, name: $name, title: $title },)+
        ];

        impl ReplacementKind {
            /// Its row.
            ///
            /// # Panics
            ///
            /// Never: the list has all kinds.
            #[must_use]
            pub fn row(self) -> ReplacementRow {
                let row = REPLACEMENTS.iter().find(|row| row.kind == self);
                *row.expect("every kind has a row")
            }
        }

        /// The state of any replacement policy.
        pub enum ReplacementPolicy {
            $(#[doc = $title] $variant($state),)+
        }

        impl ReplacementPolicy {
            /// A new policy of this kind.
            ///
            /// # Panics
            ///
            /// If the capacity is zero, or keys do not fit 32 bits.
            #[must_use]
            pub fn new(kind: ReplacementKind, setup: Setup) -> ReplacementPolicy {
                match kind {
                    $(ReplacementKind::$variant => {
                        ReplacementPolicy::$variant(<$state>::new(setup))
                    })+
                }
            }
        }

        impl ReplacementRow {
            /// Calls `visitor` with a new policy, as its own type: no call is dispatched.
            pub fn visit<V: Visitor>(self, setup: Setup, visitor: V) -> V::Output {
                match self.kind {
                    $(ReplacementKind::$variant => visitor.visit(<$state>::new(setup)),)+
                }
            }

            /// Keys that an owner needs at most for a cache of `capacity` pages (replacement.R4).
            #[must_use]
            pub fn keys_count(self, capacity: u32) -> u32 {
                let ghosts = match self.kind {
                    $(ReplacementKind::$variant => <$state>::ghosts_max(capacity),)+
                };
                capacity.saturating_add(ghosts).saturating_add(1)
            }
        }

        impl Replace for ReplacementPolicy {
            fn hit(&mut self, key: Key) -> bool {
                match self {
                    $(ReplacementPolicy::$variant(state) => state.hit(key),)+
                }
            }

            fn insert(
                &mut self,
                key: Key,
                page: PageId,
                may_leave: impl FnMut(Key) -> bool,
            ) -> Result<Option<Key>, NoneMayLeave> {
                match self {
                    $(ReplacementPolicy::$variant(state) => state.insert(key, page, may_leave),)+
                }
            }

            fn evict(&mut self, may_leave: impl FnMut(Key) -> bool) -> Option<Key> {
                match self {
                    $(ReplacementPolicy::$variant(state) => state.evict(may_leave),)+
                }
            }

            fn remove(&mut self, key: Key) {
                match self {
                    $(ReplacementPolicy::$variant(state) => state.remove(key),)+
                }
            }

            fn forgotten(&mut self) -> &mut Vec<Key> {
                match self {
                    $(ReplacementPolicy::$variant(state) => state.forgotten(),)+
                }
            }
        }

        impl Look for ReplacementPolicy {
            fn is_cached(&self, key: Key) -> bool {
                match self {
                    $(ReplacementPolicy::$variant(state) => state.is_cached(key),)+
                }
            }

            fn bytes(&self) -> usize {
                match self {
                    $(ReplacementPolicy::$variant(state) => state.bytes(),)+
                }
            }
        }
    };
}

policies! {
    Lru(lru::Lru), "lru", "the oldest last use (LRU)";
    Fifo(fifo::Fifo), "fifo", "first in, first out";
    Clock(clock::Clock), "clock", "first in, first out, with a second chance (Corbato 1968)";
    Lru2(lru_2::Lru2), "lru-2", "the oldest use before the last (O'Neil et al. 1993)";
    TwoQ(two_q::TwoQ), "2q", "a queue for newcomers, and LRU for those that come back \
        (Johnson and Shasha 1994)";
    Arc(arc::Arc), "arc", "recency and frequency, balanced by their ghosts \
        (Megiddo and Modha 2003)";
    Lirs(lirs::Lirs), "lirs", "the longest time between two uses (Jiang and Zhang 2002)";
    S3Fifo(s3_fifo::S3Fifo), "s3-fifo", "three queues, first in, first out (Yang et al. 2023)";
    Sieve(sieve::Sieve), "sieve", "first in, first out, but for what was used since \
        (Zhang et al. 2024)";
    WTinyLfu(w_tinylfu::WTinyLfu), "w-tinylfu", "a window, then the more frequent stays \
        (Einziger et al. 2017)";
    LeCar(lecar::LeCar), "lecar", "LRU or LFU by chance, weighted by regret \
        (Vietri et al. 2018)";
}

/// A row of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplacementRow {
    /// Which it is.
    pub kind: ReplacementKind,
    /// Its name in commands and their output.
    pub name: &'static str,
    /// What it is and its authors, in a few words.
    pub title: &'static str,
}

/// The replacement policy called `name`.
///
/// # Errors
///
/// An unknown name; the message lists the known.
pub fn find(name: &str) -> Result<ReplacementRow, UnknownName> {
    designs::find_in("replacement policy", REPLACEMENTS, |row| row.name, name)
}
