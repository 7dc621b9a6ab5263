//! `--page-rates`: pages compared with themselves, while they have a slot on flash and while not.

use crate::failure::Failure;
use crate::interval::rounded;
use crate::results;
use crate::table::{percent, thousands};
use std::sync::Arc;
use terrace_policy::Design;
use terrace_workload::{Compared, PageRates, PageRecording, Rates, System};

/// Lets `system` count, if that is asked for.
///
/// # Errors
///
/// More than one run, or a design without flash.
pub fn begin(
    pages: Option<u32>,
    (designs, seeds): (&[Design], u64),
    system: &mut System,
) -> Result<Option<Arc<PageRates>>, Failure> {
    let Some(pages) = pages else { return Ok(None) };
    if designs.len() != 1 || seeds != 1 || !designs[0].uses_flash() {
        let what = "--page-rates takes one run: name one --design with flash, and one seed";
        return Err(Failure::usage(what));
    }
    let rates = Arc::new(PageRates::new(pages as usize));
    system.recording = Some(Arc::clone(&rates) as Arc<dyn PageRecording>);
    Ok(Some(rates))
}

/// As it is printed in JSON.
pub fn shown(rates: &Rates) -> results::PageRates {
    let compared = |of: Compared| results::Compared {
        higher_on_flash: of.higher_on_flash,
        higher_elsewhere: of.higher_elsewhere,
        share: rounded(of.share()),
    };
    results::PageRates {
        pages: rates.pages,
        reads: compared(rates.reads),
        misses: compared(rates.misses),
        writes: compared(rates.writes),
    }
}

/// For people.
pub fn text(rates: &results::PageRates) -> String {
    let of = |compared: results::Compared| {
        let different = compared.higher_on_flash + compared.higher_elsewhere;
        format!("{} of the {} that differ", percent(compared.share), thousands(different as f64))
    };
    format!(
        "\n{} pages were long on flash and long not; with a slot more reads a second: {}; more \
         misses a request: {}; more writes a second: {}\n",
        thousands(rates.pages as f64),
        of(rates.reads),
        of(rates.misses),
        of(rates.writes),
    )
}
