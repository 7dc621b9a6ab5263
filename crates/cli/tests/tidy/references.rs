//! What comments and documents cite is there: papers, entries of SOURCES.md, invariants.
//!
//! ```text
//! [S3 II-A]     a paper: the tag is in the table of docs/SOURCES.md
//! sources.R4    an entry of docs/SOURCES.md
//! dirty.E1      an invariant of another file: its stem, or its folder's name for `mod.rs`, or its
//!               crate's for `lib.rs`; with `folder/` before it if several files have the stem
//! E1            an invariant of this file, defined in it as `- E1: ...`
//! ```
//!
//! - Text in backquotes is code, and cites nothing.
//! - A file of the same crate is preferred to one of another crate.

use std::collections::BTreeMap;

use crate::source::{Source, sources};
use crate::{holds_word, report};

const SOURCES: &str = "docs/SOURCES.md";
/// Its rows have the numbers of published results, a letter and two digits.
const RESULTS: &str = "docs/REPRODUCTION.md";
/// Notes that no reader can open. Split, so that this file does not find itself.
const UNREADABLE: [(&str, &str); 2] = [("SP", "EC"), ("RESULTS", ".md")];
/// Names that other people gave: the lists of the ARC paper.
const NAMES: [(&str, &[&str]); 1] =
    [("crates/policy/src/replacement/arc.rs", &["T1", "T2", "B1", "B2"])];

/// The comments of a file, or all of a document, with the code in backquotes blanked. Lines keep
/// their numbers.
fn prose(source: &Source) -> String {
    let mut prose = String::new();
    for line in source.text.lines() {
        let text = if source.is_rust() { comment(line) } else { line };
        for (at, part) in text.split('`').enumerate() {
            match at % 2 {
                0 => prose.push_str(part),
                _ => prose.push('`'),
            }
        }
        prose.push('\n');
    }
    prose
}

/// The comment of a line of code, without its slashes.
fn comment(line: &str) -> &str {
    let starts = |at: usize| at == 0 || line[..at].ends_with(' ');
    let at = line.match_indices("//").map(|(at, _)| at).find(|&at| starts(at));
    at.map_or("", |at| line[at..].trim_start_matches(['/', '!']))
}

/// What a name and a number are cited as: `E1`, or `dirty.E1`.
struct Citation<'a> {
    /// The file, with the folders that were named.
    file: Option<&'a str>,
    name: &'a str,
    line: usize,
    /// Whether it stands in brackets.
    in_brackets: bool,
}

impl Citation<'_> {
    fn whole(&self) -> String {
        self.file.map_or(self.name.to_string(), |file| format!("{file}.{}", self.name))
    }
}

/// All words of `prose` that are a capital letter and one or two digits.
fn citations(prose: &str) -> Vec<Citation<'_>> {
    let is_part = |c: char| c.is_alphanumeric() || "_./-".contains(c);
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(begin) = prose[at..].find(is_part).map(|skip| at + skip) {
        let end = prose[begin..].find(|c| !is_part(c)).map_or(prose.len(), |len| begin + len);
        at = end;
        let word = prose[begin..end].trim_end_matches(['.', '-', '/']);
        let (file, name) = match word.rsplit_once('.') {
            Some((file, name)) => (Some(file), name),
            None => (None, word),
        };
        let is_file = |file: &str| {
            file.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_/".contains(c))
        };
        if !is_name(name) || !file.is_none_or(is_file) {
            continue;
        }
        let before = &prose[..begin];
        let paragraph = &before[before.rfind("\n\n").unwrap_or(0)..];
        let in_brackets = paragraph.rfind('[') > paragraph.rfind(']');
        found.push(Citation { file, name, line: 1 + before.matches('\n').count(), in_brackets });
    }
    found
}

/// Whether `word` is an invariant's name, or a paper's tag.
fn is_name(word: &str) -> bool {
    let mut chars = word.chars();
    let begins = chars.next().is_some_and(|c| c.is_ascii_uppercase());
    let digits = chars.as_str().trim_end_matches(|c: char| c.is_ascii_lowercase());
    let letters = chars.as_str().len() - digits.len();
    let is_tag = letters == 0 || letters == 1 && word.starts_with('S');
    begins
        && is_tag
        && (1..=2).contains(&digits.len())
        && digits.chars().all(|c| c.is_ascii_digit())
}

/// The invariants that a file defines, in its order, with their lines.
fn definitions(prose: &str) -> Vec<(&str, usize)> {
    let defined = prose.lines().enumerate().filter_map(|(at, line)| {
        let (name, _) = line.trim_start().strip_prefix("- ")?.split_once(':')?;
        is_name(name).then_some((name, at + 1))
    });
    defined.collect()
}

/// The tags of the papers: first cells of rows of the table in SOURCES.md.
fn tags(prose: &str) -> Vec<&str> {
    let cells = prose.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    cells.filter(|cell| is_name(cell)).collect()
}

/// A file's path as citations have it: without `crates`, `src`, extension; in small letters.
fn place(path: &str) -> String {
    let path = path.trim_end_matches(".rs").trim_end_matches(".md").to_lowercase();
    let path = path.trim_end_matches("/mod").trim_end_matches("/src/lib");
    format!("/{path}")
}

/// Which files define what.
struct Index<'a> {
    files: Vec<(&'a Source, String, Vec<&'a str>)>,
    tags: Vec<&'a str>,
}

