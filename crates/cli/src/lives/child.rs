//! The process of one life, seen from outside: what it says, and how it ends.

use super::life;
use super::report::Outcome;
use crate::command::Life;
use std::env;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use terrace_rt::Prng;

/// A life that says nothing for this long is stuck before its own watchdog runs.
const SILENCE: Duration = Duration::from_secs(20);
const EARLY_US_MAX: u64 = 40_000;
const RUNNING_US_MAX: u64 = 80_000;

/// When a life is killed.
#[derive(Clone, Copy, Debug)]
pub enum Kill {
    /// So long after its process was started: in opening, most of the time.
    Early(Duration),
    /// So long after it was held against the ledger.
    Running(Duration),
}

impl Kill {
    /// Draws one.
    pub fn draw(prng: &mut Prng) -> Kill {
        match prng.chance(3) {
            true => Kill::Early(Duration::from_micros(prng.below(EARLY_US_MAX))),
            false => Kill::Running(Duration::from_micros(prng.below(RUNNING_US_MAX))),
        }
    }

    /// How long it is until then, if that is known.
    fn left(self, begun: Instant, verified: Option<Instant>) -> Option<Duration> {
        match self {
            Kill::Early(after) => Some(after.saturating_sub(begun.elapsed())),
            Kill::Running(after) => verified.map(|at| after.saturating_sub(at.elapsed())),
        }
    }
}

/// How a life ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By the parent, after it was held against the ledger, or before.
    Killed,
    /// By itself, with this status.
    Exited(i32),
    /// By a signal that the parent did not send.
    Died,
    /// It said nothing any more.
    Silent,
}

/// A life that is over.
pub struct Lived {
    pub ending: Ending,
    /// The last line that was no count.
    pub said: String,
    pub is_verified: bool,
    pub transactions: u64,
    /// Faults of its devices.
    pub faults: u64,
    /// Transactions that got the error that home is full.
    pub full: u64,
    pub panic: Option<String>,
}

impl Lived {
    /// What is wrong with this ending, and none if it may be so: the caller judges errors that were
    /// reported.
    pub fn flaw(&self) -> Option<Outcome> {
        match self.ending {
            _ if self.panic.is_some() => Some(Outcome::Panicked),
            Ending::Killed
            | Ending::Exited(0 | life::REFUSED | life::TOLD | life::FOREIGN | life::FULL) => None,
            Ending::Silent | Ending::Exited(life::HANGS) => Some(Outcome::Hung),
            Ending::Exited(life::WRONG) if self.said.contains("ledger") => Some(Outcome::Lost),
            Ending::Exited(life::WRONG | life::ODD) => Some(Outcome::Wrong),
            Ending::Exited(_) | Ending::Died => Some(Outcome::Panicked),
        }
    }

    /// What it said last, or its panic.
    pub fn last_words(&self) -> String {
        self.panic.clone().unwrap_or_else(|| self.said.clone())
    }

    fn hear(&mut self, line: String) {
        let Some(counts) = line.strip_prefix("alive ") else {
            self.is_verified |= line == "verified";
            self.said = line;
            return;
        };
        let mut counts = counts.split(' ').map_while(|count| count.parse().ok());
        let mut next = |before| counts.next().unwrap_or(before);
        self.transactions = next(self.transactions);
        self.faults = next(self.faults);
        self.full = next(self.full);
    }
}

/// Runs `life`, and kills it when `kill` says so.
///
/// # Errors
///
/// It cannot be run.
pub fn run(life: &Life, kill: Option<Kill>) -> io::Result<Lived> {
    let said = life.ledger.join("stderr");
    let mut child = Command::new(env::current_exe()?)
        .args(life.arguments())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(&said)?)
        .spawn()?;
    let mut lived = listen(&mut child, kill, &life.ledger.join("threads"))?;
    let errors = fs::read_to_string(&said).unwrap_or_default();
    lived.panic = errors.contains("panicked").then(|| errors.replace('\n', " | "));
    Ok(lived)
}

/// Reads the lines of a life until it ends. If it falls silent, `threads` gets what its threads do.
fn listen(child: &mut Child, kill: Option<Kill>, threads: &Path) -> io::Result<Lived> {
    let begun = Instant::now();
    let (sender, lines) = mpsc::channel();
    let output = BufReader::new(child.stdout.take().expect("piped"));
    let reader = thread::spawn(move || {
        output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line).map_err(drop))
    });
    let mut lived = Lived {
        ending: Ending::Silent,
        said: String::new(),
        is_verified: false,
        transactions: 0,
        faults: 0,
        full: 0,
        panic: None,
    };
    let (mut last_heard, mut verified) = (begun, None);
    let is_killed = loop {
        let left = kill.and_then(|kill| kill.left(begun, verified));
        if left == Some(Duration::ZERO) {
            child.kill()?;
            break true;
        }
        match lines.recv_timeout(left.unwrap_or(SILENCE).min(SILENCE)) {
            Ok(line) => {
                last_heard = Instant::now();
                lived.hear(line);
                if lived.is_verified {
                    verified.get_or_insert(last_heard);
                }
            }
            Err(RecvTimeoutError::Timeout) if last_heard.elapsed() >= SILENCE => {
                fs::write(threads, threads_of(child.id()))?;
                child.kill()?;
                break false;
            }
            Err(RecvTimeoutError::Timeout) => (),
            Err(RecvTimeoutError::Disconnected) => break false,
        }
    };
    let status = child.wait()?;
    let _ended = reader.join();
    for line in lines.try_iter() {
        lived.hear(line);
    }
    lived.ending = match status.code() {
        Some(code) => Ending::Exited(code),
        None if is_killed => Ending::Killed,
        None if last_heard.elapsed() >= SILENCE => Ending::Silent,
        None => Ending::Died,
    };
    Ok(lived)
}

/// What the threads of a process do: their states and times as the kernel tells them, and their
/// stacks if there is a debugger.
fn threads_of(pid: u32) -> String {
    let mut text = String::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        for file in ["stat", "wchan"] {
            text.push_str(&fs::read_to_string(task.path().join(file)).unwrap_or_default());
            text.push('\n');
        }
    }
    let pid = pid.to_string();
    let debugger = ["-p", &pid, "-batch", "-ex", "thread apply all bt"];
    if let Ok(stacks) = Command::new("gdb").args(debugger).output() {
        text.push_str(&String::from_utf8_lossy(&stacks.stdout));
    }
    text
}
