//! Measures the modelled devices as the papers measured theirs, and what a disk gains from a queue.
//!
//! `cargo run --release -p terrace-device --example measure_devices`

mod iometer;

use iometer::{Load, Pattern, Rates, run};
use terrace_device::Op;
use terrace_device::model::{MemberSpec, Preset, Scheduling, Spec};

const GIB: u64 = 1 << 30;

fn main() {
    published();
    sequential_writes_with_a_queue();
    println!();
    queue_gain("hdd-7200, whole stroke", &Preset::Hdd7200.spec());
    queue_gain("one disk of sigmod2011-hdd, calibrated span .1205", &Preset::Sigmod2011Log.spec());
    let narrow = Preset::Sigmod2011Log.spec().with_span(0.025);
    queue_gain("the same, span .025", &narrow);
    let mut sas = Preset::Icde2013Hdd.spec();
    sas.members = 1;
    queue_gain("one disk of icde2013-hdd", &sas);
}

fn load(spec: &Spec, op: Op, pattern: Pattern, outstanding: u64) -> Load {
    let requests = match pattern {
        Pattern::Random => 40_000 / u64::from(spec.members),
        Pattern::Sequential => 8_000,
    };
    let len = u64::from(spec.members) * GIB / 4;
    Load { spec: spec.clone(), len, request: 8 << 10, outstanding, op, pattern, requests, seed: 1 }
}

fn published() {
    println!("8 KiB, one outstanding request per disk   rR   sR   rW   sW (IOPS)");
    for (name, figures) in [
        ("sigmod2011-hdd", [1_015.0, 26_370.0, 895.0, 946.0]),
        ("icde2013-hdd", [2_718.0, 188_244.0, 2_610.0, 2_970.0]),
        ("iodrive", [12_182.0, 15_980.0, 12_374.0, 14_965.0]),
    ] {
        let spec = name.parse::<Preset>().expect("a preset").spec();
        let kinds = [
            (Op::Read, Pattern::Random),
            (Op::Read, Pattern::Sequential),
            (Op::Write, Pattern::Random),
            (Op::Write, Pattern::Sequential),
        ];
        print!("{name:<16}");
        for ((op, pattern), published) in kinds.into_iter().zip(figures) {
            let Rates { iops, .. } = run(&load(&spec, op, pattern, 1));
            print!("  {iops:>8.0} of {published:>7.0} ({:+.1}%)", (iops / published - 1.0) * 100.0);
        }
        println!();
    }
}

fn sequential_writes_with_a_queue() {
    for (name, outstanding) in [("sigmod2011-hdd", 2), ("sigmod2011-hdd", 16)] {
        let spec = name.parse::<Preset>().expect("a preset").spec();
        let iops = run(&load(&spec, Op::Write, Pattern::Sequential, outstanding)).iops;
        println!("{name}: sequential writes, {outstanding} outstanding per disk: {iops:.0} IOPS");
    }
}

/// What a queue gains on `spec`, on the same disk with moves that keep to the curve, and in order.
fn queue_gain(title: &str, spec: &Spec) {
    println!("{title}: random 8 KiB reads, and writes");
    println!(
        "  {:>5} {:>8} {:>6} {:>8} {:>6} {:>12} {:>6} {:>10} {:>8} {:>6}",
        "depth",
        "IOPS",
        "gain",
        "worst s",
        "util",
        "exact IOPS",
        "gain",
        "FCFS IOPS",
        "writes",
        "gain"
    );
    let (mut exact, mut fcfs) = (spec.clone(), spec.clone());
    if let (MemberSpec::Disk(exact), MemberSpec::Disk(fcfs)) = (&mut exact.member, &mut fcfs.member)
    {
        exact.arrival_error_ms = 0.0;
        fcfs.scheduling = Scheduling::Fcfs;
    }
    let random = |spec: &Spec, op, depth| run(&load(spec, op, Pattern::Random, depth));
    let alone = random(spec, Op::Read, 1).iops;
    let write_alone = random(spec, Op::Write, 1).iops;
    for depth in [1, 2, 4, 8, 16, 32, 64] {
        let Rates { iops, worst_s, utilisation, .. } = random(spec, Op::Read, depth);
        let exact = random(&exact, Op::Read, depth).iops;
        let in_order = random(&fcfs, Op::Read, depth).iops;
        let writes = random(spec, Op::Write, depth).iops;
        let (gain, exact_gain) = (iops / alone, exact / alone);
        print!("  {depth:>5} {iops:>8.1} {gain:>6.2} {worst_s:>8.2} {utilisation:>6.3}");
        print!(" {exact:>12.1} {exact_gain:>6.2} {in_order:>10.1}");
        println!(" {writes:>8.1} {:>6.2}", writes / write_alone);
    }
}
