//! The tables of `bench index`, and its JSON.

use super::OnDrive;
use crate::bench::figure::{self, Figure};
use crate::table::{Table, Titled, thousands};
use serde_json::{Value, json};
use terrace_index::Kind;
use terrace_index::trials::Scale;
use terrace_index::trials::papers::{KindRow, MixRow};

pub fn tables(results: &[OnDrive], figures: &[Figure], scale: Scale) -> Vec<Titled> {
    let mut tables = vec![figures_table(figures, scale)];
    for result in results {
        tables.extend([ranges(result), queues(result), fills(result), mixes(result)]);
    }
    tables
}

fn us(ns: f64) -> String {
    format!("{:.1}", ns / 1e3)
}

fn times(ratio: f64) -> String {
    format!("{ratio:.2}")
}

fn figures_table(figures: &[Figure], scale: Scale) -> Titled {
    let title = format!(
        "Figures at 1/{}: {} entries, memory of {} pages, groups of {}",
        scale.divisor,
        thousands(scale.entries() as f64),
        scale.room().memory_pages,
        scale.room().pio_max,
    );
    Titled { title, table: figure::table(figures) }
}

fn ranges(result: &OnDrive) -> Titled {
    let mut table = Table::new(["entries of a range", "leaf chain us", "prange us", "gain"]);
    for row in &result.basics.ranges {
        table.row([
            thousands(row.entries as f64),
            us(row.btree_ns),
            us(row.pio_ns),
            times(row.btree_ns / row.pio_ns),
        ]);
    }
    Titled { title: format!("Ranges on {}", result.drive.name), table }
}

fn queues(result: &OnDrive) -> Titled {
    let basics = &result.basics;
    let mut table = Table::new([
        "leaf pages",
        "queue of 4096",
        "insert us",
        "gain",
        "model us",
        "search us",
        "gain",
        "model us",
        "picked",
    ]);
    for row in &basics.queues {
        let picked = basics.segments[table_at(row.queue)] == row.segments;
        table.row([
            row.segments.to_string(),
            row.queue.to_string(),
            us(row.measured.insert_ns),
            times(basics.btree.insert_ns / row.measured.insert_ns),
            us(row.estimate.insert),
            us(row.measured.search_ns),
            times(basics.btree.search_ns / row.measured.search_ns),
            us(row.estimate.search),
            if picked { "yes".into() } else { String::new() },
        ]);
    }
    let title = format!(
        "PIO B-tree by leaf and queue on {}; B+-tree: insert {} us, search {} us; 10,000 keys \
         together: {} us each",
        result.drive.name,
        us(basics.btree.insert_ns),
        us(basics.btree.search_ns),
        us(basics.many_ns.1),
    );
    Titled { title, table }
}

fn table_at(queue: u64) -> usize {
    let all = terrace_index::trials::papers::QUEUES;
    all.iter().position(|other| *other == queue).expect("a queue of the table")
}

fn fills(result: &OnDrive) -> Titled {
    let mut table = Table::new([
        "leaves loaded to",
        "B+-tree insert us",
        "search us",
        "PIO insert us",
        "search us",
        "insert gain",
        "search gain",
    ]);
    for row in &result.basics.fills {
        table.row([
            format!("{:.0}%", row.fill * 100.0),
            us(row.btree.insert_ns),
            us(row.btree.search_ns),
            us(row.pio.insert_ns),
            us(row.pio.search_ns),
            times(row.btree.insert_ns / row.pio.insert_ns),
            times(row.btree.search_ns / row.pio.search_ns),
        ]);
    }
    Titled { title: format!("Fill of leaves on {}, queue of 1024 pages", result.drive.name), table }
}

/// All structures of a mix, by their names.
fn structures(mix: &MixRow) -> impl Iterator<Item = (String, &KindRow)> {
    let kinds = mix.kinds.iter().map(|row| (row.kind.to_string(), row));
    kinds.chain([(format!("{}, by segments", Kind::Pio), &mix.by_segments)])
}

