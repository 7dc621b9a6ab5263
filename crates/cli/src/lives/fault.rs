//! Faults of the devices of one life: home, flash or log fails, stalls or falls silent by a plan.
//!
//! ```text
//! kind       the device                                      the database
//! reads      fails one in a number of reads                  flash as a cache: goes on, always
//! writes     fails one in a number of writes                 home, log, flash as a part of the
//! syncs      fails one in a number of syncs                  database: goes on, or tells an error
//! parts      fails one in a number, after a part was done    of that device
//! dead       fails everything from some request on
//! silent     answers nothing from some request on
//! passing    fails with EINTR or EAGAIN                      goes on, always
//! slow       takes longer                                    goes on, always
//! ```

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use terrace::{Builder, Devices, Error, FlashRole, Nanos};
use terrace_device::{Device, FaultPlan, FaultyDevice};
use terrace_rt::Prng;

/// A silent device is waited for no longer than this; the others as long as they may take.
const TIME_LIMIT: Nanos = Nanos::from_millis(150);
const SLOW: Nanos = Nanos::from_millis(3);
const PARTS: [&str; 3] = ["home", "flash", "log"];
const KINDS: [&str; 8] = ["reads", "writes", "syncs", "parts", "dead", "silent", "passing", "slow"];

/// Which device fails, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    part: &'static str,
    kind: &'static str,
    seed: u64,
}

impl Fault {
    /// Draws one; of the flash only if there `is_flash`.
    pub fn draw(is_flash: bool, prng: &mut Prng) -> Fault {
        let part = PARTS[prng.below(3) as usize];
        let part = if part == "flash" && !is_flash { "log" } else { part };
        let kind = KINDS[prng.below(KINDS.len() as u64) as usize];
        Fault { part, kind, seed: prng.next_u64() }
    }

    /// What it is in reports.
    pub fn name(self) -> String {
        format!("device: {} {}", self.part, self.kind)
    }

    /// Whether the database may tell an error of the device, or else must go on.
    pub fn may_be_told(self, role: FlashRole) -> bool {
        let passes = matches!(self.kind, "passing" | "slow");
        let is_cache = self.part == "flash" && role == FlashRole::Cache;
        !passes && !is_cache
    }

    fn plan(self) -> FaultPlan {
        let mut prng = Prng::from_seed(self.seed);
        let one_in = [3, 20, 150][prng.below(3) as usize];
        let most = [20, 200, 2_000][prng.below(3) as usize];
        let after = prng.below(most);
        let mut plan = FaultPlan { seed: prng.next_u64(), ..FaultPlan::default() };
        match self.kind {
            "reads" => plan.read_error_one_in = one_in,
            "writes" => plan.write_error_one_in = one_in,
            "syncs" => plan.sync_error_one_in = one_in,
            "parts" => plan.partial_error_one_in = one_in,
            "dead" => plan.dies_after = Some(after),
            "silent" => plan.silent_after = Some(after),
            // Seldom enough that it never comes in every trial of a request.
            "passing" => plan.passing_error_one_in = 50 + one_in,
            _ => (plan.slow_one_in, plan.slow) = (10 * one_in, SLOW),
        }
        plan
    }

    /// Has the devices of `builder` fail so; they are found in `faulty` once they are open.
    pub fn put(self, builder: Builder, faulty: &Arc<OnceLock<Arc<FaultyDevice>>>) -> Builder {
        let builder = match self.part {
            _ if self.kind != "silent" => builder,
            "home" => builder.io_timeout_home(TIME_LIMIT),
            "flash" => builder.io_timeout_flash(TIME_LIMIT),
            _ => builder.io_timeout_log(TIME_LIMIT),
        };
        let faulty = Arc::clone(faulty);
        builder.wrap_devices(move |devices| {
            let over = |device| -> Arc<dyn Device> {
                let device = FaultyDevice::new(device, self.plan());
                Arc::clone(faulty.get_or_init(|| device)) as _
            };
            let Devices { home, flash, log } = devices;
            match self.part {
                "home" => Devices { home: over(home), flash, log },
                "flash" => Devices { home, flash: flash.map(over), log },
                _ => Devices { home, flash, log: over(log) },
            }
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.part, self.kind, self.seed)
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Fault, String> {
        let known = |all: &[&'static str], name| all.iter().find(|&&one| one == name).copied();
        let parts: Vec<&str> = text.split(':').collect();
        let parsed = match parts[..] {
            [part, kind, seed] => (known(&PARTS, part), known(&KINDS, kind), seed.parse().ok()),
            _ => (None, None, None),
        };
        match parsed {
            (Some(part), Some(kind), Some(seed)) => Ok(Fault { part, kind, seed }),
            _ => Err(format!("`{text}` is no fault: write PART:KIND:SEED")),
        }
    }
}

/// Whether `error` tells what a device did.
pub fn is_of_a_device(error: &Error) -> bool {
    match error {
        Error::Device { .. } | Error::Failed { cause: None } | Error::FlashNeeded { .. } => true,
        Error::Failed { cause: Some(cause) } | Error::Doomed { cause: Some(cause) } => {
            is_of_a_device(cause)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_read_as_it_is_written() {
        let mut prng = Prng::from_seed(1);
        for _ in 0..100 {
            let fault = Fault::draw(true, &mut prng);
            assert_eq!(fault.to_string().parse(), Ok(fault));
        }
        assert!("home:reads".parse::<Fault>().is_err());
        assert!("house:reads:1".parse::<Fault>().is_err());
    }
}
