//! A page's way below memory: to flash, to home, and from flash to home.
//!
//! `arriving` is what flash does with a page that comes into memory, `write_out` what a page that
//! leaves goes through; `append` is the same for designs that write flash in order. `slots` is
//! where the tier and the pool meet. `cleaner` brings home what is newer on flash, when `cleaning`
//! says so; `homeward` has what the ways home share. `choosing` picks the rules of `auto`.

pub(crate) mod append;
pub(crate) mod arriving;
pub(crate) mod choosing;
pub(crate) mod cleaner;
pub(crate) mod cleaning;
pub(crate) mod homeward;
pub(crate) mod slots;
pub(crate) mod write_out;
