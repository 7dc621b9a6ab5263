//! The way down: from the root to the node of a level that covers a key.
//!
//! Inner nodes without a latch where that can be (`way`), the last node latched, and checked by its
//! fences; see the latches in `btree`. The root never moves and has no fences, so that a descent
//! can always start over there.

use std::ops::Deref;

use terrace_page::{Damage, PageBuf, PageId};
use terrace_pool::{BufferPool, PageMut, PageRef, Peek, PoolError, Tier};
use terrace_rt::yield_now;

use super::node::{Joined, Node};
use super::way::Way;
use super::{Lockable, Tree};
use crate::writer::Reader;
use crate::{Error, KeyHash};

/// Each new start means that another task changed the structure in between: this number in one
/// descent means that the pages do not lead there.
const RESTARTS_MAX: u32 = 10_000;
/// Pages of zeroes that one descent passes by: see `Descent::Blank`.
const BLANKS_MAX: u32 = 2;
/// Restarts after which a task lets others go first.
const RESTARTS_EAGER: u32 = 8;

/// What a descent looks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seek<'k> {
    /// The node that covers this key.
    Key(&'k [u8]),
    /// The node that covers the keys just below this one.
    Below(&'k [u8]),
    /// The last node.
    Last,
}

impl Seek<'_> {
    fn is_in(self, node: &Node<'_>) -> bool {
        match self {
            Seek::Key(key) => node.covers(key),
            Seek::Below(key) => node.covers_below(key),
            Seek::Last => node.upper().is_none(),
        }
    }

    /// Which child of an inner node to go to.
    pub(super) fn child(self, node: &Node<'_>) -> usize {
        match self {
            Seek::Key(key) => node.child_of(key),
            Seek::Below(key) => node.child_below(key),
            Seek::Last => node.len(),
        }
    }
}

enum Descent<G> {
    Found(G),
    /// The root's level is below the one asked for.
    TooLow,
    /// The page is not, or no longer, what its parent said.
    Stale(PageId),
    /// The page is all zeroes at home: since its parent was read it has moved or was merged, and
    /// the room of its extent was given back. Or it is lost: then it is met again.
    Blank(PoolError),
}

/// Whether home has nothing of a page.
fn is_blank(error: &PoolError) -> bool {
    matches!(error, PoolError::Damaged { tier: Tier::Home, damage: Damage::Blank, .. })
}

