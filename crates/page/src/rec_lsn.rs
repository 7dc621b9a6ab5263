//! A position of the log in 32 bits: the number of the block of 4 KiB that it is in, modulo
//! 2^32 - 2, plus one. All ones is the beginning of the first block; zero is none.
//!
//! A log never begins anew, so its positions do not fit into 32 bits for ever. But at any time all
//! positions that matter lie within the capacity of the log of each other, less than half of what
//! 32 bits can tell apart ([`LOG_BYTES_MAX`]): next to a position that is known, one of them
//! is meant.

use crate::Lsn;

const BLOCK_SHIFT: u32 = 12;
const MODULUS: u64 = u32::MAX as u64 - 1;
const BEGINNING: u32 = u32::MAX;

/// A log holds less than this: 4 TiB.
pub const LOG_BYTES_MAX: u64 = 1 << 42;

/// No record begins here or later, 255 TiB: tables on flash keep 48 bits of LSNs.
pub const LSN_MAX: Lsn = Lsn((1 << 48) - (1 << 40));

/// The block that `lsn` is in. Never zero.
#[must_use]
#[inline]
pub fn narrow(lsn: Lsn) -> u32 {
    match lsn.0 >> BLOCK_SHIFT {
        0 => BEGINNING,
        block => (block % MODULUS) as u32 + 1,
    }
}

/// Where the block begins that `narrow` made `narrowed` of: of all such blocks the one next to
/// `near`. `None` for zero.
#[must_use]
#[inline]
pub fn widen(narrowed: u32, near: Lsn) -> Option<Lsn> {
    if narrowed == BEGINNING {
        return Some(Lsn::ZERO);
    }
    let block = u64::from(narrowed.checked_sub(1)?);
    let near = near.0 >> BLOCK_SHIFT;
    let ahead = (block + MODULUS - near % MODULUS) % MODULUS;
    let wide = match MODULUS - ahead {
        behind if ahead > MODULUS / 2 && behind <= near => near - behind,
        _ => near + ahead,
    };
    Some(Lsn(wide << BLOCK_SHIFT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_position_is_found_from_any_other_that_a_log_may_hold_beside_it() {
        let far = LOG_BYTES_MAX - (1 << BLOCK_SHIFT);
        let around = [0, 4096, 1 << 20, 1 << 43, 1 << 44, (1 << 44) - 4096, LSN_MAX.0];
        for middle in around.into_iter().chain((0..64).map(|bit| (LSN_MAX.0 >> bit) / 3 * 2)) {
            for offset in [0, 1, 4095, 4096, 1 << 30, far] {
                for lsn in [middle + offset, middle.saturating_sub(offset)] {
                    let block = Lsn(lsn >> BLOCK_SHIFT << BLOCK_SHIFT);
                    for near in [middle, lsn, lsn + 1] {
                        let found = widen(narrow(Lsn(lsn)), Lsn(near));
                        assert_eq!(found, Some(block), "{lsn} from {near}");
                    }
                }
            }
        }
        assert_eq!(widen(0, Lsn(77)), None);
        assert_eq!(widen(narrow(Lsn::ZERO), LSN_MAX), Some(Lsn::ZERO));
    }
}
