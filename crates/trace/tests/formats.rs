//! Every format: a small file of it is recognized, and read as what it says, and nothing that is
//! done to its bytes makes a reader panic, loop or forget where it was.

use std::path::{Path, PathBuf};
use terrace_trace::{
    Addressing, BadField, BadInput, FORMATS, Format, Kind, Packing, PageBytes, Paging, Place,
    Problem, ReadOptions, Reader, Request, TraceError,
};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn open(name: &str) -> Reader {
    Reader::open(&data(name), &ReadOptions::default()).expect("a format that is told")
}

fn requests(name: &str, format: Format) -> Vec<Request> {
    let reader = open(name);
    assert_eq!(reader.format(), format, "{name}");
    reader.map(|request| request.expect("a whole file")).collect()
}

fn read(time_ns: u64, file: u32, address: u64, length: u32) -> Request {
    Request { time_ns, address, length, file, kind: Kind::Read }
}

fn write(time_ns: u64, file: u32, address: u64, length: u32) -> Request {
    Request { kind: Kind::Write, ..read(time_ns, file, address, length) }
}

/// A file of each format.
const FILES: [(&str, Format); 28] = [
    ("pg15.csv", Format::Pg15),
    ("arc.lis", Format::Arc),
    ("msr.csv", Format::Msr),
    ("financial.spc", Format::Spc),
    ("websearch.mqsim", Format::Mqsim),
    ("disksim.ascii", Format::Disksim),
    ("fio-2.log", Format::Fio),
    ("fio-3.log", Format::Fio),
    ("blkparse.txt", Format::Blkparse),
    ("alibaba.csv", Format::Alibaba),
    ("tencent.csv", Format::Tencent),
    ("tectonic.csv", Format::Tectonic),
    ("strace.txt", Format::Strace),
    ("vscsi-1.bin", Format::Vscsi),
    ("vscsi-2.bin", Format::Vscsi),
    ("oracle-general.bin", Format::OracleGeneral),
    ("pg15.compact", Format::Compact),
    ("fio-3.33.log", Format::Fio),
    ("fio-lat.log", Format::FioLog),
    ("ftrace.txt", Format::Ftrace),
    ("perf.txt", Format::Ftrace),
    ("blktrace.bin", Format::Blktrace),
    ("libcachesim.csv", Format::Csv),
    ("biosnoop.txt", Format::Csv),
    ("ids.txt", Format::Ids),
    ("bpftrace.csv", Format::Csv),
    ("blk-tracer.txt", Format::Ftrace),
    ("blktrace-6.18.bin", Format::Blktrace),
];
/// Formats that nothing tells from other bytes.
const NAMED: [Format; 2] = [Format::U32, Format::U64];

#[test]
fn every_format_has_a_file_here() {
    for row in &FORMATS {
        let is_told = FILES.iter().any(|file| file.1 == row.format);
        assert_eq!(is_told, !NAMED.contains(&row.format), "{}", row.name);
        for name in row.aliases.iter().chain([&row.name]) {
            assert_eq!(name.parse(), Ok(row.format));
            assert_eq!(name.to_uppercase().parse(), Ok(row.format));
        }
    }
    for (name, format) in FILES {
        assert!(!requests(name, format).is_empty());
        assert_eq!(open(name).format().name().parse(), Ok(format));
    }
}

const PG15: [Request; 5] = [
    Request { time_ns: 0, address: 881_852_416, length: 63, file: 126, kind: Kind::Write },
    Request { time_ns: 4_328_000, address: 881_852_416, length: 72, file: 126, kind: Kind::Write },
    Request { time_ns: 4_559_000, address: 16_384, length: 8192, file: 3, kind: Kind::Read },
    Request { time_ns: 5_362_000, address: 24_576, length: 8192, file: 3, kind: Kind::Read },
    Request { time_ns: 5_362_000, address: 16_384, length: 8192, file: 3, kind: Kind::Write },
];

#[test]
fn the_csv_of_postgresql_is_read() {
    assert_eq!(requests("pg15.csv", Format::Pg15), PG15);
    assert_eq!(requests("pg15.compact", Format::Compact), PG15);
    assert_eq!(open("pg15.compact").paging(), Paging::Split(PageBytes::DEFAULT));
}