impl Tree {
    /// The node in `page`, which a latch keeps as it is.
    ///
    /// # Errors
    ///
    /// `Corrupt` if there is none.
    pub(super) fn node<'a>(&self, id: PageId, page: &'a PageBuf) -> Result<Node<'a>, Error> {
        match Node::open(page) {
            Some(node) if node.tree() == self.id.0 => Ok(node),
            _ => Err(Tree::corrupt(id, "it should be a node of this tree")),
        }
    }

    /// A child of a latched parent.
    pub(super) fn child<'a>(
        &self,
        page: &'a PageBuf,
        id: PageId,
        level: u8,
        key: &[u8],
    ) -> Result<Node<'a>, Error> {
        let node = self.node(id, page)?;
        if node.level() != level || !node.covers(key) {
            return Err(Tree::corrupt(id, "it is not the node that its parent says"));
        }
        Ok(node)
    }

    #[inline]
    fn live<'a>(&self, page: &'a PageBuf, level: u8, seek: Seek<'_>) -> Option<Node<'a>> {
        let node = Node::open(page)?;
        (node.tree() == self.id.0 && node.level() == level && seek.is_in(&node)).then_some(node)
    }

    /// The leaf that `seek` leads to, latched shared.
    pub(super) fn leaf_shared(&self, seek: Seek<'_>) -> Result<PageRef<'_>, Error> {
        let leaf = self.descend(seek, 0, BufferPool::read)?;
        leaf.ok_or_else(|| Tree::corrupt(self.root(), "no level is below a leaf"))
    }

    /// The leaf that `seek` leads to, latched exclusively.
    pub(super) fn leaf_exclusive(&self, seek: Seek<'_>) -> Result<PageMut<'_>, Error> {
        let leaf = self.descend(seek, 0, BufferPool::write)?;
        leaf.ok_or_else(|| Tree::corrupt(self.root(), "no level is below a leaf"))
    }

    /// The leaf of `key`, which is one, latched shared: the one that `r` remembers, if it is.
    #[inline]
    pub(super) fn leaf_read<R: Reader + ?Sized>(
        &self,
        r: &mut R,
        key: &[u8],
    ) -> Result<PageRef<'_>, Error> {
        match self.leaf_remembered(r, key) {
            Some(leaf) => Ok(leaf),
            None => self.leaf_shared(Seek::Key(key)),
        }
    }

    /// As `leaf_read`, for a key that its reader will come back to: the leaf is remembered. A
    /// transaction that only reads mostly goes to another leaf next.
    pub(super) fn leaf_read_first<R: Reader + ?Sized>(
        &self,
        r: &mut R,
        key: &[u8],
    ) -> Result<PageRef<'_>, Error> {
        if let Some(leaf) = self.leaf_remembered(r, key) {
            return Ok(leaf);
        }
        let leaf = self.leaf_shared(Seek::Key(key))?;
        if let Some(leaves) = r.leaves() {
            leaves.note(self.id, (leaf.id(), leaf.frame()), &Node::again(&leaf));
        }
        Ok(leaf)
    }

    #[inline]
    fn leaf_remembered<R: Reader + ?Sized>(&self, r: &mut R, key: &[u8]) -> Option<PageRef<'_>> {
        let (page, frame) = r.leaves()?.find(self.id, key)?;
        let leaf = self.pool.read_in(frame, page)?;
        self.live(&leaf, 0, Seek::Key(key)).is_some().then_some(leaf)
    }

    /// The leaf of `key`, which is one, latched exclusively: the one that `r` remembers, if it is.
    pub(super) fn leaf_write<R: Reader + ?Sized>(
        &self,
        r: &mut R,
        key: &[u8],
    ) -> Result<PageMut<'_>, Error> {
        if let Some((page, frame)) = r.leaves().and_then(|leaves| leaves.find(self.id, key))
            && let Some(leaf) = self.pool.write_in(frame, page)?
            && self.live(&leaf, 0, Seek::Key(key)).is_some()
        {
            return Ok(leaf);
        }
        let leaf = self.leaf_exclusive(Seek::Key(key))?;
        if let Some(leaves) = r.leaves() {
            leaves.note(self.id, (leaf.id(), leaf.frame()), &Node::again(&leaf));
        }
        Ok(leaf)
    }

    /// The node of `level` that `seek` leads to, latched shared; `None` if the root is lower.
    pub(super) fn node_shared(
        &self,
        seek: Seek<'_>,
        level: u8,
    ) -> Result<Option<PageRef<'_>>, Error> {
        self.descend(seek, level, BufferPool::read)
    }

    /// The node of `level` that `seek` leads to, latched exclusively; `None` if the root is lower.
    pub(super) fn node_exclusive(
        &self,
        seek: Seek<'_>,
        level: u8,
    ) -> Result<Option<PageMut<'_>>, Error> {
        self.descend(seek, level, BufferPool::write)
    }

    fn descend<'t, G, L>(&'t self, seek: Seek<'_>, level: u8, latch: L) -> Result<Option<G>, Error>
    where
        G: Deref<Target = PageBuf>,
        L: Fn(&'t BufferPool, PageId) -> Result<G, PoolError>,
    {
        let (mut at, mut blanks) = (self.root(), 0);
        for restarts in 0..RESTARTS_MAX {
            match self.try_descend(seek, level, &latch)? {
                Descent::Found(node) => return Ok(Some(node)),
                Descent::TooLow => return Ok(None),
                Descent::Stale(page) => at = page,
                Descent::Blank(error) if blanks == BLANKS_MAX => return Err(error.into()),
                Descent::Blank(_) => blanks += 1,
            }
            if restarts >= RESTARTS_EAGER {
                yield_now();
            }
        }
        Err(Tree::corrupt(at, "it is not the node that its parent says"))
    }

    #[inline]
    fn try_descend<'t, G, L>(
        &'t self,
        seek: Seek<'_>,
        level: u8,
        latch: &L,
    ) -> Result<Descent<G>, Error>
    where
        G: Deref<Target = PageBuf>,
        L: Fn(&'t BufferPool, PageId) -> Result<G, PoolError>,
    {
        let pool: &'t BufferPool = &self.pool;
        let mut id = self.root();
        let mut expected = None;
        loop {
            let through = |page: Peek<'_>| {
                let way = Way::through(|at| page.word(at), self.id.0, seek)?;
                let wanted = way.level > level && expected.is_none_or(|above| above == way.level);
                wanted.then_some(way)
            };
            let way = match pool.peek(id, through) {
                Some(way) => way,
                None => match self.latched_way(id, seek, expected, level, latch)? {
                    Ok(way) => way,
                    Err(descent) => return Ok(descent),
                },
            };
            id = way.child;
            let below = way.level - 1;
            if below == level {
                let child = match latch(pool, id) {
                    Err(error) if is_blank(&error) => return Ok(Descent::Blank(error)),
                    child => child?,
                };
                let found = self.live(&child, level, seek).is_some();
                return Ok(if found { Descent::Found(child) } else { Descent::Stale(id) });
            }
            expected = Some(below);
        }
    }

    /// The way through a node that is not in memory, is being changed, is no inner node, or is not
    /// of the level that was expected. Or how the descent ends there.
    #[cold]
    fn latched_way<'t, G, L>(
        &'t self,
        id: PageId,
        seek: Seek<'_>,
        expected: Option<u8>,
        level: u8,
        latch: &L,
    ) -> Result<Result<Way, Descent<G>>, Error>
    where
        G: Deref<Target = PageBuf>,
        L: Fn(&'t BufferPool, PageId) -> Result<G, PoolError>,
    {
        let pool: &'t BufferPool = &self.pool;
        let page = match pool.read(id) {
            Err(error) if expected.is_some() && is_blank(&error) => {
                return Ok(Err(Descent::Blank(error)));
            }
            page => page?,
        };
        let node = match expected {
            None => self.node(id, &page)?,
            Some(expected) => match self.live(&page, expected, seek) {
                Some(node) => node,
                None => return Ok(Err(Descent::Stale(id))),
            },
        };
        if node.level() < level {
            return Ok(Err(Descent::TooLow));
        }
        if node.level() > level {
            page.let_peek();
            let (level, child) = (node.level(), node.child(seek.child(&node)));
            return Ok(Ok(Way { level, child }));
        }
        drop(page);
        let root = latch(pool, id)?;
        let found = self.node(id, &root)?.level() == level;
        Ok(Err(if found { Descent::Found(root) } else { Descent::Stale(id) }))
    }

    /// The leaf on the right of a latched one, latched shared. `None`: it is the last.
    ///
    /// # Errors
    ///
    /// `Corrupt` if its keys do not begin where those of `leaf` end: along pages of another day
    /// a walk could go round for ever.
    pub(super) fn right_of(&self, leaf: &Node<'_>) -> Result<Option<PageRef<'_>>, Error> {
        if leaf.right() == PageId(0) {
            return Ok(None);
        }
        let page = self.pool.read(leaf.right())?;
        let node = self.node(page.id(), &page)?;
        if !node.is_leaf() || leaf.upper() != Some(node.lower()) {
            return Err(Tree::corrupt(page.id(), "its keys do not follow those on its left"));
        }
        Ok(Some(page))
    }

    /// The first key from `slot` on, which may be in a leaf further right. All leaves on the way
    /// there stay latched as long as the result lives: until then the key is the next one.
    pub(super) fn next_key<'t>(&'t self, leaf: &Node<'_>, slot: usize) -> Result<Next<'t>, Error> {
        if slot < leaf.len() {
            let key = leaf.key(slot);
            return Ok(Next { hash: KeyHash::of(&key), key: Some(key), latched: Vec::new() });
        }
        let mut latched = Vec::new();
        let mut held = self.right_of(leaf)?;
        while let Some(page) = held {
            let node = self.node(page.id(), &page)?;
            if node.len() > 0 {
                let key = node.key(0);
                let hash = KeyHash::of(&key);
                latched.push(page);
                return Ok(Next { hash, key: Some(key), latched });
            }
            // An empty leaf stays latched, too: another task might put a key there.
            held = self.right_of(&node)?;
            latched.push(page);
        }
        Ok(Next { hash: KeyHash::END, key: None, latched })
    }
}

/// The next key, and the latches that keep it the next one.
pub(super) struct Next<'t> {
    pub(super) hash: KeyHash,
    /// `None`: the end of the tree.
    key: Option<Joined>,
    latched: Vec<PageRef<'t>>,
}

impl<'t> Next<'t> {
    /// The key, unless the tree ends before one.
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    /// The leaf that the key is in, if that is another one than where the search began; the leaves
    /// in between are released.
    pub(super) fn into_leaf(mut self) -> Option<PageRef<'t>> {
        self.key.as_ref()?;
        self.latched.pop()
    }
}

impl Lockable for Next<'_> {
    #[inline]
    fn hash(&self) -> KeyHash {
        self.hash
    }

    fn bytes(&self) -> Vec<u8> {
        self.key.as_ref().map_or_else(Vec::new, |key| key.to_vec())
    }
}
