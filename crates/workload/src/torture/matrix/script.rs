//! The scripts: short scenarios, each made to go through one path [sources.R23].
//!
//! | script | path |
//! |---|---|
//! | `admit-free` | clean pages that leave memory (TAC: pages read) go to free slots |
//! | `admit-clean` | they go to slots that hold another clean page |
//! | `evict-dirty` | changed pages leave: home, home and flash (DW), flash (LC), own slot (TAC) |
//! | `modify-clean` | pages change whose flash copy is clean |
//! | `modify-dirty` | pages change whose flash copy is newer than home (LC) |
//! | `front` | the front of an append log, or a block, leaves: home, dropped, taken in again (FaCE, FASC) |
//! | `front-bases` | it leaves with copies of pages that change in memory again and again (FaCE, FASC) |
//! | `lazy-clean` | the cleaner brings dirty pages of the flash home (LC) |
//! | `clean-ahead` | it brings home the pages whose slots are wanted next (CC, CAC) |
//! | `age-clean` | pages that have been dirty for too much log are written home (LC) |
//! | `outlive` | a cached page changes, is written home past its slot, and the log forgets it: violation D |
//! | `checkpoint` | an indirect checkpoint, with dirty pages everywhere and an open transaction |
//! | `cold-checkpoint` | an indirect checkpoint, with dirty pages on flash only (LC) |
//! | `sharp-checkpoint` | a sharp one |
//! | `roll-back` | a transaction takes its changes back, of cached pages too |
//! | `reshape` | pages are split and merged |
//! | `tables` | tables are made and dropped |
//! | `compact` | pages come together, and the room of free extents is given back and used again |
//! | `gather` | values of one page and of three leave extents that are nearly empty |
//! | `large` | large values go home before their record: put, replaced, abandoned, freed |
//! | `blocks` | blocks are overwritten in pages that others gave up, abandoned, removed, swept |
//! | `rest` | what the flusher of the table does in the background (LVR) |
//! | `table` | checkpoints in a row, each of which writes the table or its journal (LVR, warm) |
//! | `grow-log` | the log gets longer, by segments |
//! | `shrink-log` | it gets shorter at checkpoints |
//! | `close` | a clean shutdown |
//! | `reopen` | opening after one, warm if the restart can |
//! | `recover` | recovery after a power cut, with a loser to undo |
//!
//! - C1: what a script must go through is asserted on its uncut run, by what the engine and the
//!   devices counted: a script that misses its path is a failure.

use terrace::Checkpoint;
use terrace_policy::{Design, DirtyLeave, MemoryPolicy, Replacement, Restart, RestartKind};
use terrace_rt::Nanos;

use super::super::ledger::Promise::{Buffered, Durable};
use super::applies::{any, appended, flash, keeps_back, keeps_table, lazy, takes_clean};
use super::disks::PAGES;
use super::seen::Seen;
use super::walk::Step;

/// Rows of the database, four to a page: some three times the memory.
pub(super) const ROWS: u32 = 200;
/// Pages of memory: as few as the engine takes.
pub(super) const FRAMES: u64 = 16;

/// Slots for every page of the database.
const ALL: u32 = 96;
/// Slots for some of them: an append log goes round.
const SOME: u32 = 24;
/// Slots for a fraction of them.
const FEW: u32 = 10;
/// Long enough for a pass of any flusher [S3: 64 s].
const LONG: Nanos = Nanos::from_secs(70);

/// Checkpoints in a row: more blocks than the shortest journal has.
const TABLE_ROUNDS: u32 = 9;

/// A log that grows may get as long as it wants to. Its device has the room: some have a geometry,
/// and do not grow themselves.
const LOG_MAX: Option<u64> = Some(16 << 20);

/// What the database is like when a script begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Closed in good order, with a blank flash device.
    Cold,
    /// Closed in good order.
    Day,
    /// Cut short, with dirty pages everywhere and an open transaction.
    Crash,
}

