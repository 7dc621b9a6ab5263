//! What a replacement policy answers, and what its owner tells it (replacement.R1 to
//! replacement.R4).

use terrace_page::PageId;

/// What an owner calls a page: a number below the count that the policy was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u32);

/// Nothing was inserted: the cache is full, and no key may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoneMayLeave;

/// The state of a replacement policy.
pub trait Replace {
    /// The page of `key` is used. `false`, and nothing else, if it is not cached.
    fn hit(&mut self, key: Key) -> bool;

    /// Caches `key`, which was missed and stands for `page`; names what leaves for it if the cache
    /// is full. What leaves may be `key` itself: then it is not cached.
    ///
    /// # Errors
    ///
    /// If the cache is full and nothing may leave.
    fn insert(
        &mut self,
        key: Key,
        page: PageId,
        may_leave: impl FnMut(Key) -> bool,
    ) -> Result<Option<Key>, NoneMayLeave>;

    /// Takes out the key that would leave next, for an owner that wants room. `None` if none may.
    fn evict(&mut self, may_leave: impl FnMut(Key) -> bool) -> Option<Key>;

    /// Forgets `key`, cached or ghost: its page is gone.
    fn remove(&mut self, key: Key);

    /// Keys that the policy knows nothing about any more, for the owner to drain; if it was made
    /// to tell.
    fn forgotten(&mut self) -> &mut Vec<Key>;
}

/// What a policy can say without changing.
pub trait Look {
    /// Whether `key` is cached.
    fn is_cached(&self, key: Key) -> bool;

    /// Bytes allocated.
    fn bytes(&self) -> usize;
}

/// Whether an owner wants to hear of forgotten keys. One that gives each page a number for good
/// does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgetting {
    /// `forgotten` names them; the owner drains it.
    Told,
    /// `forgotten` stays empty.
    Silent,
}

/// What a policy is made for.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Pages that may be cached: at least one.
    pub capacity: u32,
    /// Keys are below this.
    pub keys_count: u32,
    /// Whether the owner wants to hear of forgotten keys.
    pub forgetting: Forgetting,
    /// All chance of the policy follows from it.
    pub seed: u64,
}

/// Collects forgotten keys, if the caller wants them.
pub(super) struct Forgotten {
    pub keys: Vec<Key>,
    forgetting: Forgetting,
}

impl Forgotten {
    pub fn new(forgetting: Forgetting) -> Forgotten {
        Forgotten { keys: Vec::new(), forgetting }
    }

    #[inline]
    pub fn push(&mut self, key: u32) {
        if self.forgetting == Forgetting::Told {
            self.keys.push(Key(key));
        }
    }
}

/// `percent` percent of `capacity`, rounded down, but at least one.
pub(super) fn share(capacity: u32, percent: u32) -> u32 {
    ((u64::from(capacity) * u64::from(percent) / 100) as u32).max(1)
}
