//! A pool on devices that outlive its world, and an engine's recovery in small: boot page, analysis
//! and redo through the pool, as the engine has them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrace_device::model::{CutReport, Faults, Preset, SimDevice};
use terrace_device::{Device, Keep, Store};
use terrace_page::{Lsn, PAGE_SIZE, PageId, lsn, page_id};
use terrace_policy::{designs, restarts};
use terrace_pool::{
    BufferPool, Dirtied, FlashLayout, FlashNeed, FlashRecovery, Journal, LogFacts, PoolConfig,
    Recovered, ScanFrom,
};
use terrace_rt::{LeafMutex, Nanos, Prng, Stopped, Virtual, VirtualConfig, World, sleep};

use crate::log_model::{LogModel, Record, fresh_page, set_value, value};

const DATABASE: u128 = 7;
const TASKS: u64 = 6;

/// What the boot page says.
#[derive(Clone, Copy)]
pub struct Boot {
    pub oldest_dirty: Lsn,
    pub begin: Lsn,
    pub clean: bool,
    pub stamps: [u64; 2],
    pub journal: u64,
}

impl Boot {
    pub fn log_start(&self) -> Lsn {
        self.oldest_dirty.min(self.begin)
    }
}

/// How a machine is built.
#[derive(Clone)]
pub struct Plan {
    pub config: PoolConfig,
    pub pages: u64,
    pub seed: u64,
    /// One request in two takes longer by at most this time.
    pub home_stall: Nanos,
    pub flash_stall: Nanos,
    /// How often a checkpoint is taken.
    pub checkpoint_every: Nanos,
    /// How often the log is made durable.
    pub commit_every: Nanos,
    /// The cleaner begins before analysis does (Pitfall 2).
    pub cleans_first: bool,
    /// Home may lose writes until it is synced.
    pub home_has_cache: bool,
    /// A page that redo finds clean on flash counts as dirty.
    pub owes_home: bool,
    /// Pages are read and never changed.
    pub only_reads: bool,
    /// One in this number of writes to flash fails; zero is none.
    pub flash_error_one_in: u64,
    /// One in this number of records of the flash tier finds the log full; zero is none.
    pub log_full_one_in: u64,
}

impl Plan {
    pub fn new(design: &str, restart: &str, seed: u64) -> Plan {
        let config = PoolConfig {
            frames: 32,
            design: designs::find(design).expect("a known design"),
            restart: restarts::find(restart).expect("a known restart"),
            flash_slots: 40,
            buf_write_pages: 1 + seed as u32 % 8,
            alpha: 4,
            lambda: [0.05, 0.5, 0.9][seed as usize % 3],
            ..PoolConfig::default()
        };
        Plan {
            config,
            pages: 60,
            seed,
            home_stall: Nanos(4_000_000),
            flash_stall: Nanos(400_000),
            checkpoint_every: Nanos(20_000_000),
            commit_every: Nanos(500_000),
            cleans_first: false,
            home_has_cache: true,
            owes_home: true,
            only_reads: false,
            flash_error_one_in: 0,
            log_full_one_in: 0,
        }
    }
}

/// Devices, log and boot page, from world to world.
pub struct Machine {
    pub plan: Plan,
    pub home: Arc<SimDevice>,
    pub flash: Arc<SimDevice>,
    pub log: Arc<LogModel>,
    pub boot: LeafMutex<Boot>,
    /// The value of each page; changes under the page's latch.
    pub model: Vec<AtomicU64>,
}

/// A machine that is on.
#[derive(Clone)]
pub struct Session {
    pub machine: Arc<Machine>,
    pub pool: Arc<BufferPool>,
    /// Slots that were believed, of those that there are.
    pub reused: u64,
}

fn device(world: &World, store: Store, has_cache: bool, faults: Faults) -> Arc<SimDevice> {
    let faults = Faults { stall_one_in: 2, ..faults };
    let spec = Preset::Nvme.spec();
    let spec = if has_cache { spec.with_write_cache() } else { spec };
    SimDevice::with_faults(spec, world.clone(), store, faults)
}

