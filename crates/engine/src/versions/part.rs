//! One part of the versions: a hash table of what rows were before they were changed.
//!
//! ```text
//! buckets      entries, in no order                       bytes
//! +---+        +--------------------------------------+   +-----------------------------+
//! | 3 | -----> | writer, lsn, tree, older: 1, at, len |-->| key, what the row was before|
//! +---+        +--------------------------------------+   +-----------------------------+
//! ```
//!
//! - P1: a bucket is a list, and of the entries of one row a newer one comes first.
//! - P2: the walk along a row's entries, from its record in the leaf, newest first, gives what the
//!   row was before each change. It stops at the first change that the snapshot sees.
//! - P3: what says how a record differs is of the undo of a transaction that was open when versions
//!   began to be kept. The next newer entry, or the leaf if there is none, has the record that it
//!   differs from. So a transaction that changes such a record first replaces the difference by the
//!   whole record (`keep`), and no entry goes while an older difference needs it (`judge`). Changes
//!   of a transaction that all snapshots see may be missing here: then its differences fit nothing,
//!   and are not looked at.
//! - P4: nothing is freed one by one. Once a part has doubled, what is still of use is copied to
//!   new memory, and all else goes at once: so an entry costs a copy or two, and no allocation.

mod facts;
mod taken;
#[cfg(test)]
mod tests;

pub(super) use self::taken::{Old, Taken};

use terrace_page::Lsn;

use super::author::Author;
use super::backlog::Change;
use super::marks::Marks;
use super::needs::Needs;
use crate::btree::{GHOST, restored};
use crate::writer::Undo;
use crate::{KeyHash, TreeId};

/// No entry.
const NONE: u32 = u32::MAX;
const BUCKETS_MIN: usize = 16;

/// A row, as versions name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'k> {
    pub(crate) tree: TreeId,
    pub(crate) key: &'k [u8],
    pub(super) hash: u64,
}

impl<'k> Row<'k> {
    #[inline]
    pub(crate) fn new(tree: TreeId, key: &'k [u8]) -> Row<'k> {
        let own = KeyHash::of(key).number();
        Row { tree, key, hash: own ^ u64::from(tree.0).wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }
}

/// A record in a leaf: flags and value.
pub(crate) type Record<'r> = (u8, &'r [u8]);

/// What a row was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before<'b> {
    /// Not there.
    Absent,
    /// This record.
    Record(Record<'b>),
    /// Another than it is now: the encoded `old` of an update.
    Patch(&'b [u8]),
    /// What is now a ghost, with these flags.
    Unmarked(u8),
}

impl<'b> Before<'b> {
    /// What a leaf shows of a row of which it has `current`.
    fn seen(current: Option<Record<'b>>) -> Before<'b> {
        match current {
            Some((flags, _)) if flags & GHOST != 0 => Before::Absent,
            Some(record) => Before::Record(record),
            None => Before::Absent,
        }
    }
}

/// What a snapshot sees of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// What the leaf has.
    Current,
    /// An older record.
    Older,
    /// Nothing.
    Absent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Absent,
    Record,
    Patch,
    Unmarked,
}

#[derive(Clone, Debug)]
struct Entry {
    writer: Author,
    lsn: Lsn,
    hash: u64,
    /// Where its key begins; what the row was follows it. For a record its flags are ahead of its
    /// value.
    at: u32,
    len: u32,
    older: u32,
    tree: TreeId,
    key_len: u16,
    kind: Kind,
    /// Of the newest entry of a row: its ghost was purged, and it was not put again.
    is_purged: bool,
    /// Its key is among the graves, for scans.
    has_grave: bool,
}

#[derive(Debug, Default)]
pub(super) struct Part {
    buckets: Vec<u32>,
    entries: Vec<Entry>,
    bytes: Vec<u8>,
    collect_at: usize,
    marks: Marks,
}

/// The direction of a change, and what it means for the row's versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Toward {
    /// Something new: what was there is kept.
    Forward,
    /// As `Forward`: a row that is put behind all others of its tree.
    Append,
    /// What was there before: it is kept already, if it is to be.
    Back,
}

impl Part {
    /// Whether it knows nothing.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.marks.is_empty()
    }