#[test]
fn compressed_files_are_told_and_unpacked() {
    for (name, packing) in [
        ("pg15.csv", Packing::Plain),
        ("pg15.csv.zst", Packing::Zstd),
        ("pg15.csv.gz", Packing::Gzip),
        ("pg15.csv.xz", Packing::Xz),
    ] {
        assert_eq!(open(name).packing(), packing);
        assert_eq!(requests(name, Format::Pg15), PG15, "{name}");
        // Streams one after the other are one file.
        let twice = std::fs::read(data(name)).expect("a file").repeat(2);
        let options = ReadOptions { bad_input: BadInput::Skip, ..ReadOptions::default() };
        let reader = Reader::from_bytes(name, twice, &options).expect("told");
        assert_eq!(reader.filter(Result::is_ok).count(), 10, "{name}");
    }
}

#[test]
fn a_compressed_file_that_is_damaged_or_cut_off_says_so() {
    for name in ["pg15.csv.zst", "pg15.csv.gz", "pg15.csv.xz"] {
        let whole = std::fs::read(data(name)).expect("a file");
        // The checksum of the content is among the last bytes of zstd and gzip, and covers it.
        let mut damaged = whole.clone();
        let middle = whole.len() - if name.ends_with("xz") { 60 } else { 3 };
        damaged[middle] ^= 1;
        for bytes in [whole[..whole.len() - 12].to_vec(), damaged] {
            let format = Some(Format::Pg15);
            let options = ReadOptions { format, ..ReadOptions::default() };
            let reader = Reader::from_bytes(name, bytes.clone(), &options).expect("named");
            let last = reader.last().expect("an error at least");
            assert!(matches!(last, Err(TraceError::Packed { .. })), "{name}: {last:?}");
            let options =
                ReadOptions { format, bad_input: BadInput::Skip, ..ReadOptions::default() };
            let mut reader = Reader::from_bytes(name, bytes, &options).expect("named");
            assert!(reader.all(|request| request.is_ok()), "{name}");
        }
    }
}

#[test]
fn the_arc_papers_format_is_read() {
    let requests = requests("arc.lis", Format::Arc);
    assert_eq!(requests.len(), 12);
    assert_eq!(requests[0], read(0, 0, 512, 512));
    assert_eq!(requests[9], read(0, 0, 3147 * 512, 512));
    assert_eq!(open("arc.lis").paging(), Paging::Split(PageBytes::SECTOR));
}

#[test]
fn msr_cambridge_is_read() {
    assert_eq!(
        requests("msr.csv", Format::Msr),
        [
            read(12_816_637_200_306_162_900, 0, 383_496_192, 32_768),
            write(12_816_637_201_638_215_500, 1, 3_221_225_472, 4096),
            read(12_816_637_202_638_224_500, 0, 383_528_960, 32_768),
            write(12_816_637_203_638_224_500, 2, 0, 512),
        ]
    );
}

#[test]
fn the_storage_performance_councils_format_is_read() {
    assert_eq!(
        requests("financial.spc", Format::Spc),
        [
            write(551_706_000, 0, 20_941_264 * 512, 8192),
            write(554_041_000, 0, 20_939_840 * 512, 8192),
            read(1_011_732_000, 1, 3_436_288 * 512, 15_872),
            read(1_011_732_000, 1, 3_435_888 * 512, 512),
        ]
    );
}

#[test]
fn the_simulators_formats_are_read() {
    let search = requests("websearch.mqsim", Format::Mqsim);
    assert_eq!(search.len(), 12);
    assert_eq!(search[0], read(11_413_000, 0, 657_728 * 512, 8192));
    assert_eq!(search[1], read(11_565_000, 1, 31_244_784 * 512, 32_768));
    assert_eq!(
        requests("disksim.ascii", Format::Disksim),
        [
            read(0, 0, 2048 * 512, 8192),
            read(1_250_000, 0, 2064 * 512, 8192),
            write(3_500_000, 1, 999 * 512, 4096),
            read(12_000_001, 0, 2080 * 512, 512),
        ]
    );
}

#[test]
fn both_versions_of_fio_are_read() {
    let three =
        [read(5_000, 0, 0, 4096), write(155_000, 1, 8192, 16_384), read(170_000, 0, 4096, 4096)];
    assert_eq!(requests("fio-3.log", Format::Fio), three);
    let two = [read(0, 0, 0, 4096), write(150_000, 1, 8192, 16_384), read(150_000, 0, 4096, 4096)];
    assert_eq!(requests("fio-2.log", Format::Fio), two);
}

