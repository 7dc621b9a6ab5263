//! Rings of threads that are no executors: a read needs no helper thread there, which would cost
//! two switches of context.
//!
//! - W1: the thread waits in the kernel, but no longer than the time limit allows; what has no
//!   answer by then keeps its slot, and its memory, in the thread's ring.
//! - W2: only reads: submitting one does not block. A write to a frozen file system does, before
//!   Linux 6.12.

use std::sync::Arc;

use terrace_rt::{Nanos, own_reactor};

use super::job::Job;
use super::ring::Ring;
use super::transfer::Transfer;

/// Requests that go to the kernel together: one, and what the ring adds.
const SUBMISSIONS: u32 = 4;
const COMPLETIONS: u32 = 16;

/// Runs a read on this thread, and returns when it is finished or its time is over. Gives back what
/// this thread has no ring for, and what is no read.
pub(super) fn read_here(transfer: Transfer) -> Option<Transfer> {
    if transfer.job() != Job::Read || !transfer.is_detached() {
        return Some(transfer);
    }
    let mut transfer = Some(transfer);
    let open = || Ring::open(SUBMISSIONS, COMPLETIONS);
    own_reactor(open, |ring| transfer.take().into_iter().for_each(|it| run(ring, it)));
    transfer
}

fn run(ring: &mut Ring, transfer: Transfer) {
    let completion = Arc::clone(transfer.completion());
    ring.start(transfer);
    // A helper has the rest of a short transfer: the ring is empty then.
    while !completion.is_done() && ring.has_requests() {
        let span = completion.wait_for();
        if span == Some(Nanos::ZERO) {
            return;
        }
        ring.wait_for_one(span);
    }
}
