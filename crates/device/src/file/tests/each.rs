//! Reads that end one by one, on executors and other threads.

use std::io;

use super::*;
use crate::{Fuse, PSYNC_GROUP_MAX, Reads};

/// Reads pages at `offsets`, a few at a time.
struct Pages<'a> {
    device: &'a dyn Device,
    offsets: Vec<u64>,
    memory: Vec<Vec<u8>>,
    part: usize,
    asked: usize,
    results: Vec<Option<io::Result<()>>>,
    /// Reads that were under way or had ended when the next ones were asked for.
    begun: Vec<usize>,
    /// The read whose end is a panic.
    bad: Option<usize>,
}

impl<'a> Pages<'a> {
    fn new(device: &'a dyn Device, offsets: Vec<u64>, part: usize) -> Pages<'a> {
        let memory = offsets.iter().map(|_| vec![0xEE; PAGE]).collect();
        let results = offsets.iter().map(|_| None).collect();
        let (asked, begun, bad) = (0, Vec::new(), None);
        Pages { device, offsets, memory, part, asked, results, begun, bad }
    }

    fn run(&mut self) {
        let device = self.device;
        // SAFETY: the memory is `self`'s, which outlives the call, and is looked at when the read
        // of it has ended.
        unsafe { device.read_each(self) }
    }

    fn ended_count(&self) -> usize {
        self.results.iter().flatten().count()
    }
}

impl Reads for Pages<'_> {
    fn next(&mut self, part: &mut Vec<(u64, IoBuf)>) {
        assert!(part.is_empty());
        self.begun.push(self.device.queued() + self.ended_count());
        let last = (self.asked + self.part).min(self.offsets.len());
        for at in self.asked..last {
            part.push((self.offsets[at], IoBuf::from_mut(&mut self.memory[at])));
        }
        self.asked = last;
    }

    fn ended(&mut self, index: usize, result: io::Result<()>) {
        assert!(index < self.asked && self.results[index].is_none(), "it ends once");
        assert!(self.bad != Some(index), "a bad page");
        self.results[index] = Some(result);
    }
}

fn work(device: &dyn Device, seed: u64) {
    let mut prng = Prng::from_seed(seed);
    let model: Vec<u8> = (0..LEN).map(|_| prng.below(256) as u8).collect();
    write(device, 0, &model).expect("written");
    for part in [1, 3, 16, 64] {
        let places = model.len() / PAGE;
        let count = prng.below(2 * places as u64) as usize;
        let offsets = (0..count).map(|_| prng.below(places as u64) * PAGE as u64).collect();
        let mut pages = Pages::new(device, offsets, part);
        pages.run();
        for ((offset, bytes), result) in pages.offsets.iter().zip(&pages.memory).zip(&pages.results)
        {
            assert!(matches!(result, Some(Ok(()))), "seed {seed}: {result:?}");
            assert!(bytes[..] == model[*offset as usize..][..PAGE], "seed {seed}, at {offset}");
        }
    }
    assert_eq!(device.queued(), 0);
}

#[test]
fn they_agree_with_plain_memory_on_every_method_and_thread() {
    for (_folder, _path, device) in devices() {
        work(&device, 1);
        let device = Arc::new(device);
        let on_executor = Arc::clone(&device);
        Real::new(1).run(move || work(&*on_executor, 2));
        device.set_time_limit(Nanos::from_secs(60));
        work(&*device, 3);
        work(&*Fuse::new(device), 4);
    }
}

#[test]
fn a_part_is_under_way_before_the_next_is_asked_for() {
    for (_folder, _path, device) in devices() {
        if device.method() != Method::Uring {
            continue;
        }
        let mut pages = Pages::new(&device, vec![0; 20], 8);
        pages.run();
        assert_eq!(pages.begun, [0, 8, 16, 20]);
    }
}

#[test]
fn one_that_fails_tells_why_and_the_others_are_read() {
    for (_folder, path, device) in devices() {
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("it is there");
        file.set_len(LEN / 2).expect("shortened behind its back");
        let offsets = vec![0, LEN - PAGE as u64, PAGE as u64];
        let mut pages = Pages::new(&device, offsets, 2);
        pages.run();
        let kinds = pages.results.iter().map(|it| it.as_ref().expect("it ended"));
        let kinds: Vec<_> = kinds.map(|it| it.as_ref().err().map(io::Error::kind)).collect();
        let end = Some(ErrorKind::UnexpectedEof);
        match device.method() {
            Method::Uring => assert_eq!(kinds, [None, end, None]),
            // One batch, which fails as a whole.
            _ => assert_eq!(kinds, [end; 3]),
        }
        assert_eq!(device.queued(), 0);
    }
}

#[test]
fn a_caller_that_panics_leaves_no_read_behind() {
    for (_folder, _path, device) in devices() {
        for limit in [Nanos::ZERO, Nanos::from_secs(30)] {
            device.set_time_limit(limit);
            let mut pages = Pages::new(&device, vec![0; 64], 8);
            pages.bad = Some(5);
            let ran = panic::catch_unwind(AssertUnwindSafe(|| pages.run()));
            assert!(ran.is_err());
            assert_eq!(device.queued(), 0);
            drop(pages);
            work(&device, 5);
        }
    }
}

#[test]
fn those_without_an_answer_end_with_their_time_limit() {
    if ring::availability().is_err() {
        return;
    }
    let (writer, silent) = silent::silent();
    silent.set_time_limit(Nanos::from_millis(50));
    let silent = Arc::new(silent);
    let fuse = Fuse::new(Arc::clone(&silent) as Arc<dyn Device>);
    let mut pages = Pages::new(&*fuse, vec![0; 3], 2);
    pages.run();
    for result in &pages.results {
        let error = result.as_ref().expect("it ended").as_ref().expect_err("nobody answers");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    }
    assert_eq!(silent.queued(), 3);
    assert!(pages.memory.iter().all(|it| it[..] == [0xEE; PAGE]), "no answer comes late");
    assert!(fuse.is_given_up());
    let mut pages = Pages::new(&*fuse, vec![0], 1);
    pages.run();
    let refused = pages.results[0].take().expect("it ended").expect_err("it was given up");
    assert_eq!(refused.kind(), ErrorKind::NotConnected);
    drop(writer);
}

#[test]
#[should_panic(expected = "reads")]
fn more_than_a_group_is_refused() {
    let uring = devices().into_iter().find(|(_, _, device)| device.method() == Method::Uring);
    let Some((_folder, _path, device)) = uring else { panic!("no reads without io_uring") };
    Pages::new(&device, vec![0; PSYNC_GROUP_MAX + 1], 512).run();
}
