//! A modelled device as the code above sees it: a `Device` in a virtual world.
//!
//! ```text
//!           submit                 servers decide               fire, last part
//! request ---------> in service ------------------> timed ---------------------> complete
//!    |                   ^                                     bytes move here,
//!    | a barrier is      | barrier done                        the ticket hears of it
//!    +--> held ----------+
//! ```
//!
//! - X1: a write's bytes are captured when it is submitted and reach the store when it completes; a
//!   read's bytes are copied when it completes. An abandoned ticket's buffers are never touched.
//! - X2: with a write cache, `sync` is a barrier: it starts when all requests before it are
//!   complete, and requests after it start when it is. Without a cache it is free, since completed
//!   writes are on the medium.
//! - X3: the same requests at the same times give the same times, bytes and faults.
//!
//! In a real world, where nothing can be timed, every request completes inside `submit`: good for
//! tests and for devices in memory. Disks refuse it.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use terrace_rt::{LeafMutex, Nanos, Prng, Timer, World};

use super::durability::{CutReport, Tearing, Uncovered, rot};
use super::fault::{Fate, FaultState, Faults};
use super::mark::{Mark, MarkKind};
use super::member::{Job, Member, Started, for_each_part};
use super::spec::{MemberSpec, Spec};
use super::transfer::{gather, scatter};
use crate::disk::WriteReporting;
use crate::nand::Wear;
use crate::slab::IMAGE_SIZE;
use crate::store::{Piece, Store};
use crate::time_limit::TimeLimit;
use crate::{
    Completion, Counters, Device, DeviceError, IoBuf, Op, Operation, Punched, Request, Ticket,
};

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

enum Held {
    Request(usize),
    Barrier(Arc<Completion>),
}

struct State {
    spec: Spec,
    store: Store,
    members: Vec<Member>,
    slots: Vec<Option<InFlight>>,
    free: Vec<usize>,
    /// Requests given to members and not complete.
    in_service: usize,
    /// Requests and barriers behind a barrier, which is the first of them unless it is flushing.
    held: VecDeque<Held>,
    /// The barrier whose flush is under way, and the writes that it covers.
    flushing: Option<(Arc<Completion>, u64)>,
    uncovered: Uncovered,
    faults: FaultState,
    counters: Counters,
    marks: Option<Vec<Mark>>,
}

/// A modelled device.
pub struct SimDevice {
    world: World,
    len: AtomicU64,
    me: Weak<SimDevice>,
    time_limit: Arc<TimeLimit>,
    state: LeafMutex<State>,
}

/// Timers to set and reports to make once the state is free again.
#[derive(Default)]
struct Effects {
    timers: Vec<(Nanos, u64)>,
    reports: Vec<(Arc<Completion>, usize, io::Result<()>)>,
}

/// What errors call it.
const NAME: &str = "a modelled device";

const TOKEN_ASK: u64 = 0;
const TOKEN_PART: u64 = 1;
const TOKEN_FLUSHED: u64 = 2;
const TOKEN_KINDS: u64 = 3;
/// Members that a token can name.
const MEMBERS_MAX: u64 = 1 << 10;

impl SimDevice {
    /// A device as `spec` says, with the bytes of `store`, in `world`.
    ///
    /// # Panics
    ///
    /// If the figures make no sense: no member, 1,024 or more, or a stripe that is not sectors.
    /// For a disk in a real world.
    #[must_use]
    pub fn new(spec: Spec, world: World, store: Store) -> Arc<SimDevice> {
        SimDevice::with_faults(spec, world, store, Faults::default())
    }

    /// The same, with faults.
    ///
    /// # Panics
    ///
    /// As `new`.
    #[must_use]
    pub fn with_faults(spec: Spec, world: World, store: Store, faults: Faults) -> Arc<SimDevice> {
        assert!(spec.members > 0, "an array without members");
        assert!(u64::from(spec.members) < MEMBERS_MAX, "too many members");
        assert!(spec.stripe > 0, "stripes without bytes");
        assert!(spec.stripe.is_multiple_of(crate::SECTOR_SIZE as u64), "stripes are whole sectors");
        let len = store.len();
        let all = spec.all_members(len);
        let is_timed = |(spec, _): &(MemberSpec, u64)| {
            matches!(spec, MemberSpec::Disk(_) | MemberSpec::Nand(_))
        };
        let timed = all.iter().any(is_timed);
        assert!(world.is_virtual() || !timed, "modelled disks and flash need virtual time");
        let member = |(member, bytes)| Member::new(&member, bytes, spec.write_cache);
        let members = all.into_iter().map(member).collect();
        let state = State {
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
        };
        Arc::new_cyclic(|me| SimDevice {
            world,
            len: AtomicU64::new(len),
            me: Weak::clone(me),
            time_limit: TimeLimit::new(NAME.into()),
            state: LeafMutex::new(state),
        })
    }

