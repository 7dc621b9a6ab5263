//! `terrace replay --flash`: memory over a flash tier over home.
//!
//! Device time is the sum of what the devices take for each request alone, from presets measured
//! once; nothing queues, so that it is an upper bound.

use super::object::object;
use super::sizes::{policies, sizes};
use super::source::{Scope, Source};
use super::timed;
use crate::command::{BandOrderName, NearName, Replay, TacRuleName, TacWriteName, WriteName};
use crate::failure::Failure;
use crate::interrupt::{self, Interrupt};
use crate::interval::rounded;
use crate::output::{Sinks, Stopwatch};
use crate::progress::Bars;
use crate::table::{Table, percent, thousands};
use serde_json::{Value, json};
use std::time::Instant;
use terrace_device::model::Preset;
use terrace_policy::{BandOrder, DESIGNS, Design, HomeDevice, SavedCosts, TacRule};
use terrace_replay::tiers::{
    Bands, Cleaning, Flash, FlashSetup, FollowingTiers, Memory, MemoryRule, TacWrite, TierCounts,
    WriteMode, ceiling, replay, replay_kept,
};
use terrace_replay::{BANDS, BusyCosts, Bypass, Places, Policy, Seconds, ServiceTimes};
use terrace_trace::{PageBytes, Paging};

const DAY_S: f64 = 86_400.0;
/// Requests that a loaded device has at a time, for the design that picks itself.
const LOADED: u32 = 32;

/// What one flash tier did.
pub(super) struct TierOutcome {
    pub name: String,
    kind: &'static str,
    memory_policy: Option<&'static str>,
    pub slots: u32,
    pub counts: TierCounts,
    /// On devices that know where requests go, if that was asked for.
    pub seconds: Option<Seconds>,
    wall_s: f64,
    /// Bytes allocated for each page of the trace, if references are not kept.
    bytes_per_page: Option<f64>,
}

/// What all have in common.
pub(super) struct TierSetting {
    pub memory: Memory,
    asked: Option<MemoryRule>,
    frames: u32,
    page_bytes: u64,
    home: ServiceTimes,
    flash: ServiceTimes,
    busy: BusyCosts,
    span_s: Option<f64>,
}

/// A flash tier, with TAC's bands if it has any.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Tried {
    pub flash: Flash,
    bands: Option<Bands>,
}

impl Tried {
    fn title(&self) -> String {
        match self.bands {
            None => self.flash.name().into(),
            Some(Bands { count, order: BandOrder::Lru }) => format!("tac-bands {count}"),
            Some(Bands { count, order: BandOrder::Mru }) => format!("tac-bands {count} mru"),
        }
    }
}

/// Runs it.
///
/// # Errors
///
/// Sizes that make no sense; a file that cannot be written.
pub fn tiers(
    options: &Replay,
    source: &Source,
    sinks: &Sinks,
    watch: &Stopwatch,
) -> Result<(), Failure> {
    let tiers = &options.tiers;
    let slots = sizes("--flash", &tiers.flash, &source.scope())?;
    let setting = setting(options, &source.scope())?;
    let flashes = flashes(options)?;
    let with_ceiling = policies_asked(options).contains(&Policy::Opt(Bypass::Allowed));
    let places = Places::new(&source.references);
    let _watched = Interrupt::watch()?;
    let bars = Bars::new();
    let bar = bars.add("replay".into(), (slots.len() * flashes.len()) as u64);
    let mut outcomes = Vec::new();
    let mut ceilings = Vec::new();
    for &slots in &slots {
        for &tried in &flashes {
            if !outcomes.is_empty() && interrupt::is_asked() {
                break;
            }
            let setup = setup(options, &setting, tried, slots);
            outcomes.push(outcome(options, source, &places, &setting, tried, &setup));
            bar.inc(1);
        }
        if with_ceiling && !interrupt::is_asked() {
            let memory = setting.memory;
            let best = ceiling(&source.references, memory, slots, options.seed);
            ceilings.push((slots, best));
        }
    }
    bars.clear();
    sinks.show(&match tiers.timed {
        true => timed::text(options, source, &outcomes),
        false => text(options, &source.about, &setting, &outcomes, &ceilings),
    });
    let results = outcomes.iter().map(|outcome| outcome.json(&setting));
    let best = ceilings.iter().map(|&(slots, (missed, hits))| {
        json!({
            "policy": "opt-bypass",
            "capacity_pages": slots,
            "memory_pages": setting.frames,
            "requests": source.references.pages().len(),
            "misses": missed - hits,
            "miss_ratio": rounded((missed - hits) as f64 / source.references.pages().len() as f64),
            "flash_hit_ratio": rounded(hits as f64 / missed.max(1) as f64),
        })
    });
    let results = results.chain(best).collect::<Vec<_>>();
    let mut object = object(options, source, watch, json!({ "results": results }));
    object["parameters"]["tiers"] = parameters(options, &setting);
    sinks.write(&object)?;
    interrupt::whole()
}

