//! The random quantities of TPC-C: NURand, last names, strings (clauses 2.1.5, 2.1.6, 4.3.2).
//!
//! - R1: every quantity comes from the generator that is passed in, so a seed decides the database.
//! - R2: `C` of the customer's last name differs between load and run by 65 to 119, and neither by
//!   96 nor by 112 (clause 2.1.6.1); the other two constants are the same in both.
//!
//! Differs from the specification in one detail: alphanumeric strings are drawn from 64 letters of
//! which two digits stand twice, so that ten characters come from one random word.

use terrace_rt::Prng;

/// The constants `C` of the function NURand, for the three fields that use it (clause 2.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    /// For C_LAST, `0..=255`.
    pub last_name: u64,
    /// For C_ID, `0..=1023`.
    pub customer: u64,
    /// For OL_I_ID, `0..=8191`.
    pub item: u64,
}

impl Constants {
    /// The constants with which the database of `seed` is loaded (C-Load).
    pub fn load(seed: u64) -> Constants {
        let mut prng = Prng::from_seed(seed ^ 0x7C0_5EED);
        Constants { last_name: prng.below(256), customer: prng.below(1024), item: prng.below(8192) }
    }

    /// Constants for a run on a database loaded with `self` (C-Run), as clause 2.1.6.1 allows them.
    #[must_use]
    pub fn for_run(self, prng: &mut Prng) -> Constants {
        loop {
            let last_name = prng.below(256);
            if is_allowed_delta(self.last_name.abs_diff(last_name)) {
                return Constants { last_name, ..self };
            }
        }
    }
}

/// Whether C-Load and C-Run of the last name may differ by `delta` (clause 2.1.6.1).
pub fn is_allowed_delta(delta: u64) -> bool {
    (65..=119).contains(&delta) && delta != 96 && delta != 112
}

/// A number uniform in `low..=high`.
pub fn uniform(prng: &mut Prng, low: u64, high: u64) -> u64 {
    low + prng.below(high - low + 1)
}

/// `NURand(a, low, high)` with the constant `c`: non-uniform in `low..=high` (clause 2.1.6).
pub fn nurand(prng: &mut Prng, a: u64, low: u64, high: u64, c: u64) -> u64 {
    let mixed = uniform(prng, 0, a) | uniform(prng, low, high);
    (mixed + c) % (high - low + 1) + low
}

/// A customer number in `1..=customers`.
pub fn customer_id(prng: &mut Prng, c: Constants, customers: u32) -> u32 {
    nurand(prng, 1023, 1, u64::from(customers), c.customer) as u32
}

/// An item number in `1..=items`.
pub fn item_id(prng: &mut Prng, c: Constants, items: u32) -> u32 {
    nurand(prng, 8191, 1, u64::from(items), c.item) as u32
}

/// The number of a last name that a district of `customers` has, at most 999.
pub fn last_name_number(prng: &mut Prng, c: Constants, customers: u32) -> u32 {
    let highest = u64::from(customers).min(LAST_NAMES) - 1;
    nurand(prng, 255, 0, highest, c.last_name) as u32
}

/// How many last names there are (clause 4.3.2.3).
pub const LAST_NAMES: u64 = 1000;

/// Bytes of the column C_LAST, and of a last name padded with zeroes.
pub const LAST_NAME_SIZE: usize = 16;

const SYLLABLES: [&[u8]; 10] =
    [b"BAR", b"OUGHT", b"ABLE", b"PRI", b"PRES", b"ESE", b"ANTI", b"CALLY", b"ATION", b"EING"];

/// The last name of `number` (`0..=999`): a syllable for each digit, padded with zeroes.
pub fn last_name(number: u32) -> [u8; LAST_NAME_SIZE] {
    assert!(u64::from(number) < LAST_NAMES);
    let mut name = [0; LAST_NAME_SIZE];
    let mut end = 0;
    for digit in [number / 100, number / 10 % 10, number % 10] {
        let syllable = SYLLABLES[digit as usize];
        name[end..end + syllable.len()].copy_from_slice(syllable);
        end += syllable.len();
    }
    name
}

const LETTERS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz01";

/// Fills `out` with alphanumeric characters.
pub fn fill_alphanumeric(prng: &mut Prng, out: &mut [u8]) {
    for chunk in out.chunks_mut(10) {
        let mut word = prng.next_u64();
        for byte in chunk {
            *byte = LETTERS[(word & 63) as usize];
            word >>= 6;
        }
    }
}