    /// Bytes of memory that it has.
    #[inline]
    pub(super) fn memory(&self) -> usize {
        let buckets = self.buckets.len() * size_of::<u32>();
        let entries = self.entries.capacity() * size_of::<Entry>();
        buckets + entries + self.bytes.capacity() + self.marks.memory()
    }

    /// Whether it is worth looking through, having `min` entries at least.
    #[inline]
    pub(super) fn is_due(&self, min: usize) -> bool {
        self.entries.len() >= self.collect_at.max(min)
    }

    fn first(&self, hash: u64) -> u32 {
        match self.buckets.len() {
            0 => NONE,
            count => self.buckets[hash as usize & (count - 1)],
        }
    }

    fn is_of(&self, entry: &Entry, row: &Row<'_>) -> bool {
        entry.hash == row.hash && entry.tree == row.tree && self.key(entry) == row.key
    }

    fn key(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.at as usize..][..usize::from(entry.key_len)]
    }

    fn data(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.at as usize + usize::from(entry.key_len)..][..entry.len as usize]
    }

    /// The next entry of `row` in its bucket, from `at` on.
    #[inline]
    fn of_row(&self, mut at: u32, row: &Row<'_>) -> Option<u32> {
        while at != NONE {
            let entry = &self.entries[at as usize];
            if self.is_of(entry, row) {
                return Some(at);
            }
            at = entry.older;
        }
        None
    }

    fn newest(&self, row: &Row<'_>) -> Option<u32> {
        self.of_row(self.first(row.hash), row)
    }

    /// Whether anything is kept of `row`.
    fn has(&self, row: &Row<'_>) -> bool {
        self.newest(row).is_some()
    }

    /// Has the processor ask memory for what `keep` will look at, for all of these at once.
    pub(super) fn look_ahead(&self, changes: &[Change<'_>]) {
        let mut seen = 0;
        for change in changes {
            if let Some(entry) = self.entries.get(self.first(change.row.hash) as usize) {
                seen ^= self.bytes.get(entry.at as usize).copied().unwrap_or_default();
            }
        }
        std::hint::black_box(seen);
    }

    /// Keeps what a row was before a change, unless no snapshot needs that. The changes of a row
    /// come in their order.
    pub(super) fn keep(&mut self, change: &Change<'_>, needs: &Needs, makes_whole: bool) {
        let Change { row, current, writer, lsn, toward } = change;
        let (current, lsn, toward) = (*current, *lsn, *toward);
        let Some(at) = self.newest(row) else {
            let is_between = self.is_between(row, None, (writer, lsn), needs);
            if toward != Toward::Back && is_between {
                self.push(row, Before::seen(current), (writer, lsn));
            }
            return;
        };
        let entry = &self.entries[at as usize];
        let is_difference = matches!(entry.kind, Kind::Patch | Kind::Unmarked);
        if !entry.writer.is(writer) {
            let is_between = self.is_between(row, Some(&entry.writer), (writer, lsn), needs);
            if toward != Toward::Back && (is_between || is_difference || entry.is_purged) {
                // P3: a difference needs the ghost's record, too.
                let before = match current {
                    Some(record) if is_difference => Before::Record(record),
                    current => Before::seen(current),
                };
                self.push(row, before, (writer, lsn));
            }
        } else if entry.lsn == lsn {
            self.replace(at, row, current.map_or(Before::Absent, Before::Record));
        } else if is_difference && makes_whole {
            self.make_whole(at, row, current);
        }
    }

    /// P3: replaces a difference from `current` by the record.
    fn make_whole(&mut self, at: u32, row: &Row<'_>, current: Option<Record<'_>>) {
        let entry = &self.entries[at as usize];
        let Some((flags, value)) = current else { unreachable!("a row is purged without locks") };
        let record = [&[flags], value].concat();
        let Some(whole) = self.applied(entry, &record) else {
            // Its later changes were not sorted in: all snapshots see them.
            assert!(entry.writer.ended().is_some(), "an undo fits the record that it is of");
            return;
        };
        let (flags, value) = whole.split_first().expect("a record has flags");
        // What an older difference needs may be a ghost.
        self.replace(at, row, Before::Record((*flags, value)));
    }

    /// The record that `entry` makes of a newer one, unless they do not fit.
    fn applied(&self, entry: &Entry, newer: &[u8]) -> Option<Vec<u8>> {
        let (tree, key, data) = (entry.tree, self.key(entry), self.data(entry));
        let undo = match entry.kind {
            Kind::Patch => Undo::Update { tree, key, old: data },
            _ => Undo::Delete { tree, key, record: data },
        };
        restored(newer, &undo)
    }

    /// The row's ghost, which has `current`, leaves its leaf. Whether anything is kept of it.
    pub(super) fn bury(&mut self, row: &Row<'_>, current: Record<'_>) -> bool {
        let Some(at) = self.newest(row) else { return false };
        if matches!(self.entries[at as usize].kind, Kind::Patch | Kind::Unmarked) {
            self.make_whole(at, row, Some(current));
        }
        let entry = &mut self.entries[at as usize];
        entry.is_purged = true;
        entry.has_grave = true;
        true
    }

    fn push_data(&mut self, row: &Row<'_>, before: Before<'_>) -> (u32, u32, Kind) {
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(row.key);
        let (kind, len) = match before {
            Before::Absent => (Kind::Absent, 0),
            Before::Record((flags, value)) => {
                self.bytes.push(flags);
                self.bytes.extend_from_slice(value);
                (Kind::Record, 1 + value.len())
            }
            Before::Patch(old) => {
                self.bytes.extend_from_slice(old);
                (Kind::Patch, old.len())
            }
            Before::Unmarked(flags) => {
                self.bytes.push(flags);
                (Kind::Unmarked, 1)
            }
        };
        (at, len as u32, kind)
    }

    fn replace(&mut self, at: u32, row: &Row<'_>, before: Before<'_>) {
        let (data_at, len, kind) = self.push_data(row, before);
        let entry = &mut self.entries[at as usize];
        (entry.at, entry.len, entry.kind) = (data_at, len, kind);
    }

    fn new_entry(
        &mut self,
        row: &Row<'_>,
        before: Before<'_>,
        (writer, lsn): (&Author, Lsn),
    ) -> u32 {
        if self.entries.len() >= self.buckets.len() {
            self.grow();
        }
        let (at, len, kind) = self.push_data(row, before);
        self.entries.push(Entry {
            writer: writer.again(),
            lsn,
            hash: row.hash,
            at,
            len,
            older: NONE,
            tree: row.tree,
            key_len: row.key.len() as u16,
            kind,
            is_purged: false,
            has_grave: false,
        });
        self.entries.len() as u32 - 1
    }

    /// Twice as many buckets.
    fn grow(&mut self) {
        let count = BUCKETS_MIN.max(2 * self.buckets.len());
        let old = std::mem::replace(&mut self.buckets, vec![NONE; count]);
        let mut list = Vec::new();
        for first in old {
            let mut at = first;
            while at != NONE {
                list.push(at);
                at = self.entries[at as usize].older;
            }
            while let Some(at) = list.pop() {
                let entry = &mut self.entries[at as usize];
                let bucket = &mut self.buckets[entry.hash as usize & (count - 1)];
                entry.older = std::mem::replace(bucket, at);
            }
        }
    }

    /// Puts an entry ahead of all others of its row.
    fn push(&mut self, row: &Row<'_>, before: Before<'_>, change: (&Author, Lsn)) {
        let new = self.new_entry(row, before, change);
        let bucket = row.hash as usize & (self.buckets.len() - 1);
        self.entries[new as usize].older = self.buckets[bucket];
        self.buckets[bucket] = new;
    }

    /// Puts what the undo of `lsn` says where it belongs among the entries of its row, unless it is
    /// there.
    pub(super) fn index(
        &mut self,
        row: &Row<'_>,
        before: Before<'_>,
        (writer, lsn): (&Author, Lsn),
    ) {
        let (mut newer, mut at) = (NONE, self.newest(row));
        while let Some(found) = at {
            let entry = &self.entries[found as usize];
            if entry.lsn == lsn {
                return;
            }
            if entry.lsn < lsn {
                break;
            }
            newer = found;
            at = self.of_row(entry.older, row);
        }
        if newer == NONE {
            return self.push(row, before, (writer, lsn));
        }
        let new = self.new_entry(row, before, (writer, lsn));
        let older = std::mem::replace(&mut self.entries[newer as usize].older, new);
        self.entries[new as usize].older = older;
    }

    /// What a snapshot at `at` sees of a row of which the leaf has `current`; an older record goes
    /// to `out` (P2). It comes with a bound: what is spilled goes before it if the change that it
    /// is of ended before that. `None`: what is kept does not fit, so the snapshot was ended.
    pub(super) fn see(
        &self,
        at: Lsn,
        row: &Row<'_>,
        current: Option<Record<'_>>,
        out: &mut Vec<u8>,
    ) -> Option<(Seen, Lsn)> {
        let mut next = self.newest(row);
        let (mut seen, mut ended) = (Seen::Current, None);
        while let Some(place) = next {
            let entry = &self.entries[place as usize];
            ended = match entry.writer.ended() {
                Some(before) if before < at => break,
                ended => ended,
            };
            seen = match entry.kind {
                Kind::Absent => Seen::Absent,
                Kind::Record => {
                    out.clear();
                    out.extend_from_slice(self.data(entry));
                    Seen::Older
                }
                Kind::Patch | Kind::Unmarked => {
                    if seen == Seen::Current {
                        let (flags, value) = current?;
                        out.clear();
                        out.push(flags);
                        out.extend_from_slice(value);
                    }
                    *out = self.applied(entry, out)?;
                    Seen::Older
                }
            };
            next = self.of_row(entry.older, row);
        }
        if seen == Seen::Older && out[0] & GHOST != 0 {
            seen = Seen::Absent;
        }
        // marks.M2.
        let Some(absent) = self.marks.first(row, at) else { return Some((seen, Lsn::MAX)) };
        let is_older = ended.is_some_and(|ended| ended < absent);
        Some((if is_older { seen } else { Seen::Absent }, absent))
    }
}

