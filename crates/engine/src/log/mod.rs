//! The log: records, the ring that they are kept in, appending, forcing and reading.

mod buffer;
mod ending;
mod log_file;
mod log_reader;
pub(crate) mod record;
pub(crate) mod ring;
mod room;
mod runs;

pub(crate) use buffer::Aligned;
pub(crate) use log_file::{Chain, Level, Log};
pub(crate) use log_reader::{End, LogReader};
pub(crate) use ring::{BLOCK, FIRST_LSN, Ring};
pub(crate) use room::Room;

#[cfg(test)]
mod tests;
