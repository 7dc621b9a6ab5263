//! Replays DiskSim's validation traces of five measured disks on the modelled disk, and prints how
//! far the service times are apart, beside DiskSim's own error.
//!
//! `cargo run --release -p terrace-device --example validate_disks`

mod arm_error;
mod disksim;
mod queued;

use std::path::Path;

use arm_error::{ArmError, BY_CHANCE};

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
    print_arm_errors(&folder);
    print_queue_gains(&folder);
}

fn print_arm_errors(folder: &Path) {
    println!();
    println!("arrival of the head against the mean seek curve (explained by chance: {BY_CHANCE})");
    println!("disk          pairs  explained   missed     made  mean error ms");
    for (name, _) in disksim::DISKS {
        let ArmError { pairs, explained, missed, made, mean_error_ms } =
            arm_error::measure(folder, name);
        print!("{name:<12} {pairs:>6} {explained:>10.2}");
        if explained > 2.0 * BY_CHANCE {
            println!(" {missed:>8.3} {made:>8.3}  {mean_error_ms:>13.2}");
        } else {
            println!("  the angle is not known");
        }
    }
}

fn print_queue_gains(folder: &Path) {
    println!();
    println!("random 8 KiB reads over the whole disk, per second (gain), by requests outstanding");
    for (name, error_ms) in [("atlas10k", 0.0), ("atlas10k", 0.3)] {
        print!("{name}, mean error {error_ms} ms:");
        let rate = |outstanding| {
            let drive = disksim::load_drive_that_errs(folder, name, error_ms);
            queued::rate(drive, outstanding, 20_000, 1)
        };
        let alone = rate(1);
        for outstanding in [1, 2, 4, 8, 16, 32] {
            let rate = rate(outstanding);
            print!("  {outstanding}: {rate:.1} ({:.2})", rate / alone);
        }
        println!();
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
