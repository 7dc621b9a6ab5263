//! A storage as a device: each call on a helper thread, with memory of its own.
//!
//! ```text
//!   submit: bytes of writes copied --helper--> read_at, write_at again until all is moved
//!   wait: up to the time limit                  | ended: bytes of reads copied, if waited for
//! ```
//!
//! - V1: a call has no memory of the caller: it reads into, and writes from, memory that it owns.
//!   So a wait may end before the call does (`completion.C3`).
//! - V2: at most as many calls run at once as a group of helpers has threads; others wait.
//! - V3: what a storage tells is checked: a count that cannot be, a length that did not come, a
//!   panic are errors.
//! - V4: one sync at a time, and none after one that failed (`file.F4`).
//! - V5: in a virtual world the calling task makes the call, in no time.
//! - V6: a fork of the process that opened it makes no call (`file.F6`): it would write what the
//!   parent has in memory beside what the parent writes.

use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_rt::{self as rt, Helpers, LeafMutex, Nanos};

use super::Storage;
use crate::aligned::Zeroed;
use crate::failure::Released;
use crate::file::gauge::Gauge;
use crate::file::job::Job;
use crate::file::syncs::Syncs;
use crate::time_limit::TimeLimit;
use crate::{
    Completion, Counters, Device, DeviceError, IoBuf, Op, Operation, Punched, Request, SECTOR_SIZE,
    Ticket,
};

/// Alignment of the memory that storages see.
const MEMORY_ALIGN: usize = 4096;
/// `Interrupted` and `WouldBlock` of one call that are tried again at once.
const INTERRUPTIONS_MAX: u32 = 16;

/// A storage as a device.
pub struct StorageDevice(Arc<Shared>);

struct Shared {
    /// Until the device is released.
    storage: LeafMutex<Option<Arc<dyn Storage>>>,
    name: String,
    len: AtomicU64,
    gauge: Gauge,
    helpers: Arc<Helpers>,
    syncs: Syncs,
    time_limit: Arc<TimeLimit>,
    /// The process that opened it.
    owner: u32,
}

/// One call on its way.
struct Call {
    shared: Arc<Shared>,
    completion: Arc<Completion>,
    index: usize,
    job: Job,
    offset: u64,
    /// Of a read or a write.
    memory: Option<Zeroed>,
    /// Where the bytes of a read go.
    bufs: Vec<IoBuf>,
    /// Bytes that a punch has freed.
    punched: Arc<LeafMutex<Option<Punched>>>,
    is_finished: bool,
}

impl StorageDevice {
    /// A device of `storage`, as long as that is in whole sectors; its length is waited for no
    /// longer than `limit`, if that is not zero.
    ///
    /// # Errors
    ///
    /// What [`Storage::len`] says; `TimedOut` if it does not return, or panics.
    pub fn open(storage: Arc<dyn Storage>, limit: Nanos) -> io::Result<StorageDevice> {
        let asked = Arc::clone(&storage);
        let told = rt::within(limit, move || {
            catch_unwind(AssertUnwindSafe(|| (asked.name(), asked.len()))).map_err(|_| panicked())
        });
        let silent = || io::Error::new(ErrorKind::TimedOut, "the storage has not told its length");
        let (name, len) = told.ok_or_else(silent)??;
        let explain = |source| DeviceError::wrap(name.clone(), Operation::Read, None, source);
        let len = len.map_err(explain)? / SECTOR_SIZE as u64 * SECTOR_SIZE as u64;
        Ok(StorageDevice(Arc::new(Shared {
            storage: LeafMutex::new(Some(storage)),
            time_limit: TimeLimit::new(name.clone()),
            name,
            len: AtomicU64::new(len),
            gauge: Gauge::default(),
            helpers: Arc::default(),
            syncs: Syncs::default(),
            owner: process::id(),
        })))
    }

    fn call(
        &self,
        completion: &Arc<Completion>,
        index: usize,
        job: Job,
        request: &Request<'_>,
    ) -> Call {
        let moves = !request.bufs.is_empty();
        let memory = moves.then(|| Zeroed::new(request.len() as usize, MEMORY_ALIGN));
        if let (Some(memory), Job::Write) = (&memory, job) {
            memory.gather(request.bufs);
        }
        let bufs = if job == Job::Read { request.bufs.to_vec() } else { Vec::new() };
        let (shared, completion) = (Arc::clone(&self.0), Arc::clone(completion));
        let (offset, punched, is_finished) = (request.offset, Arc::default(), false);
        Call { shared, completion, index, job, offset, memory, bufs, punched, is_finished }
    }

    /// Makes a call that moves no bytes, and waits for it.
    fn do_alone(&self, job: Job, range: (u64, u64)) -> io::Result<Option<Punched>> {
        let asked = (job != Job::Sync).then_some(range);
        let completion = Completion::within(&self.0.time_limit, 1, job.operation(), asked);
        let ticket = completion.ticket();
        self.0.gauge.start(1);
        let at = Request { op: Op::Write, offset: range.0, bufs: &[], owner: None };
        let call = self.call(&completion, 0, job, &at);
        let punched = Arc::clone(&call.punched);
        call.start();
        ticket.wait().map_err(|failure| failure.source)?;
        Ok(punched.lock().take())
    }
}

