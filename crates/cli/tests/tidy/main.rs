//! The style that a machine can check, as a test: see CONTRIBUTING.md for what it asks and why.
//!
//! It reads every file of the workspace that git would keep. Exceptions are few, stand in the
//! tables below, and are there by design: none is for code that is merely not tidy yet.

mod mutations;
mod references;
mod source;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use source::{root, sources};

const LINE_CHARS_MAX: usize = 100;
const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 600;

/// What each crate may depend on, from bottom to top.
const LAYERS: [(&str, &[&str]); 16] = [
    ("derive", &[]),
    ("page", &[]),
    ("rt", &[]),
    ("trace", &[]),
    ("policy", &["page"]),
    ("tier", &["page", "policy"]),
    ("device", &["rt"]),
    ("replay", &["rt", "page", "policy", "tier", "trace", "device"]),
    ("index", &["rt", "page", "policy", "device"]),
    ("operators", &["rt", "device"]),
    ("page-io", &["rt", "page", "device"]),
    ("restart", &["rt", "page", "policy", "tier", "device", "page-io"]),
    ("pool", &["rt", "page", "policy", "tier", "device", "page-io", "restart"]),
    ("engine", &["derive", "rt", "page", "policy", "device", "pool"]),
    ("workload", &["rt", "page", "policy", "device", "trace", "pool", "engine"]),
    (
        "cli",
        &[
            "rt",
            "page",
            "policy",
            "trace",
            "replay",
            "device",
            "index",
            "operators",
            "pool",
            "engine",
            "workload",
        ],
    ),
];

/// Crates that can do without `unsafe`, and forbid it.
const SAFE_CRATES: [&str; 11] = [
    "derive",
    "page",
    "policy",
    "tier",
    "index",
    "operators",
    "restart",
    "trace",
    "replay",
    "engine",
    "workload",
];

/// The files that need `unsafe`: the task switch, the rings, the frames. A trailing `/` is a
/// folder.
const UNSAFE_FILES: &[&str] = &[
    // The task switch, and what hands a value from one task to another.
    "crates/rt/src/task.rs",
    "crates/rt/src/stack.rs",
    "crates/rt/src/virtual_world/",
    "crates/rt/src/real_world/",
    "crates/rt/src/mutex.rs",
    "crates/rt/src/rw_latch.rs",
    // Buffers that a device fills while their owner waits.
    "crates/device/src/device.rs",
    "crates/device/src/aligned.rs",
    "crates/device/src/fuse.rs",
    "crates/device/src/patience.rs",
    "crates/device/src/psync.rs",
    "crates/device/src/storage/device.rs",
    "crates/device/src/store.rs",
    "crates/device/src/file/",
    "crates/device/src/model/",
    "crates/device/src/overlay/",
    "crates/device/src/fault/",
    // The frames, and what hands them to devices.
    "crates/page-io/src/memory.rs",
    "crates/page-io/src/io.rs",
    "crates/page-io/src/each.rs",
    "crates/pool/src/memory/frames.rs",
    // What is looked at before Rust's runtime begins.
    "crates/cli/src/standard_output.rs",
];

/// What blocks, or differs from run to run: only `rt` may, and the command around its worlds.
const REAL_WORLD_APIS: [&str; 12] = [
    "std::thread",
    "std::time",
    "Instant::",
    "SystemTime",
    "thread_local!",
    "std::sync::Mutex",
    "std::sync::RwLock",
    "std::sync::Condvar",
    "std::sync::mpsc",
    "rand::",
    "RandomState",
    "getrandom",
];
const REAL_WORLD_CRATES: [&str; 2] = ["rt", "cli"];

/// Split, so that this file does not find itself.
const BANNED_WORDS: [(&str, &str); 7] = [
    ("TO", "DO"),
    ("FIX", "ME"),
    ("XX", "X"),
    ("HA", "CK"),
    ("unimplemen", "ted!"),
    ("to", "do!"),
    ("#[ig", "nore"),
];
const BANNED_MODULES: [&str; 5] = ["util", "utils", "common", "misc", "helpers"];
/// Places on one person's machine.
const MACHINE_PATHS: [(&str, &str); 3] = [("/wo", "rk/"), ("/ro", "ot/"), ("/Us", "ers/")];