fn mixes(result: &OnDrive) -> Titled {
    let mut table = Table::new([
        "inserts of 100",
        "structure",
        "us each",
        "in inserts",
        "in searches",
        "PIO gains",
        "changes us",
        "memory KiB",
        "tables KiB",
        "tried",
        "first us",
        "parameters",
    ]);
    for mix in &result.mixes {
        for (name, row) in structures(mix) {
            let ops = row.measured.ops.max(1) as f64;
            let memory = row.measured.memory;
            table.row([
                mix.inserts.to_string(),
                name,
                us(row.measured.op_ns()),
                us(row.measured.changes.0 as f64 / ops),
                us(row.measured.searches.0 as f64 / ops),
                times(row.measured.op_ns() / mix.op_ns(Kind::Pio)),
                us(row.changes.op_ns()),
                thousands((memory.pool + memory.queue + memory.tables) as f64 / 1024.0),
                thousands(memory.tables as f64 / 1024.0),
                row.tuned.tried.to_string(),
                us(row.tuned.first.op_ns()),
                row.tuned.setup.to_string(),
            ]);
        }
    }
    Titled { title: format!("Mixes on {}, best parameters each", result.drive.name), table }
}

/// All of a drive.
pub fn run(result: &OnDrive) -> Value {
    let basics = &result.basics;
    let ranges = basics.ranges.iter().map(
        |row| json!({ "entries": row.entries, "btree_ns": row.btree_ns, "pio_ns": row.pio_ns }),
    );
    let queues = basics.queues.iter().map(|row| {
        json!({
            "leaf_pages": row.segments,
            "queue_of_4096": row.queue,
            "insert_ns": row.measured.insert_ns,
            "search_ns": row.measured.search_ns,
            "model": { "insert_ns": row.estimate.insert, "search_ns": row.estimate.search },
        })
    });
    let fills = basics.fills.iter().map(|row| {
        json!({
            "fill": row.fill,
            "btree": { "insert_ns": row.btree.insert_ns, "search_ns": row.btree.search_ns },
            "pio": { "insert_ns": row.pio.insert_ns, "search_ns": row.pio.search_ns },
        })
    });
    json!({
        "drive": result.drive.name,
        "latencies_ns": {
            "read_alone": basics.latencies.read_alone,
            "read_pair": basics.latencies.read_pair,
            "read_group": basics.latencies.read_group,
            "write_group": basics.latencies.write_group,
        },
        "btree": { "insert_ns": basics.btree.insert_ns, "search_ns": basics.btree.search_ns },
        "get_many_ns": basics.many_ns.1,
        "ranges": ranges.collect::<Vec<_>>(),
        "queues": queues.collect::<Vec<_>>(),
        "fills": fills.collect::<Vec<_>>(),
        "mixes": result.mixes.iter().map(mix).collect::<Vec<_>>(),
    })
}

fn mix(mix: &MixRow) -> Value {
    let kind = |(name, row): (String, &KindRow)| {
        let memory = row.measured.memory;
        let traffic = row.measured.traffic;
        json!({
            "structure": name,
            "parameters": row.tuned.setup.to_string(),
            "tried": row.tuned.tried,
            "op_ns": row.measured.op_ns(),
            "changes_s": row.measured.changes.as_secs_f64(),
            "searches_s": row.measured.searches.as_secs_f64(),
            "pio_gain": row.measured.op_ns() / mix.op_ns(Kind::Pio),
            "deletes_updates_inserts_ns": row.changes.op_ns(),
            "memory_bytes": {
                "pool": memory.pool,
                "queue": memory.queue,
                "tables": memory.tables,
                "search": memory.search,
            },
            "device": {
                "reads": traffic.reads,
                "read_groups": traffic.read_groups,
                "writes": traffic.writes,
                "write_groups": traffic.write_groups,
            },
        })
    };
    let structures: Vec<Value> = structures(mix).map(kind).collect();
    json!({ "inserts_of_100": mix.inserts, "structures": structures })
}
