//! What a shell and its users want to know of the command: completions, and manual pages.

use crate::command::{Completions, Man, terrace};
use crate::failure::Failure;
use crate::output::check_replaceable;
use crate::standard_output;
use std::fs;
use std::path::Path;

/// Prints the completions.
///
/// # Errors
///
/// There is no standard output.
pub fn completions(options: &Completions) -> Result<(), Failure> {
    standard_output::check()?;
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut terrace(), "terrace", &mut text);
    standard_output::show(&String::from_utf8_lossy(&text));
    Ok(())
}

/// Prints the manual page of the command, or writes those of all its parts.
///
/// # Errors
///
/// A page that cannot be written.
pub fn man(options: &Man) -> Result<(), Failure> {
    standard_output::check()?;
    let mut command = terrace();
    command.build();
    match &options.out {
        Some(folder) => {
            let made = fs::create_dir_all(folder);
            made.map_err(|error| {
                Failure::failed(format!("cannot make {}", folder.display()), error)
            })?;
            write(&command, folder)
        }
        None => {
            standard_output::show(&String::from_utf8_lossy(&page(&command)?));
            Ok(())
        }
    }
}

fn page(command: &clap::Command) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    let name = command.get_display_name().unwrap_or(command.get_name()).to_string();
    let made = clap_mangen::Man::new(command.clone()).title(name).render(&mut text);
    made.map(|()| text).map_err(|error| Failure::failed("cannot make a manual page", error))
}

fn write(command: &clap::Command, folder: &Path) -> Result<(), Failure> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let path = folder.join(format!("{name}.1"));
    check_replaceable(&path, "a manual page", |head| head.starts_with(b".ie \\n(.g"))?;
    fs::write(&path, page(command)?)
        .map_err(|error| Failure::failed(format!("cannot write {}", path.display()), error))?;
    let parts = command.get_subcommands();
    let mut shown = parts.filter(|part| !part.is_hide_set() && part.get_name() != "help");
    shown.try_for_each(|part| write(part, folder))
}
