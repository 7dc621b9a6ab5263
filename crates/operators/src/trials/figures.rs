//! Scans, joins and aggregates of the paper, measured.

use std::str::FromStr;
use std::sync::Arc;

use terrace_device::inside::Search;
use terrace_device::model::{Preset, SimDevice, Spec, UnknownPreset};
use terrace_device::{Device, Keep, Store};
use terrace_rt::{Virtual, VirtualConfig, World, now};

use super::tables::{Image, Of, PAGE_BYTES, number};
use crate::{
    Attribute, Carry, Choice, Cpu, Error, Fields, Function, Input, Join, Joined, Plan, Side, Spill,
    Table, aggregate, choose, hash_join, scan,
};

/// Numbers of threads that the paper varies.
pub const THREADS: [u32; 7] = [1, 2, 4, 8, 16, 20, 32];
/// Memory of the joins in the paper, in MiB.
pub const MEMORY_MIB: [u64; 8] = [2, 4, 8, 16, 32, 64, 128, 256];
/// Threads of the joins in the paper.
pub const JOIN_THREADS: u32 = 20;
/// Domains of both of its drives, and of the scans that are forced upon others.
const DOMAINS: u32 = 20;
/// Requests that its drives take at once.
const QUEUE: u32 = 32;
/// Sizes of requests of one thread that reads in order, in KiB. 128 is what Linux reads ahead.
pub const REQUEST_KIB: [u64; 7] = [4, 8, 16, 32, 64, 128, 256];
/// What Linux reads ahead of a file that is read in order, unless told otherwise.
pub const READ_AHEAD_KIB: u64 = 128;

/// The processor of scans and joins: four cores, four threads.
const DESKTOP: (u32, u32) = (4, 4);
/// That of aggregates: two cores, four threads.
const LAPTOP: (u32, u32) = (2, 4);

/// A drive to measure on.
#[derive(Clone, Debug)]
pub struct Drive {
    /// Its name.
    pub name: String,
    /// Its model.
    pub spec: Spec,
}

impl FromStr for Drive {
    type Err = UnknownPreset;

    fn from_str(name: &str) -> Result<Drive, UnknownPreset> {
        Ok(Drive { name: name.to_string(), spec: name.parse::<Preset>()?.spec() })
    }
}

/// What is measured, and on what.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The drive.
    pub drive: Drive,
    /// The paper's sizes are divided by this.
    pub divisor: u64,
    /// All chance follows from it.
    pub seed: u64,
}

/// A scan or an aggregate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScanRow {
    /// Tasks, as many as asked for.
    pub threads: u32,
    /// Bytes of a request.
    pub request_bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// Bytes of the table.
    pub bytes: u64,
}

/// The scans of a drive.
#[derive(Clone, Debug, PartialEq)]
pub struct Scans {
    /// What the detection finds and chooses.
    pub choice: Choice,
    /// The scan that is chosen.
    pub chosen: ScanRow,
    /// By number of threads; the first is one thread, the traditional scan of the paper.
    pub rows: Vec<ScanRow>,
    /// One thread that reads in order, by size of request.
    pub in_order: Vec<ScanRow>,
}

/// Memory of joins below which blocks, which do not shrink with the tables, are too few for the
/// partitions: such joins are not run at a part of the paper's sizes.
pub const MEMORY_MIN: u64 = 1 << 20;

/// How a join is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// ParaHashJoin.
    Para,
    /// Traditional hash join over ParaScan.
    New,
    /// Traditional hash join over the traditional scan, a page at a time.
    Trad,
    /// The same over a scan that reads ahead as Linux does.
    TradAhead,
}

impl Method {
    /// All.
    pub const ALL: [Method; 4] = [Method::Para, Method::New, Method::Trad, Method::TradAhead];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Method::Para => "ParaHashJoin",
            Method::New => "NewHashJoin",
            Method::Trad => "TradHashJoin",
            Method::TradAhead => "TradHashJoin, read ahead",
        }
    }

    fn carry(self) -> Carry {
        if self == Method::Para { Carry::Rids } else { Carry::Rows }
    }
}

/// Where a join puts what does not fit in its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// On the drive.
    Drive,
    /// Into memory that is not the join's: a page cache that is large enough and never written.
    PageCache,
}

/// A join.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JoinRow {
    /// How.
    pub method: Method,
    /// With what does not fit.
    pub room: Room,
    /// Memory in bytes.
    pub memory: u64,
    /// How long it took and what it did; nothing if there was too little memory for it.
    pub done: Option<(f64, Joined)>,
}

impl Trial {
    fn table(&self, device: &Arc<dyn Device>, image: &Image, of: Of) -> Result<Table, Error> {
        let placed = image.table(of);
        let pages = Arc::new(placed.pages());
        Table::new(Arc::clone(device), pages, placed.first_byte, placed.count())
    }

