//! Random reads with a queue on a disk of the validation set, served as by the modelled devices:
//! overheads follow one another beside the arm, and the nearest command is taken.

use terrace_device::Op;
use terrace_device::disk::{DiskAccess, Drive};
use terrace_rt::Prng;

/// Sectors of a request: 8 KiB.
const SECTORS: u64 = 16;
/// As in the presets.
const AGING: f64 = 0.01;

struct Waiting {
    access: DiskAccess,
    arrived: f64,
    ready: f64,
}

/// Reads per second over the whole of `drive` with `outstanding` requests, over `reads` reads.
pub fn rate(mut drive: Drive, outstanding: usize, reads: u32, seed: u64) -> f64 {
    let mut prng = Prng::from_seed(seed);
    let places = drive.mechanism().geometry().sectors() / SECTORS;
    let (mut queue, mut decoded) = (Vec::<Waiting>::new(), 0.0f64);
    // Answers not yet given; each makes room for a request.
    let mut answers = vec![0.0; outstanding];
    let (mut now, mut done) = (0.0f64, 0);
    while done < reads {
        answers.retain(|&at| {
            let due = at <= now;
            if due {
                let sector = prng.below(places) * SECTORS;
                let access = DiskAccess { op: Op::Read, sector, count: SECTORS };
                decoded = decoded.max(at) + drive.overhead(now, access);
                queue.push(Waiting { access, arrived: at, ready: decoded });
            }
            !due
        });
        let ready = queue.iter().enumerate().filter(|(_, waiting)| waiting.ready <= now);
        let waiting = ready.map(|(index, waiting)| (index, waiting.access, waiting.arrived));
        let Some(next) = drive.nearest(now, AGING, waiting) else {
            let soonest = queue.iter().map(|waiting| waiting.ready);
            now = soonest.chain(answers.iter().copied()).fold(f64::INFINITY, f64::min);
            continue;
        };
        let service = drive.serve_decoded(now, now, queue.remove(next).access);
        answers.push(service.finished);
        now = service.arm_free.max(now);
        done += 1;
    }
    f64::from(reads) / now * 1e9
}