impl Machine {
    pub fn new(world: &World, plan: Plan) -> Machine {
        let mut home = Store::new(plan.pages * PAGE_SIZE as u64, Keep::Plain);
        for page in 0..plan.pages {
            home.write(page * PAGE_SIZE as u64, &fresh_page(page)[..]);
        }
        let layout = FlashLayout::new(plan.config.flash_slots, plan.config.restart.kind);
        let flash = Store::new(layout.bytes(), Keep::Plain);
        let boot = Boot {
            oldest_dirty: Lsn::MAX,
            begin: Lsn(1),
            clean: false,
            stamps: [0; 2],
            journal: 0,
        };
        let faults = Faults { seed: plan.seed, stall: plan.home_stall, ..Faults::default() };
        let home = device(world, home, plan.home_has_cache, faults);
        let (seed, stall) = (plan.seed + 1, plan.flash_stall);
        let write_error_one_in = plan.flash_error_one_in;
        let faults = Faults { seed, stall, write_error_one_in, ..Faults::default() };
        let log = Arc::new(LogModel::new(plan.seed + 2));
        log.full_one_in.store(plan.log_full_one_in, Ordering::Relaxed);
        Machine {
            home,
            flash: device(world, flash, true, faults),
            log,
            boot: LeafMutex::new(boot),
            model: (0..plan.pages).map(|_| AtomicU64::new(0)).collect(),
            plan,
        }
    }

    /// The same machine in the next world.
    pub fn in_world(&self, world: &World) -> Machine {
        let boot = *self.boot.lock();
        let values = self.log.durable_values(self.plan.pages);
        Machine {
            plan: self.plan.clone(),
            home: self.home.reopen(world.clone()),
            flash: self.flash.reopen(world.clone()),
            log: Arc::clone(&self.log),
            boot: LeafMutex::new(boot),
            model: values.into_iter().map(AtomicU64::new).collect(),
        }
    }

    /// A new database on the flash device of this one.
    pub fn followed(&self, seed: u64) -> Machine {
        let idle = Virtual::new(VirtualConfig { seed, ..VirtualConfig::default() });
        let flash = self.flash.reopen(idle.world());
        Machine { flash, ..Machine::new(&idle.world(), self.plan.clone()) }
    }

    /// Takes what a power cut takes.
    pub fn cut(&self, prng: &mut Prng) -> CutReport {
        self.log.lose_tail();
        self.home.power_cut(prng);
        self.flash.power_cut(prng)
    }

    fn pool(&self, world: &World, recovery: Arc<FlashRecovery>) -> Result<Arc<BufferPool>, String> {
        let (home, flash): (Arc<dyn Device>, Arc<dyn Device>) =
            (self.home.clone(), self.flash.clone());
        let log: Arc<dyn Journal> = self.log.clone();
        let config = self.plan.config.clone();
        let world = world.clone();
        let flash = Some(flash);
        BufferPool::open_recovering(config, world, home, flash, log, Some(recovery))
            .map_err(|error| error.to_string())
    }