fn outcome(
    options: &Replay,
    source: &Source,
    places: &Places,
    setting: &TierSetting,
    tried: Tried,
    setup: &FlashSetup,
) -> TierOutcome {
    let (references, memory) = (&source.references, setting.memory_of(&tried.flash));
    let began = Instant::now();
    let (counts, seconds) = if options.tiers.timed {
        let (counts, asked) = replay_kept(references, places, memory, setup);
        let devices = timed::devices(options, setting.page_bytes, setup.slots);
        let seconds = match tried.flash {
            Flash::Design(design) if design.home == HomeDevice::Flash => {
                devices.with_home_on_flash().seconds(&asked, places).at_home_on_flash()
            }
            _ => devices.seconds(&asked, places),
        };
        (counts, Some(seconds))
    } else {
        (replay(references, places, memory, setup), None)
    };
    let wall_s = began.elapsed().as_secs_f64();
    TierOutcome { seconds, wall_s, ..TierOutcome::new(tried, memory, setup.slots, counts) }
}

fn policies_asked(options: &Replay) -> Vec<Policy> {
    options.policy.as_ref().map_or_else(Vec::new, |_| policies(options))
}

pub(super) fn setting(options: &Replay, scope: &Scope) -> Result<TierSetting, Failure> {
    let tiers = &options.tiers;
    let frames = match tiers.no_memory {
        true => 0,
        false => sizes("--memory", &[tiers.memory], scope)?[0],
    };
    let page_bytes = page_bytes(scope.paging)?;
    let near_is_sequential = tiers.near == NearName::Sequential;
    let rule = tiers.memory_policy.unwrap_or_else(MemoryRule::lru);
    let policy = (frames > 0).then_some((rule, frames));
    Ok(TierSetting {
        memory: Memory { policy, near_is_sequential, outstanding: 0, counted_from: 0 },
        asked: tiers.memory_policy,
        frames,
        page_bytes,
        home: ServiceTimes::of_spec(&timed::home(options), page_bytes),
        flash: ServiceTimes::of(tiers.flash_device, page_bytes),
        busy: busy(tiers.home, tiers.flash_device, page_bytes),
        span_s: tiers.covers.map(|span| span.0).or(scope.span_s),
    })
}

impl TierSetting {
    /// Memory above `flash`: as asked for, or with the policy that goes with the design.
    pub fn memory_of(&self, flash: &Flash) -> Memory {
        let rule = self.asked.unwrap_or_else(|| flash.memory_rule());
        let policy = self.memory.policy.map(|(_, frames)| (rule, frames));
        Memory { policy, ..self.memory }
    }
}

/// What a request keeps these devices busy when they are loaded.
fn busy(home: Preset, flash: Preset, page_bytes: u64) -> BusyCosts {
    let [home, flash] =
        [home, flash].map(|preset| ServiceTimes::with_queue(preset, page_bytes, LOADED));
    home.busy_beside(&flash)
}

/// Bytes of a page that devices are timed with.
pub(super) fn page_bytes(paging: Paging) -> Result<u64, Failure> {
    // Objects have no size: they are taken for pages of Terrace.
    let page_bytes = match paging {
        Paging::Split(bytes) => bytes.get(),
        Paging::Whole => PageBytes::DEFAULT.get(),
    };
    if !(512..=64 << 10).contains(&page_bytes) {
        return Err(Failure::usage("--page: devices are timed with pages of 512 bytes to 64KiB"));
    }
    Ok(page_bytes)
}

/// What is to be tried: designs, and policies; those that know the future if nothing is above.
pub(super) fn flashes(options: &Replay) -> Result<Vec<Tried>, Failure> {
    let mode = match options.tiers.write {
        WriteName::Back => WriteMode::Back,
        WriteName::Through => WriteMode::Through,
        WriteName::Around => WriteMode::Around,
        WriteName::Update => WriteMode::Update,
    };
    let alone = |flash| Tried { flash, bands: None };
    let designs = |designs: &[Design]| -> Vec<Tried> {
        designs.iter().map(|&design| alone(Flash::Design(design))).collect()
    };
    let mut flashes = match (&options.tiers.design, &options.policy) {
        (Some(list), _) => designs(&list.0),
        (None, None) => designs(&DESIGNS),
        (None, Some(_)) => Vec::new(),
    };
    let tac = DESIGNS.into_iter().find(|design| design.name == Policy::Temperature.name());
    let tac = Flash::Design(tac.expect("a row of the table"));
    for policy in policies_asked(options) {
        match policy {
            Policy::Online(row) => flashes.push(alone(Flash::Policy(row, mode))),
            Policy::Temperature if flashes.contains(&alone(tac)) => {}
            Policy::Temperature => flashes.push(alone(tac)),
            Policy::TemperatureBands => {
                flashes
                    .extend(bands(options).map(|bands| Tried { flash: tac, bands: Some(bands) }));
            }
            Policy::Opt(bypass) if options.tiers.no_memory => {
                flashes.push(alone(Flash::Opt(bypass)));
            }
            Policy::Opt(_) => {}
        }
    }
    Ok(flashes)
}

