//! Reads that end one by one: the caller hands over a few at a time, and gets each back as it ends.
//!
//! ```text
//!   next --> part 1 --.                      ended 0, 2, 1, ...
//!   next --> part 2 ---+--> the device --->  (each once)
//!   next --> none      |
//! ```
//!
//! After psync I/O (Roh et al., 2014, see `psync`), of which it keeps that one thread has many
//! requests under way and waits for all of them in few system calls. It differs in that the device
//! works while the caller finds the next pages to read, and while it checks those that have ended:
//! of a group of 64 pages of 8 KiB that takes 1 ms, the work of the caller is some 200 us.
//!
//! - K1: `next` and `ended` are called by the thread that called `read_each`, while other reads are
//!   in flight. So they must not wait for a task that may wait for one of those.
//! - K2: each read ends once; its buffer is the caller's again from then on.

use std::io;

use crate::IoBuf;

/// What the caller of [`Device::read_each`](crate::Device::read_each) reads.
pub trait Reads {
    /// Appends the next few reads to `part`, which is empty: the first byte of each on the device,
    /// and where it goes. None: there are no more.
    fn next(&mut self, part: &mut Vec<(u64, IoBuf)>);

    /// The read that was number `index`, from zero on over all parts, has ended. If it failed, its
    /// bytes are undefined, though initialised.
    fn ended(&mut self, index: usize, result: io::Result<()>);
}

/// Reads that are passed on to another device, whose failures are looked at on their way back.
pub(crate) struct Watched<'a, F> {
    pub(crate) reads: &'a mut dyn Reads,
    pub(crate) look_at: F,
}

impl<F: FnMut(&io::Error)> Reads for Watched<'_, F> {
    fn next(&mut self, part: &mut Vec<(u64, IoBuf)>) {
        self.reads.next(part);
    }

    fn ended(&mut self, index: usize, result: io::Result<()>) {
        self.reads.ended(index, result.inspect_err(&mut self.look_at));
    }
}