    /// Opens the pool: analysis and redo, as the engine does.
    pub fn open(self: &Arc<Machine>, world: &World, prng: &mut Prng) -> Result<Session, String> {
        let boot = *self.boot.lock();
        let (config, need) = (&self.plan.config, FlashNeed::Optional);
        let mut found = FlashRecovery::look(
            &config.of_restart(),
            &*self.flash,
            DATABASE,
            boot.stamps,
            (boot.clean, need),
        );
        let next = Boot { clean: false, stamps: [found.stamp(), prng.next_u64() | 1], ..boot };
        *self.boot.lock() = next;
        found.adopt(&*self.flash, next.stamps[1]);
        self.boot.lock().stamps = [found.adopted(); 2];
        found.load(&*self.flash, boot.journal, boot.begin);
        if self.plan.cleans_first {
            let shared = Arc::new(found);
            let pool = self.pool(world, Arc::clone(&shared))?;
            pool.begin();
            sleep(Nanos(100_000_000));
            pool.shutdown();
            found = Arc::into_inner(shared).expect("opening gives it back");
        }
        let (records, dirty) = self.analyse(&boot, &mut found);
        let facts = LogFacts {
            start: boot.log_start(),
            end: Lsn(self.log.last_lsn().0 + 1),
            dirty: &|page| dirty.get(&page).map(|&(rec, last)| (Lsn(rec), Lsn(last))),
            redo_base: &|_| None,
        };
        found.settle(&*self.flash, &facts);
        let pool = self.pool(world, Arc::new(found))?;
        let reused = pool.stats().slots_used;
        self.redo(&pool, &records, &dirty)?;
        self.log.redo_at(0);
        pool.begin();
        let session = Session { machine: Arc::clone(self), pool, reused };
        session.checkpoint(false)?;
        Ok(session)
    }

    fn analyse(&self, boot: &Boot, found: &mut FlashRecovery) -> (Records, DirtyPages) {
        let from = match found.scan_from() {
            ScanFrom::OldestDirty | ScanFrom::OldestBase => boot.oldest_dirty.min(boot.begin),
            ScanFrom::LogStart => boot.log_start(),
        };
        let mut records = self.log.records();
        let records = records.split_off(&from.0);
        let mut dirty = DirtyPages::new();
        for (&at, record) in &records {
            match record {
                Record::Update { page, .. } => {
                    found.updated(*page, Lsn(at));
                    if boot.oldest_dirty != Lsn::MAX && at < boot.oldest_dirty.0 {
                        found.written(*page, Lsn(at));
                    }
                    if boot.oldest_dirty == Lsn::MAX || at >= boot.oldest_dirty.0 {
                        dirty.entry(*page).or_insert((at, at)).1 = at;
                    }
                }
                Record::BufWrite { pages, eol } => {
                    for page in pages {
                        found.written(*page, *eol);
                        if dirty.get(page).is_some_and(|entry| entry.1 <= eol.0) {
                            dirty.remove(page);
                        }
                    }
                }
                Record::Begin => found.checkpoint_began(Lsn(at)),
                Record::Flash { payload } => found.record(Lsn(at), payload),
            }
        }
        (records, dirty)
    }

    fn redo(&self, pool: &BufferPool, records: &Records, dirty: &DirtyPages) -> Result<(), String> {
        for (&at, record) in records {
            let Record::Update { page: id, previous, value, is_image } = record else { continue };
            let Some(entry) = dirty.get(id).filter(|entry| entry.0 <= at) else { continue };
            self.log.redo_at(entry.0);
            let mut page = match pool.read_damaged_ok(*id).map_err(|error| error.to_string())? {
                Recovered::Whole(mut page) if lsn(&page).0 >= at => {
                    if self.plan.owes_home && page.is_clean_copy() {
                        page.dirty();
                    }
                    continue;
                }
                Recovered::Whole(page) if lsn(&page) != *previous => {
                    let found = lsn(&page);
                    return Err(format!("{id} is at {found}, redo of {at} expects {previous}"));
                }
                Recovered::Whole(page) => page,
                Recovered::Damaged(..) if !is_image => continue,
                Recovered::Damaged(page, ..) => page,
            };
            page.dirty();
            page.apply(Lsn(at), |bytes| {
                bytes.copy_from_slice(&fresh_page(id.0)[..]);
                set_value(bytes, *value);
            });
        }
        Ok(())
    }
}

type Records = BTreeMap<u64, Record>;
type DirtyPages = BTreeMap<PageId, (u64, u64)>;

impl Session {
    fn expected(&self, page: u64) -> u64 {
        self.machine.model[page as usize].load(Ordering::Relaxed)
    }