impl Part {
    /// Drops what no snapshot sees, now or later. Each key of which nothing is left, though its
    /// ghost was purged, is told to `forgotten`.
    pub(super) fn collect(&mut self, needs: &Needs, forgotten: impl FnMut(TreeId, &[u8])) {
        self.marks.collect(&needs.horizon);
        let mut row_entries = Vec::new();
        let mut dead = vec![false; self.entries.len()];
        let mut done = vec![false; self.entries.len()];
        for bucket in 0..self.buckets.len() {
            let mut at = self.buckets[bucket];
            while at != NONE {
                if !done[at as usize] {
                    self.entries_of_row(at, &mut row_entries);
                    row_entries.iter().for_each(|&entry| done[entry as usize] = true);
                    self.judge(&row_entries, needs, &mut dead);
                }
                at = self.entries[at as usize].older;
            }
        }
        if dead.iter().any(|&dead| dead) {
            self.rebuild(&dead, forgotten);
        }
        self.collect_at = 2 * self.entries.len();
    }

    /// The entries of the row of `at`, newest first.
    fn entries_of_row(&self, at: u32, out: &mut Vec<u32>) {
        out.clear();
        let row = self.row(at);
        let mut next = Some(at);
        while let Some(found) = next {
            out.push(found);
            next = self.of_row(self.entries[found as usize].older, &row);
        }
    }

