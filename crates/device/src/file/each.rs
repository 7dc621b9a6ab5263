//! Reads that end one by one, by a thread that is no executor: through a ring of the device.
//!
//! ```text
//!   part -> submission queue -> one call -> what is answered -> part -> ... -> half of the rest
//!                                                               -> half of that -> ... -> the last
//! ```
//!
//! The thread waits for half of what is left each time: it then has work while the device serves
//! the other half, and only the last read finds it idle.
//!
//! - E1: each read has a completion of its own, and so a time limit of its own.
//! - E2: a read that a helper thread goes on with (a short one) is waited for at the end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use io_uring::IoUring;
use terrace_rt::Nanos;

use super::FileDevice;
use super::group::Group;
use super::job::Job;
use super::transfer::Transfer;
use crate::{IoBuf, Op, PSYNC_GROUP_MAX, Reads, Request, Ticket};

/// Reads that are under way, and how their ends are told.
struct Told<'r> {
    reads: &'r mut dyn Reads,
    /// Of those whose end is not told.
    tickets: Vec<Option<Ticket>>,
    /// All before this one are told.
    first: usize,
}

impl Told<'_> {
    /// The kernel has answered read `index`.
    fn answered(&mut self, index: usize) {
        if self.tickets[index].as_ref().is_some_and(Ticket::is_done) {
            self.tell(index);
        }
    }

    fn tell(&mut self, index: usize) {
        if let Some(ticket) = self.tickets[index].take() {
            let result = ticket.wait().map_err(|failure| failure.source);
            self.reads.ended(index, result);
        }
    }

    /// For how long to wait, by the oldest read; zero: no longer. None: without a limit.
    fn wait_for(&mut self) -> Option<Nanos> {
        while self.tickets.get(self.first).is_some_and(Option::is_none) {
            self.first += 1;
        }
        self.tickets.get(self.first)?.as_ref()?.wait_for()
    }

    /// Waits for what the ring does not have, or no longer.
    fn tell_rest(&mut self) {
        (self.first..self.tickets.len()).for_each(|index| self.tell(index));
    }
}

impl FileDevice {
    /// See `Device::read_each`.
    ///
    /// # Safety
    ///
    /// As there.
    pub(super) unsafe fn read_through(&self, ring: IoUring, reads: &mut dyn Reads) {
        let mut told = Told { reads, tickets: Vec::new(), first: 0 };
        // After the tickets: unwinding ends it first.
        let mut group = Group::begin(ring);
        let mut part = Vec::new();
        loop {
            part.clear();
            told.reads.next(&mut part);
            if part.is_empty() {
                break;
            }
            for (offset, buf) in &part {
                let ticket = self.add(&mut group, *offset, *buf);
                told.tickets.push(Some(ticket));
            }
            assert!(told.tickets.len() <= PSYNC_GROUP_MAX, "{} reads", told.tickets.len());
            group.go_on(0, None, |index| told.answered(index));
        }
        while group.left() > 0 {
            let span = told.wait_for();
            if span == Some(Nanos::ZERO) {
                Arc::clone(&self.0.helpers).run(move || group.run_out());
                return told.tell_rest();
            }
            group.go_on(group.left().div_ceil(2), span, |index| told.answered(index));
        }
        told.tell_rest();
        group.into_ring().into_iter().for_each(|ring| self.0.groups.give_back(ring));
    }

    /// Puts a read into the submission queue of a group.
    fn add(&self, group: &mut Group, offset: u64, buf: IoBuf) -> Ticket {
        let request = Request { op: Op::Read, offset, bufs: &[buf], owner: None };
        request.validate(self.0.len.load(Ordering::Acquire));
        let completion = self.0.completion(1, Job::Read, Some((offset, request.len())));
        let ticket = completion.ticket();
        self.0.gauge.start(1);
        group.push(Transfer::new(&self.0, &completion, 0, Job::Read, &request));
        ticket
    }
}
