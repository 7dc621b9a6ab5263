//! Restarts at the pool: what of the flash is used again after a power cut or a shutdown, and what
//! happens without each of the rules that make it safe.

mod lbr;
mod lvr;
mod machine;
mod mmr;
mod no_loss;
