//! The unit of everything: an 8 KiB page, its header, and the identifiers that the tiers share.

#![forbid(unsafe_code)]

mod header;
mod id;
mod rec_lsn;

pub use header::{
    Damage, HEADER_SIZE, PageKind, kind, lsn, page_id, seal, set_kind, set_lsn, set_page_id, verify,
};
pub use id::{FrameId, Lsn, PageId, SlotId, TxnId};
pub use rec_lsn::{LOG_BYTES_MAX, LSN_MAX, narrow, widen};

/// Bytes in a page, on every tier.
pub const PAGE_SIZE: usize = 8192;

/// The bytes of one page.
pub type PageBuf = [u8; PAGE_SIZE];
