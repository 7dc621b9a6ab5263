//! Writes that are cut into parts, each kept whole.

use super::atomic::AtomicWrites;
use super::*;

/// Changes what a device that was just opened offers.
fn offering(mut device: FileDevice, atomic: AtomicWrites) -> FileDevice {
    Arc::get_mut(&mut device.0.0).expect("its only holder").atomic = atomic;
    device
}

#[test]
fn what_is_written_in_atomic_parts_is_a_write() {
    for (_folder, _path, device) in devices() {
        let device = offering(device, AtomicWrites::unasked((512, 4 * PAGE as u64)));
        assert!(device.write_atomically(512) && !device.write_atomically(8 * PAGE as u64));
        let work = |seed| {
            let mut prng = Prng::from_seed(seed);
            let mut model = vec![0; LEN as usize];
            write(&device, 0, &model).expect("a healthy disk");
            for round in 0..60 {
                if round == 5 {
                    assert!(device.write_atomically(PAGE as u64));
                }
                // Up to three writes that do not overlap, each from a few pieces of memory.
                let mut memory = Vec::new();
                let mut at = 512 * prng.below(200);
                for _ in 0..=prng.below(3) {
                    let pieces: Vec<Vec<u8>> = (0..=prng.below(3))
                        .map(|_| vec![prng.next_u64() as u8; 512 * (1 + prng.below(60) as usize)])
                        .collect();
                    let len: usize = pieces.iter().map(Vec::len).sum();
                    model[at as usize..at as usize + len].copy_from_slice(&pieces.concat());
                    memory.push((at, pieces));
                    at += len as u64 + 512 * prng.below(20);
                }
                let bufs: Vec<Vec<IoBuf>> = memory
                    .iter()
                    .map(|(_, pieces)| pieces.iter().map(|it| IoBuf::from_ref(it)).collect())
                    .collect();
                let requests: Vec<_> = memory
                    .iter()
                    .zip(&bufs)
                    .map(|((at, _), bufs)| Request {
                        op: Op::Write,
                        offset: *at,
                        bufs,
                        owner: None,
                    })
                    .collect();
                let done = match prng.chance(2) {
                    // SAFETY: the memory stays as it is until the batch is done.
                    true => unsafe { device.psync(&requests) },
                    // SAFETY: as above.
                    false => unsafe { device.submit(&requests) }.wait(),
                };
                done.expect("a healthy disk");
                let mut found = vec![0; LEN as usize];
                read(&device, 0, &mut found).expect("a healthy disk");
                assert!(found == model, "round {round}");
            }
        };
        work(1);
        Real::new(1).run(|| work(2));
        device.set_time_limit(Nanos::from_secs(30));
        work(3);
        assert_eq!(device.queued(), 0);
    }
}

/// The kernel refuses an atomic write from several pieces of memory.
#[test]
fn an_atomic_part_lies_in_one_piece_of_memory() {
    for (_folder, _path, device) in devices() {
        let device = offering(device, AtomicWrites::unasked((512, 4 * PAGE as u64)));
        assert!(device.write_atomically(PAGE as u64));
        let pages = Pages((0..4).map(|byte| PageBytes([byte; PAGE])).collect());
        let all: &[u8] = pages.as_ref();
        let bufs: Vec<IoBuf> = all.chunks(PAGE).map(IoBuf::from_ref).collect();
        let request = Request { op: Op::Write, offset: PAGE as u64, bufs: &bufs, owner: None };
        let parts = device.0.atomic.cut();
        assert_eq!(parts.of(&request).count(), 3, "one page, two, and one, each aligned");
        let completion = device.begin(&[request], &parts);
        let ticket = completion.ticket();
        for transfer in device.transfers(&[request], &completion, parts) {
            assert_eq!(transfer.pieces().len(), 1);
            transfer.run_here();
        }
        ticket.wait().expect("a healthy disk");
        let mut found = vec![0; 4 * PAGE];
        read(&device, PAGE as u64, &mut found).expect("a healthy disk");
        assert!(found == all);
    }
}

/// A kernel that cannot keep it whole must not write it in another way.
#[test]
fn what_the_kernel_cannot_write_atomically_is_not_written() {
    for (_folder, path, device) in devices() {
        drop(device);
        let asked = FileOptions { direct: false, ..FileOptions::default() };
        let device = FileDevice::open(&path, &asked).expect("there");
        assert!(!device.write_atomically(PAGE as u64), "never through the page cache");
        // Without direct I/O every kernel refuses.
        let device = offering(device, AtomicWrites::asking((512, PAGE as u64)));
        assert!(device.write_atomically(PAGE as u64));
        let refused = write(&device, 0, &[7; 2 * PAGE]).expect_err("it was refused");
        let code = crate::DeviceError::of(&refused).and_then(|told| told.source.raw_os_error());
        assert!(matches!(code, Some(libc::EINVAL | libc::EOPNOTSUPP)), "{refused:?}");
        write(&device, 512, &[8; 512]).expect("nothing to be kept whole");
        let mut found = vec![0; 2 * PAGE];
        read(&device, 0, &mut found).expect("a healthy disk");
        assert!(found[..512] == [0; 512] && found[1024..].iter().all(|byte| *byte == 0));
        assert_eq!(found[512..1024], [8; 512]);
    }
}
