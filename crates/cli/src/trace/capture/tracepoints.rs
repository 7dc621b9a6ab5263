//! Watches processes by the kernel's tracepoints of system calls: much cheaper than strace, but a
//! call has numbers only. What a descriptor leads to is looked up when it is first used.
//!
//! - W1: events come from an instance of tracefs of our own, which is removed in the end.
//! - W2: a path is looked up anew behind every call that opens or closes its descriptor, and not
//!   looked up if an event that was read already does so later. What was done to a file that is
//!   closed within the moment until its first event is read is left out, counted, and reported.
//!
//! Not seen: what `io_submit` and io_uring do; their calls are counted, and reported.

use super::end::{End, POLL};
use super::processes::{self, Process};
use crate::failure::Failure;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;

/// Where tracefs may be.
const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// Calls that are watched from their beginning to their end.
const CALLS: [&str; 20] = [
    "read", "readv", "pread64", "preadv", "preadv2", "write", "writev", "pwrite64", "pwritev",
    "pwritev2", "lseek", "open", "openat", "openat2", "creat", "close", "dup", "dup2", "dup3",
    "fcntl",
];
/// Those that make a descriptor, which they return.
const MAKERS: [&str; 8] = ["open", "openat", "openat2", "creat", "dup", "dup2", "dup3", "fcntl"];
/// Calls that move bytes unseen, and what can be done about it.
const UNSEEN: [(&str, &str); 2] =
    [("io_submit", "--with strace sees them"), ("io_uring_enter", super::NO_URING)];
/// Room for events of each processor.
const BUFFER_KIB: &str = "8192";
const APPENDS: u64 = 0o2000;
/// Turns without an event after which it is looked whether the processes are still there.
const IDLE_TURNS: u32 = 20;
/// Bytes of the longest event.
const LINE_BYTES_MAX: usize = 1 << 16;
/// Bytes of events that are read at once.
const BATCH_BYTES_MAX: usize = 1 << 24;

fn root() -> Option<PathBuf> {
    let roots = ROOTS.iter().map(PathBuf::from);
    let mut usable = roots.filter(|root| {
        let event = root.join("events/syscalls/sys_enter_pread64/enable");
        OpenOptions::new().write(true).open(event).is_ok()
    });
    usable.next()
}

/// Whether this process may use them.
pub fn are_there() -> bool {
    root().is_some()
}

/// Watches `processes` and their children until they end, or `end` has come. What went wrong.
///
/// # Errors
///
/// There are no tracepoints here; the file cannot be written.
pub fn watch(raw: &Path, processes: &[Process], end: &End) -> Result<Option<String>, Failure> {
    let failed = |error: io::Error| Failure::failed("cannot watch by tracepoints", error);
    let Some(root) = root() else {
        return Err(Failure::Failed(
            "no tracepoints of system calls here: they need root, a kernel that has them, and \
             tracefs at /sys/kernel/tracing; take --with strace"
                .to_string(),
        ));
    };
    let instance = Instance::make(&root).map_err(failed)?;
    let mut calls = Calls::new(File::create(raw).map_err(failed)?);
    instance.begin(processes).map_err(failed)?;
    calls.out.write_all(processes::positions(processes).as_bytes()).map_err(failed)?;
    let mut pipe = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(instance.0.join("trace_pipe"))
        .map_err(failed)?;
    let (mut left, mut idle) = (Vec::new(), 0);
    loop {
        let found = read_lines(&mut pipe, &mut left, &mut calls).map_err(failed)?;
        idle = if found { 0 } else { idle + 1 };
        let are_gone = idle > IDLE_TURNS
            && processes.iter().all(|one| !Path::new(&format!("/proc/{}", one.number)).exists());
        if end.has_come() || are_gone {
            break;
        }
        if !found {
            sleep(POLL);
        }
    }
    instance.set("tracing_on", "0").map_err(failed)?;
    while read_lines(&mut pipe, &mut left, &mut calls).map_err(failed)? {}
    calls.out.flush().map_err(failed)?;
    calls.report();
    Ok(None)
}