/// What bpftrace says of its probes was taken for the header, and the header for a bad line.
#[test]
fn what_bpftrace_says_before_the_header_is_left_out() {
    let requests = requests("bpftrace.csv", Format::Csv);
    let disk = 254 << 20;
    assert_eq!(requests[0], write(3_511_423_357_262, disk, 178_598_576 * 512, 8192));
    assert!(requests.iter().all(|request| request.kind == Kind::Write));
}

#[test]
fn of_the_tracer_blk_the_queued_requests_are_read() {
    let time = |us: u64| 3_614_937_000_000 + us * 1_000;
    assert_eq!(
        requests("blk-tracer.txt", Format::Ftrace),
        [
            read(time(868), 7 << 20, 31_616 * 512, 8192),
            read(time(914), 7 << 20, 388_112 * 512, 8192),
            read(time(918), 7 << 20, 442_064 * 512, 8192),
            write(time(924), 7 << 20, 246_416 * 512, 8192),
            read(time(928), 7 << 20, 210_704 * 512, 8192),
        ]
    );
}

/// The priority of a log without addresses was taken for an address.
#[test]
fn a_log_of_fio_without_addresses_is_no_trace() {
    let path = std::env::temp_dir().join(format!("fio-log-{}", std::process::id()));
    std::fs::write(&path, "0, 23454, 0, 8192, 0\n").expect("written");
    let options = ReadOptions { format: Some(Format::FioLog), ..ReadOptions::default() };
    let mut reader = Reader::open(&path, &options).expect("a named format");
    let error = reader.next().expect("a line").expect_err("no address").to_string();
    let unknown = Reader::open(&path, &ReadOptions::default()).err().expect("unknown").to_string();
    let _ = std::fs::remove_file(&path);
    assert!(error.contains("`address` is missing"), "{error}");
    assert!(unknown.contains("nearest is fio-log"), "{unknown}");
}

#[test]
fn of_blkparse_the_queued_requests_are_read() {
    assert_eq!(
        requests("blkparse.txt", Format::Blkparse),
        [
            read(0, 8 << 20, 64 * 512, 4096),
            write(1_829, 8 << 20, 223_490 * 512, 4096),
            read(500_000_001, 8 << 20 | 17, 512 * 512, 131_072),
        ]
    );
}

#[test]
fn the_clouds_block_traces_are_read() {
    assert_eq!(
        requests("alibaba.csv", Format::Alibaba),
        [
            write(1_577_808_000_000_046_000, 419, 15_790_080, 4096),
            read(1_577_808_000_000_312_000, 725, 40_960, 16_384),
            read(1_577_808_000_001_000_000, 419, 15_794_176, 4096),
        ]
    );
    assert_eq!(
        requests("tencent.csv", Format::Tencent),
        [
            read(1_538_323_200_000_000_000, 1063, 12_910_952 * 512, 65_536),
            write(1_538_323_200_000_000_000, 1063, 4096, 8192),
            read(1_538_323_201_000_000_000, 1326, 12_911_080 * 512, 65_536),
        ]
    );
}

#[test]
fn tectonic_is_read_with_its_counts() {
    let requests = requests("tectonic.csv", Format::Tectonic);
    // The last two lines stand for two requests each.
    assert_eq!(requests.len(), 9);
    assert_eq!(requests[0].length, 8_388_608);
    assert_eq!(requests[0].time_ns, 1_702_511_878_000_000_000);
    assert_eq!((requests[3].kind, requests[4].kind), (Kind::Write, Kind::Write));
    assert_eq!(requests[5], requests[6]);
    assert_eq!(requests[5].address % (1 << 38), 1_978_999);
    assert_eq!(requests[5].length, 12_349);
    let blocks: std::collections::BTreeSet<_> =
        requests.iter().map(|request| (request.file, request.address >> 38)).collect();
    assert_eq!(blocks.len(), 7);
}

