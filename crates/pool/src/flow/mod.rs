//! A page's way below memory: to flash, to home, and from flash to home.
//!
//! `arriving`: what flash does with a page that comes into memory. `write_out`: writes pages that
//! leave memory; `append`: the same for designs that write flash in order; `straight`: for pages
//! that the log does not have. `slots`: where the tier and the pool meet. `cleaner` writes pages
//! home that are newer on flash, when `cleaning` says so; `homeward`: what all home writes share.
//! `choosing`: reports to `auto`, and applies its choice.

pub(crate) mod append;
pub(crate) mod arriving;
pub(crate) mod choosing;
pub(crate) mod cleaner;
pub(crate) mod cleaning;
pub(crate) mod homeward;
pub(crate) mod slots;
pub(crate) mod straight;
pub(crate) mod write_out;
