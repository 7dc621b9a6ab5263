//! Deliberate faults, each of which breaks one of the rules that protect data, so that tests can
//! show that they would notice.
//!
//! The feature `mutations` compiles them in, and only dev-dependencies turn it on. Without it
//! [`Mutations`] has no bytes and [`Mutations::has`] is `false` at compile time, so that a release
//! build contains no faulty code.

use std::fmt;

/// Defines the enum and the list of its variants from one list.
macro_rules! mutations {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// One fault, and the rule that it breaks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Mutation {
            $($(#[$doc])* $name,)*
        }

        impl Mutation {
            /// All of them.
            pub const ALL: &[Mutation] = &[$(Mutation::$name,)*];
        }
    };
}

mutations! {
    /// The log is durable up to a page's LSN before the page is written anywhere.
    PageBeforeLog,
    /// Pages are copied to the doublewrite area, if there is one, before they are written home.
    SkipDoublewrite,
    /// A page joins a BUF_WRITE batch only if it was not modified since the image was written.
    JoinModified,
    /// The EOL of a BUF_WRITE batch is fixed before any page joins.
    EolAfterJoin,
    /// Home is synced before a BUF_WRITE record is logged.
    BufWriteBeforeSync,
    /// A dirty entry counts for the oldest dirty LSN until home was synced after its page's write.
    EntryEndsBeforeSync,
    /// At most one home write of a page is outstanding.
    TwoHomeWrites,
    /// A page's dirty entry exists before its flash copy is invalidated and its record is appended.
    InvalidateBeforeEntry,
    /// Modifying a page invalidates its flash copy.
    KeepStaleCopy,
    /// Dual writes: a slot is clean only after both writes finished.
    CleanBeforeBothWrites,
    /// Lazy cleaning: a dirty entry moves to flash only after the flash write finished.
    EntryMovesBeforeWrite,
    /// Append logs: a page that leaves the front counts as dirty until its home write finished.
    FrontCleanBeforeHome,
    /// Append logs: slots are overwritten only when their pages are elsewhere.
    ReuseFrontTooSoon,
    /// The oldest dirty LSN covers pages that are dirty on flash only.
    OldestWithoutFlash,
    /// The restart `warm`: a dirty copy on flash outlasts a change of its page, unless analysis
    /// reads every change that home lacks.
    DropOldBases,
    /// What the table says of a dirty copy counts from the first change that home lacks if a power
    /// cut takes back what was not synced there.
    DirtyCopyTrustsHome,
    /// Persistent flash: a slot is used again only when the table says durably that it may be.
    ReuseBeforeTable,
    /// Persistent flash: home has durably what leaves the front before its slots are overwritten.
    ReuseBeforeHomeSync,
    /// Persistent flash: a base at the front is appended again.
    DropBasesAtFront,
    /// FaCE's map: an opening reads the slots that may have been written since the last segment.
    SkipFrontier,
    /// FaCE's map: of these it believes only those that the table has told of before.
    TrustUnknownSlots,
    /// Pages are verified when they are read from a device.
    SkipVerify,

    /// Restarts: what is read from a slot must be the page that the slot is said to hold.
    SkipPageIdCheck,
    /// Restarts: what is read from a slot must be the version that the slot is said to hold, where
    /// that is kept.
    SkipLsnCheck,
    /// MMR: an entry says that its slot holds a page only once the page is durable there.
    MmrEntryBeforeSync,
    /// MMR: CLEAN -> READY is durable before the slot is overwritten.
    MmrSkipReused,
    /// MMR: -> FREE is durable before the page changes.
    MmrSkipModified,
    /// MMR: a table that cannot be written is given up, for this session and the next opening.
    MmrNeverGivesUp,
    /// LBR: a slot is durable before its POST_WRITE is logged.
    LbrRecordBeforeSync,
    /// LBR: PRE_INVALIDATE is durable before the slot is overwritten.
    LbrWriteBeforeForce,
    /// LBR: the change that freed a slot is durable before the slot is overwritten.
    LbrWriteBeforeChange,
    /// LBR: only a checkpoint that ended has the table.
    LbrUnendedCheckpoint,
    /// LBR: a PRE_INVALIDATE that finds the log full gives up what the log says of the table.
    LbrNeverGivesUp,
    /// LBR: what recovery writes into a slot is not logged before its checkpoint.
    LbrLogsRecovery,
    /// LVR: beforeHardeningLSN is what is durable, not the log's tail.
    LvrTailLsn,
    /// LVR: entries that are older than the log go.
    LvrKeepsOldEntries,
    /// LVR: a BUF_WRITE frees older copies of its pages.
    LvrIgnoresBufWrites,
    /// LVR: a checkpoint ends after a full pass of the flusher.
    LvrSkipsPass,
    /// FASC's map: log pages of one write count together.
    ChunksCountAlone,

    /// Snapshots: what a row was is kept before it is changed.
    SkipVersions,
    /// Snapshots: open transactions are looked through before a snapshot takes its moment.
    SnapshotBeforeIndexing,
    /// Snapshots: a transaction looks through its own undo before it changes more.
    SkipOwnIndexing,
    /// Snapshots: `low` is read before `at`.
    LowAfterMoment,
    /// Snapshots: what an open snapshot sees stays.
    CollectSeenVersions,
    /// Snapshots: a difference is made whole before what it differs from changes.
    ChangeUnderDifference,
    /// Snapshots: versions are looked for once those that wait were sorted in.
    LookBeforeSorting,
    /// Snapshots: what was logged before a cut of the versions that wait, and comes after it, does
    /// not wait.
    WaitAfterCut,
    /// Snapshots: a key whose ghost is purged has a grave.
    PurgeWithoutGrave,
    /// Snapshots: one that is ended for want of room is marked so before its versions are dropped.
    EndAfterCollecting,
    /// Snapshots: pages of values and trees that an open snapshot sees stay.
    FreeSeenPages,
    /// Spilled versions: what is taken out of the parts can be seen before it is gone there.
    ShowFrozenLate,
    /// Spilled versions: a purged row has a grave until what is taken out can be seen.
    ForgetGravesEarly,
    /// Spilled versions: a run that an open snapshot needs stays.
    DropNeededRuns,
    /// Spilled versions: a reader looks into the parts first, then at what is spilled.
    LookAtSpilledFirst,
    /// Spilled versions: a reader that reads runs has no page latched.
    ReadRunsLatched,
    /// Spilled versions: only a row that is put behind all others of its tree leaves a mark.
    MarkAnyInsert,
    /// Spilled versions: what a row put behind all others says counts for a reader that has read
    /// runs since it looked at the row.
    KeepFirstBound,
    /// Spilled versions: a merge cuts off its inputs what it has written, and no more.
    CutInputsLate,
    /// Spilled versions: a long merge gives way to short ones.
    MergeToTheEnd,

    /// Tables: one that gets another name has an entry of the catalog at any moment.
    RenameWithoutGarbage,

    /// Compaction: a free extent is punched only behind checkpoints that tell of it.
    PunchBeforeCheckpoint,
    /// Compaction: the left neighbour of a node that moves leads to its new place.
    MoveWithoutNeighbour,
    /// Compaction: the row of a value that moves is locked.
    MoveUnlocked,

    /// Large values: home has their pages durably before a record refers to them.
    ReferBeforeSync,
    /// Large values: an opening redoes nothing older of a page that one has taken.
    RedoBelowValues,
    /// Large values: copies on flash of what a page was before count no more.
    KeepCopiesOfTaken,
    /// Large values: the pages of one that comes to nothing wait to be freed from the beginning.
    ForgetUnfinished,

    /// Blocks: a page that was given up is used again once no undo and no snapshot wants it.
    ReuseBlocksEarly,
    /// Blocks: a sweep leaves alone what was touched since the opening.
    SweepTouched,
    /// Blocks: the header says that pages may be left over before the first one is.
    UnmarkedBlocks,
    /// Blocks: a page that is read has the stamp that its record says.
    TrustBlocks,
    /// Blocks: a page that was freed is left alone, whoever has it since.
    PutBackFreed,
    /// Blocks: a page that was given up is used again if its map has it as a block of the table.
    TrustGiven,
    /// Recovery adds to the counts of a checkpoint what was committed from their position on.
    CountTwice,
    /// Counts of commits are summed up only once all snapshots see them.
    SumUpUnseenRows,
    /// Checkpoints list the rows of the tables: those of older versions do not.
    LogNoCounts,
    /// Checkpoints leave to others the room in the log that they need, when they list rows.
    CountsTakeSlack,
    /// The next tree's number is read after the rows that a checkpoint lists.
    NextTreeBeforeCounts,

    /// Backups: pages that the log does not have are copied before what refers to them.
    BackupForgetsUnlogged,
    /// Backups: a page that was freed before it was copied is marked as newer than its records.
    BackupSkipsFreed,
    /// Backups: a page is read at home only if neither memory nor flash is newer.
    BackupReadsHome,
    /// Restored copies: what the log says of the original's home does not count.
    RestoreKeepsBufWrites,
    /// The token of a commit is ready once the log is durable up to it.
    ReadyBeforeForce,
}

