//! The options of `completions` and `man`.

use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub struct Completions {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: clap_complete::Shell,
}

#[derive(Args)]
pub struct Man {
    /// Write a page for each part, like terrace-bench-tpcc.1, to this folder
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
}
