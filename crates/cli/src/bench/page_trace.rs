//! `terrace bench trace`: a trace's page references through the buffer pool, on real files and in
//! real time: what `advise` predicts, measured.

use super::system::{FRAMES_MIN, fits};
use crate::command::TraceBench;
use crate::failure::Failure;
use crate::interrupt::{self, Interrupt};
use crate::interval::rounded;
use crate::output::{Sinks, Stopwatch};
use crate::progress::Bars;
use crate::replay::{Source, sizes};
use crate::results::Host;
use crate::table::{Table, percent, thousands};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use terrace_device::Counters;
use terrace_policy::{Design, HomeDevice};
use terrace_pool::PoolConfig;
use terrace_trace::{Kind, PageBytes, Paging};
use terrace_workload::page_trace::{Config, HomeLayout, RunResult, run};

const PAGE_BYTES: u64 = 8192;
/// A tier of fewer slots has not one for each of its partitions.
const SLOTS_MIN: u32 = 64;

/// Runs it.
///
/// # Errors
///
/// A trace that cannot be read; options that make no sense; files that are there already; what
/// stops the engine.
pub fn page_trace(options: &TraceBench) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let source = Source::read(&options.trace, &options.source)?;
    let config = config(options, &source)?;
    let _watched = Interrupt::watch()?;
    let bars = Bars::new();
    let mut runs: Vec<(Design, RunResult)> = Vec::new();
    for &design in &options.design.0 {
        if !runs.is_empty() && interrupt::is_asked() {
            break;
        }
        let bar = bars.add(design.name.into(), config.references.len() as u64);
        let result = run(&config, design, &mut |taken| {
            bar.set_position(taken);
            if interrupt::is_asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .map_err(|error| Failure::of(format!("the run of {}", design.name), &error))?;
        bar.finish_and_clear();
        runs.push((design, result));
    }
    bars.clear();
    sinks.show(&shown(options, &source, &config, &runs));
    let base = base(&runs);
    sinks.write(&json!({
        "command": "bench trace",
        "version": env!("CARGO_PKG_VERSION"),
        "parameters": parameters(options, &source, &config),
        "host": Host::of(&watch, source.read_s),
        "runs": runs.iter().map(|run| of_run(run, base)).collect::<Vec<_>>(),
    }))?;
    interrupt::whole()
}

fn config(options: &TraceBench, source: &Source) -> Result<Config, Failure> {
    if source.paging != Paging::Split(PageBytes::DEFAULT) {
        return Err(Failure::usage(
            "bench trace: the engine has pages of 8 KiB, and those of the trace are others: give \
             --page 8KiB",
        ));
    }
    if options.warm_up.0 >= 1.0 {
        return Err(Failure::usage("--warm-up 100% leaves nothing to count"));
    }
    let designs = &options.design.0;
    if let Some(design) = designs.iter().find(|design| design.home == HomeDevice::Flash) {
        return Err(Failure::usage(format!(
            "{}: run no-ssd with --home on the flash device",
            design.name
        )));
    }
    let uses_flash = designs.iter().any(Design::uses_flash);
    let flash = match &options.flash_device {
        Some(path) => path.clone(),
        None if uses_flash => {
            return Err(Failure::usage("--flash-device FILE: where the slots are to lie"));
        }
        None => PathBuf::new(),
    };
    for path in [&options.home, &flash] {
        if path.exists() {
            let path = path.display();
            return Err(Failure::usage(format!("{path} is there already: name a file to be made")));
        }
    }
    let size = |option, size| sizes(option, &[size], &source.scope()).map(|sizes| sizes[0]);
    let frames = size("--memory", options.memory)?;
    let slots = if uses_flash { size("--flash", options.flash)? } else { 0 };
    if u64::from(frames) < FRAMES_MIN {
        return Err(Failure::usage(format!(
            "--memory is {frames} pages: memory needs at least {FRAMES_MIN}"
        )));
    }
    if uses_flash && slots < SLOTS_MIN {
        return Err(Failure::usage(format!(
            "--flash is {slots} pages: a real one has {SLOTS_MIN}"
        )));
    }
    fits("--memory", u64::from(frames) * PAGE_BYTES)?;
    let references = &source.references;
    let names: Vec<_> = (0..references.pages_count()).map(|page| references.name(page)).collect();
    let layout = HomeLayout::new(&names);
    let asked = references.pages().iter().enumerate().map(|(at, &page)| {
        (layout.place(page), if references.is_write(at) { Kind::Write } else { Kind::Read })
    });
    let references: Arc<[_]> = asked.collect();
    Ok(Config {
        counted_from: (references.len() as f64 * options.warm_up.0) as usize,
        references,
        home_pages: layout.pages(),
        home: options.home.clone(),
        flash,
        pool: PoolConfig {
            frames,
            flash_slots: slots,
            memory_policy: options.memory_policy,
            lambda: options.lambda.0,
            ..PoolConfig::default()
        },
        clients: options.clients as usize,
        threads: options.threads as usize,
    })
}

/// What is counted in a second.
fn per_second(result: &RunResult, count: u64) -> f64 {
    count as f64 / result.span.as_secs_f64().max(1e-9)
}

/// References a second without flash, if that was run.
fn base(runs: &[(Design, RunResult)]) -> Option<f64> {
    let without = runs.iter().find(|(design, _)| !design.uses_flash());
    without.map(|(_, result)| per_second(result, result.references))
}

/// Shares that memory, and of the rest flash, served.
fn hits(result: &RunResult) -> [f64; 2] {
    let (before, after) = (&result.before, &result.after);
    let (hits, misses) = (after.hits - before.hits, after.misses - before.misses);
    let flash = after.flash_hits - before.flash_hits;
    [hits as f64 / (hits + misses).max(1) as f64, flash as f64 / misses.max(1) as f64]
}

fn ms(result: &RunResult, quantile: f64) -> f64 {
    result.latency_ns.value_at_quantile(quantile) as f64 / 1e6
}

fn shown(
    options: &TraceBench,
    source: &Source,
    config: &Config,
    runs: &[(Design, RunResult)],
) -> String {
    let mut table = Table::new([
        "design",
        "references/s",
        "speedup",
        "p50 ms",
        "p99 ms",
        "mem hit",
        "flash hit",
        "home reads/s",
        "writes/s",
        "flash reads/s",
        "writes/s",
        "counted s",
    ]);
    let base = base(runs);
    for (design, result) in runs {
        let rate = per_second(result, result.references);
        let [memory, flash] = hits(result);
        let of_flash = |cell: String| if design.uses_flash() { cell } else { "-".to_string() };
        let rate_of = |count| thousands(per_second(result, count));
        table.row([
            design.name.into(),
            thousands(rate),
            base.map_or("-".into(), |base| format!("{:.2}x", rate / base)),
            format!("{:.2}", ms(result, 0.5)),
            format!("{:.2}", ms(result, 0.99)),
            percent(memory),
            of_flash(percent(flash)),
            rate_of(result.home.reads),
            rate_of(result.home.writes),
            of_flash(rate_of(result.flash.reads)),
            of_flash(rate_of(result.flash.writes)),
            format!("{:.1}", result.span.as_secs_f64()),
        ]);
    }
    format!(
        "{}; memory {} pages, flash {} pages; {} clients; the first {} fills the tiers\n\n{}",
        source.about,
        thousands(f64::from(config.pool.frames)),
        thousands(f64::from(config.pool.flash_slots)),
        options.clients,
        options.warm_up,
        table.text(),
    )
}

fn of_run((design, result): &(Design, RunResult), base: Option<f64>) -> Value {
    let rate = per_second(result, result.references);
    let [memory, flash] = hits(result);
    let device = |counters: &Counters| {
        json!({
            "reads": counters.reads,
            "writes": counters.writes,
            "read_bytes": counters.read_bytes,
            "written_bytes": counters.written_bytes,
        })
    };
    json!({
        "design": design.name,
        "references": result.references,
        "span_s": rounded(result.span.as_secs_f64()),
        "references_per_s": rounded(rate),
        "speedup": base.map(|base| rounded(rate / base)),
        "p50_ms": rounded(ms(result, 0.5)),
        "p99_ms": rounded(ms(result, 0.99)),
        "memory": { "hit_ratio": rounded(memory) },
        "flash": { "hit_ratio": rounded(flash) },
        "devices": { "home": device(&result.home), "flash": device(&result.flash) },
    })
}

fn parameters(options: &TraceBench, source: &Source, config: &Config) -> Value {
    json!({
        "source": source.parameters,
        "world": "real",
        "home_pages": config.home_pages,
        "memory_pages": config.pool.frames,
        "memory_policy": options.memory_policy.map(|policy| policy.name()),
        "flash_pages": config.pool.flash_slots,
        "lambda": config.pool.lambda,
        "clients": config.clients,
        "threads": config.threads,
        "warm_up": options.warm_up.0,
    })
}
