//! One request on its way: its memory, a copy or a share of it, and how it ends.
//!
//! - R1: `finish` is called exactly once: the type is consumed, and dropping it unfinished is a bug
//!   that the drop reports as a failure, so that no task waits for ever.

use std::borrow::Cow;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use super::atomic::Part;
use super::job::Job;
use super::shared::Shared;
use super::space;
use crate::aligned::Aligned;
use crate::{Completion, IoBuf, MemoryOwner, Request};

/// The most pieces of memory that the kernel takes at once (`IOV_MAX`).
pub(super) const PIECES_MAX: usize = 1024;
/// `EINTR` and `EAGAIN` of one transfer that are tried again at once; then `persist` pauses.
const INTERRUPTIONS_MAX: u32 = 16;

/// A request that has been submitted and has not finished.
pub(super) struct Transfer {
    shared: Arc<Shared>,
    completion: Arc<Completion>,
    index: usize,
    job: Job,
    offset: u64,
    len: usize,
    /// It is written atomically, or refused (atomic.V1).
    is_atomic: bool,
    /// What the kernel reads from or writes to.
    pieces: Vec<libc::iovec>,
    /// The caller's memory and the copy that stands in for it.
    copy: Option<(Vec<IoBuf>, Aligned)>,
    /// A share in the caller's memory, which makes a copy needless.
    share: Option<MemoryOwner>,
    finished: bool,
}

// SAFETY: the pointers lead to memory that `Device::submit` lends out to whichever thread does the
// I/O, until the completion is done.
unsafe impl Send for Transfer {}

impl Transfer {
    /// A request as a whole.
    pub(super) fn new(
        shared: &Arc<Shared>,
        completion: &Arc<Completion>,
        index: usize,
        job: Job,
        request: &Request<'_>,
    ) -> Transfer {
        Transfer::of_part(shared, completion, (index, job), request, Part::of(request))
    }

    /// A part of a request.
    pub(super) fn of_part(
        shared: &Arc<Shared>,
        completion: &Arc<Completion>,
        (index, job): (usize, Job),
        request: &Request<'_>,
        part: Part,
    ) -> Transfer {
        let len = usize::try_from(part.len).expect("a request fits into memory");
        let skipped = (part.offset - request.offset) as usize;
        let bufs = cut(request.bufs, skipped, len);
        let piece = |buf: &IoBuf| libc::iovec { iov_base: buf.ptr().cast(), iov_len: buf.len() };
        let mut pieces: Vec<_> = bufs.iter().map(piece).collect();
        let mut copy = None;
        let share = request.owner.filter(|_| job == Job::Write).cloned();
        let must_own = shared.is_limited() && share.is_none();
        let is_scattered = part.is_atomic && bufs.len() > 1;
        if len > 0 && (must_own || is_scattered || shared.must_copy(&bufs)) {
            let aligned = shared.spare.take(len, shared.memory_align);
            if job == Job::Write {
                aligned.gather(&bufs);
            }
            pieces = vec![piece_of(&aligned)];
            copy = Some((bufs.to_vec(), aligned));
        }
        let (shared, completion) = (Arc::clone(shared), Arc::clone(completion));
        let Part { offset, is_atomic, .. } = part;
        let finished = false;
        Transfer {
            shared,
            completion,
            index,
            job,
            offset,
            len,
            is_atomic,
            pieces,
            copy,
            share,
            finished,
        }
    }

    /// Whether all of its memory is its own, or shared: no task has to wait for it.
    pub(super) fn is_detached(&self) -> bool {
        self.copy.is_some() || self.share.is_some() || self.len == 0
    }

    pub(super) fn completion(&self) -> &Arc<Completion> {
        &self.completion
    }

    pub(super) fn job(&self) -> Job {
        self.job
    }

