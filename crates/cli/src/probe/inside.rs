//! `terrace probe --inside`: the domains of a drive and its chunks, from timing alone.
//!
//! `terrace_device::inside` has the method. It only reads. What a virtual disk answers is that of
//! everything between the file and the flash, and the answer says so.

use crate::bench::probe::stored_bytes;
use crate::command::Probe;
use crate::failure::Failure;
use crate::interval::rounded;
use crate::output::Sinks;
use crate::table::thousands;
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::sync::Arc;
use terrace_device::inside::{Inside, Search, UNIT, bytes_min, detect, timed};
use terrace_device::{Access, Device, FileDevice, FileOptions, Method};
use terrace_rt::{LeafMutex, Real};

/// The shortest of the longest strides that are worth a try.
const STRIDE_MIN: u64 = 64 * UNIT;

/// Runs it.
///
/// # Errors
///
/// A file that cannot be opened, is too small, or is asked for one request after the other; what
/// the device says.
pub fn inside(options: &Probe) -> Result<(), Failure> {
    let path = &options.path;
    let failed =
        |error: io::Error| Failure::failed(format!("cannot probe {}", path.display()), error);
    let sinks = Sinks::open(options.shown.json.as_deref())?;
    let access = Access::ReadOnly;
    let device = FileDevice::open(path, &FileOptions { access, ..FileOptions::default() });
    let device = device.map_err(failed)?;
    let bytes = stored_bytes(path, device.len()).map_err(failed)?;
    if bytes < bytes_min(STRIDE_MIN) {
        return Err(Failure::Failed(format!(
            "{}: a file of {} bytes is too small to look inside its drive; take one of {} or more",
            path.display(),
            thousands(bytes as f64),
            thousands(bytes_min(Search::default().stride_max) as f64)
        )));
    }
    if device.method() == Method::Positioned {
        return Err(Failure::Failed(format!(
            "{}: without io_uring its requests are made one after the other, which shows nothing \
             of its inside; probe a file on a drive, where the kernel allows io_uring",
            path.display()
        )));
    }
    let strides = Search::default().stride_max.min(bytes / bytes_min(1) / UNIT * UNIT);
    let search = Search { stride_max: strides, ..Search::default() };
    let found = Arc::new(LeafMutex::new(None));
    let result = Arc::clone(&found);
    Real::new(1).run(move || {
        let looked = detect(bytes, &search, &mut timed(&device));
        *result.lock() = Some(looked);
    });
    let looked = found.lock().take().expect("the task has ended");
    let looked = looked.map_err(failed)?;
    sinks.show(&format!("{}: {}\n", path.display(), sentence(looked)));
    sinks.write(&object(path, &search, looked))
}

/// For people: one line.
fn sentence(found: Inside) -> String {
    match found {
        Inside::Striped { domains, chunk_bytes, contrast } => format!(
            "{domains} domains, chunks of {} bytes: 16 reads of one domain take {contrast:.2} \
             times as long as 16 at random",
            thousands(chunk_bytes as f64)
        ),
        Inside::Even { stride_max, contrast } => format!(
            "no domains seen: 16 reads at multiples of the slowest stride up to {} bytes take \
             {contrast:.2} times as long as 16 at random. A virtual disk, a cache, a busy machine \
             or a drive that places pages anywhere looks like that: take it as one domain",
            thousands(stride_max as f64)
        ),
        Inside::Irregular { stride, contrast } => format!(
            "no chunks over domains: 16 reads at multiples of {} bytes take {contrast:.2} times as \
             long as 16 at random, but no run of shifts does. Take it as one domain",
            thousands(stride as f64)
        ),
    }
}

fn object(path: &Path, search: &Search, found: Inside) -> Value {
    let (domains, chunk, contrast) = match found {
        Inside::Striped { domains, chunk_bytes, contrast } => {
            (Some(domains), Some(chunk_bytes), contrast)
        }
        Inside::Even { contrast, .. } | Inside::Irregular { contrast, .. } => {
            (None, None, contrast)
        }
    };
    json!({
        "command": "probe --inside",
        "version": env!("CARGO_PKG_VERSION"),
        "path": path.display().to_string(),
        "stride_max_bytes": search.stride_max,
        "domains": domains,
        "chunk_bytes": chunk,
        "contrast": rounded(contrast),
        "says": sentence(found),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_is_one_line_that_says_what_to_take_it_for() {
        let striped = Inside::Striped { domains: 20, chunk_bytes: 16_384, contrast: 3.0 };
        assert!(sentence(striped).starts_with("20 domains, chunks of 16,384 bytes"));
        let even = Inside::Even { stride_max: 4 << 20, contrast: 1.05 };
        let irregular = Inside::Irregular { stride: 8_192, contrast: 1.7 };
        for found in [even, irregular] {
            let said = sentence(found);
            assert!(said.contains("Take it") || said.contains("take it"), "{said}");
            assert!(!said.contains('\n'));
            let shown = object(Path::new("x"), &Search::default(), found);
            assert_eq!(shown["domains"], Value::Null);
        }
    }
}
