//! Tests of the log against models: laps, tears, lost futures, groups.

use std::sync::Arc;

use terrace_device::model::{Preset, SimDevice, build};
use terrace_device::{Device, FaultPlan, FaultyDevice, Keep, Store, read, write};
use terrace_page::{Lsn, PageId, TxnId};
use terrace_rt::{Prng, Virtual, VirtualConfig, World};

use super::header::Table;
use super::record::{Body, Draft, HEADER_BYTES};
use super::*;
use crate::{CopyFlaw, Error};

const DATABASE: u128 = 77;
const LOG_BYTES: u64 = 1 << 20;

fn in_world<T>(run: impl FnOnce() -> T) -> T {
    let config = VirtualConfig { seed: 1, switch_one_in: 0, cores: 1, stack_bytes: 64 << 10 };
    Virtual::new(config).run(run).expect("nobody waits for ever")
}

fn device(preset: Preset) -> Arc<dyn Device> {
    build(preset, World::current(), Store::new(LOG_BYTES, Keep::Plain))
}

/// Writes the header of a log of fixed size.
fn create(device: &dyn Device, database: u128) -> LogMap {
    let table = header::create(device, database, FIRST_LSN, LogShape::Fixed).expect("written");
    LogMap::new(table.layout, database)
}

fn map_of(device: &dyn Device) -> LogMap {
    header::open(device, DATABASE).expect("a log").map(DATABASE)
}

fn space_of(device: &Arc<dyn Device>, limit: u64) -> LogSpace {
    let header = header::open(&**device, DATABASE).expect("a log");
    LogSpace::new(Arc::clone(device), DATABASE, &header, limit)
}

/// A log of fixed size that begins at `start`, on blank memory.
fn log_at(device: &Arc<dyn Device>, epoch: u32, start: Lsn) -> Log {
    create(&**device, DATABASE);
    let space = space_of(device, LOG_BYTES);
    Log::open(Arc::clone(device), space, epoch, (start, start), Lsn::ZERO, &[0; BLOCK])
}

/// Where a byte of the stream lies.
fn place(log: &Log, position: u64) -> u64 {
    log.place().0.place(position).expect("it is there").0
}

fn draft(number: u64, pages: usize) -> Draft {
    let mut draft = Draft::default();
    let pages: Vec<PageId> = (0..pages as u64).map(PageId).collect();
    draft.buf_write(&pages, Lsn(number));
    draft
}

/// The numbers of the records between `from` and the end, and where that is.
fn numbers(device: &dyn Device, from: Lsn) -> (Vec<u64>, End) {
    let map = map_of(device);
    let end = map.end(from);
    let mut reader = LogReader::new(device, map, from, end);
    let mut numbers = Vec::new();
    while let Some(stored) = reader.next().expect("readable") {
        let Body::BufWrite { eol, pages } = stored.record.body else { panic!("{stored:?}") };
        assert!(pages.iter().enumerate().all(|(at, page)| page.0 == at as u64));
        numbers.push(eol.0);
    }
    (numbers, reader.end())
}

/// Appends, forces and truncates at random over many laps; what is kept is what a list keeps.
#[test]
fn the_ring_agrees_with_a_list() {
    for seed in 0..8 {
        in_world(|| {
            let mut prng = Prng::from_seed(seed);
            let device = device(Preset::Ram);
            let log = log_at(&device, 1, FIRST_LSN);
            let mut model: Vec<(Lsn, u64)> = Vec::new();
            let mut forced = FIRST_LSN;
            for number in 1..3000 {
                let mut draft = draft(number, prng.below(300) as usize);
                match log.append(&mut draft, Room::Forward) {
                    Ok(lsn) => model.push((lsn, number)),
                    Err(Error::LogFull { .. }) => {
                        log.force(log.end(), Level::Durable).expect("memory");
                        forced = log.end();
                        let keep = model.len() / 3;
                        log.truncate(model[keep].0);
                        model.drain(..keep);
                    }
                    Err(error) => panic!("{error}"),
                }
                if prng.below(10) == 0 {
                    log.force(log.end(), Level::Written).expect("memory");
                    forced = log.end();
                }
            }
            let expected: Vec<u64> =
                model.iter().filter(|(lsn, _)| *lsn < forced).map(|(_, n)| *n).collect();
            let (found, end) = numbers(&*device, log.start());
            assert_eq!(found, expected, "seed {seed}");
            assert_eq!(end.position, forced, "seed {seed}");
            assert!(log.end().0 > 3 * LOG_BYTES, "only {} bytes", log.end());
        });
    }
}

