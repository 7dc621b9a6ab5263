//! What `strace -f -ttt -yy` writes of a program's files.
//!
//! ```text
//! 13096 1795323550.512188 openat(AT_FDCWD</tmp>, "data", O_RDWR) = 3</tmp/data>
//! 13096 1795323550.512310 write(3</tmp/data>, ""..., 100) = 100
//! 13096 1795323550.512550 pread64(3</tmp/data>, ""..., 8192, 16384) = 8192
//! 13098 1795323550.979000 read(3</tmp/data>,  <unfinished ...>
//! 13098 1795323550.979595 <... read resumed>""..., 4096) = 18
//! ```
//!
//! - T1: a file is its path, numbered in the order of the first request. Pipes, sockets, terminals
//!   and what lies below `/proc`, `/sys` and `/dev` are no files, but block devices are.
//! - T2: a request is what was transferred, when the call returned; nothing is one that was not.
//! - T3: calls without an offset go on where the last such call of the same opening ended,
//!   whichever process made it: openings are shared by `dup` and by the children of a process, and
//!   tables of them by its threads.
//! - T4: a file opened for appending is written at the end as far as that was seen.
//!
//! - T5: of `io_submit` each request is one that it submitted, as long as it was asked to be.
//!
//! Not seen: mapped files, io_uring. Source: the manual page strace(1).

use crate::error::{BadField, Problem};
use crate::fields::{decimal, whole};
use crate::files::FileNames;
use crate::lines::ParseLine;
use crate::request::{Kind, Request, bytes_length};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

const SECOND_NS: u64 = 1_000_000_000;
/// Processes and threads that a trace may have at once.
const PROCESSES_MAX: usize = 1 << 16;
/// Openings that a process may have at once.
const OPENINGS_MAX: usize = 1 << 16;

/// An opening of a file: where the next call without an offset goes on.
struct Opening {
    position: Cell<u64>,
    appends: bool,
}

/// The openings of a process, by descriptor; threads share one.
type Table = Rc<RefCell<BTreeMap<u64, Rc<Opening>>>>;

/// Lines of such a file.
#[derive(Default)]
pub struct Strace {
    /// Only files whose path begins like this.
    under: Vec<u8>,
    files: FileNames,
    /// Of each file, the end as far as it was seen.
    ends: BTreeMap<u32, u64>,
    tables: BTreeMap<u64, Table>,
    /// Calls that have not returned, by process.
    unfinished: BTreeMap<u64, Vec<u8>>,
    /// The process that was last seen making another one.
    parent: Option<(u64, bool)>,
    /// Requests that were submitted with the last, in their order.
    further: VecDeque<Request>,
}

/// A call that has returned.
struct Call<'a> {
    process: u64,
    time_ns: u64,
    name: &'a [u8],
    arguments: &'a [u8],
    result: &'a [u8],
}

impl Strace {
    /// Only of files whose path begins with `under`.
    pub fn under(under: Vec<u8>) -> Strace {
        Strace { under, ..Strace::default() }
    }
}

impl ParseLine for Strace {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, BadField> {
        self.further.clear();
        let (process, time_ns, text) = heading(line)?;
        if text.starts_with(b"+++") {
            self.tables.remove(&process);
            self.unfinished.remove(&process);
            return Ok(None);
        }
        if text.starts_with(b"---") {
            return Ok(None);
        }
        if let Some(begun) = text.strip_suffix(b"<unfinished ...>") {
            self.begin(process, begun)?;
            return Ok(None);
        }
        // Strace has left the process before the call returned.
        if text.ends_with(b"<detached ...>") {
            return Ok(None);
        }
        let joined;
        let whole = match text.strip_prefix(b"<... ") {
            Some(rest) => {
                joined = self.resume(process, rest)?;
                &joined
            }
            None => text,
        };
        let (name, rest) = split_at(whole, b"(").ok_or(missing("call"))?;
        let (arguments, result) = result(rest).ok_or(missing("result"))?;
        self.call(&Call { process, time_ns, name, arguments, result })
    }