impl<'a> Index<'a> {
    fn new(sources: &'a [Source], proses: &'a [String]) -> Index<'a> {
        let mut index = Index { files: Vec::new(), tags: Vec::new() };
        for (source, prose) in sources.iter().zip(proses) {
            let names = definitions(prose).into_iter().map(|(name, _)| name).collect();
            index.files.push((source, place(&source.path), names));
            if source.path == SOURCES {
                index.tags = tags(prose);
            }
        }
        index
    }

    /// What is wrong with a citation in `source`.
    fn flaw(&self, source: &Source, own: &[(&str, usize)], cited: &Citation) -> Option<String> {
        let known = NAMES.iter().any(|(file, names)| {
            source.path == *file && names.contains(&cited.name) && cited.file.is_none()
        });
        let is_result = cited.name.len() == 3 && source.path == RESULTS;
        let is_tag = cited.name.starts_with('S')
            && (cited.in_brackets || source.path == SOURCES || cited.name.len() == 3);
        match cited.file {
            Some(file) => self.flaw_elsewhere(source, file, cited.name),
            None if is_tag && self.tags.contains(&cited.name) => None,
            None if known || is_result || own.iter().any(|(name, _)| *name == cited.name) => None,
            None if is_tag => Some(format!("no paper of {SOURCES} has this tag")),
            None => Some("this file does not define it".to_string()),
        }
    }

    fn flaw_elsewhere(&self, source: &Source, file: &str, name: &str) -> Option<String> {
        let end = format!("/{file}");
        let defines = |(_, place, names): &&(_, String, Vec<&str>)| {
            place.ends_with(&end) && names.contains(&name)
        };
        let places: Vec<_> = self.files.iter().filter(defines).collect();
        let near = places.iter().filter(|place| place.0.crate_name() == source.crate_name());
        match (near.count(), places.len()) {
            (1, _) | (0, 1) => None,
            (0, 0) => Some(format!("no file `{file}` defines it")),
            _ => Some(format!("several files `{file}` define it: name the folder too")),
        }
    }
}

/// All that is wrong in `sources`.
fn findings(sources: &[Source]) -> Vec<String> {
    let proses: Vec<String> = sources.iter().map(prose).collect();
    let index = Index::new(sources, &proses);
    let mut findings = Vec::new();
    for (source, prose) in sources.iter().zip(&proses) {
        let own = definitions(prose);
        for cited in citations(prose) {
            if let Some(flaw) = index.flaw(source, &own, &cited) {
                findings.push(format!("{}:{}: {}: {flaw}", source.path, cited.line, cited.whole()));
            }
        }
        findings.extend(out_of_order(&source.path, &own));
        for (at, line) in source.text.lines().enumerate() {
            for (head, tail) in UNREADABLE {
                let notes = format!("{head}{tail}");
                if holds_word(line, &notes) {
                    findings.push(format!("{}:{}: {notes}", source.path, at + 1));
                }
            }
        }
    }
    findings
}

/// The names of one letter count up from 1.
fn out_of_order(path: &str, own: &[(&str, usize)]) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut findings = Vec::new();
    for (name, line) in own {
        let (letter, number) = name.split_at(1);
        let count = counts.entry(letter).or_default();
        *count += 1;
        if number != count.to_string() {
            findings.push(format!("{path}:{line}: {name} is number {count} of its letter"));
        }
    }
    findings
}

/// Rust and documents, but this file, whose examples lead nowhere.
fn is_cited_from(source: &Source) -> bool {
    let is_prose = source.is_rust() || source.path.ends_with(".md");
    is_prose && !file!().ends_with(&source.path)
}

#[test]
fn what_is_cited_is_there() {
    let sources: Vec<Source> = sources().into_iter().filter(is_cited_from).collect();
    report("citations lead somewhere, and invariants are in order", &findings(&sources));
}

/// A small tree: what is wrong with `text`, the comment of one of its files.
fn flaws_of(text: &str) -> Vec<String> {
    let file = |path: &str, text: &str| Source { path: path.to_string(), text: text.to_string() };
    let papers = "| tag | paper |\n|---|---|\n| S0 | one |\n| S1e | two |\n\n- R1: a reading.\n";
    let sources = [
        file(SOURCES, papers),
        file("crates/pool/src/durability/dirty.rs", "//! - E1: one.\n//! - E2: two.\n"),
        file("crates/pool/src/flow/append/mod.rs", "//! - P1: one.\n"),
        file("crates/engine/src/ring.rs", "//! - G1: one.\n"),
        file("crates/device/src/ring.rs", "//! - G1: one.\n//! - U1: two.\n"),
        file("crates/pool/src/flow/flash.rs", text),
    ];
    findings(&sources)
}

#[test]
fn what_leads_nowhere_is_found() {
    let right = "//! [S0 2.3; S1e] [S0 Fig.3,\n//! sources.R1], dirty.E1, durability/dirty.E2.\n\
                 //! - A1: see append.P1 (A1), ring.U1, and `X9`.\nlet b = A2;\n";
    assert_eq!(flaws_of(right), [""; 0]);
    let wrong = [
        ("//! A paper [S7 2].\n", "S7"),
        ("//! A paper [S0; S1d].\n", "S1d"),
        ("//! An entry [sources.R2].\n", "sources.R2"),
        ("//! Without entries [source.R1].\n", "source.R1"),
        ("//! Elsewhere (dirty.E3).\n", "dirty.E3"),
        ("//! Nowhere (dusty.E1).\n", "dusty.E1"),
        ("//! Of which (ring.G1)?\n", "ring.G1"),
        ("fn a() {} // Here (E1).\n", "E1"),
        ("//! A paper's tag is no invariant: S0.\n", "S0"),
        ("//! - A2: the second.\n", "A2"),
    ];
    for (text, name) in wrong {
        let found = flaws_of(text);
        assert!(found.len() == 1 && found[0].contains(name), "{text:?}: {found:?}");
    }
    let (head, tail) = UNREADABLE[0];
    assert_eq!(flaws_of(&format!("//! As {head}{tail} 2.3 says.\n")).len(), 1);
}