    /// The same device in another world, idle: its bytes as they are, its faults begun anew. After
    /// a power cut call `power_cut` before; without, cached writes are taken as flushed and writes
    /// in flight as dropped. A dead device stays dead.
    #[must_use]
    pub fn reopen(&self, world: World) -> Arc<SimDevice> {
        let state = self.state.lock();
        let faults = state.faults.faults().clone();
        let next = SimDevice::with_faults(state.spec.clone(), world, state.store.clone(), faults);
        let mut fresh = next.state.lock();
        let (all, write_cache) = (state.spec.all_members(self.len()), state.spec.write_cache);
        let restarted = |(old, (spec, bytes)): (&Member, (MemberSpec, u64))| {
            old.restarted(&spec, bytes, write_cache)
        };
        fresh.members = state.members.iter().zip(all).map(restarted).collect();
        fresh.faults.set_dead(state.faults.is_dead());
        fresh.faults.set_silent(state.faults.is_silent());
        fresh.faults.adopt_unreadable(state.faults.unreadable());
        drop(fresh);
        next
    }

    /// Leaves on the medium what a power cut might: to be called when the world has died, before
    /// `reopen`.
    pub fn power_cut(&self, prng: &mut Prng) -> CutReport {
        self.cut(Tearing::Sectors, prng)
    }

    /// The same for a device that writes each page whole or not at all.
    pub fn power_cut_between_pages(&self, prng: &mut Prng) -> CutReport {
        self.cut(Tearing::Pages, prng)
    }

    fn cut(&self, tearing: Tearing, prng: &mut Prng) -> CutReport {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let writes = |request: &InFlight| request.op == Op::Write && request.fate == Fate::Well;
        let slots = std::mem::take(&mut state.slots).into_iter().flatten();
        let in_flight = slots.filter(writes).map(|request| request.pieces).collect();
        state.free.clear();
        state.held.clear();
        state.flushing = None;
        state.in_service = 0;
        state.uncovered.cut(&mut state.store, in_flight, tearing, prng)
    }

    /// A copy of the bytes as a reader sees them.
    #[must_use]
    pub fn store(&self) -> Store {
        self.state.lock().store.clone()
    }

    /// What the flash of its members has borne, if they are flash drives.
    #[must_use]
    pub fn wear(&self) -> Option<Wear> {
        let state = self.state.lock();
        state.members.iter().map(Member::wear).sum()
    }

    /// Kills the device, or brings it back with its bytes.
    pub fn set_dead(&self, dead: bool) {
        self.state.lock().faults.set_dead(dead);
    }

    /// Has the device fall silent, or answer again. What it did not answer it never will.
    pub fn set_silent(&self, silent: bool) {
        self.state.lock().faults.set_silent(silent);
    }

    /// Moves the byte past which the device is full; with none it has room for all.
    pub fn set_full_from(&self, limit: Option<u64>) {
        self.state.lock().faults.set_full_from(limit);
    }

    /// Starts to record an instant for each write and each barrier, so that a test can run again
    /// and cut at each.
    pub fn record_writes(&self) {
        self.state.lock().marks = Some(Vec::new());
    }

    /// What has been recorded.
    #[must_use]
    pub fn marks(&self) -> Vec<Mark> {
        self.state.lock().marks.clone().unwrap_or_default()
    }

    fn now(&self) -> Nanos {
        self.world.now()
    }

    /// Sets timers and makes reports; the state must be free.
    fn perform(&self, effects: Effects) {
        let real = !self.world.is_virtual();
        for (at, token) in effects.timers {
            let me = self.me.upgrade().expect("a device that is called lives");
            if real {
                me.fire(token);
            } else {
                self.world.call_at(at, me, token);
            }
        }
        for (completion, index, result) in effects.reports {
            completion.finish(index, result);
        }
    }
}