/// What a reader of the project looks for.
const DOCUMENTS: [&str; 9] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "docs/GLOSSARY.md",
    "docs/FORMAT.md",
    "docs/RECOVERY.md",
];

/// Fails with all findings at once.
fn report(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}:\n  {}\n", findings.join("\n  "));
}

#[test]
fn lines_are_short() {
    let mut findings = Vec::new();
    for source in sources().iter().filter(|source| source.is_rust()) {
        for (at, line) in source.text.lines().enumerate() {
            let chars = line.chars().count();
            // A row of a table cannot be broken.
            let is_row = line.starts_with("//! | ");
            if chars > LINE_CHARS_MAX && !is_row {
                findings.push(format!("{}:{}: {chars} characters", source.path, at + 1));
            }
        }
    }
    report(&format!("lines have at most {LINE_CHARS_MAX} characters"), &findings);
}

#[test]
fn functions_are_short() {
    let mut findings = Vec::new();
    for source in sources().iter().filter(|source| source.is_rust()) {
        for (at, length, name) in functions(&source.text) {
            if length > FUNCTION_LINES_MAX {
                findings.push(format!("{}:{at}: `{name}` has {length} lines", source.path));
            }
        }
    }
    report(&format!("functions have at most {FUNCTION_LINES_MAX} lines"), &findings);
}

/// The functions of formatted code: line number, lines, name. The closing brace of a function
/// stands below the first letter of its signature.
fn functions(text: &str) -> Vec<(usize, usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indent = line.len() - line.trim_start().len();
        let end = lines[at..].iter().position(|line| {
            let body = line.trim_start();
            let same = line.len() - body.len() == indent;
            (same && body.starts_with('}')) || body.ends_with(';') && !body.contains('{') && same
        });
        if let Some(after) = end {
            found.push((at + 1, after + 1, name));
        }
    }
    found
}

fn function_name(line: &str) -> Option<String> {
    let mut words = line.trim_start();
    for prefix in ["pub(crate) ", "pub(super) ", "pub ", "const ", "unsafe ", "extern \"C\" "] {
        words = words.strip_prefix(prefix).unwrap_or(words);
    }
    let rest = words.strip_prefix("fn ")?;
    // A body or a signature that ends on its own line is short.
    if line.ends_with('}') || line.ends_with(';') {
        return None;
    }
    Some(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
}

#[test]
fn files_are_short_before_their_tests() {
    let mut findings = Vec::new();
    for source in sources().iter().filter(|source| source.is_rust()) {
        let lines = source.lines_before_tests().len();
        if lines >= FILE_LINES_MAX {
            findings.push(format!("{}: {lines} lines", source.path));
        }
    }
    report(&format!("files have fewer than {FILE_LINES_MAX} lines before their tests"), &findings);
}

#[test]
fn files_open_with_what_they_are() {
    let headless = sources()
        .iter()
        .filter(|source| source.is_rust() && !source.text.starts_with("//! "))
        .map(|source| source.path.clone())
        .collect::<Vec<_>>();
    report("every file opens with `//!` and a sentence", &headless);
}

#[test]
fn nothing_is_left_for_later() {
    let mut findings = Vec::new();
    for source in sources() {
        for (at, line) in source.text.lines().enumerate() {
            for (head, tail) in BANNED_WORDS {
                let word = format!("{head}{tail}");
                if holds_word(line, &word) && !source.path.ends_with("CONTRIBUTING.md") {
                    findings.push(format!("{}:{}: {word}", source.path, at + 1));
                }
            }
        }
    }
    report("what is not done is not in the tree", &findings);
}

/// Whether `line` has `word` with no letter or digit at either side.
fn holds_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !(part(before) || part(after) && word.ends_with(char::is_alphanumeric))
    })
}

#[test]
fn modules_have_names_that_say_something() {
    let mut findings = Vec::new();
    for source in sources() {
        let parts = source.path.trim_end_matches(".rs").split('/');
        if source.is_rust() && parts.into_iter().any(|part| BANNED_MODULES.contains(&part)) {
            findings.push(source.path);
        }
    }
    report("no util, common or misc", &findings);
}