    /// Every page is what the model says.
    pub fn verify(&self) -> Result<(), String> {
        for page in 0..self.machine.plan.pages {
            let guard = self.pool.read(PageId(page)).map_err(|error| error.to_string())?;
            if page_id(&guard) != PageId(page) || value(&guard) != self.expected(page) {
                return Err(format!("page {page} lost an update"));
            }
        }
        self.pool.check();
        Ok(())
    }

    pub fn read(&self, page: u64) {
        let guard = self.pool.read(PageId(page)).expect("a page is read");
        assert_eq!(page_id(&guard), PageId(page), "another page is read");
        assert_eq!(value(&guard), self.expected(page), "page {page}");
    }

    pub fn change(&self, page: u64, new: u64) {
        let mut guard = self.pool.write(PageId(page)).expect("a page is latched");
        assert_eq!(value(&guard), self.expected(page), "page {page}");
        let is_image = guard.dirty() == Dirtied::Fresh;
        let id = guard.id();
        let record = Record::Update { page: id, previous: lsn(&guard), value: new, is_image };
        terrace_rt::maybe_switch();
        let at = self.machine.log.append(record);
        terrace_rt::maybe_switch();
        guard.apply(at, |bytes| set_value(bytes, new));
        self.machine.model[page as usize].store(new, Ordering::Relaxed);
    }

    /// One random operation; pages are skewed, so that some stay in memory.
    pub fn step(&self, prng: &mut Prng) {
        let pages = self.machine.plan.pages;
        let spread = if prng.chance(3) { pages } else { pages / 3 };
        let page = prng.below(spread);
        match prng.below(100) {
            0..60 => self.read(page),
            60..97 if self.machine.plan.only_reads => self.read(page),
            60..97 => self.change(page, prng.next_u64()),
            _ => {
                let batch: Vec<PageId> = (0..4).map(|_| PageId(prng.below(pages))).collect();
                self.pool.prefetch(&batch);
            }
        }
    }

    /// The first step of a checkpoint.
    pub fn begin_checkpoint(&self) -> Lsn {
        let log = &self.machine.log;
        let begin = log.append(Record::Begin);
        log.make_durable(begin).expect("a log");
        begin
    }

    /// An indirect checkpoint.
    pub fn checkpoint(&self, clean: bool) -> Result<(), String> {
        let log = &self.machine.log;
        let begin = self.begin_checkpoint();
        let oldest = self.pool.oldest_dirty();
        let hardened = self.pool.harden_table();
        self.commit();
        let mut boot = self.machine.boot.lock();
        let stamps = if hardened.is_ok() { boot.stamps } else { [0; 2] };
        let journal = hardened.unwrap_or(0);
        *boot = Boot { oldest_dirty: oldest.rec, begin, clean, stamps, journal };
        log.truncate(boot.log_start());
        self.pool.checkpoint_taken(boot.log_start());
        Ok(())
    }

    /// Makes all that was logged durable.
    pub fn commit(&self) {
        let log = &self.machine.log;
        log.make_durable(Lsn(log.last_lsn().0)).expect("a log");
    }

    /// Shuts down in good order.
    pub fn close(&self) -> Result<(), String> {
        self.pool.flush_all().map_err(|error| error.to_string())?;
        self.checkpoint(true)?;
        self.pool.shutdown();
        Ok(())
    }

    /// Random work of several tasks, with checkpoints, until the power is cut.
    pub fn work(&self, world: &World, seed: u64) -> ! {
        for task in 0..TASKS {
            let session = self.clone();
            drop(world.spawn("worker", move || {
                let mut prng = Prng::from_seed(seed * 100 + task);
                loop {
                    session.step(&mut prng);
                    sleep(Nanos(prng.below(200_000)));
                }
            }));
        }
        let committer = self.clone();
        drop(world.spawn("committer", move || {
            let mut prng = Prng::from_seed(seed * 100 + 98);
            loop {
                sleep(Nanos(prng.below(2 * committer.machine.plan.commit_every.0)));
                committer.commit();
            }
        }));
        let mut prng = Prng::from_seed(seed * 100 + 99);
        loop {
            sleep(Nanos(prng.below(2 * self.machine.plan.checkpoint_every.0)));
            if prng.chance(2) {
                let all = Lsn(self.machine.log.last_lsn().0 + 1);
                self.pool.flush_below(all).expect("a flush");
            }
            self.checkpoint(false).expect("a checkpoint");
        }
    }
}