#[test]
fn of_strace_what_was_transferred_is_read() {
    let requests = requests("strace.txt", Format::Strace);
    let found: Vec<_> = requests
        .iter()
        .map(|request| (request.kind, request.file, request.address, request.length))
        .collect();
    use Kind::{Read, Write};
    let expected = [
        (Read, 0, 1_048_576, 4096),
        (Write, 1, 0, 100),
        (Write, 1, 100, 8192),
        // Behind the seek.
        (Read, 1, 50, 10),
        (Write, 1, 5000, 2),
        (Read, 1, 7, 30),
        // By a duplicate, by a child, and by the parent again.
        (Read, 1, 60, 5),
        (Read, 1, 65, 7),
        (Read, 1, 72, 3),
        // Appended.
        (Write, 1, 8292, 3),
        (Write, 1, 8295, 3),
        // By threads.
        (Read, 1, 0, 11),
        (Read, 1, 1000, 11),
        (Read, 1, 0, 11),
        (Read, 1, 2000, 11),
        (Read, 1, 1000, 11),
        (Read, 1, 2000, 11),
        // While a call of another thread had not returned.
        (Write, 2, 40, 10),
        (Read, 1, 75, 5),
        // By a child that ran before the call that made it returned.
        (Read, 1, 80, 2),
    ];
    assert_eq!(found, expected);
    assert_eq!(requests[1].time_ns, 1_795_323_550_512_310_000);
    let under = Reader::open_strace(&data("strace.txt"), b"/data/other", BadInput::Refuse);
    assert_eq!(under.expect("a file").filter(Result::is_ok).count(), 1);
}

#[test]
fn both_versions_of_vscsi_are_read() {
    let expected = [
        write(5_633_898_368_802_000, 0, 42_932_745 * 512, 512),
        read(5_633_898_967_708_000, 0, 40_409_911 * 512, 6656),
        read(5_633_899_967_748_000, 0, (1 << 33) * 512, 65_536),
    ];
    for name in ["vscsi-1.bin", "vscsi-2.bin"] {
        assert_eq!(requests(name, Format::Vscsi), expected);
        let mut reader = open(name);
        assert!(reader.by_ref().all(|request| request.is_ok()));
        assert_eq!(reader.tally().other_events, 1);
    }
}

#[test]
fn requests_to_objects_are_read_with_any_number() {
    assert_eq!(
        requests("oracle-general.bin", Format::OracleGeneral),
        [
            read(5_633_898_000_000_000, 0, 42_932_745, 512),
            read(5_633_898_000_000_000, 0, 0xFFFF_FFFF_FFFF_FFF0, 6656),
            read(5_633_899_000_000_000, 0, 7, 0),
            read(5_633_900_000_000_000, 0, 42_932_745, 512),
        ]
    );
    let reader = open("oracle-general.bin");
    assert_eq!((reader.addressing(), reader.paging()), (Addressing::Objects, Paging::Whole));
}

fn from(text: &str, format: Option<Format>, bad_input: BadInput) -> Result<Reader, TraceError> {
    Reader::from_bytes("test", text, &ReadOptions { format, bad_input, ..ReadOptions::default() })
}

/// What is wrong with `text`, read as `format`.
fn wrong(text: &str, format: Format) -> (Place, BadField) {
    let reader = from(text, Some(format), BadInput::Refuse).expect("it is named");
    let error = reader.last().expect("an item").expect_err("an error at the end");
    let TraceError::Bad { place, what, .. } = error else { panic!("{error}") };
    (place, what)
}

#[test]
fn bad_lines_are_named_by_line_and_field() {
    for (text, format, line, field, problem) in [
        ("1,R,0,8192,1\n2,R,0,81", Format::Pg15, 2, "file", Problem::Missing),
        ("1,X,0,8192,1", Format::Pg15, 1, "op", Problem::UnknownWord),
        ("-1,R,0,8192,1", Format::Pg15, 1, "ts_us", Problem::Negative),
        ("99999999999999999999,R,0,1,1", Format::Pg15, 1, "ts_us", Problem::TooLarge),
        ("9999999999999999999,R,0,1,1", Format::Pg15, 1, "ts_us", Problem::TooLarge),
        ("1,R,-8,8192,1", Format::Pg15, 1, "lba_bytes", Problem::Negative),
        ("1,R,9223372036854775808,1,1", Format::Pg15, 1, "address", Problem::PastEnd),
        ("1,R,0,4294967296,1", Format::Pg15, 1, "size", Problem::TooLarge),
        ("1,R,0,8192,1,7", Format::Pg15, 1, "file", Problem::Extra),
        ("# note\n\n0,1,8192,W,-0.5", Format::Spc, 3, "timestamp", Problem::Negative),
        ("36028797018963968 1 0 0", Format::Arc, 1, "address", Problem::PastEnd),
        ("1 0 1 8388608 1", Format::Mqsim, 1, "length", Problem::TooLarge),
        ("1 0 1 8 2", Format::Mqsim, 1, "type", Problem::UnknownWord),
        ("0.5 0 1 8 x", Format::Disksim, 1, "flags", Problem::NotANumber),
        ("fio version 4 iolog\n", Format::Fio, 1, "header", Problem::UnknownWord),
        ("fio version 2 iolog\n/a read 0 1", Format::Fio, 2, "filename", Problem::UnknownFile),
        ("  8,0 3 1 0.5 7 Q R 5 - 8", Format::Blkparse, 1, "+", Problem::UnknownWord),
        ("1,1,1,3,1", Format::Tencent, 1, "type", Problem::UnknownWord),
        ("block_id,io_size,op_name\n", Format::Tectonic, 1, "io_offset", Problem::Missing),
    ] {
        let expected = (Place::Line(line), BadField { field, problem });
        assert_eq!(wrong(text, format), expected, "{text}");
    }
}

