//! Which of two ways is faster, from times that other programs disturb.
//!
//! Each round times both ways, one right after the other, so that what slows one slows the other;
//! the ratios of the rounds are compared with a bar. The median of ratios needs no shape of their
//! noise: if it were at the bar, half of the rounds would be above it, and the odds of an imbalance
//! are those of tosses of a coin (the sign test).
//!
//! - C1: a race ends as soon as the odds are below `DOUBT`, or after its last round with the side
//!   that has the median.
//! - C2: of two rounds that follow each other each way goes first once.

/// Rounds before a race can end.
pub(crate) const ROUNDS_MIN: usize = 6;
/// Rounds of a race at most: an odd number, so that one ratio is in the middle.
pub(crate) const ROUNDS_MAX: usize = 21;
/// Odds at which an imbalance is no accident, of one side. Looked at after each round.
const DOUBT: f64 = 0.02;

/// The ratios so far: how many times as fast the second way was.
#[derive(Clone, Debug, Default)]
pub(crate) struct Race {
    ratios: Vec<f64>,
}

/// The two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Winner {
    First,
    Second,
}

impl Race {
    /// Which way goes first in the next round (C2).
    pub(crate) fn leads(&self) -> Winner {
        if self.ratios.len().is_multiple_of(2) { Winner::First } else { Winner::Second }
    }

    pub(crate) fn add(&mut self, ratio: f64) {
        self.ratios.push(ratio);
    }

    /// The median of the ratios, 1 if there is none.
    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.ratios.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(1.0)
    }

    /// The winner, the second way if it is more than `bar` times as fast; `None` while that is open
    /// and rounds are left of `rounds_max`.
    pub(crate) fn winner(&self, bar: f64, rounds_max: usize) -> Option<Winner> {
        let rounds = self.ratios.len();
        let above = self.ratios.iter().filter(|ratio| **ratio > bar).count();
        let ahead = if 2 * above > rounds { Winner::Second } else { Winner::First };
        let is_clear = rounds >= ROUNDS_MIN && odds(above.max(rounds - above), rounds) < DOUBT;
        if is_clear {
            return Some(ahead);
        }
        let middle = if self.median() > bar { Winner::Second } else { Winner::First };
        (rounds >= rounds_max).then_some(middle)
    }
}

/// The odds that of `tosses` of a coin `heads` or more are heads.
fn odds(heads: usize, tosses: usize) -> f64 {
    let mut ways = 1.0;
    let mut sum = 0.0;
    for tails in 0..=tosses - heads {
        sum += ways;
        ways *= (tosses - tails) as f64 / (tails + 1) as f64;
    }
    sum / 2_f64.powi(tosses as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_rt::Prng;

    #[test]
    fn odds_are_those_of_coins() {
        for (heads, tosses, wanted) in [(6, 6, 1.0 / 64.0), (5, 6, 7.0 / 64.0), (0, 4, 1.0)] {
            assert!((odds(heads, tosses) - wanted).abs() < 1e-12);
        }
    }

    /// Races of ways of which the second is `gain` times as fast, with turns that take up to four
    /// times as long when something else runs: how many of 1,000 the second wins, and how many
    /// rounds they have.
    fn races(gain: f64) -> (usize, usize) {
        let mut prng = Prng::from_seed(3);
        let (mut won, mut rounds) = (0, 0);
        for _ in 0..1_000 {
            let mut race = Race::default();
            let winner = loop {
                let mut turn = || {
                    let jitter = 0.9 + 0.2 * prng.f64();
                    let busy = if prng.chance(3) { 1.0 + 3.0 * prng.f64() } else { 1.0 };
                    jitter * busy
                };
                let (first, second) = (turn(), turn() / gain);
                race.add(first / second);
                if let Some(winner) = race.winner(1.05, ROUNDS_MAX) {
                    break winner;
                }
            };
            won += usize::from(winner == Winner::Second);
            rounds += race.ratios.len();
        }
        (won, rounds)
    }

    #[test]
    fn the_faster_way_wins_though_a_third_of_the_turns_are_disturbed() {
        let (won, rounds) = races(1.3);
        assert!(won > 970, "{won} of 1000");
        assert!(rounds < 16_000, "{rounds} rounds");
        let (won, _) = races(0.85);
        assert!(won < 30, "{won} of 1000");
    }

    #[test]
    fn a_race_without_noise_ends_after_the_fewest_rounds() {
        let mut race = Race::default();
        let mut led = 0;
        for round in 0..ROUNDS_MIN {
            assert_eq!(race.winner(1.05, ROUNDS_MAX), None, "round {round}");
            led += usize::from(race.leads() == Winner::First);
            race.add(1.2);
        }
        assert_eq!(led, ROUNDS_MIN / 2);
        assert_eq!(race.winner(1.05, ROUNDS_MAX), Some(Winner::Second));
        // A tie is no gain.
        let mut race = Race::default();
        (0..ROUNDS_MIN).for_each(|_| race.add(1.05));
        assert_eq!(race.winner(1.05, ROUNDS_MAX), Some(Winner::First));
    }

    #[test]
    fn an_open_race_ends_with_the_median() {
        let mut race = Race::default();
        for round in 0..7 {
            assert_eq!(race.winner(1.0, 7), None);
            race.add(if round % 2 == 0 { 1.1 } else { 0.9 });
        }
        assert_eq!((race.winner(1.0, 7), race.median()), (Some(Winner::Second), 1.1));
    }
}
