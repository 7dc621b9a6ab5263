//! What Roh et al. (2014) published in section 4, beside what was measured.

use super::OnDrive;
use crate::bench::figure::Figure;
use terrace_index::Kind;
use terrace_index::trials::papers::QueueRow;

/// What the paper says of one of its two drives.
struct Published {
    /// Entries of a range, gain and band.
    range: (u64, f64, (f64, f64)),
    /// Insert gain with a queue of a page.
    queue_1: f64,
    /// Gains on the mixes, least and greatest: over BFTL, the B+-tree, the FD-tree.
    bftl: (f64, f64),
    btree: (f64, f64),
    fd: (f64, f64),
}

const IODRIVE: Published = Published {
    range: (64 << 10, 5.0, (3.5, 6.0)),
    queue_1: 7.2,
    bftl: (2.5, 13.7),
    btree: (1.6, 11.0),
    fd: (1.23, 1.47),
};
const P300: Published = Published {
    range: (512 << 10, 3.5, (2.5, 4.5)),
    queue_1: 8.2,
    bftl: (2.0, 13.0),
    btree: (1.4, 10.9),
    fd: (1.24, 1.45),
};

/// Where a ratio lies that is published without a band.
const BAND: (f64, f64) = (0.75, 1.25);

/// The paper's drive that this one stands for.
fn published(drive: &str) -> Option<&'static Published> {
    match drive {
        name if name.starts_with("p300") => Some(&P300),
        name if name.starts_with("iodrive") => Some(&IODRIVE),
        _ => None,
    }
}

/// All figures of all drives.
pub fn all(results: &[OnDrive]) -> Vec<Figure> {
    let mut figures: Vec<Figure> = results.iter().flat_map(of_drive).collect();
    figures.extend(beyond(results));
    figures
}

fn of_drive(result: &OnDrive) -> Vec<Figure> {
    let Some(paper) = published(&result.drive.name) else { return Vec::new() };
    let mut figures = Vec::new();
    let mut add = |id, what: String, value, measured, band, regime: String| {
        let (drive, published) = (result.drive.name.clone(), Some(value));
        figures.push(Figure { id, drive, what, published, measured, band, regime });
    };
    let (entries, value, band) = paper.range;
    if let Some(row) = result.basics.ranges.iter().find(|row| row.entries == entries) {
        let what = format!("prange over leaf chain, {}K entries", entries >> 10);
        add("E03", what, value, row.btree_ns / row.pio_ns, band, String::new());
    }
    let with = |queue: u64, at: usize| queue_row(result, queue, result.basics.segments[at]);
    let leaves = |row: &QueueRow| format!("leaves of {} pages", row.segments);
    let insert = |row: &QueueRow| result.basics.btree.insert_ns / row.measured.insert_ns;
    let search = |row: &QueueRow| result.basics.btree.search_ns / row.measured.search_ns;
    let row = with(1, 0);
    let what = "insert gain, queue of a page".to_string();
    add("E04", what, paper.queue_1, insert(row), (5.0, 10.0), leaves(row));
    if std::ptr::eq(paper, &P300) {
        let row = with(4041, 4);
        let what = "insert gain, queue of 4041 pages".to_string();
        add("E05", what, 28.0, insert(row), (18.0, 35.0), leaves(row));
        let row = with(1024, 1);
        let what = "insert gain, queue of 1024 pages".to_string();
        add("E06", what, 16.3, insert(row), (11.0, 20.0), leaves(row));
        let what = "search gain, queue of 1024 pages".to_string();
        add("E06", what, 1.2, search(row), (1.0, 1.35), leaves(row));
    }
    for (id, kind, (low, high)) in [
        ("E07", Kind::Bftl, paper.bftl),
        ("E07", Kind::BTree, paper.btree),
        ("E08", Kind::Fd, paper.fd),
    ] {
        let gains = gains(result, kind);
        let least = gains.iter().copied().fold(f64::INFINITY, f64::min);
        let most = gains.iter().copied().fold(0.0, f64::max);
        let band = |value: f64| match kind {
            Kind::Fd => (1.1, 1.7),
            _ => (value * BAND.0, value * BAND.1),
        };
        let regime = "best parameters each".to_string();
        add(id, format!("PIO over {kind}, least"), low, least, band(low), regime.clone());
        add(id, format!("PIO over {kind}, most"), high, most, band(high), regime);
    }
    figures
}

fn queue_row(result: &OnDrive, queue: u64, segments: u32) -> &QueueRow {
    let is_it = |row: &&QueueRow| row.queue == queue && row.segments == segments;
    result.basics.queues.iter().find(is_it).expect("all sizes were measured")
}

/// How many times as fast the PIO B-tree is as `kind`, for each mix.
fn gains(result: &OnDrive, kind: Kind) -> Vec<f64> {
    result.mixes.iter().map(|mix| mix.op_ns(kind) / mix.op_ns(Kind::Pio)).collect()
}

/// The same of the PIO B-tree that reads leaves whichever way takes less.
fn either_gains(result: &OnDrive, kind: Kind) -> Vec<f64> {
    result.mixes.iter().map(|mix| mix.op_ns(kind) / mix.either_pio_ns()).collect()
}

/// What goes beyond the paper: the FD-tree on every mix, and the gain of the P300 on `dc-nvme`.
fn beyond(results: &[OnDrive]) -> Vec<Figure> {
    let least =
        |result: &OnDrive| either_gains(result, Kind::Fd).into_iter().fold(f64::INFINITY, f64::min);
    let fd = results.iter().map(|result| Figure {
        id: "beyond",
        drive: result.drive.name.clone(),
        what: "PIO over FD-tree on every mix".into(),
        published: None,
        measured: least(result),
        band: (1.0, f64::INFINITY),
        regime: "the least of the mixes; leaves whole or by segments".into(),
    });
    let mut figures: Vec<Figure> = fd.collect();
    let most = |result: &OnDrive| either_gains(result, Kind::BTree).into_iter().fold(0.0, f64::max);
    let find = |name: &str| results.iter().find(|result| result.drive.name.starts_with(name));
    if let (Some(p300), Some(nvme)) = (find("p300"), find("dc-nvme")) {
        figures.push(Figure {
            id: "beyond",
            drive: nvme.drive.name.clone(),
            what: format!("PIO over B+-tree, at least as on {}", p300.drive.name),
            published: None,
            measured: most(nvme),
            band: (most(p300), f64::INFINITY),
            regime: "the most of the mixes; leaves whole or by segments".into(),
        });
    }
    figures
}
