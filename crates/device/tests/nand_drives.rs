//! The flash drives against their data sheets, and what garbage collection costs.

#[path = "../examples/measure_devices/iometer.rs"]
mod iometer;

use std::sync::Arc;

use iometer::{Load, Pattern, Rates, run};
use terrace_device::model::{MemberSpec, Preset, SimDevice, Spec};
use terrace_device::nand::{Content, NandSpec};
use terrace_device::{Device, Keep, Op, Store, write};
use terrace_rt::{Prng, Virtual, VirtualConfig};

const KIB: u64 = 1 << 10;

fn nand(preset: Preset) -> NandSpec {
    match preset.spec().member {
        MemberSpec::Nand(nand) => nand,
        _ => unreachable!("a flash drive"),
    }
}

fn erased(preset: Preset) -> Spec {
    let nand = NandSpec { content: Content::Erased, ..nand(preset) };
    Spec { member: MemberSpec::Nand(nand), ..preset.spec() }
}

fn measure(spec: Spec, op: Op, pattern: Pattern, request: u64, outstanding: u64) -> Rates {
    let requests = if outstanding == 1 { 4_000 } else { 40_000 };
    let requests = requests * 4 * KIB / request.max(4 * KIB);
    run(&Load { spec, len: 512 << 20, request, outstanding, op, pattern, requests, seed: 1 })
}

fn assert_near(what: &str, measured: f64, sheet: f64, off_max: f64) {
    let off = measured / sheet - 1.0;
    assert!(off.abs() < off_max, "{what}: {measured:.0} for {sheet} ({:+.1}%)", off * 100.0);
}

#[test]
fn drives_do_what_their_data_sheets_say() {
    use Op::{Read, Write};
    use Pattern::{Random, Sequential};
    for (preset, op, pattern, request, outstanding, sheet) in [
        (Preset::ConsumerSata, Read, Random, 4 * KIB, 1, 9_900.0),
        (Preset::ConsumerSata, Read, Random, 4 * KIB, 32, 100e3),
        (Preset::ConsumerSata, Write, Random, 4 * KIB, 1, 31e3),
        (Preset::ConsumerSata, Write, Random, 4 * KIB, 32, 90e3),
        (Preset::ConsumerSata, Read, Sequential, 128 * KIB, 32, 540e6 / 131_072.0),
        (Preset::ConsumerSata, Write, Sequential, 128 * KIB, 32, 520e6 / 131_072.0),
        (Preset::DcNvme, Read, Random, 4 * KIB, 1, 1e6 / 80.0),
        (Preset::DcNvme, Read, Random, 4 * KIB, 512, 900e3),
        (Preset::DcNvme, Write, Random, 4 * KIB, 1, 1e6 / 18.0),
        (Preset::DcNvme, Read, Sequential, 128 * KIB, 64, 6.5e9 / 131_072.0),
        (Preset::DcNvme, Write, Sequential, 128 * KIB, 64, 3.5e9 / 131_072.0),
    ] {
        // Reads find data only on a drive that was written; writes are sheets' "fresh out of box".
        let spec = if op == Read { preset.spec() } else { erased(preset) };
        let rates = measure(spec, op, pattern, request, outstanding);
        let what = format!("{} {op:?} {pattern:?}, {outstanding} outstanding", preset.name());
        println!("{what}: {:.0} of {sheet:.0}", rates.iops);
        assert_near(&what, rates.iops, sheet, 0.1);
    }
}

/// Roh et al., "B+-tree index optimization by exploiting internal parallelism of flash-based solid
/// state drives" (VLDB 2012), figure 2: ten times and more. Writes without the buffer, which hides
/// from one writer that programs take time.
#[test]
fn bandwidth_grows_tenfold_with_the_queue() {
    for (op, content) in [(Op::Read, Content::Worn), (Op::Write, Content::Erased)] {
        let nand = nand(Preset::ConsumerSata);
        let through = NandSpec { buffer_bytes: 0, queue_depth: 64, content, ..nand };
        let spec = Spec::single(MemberSpec::Nand(through));
        let [one, deep] = [1, 64]
            .map(|outstanding| measure(spec.clone(), op, Pattern::Random, 4 * KIB, outstanding));
        println!("{op:?}: {:.0}, {:.0} at 64", one.iops, deep.iops);
        assert!(deep.iops > 10.0 * one.iops, "{op:?}: {:.0} to {:.0}", one.iops, deep.iops);
    }
}