impl Device for SimDevice {
    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    unsafe fn submit(&self, requests: &[Request<'_>]) -> Ticket {
        let completion = Completion::of_batch(&self.time_limit, requests);
        let mut effects = Effects::default();
        let now = self.now();
        let mut guard = self.state.lock();
        for (index, request) in requests.iter().enumerate() {
            request.validate(self.len());
            let pieces = if request.op == Op::Write {
                // SAFETY: the caller vouches for the buffers until the ticket has been waited for.
                unsafe { gather(&guard.store, request.offset, request.bufs) }
            } else {
                Vec::new()
            };
            guard.accept(now, request, pieces, index, &completion, &mut effects);
            guard.mark_write(request.op, MarkKind::WriteSubmitted, &self.world);
        }
        drop(guard);
        self.perform(effects);
        completion.ticket()
    }

    fn sync(&self) -> io::Result<()> {
        let mut effects = Effects::default();
        let completion = Completion::within(&self.time_limit, 1, Operation::Sync, None);
        let mut state = self.state.lock();
        if state.faults.is_silent() {
            drop(state);
            return completion.ticket().wait().map_err(|failure| failure.source);
        }
        if state.faults.is_dead() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if state.spec.write_cache == WriteReporting::OnMedium {
            state.counters.syncs += 1;
            state.mark(MarkKind::Synced, &self.world);
            return Ok(());
        }
        state.held.push_back(Held::Barrier(Arc::clone(&completion)));
        state.admit(self.now(), &mut effects);
        drop(state);
        self.perform(effects);
        completion.ticket().wait().map_err(|failure| failure.source)
    }

    fn set_time_limit(&self, limit: Nanos) {
        self.time_limit.set(limit);
    }

    fn name(&self) -> String {
        String::from(NAME)
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        match self.state.lock().faults.is_full(offset + len) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }

    /// At once, and as durable as that. An array, a disk and a flash drive have a geometry, so they
    /// do not grow.
    fn grow(&self, len: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let found = self.len();
        if len <= found {
            return Ok(());
        }
        let refusal = match &state.spec {
            _ if state.faults.is_dead() => Some(io::ErrorKind::NotConnected),
            spec if spec.has_geometry() => Some(io::ErrorKind::Unsupported),
            _ => None,
        };
        if let Some(kind) = refusal {
            let range = Some((found, len - found));
            return Err(DeviceError::wrap(NAME.into(), Operation::Grow, range, kind.into()));
        }
        state.store.grow(len);
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    /// Whole pages of the model become zeroes, as a file system leaves them; on the medium that
    /// comes behind the next barrier, or some time before.
    fn punch(&self, offset: u64, len: u64) -> io::Result<Punched> {
        assert!(len > 0 && offset + len <= self.len(), "a range of the device");
        let mut state = self.state.lock();
        if state.faults.is_dead() {
            let (range, source) = (Some((offset, len)), io::ErrorKind::NotConnected.into());
            return Err(DeviceError::wrap(NAME.into(), Operation::Punch, range, source));
        }
        let page = IMAGE_SIZE as u64;
        let whole = offset.div_ceil(page)..(offset + len) / page;
        state.put(whole.map(|page| Piece::Page { page, image: None }).collect());
        Ok(Punched::Freed)
    }

    fn trim(&self, offset: u64, len: u64) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        for_each_part(&state.spec, offset, len, |member, offset, len| {
            state.members[member].trim(offset, len);
        });
    }

    fn queued(&self) -> usize {
        let state = self.state.lock();
        state.slots.len() - state.free.len()
    }

    fn counters(&self) -> Counters {
        let now = self.now();
        let state = self.state.lock();
        let striped = &state.members[..state.spec.members as usize];
        let busy: u64 = striped.iter().map(|member| member.busy(now).0).sum();
        let wear: Option<Wear> = state.members.iter().map(Member::wear).sum();
        Counters {
            busy_ns: busy / striped.len() as u64,
            programmed_bytes: wear.map_or(0, |wear| wear.programmed_bytes()),
            ..state.counters
        }
    }
}

impl Timer for SimDevice {
    fn fire(self: Arc<Self>, token: u64) {
        let mut effects = Effects::default();
        let now = self.now();
        let mut state = self.state.lock();
        let subject = token / TOKEN_KINDS;
        match token % TOKEN_KINDS {
            TOKEN_ASK => state.ask(now, subject as usize, &mut effects),
            TOKEN_PART => {
                let (member, slot) = (subject % MEMBERS_MAX, subject / MEMBERS_MAX);
                state.part_done(now, member as usize, slot as usize, &self.world, &mut effects);
            }
            TOKEN_FLUSHED => state.flushed(now, &self.world, &mut effects),
            _ => unreachable!("a remainder"),
        }
        drop(state);
        self.perform(effects);
    }
}

impl State {
    /// Takes a request in, and starts it unless a barrier is before it.
    fn accept(
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
    fn admit(&mut self, now: Nanos, effects: &mut Effects) {
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
            jobs.push(Job { slot, member, op, offset, len });
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
    fn put(&mut self, pieces: Vec<Piece>) {
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
        // abandoned, so by the contract of `submit` the buffers are valid and nobody else's.
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

    fn mark_write(&mut self, op: Op, kind: MarkKind, world: &World) {
        if op == Op::Write {
            self.mark(kind, world);
        }
    }

    fn mark(&mut self, kind: MarkKind, world: &World) {
        if let Some(marks) = &mut self.marks {
            marks.push(Mark { kind, event: world.events() });
        }
    }
}

fn part_token(member: usize, slot: usize) -> u64 {
    (slot as u64 * MEMBERS_MAX + member as u64) * TOKEN_KINDS + TOKEN_PART
}
