//! Which files of a crate call each other, whatever their imports say.
//!
//! An edge leads from a file to another one of the crate that defines a function or method which it
//! calls. Paths are resolved as the compiler does it (`modules`), and methods by the declared type
//! of their receiver: of a type, the method of that type; of a trait object or a type parameter,
//! the method of the trait, in whose file it is declared, and none of its implementations. So an
//! edge stands for what the reader of the caller must know. Where parameters, fields, bindings and
//! return types do not declare the receiver, its method counts for every type that has one of the
//! name, but for names that the standard library has, too. Tests are left out.
//!
//! Of each circle the edges are named that close it (`back_edges`): without them it is none.

mod back_edges;
mod calls;
mod circles;
mod definitions;
mod library;
mod macros;
mod modules;
mod source;
mod types;

use std::process::ExitCode;

use calls::{Edges, calls_of};
use circles::circles;
use definitions::Definitions;
use source::Source;

const USAGE: &str = "usage: call-graph [options] CRATE_SRC ...

  --circle-max FILES  fail if a circle of calls has more files
  --lines-max LINES   fail if a circle of calls has more lines
  --edges             print every edge, with the names that make it
  --types             print the types with the most methods and fields
  --unresolved        print the names of methods whose receivers' types are not known";

#[derive(Default)]
struct Options {
    circle_max: Option<usize>,
    lines_max: Option<usize>,
    prints_edges: bool,
    prints_types: bool,
    prints_unresolved: bool,
    folders: Vec<String>,
}

/// Files and lines of a circle.
#[derive(Clone, Copy, Default)]
struct Size {
    files: usize,
    lines: usize,
}

fn options() -> Option<Options> {
    let mut options = Options::default();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--circle-max" => options.circle_max = Some(args.next()?.parse().ok()?),
            "--lines-max" => options.lines_max = Some(args.next()?.parse().ok()?),
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
    let mut failed = false;
    for folder in &options.folders {
        let circles = match print_crate(folder, &options) {
            Ok(circles) => circles,
            Err(why) => {
                eprintln!("call-graph: {why}");
                return ExitCode::from(2);
            }
        };
        for Size { files, lines } in circles {
            if options.circle_max.is_some_and(|max| files > max)
                || options.lines_max.is_some_and(|max| lines > max)
            {
                eprintln!("call-graph: {folder} has a circle of {files} files, {lines} lines");
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Prints a crate's line and what else was asked for; returns how large its circles are.
fn print_crate(folder: &str, options: &Options) -> Result<Vec<Size>, String> {
    let sources = Source::read_all(folder)?;
    let definitions = Definitions::of(&sources);
    let calls::Calls { edges, unresolved } = calls_of(&sources, &definitions);
    let circles = circles(sources.len(), &edges);
    let size_of = |files: &Vec<usize>| Size {
        files: files.len(),
        lines: files.iter().map(|&file| sources[file].lines).sum(),
    };
    let sizes: Vec<Size> = circles.iter().map(size_of).collect();
    let shown: Vec<String> =
        sizes.iter().map(|Size { files, lines }| format!("{files} ({lines})")).collect();
    let lines: usize = sources.iter().map(|source| source.lines).sum();
    println!(
        "{folder:<24}{:>7}{lines:>8}{:>11}{:>7}  {}",
        sources.len(),
        definitions.functions_count(),
        edges.len(),
        if shown.is_empty() { "none".to_string() } else { shown.join(", ") },
    );
    circles.iter().for_each(|circle| print_circle(circle, &sources, &edges));
    if options.prints_edges {
        for &edge in edges.keys() {
            println!("    {}", shown_edge(edge, &sources, &edges));
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
    Ok(sizes)
}

/// Prints a circle, and the edges that close it with what each removal leaves.
fn print_circle(circle: &[usize], sources: &[Source], edges: &Edges) {
    let names: Vec<&str> = circle.iter().map(|&file| sources[file].name.as_str()).collect();
    println!("    circle: {}", names.join(" "));
    for edge in back_edges::back_edges(circle, edges) {
        let left = match edge.leaves {
            0 => "none".to_string(),
            files => format!("{files} files"),
        };
        let shown = shown_edge((edge.from, edge.to), sources, edges);
        println!("        closed by {shown}  (leaves {left})");
    }
}

fn shown_edge((from, to): (usize, usize), sources: &[Source], edges: &Edges) -> String {
    let names: Vec<&str> = edges[&(from, to)].iter().map(String::as_str).collect();
    format!("{} -> {}: {}", sources[from].name, sources[to].name, names.join(" "))
}
