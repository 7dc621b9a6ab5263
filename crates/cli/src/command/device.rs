//! A device as the command line names it: a preset, or figures.
//!
//! ```text
//! gp3
//! iops=3000,latency=1ms,bandwidth=125MiB
//! iops=98000,latency=100us,bandwidth=550MiB,write-iops=30000,write-bandwidth=520MiB
//! ```
//!
//! Figures are those of a volume with a latency and limits on rates, as providers state them:
//! requests a second, the time of a single one, bytes a second. Writes share the limits of reads
//! unless they have their own.

use super::names::named;
use crate::quantity::{Span, bytes};
use std::str::FromStr;
use terrace_device::model::{Limits, MemberSpec, Preset, Spec, VolumeSpec};
use terrace_rt::Nanos;

/// Bytes that count as one request of a volume in figures: with those of its pages it is one.
const REQUEST_BYTES: u64 = 256 << 10;
/// What the figures are called.
const NAMES: [&str; 6] =
    ["iops", "latency", "bandwidth", "write-iops", "write-latency", "write-bandwidth"];

/// A device.
#[derive(Clone, Debug)]
pub struct DeviceChoice {
    /// As it was asked for.
    pub name: String,
    /// In figures.
    pub spec: Spec,
    /// The preset, if it is one.
    pub preset: Option<Preset>,
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceChoice, String> {
        if text.contains('=') {
            let spec = Spec::single(MemberSpec::Volume(volume(text)?));
            return Ok(DeviceChoice { name: text.into(), spec, preset: None });
        }
        let preset = named(text, str::parse::<Preset>).map_err(|unknown| {
            format!("{unknown}; or give figures, like iops=3000,latency=1ms,bandwidth=125MiB")
        })?;
        Ok(DeviceChoice { name: preset.name().into(), spec: preset.spec(), preset: Some(preset) })
    }
}

/// A volume in figures.
fn volume(text: &str) -> Result<VolumeSpec, String> {
    let mut figures: [Option<f64>; NAMES.len()] = [None; NAMES.len()];
    for part in text.split(',') {
        let (name, value) = part
            .split_once('=')
            .ok_or_else(|| format!("`{part}` is no figure; write iops=3000"))?;
        let at = NAMES.iter().position(|known| *known == name.trim());
        let at = at.ok_or_else(|| {
            format!("no figure `{name}` of a device; known are {}", NAMES.join(", "))
        })?;
        let value = figure(name.trim(), value.trim())?;
        if figures[at].replace(value).is_some() {
            return Err(format!("{name} is given twice"));
        }
    }
    let [iops, latency, bandwidth, write_iops, write_latency, write_bandwidth] = figures;
    let (Some(iops), Some(latency_s), Some(bytes_per_s)) = (iops, latency, bandwidth) else {
        return Err("a device in figures has iops, latency and bandwidth".into());
    };
    let limits = |iops, latency_s: f64, bytes_per_s| Limits {
        latency: Nanos((latency_s * 1e9).round() as u64),
        iops,
        bytes_per_s,
    };
    let has_own = write_iops.or(write_latency).or(write_bandwidth).is_some();
    let write = limits(
        write_iops.unwrap_or(iops),
        write_latency.unwrap_or(latency_s),
        write_bandwidth.unwrap_or(bytes_per_s),
    );
    Ok(VolumeSpec {
        read: limits(iops, latency_s, bytes_per_s),
        write: has_own.then_some(write),
        request_bytes_max: REQUEST_BYTES,
    })
}

/// A figure, which is never zero: such a device would serve nothing.
fn figure(name: &str, value: &str) -> Result<f64, String> {
    let number = match name.rsplit('-').next() {
        Some("latency") => value.parse::<Span>().map(|span| span.0)?,
        Some("bandwidth") => bytes(value).map(|bytes| bytes as f64).ok_or_else(|| {
            format!("{name}: `{value}` is no size a second; write bandwidth=125MiB")
        })?,
        _ => value.parse().map_err(|_| format!("{name}: `{value}` is no number"))?,
    };
    if number > 0.0 && number < 1e15 {
        Ok(number)
    } else {
        Err(format!("{name} has to be above zero"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_make_a_volume() {
        let device: DeviceChoice =
            "iops=3000,latency=1ms,bandwidth=125MiB".parse().expect("a device");
        let MemberSpec::Volume(volume) = device.spec.member else { panic!("a volume") };
        assert_eq!((volume.read.iops, volume.read.latency), (3_000.0, Nanos::from_micros(1_000)));
        assert_eq!(volume.read.bytes_per_s, f64::from(125 << 20));
        assert!(volume.write.is_none() && device.preset.is_none());
        let device: DeviceChoice =
            "iops=9000,latency=80us,bandwidth=1GiB,write-iops=400".parse().expect("a device");
        let MemberSpec::Volume(volume) = device.spec.member else { panic!("a volume") };
        let write = volume.write.expect("limits of its own");
        assert_eq!((write.iops, write.latency), (400.0, Nanos::from_micros(80)));
    }

    #[test]
    fn presets_are_found_in_any_case() {
        let device: DeviceChoice = "GP3".parse().expect("a preset");
        assert_eq!((device.name.as_str(), device.preset), ("gp3", Some(Preset::Gp3)));
        let device: DeviceChoice = "PD_SSD".parse().expect("a preset");
        assert_eq!(device.name, "pd-ssd");
    }

    #[test]
    fn a_device_that_serves_nothing_is_refused() {
        for (text, said) in [
            ("iops=0,latency=1ms,bandwidth=1MiB", "iops has to be above zero"),
            ("iops=10,latency=0ms,bandwidth=1MiB", "latency has to be above zero"),
            ("iops=10,latency=1ms,bandwidth=0MiB", "bandwidth has to be above zero"),
            ("iops=-3,latency=1ms,bandwidth=1MiB", "iops has to be above zero"),
            ("iops=nan,latency=1ms,bandwidth=1MiB", "iops has to be above zero"),
            ("iops=10,latency=1ms", "has iops, latency and bandwidth"),
            ("iops=10,iops=11,latency=1ms,bandwidth=1MiB", "twice"),
            ("iops=10,speed=4", "no figure `speed`"),
            ("iops=10,latency", "no figure"),
            ("floppy", "floppy"),
            ("gp33", "did you mean `gp3`?"),
        ] {
            let error = text.parse::<DeviceChoice>().expect_err(text);
            assert!(error.contains(said) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
