//! The log: records, the map from their stream to the device, appending, forcing and reading.

mod buffer;
mod chain;
mod ending;
mod fate;
mod growth;
pub(crate) mod header;
mod lists;
mod log_file;
mod log_reader;
mod map;
mod new_log;
pub(crate) mod record;
mod room;
mod runs;
mod space;

pub(crate) use buffer::Aligned;
pub(crate) use chain::{Chain, Last};
pub(crate) use fate::Fate;
pub(crate) use growth::Settle;
pub(crate) use header::LogShape;
pub(crate) use header::{BLOCK, FIRST_LSN};
pub(crate) use log_file::{Appended, Level, Log};
pub(crate) use log_reader::{End, LogReader};
pub(crate) use map::{Layout, LogMap};
pub(crate) use new_log::NewLog;
pub(crate) use room::Room;
pub(crate) use runs::encode_difference;
pub(crate) use space::LogSpace;

#[cfg(test)]
mod tests;
