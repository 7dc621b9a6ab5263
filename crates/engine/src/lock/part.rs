//! A partition of the lock table: queues of requests, in one slab.
//!
//! ```text
//! buckets   [ 3 | - | 0 | ... ]
//!             |       |
//! requests    v       v
//!   3: A, owner 1, holds Shared ----> 5: A, owner 2, wants Exclusive ----> 2: B, owner 1, ...
//! ```
//!
//! - P1: the requests of a resource stand in its bucket's chain in order of arrival.
//! - P2: no two owners hold conflicting modes of a resource.
//! - P3: a request that wants something conflicts with what another holds, or with what one before
//!   it wants; but a request that holds something already need not wait behind others' wishes.
//! - P4: a request that neither holds nor wants anything does not exist.

use super::{Modes, Resource};

/// Bits of a resource's hash that choose its partition.
pub(crate) const PART_BITS: u32 = 6;
const NONE: u32 = u32::MAX;

/// A transaction's place in the table of owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OwnerId(pub(crate) u32);

#[derive(Clone, Copy, Debug)]
struct Request {
    resource: Resource,
    owner: OwnerId,
    next: u32,
    held: Modes,
    wanted: Modes,
}

impl Request {
    /// A request that waits for nothing.
    #[inline]
    fn of(resource: Resource, owner: OwnerId, held: Modes) -> Request {
        Request { resource, owner, next: NONE, held, wanted: Modes::NONE }
    }
}

/// The answer of `Part::acquire`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// Held.
    Granted,
    /// Conflicts with others. Nothing was changed.
    Busy,
    /// No request can be stored.
    Full,
}

/// Whether the owners left in a queue wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    Wait,
    DoNotWait,
}

/// Part of the lock table.
#[derive(Debug)]
pub(crate) struct Part {
    /// A power of two.
    buckets: Vec<u32>,
    requests: Vec<Request>,
    free: u32,
    used: usize,
    requests_max: usize,
}

impl Part {
    /// A partition for at most `requests_max` requests. It takes memory as it needs it.
    pub(crate) fn new(requests_max: usize) -> Part {
        Part { buckets: vec![NONE; 64], requests: Vec::new(), free: NONE, used: 0, requests_max }
    }

    /// Requests stored.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Whether `owner` could hold `modes` now.
    pub(crate) fn is_free(&self, resource: Resource, owner: OwnerId, modes: Modes) -> bool {
        let conflicts = modes.conflicts();
        let mut own = false;
        let mut behind = false;
        for request in self.queue(resource) {
            if request.owner == owner {
                own = !request.held.is_none();
            } else if !request.held.within(conflicts).is_none() {
                return false;
            } else {
                behind |= !request.wanted.within(conflicts).is_none();
            }
        }
        own || !behind
    }

    /// Gives `modes` to `owner` if it can have them now. One walk of the queue: the path that
    /// every lock takes.
    #[inline]
    pub(crate) fn acquire(&mut self, resource: Resource, owner: OwnerId, modes: Modes) -> Acquired {
        let bucket = self.bucket(resource);
        let at = self.buckets[bucket];
        if at == NONE {
            return self.grant_behind(NONE, bucket, Request::of(resource, owner, modes));
        }
        self.acquire_among(resource, owner, modes)
    }

    /// As `acquire`, where there are requests, perhaps for the resource.
    fn acquire_among(&mut self, resource: Resource, owner: OwnerId, modes: Modes) -> Acquired {
        let bucket = self.bucket(resource);
        let mut at = self.buckets[bucket];
        let conflicts = modes.conflicts();
        let (mut own, mut behind, mut last) = (NONE, false, NONE);
        while at != NONE {
            let request = &self.requests[at as usize];
            if request.resource == resource {
                if request.owner == owner {
                    own = at;
                } else if !request.held.within(conflicts).is_none() {
                    return Acquired::Busy;
                } else {
                    behind |= !request.wanted.within(conflicts).is_none();
                }
            }
            (last, at) = (at, request.next);
        }
        if behind && (own == NONE || self.requests[own as usize].held.is_none()) {
            return Acquired::Busy;
        }
        if own == NONE {
            return self.grant_behind(last, bucket, Request::of(resource, owner, modes));
        }
        let request = &mut self.requests[own as usize];
        request.held = request.held.and(modes);
        Acquired::Granted
    }

    #[inline]
    fn grant_behind(&mut self, last: u32, bucket: usize, request: Request) -> Acquired {
        match self.add_behind(last, bucket, request) {
            Some(_) => Acquired::Granted,
            None => Acquired::Full,
        }
    }

    /// Lets `owner` wait for `modes`. False if no request can be stored.
    pub(crate) fn want(&mut self, resource: Resource, owner: OwnerId, modes: Modes) -> bool {
        let Some(at) = self.find_or_add(resource, owner) else { return false };
        self.requests[at].wanted = modes;
        true
    }