/// Fills `out` with digits.
pub fn fill_digits(prng: &mut Prng, out: &mut [u8]) {
    for byte in out {
        *byte = b'0' + prng.below(10) as u8;
    }
}

/// A string of `low..=high` alphanumeric characters in the first bytes of `out`; the rest is
/// zeroes.
pub fn alphanumeric<const N: usize>(prng: &mut Prng, low: usize, high: usize) -> [u8; N] {
    assert!(high <= N);
    let mut out = [0; N];
    let length = uniform(prng, low as u64, high as u64) as usize;
    fill_alphanumeric(prng, &mut out[..length]);
    out
}

/// The string that marks a tenth of the items and stocks (clause 4.3.3.1).
pub const ORIGINAL: &[u8; 8] = b"ORIGINAL";

/// I_DATA or S_DATA: 26 to 50 characters, `ORIGINAL` somewhere in a tenth of them.
pub fn brand_data(prng: &mut Prng) -> [u8; 50] {
    let mut out = [0; 50];
    let length = uniform(prng, 26, 50) as usize;
    fill_alphanumeric(prng, &mut out[..length]);
    if prng.below(10) == 0 {
        let at = prng.below((length - ORIGINAL.len() + 1) as u64) as usize;
        out[at..at + ORIGINAL.len()].copy_from_slice(ORIGINAL);
    }
    out
}

/// A zip code: four random digits and `11111` (clause 4.3.2.7).
pub fn zip(prng: &mut Prng) -> [u8; 9] {
    let mut out = *b"000011111";
    fill_digits(prng, &mut out[..4]);
    out
}

/// Two capital letters.
pub fn state(prng: &mut Prng) -> [u8; 2] {
    [b'A' + prng.below(26) as u8, b'A' + prng.below(26) as u8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_names_are_the_specifications() {
        assert_eq!(&last_name(371)[..14], b"PRICALLYOUGHT\0");
        assert_eq!(&last_name(40)[..11], b"BARPRESBAR\0");
        assert_eq!(&last_name(777)[..], b"CALLYCALLYCALLY\0");
    }

    #[test]
    fn nurand_stays_in_its_range_and_is_skewed() {
        let mut prng = Prng::from_seed(1);
        let c = Constants::load(1);
        let mut counts = vec![0u32; 3001];
        for _ in 0..300_000 {
            counts[customer_id(&mut prng, c, 3000) as usize] += 1;
        }
        assert_eq!(counts[0], 0);
        counts.sort_unstable();
        let top: u32 = counts[3001 - 600..].iter().sum();
        assert!(top > 130_000, "a fifth of the customers drew {top} of 300000");
    }

    #[test]
    fn run_constants_differ_as_clause_2_1_6_1_wants() {
        let mut prng = Prng::from_seed(2);
        for seed in 0..500 {
            let load = Constants::load(seed);
            let run = load.for_run(&mut prng);
            assert!(is_allowed_delta(load.last_name.abs_diff(run.last_name)), "seed {seed}");
            assert_eq!((load.customer, load.item), (run.customer, run.item));
        }
    }

    #[test]
    fn strings_have_their_lengths_and_letters() {
        let mut prng = Prng::from_seed(3);
        let (mut shortest, mut longest) = (usize::MAX, 0);
        for _ in 0..2000 {
            let text: [u8; 24] = alphanumeric(&mut prng, 14, 24);
            let length = text.iter().position(|&byte| byte == 0).unwrap_or(24);
            assert!(text[..length].iter().all(u8::is_ascii_alphanumeric));
            assert!(text[length..].iter().all(|&byte| byte == 0));
            (shortest, longest) = (shortest.min(length), longest.max(length));
        }
        assert_eq!((shortest, longest), (14, 24));
    }

    #[test]
    fn a_tenth_of_the_brands_is_original() {
        let mut prng = Prng::from_seed(4);
        let is_original = |data: [u8; 50]| data.windows(8).any(|window| window == ORIGINAL);
        let count = (0..20_000).filter(|_| is_original(brand_data(&mut prng))).count();
        assert!((1800..2200).contains(&count), "{count} of 20000");
    }
}
