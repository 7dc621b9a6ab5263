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

/// The chance that contents.C1 names, over many devices.
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

/// What the tools of other systems have made: see `tests/data/signatures.md`.
#[test]
fn real_images_are_named() {
    let images = images();
    let expected = [
        (vec!["ext2", "ext3", "ext4"], "an ext2, ext3 or ext4 file system"),
        (vec!["xfs"], "an XFS file system"),
        (vec!["btrfs"], "a btrfs file system"),
        (vec!["f2fs"], "an F2FS file system"),
        (vec!["vfat12", "vfat16", "vfat32"], "a FAT file system"),
        (vec!["exfat"], "an exFAT file system"),
        (vec!["ntfs"], "an NTFS file system"),
        (vec!["nilfs2"], "a NILFS2 file system"),
        (vec!["jfs"], "a JFS file system"),
        (vec!["udf"], "a UDF file system"),
        (vec!["reiserfs"], "a ReiserFS file system"),
        (vec!["minix"], "a Minix file system"),
        (vec!["iso9660"], "an ISO 9660 file system"),
        (vec!["squashfs"], "a SquashFS file system"),
        (vec!["erofs"], "an EROFS file system"),
        (vec!["swap", "swap64k"], "swap space"),
        (vec!["luks1"], "a LUKS1 encrypted volume"),
        (vec!["luks2"], "a LUKS2 encrypted volume"),
        (vec!["lvm2"], "an LVM2 physical volume"),
        (vec!["bcache"], "a bcache device"),
        (vec!["gpt", "gptend"], "a GPT partition table"),
        (vec!["mbr"], "an MBR partition table or a boot sector"),
        (vec!["md0.90", "md1.0", "md1.1", "md1.2"], "a member of an md RAID array"),
        (vec!["zfs", "zfsend"], "a member of a ZFS pool"),
    ];
    let mut named = 0;
    for (names, what) in expected {
        for name in names {
            assert_eq!(images[name].contents(), Contents::Signature(what), "{name}");
            named += 1;
        }
    }
    assert_eq!(named, images.len(), "every image is expected to be something");
}

fn images() -> BTreeMap<String, Sparse> {
    let packed = include_bytes!("../../tests/data/signatures.zst");
    let mut reader = ruzstd::decoding::StreamingDecoder::new(&packed[..]).expect("a zstd file");
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut reader, &mut bytes).expect("whole");
    let mut rest = &bytes[..];
    let mut take = |count: usize| {
        let (taken, after) = rest.split_at(count);
        rest = after;
        taken
    };
    let number = |bytes: &[u8]| {
        let mut eight = [0; 8];
        eight[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(eight)
    };
    let mut images = BTreeMap::new();
    for _ in 0..34 {
        let (name_len, len, sectors) = (number(take(2)), number(take(8)), number(take(4)));
        let name = String::from_utf8(take(name_len as usize).to_vec()).expect("a name");
        let mut image = Sparse::new(len);
        for _ in 0..sectors {
            let offset = number(take(8));
            let within = (len - offset).min(512) as usize;
            image.put(offset, &take(512)[..within]);
        }
        images.insert(name, image);
    }
    assert!(rest.is_empty());
    images
}
