//! A page's way below memory: to flash, to home, and from flash to home.
//!
//! `write_out` is what a page that leaves memory goes through, and `written` what follows from it;
//! `append` is the same for designs that write flash in order, `around` what the tier asks
//! meanwhile. `flash` limits what goes there, and `inclusion` says what becomes of the copies of
//! pages that are in memory. `cleaner` brings home what is newer on flash, if it is more than the
//! `share`, `sweep` and `homeward` in the order in which it lies there. `choosing` picks the rules
//! of `auto`. `owed` redoes pages when they are first read, and `drain` reads them.

pub(crate) mod append;
pub(crate) mod around;
pub(crate) mod choosing;
pub(crate) mod cleaner;
pub(crate) mod drain;
pub(crate) mod flash;
pub(crate) mod homeward;
pub(crate) mod inclusion;
pub(crate) mod owed;
pub(crate) mod share;
pub(crate) mod sweep;
pub(crate) mod write_out;
pub(crate) mod written;
