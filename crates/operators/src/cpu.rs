//! What each step of an operator costs the processor, by name, in a world that charges it.
//!
//! - C1: a result depends on CPU time only through [`Cpu::charge`]; a [`Cpu::free`] one charges
//!   nothing, and so does the real world, where work takes its own time.
//!
//! The figures are measured, on an Intel Xeon of 2026 with a cache of 2 MiB for each core, and not
//! scaled to the papers' processors: all but the first by `terrace bench parascan --steps` as a
//! real-time process, the least of three runs, with all that is hashed in that cache. A request is
//! one of 4 KiB that a thread makes and waits for: fio (`--direct=1 --ioengine=psync --bs=4k
//! --rw=randread`) took 26.8% of a core for 11,700 of them a second, in a virtual machine.
//!
//! Two threads on one core: with more tasks at work than cores, each takes `SHARED_PERCENT` of its
//! time, since a core with two threads does 1.3 times what it does with one: Marr and others,
//! "Hyper-Threading Technology architecture and microarchitecture" (Intel Technology Journal 6(1),
//! 2002), "up to 30%".

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use terrace_rt::{Nanos, charge};

/// Time of a step that shares its core, in percent of that of one alone: 2 / 1.3.
const SHARED_PERCENT: u64 = 154;

/// A step of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A request to the device and its answer.
    Request,
    /// A page: its checksum and header.
    Page,
    /// A row: its place, its predicate and its column.
    Row,
    /// A row into a hash bucket, under its lock.
    Insert,
    /// A row against the rows of a bucket.
    Probe,
    /// A row into an aggregate, for each function.
    Aggregate,
    /// A comparison of a sort or a merge.
    Compare,
    /// A row that is fetched, and handed on.
    Fetch,
}

/// A line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The step.
    pub step: Step,
    /// What it is called.
    pub name: &'static str,
    /// Its time in ns.
    pub ns: u64,
}

/// What each step costs; the module says where the figures are from.
pub const COSTS: [Cost; 8] = [
    Cost { step: Step::Request, name: "request", ns: 23_000 },
    Cost { step: Step::Page, name: "page", ns: 184 },
    Cost { step: Step::Row, name: "row", ns: 2 },
    Cost { step: Step::Insert, name: "insert", ns: 45 },
    Cost { step: Step::Probe, name: "probe", ns: 265 },
    Cost { step: Step::Aggregate, name: "aggregate", ns: 2 },
    Cost { step: Step::Compare, name: "compare", ns: 2 },
    Cost { step: Step::Fetch, name: "fetch", ns: 150 },
];

/// Work that has been done and not yet been charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work(u64);

impl Work {
    /// Adds a step that was done `times` times.
    pub fn add(&mut self, step: Step, times: u64) {
        self.0 += COSTS[step as usize].ns * times;
    }

    /// Its time.
    #[must_use]
    pub fn time(self) -> Nanos {
        Nanos(self.0)
    }
}

/// The processor that operators are charged to. Clones share it.
#[derive(Clone, Debug)]
pub struct Cpu(Option<Arc<Cores>>);

#[derive(Debug)]
struct Cores {
    /// Of its own for each thread, if there are as many as threads.
    cores: Option<u32>,
    /// Tasks at work.
    busy: AtomicU32,
}

impl Cpu {
    /// Charges nothing.
    #[must_use]
    pub fn free() -> Cpu {
        Cpu(None)
    }

    /// Charges the world, which has a core for each of the `threads` of a processor with `cores`.
    #[must_use]
    pub fn with_cores(cores: u32, threads: u32) -> Cpu {
        let cores = (cores < threads).then_some(cores);
        Cpu(Some(Arc::new(Cores { cores, busy: AtomicU32::new(0) })))
    }

    /// Does `work` on the processor; waits until one of its threads has done it.
    pub(crate) fn charge(&self, work: Work) {
        let Some(cores) = &self.0 else { return };
        let others = cores.busy.fetch_add(1, Ordering::Relaxed);
        let shares = cores.cores.is_some_and(|cores| others >= cores);
        charge(Nanos(if shares { work.0 * SHARED_PERCENT / 100 } else { work.0 }));
        cores.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::team;
    use terrace_rt::{Virtual, VirtualConfig, now};

    fn time_of(threads: u32, cores: u32, tasks: u32) -> Nanos {
        let config = VirtualConfig { cores: threads, ..VirtualConfig::default() };
        let cpu = Cpu::with_cores(cores, threads);
        let run = move || {
            let done = team::run(tasks, move |_, _| {
                for _ in 0..100 {
                    let mut work = Work::default();
                    work.add(Step::Request, 1);
                    cpu.charge(work);
                }
                Ok(())
            });
            done.map(|_| now())
        };
        Virtual::new(config).run(run).expect("it ends").expect("no error")
    }

    /// The table is in the order of the steps, so each has one cost.
    #[test]
    fn each_step_has_one_cost() {
        for (at, cost) in COSTS.iter().enumerate() {
            assert_eq!(cost.step as usize, at, "{}", cost.name);
            assert!(cost.ns > 0, "{}", cost.name);
        }
    }

    #[test]
    fn tasks_queue_for_cores_and_threads_of_one_core_slow_each_other_down() {
        let alone = time_of(4, 4, 1).0;
        assert_eq!(time_of(4, 4, 4).0, alone);
        assert_eq!(time_of(4, 4, 8).0, 2 * alone);
        // Four threads of two cores do 1.3 times what two do.
        assert_eq!(time_of(4, 2, 2).0, alone);
        let shared = time_of(4, 2, 4).0 as f64 / alone as f64;
        assert!((1.5..1.56).contains(&shared), "{shared}");
    }
}