/// The numbers of bands that are asked for.
fn bands(options: &Replay) -> impl Iterator<Item = Bands> {
    let counts = match &options.tiers.bands[..] {
        [] => vec![BANDS.count],
        asked => asked.to_vec(),
    };
    let order = match options.tiers.band_order {
        BandOrderName::Lru => BandOrder::Lru,
        BandOrderName::Mru => BandOrder::Mru,
    };
    counts.into_iter().map(move |count| Bands { count, order })
}

pub(super) fn setup(
    options: &Replay,
    setting: &TierSetting,
    tried: Tried,
    slots: u32,
) -> FlashSetup {
    let setup = FlashSetup::new(tried.flash, slots, options.seed);
    let (home, flash) = (&setting.home, &setting.flash);
    let saved_ms = |home_s: f64| (1e3 * (home_s - flash.random_read_s)) as f32;
    let saved = SavedCosts {
        random_ms: saved_ms(home.random_read_s),
        sequential_ms: saved_ms(home.sequential_read_s),
    };
    FlashSetup {
        cleaning: Cleaning { lambda: options.tiers.lambda.0, ..setup.cleaning },
        tac_rule: match options.tiers.tac_rule {
            TacRuleName::Hotter => TacRule::HotterThanColdest,
            TacRuleName::OnePercent => TacRule::OnePercent,
        },
        tac_aging: options.tiers.tac_aging,
        saved: if options.tiers.timed { saved } else { setup.saved },
        bands: tried.bands,
        tac_write: match options.tiers.tac_write {
            TacWriteName::Async => TacWrite::Behind,
            TacWriteName::Sync => TacWrite::AtOnce,
        },
        costs: setting.home.costs_beside(&setting.flash),
        busy: setting.busy,
        ..setup
    }
}

impl TierOutcome {
    fn new(tried: Tried, memory: Memory, slots: u32, counts: TierCounts) -> TierOutcome {
        let is_design = matches!(tried.flash, Flash::Design(_)) && tried.bands.is_none();
        TierOutcome {
            name: tried.title(),
            kind: if is_design { "design" } else { "policy" },
            memory_policy: memory.policy.map(|(rule, _)| rule.name()),
            slots,
            counts,
            seconds: None,
            wall_s: 0.0,
            bytes_per_page: None,
        }
    }

    /// Of tiers that were told of a trace, with its number of pages, beside others, with the
    /// seconds that it took.
    pub fn of_stream(
        (tried, memory, slots): (Tried, Memory, u32),
        tiers: &FollowingTiers<'_>,
        pages: u32,
        wall_s: f64,
    ) -> TierOutcome {
        let bytes_per_page = Some(tiers.bytes() as f64 / f64::from(pages));
        TierOutcome {
            wall_s,
            bytes_per_page,
            ..TierOutcome::new(tried, memory, slots, tiers.counts())
        }
    }

    fn memory_misses(&self) -> u64 {
        self.counts.requests - self.counts.memory_hits
    }

    fn flash_hit_ratio(&self) -> f64 {
        self.counts.flash_hits as f64 / self.memory_misses().max(1) as f64
    }

    fn flash_writes_per_1000(&self) -> f64 {
        1e3 * self.counts.flash.writes as f64 / self.counts.requests as f64
    }

    /// How often a day the flash writes as much as it holds, write amplification included.
    fn drive_writes_per_day(&self, setting: &TierSetting) -> Option<f64> {
        let written = self.counts.flash.writes as f64 * setting.flash.write_amplification;
        let drives = written / f64::from(self.slots);
        setting.span_s.map(|span_s| drives * DAY_S / span_s)
    }