    fn further(&mut self) -> Option<Request> {
        self.further.pop_front()
    }

    fn paths(&self) -> Option<&FileNames> {
        Some(&self.files)
    }
}

impl Strace {
    fn begin(&mut self, process: u64, text: &[u8]) -> Result<(), BadField> {
        if is_fork(text) {
            self.parent = Some((process, has(text, b"CLONE_FILES")));
        }
        if self.unfinished.len() >= PROCESSES_MAX {
            return Err(BadField { field: "process", problem: Problem::TooLarge });
        }
        self.unfinished.insert(process, text.trim_ascii_end().to_vec());
        Ok(())
    }

    /// The call that `rest` is the end of: `name resumed>` and what is left of it.
    fn resume(&mut self, process: u64, rest: &[u8]) -> Result<Vec<u8>, BadField> {
        let (_, rest) = split_at(rest, b">").ok_or(missing("call"))?;
        let unknown = BadField { field: "call", problem: Problem::Contradiction };
        let mut text = self.unfinished.remove(&process).ok_or(unknown)?;
        text.extend_from_slice(rest);
        Ok(text)
    }

    fn call(&mut self, call: &Call<'_>) -> Result<Option<Request>, BadField> {
        if call.result.starts_with(b"-") || call.result.starts_with(b"?") {
            return Ok(None);
        }
        match call.name {
            b"read" | b"readv" => self.transfer(call, Kind::Read, None),
            b"write" | b"writev" => self.transfer(call, Kind::Write, None),
            b"pread64" | b"preadv" => self.transfer(call, Kind::Read, Some(0)),
            b"pwrite64" | b"pwritev" => self.transfer(call, Kind::Write, Some(0)),
            b"preadv2" => self.transfer(call, Kind::Read, Some(1)),
            b"pwritev2" => self.transfer(call, Kind::Write, Some(1)),
            b"open" | b"openat" | b"openat2" | b"creat" => {
                let appends = has(call.arguments, b"O_APPEND");
                self.open(call, Rc::new(Opening { position: Cell::new(0), appends }))
            }
            b"io_submit" => self.submit(call),
            b"dup" | b"dup2" | b"dup3" | b"fcntl" => self.duplicate(call),
            b"lseek" => {
                let position = leading(call.result).ok_or(bad("result"))?;
                self.opening(call)?.position.set(position);
                Ok(None)
            }
            b"close" => {
                let descriptor = leading(call.arguments).ok_or(bad("descriptor"))?;
                self.table(call.process)?.borrow_mut().remove(&descriptor);
                Ok(None)
            }
            name if is_fork(name) => self.fork(call),
            _ => Ok(None),
        }
    }

    /// A read or write; its offset is a number of arguments before the last, or where the opening
    /// is.
    fn transfer(
        &mut self,
        call: &Call<'_>,
        kind: Kind,
        offset_before: Option<usize>,
    ) -> Result<Option<Request>, BadField> {
        let transferred = leading(call.result).ok_or(bad("result"))?;
        let Some(path) = file_path(call.arguments) else { return Ok(None) };
        if transferred == 0 || !path.starts_with(&self.under) {
            return Ok(None);
        }
        let path = path.to_vec();
        let given = match offset_before {
            None => None,
            // -1 stands for the position of the opening.
            Some(before) => match argument_from_end(call.arguments, before) {
                Some(b"-1" | b"18446744073709551615") if before == 1 => None,
                Some(offset) => Some(whole(offset).map_err(|_| bad("offset"))?),
                None => return Err(missing("offset")),
            },
        };
        let length = bytes_length(transferred)?;
        let file = self.files.number(&[&path])?;
        let opening = self.opening(call)?;
        let end = self.ends.entry(file).or_insert(0);
        let address = match given {
            Some(offset) => offset,
            None if opening.appends && kind == Kind::Write => *end,
            None => opening.position.get(),
        };
        let request = Request { time_ns: call.time_ns, address, length, file, kind }.checked()?;
        *end = request.end().max(*end);
        if given.is_none() {
            opening.position.set(request.end());
        }
        Ok(Some(request))
    }

