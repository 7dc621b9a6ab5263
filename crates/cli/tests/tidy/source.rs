//! The files of the workspace that git would keep.

use std::fs;
use std::path::{Path, PathBuf};

/// One file.
pub struct Source {
    /// Relative to the root, with `/`.
    pub path: String,
    pub text: String,
}

impl Source {
    pub fn crate_name(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// In `src` of a crate, so part of what is shipped; tests, benches, examples and the programs
    /// beside the workspace are not.
    pub fn is_shipped(&self) -> bool {
        self.is_rust()
            && self.path.starts_with("crates/")
            && self.path.contains("/src/")
            && !self.path.ends_with("/tests.rs")
            && !self.path.contains("/tests/")
    }

    /// Part of the modules of a crate, its tests included.
    pub fn is_module(&self) -> bool {
        self.is_rust() && self.path.contains("/src/")
    }

    /// The lines before the tests of the file.
    pub fn lines_before_tests(&self) -> Vec<&str> {
        let mut lines: Vec<&str> = Vec::new();
        for line in self.text.lines() {
            if line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test") {
                break;
            }
            lines.push(line);
        }
        lines
    }
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the workspace is where the crate says")
}

/// All files that are looked at, by path.
pub fn sources() -> Vec<Source> {
    let root = root();
    let mut found = Vec::new();
    collect(&root, &root, &mut found);
    assert!(found.len() > 20, "the tidy test sees the workspace");
    found.sort_by(|a: &Source, b: &Source| a.path.cmp(&b.path));
    found
}

fn collect(root: &Path, folder: &Path, found: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() {
            if !matches!(name.as_str(), ".git" | "target") {
                collect(root, &path, found);
            }
            continue;
        }
        let kept = [".rs", ".md", ".toml", ".yml", ".sh", "slow-volume", "run"];
        if !kept.iter().any(|end| name.ends_with(end)) {
            continue;
        }
        if let Ok(text) = fs::read_to_string(&path) {
            let relative = path.strip_prefix(root).expect("below the root");
            found.push(Source { path: relative.to_string_lossy().replace('\\', "/"), text });
        }
    }
}