    pub fn json(&self, setting: &TierSetting) -> Value {
        let counts = &self.counts;
        let times = match self.seconds {
            Some(seconds) => [seconds.home(), seconds.flash()],
            None => [counts.home.time_s(&setting.home), counts.flash.time_s(&setting.flash)],
        };
        let share = |time: f64| setting.span_s.map(|span_s| rounded(time / span_s));
        let mut json = json!({
            self.kind: self.name,
            "capacity_pages": self.slots,
            "memory_pages": setting.frames,
            "memory_policy": self.memory_policy,
            "requests": counts.requests,
            "misses": counts.misses(),
            "miss_ratio": rounded(counts.misses() as f64 / counts.requests as f64),
            "memory_hit_ratio": rounded(counts.memory_hits as f64 / counts.requests as f64),
            "flash_hit_ratio": rounded(self.flash_hit_ratio()),
            "flash_reads": counts.flash.reads,
            "flash_writes": counts.flash.writes,
            "flash_writes_per_1000": rounded(self.flash_writes_per_1000()),
            "home_reads": counts.home.reads,
            "home_sequential_reads": counts.home.sequential_reads,
            "home_writes": counts.home.writes,
            "home_sequential_writes": counts.home.sequential_writes,
            "home_time_s": rounded(times[0]),
            "flash_time_s": rounded(times[1]),
            "home_utilisation": share(times[0]),
            "flash_utilisation": share(times[1]),
            "drive_writes_per_day": self.drive_writes_per_day(setting).map(rounded),
            "host": {
                "wall_s": rounded(self.wall_s),
                "requests_per_s": (counts.requests as f64 / self.wall_s.max(1e-9)).round(),
            },
        });
        if let Some(each) = self.bytes_per_page {
            json["host"] = json!({ "bytes_per_page": rounded(each) });
        }
        json
    }
}

pub(super) fn text(
    options: &Replay,
    about: &str,
    setting: &TierSetting,
    outcomes: &[TierOutcome],
    ceilings: &[(u32, (u64, u64))],
) -> String {
    let mut table = Table::new([
        "flash",
        "slots",
        "memory",
        "memory hits",
        "flash hits",
        "misses",
        "writes/1000",
        "home r+w",
        "home time",
        "flash time",
        "drive writes/day",
        "requests/s",
    ]);
    for outcome in outcomes {
        let counts = &outcome.counts;
        let per_day = outcome.drive_writes_per_day(setting);
        table.row([
            outcome.name.clone(),
            thousands(f64::from(outcome.slots)),
            outcome.memory_policy.unwrap_or("-").into(),
            percent(counts.memory_hits as f64 / counts.requests as f64),
            percent(outcome.flash_hit_ratio()),
            percent(counts.misses() as f64 / counts.requests as f64),
            format!("{:.0}", outcome.flash_writes_per_1000()),
            thousands((counts.home.reads + counts.home.writes) as f64),
            format!("{:.1} s", counts.home.time_s(&setting.home)),
            format!("{:.1} s", counts.flash.time_s(&setting.flash)),
            per_day.map_or("-".into(), |drives| format!("{drives:.1}")),
            format!("{:.1}M", counts.requests as f64 / outcome.wall_s.max(1e-9) / 1e6),
        ]);
    }
    let each: Option<Vec<f64>> = outcomes.iter().map(|outcome| outcome.bytes_per_page).collect();
    if let Some(each) = each {
        table.column("bytes/page", each.iter().map(|each| format!("{each:.1}")).collect());
    }
    let memory = match setting.memory.policy {
        Some((_, frames)) => format!("{} pages", thousands(f64::from(frames))),
        None => "none".into(),
    };
    let mut text = format!(
        "{}\nmemory: {memory}; home: {}; flash: {}, one request at a time; pages dirty at the end \
         stay so\n\n{}",
        about,
        options.tiers.home.name(),
        options.tiers.flash_device.name(),
        table.text(),
    );
    for &(slots, (missed, hits)) in ceilings {
        let slots = thousands(f64::from(slots));
        let best = percent(hits as f64 / missed.max(1) as f64);
        text += &format!("opt-bypass, {slots} slots: {best} of memory's misses\n");
    }
    text
}

pub(super) fn parameters(options: &Replay, setting: &TierSetting) -> Value {
    let tiers = &options.tiers;
    let times = |times: &ServiceTimes| {
        json!({
            "random_read_s": times.random_read_s,
            "sequential_read_s": times.sequential_read_s,
            "random_write_s": times.random_write_s,
            "sequential_write_s": times.sequential_write_s,
            "write_amplification": times.write_amplification,
        })
    };
    json!({
        "memory_pages": setting.frames,
        "memory_policy": setting.asked.map_or("by design", MemoryRule::name),
        "write": crate::bench::word(tiers.write),
        "near": crate::bench::word(tiers.near),
        "lambda": tiers.lambda.0,
        "tac_rule": crate::bench::word(tiers.tac_rule),
        "tac_aging": tiers.tac_aging,
        "timed": tiers.timed,
        "span": tiers.span.map(|span| span.0),
        "no_read_ahead": tiers.no_read_ahead,
        "tac_write": crate::bench::word(tiers.tac_write),
        "home": tiers.home.name(),
        "flash_device": tiers.flash_device.name(),
        "home_times": times(&setting.home),
        "flash_times": times(&setting.flash),
        "covers_s": setting.span_s,
    })
}
