//! What all estimates have in common, from the options and the trace.

use super::SAMPLES;
use super::time::Cuts;
use crate::command::{Advise, CacheSize, DeviceChoice, Prices};
use crate::failure::Failure;
use crate::replay::{Source, sizes};
use terrace::Misses;
use terrace_device::model::{Preset, Spec};
use terrace_policy::{Costs, DESIGNS, Design, HomeDevice, MemoryPolicy};
use terrace_replay::tiers::HomeArray;
use terrace_replay::{ServiceTimes, TierRates, throughput};
use terrace_trace::{PageBytes, Paging};

/// Sizes of the flash unless others are asked for, as shares of the pages.
const SHARES: [f64; 12] = [0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0];
/// Pages of which 1% is a page.
const SHARED_MIN: u32 = 100;
/// The largest share of the extents that each sample may be.
const RATE_MAX: f64 = 1.0 / SAMPLES as f64;
/// A trace of less says nothing of a day: it may lie between two checkpoints, or hold one alone,
/// and nothing of what runs by the hour.
pub const SPAN_MIN_S: f64 = 3_600.0;

/// Nothing takes less time than this for each reference: what memory always serves.
const DEMAND_MIN_S: f64 = 1e-9;

/// How fast requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// References a second.
    Known(f64),
    /// The trace has no clock.
    NoClock,
    /// It has, and covers less than [`SPAN_MIN_S`].
    TooShort,
}

/// What all estimates have in common.
pub struct Setting {
    /// What is above: none for a trace of misses, or for what a database counted.
    pub has_memory: bool,
    /// How it chooses; none for what goes with each design.
    pub memory_policy: Option<MemoryPolicy>,
    pub frames: u32,
    /// Distinct pages of the trace.
    pub pages: u32,
    pub page_bytes: u64,
    pub home_name: String,
    pub flash_name: String,
    pub home: ServiceTimes,
    pub flash: ServiceTimes,
    /// What a request costs at an idle device.
    pub costs: Costs,
    pub home_array: HomeArray,
    pub clients: u32,
    pub lambda: f64,
    pub seed: u64,
    pub warm_up: f64,
    /// References of the trace, or what was counted in their place.
    pub references: f64,
    /// What they cover, if that is known.
    pub span_s: Option<f64>,
    pub references_per_s: Option<f64>,
    pub pace: Pace,
    pub cuts: Cuts,
    pub drive_pages: Option<u32>,
    /// Pages of the smallest drive of the kind, where no size was given.
    pub drive_pages_min: u32,
    pub drive_writes_per_day: Option<f64>,
    pub warranty_years: f64,
    pub lifetime_years: f64,
    pub prices: Prices,
    /// Share of the extents in each sample, if it was asked for; 1 for all of the trace.
    pub asked_rate: Option<f64>,
}

impl Setting {
    /// From the command line.
    ///
    /// # Errors
    ///
    /// Sizes that make no sense.
    pub fn new(options: &Advise, source: &Source) -> Result<Setting, Failure> {
        let (tiers, load) = (&options.tiers, &options.load);
        // Objects have no size: they are taken for pages of Terrace.
        let page_bytes = match source.paging {
            Paging::Split(bytes) => bytes.get(),
            Paging::Whole => PageBytes::DEFAULT.get(),
        };
        if !(512..=64 << 10).contains(&page_bytes) {
            return Err(Failure::usage(
                "--page: devices are timed with pages of 512 bytes to 64KiB",
            ));
        }
        let frames = match tiers.no_memory {
            true => 0,
            false => sizes("--memory", &[tiers.memory], &source.scope())?[0],
        };
        if load.warm_up.0 >= 1.0 {
            return Err(Failure::usage("--warm-up 100% leaves nothing to count"));
        }
        let references = source.references.pages().len();
        let span_s = load.covers.map(|span| span.0).or(source.span_s());
        let pages = source.references.pages_count();
        let all = Setting::common(options, page_bytes, pages, (references as f64, span_s))?;
        Ok(Setting {
            has_memory: frames > 0,
            memory_policy: tiers.memory_policy,
            frames,
            warm_up: load.warm_up.0,
            cuts: Cuts::new(references, load.warm_up.0),
            asked_rate: asked_rate(options)?,
            ..all
        })
    }

