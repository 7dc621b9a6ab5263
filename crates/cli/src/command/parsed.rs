//! From the arguments to what is asked for.

use super::Terrace;
use super::erp::ERP_DEFAULTS;
use super::restart::RESTART_DEFAULTS;
use super::set;
use super::steady::STEADY_DEFAULTS;
use super::tpch::TPCH_DEFAULTS;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, Error, FromArgMatches};
use std::ffi::OsString;

/// Parses the command line. The tier of `bench restart` is that of another paper than the tier of
/// `bench tpcc`, with the same options.
///
/// # Errors
///
/// What clap says of it.
pub fn parse() -> Result<Terrace, Error> {
    let command = terrace();
    let arguments = set::expanded(&command, std::env::args_os().collect());
    let arguments = arguments.map_err(|wrong| Error::raw(ErrorKind::ValueValidation, wrong))?;
    let matches = terrace().try_get_matches_from(&arguments);
    Terrace::from_arg_matches(&matches.map_err(|error| below_zero(&arguments, error))?)
}

/// `error`, unless a value below zero was taken for an option: then what is wrong with that value.
fn below_zero(arguments: &[OsString], error: Error) -> Error {
    let Some(ContextValue::String(taken)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let pairs =
        arguments.windows(2).filter_map(|pair| Some((pair[0].to_str()?, pair[1].to_str()?)));
    let is_below = |value: &str| {
        let number = value.strip_prefix('-').unwrap_or_default();
        number.starts_with(|first: char| first.is_ascii_digit() || first == '.')
    };
    let mut values = pairs.filter(|(option, value)| {
        option.starts_with("--") && is_below(value) && value.starts_with(taken.as_str())
    });
    let found = values.next().filter(|_| error.kind() == ErrorKind::UnknownArgument);
    found.map_or(error, |(option, value)| {
        let wrong = format!("{option}: `{value}` is below zero, and no value of {option} may be");
        Error::raw(ErrorKind::ValueValidation, wrong)
    })
}

/// The command with all of its options.
pub fn terrace() -> Command {
    set::with_set(ignoring_case(with_defaults()))
}

/// `command` with words that are read whatever their case.
fn ignoring_case(command: Command) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|each| each.get_name().to_string()).collect();
    let command =
        names.into_iter().fold(command, |all, name| all.mut_subcommand(name, ignoring_case));
    command.mut_args(|arg| {
        let takes_values = arg.get_action().takes_values();
        arg.ignore_case(takes_values)
    })
}

fn with_defaults() -> Command {
    Terrace::command().mut_subcommand("bench", |bench| {
        let defaults = |command: Command, defaults: &[(&'static str, &'static str)]| {
            defaults.iter().fold(command, |command, (name, value)| {
                command.mut_arg(name, |option| option.default_value(*value))
            })
        };
        bench
            .mut_subcommand("restart", |restart| defaults(restart, &RESTART_DEFAULTS))
            .mut_subcommand("steady", |steady| defaults(steady, &STEADY_DEFAULTS))
            .mut_subcommand("erp", |erp| defaults(erp, &ERP_DEFAULTS))
            .mut_subcommand("tpch", |tpch| defaults(tpch, &TPCH_DEFAULTS))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        terrace().debug_assert();
    }
}