#[test]
fn a_bad_line_says_what_it_is_in_words() {
    let reader = from("1,R,0,8192,1\n2,R,zero,1,1\n", Some(Format::Pg15), BadInput::Refuse);
    let error = reader.expect("named").last().expect("an item").expect_err("an error");
    assert_eq!(error.to_string(), "test, line 2: field `lba_bytes` is no number");
}

#[test]
fn bad_lines_can_be_skipped_and_are_counted() {
    let text = "1,R,0,8192,1\nnonsense\n2,R,8192,8192,1\n\n3,R,0\n4,W,0,0,1\n";
    let mut reader = from(text, Some(Format::Pg15), BadInput::Skip).expect("named");
    let times: Vec<u64> = reader.by_ref().map(|request| request.unwrap().time_ns).collect();
    assert_eq!(times, [1_000, 2_000, 4_000]);
    assert_eq!(reader.tally().skipped, 2);
    let Some(TraceError::Bad { place, .. }) = &reader.tally().first_skipped else { panic!() };
    assert_eq!(*place, Place::Line(2));
    // Without, the requests before it come first, and nothing after.
    let reader = from(text, Some(Format::Pg15), BadInput::Refuse).expect("named");
    let items: Vec<bool> = reader.map(|item| item.is_ok()).collect();
    assert_eq!(items, [true, false]);
}

#[test]
fn a_line_without_end_is_one_bad_line() {
    let long = "9".repeat(1 << 20);
    let text = format!("1,R,0,8192,1\n{long}\n2,R,0,8192,1\r\n3,R,0,8192,1");
    let mut reader = from(&text, Some(Format::Pg15), BadInput::Skip).expect("named");
    assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 3);
    assert_eq!(reader.tally().skipped, 1);
    let expected = BadField { field: "line", problem: Problem::TooLong };
    assert_eq!(wrong(&text, Format::Pg15), (Place::Line(2), expected));
}

#[test]
fn times_that_go_back_are_kept_in_the_order_of_the_file() {
    let text = "5,R,0,8192,1\n3,R,8192,8192,1\n4,R,0,8192,1\n";
    let reader = from(text, Some(Format::Pg15), BadInput::Refuse).expect("named");
    let times: Vec<u64> = reader.map(|request| request.unwrap().time_ns).collect();
    assert_eq!(times, [5_000, 3_000, 4_000]);
}

#[test]
fn an_empty_file_is_an_empty_trace_of_a_named_format() {
    let error = from("", None, BadInput::Refuse).map(|_| ()).expect_err("nothing to tell by");
    assert!(matches!(error, TraceError::Empty { .. }));
    for row in FORMATS.iter().filter(|row| row.format != Format::Compact) {
        let reader = from("", Some(row.format), BadInput::Refuse).expect("named");
        assert_eq!(reader.count(), 0, "{}", row.name);
    }
    let compact = from("", Some(Format::Compact), BadInput::Refuse).map(|_| ());
    assert!(matches!(compact, Err(TraceError::Bad { .. })));
}

