//! The log: records, the ring that they are kept in, appending, forcing and reading.

mod buffer;
mod log_file;
mod log_reader;
pub(crate) mod record;
pub(crate) mod ring;
mod runs;

pub(crate) use buffer::Aligned;
pub(crate) use log_file::{Chain, Level, Log, Room};
pub(crate) use log_reader::{End, LogReader};
pub(crate) use ring::{BLOCK, FIRST_LSN, Ring};

#[cfg(test)]
mod tests;
