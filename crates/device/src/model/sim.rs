//! A modelled device as the code above sees it: a `Device` in a virtual world.
//!
//! `service` draws a request's way.
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

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use terrace_rt::{LeafMutex, Nanos, Prng, Timer, World};

use super::durability::{CutReport, Tearing};
use super::fault::Faults;
use super::mark::{Mark, MarkKind};
use super::member::{Member, for_each_part};
use super::service::{Effects, Held, InService, MEMBERS_MAX, NAME};
use super::spec::{MemberSpec, Spec};
use super::transfer::gather;
use crate::disk::WriteReporting;
use crate::nand::Wear;
use crate::slab::IMAGE_SIZE;
use crate::store::{Piece, Store};
use crate::time_limit::TimeLimit;
use crate::{
    Completion, Counters, Device, DeviceError, Op, Operation, Punched, Request, SECTOR_SIZE, Ticket,
};

/// A modelled device.
pub struct SimDevice {
    world: World,
    len: AtomicU64,
    me: Weak<SimDevice>,
    time_limit: Arc<TimeLimit>,
    service: LeafMutex<InService>,
}

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
        let service = InService::new(spec, store, members, faults);
        Arc::new_cyclic(|me| SimDevice {
            world,
            len: AtomicU64::new(len),
            me: Weak::clone(me),
            time_limit: TimeLimit::new(NAME.into()),
            service: LeafMutex::new(service),
        })
    }

    /// The same device in another world, idle: its bytes as they are, its faults begun anew. After
    /// a power cut call `power_cut` before; without, cached writes are taken as flushed and writes
    /// in flight as dropped. A dead device stays dead.
    #[must_use]
    pub fn reopen(&self, world: World) -> Arc<SimDevice> {
        let service = self.service.lock();
        let faults = service.faults.faults().clone();
        let next =
            SimDevice::with_faults(service.spec.clone(), world, service.store.clone(), faults);
        let mut fresh = next.service.lock();
        let (all, write_cache) = (service.spec.all_members(self.len()), service.spec.write_cache);
        let restarted = |(old, (spec, bytes)): (&Member, (MemberSpec, u64))| {
            old.restarted(&spec, bytes, write_cache)
        };
        fresh.members = service.members.iter().zip(all).map(restarted).collect();
        fresh.atomic_max = service.atomic_max;
        fresh.faults.set_dead(service.faults.is_dead());
        fresh.faults.set_silent(service.faults.is_silent());
        fresh.faults.adopt_unreadable(service.faults.unreadable());
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
        self.service.lock().cut(tearing, prng)
    }

    /// A copy of the bytes as a reader sees them.
    #[must_use]
    pub fn store(&self) -> Store {
        self.service.lock().store.clone()
    }

    /// What the flash of its members has borne, if they are flash drives.
    #[must_use]
    pub fn wear(&self) -> Option<Wear> {
        let service = self.service.lock();
        service.members.iter().map(Member::wear).sum()
    }

    /// Gives it the ability to write pages of 8 KiB atomically, once it is asked to
    /// ([`Device::write_atomically`]).
    pub fn offer_atomic_pages(&self) {
        self.service.lock().atomic_max = IMAGE_SIZE as u64;
    }

    /// Kills the device, or brings it back with its bytes.
    pub fn set_dead(&self, dead: bool) {
        self.service.lock().faults.set_dead(dead);
    }

    /// Has the device fall silent, or answer again. What it did not answer it never will.
    pub fn set_silent(&self, silent: bool) {
        self.service.lock().faults.set_silent(silent);
    }

    /// Moves the byte past which the device is full; with none it has room for all.
    pub fn set_full_from(&self, limit: Option<u64>) {
        self.service.lock().faults.set_full_from(limit);
    }

    /// Starts to record an instant for each write and each barrier, so that a test can run again
    /// and cut at each.
    pub fn record_writes(&self) {
        self.service.lock().marks = Some(Vec::new());
    }

    /// What has been recorded.
    #[must_use]
    pub fn marks(&self) -> Vec<Mark> {
        self.service.lock().marks.clone().unwrap_or_default()
    }

    fn now(&self) -> Nanos {
        self.world.now()
    }

    /// Sets timers and makes reports; no task may hold the service.
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
        let mut guard = self.service.lock();
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
        let mut service = self.service.lock();
        if service.faults.is_silent() {
            drop(service);
            return completion.ticket().wait().map_err(|failure| failure.source);
        }
        if service.faults.is_dead() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if service.spec.write_cache == WriteReporting::OnMedium {
            service.counters.syncs += 1;
            service.mark(MarkKind::Synced, &self.world);
            return Ok(());
        }
        service.held.push_back(Held::Barrier(Arc::clone(&completion)));
        service.admit(self.now(), &mut effects);
        drop(service);
        self.perform(effects);
        completion.ticket().wait().map_err(|failure| failure.source)
    }

    fn write_atomically(&self, len: u64) -> bool {
        let mut service = self.service.lock();
        let can = len <= SECTOR_SIZE as u64 || len == service.atomic_max;
        if can {
            service.atomic = service.atomic.max(len);
        }
        can
    }

    fn set_time_limit(&self, limit: Nanos) {
        self.time_limit.set(limit);
    }

    fn name(&self) -> String {
        String::from(NAME)
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        let is_full = self.service.lock().faults.is_full(offset + len);
        match is_full {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }

    /// At once, and as durable as that. An array, a disk and a flash drive have a geometry, so they
    /// do not grow.
    fn grow(&self, len: u64) -> io::Result<()> {
        let mut service = self.service.lock();
        let found = self.len();
        if len <= found {
            return Ok(());
        }
        let refusal = match &service.spec {
            _ if service.faults.is_dead() => Some(io::ErrorKind::NotConnected),
            spec if spec.has_geometry() => Some(io::ErrorKind::Unsupported),
            _ => None,
        };
        if let Some(kind) = refusal {
            let range = Some((found, len - found));
            return Err(DeviceError::wrap(NAME.into(), Operation::Grow, range, kind.into()));
        }
        service.store.grow(len);
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    /// Whole pages of the model become zeroes, as a file system leaves them; on the medium that
    /// comes behind the next barrier, or some time before.
    fn punch(&self, offset: u64, len: u64) -> io::Result<Punched> {
        assert!(len > 0 && offset + len <= self.len(), "a range of the device");
        let mut service = self.service.lock();
        if service.faults.is_dead() {
            let (range, source) = (Some((offset, len)), io::ErrorKind::NotConnected.into());
            return Err(DeviceError::wrap(NAME.into(), Operation::Punch, range, source));
        }
        let page = IMAGE_SIZE as u64;
        let whole = offset.div_ceil(page)..(offset + len) / page;
        let bytes = whole.end.saturating_sub(whole.start) * page;
        service.put(whole.map(|page| Piece::Page { page, image: None }).collect());
        Ok(Punched::Freed { bytes })
    }

    fn trim(&self, offset: u64, len: u64) {
        let mut guard = self.service.lock();
        let service = &mut *guard;
        for_each_part(&service.spec, offset, len, |member, offset, len| {
            service.members[member].trim(offset, len);
        });
    }

    fn queued(&self) -> usize {
        let service = self.service.lock();
        service.queued()
    }

    fn counters(&self) -> Counters {
        let now = self.now();
        let service = self.service.lock();
        let striped = &service.members[..service.spec.members as usize];
        let busy: u64 = striped.iter().map(|member| member.busy(now).0).sum();
        let wear: Option<Wear> = service.members.iter().map(Member::wear).sum();
        Counters {
            busy_ns: busy / striped.len() as u64,
            programmed_bytes: wear.map_or(0, |wear| wear.programmed_bytes()),
            ..service.counters
        }
    }
}

impl Timer for SimDevice {
    fn fire(self: Arc<Self>, token: u64) {
        let mut effects = Effects::default();
        let now = self.now();
        let mut service = self.service.lock();
        service.fire(now, token, &self.world, &mut effects);
        drop(service);
        self.perform(effects);
    }
}
