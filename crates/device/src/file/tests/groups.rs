//! Groups of requests, on executors and other threads.

use std::cell::Cell;

use super::*;
use crate::{PsyncRead, PsyncWrite, psync_read, psync_write};

const SECTOR: usize = SECTOR_SIZE;

/// Random groups beside plain memory.
fn work(device: &FileDevice, seed: u64) {
    let mut prng = Prng::from_seed(seed);
    let mut model = vec![0; LEN as usize];
    write(device, 0, &model).expect("written");
    for _ in 0..40 {
        let places = model.len() / PAGE;
        let mut order: Vec<usize> = (0..places).collect();
        prng.shuffle(&mut order);
        order.truncate(1 + prng.below(places as u64) as usize);
        if prng.chance(2) {
            let pages: Vec<Vec<u8>> =
                order.iter().map(|_| vec![prng.below(256) as u8; PAGE]).collect();
            for (place, page) in order.iter().zip(&pages) {
                model[place * PAGE..(place + 1) * PAGE].copy_from_slice(page);
            }
            let group = order.iter().zip(&pages);
            let group: Vec<_> = group
                .map(|(place, bytes)| PsyncWrite { offset: (place * PAGE) as u64, bytes })
                .collect();
            psync_write(device, &group).expect("written");
        } else {
            let mut pages = vec![vec![0xEE; SECTOR * 3]; order.len()];
            let mut group: Vec<_> = order
                .iter()
                .zip(&mut pages)
                .map(|(place, bytes)| PsyncRead { offset: (place * PAGE) as u64, bytes })
                .collect();
            psync_read(device, &mut group).expect("read");
            for (place, page) in order.iter().zip(&pages) {
                assert!(page[..] == model[place * PAGE..][..SECTOR * 3], "seed {seed}");
            }
        }
    }
    assert_eq!(device.queued(), 0);
}

#[test]
fn groups_agree_with_plain_memory_on_every_method_and_thread() {
    for (_folder, _path, device) in devices() {
        work(&device, 1);
        let device = Arc::new(device);
        let on_executor = Arc::clone(&device);
        Real::new(1).run(move || work(&on_executor, 2));
        device.set_time_limit(Nanos::from_secs(60));
        work(&device, 3);
    }
}

#[test]
fn a_group_is_handed_over_and_waited_for_in_one_call() {
    for (_folder, _path, device) in devices() {
        if device.method() != Method::Uring {
            continue;
        }
        let ring = device.0.groups.take().expect("a ring");
        let completion = device.0.completion(PSYNC_GROUP_MAX, Job::Read, None);
        let mut memory = vec![0; PAGE + 4096];
        let start = memory.as_ptr().align_offset(4096);
        let bufs = [IoBuf::from_mut(&mut memory[start..start + PAGE])];
        let transfers: Vec<_> = (0..PSYNC_GROUP_MAX)
            .map(|index| {
                let offset = (index % 128 * PAGE) as u64;
                let request = Request { op: Op::Read, offset, bufs: &bufs, owner: None };
                Transfer::new(&device.0, &completion, index, Job::Read, &request)
            })
            .collect();
        device.0.gauge.start(transfers.len());
        let calls = Cell::new(0);
        let ended = Group::new(ring, transfers).run(|| {
            calls.set(calls.get() + 1);
            None
        });
        assert!(matches!(ended, Ended::Answered(Some(_))));
        assert_eq!(calls.get(), 1);
        completion.ticket().wait().expect("read");
    }
}

#[test]
fn the_first_failure_of_a_group_is_told_and_the_next_group_works() {
    for (_folder, path, device) in devices() {
        std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_len(LEN / 2))
            .expect("shortened behind its back");
        let mut pages = vec![vec![0; PAGE]; 3];
        let offsets = [0, LEN - PAGE as u64, LEN / 2];
        let group = |pages: &mut [Vec<u8>], count| {
            let reads = offsets.iter().zip(pages).take(count);
            let mut reads: Vec<_> =
                reads.map(|(offset, bytes)| PsyncRead { offset: *offset, bytes }).collect();
            psync_read(&device, &mut reads)
        };
        let failure = group(&mut pages, 3).expect_err("past the end of the file");
        assert_eq!((failure.index, failure.source.kind()), (1, ErrorKind::UnexpectedEof));
        group(&mut pages, 1).expect("read");
    }
}

#[test]
fn an_empty_group_is_done_and_one_too_large_is_refused() {
    let (_folder, _path, device) = devices().swap_remove(0);
    psync_read(&device, &mut []).expect("nothing to do");
    let bytes = [0; SECTOR];
    let group = vec![PsyncWrite { offset: 0, bytes: &bytes }; PSYNC_GROUP_MAX + 1];
    let refused = panic::catch_unwind(AssertUnwindSafe(|| psync_write(&device, &group)));
    assert!(refused.is_err());
}
