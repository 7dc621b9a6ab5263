//! Options of experiments: `--set name=value`, from a table that the help prints.
//!
//! - T1: each is an ordinary option, too, hidden from the help: `--alpha 8` is `--set alpha=8`.

use clap::{Arg, ArgAction, Command};
use std::ffi::{OsStr, OsString};

/// Options of experiments, by their long names, of every bench and of `replay` that has them.
const EXPERIMENTS: [&str; 55] = [
    // Memory and flash tier.
    "charge-metadata",
    "costs",
    "tau",
    "mu",
    "spill",
    "partitions",
    "alpha",
    "face-group",
    "fasc-block",
    "fasc-window",
    "fasc-full",
    "fasc-migration",
    "fasc-theta",
    "fasc-scan",
    "cleaner-ios",
    "buf-write-pages",
    "cleaner-order",
    "clean-age",
    "ramp-up-fill",
    "aggressive-fill",
    "classifier",
    "tac-write",
    "tac-rule",
    "tac-aging",
    "bands",
    "band-order",
    "near",
    "no-read-ahead",
    "span",
    "outstanding",
    "lbr-group",
    "lbr-timeout",
    "mmr-unit",
    "lvr-chunks",
    "lvr-pause",
    // Database, clients and time.
    "fill",
    "rows",
    "cores",
    "own-warehouse",
    "think",
    "averaged",
    "window",
    "peak-share",
    "cut-after",
    "page-rates",
    "no-check",
    "threads",
    "write",
    "write-back-only",
    "timed",
    "admission",
    "replacement",
    "layout",
    "record-at",
    "warm",
];
/// Of a command with fewer, none is hidden: its help is short enough.
const EXPERIMENTS_MIN: usize = 8;

/// `command` with its experiments, and those of its subcommands, behind `--set`.
pub fn with_set(command: Command) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|each| each.get_name().to_string()).collect();
    let command =
        names.into_iter().fold(command, |command, name| command.mut_subcommand(name, with_set));
    let table = table(&command);
    if table.len() < EXPERIMENTS_MIN {
        return command;
    }
    let hidden = command.mut_args(|arg| {
        let is_experiment = is_experiment(&arg);
        arg.hide(is_experiment)
    });
    let help = format!(
        "Options of experiments, as `--set NAME=VALUE` or `--NAME VALUE`:\n{}",
        table.join("\n")
    );
    let set = Arg::new("set")
        .long("set")
        .value_name("NAME=VALUE")
        .action(ArgAction::Append)
        .help("Change an option of experiments; --help ends with a table of them");
    hidden.arg(set).after_long_help(help)
}

fn is_experiment(arg: &Arg) -> bool {
    arg.get_long().is_some_and(|long| EXPERIMENTS.contains(&long))
}