impl Call {
    fn start(mut self) {
        if self.shared.owner != process::id() {
            let what = "the process that opened it was forked: open it after the fork";
            return self.report(Err(io::Error::other(what)));
        }
        match rt::is_virtual() {
            true => self.run(),
            false => Arc::clone(&self.shared.helpers).run(move || self.run()),
        }
    }

    fn run(mut self) {
        let storage = self.shared.storage.lock().clone();
        let result = match storage {
            // V3: a helper whose job panics would be lost.
            Some(storage) => catch_unwind(AssertUnwindSafe(|| self.perform(&*storage)))
                .unwrap_or_else(|_| Err(panicked())),
            None => Err(Released::error()),
        };
        self.report(result);
    }

    fn perform(&mut self, storage: &dyn Storage) -> io::Result<()> {
        match self.job {
            Job::Read | Job::Write => self.move_all(storage),
            Job::Sync => storage.sync(),
            Job::Reserve { len } => storage.reserve(self.offset, len),
            Job::Punch { len } => {
                *self.punched.lock() = Some(storage.punch(self.offset, len)?);
                Ok(())
            }
            Job::Grow { len } => {
                storage.grow(len)?;
                match storage.len()? {
                    found if found >= len => Ok(()),
                    found => {
                        let what = format!("it was to have {len} bytes, and has {found}");
                        Err(io::Error::other(what))
                    }
                }
            }
        }
    }

    fn move_all(&mut self, storage: &dyn Storage) -> io::Result<()> {
        let memory = self.memory.as_mut().expect("it moves bytes");
        let (mut moved, mut interruptions) = (0, 0);
        while moved < memory.len() {
            let offset = self.offset + moved as u64;
            let asked = memory.len() - moved;
            let answer = match self.job {
                Job::Read => storage.read_at(offset, &mut memory.bytes_mut()[moved..]),
                _ => storage.write_at(offset, &memory.bytes()[moved..]),
            };
            match answer {
                Ok(0) if self.job == Job::Read => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(more) if more > asked => {
                    let what = format!("it says that it has moved {more} bytes of {asked}");
                    return Err(io::Error::other(what));
                }
                Ok(more) => moved += more,
                Err(error) => {
                    let passes =
                        matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock);
                    interruptions += 1;
                    if !passes || interruptions > INTERRUPTIONS_MAX {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    fn report(&mut self, result: io::Result<()>) {
        self.is_finished = true;
        if let (Some(memory), Job::Read, Ok(())) = (&self.memory, self.job, &result) {
            self.completion.with_buffers(|| memory.scatter(&self.bufs));
        }
        let bytes = self.memory.as_ref().map_or(0, |memory| memory.len() as u64);
        self.shared.gauge.finish(self.job, bytes);
        self.completion.finish(self.index, result.map_err(|source| self.explained(source)));
    }

    fn explained(&self, source: io::Error) -> io::Error {
        let len = match self.job {
            Job::Reserve { len } | Job::Punch { len } => len,
            Job::Grow { len } => len.saturating_sub(self.offset),
            _ => self.memory.as_ref().map_or(0, |memory| memory.len() as u64),
        };
        let range = (self.job != Job::Sync).then_some((self.offset, len));
        DeviceError::wrap(self.shared.name.clone(), self.job.operation(), range, source)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.is_finished {
            self.report(Err(io::Error::other("the request was dropped")));
        }
    }
}

fn panicked() -> io::Error {
    io::Error::other("the storage panicked")
}

impl Device for StorageDevice {
    fn len(&self) -> u64 {
        self.0.len.load(Ordering::Acquire)
    }

    unsafe fn submit(&self, requests: &[Request<'_>]) -> Ticket {
        requests.iter().for_each(|request| request.validate(self.len()));
        let completion = Completion::of_batch(&self.0.time_limit, requests);
        let ticket = completion.ticket();
        self.0.gauge.start(requests.len());
        for (index, request) in requests.iter().enumerate() {
            self.call(&completion, index, Job::of(request.op), request).start();
        }
        ticket
    }

    fn sync(&self) -> io::Result<()> {
        let synced = self.0.syncs.run(|| self.do_alone(Job::Sync, (0, 0)).map(drop));
        synced.unwrap_or_else(|| {
            let source = io::Error::other("an earlier sync failed; reopen");
            Err(DeviceError::wrap(self.name(), Operation::Sync, None, source))
        })
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        assert!(len > 0 && offset + len <= self.len(), "a range of the device");
        self.do_alone(Job::Reserve { len }, (offset, len)).map(drop)
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        let found = self.len();
        if len <= found {
            return Ok(());
        }
        assert!(len.is_multiple_of(SECTOR_SIZE as u64), "{len} bytes are not whole sectors");
        self.do_alone(Job::Grow { len }, (found, len - found))?;
        self.0.len.fetch_max(len, Ordering::AcqRel);
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<Punched> {
        assert!(len > 0 && offset + len <= self.len(), "a range of the device");
        self.do_alone(Job::Punch { len }, (offset, len)).map(|told| told.unwrap_or(Punched::Kept))
    }

    fn set_time_limit(&self, limit: Nanos) {
        self.0.time_limit.set(limit);
    }

    fn release(&self) {
        let storage = self.0.storage.lock().take();
        // A destructor of the user's may do anything: not under the mutex.
        drop(storage);
    }

    fn name(&self) -> String {
        self.0.name.clone()
    }

    fn queued(&self) -> usize {
        self.0.gauge.queued()
    }

    fn counters(&self) -> Counters {
        self.0.gauge.counters()
    }
}