/// Whatever byte is wrong, the records before it stand, and it and those after it are dropped.
#[test]
fn a_torn_tail_is_dropped_at_every_byte() {
    in_world(|| {
        let device = device(Preset::Ram);
        let log = log_at(&device, 1, FIRST_LSN);
        let places: Vec<Lsn> = (0..12)
            .map(|number| log.append(&mut draft(number, 3), Room::Forward).expect("room"))
            .collect();
        log.force(log.end(), Level::Durable).expect("memory");
        let at_block = place(&log, FIRST_LSN.0);
        let mut whole = vec![0; BLOCK];
        read(&*device, at_block, &mut whole).expect("memory");
        for at in 0..(log.end().0 - FIRST_LSN.0) as usize {
            let mut torn = whole.clone();
            torn[at] ^= 0x55;
            write(&*device, at_block, &torn).expect("memory");
            let hit = Lsn(FIRST_LSN.0 + at as u64);
            let before = places.iter().filter(|&&lsn| lsn <= hit).count() as u64 - 1;
            let (found, end) = numbers(&*device, FIRST_LSN);
            assert_eq!(found, (0..before).collect::<Vec<_>>(), "byte {at}");
            assert_eq!(end.position, places[before as usize], "byte {at}");
        }
    });
}

/// A bug that epochs prevent: the first opening's second block survived, its first did not; the
/// second opening writes a record that ends just where the old one begins.
#[test]
fn what_a_lost_future_left_is_no_record() {
    in_world(|| {
        let device = device(Preset::Ram);
        let log = log_at(&device, 1, FIRST_LSN);
        let filler = (BLOCK - HEADER_BYTES - 8) / 8;
        let first = log.append(&mut draft(1, filler), Room::Forward).expect("room");
        log.append(&mut draft(2, 3), Room::Forward).expect("room");
        assert_eq!(log.end().0 - first.0, (BLOCK + HEADER_BYTES + 8 + 24) as u64);
        log.force(log.end(), Level::Durable).expect("memory");
        assert_eq!(numbers(&*device, FIRST_LSN).0, [1, 2]);

        let space = space_of(&device, LOG_BYTES);
        let kept = (FIRST_LSN, FIRST_LSN);
        let again = Log::open(Arc::clone(&device), space, 2, kept, Lsn::ZERO, &[0; BLOCK]);
        again.append(&mut draft(3, filler), Room::Forward).expect("room");
        again.force(again.end(), Level::Durable).expect("memory");
        assert_eq!(numbers(&*device, FIRST_LSN).0, [3]);
    });
}

#[test]
fn another_databases_records_are_none() {
    in_world(|| {
        let device = device(Preset::Ram);
        let log = log_at(&device, 1, FIRST_LSN);
        log.append(&mut draft(1, 1), Room::Forward).expect("room");
        log.force(log.end(), Level::Durable).expect("memory");
        assert!(matches!(header::open(&*device, 78), Err(Error::NotADatabase { .. })));
        let map = create(&*device, 78);
        let mut reader = LogReader::new(&*device, map, FIRST_LSN, Lsn(LOG_BYTES));
        assert!(reader.next().expect("readable").is_none());
    });
}