fn is_flag(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

/// A line for each experiment of `command`.
fn table(command: &Command) -> Vec<String> {
    let experiments = command.get_arguments().filter(|arg| is_experiment(arg));
    let row = |arg: &Arg| {
        let name = arg.get_long().unwrap_or_default();
        let help = arg.get_help().map(|help| help.to_string()).unwrap_or_default();
        let defaults: Vec<&str> =
            arg.get_default_values().iter().filter_map(|value| value.to_str()).collect();
        let default = match (is_flag(arg), defaults.is_empty()) {
            (true, _) => " [default: off]".to_string(),
            (false, true) => String::new(),
            (false, false) => format!(" [default: {}]", defaults.join(",")),
        };
        format!("  {name:<16} {}{default}", help.replace('\n', " "))
    };
    experiments.map(row).collect()
}

/// `arguments` with `--NAME VALUE` for each `--set NAME=VALUE` (T1).
///
/// # Errors
///
/// What is no experiment of the command that is asked for, in words.
pub fn expanded(root: &Command, arguments: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let mut out = Vec::with_capacity(arguments.len());
    let mut command = root;
    let mut rest = arguments.into_iter();
    while let Some(argument) = rest.next() {
        let text = argument.to_string_lossy().into_owned();
        if text == "--" {
            out.push(argument);
            out.extend(rest);
            return Ok(out);
        }
        let assignment = match text.strip_prefix("--set=") {
            Some(assignment) => Some(assignment.to_string()),
            None if text == "--set" => rest.next().map(|next| next.to_string_lossy().into_owned()),
            None => None,
        };
        match assignment {
            Some(assignment) => out.extend(option(command, &assignment)?),
            None => {
                if let Some(found) = command.find_subcommand(OsStr::new(&text)) {
                    command = found;
                }
                out.push(argument);
            }
        }
    }
    Ok(out)
}

/// The option that `assignment` is to `command`.
fn option(command: &Command, assignment: &str) -> Result<Vec<OsString>, String> {
    let (name, value) = assignment.split_once('=').unwrap_or((assignment, "on"));
    let bare = name.trim().replace('_', "-").to_lowercase();
    let known = || command.get_arguments().filter(|arg| is_experiment(arg));
    let find = |name: &str| known().find(|arg| arg.get_long() == Some(name));
    let Some(arg) = find(&bare) else {
        let names: Vec<&str> = known().filter_map(Arg::get_long).collect();
        let error = format!("unknown experiment `{name}`; known: {}", names.join(", "));
        return super::names::named(&bare, |_| Err::<Vec<OsString>, _>(error.clone()));
    };
    let long = arg.get_long().unwrap_or_default();
    match (is_flag(arg), value) {
        (true, "on" | "true" | "yes" | "1") => Ok(vec![format!("--{long}").into()]),
        (true, "off" | "false" | "no" | "0") => Ok(Vec::new()),
        (true, other) => Err(format!("--set {long}: `{other}` is neither on nor off")),
        (false, value) => Ok(vec![format!("--{long}={value}").into()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(arguments: &[&str]) -> Result<Vec<String>, String> {
        let root = super::super::terrace();
        let arguments = arguments.iter().map(OsString::from).collect();
        let text = |argument: OsString| argument.to_string_lossy().into_owned();
        expanded(&root, arguments).map(|all| all.into_iter().map(text).collect())
    }

    #[test]
    fn assignments_become_options() {
        let bench = ["terrace", "bench", "tpcc"];
        let with = |more: &[&str]| expand(&[&bench[..], more].concat());
        let is = |more: &[&str]| {
            Ok([&bench[..], more].concat().iter().map(|text| text.to_string()).collect())
        };
        assert_eq!(with(&["--set", "alpha=8", "--seed", "2"]), is(&["--alpha=8", "--seed", "2"]));
        assert_eq!(with(&["--set=Face_Group=8"]), is(&["--face-group=8"]));
        assert_eq!(with(&["--set", "own-warehouse=on"]), is(&["--own-warehouse"]));
        assert_eq!(with(&["--set", "own-warehouse"]), is(&["--own-warehouse"]));
        assert_eq!(with(&["--set", "own-warehouse=off"]), is(&[]));
        let said = with(&["--set", "alhpa=8"]).unwrap_err();
        assert!(said.contains("unknown experiment `alhpa`; known: "), "{said}");
        assert!(said.ends_with("did you mean `alpha`?"), "{said}");
        assert!(with(&["--set", "seed=8"]).is_err());
        assert!(with(&["--set", "own-warehouse=8"]).is_err());
        let capture = ["terrace", "trace", "capture", "--", "x", "--set", "a=b"];
        assert_eq!(expand(&capture).unwrap().len(), 7);
    }

    #[test]
    fn every_experiment_is_an_option_of_some_command() {
        fn longs(command: &Command, all: &mut Vec<String>) {
            all.extend(
                command.get_arguments().filter_map(|arg| arg.get_long().map(str::to_string)),
            );
            command.get_subcommands().for_each(|each| longs(each, all));
        }
        let mut all = Vec::new();
        longs(&super::super::terrace(), &mut all);
        for name in EXPERIMENTS {
            assert!(all.iter().any(|long| long == name), "{name}");
        }
    }
}