    /// What an `io_submit` submitted (T5).
    fn submit(&mut self, call: &Call<'_>) -> Result<Option<Request>, BadField> {
        let submitted = leading(call.result).ok_or(bad("result"))? as usize;
        let blocks = call.arguments.split(|byte| *byte == b'{');
        for block in blocks.filter(|block| has(block, b"aio_lio_opcode=")).take(submitted) {
            let kind = match value(block, b"aio_lio_opcode=") {
                Some(read) if read.starts_with(b"IOCB_CMD_PREAD,") => Kind::Read,
                Some(write) if write.starts_with(b"IOCB_CMD_PWRITE,") => Kind::Write,
                _ => continue,
            };
            let Some(path) = value(block, b"aio_fildes=").and_then(file_path) else { continue };
            if !path.starts_with(&self.under) {
                continue;
            }
            let number = |name: &[u8], field| {
                value(block, name).and_then(leading).ok_or(BadField { field, ..missing("") })
            };
            let length = bytes_length(number(b"aio_nbytes=", "length")?)?;
            let address = number(b"aio_offset=", "offset")?;
            let file = self.files.number(&[path])?;
            let request = Request { time_ns: call.time_ns, address, length, file, kind };
            let request = request.checked()?;
            let end = self.ends.entry(file).or_insert(0);
            *end = request.end().max(*end);
            self.further.push_back(request);
        }
        Ok(self.further.pop_front())
    }

    fn open(&mut self, call: &Call<'_>, opening: Rc<Opening>) -> Result<Option<Request>, BadField> {
        let descriptor = leading(call.result).ok_or(bad("result"))?;
        let table = self.table(call.process)?;
        let mut table = table.borrow_mut();
        if table.len() >= OPENINGS_MAX {
            return Err(BadField { field: "descriptor", problem: Problem::TooLarge });
        }
        table.insert(descriptor, opening);
        Ok(None)
    }

    fn duplicate(&mut self, call: &Call<'_>) -> Result<Option<Request>, BadField> {
        if call.name == b"fcntl" && !has(call.arguments, b"F_DUPFD") {
            return Ok(None);
        }
        let opening = self.opening(call)?;
        self.open(call, opening)
    }

    fn fork(&mut self, call: &Call<'_>) -> Result<Option<Request>, BadField> {
        self.parent = None;
        let child = leading(call.result).ok_or(bad("result"))?;
        let threads = has(call.arguments, b"CLONE_FILES");
        if !self.tables.contains_key(&child) {
            let table = self.inherited(call.process, threads)?;
            self.tables.insert(child, table);
        }
        Ok(None)
    }

    /// The table of a child of `parent`: its own, or the same.
    fn inherited(&mut self, parent: u64, is_shared: bool) -> Result<Table, BadField> {
        let table = self.table(parent)?;
        Ok(if is_shared { table } else { Rc::new(RefCell::new(table.borrow().clone())) })
    }

    fn table(&mut self, process: u64) -> Result<Table, BadField> {
        if let Some(table) = self.tables.get(&process) {
            return Ok(table.clone());
        }
        if self.tables.len() >= PROCESSES_MAX {
            return Err(BadField { field: "process", problem: Problem::TooLarge });
        }
        // A child may be seen before the call that makes it has returned.
        let table = match self.parent.take() {
            Some((parent, is_shared)) if self.tables.contains_key(&parent) => {
                self.inherited(parent, is_shared)?
            }
            _ => Table::default(),
        };
        self.tables.insert(process, table.clone());
        Ok(table)
    }