#[test]
fn no_file_is_an_orphan() {
    let sources = sources();
    let by_path: BTreeMap<&str, &str> =
        sources.iter().map(|source| (source.path.as_str(), source.text.as_str())).collect();
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.is_module()) {
        let path = Path::new(&source.path);
        let folder = path.parent().expect("a folder").to_string_lossy().into_owned();
        let stem = path.file_stem().expect("a stem").to_string_lossy().into_owned();
        if matches!(stem.as_str(), "lib" | "main") || folder.ends_with("/bin") {
            continue;
        }
        let (name, home) = match stem.as_str() {
            "mod" => folder.rsplit_once('/').map(|(up, name)| (name.to_string(), up.to_string())),
            _ => Some((stem, folder)),
        }
        .expect("below src");
        let parents = [
            format!("{home}/lib.rs"),
            format!("{home}/main.rs"),
            format!("{home}/mod.rs"),
            format!("{home}.rs"),
        ];
        let declared =
            parents.iter().filter_map(|parent| by_path.get(parent.as_str())).any(|text| {
                text.lines().any(|line| {
                    let line = line.trim();
                    line.strip_suffix(';')
                        .is_some_and(|line| line.ends_with(&format!("mod {name}")))
                })
            });
        if !declared {
            findings.push(source.path.clone());
        }
    }
    report("every file is a module of its crate", &findings);
}

#[test]
fn only_rt_knows_threads_and_clocks() {
    let mut findings = Vec::new();
    for source in sources().iter().filter(|source| source.is_shipped()) {
        if source.crate_name().is_some_and(|name| REAL_WORLD_CRATES.contains(&name)) {
            continue;
        }
        for (at, line) in source.lines_before_tests().into_iter().enumerate() {
            // Whether this thread unwinds is no matter of scheduling.
            let code = line.replace("std::thread::panicking()", "");
            let code = code.split("//").next().unwrap_or_default();
            let listed = |name: &str| {
                let list = code.trim_start().strip_prefix("use std::sync::{");
                list.is_some_and(|list| holds_word(list, name))
            };
            for api in REAL_WORLD_APIS {
                let last = api.rsplit("::").next().unwrap_or_default();
                let by_list = api.starts_with("std::sync") && listed(last);
                if code.match_indices(api).any(|(at, _)| starts_a_path(code, at)) || by_list {
                    findings.push(format!("{}:{}: {api}", source.path, at + 1));
                }
            }
        }
    }
    report("above rt there is no thread, no clock, no blocking and no chance", &findings);
}

/// Whether the path at byte `at` of `code` is not the tail of a longer name.
fn starts_a_path(code: &str, at: usize) -> bool {
    !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

#[test]
fn only_the_command_prints() {
    let mut findings = Vec::new();
    for source in sources().iter().filter(|source| source.is_shipped()) {
        if source.crate_name() == Some("cli") {
            continue;
        }
        for (at, line) in source.lines_before_tests().into_iter().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for print in ["println!", "print!", "eprintln!", "eprint!", "dbg!"] {
                if holds_word(code, print) {
                    findings.push(format!("{}:{}: {print}", source.path, at + 1));
                }
            }
        }
    }
    report("only the command prints", &findings);
}

#[test]
fn dependencies_point_down() {
    let mut findings = Vec::new();
    for source in sources() {
        let Some(name) = source.crate_name().map(str::to_string) else { continue };
        if source.path != format!("crates/{name}/Cargo.toml") {
            continue;
        }
        let allowed = LAYERS.iter().find(|layer| layer.0 == name);
        let allowed = allowed.unwrap_or_else(|| panic!("crate {name} is in LAYERS")).1;
        for dependency in dependencies(&source.text) {
            if !allowed.contains(&dependency.as_str()) {
                findings.push(format!("{name} depends on {dependency}"));
            }
        }
    }
    report("dependencies point down", &findings);
}

/// The crates of this workspace that a manifest names outside its dev-dependencies, by folder.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut section = "";
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
            continue;
        }
        if !section.contains("dependencies") || section.contains("dev-dependencies") {
            continue;
        }
        let key = line.split(['.', '=', ' ']).next().unwrap_or_default();
        match key.strip_prefix("terrace") {
            Some("") => found.push("engine".to_string()),
            Some(rest) => found.push(rest.trim_start_matches('-').to_string()),
            None => {}
        }
    }
    found
}

