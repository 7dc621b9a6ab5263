//! What a read and a write keep a device busy, from how busy it was and what it was asked.
//!
//! - Idea: least squares over periods, of which older ones count less, drawn to one time for both
//!   kinds where the periods do not tell them apart.
//! - B1: neither time is less than a tenth of the time for both, nor more than ten times it.
//! - Cost: five numbers.

/// The estimate of one device.
#[derive(Clone, Copy, Debug)]
pub struct BusyFit {
    /// Sums of squares and products of reads, writes and the busy time.
    reads: f64,
    both: f64,
    writes: f64,
    busy_reads: f64,
    busy_writes: f64,
    /// Requests and busy time.
    requests: f64,
    busy: f64,
}

/// What an older period counts beside the one after it.
const FADING: f64 = 0.8;
/// How strongly both times are drawn together: the weight of that, as a share of the periods'
/// weight.
const DRAWN: f64 = 0.01;
const APART_MAX: f64 = 10.0;

impl BusyFit {
    /// Before the first period: a request takes `prior`, in any unit.
    #[must_use]
    pub fn new(prior: f64) -> BusyFit {
        BusyFit {
            reads: 0.0,
            both: 0.0,
            writes: 0.0,
            busy_reads: 0.0,
            busy_writes: 0.0,
            requests: 1e-3,
            busy: prior * 1e-3,
        }
    }

    /// Adds a period: the reads and writes that were requested of the device in it, and how long it
    /// was `busy`.
    pub fn add(&mut self, (reads, writes): (f64, f64), busy: f64) {
        if reads + writes <= 0.0 {
            return;
        }
        self.reads = self.reads * FADING + reads * reads;
        self.both = self.both * FADING + reads * writes;
        self.writes = self.writes * FADING + writes * writes;
        self.busy_reads = self.busy_reads * FADING + reads * busy;
        self.busy_writes = self.busy_writes * FADING + writes * busy;
        self.requests = self.requests * FADING + reads + writes;
        self.busy = self.busy * FADING + busy;
    }

    /// The time of a read and of a write.
    #[must_use]
    pub fn times(&self) -> (f64, f64) {
        let mean = self.busy / self.requests;
        let drawn = DRAWN * (self.reads + self.writes) + 1e-9;
        let (reads, writes) = (self.reads + drawn, self.writes + drawn);
        let (by_reads, by_writes) =
            (self.busy_reads + drawn * mean, self.busy_writes + drawn * mean);
        let determinant = reads * writes - self.both * self.both;
        let read = (by_reads * writes - by_writes * self.both) / determinant;
        let write = (by_writes * reads - by_reads * self.both) / determinant;
        let bounded = |time: f64| time.clamp(mean / APART_MAX, mean * APART_MAX);
        (bounded(read), bounded(write))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_rt::Prng;

    #[test]
    fn times_that_differ_are_told_apart_and_the_same_mixture_gives_their_mean() {
        for seed in 0..50 {
            let mut prng = Prng::from_seed(seed);
            let (read, write) = (0.1 + prng.f64(), 0.1 + prng.f64());
            let (mut mixed, mut alike) = (BusyFit::new(7.0), BusyFit::new(7.0));
            for _ in 0..40 {
                let (reads, writes) = (prng.f64() * 900.0, prng.f64() * 900.0);
                mixed.add((reads, writes), reads * read + writes * write);
                alike.add((300.0, 100.0), 300.0 * read + 100.0 * write);
            }
            let near = |time: f64, to: f64| (time - to).abs() < 0.1 * (read + write);
            let times = mixed.times();
            assert!(near(times.0, read) && near(times.1, write), "{times:?} {read} {write}");
            let (a, b) = alike.times();
            let mean = (300.0 * read + 100.0 * write) / 400.0;
            assert!(((3.0 * a + b) / 4.0 / mean - 1.0).abs() < 0.1, "{a} {b} {mean}");
        }
    }

    #[test]
    fn before_anything_is_known_the_prior_holds() {
        let (read, write) = BusyFit::new(8.0).times();
        assert!((read - 8.0).abs() < 1e-6 && (write - 8.0).abs() < 1e-6, "{read} {write}");
    }
}
