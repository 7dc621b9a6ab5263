//! `terrace check` and `terrace stat`: verify a database, and show what is in it. Both read only:
//! no byte of its files changes.

use crate::bench::flash_role;
use crate::command::{Stored, StoredAt};
use crate::failure::Failure;
use crate::output::{Sinks, Stopwatch};
use crate::table::{Table, thousands};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use terrace::dump::{Loss, Saved};
use terrace::{BadCopy, Builder, ColdStart, Column, Database, TableInfo, TableStats};

const PAGE_BYTES: u64 = 8192;
/// The least file of a flash tier.
const FLASH_BYTES_MIN: u64 = 512 << 10;
/// Memory of a database that is only looked at, in pages, at least.
const FRAMES_MIN: u64 = 64;

/// Walks every tree of a database, and tells all damage that it finds. Where a flash tier has
/// pages, home's own copies of them are read, too: what is sound is sound without its cache.
///
/// # Errors
///
/// A database that cannot be opened, or that is damaged.
pub fn check(options: &Stored) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let blank = blank_flash(&options.at)?;
    let builder = builder(&options.at, blank)?;
    let path = &options.at.path;
    let database = match builder.clone().read_only().open(path) {
        Ok(database) => database,
        Err(error) => return Err(damage(options, &sinks, builder, &error)),
    };
    let flash = flash_tier(&options.at, blank, &database);
    let mut mended = made_good(blank, &database);
    let checked = database.check();
    let has_flash = database.stats().pool.slots > 0;
    let at_home = match checked {
        Ok(_) if has_flash => database.damaged_at_home(),
        _ => Ok(Vec::new()),
    };
    let at_home = at_home.map_err(|error| Failure::failed(path.display(), error))?;
    let bad_copy = |page| format!("{page}: its copy at home is damaged; flash has it whole");
    mended.extend(at_home.iter().map(bad_copy));
    database.close().map_err(|error| Failure::failed(path.display(), error))?;
    let found = match checked {
        Ok(found) => found,
        Err(error) => return Err(damage(options, &sinks, builder, &error)),
    };
    let [trees, pages, entries] =
        [found.trees, found.pages, found.entries].map(|count| thousands(count as f64));
    let rows = format!("{trees} trees, {pages} pages, {entries} entries");
    let state = if mended.is_empty() { "sound" } else { "damaged, and nothing is lost" };
    sinks.show(&format!("{}: {state}; {rows}\n", path.display()));
    mended.iter().for_each(|what| sinks.show(&format!("  {what}\n")));
    sinks.show(&flash);
    sinks.write(&json!({
        "command": "check",
        "version": env!("CARGO_PKG_VERSION"),
        "sound": mended.is_empty(),
        "damage": mended,
        "lost": false,
        "trees": found.trees,
        "pages": found.pages,
        "entries": found.entries,
        "host": { "wall_s": watch.seconds() },
    }))?;
    match (mended.is_empty(), at_home.is_empty()) {
        (true, _) => Ok(()),
        (false, true) => {
            let what =
                "it is damaged, and nothing is lost: the next opening for writing repairs it";
            Err(Failure::failed(path.display(), what))
        }
        (false, false) => {
            let what = "it is damaged at home, and nothing is lost as long as its flash is there: \
                        save it by `terrace dump`, with the same options, then `terrace load`";
            Err(Failure::failed(path.display(), what))
        }
    }
}

/// Damage that costs no row, since there is another copy of what it hit.
fn made_good(blank: Option<&str>, database: &Database) -> Vec<String> {
    let mut found: Vec<String> = database.bad_copies().iter().map(BadCopy::to_string).collect();
    let cold = database.cold_start().filter(|_| blank.is_none());
    if let Some(ColdStart::Header | ColdStart::Table | ColdStart::CutShort) = cold {
        found.extend(cold.map(|why| format!("{why}; all that the tier has is at home, too")));
    }
    found
}

/// Tells all that is damaged, where `first` was met first.
fn damage(options: &Stored, sinks: &Sinks, builder: Builder, first: &terrace::Error) -> Failure {
    use terrace::Error::{Corrupt, CorruptLog, RedoGap};
    let path = &options.at.path;
    let is_damage = matches!(first, Corrupt { .. } | CorruptLog { .. } | RedoGap { .. });
    let saved = is_damage.then(|| Saved::salvage(builder, path).ok()).flatten();
    let Some(saved) = saved else { return Failure::of_engine(path.display(), first) };
    let mut found: Vec<String> = saved.losses().iter().map(Loss::to_string).collect();
    saved.count(&mut |loss| found.push(loss.to_string()));
    found.extend(saved.damaged_pages().iter().map(|page| format!("{page}: its bytes are wrong")));
    let mut text = format!("{}: damaged\n", path.display());
    found.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
    sinks.show(&text);
    let written = sinks.write(&json!({
        "command": "check",
        "version": env!("CARGO_PKG_VERSION"),
        "sound": false,
        "lost": true,
        "first": first.to_string(),
        "damage": found,
    }));
    let what = format!(
        "{first}; what can be read is saved by `terrace dump {0} --salvage > FILE`, then `terrace \
         load FILE NEW`",
        path.display(),
    );
    written.err().unwrap_or_else(|| Failure::failed(path.display(), what))
}