    /// For what a database counted.
    ///
    /// # Errors
    ///
    /// As [`Setting::new`].
    pub fn of_misses(options: &Advise, misses: &Misses) -> Result<Setting, Failure> {
        let pages = misses.pages.min(1 << 30) as u32;
        let span_s = Some(options.load.covers.map_or(misses.seconds, |span| span.0));
        let requests = (misses.curve.misses() as f64, span_s);
        let all = Setting::common(options, PageBytes::DEFAULT.get(), pages, requests)?;
        Ok(Setting { frames: misses.frames.min(1 << 30) as u32, ..all })
    }

    fn common(
        options: &Advise,
        page_bytes: u64,
        pages: u32,
        (references, span_s): (f64, Option<f64>),
    ) -> Result<Setting, Failure> {
        let (tiers, load, endurance) = (&options.tiers, &options.load, &options.endurance);
        let paging = Paging::Split(PageBytes::new(page_bytes).expect("a size of pages"));
        let drive = endurance.drive.map(|size| size.pages(paging, pages)).transpose();
        let (home, flash) = (&tiers.home, &tiers.flash_device);
        let rated = rated(flash.preset);
        let times = |device: &DeviceChoice| {
            ServiceTimes::of_spec_with_queue(&device.spec, page_bytes, load.clients)
        };
        let idle = |device: &DeviceChoice| ServiceTimes::of_spec(&device.spec, page_bytes);
        let span_s = span_s.filter(|&span| span > 0.0);
        let references_per_s = span_s.map(|span| references / span);
        Ok(Setting {
            has_memory: false,
            memory_policy: None,
            frames: 0,
            pages,
            page_bytes,
            home_name: home.name.clone(),
            flash_name: flash.name.clone(),
            home: times(home),
            flash: times(flash),
            costs: idle(home).costs_beside(&idle(flash)),
            home_array: home_array(&home.spec, page_bytes),
            clients: load.clients,
            lambda: tiers.lambda.0,
            seed: load.seed,
            warm_up: 0.0,
            references,
            span_s,
            references_per_s,
            pace: match references_per_s {
                Some(pace) if span_s >= Some(SPAN_MIN_S) => Pace::Known(pace),
                Some(_) => Pace::TooShort,
                None => Pace::NoClock,
            },
            cuts: Cuts::new(1, 0.0),
            drive_pages: drive.map_err(|wrong| Failure::usage(format!("--drive {wrong}")))?,
            drive_pages_min: rated
                .as_ref()
                .map_or(0, |rated| (rated.drive_bytes_min / page_bytes) as u32),
            drive_writes_per_day: endurance
                .drive_writes_per_day
                .or(rated.map(|rated| rated.drive_writes_per_day)),
            warranty_years: endurance.warranty,
            lifetime_years: endurance.lifetime,
            prices: options.prices,
            asked_rate: Some(1.0),
        })
    }

    /// References a second, if the trace is long enough to tell of days.
    pub fn pace(&self) -> Option<f64> {
        match self.pace {
            Pace::Known(pace) => Some(pace),
            Pace::NoClock | Pace::TooShort => None,
        }
    }

    /// References a second.
    pub fn throughput(&self, rates: &TierRates) -> f64 {
        let home = rates.home.time_s(&self.home);
        let flash = rates.flash.time_s(&self.flash);
        throughput(&[home.max(DEMAND_MIN_S), flash.max(DEMAND_MIN_S)], self.clients)
    }

    /// How sizes in bytes become pages.
    pub fn paging(&self) -> Paging {
        Paging::Split(PageBytes::new(self.page_bytes).expect("a size of pages"))
    }