/// The part of a script at whose events the power is cut.
pub(super) enum Path {
    /// Opening the database.
    Opening,
    /// Steps after it.
    Steps(fn(&Design) -> Vec<Step>),
}

/// A scenario.
pub struct Script {
    /// Its name in the command and its output.
    pub name: &'static str,
    pub(super) applies: fn(&Design, &Restart) -> bool,
    pub(super) slots: u32,
    /// Pages at home, and in the log.
    pub(super) pages: u64,
    pub(super) lambda: f64,
    /// How long the log may get, if it is one that grows.
    pub(super) log_max: Option<u64>,
    /// Bytes of log after which changes are brought home.
    pub(super) clean_age: Option<u64>,
    /// The design that picks itself picks something else after this number of misses, else never.
    pub(super) forced_choice_misses: Option<u64>,
    pub(super) start: Start,
    /// Steps before the path.
    pub(super) before: fn() -> Vec<Step>,
    pub(super) path: Path,
    pub(super) shows: fn(&Seen) -> bool,
}

fn nothing() -> Vec<Step> {
    Vec::new()
}

/// Brings home what recovery may have left dirty.
fn clean() -> Step {
    Step::Checkpoint(Checkpoint::Sharp)
}

/// Cuts the log where the oldest change is that is not at home, or on flash that is a part of the
/// database: what the path then loses is not in the log, too.
fn name_oldest() -> Step {
    Step::Checkpoint(Checkpoint::Indirect)
}

/// Reads every page of the table.
fn read_all() -> Step {
    Step::Read(0..ROWS)
}

/// Dirty pages in memory and, where the design has it, on flash; and an open transaction.
fn dirty_everywhere() -> Vec<Step> {
    vec![
        read_all(),
        Step::Write(0..8, Durable),
        Step::Write(40..48, Buffered),
        Step::Hold(100..104),
        Step::Read(120..ROWS),
        Step::Write(60..68, Durable),
    ]
}

/// More records than fit into a log that was little used before.
fn growth() -> Vec<Step> {
    [0..40, 40..80, 80..120].map(|rows| Step::Write(rows, Durable)).into()
}

impl Script {
    /// The script of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Script> {
        SCRIPTS.iter().find(|script| script.name == name)
    }
}

/// What most scripts have in common.
const COMMON: Script = Script {
    name: "",
    applies: flash,
    slots: ALL,
    pages: PAGES,
    lambda: 0.9,
    log_max: None,
    clean_age: None,
    forced_choice_misses: Some(u64::MAX),
    start: Start::Day,
    before: nothing,
    path: Path::Opening,
    shows: |_| false,
};