    /// Gives up what `owner` holds and wants; calls `granted` with each owner that now holds what
    /// it waited for.
    #[inline]
    pub(crate) fn release(
        &mut self,
        resource: Resource,
        owner: OwnerId,
        granted: impl FnMut(OwnerId),
    ) {
        if self.remove(resource, owner) == Others::Wait {
            self.grant(resource, granted);
        }
    }

    /// Gives up what `owner` wants, but not what it holds.
    pub(crate) fn cancel(
        &mut self,
        resource: Resource,
        owner: OwnerId,
        granted: impl FnMut(OwnerId),
    ) {
        let at = self.find(resource, owner).expect("who cancels has a request");
        self.requests[at].wanted = Modes::NONE;
        if self.requests[at].held.is_none() {
            self.remove(resource, owner);
        }
        self.grant(resource, granted);
    }

    /// The owners that the waiting `owner` waits for: those that hold what conflicts, and those
    /// before it that request what does.
    pub(crate) fn blockers(&self, resource: Resource, owner: OwnerId, out: &mut Vec<OwnerId>) {
        let Some(at) = self.find(resource, owner) else { return };
        let waiting = self.requests[at];
        let conflicts = waiting.wanted.conflicts();
        let mut before = true;
        for request in self.queue(resource) {
            if request.owner == owner {
                before = false;
                continue;
            }
            let queued = before && waiting.held.is_none();
            let blocks = if queued { request.held.and(request.wanted) } else { request.held };
            if !blocks.within(conflicts).is_none() {
                out.push(request.owner);
            }
        }
    }

    /// What is in the way of `owner`, which waits: a holder; or, if no held mode conflicts with its
    /// request but an earlier waiting request does, a holder that the earlier one waits for, and
    /// that earlier one.
    pub(crate) fn in_the_way(
        &self,
        resource: Resource,
        owner: OwnerId,
    ) -> (Option<OwnerId>, Option<OwnerId>) {
        let holder_against = |modes: Modes, owner: OwnerId| {
            let blocks = |request: &&Request| {
                request.owner != owner && !request.held.within(modes.conflicts()).is_none()
            };
            self.queue(resource).find(blocks).map(|request| request.owner)
        };
        let Some(at) = self.find(resource, owner) else { return (None, None) };
        let wanted = self.requests[at].wanted;
        if let Some(holder) = holder_against(wanted, owner) {
            return (Some(holder), None);
        }
        let before = self.queue(resource).take_while(|request| request.owner != owner);
        let queued = before.into_iter().find(|request| request.wanted.conflict_with(wanted));
        let holder = queued.and_then(|queued| holder_against(queued.wanted, queued.owner));
        (holder, queued.map(|queued| queued.owner))
    }

    /// Every request for `resource`, in order: the owner, what it holds, what it waits for.
    pub(crate) fn describe(&self, resource: Resource) -> Vec<(OwnerId, Modes, Modes)> {
        let requests = self.queue(resource);
        requests.map(|request| (request.owner, request.held, request.wanted)).collect()
    }

    /// Whether no owner holds or requests anything of `resource`.
    pub(crate) fn is_unused(&self, resource: Resource) -> bool {
        self.queue(resource).next().is_none()
    }

    /// Whether an owner holds one of `modes`.
    pub(crate) fn is_held(&self, resource: Resource, modes: Modes) -> bool {
        self.queue(resource).any(|request| !request.held.within(modes).is_none())
    }

    fn grant(&mut self, resource: Resource, mut granted: impl FnMut(OwnerId)) {
        let mut at = self.buckets[self.bucket(resource)];
        while at != NONE {
            let request = self.requests[at as usize];
            if request.resource == resource
                && !request.wanted.is_none()
                && self.may_have(at, &request)
            {
                let stored = &mut self.requests[at as usize];
                stored.held = stored.held.and(stored.wanted);
                stored.wanted = Modes::NONE;
                granted(request.owner);
            }
            at = request.next;
        }
    }

    fn may_have(&self, at: u32, waiting: &Request) -> bool {
        let conflicts = waiting.wanted.conflicts();
        let mut before = true;
        let mut other = self.buckets[self.bucket(waiting.resource)];
        while other != NONE {
            let request = &self.requests[other as usize];
            if other == at {
                before = false;
            } else if request.resource == waiting.resource {
                let queued = before && waiting.held.is_none();
                let blocks = if queued { request.held.and(request.wanted) } else { request.held };
                if !blocks.within(conflicts).is_none() {
                    return false;
                }
            }
            other = request.next;
        }
        true
    }