/// Reads what is there. Whether anything was.
fn read_lines(pipe: &mut File, left: &mut Vec<u8>, calls: &mut Calls) -> io::Result<bool> {
    let before = left.len();
    let mut bytes = [0; 1 << 16];
    while left.len() < BATCH_BYTES_MAX {
        match pipe.read(&mut bytes) {
            Ok(0) => break,
            Ok(read) => left.extend_from_slice(&bytes[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let has_more = left.len() > before;
    let end = memchr::memrchr(b'\n', left).map_or(0, |at| at + 1);
    calls.batch(&String::from_utf8_lossy(&left[..end]))?;
    left.drain(..end);
    if left.len() > LINE_BYTES_MAX {
        left.clear();
    }
    Ok(has_more)
}

/// An instance of tracefs (W1).
struct Instance(PathBuf);

impl Instance {
    fn make(root: &Path) -> io::Result<Instance> {
        let path = root.join(format!("instances/terrace-{}", std::process::id()));
        fs::create_dir(&path)?;
        Ok(Instance(path))
    }

    fn set(&self, name: &str, value: &str) -> io::Result<()> {
        fs::write(self.0.join(name), value)
    }

    fn begin(&self, processes: &[Process]) -> io::Result<()> {
        self.set("buffer_size_kb", BUFFER_KIB)?;
        // The pipe is to be read at once: older kernels know no such file.
        let _ = self.set("buffer_percent", "0");
        self.set("trace_clock", "mono")?;
        self.set("options/event-fork", "1")?;
        let threads = processes.iter().flat_map(|process| processes::threads_of(*process));
        let threads: Vec<String> = threads.map(|thread| thread.to_string()).collect();
        self.set("set_event_pid", &threads.join(" "))?;
        for call in CALLS {
            for side in ["enter", "exit"] {
                // Some machines have no `open`, say.
                let _ = self.set(&format!("events/syscalls/sys_{side}_{call}/enable"), "1");
            }
        }
        for (call, _) in UNSEEN {
            let _ = self.set(&format!("events/syscalls/sys_enter_{call}/enable"), "1");
        }
        Ok(())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.set("events/enable", "0");
        let _ = fs::remove_dir(&self.0);
    }
}

/// Makes lines as strace writes them of events.
struct Calls {
    out: BufWriter<File>,
    /// By thread: the call that has begun.
    begun: BTreeMap<u32, (String, Vec<u64>)>,
    /// The process of a thread.
    processes: BTreeMap<u32, u32>,
    /// Where descriptors lead, by process.
    paths: BTreeMap<(u32, u64), Option<String>>,
    /// Of the events that were read at once, the last that opens or closes a descriptor (W2).
    changes: BTreeMap<(u32, u64), usize>,
    /// The event that is looked at.
    at: usize,
    lost: u64,
    /// By their place in [`UNSEEN`].
    unseen: [u64; UNSEEN.len()],
    /// Calls whose files could not be told.
    untold: u64,
}

/// What an event says.
#[derive(Debug, PartialEq, Eq)]
enum Event<'a> {
    Begins { thread: u32, name: &'a str, arguments: Vec<u64> },
    Ends { thread: u32, time: &'a str, name: &'a str, result: i64 },
    Lost(u64),
}

/// The event on a line of `trace_pipe`: `dd-9973  [001] .....  1120.584386: sys_close(fd: 0)`.
fn event(line: &str) -> Option<Event<'_>> {
    if let Some((_, lost)) = line.split_once("[LOST ") {
        return lost.split_whitespace().next()?.parse().ok().map(Event::Lost);
    }
    let (before, call) = line.split_once(": sys_")?;
    let time = before.rsplit(char::is_whitespace).next()?;
    // A name may have blanks and dashes: the processor follows the number.
    let (task, _) = before.split_once(" [")?;
    let thread = task.trim_end().rsplit('-').next()?.parse().ok()?;
    let number = |text: &str| {
        let digits = text.trim().trim_start_matches("0x");
        u64::from_str_radix(digits.split(|c: char| !c.is_ascii_hexdigit()).next()?, 16).ok()
    };
    if let Some((name, result)) = call.split_once(" -> ") {
        return Some(Event::Ends { thread, time, name, result: number(result)? as i64 });
    }
    let (name, arguments) = call.split_once('(')?;
    let arguments = arguments.trim_end().trim_end_matches(')').split(", ");
    let values = arguments.filter_map(|argument| number(argument.split_once(": ")?.1)).collect();
    Some(Event::Begins { thread, name, arguments: values })
}

impl Event<'_> {
    /// The thread and the descriptor that it opens or closes.
    fn changed(&self) -> Option<(u32, u64)> {
        match self {
            Event::Begins { thread, name: "close", arguments } => {
                arguments.first().map(|descriptor| (*thread, *descriptor))
            }
            Event::Ends { thread, name, result, .. } if MAKERS.contains(name) => {
                (*result >= 0).then_some((*thread, *result as u64))
            }
            _ => None,
        }
    }
}

impl Calls {
    fn new(out: File) -> Calls {
        Calls {
            out: BufWriter::new(out),
            begun: BTreeMap::new(),
            processes: BTreeMap::new(),
            paths: BTreeMap::new(),
            changes: BTreeMap::new(),
            at: 0,
            lost: 0,
            unseen: [0; UNSEEN.len()],
            untold: 0,
        }
    }

    /// Takes the events on these lines.
    fn batch(&mut self, text: &str) -> io::Result<()> {
        let events: Vec<Event> = text.lines().filter_map(event).collect();
        self.changes.clear();
        for (at, event) in events.iter().enumerate() {
            if let Some((thread, descriptor)) = event.changed() {
                let process = self.process_of(thread);
                self.changes.insert((process, descriptor), at);
            }
        }
        for (at, event) in events.into_iter().enumerate() {
            self.at = at;
            self.take(event)?;
        }
        Ok(())
    }

    fn take(&mut self, event: Event<'_>) -> io::Result<()> {
        match event {
            Event::Lost(lost) => self.lost += lost,
            Event::Begins { thread, name, arguments } => {
                match UNSEEN.iter().position(|row| row.0 == name) {
                    Some(at) => self.unseen[at] += 1,
                    None => drop(self.begun.insert(thread, (name.to_string(), arguments))),
                }
            }
            Event::Ends { thread, time, name, result } => {
                let begun = self.begun.remove(&thread).filter(|begun| begun.0 == name);
                if let Some((name, arguments)) = begun.filter(|_| result >= 0) {
                    self.call(thread, time, (&name, &arguments), result as u64)?;
                }
            }
        }
        Ok(())
    }

    fn call(
        &mut self,
        thread: u32,
        time: &str,
        (name, arguments): (&str, &[u64]),
        result: u64,
    ) -> io::Result<()> {
        let process = self.process_of(thread);
        let argument = |at: usize| arguments.get(at).copied().unwrap_or_default();
        let begin = format!("{process} {time} {name}(");
        match name {
            "open" | "openat" | "openat2" | "creat" => {
                let flags = argument(if name == "openat" { 2 } else { 1 });
                self.paths.remove(&(process, result));
                let Some(path) = self.path(process, result) else { return Ok(()) };
                let how = if flags & APPENDS != 0 { "O_APPEND" } else { "O_RDWR" };
                writeln!(self.out, "{begin}{how}) = {result}{path}")
            }
            "close" => {
                self.paths.remove(&(process, argument(0)));
                writeln!(self.out, "{begin}{}) = 0", argument(0))
            }
            "dup" | "dup2" | "dup3" => {
                let path = self.path(process, argument(0));
                self.paths.insert((process, result), path);
                writeln!(self.out, "{begin}{}) = {result}", argument(0))
            }
            "fcntl" => {
                // It may have made a descriptor of the number that it returned.
                self.paths.remove(&(process, result));
                Ok(())
            }
            "read" | "readv" | "write" | "writev" | "lseek" => {
                let Some(path) = self.path(process, argument(0)) else { return Ok(()) };
                writeln!(self.out, "{begin}{}{path}, 0, 0) = {result}", argument(0))
            }
            "preadv2" | "pwritev2" => {
                let Some(path) = self.path(process, argument(0)) else { return Ok(()) };
                let offset = argument(3);
                writeln!(self.out, "{begin}{}{path}, 0, 0, {offset}, 0) = {result}", argument(0))
            }
            _ => {
                let Some(path) = self.path(process, argument(0)) else { return Ok(()) };
                let offset = argument(3);
                writeln!(self.out, "{begin}{}{path}, 0, 0, {offset}) = {result}", argument(0))
            }
        }
    }

    fn process_of(&mut self, thread: u32) -> u32 {
        let of = || processes::process_of(thread).unwrap_or(thread);
        *self.processes.entry(thread).or_insert_with(of)
    }

    /// Where `descriptor` leads, if to a file (W2).
    fn path(&mut self, process: u32, descriptor: u64) -> Option<String> {
        let key = (process, descriptor);
        if let Some(path) = self.paths.get(&key) {
            return path.clone();
        }
        let changes_later = self.changes.get(&key).is_some_and(|at| *at > self.at);
        let found = (!changes_later).then(|| processes::opened_path(process, descriptor));
        let Some(path) = found.flatten() else {
            self.untold += 1;
            return None;
        };
        let path = Some(path).filter(|path| path.starts_with("</"));
        self.paths.insert(key, path.clone());
        path
    }

    fn report(&self) {
        if self.lost > 0 {
            eprintln!("{} events were lost: they came faster than they were read", self.lost);
        }
        if self.untold > 0 {
            eprintln!(
                "{} calls are not in the trace: their files were closed before they could be told; \
                 --with strace sees them",
                self.untold
            );
        }
        for ((name, instead), count) in UNSEEN.iter().zip(self.unseen) {
            if count > 0 {
                eprintln!("{count} calls of {name} are not in the trace; {instead}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bug: what a shell wrote to a descriptor that it had duplicated for a moment was told
    /// by where the descriptor led afterwards.
    #[test]
    fn a_descriptor_that_is_changed_before_it_is_looked_up_is_not_told() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(file.as_file());
        let own = std::process::id();
        let raw = tempfile::NamedTempFile::new().expect("a file");
        let mut calls = Calls::new(raw.reopen().expect("opened"));
        let write = |at: u32| {
            format!(
                "x-{own} [0] . 1.{at}: sys_pwrite64(fd: {descriptor:x}, buf: 0, count: 8, pos: 0)\n\
                 x-{own} [0] . 1.{at}: sys_pwrite64 -> 0x8\n"
            )
        };
        let close = format!(
            "x-{own} [0] . 1.5: sys_close(fd: {descriptor:x})\n\
             x-{own} [0] . 1.5: sys_close -> 0x0\n"
        );
        calls.batch(&write(1)).expect("taken");
        calls.batch(&[close.clone(), write(2), close].concat()).expect("taken");
        calls.out.flush().expect("flushed");
        let text = fs::read_to_string(raw.path()).expect("a file");
        let path = file.path().display().to_string();
        assert_eq!(text.matches(&path).count(), 1, "{text}");
        assert!(text.contains(&format!("{own} 1.1 pwrite64({descriptor}<{path}>, 0, 0, 0) = 8")));
        assert_eq!(calls.untold, 1);
        file.flush().expect("it was open until now");
    }

    #[test]
    fn events_are_read() {
        let begins = |name, arguments| Some(Event::Begins { thread: 9973, name, arguments });
        assert_eq!(
            event(
                "  dd-9973    [001] .....  1.5: sys_pread64(fd: 3, buf: 7f, count: 2000, pos: 4000)"
            ),
            begins("pread64", vec![3, 0x7f, 0x2000, 0x4000])
        );
        assert_eq!(
            event("  my-own db-9973  [000] d..1.  1.5: sys_close(fd: 0)"),
            begins("close", vec![0])
        );
        let ends = |result| Some(Event::Ends { thread: 7, time: "1.25", name: "openat", result });
        assert_eq!(event("  dd-7 [001] ..... 1.25: sys_openat -> 0x3"), ends(3));
        assert_eq!(event("  dd-7 [001] ..... 1.25: sys_openat -> 0xfffffffffffffffe"), ends(-2));
        assert_eq!(event("CPU:1 [LOST 1234 EVENTS]"), Some(Event::Lost(1234)));
        for other in ["", "# tracer: nop", "x: sys_", " [: sys_a(", "a-b [0] 1: sys_x -> "] {
            assert_eq!(event(other), None, "{other}");
        }
    }
}