/// Every script.
pub static SCRIPTS: [Script; 29] = [
    Script {
        name: "admit-free",
        applies: takes_clean,
        start: Start::Cold,
        before: || vec![clean(), Step::Read(0..60)],
        path: Path::Steps(|_| vec![Step::Read(60..100)]),
        shows: |seen| {
            // Some are written together.
            let grown = seen.grown();
            seen.admissions() > 2 && grown == seen.admissions() as i64 && seen.flash_writes > 0
        },
        ..COMMON
    },
    Script {
        name: "admit-clean",
        applies: takes_clean,
        start: Start::Cold,
        slots: FEW,
        before: || vec![clean(), Step::Read(0..100)],
        path: Path::Steps(|design| {
            // Under TAC pages must be hotter than those that they replace, or benefit more.
            let hot = design.replacement != Replacement::Lru2;
            if hot { vec![Step::Read(130..ROWS); 4] } else { vec![Step::Read(130..158)] }
        }),
        shows: |seen| seen.before.pool.slots_used > 4 && seen.admissions() as i64 > seen.grown(),
        ..COMMON
    },
    Script {
        name: "evict-dirty",
        start: Start::Cold,
        applies: any,
        before: || vec![clean(), Step::Read(0..80)],
        path: Path::Steps(|_| {
            let reads = || Step::Read(110..ROWS);
            vec![Step::Write(0..12, Durable), reads(), reads()]
        }),
        shows: |seen| {
            let dirty = seen.after.pool.slots_dirty > seen.before.pool.slots_dirty;
            let (home, flash) = (seen.home_writes > 0, seen.flash_writes > 0);
            seen.evicted_dirty() > 0
                && match seen.design.dirty_leave {
                    DirtyLeave::Home => home,
                    DirtyLeave::FlashAndHome | DirtyLeave::HomeAndOwnSlot => home && flash,
                    DirtyLeave::Flash => dirty && flash,
                }
        },
        ..COMMON
    },
    Script {
        name: "modify-clean",
        applies: takes_clean,
        start: Start::Cold,
        before: || vec![clean(), read_all()],
        path: Path::Steps(|_| {
            vec![Step::Write(0..8, Durable), Step::Read(60..88), Step::Write(20..24, Buffered)]
        }),
        shows: |seen| seen.invalidations() > 1 && seen.before.pool.slots_dirty == 0,
        ..COMMON
    },
    Script {
        name: "modify-dirty",
        start: Start::Cold,
        applies: lazy,
        before: || {
            let reads = || Step::Read(60..ROWS);
            vec![clean(), Step::Write(0..16, Durable), reads(), reads(), name_oldest()]
        },
        path: Path::Steps(|_| {
            vec![Step::Write(0..8, Durable), Step::Read(60..88), Step::Write(0..4, Buffered)]
        }),
        shows: |seen| seen.invalidations() > 1 && seen.before.pool.slots_dirty > 2,
        ..COMMON
    },
    Script {
        name: "front",
        start: Start::Cold,
        applies: appended,
        slots: SOME,
        before: || vec![clean(), Step::Write(0..24, Durable), Step::Read(100..ROWS), name_oldest()],
        path: Path::Steps(|design| {
            let (reads, write) = (|| Step::Read(40..140), |rows| Step::Write(rows, Durable));
            let takes_clean = [Step::Read(0..24), reads(), write(60..76), reads()];
            let takes_changed = [write(60..100), reads(), write(120..160), reads()];
            Vec::from(if design.takes_clean_pages() { takes_clean } else { takes_changed })
        }),
        shows: |seen| {
            let (before, after) = (&seen.before.pool, &seen.after.pool);
            let again = after.second_chances - before.second_chances;
            let has_chance = matches!(
                seen.design.replacement,
                Replacement::FifoSecondChance | Replacement::BlockWeight
            );
            after.cleaner_pages > before.cleaner_pages && (again > 0) == has_chance
        },
        ..COMMON
    },
    Script {
        name: "front-bases",
        start: Start::Cold,
        applies: appended,
        slots: SOME,
        before: || vec![clean(), Step::Write(0..8, Durable), Step::Read(60..ROWS), name_oldest()],
        path: Path::Steps(|_| {
            let write = || Step::Write(0..8, Durable);
            let round = |rows| [write(), Step::Write(rows, Durable)];
            let rows = [40..76, 80..116, 120..156, 160..196];
            rows.into_iter().flat_map(round).collect()
        }),
        shows: |seen| {
            let (before, after) = (&seen.before.pool, &seen.after.pool);
            // Where only changed pages are admitted, they are fewer.
            after.cleaner_pages > before.cleaner_pages && seen.admissions() > u64::from(SOME) / 2
        },
        ..COMMON
    },
    Script {
        name: "lazy-clean",
        start: Start::Cold,
        applies: |design, _| design.cleaning.is_by_share(),
        lambda: 0.02,
        before: || vec![clean(), Step::Read(60..120)],
        path: Path::Steps(|_| {
            let rest = Step::Rest(Nanos(50_000_000));
            vec![Step::Write(0..32, Durable), Step::Read(120..ROWS), Step::Read(60..120), rest]
        }),
        shows: |seen| seen.after.pool.cleaner_pages > seen.before.pool.cleaner_pages,
        ..COMMON
    },
    Script {
        name: "switch",
        start: Start::Cold,
        applies: |design, _| design.replacement == Replacement::Chosen,
        forced_choice_misses: Some(4),
        before: || vec![clean(), Step::Write(0..24, Durable), Step::Read(60..120)],
        path: Path::Steps(|_| {
            let (write, reads) = (|rows| Step::Write(rows, Durable), || Step::Read(70..ROWS));
            vec![write(0..16), reads(), write(30..46), reads(), write(8..20), reads()]
        }),
        shows: |seen| {
            let changes = seen.after.pool.choice_changes - seen.before.pool.choice_changes;
            changes > 8 && seen.home_writes > 0 && seen.flash_writes > 3
        },
        ..COMMON
    },
    Script {
        name: "clean-ahead",
        start: Start::Cold,
        applies: |design, _| design.replacement.is_by_benefit(),
        slots: SOME,
        // More changed pages than slots: some stay on flash, whatever each benefits.
        before: || vec![clean(), Step::Write(0..120, Durable), Step::Read(60..120), name_oldest()],
        path: Path::Steps(|_| {
            // Pages that were read twice benefit more than what was written once.
            let reads = || [Step::Read(130..ROWS), Step::Rest(Nanos(50_000_000))];
            [reads(), reads(), reads()].into_iter().flatten().collect()
        }),
        shows: |seen| {
            let cleaned = seen.after.pool.cleaner_pages > seen.before.pool.cleaner_pages;
            cleaned && seen.admissions() > 0 && seen.before.pool.slots_dirty > 0
        },
        ..COMMON
    },
    Script {
        name: "age-clean",
        start: Start::Cold,
        applies: lazy,
        clean_age: Some(64 << 10),
        before: || vec![clean(), Step::Write(0..8, Durable), Step::Read(60..ROWS)],
        path: Path::Steps(|_| {
            let write = |rows| [Step::Write(rows, Durable), Step::Rest(Nanos(50_000_000))];
            let rows = [20..24, 28..32, 36..40];
            rows.iter().cycle().take(9).cloned().flat_map(write).collect()
        }),
        shows: |seen| {
            let cleaned = seen.after.pool.cleaner_pages - seen.before.pool.cleaner_pages;
            seen.before.pool.slots_dirty > 0 && cleaned > 0 && seen.home_writes > 0
        },
        ..COMMON
    },
    Script {
        name: "outlive",
        applies: takes_clean,
        before: || vec![read_all(), read_all()],
        path: Path::Steps(|_| {
            vec![
                Step::Write(0..8, Durable),
                Step::Checkpoint(Checkpoint::Sharp),
                Step::Write(100..104, Durable),
                Step::Checkpoint(Checkpoint::Indirect),
                Step::Checkpoint(Checkpoint::Indirect),
            ]
        }),
        shows: |seen| seen.invalidations() > 1 && seen.checkpoints() == 3 && seen.home_writes > 2,
        ..COMMON
    },
    Script {
        name: "checkpoint",
        applies: any,
        // Copies on flash change once more, so that the table has something to write.
        before: || {
            let change = [0..4, 16..20].map(|rows| Step::Write(rows, Durable));
            [dirty_everywhere(), change.into()].concat()
        },
        path: Path::Steps(|_| vec![Step::Checkpoint(Checkpoint::Indirect)]),
        shows: |seen| {
            let lazy = !seen.design.keeps_dirty_on_flash() || seen.before.pool.slots_dirty > 0;
            // FASC's table is told of a block when it is written, and FaCE's and CAC's keep fills
            // back: maybe nothing is left to say.
            let is_told = seen.restart.kind == RestartKind::MapChunks || keeps_back(&seen.restart);
            let table = !keeps_table(&seen.restart) || is_told || seen.flash_writes > 0;
            seen.before.pool.frames_dirty > 0 && lazy && table && seen.checkpoints() == 1
        },
        ..COMMON
    },
    Script {
        name: "cold-checkpoint",
        // GD2L and prices keep pages that are not on flash yet.
        applies: |design, restart| {
            let keeps = [MemoryPolicy::Gd2l, MemoryPolicy::Priced];
            lazy(design, restart) && !keeps.contains(&design.memory.policy(None))
        },
        before: || {
            let reads = || Step::Read(40..ROWS);
            vec![clean(), Step::Write(0..16, Durable), reads(), reads()]
        },
        path: Path::Steps(|_| vec![Step::Checkpoint(Checkpoint::Indirect), Step::Read(0..8)]),
        shows: |seen| {
            // What is appended may wait for others of its group.
            let waiting = u64::from(seen.design.batch().is_some());
            let on_flash_only = seen.before.pool.frames_dirty <= waiting;
            on_flash_only && seen.before.pool.slots_dirty > 0 && seen.checkpoints() == 1
        },
        ..COMMON
    },
    Script {
        name: "sharp-checkpoint",
        applies: any,
        before: dirty_everywhere,
        path: Path::Steps(|_| vec![Step::Checkpoint(Checkpoint::Sharp)]),
        shows: |seen| {
            let all = seen.after.pool.frames_dirty == 0 && seen.after.pool.slots_dirty == 0;
            seen.before.pool.frames_dirty > 0 && all && seen.checkpoints() == 1
        },
        ..COMMON
    },
    Script {
        name: "roll-back",
        applies: any,
        before: || vec![read_all(), Step::Hold(0..20), Step::Read(60..ROWS)],
        path: Path::Steps(|_| {
            vec![Step::RollBack, Step::Write(20..22, Durable), Step::Read(120..180)]
        }),
        shows: |seen| {
            let is_cached = seen.design.dirty_leave != DirtyLeave::Home;
            seen.records() > 12 && (!is_cached || seen.invalidations() > 1)
        },
        ..COMMON
    },
    Script {
        name: "reshape",
        applies: any,
        before: || vec![read_all()],
        path: Path::Steps(|_| vec![Step::Write(ROWS..ROWS + 12, Durable), Step::Remove(0..20)]),
        shows: |seen| seen.records() > 40 && seen.log_syncs > 1,
        ..COMMON
    },
    Script {
        name: "tables",
        applies: any,
        before: || vec![Step::Make(2)],
        path: Path::Steps(|_| vec![Step::Make(1), Step::Drop(2), Step::Make(2), Step::Drop(1)]),
        shows: |seen| seen.records() > 30 && seen.log_syncs > 3,
        ..COMMON
    },
    Script {
        name: "compact",
        applies: any,
        before: || vec![name_oldest(), Step::Make(1), Step::Make(2), read_all(), Step::Drop(2)],
        path: Path::Steps(|_| {
            let used_again = [Step::Write(0..16, Durable), Step::Make(2), read_all()];
            let thinned = [Step::Thin(0..ROWS), Step::Drop(1), Step::Compact];
            thinned.into_iter().chain(used_again).collect()
        }),
        shows: |seen| seen.records() > 200 && seen.log_syncs > 4,
        ..COMMON
    },
    Script {
        name: "gather",
        applies: any,
        pages: 2 * PAGES,
        before: || {
            let filled = [Step::Fill(1, 0..72, 8_192), Step::Fill(2, 0..24, 24_300)];
            let thinned = [Step::ThinOut(1, 0..72), Step::ThinOut(2, 0..24)];
            filled.into_iter().chain(thinned).chain([name_oldest()]).collect()
        },
        path: Path::Steps(|_| {
            let used_again = [Step::Fill(1, 0..3, 8_192), Step::Fill(2, 0..1, 24_300)];
            [Step::Gather].into_iter().chain(used_again).chain([read_all()]).collect()
        }),
        shows: |seen| seen.records() > 60 && seen.log_syncs > 2,
        ..COMMON
    },
    Script {
        name: "large",
        applies: any,
        pages: 2 * PAGES,
        // What they take was used by rows, and is dirty, or on flash.
        before: || vec![read_all(), Step::MakeLarge(1), name_oldest(), Step::Thin(0..ROWS)],
        path: Path::Steps(|_| {
            let replaced = [Step::MakeLarge(1), Step::Write(0..8, Durable), Step::Abandon(2)];
            let freed = [Step::Drop(1), Step::MakeLarge(2), read_all()];
            replaced.into_iter().chain(freed).collect()
        }),
        shows: |seen| seen.home_writes > 150 && seen.records() > 200,
        ..COMMON
    },
    Script {
        name: "blocks",
        applies: any,
        before: || vec![Step::Make(1), Step::Make(2), name_oldest()],
        path: Path::Steps(|_| {
            let overwritten = [Step::Make(1), Step::Make(1), Step::AbandonBlock(2), Step::Make(2)];
            let emptied = [Step::Empty(1), name_oldest(), Step::Make(1), Step::Drop(2)];
            overwritten.into_iter().chain(emptied).chain([read_all()]).collect()
        }),
        shows: |seen| seen.records() > 40 && seen.log_syncs > 6,
        ..COMMON
    },
    Script {
        name: "rest",
        applies: |design, restart| {
            design.uses_flash() && restart.kind == RestartKind::LazyVerification
        },
        before: dirty_everywhere,
        path: Path::Steps(|_| {
            vec![Step::Write(0..4, Durable), Step::Read(20..60), Step::Rest(LONG)]
        }),
        // Beside the pages, the table.
        shows: |seen| seen.flash_writes as u64 > seen.admissions(),
        ..COMMON
    },
    Script {
        name: "table",
        applies: |design, restart| design.uses_flash() && keeps_table(restart),
        // From clean copies, each of which is told of when its page changes.
        before: || vec![clean(), read_all()],
        path: Path::Steps(|_| {
            let write = |round: u32| Step::Write(round * 8..round * 8 + 2, Durable);
            let round = |round| [write(round), Step::Checkpoint(Checkpoint::Indirect)];
            (0..TABLE_ROUNDS).flat_map(round).collect()
        }),
        shows: |seen| {
            // What was kept back goes with what is told later, and pages of two rounds may be one.
            seen.flash_writes as u64 >= seen.admissions() + u64::from(TABLE_ROUNDS / 2)
        },
        ..COMMON
    },
    Script {
        name: "grow-log",
        applies: any,
        log_max: LOG_MAX,
        path: Path::Steps(|_| growth()),
        shows: |seen| seen.log_growth() > 0,
        ..COMMON
    },
    Script {
        name: "shrink-log",
        applies: any,
        log_max: LOG_MAX,
        before: growth,
        path: Path::Steps(|_| {
            // The second one knows that little is used.
            vec![clean(), Step::Write(0..2, Durable), clean()]
        }),
        shows: |seen| seen.log_growth() < 0 && seen.checkpoints() == 2,
        ..COMMON
    },
    Script {
        name: "close",
        applies: any,
        before: dirty_everywhere,
        path: Path::Steps(|_| vec![Step::Close]),
        shows: |seen| seen.before.pool.frames_dirty > 0 && seen.home_writes > 0,
        ..COMMON
    },
    Script {
        name: "reopen",
        applies: any,
        path: Path::Opening,
        shows: |seen| seen.home_writes > 0 && seen.log_syncs > 0,
        ..COMMON
    },
    Script {
        name: "recover",
        applies: any,
        start: Start::Crash,
        path: Path::Opening,
        shows: |seen| {
            let is_warm = seen.restart.kind != RestartKind::Forget;
            let undone = seen.after.transactions.rollbacks > 0 || seen.after.log.records > 4;
            undone && (seen.home_writes > 0 || is_warm) && seen.log_syncs > 0
        },
        ..COMMON
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_scripts() {
        for script in &SCRIPTS {
            assert!(std::ptr::eq(Script::find(script.name).expect("named"), script));
        }
    }
}
