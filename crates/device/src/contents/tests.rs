//! Every row against an image of its own, real images, samples against chance, and short devices.

use std::collections::BTreeMap;

use super::*;

/// Bytes here and there on a device of zeroes.
#[derive(Clone, Default)]
struct Sparse {
    len: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Sparse {
    fn new(len: u64) -> Sparse {
        Sparse { len, pages: BTreeMap::new() }
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) {
        for (at, &byte) in (offset..).zip(bytes) {
            assert!(at < self.len);
            let page = self.pages.entry(at / PAGE as u64).or_insert_with(|| vec![0; PAGE]);
            page[at as usize % PAGE] = byte;
        }
    }

    fn with(mut self, offset: u64, bytes: &[u8]) -> Sparse {
        self.put(offset, bytes);
        self
    }

    fn contents(&self) -> Contents {
        Contents::of(self).expect("memory")
    }
}

impl ReadAt for Sparse {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let end = offset + into.len() as u64;
        assert!(end <= self.len, "{offset} + {} of {}", into.len(), self.len);
        into.fill(0);
        let (first, last) = (offset / PAGE as u64, end.div_ceil(PAGE as u64));
        for (&page, bytes) in self.pages.range(first..last) {
            let from = page * PAGE as u64;
            let (begin, stop) = (from.max(offset), (from + PAGE as u64).min(end));
            let part = &bytes[(begin - from) as usize..(stop - from) as usize];
            into[(begin - offset) as usize..(stop - offset) as usize].copy_from_slice(part);
        }
        Ok(())
    }
}

const MIB: u64 = 1 << 20;

#[test]
fn zeroes_are_blank_whatever_their_length() {
    let lens = [0, 1, 511, 512, 4095, 4096, 65_536, MIB - 1, MIB, MIB + 1, 2 * MIB, 2 * MIB + 4096];
    for len in lens.into_iter().chain([3 * MIB + 17, 100 * MIB, 1 << 44]) {
        assert_eq!(Sparse::new(len).contents(), Contents::Blank, "{len}");
    }
}

/// A device was taken as blank if its first 16 KiB were zero: a btrfs file system begins at 64 KiB.
#[test]
fn every_byte_of_both_ends_counts() {
    for len in [1, 700, 5000, MIB + 3, 2 * MIB, 64 * MIB, 1 << 40] {
        for offset in [0, 16_384, 65_536, MIB - 1, len / 2, len.saturating_sub(MIB), len - 1] {
            let within = offset < len && (offset < MIB || offset >= len.saturating_sub(MIB));
            if within {
                let found = Sparse::new(len).with(offset, &[1]).contents();
                assert_eq!(found, Contents::Data { offset }, "of {len}");
            }
        }
    }
}

#[test]
fn every_row_is_found_where_it_says_and_named() {
    for len in [70 * MIB, 100 * MIB + 512 * 7, (1 << 36) + 4096 * 5] {
        for signature in SIGNATURES {
            let offsets: Vec<_> = signature.at.offsets(len, signature.magic.len() as u64).collect();
            assert!(!offsets.is_empty(), "{}", signature.name);
            for offset in offsets {
                let found = Sparse::new(len).with(offset, signature.magic);
                let named = found.contents();
                assert_eq!(named, Contents::Signature(signature.name), "at {offset} of {len}");
                // One byte that is another is no signature, but no zero either at the ends.
                let mut other = signature.magic.to_vec();
                other[0] ^= 0x40;
                let found = Sparse::new(len).with(offset, &other).contents();
                let is_near = offset < MIB || offset >= len - MIB;
                assert!(found != Contents::Blank || !is_near, "{}", signature.name);
                assert_ne!(found, Contents::Signature(signature.name), "at {offset} of {len}");
            }
        }
    }
}

#[test]
fn rows_stay_within_devices_of_every_length() {
    for len in (0..20_000).step_by(37).chain((0..3 * MIB).step_by(65_521)) {
        for signature in SIGNATURES {
            let size = signature.magic.len() as u64;
            assert!(signature.at.offsets(len, size).all(|at| at + size <= len));
        }
        let mut image = Sparse::new(len);
        if len > 0 {
            image.put(len - 1, &[9]);
            assert_eq!(image.contents(), Contents::Data { offset: len - 1 });
        }
    }
}

/// The chance that C1 names, over many devices.
#[test]
fn data_in_one_page_of_a_hundred_is_found() {
    let mut seed = 1;
    for device in 0..40 {
        let len = (200 + 31 * device) * MIB + 4096 * device;
        let mut image = Sparse::new(len);
        for _ in 0..(len - 2 * MIB) / PAGE as u64 / 100 {
            let at = MIB + next(&mut seed) % (len - 2 * MIB);
            image.put(at, &[1 + (next(&mut seed) % 255) as u8]);
        }
        let found = image.contents();
        assert!(matches!(found, Contents::Data { .. }), "device {device}: {found}");
        assert_eq!(found, image.contents(), "the same again");
    }
}

#[test]
fn a_small_device_is_read_whole() {
    let pages = 2 * MIB / PAGE as u64 + SAMPLES;
    for page in (0..pages).step_by(7) {
        let offset = page * PAGE as u64 + page % PAGE as u64;
        let image = Sparse::new(pages * PAGE as u64).with(offset, &[5]);
        assert_eq!(image.contents(), Contents::Data { offset });
    }
}

#[test]
fn what_cannot_be_read_is_not_blank() {
    struct Bad;
    impl ReadAt for Bad {
        fn len(&self) -> u64 {
            1 << 30
        }
        fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
            into.fill(0);
            if offset > 1 << 29 { Err(io::ErrorKind::InvalidData.into()) } else { Ok(()) }
        }
    }
    assert!(Contents::of(&Bad).is_err());
}
