//! The drives that the trials run on, by name: the presets, and the P300 as its data sheet has it.

use std::str::FromStr;

use terrace_device::model::{Limits, MemberSpec, Preset, Spec, UnknownPreset, VolumeSpec};
use terrace_rt::Nanos;

/// A drive to measure on.
#[derive(Clone, Debug)]
pub struct Drive {
    /// Its name.
    pub name: String,
    /// Its model.
    pub spec: Spec,
}

/// The name of the P300 as a drive of rates, without an inside.
const P300_RATES: &str = "p300-rates";

impl Drive {
    /// All names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Preset::NAMES.iter().copied().chain([P300_RATES])
    }
}

impl FromStr for Drive {
    type Err = UnknownPreset;

    fn from_str(name: &str) -> Result<Drive, UnknownPreset> {
        let spec = match name {
            P300_RATES => p300_rates(),
            name => name.parse::<Preset>()?.spec(),
        };
        Ok(Drive { name: name.to_string(), spec })
    }
}

/// The Micron RealSSD P300 in its steady state, by its data sheet: a read of 4 KiB takes .154 ms and
/// 44,000 a second are served, a write .424 ms and 16,000; 360 and 255 MB/s. A larger request counts
/// once for each 16 KiB, so that the rates of bytes bind it.
fn p300_rates() -> Spec {
    let limits = |latency_us: u64, iops: f64, bytes_per_s: f64| Limits {
        latency: Nanos::from_micros(latency_us),
        iops,
        bytes_per_s,
    };
    Spec::single(MemberSpec::Volume(VolumeSpec {
        read: limits(154, 44e3, 360e6),
        write: Some(limits(424, 16e3, 255e6)),
        request_bytes_max: 16 << 10,
    }))
}