    /// A number of the device that no other has while this transfer is.
    pub(super) fn device(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    pub(super) fn fd(&self) -> RawFd {
        self.shared.file.as_raw_fd()
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// What it asks of the kernel beside what its job is.
    pub(super) fn flags(&self) -> i32 {
        if self.is_atomic { self.shared.atomic.flag() } else { 0 }
    }

    /// The memory, which stays where it is until the transfer is finished.
    pub(super) fn pieces(&self) -> &[libc::iovec] {
        &self.pieces
    }

    /// Fails without an attempt.
    pub(super) fn refuse(self, source: io::Error) {
        self.finish(Err(source));
    }

    /// Does all of it with blocking system calls, on this thread.
    pub(super) fn run_here(self) {
        self.run_rest(0);
    }

    /// As `run_here`, where no task waits for a system call that may never return.
    pub(super) fn run_aside(self) {
        self.run_rest_aside(0);
    }

    /// A ring has moved the first `moved` bytes, or said no.
    pub(super) fn complete(self, answer: i32) {
        match usize::try_from(answer) {
            Ok(moved) if moved >= self.len => self.finish(Ok(())),
            // The kernel does all of it or nothing; a rest would be a write of its own.
            Ok(moved) if self.is_atomic && moved > 0 => {
                self.finish(Err(ErrorKind::WriteZero.into()))
            }
            // The end of the file, a signal, or a short transfer: a blocking call tells which.
            Ok(moved) => self.run_rest_aside(moved),
            Err(_) if matches!(-answer, libc::EAGAIN | libc::EINTR) => self.run_rest_aside(0),
            Err(_) => self.finish(Err(io::Error::from_raw_os_error(-answer))),
        }
    }

    /// The ring has it and will never tell what became of it, because the kernel refuses it with
    /// `code`. What the kernel may still use stays allocated. Only for one that is detached.
    pub(super) fn lose(mut self, code: i32) {
        match self.job {
            Job::Read => {
                if let Some((bufs, in_use)) = self.copy.take() {
                    let fresh = Aligned::new(self.len, self.shared.memory_align);
                    self.pieces = vec![piece_of(&fresh)];
                    self.copy = Some((bufs, fresh));
                    std::mem::forget(in_use);
                }
                self.run_aside();
            }
            Job::Reserve { .. } | Job::Grow { .. } => self.run_aside(),
            // One that is done again might come after a later write to the same place, and a second
            // sync does not tell of what the first one lost.
            // One that punches late might empty what was written since.
            Job::Write | Job::Sync | Job::Punch { .. } => {
                let why = io::Error::from_raw_os_error(code);
                let what = format!("io_uring_enter was refused ({why}), its outcome is unknown");
                let source = io::Error::new(ErrorKind::TimedOut, what);
                let source = self.explained(source);
                self.completion.finish(self.index, Err(source));
                // As one without an answer, it keeps the file locked.
                std::mem::forget(self);
            }
        }
    }

    /// As `run_rest`, where no task waits for a system call that may never return.
    fn run_rest_aside(self, moved: usize) {
        if !self.shared.is_limited() {
            return self.run_rest(moved);
        }
        // The helper must not hold the device, and so its lock, once the request is finished.
        let helpers = Arc::clone(&self.shared.helpers);
        helpers.run(move || self.run_rest(moved));
    }

    fn run_rest(mut self, moved: usize) {
        let result = match self.job {
            Job::Sync => self.shared.file.sync_data(),
            Job::Reserve { len } => space::reserve(&self.shared.file, self.offset, len),
            Job::Grow { len } => space::grow(&self.shared.file, len),
            Job::Punch { len } => space::punch(&self.shared.file, self.offset, len),
            Job::Read | Job::Write => self.move_rest(moved),
        };
        self.finish(result);
    }

    fn move_rest(&mut self, mut moved: usize) -> io::Result<()> {
        let mut first = 0;
        let mut skip = moved;
        let mut interruptions = 0;
        while moved < self.len {
            while skip >= self.pieces[first].iov_len {
                skip -= self.pieces[first].iov_len;
                first += 1;
            }
            let piece = &mut self.pieces[first];
            piece.iov_base = piece.iov_base.wrapping_byte_add(skip);
            piece.iov_len -= skip;
            let pieces = &self.pieces[first..];
            let count = pieces.len().min(PIECES_MAX) as libc::c_int;
            let offset = (self.offset + moved as u64) as libc::off_t;
            let (fd, at) = (self.fd(), pieces.as_ptr());
            let result = match self.job {
                // SAFETY: `Device::submit` has promised that the memory may be written.
                Job::Read => unsafe { libc::preadv(fd, at, count, offset) },
                // SAFETY: `Device::submit` has promised that the memory may be read.
                Job::Write if self.is_atomic => unsafe {
                    libc::pwritev2(fd, at, count, offset, self.flags())
                },
                // SAFETY: as above.
                Job::Write => unsafe { libc::pwritev(fd, at, count, offset) },
                _ => unreachable!("it moves nothing"),
            };
            match usize::try_from(result) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(more) if self.is_atomic && more < self.len => {
                    return Err(ErrorKind::WriteZero.into());
                }
                Ok(more) => {
                    moved += more;
                    skip = more;
                }
                Err(_) => {
                    let error = io::Error::last_os_error();
                    let passes =
                        matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock);
                    interruptions += 1;
                    if !passes || interruptions > INTERRUPTIONS_MAX {
                        return Err(error);
                    }
                    skip = 0;
                }
            }
        }
        Ok(())
    }

    fn finish(mut self, result: io::Result<()>) {
        self.report(result);
    }

    fn report(&mut self, result: io::Result<()>) {
        self.finished = true;
        if let (Some((bufs, aligned)), Job::Read, Ok(())) = (&self.copy, self.job, &result) {
            self.completion.with_buffers(|| aligned.scatter(bufs));
        }
        if let Some((_, aligned)) = self.copy.take() {
            self.shared.spare.give(aligned);
        }
        // The waiting task has the memory alone then.
        self.share = None;
        self.shared.gauge.finish(self.job, self.len as u64);
        let result = result.map_err(|source| self.explained(source));
        self.completion.finish(self.index, result);
    }

    fn explained(&self, source: io::Error) -> io::Error {
        let len = match self.job {
            Job::Reserve { len } | Job::Punch { len } => len,
            Job::Grow { len } => len.saturating_sub(self.offset),
            Job::Read | Job::Write | Job::Sync => self.len as u64,
        };
        self.shared.explain(self.job, (self.offset, len), source)
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if !self.finished {
            self.report(Err(io::Error::other("the request was dropped")));
        }
    }
}

/// `len` bytes of the memory, after the first `skipped`.
fn cut(bufs: &[IoBuf], skipped: usize, len: usize) -> Cow<'_, [IoBuf]> {
    let (mut skipped, mut left) = (skipped, len);
    if skipped == 0 && len == bufs.iter().map(|buf| buf.len()).sum() {
        return Cow::Borrowed(bufs);
    }
    let mut parts = Vec::new();
    for buf in bufs {
        let from = skipped.min(buf.len());
        let taken = left.min(buf.len() - from);
        if taken > 0 {
            parts.push(IoBuf::from_raw(buf.ptr().wrapping_byte_add(from), taken));
        }
        (skipped, left) = (skipped - from, left - taken);
    }
    assert_eq!(left, 0, "a part of the request");
    Cow::Owned(parts)
}

/// All of the memory, for the kernel.
fn piece_of(memory: &Aligned) -> libc::iovec {
    libc::iovec { iov_base: memory.start().cast(), iov_len: memory.len() }
}
