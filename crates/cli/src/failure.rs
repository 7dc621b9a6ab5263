//! Why the command stops: one clear line on standard error, and an exit status that scripts can
//! use.

use std::fmt;
use std::process::ExitCode;

/// Why the command stops.
#[derive(Debug)]
pub enum Failure {
    /// What was asked for makes no sense. Exit status 2.
    Usage(String),
    /// It made sense, and did not work. Exit status 1.
    Failed(String),
    /// It worked in part: what was lost has been reported. Exit status 3.
    Partial(String),
}

/// Methods of `terrace::Builder`, and the options of the command that set the same.
const OPTIONS: [(&str, &str); 9] = [
    ("memory", "--dram"),
    ("flash", "--flash-device"),
    ("flash_role", "--persistent-flash"),
    ("log_size", "--log-size"),
    ("log_max", "--log-max"),
    ("home_size", "--home-size"),
    ("restart", "--restart"),
    ("design", "--design"),
    ("log", "--log"),
];

/// What the engine says, with the options of the command for the methods that it advises.
pub fn in_options(error: impl fmt::Display) -> String {
    let with = |text: String, (name, option): &(&str, &str)| {
        text.replace(&format!("`{name}`"), &format!("`{option}`"))
    };
    OPTIONS.iter().fold(error.to_string(), with)
}

impl Failure {
    /// A failure with its cause behind it.
    pub fn failed(what: impl fmt::Display, cause: impl fmt::Display) -> Failure {
        Failure::Failed(format!("{what}: {cause}"))
    }

    /// Usage error.
    pub fn usage(what: impl fmt::Display) -> Failure {
        Failure::Usage(what.to_string())
    }

    /// What stopped a bench: options that the engine refuses are errors of usage.
    pub fn of(what: impl fmt::Display, error: &terrace_workload::Error) -> Failure {
        use terrace_workload::Error::{Engine, UnknownName, UnknownPreset};
        match error {
            Engine(error @ terrace::Error::InvalidOption { .. }) => Failure::of_engine(what, error),
            UnknownName(_) | UnknownPreset(_) => Failure::usage(error),
            _ => Failure::failed(what, error),
        }
    }

    /// What the engine refused or could not do with the database at `what`. Options are named as
    /// the command has them.
    pub fn of_engine(what: impl fmt::Display, error: &terrace::Error) -> Failure {
        let terrace::Error::InvalidOption { option, what: why } = error else {
            return Failure::failed(what, in_options(error));
        };
        let option = OPTIONS.iter().find(|(name, _)| name == option).map_or(*option, |it| it.1);
        Failure::usage(format!("{option}: {why}"))
    }

    /// The exit status.
    pub fn status(&self) -> ExitCode {
        match self {
            Failure::Usage(_) => ExitCode::from(2),
            Failure::Failed(_) => ExitCode::FAILURE,
            Failure::Partial(_) => ExitCode::from(3),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Failure::Usage(line) | Failure::Failed(line) | Failure::Partial(line)) = self;
        // One line: a cause may come from anywhere.
        f.write_str(&line.replace('\n', " "))
    }
}
