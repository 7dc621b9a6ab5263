//! Which files of a crate call each other, whatever their imports say.
//!
//! An edge leads from a file to another one of the crate that defines a function or method which it
//! calls. A method that several types define is resolved by the declared type of its receiver, as
//! far as parameters, fields, bindings and return types declare it; else it counts for all of them,
//! but for names that the standard library has, too. Tests are left out.

mod calls;
mod circles;
mod definitions;
mod source;
mod types;

use std::process::ExitCode;

use calls::calls_of;
use circles::circles;
use definitions::Definitions;
use source::Source;

const USAGE: &str =
    "usage: call-graph [--circle-max FILES] [--edges] [--types] [--unresolved] CRATE_SRC ...

  --circle-max FILES  fail if a circle of calls has more files
  --edges             print every edge, with the names that make it
  --types             print the types with the most methods and fields
  --unresolved        print the names of methods whose receivers' types are not known";

#[derive(Default)]
struct Options {
    circle_max: Option<usize>,
    prints_edges: bool,
    prints_types: bool,
    prints_unresolved: bool,
    folders: Vec<String>,
}

fn options() -> Option<Options> {
    let mut options = Options::default();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--circle-max" => options.circle_max = Some(args.next()?.parse().ok()?),
            "--edges" => options.prints_edges = true,
            "--unresolved" => options.prints_unresolved = true,
            "--types" => options.prints_types = true,
            folder if !folder.starts_with('-') => options.folders.push(folder.to_string()),
            _ => return None,
        }
    }
    (!options.folders.is_empty()).then_some(options)
}

fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    println!(
        "{:<24}{:>7}{:>8}{:>11}{:>7}  circles (files, lines)",
        "crate", "files", "lines", "functions", "pairs"
    );
    let mut largest = 0;
    for folder in &options.folders {
        match print_crate(folder, &options) {
            Ok(files) => largest = largest.max(files),
            Err(why) => {
                eprintln!("call-graph: {why}");
                return ExitCode::from(2);
            }
        }
    }
    match options.circle_max {
        Some(max) if largest > max => {
            eprintln!("call-graph: a circle of {largest} files; at most {max} are allowed");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Prints a crate's line and what else was asked for; returns the files of its largest circle.
fn print_crate(folder: &str, options: &Options) -> Result<usize, String> {
    let sources = Source::read_all(folder)?;
    let definitions = Definitions::of(&sources);
    let calls::Calls { edges, unresolved } = calls_of(&sources, &definitions);
    let circles = circles(sources.len(), &edges);
    let lines_of = |files: &[usize]| files.iter().map(|&file| sources[file].lines).sum::<usize>();
    let shown: Vec<String> =
        circles.iter().map(|files| format!("{} ({})", files.len(), lines_of(files))).collect();
    let lines: usize = sources.iter().map(|source| source.lines).sum();
    println!(
        "{folder:<24}{:>7}{lines:>8}{:>11}{:>7}  {}",
        sources.len(),
        definitions.functions_count(),
        edges.len(),
        if shown.is_empty() { "none".to_string() } else { shown.join(", ") },
    );
    for files in &circles {
        let names: Vec<&str> = files.iter().map(|&file| sources[file].name.as_str()).collect();
        println!("    circle: {}", names.join(" "));
    }
    if options.prints_edges {
        for ((from, to), names) in &edges {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            println!("    {} -> {}: {}", sources[*from].name, sources[*to].name, names.join(" "));
        }
    }
    if options.prints_unresolved {
        let mut unresolved: Vec<(String, usize)> = unresolved.into_iter().collect();
        unresolved.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        for (name, count) in unresolved {
            println!("    unresolved: {count} {name}");
        }
    }
    if options.prints_types {
        for size in definitions.largest_types() {
            println!(
                "    {}: {} methods, {} fields, {} files",
                size.name, size.methods, size.fields, size.files
            );
        }
    }
    Ok(circles.first().map_or(0, Vec::len))
}