#[test]
fn an_unknown_format_lists_the_known() {
    for text in ["hello world\nthere\n", "1;2;3\n", "\u{0}\u{1}\u{2}"] {
        let error = from(text, None, BadInput::Refuse).map(|_| ()).expect_err("no format");
        let said = error.to_string();
        assert!(FORMATS.iter().all(|row| said.contains(row.name)), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let error = from("0;20941264;8192;W;0.5\n", None, BadInput::Refuse).map(|_| ());
    let said = error.expect_err("no format").to_string();
    assert!(said.contains("begins with `0;20941264;8192;W;0.5`; nearest is spc: `0,20"), "{said}");
    let said = "lru".parse::<Format>().expect_err("no format").to_string();
    assert!(said.starts_with("unknown format `lru`; known: compact, "), "{said}");
}

/// A file of columns whose first row was bad was in no known format.
/// Three lines of columns, 24 bytes together, were read as one binary record of libCacheSim.
#[test]
fn text_is_no_binary_record() {
    let text = "1,x,5,w\n2,y,6,r\n1,z,6,r\n";
    let error = from(text, None, BadInput::Refuse).map(|_| ()).expect_err("no format");
    assert!(error.to_string().contains("begins with `1,x,5,w`"), "{error}");
}

#[test]
fn a_header_tells_a_file_of_bad_rows() {
    let mut reader = from("time,page\n1,-4\n", None, BadInput::Refuse).expect("told");
    let error = reader.next().expect("a row").expect_err("a bad one").to_string();
    assert!(error.contains("line 2: field `page` is negative"), "{error}");
}

#[test]
fn records_that_are_cut_off_are_named() {
    for (name, bytes) in [("vscsi-1.bin", 32), ("vscsi-2.bin", 40), ("oracle-general.bin", 24)] {
        let whole = std::fs::read(data(name)).expect("a file");
        let reader = Reader::from_bytes(name, &whole[..3 * bytes + 7], &ReadOptions::default());
        let error = reader.expect("told").last().expect("an item").expect_err("cut off");
        let TraceError::Bad { place, what, .. } = error else { panic!("{error}") };
        assert_eq!(place, Place::Record { number: 4, offset: 3 * bytes as u64 });
        assert_eq!(what, BadField { field: "record", problem: Problem::Missing });
    }
}

#[test]
fn a_file_that_is_not_there_cannot_be_opened() {
    let error = Reader::open(&data("missing"), &ReadOptions::default()).map(|_| ());
    let said = error.expect_err("no file").to_string();
    assert!(said.contains("cannot open") && said.contains("missing"), "{said}");
}

/// Changes, cuts, repeats and joins bytes.
fn mutate(random: &mut fastrand::Rng, bytes: &mut Vec<u8>) {
    for _ in 0..random.usize(1..6) {
        let at = random.usize(..bytes.len().max(1)).min(bytes.len().saturating_sub(1));
        match random.u8(..6) {
            _ if bytes.is_empty() => bytes.push(random.u8(..)),
            0 => bytes[at] = random.u8(..),
            1 => bytes[at] ^= 1 << random.u8(..8),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, random.choice(*b"0-9.,x\n \xff\x00").expect("some")),
            4 => drop(bytes.remove(at)),
            _ => {
                let tail = bytes[at..].to_vec();
                bytes.extend(tail);
            }
        }
    }
}

#[test]
fn no_bytes_make_a_reader_panic_or_go_on_for_ever() {
    let names = FILES.iter().map(|file| file.0);
    for name in names.chain(["pg15.csv.zst", "pg15.csv.gz", "pg15.csv.xz"]) {
        let whole = std::fs::read(data(name)).expect("a file");
        let mut random = fastrand::Rng::with_seed(3);
        for step in 0..1_500 {
            let mut bytes = whole.clone();
            mutate(&mut random, &mut bytes);
            let format = match random.u8(..3) {
                0 => None,
                1 => FORMATS.get(random.usize(..FORMATS.len())).map(|row| row.format),
                _ => FILES.iter().find(|file| file.0 == name).map(|file| file.1),
            };
            let bad_input = if step % 2 == 0 { BadInput::Refuse } else { BadInput::Skip };
            let options = ReadOptions { format, bad_input, ..ReadOptions::default() };
            let Ok(reader) = Reader::from_bytes(name, bytes, &options) else { continue };
            let objects = reader.addressing() == Addressing::Objects;
            for request in reader.take(100_000).flatten() {
                assert!(objects || request.checked() == Ok(request), "{name} step {step}");
            }
        }
    }
}