    fn queue(&self, resource: Resource) -> impl Iterator<Item = &Request> + '_ {
        let mut at = self.buckets[self.bucket(resource)];
        std::iter::from_fn(move || {
            while at != NONE {
                let request = &self.requests[at as usize];
                at = request.next;
                if request.resource == resource {
                    return Some(request);
                }
            }
            None
        })
    }

    #[inline]
    fn bucket(&self, resource: Resource) -> usize {
        // The low bits chose the partition.
        (resource.hash() >> PART_BITS) & (self.buckets.len() - 1)
    }

    fn find(&self, resource: Resource, owner: OwnerId) -> Option<usize> {
        let mut at = self.buckets[self.bucket(resource)];
        while at != NONE {
            let request = &self.requests[at as usize];
            if request.owner == owner && request.resource == resource {
                return Some(at as usize);
            }
            at = request.next;
        }
        None
    }

    fn find_or_add(&mut self, resource: Resource, owner: OwnerId) -> Option<usize> {
        let bucket = self.bucket(resource);
        let mut last = NONE;
        let mut at = self.buckets[bucket];
        while at != NONE {
            let request = &self.requests[at as usize];
            if request.owner == owner && request.resource == resource {
                return Some(at as usize);
            }
            last = at;
            at = request.next;
        }
        let empty = Request::of(resource, owner, Modes::NONE);
        self.add_behind(last, bucket, empty).map(|added| added as usize)
    }

    /// Adds a request behind `last`, the end of the chain of `bucket`.
    #[inline]
    fn add_behind(&mut self, last: u32, bucket: usize, request: Request) -> Option<u32> {
        let added = self.add(request)?;
        match last {
            NONE => self.buckets[bucket] = added,
            last => self.requests[last as usize].next = added,
        }
        if self.used > self.buckets.len() {
            self.widen();
        }
        Some(added)
    }

    #[inline]
    fn add(&mut self, request: Request) -> Option<u32> {
        if self.used == self.requests_max {
            return None;
        }
        self.used += 1;
        let at = self.free;
        match self.requests.get_mut(at as usize) {
            Some(place) => {
                self.free = place.next;
                *place = request;
                Some(at)
            }
            // There is no free one.
            None => {
                self.requests.push(request);
                Some(self.requests.len() as u32 - 1)
            }
        }
    }

    /// Removes a request, if there is one; says whether others wait for the resource.
    #[inline]
    fn remove(&mut self, resource: Resource, owner: OwnerId) -> Others {
        let bucket = self.bucket(resource);
        let at = self.buckets[bucket];
        if let Some(first) = self.requests.get_mut(at as usize)
            && (first.owner, first.next) == (owner, NONE)
            && first.resource == resource
        {
            // Alone, as most are.
            first.next = self.free;
            self.free = at;
            self.used -= 1;
            self.buckets[bucket] = NONE;
            return Others::DoNotWait;
        }
        self.remove_among(resource, owner)
    }

    /// As `remove`, where there may be other requests.
    fn remove_among(&mut self, resource: Resource, owner: OwnerId) -> Others {
        let bucket = self.bucket(resource);
        let mut at = self.buckets[bucket];
        let mut others = Others::DoNotWait;
        let mut last = NONE;
        while at != NONE {
            let Request { resource: of, owner: who, next, wanted, .. } = self.requests[at as usize];
            if of == resource && who == owner {
                match last {
                    NONE => self.buckets[bucket] = next,
                    last => self.requests[last as usize].next = next,
                }
                self.requests[at as usize].next = self.free;
                self.free = at;
                self.used -= 1;
            } else {
                if of == resource && !wanted.is_none() {
                    others = Others::Wait;
                }
                last = at;
            }
            at = next;
        }
        others
    }

    /// Doubles the buckets; chains keep the order of arrival, since they are walked in order.
    #[cold]
    fn widen(&mut self) {
        let old = std::mem::take(&mut self.buckets);
        self.buckets = vec![NONE; old.len() * 2];
        let mut last = vec![NONE; self.buckets.len()];
        for head in old {
            let mut at = head;
            while at != NONE {
                let next = self.requests[at as usize].next;
                let bucket = self.bucket(self.requests[at as usize].resource);
                self.requests[at as usize].next = NONE;
                match last[bucket] {
                    NONE => self.buckets[bucket] = at,
                    before => self.requests[before as usize].next = at,
                }
                last[bucket] = at;
                at = next;
            }
        }
    }

    /// Asserts P2 to P4.
    pub(crate) fn check(&self) {
        for &head in &self.buckets {
            let mut at = head;
            while at != NONE {
                let request = self.requests[at as usize];
                assert!(!request.held.and(request.wanted).is_none(), "P4: an empty request");
                for other in self.queue(request.resource) {
                    let clash = other.owner != request.owner
                        && !request.held.is_none()
                        && other.held.conflict_with(request.held);
                    assert!(!clash, "P2: {request:?} beside {other:?}");
                }
                if !request.wanted.is_none() {
                    assert!(!self.may_have(at, &request), "P3: {request:?} waits for nobody");
                }
                at = request.next;
            }
        }
    }
}