/// Shows the tables of a database, and how much room it takes.
///
/// # Errors
///
/// A database that cannot be opened.
pub fn stat(options: &Stored) -> Result<(), Failure> {
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let blank = blank_flash(&options.at)?;
    let database = open(&options.at, blank)?;
    let failed = |error| Failure::failed(options.at.path.display(), error);
    // What was open when it crashed is rolled back by now.
    let tables = database.table_stats().map_err(failed)?;
    let described = database.tables().map_err(failed)?;
    let (id, was_closed) = (format!("{:032x}", database.id()), database.was_closed());
    let stats = database.stats();
    let flash = flash_tier(&options.at, blank, &database);
    let cold = blank.map(str::to_string).or(database.cold_start().map(|why| why.to_string()));
    database.close().map_err(failed)?;
    let mut table = Table::new(["home", &thousands(stats.home_used_bytes as f64)]);
    table.row(["log".into(), thousands(stats.log.used_bytes as f64)]);
    table.row(["log, at most".into(), thousands(stats.log.capacity_bytes as f64)]);
    let state = if was_closed { "closed in good order" } else { "not closed: shown as recovered" };
    let mut text = format!(
        "{}\nformat {}, id {id}\n{state}\nbytes\n{}",
        options.at.path.display(),
        terrace::FORMAT_VERSION,
        table.text()
    );
    text.push_str(&format!("{} table{}\n", tables.len(), if tables.len() == 1 { "" } else { "s" }));
    let mut sizes = Table::new(["  table", "bytes", "rows", "depth"]);
    for (name, table) in &tables {
        let rows = table.rows.map_or("?".into(), |rows| thousands(rows as f64));
        let bytes = thousands(table.bytes as f64);
        // A name may have what moves the cursor of a terminal, or ends the line.
        sizes.row([format!("  {}", name.escape_debug()), bytes, rows, table.depth.to_string()]);
    }
    text.push_str(&sizes.text());
    described.iter().for_each(|table| text.push_str(&types_of(table)));
    text.push_str(&flash);
    sinks.show(&text);
    let each = |of: fn(&TableStats) -> serde_json::Value| -> BTreeMap<&String, serde_json::Value> {
        tables.iter().map(|(name, table)| (name, of(table))).collect()
    };
    sinks.write(&json!({
        "command": "stat",
        "version": env!("CARGO_PKG_VERSION"),
        "format": terrace::FORMAT_VERSION,
        "id": id,
        "closed": was_closed,
        "tables": tables.keys().collect::<Vec<_>>(),
        "table_bytes": each(|table| json!(table.bytes)),
        "table_rows": each(|table| json!(table.rows)),
        "table_depth": each(|table| json!(table.depth)),
        "schemas": described.iter().map(schema_of).collect::<Vec<_>>(),
        "home_used_bytes": stats.home_used_bytes,
        "log_used_bytes": stats.log.used_bytes,
        "log_capacity_bytes": stats.log.capacity_bytes,
        "flash": options.at.flash_device.is_some().then(|| json!({
            "cold_start": cold,
            "slots": stats.pool.slots,
            "slots_used": stats.pool.slots_used,
            "slots_dirty": stats.pool.slots_dirty,
        })),
    }))
}

/// One line: the types of a table, and its columns.
fn types_of(table: &TableInfo) -> String {
    let [name, key, value] =
        [&table.name, &table.key_type, &table.value_type].map(|text| text.escape_debug());
    match (&table.schema, table.damage) {
        (_, Some(what)) => format!("  {name}: <{key}, {value}> (damaged: {what})\n"),
        (Some(schema), None) => format!("  {name}: <{key}, {value}> {schema}\n"),
        (None, None) => format!("  {name}: <{key}, {value}>\n"),
    }
}

/// The same for programs: `columns` is null if the table has no schema.
fn schema_of(table: &TableInfo) -> serde_json::Value {
    let columns = table.schema.as_ref().map(|schema| {
        let column = |(at, column): (usize, &Column)| {
            json!({
                "name": column.name,
                "type": column.type_name,
                "nullable": column.is_nullable,
                "key": at < schema.key_columns(),
            })
        };
        schema.columns().iter().enumerate().map(column).collect::<Vec<_>>()
    });
    json!({
        "table": table.name,
        "key_type": table.key_type,
        "value_type": table.value_type,
        "columns": columns,
        "damage": table.damage,
    })
}