    fn row(&self, at: u32) -> Row<'_> {
        let entry = &self.entries[at as usize];
        Row { tree: entry.tree, key: self.key(entry), hash: entry.hash }
    }

    /// Which of a row's entries, newest first, are of no more use.
    fn judge(&mut self, row_entries: &[u32], needs: &Needs, dead: &mut [bool]) {
        // Where the change before it ended, and whether that differs from this one's record.
        let spilled = needs.ends.of(&self.row(row_entries[0]));
        let (mut older_end, mut is_needed) = (spilled.unwrap_or_default(), false);
        for &at in row_entries.iter().rev() {
            let absent = self.absent_before(at);
            older_end = older_end.max(absent.unwrap_or_default());
            let entry = &mut self.entries[at as usize];
            let ended = entry.writer.ended();
            if let Some(ended) = ended {
                entry.writer = Author::Ended(ended);
            }
            let is_seen = ended.is_none_or(|ended| needs.horizon.may_see(older_end, ended));
            if !is_seen && !is_needed {
                dead[at as usize] = true;
                continue;
            }
            is_needed = matches!(entry.kind, Kind::Patch | Kind::Unmarked);
            older_end = ended.unwrap_or(older_end);
        }
        let is_purged = self.entries[row_entries[0] as usize].is_purged;
        let has_grave = row_entries.iter().any(|&at| self.entries[at as usize].has_grave);
        let mut left = row_entries.iter().filter(|&&at| !dead[at as usize]);
        let (Some(&newest), next) = (left.next(), left.next()) else { return };
        let entry = &mut self.entries[newest as usize];
        entry.is_purged = is_purged;
        entry.has_grave = has_grave;
        if next.is_none() && is_purged && entry.kind == Kind::Absent {
            // A row that is absent now needs no entry that says that it was absent before.
            dead[newest as usize] = true;
        }
    }

    /// Copies the entries that are not `dead`, in their order, to the number of buckets that they
    /// need. What it was comes back.
    fn rebuild(&mut self, dead: &[bool], mut forgotten: impl FnMut(TreeId, &[u8])) -> Part {
        let kept = self.entries.len() - dead.iter().filter(|&&dead| dead).count();
        let count = (kept + kept / 2).next_power_of_two().max(BUCKETS_MIN);
        let mut old = std::mem::take(self);
        *self = Part {
            buckets: vec![NONE; count],
            marks: std::mem::take(&mut old.marks),
            ..Part::default()
        };
        self.entries.reserve(kept + kept / 2);
        self.bytes.reserve(old.bytes.len() / (old.entries.len().max(1)) * (kept + kept / 2));
        let mut list = Vec::new();
        for &first in &old.buckets {
            list.clear();
            let mut at = first;
            while at != NONE {
                list.push(at);
                at = old.entries[at as usize].older;
            }
            // The oldest first, so that each is put ahead of those before it.
            for &at in list.iter().rev() {
                let entry = &old.entries[at as usize];
                if !dead[at as usize] {
                    self.copy(entry, &old);
                }
            }
        }
        for (entry, _) in
            old.entries.iter().zip(dead).filter(|(entry, dead)| **dead && entry.has_grave)
        {
            let row = Row { tree: entry.tree, key: old.key(entry), hash: entry.hash };
            if !self.has(&row) {
                forgotten(row.tree, row.key);
            }
        }
        old
    }

    /// Copies an entry of `old`, ahead of all that are here.
    fn copy(&mut self, entry: &Entry, old: &Part) {
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(old.key(entry));
        self.bytes.extend_from_slice(old.data(entry));
        let bucket = entry.hash as usize & (self.buckets.len() - 1);
        let older = std::mem::replace(&mut self.buckets[bucket], self.entries.len() as u32);
        self.entries.push(Entry { at, older, ..entry.clone() });
    }

    /// Drops what is kept of transactions that have ended.
    pub(super) fn drop_ended(&mut self) {
        let dead: Vec<bool> =
            self.entries.iter().map(|entry| entry.writer.ended().is_some()).collect();
        if dead.contains(&true) {
            self.rebuild(&dead, |_, _| {});
        }
    }

    /// Drops all but what is kept of transactions that have not ended and are kept whole. The
    /// memory stays if it is not more than `spare` bytes.
    pub(super) fn clear(&mut self, spare: usize) {
        self.marks = Marks::default();
        let is_dead = |entry: &Entry| !entry.writer.is_kept();
        let dead: Vec<bool> = self.entries.iter().map(is_dead).collect();
        if dead.iter().any(|&dead| !dead) {
            self.rebuild(&dead, |_, _| {});
        } else if self.memory() > spare {
            *self = Part::default();
        } else {
            self.entries.clear();
            self.bytes.clear();
            self.buckets.fill(NONE);
        }
        self.collect_at = 2 * self.entries.len();
    }
}
