//! Identifiers as types, so that an index, a count and a place never mix.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A page of the database: its number in the home file. Byte offset is `id * PAGE_SIZE`.
    PageId(u64), "page "
);
id!(
    /// A place for a page in memory (DRAM).
    FrameId(u32), "frame "
);
id!(
    /// A place for a page on the flash device.
    SlotId(u32), "slot "
);
id!(
    /// A position in the log, in bytes since the database was created. Zero is before all records.
    Lsn(u64), "LSN "
);
id!(
    /// A transaction. Numbers grow with time of begin and are never reused.
    TxnId(u64), "transaction "
);

impl Lsn {
    /// Before every record: the LSN of a page that no record has changed.
    pub const ZERO: Lsn = Lsn(0);
    /// After every record: an absent bound in a minimum.
    pub const MAX: Lsn = Lsn(u64::MAX);
}

impl PageId {
    /// The page `count` places further on in the home file.
    #[must_use]
    pub fn plus(self, count: u64) -> PageId {
        PageId(self.0 + count)
    }
}
