//! The tables of `bench parascan`, and its JSON.

use super::figures::{gains, join_gains};
use super::{OnDrive, Results};
use crate::bench::figure::{self, Figure};
use crate::interval::rounded;
use crate::table::{Table, Titled, thousands};
use serde_json::{Value, json};
use terrace_operators::trials::figures::{JoinRow, MEMORY_MIB, Method, Room, ScanRow};
use terrace_operators::{COSTS, Found};

pub fn tables(results: &Results, figures: &[Figure]) -> Vec<Titled> {
    let title = format!("Figures at 1/{} of the paper's sizes", results.divisor);
    let mut tables = vec![Titled { title, table: figure::table(figures) }];
    tables.extend(results.drives.iter().flat_map(on_drive));
    tables.extend([joins(results, Room::Drive), joins(results, Room::PageCache), costs()]);
    tables
}

pub fn found(found: Found) -> String {
    match found {
        Found::Domains { domains, chunk_bytes } => {
            format!("{domains} domains of {chunk_bytes} bytes")
        }
        Found::Lanes { gain } => {
            format!("no domains, several requests at once {gain:.2} times as fast")
        }
        Found::Ordinary { gain: Some(gain) } => {
            format!("no domains, several requests at once {gain:.2} times as fast: ordinary scan")
        }
        Found::Ordinary { gain: None } => "too small to look into: ordinary scan".into(),
    }
}

fn mb_per_s(row: &ScanRow) -> f64 {
    row.bytes as f64 / row.seconds / 1e6
}

fn on_drive(result: &OnDrive) -> Vec<Titled> {
    let name = &result.drive.name;
    let scans = &result.scans;
    let mut by_threads = Table::new(["threads", "request KiB", "s", "MB/s", "gain"]);
    let mut add = |threads: String, row: &ScanRow, gain: f64| {
        by_threads.row([
            threads,
            (row.request_bytes >> 10).to_string(),
            format!("{:.2}", row.seconds),
            format!("{:.1}", mb_per_s(row)),
            format!("{gain:.2}"),
        ]);
    };
    for (row, gain) in scans.rows.iter().zip(gains(&scans.rows)) {
        add(row.threads.to_string(), row, gain);
    }
    let one = scans.rows[0].seconds;
    let chosen = format!("chosen: {}", scans.chosen.threads);
    add(chosen, &scans.chosen, one / scans.chosen.seconds);
    let best = scans.rows.iter().map(|row| row.seconds).fold(f64::INFINITY, f64::min);
    let mut in_order = Table::new(["one thread, request KiB", "s", "MB/s", "best ParaScan gains"]);
    for row in &scans.in_order {
        in_order.row([
            (row.request_bytes >> 10).to_string(),
            format!("{:.2}", row.seconds),
            format!("{:.1}", mb_per_s(row)),
            format!("{:.2}", row.seconds / best),
        ]);
    }
    let mut aggregates = Table::new(["threads", "s", "MB/s", "gain"]);
    for (row, gain) in result.aggregates.iter().zip(gains(&result.aggregates)) {
        aggregates.row([
            row.threads.to_string(),
            format!("{:.2}", row.seconds),
            format!("{:.1}", mb_per_s(row)),
            format!("{gain:.2}"),
        ]);
    }
    let found = found(scans.choice.found);
    vec![
        Titled { title: format!("ParaScan of ORDERS on {name}: {found}"), table: by_threads },
        Titled { title: format!("ORDERS on {name} in order, by one thread"), table: in_order },
        Titled { title: format!("ParaAggr of CUSTOMER of TPC-C on {name}"), table: aggregates },
    ]
}

fn joins(results: &Results, room: Room) -> Titled {
    let mut table = Table::new([
        "memory MiB at full size",
        "join",
        "s",
        "ParaHashJoin gains",
        "partitions spilled",
        "of",
        "loads",
        "MiB written",
        "pages fetched",
        "rows",
    ]);
    for mib in MEMORY_MIB {
        let memory = (mib << 20) / results.divisor;
        let is_shown = |row: &&JoinRow| row.memory == memory && row.room == room;
        for row in results.joins.iter().filter(is_shown) {
            let gain = join_gains(results, row.method, room).into_iter().find(|it| it.0 == memory);
            let gain = gain.map_or("-".into(), |(_, gain)| format!("{gain:.2}"));
            let Some((seconds, joined)) = row.done else {
                let none = || "-".to_string();
                let said = "too little memory".to_string();
                table.row([
                    mib.to_string(),
                    row.method.name().into(),
                    said,
                    none(),
                    none(),
                    none(),
                    none(),
                    none(),
                    none(),
                    none(),
                ]);
                continue;
            };
            table.row([
                mib.to_string(),
                row.method.name().into(),
                format!("{seconds:.2}"),
                gain,
                joined.spilled.to_string(),
                joined.partitions.to_string(),
                joined.loads.to_string(),
                format!("{:.1}", joined.spilled_bytes as f64 / f64::from(1 << 20)),
                thousands(joined.freshness.pages as f64),
                thousands(joined.rows as f64),
            ]);
        }
    }
    let drive = &results.drives[0].drive.name;
    let to = match room {
        Room::Drive => "the drive",
        Room::PageCache => "a page cache",
    };
    Titled { title: format!("CUSTOMER and ORDERS joined on {drive}, spilled to {to}"), table }
}

fn costs() -> Titled {
    let mut table = Table::new(["step", "ns"]);
    for cost in COSTS {
        table.row([cost.name.into(), cost.ns.to_string()]);
    }
    Titled { title: "What a step costs a core".into(), table }
}

/// All that was measured.
pub fn runs(results: &Results) -> Value {
    let scan = |row: &ScanRow| {
        json!({
            "threads": row.threads,
            "request_bytes": row.request_bytes,
            "seconds": rounded(row.seconds),
            "bytes": row.bytes,
        })
    };
    let rows = |rows: &[ScanRow]| rows.iter().map(scan).collect::<Vec<_>>();
    let drives = results.drives.iter().map(|result| {
        json!({
            "drive": result.drive.name,
            "found": found(result.scans.choice.found),
            "chosen": scan(&result.scans.chosen),
            "scans": rows(&result.scans.rows),
            "in_order": rows(&result.scans.in_order),
            "aggregates": rows(&result.aggregates),
        })
    });
    let join = |row: &JoinRow| {
        let done = row.done.map(|(seconds, joined)| {
            json!({
                "seconds": rounded(seconds),
                "rows": joined.rows,
                "partitions": joined.partitions,
                "spilled": joined.spilled,
                "loads": joined.loads,
                "spilled_bytes": joined.spilled_bytes,
                "peak_bytes": joined.peak_bytes,
                "pages_fetched": joined.freshness.pages,
            })
        });
        let to = if row.room == Room::Drive { "drive" } else { "page cache" };
        json!({
            "join": row.method.name(),
            "spilled_to": to,
            "memory_bytes": row.memory,
            "done": done,
        })
    };
    let one_pass =
        |(method, bytes): &(Method, u64)| json!({ "join": method.name(), "memory_bytes": bytes });
    json!({
        "drives": drives.collect::<Vec<_>>(),
        "joins": results.joins.iter().map(join).collect::<Vec<_>>(),
        "one_pass": results.one_pass.iter().map(one_pass).collect::<Vec<_>>(),
    })
}