/// The faults that are in force: none, but in tests.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Mutations {
    #[cfg(feature = "mutations")]
    bits: u128,
}

#[cfg(not(feature = "mutations"))]
const _: () = assert!(size_of::<Mutations>() == 0 && !Mutations::NONE.has(Mutation::SkipVerify));
#[cfg(feature = "mutations")]
const _: () = assert!(Mutation::ALL.len() <= u128::BITS as usize);

impl Mutations {
    /// No fault: every rule holds.
    pub const NONE: Mutations = Mutations {
        #[cfg(feature = "mutations")]
        bits: 0,
    };

    /// Whether what is read from a slot must be the version that was written there.
    #[inline]
    #[must_use]
    pub const fn checks_versions(self) -> bool {
        !self.has(Mutation::SkipVerify) && !self.has(Mutation::SkipLsnCheck)
    }

    /// Whether `mutation` is in force.
    #[inline]
    #[must_use]
    #[cfg(feature = "mutations")]
    pub const fn has(self, mutation: Mutation) -> bool {
        self.bits & (1 << mutation as u8) != 0
    }

    /// Whether `_mutation` is in force: never.
    #[inline]
    #[must_use]
    #[cfg(not(feature = "mutations"))]
    pub const fn has(self, _mutation: Mutation) -> bool {
        false
    }
}

#[cfg(feature = "mutations")]
impl Mutations {
    /// These, and `mutation`.
    #[must_use]
    pub const fn and(self, mutation: Mutation) -> Mutations {
        Mutations { bits: self.bits | 1 << mutation as u8 }
    }
}

#[cfg(feature = "mutations")]
impl From<Mutation> for Mutations {
    fn from(mutation: Mutation) -> Mutations {
        Mutations::NONE.and(mutation)
    }
}

#[cfg(feature = "mutations")]
impl FromIterator<Mutation> for Mutations {
    fn from_iter<I: IntoIterator<Item = Mutation>>(all: I) -> Mutations {
        all.into_iter().fold(Mutations::NONE, Mutations::and)
    }
}

impl fmt::Debug for Mutations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_force = Mutation::ALL.iter().filter(|&&mutation| self.has(mutation));
        f.debug_set().entries(in_force).finish()
    }
}
