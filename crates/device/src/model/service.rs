//! The requests of a modelled device, from submission to completion.
//!
//! ```text
//!           submit                 servers decide               fire, last part
//! request ---------> in service ------------------> timed ---------------------> complete
//!    |                   ^                                     bytes move here,
//!    | a barrier is      | barrier done                        the ticket hears of it
//!    +--> held ----------+
//! ```
//!
//! Its rules are those of `sim`.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use terrace_rt::{Nanos, Prng, World};

use super::durability::{CutReport, Tearing, Uncovered, rot};
use super::fault::{Fate, FaultState, Faults};
use super::job::{MemberJob, Started};
use super::mark::{Mark, MarkKind};
use super::member::{Member, for_each_part};
use super::spec::Spec;
use super::transfer::scatter;
use crate::disk::WriteReporting;
use crate::slab::IMAGE_SIZE;
use crate::store::{Piece, Store};
use crate::{Completion, Counters, DeviceError, IoBuf, Op, Request, SECTOR_SIZE};

/// What errors call it.
pub(super) const NAME: &str = "a modelled device";

const TOKEN_ASK: u64 = 0;
const TOKEN_PART: u64 = 1;
const TOKEN_FLUSHED: u64 = 2;
const TOKEN_KINDS: u64 = 3;
/// Members that a token can name.
pub(super) const MEMBERS_MAX: u64 = 1 << 10;

/// A request from submission to completion.
struct InFlight {
    op: Op,
    offset: u64,
    len: u64,
    /// Where a read goes.
    bufs: Vec<IoBuf>,
    /// What a write brings.
    pieces: Vec<Piece>,
    parts_left: usize,
    fate: Fate,
    stall: Nanos,
    index: usize,
    completion: Arc<Completion>,
}

/// What waits to start.
pub(super) enum Held {
    Request(usize),
    Barrier(Arc<Completion>),
}

/// The members, the requests that they serve, and the bytes.
pub(super) struct InService {
    pub(super) spec: Spec,
    pub(super) store: Store,
    pub(super) members: Vec<Member>,
    slots: Vec<Option<InFlight>>,
    free: Vec<usize>,
    /// Requests given to members and not complete.
    in_service: usize,
    /// Requests and barriers behind a barrier, which is the first of them unless it is flushing.
    pub(super) held: VecDeque<Held>,
    /// The barrier whose flush is under way, and the writes that it covers.
    flushing: Option<(Arc<Completion>, u64)>,
    uncovered: Uncovered,
    pub(super) faults: FaultState,
    pub(super) counters: Counters,
    pub(super) marks: Option<Vec<Mark>>,
    /// The most that it can write atomically, and what it was asked to
    /// (`Device::write_atomically`).
    pub(super) atomic_max: u64,
    pub(super) atomic: u64,
}

/// Timers to set and reports to make once no task holds the service.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) timers: Vec<(Nanos, u64)>,
    pub(super) reports: Vec<(Arc<Completion>, usize, io::Result<()>)>,
}

impl InService {
    pub(super) fn new(spec: Spec, store: Store, members: Vec<Member>, faults: Faults) -> InService {
        InService {
            spec,
            store,
            members,
            slots: Vec::new(),
            free: Vec::new(),
            in_service: 0,
            held: VecDeque::new(),
            flushing: None,
            uncovered: Uncovered::default(),
            faults: FaultState::new(faults),
            counters: Counters::default(),
            marks: None,
            atomic_max: SECTOR_SIZE as u64,
            atomic: SECTOR_SIZE as u64,
        }
    }

    /// Ends all requests, and leaves in the store what a power cut might.
    pub(super) fn cut(&mut self, tearing: Tearing, prng: &mut Prng) -> CutReport {
        let tearing = if self.atomic >= IMAGE_SIZE as u64 { Tearing::Pages } else { tearing };
        let writes = |request: &InFlight| request.op == Op::Write && request.fate == Fate::Well;
        let slots = std::mem::take(&mut self.slots).into_iter().flatten();
        let in_flight = slots.filter(writes).map(|request| request.pieces).collect();
        self.free.clear();
        self.held.clear();
        self.flushing = None;
        self.in_service = 0;
        self.uncovered.cut(&mut self.store, in_flight, tearing, prng)
    }