    /// Runs `work` in a world of its own, on the drive with the tables of `image` and as much room.
    fn run<T>(
        &self,
        image: &Image,
        (room, threads): (u64, u32),
        work: impl FnOnce(Arc<dyn Device>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let world = Virtual::new(VirtualConfig {
            seed: self.seed,
            cores: threads,
            ..VirtualConfig::default()
        });
        let store = Store::new(image.end + room, Keep::Difference(image.computed()));
        let device = SimDevice::new(self.drive.spec.clone(), world.world(), store);
        world.run(|| work(device)).expect("nothing stops it")
    }

    /// What the detection says of the drive. It looks at the first 256 MiB of its own.
    ///
    /// # Errors
    ///
    /// None, of a model.
    pub fn choice(&self) -> Result<Choice, Error> {
        const BYTES: u64 = 256 << 20;
        let none = Image::new(&[], 1, self.seed)?;
        self.run(&none, (BYTES, DESKTOP.1), |device| {
            let search = Search { seed: self.seed, stride_max: 1 << 20 };
            choose(&device, BYTES, &search, (QUEUE, DESKTOP.1))
        })
    }

    /// The domains of the drive as they are used here: the detected ones, or the paper's where
    /// there are none.
    fn striped(&self, choice: &Choice, threads: u32) -> Result<Plan, Error> {
        let plan = match choice.found {
            crate::Found::Domains { domains, chunk_bytes } => {
                Plan::striped(domains, chunk_bytes, QUEUE, u32::MAX)
            }
            _ => Plan::striped(DOMAINS, u64::from(PAGE_BYTES), QUEUE, u32::MAX),
        };
        plan?.with_degree(threads)
    }

    /// Scans of ORDERS, as figure 3.
    ///
    /// # Errors
    ///
    /// None, of a model.
    pub fn scans(&self) -> Result<Scans, Error> {
        let image = Image::new(&[Of::Orders], self.divisor, self.seed)?;
        let choice = self.choice()?;
        let one = |plan: Plan, threads: u32| {
            self.run(&image, (0, DESKTOP.1), |device| {
                let table = self.table(&device, &image, Of::Orders)?;
                let cpu = Cpu::with_cores(DESKTOP.0, DESKTOP.1);
                let begin = now();
                let seen = scan(
                    &table,
                    &plan,
                    &cpu,
                    |_| 0,
                    |seen, page, _| {
                        *seen += u64::from(page.count());
                        Ok(())
                    },
                )?;
                let rows = image.table(Of::Orders).rows;
                assert_eq!(seen.iter().sum::<u64>(), rows, "a scan sees all rows");
                Ok(row(&table, &plan, threads, now().saturating_sub(begin).as_secs_f64()))
            })
        };
        let by_threads = THREADS.map(|threads| one(self.striped(&choice, threads)?, threads));
        let in_order = REQUEST_KIB.map(|kib| one(Plan::in_order(kib << 10)?, 1));
        Ok(Scans {
            choice,
            chosen: one(choice.plan, choice.plan.degree())?,
            rows: by_threads.into_iter().collect::<Result<_, _>>()?,
            in_order: in_order.into_iter().collect::<Result<_, _>>()?,
        })
    }

    /// All aggregates of a column of TPC-C's CUSTOMER by number of threads, as figure 5.
    ///
    /// # Errors
    ///
    /// None, of a model.
    pub fn aggregates(&self) -> Result<Vec<ScanRow>, Error> {
        const ALL: [Function; 5] =
            [Function::Sum, Function::Max, Function::Min, Function::Count, Function::Avg];
        let image = Image::new(&[Of::TpccCustomer], self.divisor, self.seed)?;
        let choice = self.choice()?;
        let one = |threads: u32| {
            let plan = self.striped(&choice, threads)?;
            self.run(&image, (0, LAPTOP.1), |device| {
                let table = self.table(&device, &image, Of::TpccCustomer)?;
                let column = |row: &[u8]| number(row, 8);
                let attribute = Attribute { column: Arc::new(column), bytes: 8 };
                let input = Input { table, attribute, predicate: None };
                let begin = now();
                aggregate(&input, &ALL, &plan, &Cpu::with_cores(LAPTOP.0, LAPTOP.1))?;
                let seconds = now().saturating_sub(begin).as_secs_f64();
                Ok(row(&input.table, &plan, threads, seconds))
            })
        };
        THREADS.into_iter().map(one).collect()
    }

    /// CUSTOMER and ORDERS of TPC-H, joined in a memory of figure 4.
    ///
    /// # Errors
    ///
    /// None, of a model.
    pub fn join(&self, method: Method, memory_mib: u64, room: Room) -> Result<JoinRow, Error> {
        let memory = (memory_mib << 20) / self.divisor;
        if memory < MEMORY_MIN {
            return Ok(JoinRow { method, room, memory, done: None });
        }
        let image = Image::new(&[Of::Customer, Of::Orders], self.divisor, self.seed)?;
        // Both tables, and what blocks waste.
        let bytes = (2 * image.end).next_multiple_of(4 << 20);
        let done = self.run(&image, (bytes, DESKTOP.1), |device| {
            let tables = [Of::Customer, Of::Orders].map(|of| self.table(&device, &image, of));
            let mut join = joined(&device, tables, (method, memory), image.end)?;
            if room == Room::PageCache {
                let store = Store::new(device.len(), Keep::Plain);
                join.spill.device = SimDevice::new(Preset::Ram.spec(), World::current(), store);
            }
            let begin = now();
            match hash_join(&join, Arc::new(|_, _: &[u8], _: &[u8]| Ok(()))) {
                Ok(joined) => Ok(Some((now().saturating_sub(begin).as_secs_f64(), joined))),
                Err(Error::Memory { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        });
        Ok(JoinRow { method, room, memory, done: done? })
    }

    /// The least memory in which CUSTOMER is hashed without being written, to a hundredth.
    ///
    /// # Errors
    ///
    /// None, of a model.
    pub fn one_pass(&self, method: Method) -> Result<u64, Error> {
        let image = Image::new(&[Of::Customer], self.divisor, self.seed)?;
        let room = (2 * image.end).next_multiple_of(4 << 20);
        let fits = |memory: u64| {
            self.run(&image, (room, DESKTOP.1), |device| {
                let table = self.table(&device, &image, Of::Customer)?;
                let nothing = Table::new(Arc::clone(&device), Arc::clone(table.pages()), 0, 0);
                let join = joined(&device, [Ok(table), nothing], (method, memory), image.end)?;
                match hash_join(&join, Arc::new(|_, _: &[u8], _: &[u8]| Ok(()))) {
                    Ok(joined) => Ok(joined.spilled == 0),
                    Err(Error::Memory { .. }) => Ok(false),
                    Err(error) => Err(error),
                }
            })
        };
        let (mut low, mut high) = (0, (1_024 << 20) / self.divisor);
        while high - low > high / 100 {
            let middle = low.midpoint(high);
            if fits(middle)? { high = middle } else { low = middle }
        }
        Ok(high)
    }
}

/// The join of two tables, which spills from `end` on.
fn joined(
    device: &Arc<dyn Device>,
    [build, probe]: [Result<Table, Error>; 2],
    (method, memory): (Method, u64),
    end: u64,
) -> Result<Join, Error> {
    let attribute = Attribute { column: Arc::new(|row: &[u8]| number(row, 8)), bytes: 4 };
    let side = |table| Side {
        input: Input { table, attribute: attribute.clone(), predicate: None },
        projection: Arc::new(Fields(vec![0..8, 16..24])),
    };
    let striped = Plan::striped(DOMAINS, u64::from(PAGE_BYTES), QUEUE, JOIN_THREADS)?;
    let plan = match method {
        Method::Para | Method::New => striped,
        Method::Trad => striped.with_degree(1)?,
        Method::TradAhead => Plan::in_order(READ_AHEAD_KIB << 10)?,
    };
    let spill = Spill { device: Arc::clone(device), first_byte: end, bytes: device.len() - end };
    Ok(Join {
        build: side(build?),
        probe: side(probe?),
        carry: method.carry(),
        plan,
        cpu: Cpu::with_cores(DESKTOP.0, DESKTOP.1),
        memory,
        buckets: None,
        spill,
    })
}

fn row(table: &Table, plan: &Plan, threads: u32, seconds: f64) -> ScanRow {
    let page_bytes = table.page_bytes();
    let (_, request_bytes) = plan.buffers(page_bytes);
    ScanRow { threads, request_bytes, seconds, bytes: u64::from(table.count()) * page_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(name: &str, divisor: u64) -> Trial {
        Trial { drive: name.parse().expect("a preset"), divisor, seed: 3 }
    }

    #[test]
    fn the_same_seed_gives_the_same_times_and_more_threads_are_no_slower() {
        let trial = trial("ssd-s", 2_000);
        let scans = trial.scans().expect("no faults");
        assert_eq!(scans, trial.scans().expect("no faults"));
        let seconds: Vec<f64> = scans.rows.iter().map(|row| row.seconds).collect();
        assert!(seconds.is_sorted_by(|more, fewer| more >= &(fewer * 0.99)), "{seconds:?}");
        assert!(seconds[0] / seconds[5] > 4.0, "{seconds:?}");
        assert_eq!(scans.chosen.threads, 4);
        let sums = trial.aggregates().expect("no faults");
        assert!(sums[0].seconds / sums[2].seconds > 2.5, "{sums:?}");
    }

    #[test]
    fn all_joins_find_the_same_rows() {
        let trial = trial("ssd-s", 64);
        let join = |method, mib, room| {
            trial.join(method, mib, room).expect("no faults").done.expect("memory enough")
        };
        let rows = |method| join(method, 512, Room::Drive).1.rows;
        let found = rows(Method::Para);
        assert!((2_000..2_700).contains(&found), "{found}: one in a hundred of 234,375");
        for method in Method::ALL {
            assert_eq!(rows(method), found, "{}", method.name());
        }
        let (slow, spilled) = join(Method::New, 128, Room::Drive);
        let (fast, cached) = join(Method::New, 128, Room::PageCache);
        assert!(fast < slow && cached.rows == found, "{fast} s of {slow}");
        assert!(spilled.rows == found && spilled.spilled > 0, "{spilled:?}");
    }
}
