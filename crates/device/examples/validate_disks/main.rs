//! Replays DiskSim's validation traces of five measured disks on the modelled disk, and prints how
//! far the service times are apart, beside DiskSim's own error.
//!
//! `cargo run --release -p terrace-device --example validate_disks`

mod disksim;

use std::path::Path;

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/disksim");
    println!(
        "{:<12} {:>9} {:>9} {:>10} {:>10}",
        "disk", "rms ms", "DiskSim", "mean ms", "measured"
    );
    for (name, published) in disksim::DISKS {
        let trace = disksim::load_trace(&folder, name);
        let mut drive = disksim::load_drive(&folder, name);
        let replay = disksim::replay(&mut drive, &trace);
        let (modelled, measured) = replay.means_ms();
        let rms = replay.rms_ms();
        println!("{name:<12} {rms:>9.3} {published:>9.3} {modelled:>10.3} {measured:>10.3}");
        if std::env::args().nth(1).as_deref() == Some("--quantiles") {
            print_quantiles(&replay);
        }
    }
}

fn print_quantiles(replay: &disksim::Replay) {
    let last = replay.modelled.len() - 1;
    for percent in (0..=100).step_by(5) {
        let at = last * percent / 100;
        let (modelled, measured) = (replay.modelled[at] / 1e6, replay.measured[at] / 1e6);
        println!("  {percent:>3}% {modelled:>9.3} {measured:>9.3}");
    }
}
