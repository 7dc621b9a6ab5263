//! Processes that run: their children, their threads, and where they are in their open files.

use crate::failure::Failure;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub number: u32,
}

/// The flag of an opening for appending.
const APPENDS: u64 = 0o2000;

/// The processes `asked` for, and all of their children.
///
/// # Errors
///
/// One of those asked for is not there.
pub fn with_children(asked: &[u32]) -> Result<Vec<Process>, Failure> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for number in numbers_in(&PathBuf::from("/proc")) {
        if let Some(parent) = parent_of(number) {
            children.entry(parent).or_default().push(number);
        }
    }
    let mut found: Vec<Process> = Vec::new();
    let mut next: Vec<u32> = asked.iter().rev().copied().collect();
    for number in asked {
        if !PathBuf::from(format!("/proc/{number}")).exists() {
            return Err(Failure::usage(format!("--pid: there is no process {number}")));
        }
    }
    while let Some(number) = next.pop() {
        let process = Process { number };
        if !found.contains(&process) {
            found.push(process);
            next.extend(children.get(&number).into_iter().flatten());
        }
    }
    Ok(found)
}

/// Names of a folder of `/proc` that are numbers.
fn numbers_in(folder: &PathBuf) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The process whose child `number` is.
fn parent_of(number: u32) -> Option<u32> {
    status_of(number, "PPid:")
}

/// The process whose thread `number` is.
pub fn process_of(thread: u32) -> Option<u32> {
    status_of(thread, "Tgid:")
}

fn status_of(number: u32, field: &str) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{number}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(field))?.trim().parse().ok()
}

/// The threads of `process`.
pub fn threads_of(process: Process) -> Vec<u32> {
    numbers_in(&PathBuf::from(format!("/proc/{}/task", process.number)))
}

/// What `descriptor` of `process` leads to, as strace writes it: `</path>`, of a block device
/// `</path<block>>`.
pub fn opened_path(process: u32, descriptor: u64) -> Option<String> {
    let path = fs::read_link(format!("/proc/{process}/fd/{descriptor}")).ok()?;
    let path = path.to_string_lossy().into_owned();
    let path = path.strip_suffix(" (deleted)").unwrap_or(&path);
    if path.contains(['<', '>', '\n']) {
        return None;
    }
    let is_block = path.starts_with("/dev/")
        && fs::metadata(path)
            .is_ok_and(|found| std::os::unix::fs::FileTypeExt::is_block_device(&found.file_type()));
    Some(if is_block { format!("<{path}<block>>") } else { format!("<{path}>") })
}

/// Calls that would have brought the open files of `processes` to where they are, as strace writes
/// them.
pub fn positions(processes: &[Process]) -> String {
    let mut text = String::new();
    for Process { number } in processes {
        for descriptor in numbers_in(&PathBuf::from(format!("/proc/{number}/fd"))) {
            let info = fs::read_to_string(format!("/proc/{number}/fdinfo/{descriptor}"));
            let Ok(info) = info else { continue };
            let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
            let position = field("pos:").and_then(|field| field.trim().parse::<u64>().ok());
            let flags = field("flags:").and_then(|field| u64::from_str_radix(field.trim(), 8).ok());
            let path = opened_path(*number, u64::from(descriptor));
            let (Some(position), Some(path)) = (position, path) else { continue };
            let appends = flags.is_some_and(|flags| flags & APPENDS != 0);
            let how = if appends { "O_APPEND" } else { "O_RDWR" };
            let _ = writeln!(text, "{number} 0.0 openat(AT_FDCWD, {how}) = {descriptor}{path}");
            let _ =
                writeln!(text, "{number} 0.0 lseek({descriptor}{path}, 0, SEEK_CUR) = {position}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, SeekFrom};

    #[test]
    fn this_process_is_there_with_its_files() {
        let own = std::process::id();
        let found = with_children(&[own]).expect("it is there");
        assert_eq!(found[0], Process { number: own });
        assert_eq!(process_of(own), Some(own));
        assert!(threads_of(found[0]).contains(&own));
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(100).expect("longer");
        file.seek(SeekFrom::Start(40)).expect("moved");
        file.read_exact(&mut [0; 2]).expect("read");
        let path = file.path().display().to_string();
        let text = positions(&found);
        let line = text.lines().find(|line| line.contains(&path) && line.contains("lseek"));
        assert!(line.is_some_and(|line| line.ends_with("SEEK_CUR) = 42")), "{text}");
        assert!(with_children(&[u32::MAX]).is_err());
    }
}