/// On a disk that takes a turn for each force, fifty clients share their forces.
#[test]
fn commits_are_forced_in_groups() {
    in_world(|| {
        let device = device(Preset::Sigmod2011Log);
        let log = Arc::new(log_at(&device, 1, FIRST_LSN));
        let begun = terrace_rt::now();
        let clients: Vec<_> = (0..50)
            .map(|client| {
                let log = Arc::clone(&log);
                terrace_rt::spawn("client", move || {
                    for _ in 0..20 {
                        let mut draft = draft(client, 10);
                        let lsn = log.append(&mut draft, Room::Forward).expect("room");
                        log.force(Lsn(lsn.0 + 1), Level::Durable).expect("a good disk");
                        assert!(log.durable_end() > lsn);
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(terrace_rt::Task::join);
        let forces = log.stats().forces;
        assert!((20..=60).contains(&forces), "{forces} forces for 1000 commits");
        let seconds = (terrace_rt::now() - begun).as_secs_f64();
        assert!(seconds < 1.0, "{seconds} s for 20 rounds");
        assert_eq!(numbers(&*device, FIRST_LSN).0.len(), 1000);
    });
}

#[test]
fn a_failed_write_latches() {
    in_world(|| {
        let faults = terrace_device::model::Faults {
            write_error_one_in: 1,
            ..terrace_device::model::Faults::default()
        };
        let good = device(Preset::Ram);
        create(&*good, DATABASE);
        let bad: Arc<dyn Device> = terrace_device::model::SimDevice::with_faults(
            Preset::Ram.spec(),
            World::current(),
            Store::new(LOG_BYTES, Keep::Plain),
            faults,
        );
        let space = space_of(&good, LOG_BYTES);
        let log = Log::open(bad, space, 1, (FIRST_LSN, FIRST_LSN), Lsn::ZERO, &[0; BLOCK]);
        log.append(&mut draft(1, 1), Room::Forward).expect("room");
        assert!(matches!(log.force(log.end(), Level::Durable), Err(Error::Failed { .. })));
        let appended = log.append(&mut draft(2, 1), Room::Forward);
        assert!(matches!(appended, Err(Error::Failed { .. })));
    });
}

#[test]
fn records_come_back_and_garbage_does_not() {
    let mut out = Draft::default();
    out.clr(TxnId(4), Lsn(9), (PageId(5), Lsn(3)), |out| out.extend([1, 2, 3]), Lsn(2));
    let sum = out.close(6, 0, 0);
    let bytes = out.seal(sum, Lsn(100), 1).to_vec();
    assert_eq!(record::verify(&bytes, Lsn(100), 1), Some(6));
    assert_eq!(record::verify(&bytes, Lsn(101), 1), None);
    let found = record::decode(&bytes).expect("a record");
    let (page, page_prev, undo_next) = (PageId(5), Lsn(3), Lsn(2));
    assert_eq!(found.body, Body::Clr { page, page_prev, change: &[1, 2, 3], undo_next });
    let mut prng = Prng::from_seed(3);
    for _ in 0..20_000 {
        let mut garbage = bytes.clone();
        for _ in 0..1 + prng.below(4) {
            let at = prng.below(garbage.len() as u64) as usize;
            garbage[at] = prng.next_u64() as u8;
        }
        garbage.truncate(prng.below(garbage.len() as u64 + 1) as usize);
        // Whatever it makes of it, it does not panic.
        let _record = record::decode(&garbage);
    }
}

/// Whether the end that a scan from the beginning finds is taken for damage.
fn ends_in_damage(device: &dyn Device, epoch: u32) -> (bool, End) {
    let map = map_of(device);
    let end = map.end(FIRST_LSN);
    let mut reader = LogReader::new(device, map, FIRST_LSN, end);
    while reader.next().expect("readable").is_some() {}
    match reader.check_end(epoch) {
        Ok(()) => (false, reader.end()),
        Err(Error::CorruptLog { .. }) => (true, reader.end()),
        Err(error) => panic!("{error}"),
    }
}

/// The bug: a sector zeroed in the middle of the log ended it without an error, and durable commits
/// behind it were gone. Random lives: whatever a power cut takes, the end is a torn tail; damage
/// before what some later record says was durable, or of a record that lies within one sector, is
/// reported.
#[test]
fn damage_within_the_log_is_told_and_a_torn_tail_is_none() {
    let (mut told, mut cut_short) = (0, 0);
    for seed in 0..300 {
        in_world(|| {
            let mut prng = Prng::from_seed(seed);
            let spec = Preset::Ram.spec().with_write_cache();
            let store = Store::new(LOG_BYTES, Keep::Plain);
            let mut sim = SimDevice::new(spec, World::current(), store);
            create(&*sim, DATABASE);
            sim.sync().expect("memory");
            let mut end = End { position: FIRST_LSN, last: Lsn::ZERO };
            for epoch in 1..=3 {
                let device: Arc<dyn Device> = Arc::clone(&sim) as Arc<dyn Device>;
                let log = reopened(&device, epoch, end);
                let mut proven = end.position;
                for number in 0..prng.below(120) {
                    let durable = log.durable_end();
                    let pages_max = if prng.chance(8) { 1500 } else { 20 };
                    let pages = prng.below(pages_max) as usize;
                    log.append(&mut draft(number, pages), Room::Forward).expect("room");
                    match prng.below(12) {
                        0..2 => log.force(log.end(), Level::Durable).expect("memory"),
                        2..5 => log.force(log.end(), Level::Written).expect("memory"),
                        _ => continue,
                    }
                    proven = durable;
                }
                if prng.chance(2) {
                    told += u64::from(flip(&sim, &log, (proven, epoch), &mut prng));
                }
                sim.power_cut(&mut prng);
                sim = sim.reopen(World::current());
                let (is_damage, found) = ends_in_damage(&*sim, epoch);
                assert!(!is_damage, "seed {seed}: a torn tail at {}", found.position);
                assert!(found.position >= log.durable_end(), "seed {seed}");
                cut_short += u64::from(found.position < log.end());
                end = found;
            }
        });
    }
    assert!(told > 50 && cut_short > 100, "{told} told, {cut_short} cut short");
}

/// The bug: the search for later records ended after 4 MiB without one, so a longer hole ended the
/// log without a word, and all commits behind it were gone.
#[test]
fn a_long_hole_in_the_log_is_told() {
    let log_bytes = 64 << 20;
    in_world(|| {
        let sim = SimDevice::new(
            Preset::Ram.spec(),
            World::current(),
            Store::new(log_bytes, Keep::Plain),
        );
        create(&*sim, DATABASE);
        let device: Arc<dyn Device> = Arc::clone(&sim) as Arc<dyn Device>;
        let log = reopened(&device, 1, End { position: FIRST_LSN, last: Lsn::ZERO });
        for number in 0..3000 {
            log.append(&mut draft(number, 1600), Room::Forward).expect("room");
            log.force(log.end(), Level::Durable).expect("memory");
        }
        let bytes = log.end().0;
        assert!(bytes > 36 << 20, "{bytes} bytes");
        let mut prng = Prng::from_seed(4);
        for hole in [1 << 20, 5 << 20, 8 << 20, 20 << 20] {
            for _ in 0..10 {
                let copy = SimDevice::new(Preset::Ram.spec(), World::current(), sim.store());
                let at = FIRST_LSN.0 + prng.below(bytes - hole - bytes / 8) / 512 * 512;
                write(&*copy, place(&log, at), &vec![0; hole as usize]).expect("memory");
                let (is_damage, found) = ends_in_damage(&*copy, 1);
                assert!(is_damage, "{hole} bytes gone at {at}: an end at {}", found.position);
            }
        }
    });
}

/// The log as an opening finds it that ends at `end`.
fn reopened(device: &Arc<dyn Device>, epoch: u32, end: End) -> Log {
    let mut reader = LogReader::new(&**device, map_of(&**device), FIRST_LSN, end.position);
    let tail = reader.block_at(end.position).expect("memory");
    let space = space_of(device, LOG_BYTES);
    Log::open(Arc::clone(device), space, epoch, (FIRST_LSN, end.position), end.last, &tail)
}

/// Damages a byte of a copy of the log, before what a record on the device has `proven` durable;
/// whether there is one.
fn flip(device: &SimDevice, log: &Log, (proven, epoch): (Lsn, u32), prng: &mut Prng) -> bool {
    if proven == FIRST_LSN {
        return false;
    }
    let copy = SimDevice::new(Preset::Ram.spec(), World::current(), device.store());
    let hit = FIRST_LSN.0 + prng.below(proven.0 - FIRST_LSN.0);
    let at = place(log, hit);
    let mut sector = vec![0; 512];
    let sector_at = at / 512 * 512;
    read(&*copy, sector_at, &mut sector).expect("memory");
    match prng.chance(2) {
        true => sector.fill(0),
        false => sector[(at % 512) as usize] ^= 1 << prng.below(8),
    }
    write(&*copy, sector_at, &sector).expect("memory");
    let (is_damage, found) = ends_in_damage(&*copy, epoch);
    assert!(found.position.0 <= hit, "the scan has read what was damaged");
    assert!(is_damage, "{hit} damaged, {proven} durable: an end at {}", found.position);
    true
}

/// The bug: a power cut kept the last sector of a record from the device, which had the same bytes
/// there from the ring's lap before, and the database was refused: what followed them was taken for
/// a damaged record.
#[test]
fn a_last_sector_that_an_older_lap_left_is_a_torn_tail() {
    in_world(|| {
        let device = device(Preset::Ram);
        let log = log_at(&device, 1, FIRST_LSN);
        let mut tried = 0;
        for number in 0..200 {
            let first = log.append(&mut draft(number, 100), Room::Forward).expect("room");
            log.force(log.end(), Level::Durable).expect("memory");
            let end = log.end().0;
            let sector_at = end / 512 * 512;
            if first.0 >= sector_at || end == sector_at {
                continue;
            }
            tried += 1;
            let at = place(&log, sector_at);
            let mut kept = vec![0; 512];
            read(&*device, at, &mut kept).expect("memory");
            let mut older = kept.clone();
            older[(end - sector_at) as usize..].fill(0xa5);
            write(&*device, at, &older).expect("memory");
            let (is_damage, found) = ends_in_damage(&*device, 1);
            assert!(!is_damage && found.position.0 == end, "{end}: {found:?}");
            write(&*device, at, &kept).expect("memory");
        }
        assert!(tried > 50, "{tried} records end in a sector of their own");
    });
}

/// The last commit before a long silence is distinguished from a torn tail, too; and silence costs
/// one record.
#[test]
fn an_idle_log_witnesses_what_was_forced_last() {
    in_world(|| {
        let device = device(Preset::Ram);
        let log = log_at(&device, 1, FIRST_LSN);
        let last = (0..40).map(|number| log.append(&mut draft(number, 100), Room::Forward));
        let last = last.last().expect("some").expect("room");
        log.force(log.end(), Level::Durable).expect("memory");
        let at = place(&log, last.0 / 512 * 512);
        let lose = || write(&*device, at, &[0; 512]).expect("memory");
        let mut kept = vec![0; 512];
        read(&*device, at, &mut kept).expect("memory");
        lose();
        assert!(!ends_in_damage(&*device, 1).0, "as after a torn write");
        write(&*device, at, &kept).expect("memory");
        for _ in 0..3 {
            log.witness().expect("memory");
        }
        assert_eq!(log.stats().records, 41);
        log.force(log.end(), Level::Durable).expect("memory");
        log.witness().expect("memory");
        assert_eq!(log.stats().records, 41);
        lose();
        assert!(ends_in_damage(&*device, 1).0);
    });
}

#[test]
fn what_was_durable_comes_back_from_three_bytes() {
    let mut prng = Prng::from_seed(5);
    for _ in 0..100_000 {
        let end = prng.below(1 << 40);
        let durable = end.saturating_sub(prng.below(1 << 28));
        let lsn = end + prng.below(1 << 20);
        let mut out = Draft::default();
        out.begin_checkpoint();
        let sum = out.close(1, durable, end);
        let said = record::durable_before(out.seal(sum, Lsn(lsn), 1), Lsn(lsn));
        let is_far = end - durable >= 1 << 27;
        let expected = Lsn(durable / 16 * 16);
        assert!(said == Some(expected) || (is_far && said.is_none()), "{durable} {lsn}: {said:?}");
    }
}

/// A copy of the header with a flipped bit of its version, or one that could not be read, refused
/// the log, though the other copy was whole.
#[test]
fn the_whole_header_stands_in_for_a_bad_one() {
    for shape in [LogShape::Fixed, LogShape::Growing] {
        in_world(|| stands_in(shape));
    }
}

fn stands_in(shape: LogShape) {
    let log = device(Preset::Ram);
    let table = header::create(&*log, DATABASE, FIRST_LSN, shape).expect("written");
    let flaw_of = |device: &dyn Device, case: &str| {
        let header = header::open(device, DATABASE).unwrap_or_else(|e| panic!("{case}: {e}"));
        // The caller that repairs it says how long the log may get.
        assert_eq!(Table { limit: 0, ..header.table }, table, "{case}");
        header.bad.map(|bad| (bad.offset, bad.flaw))
    };
    let repair = |device: Arc<dyn Device>| {
        let header = header::open(&*device, DATABASE).expect("a whole copy");
        LogSpace::new(device, DATABASE, &header, LOG_BYTES).tidy().expect("memory");
    };
    for at in [0, BLOCK as u64] {
        let mut whole = [0; BLOCK];
        read(&*log, at, &mut whole).expect("memory");
        for byte in 0..BLOCK {
            let mut damaged = whole;
            damaged[byte] ^= 1 << (byte % 8);
            write(&*log, at, &damaged).expect("memory");
            let case = format!("byte {byte} of the copy at {at}");
            assert_eq!(flaw_of(&*log, &case), Some((at, CopyFlaw::Damaged)), "{case}");
        }
        write(&*log, at, &[0; BLOCK]).expect("memory");
        assert_eq!(flaw_of(&*log, "zeroes"), Some((at, CopyFlaw::Blank)));
        repair(Arc::clone(&log));
        assert_eq!(flaw_of(&*log, "repaired"), None);

        let faulty = FaultyDevice::new(Arc::clone(&log), FaultPlan::default());
        faulty.set_unreadable(at + 512..at + 1024);
        assert_eq!(flaw_of(&*faulty, "unreadable"), Some((at, CopyFlaw::Unreadable)));
        repair(faulty.clone());
        assert_eq!(flaw_of(&*faulty, "written again"), None);
        faulty.set_unreadable(0..header::HEADERS_BYTES);
        let refused = header::open(&*faulty, DATABASE);
        assert!(matches!(refused, Err(Error::Device { .. })), "{refused:?}");
    }
}

/// What a newer version has written as a whole is refused, whatever the other copy says.
#[test]
fn a_whole_header_of_a_newer_version_is_refused() {
    in_world(|| {
        for at in [0, BLOCK as u64] {
            let log = device(Preset::Ram);
            header::create(&*log, DATABASE, FIRST_LSN, LogShape::Growing).expect("written");
            let mut block = [0; BLOCK];
            read(&*log, at, &mut block).expect("memory");
            block[8] += 1;
            block[12..16].fill(0);
            let checksum = crc32c::crc32c(&block);
            block[12..16].copy_from_slice(&checksum.to_le_bytes());
            write(&*log, at, &block).expect("memory");
            let refused = header::open(&*log, DATABASE);
            assert!(matches!(refused, Err(Error::NewerFormat { .. })), "{refused:?}");
        }
    });
}
