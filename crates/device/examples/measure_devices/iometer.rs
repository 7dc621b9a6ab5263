//! Closed-loop workers on a modelled device, as Iometer measured the papers' arrays: each member
//! disk has its own workers, which keep one request of 8 KiB outstanding each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_device::model::{SimDevice, Spec};
use terrace_device::{Device, Keep, Op, Store, read, write};
use terrace_rt::{Prng, Virtual, VirtualConfig};

/// Where requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Anywhere on the member.
    Random,
    /// On from the last one on the member.
    Sequential,
}

/// A measurement.
#[derive(Clone)]
pub struct Load {
    /// The device.
    pub spec: Spec,
    /// Its bytes.
    pub len: u64,
    /// Bytes of a request.
    pub request: u64,
    /// Requests outstanding for each member.
    pub outstanding: u64,
    /// Direction.
    pub op: Op,
    /// Where.
    pub pattern: Pattern,
    /// Requests to each member.
    pub requests: u64,
    /// Decides the addresses.
    pub seed: u64,
}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Requests per second, of the whole device.
    pub iops: f64,
    /// Share of time with a request in service.
    pub utilisation: f64,
    /// Longest time of a request, s.
    pub worst_s: f64,
    /// Bytes written to flash for a byte of the host; 1 for what is not flash.
    pub amplification: f64,
}

/// Runs `load` in a virtual world of its own.
pub fn run(load: &Load) -> Rates {
    let world = Virtual::new(VirtualConfig { seed: load.seed, ..VirtualConfig::default() });
    let store = Store::new(load.len, Keep::Recent { pages: 64 });
    let device = SimDevice::new(load.spec.clone(), world.world(), store);
    let worst = Arc::new(AtomicU64::new(0));
    let shared = Arc::clone(&device);
    let shared_worst = Arc::clone(&worst);
    let owned = load.clone();
    let elapsed = world
        .run(move || {
            let mut tasks = Vec::new();
            for member in 0..u64::from(owned.spec.members) {
                let issued = Arc::new(AtomicU64::new(0));
                for worker in 0..owned.outstanding {
                    let (device, issued) = (Arc::clone(&shared), Arc::clone(&issued));
                    let (load, worst) = (owned.clone(), Arc::clone(&shared_worst));
                    let seed = load.seed ^ (member << 32) ^ worker;
                    let task = move || work(&load, &device, member, &issued, seed, &worst);
                    tasks.push(terrace_rt::spawn("worker", task));
                }
            }
            tasks.into_iter().for_each(terrace_rt::Task::join);
            terrace_rt::now()
        })
        .expect("nothing cuts the power");
    let counters = device.counters();
    Rates {
        iops: (counters.reads + counters.writes) as f64 / elapsed.as_secs_f64(),
        utilisation: counters.busy_ns as f64 / elapsed.0 as f64,
        amplification: device.wear().map_or(1.0, |wear| wear.amplification()),
        worst_s: worst.load(Ordering::Relaxed) as f64 / 1e9,
    }
}

fn work(
    load: &Load,
    device: &Arc<SimDevice>,
    member: u64,
    issued: &AtomicU64,
    seed: u64,
    worst: &AtomicU64,
) {
    let mut prng = Prng::from_seed(seed);
    let mut bytes = vec![0; load.request as usize];
    let (members, stripe) = (u64::from(load.spec.members), load.spec.stripe);
    let stripes = load.len / stripe / members;
    loop {
        let number = issued.fetch_add(1, Ordering::Relaxed);
        if number >= load.requests {
            return;
        }
        let place = match load.pattern {
            Pattern::Random => prng.below(stripes * stripe / load.request),
            Pattern::Sequential => number % (stripes * stripe / load.request),
        } * load.request;
        let offset = (place / stripe * members + member) * stripe + place % stripe;
        let began = terrace_rt::now();
        match load.op {
            Op::Read => read(&**device, offset, &mut bytes).expect("no faults"),
            Op::Write => write(&**device, offset, &bytes).expect("no faults"),
        }
        let took = terrace_rt::now().saturating_sub(began);
        worst.fetch_max(took.0, Ordering::Relaxed);
    }
}
