//! What the tools of today write, and texts with columns: each is read as what it says.

use std::path::{Path, PathBuf};
use terrace_trace::{Addressing, Format, Kind, Paging, ReadOptions, Reader, Request};

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

fn named(text: &str, format: Format) -> Reader {
    let options = ReadOptions { format: Some(format), ..ReadOptions::default() };
    Reader::from_bytes("test", text, &options).expect("named")
}

#[test]
fn what_fio_writes_today_is_read() {
    let requests = requests("fio-lat.log", Format::FioLog);
    assert_eq!(requests[0], read(0, 0, 57_344, 8192));
    assert_eq!(requests.len(), 6);
    assert!(!self::requests("fio-3.33.log", Format::Fio).is_empty());
}

#[test]
fn the_block_tracepoints_are_read() {
    let device = 7 << 20;
    assert_eq!(
        requests("ftrace.txt", Format::Ftrace),
        [
            read(1_120_584_386_000, device, 0, 8192),
            read(1_120_584_468_000, device, 8192, 8192),
            write(1_120_586_307_000, device, 81_920, 8192),
        ]
    );
    assert_eq!(
        requests("perf.txt", Format::Ftrace),
        [read(1_121_302_836_000, device, 0, 8192), read(1_121_302_892_000, device, 8192, 8192)]
    );
    assert_eq!(
        requests("blktrace.bin", Format::Blktrace),
        [read(100, 8 << 20, 64 * 512, 4096), write(1_829, 8 << 20, 223_490 * 512, 4096)]
    );
}

#[test]
fn columns_are_read_by_their_header() {
    let second = 1_000_000_000;
    assert_eq!(
        requests("libcachesim.csv", Format::Csv),
        [
            write(33_898 * second, 0, 42_932_745 * 512, 512),
            read(33_899 * second, 0, 40_409_911 * 512, 6_656),
        ][..],
    );
    assert_eq!(
        requests("biosnoop.txt", Format::Csv),
        [write(0, 0, 13_092_560 * 512, 4096), read(109_000, 0, 13_092_568 * 512, 8192)]
    );
}

fn with_columns(text: &str, columns: &str) -> Vec<Result<Request, String>> {
    let columns = Some(columns.parse().expect("columns"));
    let options = ReadOptions { columns, ..ReadOptions::default() };
    let reader = Reader::from_bytes("test", text, &options).expect("columns");
    reader.map(|item| item.map_err(|error| error.to_string())).collect()
}

#[test]
fn columns_are_read_by_their_numbers_and_names() {
    let page =
        |time_ns, page: u64, kind| Ok(Request { kind, ..read(time_ns, 0, page * 8192, 8192) });
    let expected = [page(5_000_000_000, 3, Kind::Read), page(6_500_000_000, 4, Kind::Write)];
    assert_eq!(with_columns("5,x,3,get\n6.5,y,4,set\n", "time=1,page=3,op=4"), expected);
    assert_eq!(with_columns("t;p;o\n5;3;R\n6.5;4;W\n", "time=t,page=p,op=o"), expected);
    assert_eq!(with_columns("t p o\n5 3 R\n6.5 4 W\n", "time=1,page=2,op=3"), expected);
    assert_eq!(with_columns("5000 3 R\n6500 4 W\n", "time=1:ms,page=2,op=3"), expected);
    // After 2100 in seconds, and so in microseconds.
    let late = with_columns("1700000000000000,3\n", "time=1,page=2");
    assert_eq!(late, [page(1_700_000_000_000_000_000, 3, Kind::Read)]);
    let object = with_columns("a,1\nb,1\na,1\n", "id=1");
    let ids: Vec<u64> = object.into_iter().map(|item| item.expect("an id").address).collect();
    assert!(ids[0] == ids[2] && ids[0] != ids[1]);
}

#[test]
fn columns_that_are_not_there_are_named() {
    for (text, columns, said) in [
        ("1,2\n", "time=1,page=3", "test, line 1: field `page` is missing"),
        ("1,2\n3,x\n", "time=1,page=2", "test, line 2: field `page` is no number"),
        ("a,b\n1,2\n", "page=c", "test, line 1: field `header` is missing"),
        ("1,-2\n3,-4\n", "time=1,page=2", "test, line 1: field `page` is negative"),
        ("1,99999999999999999999\n", "page=2", "field `page` is too large"),
        ("1,2,?\n", "page=2,op=3", "field `op` is none of the known words"),
    ] {
        let last = with_columns(text, columns).pop().expect("an item");
        let error = last.expect_err(text);
        assert!(error.contains(said), "{text}: {error}");
    }
}

#[test]
fn ids_are_read_as_lines_and_as_arrays() {
    let ids = |reader: Reader| {
        assert_eq!(reader.addressing(), Addressing::Objects);
        assert_eq!(reader.paging(), Paging::Whole);
        reader.map(|request| request.expect("whole").address).collect::<Vec<u64>>()
    };
    assert_eq!(ids(open("ids.txt")), [7, 42, 7, u64::MAX]);
    let names = ids(named("shoes\nhats\nshoes\n", Format::Ids));
    assert!(names[0] == names[2] && names[0] != names[1]);
    let numbers = [7_u32, 42, 7];
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let options = ReadOptions { format: Some(Format::U32), ..ReadOptions::default() };
    assert_eq!(ids(Reader::from_bytes("u32", bytes, &options).expect("named")), [7, 42, 7]);
    let bytes: Vec<u8> = [1_u64 << 40, 9].iter().flat_map(|number| number.to_le_bytes()).collect();
    let options = ReadOptions { format: Some(Format::U64), ..ReadOptions::default() };
    assert_eq!(ids(Reader::from_bytes("u64", bytes, &options).expect("named")), [1 << 40, 9]);
}

#[test]
fn what_is_submitted_at_once_are_several_requests() {
    let block = |kind: &str, descriptor: &str, offset: u32| {
        format!(
            "{{aio_data=0, aio_lio_opcode=IOCB_CMD_{kind}, aio_fildes={descriptor}, \
             aio_buf=0x55, aio_nbytes=8192, aio_offset={offset}}}"
        )
    };
    let blocks = [
        block("PREAD", "6</d/a>", 0),
        block("PWRITE", "7</d/b>", 40_960),
        block("FSYNC", "7</d/b>", 0),
        block("PREAD", "8<socket:[1]>", 0),
        block("PREAD", "6</d/a>", 8192),
    ];
    let text = format!("7 1.5 io_submit(0x7f, 5, [{}]) = 4\n", blocks.join(", "));
    let reader = named(&text, Format::Strace);
    let requests: Vec<Request> = reader.map(|request| request.expect("whole")).collect();
    let time = 1_500_000_000;
    assert_eq!(requests, [read(time, 0, 0, 8192), write(time, 1, 40_960, 8192)]);
}

#[test]
fn the_paths_of_a_trace_are_known() {
    let mut reader = open("strace.txt");
    assert!(reader.has_paths());
    reader.by_ref().for_each(drop);
    assert!(reader.file_path(0).is_some_and(|path| path.starts_with(b"/")));
    assert!(!open("pg15.csv").has_paths());
}
