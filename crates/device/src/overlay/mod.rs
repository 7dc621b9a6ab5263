//! A device over another one that takes writes and changes nothing below: copy on write.
//!
//! ```text
//!   write  -->  blocks (memory, then a nameless file)
//!   read   <--  what blocks has of the range, over what the device below has
//! ```
//!
//! - Idea: a program that must look at a database that was not closed runs the ordinary recovery on
//!   overlays, and sees what it would have written, while the devices stay as they are.
//! - O1: the device below is read, and never written, synced, reserved, lengthened or trimmed.
//! - O2: a read that nothing here touches goes straight below, with all its requests in flight at
//!   once. Any other waits for the device within `submit`.
//! - Durability: none. What was written goes with the overlay.

mod blocks;
mod withheld;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_rt::{Mutex, Nanos};

pub use self::blocks::OverlayMemory;
use self::blocks::{Blocks, Coverage};
pub use self::withheld::{OnLoss, Withheld, Withholding};
use crate::{Completion, Counters, Device, IoBuf, IoFailure, Op, Request, Ticket, read};

/// Copy on write over another device. See the module.
pub struct Overlay {
    below: Arc<dyn Device>,
    blocks: Mutex<Blocks>,
    len: AtomicU64,
}

impl Overlay {
    /// Over `below`, with what is written kept in `memory`, and in a temporary file beyond.
    #[must_use]
    pub fn new(below: Arc<dyn Device>, memory: &Arc<OverlayMemory>) -> Arc<Overlay> {
        let (blocks, len) = (Mutex::new(Blocks::new(memory)), AtomicU64::new(below.len()));
        Arc::new(Overlay { below, blocks, len })
    }

    /// Whether nothing in the batch concerns the blocks.
    fn is_all_below(&self, requests: &[Request<'_>]) -> bool {
        if requests.iter().any(|request| request.op == Op::Write) {
            return false;
        }
        let blocks = self.blocks.lock();
        requests.iter().all(|request| {
            request.offset + request.len() <= self.below.len()
                && blocks.coverage(request.offset, request.len() as usize) == Coverage::Nothing
        })
    }

    fn read_merged(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        if self.blocks.lock().coverage(offset, bytes.len()) != Coverage::All {
            read_longer(&*self.below, offset, bytes)?;
        }
        self.blocks.lock().read_over(offset, bytes)
    }

    fn run(&self, request: &Request<'_>) -> io::Result<()> {
        let mut bytes = vec![0; request.len() as usize];
        match request.op {
            Op::Read => {
                self.read_merged(request.offset, &mut bytes)?;
                scatter(&bytes, request.bufs);
                Ok(())
            }
            Op::Write => {
                gather(request.bufs, &mut bytes);
                self.blocks.lock().write(request.offset, &bytes)
            }
        }
    }
}

/// Reads from a device that something above it makes longer: zeroes past its own end.
fn read_longer(device: &dyn Device, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
    let there = device.len().saturating_sub(offset).min(bytes.len() as u64) as usize;
    let (front, rest) = bytes.split_at_mut(there);
    rest.fill(0);
    if front.is_empty() { Ok(()) } else { read(device, offset, front) }
}

/// Copies the memory of a write to `bytes`, which are as long.
fn gather(bufs: &[IoBuf], mut bytes: &mut [u8]) {
    for buf in bufs {
        let (to, rest) = bytes.split_at_mut(buf.len());
        // SAFETY: the submitter keeps the buffer allocated and unchanged until the ticket is
        // waited for, which is after `submit` returns; `to` is as long, and memory of our own.
        unsafe { std::ptr::copy_nonoverlapping(buf.ptr(), to.as_mut_ptr(), buf.len()) };
        bytes = rest;
    }
}

/// Copies `bytes` to the memory of a read, which is as long.
fn scatter(mut bytes: &[u8], bufs: &[IoBuf]) {
    for buf in bufs {
        let (from, rest) = bytes.split_at(buf.len());
        // SAFETY: the submitter keeps the buffer allocated, and touches it only once the ticket
        // has been waited for, which is after `submit` returns; `from` is memory of our own.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), buf.ptr(), buf.len()) };
        bytes = rest;
    }
}

impl Device for Overlay {
    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    unsafe fn submit(&self, requests: &[Request<'_>]) -> Ticket {
        requests.iter().for_each(|request| request.validate(self.len()));
        if self.is_all_below(requests) {
            // SAFETY: the caller promises of the buffers what the device below asks.
            return unsafe { self.below.submit(requests) };
        }
        Completion::answered(requests.iter().map(|request| self.run(request)))
    }

    fn wait(&self, ticket: Ticket) -> Result<(), IoFailure> {
        self.below.wait(ticket)
    }

    fn is_done(&self, ticket: &Ticket) -> bool {
        self.below.is_done(ticket)
    }

    /// Nothing here is durable, and no result says that it is: a reader asks for no durability.
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    /// The overlay alone becomes longer.
    fn grow(&self, len: u64) -> io::Result<()> {
        self.len.fetch_max(len, Ordering::AcqRel);
        Ok(())
    }

    fn write_atomically(&self, len: u64) -> bool {
        self.below.write_atomically(len)
    }

    fn set_time_limit(&self, limit: Nanos) {
        self.below.set_time_limit(limit);
    }

    fn is_given_up(&self) -> bool {
        self.below.is_given_up()
    }

    fn has_failed(&self) -> bool {
        self.below.has_failed()
    }

    fn give_up(&self) {
        self.below.give_up();
    }

    fn release(&self) {
        self.below.release();
    }

    fn name(&self) -> String {
        self.below.name()
    }

    fn is_cached(&self) -> bool {
        self.below.is_cached()
    }

    fn queued(&self) -> usize {
        self.below.queued()
    }

    fn counters(&self) -> Counters {
        self.below.counters()
    }
}

#[cfg(test)]
mod tests {
    use terrace_rt::{Prng, World};

