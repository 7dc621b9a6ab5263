//! The page of `bench index`: its tables.

use super::html::escaped;
use super::{bottom, parameters, top};
use crate::bench::IndexTable;
use serde_json::{Map, Value};
use std::fmt::Write;

/// The page with `tables`.
pub fn index_page(seed: u64, all: &Map<String, Value>, tables: &[IndexTable]) -> String {
    let repeat = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let mut out = top(
        "bench index",
        "Indexes on the inside of a flash drive",
        "B+-tree, PIO B-tree, FD-tree and BFTL on modelled drives, in virtual time.",
        &format!("terrace {repeat}"),
    );
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
