//! A closed system: a fixed number of clients, each of which requests from one device after the
//! other, without rest. Mean value analysis (Reiser and Lavenberg 1980).
//!
//! - Idea: a request that arrives at a device finds the queue that a system with one client fewer
//!   has on average.
//! - Q1: throughput is at most one over the largest demand, and at most the clients over the sum.
//! - Assumes: a device serves as fast with a short queue as with a long one, and what a client
//!   does at one device does not depend on the others.

/// Requests a second that `clients` get of devices which are busy for `demands` seconds with each.
///
/// # Panics
///
/// If there is no client.
#[must_use]
pub fn throughput(demands: &[f64], clients: u32) -> f64 {
    assert!(clients > 0, "somebody asks");
    let mut queues = vec![0.0; demands.len()];
    let mut rate = 0.0;
    for number in 1..=clients {
        let times: Vec<f64> =
            demands.iter().zip(&queues).map(|(demand, queue)| demand * (1.0 + queue)).collect();
        rate = f64::from(number) / times.iter().sum::<f64>();
        for (queue, time) in queues.iter_mut().zip(times) {
            *queue = rate * time;
        }
    }
    rate
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn one_client_waits_for_nobody_and_many_fill_the_slowest_device() {
        assert!((throughput(&[0.25, 0.75], 1) - 1.0).abs() < 1e-12);
        assert!((throughput(&[0.5, 0.5], 3) - 3.0 / 2.0).abs() < 1e-12, "n / (n + 1) of each");
        let many = throughput(&[0.01, 0.004], 200);
        assert!((many - 100.0).abs() < 1e-6 && many <= 100.0, "{many}");
    }

    /// The analysis is exact for exponential times: here they are played out.
    #[test]
    fn it_agrees_with_a_simulation() {
        for (clients, demands) in [(2, [1.0, 0.5]), (6, [1.0, 0.9]), (5, [0.2, 1.0])] {
            let mut prng = fastrand::Rng::with_seed(9);
            let mut draw = |mean: f64| -mean * (1.0 - prng.f64()).ln();
            // The end of what each device serves, and the clients that wait there.
            let mut queues = [VecDeque::from(vec![(); clients]), VecDeque::new()];
            let mut ends = [draw(demands[0]), f64::INFINITY];
            let (mut now, mut served) = (0.0, 0u32);
            while served < 400_000 {
                let at = usize::from(ends[1] < ends[0]);
                now = ends[at];
                queues[at].pop_front();
                ends[at] =
                    if queues[at].is_empty() { f64::INFINITY } else { now + draw(demands[at]) };
                if queues[1 - at].is_empty() {
                    ends[1 - at] = now + draw(demands[1 - at]);
                }
                queues[1 - at].push_back(());
                served += at as u32;
            }
            let got = f64::from(served) / now;
            let expected = throughput(&demands, clients as u32);
            assert!((got / expected - 1.0).abs() < 0.02, "{got} for {expected}");
        }
    }
}
