//! Restarts at the pool: what of the flash is used again after a power cut or a shutdown, and what
//! happens if a rule that makes it safe is broken.

mod lbr;
mod lvr;
mod machine;
mod mmr;
mod no_loss;
mod segments;
