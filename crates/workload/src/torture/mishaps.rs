//! What goes wrong beside power cuts: devices that fail, fall silent or are busy while the database
//! is used, panics inside transactions, transactions that are too large for the log; and the calls
//! that few transactions make.
//!
//! - I1: flash that is a cache may do whatever it likes: no client sees an error.
//! - I2: no client sees transient errors, whatever device has them.
//! - I3: home, log, or flash that is a part of the database may stop the engine. Then every error
//!   names a device as its first cause, and the next opening finds what the ledger allows.

use terrace::Error;
use terrace_device::FaultPlan;
use terrace_rt::Prng;

/// Tells the draws of mishaps from those of the scenario, which stay what they were.
const SEED_OF_MISHAPS: u64 = 0x6d69_7368_6170_7321;

/// Most requests that a device takes before it fails for good.
const REQUESTS_MAX: u64 = 2_000;

/// The log devices of the torture: all small, so that they run full and wrap, some so small that
/// one transaction can be too large for them.
const LOG_BYTES: [u64; 3] = [4 << 20, 4 << 20, 1 << 20];

/// The mishaps of a torture. Rates are of transactions; zero is never.
#[derive(Clone, Copy, Debug)]
pub struct Mishaps {
    /// How long the log may get, in bytes.
    pub log_bytes: u64,
    /// It begins small, grows and shrinks. Its device may have room for a part of it only.
    pub log_grows: bool,
    /// One in this number panics.
    pub panic_one_in: u64,
    /// One in this number goes back to a savepoint.
    pub savepoint_one_in: u64,
    /// One in this number deletes a table and makes it again.
    pub remake_one_in: u64,
    /// One in this number changes hundreds of rows.
    pub bulk_one_in: u64,
    /// One in this number only reads, hundreds of rows.
    pub report_one_in: u64,
    /// One in this number of rounds has devices that fail.
    pub trouble_one_in: u64,
    /// One in this number of rounds opens the database with other options than the one before:
    /// design, restart method, memory, partitions.
    pub other_options_one_in: u64,
}

impl Mishaps {
    /// None of them.
    pub const NONE: Mishaps = Mishaps {
        log_bytes: LOG_BYTES[0],
        log_grows: false,
        panic_one_in: 0,
        savepoint_one_in: 0,
        remake_one_in: 0,
        bulk_one_in: 0,
        report_one_in: 0,
        trouble_one_in: 0,
        other_options_one_in: 0,
    };

    /// Those of the torture that `seed` decides.
    pub fn draw(seed: u64) -> Mishaps {
        let mut prng = Prng::from_seed(seed ^ SEED_OF_MISHAPS);
        let mut one_of = |rates: [u64; 3]| rates[prng.below(3) as usize];
        let drawn = Mishaps {
            log_bytes: one_of(LOG_BYTES),
            log_grows: false,
            panic_one_in: one_of([0, 10, 50]),
            savepoint_one_in: one_of([0, 5, 20]),
            remake_one_in: one_of([0, 30, 150]),
            bulk_one_in: one_of([0, 20, 80]),
            report_one_in: one_of([0, 10, 40]),
            trouble_one_in: one_of([0, 2, 4]),
            other_options_one_in: one_of([0, 1, 3]),
        };
        // The last draw, so that the others stay what they were.
        Mishaps { log_grows: one_of([0, 1, 1]) == 1, ..drawn }
    }
}

/// How the devices of one round fail.
#[derive(Clone, Debug, Default)]
pub struct Trouble {
    pub home: FaultPlan,
    pub flash: FaultPlan,
    pub log: FaultPlan,
    /// Whether the engine may have to stop (I3).
    pub may_stop: bool,
}

impl Trouble {
    /// The trouble of a round, whose flash is needed or is not.
    pub fn draw(mishaps: &Mishaps, is_flash_needed: bool, prng: &mut Prng) -> Trouble {
        let calm = Trouble::default();
        if mishaps.trouble_one_in == 0 || !prng.chance(mishaps.trouble_one_in) {
            return calm;
        }
        match prng.below(8) {
            0 => Trouble {
                home: passing(prng),
                flash: passing(prng),
                log: passing(prng),
                may_stop: false,
            },
            1 => Trouble { home: failing(prng), may_stop: true, ..calm },
            2 => Trouble { log: failing(prng), may_stop: true, ..calm },
            _ => Trouble { flash: failing(prng), may_stop: is_flash_needed, ..calm },
        }
    }
}

/// Errors that would not come back, were the request tried again.
fn passing(prng: &mut Prng) -> FaultPlan {
    FaultPlan { seed: prng.next_u64(), passing_error_one_in: 30, ..FaultPlan::default() }
}

fn failing(prng: &mut Prng) -> FaultPlan {
    let well = FaultPlan { seed: prng.next_u64(), ..FaultPlan::default() };
    let one_in = 1 << (3 + prng.below(7));
    let after = Some(prng.below(REQUESTS_MAX));
    match prng.below(6) {
        0 => FaultPlan { dies_after: after, ..well },
        1 => FaultPlan { silent_after: after, ..well },
        2 => FaultPlan { read_error_one_in: one_in, ..well },
        3 => FaultPlan { write_error_one_in: one_in, ..well },
        4 => FaultPlan { sync_error_one_in: one_in, ..well },
        _ => FaultPlan { partial_error_one_in: one_in, passing_error_one_in: 30, ..well },
    }
}

/// Whether `error` has a device as its first cause.
pub fn is_of_device(error: &Error) -> bool {
    match error {
        Error::Device { .. } => true,
        Error::Failed { cause: Some(cause) } | Error::Doomed { cause: Some(cause) } => {
            is_of_device(cause)
        }
        _ => false,
    }
}

/// Whether `error` says that a wait reached its time limit. Clients hold nothing for long: they
/// waited for each other, or for something that no client held.
pub fn is_stuck(error: &Error) -> bool {
    match error {
        Error::LockTimeout(_) | Error::LogHeld { .. } => true,
        Error::Doomed { cause: Some(cause) } => is_stuck(cause),
        _ => false,
    }
}

/// Whether `error` says that the log has no room for a transaction, and its figures are those of
/// one that is large.
pub fn is_too_large(error: &Error) -> bool {
    match error {
        Error::LogFull { own_bytes, rollback_bytes, wanted_bytes, capacity, .. } => {
            own_bytes + rollback_bytes + wanted_bytes > capacity / 4
        }
        Error::Doomed { cause: Some(cause) } => is_too_large(cause),
        _ => false,
    }
}

/// What befell the clients and the devices, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MishapCounts {
    /// Transactions that panicked.
    pub panics: u64,
    /// Those that went back to a savepoint.
    pub savepoints: u64,
    /// Tables that were deleted and made again in one transaction.
    pub remade: u64,
    /// Transactions that the log had no room for.
    pub too_large: u64,
    /// Rounds that a failed device ended.
    pub stopped: u64,
    /// Requests of devices that failed, were not answered, or would have succeeded if repeated.
    pub device_faults: u64,
}

impl MishapCounts {
    /// Adds what happened to another torture.
    pub fn add(&mut self, other: MishapCounts) {
        self.panics += other.panics;
        self.savepoints += other.savepoints;
        self.remade += other.remade;
        self.too_large += other.too_large;
        self.stopped += other.stopped;
        self.device_faults += other.device_faults;
    }
}