    /// The bytes of `pages` pages, for people.
    pub fn size_text(&self, pages: u32) -> String {
        let bytes = f64::from(pages) * self.page_bytes as f64;
        let (unit, name) = match bytes {
            bytes if bytes >= f64::from(1 << 30) => (f64::from(1 << 30), "GiB"),
            bytes if bytes >= f64::from(1 << 20) => (f64::from(1 << 20), "MiB"),
            _ => (1024.0, "KiB"),
        };
        let number = bytes / unit;
        if number < 10.0 { format!("{number:.1} {name}") } else { format!("{number:.0} {name}") }
    }
}

/// The disks of `home`.
fn home_array(spec: &Spec, page_bytes: u64) -> HomeArray {
    let stripe_pages = (spec.stripe / page_bytes).max(1);
    HomeArray { disks: spec.members, stripe_pages, share: 1.0 }
}

/// What a maker says of a kind of drive.
struct Rated {
    /// Times a day that it may be written whole, over the warranty.
    drive_writes_per_day: f64,
    /// Bytes of the smallest that is made.
    drive_bytes_min: u64,
}

/// What the maker says, as far as the preset's source does: the PM9A3 may be written once a day for
/// five years, and holds at least 960 GB.
fn rated(preset: Option<Preset>) -> Option<Rated> {
    let pm9a3 = Rated { drive_writes_per_day: 1.0, drive_bytes_min: 960_000_000_000 };
    matches!(preset, Some(Preset::Nvme | Preset::DcNvme)).then_some(pm9a3)
}

/// The share of the extents in each sample, if one is asked for.
fn asked_rate(options: &Advise) -> Result<Option<f64>, Failure> {
    match options.load.sample {
        Some(share) if share.0 <= 0.0 => Err(Failure::usage("--sample is a share above 0%")),
        Some(share) if share.0 >= 1.0 => Ok(Some(1.0)),
        Some(share) => Ok(Some((share.0 / f64::from(SAMPLES)).min(RATE_MAX))),
        None => Ok(None),
    }
}

/// Sizes of the flash in pages, ascending.
///
/// # Errors
///
/// Sizes that make no sense.
pub fn sizes_of(options: &Advise, paging: Paging, all: u32) -> Result<Vec<u32>, Failure> {
    let shares = SHARES.map(CacheSize::Share);
    let asked = match &options.tiers.flash[..] {
        // A share of a few pages may be none.
        [] if all < SHARED_MIN => return Ok(vec![all]),
        [] => &shares[..],
        asked => asked,
    };
    let slots = asked.iter().map(|size| size.pages(paging, all)).collect::<Result<Vec<u32>, _>>();
    let mut slots = slots.map_err(|wrong| Failure::usage(format!("--flash {wrong}")))?;
    slots.sort_unstable();
    slots.dedup();
    Ok(slots)
}

/// Designs and sizes, by design. A home on flash has one size: all.
///
/// # Errors
///
/// A design without flash; sizes that make no sense.
pub fn pairs(options: &Advise, source: &Source) -> Result<Vec<(Design, u32)>, Failure> {
    let all = source.references.pages_count();
    let slots = sizes_of(options, source.paging, all)?;
    let is_without = |design: &Design| !design.uses_flash() && design.home == HomeDevice::Home;
    let mut designs: Vec<Design> = match &options.tiers.design {
        None => DESIGNS.to_vec(),
        Some(list) => list.0.clone(),
    };
    if designs.len() > 1 {
        // All is compared with it.
        designs.retain(|design| !is_without(design));
    }
    if let Some(design) = designs.iter().find(|design| is_without(design)) {
        let name = design.name;
        return Err(Failure::usage(format!("--design {name}: all designs are compared with it")));
    }
    let with_sizes = |design: Design| {
        let sizes = if design.uses_flash() { slots.clone() } else { vec![all] };
        sizes.into_iter().map(move |slots| (design, slots))
    };
    Ok(designs.into_iter().flat_map(with_sizes).collect())
}
