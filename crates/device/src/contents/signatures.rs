//! What other systems write on a device to be known by: one row for each, a name, a place, bytes.
//!
//! The places and bytes are those of each system's description of its own format; `tests` holds
//! them against images that the systems' own tools have made. The first row that fits names the
//! device, so what contains another comes before it: a GPT has an MBR in front, and FAT and NTFS
//! end their first sector like one. Rows only have to name: whatever has no row is found as data.

use self::At::{Both, End, Every, RaidAtEnd, RaidOldAtEnd, Start, ZfsAtEnd};

/// Where a signature stands.
#[derive(Clone, Copy, Debug)]
pub(super) enum At {
    /// This many bytes after the beginning.
    Start(u64),
    /// This many bytes before the end.
    End(u64),
    /// One at the first distance after the beginning, one at the second before the end.
    Both(u64, u64),
    /// From an offset on, at steps of a number of bytes, a number of times.
    Every(u64, u64, u64),
    /// In the last whole 64 KiB before the last 64 KiB boundary: md's version 0.90.
    RaidOldAtEnd,
    /// 8 KiB before the end, down to 4 KiB: md's version 1.0.
    RaidAtEnd,
    /// In each of the two labels of 256 KiB at the end, at the end's 256 KiB boundary: ZFS.
    ZfsAtEnd(u64, u64, u64),
}