/// The same, section 3: about 32 outstanding requests are all that a drive uses.
#[test]
fn thirty_two_outstanding_are_enough() {
    for (op, spec) in [
        (Op::Read, Preset::ConsumerSata.spec()),
        (Op::Write, erased(Preset::ConsumerSata)),
        (Op::Write, Preset::ConsumerSata.spec()),
    ] {
        let [deep, deepest] = [32, 128]
            .map(|outstanding| measure(spec.clone(), op, Pattern::Random, 4 * KIB, outstanding));
        println!("{op:?}: {:.0} at 32, {:.0} at 128", deep.iops, deepest.iops);
        assert!(deep.iops > 0.9 * deepest.iops, "{:.0} of {:.0}", deep.iops, deepest.iops);
    }
}

#[test]
fn random_writes_to_a_worn_drive_pay_for_garbage_collection() {
    let write = |spec, pattern| measure(spec, Op::Write, pattern, 8 * KIB, 32);
    let fresh = write(erased(Preset::ConsumerSata), Pattern::Random);
    let worn = write(Preset::ConsumerSata.spec(), Pattern::Random);
    println!("fresh {:.0}, worn {:.0} x{:.2}", fresh.iops, worn.iops, worn.amplification);
    assert!(worn.amplification > 4.0, "amplified {:.2} times", worn.amplification);
    assert!(worn.iops < 0.5 * fresh.iops, "{:.0} of {:.0}", worn.iops, fresh.iops);
    assert!(fresh.amplification < 1.05);
}

/// 200,000 on the data sheet, of which nothing in the model knows; it has no parity among dies and
/// no wear levelling, which take their share of a real drive.
#[test]
fn a_data_centre_drive_keeps_up_random_writes() {
    let worn = measure(Preset::DcNvme.spec(), Op::Write, Pattern::Random, 4 * KIB, 64);
    println!("worn {:.0} x{:.2}", worn.iops, worn.amplification);
    assert_near("random writes, steady", worn.iops, 200e3, 0.3);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || measure(Preset::ConsumerSata.spec(), Op::Write, Pattern::Random, 8 * KIB, 16);
    assert_eq!(run(), run());
}

/// A small drive in a world of its own, from a seed.
fn with_drive<T>(spec: Spec, run: impl FnOnce(&SimDevice) -> T) -> T {
    let world = Virtual::new(VirtualConfig::default());
    let device =
        SimDevice::new(spec, world.world(), Store::new(64 << 20, Keep::Recent { pages: 8 }));
    world.run(move || run(&device)).expect("nothing cuts the power")
}

#[test]
fn a_barrier_waits_for_the_buffer_and_for_the_map() {
    with_drive(erased(Preset::ConsumerSata), |device| {
        let nand = nand(Preset::ConsumerSata);
        for (writes, programs) in [(1, 2), (0, 0), (2, 2)] {
            (0..writes).for_each(|page| {
                write(device, page << 13, &[1; 8 << 10]).expect("no faults");
            });
            let began = terrace_rt::now();
            device.sync().expect("no faults");
            let took = terrace_rt::now().saturating_sub(began);
            let cells = nand.program * programs;
            assert!(took >= cells && took < cells + nand.program, "{writes} writes: {took:?}");
        }
        let wear = device.wear().expect("a flash drive");
        assert_eq!((wear.host_bytes, wear.map_bytes), (3 * (8 << 10), 2 * (4 << 10)));
    });
}

#[test]
fn what_was_trimmed_is_not_moved() {
    let amplification = |trimmed: u64| {
        with_drive(Preset::ConsumerSata.spec(), |device| {
            let mut prng = Prng::from_seed(3);
            device.trim(0, trimmed << 20);
            for _ in 0..20_000 {
                let page = prng.range(trimmed << 7..64 << 7);
                write(device, page << 13, &[1; 8 << 10]).expect("no faults");
            }
            device.wear().expect("a flash drive").amplification()
        })
    };
    let (all, half) = (amplification(0), amplification(32));
    assert!(half < 0.5 * all, "{half:.2} with half of it trimmed, {all:.2} without");
}

#[test]
fn a_drive_is_as_worn_after_its_power_was_off() {
    let world = Virtual::new(VirtualConfig::default());
    let store = Store::new(64 << 20, Keep::Recent { pages: 8 });
    let device = SimDevice::new(Preset::DcNvme.spec(), world.world(), store);
    let shared = Arc::clone(&device);
    world
        .run(move || {
            (0..4_000).for_each(|page| {
                write(&*shared, (page % 8_192) << 13, &[1; 8 << 10]).expect("no faults");
            });
        })
        .expect("nothing cuts the power");
    let again = device.reopen(Virtual::new(VirtualConfig::default()).world());
    assert_eq!(again.wear(), device.wear());
    assert!(again.wear().expect("a flash drive").host_bytes == 4_000 << 13);
}