/// When the power is cut.
#[derive(Clone, Copy)]
pub enum Cut {
    /// So long after the opening began.
    Opening(Nanos),
    /// So long after all was found to be there.
    Working(Nanos),
}

/// What a session on a machine came to.
pub enum Ended {
    /// The power was cut.
    Cut,
    /// It ended by itself.
    Done,
    /// The database was not what it should have been.
    Lost(String),
}

/// Runs `session` on `machine`, or on a new one, in a world of its own, cut at `cut`; returns the
/// machine as the next world finds it.
pub fn run(
    plan: &Plan,
    machine: Option<&Machine>,
    seed: u64,
    cut: Option<Cut>,
    session: impl FnOnce(Session, &World) -> Result<(), String>,
) -> (Machine, Ended) {
    let world = Virtual::new(VirtualConfig { seed, switch_one_in: 3, ..VirtualConfig::default() });
    if let Some(Cut::Opening(after)) = cut {
        world.cut_at(after);
    }
    let kept: Rc<RefCell<Option<Arc<Machine>>>> = Rc::default();
    let ended = world.run(|| {
        let handle = world.world();
        let machine = Arc::new(match machine {
            Some(machine) => machine.in_world(&handle),
            None => Machine::new(&handle, plan.clone()),
        });
        *kept.borrow_mut() = Some(Arc::clone(&machine));
        let opened = machine.open(&handle, &mut Prng::from_seed(seed + 5))?;
        opened.verify()?;
        if let Some(Cut::Working(after)) = cut {
            world.cut_at(terrace_rt::now() + after);
        }
        session(opened, &handle)
    });
    let machine = kept.take().expect("the run began");
    let ended = match ended {
        Ok(Ok(())) => Ended::Done,
        Ok(Err(lost)) => Ended::Lost(lost),
        Err(Stopped::PowerCut { .. }) => {
            machine.cut(&mut Prng::from_seed(seed + 6));
            Ended::Cut
        }
        Err(stopped) => panic!("{stopped}"),
    };
    let idle = Virtual::new(VirtualConfig { seed, ..VirtualConfig::default() });
    (machine.in_world(&idle.world()), ended)
}

/// Runs `sessions` sessions of random work, each cut at random, then a last one that is closed, and
/// one that finds it closed. What was lost, and how many slots were used again in all.
pub fn survive(plan: &Plan, sessions: u64) -> Result<u64, String> {
    let mut prng = Prng::from_seed(plan.seed + 1000);
    let mut machine: Option<Machine> = None;
    let reused = Rc::new(RefCell::new(0));
    for session in 0..sessions + 2 {
        let seed = plan.seed * 50 + session;
        let is_cut = session < sessions;
        let cut = is_cut.then(|| match prng.below(4) {
            0 => Cut::Opening(Nanos(prng.below(100_000_000))),
            _ => Cut::Working(Nanos(prng.below(150_000_000))),
        });
        let counted = Rc::clone(&reused);
        let (next, ended) = run(plan, machine.as_ref(), seed, cut, |opened, world| {
            *counted.borrow_mut() += opened.reused;
            if is_cut {
                opened.work(world, seed);
            }
            opened.close()
        });
        match ended {
            Ended::Cut | Ended::Done => machine = Some(next),
            Ended::Lost(lost) => return Err(format!("session {session}: {lost}")),
        }
    }
    let reused = *reused.borrow();
    Ok(reused)
}