impl At {
    /// The offsets in a device of `len` bytes at which `size` bytes fit.
    pub(super) fn offsets(self, len: u64, size: u64) -> impl Iterator<Item = u64> {
        let every = |from: Option<u64>, step: u64, count: u64| {
            let from = from.filter(|&from| from <= len);
            (0..if from.is_some() { count } else { 0 })
                .map(move |nth| from.unwrap_or(0) + nth * step)
        };
        let none = every(None, 0, 0);
        let (first, second) = match self {
            Start(offset) => (every(Some(offset), 0, 1), none),
            End(before) => (every(len.checked_sub(before), 0, 1), none),
            Both(offset, before) => {
                (every(Some(offset), 0, 1), every(len.checked_sub(before), 0, 1))
            }
            Every(from, step, count) => (every(Some(from), step, count), none),
            RaidOldAtEnd => (every((len & !0xffff).checked_sub(0x1_0000), 0, 1), none),
            RaidAtEnd => {
                let sectors = (len / 512).checked_sub(16);
                (every(sectors.map(|sectors| (sectors & !7) * 512), 0, 1), none)
            }
            ZfsAtEnd(from, step, count) => {
                let label = |nth: u64| (len & !0x3_ffff).checked_sub(nth * 0x4_0000);
                let at = |nth| label(nth).map(|label| label + from);
                (every(at(2), step, count), every(at(1), step, count))
            }
        };
        first.chain(second).filter(move |&at| at.checked_add(size).is_some_and(|end| end <= len))
    }
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signature {
    pub(super) name: &'static str,
    pub(super) at: At,
    pub(super) magic: &'static [u8],
}

const fn row(name: &'static str, at: At, magic: &'static [u8]) -> Signature {
    Signature { name, at, magic }
}

const FAT: &str = "a FAT file system";
const SWAP: &str = "swap space";
const HIBERNATED: &str = "a hibernated system";
const LVM: &str = "an LVM2 physical volume";
const RAID: &str = "a member of an md RAID array";
const ZFS: &str = "a member of a ZFS pool";
const GPT: &str = "a GPT partition table";
const LUKS_1: &str = "a LUKS1 encrypted volume";
const LUKS_2: &str = "a LUKS2 encrypted volume";
const REISER: &str = "a ReiserFS file system";
const UDF: &str = "a UDF file system";
const MINIX: &str = "a Minix file system";
const UFS: &str = "a UFS file system";
/// A home.
pub const DATABASE: &str = "a Terrace database";
/// A log.
pub const LOG: &str = "the log of a Terrace database";
/// A flash tier.
pub const FLASH: &str = "a Terrace flash tier";
/// A flash tier that is part of its database.
pub const FLASH_PART: &str =
    "the flash tier of another Terrace database, which does not open without it";

const BCACHE: &[u8] = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
const BCACHEFS: &[u8] = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";

#[rustfmt::skip]
pub(super) const SIGNATURES: &[Signature] = &[
    // Our own.
    row(DATABASE, Start(32), b"TERRACE\0"),
    row(DATABASE, Start(8192 + 32), b"TERRACE\0"),
    row(LOG, Start(0), b"TERRALOG"),
    row(FLASH, End(8192), b"terrace flash 1\n"),
    row(FLASH, Start(8), b"TERRFLSH"),
    // What other devices are made of.
    row(LUKS_1, Start(0), b"LUKS\xba\xbe\0\x01"),
    row(LUKS_2, Start(0), b"LUKS\xba\xbe\0\x02"),
    row(LUKS_2, Start(0x4000), b"SKUL\xba\xbe"),
    row(LUKS_2, Start(0x8000), b"SKUL\xba\xbe"),
    row(LUKS_2, Start(0x1_0000), b"SKUL\xba\xbe"),
    row(LUKS_2, Start(0x2_0000), b"SKUL\xba\xbe"),
    row(LUKS_2, Start(0x4_0000), b"SKUL\xba\xbe"),
    row(LUKS_2, Start(0x8_0000), b"SKUL\xba\xbe"),
    row(LUKS_2, Start(0x10_0000), b"SKUL\xba\xbe"),
    row(LUKS_2, Start(0x20_0000), b"SKUL\xba\xbe"),
    row(LUKS_2, Start(0x40_0000), b"SKUL\xba\xbe"),
    row(LVM, Every(0, 512, 4), b"LABELONE"),
    row(RAID, Start(0), b"\xfc\x4e\x2b\xa9"),
    row(RAID, Start(4096), b"\xfc\x4e\x2b\xa9"),
    row(RAID, RaidAtEnd, b"\xfc\x4e\x2b\xa9"),
    row(RAID, RaidOldAtEnd, b"\xfc\x4e\x2b\xa9"),
    row(RAID, RaidOldAtEnd, b"\xa9\x2b\x4e\xfc"),
    row("a member of an Intel RAID array", End(1024), b"Intel Raid ISM Cfg Sig. "),
    row("a member of a DDF RAID array", End(512), b"\xde\x11\xde\x11"),
    row("a DRBD device", End(4096 - 60), b"\x83\x74\x02\x67"),
    row("a DRBD device", End(4096 - 60), b"\x83\x74\x02\x6b"),
    row(ZFS, Every(0x2_0000, 1024, 128), b"\x0c\xb1\xba\0\0\0\0\0"),
    row(ZFS, Every(0x2_0000, 1024, 128), b"\0\0\0\0\0\xba\xb1\x0c"),
    row(ZFS, Every(0x6_0000, 1024, 128), b"\x0c\xb1\xba\0\0\0\0\0"),
    row(ZFS, Every(0x6_0000, 1024, 128), b"\0\0\0\0\0\xba\xb1\x0c"),
    row(ZFS, ZfsAtEnd(0x2_0000, 1024, 128), b"\x0c\xb1\xba\0\0\0\0\0"),
    row(ZFS, ZfsAtEnd(0x2_0000, 1024, 128), b"\0\0\0\0\0\xba\xb1\x0c"),
    row("a bcache device", Start(0x1018), BCACHE),
    row("a bcachefs file system", Start(0x1018), BCACHEFS),
    row("a dm-verity device", Start(0), b"verity\0\0"),
    row("a dm-integrity device", Start(0), b"integrt\0"),
    row("a VDO volume", Start(0), b"dmvdo001"),
    row("a member of a Stratis pool", Start(0x204), b"!Stra0tis\x86\xff\x02^\x41rh"),
    row("a Ceph BlueStore device", Start(0), b"bluestore block device"),
    row("an Oracle ASM disk", Start(32), b"ORCLDISK"),
    row("a BitLocker volume", Start(3), b"-FVE-FS-"),
    // File systems.
    row("an XFS file system", Start(0), b"XFSB"),
    row("a btrfs file system", Start(0x1_0040), b"_BHRfS_M"),
    row("a btrfs file system", Start(0x400_0040), b"_BHRfS_M"),
    row("an F2FS file system", Start(0x400), b"\x10\x20\xf5\xf2"),
    row("an F2FS file system", Start(0x1400), b"\x10\x20\xf5\xf2"),
    row("an EROFS file system", Start(0x400), b"\xe2\xe1\xf5\xe0"),
    row("an exFAT file system", Start(3), b"EXFAT   "),
    row("an NTFS file system", Start(3), b"NTFS    "),
    row("a ReFS file system", Start(3), b"ReFS\0\0\0\0"),
    row("an APFS container", Start(32), b"NXSB"),
    row("a JFS file system", Start(0x8000), b"JFS1"),
    row(REISER, Start(0x1_0034), b"ReIsErFs"),
    row(REISER, Start(0x1_0034), b"ReIsEr2Fs"),
    row(REISER, Start(0x1_0034), b"ReIsEr3Fs"),
    row(REISER, Start(0x2034), b"ReIsErFs"),
    row("a Reiser4 file system", Start(0x1_0000), b"ReIsEr4"),
    row("a GFS2 file system", Start(0x1_0000), b"\x01\x16\x19\x70\0\0\0\x01"),
    row("an OCFS2 file system", Every(0x400, 0x400, 8), b"OCFSV2"),
    row("a VMFS volume", Start(0x20_0000), b"\x5e\xf1\xab\x2f"),
    row("a VMFS volume", Start(0x10_0000), b"\x0d\xd0\x01\xc0"),
    row("a SquashFS file system", Start(0), b"hsqs"),
    row("a cramfs file system", Start(0), b"\x45\x3d\xcd\x28"),
    row("a romfs file system", Start(0), b"-rom1fs-"),
    row(UFS, Start(0x255c), b"\x54\x19\x01\0"),
    row(UFS, Start(0x1_055c), b"\x19\x01\x54\x19"),
    row("an ext2, ext3 or ext4 file system", Start(0x438), b"\x53\xef"),
    row("a NILFS2 file system", Start(0x406), b"\x34\x34"),
    row("an HFS+ file system", Start(0x400), b"H+\0\x04"),
    row("an HFS+ file system", Start(0x400), b"HX\0\x05"),
    row("an HFS file system", Start(0x400), b"BD"),
    row(UDF, Start(0x8001), b"BEA01"),
    row(UDF, Start(0x8001), b"NSR02"),
    row(UDF, Start(0x8001), b"NSR03"),
    row("an ISO 9660 file system", Start(0x8001), b"CD001"),
    row(FAT, Start(0x52), b"FAT32   "),
    row(FAT, Start(0x36), b"FAT16   "),
    row(FAT, Start(0x36), b"FAT12   "),
    row(FAT, Start(0x36), b"FAT     "),
    row(FAT, Start(0x52), b"MSWIN"),
    row(FAT, Start(0x36), b"MSDOS"),
    row(MINIX, Start(0x410), b"\x7f\x13"),
    row(MINIX, Start(0x410), b"\x8f\x13"),
    row(MINIX, Start(0x410), b"\x68\x24"),
    row(MINIX, Start(0x410), b"\x78\x24"),
    row(MINIX, Start(0x418), b"\x5a\x4d"),
    // Swap: ten bytes before the end of a memory page, of 4 KiB up to 64 KiB.
    row(SWAP, Every(0xff6, 0x1000, 16), b"SWAPSPACE2"),
    row(SWAP, Every(0xff6, 0x1000, 16), b"SWAP-SPACE"),
    row(HIBERNATED, Every(0xff6, 0x1000, 16), b"S1SUSPEND"),
    row(HIBERNATED, Every(0xff6, 0x1000, 16), b"S2SUSPEND"),
    row(HIBERNATED, Every(0xff6, 0x1000, 16), b"ULSUSPEND"),
    row(HIBERNATED, Every(0xff6, 0x1000, 16), b"LINHIB0001"),
    // Files that are easily taken for something else.
    row("a QEMU disk image", Start(0), b"QFI\xfb"),
    row("an SQLite database", Start(0), b"SQLite format 3\0"),
    // Partition tables, with sectors of 512 bytes and of 4 KiB; the weakest signature is the last.
    row(GPT, Both(512, 512), b"EFI PART"),
    row(GPT, Both(4096, 4096), b"EFI PART"),
    row("an MBR partition table or a boot sector", Start(510), b"\x55\xaa"),
];