    /// The opening that is the first argument of `call`: one that was inherited unseen is at 0.
    fn opening(&mut self, call: &Call<'_>) -> Result<Rc<Opening>, BadField> {
        let descriptor = leading(call.arguments).ok_or(bad("descriptor"))?;
        let table = self.table(call.process)?;
        let mut table = table.borrow_mut();
        if table.len() >= OPENINGS_MAX {
            return Err(BadField { field: "descriptor", problem: Problem::TooLarge });
        }
        let unseen = || Rc::new(Opening { position: Cell::new(0), appends: false });
        Ok(table.entry(descriptor).or_insert_with(unseen).clone())
    }
}

fn missing(field: &'static str) -> BadField {
    BadField { field, problem: Problem::Missing }
}

fn bad(field: &'static str) -> BadField {
    BadField { field, problem: Problem::NotANumber }
}

/// The process, the time, and what follows; the process is missing without `-f`.
fn heading(line: &[u8]) -> Result<(u64, u64, &[u8]), BadField> {
    let (first, rest) = split_at(line.trim_ascii_start(), b" ").ok_or(missing("time"))?;
    let (process, time, text) = if first.contains(&b'.') {
        (0, first, rest)
    } else {
        let process = whole(first).map_err(|problem| BadField { field: "process", problem })?;
        let (time, text) = split_at(rest.trim_ascii_start(), b" ").ok_or(missing("time"))?;
        (process, time, text)
    };
    if !time.contains(&b'.') {
        return Err(bad("time"));
    }
    let time_ns =
        decimal(time, SECOND_NS).map_err(|problem| BadField { field: "time", problem })?;
    Ok((process, time_ns, text.trim_ascii()))
}

/// The arguments and the result in `ARGUMENTS) = RESULT`, with blanks before the last `=` that
/// stands behind a parenthesis: strings before may have some, too.
fn result(text: &[u8]) -> Option<(&[u8], &[u8])> {
    memchr::memrchr_iter(b'=', text).find_map(|at| {
        let arguments = text[..at].trim_ascii_end().strip_suffix(b")")?;
        let result = text[at + 1..].strip_prefix(b" ")?;
        text[..at].ends_with(b" ").then_some((arguments, result))
    })
}

/// What stands before and behind the first `mark`.
fn split_at<'a>(text: &'a [u8], mark: &[u8; 1]) -> Option<(&'a [u8], &'a [u8])> {
    let at = memchr::memchr(mark[0], text)?;
    Some((&text[..at], &text[at + 1..]))
}

fn has(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

/// What follows `name` in `text`.
fn value<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    memchr::memmem::find(text, name).map(|at| &text[at + name.len()..])
}

fn is_fork(text: &[u8]) -> bool {
    [&b"clone"[..], b"fork", b"vfork"].iter().any(|name| text.starts_with(name))
}

/// The number that `text` begins with.
fn leading(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    whole(&text[..digits]).ok()
}

/// The path behind the descriptor that `arguments` begin with, if it is one of a file: T1.
fn file_path(arguments: &[u8]) -> Option<&[u8]> {
    let (descriptor, rest) = split_at(arguments, b"<")?;
    leading(descriptor).filter(|_| descriptor.iter().all(u8::is_ascii_digit))?;
    let end = rest.iter().position(|byte| matches!(byte, b'<' | b'>'))?;
    let (path, kind) = rest.split_at(end);
    let is_special = [&b"/proc/"[..], b"/sys/"].iter().any(|folder| path.starts_with(folder));
    let is_block = kind.starts_with(b"<block");
    let is_file = kind.starts_with(b">") && !path.starts_with(b"/dev/");
    (path.starts_with(b"/") && !is_special && (is_file || is_block)).then_some(path)
}

/// The argument `before` places before the last.
fn argument_from_end(arguments: &[u8], before: usize) -> Option<&[u8]> {
    arguments.rsplit(|byte| *byte == b',').nth(before).map(<[u8]>::trim_ascii)
}
