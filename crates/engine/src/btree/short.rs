//! Comparing short runs of bytes: keys, fences and prefixes, a few words each.
//!
//! The standard library compares slices by a call, which for ten bytes costs more than the
//! comparison. Here up to sixteen bytes are compared as words that are loaded in place; what is
//! longer goes to the library.
//!
//! - B1: `compare` orders as slices do, `equal` and `starts_with` agree with theirs.

use std::cmp::Ordering;

/// The first eight bytes as a number that sorts like them; zeroes for those that are not there.
#[inline(always)]
pub(super) fn first_eight(bytes: &[u8]) -> u64 {
    if let Some(chunk) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*chunk);
    }
    // Two chunks that overlap where there are fewer bytes than both have.
    let cut = 8 * (8 - bytes.len()) as u32;
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (first, last) = (u32::from_be_bytes(*first), u32::from_be_bytes(*last));
        return u64::from(first) << 32 | u64::from(last) << cut;
    }
    u64::from(first_of_three(bytes)) << 32
}

/// The first four bytes as a number that sorts like them; zeroes for those that are not there.
#[inline(always)]
pub(super) fn first_four(bytes: &[u8]) -> u32 {
    match bytes.first_chunk::<4>() {
        Some(chunk) => u32::from_be_bytes(*chunk),
        None => first_of_three(bytes),
    }
}

#[inline]
fn first_of_three(bytes: &[u8]) -> u32 {
    match *bytes {
        [a, b, c, ..] => u32::from_be_bytes([a, b, c, 0]),
        [a, b] => u32::from_be_bytes([a, b, 0, 0]),
        [a] => u32::from(a) << 24,
        [] => 0,
    }
}

/// Up to sixteen bytes as a number, the first one lowest.
#[inline(always)]
fn word(bytes: &[u8]) -> u128 {
    let low = |chunk: [u8; 8]| u128::from(u64::from_le_bytes(chunk));
    // Two chunks that overlap where there are fewer bytes than both have.
    if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        return low(*first) | low(*last) << (8 * (bytes.len() - 8));
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return u128::from(first) | u128::from(last) << (8 * (bytes.len() - 4));
    }
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u128::from(*byte))
}

/// What many runs of bytes begin with: a prefix, to be put before each of them.
pub(super) struct Prefix<'p> {
    bytes: &'p [u8],
    word: u128,
}

/// Bytes that are put together as a word.
const WORD: usize = 16;

impl<'p> Prefix<'p> {
    pub(super) fn new(bytes: &'p [u8]) -> Prefix<'p> {
        Prefix { bytes, word: if bytes.len() <= WORD { word(bytes) } else { 0 } }
    }

    /// Appends it and `rest` to `out`.
    #[inline(always)]
    pub(super) fn append(&self, rest: &[u8], out: &mut Vec<u8>) {
        let len = self.bytes.len() + rest.len();
        if len > WORD || self.bytes.len() == WORD {
            out.extend_from_slice(self.bytes);
            out.extend_from_slice(rest);
            return;
        }
        let end = out.len() + len;
        let both = self.word | word(rest) << (8 * self.bytes.len());
        out.extend_from_slice(&both.to_le_bytes());
        out.truncate(end);
    }
}

/// How `a` sorts to `b`.
#[inline]
pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    match first_eight(a).cmp(&first_eight(b)) {
        Ordering::Equal => {}
        unequal => return unequal,
    }
    // With equal heads, one that ends within them is the beginning of the other.
    let (Some(a_rest), Some(b_rest)) = (a.get(8..), b.get(8..)) else {
        return a.len().cmp(&b.len());
    };
    match first_eight(a_rest).cmp(&first_eight(b_rest)) {
        Ordering::Equal if a_rest.len() > 8 && b_rest.len() > 8 => a_rest.cmp(b_rest),
        Ordering::Equal => a.len().cmp(&b.len()),
        unequal => unequal,
    }
}

/// Whether `a` and `b` are the same.
#[inline(always)]
pub(super) fn equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    if a.len() <= 8 {
        return first_eight(a) == first_eight(b);
    }
    // Two chunks that overlap where there are fewer bytes than both have.
    let ends = |bytes: &[u8]| (bytes.first_chunk::<8>().copied(), bytes.last_chunk::<8>().copied());
    ends(a) == ends(b) && (a.len() <= 16 || a == b)
}

/// Whether `bytes` begin with `prefix`.
#[inline(always)]
pub(super) fn starts_with(bytes: &[u8], prefix: &[u8]) -> bool {
    bytes.get(..prefix.len()).is_some_and(|head| equal(head, prefix))
}

/// The length of what `a` and `b` both begin with.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    if starts_with(b, a) {
        return a.len();
    }
    let (a_words, b_words) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    let words = a_words.iter().zip(b_words).take_while(|(a, b)| a == b).count();
    let (a_rest, b_rest) = (&a[8 * words..], &b[8 * words..]);
    8 * words + a_rest.iter().zip(b_rest).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use terrace_rt::Prng;

    use super::*;

    #[test]
    fn short_runs_stand_to_each_other_as_slices_do() {
        let mut prng = Prng::from_seed(1);
        let mut bytes = || {
            let len = prng.below(22);
            (0..len).map(|_| [0, 0, 0, 0, 1, 255][prng.below(6) as usize]).collect::<Vec<u8>>()
        };
        for _ in 0..300_000 {
            let (a, b) = (bytes(), bytes());
            assert_eq!(compare(&a, &b), a.cmp(&b), "{a:?} {b:?}");
            assert_eq!(equal(&a, &b), a == b, "{a:?} {b:?}");
            assert_eq!(starts_with(&a, &b), a.starts_with(&b), "{a:?} {b:?}");
            assert!(equal(&a, &a.clone()) && starts_with(&a, &a[..a.len() / 2]));
            let mut padded = [0; 8];
            padded[..a.len().min(8)].copy_from_slice(&a[..a.len().min(8)]);
            let mut out = vec![7];
            Prefix::new(&a).append(&b, &mut out);
            assert_eq!(out, [&[7], &a[..], &b[..]].concat(), "{a:?} {b:?}");
            assert_eq!(first_eight(&a), u64::from_be_bytes(padded), "{a:?}");
            assert_eq!(first_four(&a), (u64::from_be_bytes(padded) >> 32) as u32, "{a:?}");
        }
    }
}
