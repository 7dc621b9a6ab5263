//! What Fan et al. (2014) published in section 4, beside what was measured.

use super::{OnDrive, Results};
use crate::bench::figure::Figure;
use terrace_operators::Found;
use terrace_operators::trials::figures::{JoinRow, Method, READ_AHEAD_KIB, Room, ScanRow};

/// "More than 1 x faster".
const SCAN: (f64, (f64, f64)) = (2.0, (1.5, 2.5));
/// "1-1.5 x faster": one and a half times as fast, or two and a half.
const JOIN: (f64, (f64, f64)) = (2.5, (1.0, 2.5));
/// 16 MB and 256 MB.
const ONE_PASS: (f64, (f64, f64)) = (16.0, (12.0, 20.0));
/// "3-4 x faster".
const AGGREGATE: (f64, (f64, f64)) = (3.5, (2.5, 4.5));

/// All figures.
pub fn all(results: &Results) -> Vec<Figure> {
    let mut figures = Vec::new();
    for on_drive in &results.drives {
        figures.extend(scans(on_drive));
    }
    figures.extend(joins(results));
    figures.extend(one_pass(results));
    for on_drive in results.drives.iter().filter(|on_drive| is_flash(on_drive)) {
        figures.extend(aggregates(on_drive));
    }
    figures
}

/// Whether it has domains, as both flash drives of the paper.
pub fn is_flash(on_drive: &OnDrive) -> bool {
    matches!(on_drive.scans.choice.found, Found::Domains { .. })
}

/// Times of one thread over those of each number of threads.
pub fn gains(rows: &[ScanRow]) -> impl Iterator<Item = f64> + '_ {
    rows.iter().map(|row| rows[0].seconds / row.seconds)
}

fn most(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

fn scans(on_drive: &OnDrive) -> Vec<Figure> {
    let (drive, scans) = (on_drive.drive.name.clone(), &on_drive.scans);
    let more = gains(&scans.rows).skip(1);
    let best = scans.rows.iter().map(|row| row.seconds).fold(f64::INFINITY, f64::min);
    if !is_flash(on_drive) {
        let figure = |what: &str, measured: f64, regime: &str| Figure {
            id: "E10",
            drive: drive.clone(),
            what: what.to_string(),
            published: None,
            measured,
            band: (0.0, 1.0),
            regime: regime.to_string(),
        };
        let chosen = scans.chosen.seconds / best;
        return vec![
            figure("ParaScan over the scan that is chosen", chosen, "a disk: the ordinary scan"),
            figure("ParaScan over one thread", most(more), "4 KiB a request, as ParaScan"),
        ];
    }
    let figure = |what: &str, measured: f64, regime: &str| Figure {
        id: "E10",
        drive: drive.clone(),
        what: what.to_string(),
        published: Some(SCAN.0),
        measured,
        band: SCAN.1,
        regime: regime.to_string(),
    };
    let is_ahead = |row: &&ScanRow| row.request_bytes == READ_AHEAD_KIB << 10;
    let ahead = scans.in_order.iter().find(is_ahead).map_or(f64::NAN, |row| row.seconds / best);
    let chosen = scans.rows[0].seconds / scans.chosen.seconds;
    vec![
        figure("ParaScan over one thread, best number of threads", most(more), "a chunk a request"),
        figure("ParaScan over one thread, the degree of the rule", chosen, "4 threads"),
        figure("ParaScan over one thread that reads ahead", ahead, "128 KiB a request"),
    ]
}

fn seconds(results: &Results, (method, room): (Method, Room), memory: u64) -> Option<f64> {
    let is_it = |row: &&JoinRow| row.method == method && row.room == room && row.memory == memory;
    Some(results.joins.iter().find(is_it)?.done?.0)
}

/// Gains of ParaHashJoin over another method, by memory, where both ran.
pub fn join_gains(results: &Results, method: Method, room: Room) -> Vec<(u64, f64)> {
    let is_own = |row: &&JoinRow| row.method == Method::Para && row.room == room;
    let own = results.joins.iter().filter(is_own);
    let gain = |row: &JoinRow| {
        let seconds = seconds(results, (method, room), row.memory)?;
        Some((row.memory, seconds / row.done?.0))
    };
    own.filter_map(gain).collect()
}

fn joins(results: &Results) -> Vec<Figure> {
    let figure = |(method, room): (Method, Room)| {
        let gains = join_gains(results, method, room);
        let (memory, measured) = gains
            .into_iter()
            .fold((0, 0.0), |best, next| if next.1 > best.1 { next } else { best });
        let mib = (memory * results.divisor) as f64 / f64::from(1 << 20);
        Figure {
            id: "E11",
            drive: results.drives[0].drive.name.clone(),
            what: format!("ParaHashJoin over {}, best memory", method.name()),
            published: Some(JOIN.0),
            measured,
            band: JOIN.1,
            regime: match room {
                Room::Drive => format!("as with {mib:.0} MiB, spilled to the drive"),
                Room::PageCache => format!("as with {mib:.0} MiB, spilled to a page cache"),
            },
        }
    };
    let others = [Method::New, Method::Trad, Method::TradAhead];
    let all = [Room::Drive, Room::PageCache]
        .into_iter()
        .flat_map(|room| others.map(|method| (method, room)));
    all.map(figure).collect()
}

fn one_pass(results: &Results) -> Option<Figure> {
    let of = |method| results.one_pass.iter().find(|(it, _)| *it == method).map(|(_, it)| *it);
    let (para, new) = (of(Method::Para)?, of(Method::New)?);
    let mib = |bytes: u64| (bytes * results.divisor) as f64 / f64::from(1 << 20);
    Some(Figure {
        id: "E12",
        drive: results.drives[0].drive.name.clone(),
        what: "memory for one pass, rows over RIDs".into(),
        published: Some(ONE_PASS.0),
        measured: new as f64 / para as f64,
        band: ONE_PASS.1,
        regime: format!("{:.1} and {:.1} MiB at full size", mib(new), mib(para)),
    })
}

fn aggregates(on_drive: &OnDrive) -> Vec<Figure> {
    let rows = &on_drive.aggregates;
    let figure = |what: &str, measured: f64, regime: &str| Figure {
        id: "E13",
        drive: on_drive.drive.name.clone(),
        what: what.to_string(),
        published: Some(AGGREGATE.0),
        measured,
        band: AGGREGATE.1,
        regime: regime.to_string(),
    };
    let best = most(gains(rows));
    let at_rule = gains(rows).zip(rows).find(|(_, row)| row.threads == 4);
    vec![
        figure("ParaAggr over one thread, best number of threads", best, "a chunk a request"),
        figure(
            "ParaAggr over one thread, the degree of the rule",
            at_rule.map_or(f64::NAN, |(gain, _)| gain),
            "4 threads",
        ),
    ]
}
