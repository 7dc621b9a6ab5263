//! Terrace's own format: compact, quick to read, and damage costs a block.
//!
//! ```text
//! +-------------+--------------+---------+--------------+---------+-----+---------+
//! | file header | block header | records | block header | records | ... | trailer |
//! +-------------+--------------+---------+--------------+---------+-----+---------+
//! ```
//!
//! - C1: all three kinds of header have 32 bytes, the last four of them the CRC-32C of the others.
//! - C2: a block stands for itself: nothing in it refers to another block.
//! - C3: the block header says how long the block is, so that one with damaged records is left out
//!   and the next is read; behind a damaged header the next is found by its magic and checksum.
//! - C4: the trailer says how many requests there are: a file without is cut off.
//! - C5: what is written is read back the same.
//!
//! `layout` has the offsets, `record` a block's requests, `writer` and `reader` the file.

mod layout;
mod reader;
mod record;
mod writer;

#[cfg(test)]
mod tests;

pub use layout::CompactHeader;
pub use reader::{is_compact, open};
pub use writer::{CompactWriter, file_of};
