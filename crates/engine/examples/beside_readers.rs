//! How many one-row commits a thread makes beside a thread that reads through snapshots, and beside
//! one that only reads memory of its own.
//!
//! ```text
//! cargo run --release -p terrace --example beside_readers -- [FOLDER [ROUNDS [MILLISECONDS]]]
//! ```

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use terrace::{Database, Durability, Error, TableDef};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const ROW_COUNT: u64 = 600_000;
const VALUE: [u8; 100] = [7; 100];
/// Enough for a version of each row.
const VERSION_BYTES: u64 = 512 << 20;
/// Bytes that the reader of its own memory goes through.
const ARRAY_BYTES: usize = 100 << 20;
/// Rows or transactions between two looks at whether to stop.
const BETWEEN_LOOKS: u64 = 1000;

/// What the thread beside the writer does.
#[derive(Clone, Copy, Debug)]
enum Beside {
    /// Sums an array: what a busy second core costs without the database.
    Array,
    /// Scans all rows, in one snapshot for each scan.
    Scan,
    /// Reads one row in each snapshot.
    Gets,
    /// Keeps a snapshot open, and sleeps.
    Open,
}

/// Numbers at random (Marsaglia, "Xorshift RNGs", 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// What one round came to.
struct Round {
    commits_per_s: f64,
    /// Processor time of a commit, which other programs disturb less than they do the rate.
    commit_ns: f64,
    reads_per_s: f64,
    version_bytes: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let temporary = tempfile::tempdir()?;
    let folder = arguments.next().map_or_else(|| temporary.path().to_path_buf(), PathBuf::from);
    let rounds: usize = arguments.next().map_or(Ok(1), |it| it.parse())?;
    let span = Duration::from_millis(arguments.next().map_or(Ok(200), |it| it.parse())?);
    let db = loaded(&folder)?;
    let kinds = [Beside::Array, Beside::Scan, Beside::Gets, Beside::Open];
    let mut found: Vec<Vec<Round>> = kinds.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (kind, rounds) in kinds.iter().zip(&mut found) {
            rounds.push(round(&db, *kind, span)?);
        }
    }
    let base = median(&found[0], |round| round.commits_per_s);
    let base_ns = median(&found[0], |round| round.commit_ns);
    println!("beside    commits/s  ratio  ns/commit  ratio  reads/s beside  version bytes");
    for (kind, rounds) in kinds.iter().zip(&found) {
        let commits = median(rounds, |round| round.commits_per_s);
        let commit_ns = median(rounds, |round| round.commit_ns);
        let reads = median(rounds, |round| round.reads_per_s);
        let bytes = rounds.iter().map(|round| round.version_bytes).max().unwrap_or(0);
        let name = format!("{kind:?}").to_lowercase();
        let (ratio, ratio_ns) = (commits / base, base_ns / commit_ns);
        print!("{name:8} {commits:10.0}  {ratio:5.3} {commit_ns:10.0}  {ratio_ns:5.3} ");
        println!("{reads:15.0} {bytes:14}");
    }
    db.close()?;
    Ok(())
}

fn loaded(folder: &std::path::Path) -> Result<Database, Error> {
    let builder = Database::builder().memory(1 << 30).version_memory(VERSION_BYTES);
    let db = builder.create(folder.join("beside.terrace"))?;
    let txn = db.begin_write()?;
    let mut loader = txn.bulk_load(ROWS)?;
    for key in 0..ROW_COUNT {
        loader.push(key, &VALUE[..])?;
    }
    loader.finish()?;
    txn.commit(Durability::Buffered)?;
    Ok(db)
}

fn round(db: &Database, kind: Beside, span: Duration) -> Result<Round, Error> {
    let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(db, kind, &stop, &reads));
        let mut random = Random(88_172_645_463_325_252);
        let (began, began_ns, mut commits) = (Instant::now(), processor_ns(), 0_u32);
        let mut written = Ok(());
        while began.elapsed() < span && written.is_ok() {
            let key = random.below(ROW_COUNT);
            // A row that stays as it was is not logged.
            let value = [commits as u8; VALUE.len()];
            let put = |txn: &terrace::WriteTransaction| {
                txn.open_table(ROWS)?.insert(key, &value[..]).map(drop)
            };
            written = db.write_with(Durability::None, put);
            commits += 1;
        }
        let seconds = began.elapsed().as_secs_f64();
        let commit_ns = (processor_ns() - began_ns) / f64::from(commits);
        let version_bytes = db.stats().transactions.version_bytes;
        stop.store(true, Ordering::Relaxed);
        reader.join().expect("a reader does not panic")?;
        written?;
        let reads_per_s = reads.load(Ordering::Relaxed) as f64 / seconds;
        let commits_per_s = f64::from(commits) / seconds;
        Ok(Round { commits_per_s, commit_ns, reads_per_s, version_bytes })
    })
}

/// Nanoseconds that this thread had a processor for; zero where the system does not tell.
fn processor_ns() -> f64 {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    times.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0.0)
}

/// Reads until it is told to stop; counts what it has read.
fn read(db: &Database, kind: Beside, stop: &AtomicBool, reads: &AtomicU64) -> Result<(), Error> {
    let is_over = || stop.load(Ordering::Relaxed);
    let (mut random, mut value) = (Random(0x2545_F491_4F6C_DD1D), Vec::new());
    let array = vec![3_u8; if matches!(kind, Beside::Array) { ARRAY_BYTES } else { 0 }];
    let open = db.begin_read()?;
    if !matches!(kind, Beside::Open) {
        drop(open);
    }
    while !is_over() {
        match kind {
            Beside::Array => {
                for part in array.chunks(1 << 16).take_while(|_| !is_over()) {
                    let sum: u64 = part.iter().map(|&byte| u64::from(byte)).sum();
                    reads.fetch_add(u64::from(sum > 0), Ordering::Relaxed);
                }
            }
            Beside::Scan => {
                let txn = db.begin_read()?;
                let table = txn.open_table(ROWS)?;
                let mut rows = 0;
                for row in table.range(..)? {
                    row?;
                    rows += 1;
                    if rows % BETWEEN_LOOKS == 0 && is_over() {
                        break;
                    }
                }
                reads.fetch_add(rows, Ordering::Relaxed);
            }
            Beside::Gets => {
                for _ in 0..BETWEEN_LOOKS {
                    let txn = db.begin_read()?;
                    let table = txn.open_table(ROWS)?;
                    table.get_into(random.below(ROW_COUNT), &mut value)?;
                }
                reads.fetch_add(BETWEEN_LOOKS, Ordering::Relaxed);
            }
            Beside::Open => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    Ok(())
}

fn median(rounds: &[Round], of: impl Fn(&Round) -> f64) -> f64 {
    let mut all: Vec<f64> = rounds.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