    /// Requests that are not complete.
    pub(super) fn queued(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes a request in, and starts it unless a barrier is before it.
    pub(super) fn accept(
        &mut self,
        now: Nanos,
        request: &Request<'_>,
        pieces: Vec<Piece>,
        index: usize,
        completion: &Arc<Completion>,
        effects: &mut Effects,
    ) {
        let (op, offset, len) = (request.op, request.offset, request.len());
        let (fate, stall) = self.faults.decide(op, offset, len);
        if fate == Fate::Silent {
            return;
        }
        let bufs = if op == Op::Read { request.bufs.to_vec() } else { Vec::new() };
        let completion = Arc::clone(completion);
        let entry = InFlight {
            op,
            offset,
            len,
            bufs,
            pieces,
            parts_left: 0,
            fate,
            stall,
            index,
            completion,
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(entry);
        self.held.push_back(Held::Request(slot));
        self.admit(now, effects);
    }

    /// Starts what no barrier holds back.
    pub(super) fn admit(&mut self, now: Nanos, effects: &mut Effects) {
        while self.flushing.is_none() {
            match self.held.front() {
                Some(Held::Request(slot)) => {
                    let slot = *slot;
                    self.held.pop_front();
                    self.dispatch(now, slot, effects);
                }
                Some(Held::Barrier(_)) if self.in_service == 0 => {
                    let Some(Held::Barrier(completion)) = self.held.pop_front() else {
                        unreachable!("just seen");
                    };
                    self.flushing = Some((completion, self.uncovered.mark()));
                    let flushed = self.members.iter_mut().map(|member| member.flushed_at(now));
                    let at = flushed.max().expect("an array has members");
                    effects.timers.push((at, TOKEN_FLUSHED));
                }
                Some(Held::Barrier(_)) | None => return,
            }
        }
    }

    /// Gives the parts of a request to their members.
    fn dispatch(&mut self, now: Nanos, slot: usize, effects: &mut Effects) {
        self.in_service += 1;
        let request = self.slots[slot].as_mut().expect("a held request has a slot");
        let (op, offset, len) = (request.op, request.offset, request.len);
        let mut jobs = Vec::with_capacity(1);
        for_each_part(&self.spec, offset, len, |member, offset, len| {
            jobs.push(MemberJob { slot, member, op, offset, len });
        });
        request.parts_left = jobs.len();
        for job in jobs {
            let mut started = Started::default();
            self.members[job.member].push(now, job, &mut started);
            self.members[job.member].start(now, &mut started);
            self.plan(job.member, started, effects);
        }
    }

    fn plan(&mut self, member: usize, started: Started, effects: &mut Effects) {
        for (at, job) in started.finishes {
            effects.timers.push((at, part_token(job.member, job.slot)));
        }
        if let Some(at) = started.ask_at
            && self.members[member].needs_timer(at)
        {
            effects.timers.push((at, member as u64 * TOKEN_KINDS + TOKEN_ASK));
        }
    }

    /// The timer of `token` has fired.
    pub(super) fn fire(&mut self, now: Nanos, token: u64, world: &World, effects: &mut Effects) {
        let subject = token / TOKEN_KINDS;
        match token % TOKEN_KINDS {
            TOKEN_ASK => self.ask(now, subject as usize, effects),
            TOKEN_PART => {
                let (member, slot) = (subject % MEMBERS_MAX, subject / MEMBERS_MAX);
                self.part_done(now, member as usize, slot as usize, world, effects);
            }
            TOKEN_FLUSHED => self.flushed(now, world, effects),
            _ => unreachable!("a remainder"),
        }
    }

    fn ask(&mut self, now: Nanos, member: usize, effects: &mut Effects) {
        let mut started = Started::default();
        self.members[member].timer_fired(now);
        self.members[member].start(now, &mut started);
        self.plan(member, started, effects);
    }

    /// A member has finished its part of the request in `slot`.
    fn part_done(
        &mut self,
        now: Nanos,
        member: usize,
        slot: usize,
        world: &World,
        effects: &mut Effects,
    ) {
        let request = self.slots[slot].as_mut().expect("a part belongs to a request");
        if request.stall > Nanos::ZERO {
            let at = now + std::mem::take(&mut request.stall);
            effects.timers.push((at, part_token(member, slot)));
            return;
        }
        request.parts_left -= 1;
        let last = request.parts_left == 0;
        self.members[member].finished(now);
        if last {
            let request = self.slots[slot].take().expect("just seen");
            self.free.push(slot);
            self.in_service -= 1;
            self.complete(request, world, effects);
            self.admit(now, effects);
        }
    }

    fn complete(&mut self, request: InFlight, world: &World, effects: &mut Effects) {
        let (op, len) = (request.op, request.len);
        let (index, completion) = (request.index, Arc::clone(&request.completion));
        let range = Some((request.offset, len));
        let result = self.transfer(request);
        let explain = |source| DeviceError::wrap(NAME.into(), op.operation(), range, source);
        let result = result.map_err(explain);
        if op == Op::Read {
            self.counters.reads += 1;
            self.counters.read_bytes += len;
        } else {
            self.counters.writes += 1;
            self.counters.written_bytes += len;
        }
        self.mark_write(op, MarkKind::WriteCompleted, world);
        effects.reports.push((completion, index, result));
    }

    /// Moves the bytes of a request, as its fate wants it.
    fn transfer(&mut self, request: InFlight) -> io::Result<()> {
        match (request.op, request.fate) {
            (_, Fate::Fails(kind)) => return Err(kind.into()),
            (_, Fate::Lost) => return Ok(()),
            (Op::Read, fate) => {
                if fate == Fate::BitRot {
                    rot(&mut self.store, request.offset, self.faults.prng());
                }
                return self.read_into(&request);
            }
            (Op::Write, _) => {}
        }
        let mut pieces = request.pieces;
        if request.fate == Fate::Misdirected {
            // Whole pages only, so that no target lies past the end.
            let pages = self.store.len() / IMAGE_SIZE as u64;
            if pages > 0 {
                let target = self.faults.prng().below(pages);
                pieces.truncate(1);
                pieces[0] = pieces[0].moved_to(target);
            }
        }
        pieces.iter().for_each(|piece| self.faults.written(piece.page()));
        self.put(pieces);
        Ok(())
    }

    /// Completes a write.
    pub(super) fn put(&mut self, pieces: Vec<Piece>) {
        if self.spec.write_cache == WriteReporting::InBuffer {
            self.uncovered.apply(&mut self.store, pieces);
        } else {
            pieces.iter().for_each(|piece| self.store.apply(piece));
        }
    }

    fn read_into(&self, request: &InFlight) -> io::Result<()> {
        if request.completion.is_abandoned() {
            return Ok(());
        }
        // SAFETY: the ticket has neither been waited for (this report is still to come) nor been
        // abandoned, so by the contract of `submit` the buffers are valid and not used by others.
        let read = unsafe { scatter(&self.store, request.offset, &request.bufs) };
        read.map_err(io::Error::other)
    }

    fn flushed(&mut self, now: Nanos, world: &World, effects: &mut Effects) {
        let (completion, mark) = self.flushing.take().expect("a flush was under way");
        let result = if self.faults.is_dead() {
            Err(io::ErrorKind::NotConnected.into())
        } else {
            self.uncovered.cover(mark, &self.store);
            self.counters.syncs += 1;
            self.mark(MarkKind::Synced, world);
            Ok(())
        };
        effects.reports.push((completion, 0, result));
        self.admit(now, effects);
    }

    pub(super) fn mark_write(&mut self, op: Op, kind: MarkKind, world: &World) {
        if op == Op::Write {
            self.mark(kind, world);
        }
    }

    pub(super) fn mark(&mut self, kind: MarkKind, world: &World) {
        if let Some(marks) = &mut self.marks {
            marks.push(Mark { kind, event: world.events() });
        }
    }
}

fn part_token(member: usize, slot: usize) -> u64 {
    (slot as u64 * MEMBERS_MAX + member as u64) * TOKEN_KINDS + TOKEN_PART
}
