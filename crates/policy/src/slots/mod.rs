//! Which slot of the flash tier is reused, and which dirty one is cleaned next.

pub(crate) mod ages;
pub(crate) mod bands;
pub(crate) mod benefit;
pub(crate) mod blocks;
pub(crate) mod clean_key;
pub(crate) mod counts;
pub(crate) mod fifo;
pub(crate) mod ghosts;
pub(crate) mod keyed;
pub(crate) mod lru_2;
pub(crate) mod tac;
