//! Traces of storage requests: readers of the formats that they are published in, one of our own,
//! and what a simulator needs to replay them.
//!
//! A [`Reader`] is an iterator over [`Request`]s, whatever the format and compression of a file;
//! [`Pages`] splits requests into pages; an [`Interner`] numbers the pages.
//!
//! ```
//! use terrace_trace::{Interner, PageBytes, Pages, Paging, ReadOptions, Reader};
//!
//! // The ARC paper's format: first block of 512 bytes, blocks, ignored, number.
//! let reader = Reader::from_bytes("a.lis", "0 40 0 0\n8 1 0 1\n", &ReadOptions::default())?;
//! let mut interner = Interner::new();
//! let mut numbers = Vec::new();
//! for page in Pages::new(reader, Paging::Split(PageBytes::DEFAULT)) {
//!     numbers.push(interner.intern(page?.page));
//! }
//! assert_eq!(numbers, [0, 1, 2, 0]);
//! # Ok::<(), terrace_trace::TraceError>(())
//! ```
//!
//! What each format means here, and what becomes of bad input, is in `docs/TRACES.md`.

#![forbid(unsafe_code)]

mod error;
mod request;
mod tally;

mod unpack;
mod window;

mod fields;
mod files;
mod lines;
mod records;
mod roles;

mod binary;
mod compact;
mod text;

mod format;
mod nearest;
mod reader;

mod interner;
mod pages;
mod summary;

mod scatter;
mod synthetic;
pub mod tpch;
mod zipf;

#[doc(hidden)]
pub mod fuzz;

pub use compact::{CompactHeader, CompactWriter, is_compact};
pub use error::{BadField, Place, Problem, TraceError};
pub use format::{FORMATS, Format, FormatRow, UnknownFormatName, known_names};
pub use interner::{Interner, PAGES_MAX};
pub use pages::{PageBytes, PageKey, PageRequest, Pages, Paging};
pub use reader::{ReadOptions, Reader};
pub use request::{ADDRESS_END, Addressing, Clock, Kind, Request, SECTOR_BYTES};
pub use roles::FileRole;
pub use summary::{Findings, Skew, Summary};
pub use synthetic::{
    BadOption, IDS_MAX, Popularity, Scans, Synthetic, SyntheticOptions, WorkingSet,
};
pub use tally::{BadInput, Tally};
pub use text::{BadColumns, Columns};
pub use tpch::{Tpch, TpchOptions};
pub use unpack::Packing;
pub use zipf::Zipf;
