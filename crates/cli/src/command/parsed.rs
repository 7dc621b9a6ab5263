//! From the arguments to what is asked for.

use super::Terrace;
use super::erp::ERP_DEFAULTS;
use super::restart::RESTART_DEFAULTS;
use super::set;
use super::steady::STEADY_DEFAULTS;
use super::tpch::TPCH_DEFAULTS;
use clap::error::ErrorKind;
use clap::{Command, CommandFactory, Error, FromArgMatches};

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
    Terrace::from_arg_matches(&terrace().try_get_matches_from(arguments)?)
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