/// One line: whether the flash tier was found again, and why not; and one that warns.
fn flash_tier(options: &StoredAt, blank: Option<&str>, database: &Database) -> String {
    if options.flash_device.is_none() {
        return String::new();
    }
    let found = match database.cold_start() {
        _ if blank.is_some() => {
            format!("flash tier: cold, because {}\n", blank.expect("a reason"))
        }
        Some(why) => format!("flash tier: cold, because {why}\n"),
        None => {
            let pool = database.stats().pool;
            let (used, slots) = (thousands(pool.slots_used as f64), thousands(pool.slots as f64));
            format!("flash tier: warm, {used} of {slots} slots filled\n")
        }
    };
    match database.stats().pool.tables_given_up {
        0 => found,
        _ => format!(
            "{found}warning: the table of the flash tier could not be kept, and was given up\n"
        ),
    }
}

/// Why the flash device holds no tier yet, if it does not: a look leaves it as it is.
pub fn blank_flash(options: &StoredAt) -> Result<Option<&'static str>, Failure> {
    let Some(flash) = &options.flash_device else { return Ok(None) };
    let look = || -> io::Result<Option<&'static str>> {
        let (mut file, bytes) = opened(flash)?;
        if bytes == 0 {
            return Ok(Some("the file is empty: a new tier"));
        }
        // Flash that is a part of the database is reported as truncated.
        if bytes < FLASH_BYTES_MIN && !options.persistent_flash {
            return Ok(Some("the file has been truncated"));
        }
        if bytes < PAGE_BYTES {
            return Ok(None);
        }
        // The header of a tier, and the label of its device.
        let mut is_blank = true;
        for at in [0, bytes - PAGE_BYTES] {
            let mut page = [0; PAGE_BYTES as usize];
            file.seek(SeekFrom::Start(at))?;
            file.read_exact(&mut page)?;
            is_blank &= page.iter().all(|&byte| byte == 0);
        }
        Ok(is_blank.then_some("the file is blank: a new tier"))
    };
    match look() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Ok(Some("there is no such file: a new tier"))
        }
        looked => {
            let what = || format!("cannot read --flash-device {}", flash.display());
            looked.map_err(|error| Failure::failed(what(), error))
        }
    }
}

/// A file or block device, and its length. Opening another kind may wait for its other end.
fn opened(path: &Path) -> io::Result<(File, u64)> {
    let kind = fs::metadata(path)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        let what = "neither a file nor a block device";
        return Err(io::Error::new(ErrorKind::InvalidInput, what));
    }
    let mut file = File::open(path)?;
    let bytes = file.seek(SeekFrom::End(0))?;
    Ok((file, bytes))
}

/// Bytes of the flash tier on a device of `device` bytes.
fn tier_bytes(options: &StoredAt, device: u64) -> u64 {
    // The last page is its label.
    options.flash.map_or(device.saturating_sub(PAGE_BYTES), |flash| flash.pages(0) * PAGE_BYTES)
}

fn open(options: &StoredAt, blank: Option<&str>) -> Result<Database, Failure> {
    let opened = builder(options, blank)?.read_only().open(&options.path);
    opened.map_err(|error| Failure::of_engine(options.path.display(), &error))
}

/// How the database is opened; its flash is left out if it is `blank`.
///
/// # Errors
///
/// Too little memory; a flash device that cannot be read.
pub fn builder(options: &StoredAt, blank: Option<&str>) -> Result<Builder, Failure> {
    let frames = options.dram.pages(0);
    if frames < FRAMES_MIN {
        return Err(Failure::usage(format!("--dram must be at least {FRAMES_MIN} pages")));
    }
    if options.flash.is_some_and(|flash| flash.bytes().is_none_or(|bytes| bytes == 0)) {
        return Err(Failure::usage("--flash must be a size of its own, not a share"));
    }
    let mut builder = Database::builder().memory(frames * PAGE_BYTES);
    if let Some(log) = &options.log {
        builder = builder.log(log);
    }
    if options.flash_device.is_some() && !options.design.uses_flash() {
        let what = "--flash-device: the --design that was asked for uses no flash; leave one out";
        return Err(Failure::usage(what));
    }
    if let Some(flash) = options.flash_device.as_ref().filter(|_| blank.is_none()) {
        let failed = |error| Failure::failed(flash.display(), error);
        let (_, bytes) = opened(flash).map_err(failed)?;
        let bytes = tier_bytes(options, bytes);
        builder = builder.flash(flash, bytes).design(options.design).restart(options.restart);
        builder = builder.flash_role(flash_role(options.persistent_flash));
    }
    Ok(builder)
}
