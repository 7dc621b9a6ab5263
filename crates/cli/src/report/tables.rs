//! The page of a bench that has tables only.

use super::html::escaped;
use super::{bottom, parameters, top};
use crate::table::Titled;
use serde_json::{Map, Value};
use std::fmt::Write;

/// The page of a command, with its heading and what stands below.
pub fn tables_page(
    (command, heading, about): (&str, &str, &str),
    seed: u64,
    all: &Map<String, Value>,
    tables: &[Titled],
) -> String {
    let repeat = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let mut out = top(command, heading, about, &format!("terrace {repeat}"));
    for shown in tables {
        let _ = write!(
            out,
            "<h2>{}</h2><div class=\"panel\"><table>{}</table></div>",
            escaped(&shown.title),
            shown.table.html(),
        );
    }
    out.push_str(&parameters(seed, all));
    out.push_str(&bottom());
    out
}
