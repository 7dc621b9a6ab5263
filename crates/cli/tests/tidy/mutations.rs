//! Each `Mutation` has a rule that asks for it, and a test that puts it in force.
//!
//! A name in a `use`, or in a question `has(Mutation::...)`, puts nothing in force.

use crate::source::{Source, sources};
use crate::{holds_word, report};

const DEFINED_IN: &str = "crates/tier/src/mutation.rs";

/// The variants in the text of the file that defines them.
fn variants(text: &str) -> Vec<&str> {
    let lines = text.lines().skip_while(|line| *line != "mutations! {").skip(1);
    let list = lines.take_while(|line| *line != "}").map(str::trim);
    list.filter(|line| !line.starts_with("//")).filter_map(|line| line.strip_suffix(',')).collect()
}

/// What is wrong in `sources`.
fn findings(sources: &[Source]) -> Vec<String> {
    let definition = sources.iter().find(|source| source.path == DEFINED_IN);
    let variants = variants(&definition.expect("the file is there").text);
    assert!(!variants.is_empty(), "the variants are found");
    let mut asked = String::new();
    let mut tested = String::new();
    for source in sources.iter().filter(|source| source.is_rust() && source.path != DEFINED_IN) {
        let shipped = match source.is_shipped() {
            true => source.lines_before_tests().len(),
            false => 0,
        };
        let mut is_use = false;
        for (at, line) in source.text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            is_use |= code.starts_with("use ");
            if at < shipped {
                asked.push_str(code);
            } else if !is_use && !code.contains("has(") {
                tested.push_str(code);
            }
            is_use &= !code.ends_with(';');
            asked.push('\n');
            tested.push('\n');
        }
    }
    let mut findings = Vec::new();
    for variant in variants {
        for (text, who) in [(&asked, "rule asks for it"), (&tested, "test puts it in force")] {
            if !text.lines().any(|line| holds_word(line, variant)) {
                findings.push(format!("{variant}: no {who}"));
            }
        }
    }
    findings
}

#[test]
fn every_mutation_has_a_rule_and_a_test() {
    report("a rule that protects data is tested", &findings(&sources()));
}

#[test]
fn a_mutation_without_a_rule_or_a_test_is_found() {
    let file = |path: &str, text: &str| Source { path: path.to_string(), text: text.to_string() };
    let sources = [
        file(DEFINED_IN, "//! Aa\nmutations! {\n    /// Cc\n    Aa,\n    Bb,\n    Cc,\n}\n"),
        file("crates/pool/src/a.rs", "fn a() { has(Mutation::Aa) || has(Cc) }\n// Bb\n"),
        file("crates/pool/src/b.rs", "#[cfg(test)]\nmod tests {\n    put(Mutation::Aa);\n}\n"),
        file("crates/pool/tests/a.rs", "use a::Mutation::{\n    Bb, Cc,\n};\nput(&[Bb]);\n"),
        file("crates/pool/tests/b.rs", "let a = config.has(Mutation::Cc);\n"),
    ];
    let expected = ["Bb: no rule asks for it", "Cc: no test puts it in force"];
    assert_eq!(findings(&sources), expected);
}