#[test]
fn no_file_knows_a_machine() {
    let mut findings = Vec::new();
    for source in sources() {
        for (at, line) in source.text.lines().enumerate() {
            for (head, tail) in MACHINE_PATHS {
                let path = format!("{head}{tail}");
                let starts = |at: usize| {
                    let before = line[..at].chars().next_back();
                    before.is_none_or(|c| !(c.is_alphanumeric() || "._-}".contains(c)))
                };
                if line.match_indices(&path).any(|(at, _)| starts(at)) {
                    findings.push(format!("{}:{}: {path}", source.path, at + 1));
                }
            }
        }
    }
    report("no path of one machine", &findings);
}

#[test]
fn the_documents_are_there_and_their_links_lead_somewhere() {
    let root = root();
    let mut findings = Vec::new();
    for document in DOCUMENTS {
        if !root.join(document).exists() {
            findings.push(format!("{document} is missing"));
        }
    }
    for source in sources().iter().filter(|source| source.path.ends_with(".md")) {
        let folder = root.join(&source.path).parent().expect("a folder").to_path_buf();
        for link in source.text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap_or_default();
            let outside = path.is_empty() || path.contains("://");
            if !outside && !folder.join(path).exists() {
                findings.push(format!("{}: {link}", source.path));
            }
        }
    }
    report("links lead somewhere", &findings);
}

#[test]
fn unsafe_stays_where_it_is_needed() {
    let mut findings = Vec::new();
    let sources = sources();
    for source in sources.iter().filter(|source| source.is_shipped()) {
        let excepted = UNSAFE_FILES.iter().any(|file| {
            source.path == *file || (file.ends_with('/') && source.path.starts_with(file))
        });
        if excepted {
            continue;
        }
        for (at, line) in source.text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let allowed = code.contains("unsafe_code") || code.contains("unsafe_op_in_unsafe_fn");
            if holds_word(code, "unsafe") && !allowed {
                findings.push(format!("{}:{}", source.path, at + 1));
            }
        }
    }
    for name in SAFE_CRATES {
        let top = ["lib.rs", "main.rs"].map(|file| format!("crates/{name}/src/{file}"));
        let forbids = sources.iter().any(|source| {
            top.contains(&source.path) && source.text.contains("#![forbid(unsafe_code)]")
        });
        if !forbids {
            findings.push(format!("crates/{name} does not forbid it"));
        }
    }
    report("unsafe stays in the few files that need it", &findings);
}

#[test]
fn the_functions_are_found() {
    let text = "pub fn short() {\n    1\n}\n\nimpl A {\n    const fn far(\n        a: u8,\n    ) \
                -> u8 {\n        a\n    }\n    fn declared(&self);\n}\n";
    let found: Vec<_> = functions(text).into_iter().map(|f| (f.2, f.1)).collect();
    assert_eq!(found, [("short".to_string(), 3), ("far".to_string(), 5)]);
}

/// `docs/GUARANTEES.md` names tests as `file::test`, in backquotes.
#[test]
fn the_tests_behind_guarantees_exist() {
    let text = fs::read_to_string(root().join("docs/GUARANTEES.md")).expect("it is there");
    let sources = sources();
    let is_test = |file: &str, test: &str| {
        let ends = [format!("/{file}.rs"), format!("/{file}/main.rs")];
        let begin = format!("#[test]\nfn {test}() ");
        sources.iter().any(|source| {
            let is_it = ends.iter().any(|end| source.path.ends_with(end));
            is_it && source.text.replace("    ", "").contains(&begin)
        })
    };
    let named = text.split('`').skip(1).step_by(2).filter_map(|name| name.split_once("::"));
    let named: Vec<_> = named.collect();
    assert!(named.len() > 30, "the names are found: {named:?}");
    let missing = named.iter().filter(|(file, test)| !is_test(file, test));
    let missing: Vec<_> = missing.map(|(file, test)| format!("{file}::{test}")).collect();
    report("each promise has its test", &missing);
}