    use super::*;
    use crate::model::{Preset, build};
    use crate::{Keep, SECTOR_SIZE, Store, write};

    const SECTORS: u64 = 400;
    const LEN: usize = SECTORS as usize * SECTOR_SIZE;

    #[test]
    fn an_overlay_reads_as_if_it_had_written_and_leaves_what_is_below() {
        for seed in 0..20 {
            let mut prng = Prng::from_seed(seed);
            let store = Store::new(LEN as u64, Keep::Plain);
            let below: Arc<dyn Device> = build(Preset::Ram, World::current(), store);
            let original: Vec<u8> = (0..LEN).map(|_| prng.next_u64() as u8).collect();
            write(&*below, 0, &original).expect("memory");
            let memory = OverlayMemory::new(prng.below(LEN as u64));
            let overlay = Overlay::new(Arc::clone(&below), &memory);
            let mut model = original.clone();
            for _ in 0..150 {
                let first = prng.below(SECTORS) as usize;
                let sectors = 1 + prng.below((SECTORS - first as u64).min(40)) as usize;
                let range = first * SECTOR_SIZE..(first + sectors) * SECTOR_SIZE;
                if prng.chance(2) {
                    let bytes: Vec<u8> = range.clone().map(|_| prng.next_u64() as u8).collect();
                    write(&*overlay, range.start as u64, &bytes).expect("memory");
                    model[range].copy_from_slice(&bytes);
                    overlay.sync().expect("nothing to do");
                } else {
                    assert!(batch(&overlay, range.clone()) == model[range], "seed {seed}");
                }
            }
            let mut found = vec![0; LEN];
            read(&*below, 0, &mut found).expect("memory");
            assert!(found == original, "seed {seed}: what is below has changed");
        }
    }

    /// Reads a range in two requests of one batch, each into two pieces.
    fn batch(device: &Overlay, range: std::ops::Range<usize>) -> Vec<u8> {
        let mut bytes = vec![0; range.len()];
        let half = range.len() / 2 / SECTOR_SIZE * SECTOR_SIZE;
        let (front, back) = bytes.split_at_mut(half);
        let (one, two) = back.split_at_mut(100);
        let ends = [IoBuf::from_mut(one), IoBuf::from_mut(two)];
        let start = range.start as u64;
        let second =
            Request { op: Op::Read, offset: start + half as u64, bufs: &ends, owner: None };
        let starts = [IoBuf::from_mut(front)];
        let first = Request { op: Op::Read, offset: start, bufs: &starts, owner: None };
        let requests = [first, second];
        // SAFETY: the buffers outlive the wait.
        let ticket = unsafe { device.submit(&requests[usize::from(half == 0)..]) };
        device.wait(ticket).expect("memory");
        bytes
    }
}
